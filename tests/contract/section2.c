/* Requests as values: null, refused, copied, waited for after close. Also timeouts: the caller's and the operation's. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 2.1 */
RIG_TEST(contract_2_1_null_and_refused_requests)
{
    struct comm_request requests[3] = {COMM_REQUEST_NONE, COMM_REQUEST_NONE, COMM_REQUEST_NONE};
    struct comm_request refused = {NULL, (uint64_t)(int64_t)COMM_ERR_ARGUMENT};
    size_t index = 5, indices[3], done = 9;
    MUST(comm_test(COMM_REQUEST_NONE));
    MUST(comm_wait(COMM_REQUEST_NONE, COMM_FOREVER));
    MUST(comm_wait_all(requests, 3, COMM_FOREVER));
    MUST(comm_wait_all(NULL, 0, 0));
    MUST(comm_wait_any(requests, 3, COMM_FOREVER, &index));
    CHECK(index == COMM_NO_INDEX);
    MUST(comm_wait_some(requests, 3, COMM_FOREVER, indices, NULL, &done));
    EQUAL(done, 0);
    IS(comm_test(refused), COMM_ERR_ARGUMENT);
    requests[1] = refused;
    IS(comm_wait_all(requests, 3, 0), COMM_ERR_ARGUMENT);
    IS(comm_wait_any(requests, 3, 0, &index), COMM_ERR_ARGUMENT);
    EQUAL(index, 1);
    MUST(comm_wait_any(requests, 3, 0, &index));
    CHECK(index == COMM_NO_INDEX);
}

RIG_TEST(contract_2_1_wait_any_and_some_null_what_they_return)
{
    enum { MANY = 4 };
    struct rig rig;
    struct comm_request receive[MANY], copy[MANY], send;
    int32_t got[MANY] = {0}, word = 1;
    bool seen[MANY] = {false};
    rig_open(&rig, 2, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        MUST(comm_recv(rig.world[0], &got[i], 1, COMM_I32, 1, i, NULL, &receive[i]));
        copy[i] = receive[i];
    }
    size_t index = 0;
    IS(comm_wait_any(receive, MANY, 0, &index), COMM_PENDING);
    for (uint32_t i = 0; i < MANY; i++) {
        MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, i, &send));
        MUST(comm_wait(copy[i], RIG_PATIENCE));
    }
    for (int i = 0; i < 2; i++) {
        MUST(comm_wait_any(receive, MANY, RIG_PATIENCE, &index));
        CHECK(index < MANY && !seen[index]);
        CHECK(receive[index].comm == NULL && receive[index].ticket == 0);
        seen[index] = true;
    }
    size_t indices[MANY], done = 0;
    enum comm_result results[MANY];
    MUST(comm_wait_some(receive, MANY, RIG_PATIENCE, indices, results, &done));
    EQUAL(done, 2);
    for (size_t i = 0; i < done; i++) {
        CHECK(!seen[indices[i]]);
        seen[indices[i]] = true;
        MUST(results[i]);
    }
    MUST(comm_wait_any(receive, MANY, COMM_FOREVER, &index));
    CHECK(index == COMM_NO_INDEX);
    for (int i = 0; i < MANY; i++)
        MUST(comm_test(copy[i]));
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 2.2 */
RIG_TEST(contract_2_2_requests_outlive_their_communicator)
{
    enum { ROUNDS = 120 };
    static struct comm_request ended[ROUNDS], open[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct rig rig;
        static int32_t never;
        rig_open(&rig, 2, NULL);
        rig_proves_alive(rig.world, 2);
        ended[i] = comm_last(rig.world[0]);
        MUST(comm_wait(ended[i], RIG_PATIENCE));
        MUST(comm_recv(rig.world[0], &never, 1, COMM_I32, 1, 0, NULL, &open[i]));
        rig_close(&rig);
        for (int k = 0; k <= i; k++) {
            enum comm_result past = comm_test(ended[k]), cut = comm_wait(open[k], 0);
            CHECK(past == COMM_OK || past == COMM_ERR_CLOSED);
            CHECK(cut == COMM_ERR_CANCELLED || cut == COMM_ERR_CLOSED);
        }
    }
}

