/*
 * A barrier of backend cuda in a stream of the program's: what is behind it on any rank's stream runs when all ranks' streams have come to
 * it; in a graph, at each launch. Calls that differ, ranks that do not come, aborts, and driver calls that fail.
 */
#define _GNU_SOURCE
#include "sides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAUNCHES = 200, WORDS = 24 };

static void open_all(uint64_t seed, int queues, int64_t timeout_ns)
{
    sides_open(&(struct mock_options){.seed = seed, .queues = queues}, COMM_CONFIG(.backend = "cuda", .operation_timeout_ns = timeout_ns),
               WORDS);
}

static void barrier_all(struct comm_request *request)
{
    for (int r = 0; r < SIDES; r++)
        MUST(comm_barrier(sides[r].comm, &request[r]));
}

/* ------------------------------------------------------------------------------------------------------------ order */
/* How often each rank's stream has come to what is before the barrier, and the fewest that a rank has seen behind it. */
static _Atomic uint32_t before[SIDES];
static _Atomic uint32_t early; /* a rank was behind a barrier that another one had not reached */
static uint32_t behind[SIDES];

static void count_before(void *rank)
{
    atomic_fetch_add(&before[*(int *)rank], 1);
}

static void look_behind(void *rank)
{
    uint32_t turn = ++behind[*(int *)rank];

    for (int r = 0; r < SIDES; r++)
        if (atomic_load(&before[r]) < turn)
            atomic_store(&early, turn);
}

static void forget_counts(void)
{
    memset(behind, 0, sizeof behind);
    atomic_store(&early, 0);
    for (int r = 0; r < SIDES; r++)
        atomic_store(&before[r], 0);
}

static int number[SIDES] = {0, 1, 2};

/* Kernels of the program's before and behind each barrier, on streams of which one at a time stands for a while. */
RIG_TEST(what_is_behind_runs_when_all_have_come)
{
    struct comm_request request[SIDES];

    for (uint64_t seed = 1; seed <= rig_thin(60, 20, 6); seed++) {
        rig_note("seed %llu", (unsigned long long)seed);
        forget_counts();
        open_all(seed, 1 + (int)(seed % 8) * 4, 60 * RIG_S);
        for (uint32_t round = 1; round <= 12; round++) {
            struct side *slow = &sides[(seed + round) % SIDES];
            mock_hold(slow->stream, true);
            for (int r = 0; r < SIDES; r++) {
                mock_kernel(sides[r].stream, count_before, &number[r]);
                MUST(comm_barrier(sides[r].comm, &request[r]));
                mock_kernel(sides[r].stream, look_behind, &number[r]);
            }
            rig_progress_for(sides[0].comm, RIG_MS / 2);
            for (int r = 0; r < SIDES; r++)
                IS(comm_test(request[r]), COMM_PENDING);
            mock_hold(slow->stream, false);
            rig_wait_all(request, SIDES);
            EQUAL(atomic_load(&early), 0);
        }
        sides_close(false);
        for (int r = 0; r < SIDES; r++)
            EQUAL(behind[r], 12);
    }
}

/* Between sums, whose numbers the device counts too. */
RIG_TEST(between_other_calls)
{
    struct comm_request request[SIDES];
    struct comm_request_info info = {.size = sizeof info};

    open_all(4, 8, 30 * RIG_S);
    for (uint32_t round = 1; round <= 30; round++) {
        sides_fill(round, WORDS);
        barrier_all(request);
        sides_sum(WORDS);
        barrier_all(request);
        rig_wait_all(request, SIDES);
        MUST(comm_describe_request(request[0], &info));
        CHECK(strcmp(info.algorithm, "cuda") == 0 && !(info.flags & COMM_INFO_STAGED));
        for (int r = 0; r < SIDES; r++)
            EQUAL(sides_word(r, sides[r].in), SIDES * round);
    }
    sides_close(false);
}

