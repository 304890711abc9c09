/*
 * CUDA graphs: collectives and messages on a communicator whose stream is being captured, launched many times, between calls that are not
 * captured. All ranks are in this process. A launch that is missing, doubled or out of order shows as wrong data.
 */
#define _GNU_SOURCE
#include "now.h"
#include "sides.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAUNCHES = 1000, WORDS = 24 };
static _Atomic int said;

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    said += level == COMM_LOG_WARNING && strstr(line, "comm_close: 1 CUDA graphs") != NULL;
}

static void open_all(const struct mock_options *options)
{
    sides_open(options, COMM_CONFIG(.backend = "nccl", .log = hear, .operation_timeout_ns = 30 * RIG_S), WORDS);
}

/* ------------------------------------------------------------------------------------------------------------ launches */
static void launches(uint64_t seed, bool no_memops)
{
    uint32_t want = 1;

    rig_note("seed %llu, no_memops %d", (unsigned long long)seed, no_memops);
    open_all(&(struct mock_options){.seed = seed, .queues = 8, .no_memops = no_memops});
    sides_fill(want, WORDS);
    sides_sum(WORDS);
    want *= SIDES;
    sides_capture_sum(WORDS);
    for (int r = 0; r < SIDES; r++) /* the capture itself has computed nothing */
        EQUAL(sides_word(r, sides[r].in), want);
    for (int i = 0; i < LAUNCHES; i++) {
        sides_launch();
        want *= SIDES;
        if (i % 100 == 50) {
            sides_sum(WORDS);
            want *= SIDES;
        }
    }
    for (int r = 0; r < SIDES; r++)
        EQUAL(sides_word(r, sides[r].in), want);
    sides_close(false);
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
        struct comm_request requests[SIDES];
        open_all(&(struct mock_options){.seed = 5, .queues = 32, .no_memops = no_memops});
        sides_fill(1, WORDS);
        sides_capture_sum(WORDS);
        for (int r = 0; r < SIDES; r++)
            mock_hold(sides[r].stream, true);
        sides_launch();
        for (int r = 0; r < SIDES; r++)
            MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, WORDS, COMM_U32, COMM_SUM, &requests[r]));
        for (int r = 0; r < SIDES; r++)
            IS(comm_wait(requests[r], 20 * RIG_MS), COMM_PENDING);
        for (int r = 0; r < SIDES; r++)
            mock_hold(sides[r].stream, false);
        rig_wait_all(requests, SIDES);
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].in), SIDES * SIDES);
        sides_close(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ other calls */
/* Collectives that are several NCCL calls, and a group of messages: to the next rank, from the one before. */
static void capture_many(int rank)
{
    struct side *s = &sides[rank];
    struct comm_communicator *group;

    bench_capture(&s->bench, s->stream);
    MUST(comm_alltoall(s->comm, s->in, s->out, WORDS / SIDES, COMM_U32, NULL));
    MUST(comm_scan(s->comm, COMM_IN_PLACE, s->out, WORDS, COMM_U32, COMM_SUM, NULL));
    MUST(comm_barrier(s->comm, NULL));
    MUST(comm_group_begin(s->comm, &group));
    MUST(comm_send(group, s->out, WORDS, COMM_U32, (rank + 1) % SIDES, 0, NULL));
    MUST(comm_recv(group, s->in, WORDS, COMM_U32, (rank + SIDES - 1) % SIDES, 0, NULL, NULL));
    MUST(comm_group_end(group, NULL));
    bench_end_capture(&s->bench, s->stream, &s->graph);
}

/* What a launch makes of each rank's blocks. */
static void model(uint32_t in[SIDES][SIDES])
{
    uint32_t out[SIDES][SIDES];

    for (int r = 0; r < SIDES; r++)
        for (int k = 0; k < SIDES; k++)
            out[r][k] = in[k][r] + (r ? out[r - 1][k] : 0);
    for (int r = 0; r < SIDES; r++)
        memcpy(in[(r + 1) % SIDES], out[r], sizeof out[r]);
}

RIG_TEST(moves_and_messages_in_a_graph)
{
    uint32_t want[SIDES][SIDES], got[WORDS];

    open_all(&(struct mock_options){.seed = 9, .queues = 8});
    for (int r = 0; r < SIDES; r++) {
        for (int k = 0; k < SIDES; k++)
            want[r][k] = (uint32_t)r + 1;
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, want[r][0], WORDS);
        capture_many(r);
    }
    for (int i = 0; i < 20; i++) {
        sides_launch();
        model(want);
    }
    for (int r = 0; r < SIDES; r++) {
        bench_read(&sides[r].bench, sides[r].stream, got, sides[r].in, WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], want[r][i / (WORDS / SIDES)]);
    }
    sides_close(false);
}