RIG_TEST(contract_2_2_a_ticket_not_issued_is_an_argument)
{
    static const struct comm_request made_up[] = {{NULL, COMM_PENDING}, {NULL, 7}, {NULL, UINT64_MAX - 9999}, {NULL, UINT64_MAX << 40}};
    struct rig rig;
    struct comm_request request;
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        struct comm_request two[2] = {COMM_REQUEST_NONE, made_up[i]};
        size_t index = 0;
        IS(comm_test(made_up[i]), COMM_ERR_ARGUMENT);
        IS(comm_wait(made_up[i], RIG_S), COMM_ERR_ARGUMENT);
        IS(comm_wait_all(two, 2, RIG_S), COMM_ERR_ARGUMENT);
        IS(comm_wait_any(two, 2, RIG_S, &index), COMM_ERR_ARGUMENT);
        EQUAL(index, 1);
    }
    rig_open(&rig, 1, NULL);
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    request.ticket += 1000;
    IS(comm_test(request), COMM_ERR_ARGUMENT);
    IS(comm_wait(request, RIG_S), COMM_ERR_ARGUMENT);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 2.3 */
static void open_short(struct rig *rig, int32_t ranks)
{
    rig_open(rig, ranks, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 300 * RIG_MS));
}

RIG_TEST(contract_2_3_the_callers_time_and_the_operations)
{
    struct rig rig;
    struct comm_request request;
    struct comm_error error;
    int32_t in = 1, out = 0;
    open_short(&rig, 2);
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I32, COMM_SUM, &request));
    int64_t start = rig_now();
    IS(comm_wait(request, 0), COMM_PENDING);
    IS(comm_wait(request, 40 * RIG_MS), COMM_PENDING);
    CHECK(rig_now() - start >= 40 * RIG_MS);
    IS(comm_wait(request, COMM_FOREVER), COMM_ERR_TIMEOUT);
    int64_t took = rig_now() - start;
    CHECK(took >= 250 * RIG_MS && took < 3 * RIG_S);
    IS(comm_test(request), COMM_ERR_TIMEOUT);
    rig_fails_within(rig.world[0], COMM_ERR_TIMEOUT, RIG_S, &error);
    rig_close(&rig);
}

RIG_TEST(contract_2_3_negative_times)
{
    struct rig rig;
    struct comm_request request;
    struct comm_event *event;
    struct comm_status status;
    size_t index;
    rig_open(&rig, 1, NULL);
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_event_create(rig.world[0], &event));
    IS(comm_wait(request, -5), COMM_ERR_ARGUMENT);
    IS(comm_wait_all(&request, 1, -5), COMM_ERR_ARGUMENT);
    IS(comm_wait_any(&request, 1, -5, &index), COMM_ERR_ARGUMENT);
    IS(comm_event_sync(event, -5), COMM_ERR_ARGUMENT);
    IS(comm_probe(rig.world[0], 0, 0, -5, &status), COMM_ERR_ARGUMENT);
    MUST(comm_wait(request, RIG_PATIENCE));
    comm_event_free(event);
    rig_close(&rig);
}

/* The time of a gated operation does not run; the gate's own does. */
RIG_TEST(contract_2_3_a_queue_wait_has_a_deadline)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_request request;
    struct comm_error error;
    open_short(&rig, 2);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_barrier(rig.world[0], &request));
    int64_t start = rig_now();
    IS(comm_wait(request, COMM_FOREVER), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 3 * RIG_S);
    rig_fails_within(rig.world[0], COMM_ERR_TIMEOUT, RIG_S, &error);
    comm_event_free(gate);
    rig_close(&rig);
}

RIG_TEST(contract_2_3_gated_time_does_not_count)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_request request[2];
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = RIG_S));
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_barrier(rig.world[0], &request[0]));
    rig_progress_for(rig.world[0], 700 * RIG_MS);
    MUST(comm_event_set(gate));
    rig_progress_for(rig.world[0], 600 * RIG_MS);
    IS(comm_test(request[0]), COMM_PENDING); /* 1.3 s after its call, but 0.6 s after its start */
    MUST(comm_barrier(rig.world[1], &request[1]));
    rig_wait_all(request, 2);
    comm_event_free(gate);
    rig_close(&rig);
}

