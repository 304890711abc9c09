/*
 * Events join timelines: queues of communicators, CUDA streams, and the host itself wait for each other without blocking a CPU.
 *
 * An event is a cell that holds one point, and a point never changes: a wait, query or sync copies the point held at that moment; later
 * record, reset or destroy does not touch it. One exception: a hand-set point can no longer be set once its event is destroyed or recorded
 * anew, so its waiters end with COMM_ERR_ABANDONED. A new event holds a point already reached (as in CUDA). record puts in a new point;
 * reset puts in one that only comm_event_set reaches: the host's own gate. Usable with every communicator of c's engine, and every stream
 * of its device.
 *
 * Who waits comes first in the name:
 *   the host blocks in           comm_wait*, comm_sync*, comm_event_sync
 *   a queue waits, no CPU does   comm_queue_wait_*: work issued on c afterwards starts after the point
 *   a CUDA stream waits          comm_stream_wait_* (cuda.h)
 *
 * Any thread may call. May change until 0.1.
 */
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
 * Makes an event on c's engine that holds a point already reached. The caller's until comm_event_destroy. Local. cudaEventCreate.
 */
COMM_MUST enum comm_result comm_event_create(struct comm_communicator *c, struct comm_event **event);
/*
 * Gives the event back; queues that wait for its point keep that, and fail with ABANDONED where it was a hand-set one that is not set. No
 * other call on the event may be under way. NULL is fine.
 * cudaEventDestroy.
 */
COMM_API void comm_event_destroy(struct comm_event *event);
/*
 * Puts in the point behind everything issued on c so far, messages too; holds back nothing. c of another engine: UNSUPPORTED.
 * cudaEventRecord.
 */
COMM_MUST enum comm_result comm_event_record(struct comm_event *event, struct comm_communicator *c);
/*
 * Puts in a point that only comm_event_set reaches. A second reset before the set is STATE.
 */
COMM_MUST enum comm_result comm_event_reset(struct comm_event *event);
/*
 * Reaches the point of the last reset; starts in this thread what it releases, and wakes sleepers. Without a reset before: STATE. Runs no
 * callbacks.
 */
COMM_MUST enum comm_result comm_event_set(struct comm_event *event);
/*
 * OK when the point held now is reached, PENDING when not, or the error that it failed with. Does not block. cudaEventQuery.
 */
COMM_MUST enum comm_result comm_event_query(struct comm_event *event);
/*
 * Blocks until the point held now is reached, at most timeout_ns; PENDING then. STATE inside a callback. cudaEventSynchronize.
 */
COMM_MUST enum comm_result comm_event_sync(struct comm_event *event, int64_t timeout_ns);
/*
 * Everything issued on c afterwards, messages too, starts after the event's present point; nothing earlier waits. A local decision: other
 * ranks need not do it. A failed point fails c with DEPENDENCY and the first cause; one never reached, with TIMEOUT at the deadline. Events
 * of another engine: UNSUPPORTED. cudaStreamWaitEvent.
 */
COMM_MUST enum comm_result comm_queue_wait_event(struct comm_communicator *c, struct comm_event *event);
/*
 * As comm_queue_wait_event, for the point that a request is: work of c goes on behind an operation of another communicator of its engine.
 */
COMM_MUST enum comm_result comm_queue_wait_request(struct comm_communicator *c, struct comm_request request);

#ifdef __cplusplus
}
#endif

#endif
