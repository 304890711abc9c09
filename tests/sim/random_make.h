/*
 * random_make: what the parts of the generator share. A statement is tried: its actions are appended, with waits where
 * memory accesses would race. Then the oracle is asked whether the program would still end with everything that was
 * promised for later (gates to open, messages to answer, receives to cancel). If not, the statement is taken back.
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

/* State that is restored when a statement is taken back. */
struct make_state {
    struct make_later later[MAKE_LATERS];
    int32_t laters, ids, comms, plans, groups;
    int32_t floor;                                   /* only communicators from here on are used: earlier ones may have failed */
    int32_t shrinking[RANDOM_COMMS];                 /* 1 + the statement that is shrinking it; 0: none */
    int32_t life[RANDOM_COMMS], maker[RANDOM_COMMS]; /* maker: the statement that creates it */
    int32_t plan_comm[RANDOM_PLANS];
    int32_t steps[RANDOM_COMMS]; /* steps of buckets that some rank has not waited for */
    int32_t windows, window_comm[MAKE_WINDOWS], window_maker[MAKE_WINDOWS], window_left[MAKE_WINDOWS]; /* left: ranks that have it */
    uint8_t bits[MAKE_WINDOWS][RANDOM_RANKS][RANDOM_WORDS]; /* bits of each word that are taken */
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
/* Appends the action, behind waits that order its memory accesses if needed. */
void make_add(struct maker *m, struct random_action a);
void make_later(struct maker *m, struct random_action a, int32_t step);
void make_begin(struct maker *m);
bool make_end(struct maker *m); /* false: the statement was taken back */
/* A usable communicator, for which its members have waited; -1: none. */
int32_t make_comm(struct maker *m);
int32_t make_member(struct maker *m, int32_t comm);
void make_range(struct maker *m, struct random_action *a, int32_t members);
int32_t make_count(struct maker *m, int32_t type, int32_t blocks);

/* random_statement.c */
void make_statement(struct maker *m);
/* random_recover.c: agreements, and communicators created outside the queue. */
void make_subset(struct maker *m);
void make_shrunk(struct maker *m);
void make_agreement(struct maker *m);
void make_end_of_shrink(struct maker *m, int32_t comm); /* all ranks see the end of a shrink under way */
/* Whatever has happened so far, the remaining ranks continue with a communicator of their own. False: not possible. */
bool make_recovery(struct maker *m);
/* random_bucket.c, random_window.c */
void make_buckets(struct maker *m);
void make_window(struct maker *m);
int32_t make_op(struct maker *m, int32_t type);
/* random_wrong.c: makes one thing in a correct program wrong. */
void make_wrong(struct random_program *p, uint64_t *chance);

#endif
