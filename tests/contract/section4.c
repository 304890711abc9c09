/* Failure: one cause on all ranks, in time; what is sticky and what is not; mismatches; revoke, abort and close. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 4.1, 4.2 */
RIG_TEST(contract_4_1_one_cause_on_all)
{
    enum { RANKS = 4 };
    struct rig rig;
    struct comm_request pending[RANKS], message, later;
    struct comm_error error[RANKS];
    int32_t in = 1, out[RANKS], got = 0;
    rig_open(&rig, RANKS, NULL);
    rig_proves_alive(rig.world, RANKS);
    struct comm_request before = comm_last(rig.world[0]);
    MUST(comm_wait(before, RIG_PATIENCE));
    MUST(comm_recv(rig.world[3], &got, 1, COMM_I32, 0, 0, NULL, &message));
    for (int32_t r = 0; r < 3; r++)
        MUST(comm_allreduce(rig.world[r], &in, &out[r], 1, COMM_I32, COMM_SUM, &pending[r]));
    MUST(comm_revoke(rig.world[2]));
    for (int32_t r = 0; r < 3; r++)
        IS(comm_wait(pending[r], RIG_PATIENCE), COMM_ERR_REVOKED);
    IS(comm_wait(message, RIG_PATIENCE), COMM_ERR_REVOKED);
    for (int32_t r = 0; r < RANKS; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_REVOKED, RIG_S, &error[r]);
        EQUAL(error[r].rank, 2);
        EQUAL(error[r].sequence, error[0].sequence);
        CHECK(strcmp(error[r].cause, error[0].cause) == 0 && strcmp(error[r].operation, error[0].operation) == 0);
        enum comm_result result = comm_barrier(rig.world[r], &later);
        CHECK(result == COMM_OK || result == COMM_ERR_REVOKED);
        IS(comm_wait(later, RIG_PATIENCE), COMM_ERR_REVOKED);
        IS(comm_sync(rig.world[r], COMM_FOREVER), COMM_ERR_REVOKED);
    }
    MUST(comm_test(before)); /* finished operations stay finished */
    rig_close(&rig);
}

RIG_TEST(contract_4_2_other_communicators_go_on)
{
    struct rig rig;
    struct comm_communicator *second[3];
    struct comm_error error;
    rig_open(&rig, 3, NULL);
    rig_dup(rig.world, 3, second);
    MUST(comm_revoke(second[1]));
    for (int32_t r = 0; r < 3; r++)
        rig_fails_within(second[r], COMM_ERR_REVOKED, RIG_S, &error);
    for (int i = 0; i < 20; i++)
        rig_proves_alive(rig.world, 3);
    for (int32_t r = 0; r < 3; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    rig_proves_alive(rig.world, 3);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 4.3 */
/* A failure in the middle of large operations: once a request has ended, its buffers are neither written nor read. */
RIG_TEST(contract_4_3_an_ended_request_leaves_its_buffers_alone)
{
    enum { LONG = 300000, ROUNDS = 12 };
    static float in[3][LONG], out[3][LONG], got[LONG];
    for (int round = 0; round < ROUNDS; round++) {
        struct rig rig;
        struct comm_request request[3], message[2];
        rig_open(&rig, 3, NULL);
        for (int32_t r = 0; r < 3; r++)
            MUST(comm_allreduce(rig.world[r], in[r], out[r], LONG, COMM_F32, COMM_SUM, &request[r]));
        MUST(comm_recv(rig.world[1], got, LONG, COMM_F32, 0, 0, NULL, &message[1]));
        MUST(comm_send(rig.world[0], in[0], LONG, COMM_F32, 1, 0, &message[0]));
        rig_progress_for(rig.world[0], round * 20000);
        enum comm_result revoked = comm_revoke(rig.world[2]);
        CHECK(revoked == COMM_OK);
        for (int32_t r = 0; r < 3; r++) {
            enum comm_result result = comm_wait(request[r], RIG_PATIENCE);
            CHECK(result == COMM_OK || result == COMM_ERR_REVOKED);
            memset(out[r], 0x5a, sizeof out[r]);
        }
        for (int i = 0; i < 2; i++) {
            enum comm_result result = comm_wait(message[i], RIG_PATIENCE);
            CHECK(result == COMM_OK || result == COMM_ERR_REVOKED);
        }
        memset(got, 0x5a, sizeof got);
        rig_progress_for(rig.world[0], 3 * RIG_MS);
        rig_close(&rig);
        for (size_t i = 0; i < sizeof got; i++)
            CHECK(((unsigned char *)got)[i] == 0x5a && ((unsigned char *)out[0])[i] == 0x5a && ((unsigned char *)out[1])[i] == 0x5a &&
                  ((unsigned char *)out[2])[i] == 0x5a);
    }
}

/* ------------------------------------------------------------------------------------------------------------ 4.4 */
RIG_TEST(contract_4_4_what_is_not_sticky)
{
    struct rig rig;
    struct comm_request request;
    int32_t words[2] = {1, 2}, got = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &request));
    IS(comm_wait(request, 10 * RIG_MS), COMM_PENDING);
    rig_proves_alive(rig.world, 2);
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 0, NULL));
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    rig_proves_alive(rig.world, 2);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &request));
    MUST(comm_cancel(request));
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_CANCELLED);
    rig_proves_alive(rig.world, 2);
    for (int32_t r = 0; r < 2; r++)
        CHECK(comm_allreduce(rig.world[r], &got, words, 1, COMM_I32, COMM_AVG, NULL) < 0);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

