/*
 * What ranks on devices do beside single collectives: groups of several collectives and messages, memory of comm_mem_alloc, memory that is
 * registered, and symmetric memory. On backend nccl such memory is the device's. Elsewhere it is the host's, so there only registration
 * has device memory. All words of a buffer are equal, so that the first and the last one of each block tell what it has.
 */
#define _GNU_SOURCE
#include "calls.h"

#include "conform/rig.h"
#include "now.h"

#include <commstream/commstream.h>
#include <commstream/cuda.h>

#include <string.h>

enum { BUFFERS = 6, ROUNDS = 4 };
static const size_t lengths[] = {1, 1000, 40000, 700001}; /* the last one goes in parts, or by the steps of backend cuda */
static struct {
    struct comm_communicator *world;
    struct bench *bench;
    struct CUstream_st *stream;
    uint32_t rank, ranks;
    bool nccl;
} my;

static void fill(uint32_t *at, uint32_t value, size_t words)
{
    bench_fill(my.bench, my.stream, at, value, words);
}

static void expect(const uint32_t *block, size_t words, uint32_t want, const char *what)
{
    uint32_t got[2];

    bench_read(my.bench, my.stream, &got[0], block, 1);
    bench_read(my.bench, my.stream, &got[1], block + words - 1, 1);
    if (got[0] != want || got[1] != want)
        rig_die(__FILE__, __LINE__, "%s: %u and %u; expected %u", what, got[0], got[1], want);
}

/* Of value + rank. */
static uint32_t sum_of(uint32_t value)
{
    return my.ranks * value + my.ranks * (my.ranks - 1) / 2;
}

/* ------------------------------------------------------------------------------------------------------------ groups */
/* Those that NCCL combines, a scan, which it does not, and a message around the ring. `in` has room for n words of each rank, and so has
 * each of `out`. */
static void record(struct comm_communicator *group, const uint32_t *in, uint32_t *const out[BUFFERS], size_t n)
{
    int32_t ranks = (int32_t)my.ranks, up = ((int32_t)my.rank + 1) % ranks, down = ((int32_t)my.rank + ranks - 1) % ranks;

    MUST(comm_allreduce(group, in, out[0], n, COMM_U32, COMM_SUM, NULL));
    MUST(comm_broadcast(group, out[1], n, COMM_U32, ranks - 1, NULL));
    MUST(comm_allgather(group, in, out[2], n, COMM_U32, NULL));
    MUST(comm_scan(group, in, out[3], n, COMM_U32, COMM_MAX, NULL));
    MUST(comm_reduce_scatter(group, in, out[4], n, COMM_U32, COMM_SUM, NULL));
    MUST(comm_send(group, in, n, COMM_U32, up, 0, NULL));
    MUST(comm_recv(group, out[5], n, COMM_U32, down, 0, NULL, NULL));
}

static void check_group(uint32_t *const out[BUFFERS], size_t n, uint32_t value)
{
    expect(out[0], n, sum_of(value), "allreduce");
    expect(out[1], n, value + my.ranks - 1, "broadcast");
    for (uint32_t r = 0; r < my.ranks; r++)
        expect(out[2] + r * n, n, value + r, "allgather");
    expect(out[3], n, value + my.rank, "scan");
    expect(out[4], n, sum_of(value), "reduce_scatter");
    expect(out[5], n, value + (my.rank + my.ranks - 1) % my.ranks, "message");
}

