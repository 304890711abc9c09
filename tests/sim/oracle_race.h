/*
 * oracle_race: checks that a program is valid: it uses nothing that is gone, and accesses of two communicators, or of
 * the host, to the same memory of a rank are ordered by an event, a request or a wait.
 */
#ifndef SIM_ORACLE_RACE_H
#define SIM_ORACLE_RACE_H

#include "sim/random_program.h"

enum { ORACLE_WORDS = RANDOM_OWN / 64 };
struct oracle_set {
    uint64_t word[ORACLE_WORDS]; /* actions of one rank, by index among its own */
};

/* One rank's way through its actions. For each queue, and for the host, it has the actions that are complete before the
 * next one starts. */
struct oracle_walk {
    const struct random_program *p;
    const struct random_comms *comms;
    struct oracle_set host, queue[RANDOM_COMMS], event[RANDOM_EVENTS];
    struct oracle_set issued[RANDOM_COMMS], work[RANDOM_COMMS]; /* so far; those of them that retire in order */
    bool closed[RANDOM_COMMS], shut[RANDOM_EVENTS];
    bool plan_open[RANDOM_PLANS], plan_made[RANDOM_PLANS];
    int32_t plan_comm[RANDOM_PLANS], event_comm[RANDOM_EVENTS];
    int32_t count, own[RANDOM_OWN];
    struct oracle_set before[RANDOM_OWN]; /* complete before that action starts */
};

void oracle_walk_start(struct oracle_walk *w, const struct random_program *p, const struct random_comms *comms);
void oracle_walk_copy(struct oracle_walk *to, const struct oracle_walk *from);
/* Adds the next action of this rank, by its index in the program. Returns NULL, or what is wrong with it. */
const char *oracle_walk_step(struct oracle_walk *w, int32_t index);
/* The latest earlier action that a would race with if it were next, by its index in the program; -1: none. */
int32_t oracle_walk_racing(const struct oracle_walk *w, const struct random_action *a);
/* Whether that action is known to be complete at the host's current position. */
bool oracle_walk_knows(const struct oracle_walk *w, int32_t index);

/* Checks the whole program: NULL, or why it is invalid, and where. */
const char *oracle_race(const struct random_program *p, const struct random_comms *comms, int32_t *action);

#endif