/* A reduction that NCCL lacks goes into a graph where the device has a kernel for it, and is refused where the host would reduce. */
RIG_TEST(a_reduction_that_nccl_lacks_in_a_graph)
{
    for (int no_kernels = 0; no_kernels < 2; no_kernels++) {
        open_all(&(struct mock_options){.seed = 4, .queues = 8, .no_kernels = no_kernels});
        bool has_kernels = HAS_KERNELS && !no_kernels;
        for (int r = 0; r < SIDES; r++) {
            struct side *s = &sides[r];
            bench_fill(&s->bench, s->stream, s->in, 1u << r, WORDS);
            bench_capture(&s->bench, s->stream);
            IS(comm_allreduce(s->comm, s->in, s->out, WORDS, COMM_U32, COMM_BXOR, NULL), has_kernels ? COMM_OK : COMM_ERR_STATE);
            bench_copy(&s->bench, s->stream, s->in, s->out, WORDS * sizeof *s->in);
            bench_end_capture(&s->bench, s->stream, &s->graph);
        }
        for (int i = 0; i < 20 && has_kernels; i++) /* 1 ^ 2 ^ 4 is 7, and 7 ^ 7 ^ 7 too */
            sides_launch();
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].in), has_kernels ? 7 : 1 << r);
        for (int r = 0; r < SIDES; r++)
            (void)!comm_sync(sides[r].comm, RIG_S); /* reports the refused call, once */
        sides_close(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
/* The graph has the factors; the operator may be freed. */
RIG_TEST(a_pre_multiplied_sum_in_a_graph)
{
    uint32_t want = 1;
    open_all(&(struct mock_options){.seed = 11, .queues = 8});
    sides_fill(1, WORDS);
    for (uint32_t r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        uint32_t factor = r + 1;
        comm_op op;
        MUST(comm_op_create_premul_sum(s->comm, COMM_U32, &factor, &op));
        bench_capture(&s->bench, s->stream);
        MUST(comm_allreduce(s->comm, COMM_IN_PLACE, s->in, WORDS, COMM_U32, op, NULL));
        bench_end_capture(&s->bench, s->stream, &s->graph);
        comm_op_free(s->comm, op);
    }
    for (int i = 0; i < 3; i++) {
        sides_launch();
        want *= SIDES * (SIDES + 1) / 2;
    }
    for (int r = 0; r < SIDES; r++)
        EQUAL(sides_word(r, sides[r].in), want);
    sides_close(false);
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
    IS(comm_queue_wait_stream(sides_rig.world[0], s->stream), COMM_ERR_UNSUPPORTED);
    sides_refused(s, comm_allreduce(s->comm, here, here + 1, 1, COMM_U32, COMM_BXOR, &request), COMM_ERR_STATE, "is being captured");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    mock_hold(other, false);
    mock_capture(s->stream, true); /* a capture that was invalidated */
    sides_refused(s, comm_barrier(s->comm, &request), COMM_ERR_STATE, "invalidated");
    mock_capture(s->stream, false);
    bench_drop_stream(&s->bench, other);
    for (int r = 0; r < SIDES; r++)
        (void)!comm_revoke(sides[r].comm); /* the other ranks have not made the refused calls */
    sides_close(false);
}

/* One rank captures a call that the others make at once: they would wait for a launch. It is a mismatch, which says so. */
RIG_TEST(one_rank_captures_and_the_others_call)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request requests[SIDES];

    open_all(&(struct mock_options){.seed = 3, .queues = 32});
    struct side *s = &sides[0];
    int64_t began = rig_now();
    bench_capture(&s->bench, s->stream);
    for (int r = 0; r < SIDES; r++)
        MUST(comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &requests[r]));
    bench_end_capture(&s->bench, s->stream, &s->graph);
    for (int r = 1; r < SIDES; r++)
        IS(comm_wait(requests[r], 10 * RIG_S), COMM_ERR_MISMATCH);
    CHECK(rig_now() - began < 5 * RIG_S);
    MUST(comm_error_detail(sides[1].comm, &error));
    if (!strstr(error.text, "rank 0 called into a CUDA graph allreduce"))
        rig_die(__FILE__, __LINE__, "\"%s\"", error.text);
    bench_drop_graph(&s->bench, &s->graph);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ closing */