RIG_TEST(contract_4_4_calls_on_a_failed_communicator)
{
    struct rig rig;
    struct comm_communicator *child = NULL;
    struct comm_error error;
    struct comm_info info = {.size = sizeof info};
    rig_open(&rig, 2, NULL);
    MUST(comm_revoke(rig.world[0]));
    for (int32_t r = 0; r < 2; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_REVOKED, RIG_S, &error);
        IS(NOW(comm_dup, rig.world[r], NULL, &child), COMM_ERR_REVOKED);
        IS(NOW(comm_split, rig.world[r], 0, 0, &child), COMM_ERR_REVOKED);
        CHECK(child == NULL);
        MUST(comm_describe(rig.world[r], &info));
        EQUAL(info.rank, r);
    }
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 4.6 */
/* How long the call slept. When it returns, all communicators of the calling rank have failed. */
static int64_t abort_a_world(void)
{
    struct rig rig;
    struct comm_communicator *second[3];
    struct comm_request pending[2];
    struct comm_error error;
    rig_open(&rig, 3, NULL);
    rig_dup(rig.world, 3, second);
    MUST(comm_barrier(second[0], &pending[0]));
    MUST(comm_barrier(rig.world[1], &pending[1]));
    int64_t slept = rig_slept();
    enum comm_result result = comm_abort(second[2], 3);
    slept = rig_slept() - slept;
    CHECK(result == COMM_OK || result == COMM_ERR_ABORTED);
    struct comm_communicator *own[] = {rig.world[2], second[2]};
    for (int i = 0; i < 2; i++) {
        error = (struct comm_error){.size = sizeof error};
        MUST(comm_error_detail(own[i], &error));
        EQUAL(error.result, COMM_ERR_ABORTED);
    }
    for (int i = 0; i < 2; i++)
        IS(comm_wait(pending[i], RIG_PATIENCE), COMM_ERR_ABORTED);
    for (int32_t r = 0; r < 3; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_ABORTED, RIG_S, &error);
        EQUAL(error.rank, 2);
        rig_fails_within(second[r], COMM_ERR_ABORTED, RIG_S, &error);
        MUST(comm_close(second[r], RIG_PATIENCE));
    }
    rig_close(&rig);
    return slept;
}

RIG_TEST(contract_4_6_abort_fails_every_communicator_of_the_world)
{
    enum { TIMES = 5 };
    int64_t slept = 0;
    for (int i = 0; i < TIMES; i++)
        slept += abort_a_world();
    if (slept > TIMES * 100 * RIG_MS) /* a single call may meet a lock whose holder has no CPU */
        rig_die(__FILE__, __LINE__, "%d aborts slept for %lld ms", TIMES, (long long)(slept / RIG_MS));
}

