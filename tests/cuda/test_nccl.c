/*
 * Backend nccl through the public API, on the mock driver and NCCL. All ranks are in this process, each with its own device. A thread or
 * the test steps the devices, in an order chosen by a seed.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, WORDS = 64 };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in, *out, *copy;
};
struct set {
    struct rig rig;
    int ranks;
    struct side side[RIG_RANKS_MAX];
};

static void step(void)
{
    mock_step();
}

static void open_set(struct set *set, int ranks, const struct mock_options *options, const struct comm_config *config)
{
    mock_reset(options);
    mock_run(true);
    set->ranks = ranks;
    rig_open(&set->rig, ranks, config ? config : COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER));
    for (int r = 0; r < ranks; r++) {
        struct side *s = &set->side[r];
        bench_open(&s->bench, r);
        s->compute = bench_stream(&s->bench);
        s->consume = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
        s->copy = bench_memory(&s->bench, WORDS);
    }
}

static void free_sides(struct set *set)
{
    for (int r = 0; r < set->ranks; r++) {
        struct side *s = &set->side[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_free(&s->bench, s->copy);
        bench_drop_stream(&s->bench, s->compute);
        bench_drop_stream(&s->bench, s->consume);
        bench_close(&s->bench);
    }
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static void close_set(struct set *set)
{
    mock_run(true);
    rig_close(&set->rig);
    free_sides(set);
}

/* Checks all words of the device memory, read in the order of the stream. */
static void expect(struct side *s, struct CUstream_st *stream, const uint32_t *memory, size_t words, uint32_t value)
{
    uint32_t got[RIG_RANKS_MAX * WORDS];

    bench_read(&s->bench, stream, got, memory, words);
    for (size_t i = 0; i < words; i++)
        EQUAL(got[i], value);
}

