/*
 * Backend cuda in streams of the program's: short allreduces on a comm_dup with options.stream, in the order of the stream, and captured in
 * CUDA graphs that are launched many times. All ranks are in this process. A launch that is missing, doubled or out of order shows as wrong
 * data.
 */
#define _GNU_SOURCE
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, LAUNCHES = 1000, WORDS = 24, LONG = 20000 };
static struct side {
    struct bench bench;
    struct CUstream_st *stream;
    struct comm_communicator *comm; /* works in `stream` */
    uint32_t *in, *out;
    struct bench_graph graph;
} sides[RANKS];
static struct rig rig;

static void open_all(const struct mock_options *options, int64_t timeout_ns)
{
    struct comm_request dup[RANKS];

    mock_reset(options);
    mock_run(true);
    rig_open(&rig, RANKS, COMM_CONFIG(.backend = "cuda", .operation_timeout_ns = timeout_ns));
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, LONG);
        s->out = bench_memory(&s->bench, LONG);
        struct comm_options with = {.size = sizeof with, .stream = s->stream};
        MUST(comm_dup(rig.world[r], &with, &s->comm, &dup[r]));
    }
    rig_wait_all(dup, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct comm_info info = {.size = sizeof info}, plain = {.size = sizeof plain};
        struct CUstream_st *stream = NULL;
        MUST(comm_describe(sides[r].comm, &info));
        MUST(comm_describe(rig.world[r], &plain));
        CHECK(info.graph_capture && info.fixed_order && !plain.graph_capture);
        MUST(comm_stream_of(sides[r].comm, &stream));
        CHECK(stream == sides[r].stream);
    }
}

static void close_all(bool failed)
{
    for (int r = 0; r < RANKS; r++) {
        bench_drop_graph(&sides[r].bench, &sides[r].graph);
        enum comm_result closed = comm_close(sides[r].comm, 5 * RIG_S);
        CHECK(closed == COMM_OK || failed);
    }
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    clean_end();
}

static uint32_t first_word(int rank, const uint32_t *of)
{
    uint32_t word;

    bench_read(&sides[rank].bench, sides[rank].stream, &word, of, 1);
    return word;
}

static void fill_all(uint32_t value)
{
    for (int r = 0; r < RANKS; r++)
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, value, LONG);
}

/* ------------------------------------------------------------------------------------------------------------ launches */
/* The sum is the next input: each launch multiplies the value by the number of ranks. */
static void capture_sum(int rank, size_t words)
{
    struct side *s = &sides[rank];
    struct comm_request request;

    bench_capture(&s->bench, s->stream);
    MUST(comm_allreduce(s->comm, s->in, s->out, words, COMM_U32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_S)); /* it is in the graph; its peers have not called yet */
    bench_copy(&s->bench, s->stream, s->in, s->out, words * sizeof *s->in);
    bench_end_capture(&s->bench, s->stream, &s->graph);
}

static void launch_all(void)
{
    for (int r = 0; r < RANKS; r++)
        bench_launch(&sides[r].bench, &sides[r].graph, sides[r].stream);
}

/* An eager sum between two launches: no wait before it, and none behind it. */
static void sum_now(size_t words)
{
    struct comm_request requests[RANKS];

    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, words, COMM_U32, COMM_SUM, &requests[r]));
    rig_wait_all(requests, RANKS);
}

static void launches(uint64_t seed, size_t words, int count)
{
    uint32_t want = 1;

    rig_note("seed %llu", (unsigned long long)seed);
    open_all(&(struct mock_options){.seed = seed, .queues = 8}, 60 * RIG_S);
    fill_all(want);
    sum_now(words);
    want *= RANKS;
    for (int r = 0; r < RANKS; r++)
        capture_sum(r, words);
    for (int r = 0; r < RANKS; r++) /* the capture itself has computed nothing */
        EQUAL(first_word(r, sides[r].in), want);
    for (int i = 0; i < count; i++) {
        launch_all();
        want *= RANKS;
        if (i % 100 == 50) {
            sum_now(words);
            want *= RANKS;
        }
    }
    for (int r = 0; r < RANKS; r++)
        EQUAL(first_word(r, sides[r].in), want);
    close_all(false);
}

RIG_TEST(a_graph_is_launched_a_thousand_times)
{
    launches(1, WORDS, LAUNCHES);
    for (uint64_t seed = 2; seed <= rig_thin(10, 4, 2); seed++)
        launches(seed, 2000, 60); /* two parts */
}

/* ------------------------------------------------------------------------------------------------------------ the order of the stream */
RIG_TEST(calls_are_ordered_by_the_stream)
{
    open_all(&(struct mock_options){.seed = 2, .queues = 8}, 30 * RIG_S);
    for (uint32_t round = 1; round <= 50; round++) {
        fill_all(round);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, NULL));
        for (int r = 0; r < RANKS; r++)
            EQUAL(first_word(r, sides[r].out), RANKS * round);
    }
    close_all(false);
}

/* Another stream waits for a request, without the host. */
RIG_TEST(another_stream_waits)
{
    struct comm_request request[RANKS];

    open_all(&(struct mock_options){.seed = 2, .queues = 32}, 30 * RIG_S);
    struct CUstream_st *other = bench_stream(&sides[0].bench);
    for (uint32_t round = 1; round <= 20; round++) {
        fill_all(round);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &request[r]));
        MUST(comm_stream_wait_request(other, request[0]));
        uint32_t word;
        bench_read(&sides[0].bench, other, &word, sides[0].out, 1);
        EQUAL(word, RANKS * round);
        rig_wait_all(request, RANKS);
    }
    bench_drop_stream(&sides[0].bench, other);
    close_all(false);
}

