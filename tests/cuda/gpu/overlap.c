/*
 * Figures of ranks that may share a device: the program is started by comm-run, a process for each rank. A sum of 20 MB of bf16, which is
 * staged, or on backend cuda reduced by the devices. First alone and then beside work of the device's that takes as long, and beside them
 * the device's bare copies of the same bytes: every rank's to the host and back to the device at once, which is what such a sum must move.
 * And beside a kernel that only spins, twice as long as the sum: it takes no bandwidth, so all of the sum could be hidden. Before, that
 * kernel runs until the sum has ended, so the sum does not wait for it. Each is the median of several rounds; a round takes as long as its
 * slowest rank.
 */
#define _GNU_SOURCE
#include "played.h"
#include "spin.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_MOST_NS UINT64_C(10000000000)
enum { MOST_ROUNDS = 15, SUM_WORDS = 5 << 20, PLAYED_WORDS = 300, SLOW_WORDS = 16 << 20 };
static struct {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *compute, *down, *up;
    uint32_t *in, *out, *slow;
    void *pinned[2];
    size_t words, slow_words;
    uint32_t fills; /* of the slow memory, that take about as long as a sum */
    struct spin spin;
    uint64_t spin_ns;
    int32_t rank, ranks, rounds;
} my;

static void barrier(void)
{
    struct comm_request q;

    OK(comm_barrier(my.world, &q));
    OK(comm_wait(q, SUITE_PATIENCE_NS));
}

/* us; the same on every rank. */
static double median(void (*round)(void))
{
    double time[MOST_ROUNDS], slowest;
    struct comm_request q;

    round();
    for (int i = 0; i < my.rounds; i++) {
        barrier();
        double start = suite_now_us(), mine;
        round();
        mine = suite_now_us() - start;
        OK(comm_allreduce(my.world, &mine, &slowest, 1, COMM_F64, COMM_MAX, &q));
        OK(comm_wait(q, SUITE_PATIENCE_NS));
        time[i] = slowest;
    }
    return suite_median(time, my.rounds);
}

/* ------------------------------------------------------------------------------------------------------------ rounds */
static void copies(void)
{
    size_t bytes = my.words * sizeof *my.in;

    bench_copy(&my.bench, my.down, my.pinned[0], my.in, bytes);
    bench_copy(&my.bench, my.up, my.out, my.pinned[1], bytes);
    bench_wait(&my.bench, my.down);
    bench_wait(&my.bench, my.up);
}

static void work(void)
{
    for (uint32_t i = 0; i < my.fills; i++)
        bench_fill(&my.bench, my.compute, my.slow, i, my.slow_words);
}

static void work_alone(void)
{
    work();
    bench_wait(&my.bench, my.compute);
}

static struct comm_request start_sum(void)
{
    struct comm_request q;

    OK(comm_allreduce(my.world, my.in, my.out, my.words * 2, COMM_BF16, COMM_SUM, &q));
    return q;
}

static void sum_alone(void)
{
    OK(comm_wait(start_sum(), SUITE_PATIENCE_NS));
}

static void sum_beside_work(void)
{
    struct comm_request q = start_sum();

    work();
    OK(comm_wait(q, SUITE_PATIENCE_NS));
    bench_wait(&my.bench, my.compute);
}

static void spin_alone(void)
{
    spin_start(&my.spin, my.compute, my.spin_ns);
    bench_wait(&my.bench, my.compute);
}

static void sum_beside_spin(void)
{
    spin_start(&my.spin, my.compute, my.spin_ns);
    OK(comm_wait(start_sum(), SUITE_PATIENCE_NS));
    bench_wait(&my.bench, my.compute);
}

static void check_beside_spin(void)
{
    spin_start(&my.spin, my.compute, SPIN_MOST_NS);
    OK(comm_wait(start_sum(), SUITE_PATIENCE_NS));
    bench_enter(&my.bench);
    HOLDS(my.bench.calls->cuStreamQuery(my.compute) == CUDA_NOT_READY);
    bench_leave(&my.bench);
    spin_stop(&my.spin);
    bench_wait(&my.bench, my.compute);
}