static void groups(void)
{
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        size_t n = lengths[k], all = n * my.ranks;
        uint32_t *in = bench_memory(my.bench, all), *out[BUFFERS];
        for (int i = 0; i < BUFFERS; i++)
            out[i] = bench_memory(my.bench, all);
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            struct comm_communicator *group;
            struct comm_request q;
            uint32_t value = 100 * round;
            rig_note("groups of %zu words, round %u", n, round);
            fill(in, value + my.rank, all);
            for (int i = 0; i < BUFFERS; i++)
                fill(out[i], i == 1 ? value + my.rank : 0, all);
            MUST(comm_queue_wait_stream(my.world, my.stream));
            MUST(comm_group_begin(my.world, &group));
            record(group, in, out, n);
            MUST(comm_group_end(group, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            check_group(out, n, value);
        }
        bench_free(my.bench, in);
        for (int i = 0; i < BUFFERS; i++)
            bench_free(my.bench, out[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ memory */
enum { WORDS = 5000, LATER = 1024 }; /* an operation begins this far in the memory */

static void sums(uint32_t *in, uint32_t *out, const char *what)
{
    struct comm_request q[2];

    rig_note("%s", what);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        fill(in, round + my.rank, WORDS);
        fill(out, 0, WORDS);
        MUST(comm_queue_wait_stream(my.world, my.stream));
        MUST(comm_allreduce(my.world, in + LATER, out + LATER, WORDS - LATER, COMM_U32, COMM_SUM, &q[0]));
        MUST(comm_allreduce(my.world, COMM_IN_PLACE, in, LATER, COMM_U32, COMM_SUM, &q[1]));
        MUST(comm_wait_all(q, 2, RIG_PATIENCE));
        expect(out + LATER, WORDS - LATER, sum_of(round), what);
        expect(in, LATER, sum_of(round), what);
        expect(out, LATER, 0, what);
    }
}

static void allocated(void)
{
    void *in, *out;

    MUST(comm_mem_alloc(my.world, WORDS * 4, &in));
    MUST(comm_mem_alloc(my.world, WORDS * 4, &out));
    sums(in, out, "memory of comm_mem_alloc");
    comm_mem_free(my.world, in);
    comm_mem_free(my.world, out);
    MUST(comm_mem_alloc(my.world, WORDS * 4, &out)); /* freed with the world */
}

static void registered(void)
{
    uint32_t *in = bench_memory(my.bench, WORDS), *out = bench_memory(my.bench, WORDS);

    MUST(comm_mem_register(my.world, in, WORDS * 4));
    MUST(comm_mem_register(my.world, out, WORDS * 4));
    IS(comm_mem_register(my.world, in, WORDS * 4), COMM_ERR_STATE);
    sums(in, out, "registered memory");
    comm_mem_unregister(my.world, in);
    comm_mem_unregister(my.world, out);
    sums(in, out, "memory that was registered");
    bench_free(my.bench, in);
    bench_free(my.bench, out);
}

/* Where NCCL has windows they are windows, otherwise it is memory of comm_mem_alloc. */
static void symmetric(void)
{
    void *in, *out, *left;

    MUST(NOW(comm_mem_alloc_symmetric, my.world, WORDS * 4, &in));
    MUST(NOW(comm_mem_alloc_symmetric, my.world, WORDS * 4, &out));
    MUST(NOW(comm_mem_alloc_symmetric, my.world, WORDS * 4, &left)); /* freed with the world */
    sums(in, out, "symmetric memory");
    comm_mem_free(my.world, in);
    comm_mem_free(my.world, out);
}

/* What the CPU reads and writes itself is memory of the host. That of a device is refused on all ranks, also where collectives take it. */
static void memory_of_the_host(void)
{
    uint32_t *memory = bench_memory(my.bench, WORDS);
    const struct comm_window_options options = {.size = sizeof options, .base = memory};
    struct comm_window *window;
    struct comm_request q;
    comm_op op;

    rig_note("device memory where the host's is needed");
    IS(NOW(comm_window_create, my.world, WORDS * 4, &options, &window), COMM_ERR_ARGUMENT);
    IS(comm_op_create_premul_sum(my.world, COMM_U32, memory, &op), COMM_ERR_ARGUMENT);
    MUST(NOW(comm_window_create, my.world, WORDS * 4, NULL, &window));
    IS(comm_put(window, memory, 1, COMM_U32, (int32_t)my.rank, 0, &q), COMM_ERR_ARGUMENT);
    MUST(comm_window_free(window));
    bench_free(my.bench, memory);
}

void calls_run(struct comm_communicator *world, struct bench *bench, struct CUstream_st *stream)
{
    struct comm_info info = {.size = sizeof info};

    MUST(comm_describe(world, &info));
    my.world = world;
    my.bench = bench;
    my.stream = stream;
    my.rank = (uint32_t)comm_rank(world);
    my.ranks = (uint32_t)comm_size(world);
    my.nccl = strcmp(info.backend, "nccl") == 0;
    groups();
    registered();
    memory_of_the_host();
    if (my.nccl) {
        allocated();
        symmetric();
    }
}
