/*
 * random_make: what the parts of the generator share. A statement is tried: its actions are appended, waits among them wherever memory
 * would else be raced for, and the oracle is asked whether the program would still end with all that was promised for later (gates to open,
 * messages to answer, receives to cancel). If not, the statement is taken back.
 */
#ifndef SIM_RANDOM_MAKE_H
#define SIM_RANDOM_MAKE_H

#include "sim/oracle_machine.h"
#include "sim/oracle_race.h"

enum { MAKE_LATERS = 128, MAKE_TRIES = 4, MAKE_WINDOWS = 4 };
enum make_life { MAKE_NONE, MAKE_MAKING, MAKE_LIVE, MAKE_CLOSING };

struct make_later {
    struct random_action action;
    int32_t step;
};

/* What is taken back with a statement. */
struct make_state {
    struct make_later later[MAKE_LATERS];
    int32_t laters, ids, comms, plans, groups;
    int32_t floor;                                   /* communicators from here on alone are used: those before may have failed */
    int32_t shrinking[RANDOM_COMMS];                 /* 1 + the statement by which it is being shrunk; 0: none */
    int32_t life[RANDOM_COMMS], maker[RANDOM_COMMS]; /* maker: the statement that makes it */
    int32_t plan_comm[RANDOM_PLANS];
    int32_t steps[RANDOM_COMMS]; /* of buckets, that some rank has not waited for */
    int32_t windows, window_comm[MAKE_WINDOWS], window_maker[MAKE_WINDOWS], window_left[MAKE_WINDOWS]; /* left: ranks that have it */
    uint8_t bits[MAKE_WINDOWS][RANDOM_RANKS][RANDOM_WORDS];                                            /* given out, of each word */
    bool plan_dead[RANDOM_PLANS];
    bool shut[RANDOM_RANKS][RANDOM_EVENTS], used[RANDOM_RANKS][RANDOM_EVENTS];
};

struct maker {
    struct random_program *p;
    uint64_t chance;
    int32_t step, first; /* first: of the statement being tried */
    bool bad;
    struct random_comms comms;
    struct make_state state, saved;
    struct oracle now, trial;
    struct oracle_walk walk[RANDOM_RANKS], kept[RANDOM_RANKS];
};

uint32_t make_chance(struct maker *m, uint32_t below);
struct random_action make_action(struct maker *m, int32_t verb, int32_t id, int32_t rank, int32_t comm);
int32_t make_id(struct maker *m);
/* Appends it, behind waits that order its memory where that is needed. */
void make_add(struct maker *m, struct random_action a);
void make_later(struct maker *m, struct random_action a, int32_t step);
void make_begin(struct maker *m);
bool make_end(struct maker *m); /* false: taken back */
/* A communicator that can be used, -1: none; its members have waited for it. */
int32_t make_comm(struct maker *m);
int32_t make_member(struct maker *m, int32_t comm);
void make_range(struct maker *m, struct random_action *a, int32_t members);
int32_t make_count(struct maker *m, int32_t type, int32_t blocks);

/* random_statement.c */
void make_statement(struct maker *m);
/* random_recover.c: agreements, and communicators that are made beside the queue. */
void make_subset(struct maker *m);
void make_shrunk(struct maker *m);
void make_agreement(struct maker *m);
void make_end_of_shrink(struct maker *m, int32_t comm); /* all see the end of one that is under way */
/* Whatever may have happened so far: those who are left go on with a communicator of their own. False: they cannot. */
bool make_recovery(struct maker *m);
/* random_bucket.c, random_window.c */
void make_buckets(struct maker *m);
void make_window(struct maker *m);
int32_t make_op(struct maker *m, int32_t type);
/* random_wrong.c: one thing in a correct program is made wrong. */
void make_wrong(struct random_program *p, uint64_t *chance);

#endif
