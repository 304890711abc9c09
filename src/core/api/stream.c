/* CUDA streams and timelines (cuda.h): checks, then the engine. */
#include "api/api.h"

#include <commstream/cuda.h>

enum comm_result comm_event_record_stream(struct comm_event *event, struct CUstream_st *stream)
{
    return engine_event_record_stream(event, stream);
}

enum comm_result comm_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream)
{
    enum comm_result r = engine_alive(c);

    return r == COMM_OK ? engine_queue_wait_stream(c, stream) : r;
}

enum comm_result comm_stream_wait_event(struct CUstream_st *stream, struct comm_event *event)
{
    return engine_stream_wait_event(stream, event);
}

enum comm_result comm_stream_wait_request(struct CUstream_st *stream, struct comm_request request)
{
    return engine_stream_wait_request(stream, request);
}

enum comm_result comm_stream_of(struct comm_communicator *c, struct CUstream_st **stream)
{
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK)
        return r;
    if (!stream)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "stream_of: stream=NULL; expected room for a stream");
    return engine_stream_of(c, stream);
}

enum comm_result comm_stream_sync(struct comm_communicator *c, int64_t timeout_ns)
{
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK)
        return r;
    if (timeout_ns < 0)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "stream_sync: timeout_ns=%lld; expected 0 or more", (long long)timeout_ns);
    return engine_stream_sync(c, timeout_ns);
}