/* The world has no stream: its barrier is the wire's, as ever. */
RIG_TEST(a_barrier_without_a_stream_is_the_hosts)
{
    struct comm_request request[SIDES];
    struct comm_request_info info = {.size = sizeof info};

    open_all(4, 8, 30 * RIG_S);
    for (int r = 0; r < SIDES; r++)
        MUST(comm_barrier(sides_rig.world[r], &request[r]));
    rig_wait_all(request, SIDES);
    MUST(comm_describe_request(request[0], &info));
    CHECK(strcmp(info.algorithm, "cuda") != 0);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ graphs */
RIG_TEST(a_barrier_in_a_graph)
{
    forget_counts();
    open_all(5, 8, 60 * RIG_S);
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        struct comm_request request;
        bench_capture(&s->bench, s->stream);
        mock_kernel(s->stream, count_before, &number[r]);
        MUST(comm_barrier(s->comm, &request));
        MUST(comm_wait(request, RIG_S)); /* it is in the graph */
        mock_kernel(s->stream, look_behind, &number[r]);
        bench_end_capture(&s->bench, s->stream, &s->graph);
    }
    for (int i = 0; i < LAUNCHES; i++) {
        struct comm_request request[SIDES];
        sides_launch();
        if (i % 50 == 20) {
            barrier_all(request);
            rig_wait_all(request, SIDES);
        }
    }
    for (int r = 0; r < SIDES; r++) {
        (void)sides_word(r, sides[r].in);
        EQUAL(behind[r], LAUNCHES);
    }
    EQUAL(atomic_load(&early), 0);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ failures */
RIG_TEST(another_call_on_one_rank)
{
    struct comm_request request[SIDES];
    struct comm_error error = {.size = sizeof error};

    open_all(3, 32, 20 * RIG_S);
    for (int r = 0; r < SIDES; r++) /* a later rank may already be told in its call */
        (void)!(r == 1 ? comm_allreduce(sides[r].comm, sides[r].in, sides[r].out, WORDS, COMM_U32, COMM_SUM, &request[r])
                       : comm_barrier(sides[r].comm, &request[r]));
    for (int r = 0; r < SIDES; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(sides[0].comm, &error));
    if (!strstr(error.text, "barrier") || !strstr(error.text, "allreduce"))
        rig_die(__FILE__, __LINE__, "\"%s\"", error.text);
    sides_close(true);
}

/* One rank captures what the others call at once. */
RIG_TEST(a_capture_on_one_rank)
{
    struct comm_request request[SIDES];

    open_all(3, 32, 20 * RIG_S);
    bench_capture(&sides[2].bench, sides[2].stream);
    for (int r = 0; r < SIDES; r++)
        (void)!comm_barrier(sides[r].comm, &request[r]);
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    bench_end_capture(&sides[2].bench, sides[2].stream, &sides[2].graph);
    sides_close(true);
}

RIG_TEST(a_rank_that_does_not_come)
{
    struct comm_request request[SIDES];

    open_all(3, 32, RIG_S);
    mock_hold(sides[2].stream, true);
    barrier_all(request);
    for (int r = 0; r < SIDES; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    mock_hold(sides[2].stream, false);
    sides_close(true);
}

/* The others' streams go on, with what is behind the barrier too: the error says that it means nothing. */
RIG_TEST(an_abort_ends_the_barrier)
{
    struct comm_request request[SIDES];

    open_all(3, 32, 20 * RIG_S);
    for (int r = 0; r < SIDES - 1; r++)
        MUST(comm_barrier(sides[r].comm, &request[r]));
    rig_progress_for(sides[0].comm, 2 * RIG_MS);
    MUST(comm_abort(sides[2].comm, 7));
    for (int r = 0; r < SIDES - 1; r++) {
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_ABORTED);
        (void)sides_word(r, sides[r].in);
    }
    sides_close(true);
}

/* The n-th call of the driver fails in two barriers. Nothing hangs. Returns false if there are fewer calls. */
static bool fault_at(uint64_t n)
{
    struct comm_request request[SIDES];
    enum comm_result result[SIDES];

    rig_note("call %llu fails", (unsigned long long)n);
    forget_counts();
    open_all(n, 32, 20 * RIG_S);
    mock_fail(n, false);
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < SIDES; r++) {
            mock_kernel(sides[r].stream, count_before, &number[r]);
            result[r] = comm_barrier(sides[r].comm, &request[r]);
        }
        for (int r = 0; r < SIDES; r++)
            result[r] = result[r] == COMM_OK ? comm_wait(request[r], RIG_PATIENCE) : result[r];
        for (int r = 0; r < SIDES; r++) {
            CHECK(result[r] != COMM_ERR_TIMEOUT && result[r] != COMM_PENDING);
            for (int k = 0; k < SIDES && result[r] == COMM_OK; k++)
                EQUAL(atomic_load(&before[k]), turn + 1);
        }
    }
    bool failed = mock_failed() != NULL;
    mock_fail(0, false);
    sides_close(true);
    return failed;
}

RIG_TEST(a_fault_at_every_call)
{
    uint64_t n = 1, step = rig_thin(1, 1, 5);

    while (fault_at(n))
        n += step;
    CHECK(n > 3 * SIDES);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_behind_runs_when_all_have_come),
        cmocka_unit_test(between_other_calls),
        cmocka_unit_test(a_barrier_without_a_stream_is_the_hosts),
        cmocka_unit_test(a_barrier_in_a_graph),
        cmocka_unit_test(another_call_on_one_rank),
        cmocka_unit_test(a_capture_on_one_rank),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(an_abort_ends_the_barrier),
        cmocka_unit_test(a_fault_at_every_call),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot_barrier", tests, NULL, NULL);
}
