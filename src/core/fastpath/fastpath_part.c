/* The fast path as a part of a communicator (progress/part.h): its memory, its step in a pass, and its end. */
#include "fastpath/fastpath.h"

#include "comm/state.h"

static enum comm_result open(struct comm_state *b, struct team_offer *offer)
{
    (void)offer;
    b->fastpath = b->unit.engine->env->take(b->unit.engine->env, sizeof *b->fastpath, 64);
    return b->fastpath ? COMM_OK : COMM_ERR_MEMORY;
}

static void close(struct comm_state *b)
{
    env_give_back(b->unit.engine->env, b->fastpath, sizeof *b->fastpath);
}

/* The wire has read bytes of an operation. The lower half of the cookie is the lower half of its ticket. */
static bool event(struct comm_state *b, const struct wire_event *event)
{
    uint64_t oldest = b->line.done + 1;

    if ((uint32_t)(event->cookie >> 32) != FASTPATH_COOKIE)
        return false;
    /* the pass that delivered this event polls again */
    state_entry(b, oldest + (uint32_t)((uint32_t)event->cookie - (uint32_t)oldest))->unread--;
    return true;
}

static bool step(struct comm_state *b)
{
    return fastpath_pending(b) && !b->failed && fastpath_poll(b);
}

static void failing(struct comm_state *b, enum comm_result result)
{
    (void)result;
    b->fastpath->last = b->fastpath->waits = 0;
    b->fastpath->seen = 0;
}

const struct comm_part fastpath_part = {.name = "fastpath", .open = open, .close = close, .event = event, .step = step, .failing = failing};
