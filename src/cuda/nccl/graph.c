/*
 * CUDA graphs. Only the caller's stream can be captured, so only a communicator that works in one has captured calls. NCCL records such a
 * call in the graph, which runs it at each launch. The host sees no launch: the call's request is complete when those before it are, and
 * nothing of this library is put on the stream behind the call.
 *
 * NCCL does not free a communicator while a graph holds it; it would wait. So each graph holds the channel by a user object, and the
 * channel ends when CUDA has destroyed the last one. CUDA destroys the object with the graph and all that was instantiated from it.
 */
#include "cuda/nccl/nccl.h"

#include "base/format.h"

/* CUDA calls this on a thread of its own, which may not call CUDA. The channel may be freed at once. */
static void graph_gone(void *arg)
{
    struct nccl_channel *c = arg;

    atomic_fetch_sub_explicit(&c->graphs, 1, memory_order_release);
}

static unsigned hold(struct nccl_channel *c, struct CUgraph_st *graph)
{
    const struct cuda_calls *calls = c->d->calls;
    struct CUuserObject_st *object = NULL;
    unsigned result = calls->cuUserObjectCreate(&object, c, graph_gone, 1, CUDA_OBJECT_NO_SYNC);

    if (result != CUDA_OK)
        return result;
    atomic_fetch_add_explicit(&c->graphs, 1, memory_order_relaxed);
    result = calls->cuGraphRetainUserObject(graph, object, 1, CUDA_GRAPH_MOVES_OBJECT);
    if (result != CUDA_OK)
        calls->cuUserObjectRelease(object, 1);
    return result;
}

/* The legacy default stream cannot be asked while another stream is being captured: CUDA returns an error. */
static unsigned ask(struct nccl_channel *c, unsigned *status)
{
    *status = CUDA_CAPTURE_NONE;
    return c->stream == c->own ? CUDA_OK : c->d->calls->cuStreamIsCapturing(c->stream, status);
}

bool nccl_is_capturing(struct nccl_channel *c)
{
    unsigned status;

    return ask(c, &status) != CUDA_OK || status != CUDA_CAPTURE_NONE;
}

enum comm_result nccl_capture(struct nccl_channel *c, bool *captured, char *why, size_t why_bytes)
{
    const struct cuda_calls *calls = c->d->calls;
    struct CUgraph_st *graph = NULL;
    uint64_t id = 0;
    unsigned status, result = ask(c, &status);

    *captured = false;
    if (result == CUDA_OK && status == CUDA_CAPTURE_NONE)
        return COMM_OK;
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE && !calls->cuStreamGetCaptureInfo_v3) {
        base_format(why, why_bytes, "the communicator's stream is being captured; expected a driver for CUDA 12.3 or newer");
        return COMM_ERR_STATE;
    }
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE)
        result = calls->cuStreamGetCaptureInfo_v3(c->stream, &status, &id, &graph, NULL, NULL, NULL);
    if (result == CUDA_OK && status == CUDA_CAPTURE_ACTIVE && id != c->capture)
        result = hold(c, graph);
    if (result != CUDA_OK || status != CUDA_CAPTURE_ACTIVE) {
        base_format(why, why_bytes, "the communicator's stream is in a capture that CUDA refuses or has invalidated (error %u, status %u)",
                    result, status);
        return COMM_ERR_STATE;
    }
    c->capture = id;
    *captured = true;
    return COMM_OK;
}

void nccl_record_captured(struct nccl_channel *c, uint64_t cookie)
{
    c->pending[c->issued++ & (c->room - 1)] = (struct nccl_pending){.cookie = cookie, .mark = c->marks, .captured = true};
}
