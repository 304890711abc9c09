/*
 * CUDA graphs. Only the caller's stream can be captured, so only a communicator that works in one has captured calls. NCCL records such a
 * call in the graph, which runs it at each launch. The host sees no launch: the call's request is complete when those before it are, and
 * nothing of this library is put on the stream behind the call. NCCL does not free a communicator while a graph holds it; it would wait.
 * So the channel is held too (capture.c).
 */
#include "cuda/nccl/nccl.h"

bool nccl_is_capturing(struct nccl_channel *c)
{
    return c->stream != c->own && cuda_is_capturing(c->d, c->stream);
}

enum comm_result nccl_capture(struct nccl_channel *c, bool *captured, char *why, size_t why_bytes)
{
    *captured = false;
    return c->stream == c->own ? COMM_OK : cuda_capture(c->d, c->stream, &c->held, captured, why, why_bytes);
}

void nccl_record_captured(struct nccl_channel *c, uint64_t cookie)
{
    c->pending[c->issued++ & (c->room - 1)] = (struct nccl_pending){.cookie = cookie, .mark = c->marks, .captured = true};
}
