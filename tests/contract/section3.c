/* Events: each holds one point. Who may set, record, reset and destroy it, and what its waiters see. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 3.1 */
RIG_TEST(contract_3_1_states_of_an_event)
{
    struct rig rig;
    struct comm_event *event;
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_query(event)); /* new: reached */
    MUST(comm_event_sync(event, 0));
    MUST(comm_queue_wait_event(rig.world[0], event));
    rig_proves_alive(rig.world, 1);
    IS(comm_event_set(event), COMM_ERR_STATE);
    MUST(comm_event_reset(event));
    IS(comm_event_reset(event), COMM_ERR_STATE);
    IS(comm_event_query(event), COMM_PENDING);
    IS(comm_event_sync(event, 30 * RIG_MS), COMM_PENDING);
    MUST(comm_event_set(event));
    IS(comm_event_set(event), COMM_ERR_STATE);
    MUST(comm_event_query(event));
    MUST(comm_event_reset(event));
    MUST(comm_event_set(event));
    MUST(comm_event_record(event, rig.world[0]));
    MUST(comm_event_sync(event, RIG_PATIENCE));
    IS(comm_event_set(event), COMM_ERR_STATE);
    comm_event_free(event);
    comm_event_free(NULL);
    rig_close(&rig);
}

/* A wait copies the point at the time of the call: if the event is set and reset again, the waiter is still released. */
RIG_TEST(contract_3_1_a_wait_copies_its_point)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_communicator *second[1];
    struct comm_request first, later;
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, second);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_reset(event));
    MUST(comm_queue_wait_event(rig.world[0], event));
    MUST(comm_barrier(rig.world[0], &first));
    MUST(comm_event_set(event));
    MUST(comm_event_reset(event));
    MUST(comm_queue_wait_event(second[0], event));
    MUST(comm_barrier(second[0], &later));
    MUST(comm_wait(first, RIG_PATIENCE));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    IS(comm_test(later), COMM_PENDING);
    MUST(comm_event_set(event));
    MUST(comm_wait(later, RIG_PATIENCE));
    comm_event_free(event);
    MUST(comm_close(second[0], RIG_PATIENCE));
    rig_close(&rig);
}

/* A recorded point keeps its meaning, whatever the event holds afterwards. */
RIG_TEST(contract_3_1_recording_anew_leaves_recorded_waiters)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_event *event;
    struct comm_request barrier[2], behind[2];
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_barrier(rig.world[0], &barrier[0]));
    MUST(comm_event_record(event, rig.world[0]));
    MUST(comm_queue_wait_event(second[0], event));
    MUST(comm_event_record(event, second[0])); /* behind the wait itself */
    MUST(comm_event_record(event, rig.world[0]));
    comm_event_free(event);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_barrier(second[r], &behind[r]));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    IS(comm_test(behind[0]), COMM_PENDING);
    IS(comm_test(behind[1]), COMM_PENDING);
    MUST(comm_barrier(rig.world[1], &barrier[1]));
    rig_wait_all((struct comm_request[]){barrier[0], barrier[1], behind[0], behind[1]}, 4);
    MUST(comm_close(second[0], RIG_PATIENCE));
    MUST(comm_close(second[1], RIG_PATIENCE));
    rig_close(&rig);
}

static void abandon(bool destroy)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_event *event;
    struct comm_request behind[2];
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_reset(event));
    MUST(comm_queue_wait_event(second[0], event));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_barrier(second[r], &behind[r]));
    if (destroy)
        comm_event_free(event);
    else
        MUST(comm_event_record(event, rig.world[0]));
    IS(comm_wait(behind[0], RIG_PATIENCE), COMM_ERR_ABANDONED);
    IS(comm_wait(behind[1], RIG_PATIENCE), COMM_ERR_ABANDONED);
    rig_proves_alive(rig.world, 2);
    if (!destroy)
        comm_event_free(event);
    MUST(comm_close(second[0], RIG_PATIENCE));
    MUST(comm_close(second[1], RIG_PATIENCE));
    rig_close(&rig);
}

RIG_TEST(contract_3_1_destroyed_while_waited_for)
{
    abandon(true);
}
RIG_TEST(contract_3_1_recorded_anew_while_waited_for)
{
    abandon(false);
}

