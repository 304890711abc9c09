/*
 * The entry points of the mock libnccl.so.2 for operations and groups of them. The first call that uses an algorithm connects it, unless
 * NCCL_RUNTIME_CONNECT is 0.
 */
#define _GNU_SOURCE
#include "mock_clique.h"

#include <stdlib.h>

enum { TREE_BYTES = 64 };
static _Thread_local int group;
static _Thread_local struct launch *grouped;
static _Thread_local unsigned group_result; /* an error of one of its calls, which its end returns too */

/* ------------------------------------------------------------------------------------------------------------ connecting */
static unsigned path_of(const struct launch *l)
{
    if (l->what == ALL_REDUCE && l->count * mock_type_bytes(l->type) <= TREE_BYTES)
        return PATH_TREE;
    return l->what == NOTHING ? 0 : PATH_RING;
}

static void ask_to_connect(const struct launch *l)
{
    struct member *me = &l->comm->clique->member[l->comm->rank];

    me->paths |= path_of(l);
    if (l->what == NOTHING)
        me->peers[l->root] = true;
}

static bool is_connected(const struct launch *l)
{
    const struct clique *q = l->comm->clique;
    unsigned path = path_of(l);

    if (l->what == NOTHING)
        return q->member[l->root].peers[l->comm->rank];
    for (int r = 0; r < q->size; r++)
        if ((q->member[r].paths & path) != path)
            return false;
    return true;
}

static unsigned connect_all(struct launch *first)
{
    for (struct launch *l = first; l; l = l->next)
        if (l->comm->blocking && l->comm->rank + 1 != mock.options.lost_rank)
            ask_to_connect(l);
    for (struct launch *l = first; l; l = l->next) {
        struct ncclComm *c = l->comm;
        c->inside++;
        while (c->blocking && !is_connected(l) && !c->aborted && !c->revoked)
            mock_nccl_wait();
        c->inside--;
        if (c->aborted || c->revoked) {
            mock_leave_clique(c);
            return mock_refuse(NCCL_INTERNAL_ERROR, "mock: aborted while it connected");
        }
    }
    return NCCL_OK;
}

/* ------------------------------------------------------------------------------------------------------------ calls and groups */
static void append(struct launch **list, const struct launch *l)
{
    while (*list)
        list = &(*list)->next;
    *list = malloc(sizeof **list);
    **list = *l;
    (*list)->next = NULL;
}

static struct launch *last_of(struct launch *list)
{
    while (list->next)
        list = list->next;
    return list;
}

void mock_free_launches(struct launch *l)
{
    for (struct launch *next; l; l = next) {
        next = l->next;
        free(l);
    }
}

/* Takes the launches of the first launch's communicator out of the list. */
static struct launch *take_first(struct launch **list)
{
    struct ncclComm *c = (*list)->comm;
    struct launch *taken = NULL, **last = &taken;

    for (struct launch **at = list; *at;) {
        struct launch *l = *at;
        if (l->comm != c) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->next = NULL;
        *last = l;
        last = &l->next;
    }
    return taken;
}

static unsigned run_group(struct launch *list)
{
    unsigned result = connect_all(list);

    while (list) {
        struct launch *mine = take_first(&list);
        struct ncclComm *c = mine->comm;
        if (result != NCCL_OK && result != NCCL_IN_PROGRESS) {
            mock_free_launches(mine);
        } else if (c->blocking) {
            mock_put(mine);
            mock_free_launches(mine);
        } else { /* in the real NCCL, an internal thread puts them on their streams later */
            c->launches = mine;
            c->state = result = NCCL_IN_PROGRESS;
            c->asks = 0;
        }
    }
    return result;
}

