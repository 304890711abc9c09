/*
 * CUDA graphs: collectives and messages on a communicator whose stream is being captured, launched many times, between calls that are not
 * captured. All ranks are in this process. A launch that is missing, doubled or out of order shows as wrong data.
 */
#define _GNU_SOURCE
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, LAUNCHES = 1000, WORDS = 24 };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    struct comm_communicator *comm; /* works in `stream` */
    uint32_t *in, *out;
    struct bench_graph graph;
};
static struct side sides[RANKS];
static struct rig rig;
static _Atomic int said;

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    said += level == COMM_LOG_WARNING && strstr(line, "comm_close: 1 CUDA graphs") != NULL;
}

static void open_all(const struct mock_options *options)
{
    struct comm_request dup[RANKS];

    mock_reset(options);
    mock_run(true);
    rig.ranks = RANKS;
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .log = hear, .operation_timeout_ns = 30 * RIG_S), RANKS, NULL, rig.world));
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
        struct comm_options with = {.size = sizeof with, .stream = s->stream};
        MUST(comm_dup(rig.world[r], &with, &s->comm, &dup[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        struct comm_info info = {.size = sizeof info}, plain = {.size = sizeof plain};
        MUST(comm_wait(dup[r], COMM_FOREVER));
        MUST(comm_describe(sides[r].comm, &info));
        MUST(comm_describe(rig.world[r], &plain));
        CHECK(info.graph_capture && !plain.graph_capture);
    }
}

static void drop_graphs(void)
{
    for (int r = 0; r < RANKS; r++)
        bench_drop_graph(&sides[r].bench, &sides[r].graph);
}

static void close_all(void)
{
    for (int r = 0; r < RANKS; r++)
        MUST(comm_close(sides[r].comm, COMM_DEFAULT_TIMEOUT));
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    mock_run(false);
    if (mock_misused())
        rig_die(__FILE__, __LINE__, "%s", mock_misused());
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

/* Waits while this thread makes progress for all ranks. */
static void wait_all(struct comm_request requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        MUST(comm_wait(requests[r], 20 * RIG_S));
}

static uint32_t first_word(int rank, const uint32_t *of)
{
    uint32_t word;

    bench_read(&sides[rank].bench, sides[rank].stream, &word, of, 1);
    return word;
}

/* ------------------------------------------------------------------------------------------------------------ launches */
/* The graph sums the ranks' words and stores the sum as the next input: each launch multiplies the value by the number of ranks. */
static void capture_sum(int rank)
{
    struct side *s = &sides[rank];
    struct comm_request request;

    bench_capture(&s->bench, s->stream);
    MUST(comm_allreduce(s->comm, s->in, s->out, WORDS, COMM_U32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_S)); /* it is in the graph; its peers have not called yet */
    bench_copy(&s->bench, s->stream, s->in, s->out, WORDS * sizeof *s->in);
    bench_end_capture(&s->bench, s->stream, &s->graph);
}

static void launch_all(void)
{
    for (int r = 0; r < RANKS; r++)
        bench_launch(&sides[r].bench, &sides[r].graph, sides[r].stream);
}

/* An eager sum between two launches. */
static void sum_now(void)
{
    struct comm_request requests[RANKS];

    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, WORDS, COMM_U32, COMM_SUM, &requests[r]));
    wait_all(requests);
}

static void launches(uint64_t seed, bool no_memops)
{
    uint32_t want = 1;

    rig_note("seed %llu, no_memops %d", (unsigned long long)seed, no_memops);
    open_all(&(struct mock_options){.seed = seed, .queues = 8, .no_memops = no_memops});
    for (int r = 0; r < RANKS; r++)
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, want, WORDS);
    sum_now();
    want *= RANKS;
    for (int r = 0; r < RANKS; r++)
        capture_sum(r);
    for (int r = 0; r < RANKS; r++) /* the capture itself has computed nothing */
        EQUAL(first_word(r, sides[r].in), want);
    for (int i = 0; i < LAUNCHES; i++) {
        launch_all();
        want *= RANKS;
        if (i % 100 == 50) {
            sum_now();
            want *= RANKS;
        }
    }
    for (int r = 0; r < RANKS; r++)
        EQUAL(first_word(r, sides[r].in), want);
    drop_graphs();
    close_all();
}