/* comm_close with a live graph is refused at once, with its reason, and nothing happens. After the graph it closes. */
RIG_TEST(close_with_a_live_graph)
{
    for (int fails = 0; fails < 2; fails++) {
        open_all(&(struct mock_options){.seed = 7, .queues = 32});
        sides_fill(1, WORDS);
        sides_capture_sum(WORDS);
        sides_launch();
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].in), SIDES);
        if (fails) /* NCCL's abort waits for the graphs too */
            MUST(comm_revoke(sides[0].comm));
        struct comm_error error = {.size = sizeof error};
        for (int r = 0; r < SIDES && fails; r++)
            rig_fails_within(sides[r].comm, COMM_ERR_REVOKED, RIG_S, &error);
        int64_t began = rig_now();
        for (int r = 0; r < SIDES; r++)
            sides_refused(&sides[r], comm_close(sides[r].comm, 10 * RIG_S), COMM_ERR_STATE,
                          fails ? "revoked" : "comm_close: 1 CUDA graphs");
        while (fails && said < SIDES &&
               rig_now() - began < 5 * RIG_S) /* the detail of a failed communicator is why it failed, so the log says it */
            rig_nap(RIG_MS);
        EQUAL(said, fails ? SIDES : 0);
        CHECK(rig_now() - began < 5 * RIG_S);
        if (!fails) { /* the communicators still work */
            sides_launch();
            sides_sum(WORDS);
            for (int r = 0; r < SIDES; r++)
                EQUAL(sides_word(r, sides[r].in), SIDES * SIDES * SIDES);
        }
        sides_close(false);
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
    sides_refused(s, comm_barrier(s->comm, &request), COMM_ERR_STATE, "CUDA 12.3");
    bench_end_capture(&s->bench, s->stream, &s->graph);
    bench_drop_graph(&s->bench, &s->graph);
    for (int r = 0; r < SIDES; r++)
        (void)!comm_revoke(sides[r].comm);
    sides_close(false);
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
    for (int i = 0; i < SIDES; i++)
        (void)!comm_revoke(sides[i].comm);
    sides_close(false);
    return failed;
}

RIG_TEST(a_fault_at_every_call_of_a_capture)
{
    uint64_t n = 1;

    while (fault_in_capture(n))
        n++;
    CHECK(n > 10);
}

/* A sum of each rank goes into a graph. Returns whether all calls succeeded. */
static bool capture_sums(void)
{
    bool well = true;

    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        bench_capture(&s->bench, s->stream);
        well &= comm_allreduce(s->comm, s->in, s->out, WORDS, COMM_U32, COMM_SUM, NULL) == COMM_OK;
        well &= comm_allreduce(s->comm, COMM_IN_PLACE, s->out, WORDS, COMM_U32, HAS_KERNELS ? COMM_BOR : COMM_MAX, NULL) == COMM_OK;
        bench_end_capture(&s->bench, s->stream, &s->graph);
    }
    return well;
}

/* A launch, a call that is not captured, and another launch. If a rank's call fails, the communicator is revoked. */
static bool launch_and_call(void)
{
    struct comm_request q[SIDES] = {COMM_REQUEST_NONE};
    bool well = true;

    sides_launch();
    for (int r = 0; r < SIDES && well; r++)
        well = comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, WORDS, COMM_U32, COMM_SUM, &q[r]) == COMM_OK;
    for (int r = 0; r < SIDES && !well; r++)
        (void)!comm_revoke(sides[r].comm);
    if (well)
        sides_launch();
    for (int r = 0; r < SIDES; r++) {
        enum comm_result ended = comm_wait(q[r], 20 * RIG_S);
        CHECK(ended != COMM_PENDING);
        well &= ended == COMM_OK;
    }
    return well;
}

/* The n-th call of CUDA or NCCL fails, or the next one that is not spared. Returns its number; 0: there are fewer. */
static uint64_t fault_around_launches(uint64_t n, bool no_memops)
{
    rig_note("call %llu fails", (unsigned long long)n);
    bench_inside = mock_exempt;
    open_all(
        &(struct mock_options){.seed = n, .queues = 32, .no_memops = no_memops, .first = selected(0, 3, 1), .every = selected(0, 12, 24)});
    sides_fill(1, WORDS);
    mock_fail(n, false);
    bool well = capture_sums() && launch_and_call();
    uint64_t failed = mock_failed_at();
    mock_fail(0, false);
    CHECK(well || failed);
    for (int r = 0; r < SIDES && well; r++)
        EQUAL(sides_word(r, sides[r].out), SIDES * SIDES);
    for (int r = 0; r < SIDES && !well; r++)
        (void)!comm_revoke(sides[r].comm);
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_idle(); rig_nap(RIG_MS)) /* a graph is destroyed when its launches are over */
        CHECK(rig_now() < end);
    sides_close(true);
    bench_inside = NULL;
    return failed;
}

RIG_TEST(a_fault_at_every_call_around_launches)
{
    for (int no_memops = 0; no_memops < 2; no_memops++) {
        uint64_t n = 0, tried = 0;
        for (uint64_t at = 0; (at = fault_around_launches(n + 1, no_memops)); n = at)
            tried++;
        printf("%llu of %llu calls failed, one at a time\n", (unsigned long long)tried, (unsigned long long)n);
        CHECK(tried > 10 && n > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_launched_a_thousand_times),
        cmocka_unit_test(a_pre_multiplied_sum_in_a_graph),
        cmocka_unit_test(requests_around_a_launch),
        cmocka_unit_test(moves_and_messages_in_a_graph),
        cmocka_unit_test(a_reduction_that_nccl_lacks_in_a_graph),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(one_rank_captures_and_the_others_call),
        cmocka_unit_test(close_with_a_live_graph),
        cmocka_unit_test(a_driver_that_tells_no_graph),
        cmocka_unit_test(a_fault_at_every_call_of_a_capture),
        cmocka_unit_test(a_fault_at_every_call_around_launches),
    };
    return cmocka_run_group_tests_name("cuda_graphs", tests, NULL, NULL);
}
