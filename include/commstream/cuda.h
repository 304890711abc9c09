#ifndef COMMSTREAM_CUDA_H
#define COMMSTREAM_CUDA_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Always exported; COMM_ERR_UNSUPPORTED, with what is missing, where there is no CUDA. stream NULL is the legacy default stream. */
COMM_MUST enum comm_result comm_event_record_stream(struct comm_event *event, struct CUstream_st *stream);
COMM_MUST enum comm_result comm_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream);  /* behind all on stream so far */
COMM_MUST enum comm_result comm_stream_wait_event(struct CUstream_st *stream, struct comm_event *event);
COMM_MUST enum comm_result comm_stream_wait_request(struct CUstream_st *stream, struct comm_request request);
COMM_MUST enum comm_result comm_stream_of(struct comm_communicator *c, struct CUstream_st **stream);         /* the internal one; do not sync it */
COMM_MUST enum comm_result comm_stream_sync(struct comm_communicator *c, int64_t timeout_ns);                /* host waits for device work of c   */
COMM_MUST enum comm_result comm_buckets_ready_stream(struct comm_buckets *b, size_t i, struct CUstream_st *stream);
COMM_MUST enum comm_result comm_buckets_wait_stream(struct comm_buckets *b, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
