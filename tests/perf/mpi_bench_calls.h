/* The calls of MPI that mpi_bench.c measures, as a table, and what they are called with. */
#ifndef TESTS_PERF_MPI_BENCH_CALLS_H
#define TESTS_PERF_MPI_BENCH_CALLS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

enum { DEPTH = 16 };

enum mode { REQUEST, ISOLATED, ALIGNED, PIPELINED, PLAN, OVERLAP };

struct bench {
    const char *name;
    const struct collective *collective;
    enum mode mode;
    bool blocking, touch;
    double warmed; /* seconds spent in calls before the first size */
    size_t min, max;
    int rank, ranks;
    /* state for one size */
    int n, block;
    size_t in_floats, out_floats, slots;
    float *in, *out;
    int *counts, *places;
    MPI_Request plan[DEPTH];
};
enum way { CALL, START, RECORD };
typedef void start_fn(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req);
struct collective {
    const char *name;
    start_fn *start;
    size_t requests;
    bool gathers, blocks, sized; /* gathers: `out` has the n of all ranks; blocks: n is a multiple of ranks */
};

/* The three forms of a call. Persistent collectives exist since MPI 4. Without them --mode plan is refused, so the last branch is never
 * reached. */
#if MPI_VERSION >= 4
#    define RECORD_WITH(function, ...) function##_init(__VA_ARGS__, MPI_INFO_NULL, req)
#else
#    define RECORD_WITH(function, ...) ((void)0)
#endif
#define THREE_WAYS(blocking, nonblocking, ...)                                                                                             \
    do {                                                                                                                                   \
        if (way == CALL)                                                                                                                   \
            blocking(__VA_ARGS__);                                                                                                         \
        else if (way == START)                                                                                                             \
            nonblocking(__VA_ARGS__, req);                                                                                                 \
        else                                                                                                                               \
            RECORD_WITH(blocking, __VA_ARGS__);                                                                                            \
    } while (0)

static void start_allreduce(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Allreduce, MPI_Iallreduce, in, out, bench->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void start_reduce(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Reduce, MPI_Ireduce, in, out, bench->n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void start_broadcast(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    (void)out;
    THREE_WAYS(MPI_Bcast, MPI_Ibcast, in, bench->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void start_allgather(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Allgather, MPI_Iallgather, in, bench->n, MPI_FLOAT, out, bench->n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void start_allgather_v(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Allgatherv, MPI_Iallgatherv, in, bench->n, MPI_FLOAT, out, bench->counts, bench->places, MPI_FLOAT, MPI_COMM_WORLD);
}

static void start_reduce_scatter(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, bench->block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void start_reduce_scatter_v(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Reduce_scatter, MPI_Ireduce_scatter, in, out, bench->counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void start_scan(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Scan, MPI_Iscan, in, out, bench->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void start_exscan(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Exscan, MPI_Iexscan, in, out, bench->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void start_gather(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Gather, MPI_Igather, in, bench->n, MPI_FLOAT, out, bench->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void start_gather_v(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Gatherv, MPI_Igatherv, in, bench->n, MPI_FLOAT, out, bench->counts, bench->places, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void start_scatter(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Scatter, MPI_Iscatter, in, bench->block, MPI_FLOAT, out, bench->block, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void start_scatter_v(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Scatterv, MPI_Iscatterv, in, bench->counts, bench->places, MPI_FLOAT, out, bench->block, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void start_alltoall(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Alltoall, MPI_Ialltoall, in, bench->block, MPI_FLOAT, out, bench->block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void start_alltoall_v(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    THREE_WAYS(MPI_Alltoallv, MPI_Ialltoallv, in, bench->counts, bench->places, MPI_FLOAT, out, bench->counts, bench->places, MPI_FLOAT,
               MPI_COMM_WORLD);
}

static void start_barrier(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    (void)bench, (void)in, (void)out;
    THREE_WAYS(MPI_Barrier, MPI_Ibarrier, MPI_COMM_WORLD);
}

static void start_sendrecv(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    int partner = (bench->rank ^ 1) < bench->ranks ? bench->rank ^ 1 : bench->rank;
    if (way == CALL) {
        MPI_Sendrecv(in, bench->n, MPI_FLOAT, partner, 0, out, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Irecv(out, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, &req[0]);
    MPI_Isend(in, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, &req[1]);
}

static void start_send(const struct bench *bench, float *in, float *out, enum way way, MPI_Request *req)
{
    int partner = bench->rank ^ 1;
    if (partner >= bench->ranks) {
        start_sendrecv(bench, in, out, way, req);
        return;
    }
    req[1] = MPI_REQUEST_NULL;
    if (way == CALL && bench->rank % 2)
        MPI_Recv(out, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (way == CALL)
        MPI_Send(in, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD);
    else if (bench->rank % 2)
        MPI_Irecv(out, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, &req[0]);
    else
        MPI_Isend(in, bench->n, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, &req[0]);
}

static const struct collective collectives[] = {
    {"allreduce", start_allreduce, 1, false, false, true},
    {"reduce", start_reduce, 1, false, false, true},
    {"broadcast", start_broadcast, 1, false, false, true},
    {"allgather", start_allgather, 1, true, false, true},
    {"allgather_v", start_allgather_v, 1, true, false, true},
    {"reduce_scatter", start_reduce_scatter, 1, false, true, true},
    {"reduce_scatter_v", start_reduce_scatter_v, 1, false, true, true},
    {"scan", start_scan, 1, false, false, true},
    {"exscan", start_exscan, 1, false, false, true},
    {"gather", start_gather, 1, true, false, true},
    {"gather_v", start_gather_v, 1, true, false, true},
    {"scatter", start_scatter, 1, false, true, true},
    {"scatter_v", start_scatter_v, 1, false, true, true},
    {"alltoall", start_alltoall, 1, false, true, true},
    {"alltoall_v", start_alltoall_v, 1, false, true, true},
    {"barrier", start_barrier, 1, false, false, false},
    {"sendrecv", start_sendrecv, 2, false, false, true},
    {"send", start_send, 2, false, false, true},
};

#endif
