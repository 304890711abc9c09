/*
 * A rank dies in the middle of sums on device buffers: the program is started by comm-run, a process for each rank. The others must get an
 * error that names that rank, within a bound. Then they shrink, and a sum of those left is right. Everything can be closed, also within a
 * bound. COMM_BACKEND chooses the backend. The launcher returns an error since a rank is killed, so the last line is what counts.
 */
#define _GNU_SOURCE
#include "now.h"
#include "played.h"
#include "suite.h"

#include <commstream/cuda.h>
#include <commstream/commstream.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Long sums go in parts, or by the steps of backend cuda. Ranks on busy CPUs are late, so the bound is far from the second that is said. */
enum { VICTIM = 1, LAST_ROUND = 5, ROUNDS_MOST = 1000, LONG_WORDS = 600000, SHORT_WORDS = 1000, BOUND_US = 20000000 };
struct buffers {
    uint32_t *in, *out, *few;
};
static struct {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *stream;
    struct buffers first, second; /* copies that an error ended early may still use the first ones */
    int32_t rank, ranks;
} my;

static void make(struct buffers *b)
{
    b->in = bench_memory(&my.bench, LONG_WORDS);
    b->out = bench_memory(&my.bench, LONG_WORDS);
    b->few = bench_memory(&my.bench, SHORT_WORDS);
}

static void drop(struct buffers *b)
{
    bench_free(&my.bench, b->in);
    bench_free(&my.bench, b->out);
    bench_free(&my.bench, b->few);
}

static void open_world(void)
{
    char text[512] = "", device[24];

    my.rank = (int32_t)strtol(getenv("COMM_RANK") ? getenv("COMM_RANK") : "0", NULL, 10);
    played_begin((uint64_t)my.rank + 1);
    snprintf(device, sizeof device, "cuda:%d", my.rank % bench_devices());
    if (comm_open(COMM_CONFIG(.device = device, .operation_timeout_ns = 3 * SUITE_PATIENCE_NS, .error_text = text,
                              .error_text_bytes = sizeof text),
                  &my.world) != COMM_OK) {
        fprintf(stderr, "comm_open: %s\n", text);
        exit(1);
    }
    my.ranks = comm_size(my.world);
    HOLDS(my.ranks > VICTIM + 1);
    bench_open(&my.bench, my.rank % bench_devices());
    my.stream = bench_stream(&my.bench);
    make(&my.first);
    make(&my.second);
}

/* A long sum and a short one. */
static enum comm_result sums(struct comm_communicator *c, const struct buffers *b, bool dies)
{
    struct comm_request q[2];

    bench_fill(&my.bench, my.stream, b->in, (uint32_t)my.rank + 1, LONG_WORDS);
    enum comm_result r = comm_queue_wait_stream(c, my.stream);
    if (r == COMM_OK)
        r = comm_allreduce(c, b->in, b->out, LONG_WORDS, COMM_U32, COMM_SUM, &q[0]);
    if (dies)
        (void)kill(getpid(), SIGKILL);
    if (r == COMM_OK)
        r = comm_allreduce(c, b->in, b->few, SHORT_WORDS, COMM_U32, COMM_SUM, &q[1]);
    return r == COMM_OK ? comm_wait_all(q, 2, SUITE_PATIENCE_NS) : r;
}

static void expect(const struct buffers *b, uint32_t sum)
{
    uint32_t got[2];

    bench_read(&my.bench, my.stream, &got[0], b->out + LONG_WORDS - 1, 1);
    bench_read(&my.bench, my.stream, &got[1], b->few, 1);
    HOLDS(got[0] == sum && got[1] == sum);
}

/* Returns how long the round took in which the error came, us. */
static double until_the_error(void)
{
    struct comm_error error = {.size = sizeof error};
    enum comm_result r = COMM_OK;
    double start = 0;

    for (int round = 1; round <= ROUNDS_MOST && r == COMM_OK; round++) {
        start = suite_now_us();
        r = sums(my.world, &my.first, my.rank == VICTIM && round == LAST_ROUND);
        if (r == COMM_OK)
            expect(&my.first, (uint32_t)(my.ranks * (my.ranks + 1) / 2));
    }
    double took = suite_now_us() - start;
    OK(comm_error_detail(my.world, &error));
    if (r != COMM_ERR_PEER || error.rank != VICTIM || took > BOUND_US) {
        fprintf(stderr, "rank %d got %s of rank %d after %.0f us: %s\n", my.rank, comm_result_name(r), error.rank, took, error.text);
        exit(1);
    }
    return took;
}

static void close_world(void)
{
    double start = suite_now_us();
    enum comm_result r = comm_close(my.world, SUITE_PATIENCE_NS);

    HOLDS(r == COMM_OK || r == COMM_ERR_PEER);
    HOLDS(suite_now_us() - start < BOUND_US);
    drop(&my.first);
    drop(&my.second);
    bench_drop_stream(&my.bench, my.stream);
    bench_close(&my.bench);
    played_end();
}

int main(void)
{
    struct comm_communicator *left;

    open_world();
    double took = until_the_error();
    OK(NOW(comm_shrink, my.world, &left));
    HOLDS(comm_size(left) == my.ranks - 1);
    bool first = comm_rank(left) == 0;
    OK(sums(left, &my.second, false));
    expect(&my.second, (uint32_t)(my.ranks * (my.ranks + 1) / 2 - VICTIM - 1));
    OK(comm_close(left, COMM_DEFAULT_TIMEOUT));
    close_world();
    if (first)
        printf("lost: ok ranks=%d, the error came after %.1f ms\n", my.ranks - 1, took / 1000);
    return 0;
}
