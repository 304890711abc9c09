/* Calls for progress, events, plans and groups: check the arguments, then call the engine. */
#include "api/api.h"

enum comm_result comm_sync(struct comm_communicator *c, int64_t timeout_ns)
{
    return timeout_ns < 0 ? engine_decline(c, COMM_ERR_ARGUMENT, NULL, "sync: timeout_ns=%lld; expected 0 or more", (long long)timeout_ns)
                          : engine_sync(c, timeout_ns);
}

enum comm_result comm_sync_all(struct comm_communicator *any, int64_t timeout_ns)
{
    return timeout_ns < 0
               ? engine_decline(any, COMM_ERR_ARGUMENT, NULL, "sync_all: timeout_ns=%lld; expected 0 or more", (long long)timeout_ns)
               : engine_sync_all(any, timeout_ns);
}

enum comm_result comm_progress(struct comm_communicator *any)
{
    return engine_progress(any);
}

enum comm_result comm_fd(struct comm_communicator *any, int *fd)
{
    return fd ? engine_fd(any, fd) : COMM_ERR_ARGUMENT;
}

enum comm_result comm_arm(struct comm_communicator *any)
{
    return engine_arm(any);
}

enum comm_result comm_event_create(struct comm_communicator *c, struct comm_event **event)
{
    return event ? engine_event_create(c, event) : COMM_ERR_ARGUMENT;
}

void comm_event_free(struct comm_event *event)
{
    if (event)
        engine_event_destroy(event);
}

enum comm_result comm_event_record(struct comm_event *event, struct comm_communicator *c)
{
    return engine_event_record(event, c);
}

enum comm_result comm_event_reset(struct comm_event *event)
{
    return engine_event_reset(event);
}

enum comm_result comm_event_set(struct comm_event *event)
{
    return engine_event_set(event);
}

enum comm_result comm_event_query(struct comm_event *event)
{
    return engine_event_query(event);
}

enum comm_result comm_event_sync(struct comm_event *event, int64_t timeout_ns)
{
    return timeout_ns < 0 ? COMM_ERR_ARGUMENT : engine_event_sync(event, timeout_ns);
}

enum comm_result comm_queue_wait_event(struct comm_communicator *c, struct comm_event *event)
{
    return event ? engine_queue_wait_event(c, event)
                 : engine_decline(c, COMM_ERR_ARGUMENT, NULL, "queue_wait_event: event=NULL; expected an event");
}

enum comm_result comm_queue_wait_request(struct comm_communicator *c, struct comm_request request)
{
    return engine_queue_wait_request(c, request);
}

enum comm_result comm_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder)
{
    return recorder ? engine_plan_begin(c, recorder) : COMM_ERR_ARGUMENT;
}

enum comm_result comm_plan_end(struct comm_communicator *recorder, struct comm_plan **plan)
{
    return plan ? engine_plan_end(recorder, plan) : COMM_ERR_ARGUMENT;
}

enum comm_result comm_plan_start(struct comm_plan *plan, struct comm_request *req)
{
    return engine_plan_start(plan, req);
}

void comm_plan_free(struct comm_plan *plan)
{
    if (plan)
        engine_plan_free(plan);
}

enum comm_result comm_group_begin(struct comm_communicator *c, struct comm_communicator **recorder)
{
    return recorder ? engine_group_begin(c, recorder) : COMM_ERR_ARGUMENT;
}

enum comm_result comm_group_end(struct comm_communicator *recorder, struct comm_request *req)
{
    return engine_group_end(recorder, req);
}
