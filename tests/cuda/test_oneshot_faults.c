/* Backend cuda when something fails: ranks that decide differently or never call, aborts, devices that stand or fail, driver calls that
 * fail. */
#define _GNU_SOURCE
#include "oneshot.h"

#include "clean.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------------------------------ failures */
RIG_TEST(a_rank_that_never_calls)
{
    struct comm_request q[RANKS];

    open_failing(3, RIG_S);
    call_on(0, 100, &q[0]);
    call_on(1, 100, &q[1]);
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    close_failed();
}

RIG_TEST(lengths_that_differ)
{
    struct comm_request q[RANKS];

    for (size_t n = 100; n <= 10000; n *= 100) { /* compared by the kernel, and before the start */
        open_failing(2, 20 * RIG_S);
        call_on(0, n, &q[0]);
        call_on(1, n + 1, &q[1]);
        is_mismatch(q, n == 100 ? "n=101" : "n=10001");
        close_failed();
    }
}

RIG_TEST(one_rank_with_host_buffers)
{
    static float in[100], out[100];
    struct comm_request q[RANKS];

    open_failing(2, 20 * RIG_S);
    call_on(0, 100, &q[0]);
    MUST(comm_allreduce(device.world[1], in, out, 100, COMM_F32, COMM_SUM, &q[1]));
    is_mismatch(q, "rank 0 called on device memory allreduce");
    close_failed();
}

RIG_TEST(an_abort_ends_the_kernels)
{
    struct comm_request q[RANKS];

    for (int turn = 0; turn < 4; turn++) {
        open_failing(3, 20 * RIG_S);
        for (int32_t r = 0; r < 2; r++)
            for (int i = 0; i < 3; i++)
                MUST(comm_allreduce(device.world[r], sides[r].in + i * 4096, sides[r].out + i * 4096, 1000, COMM_F32, COMM_SUM, &q[r]));
        rig_progress_for(device.world[0], turn * 2 * RIG_MS);
        MUST(comm_abort(device.world[1], 7));
        IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_ABORTED);
        IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_ABORTED);
        close_failed();
    }
}

/* Two ranks have one device, so the communicator stages. Its counters are still to be filled, and belong to the next one that takes them.
 */
RIG_TEST(a_join_that_is_refused_while_the_device_is_busy)
{
    static const char *const names[] = {"cuda:0", "cuda:0"};
    static const int devices[] = {0, 0};

    mock_reset(&(struct mock_options){.seed = 3, .queues = 32});
    MUST(comm_open_local(COMM_CONFIG(.backend = "cuda"), 2, names, device.world));
    mock_run(true);
    ranks = 2;
    open_sides(2, devices);
    close_failed();
}

RIG_TEST(launches_that_block_are_staged)
{
    struct comm_request q[RANKS];

    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    open_failing(2, 20 * RIG_S);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    for (int32_t r = 0; r < ranks; r++)
        call_on(r, 100, &q[r]);
    for (int32_t r = 0; r < ranks; r++) {
        MUST(comm_wait(q[r], RIG_PATIENCE));
        check_way(q[r], true);
    }
    close_failed();
}

/* A kernel has failed: CUDA says so when it is asked. */
RIG_TEST(a_device_that_fails)
{
    struct comm_request q[RANKS];

    open_failing(2, 20 * RIG_S);
    mock_fault(1, true);
    call_on(0, 100, &q[0]);
    enum comm_result r = comm_allreduce(device.world[1], sides[1].in, sides[1].out, 100, COMM_F32, COMM_SUM, &q[1]);
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_BACKEND);
    if (r == COMM_OK)
        IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_BACKEND);
    mock_fault(1, false);
    close_failed();
}

static void fail_this_call(void *once)
{
    if (!atomic_exchange((_Atomic bool *)once, true))
        mock_fail(1, false);
}

/* One error of one question does not mean that the device has stopped: its kernel waits for the other rank, reads mailboxes, and ends well.
 */
RIG_TEST(a_question_that_fails_once)
{
    struct comm_request q[RANKS];
    _Atomic bool has_failed = false;

    open_failing(2, 20 * RIG_S);
    call_on(0, 100, &q[0]);
    mock_at("cuStreamQuery", fail_this_call, &has_failed);
    while (!has_failed)
        rig_progress_for(device.world[0], RIG_MS);
    rig_progress_for(device.world[0], RIG_MS);
    mock_at(NULL, NULL, NULL);
    IS(comm_test(q[0]), COMM_PENDING);
    call_on(1, 100, &q[1]);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_wait(q[r], RIG_PATIENCE));
    close_failed();
}

/* The same while a second communicator is made. */
static bool dups_with_a_fault(uint64_t n)
{
    struct comm_communicator *dup[RANKS] = {NULL};
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];

    rig_note("call %llu fails, in a dup", (unsigned long long)n);
    open_failing(2, 20 * RIG_S);
    mock_fail(n, false);
    for (int32_t i = 0; i < ranks; i++)
        r[i] = comm_dup(device.world[i], NULL, &dup[i], &q[i]);
    for (int32_t i = 0; i < ranks; i++)
        r[i] = r[i] == COMM_OK ? comm_wait(q[i], RIG_PATIENCE) : r[i];
    bool failed = mock_failed() != NULL;
    mock_fail(0, false);
    for (int32_t i = 0; i < ranks; i++) {
        CHECK(r[i] != COMM_ERR_TIMEOUT && r[i] != COMM_PENDING);
        if (r[i] == COMM_OK)
            MUST(comm_close(dup[i], COMM_DEFAULT_TIMEOUT));
    }
    close_failed();
    return failed;
}

static bool short_sums_with_a_fault(uint64_t n)
{
    return sums_with_a_fault(n, 2000);
}

RIG_TEST(a_fault_at_every_call)
{
    static bool (*const kinds[])(uint64_t) = {short_sums_with_a_fault, dups_with_a_fault};

    for (int kind = 0; kind < 2; kind++) {
        uint64_t n = 1, step = rig_thin(1, 1, 4);
        while (kinds[kind](n))
            n += step;
        CHECK(n > 10);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_never_calls),
        cmocka_unit_test(lengths_that_differ),
        cmocka_unit_test(one_rank_with_host_buffers),
        cmocka_unit_test(an_abort_ends_the_kernels),
        cmocka_unit_test(a_join_that_is_refused_while_the_device_is_busy),
        cmocka_unit_test(launches_that_block_are_staged),
        cmocka_unit_test(a_device_that_fails),
        cmocka_unit_test(a_question_that_fails_once),
        cmocka_unit_test(a_fault_at_every_call),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot_faults", tests, NULL, NULL);
}
