/*
 * Streams of the program's that a channel works in, and CUDA graphs that are captured from them. What a graph has of a channel runs at each
 * launch, of which the host sees nothing. So each graph holds the channel by a user object, and the channel ends when CUDA has destroyed
 * the last one. CUDA destroys the object with the graph and all that was instantiated from it.
 */
#include "cuda/device.h"

#include "base/format.h"

enum { LOOK_NS = 200000, GONE_NS = 1000000000 };

/* CUDA calls this on a thread of its own, which may not call CUDA. The channel may be freed at once. */
static void graph_gone(void *arg)
{
    struct cuda_capture *k = arg;

    atomic_fetch_sub_explicit(&k->graphs, 1, memory_order_release);
}

static unsigned hold(struct cuda_device *d, struct cuda_capture *k, struct CUgraph_st *graph)
{
    const struct cuda_calls *calls = d->calls;
    struct CUuserObject_st *object = NULL;
    unsigned result = calls->cuUserObjectCreate(&object, k, graph_gone, 1, CUDA_OBJECT_NO_SYNC);

    if (result != CUDA_OK)
        return result;
    atomic_fetch_add_explicit(&k->graphs, 1, memory_order_relaxed);
    result = calls->cuGraphRetainUserObject(graph, object, 1, CUDA_GRAPH_MOVES_OBJECT);
    if (result != CUDA_OK)
        calls->cuUserObjectRelease(object, 1);
    return result;
}

/* The legacy default stream cannot be asked while another stream is being captured: CUDA returns an error. */
bool cuda_is_capturing(struct cuda_device *d, struct CUstream_st *stream)
{
    unsigned status = CUDA_CAPTURE_NONE;

    return d->calls->cuStreamIsCapturing(stream, &status) != CUDA_OK || status != CUDA_CAPTURE_NONE;
}

enum comm_result cuda_capture(struct cuda_device *d, struct CUstream_st *stream, struct cuda_capture *k, bool *captured, char *why,
                              size_t why_bytes)
{
    const struct cuda_calls *calls = d->calls;
    struct CUgraph_st *graph = NULL;
    uint64_t id = 0;
    unsigned status = CUDA_CAPTURE_NONE, result = calls->cuStreamIsCapturing(stream, &status);

    *captured = false;
    if (result == CUDA_OK && status == CUDA_CAPTURE_NONE)
        return COMM_OK;
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE && !calls->cuStreamGetCaptureInfo_v3) {
        base_format(why, why_bytes, "the communicator's stream is being captured; expected a driver for CUDA 12.3 or newer");
        return COMM_ERR_STATE;
    }
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE)
        result = calls->cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, NULL, NULL, NULL);
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE && id != k->id)
        result = hold(d, k, graph);
    if (result != CUDA_OK || status != CUDA_CAPTURE_ACTIVE) {
        base_format(why, why_bytes, "the communicator's stream is in a capture that CUDA refuses or has invalidated (error %u, status %u)",
                    result, status);
        return COMM_ERR_STATE;
    }
    k->id = id;
    *captured = true;
    return COMM_OK;
}

/* Only a default stream needs a context for the question, and only a capture the relaxed mode. */
enum comm_result cuda_ask_capture(struct cuda_device *d, struct CUstream_st *stream, struct cuda_capture *k, bool *captured, char *why,
                                  size_t why_bytes)
{
    bool is_default = (uintptr_t)stream <= CUDA_STREAM_PER_THREAD;
    struct cuda_inside inside;

    *captured = false;
    if (!is_default && !cuda_is_capturing(d, stream))
        return COMM_OK;
    if (!cuda_enter(d, &inside)) {
        base_format(why, why_bytes, "the device cannot be used: CUDA reports an error");
        return COMM_ERR_BACKEND;
    }
    enum comm_result r = cuda_capture(d, stream, k, captured, why, why_bytes);
    cuda_leave(d, &inside);
    return r;
}

/* A graph that the program has destroyed still counts until CUDA's thread has run. */
enum comm_result cuda_may_close(const struct comm_env *env, struct cuda_capture *k, char *why, size_t why_bytes)
{
    int64_t start = env->now(env);
    uint32_t graphs;

    while ((graphs = atomic_load_explicit(&k->graphs, memory_order_acquire)) && env->now(env) - start < GONE_NS)
        env->park(env, &k->graphs, graphs, env->now(env) + LOOK_NS);
    if (!graphs)
        return COMM_OK;
    base_format(why, why_bytes, "%u CUDA graphs have calls of this communicator; expected none: destroy the graphs first", graphs);
    return COMM_ERR_STATE;
}

/* The per-thread default stream is refused, because it is a different stream on each thread of this library. */
bool cuda_has_stream(struct cuda_device *d, const struct base_log *log, const char *who, struct CUstream_st *stream)
{
    struct CUctx_st *context = NULL;
    struct cuda_inside inside;
    bool known = false;

    if ((uintptr_t)stream != CUDA_STREAM_PER_THREAD && cuda_enter(d, &inside)) {
        known = d->calls->cuStreamGetCtx(stream, &context) == CUDA_OK && context == d->context;
        cuda_leave(d, &inside);
    }
    if (!known && log)
        base_log(log, LOG_ERROR,
                 "%s: options.stream is %p; expected a stream of cuda:%d, and not the calling thread's default stream "
                 "(cudaStreamPerThread)",
                 who, (void *)stream, d->ordinal);
    return known;
}
