/* How each collective is called and which result it must have: one row each. */
#include "tools/perf.h"

#include <string.h>

static enum comm_result start_allreduce(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                        struct comm_request *req)
{
    return comm_allreduce(c, at.in, at.out, perf->n, perf->type->type, perf->op, req);
}

static enum comm_result start_reduce(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at, struct comm_request *req)
{
    return comm_reduce(c, at.in, at.out, perf->n, perf->type->type, perf->op, 0, req);
}

static enum comm_result start_broadcast(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                        struct comm_request *req)
{
    return comm_broadcast(c, at.in, perf->n, perf->type->type, 0, req);
}

static enum comm_result start_allgather(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                        struct comm_request *req)
{
    return comm_allgather(c, at.in, at.out, perf->n, perf->type->type, req);
}

static enum comm_result start_allgather_v(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                          struct comm_request *req)
{
    return comm_allgather_v(c, at.in, at.out, perf->counts, NULL, perf->type->type, req);
}

static enum comm_result start_reduce_scatter(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                             struct comm_request *req)
{
    return comm_reduce_scatter(c, at.in, at.out, perf->block, perf->type->type, perf->op, req);
}

static enum comm_result start_reduce_scatter_v(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                               struct comm_request *req)
{
    return comm_reduce_scatter_v(c, at.in, at.out, perf->counts, perf->type->type, perf->op, req);
}

static enum comm_result start_scan(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at, struct comm_request *req)
{
    return comm_scan(c, at.in, at.out, perf->n, perf->type->type, perf->op, req);
}

static enum comm_result start_exscan(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at, struct comm_request *req)
{
    return comm_exscan(c, at.in, at.out, perf->n, perf->type->type, perf->op, req);
}

static enum comm_result start_gather(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at, struct comm_request *req)
{
    return comm_gather(c, at.in, at.out, perf->n, perf->type->type, 0, req);
}

static enum comm_result start_gather_v(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                       struct comm_request *req)
{
    return comm_gather_v(c, at.in, perf->n, at.out, perf->counts, NULL, perf->type->type, 0, req);
}

static enum comm_result start_scatter(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                      struct comm_request *req)
{
    return comm_scatter(c, at.in, at.out, perf->block, perf->type->type, 0, req);
}

static enum comm_result start_scatter_v(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                        struct comm_request *req)
{
    return comm_scatter_v(c, at.in, perf->counts, NULL, at.out, perf->block, perf->type->type, 0, req);
}

static enum comm_result start_alltoall(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                       struct comm_request *req)
{
    return comm_alltoall(c, at.in, at.out, perf->block, perf->type->type, req);
}

static enum comm_result start_alltoall_v(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                         struct comm_request *req)
{
    return comm_alltoall_v(c, at.in, perf->counts, NULL, at.out, perf->counts, NULL, perf->type->type, req);
}

static enum comm_result start_barrier(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                      struct comm_request *req)
{
    (void)perf;
    (void)at;
    return comm_barrier(c, req);
}

/* Neighbours exchange; with an odd number of ranks the last one sends to itself. */
static int32_t partner_of(const struct perf *perf)
{
    int32_t partner = perf->rank ^ 1;
    return partner < perf->ranks ? partner : perf->rank;
}

static enum comm_result start_sendrecv(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                       struct comm_request *req)
{
    int32_t partner = partner_of(perf);
    enum comm_result result = comm_recv(c, at.out, perf->n, perf->type->type, partner, 0, NULL, req ? &req[0] : NULL);
    if (result != COMM_OK)
        return result;
    return comm_send(c, at.in, perf->n, perf->type->type, partner, 0, req ? &req[1] : NULL);
}

/* One way: ranks with even numbers send, and the others receive. A rank without a partner does both. */
static enum comm_result start_send(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at, struct comm_request *req)
{
    int32_t partner = partner_of(perf);
    if (partner == perf->rank)
        return start_sendrecv(perf, c, at, req);
    if (req)
        req[1] = (struct comm_request){0};
    if (perf->rank % 2)
        return comm_recv(c, at.out, perf->n, perf->type->type, partner, 0, NULL, req);
    return comm_send(c, at.in, perf->n, perf->type->type, partner, 0, req);
}

