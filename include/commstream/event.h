/**
 * @file event.h
 * @brief Events: queues of communicators, CUDA streams and the host wait for each other without blocking a CPU.
 *
 * An event holds a *point*: a place in a queue or a stream that is reached when all work before it is complete. A wait, query or sync uses
 * the point that the event holds when it is called; a later record, reset or free does not change that. A new event holds a point that
 * is already reached, as in CUDA. comm_event_record() stores a new point. comm_event_reset() stores a point that only comm_event_set()
 * reaches, so the host can hold work back. If such a point can no longer be set, because its event was freed or recorded again, its
 * waiters end with COMM_ERR_ABANDONED.
 *
 * An event works with every communicator of its engine, and with every stream of its device.
 *
 * What waits, by the name of the function:
 *
 * | function | who waits |
 * |---|---|
 * | comm_wait() and the like, comm_sync(), comm_event_sync(), comm_stream_sync() (cuda.h) | the calling thread |
 * | comm_queue_wait_event(), comm_queue_wait_request(), comm_queue_wait_stream() (cuda.h) | the queue: later work of c |
 * | comm_stream_wait_event(), comm_stream_wait_request() (cuda.h), comm_buckets_wait_stream() (bucket.h) | the CUDA stream |
 *
 * Any thread may call.
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

/**
 * Makes an event whose point is already reached. Local. Like cudaEventCreate.
 *
 * @param c      a communicator of the engine that uses the event
 * @param event  receives the event; free it with comm_event_free()
 * @return COMM_OK, COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_event_create(struct comm_communicator *c, struct comm_event **event);

/**
 * Frees an event. No other call on it may be running. Like cudaEventDestroy.
 *
 * Queues that wait for its point go on waiting for it; if it is a point of comm_event_reset() that was not set, they fail with
 * COMM_ERR_ABANDONED.
 *
 * @param event  the event; NULL is ignored
 */
COMM_API void comm_event_free(struct comm_event *event);

/**
 * Stores the point after everything issued on c so far, messages included. It holds nothing back. Like cudaEventRecord.
 *
 * If c has failed, the call stores a point that failed with the same error.
 *
 * @param event  the event
 * @param c      a communicator of the event's engine
 * @return COMM_OK; COMM_ERR_UNSUPPORTED if c belongs to another engine; COMM_ERR_STATE on a recorder; COMM_ERR_FULL, COMM_ERR_ARGUMENT or
 *         COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_event_record(struct comm_event *event, struct comm_communicator *c);

/**
 * Stores a point that only comm_event_set() reaches.
 *
 * @param event  the event
 * @return COMM_OK; COMM_ERR_STATE if the last such point is not set yet; COMM_ERR_MEMORY or COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_event_reset(struct comm_event *event);

/**
 * Reaches the point of the last comm_event_reset(), and starts in this thread the work that waited for it. It runs no callbacks.
 *
 * @param event  the event
 * @return COMM_OK; COMM_ERR_STATE without a reset before; COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_event_set(struct comm_event *event);

/**
 * Asks whether the event's point is reached, and makes progress if it is not. Does not block. Like cudaEventQuery.
 *
 * @param event  the event
 * @return COMM_OK if it is reached, COMM_PENDING if not, the error that it failed with, or COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_event_query(struct comm_event *event);

/**
 * Waits until the event's point is reached. Like cudaEventSynchronize.
 *
 * A point of comm_event_reset() has no deadline: COMM_FOREVER waits until it is set, or until it can no longer be set (COMM_ERR_ABANDONED).
 *
 * @param event       the event
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @return COMM_OK; COMM_PENDING if timeout_ns passed first; the error that the point failed with; COMM_ERR_STATE inside a callback if the
 *         point is not reached and timeout_ns is not 0; COMM_ERR_ARGUMENT
 */
COMM_MUST enum comm_result comm_event_sync(struct comm_event *event, int64_t timeout_ns);

/**
 * Makes the queue of c wait: everything issued on c afterwards, messages included, starts after the event's point.
 *
 * The wait is local: other ranks need not make it. If the point fails, c fails with COMM_ERR_DEPENDENCY and the first cause. If it is not
 * reached before the operation timeout, c fails with COMM_ERR_TIMEOUT. Like cudaStreamWaitEvent.
 *
 * @param c      communicator
 * @param event  an event of the same engine
 * @return COMM_OK; COMM_ERR_UNSUPPORTED if the event belongs to another engine, and on backend nccl if the stream of c is being captured
 *         or cannot wait; COMM_ERR_FULL (nothing was queued), COMM_ERR_ARGUMENT, COMM_ERR_CLOSED, or what c failed with; COMM_ERR_MEMORY
 *         on nccl and on a recorder; COMM_ERR_BACKEND on nccl
 */
COMM_MUST enum comm_result comm_queue_wait_event(struct comm_communicator *c, struct comm_event *event);

/**
 * As comm_queue_wait_event(), for the completion of an operation of another communicator. A request that is complete holds back nothing;
 * one that ended with an error, {NULL, e} included, fails c.
 *
 * @param c        communicator
 * @param request  a request of a communicator of the same engine
 * @return as comm_queue_wait_event()
 */
COMM_MUST enum comm_result comm_queue_wait_request(struct comm_communicator *c, struct comm_request request);

#ifdef __cplusplus
}
#endif

#endif
