/* Which thread moves an engine, which may hold it, and that no thread sleeps through what it waits for. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 6.1 */
/* A wait for something that never comes moves everything else of its engine: other ranks, other communicators. */
RIG_TEST(contract_6_1_any_wait_moves_the_whole_engine)
{
    enum { LONG = 200000 };
    static float in[LONG], out[2][LONG];
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request never;
    int32_t got = 0;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    for (size_t i = 0; i < LONG; i++)
        in[i] = 1;
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &never));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(second[r], in, out[r], LONG, COMM_F32, COMM_SUM, NULL));
    IS(comm_wait(never, 500 * RIG_MS), COMM_PENDING);
    for (int32_t r = 0; r < 2; r++)
        CHECK(out[r][0] == 2 && out[r][LONG - 1] == 2); /* visible without a further call */
    MUST(comm_cancel(never));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    rig_close(&rig);
}

/* A further world on the same engine: points of both can be combined. */
RIG_TEST(contract_6_1_a_further_world_joins_the_engine)
{
    struct rig rig;
    struct comm_communicator *more = NULL;
    struct comm_request request, behind;
    rig_open(&rig, 1, NULL);
    MUST(comm_open(COMM_CONFIG(.ranks = 1, .engine_of = rig.world[0]), &more));
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_queue_wait_request(more, request));
    MUST(comm_barrier(more, &behind));
    MUST(comm_wait(behind, RIG_PATIENCE));
    int one = -1, two = -2;
    MUST(comm_fd(rig.world[0], &one));
    MUST(comm_fd(more, &two));
    EQUAL(one, two);
    rig_close(&rig);
    rig_proves_alive(&more, 1);
    MUST(comm_close(more, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ 6.2 */
struct crossing {
    struct rig rig;
    struct comm_communicator *second[2];
};

/* Each thread issues on one communicator and waits on it, then on the other's: every lock is requested from both sides
 * at once. */
static void cross(void *arg, int32_t thread)
{
    struct crossing *crossing = arg;
    struct comm_communicator *const *mine = thread ? crossing->second : crossing->rig.world;
    struct comm_communicator *const *theirs = thread ? crossing->rig.world : crossing->second;
    static float in[9000], out[2][2][9000];
    for (int i = 0; i < 1000; i++) {
        struct comm_request request[2];
        size_t n = i % 9 == 0 ? 9000 : 3;
        for (int32_t r = 0; r < 2; r++)
            MUST(comm_allreduce(mine[r], in, out[thread][r], n, COMM_F32, COMM_SUM, &request[r]));
        struct comm_request other = comm_last(theirs[i % 2]);
        MUST(comm_wait_all(request, 2, RIG_PATIENCE));
        MUST(comm_wait(other, RIG_PATIENCE));
        enum comm_result moved = comm_progress(theirs[0]);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
    }
}

RIG_TEST(contract_6_2_threads_that_cross)
{
    struct crossing crossing;
    rig_open(&crossing.rig, 2, NULL);
    rig_dup(crossing.rig.world, 2, crossing.second);
    rig_threads(2, cross, &crossing);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_close(crossing.second[r], RIG_PATIENCE));
    rig_close(&crossing.rig);
}

/* ------------------------------------------------------------------------------------------------------------ 6.4 */
/* Naps of every length around the times at which a waiter stops spinning, stops yielding, and sleeps. A lost wake-up
 * costs a whole tick of the monitor, far more than any of these rounds. */
static void nap_and_meet(void *arg, int32_t rank)
{
    struct rig *rig = arg;
    uint32_t chance = 12345 + (uint32_t)rank * 777;
    for (int i = 0; i < (rig_quick() ? 60 : 400); i++) {
        struct comm_request request;
        chance = chance * 1664525 + 1013904223;
        rig_nap((int64_t)(chance >> 12) % 2000000 / (i % 7 + 1));
        int64_t start = rig_now();
        MUST(comm_barrier(rig->world[rank], &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        int64_t took = rig_now() - start;
        if (took > 700 * RIG_MS)
            rig_die(__FILE__, __LINE__, "round %d of rank %d took %lld ms", i, rank, (long long)(took / RIG_MS));
    }
}

RIG_TEST(contract_6_4_no_wake_up_is_lost)
{
    struct rig rig;
    rig_open(&rig, 3, NULL);
    rig_threads(3, nap_and_meet, &rig);
    rig_close(&rig);
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_THREAD, .operation_timeout_ns = 30 * RIG_S));
    rig_threads(2, nap_and_meet, &rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_1_any_wait_moves_the_whole_engine),
        cmocka_unit_test(contract_6_1_a_further_world_joins_the_engine),
        cmocka_unit_test(contract_6_2_threads_that_cross),
        cmocka_unit_test(contract_6_4_no_wake_up_is_lost),
    };
    return cmocka_run_group_tests_name("contract_6_wake", tests, NULL, NULL);
}
