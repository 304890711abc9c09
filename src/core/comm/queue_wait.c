/* Queue waits: when their points are reached. */
#include "comm/state.h"

void state_end_nap(struct comm_state *b)
{
    if (b->queue_wait.naps)
        engine_need_polls(b->unit.engine, false);
    b->queue_wait.naps = false;
}

static enum comm_result test(struct comm_state *b, const struct entry *e)
{
    const struct device_place place = {(_Atomic uint64_t *)(uintptr_t)e->point.word, e->point.value};
    enum comm_result r = timeline_point_test(&e->point);

    if (r == COMM_PENDING && e->point.kind == POINT_WORD && engine_ask_device(b->unit.engine, &place, &b->queue_wait.asked_ns) != COMM_OK)
        r = COMM_ERR_BACKEND;
    if (r != COMM_PENDING) {
        b->queue_wait.asked_ns = 0;
        state_end_nap(b);
    } else if (e->point.kind == POINT_WORD && !b->queue_wait.naps) {
        b->queue_wait.naps = true;
        engine_need_polls(b->unit.engine, true);
    }
    return r;
}

static void depend(struct comm_state *b, enum comm_result r)
{
    enum comm_result cause = r == COMM_ERR_ABANDONED ? COMM_ERR_ABANDONED : COMM_ERR_DEPENDENCY;

    state_propose(b, &(struct cause){.rank = b->team.rank, .peer = b->team.rank, .result = cause, .point = (uint32_t)r});
}

static void look_at_open(struct comm_state *b)
{
    enum comm_result r = test(b, state_entry(b, b->queue_wait.ticket));

    if (r == COMM_PENDING)
        return;
    if (r == COMM_OK)
        timeline_end(&b->line, b->queue_wait.ticket, COMM_OK);
    else
        depend(b, r);
    b->queue_wait.ticket = 0;
}

/* Messages behind a queued wait wait for its point, and not for the work before it, which may need them: a barrier, or a full window. */
static void look_at_queued(struct comm_state *b)
{
    for (uint64_t t = b->line.started + 1; t < b->line.next && b->line.waits_issued; t++) {
        struct entry *e = state_entry(b, t);
        if (e->head.kind != TIMELINE_QUEUE_WAIT)
            continue;
        enum comm_result r = test(b, e);
        if (r == COMM_ERR_BACKEND && e->point.kind == POINT_WORD) /* a device that has stopped, also for the work before the wait */
            depend(b, r);
        if (r != COMM_OK)
            return;
        timeline_pass_wait(&b->line, &e->head);
    }
}

void state_look_at_waits(struct comm_state *b)
{
    if (b->queue_wait.ticket && !b->failed)
        look_at_open(b);
    else if (b->p2p.held && !b->failed)
        look_at_queued(b);
}
