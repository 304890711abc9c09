/*
 * The interpreter's exposures (run.c). Bytes lie in the caller's buffer, in scratch memory or in a view. If the wire has a place for them,
 * they are put there instead: by the REDUCE that makes them (TEE), or here if they answer what a view held (ANSWER).
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
static bool reserve_pad(struct run *run, struct run_lane *lane, const struct comm_step *s, const struct place *to,
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

/* Puts bytes that answer a view in its place, if the wire allows it. The next step releases the view, which nobody needs any more. */
static bool put_answer(struct run *run, struct run_lane *lane, const struct comm_step *s, const struct place *from)
{
    struct wire_view *answered = &run->view[slot_of(run, &s[1].src, lane)];
    void *pad = NULL;

    if (lane->built)
        return true;
    if (!reserve_pad(run, lane, s, from, answered, &pad))
        return false;
    if (pad && from->bytes)
        data_copy(pad, from->at, from->bytes, lane->built & WIRE_DEPOSIT);
    return true;
}

static enum verdict step_expose(struct run *run, struct run_lane *lane, const struct comm_step *s)
{
    struct wire_span span;
    struct wire_expose expose = expose_of(run, s, lane);
    if (BASE_UNLIKELY(s->src.buf == BUF_VIEW)) {
        uint32_t slot = slot_of(run, &s->src, lane);
        if (!views_present(run, slot, 1))
            return VERDICT_STAND;
        span = (struct wire_span){run->view[slot].at, run->view[slot].bytes};
    } else {
        struct place place = place_of(run, s, &s->src, lane, 0);
        if (program_leaves_out(run->program, s, place.whole * run->raw))
            return VERDICT_NEXT;
        span = (struct wire_span){place.at, place.bytes};
        expose.fingerprint = fingerprint_of(run, &place);
        if (BASE_UNLIKELY(s->flags & STEP_ANSWER) && !put_answer(run, lane, s, &place))
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
    run->bytes_out += span.bytes;
    lane->built = 0;
    return VERDICT_NEXT;
}

#endif
