/* What one rank's way has seen, and whether an access to memory is ordered with it. Private to oracle_race.c. */
#ifndef SIM_ORACLE_CONFLICT_H
#define SIM_ORACLE_CONFLICT_H

#include "sim/oracle_race.h"

static inline void oracle_set_add(struct oracle_set *s, int32_t i)
{
    s->word[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline bool oracle_set_has(const struct oracle_set *s, int32_t i)
{
    return s->word[i / 64] >> (i % 64) & 1;
}

static inline void oracle_set_join(struct oracle_set *s, const struct oracle_set *other)
{
    for (int32_t i = 0; i < ORACLE_WORDS; i++)
        s->word[i] |= other->word[i];
}

static inline const struct random_action *oracle_own(const struct oracle_walk *w, int32_t i)
{
    return &w->p->action[w->own[i]];
}

/* The action with the longest blocks that it may have. Ranks may be left out, and those behind them then have other blocks of a v form. */
struct random_action oracle_widest(const struct oracle_walk *w, const struct random_action *a);
bool oracle_may_conflict(const struct oracle_walk *w, const struct random_action *a, const struct random_action *b);
/* The latest earlier action that a races with; -1: none. done: what is complete before a starts; for one by the host, w->host counts. */
int32_t oracle_races(const struct oracle_walk *w, const struct random_action *a, const struct oracle_set *done);

#endif