static unsigned check(const struct launch *l)
{
    const struct ncclComm *c = l->comm;
    size_t bytes = l->count * mock_type_bytes(l->type);

    if (!c || c->gone || c->revoked || c->state != NCCL_OK)
        return mock_refuse(NCCL_INVALID_ARGUMENT, "mock: the communicator is not ready");
    if (mock_device() < 0 || mock.fault[c->device])
        return mock_refuse(NCCL_CUDA_ERROR, "mock: CUDA error");
    if (mock_device() != c->device || !mock_stream_on(l->stream, c->device) || !mock_type_bytes(l->type))
        return mock_refuse(NCCL_INVALID_USAGE, "mock: another device is current, or no such stream or type");
    if ((l->in && bytes && mock_owner(l->in) != c->device) || (l->out && bytes && mock_owner(l->out) != c->device))
        return mock_refuse(NCCL_INVALID_ARGUMENT, "mock: not memory of the communicator's device");
    if (l->root < 0 || l->root >= c->clique->size)
        return mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no such rank");
    return NCCL_OK;
}

static unsigned refuse_in_group(unsigned result)
{
    group_result = group && group_result == NCCL_OK ? result : group_result;
    return result;
}

static unsigned issue(struct launch *l)
{
    unsigned result = check(l);

    if (result == NCCL_OK)
        result = mock_find_op(l);
    if (result != NCCL_OK)
        return refuse_in_group(result);
    append(&grouped, l);
    last_of(grouped)->stream = mock_stream(l->stream);
    if (group)
        return NCCL_OK;
    struct launch *list = grouped;
    grouped = NULL;
    return run_group(list);
}

/* NCCL_BEGIN for the calls that may be in a group. */
#define CALL_BEGIN                                                                                                                         \
    if (mock_begin(__func__))                                                                                                              \
        return refuse_in_group(NCCL_INTERNAL_ERROR);                                                                                       \
    mock_shared_lock()
#define CALL(...)                                                                                                                          \
    &(struct launch)                                                                                                                       \
    {                                                                                                                                      \
        __VA_ARGS__                                                                                                                        \
    }
unsigned mock_ncclAllReduce(const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm,
                            struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(issue(CALL(.comm = comm, .what = ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op, .stream = stream)));
}

unsigned mock_ncclBroadcast(const void *in, void *out, size_t count, unsigned type, int root, struct ncclComm *comm,
                            struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(
        issue(CALL(.comm = comm, .what = BROADCAST, .in = in, .out = out, .count = count, .type = type, .root = root, .stream = stream)));
}

unsigned mock_ncclReduce(const void *in, void *out, size_t count, unsigned type, unsigned op, int root, struct ncclComm *comm,
                         struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(issue(
        CALL(.comm = comm, .what = REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op, .root = root, .stream = stream)));
}

unsigned mock_ncclAllGather(const void *in, void *out, size_t count, unsigned type, struct ncclComm *comm, struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(issue(CALL(.comm = comm, .what = ALL_GATHER, .in = in, .out = out, .count = count, .type = type, .stream = stream)));
}

unsigned mock_ncclReduceScatter(const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm,
                                struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(
        issue(CALL(.comm = comm, .what = REDUCE_SCATTER, .in = in, .out = out, .count = count, .type = type, .op = op, .stream = stream)));
}

unsigned mock_ncclSend(const void *in, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(issue(CALL(.comm = comm, .in = in, .count = count, .type = type, .root = peer, .stream = stream)));
}

unsigned mock_ncclRecv(void *out, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream)
{
    CALL_BEGIN;
    NCCL_END(issue(CALL(.comm = comm, .out = out, .count = count, .type = type, .root = peer, .stream = stream)));
}

unsigned mock_ncclGroupStart(void)
{
    NCCL_BEGIN;
    group++;
    NCCL_END(NCCL_OK);
}

/* A failed ncclGroupEnd ends the group too. */
static unsigned drop_group(void)
{
    group = 0;
    group_result = NCCL_OK;
    mock_free_launches(grouped);
    grouped = NULL;
    return NCCL_INTERNAL_ERROR;
}

unsigned mock_ncclGroupEnd(void)
{
    if (mock_begin(__func__))
        return drop_group();
    mock_shared_lock();
    if (!group)
        NCCL_END(mock_refuse(NCCL_INVALID_USAGE, "mock: no group is open"));
    struct launch *list = NULL;
    if (--group == 0 && group_result != NCCL_OK)
        NCCL_END(drop_group());
    if (group == 0) {
        list = grouped;
        grouped = NULL;
    }
    NCCL_END(run_group(list));
}
