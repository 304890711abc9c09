/*
 * Deadlines of calls that wait for each other on a device. All ranks but the last make several calls at once. The last one makes its own
 * one by one, so each call takes nearly as long as its deadline, and all of them much longer. None is late. A call that it never makes is.
 */
#define _GNU_SOURCE
#include "sides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

enum { CALLS = 3, WORDS = 64, LAST = SIDES - 1 };
#define DEADLINE (3 * RIG_S)
#define EACH (3 * RIG_S / 2)

static void open_on(const char *backend)
{
    sides_open(&(struct mock_options){.seed = 1, .queues = 32},
               COMM_CONFIG(.backend = backend, .progress = COMM_PROGRESS_THREAD, .operation_timeout_ns = DEADLINE), CALLS * WORDS);
}

static struct comm_communicator *comm_of(int rank, bool in_stream)
{
    return in_stream ? sides[rank].comm : sides_rig.world[rank];
}

/* Each call has buffers of its own, so nothing in the library's queue holds it back. */
static void call(int rank, bool in_stream, int i, struct comm_request *q)
{
    const struct side *s = &sides[rank];

    MUST(comm_allreduce(comm_of(rank, in_stream), s->in + i * WORDS, s->out + i * WORDS, WORDS, COMM_U32, COMM_SUM, q));
}

static void pause_until(int64_t time)
{
    int64_t left = time - rig_now();

    if (left > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)(left / RIG_S), .tv_nsec = (long)(left % RIG_S)}, NULL);
}

/* The first `made` calls of all ranks. */
static void chain(bool in_stream, int made, struct comm_request q[SIDES][CALLS])
{
    int64_t start = rig_now();

    for (int r = 0; r < LAST; r++)
        for (int i = 0; i < CALLS; i++)
            call(r, in_stream, i, &q[r][i]);
    for (int i = 0; i < made; i++) {
        pause_until(start + (i + 1) * EACH);
        call(LAST, in_stream, i, &q[LAST][i]);
    }
}

static void all_in_time(const char *backend, bool in_stream)
{
    struct comm_request q[SIDES][CALLS];

    open_on(backend);
    chain(in_stream, CALLS, q);
    for (int r = 0; r < SIDES; r++)
        rig_wait_all(q[r], CALLS);
    sides_close(false);
}

RIG_TEST(calls_over_nccl_wait_for_each_other)
{
    all_in_time("nccl", false);
}

RIG_TEST(calls_over_nccl_wait_in_a_stream_of_the_programs)
{
    all_in_time("nccl", true);
}

#if HAS_KERNELS
RIG_TEST(calls_of_kernels_wait_for_each_other)
{
    all_in_time("cuda", false);
}

RIG_TEST(calls_of_kernels_wait_in_a_stream_of_the_programs)
{
    all_in_time("cuda", true);
}
#endif

/* The last rank makes all calls but the last. */
static void one_is_late(const char *backend, bool in_stream)
{
    struct comm_request q[SIDES][CALLS];

    open_on(backend);
    chain(in_stream, CALLS - 1, q);
    int64_t ended = rig_now();
    for (int i = 0; i < CALLS - 1; i++)
        MUST(comm_wait(q[0][i], RIG_PATIENCE));
    IS(comm_wait(q[0][CALLS - 1], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - ended >= DEADLINE - RIG_S / 10);
    CHECK(rig_now() - ended < 4 * DEADLINE);
    sides_close(true);
}

RIG_TEST(the_last_call_over_nccl_has_a_deadline_of_its_own)
{
    one_is_late("nccl", false);
}

#if HAS_KERNELS
RIG_TEST(the_last_call_of_kernels_has_a_deadline_of_its_own)
{
    one_is_late("cuda", false);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_over_nccl_wait_for_each_other),
        cmocka_unit_test(calls_over_nccl_wait_in_a_stream_of_the_programs),
        cmocka_unit_test(the_last_call_over_nccl_has_a_deadline_of_its_own),
#if HAS_KERNELS
        cmocka_unit_test(calls_of_kernels_wait_for_each_other),
        cmocka_unit_test(calls_of_kernels_wait_in_a_stream_of_the_programs),
        cmocka_unit_test(the_last_call_of_kernels_has_a_deadline_of_its_own),
#endif
    };
    return cmocka_run_group_tests_name("cuda_chains", tests, NULL, NULL);
}
