/* The queue waits of plans and groups. On a stream, a wait for what only the host reaches needs room of the library, which other
 * communicators use too. So a start first keeps the room of all its waits. */
#include "plan/plan.h"

#include "event/event.h"

static struct timeline_point point_of(const struct plan_step *step)
{
    return step->event ? event_point(step->event) : step->point;
}

enum comm_result plan_start_wait(struct comm_state *b, const struct plan_step *step, struct comm_request *req)
{
    struct timeline_point point = point_of(step);
    enum comm_result r = queue_wait_issue(b, &point, req);

    timeline_point_drop(&point);
    return r;
}

enum comm_result plan_keep_waits(struct comm_state *b, const struct comm_plan *plan)
{
    uint32_t count = 0;

    for (uint32_t i = 0; plan->waits && b->library_work.flags & NATIVE_STREAM && i < plan->count; i++) {
        if (plan->step[i].kind != STEP_WAIT)
            continue;
        struct timeline_point point = point_of(&plan->step[i]);
        count += !point.word && timeline_point_test(&point) == COMM_PENDING;
        timeline_point_drop(&point);
    }
    return count ? queue_wait_keep(b, count) : COMM_OK;
}

void plan_leave_waits(struct comm_state *b, const struct comm_plan *plan)
{
    if (plan->waits && b->library_work.flags & NATIVE_STREAM)
        (void)queue_wait_keep(b, 0);
}