/* Nor does it count for messages: a receive, and a send that its peer must ask for. */
RIG_TEST(contract_2_3_gated_time_of_messages_does_not_count)
{
    static char bytes[500000], got[sizeof bytes];
    struct rig rig;
    struct comm_event *gate;
    struct comm_request receive, send, other[2];
    int32_t word = 0;
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = RIG_S));
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_recv(rig.world[0], &word, 1, COMM_I32, 1, 1, NULL, &receive));
    MUST(comm_send(rig.world[0], bytes, sizeof bytes, COMM_BYTE, 1, 2, &send));
    rig_progress_for(rig.world[0], 700 * RIG_MS);
    MUST(comm_event_set(gate));
    rig_progress_for(rig.world[0], 600 * RIG_MS);
    IS(comm_test(receive), COMM_PENDING); /* 1.3 s after their calls, but 0.6 s after their start */
    IS(comm_test(send), COMM_PENDING);
    MUST(comm_send(rig.world[1], &(int32_t){7}, 1, COMM_I32, 0, 1, &other[0]));
    MUST(comm_recv(rig.world[1], got, sizeof got, COMM_BYTE, 0, 2, NULL, &other[1]));
    rig_wait_all((struct comm_request[]){receive, send, other[0], other[1]}, 4);
    EQUAL(word, 7);
    comm_event_free(gate);
    rig_close(&rig);
}

RIG_TEST(contract_2_3_an_unmatched_receive_ends_alone)
{
    struct rig rig;
    struct comm_request request;
    int32_t got = 0;
    open_short(&rig, 2);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &request));
    int64_t start = rig_now();
    IS(comm_wait(request, COMM_FOREVER), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 3 * RIG_S);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* The monitor checks an unmatched receive that nobody waits for again and again; it ends once, and the communicator
 * continues. */
RIG_TEST(contract_2_3_an_unmatched_receive_that_nobody_collects)
{
    struct rig rig;
    struct comm_request request;
    int32_t got = 0;
    open_short(&rig, 2);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &request));
    rig_nap(2 * RIG_S);
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* An unmatched send has a deadline too, and so does comm_sync: to another rank, and to this one. */
RIG_TEST(contract_2_3_an_unanswered_send_ends)
{
    static char bytes[500000];
    for (int32_t peer = 0; peer < 2; peer++) {
        struct rig rig;
        struct comm_request request;
        rig_note("to rank %d", peer);
        open_short(&rig, 2);
        MUST(comm_send(rig.world[0], bytes, sizeof bytes, COMM_BYTE, peer, 0, &request));
        int64_t start = rig_now();
        IS(comm_wait(request, 5 * RIG_S), COMM_ERR_TIMEOUT);
        CHECK(rig_now() - start < 3 * RIG_S);
        rig_close(&rig);
    }
}

/* ------------------------------------------------------------------------------------------------------------ 2.4 */
RIG_TEST(contract_2_4_sync_tells_unkept_errors_once)
{
    struct rig rig;
    int32_t words[2] = {1, 2}, got = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, NULL));
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 0, NULL));
    IS(comm_sync(rig.world[0], COMM_FOREVER), COMM_ERR_TRUNCATED);
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    MUST(comm_sync(rig.world[1], COMM_FOREVER));
    struct comm_request kept, sent;
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &kept));
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 0, &sent));
    IS(comm_wait(kept, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    MUST(comm_sync(rig.world[0], COMM_FOREVER)); /* the program kept that one's request */
    MUST(comm_sync_all(rig.world[0], COMM_FOREVER));
    rig_close(&rig);
}

/* The call returned the error of a refused collective, and its request is that error. So it is not told again. */
RIG_TEST(contract_2_4_sync_tells_no_refusal_again)
{
    struct rig rig;
    int32_t words[2] = {1, 2}, got = 0;
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        struct comm_request kept;
        struct comm_communicator *group;
        IS(comm_broadcast(rig.world[r], &got, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
        MUST(comm_sync(rig.world[r], COMM_FOREVER));
        IS(comm_broadcast(rig.world[r], &got, 1, COMM_I32, 2, &kept), COMM_ERR_ARGUMENT);
        MUST(comm_sync_all(rig.world[r], COMM_FOREVER));
        MUST(comm_group_begin(rig.world[r], &group));
        IS(comm_broadcast(group, &got, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
        IS(comm_group_end(group, NULL), COMM_ERR_ARGUMENT);
        MUST(comm_sync(rig.world[r], COMM_FOREVER));
    }
    /* An error between two refusals is still told. */
    IS(comm_broadcast(rig.world[0], &got, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, NULL));
    IS(comm_broadcast(rig.world[0], &got, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 0, NULL));
    IS(comm_sync(rig.world[0], COMM_FOREVER), COMM_ERR_TRUNCATED);
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    for (int i = 0; i < 2; i++)
        IS(comm_broadcast(rig.world[1], &got, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

RIG_TEST(contract_2_4_sync_ends_at_its_timeout)
{
    struct rig rig;
    int32_t word = 7, got = 0;
    struct comm_communicator *second;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, NULL));
    IS(comm_sync(rig.world[0], 0), COMM_PENDING);
    IS(comm_sync_all(rig.world[0], 0), COMM_PENDING);
    int64_t start = rig_now();
    IS(comm_sync(rig.world[0], 20 * RIG_MS), COMM_PENDING);
    IS(comm_sync_all(rig.world[0], 20 * RIG_MS), COMM_PENDING);
    CHECK(rig_now() - start >= 40 * RIG_MS);
    IS(comm_sync(rig.world[0], COMM_DEFAULT_TIMEOUT), COMM_ERR_ARGUMENT);
    IS(comm_sync_all(rig.world[0], -5), COMM_ERR_ARGUMENT);
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 0, NULL));
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    CHECK(got == 7);
    /* The error of another communicator is not lost behind one that is not done. */
    MUST(comm_subset(rig.world[0], (int32_t[]){0}, 1, 0, &second, NULL));
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, NULL));
    MUST(comm_send(second, (int32_t[]){1, 2}, 2, COMM_I32, 0, 0, NULL));
    MUST(comm_recv(second, &got, 1, COMM_I32, 0, 0, NULL, NULL));
    IS(comm_sync_all(rig.world[0], 20 * RIG_MS), COMM_ERR_TRUNCATED);
    IS(comm_sync_all(rig.world[0], 20 * RIG_MS), COMM_PENDING);
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 0, NULL));
    MUST(comm_close(second, COMM_DEFAULT_TIMEOUT));
    rig_close(&rig);
}

