/*
 * Which operation of a device runs next is a matter of chance, which the mock's seed decides. Many seeds, with a process for each device:
 * each round puts every kind of call on the queue at once, between what a stream writes before and reads after them.
 */
#define _GNU_SOURCE
#include "../proc/proc.h"
#include "mock.h"
#include "process.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SUM, XOR, BROADCAST, ALLTOALL, ALLGATHER, REDUCE_SCATTER, GATHER, SCAN, MESSAGES, CALLS };
static const char *backend; /* set before the ranks are forked, like the next two */
static uint64_t seed_first;
static uint32_t seed_count;

static uint32_t *out[CALLS];
static struct comm_request q[CALLS];

/* Rank r's input in the round of this seed. */
static uint32_t value(uint64_t seed, uint32_t r)
{
    return (uint32_t)seed * 16 + r + 1;
}

static void open_rank(int32_t rank, int32_t ranks)
{
    bool is_nccl = strcmp(backend, "nccl") == 0, has_device = strcmp(backend, "shm") != 0;
    char device[16];

    /* other backends' streams wait for words, so they need queues of their own */
    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = is_nccl ? 1 + (rank + ranks) % 8 : 32});
    mock_run(true);
    snprintf(device, sizeof device, "cuda:%d", rank);
    if (comm_open(COMM_CONFIG(.backend = backend, .device = has_device ? device : NULL, .open_timeout_ns = 20 * RIG_S,
                              .operation_timeout_ns = 30 * RIG_S, .error_text = my.text, .error_text_bytes = sizeof my.text),
                  &my.world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    make_buffers(rank);
    for (int call = 0; call < CALLS; call++)
        out[call] = bench_memory(&my.bench, WORDS * RANKS_MOST);
}

static void close_rank(void)
{
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    for (int call = 0; call < CALLS; call++)
        bench_free(&my.bench, out[call]);
    drop_buffers();
}

/* ------------------------------------------------------------------------------------------------------------ a round */
/* To the next rank and from the last one, as a group: over NCCL a receive alone would hold up all calls behind it. */
static void issue_messages(int32_t rank, int32_t ranks)
{
    struct comm_communicator *group;

    MUST(comm_group_begin(my.world, &group));
    MUST(comm_recv(group, out[MESSAGES], WORDS, COMM_U32, (rank + ranks - 1) % ranks, 0, NULL, NULL));
    MUST(comm_send(group, my.in, WORDS, COMM_U32, (rank + 1) % ranks, 0, NULL));
    MUST(comm_group_end(group, &q[MESSAGES]));
}

static void issue_all(int32_t rank, int32_t ranks, int32_t root)
{
    MUST(comm_queue_wait_stream(my.world, my.stream));
    MUST(comm_allreduce(my.world, my.in, out[SUM], WORDS, COMM_U32, COMM_SUM, &q[SUM]));
    issue_messages(rank, ranks);
    MUST(comm_allreduce(my.world, my.in, out[XOR], WORDS, COMM_U32, COMM_BXOR, &q[XOR]));
    MUST(comm_broadcast(my.world, out[BROADCAST], WORDS, COMM_U32, root, &q[BROADCAST]));
    MUST(comm_alltoall(my.world, my.in, out[ALLTOALL], WORDS, COMM_U32, &q[ALLTOALL]));
    MUST(comm_allgather(my.world, my.in, out[ALLGATHER], WORDS, COMM_U32, &q[ALLGATHER]));
    MUST(comm_reduce_scatter(my.world, my.in, out[REDUCE_SCATTER], WORDS, COMM_U32, COMM_SUM, &q[REDUCE_SCATTER]));
    MUST(comm_gather(my.world, my.in, out[GATHER], WORDS, COMM_U32, root, &q[GATHER]));
    MUST(comm_scan(my.world, my.in, out[SCAN], WORDS, COMM_U32, COMM_SUM, &q[SCAN]));
}

/* Block `block` of a call's result. */
static void must_be(int call, size_t block, uint32_t want)
{
    static uint32_t got[WORDS * RANKS_MOST];

    bench_read(&my.bench, my.stream, got, out[call], WORDS * RANKS_MOST);
    for (size_t i = block * WORDS; i < (block + 1) * WORDS; i++)
        if (got[i] != want)
            rig_die(__FILE__, __LINE__, "call %d, word %zu: %u, expected %u", call, i, got[i], want);
}

static void check_all(uint64_t seed, uint32_t me, uint32_t n, uint32_t root)
{
    uint32_t sum = 0, bits = 0, below = 0;

    for (uint32_t r = 0; r < n; r++) {
        sum += value(seed, r);
        bits ^= value(seed, r);
        below += r <= me ? value(seed, r) : 0;
        must_be(ALLTOALL, r, value(seed, r));
        must_be(ALLGATHER, r, value(seed, r));
        if (me == root)
            must_be(GATHER, r, value(seed, r));
    }
    must_be(SUM, 0, sum);
    must_be(XOR, 0, bits);
    must_be(BROADCAST, 0, value(seed, root));
    must_be(REDUCE_SCATTER, 0, sum);
    must_be(SCAN, 0, below);
    must_be(MESSAGES, 0, value(seed, (me + n - 1) % n));
}

static void one_round(uint64_t seed, int32_t rank, int32_t ranks)
{
    uint32_t root = (uint32_t)(seed % (uint64_t)ranks);

    mock_seed(seed * RANKS_MOST + (uint64_t)rank);
    bench_fill(&my.bench, my.stream, my.in, value(seed, (uint32_t)rank), WORDS * RANKS_MOST);
    bench_fill(&my.bench, my.stream, out[BROADCAST], value(seed, (uint32_t)rank), WORDS);
    issue_all(rank, ranks, (int32_t)root);
    /* a device has room for four streams that wait; the program waits for the other calls itself */
    for (int call = 0; call < CALLS; call++)
        MUST(((uint64_t)call + seed) % CALLS < 4 ? comm_stream_wait_request(my.stream, q[call]) : comm_wait(q[call], RIG_PATIENCE));
    check_all(seed, (uint32_t)rank, (uint32_t)ranks, root);
    MUST(comm_wait_all(q, CALLS, RIG_PATIENCE));
}

static void rounds(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    open_rank(rank, proc->ranks);
    for (uint64_t seed = seed_first; seed < seed_first + seed_count; seed++) {
        rig_note("%s, %d ranks, seed %llu", backend, proc->ranks, (unsigned long long)seed);
        one_round(seed, rank, proc->ranks);
    }
    close_rank();
}

/* ------------------------------------------------------------------------------------------------------------ tests */
/* The seeds are shared out among teams of 2 to 8 ranks. */
static void with_seeds(const char *on)
{
    uint32_t teams = selected(RANKS_MOST - 1, RANKS_MOST - 1, 2);

    proc_needs_shm();
    backend = on;
    seed_first = 1;
    seed_count = selected(2000, 700, 14) / teams + 1;
    for (uint32_t team = 0; team < teams; team++) {
        struct proc proc = {.raw = true};
        int32_t ranks = 2 + (int32_t)(team * selected(1, 1, 3));
        rig_note("%s, %d ranks, from seed %llu", backend, ranks, (unsigned long long)seed_first);
        proc_start(&proc, ranks, rounds);
        proc_finish(&proc, -1, 4 * RIG_PATIENCE);
        seed_first += seed_count;
    }
}

RIG_TEST(many_seeds_over_nccl)
{
    with_seeds("nccl");
}

RIG_TEST(many_seeds_staged)
{
    with_seeds("shm");
}

#if HAS_KERNELS
RIG_TEST(many_seeds_by_kernels)
{
    with_seeds("cuda");
}
#endif

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_seeds_over_nccl),
        cmocka_unit_test(many_seeds_staged),
#if HAS_KERNELS
        cmocka_unit_test(many_seeds_by_kernels),
#endif
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_process_seeds", tests, NULL, NULL);
}