/* ------------------------------------------------------------------------------------------------------------ main */
/* Two bf16 in a word. */
static uint32_t pair_of(int32_t value)
{
    float number = (float)value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    return (bits >> 16) * 0x10001u;
}

static void check_sum(void)
{
    uint32_t got[64];
    size_t n = my.words < 64 ? my.words : 64;

    sum_alone();
    bench_read(&my.bench, my.compute, got, my.out + my.words - n, n);
    for (size_t i = 0; i < n; i++)
        HOLDS(got[i] == pair_of(my.ranks * (my.ranks + 1) / 2));
}

static void open_all(void)
{
    const char *rank = getenv("COMM_RANK");
    char device[24];

    HOLDS(rank); /* comm-run starts it */
    my.rank = (int32_t)strtol(rank, NULL, 10);
    played_begin((uint64_t)my.rank + 1);
    snprintf(device, sizeof device, "cuda:%d", my.rank % bench_devices());
    OK(comm_open(COMM_CONFIG(.device = device, .progress = COMM_PROGRESS_CALLER), &my.world));
    my.ranks = comm_size(my.world);
    my.rounds = PLAYED ? 1 : MOST_ROUNDS;
    my.words = PLAYED ? PLAYED_WORDS : SUM_WORDS;
    my.slow_words = PLAYED ? PLAYED_WORDS : SLOW_WORDS;
    bench_open(&my.bench, my.rank % bench_devices());
    my.compute = bench_stream(&my.bench);
    my.down = bench_stream(&my.bench);
    my.up = bench_stream(&my.bench);
    my.in = bench_memory(&my.bench, my.words);
    my.out = bench_memory(&my.bench, my.words);
    my.slow = bench_memory(&my.bench, my.slow_words);
    my.pinned[0] = bench_pinned(&my.bench, my.words * sizeof *my.in);
    my.pinned[1] = bench_pinned(&my.bench, my.words * sizeof *my.in);
    spin_open(&my.spin, &my.bench);
    bench_fill(&my.bench, my.compute, my.in, pair_of(my.rank + 1), my.words);
    bench_wait(&my.bench, my.compute);
}

static void close_all(void)
{
    OK(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    spin_close(&my.spin);
    bench_free_pinned(&my.bench, my.pinned[0]);
    bench_free_pinned(&my.bench, my.pinned[1]);
    bench_free(&my.bench, my.in);
    bench_free(&my.bench, my.out);
    bench_free(&my.bench, my.slow);
    bench_drop_stream(&my.bench, my.compute);
    bench_drop_stream(&my.bench, my.down);
    bench_drop_stream(&my.bench, my.up);
    bench_close(&my.bench);
    played_end();
}

int main(void)
{
    double bare, alone, busy, both, spin, beside;

    open_all();
    check_sum();
    check_beside_spin();
    bare = median(copies);
    alone = median(sum_alone);
    my.fills = 1;
    if (!PLAYED)
        my.fills = (uint32_t)(alone / median(work_alone)) + 1;
    busy = median(work_alone);
    both = median(sum_beside_work);
    my.spin_ns = (uint64_t)(2e3 * alone);
    spin = median(spin_alone);
    beside = median(sum_beside_spin);
    if (my.rank == 0) {
        double megabytes = (double)(my.words * sizeof *my.in) / 1e6, shorter = alone < busy ? alone : busy;
        printf("  %.0f MB of bf16, %d ranks: bare copies, both ways at once %9.0f us, %.1f GB/s each way\n", megabytes, my.ranks, bare,
               megabytes * my.ranks * 1e3 / bare);
        printf("  %.0f MB of bf16, %d ranks: sum                            %9.0f us, %.0f %% of the copies' rate\n", megabytes, my.ranks,
               alone, 100 * bare / alone);
        printf("  %.0f MB of bf16, %d ranks: beside %.0f us of work           %9.0f us, %.0f %% hidden\n", megabytes, my.ranks, busy, both,
               100 * (alone + busy - both) / shorter);
        printf("  %.0f MB of bf16, %d ranks: beside a kernel that spins %.0f us %9.0f us, %.0f %% hidden\n", megabytes, my.ranks, spin,
               beside, 100 * (alone + spin - beside) / alone);
    }
    close_all();
    return 0;
}