RIG_TEST(a_graph_is_launched_a_thousand_times)
{
    for (uint64_t seed = 1; seed <= (rig_quick() ? 2 : 10); seed++)
        launches(seed, false);
    launches(1, true);
}

/* ------------------------------------------------------------------------------------------------------------ requests */
/* A request of a call that is not captured is complete when the device is done, although launches came before it. */
RIG_TEST(requests_around_a_launch)
{
    for (int no_memops = 0; no_memops < 2; no_memops++) {
        struct comm_request requests[RANKS];
        open_all(&(struct mock_options){.seed = 5, .queues = 32, .no_memops = no_memops});
        for (int r = 0; r < RANKS; r++) {
            bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, 1, WORDS);
            capture_sum(r);
        }
        for (int r = 0; r < RANKS; r++)
            mock_hold(sides[r].stream, true);
        launch_all();
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, WORDS, COMM_U32, COMM_SUM, &requests[r]));
        for (int r = 0; r < RANKS; r++)
            IS(comm_wait(requests[r], 20 * RIG_MS), COMM_PENDING);
        for (int r = 0; r < RANKS; r++)
            mock_hold(sides[r].stream, false);
        wait_all(requests);
        for (int r = 0; r < RANKS; r++)
            EQUAL(first_word(r, sides[r].in), RANKS * RANKS);
        drop_graphs();
        close_all();
    }
}

/* ------------------------------------------------------------------------------------------------------------ other calls */
/* Collectives that are several NCCL calls, and a group of messages: to the next rank, from the one before. */
static void capture_many(int rank)
{
    struct side *s = &sides[rank];
    struct comm_communicator *group;

    bench_capture(&s->bench, s->stream);
    MUST(comm_alltoall(s->comm, s->in, s->out, WORDS / RANKS, COMM_U32, NULL));
    MUST(comm_scan(s->comm, COMM_IN_PLACE, s->out, WORDS, COMM_U32, COMM_SUM, NULL));
    MUST(comm_barrier(s->comm, NULL));
    MUST(comm_group_begin(s->comm, &group));
    MUST(comm_send(group, s->out, WORDS, COMM_U32, (rank + 1) % RANKS, 0, NULL));
    MUST(comm_recv(group, s->in, WORDS, COMM_U32, (rank + RANKS - 1) % RANKS, 0, NULL, NULL));
    MUST(comm_group_end(group, NULL));
    bench_end_capture(&s->bench, s->stream, &s->graph);
}

/* What a launch makes of each rank's blocks. */
static void model(uint32_t in[RANKS][RANKS])
{
    uint32_t out[RANKS][RANKS];

    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < RANKS; k++)
            out[r][k] = in[k][r] + (r ? out[r - 1][k] : 0);
    for (int r = 0; r < RANKS; r++)
        memcpy(in[(r + 1) % RANKS], out[r], sizeof out[r]);
}

RIG_TEST(moves_and_messages_in_a_graph)
{
    uint32_t want[RANKS][RANKS], got[WORDS];

    open_all(&(struct mock_options){.seed = 9, .queues = 8});
    for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < RANKS; k++)
            want[r][k] = (uint32_t)r + 1;
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, want[r][0], WORDS);
        capture_many(r);
    }
    for (int i = 0; i < 20; i++) {
        launch_all();
        model(want);
    }
    for (int r = 0; r < RANKS; r++) {
        bench_read(&sides[r].bench, sides[r].stream, got, sides[r].in, WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], want[r][i / (WORDS / RANKS)]);
    }
    drop_graphs();
    close_all();
}

