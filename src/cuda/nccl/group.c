/*
 * Groups of collectives. NCCL starts the collectives of a group together, mostly as one kernel. What a group holds must be equal on all
 * ranks, so that depends only on what they compare (NATIVE_TOGETHER), and not on buffers. A call that is more than one collective of
 * NCCL's does not join: it ends what the group holds, and the calls behind it make a new group.
 *
 * The stream reports once for the whole group, because nothing can be put on the stream between its calls.
 */
#include "cuda/nccl/nccl.h"

bool nccl_joins_group(const struct nccl_channel *c, const struct native_call *call)
{
    switch (call->collective) {
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_BROADCAST:
        return c->group.open && nccl_serves(call) && !call->scale;
    default:
        return false;
    }
}

unsigned nccl_join_group(struct nccl_channel *c, uint64_t cookie, bool captured)
{
    unsigned result = c->group.count ? NCCL_OK : c->nccl->ncclGroupStart();

    if (result == NCCL_OK)
        c->pending[(c->issued + c->group.count++) & (c->room - 1)] = (struct nccl_pending){.cookie = cookie, .captured = captured};
    return result;
}

/* All of a group's calls are issued with the mark of the last one. */
static enum comm_result mark_group(struct nccl_channel *c)
{
    uint32_t before = c->group.count - 1;
    const struct nccl_pending last = c->pending[(c->issued + before) & (c->room - 1)];

    for (uint32_t i = 0; i < before; i++)
        c->pending[(c->issued + i) & (c->room - 1)].mark = c->marks + !last.captured;
    c->issued += before;
    c->group.count = 0;
    enum comm_result r = nccl_mark_alone(c, last.cookie, last.captured);
    c->issued -= r == COMM_OK ? 0 : before;
    return r;
}

enum comm_result nccl_end_group(struct nccl_channel *c, int32_t *code)
{
    if (!c->group.count)
        return COMM_OK;
    unsigned result = nccl_settle(c, c->nccl->ncclGroupEnd());
    *code = result == NCCL_OK ? NCCL_CUDA_ERROR : (int32_t)result;
    if (result == NCCL_OK)
        return mark_group(c);
    c->group.count = 0;
    return COMM_ERR_BACKEND;
}

enum comm_result nccl_group(struct native_channel *channel, bool open, int32_t *code)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;

    *code = NCCL_CUDA_ERROR;
    c->group.open = open;
    if (!c->group.count)
        return COMM_OK;
    bool entered = cuda_enter(c->d, &inside);
    enum comm_result r = nccl_end_group(c, code); /* in any case: this thread's group of NCCL's is open */
    if (entered)
        cuda_leave(c->d, &inside);
    return entered ? r : COMM_ERR_BACKEND;
}
