/* What the interpreter's steps share (run.c): verdicts, keys and cookies of exposures and views, and counters. */
#ifndef PROGRAM_RUN_STEP_H
#define PROGRAM_RUN_STEP_H

#include "program/run_place.h"

enum run_cookie { RUN_COOKIE_VIEW = 0, RUN_COOKIE_LAND = 1, RUN_COOKIE_EXPOSE = 2 };
enum verdict { VERDICT_NEXT, VERDICT_STAY /* the step has set the pc */, VERDICT_STAND, VERDICT_END, VERDICT_MISMATCH, VERDICT_FAILED };

static inline bool views_present(const struct run *run, uint32_t slot, uint32_t count)
{
    uint64_t mask = ones(count) << slot;
    return (run->present & mask) == mask;
}

static inline const uint16_t *peers_of(const struct run *run, const struct comm_step *s, const struct run_lane *lane)
{
    const struct comm_program *p = run->program;
    if (BASE_LIKELY(!s->peer_outer))
        return &p->peer[s->peer];
    return &p->peer[wrapped(s->peer + s->peer_outer * (int32_t)lane->i, p->peers)];
}

static inline wire_key key_of(const struct run *run, const struct comm_step *s, const struct run_lane *lane)
{
    return wire_key_of(run->seq, program_round(s, lane->k), s->edge);
}

static inline uint64_t cookie_of(const struct run *run, enum run_cookie kind, const struct comm_step *s, uint32_t slot)
{
    return (uint64_t)run->index << 32 | (uint32_t)kind << 30 | (uint32_t)(s - run->program->step) << 8 | slot;
}

static inline uint32_t rounds_left(const struct run *run, const struct comm_step *s, const struct run_lane *lane)
{
    uint32_t each = s->flags & STEP_EACH ? s->turns : 1;

    return BASE_UNLIKELY(run->program->ragged) ? 0 : run->chunks * each - program_round(s, lane->k);
}

/* What both ends of an edge compare: the call and, if only they know it, the length of their block. */
static inline uint32_t fingerprint_of(const struct run *run, const struct run_range *place)
{
    return run->program->ragged ? run->fingerprint ^ program_mark(place->whole) : run->fingerprint;
}

static inline void bump(struct run *run, const struct comm_step *s)
{
    if (s->bump) {
        run->counter[s->bump]++;
        run->bumped = true;
    }
}

static inline void view_is_here(struct run *run, const struct comm_step *s, uint32_t slot)
{
    run->present |= UINT64_C(1) << slot;
    run->bumped |= run->program->crossing;
    bump(run, s);
}

#endif
