/*
 * CUDA streams and the library's timelines wait for each other, in a world of any backend. Always exported; COMM_ERR_UNSUPPORTED where
 * there is no CUDA driver or device, with the missing piece in the log, and for a stream that is being captured.
 *
 * A stream belongs to the caller, to the primary context of a device that this process's ranks use, and outlives what was queued on it;
 * stream NULL is the legacy default stream. Any thread may call, with the device of c current or not. COMM_ERR_FULL: too many places
 * (1,024 a device) or waits for the host (4) are not reached yet; nothing was queued. Device buffers: backend nccl. May change until 0.1.
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

/*
 * Puts into the event the point behind everything on `stream` so far. Queues may then wait for device work. cudaEventRecord.
 */
COMM_MUST enum comm_result comm_event_record_stream(struct comm_event *event, struct CUstream_st *stream);
/*
 * Work issued on c afterwards starts after everything on `stream` so far: an event recorded on it and comm_queue_wait_event, in one.
 */
COMM_MUST enum comm_result comm_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);
/*
 * What is put on `stream` afterwards starts after the event's present point; the host goes on. The progress thread is started if none runs.
 * A point that failed is its error here; one that fails later
 * releases the stream, and what it reads then is no result. UNSUPPORTED where the device cannot park. cudaStreamWaitEvent.
 */
COMM_MUST enum comm_result comm_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);
/*
 * As comm_stream_wait_event, for the point that a request is: the consumer of a result on the device needs no host in between.
 */
COMM_MUST enum comm_result comm_stream_wait_request(struct CUstream_st *stream, struct comm_request request);
/*
 * The stream on which c's device work runs, to order other work behind it. It stays the library's: do not synchronise or destroy it.
 */
COMM_MUST enum comm_result comm_stream_of(struct comm_communicator *c, struct CUstream_st **stream);
/*
 * The host waits, at most timeout_ns, for everything issued on c so far; PENDING when it takes longer. STATE inside a callback.
 * cudaStreamSynchronize.
 */
COMM_MUST enum comm_result comm_stream_sync(struct comm_communicator *c, int64_t timeout_ns);
/*
 * comm_buckets_ready for a gradient that is written once everything on `stream` so far is done. Any thread. Not built yet:
 * COMM_ERR_UNSUPPORTED.
 */
COMM_MUST enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream);
/*
 * comm_buckets_wait for a consumer on `stream`: what is put there afterwards starts when all gradients are reduced; the host goes on.
 * Not built yet: COMM_ERR_UNSUPPORTED.
 */
COMM_MUST enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
