/* Queue waits: from a point to an entry of the queue. comm/queue_wait.c looks when the point is reached. */
#include "event/event.h"

#include "base/format.h"
#include "comm/state.h"

/* Returns the result of a wait on the stream, with a text unless it is OK. */
static enum comm_result explained(struct comm_state *b, enum comm_result r)
{
    if (r != COMM_OK) {
        state_keep_refusal(b, 0, r);
        base_format(b->failure.last_refused.text, sizeof b->failure.last_refused.text,
                    "queue wait: the stream of %s may not park on what only the host reaches (%s); wait on the host first, or use an event "
                    "of a stream",
                    b->native->native->class->name, base_result_name(r));
    }
    return r;
}

enum comm_result queue_wait_issue(struct comm_state *b, const struct timeline_point *point, struct comm_request *req)
{
    enum comm_result r;
    struct entry *e = state_room(b, &r);

    if (!e)
        return r;
    e->head.kind = TIMELINE_QUEUE_WAIT;
    r = b->library_work.flags & NATIVE_STREAM ? explained(b, b->library->wait(b, e, point)) : COMM_OK;
    if (r != COMM_OK)
        return r;
    e->point = timeline_point_copy(point);
    uint64_t ticket = timeline_issue(&b->line);
    if (req)
        *req = (struct comm_request){b->unit.handle, ticket};
    return COMM_OK;
}

enum comm_result queue_wait_keep(struct comm_state *b, uint32_t count)
{
    const struct native_class *class = b->native ? b->native->native->class : NULL;
    enum comm_result r = count ? engine_need_progress_thread(b->unit.engine) : COMM_OK;

    if (r == COMM_OK && class && class->keep_waits)
        r = class->keep_waits(b->native, count);
    return explained(b, r);
}

enum comm_result queue_wait_call(struct comm_communicator *c, const struct timeline_point *point)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    r = b->recording.plan ? COMM_ERR_STATE : state_ready_for_calls(b);
    if (r == COMM_OK)
        r = queue_wait_issue(b, point, NULL);
    if (!b->recording.plan)
        state_settle(b);
    state_leave(b);
    return r;
}
