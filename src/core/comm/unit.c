/* A communicator in the form that the progress engine uses: one unit of work among others. */
#include "comm/parts.h"

static bool unit_step(struct progress_unit *unit)
{
    return state_step((struct comm_state *)(void *)unit);
}

static void unit_check(struct progress_unit *unit, int64_t now)
{
    state_check((struct comm_state *)(void *)unit, now);
}

/* Only if peers may request something at any time, although no thread here waits. */
static bool unit_serve(struct progress_unit *unit, bool monitor)
{
    struct comm_state *b = (struct comm_state *)(void *)unit;
    bool more = false;

    if (!b->rma.apart)
        return false;
    b->guest = monitor;
    more = state_step(b);
    PARTS_EACH (part, unit->engine)
        if ((*part)->serve)
            more |= (*part)->serve(b);
    b->guest = false;
    return more;
}

static void unit_activate(struct progress_unit *unit)
{
    state_activate((struct comm_state *)(void *)unit);
}

const struct progress_class state_progress = {.step = unit_step, .check = unit_check, .serve = unit_serve, .activate = unit_activate};
