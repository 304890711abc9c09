/* The queue waits of plans and groups. On a stream, a wait for what only the host reaches needs room of the library, which other
 * communicators use too. So a start first takes the points of all its waits, and keeps the room that these need. */
#include "plan/plan.h"

#include "event/event.h"

static void drop_points(struct comm_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        struct plan_step *step = &plan->step[i];
        if (step->kind != STEP_WAIT)
            continue;
        event_let_go(&step->point);
        if (step->event)
            timeline_point_drop(&step->point);
    }
}

enum comm_result plan_keep_waits(struct comm_state *b, struct comm_plan *plan)
{
    uint32_t count = 0;

    for (uint32_t i = 0; plan->waits && i < plan->count; i++) {
        struct plan_step *step = &plan->step[i];
        if (step->kind != STEP_WAIT)
            continue;
        if (step->event)
            step->point = event_hold(step->event);
        else
            event_keep_open(&step->point);
        enum comm_result r = timeline_point_test(&step->point);
        if (!step->event && r == COMM_OK) { /* for all starts to come: once its communicator is closed, the request returns CLOSED */
            event_let_go(&step->point);
            step->point = (struct timeline_point){.kind = POINT_REACHED};
        }
        count += !step->point.word && r == COMM_PENDING;
    }
    enum comm_result r = count && b->library_work.flags & NATIVE_STREAM ? queue_wait_keep(b, count) : COMM_OK;
    if (r != COMM_OK)
        drop_points(plan);
    return r;
}

void plan_leave_waits(struct comm_state *b, struct comm_plan *plan)
{
    if (!plan->waits)
        return;
    if (b->library_work.flags & NATIVE_STREAM)
        (void)queue_wait_keep(b, 0);
    state_activate(b); /* a close that waits for these points to be let go then visits the waits of active communicators */
    drop_points(plan);
}