/* Also a communicator of which the aborting rank is no member. */
RIG_TEST(contract_4_6_abort_reaches_communicators_of_others)
{
    struct rig rig;
    struct comm_communicator *half[3];
    struct comm_request request[3], pending;
    struct comm_error error;
    rig_open(&rig, 3, NULL);
    for (int32_t r = 0; r < 3; r++)
        MUST(comm_split(rig.world[r], r == 2, 0, &half[r], &request[r]));
    for (int32_t r = 0; r < 3; r++)
        MUST(comm_wait(request[r], RIG_PATIENCE));
    MUST(comm_barrier(half[0], &pending));
    IS(comm_abort(rig.world[2], 3), COMM_OK);
    IS(comm_wait(pending, RIG_PATIENCE), COMM_ERR_ABORTED);
    for (int32_t r = 0; r < 3; r++) {
        rig_fails_within(half[r], COMM_ERR_ABORTED, RIG_S, &error);
        EQUAL(error.rank, r == 2 ? 0 : -1);
        MUST(comm_close(half[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 4.7 */
struct closing {
    struct comm_request request;
    enum comm_result result;
    int64_t returned;
};

static void *wait_to_be_closed(void *arg)
{
    struct closing *closing = arg;
    closing->result = comm_wait(closing->request, RIG_PATIENCE);
    closing->returned = rig_now();
    return NULL;
}

static void *close_it(void *arg)
{
    struct closing *closing = arg;
    closing->result = comm_close(closing->request.comm, RIG_PATIENCE);
    closing->returned = rig_now();
    return NULL;
}

/* Close drains as long as it may, then gives up, and no thread is left inside. */
RIG_TEST(contract_4_7_close_is_bounded_and_wakes_waiters)
{
    struct rig rig;
    struct closing closing = {{NULL, 0}, COMM_OK, 0};
    pthread_t thread;
    rig_open(&rig, 2, NULL);
    MUST(comm_barrier(rig.world[0], &closing.request));
    EQUAL(pthread_create(&thread, NULL, wait_to_be_closed, &closing), 0);
    rig_nap(100 * RIG_MS);
    int64_t start = rig_now();
    enum comm_result result = comm_close(rig.world[0], 300 * RIG_MS);
    int64_t took = rig_now() - start;
    pthread_join(thread, NULL);
    IS(closing.result, COMM_ERR_CLOSED);
    IS(result, COMM_ERR_TIMEOUT);
    CHECK(took < 2 * RIG_S && closing.returned - start < 2 * RIG_S);
    (void)comm_close(rig.world[1], RIG_S);
}

/* While close drains, work uses its buffers: a wait in another thread must not return before that work has ended. */
RIG_TEST(contract_4_7_a_wait_lasts_as_long_as_its_operation)
{
    enum { COUNT = 1 << 14 };
    static int32_t in[2][COUNT], out[2][COUNT];
    struct rig rig;
    struct closing waiting = {{NULL, 0}, COMM_OK, 0}, closing = {{NULL, 0}, COMM_OK, 0};
    struct comm_request last;
    pthread_t waiter, closer;
    rig_open(&rig, 2, NULL);
    for (int i = 0; i < COUNT; i++)
        in[1][i] = in[0][i] = i;
    MUST(comm_allreduce(rig.world[0], in[0], out[0], COUNT, COMM_I32, COMM_SUM, &waiting.request));
    closing.request = waiting.request;
    EQUAL(pthread_create(&waiter, NULL, wait_to_be_closed, &waiting), 0);
    EQUAL(pthread_create(&closer, NULL, close_it, &closing), 0);
    rig_nap(200 * RIG_MS);
    int64_t called = rig_now();
    MUST(comm_allreduce(rig.world[1], in[1], out[1], COUNT, COMM_I32, COMM_SUM, &last));
    MUST(comm_wait(last, RIG_PATIENCE));
    pthread_join(waiter, NULL);
    pthread_join(closer, NULL);
    IS(waiting.result, COMM_OK);
    IS(closing.result, COMM_OK);
    CHECK(waiting.returned >= called);
    for (int i = 0; i < COUNT; i++)
        EQUAL(out[0][i], 2 * i);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
}

RIG_TEST(contract_4_7_close_cancels_receives_and_drains_work)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request receive, reduce[2], send;
    int32_t in[2] = {1, 2}, out[2] = {0, 0}, got = 0, word = 6, answer = 0;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_recv(second[0], &got, 1, COMM_I32, 1, 0, NULL, &receive));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(second[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &reduce[r]));
    MUST(comm_send(second[0], &word, 1, COMM_I32, 1, 5, NULL));
    MUST(comm_recv(second[1], &answer, 1, COMM_I32, 0, 5, NULL, &send));
    MUST(comm_close(second[0], RIG_PATIENCE));
    EQUAL(out[0], 3);
    enum comm_result result = comm_test(receive);
    CHECK(result == COMM_ERR_CANCELLED || result == COMM_ERR_CLOSED);
    result = comm_test(reduce[0]);
    CHECK(result == COMM_OK || result == COMM_ERR_CLOSED);
    rig_nap(100 * RIG_MS);
    MUST(comm_close(second[1], RIG_PATIENCE)); /* messages sent before the close arrive */
    EQUAL(out[1], 3);
    EQUAL(answer, 6);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
    MUST(comm_close(NULL, 0));
}

/* Messages sent before the close are matched, even if no call has moved the receiver since. The kernel gets some time,
 * because a ring learns of an arrival only when its thread runs again. */
RIG_TEST(contract_4_7_close_takes_what_has_come)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_request receive;
    int32_t word = 6, answer = 0;
    rig_open_options(&rig, 2, "progress=caller");
    rig_dup(rig.world, 2, second);
    MUST(comm_recv(second[1], &answer, 1, COMM_I32, 0, 5, NULL, &receive));
    MUST(comm_send(second[0], &word, 1, COMM_I32, 1, 5, NULL));
    rig_nap(100 * RIG_MS);
    MUST(comm_close(second[1], RIG_PATIENCE));
    EQUAL(answer, 6);
    MUST(comm_close(second[0], RIG_PATIENCE));
    rig_close(&rig);
}

/* A recorder is consumed only by its end. */
RIG_TEST(contract_4_7_a_recorder_is_not_closed)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    rig_open(&rig, 1, NULL);
    MUST(comm_plan_begin(rig.world[0], &recorder));
    EQUAL(comm_close(recorder, 0), COMM_ERR_STATE);
    MUST(comm_plan_end(recorder, &plan));
    comm_plan_free(plan);
    rig_proves_alive(rig.world, 1);
    rig_close(&rig);
}

/* Children hold the engine; their parents may be closed first. */
RIG_TEST(contract_4_7_any_closing_order)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct comm_event *event;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_event_create(rig.world[0], &event));
    rig_close(&rig);
    for (int i = 0; i < 10; i++)
        rig_proves_alive(second, 2);
    MUST(comm_event_query(event));
    MUST(comm_close(second[1], RIG_PATIENCE));
    MUST(comm_close(second[0], RIG_PATIENCE));
    comm_event_free(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_1_one_cause_on_all),
        cmocka_unit_test(contract_4_2_other_communicators_go_on),
        cmocka_unit_test(contract_4_3_an_ended_request_leaves_its_buffers_alone),
        cmocka_unit_test(contract_4_4_what_is_not_sticky),
        cmocka_unit_test(contract_4_4_calls_on_a_failed_communicator),
        cmocka_unit_test(contract_4_5_mismatch_of_operator),
        cmocka_unit_test(contract_4_5_mismatch_of_count),
        cmocka_unit_test(contract_4_5_mismatch_of_type),
        cmocka_unit_test(contract_4_5_mismatch_of_root),
        cmocka_unit_test(contract_4_5_mismatch_of_collective),
        cmocka_unit_test(contract_4_5_mismatch_of_order),
        cmocka_unit_test(contract_4_5_mismatch_of_counts),
        cmocka_unit_test(contract_4_5_mismatch_of_large_count),
        cmocka_unit_test(contract_4_5_the_text_names_both_calls),
        cmocka_unit_test(contract_4_5_a_missing_call_is_known_at_the_close),
        cmocka_unit_test(contract_4_5_a_call_after_a_peer_closed),
        cmocka_unit_test(contract_4_6_abort_fails_every_communicator_of_the_world),
        cmocka_unit_test(contract_4_6_abort_reaches_communicators_of_others),
        cmocka_unit_test(contract_4_7_close_is_bounded_and_wakes_waiters),
        cmocka_unit_test(contract_4_7_a_wait_lasts_as_long_as_its_operation),
        cmocka_unit_test(contract_4_7_close_cancels_receives_and_drains_work),
        cmocka_unit_test(contract_4_7_any_closing_order),
        cmocka_unit_test(contract_4_7_close_takes_what_has_come),
        cmocka_unit_test(contract_4_7_a_recorder_is_not_closed),
    };
    return cmocka_run_group_tests_name("contract_4", tests, NULL, NULL);
}
