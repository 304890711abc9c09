#ifndef COMMSTREAM_EVENT_H
#define COMMSTREAM_EVENT_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An event is a cell that holds one point, and a point never changes: a wait, query or sync copies the point held at that moment; later
 * record, reset or destroy does not touch it, but for one case: a hand-set point can no longer be set once its event is destroyed or
 * recorded anew, so its waiters end with COMM_ERR_ABANDONED. A new event holds a point already reached (as in CUDA). record puts in a new point; reset
 * puts in one that only comm_event_set reaches: the host's own gate. Usable with every communicator of c's engine, every stream of its device.
 * WAITS OF THE HOST block:           comm_wait*, comm_sync*, comm_event_sync.
 * WAITS OF A QUEUE never block:      comm_queue_wait_*: work issued on c afterwards starts after the point.
 * WAITS OF A CUDA STREAM never block: comm_stream_wait_* (cuda.h).
 */
COMM_MUST enum comm_result comm_event_create(struct comm_communicator *c, struct comm_event **event);
COMM_API void comm_event_destroy(struct comm_event *event); /* with waiters: freed after the last */
COMM_MUST enum comm_result comm_event_record(struct comm_event *event, struct comm_communicator *c); /* behind all issued on c so far */
COMM_MUST enum comm_result comm_event_reset(struct comm_event *event);
COMM_MUST enum comm_result comm_event_set(struct comm_event *event);
COMM_MUST enum comm_result comm_event_query(struct comm_event *event);
COMM_MUST enum comm_result comm_event_sync(struct comm_event *event, int64_t timeout_ns);
COMM_MUST enum comm_result comm_queue_wait_event(struct comm_communicator *c, struct comm_event *event);
COMM_MUST enum comm_result comm_queue_wait_request(struct comm_communicator *c, struct comm_request request);

#ifdef __cplusplus
}
#endif

#endif
