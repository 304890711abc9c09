/**
 * @file cuda.h
 * @brief CUDA streams and communicators wait for each other.
 *
 * These functions work in a world of any backend. They are always exported, and return COMM_ERR_UNSUPPORTED if there is no CUDA driver or
 * device (the log names what is missing) and for a stream that is being captured.
 *
 * A stream belongs to the caller and to the primary context of a device that this process's ranks use. It must outlive the work queued on
 * it. NULL is the legacy default stream of the current context; 1 and 2 are CUDA's numbers for that one and for the calling thread's own.
 * The device of c need not be current. Backend nccl works on device buffers in place; the other backends stage them, for every collective
 * and message (docs/guide/cuda.md).
 *
 * All functions return COMM_ERR_FULL if too many points of a device (1,024) or too many waits for the host (4) are outstanding; nothing was
 * queued then. Any thread may call.
 */
#ifndef COMMSTREAM_CUDA_H
#define COMMSTREAM_CUDA_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Stores the point after everything on the stream so far. Queues can then wait for work of the device. Like cudaEventRecord.
 *
 * @param event   an event of comm_event_create()
 * @param stream  the stream
 * @return COMM_OK, COMM_ERR_UNSUPPORTED, COMM_ERR_FULL, COMM_ERR_ARGUMENT, or COMM_ERR_BACKEND
 */
COMM_MUST enum comm_result comm_event_record_stream(struct comm_event *event, struct CUstream_st *stream);

/**
 * Makes the queue of c wait: work issued on c afterwards starts after everything on the stream so far.
 *
 * @param c       communicator
 * @param stream  the stream
 * @return COMM_OK, COMM_ERR_UNSUPPORTED, COMM_ERR_FULL, COMM_ERR_CLOSED, COMM_ERR_BACKEND, or what c failed with
 */
COMM_MUST enum comm_result comm_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);

/**
 * Makes a stream wait: work put on the stream afterwards starts after the event's point. The host goes on. Like cudaStreamWaitEvent.
 *
 * The progress thread is started if it is not running. If the point fails later, the stream goes on, and its work reads no valid result.
 *
 * @param stream  the stream
 * @param event   the event
 * @return COMM_OK; the error of a point that has failed; COMM_ERR_UNSUPPORTED if the device cannot wait for a word of host memory;
 *         COMM_ERR_FULL, COMM_ERR_ARGUMENT, or COMM_ERR_BACKEND
 */
COMM_MUST enum comm_result comm_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);

/**
 * As comm_stream_wait_event(), for the completion of an operation: the device uses a result without the host in between.
 *
 * @param stream   the stream
 * @param request  the operation
 * @return as comm_stream_wait_event()
 */
COMM_MUST enum comm_result comm_stream_wait_request(struct CUstream_st *stream, struct comm_request request);

/**
 * Gets the stream on which the device work of c runs, to order other work behind it.
 *
 * @param c       communicator
 * @param stream  receives the stream; it belongs to the library: do not synchronise or destroy it
 * @return COMM_OK, COMM_ERR_UNSUPPORTED, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_stream_of(struct comm_communicator *c, struct CUstream_st **stream);

/**
 * Waits in the calling thread until everything issued on c so far is complete, on the device too. Like cudaStreamSynchronize.
 *
 * @param c           communicator
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @return COMM_OK; COMM_PENDING if timeout_ns passed first; COMM_ERR_STATE inside a callback; the first error of the operations
 */
COMM_MUST enum comm_result comm_stream_sync(struct comm_communicator *c, int64_t timeout_ns);

/**
 * As comm_buckets_ready(), for a gradient that is written when everything on the stream so far is done. Not built yet.
 *
 * @param b       the buckets
 * @param i       index of the gradient
 * @param stream  the stream
 * @return COMM_ERR_UNSUPPORTED
 */
COMM_MUST enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream);

/**
 * As comm_buckets_wait(), for a stream: work put there afterwards starts when all gradients are reduced. Not built yet.
 *
 * @param b       the buckets
 * @param stream  the stream
 * @return COMM_ERR_UNSUPPORTED
 */
COMM_MUST enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
