/*
 * The interpreter's exposures (run.c). Bytes lie in the caller's buffer, in scratch memory or in a view. If the wire has a place for them,
 * they are put there instead: by an earlier step (TEE), or here if this rank keeps them as well.
 */
#ifndef PROGRAM_RUN_EXPOSE_H
#define PROGRAM_RUN_EXPOSE_H

#include "program/run_step.h"

static struct wire_expose expose_of(const struct run *run, const struct comm_step *s, const struct run_lane *lane)
{
    return (struct wire_expose){
        .key = key_of(run, s, lane),
        .fingerprint = run->fingerprint,
        .edge = run->program->edge[s->edge],
        .flags = WIRE_WORK,
        .peers = peers_of(run, s, lane),
        .npeers = s->npeers,
        .cookie = cookie_of(run, RUN_COOKIE_EXPOSE, s, 0),
    };
}

/* Asks where the bytes of an EXPOSE should be put. answers: what they may replace, or NULL. False: the wire has no room for it yet. */
static bool reserve_pad(struct run *run, struct run_lane *lane, const struct comm_step *s, const struct run_range *to,
                        struct wire_view *answers, void **pad)
{
    struct wire_expose expose = expose_of(run, s, lane);
    struct wire_span span = {to->at, to->bytes};
    expose.spans = &span;
    expose.nspans = 1;
    expose.answers = answers;
    switch (run->channel->class->reserve(run->channel, &expose, to->bytes, pad)) {
    case WIRE_DONE:
        lane->built = WIRE_BUILT;
        return true;
    case WIRE_LANDING:
        lane->built = WIRE_BUILT | WIRE_DEPOSIT;
        return true;
    case WIRE_ANSWERS:
        lane->built = WIRE_BUILT | WIRE_ANSWER;
        return true;
    case WIRE_NONE:
        *pad = NULL;
        return true;
    default:
        run->again = true;
        return false;
    }
}

/* Where this rank keeps the bytes of an EXPOSE; NULL: nowhere, or they lie there already. */
static char *kept_at(const struct run *run, const struct run_lane *lane, const struct comm_step *s, const struct run_range *from)
{
    char *at = s->dst.buf ? place_of(run, s, &s->dst, lane, 0).at : NULL;

    return at == from->at ? NULL : at;
}

/* Puts bytes where they are exposed and where they are kept, in one pass. A wire without a place copies them itself, first, and `kept`
 * follows. */
static bool put_and_keep(struct run *run, struct run_lane *lane, const struct comm_step *s, const struct run_range *from, char *kept)
{
    void *pad = NULL;

    if (lane->built)
        return true;
    if (!reserve_pad(run, lane, s, from, NULL, &pad))
        return false;
    if (pad)
        data_swap(
            &(struct data_swap){.place = pad, .kept = kept, .given = from->at, .bytes = from->bytes, .nontemporal = run->nontemporal});
    return true;
}

static enum verdict step_expose(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    struct wire_span span;
    struct wire_expose expose = expose_of(run, s, lane);
    char *kept = NULL;
    if (BASE_UNLIKELY(s->src.buf == BUF_VIEW)) {
        uint32_t slot = slot_of(run, &s->src, lane);
        if (!views_present(run, slot, 1))
            return VERDICT_STAND;
        span = (struct wire_span){run->view[slot].at, run->view[slot].bytes};
    } else {
        struct run_range place = place_of(run, s, &s->src, lane, 0);
        span = (struct wire_span){place.at, place.bytes};
        expose.fingerprint = fingerprint_of(run, &place);
        if (BASE_UNLIKELY(s->dst.buf) && !(s->flags & STEP_TEE) && (kept = kept_at(run, lane, s, &place)) &&
            !put_and_keep(run, lane, s, &place, kept))
            return VERDICT_STAND;
    }
    expose.spans = &span;
    expose.nspans = 1;
    expose.flags |= lane->built;
    switch (run->channel->class->expose(run->channel, &expose)) {
    case WIRE_DONE:
        bump(run, s);
        break;
    case WIRE_PENDING:
        run->pending++;
        break;
    case WIRE_FAILED:
        return VERDICT_FAILED;
    default:
        run->again = true;
        return VERDICT_STAND;
    }
    if (BASE_UNLIKELY(kept) && !lane->built)
        data_copy(kept, span.at, span.bytes, run->nontemporal);
    run->bytes_out += span.bytes;
    lane->built = 0;
    return VERDICT_NEXT;
}

#endif