/* One thread drives both ranks: a call that waited for the other rank would never return. */
RIG_TEST(contract_2_4_no_request_means_that_nobody_waits)
{
    struct rig rig;
    struct comm_communicator *half[2] = {0}, *copy[2] = {0}, *axis[2] = {0}, *some[2] = {0};
    struct comm_window *window[2] = {0};
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        MUST(comm_split(rig.world[r], 0, 0, &half[r], NULL));
        MUST(comm_dup(rig.world[r], NULL, &copy[r], NULL));
        MUST(comm_split_mesh(rig.world[r], (int32_t[]){2}, 1, &axis[r], NULL));
        MUST(comm_subset(rig.world[r], (int32_t[]){0, 1}, 2, 0, &some[r], NULL));
        MUST(comm_window_create(rig.world[r], 64, NULL, &window[r], NULL));
    }
    for (int r = 0; r < 2; r++) {
        MUST(comm_sync(rig.world[r], COMM_FOREVER));
        CHECK(comm_size(half[r]) == 2 && comm_size(copy[r]) == 2 && comm_size(axis[r]) == 2 && comm_size(some[r]) == 2 && window[r]);
    }
    for (int r = 0; r < 2; r++) {
        MUST(comm_window_fence(window[r], NULL));
        MUST(comm_close(half[r], RIG_PATIENCE));
        MUST(comm_close(copy[r], RIG_PATIENCE));
        MUST(comm_close(axis[r], RIG_PATIENCE));
        MUST(comm_close(some[r], RIG_PATIENCE));
    }
    rig_close(&rig);
    for (int r = 0; r < 2; r++) /* while a communicator is open it waits for the other rank */
        IS(comm_window_free(window[r]), COMM_ERR_CLOSED);
}

/* ------------------------------------------------------------------------------------------------------------ 2.5 */
RIG_TEST(contract_2_5_results_stay_exact)
{
    enum { MANY = 1900 };
    struct rig rig;
    static struct comm_request request[MANY];
    int32_t words[2] = {1, 2}, got = 0;
    rig_open(&rig, 1, NULL);
    for (int i = 0; i < MANY; i++) {
        MUST(comm_send(rig.world[0], words, 1 + (size_t)(i % 3 == 0), COMM_I32, 0, 0, NULL));
        MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 0, NULL, &request[i]));
        IS(comm_wait(request[i], RIG_PATIENCE), i % 3 == 0 ? COMM_ERR_TRUNCATED : COMM_OK);
    }
    for (int i = 0; i < MANY; i++)
        IS(comm_test(request[i]), i % 3 == 0 ? COMM_ERR_TRUNCATED : COMM_OK);
    rig_close(&rig);
}