/* ------------------------------------------------------------------------------------------------------------ refusals, failures */
static void refused(struct side *s, enum comm_result result, enum comm_result expected, const char *text)
{
    struct comm_error error = {.size = sizeof error};

    IS(result, expected);
    MUST(comm_error_detail(s->comm, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.text, text);
}

RIG_TEST(what_is_refused)
{
    static uint32_t here[WORDS];
    struct comm_request request, sums[RANKS];
    uint32_t one[RANKS] = {1, 1, 1};

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    for (int r = 0; r < RANKS; r++) /* host buffers go over the wire, as ever */
        MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, &one[r], 1, COMM_U32, COMM_SUM, &sums[r]));
    rig_wait_all(sums, RANKS);
    EQUAL(one[2], RANKS);
    struct side *s = &sides[0];
    bench_capture(&s->bench, s->stream);
    refused(s, comm_allreduce(s->comm, here, here + 1, 1, COMM_U32, COMM_SUM, &request), COMM_ERR_STATE, "is being captured");
    refused(s, comm_barrier(s->comm, &request), COMM_ERR_STATE, "is being captured");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    refused(s, comm_allreduce(s->comm, s->in, s->out, LONG, COMM_U32, COMM_SUM, &request), COMM_ERR_ARGUMENT, "at most 65536 bytes");
    refused(s, comm_allgather(s->comm, s->in, s->out, 1, COMM_U32, &request), COMM_ERR_ARGUMENT, "at most 65536 bytes");
    refused(s, comm_allreduce(s->comm, s->in, sides[1].out, WORDS, COMM_U32, COMM_SUM, &request), COMM_ERR_ARGUMENT,
            "out: expected memory of cuda:0");
    refused(s, comm_broadcast(s->comm, s->in, 1, COMM_U32, 0, &request), COMM_ERR_ARGUMENT, "at most 65536 bytes");
    CHECK(comm_send(s->comm, s->in, 1, COMM_U32, 1, 0, &request) != COMM_OK);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_revoke(sides[r].comm); /* the other ranks have not made the refused calls */
    close_all(true);
}

/* One rank's stream stands: the others' kernels wait until the deadline, then all end. */
RIG_TEST(a_rank_that_does_not_come)
{
    struct comm_request request[RANKS];

    open_all(&(struct mock_options){.seed = 3, .queues = 32}, RIG_S);
    mock_hold(sides[2].stream, true);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &request[r]));
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    mock_hold(sides[2].stream, false);
    close_all(true);
}

/* A graph that one rank launches less often: the others' streams stand until the communicator is aborted. */
RIG_TEST(an_abort_while_a_graph_waits)
{
    open_all(&(struct mock_options){.seed = 3, .queues = 32}, 20 * RIG_S);
    fill_all(1);
    for (int r = 0; r < RANKS; r++)
        capture_sum(r, WORDS);
    launch_all();
    bench_launch(&sides[0].bench, &sides[0].graph, sides[0].stream);
    for (int r = 1; r < RANKS; r++)
        EQUAL(first_word(r, sides[r].in), RANKS);
    MUST(comm_abort(sides[0].comm, 7));
    EQUAL(first_word(0, sides[0].out), RANKS); /* its stream goes on, and the kernel has written nothing */
    close_all(true);
}

RIG_TEST(close_with_a_live_graph)
{
    open_all(&(struct mock_options){.seed = 7, .queues = 32}, 20 * RIG_S);
    fill_all(1);
    for (int r = 0; r < RANKS; r++)
        capture_sum(r, WORDS);
    launch_all();
    for (int r = 0; r < RANKS; r++)
        refused(&sides[r], comm_close(sides[r].comm, 10 * RIG_S), COMM_ERR_STATE, "comm_close: 1 CUDA graphs");
    launch_all();
    for (int r = 0; r < RANKS; r++)
        EQUAL(first_word(r, sides[r].in), RANKS * RANKS);
    close_all(false);
}

/* All ranks shrink a communicator that was revoked; the new one works in the same streams. */
RIG_TEST(a_shrunk_communicator_keeps_the_stream)
{
    struct comm_communicator *left[RANKS];
    struct comm_request request[RANKS];

    open_all(&(struct mock_options){.seed = 8, .queues = 32}, 20 * RIG_S);
    MUST(comm_revoke(sides[1].comm));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_shrink(sides[r].comm, &left[r], &request[r]));
    rig_wait_all(request, RANKS);
    for (uint32_t round = 1; round <= 5; round++) {
        fill_all(round);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(left[r], sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, NULL));
        for (int r = 0; r < RANKS; r++)
            EQUAL(first_word(r, sides[r].out), RANKS * round);
    }
    for (int r = 0; r < RANKS; r++)
        MUST(comm_close(left[r], COMM_DEFAULT_TIMEOUT));
    close_all(true);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_launched_a_thousand_times),
        cmocka_unit_test(calls_are_ordered_by_the_stream),
        cmocka_unit_test(another_stream_waits),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(an_abort_while_a_graph_waits),
        cmocka_unit_test(close_with_a_live_graph),
        cmocka_unit_test(a_shrunk_communicator_keeps_the_stream),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot_graphs", tests, NULL, NULL);
}
