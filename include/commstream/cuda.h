/**
 * @file cuda.h
 * @brief CUDA streams and communicators wait for each other.
 *
 * These functions work in a world of any backend; comm_stream_of() and comm_stream_sync() need a communicator that has a stream (nccl, or
 * a comm_dup() with options.stream). They are always exported, and return COMM_ERR_UNSUPPORTED if there is no CUDA driver or
 * device (the log names what is missing) and for a stream that is being captured.
 *
 * A stream belongs to the caller and to the primary context of a device that this process's ranks use. It must outlive the work queued on
 * it. NULL is the legacy default stream of the current context; 1 and 2 are CUDA's numbers for that one and for the calling thread's own.
 * The device of c need not be current. Backend nccl works on device buffers in place, and cuda does some collectives by kernels; all
 * else is staged through memory of the host, for every collective and message (docs/guide/cuda.md).
 *
 * The functions that record a point or make something wait return COMM_ERR_FULL if too many points of a device (1,024) or too many streams
 * that wait for the host (4) are outstanding; nothing was queued then. Any thread may call.
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
 * @return COMM_OK, COMM_ERR_UNSUPPORTED, COMM_ERR_FULL, COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_CLOSED, COMM_ERR_BACKEND,
 *         COMM_ERR_STATE on a recorder, or what c failed with
 */
COMM_MUST enum comm_result comm_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);

/**
 * Makes a stream wait: work put on the stream afterwards starts after the event's point. The host goes on. Like cudaStreamWaitEvent.
 *
 * The progress thread is started if it is not running. If the point fails later, the stream goes on, and its work reads no valid result.
 *
 * @param stream  the stream
 * @param event   the event
 * @return COMM_OK, also if the point is reached: then nothing is put on the stream; the error of a point that has failed;
 *         COMM_ERR_UNSUPPORTED, also if the device cannot wait for a word of host memory, or if there can be no progress thread;
 *         COMM_ERR_FULL, COMM_ERR_ARGUMENT, or COMM_ERR_BACKEND
 */
COMM_MUST enum comm_result comm_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);

/**
 * As comm_stream_wait_event(), for the completion of an operation: the device uses a result without the host in between. While a stream
 * waits for a staged operation, the program must make no call of CUDA that waits for that stream, such as the first launch of a kernel:
 * CUDA would then not let the library copy, and both would stand until the operation's deadline (docs/guide/cuda.md). comm_wait() has no
 * such limit.
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
 * @return COMM_OK; COMM_ERR_UNSUPPORTED if c works on no stream: it must be of backend nccl, or a comm_dup() with options.stream;
 *         COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_stream_of(struct comm_communicator *c, struct CUstream_st **stream);

/**
 * Waits in the calling thread until everything issued on c so far is complete, on the device too. Like cudaStreamSynchronize.
 *
 * @param c           communicator
 * @param timeout_ns  how long to wait, as in comm_wait()
 * @return COMM_OK; COMM_PENDING if timeout_ns passed first; COMM_ERR_STATE inside a callback; what c failed with (comm_sync() also reports
 *         errors of single operations); COMM_ERR_UNSUPPORTED as comm_stream_of(); COMM_ERR_FULL (make progress and call again),
 *         COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_stream_sync(struct comm_communicator *c, int64_t timeout_ns);

/**
 * As comm_buckets_ready(), for a gradient in memory of a device that is written when everything on the stream so far is done.
 *
 * The stream copies the gradient into its bucket. The bucket's reduction waits for the stream, on the device; the host goes on. Any thread
 * may call, several at once, with streams of its own. A stream that writes a gradient must run behind the comm_buckets_wait_stream() of the
 * step before, as it must to read that step's results. If the reduction cannot be made to wait for the stream, this rank revokes the
 * communicator (comm_revoke()), since the other ranks would wait for it.
 *
 * @param b       buckets of gradients that are in memory of a device
 * @param i       index of the gradient
 * @param stream  the stream that writes it
 * @return COMM_OK; COMM_ERR_STATE the second time in a step; COMM_ERR_FULL: nothing happened, call comm_progress() and try again;
 *         COMM_ERR_UNSUPPORTED for gradients of the host, a stream that is being captured, and a stream of no device of this process;
 *         COMM_ERR_ARGUMENT, COMM_ERR_BACKEND, or what the communicator failed with
 */
COMM_MUST enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream);

/**
 * As comm_buckets_wait(), for a stream: work put there afterwards starts when all gradients have their results.
 *
 * The host does not wait, and the next step may begin at once. Gradients that were not reported count as zeros. Only one thread may call.
 * From one step to the next, use the same stream, or streams that wait for each other. If a reduction fails later, the communicator fails:
 * the stream goes on, its work reads no valid result, and the next call on the buckets or on the communicator returns the error. Call
 * comm_sync() before results leave the device.
 *
 * @param b       buckets of gradients that are in memory of a device
 * @param stream  the stream
 * @return COMM_OK; COMM_ERR_FULL if a queue had no room, and COMM_PENDING if another thread is inside comm_buckets_ready_stream(): the step
 *         goes on, call comm_progress() and this again; COMM_ERR_STATE if another thread is in this call; COMM_ERR_UNSUPPORTED as above;
 *         otherwise the first error of the reductions, and the step has ended
 */
COMM_MUST enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