RIG_TEST(contract_2_5_the_last_two_thousand)
{
    enum { MANY = 2500 };
    struct rig rig;
    static struct comm_request request[MANY], work[MANY];
    struct comm_request_info info = {.size = sizeof info};
    int32_t words[2] = {1, 2}, got = 0;
    rig_open(&rig, 1, NULL);
    for (int i = 0; i < MANY; i++) {
        MUST(comm_send(rig.world[0], words, 2, COMM_I32, 0, 0, NULL));
        MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 0, NULL, &request[i]));
        IS(comm_wait(request[i], RIG_PATIENCE), COMM_ERR_TRUNCATED);
    }
    for (int i = 0; i < MANY; i++) {
        enum comm_result result = comm_test(request[i]);
        CHECK(result == COMM_ERR_TRUNCATED || (result == COMM_ERR_CLOSED && i < MANY - 2000));
    }
    for (int i = 0; i < MANY; i++) {
        MUST(comm_barrier(rig.world[0], &work[i]));
        MUST(comm_wait(work[i], RIG_PATIENCE));
    }
    MUST(comm_describe_request(work[MANY - 1], &info));
    CHECK(info.result == COMM_OK && info.completed_ns > 0);
    MUST(comm_describe_request(work[MANY - 1990], &info));
    IS(comm_describe_request(work[0], &info), COMM_ERR_CLOSED);
    MUST(comm_test(work[0]));
    rig_close(&rig);
}

/* Messages that nobody waited for: one before all errors, others between them. */
RIG_TEST(contract_2_5_successes_beside_forgotten_errors)
{
    enum { ERRORS = 2500, EVERY = 100 };
    struct rig rig;
    static struct comm_request well[ERRORS / EVERY], cancelled[ERRORS];
    int32_t word = 1, got = 0;
    rig_open(&rig, 1, NULL);
    for (int i = 0; i < ERRORS; i++) {
        if (i % EVERY == 0) {
            MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 0, 1, NULL));
            MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 1, NULL, &well[i / EVERY]));
        }
        MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 2, NULL, &cancelled[i]));
        MUST(comm_cancel(cancelled[i]));
        IS(comm_wait(cancelled[i], RIG_PATIENCE), COMM_ERR_CANCELLED);
    }
    for (int i = 0; i < ERRORS / EVERY; i++)
        MUST(comm_wait(well[i], RIG_PATIENCE));
    for (int i = 0; i < ERRORS; i++) {
        enum comm_result result = comm_test(cancelled[i]);
        CHECK(result == COMM_ERR_CANCELLED || (result == COMM_ERR_CLOSED && i < ERRORS - 2000));
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_2_1_null_and_refused_requests),
        cmocka_unit_test(contract_2_1_wait_any_and_some_null_what_they_return),
        cmocka_unit_test(contract_2_2_requests_outlive_their_communicator),
        cmocka_unit_test(contract_2_2_a_ticket_not_issued_is_an_argument),
        cmocka_unit_test(contract_2_3_the_callers_time_and_the_operations),
        cmocka_unit_test(contract_2_3_negative_times),
        cmocka_unit_test(contract_2_3_a_queue_wait_has_a_deadline),
        cmocka_unit_test(contract_2_3_gated_time_does_not_count),
        cmocka_unit_test(contract_2_3_gated_time_of_messages_does_not_count),
        cmocka_unit_test(contract_2_3_an_unmatched_receive_ends_alone),
        cmocka_unit_test(contract_2_3_an_unmatched_receive_that_nobody_collects),
        cmocka_unit_test(contract_2_3_an_unanswered_send_ends),
        cmocka_unit_test(contract_2_4_sync_tells_unkept_errors_once),
        cmocka_unit_test(contract_2_4_sync_tells_no_refusal_again),
        cmocka_unit_test(contract_2_4_sync_ends_at_its_timeout),
        cmocka_unit_test(contract_2_4_no_request_means_that_nobody_waits),
        cmocka_unit_test(contract_2_5_results_stay_exact),
        cmocka_unit_test(contract_2_5_the_last_two_thousand),
        cmocka_unit_test(contract_2_5_successes_beside_forgotten_errors),
    };
    return cmocka_run_group_tests_name("contract_2", tests, NULL, NULL);
}