/* A reduction that NCCL lacks goes into a graph where the device has a kernel for it, and is refused where the host would reduce. */
RIG_TEST(a_reduction_that_nccl_lacks_in_a_graph)
{
    for (int no_kernels = 0; no_kernels < 2; no_kernels++) {
        open_all(&(struct mock_options){.seed = 4, .queues = 8, .no_kernels = no_kernels});
        bool has_kernels = HAS_KERNELS && !no_kernels;
        for (int r = 0; r < RANKS; r++) {
            struct side *s = &sides[r];
            bench_fill(&s->bench, s->stream, s->in, 1u << r, WORDS);
            bench_capture(&s->bench, s->stream);
            IS(comm_allreduce(s->comm, s->in, s->out, WORDS, COMM_U32, COMM_BXOR, NULL), has_kernels ? COMM_OK : COMM_ERR_STATE);
            bench_copy(&s->bench, s->stream, s->in, s->out, WORDS * sizeof *s->in);
            bench_end_capture(&s->bench, s->stream, &s->graph);
        }
        for (int i = 0; i < 20 && has_kernels; i++) /* 1 ^ 2 ^ 4 is 7, and 7 ^ 7 ^ 7 too */
            launch_all();
        for (int r = 0; r < RANKS; r++)
            EQUAL(first_word(r, sides[r].in), has_kernels ? 7 : 1 << r);
        for (int r = 0; r < RANKS; r++)
            (void)!comm_sync(sides[r].comm, RIG_S); /* reports the refused call, once */
        drop_graphs();
        close_all();
    }
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
static void refused(struct side *s, enum comm_result result, enum comm_result expected, const char *text)
{
    struct comm_error error = {.size = sizeof error};

    IS(result, expected);
    MUST(comm_error_detail(s->comm, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.text, text);
}

/* What a graph cannot have is refused, and the capture goes on. */
RIG_TEST(what_is_refused)
{
    struct comm_request request;
    uint32_t here[WORDS] = {0};

    open_all(&(struct mock_options){.seed = 3, .queues = 32});
    struct side *s = &sides[0];
    struct CUstream_st *other = bench_stream(&s->bench);
    mock_hold(other, true);
    bench_fill(&s->bench, other, s->in, 1, WORDS);
    bench_capture(&s->bench, s->stream);
    IS(comm_queue_wait_stream(s->comm, other), COMM_ERR_UNSUPPORTED);
    IS(comm_queue_wait_stream(rig.world[0], s->stream), COMM_ERR_UNSUPPORTED);
    refused(s, comm_allreduce(s->comm, here, here + 1, 1, COMM_U32, COMM_BXOR, &request), COMM_ERR_STATE, "is being captured");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    mock_hold(other, false);
    mock_capture(s->stream, true); /* a capture that was invalidated */
    refused(s, comm_barrier(s->comm, &request), COMM_ERR_STATE, "invalidated");
    mock_capture(s->stream, false);
    bench_drop_stream(&s->bench, other);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_revoke(sides[r].comm); /* the other ranks have not made the refused calls */
    close_all();
}

/* One rank captures a call that the others make at once: they would wait for a launch. It is a mismatch, which says so. */
RIG_TEST(one_rank_captures_and_the_others_call)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request requests[RANKS];

    open_all(&(struct mock_options){.seed = 3, .queues = 32});
    struct side *s = &sides[0];
    int64_t began = rig_now();
    bench_capture(&s->bench, s->stream);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &requests[r]));
    bench_end_capture(&s->bench, s->stream, &s->graph);
    for (int r = 1; r < RANKS; r++)
        IS(comm_wait(requests[r], 10 * RIG_S), COMM_ERR_MISMATCH);
    CHECK(rig_now() - began < 5 * RIG_S);
    MUST(comm_error_detail(sides[1].comm, &error));
    if (!strstr(error.text, "rank 0 called into a CUDA graph allreduce"))
        rig_die(__FILE__, __LINE__, "\"%s\"", error.text);
    bench_drop_graph(&s->bench, &s->graph);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ closing */