static uint32_t sum_of(int ranks, uint32_t round)
{
    uint32_t sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += 100 * round + (uint32_t)r + 1;
    return sum;
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
static void every_collective(struct set *set)
{
    struct comm_request q[RIG_RANKS_MAX];
    int n = set->ranks;

    for (uint32_t round = 1; round <= 4; round++) {
        for (int r = 0; r < n; r++) {
            struct side *s = &set->side[r];
            bench_fill(&s->bench, s->compute, s->in, 100 * round + (uint32_t)r + 1, WORDS);
            MUST(comm_queue_wait_stream(set->rig.world[r], s->compute));
            MUST(comm_allreduce(set->rig.world[r], s->in, s->out, WORDS, COMM_U32, COMM_SUM, &q[r]));
        }
        rig_wait_all(q, (size_t)n);
        for (int r = 0; r < n; r++)
            expect(&set->side[r], set->side[r].consume, set->side[r].out, WORDS, sum_of(n, round));
        for (int r = 0; r < n; r++)
            MUST(comm_broadcast(set->rig.world[r], set->side[r].in, WORDS, COMM_U32, (int)round % n, &q[r]));
        rig_wait_all(q, (size_t)n);
        for (int r = 0; r < n; r++)
            expect(&set->side[r], set->side[r].consume, set->side[r].in, WORDS, 100 * round + round % (uint32_t)n + 1);
        for (int r = 0; r < n; r++)
            MUST(comm_barrier(set->rig.world[r], &q[r]));
        rig_wait_all(q, (size_t)n);
    }
}

RIG_TEST(collectives_on_device_buffers)
{
    struct set set;
    for (int kind = 0; kind < 8; kind++) {
        rig_note("kind %d", kind);
        open_set(&set, kind % 4 + 1, &(struct mock_options){.seed = (uint64_t)kind, .queues = kind & 1 ? 1 : 8, .no_memops = kind >= 4},
                 NULL);
        every_collective(&set);
        close_set(&set);
    }
}

RIG_TEST(the_other_collectives_of_nccl)
{
    struct set set;
    struct comm_request q[RANKS];
    uint32_t *big[RANKS];
    open_set(&set, RANKS, &(struct mock_options){.seed = 1}, NULL);
    for (int r = 0; r < RANKS; r++) {
        big[r] = bench_memory(&set.side[r].bench, RANKS * WORDS);
        bench_fill(&set.side[r].bench, set.side[r].compute, set.side[r].in, (uint32_t)r + 1, WORDS);
        MUST(comm_queue_wait_stream(set.rig.world[r], set.side[r].compute));
        MUST(comm_allgather(set.rig.world[r], set.side[r].in, big[r], WORDS, COMM_U32, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            expect(&set.side[r], set.side[r].consume, big[r] + from * WORDS, WORDS, (uint32_t)from + 1);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_reduce_scatter(set.rig.world[r], big[r], set.side[r].out, WORDS, COMM_U32, COMM_MAX, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        expect(&set.side[r], set.side[r].consume, set.side[r].out, WORDS, (uint32_t)r + 1);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_reduce(set.rig.world[r], set.side[r].in, r == 1 ? set.side[r].out : NULL, WORDS, COMM_U32, COMM_SUM, 1, &q[r]));
    rig_wait_all(q, RANKS);
    expect(&set.side[1], set.side[1].consume, set.side[1].out, WORDS, RANKS * (RANKS + 1) / 2);
    for (int r = 0; r < RANKS; r++)
        bench_free(&set.side[r].bench, big[r]);
    close_set(&set);
}

RIG_TEST(contract_8_1_every_call_is_issued_inside_it)
{
    enum { CALLS = 300 };
    struct set set;
    struct comm_request q[RANKS];
    struct comm_info info = {.size = sizeof info};
    open_set(&set, RANKS, &(struct mock_options){.seed = 1}, NULL);
    MUST(comm_describe(set.rig.world[0], &info));
    EQUAL(info.device_order, 1);
    EQUAL(info.device_buffers, 1);
    EQUAL(info.stream_wait, 1);
    CHECK(strcmp(info.backend, "nccl") == 0);
    struct comm_backend_info row = {.size = sizeof row};
    for (size_t i = 0; comm_describe_backend(i, &row) == COMM_OK; i++, row = (struct comm_backend_info){.size = sizeof row})
        EQUAL(row.device_buffers, strcmp(row.name, "nccl") == 0 || strcmp(row.name, "cuda") == 0);
    mock_run(false); /* the devices do not run: only the calls themselves put work on streams */
    for (int r = 0; r < RANKS; r++)
        bench_fill(&set.side[r].bench, set.side[r].compute, set.side[r].in, (uint32_t)r + 1, WORDS);
    mock_drain();
    int live = mock_live();
    for (int i = 0; i < CALLS; i++)
        for (int r = 0; r < RANKS; r++) { /* the same buffers: conflicts are not tracked */
            uint64_t before = mock_calls();
            MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
            CHECK(mock_calls() > before && mock_calls() - before <= 14);
        }
    EQUAL(mock_live(), live); /* an operation creates no object */
    for (int r = 0; r < RANKS; r++)
        IS(comm_test(q[r]), COMM_PENDING);
    uint64_t before = mock_calls();
    mock_drain();
    for (int r = 0; r < RANKS; r++)
        MUST(comm_wait(q[r], RIG_PATIENCE));
    CHECK(mock_calls() - before < 10); /* completion is a word: no CUDA call is made (NCCL is queried for errors now and then) */
    bench_step = step;
    for (int r = 0; r < RANKS; r++)
        expect(&set.side[r], set.side[r].consume, set.side[r].out, WORDS, sum_of(RANKS, 0));
    bench_step = NULL;
    close_set(&set);
}

/* ------------------------------------------------------------------------------------------------------------ what is refused */
static const char *detail(struct comm_communicator *c)
{
    static struct comm_error error;

    error = (struct comm_error){.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error.text;
}

RIG_TEST(host_memory_is_refused)
{
    struct set set;
    uint32_t host[WORDS] = {0};
    open_set(&set, 1, &(struct mock_options){.seed = 1}, NULL);
    struct comm_communicator *c = set.rig.world[0];
    IS(comm_recv(c, set.side[0].in, WORDS, COMM_U32, COMM_ANY_PEER, 0, NULL, NULL), COMM_ERR_UNSUPPORTED);
    CHECK(strstr(detail(c), "peer is COMM_ANY_PEER; expected a rank, or a tag other than 0"));
    struct comm_error refusal = {.size = sizeof refusal};
    MUST(comm_error_detail(c, &refusal));
    CHECK(strcmp(refusal.operation, "recv") == 0);
    IS(comm_allreduce(c, host, set.side[0].out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is host memory; expected the device's"));
    IS(comm_broadcast(c, host, WORDS, COMM_U32, 0, NULL), COMM_ERR_ARGUMENT);
    IS(comm_allreduce(c, host, set.side[0].out, WORDS, COMM_U32, COMM_BXOR, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is host memory; expected the device's"));
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    MUST(comm_plan_begin(c, &recorder));
    MUST(comm_recv(recorder, set.side[0].in, WORDS, COMM_U32, COMM_ANY_PEER, 0, NULL, NULL));
    MUST(comm_plan_end(recorder, &plan));
    IS(comm_plan_start(plan, NULL), COMM_ERR_UNSUPPORTED);
    comm_plan_free(plan);
    MUST(comm_allreduce(c, host, host, 0, COMM_U32, COMM_SUM, NULL));
    (void)!comm_sync(c, COMM_FOREVER); /* reports the refused calls, once */
    every_collective(&set);
    close_set(&set);
}

/* test_fold.c has fixed order on a device. */
RIG_TEST(fixed_order_on_the_host)
{
    struct set set;
    float host[2] = {1, 2};
    open_set(&set, 1, &(struct mock_options){.seed = 1},
             COMM_CONFIG(.backend = "nccl", .order = COMM_ORDER_FIXED, .progress = COMM_PROGRESS_CALLER));
    struct comm_communicator *c = set.rig.world[0];
    struct comm_request q;
    MUST(comm_allreduce(c, host, host + 1, 1, COMM_F32, COMM_SUM, &q)); /* the core runs this operation */
    MUST(comm_wait(q, RIG_PATIENCE));
    CHECK(host[1] == 1);
    (void)!comm_sync(c, COMM_FOREVER);
    close_set(&set);
}

/* test_graphs.c has captures that are valid. */
RIG_TEST(an_invalidated_capture_is_refused)
{
    struct set set;
    struct comm_communicator *c;
    struct comm_event *event;
    open_set(&set, 1, &(struct mock_options){.seed = 1}, NULL);
    struct side *s = &set.side[0];
    MUST(NOW(comm_dup, set.rig.world[0], &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &c));
    MUST(comm_event_create(c, &event));
    mock_capture(s->compute, true);
    IS(comm_allreduce(c, s->in, s->out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_STATE);
    CHECK(strstr(detail(c), "has invalidated"));
    IS(comm_event_record_stream(event, s->compute), COMM_ERR_UNSUPPORTED);
    mock_capture(s->compute, false);
    MUST(comm_event_record_stream(event, s->compute));
    (void)!comm_sync(c, COMM_FOREVER);
    comm_event_free(event);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    close_set(&set);
}

/* ------------------------------------------------------------------------------------------------------------ opening and its errors */
static void open_fails(const struct mock_options *options, const struct comm_config *base, enum comm_result want, const char *says)
{
    struct comm_communicator *worlds[RANKS];
    char text[512] = "";
    struct comm_config config = *base;

    config.error_text = text;
    config.error_text_bytes = sizeof text;
    mock_reset(options);
    mock_run(true);
    int64_t start = rig_now();
    IS(comm_open_local(&config, RANKS, NULL, worlds), want);
    CHECK(rig_now() - start < 10 * RIG_S);
    if (!strstr(text, says))
        rig_die(__FILE__, __LINE__, "'%s' does not say '%s'", text, says);
    mock_run(false);
}

RIG_TEST(what_is_missing_is_said)
{
    const struct comm_config *config = COMM_CONFIG(.backend = "nccl");
    open_fails(&(struct mock_options){.init_result = 100}, config, COMM_ERR_UNSUPPORTED, "no NVIDIA device");
    open_fails(&(struct mock_options){.driver = 11040}, config, COMM_ERR_UNSUPPORTED, "driver is too old: it is for CUDA 11.4");
    open_fails(&(struct mock_options){.nccl = 21600}, config, COMM_ERR_UNSUPPORTED, "NCCL 2.16.0 is too old");
    EQUAL(mock_live(), 0);
}

RIG_TEST(joining_has_a_deadline)
{
    open_fails(&(struct mock_options){.seed = 1, .slow_join = -1}, COMM_CONFIG(.backend = "nccl", .open_timeout_ns = 1100 * RIG_MS),
               COMM_ERR_TIMEOUT, "");
    EQUAL(mock_live(), 0);
}

RIG_TEST(two_ranks_on_one_device_are_an_error)
{
    struct comm_communicator *worlds[2];
    const char *devices[2] = {"cuda:1", "cuda:1"};
    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    IS(comm_open_local(COMM_CONFIG(.backend = "nccl"), 2, devices, worlds), COMM_ERR_CONFIG);
    mock_run(false);
    EQUAL(mock_live(), 0);
}

RIG_TEST(ranks_have_the_devices_that_are_named)
{
    struct comm_communicator *worlds[2];
    struct CUstream_st *stream;
    const char *devices[2] = {"cuda:5", "cuda:2"};
    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 2, devices, worlds));
    for (int r = 0; r < 2; r++) {
        struct bench b;
        bench_open(&b, r ? 2 : 5);
        MUST(comm_stream_of(worlds[r], &stream));
        struct CUctx_st *context = NULL;
        EQUAL(b.calls->cuStreamGetCtx(stream, &context), 0);
        CHECK(context == b.context);
        bench_close(&b);
    }
    for (int r = 0; r < 2; r++)
        MUST(comm_close(worlds[r], COMM_DEFAULT_TIMEOUT));
    mock_run(false);
    EQUAL(mock_live(), 0);
}

/* ------------------------------------------------------------------------------------------------------------ failure */
RIG_TEST(an_error_of_nccl_fails_the_communicator)
{
    struct set set;
    struct comm_request q;
    struct comm_error error = {.size = sizeof error};
    open_set(&set, RANKS, &(struct mock_options){.seed = 1}, NULL);
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q)); /* the other ranks never call */
    IS(comm_wait(q, 20 * RIG_MS), COMM_PENDING);
    mock_async_error(6);
    int64_t start = rig_now();
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_BACKEND);
    CHECK(rig_now() - start < 5 * RIG_S);
    MUST(comm_error_detail(set.rig.world[0], &error));
    EQUAL(error.backend_code, 6);
    CHECK(strstr(error.text, "remote process exited"));
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    free_sides(&set);
}

/* A slow driver, whose queries are counted. */
static void dawdle(void *arg)
{
    ++*(_Atomic int *)arg;
    rig_nap(20000);
}

/* On a device without memory operations the host queries events. A wait still ends with its timeout, and not thousands of queries later. */
RIG_TEST(a_wait_ends_in_time_without_memory_operations)
{
    struct set set;
    struct comm_request q[RANKS];
    _Atomic int queries = 0;
    open_set(&set, RANKS, &(struct mock_options){.seed = 1, .no_memops = 1},
             COMM_CONFIG(.backend = "nccl", .operation_timeout_ns = 40 * RIG_S, .progress = COMM_PROGRESS_CALLER));
    mock_at("cuEventQuery", dawdle, &queries);
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q[0]));
    IS(comm_wait_all(q, 1, 20 * RIG_MS), COMM_PENDING); /* the other ranks have not called */
    CHECK(queries < 1000);
    for (int r = 1; r < RANKS; r++)
        MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS, COMM_U32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    mock_at(NULL, NULL, NULL);
    close_set(&set);
}

/* The peers of an operation never call. Its deadline ends it, NCCL is aborted, and the buffers are free again. */
RIG_TEST(contract_2_3_an_operation_of_nccl_has_a_deadline)
{
    struct set set;
    struct comm_request q;
    open_set(&set, RANKS, &(struct mock_options){.seed = 1},
             COMM_CONFIG(.backend = "nccl", .operation_timeout_ns = 200 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
    MUST(comm_allreduce(set.rig.world[1], set.side[1].in, set.side[1].out, WORDS, COMM_U32, COMM_SUM, &q));
    int64_t start = rig_now();
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 3 * RIG_S);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    free_sides(&set);
}

/* ncclCommAbort returns on a rank while the rank's kernel still runs, if other ranks of the process have not aborted yet. */
RIG_TEST(buffers_are_held_until_the_stream_has_passed)
{
    struct set set;
    struct comm_request q;
    struct CUstream_st *own;
    open_set(&set, RANKS, &(struct mock_options){.seed = 1, .queues = 32}, NULL);
    MUST(comm_stream_of(set.rig.world[0], &own));
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q));
    mock_hold(own, true);
    MUST(comm_abort(set.rig.world[0], 3));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ABORTED);
    rig_progress_for(set.rig.world[0], 100 * RIG_MS);
    IS(comm_close(set.rig.world[0], 300 * RIG_MS), COMM_ERR_TIMEOUT);
    mock_hold(own, false);
    for (int r = 1; r < RANKS; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    free_sides(&set);
}

/* How many objects of the mocks a set has besides its world. */
static int live_beside_a_world(void)
{
    struct set set;
    open_set(&set, 1, &(struct mock_options){.seed = 1}, NULL);
    rig_close(&set.rig);
    int live = mock_live();
    free_sides(&set);
    return live;
}

/* ncclCommAbort does not return. The requests end nevertheless and report that NCCL holds their buffers, and close is bounded. */
RIG_TEST(contract_4_3_an_abort_that_hangs)
{
    struct set set;
    struct comm_request q;
    struct comm_request_info info = {.size = sizeof info};
    const int beside = live_beside_a_world();
    open_set(&set, 1, &(struct mock_options){.seed = 1, .abort_hangs = 1}, NULL);
    mock_run(false);
    MUST(comm_allreduce(set.rig.world[0], set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, &q));
    int64_t start = rig_now();
    MUST(comm_abort(set.rig.world[0], 3));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ABORTED);
    CHECK(rig_now() - start < RIG_S);
    MUST(comm_describe_request(q, &info));
    CHECK(info.flags & COMM_INFO_BUFFERS_HELD);
    IS(comm_close(set.rig.world[0], 300 * RIG_MS), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 12 * RIG_S);
    CHECK(mock_live() > beside);
    mock_free_abort(); /* the abort returns late: the first world after that frees what was left behind */
    mock_run(true);
    for (int64_t end = rig_now() + RIG_PATIENCE; mock_live() > beside && rig_now() < end; rig_nap(RIG_MS)) {
        MUST(comm_open_local(COMM_CONFIG(.backend = "nccl"), 1, NULL, &set.rig.world[0]));
        MUST(comm_close(set.rig.world[0], COMM_DEFAULT_TIMEOUT));
    }
    free_sides(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_on_device_buffers),
        cmocka_unit_test(the_other_collectives_of_nccl),
        cmocka_unit_test(contract_8_1_every_call_is_issued_inside_it),
        cmocka_unit_test(host_memory_is_refused),
        cmocka_unit_test(fixed_order_on_the_host),
        cmocka_unit_test(an_invalidated_capture_is_refused),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(joining_has_a_deadline),
        cmocka_unit_test(two_ranks_on_one_device_are_an_error),
        cmocka_unit_test(ranks_have_the_devices_that_are_named),
        cmocka_unit_test(an_error_of_nccl_fails_the_communicator),
        cmocka_unit_test(a_wait_ends_in_time_without_memory_operations),
        cmocka_unit_test(contract_2_3_an_operation_of_nccl_has_a_deadline),
        cmocka_unit_test(buffers_are_held_until_the_stream_has_passed),
        cmocka_unit_test(contract_4_3_an_abort_that_hangs),
    };
    return cmocka_run_group_tests_name("cuda_nccl", tests, NULL, NULL);
}