/* ------------------------------------------------------------------------------------------------------------ 3.2 */
struct sleeper {
    struct comm_request request;
    struct comm_event *event;
    int64_t returned;
};

static void *sleep_on_request(void *arg)
{
    struct sleeper *sleeper = arg;
    MUST(comm_wait(sleeper->request, RIG_PATIENCE));
    sleeper->returned = rig_now();
    return NULL;
}

static void *sleep_on_event(void *arg)
{
    struct sleeper *sleeper = arg;
    MUST(comm_event_sync(sleeper->event, RIG_PATIENCE));
    sleeper->returned = rig_now();
    return NULL;
}

/* The setting thread does nothing else: the released work is started, and threads that sleep for it are woken. */
RIG_TEST(contract_3_2_set_starts_and_wakes)
{
    struct rig rig;
    pthread_t thread[2];
    struct sleeper sleeper = {{NULL, 0}, NULL, 0}, second = {{NULL, 0}, NULL, 0};
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &sleeper.event));
    MUST(comm_event_reset(sleeper.event));
    second.event = sleeper.event;
    MUST(comm_queue_wait_event(rig.world[0], sleeper.event));
    MUST(comm_barrier(rig.world[0], &sleeper.request));
    EQUAL(pthread_create(&thread[0], NULL, sleep_on_request, &sleeper), 0);
    EQUAL(pthread_create(&thread[1], NULL, sleep_on_event, &second), 0);
    rig_nap(200 * RIG_MS);
    int64_t set = rig_now();
    MUST(comm_event_set(sleeper.event));
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    CHECK(sleeper.returned >= set && sleeper.returned - set < RIG_S);
    CHECK(second.returned >= set && second.returned - set < RIG_S);
    comm_event_free(sleeper.event);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 3.3 */