/* comm_close with a live graph is refused at once, with its reason, and nothing happens. After the graph it closes. */
RIG_TEST(close_with_a_live_graph)
{
    for (int fails = 0; fails < 2; fails++) {
        open_all(&(struct mock_options){.seed = 7, .queues = 32});
        for (int r = 0; r < RANKS; r++) {
            bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, 1, WORDS);
            capture_sum(r);
        }
        launch_all();
        for (int r = 0; r < RANKS; r++)
            EQUAL(first_word(r, sides[r].in), RANKS);
        if (fails) /* NCCL's abort waits for the graphs too */
            MUST(comm_revoke(sides[0].comm));
        struct comm_error error = {.size = sizeof error};
        for (int r = 0; r < RANKS && fails; r++)
            rig_fails_within(sides[r].comm, COMM_ERR_REVOKED, RIG_S, &error);
        int64_t began = rig_now();
        for (int r = 0; r < RANKS; r++)
            refused(&sides[r], comm_close(sides[r].comm, 10 * RIG_S), COMM_ERR_STATE, fails ? "revoked" : "comm_close: 1 CUDA graphs");
        while (fails && said < RANKS &&
               rig_now() - began < 5 * RIG_S) /* the detail of a failed communicator is why it failed, so the log says it */
            rig_nap(RIG_MS);
        EQUAL(said, fails ? RANKS : 0);
        CHECK(rig_now() - began < 5 * RIG_S);
        if (!fails) { /* the communicators still work */
            launch_all();
            sum_now();
            for (int r = 0; r < RANKS; r++)
                EQUAL(first_word(r, sides[r].in), RANKS * RANKS * RANKS);
        }
        drop_graphs();
        close_all();
    }
}

/* ------------------------------------------------------------------------------------------------------------ older drivers, faults */
/* The process keeps the driver that it has loaded, so this case has a process of its own, as all have. */
RIG_TEST(a_driver_that_tells_no_graph)
{
    struct comm_request request;

    open_all(&(struct mock_options){.seed = 3, .queues = 32, .driver = 12020});
    struct side *s = &sides[0];
    bench_capture(&s->bench, s->stream);
    refused(s, comm_barrier(s->comm, &request), COMM_ERR_STATE, "CUDA 12.3");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_revoke(sides[r].comm);
    close_all();
}

/* The n-th call of CUDA or NCCL fails while a call is captured. Returns false if there are fewer. */
static bool fault_in_capture(uint64_t n)
{
    rig_note("call %llu fails", (unsigned long long)n);
    open_all(&(struct mock_options){.seed = n, .queues = 32});
    struct side *s = &sides[0];
    bench_capture(&s->bench, s->stream);
    mock_fail(n, false);
    enum comm_result r = comm_scan(s->comm, s->in, s->out, WORDS, COMM_U32, COMM_SUM, NULL);
    bool failed = mock_failed() != NULL;
    mock_fail(0, false);
    CHECK(r == COMM_OK || r == COMM_ERR_STATE || r == COMM_ERR_ARGUMENT || r == COMM_ERR_BACKEND || r == COMM_ERR_MEMORY);
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    for (int i = 0; i < RANKS; i++)
        (void)!comm_revoke(sides[i].comm);
    close_all();
    return failed;
}

RIG_TEST(a_fault_at_every_call_of_a_capture)
{
    uint64_t n = 1;

    while (fault_in_capture(n))
        n++;
    CHECK(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_launched_a_thousand_times),
        cmocka_unit_test(requests_around_a_launch),
        cmocka_unit_test(moves_and_messages_in_a_graph),
        cmocka_unit_test(a_reduction_that_nccl_lacks_in_a_graph),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(one_rank_captures_and_the_others_call),
        cmocka_unit_test(close_with_a_live_graph),
        cmocka_unit_test(a_driver_that_tells_no_graph),
        cmocka_unit_test(a_fault_at_every_call_of_a_capture),
    };
    return cmocka_run_group_tests_name("cuda_graphs", tests, NULL, NULL);
}
