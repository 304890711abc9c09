/* Accesses of one rank to the same memory: which of its actions conflict, and which of these nothing orders. */
#include "sim/oracle_conflict.h"

/* If ranks may be left out, those behind them have other blocks of a v form than planned: assume the longest blocks. */
struct random_action oracle_widest(const struct oracle_walk *w, const struct random_action *a)
{
    struct random_action wide = *a;
    for (int32_t c = a->comm; c > 0; c = w->comms->comm[c].parent) {
        if (w->comms->comm[c].maker == RANDOM_SHRINK)
            wide.flags &= ~RANDOM_RAGGED;
    }
    return wide;
}

bool oracle_may_conflict(const struct oracle_walk *w, const struct random_action *a, const struct random_action *b)
{
    struct random_action wide_a = oracle_widest(w, a), wide_b = oracle_widest(w, b);
    return random_conflict(&wide_a, &wide_b, w->comms);
}

/* Whether a conflicts with i; for a plan, with any of its members. */
static bool clash(const struct oracle_walk *w, const struct random_action *a, int32_t i)
{
    const struct random_action *b = oracle_own(w, i);
    if (!random_starts(b->verb))
        return oracle_may_conflict(w, a, b);
    for (int32_t k = 0; k < i; k++) {
        const struct random_action *member = oracle_own(w, k);
        if (member->plan == b->plan && member->verb <= RANDOM_RECV && !random_starts(member->verb) && oracle_may_conflict(w, a, member))
            return true;
    }
    return false;
}

/* The latest action that a races with; comm -1: a is an access by the host itself. */
static int32_t races_one(const struct oracle_walk *w, const struct random_action *a, int32_t comm, const struct oracle_set *done)
{
    for (int32_t i = w->count - 1; i >= 0; i--) {
        const struct random_action *b = oracle_own(w, i);
        bool ordered = b->comm == comm && b->verb != RANDOM_BUCKETS; /* by the queue; the library owns a step's memory until its wait */
        if (random_issues(b) && !ordered && !oracle_set_has(done, i) && clash(w, a, i))
            return i;
    }
    return -1;
}

int32_t oracle_races(const struct oracle_walk *w, const struct random_action *a, const struct oracle_set *done)
{
    int32_t found = -1;
    if (random_by_host(a->verb))
        return races_one(w, a, -1, &w->host);
    if (!random_starts(a->verb))
        return races_one(w, a, a->comm, done);
    for (int32_t k = 0; k < w->count && found < 0; k++) {
        const struct random_action *member = oracle_own(w, k);
        if (member->plan == a->plan && member->verb <= RANDOM_RECV && !random_starts(member->verb))
            found = races_one(w, member, a->comm, done);
    }
    return found;
}