RIG_TEST(contract_3_3_a_failed_point_fails_the_waiter_everywhere)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request failing, behind[2];
    struct comm_error error;
    int32_t in[2] = {1, 2}, out[2] = {-1, -1};
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_barrier(second[0], &failing));
    MUST(comm_queue_wait_request(rig.world[0], failing));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &behind[r]));
    MUST(comm_revoke(second[0]));
    IS(comm_wait(failing, RIG_PATIENCE), COMM_ERR_REVOKED);
    IS(comm_wait(behind[0], RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    IS(comm_wait(behind[1], RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    EQUAL(out[0], -1);
    EQUAL(out[1], -1);
    for (int32_t r = 0; r < 2; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_DEPENDENCY, RIG_S, &error);
        EQUAL(error.rank, 0);
        MUST(comm_close(second[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

/* A point that failed before the wait was requested fails the waiter in the same way. */
RIG_TEST(contract_3_3_a_point_failed_before)
{
    struct rig rig;
    struct comm_communicator *second[1];
    struct comm_request failed, behind;
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, second);
    MUST(comm_revoke(second[0]));
    enum comm_result result = comm_barrier(second[0], &failed);
    CHECK(result == COMM_OK || result == COMM_ERR_REVOKED);
    IS(comm_wait(failed, RIG_PATIENCE), COMM_ERR_REVOKED);
    result = comm_queue_wait_request(rig.world[0], failed);
    if (result == COMM_OK) {
        result = comm_barrier(rig.world[0], &behind);
        CHECK(result == COMM_OK || result == COMM_ERR_DEPENDENCY);
        IS(comm_wait(behind, RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    } else {
        IS(result, COMM_ERR_DEPENDENCY);
    }
    MUST(comm_close(second[0], RIG_PATIENCE));
    rig_close(&rig);
}

/* Closing a communicator makes its points that others wait for reached or failed; nothing hangs. */
/* The point of an event is reached while its communicator exists. It stays reached when that is closed. */
RIG_TEST(contract_3_1_a_point_outlives_its_communicator)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request barrier[2], behind[2];
    struct comm_event *event;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_barrier(second[0], &barrier[0]));
    MUST(comm_event_record(event, second[0]));
    MUST(comm_barrier(second[1], &barrier[1]));
    rig_wait_all(barrier, 2);
    MUST(comm_close(second[0], RIG_PATIENCE));
    MUST(comm_close(second[1], RIG_PATIENCE));
    MUST(comm_event_query(event));
    MUST(comm_queue_wait_event(rig.world[0], event));
    for (int r = 0; r < 2; r++)
        MUST(comm_barrier(rig.world[r], &behind[r]));
    rig_wait_all(behind, 2);
    comm_event_free(event);
    rig_close(&rig);
}

RIG_TEST(contract_3_3_closing_what_others_wait_for)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request point, behind;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_barrier(second[0], &point)); /* rank 1 never joins it */
    MUST(comm_queue_wait_request(rig.world[0], point));
    MUST(comm_barrier(rig.world[0], &behind));
    IS(comm_close(second[0], 100 * RIG_MS), COMM_ERR_TIMEOUT);
    enum comm_result result = comm_wait(behind, RIG_PATIENCE);
    IS(result, COMM_ERR_DEPENDENCY);
    (void)comm_close(second[1], 100 * RIG_MS);
    rig_close(&rig);
}

/* What a plan recorded a wait for has ended by its first start. It stays reached, whatever becomes of its communicator. */
RIG_TEST(contract_3_3_a_plan_whose_point_was_reached)
{
    struct rig rig;
    struct comm_communicator *second, *recorder;
    struct comm_request point, request;
    struct comm_plan *plan;
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, &second);
    MUST(comm_barrier(second, &point));
    MUST(comm_plan_begin(rig.world[0], &recorder));
    MUST(comm_queue_wait_request(recorder, point));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &plan));
    MUST(comm_wait(point, RIG_PATIENCE));
    for (int start = 0; start < 2; start++) {
        MUST(comm_plan_start(plan, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        if (start == 0)
            MUST(comm_close(second, RIG_PATIENCE));
    }
    comm_plan_free(plan);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 3.4, 3.5 */
RIG_TEST(contract_3_4_queues_join_within_one_engine)
{
    struct rig one, two;
    struct comm_request first, second;
    struct comm_event *event;
    rig_open(&one, 1, NULL);
    rig_open(&two, 1, NULL);
    MUST(comm_barrier(one.world[0], &first));
    MUST(comm_barrier(two.world[0], &second));
    MUST(comm_event_create(one.world[0], &event));
    IS(comm_queue_wait_request(two.world[0], first), COMM_ERR_UNSUPPORTED);
    IS(comm_queue_wait_event(two.world[0], event), COMM_ERR_UNSUPPORTED);
    rig_wait_all((struct comm_request[]){first, second}, 2);
    comm_event_free(event);
    rig_proves_alive(two.world, 1);
    rig_close(&one);
    rig_close(&two);
}

RIG_TEST(contract_3_5_waits_of_a_queue_never_block)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request behind;
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_reset(event));
    int64_t start = rig_now();
    for (int i = 0; i < 100; i++)
        MUST(comm_queue_wait_event(rig.world[0], event));
    MUST(comm_barrier(rig.world[0], &behind));
    CHECK(rig_now() - start < RIG_S);
    IS(comm_wait(behind, 20 * RIG_MS), COMM_PENDING);
    MUST(comm_event_set(event));
    MUST(comm_wait(behind, RIG_PATIENCE));
    comm_event_free(event);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_3_1_states_of_an_event),
        cmocka_unit_test(contract_3_1_a_wait_copies_its_point),
        cmocka_unit_test(contract_3_1_recording_anew_leaves_recorded_waiters),
        cmocka_unit_test(contract_3_1_destroyed_while_waited_for),
        cmocka_unit_test(contract_3_1_recorded_anew_while_waited_for),
        cmocka_unit_test(contract_3_2_set_starts_and_wakes),
        cmocka_unit_test(contract_3_3_a_failed_point_fails_the_waiter_everywhere),
        cmocka_unit_test(contract_3_3_a_point_failed_before),
        cmocka_unit_test(contract_3_1_a_point_outlives_its_communicator),
        cmocka_unit_test(contract_3_3_closing_what_others_wait_for),
        cmocka_unit_test(contract_3_3_a_plan_whose_point_was_reached),
        cmocka_unit_test(contract_3_4_queues_join_within_one_engine),
        cmocka_unit_test(contract_3_5_waits_of_a_queue_never_block),
    };
    return cmocka_run_group_tests_name("contract_3", tests, NULL, NULL);
}