static bool check_reduced(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_reduced(perf->type, perf->op, perf->ranks, 0, at.out, perf->n, bad);
}

static bool check_root(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf->rank != 0 || check_reduced(perf, at, bad);
}

static bool check_scanned(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_reduced(perf->type, perf->op, perf->rank + 1, 0, at.out, perf->n, bad);
}

/* Rank 0's output stays unchanged. */
static bool check_scanned_before(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf->rank == 0 || perf_check_reduced(perf->type, perf->op, perf->rank, 0, at.out, perf->n, bad);
}

static bool check_broadcast(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_given(perf->type, perf->op, 0, 0, at.in, perf->n, bad);
}

static bool check_gathered(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    for (int32_t r = 0; r < perf->ranks; r++) {
        size_t first = (size_t)r * perf->n;
        if (!perf_check_given(perf->type, perf->op, r, 0, at.out + first * perf->type->bytes, perf->n, bad)) {
            *bad += first;
            return false;
        }
    }
    return true;
}

static bool check_gathered_root(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf->rank != 0 || check_gathered(perf, at, bad);
}

static bool check_block(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_given(perf->type, perf->op, 0, (size_t)perf->rank * perf->block, at.out, perf->block, bad);
}

static bool check_transposed(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    size_t mine = (size_t)perf->rank * perf->block;

    for (int32_t r = 0; r < perf->ranks; r++) {
        size_t first = (size_t)r * perf->block;
        if (!perf_check_given(perf->type, perf->op, r, mine, at.out + first * perf->type->bytes, perf->block, bad)) {
            *bad += first;
            return false;
        }
    }
    return true;
}

static bool check_scattered(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_reduced(perf->type, perf->op, perf->ranks, (size_t)perf->rank * perf->block, at.out, perf->block, bad);
}

static bool check_exchanged(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return perf_check_given(perf->type, perf->op, partner_of(perf), 0, at.out, perf->n, bad);
}

static bool check_sent(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    return (perf->rank % 2 == 0 && partner_of(perf) != perf->rank) || check_exchanged(perf, at, bad);
}

static const struct perf_collective collectives[] = {
    {"allreduce", start_allreduce, check_reduced, OUT_SAME, true, true, true},
    {"reduce", start_reduce, check_root, OUT_SAME, true, true, true},
    {"broadcast", start_broadcast, check_broadcast, OUT_SAME, true, true, true},
    {"allgather", start_allgather, check_gathered, OUT_ALL, true, true, true},
    {"allgather_v", start_allgather_v, check_gathered, OUT_ALL, true, true, true},
    {"reduce_scatter", start_reduce_scatter, check_scattered, OUT_BLOCK, true, true, true},
    {"reduce_scatter_v", start_reduce_scatter_v, check_scattered, OUT_BLOCK, true, true, false},
    {"scan", start_scan, check_scanned, OUT_SAME, true, true, false},
    {"exscan", start_exscan, check_scanned_before, OUT_SAME, true, true, false},
    {"gather", start_gather, check_gathered_root, OUT_ALL, true, true, false},
    {"gather_v", start_gather_v, check_gathered_root, OUT_ALL, true, true, false},
    {"scatter", start_scatter, check_block, OUT_BLOCK, true, true, false},
    {"scatter_v", start_scatter_v, check_block, OUT_BLOCK, true, true, false},
    {"alltoall", start_alltoall, check_transposed, OUT_BLOCK, true, true, false},
    {"alltoall_v", start_alltoall_v, check_transposed, OUT_BLOCK, true, true, false},
    {"barrier", start_barrier, NULL, OUT_SAME, false, true, true},
    {"sendrecv", start_sendrecv, check_exchanged, OUT_SAME, true, false, false},
    {"send", start_send, check_sent, OUT_SAME, true, false, false},
};

const struct perf_collective *perf_collective_find(const char *name)
{
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        if (!strcmp(name, collectives[i].name))
            return &collectives[i];
    }
    return NULL;
}

const char *perf_collective_names(void)
{
    return "allreduce reduce broadcast allgather allgather_v reduce_scatter reduce_scatter_v scan exscan gather gather_v scatter scatter_v "
           "alltoall "
           "alltoall_v barrier sendrecv send";
}
