/* The two lines of a communicator: what is in order, what is not, and what waits for what. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 1.1 */
RIG_TEST(contract_1_1_tickets_grow_by_one)
{
    struct rig rig;
    struct comm_request first, second, third;
    int32_t x = 3;
    rig_open(&rig, 1, NULL);
    MUST(comm_barrier(rig.world[0], &first));
    MUST(comm_broadcast(rig.world[0], &x, 1, COMM_I32, 0, &second));
    MUST(comm_barrier(rig.world[0], &third));
    EQUAL(second.ticket, first.ticket + 1);
    EQUAL(third.ticket, first.ticket + 2);
    rig_wait_all((struct comm_request[]){third, second, first}, 3);
    rig_close(&rig);
}

/* The root of a small broadcast waits for nothing itself, but an earlier operation in the queue is not done. */
RIG_TEST(contract_1_1_work_retires_in_order)
{
    struct rig rig;
    struct comm_request reduce[2], cast[2];
    int32_t in[2] = {1, 2}, out[2] = {0, 0}, value[2] = {7, 0};
    rig_open(&rig, 2, NULL);
    MUST(comm_allreduce(rig.world[0], &in[0], &out[0], 1, COMM_I32, COMM_SUM, &reduce[0]));
    MUST(comm_broadcast(rig.world[0], &value[0], 1, COMM_I32, 0, &cast[0]));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    IS(comm_test(cast[0]), COMM_PENDING);
    IS(comm_test(reduce[0]), COMM_PENDING);
    MUST(comm_allreduce(rig.world[1], &in[1], &out[1], 1, COMM_I32, COMM_SUM, &reduce[1]));
    MUST(comm_wait(reduce[0], RIG_PATIENCE));
    MUST(comm_wait(cast[0], RIG_PATIENCE));
    MUST(comm_broadcast(rig.world[1], &value[1], 1, COMM_I32, 0, &cast[1]));
    MUST(comm_wait(cast[1], RIG_PATIENCE));
    EQUAL(out[0], 3);
    EQUAL(out[1], 3);
    EQUAL(value[1], 7);
    rig_close(&rig);
}

/* The request of a group with messages completes after its messages too. */
RIG_TEST(contract_1_1_group_with_messages)
{
    struct rig rig;
    struct comm_communicator *group[2];
    struct comm_request request[2], late;
    int32_t in[2] = {1, 2}, out[2] = {0, 0}, sent = 9, got = 0;
    rig_open(&rig, 2, NULL);
    for (int32_t r = 0; r < 2; r++) {
        enum comm_result result = comm_group_begin(rig.world[r], &group[r]);
        if (result == COMM_ERR_UNSUPPORTED)
            rig_skip("groups are not built");
        MUST(result);
        MUST(comm_allreduce(group[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, NULL));
    }
    MUST(comm_recv(group[0], &got, 1, COMM_I32, 1, 4, NULL, NULL));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_group_end(group[r], &request[r]));
    MUST(comm_wait(request[1], RIG_PATIENCE));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    IS(comm_test(request[0]), COMM_PENDING);
    EQUAL(out[0], 3);
    MUST(comm_send(rig.world[1], &sent, 1, COMM_I32, 0, 4, &late));
    rig_wait_all((struct comm_request[]){request[0], late}, 2);
    EQUAL(got, 9);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.2 */
struct two_lines {
    struct rig rig;
    struct comm_communicator *second[2];
};

/* A receive that is matched last was issued before a collective that must finish first. */
static void receive_before_collective(void *arg, int32_t rank)
{
    struct two_lines *lines = arg;
    struct comm_communicator *c = lines->rig.world[rank], *d = lines->second[rank];
    struct comm_request one, two;
    int32_t in = rank + 1, out = 0, word = 5, got = 0;
    if (rank == 0) {
        MUST(comm_recv(c, &got, 1, COMM_I32, 1, 0, NULL, &one));
        MUST(comm_allreduce(c, &in, &out, 1, COMM_I32, COMM_SUM, &two));
        MUST(comm_wait(two, RIG_PATIENCE));
        MUST(comm_send(d, &word, 1, COMM_I32, 1, 0, &two));
        rig_wait_all((struct comm_request[]){one, two}, 2);
        EQUAL(got, 6);
    } else {
        MUST(comm_allreduce(c, &in, &out, 1, COMM_I32, COMM_SUM, &two));
        MUST(comm_wait(two, RIG_PATIENCE));
        MUST(comm_recv(d, &got, 1, COMM_I32, 0, 0, NULL, &one));
        MUST(comm_wait(one, RIG_PATIENCE));
        word = 6;
        MUST(comm_send(c, &word, 1, COMM_I32, 0, 0, &two));
        MUST(comm_wait(two, RIG_PATIENCE));
        EQUAL(got, 5);
    }
    EQUAL(out, 3);
}

RIG_TEST(contract_1_2_receive_before_collective)
{
    struct two_lines lines;
    rig_open(&lines.rig, 2, NULL);
    rig_dup(lines.rig.world, 2, lines.second);
    rig_threads(2, receive_before_collective, &lines);
    MUST(comm_close(lines.second[0], RIG_PATIENCE));
    MUST(comm_close(lines.second[1], RIG_PATIENCE));
    rig_close(&lines.rig);
}

/* A manager receives its workers' answers in the order of their arrival, and an unmatched receive blocks nothing. */
RIG_TEST(contract_1_2_manager_and_workers)
{
    enum { WORKERS = 5 };
    struct rig rig;
    struct comm_request waiting[WORKERS], never, sent;
    int32_t got[WORKERS] = {0}, word[WORKERS], unread = 0;
    rig_open(&rig, WORKERS + 1, NULL);
    MUST(comm_recv(rig.world[0], &unread, 1, COMM_I32, COMM_ANY_PEER, 77, NULL, &never));
    for (int32_t w = 0; w < WORKERS; w++)
        MUST(comm_recv(rig.world[0], &got[w], 1, COMM_I32, w + 1, 1, NULL, &waiting[w]));
    for (int32_t w = WORKERS - 1; w >= 0; w--) {
        size_t index = COMM_NO_INDEX;
        word[w] = 100 + w;
        MUST(comm_send(rig.world[w + 1], &word[w], 1, COMM_I32, 0, 1, &sent));
        MUST(comm_wait_any(waiting, WORKERS, RIG_PATIENCE, &index));
        EQUAL(index, w);
        EQUAL(got[w], 100 + w);
        MUST(comm_wait(sent, RIG_PATIENCE));
    }
    rig_proves_alive(rig.world, rig.ranks);
    IS(comm_test(never), COMM_PENDING);
    MUST(comm_cancel(never));
    IS(comm_wait(never, RIG_PATIENCE), COMM_ERR_CANCELLED);
    rig_close(&rig);
}

/* More sends than the window has places, on both sides, and only then the receives. */
static void sends_then_receives(void *arg, int32_t rank)
{
    enum { MANY = 40 };
    struct rig *rig = arg;
    size_t sizes[2] = {8, 40000};
    for (int s = 0; s < 2; s++) {
        struct comm_request request[2 * MANY];
        unsigned char *out = malloc(MANY * sizes[s]), *in = malloc(MANY * sizes[s]);
        CHECK(out && in);
        for (size_t i = 0; i < MANY; i++) {
            memset(out + i * sizes[s], (int)(i + 1) + rank * 100, sizes[s]);
            MUST(comm_send(rig->world[rank], out + i * sizes[s], sizes[s], COMM_BYTE, 1 - rank, (uint32_t)i, &request[i]));
        }
        for (size_t i = 0; i < MANY; i++)
            MUST(comm_recv(rig->world[rank], in + i * sizes[s], sizes[s], COMM_BYTE, 1 - rank, (uint32_t)i, NULL, &request[MANY + i]));
        rig_wait_all(request, 2 * MANY);
        for (size_t i = 0; i < MANY; i++) {
            EQUAL(in[i * sizes[s]], (unsigned char)(i + 1 + (size_t)(1 - rank) * 100));
            EQUAL(in[(i + 1) * sizes[s] - 1], in[i * sizes[s]]);
        }
        free(out);
        free(in);
    }
}

RIG_TEST(contract_1_2_more_sends_than_window)
{
    struct rig rig;
    setenv("COMM_WINDOW", "4", 1);
    rig_open(&rig, 2, NULL);
    rig_threads(2, sends_then_receives, &rig);
    rig_close(&rig);
}

/* A send that must wait for a collective's result delays the next one of its pair, so matching keeps the order of the
 * calls. */
RIG_TEST(contract_1_2_held_back_keeps_order)
{
    struct rig rig;
    struct comm_request send[2], receive[2], reduce[2];
    int32_t in[2] = {1, 2}, sum[2] = {0, 0}, other = 50, got[2] = {0, 0};
    rig_open(&rig, 2, NULL);
    MUST(comm_allreduce(rig.world[0], &in[0], &sum[0], 1, COMM_I32, COMM_SUM, &reduce[0]));
    MUST(comm_send(rig.world[0], &sum[0], 1, COMM_I32, 1, 5, &send[0]));
    MUST(comm_send(rig.world[0], &other, 1, COMM_I32, 1, 5, &send[1]));
    MUST(comm_recv(rig.world[1], &got[0], 1, COMM_I32, 0, 5, NULL, &receive[0]));
    MUST(comm_recv(rig.world[1], &got[1], 1, COMM_I32, 0, 5, NULL, &receive[1]));
    rig_progress_for(rig.world[1], 20 * RIG_MS);
    IS(comm_test(receive[0]), COMM_PENDING);
    IS(comm_test(receive[1]), COMM_PENDING);
    MUST(comm_allreduce(rig.world[1], &in[1], &sum[1], 1, COMM_I32, COMM_SUM, &reduce[1]));
    rig_wait_all((struct comm_request[]){reduce[0], reduce[1], send[0], send[1], receive[0], receive[1]}, 6);
    EQUAL(got[0], 3);
    EQUAL(got[1], 50);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.3 */
RIG_TEST(contract_1_3_requests_name_their_line)
{
    struct rig rig;
    struct comm_request work, message, answer;
    int32_t word = 1, got = 0;
    rig_open(&rig, 1, NULL);
    MUST(comm_barrier(rig.world[0], &work));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 3, NULL, &message));
    CHECK(work.comm == rig.world[0] && work.ticket >> 63 == 0);
    CHECK(message.comm == rig.world[0] && message.ticket >> 63 == 1);
    MUST(comm_wait(work, RIG_PATIENCE));
    for (int i = 0; i < 3; i++) {
        struct comm_request copy = work;
        MUST(comm_test(copy));
        IS(comm_test(message), COMM_PENDING);
    }
    MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 0, 3, &answer));
    rig_wait_all((struct comm_request[]){message, answer, message, work}, 4);
    EQUAL(got, 1);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.5 */
/* Gradients that are computed after the call, before the event is set. */
RIG_TEST(contract_1_5_a_queue_wait_holds_back_what_follows)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_request early, reduce[2], held, answer[2];
    int32_t in[2] = {0, 2}, out[2] = {0, 0}, words[3] = {11, 12, 0}, got[2] = {0, 0};
    rig_open(&rig, 2, NULL);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_recv(rig.world[0], &words[2], 1, COMM_I32, 1, 1, NULL, &early));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_allreduce(rig.world[0], &in[0], &out[0], 1, COMM_I32, COMM_SUM, &reduce[0]));
    MUST(comm_send(rig.world[0], &words[0], 1, COMM_I32, 1, 2, &held));
    MUST(comm_allreduce(rig.world[1], &in[1], &out[1], 1, COMM_I32, COMM_SUM, &reduce[1]));
    MUST(comm_recv(rig.world[1], &got[0], 1, COMM_I32, 0, 2, NULL, &answer[0]));
    MUST(comm_send(rig.world[1], &words[1], 1, COMM_I32, 0, 1, &answer[1]));
    MUST(comm_wait(early, RIG_PATIENCE)); /* posted before the queue wait: not delayed */
    EQUAL(words[2], 12);
    rig_progress_for(rig.world[0], 30 * RIG_MS);
    IS(comm_test(reduce[0]), COMM_PENDING);
    IS(comm_test(reduce[1]), COMM_PENDING);
    IS(comm_test(held), COMM_PENDING);
    IS(comm_test(answer[0]), COMM_PENDING);
    in[0] = 40;
    words[0] = 13;
    MUST(comm_event_set(gate));
    rig_wait_all((struct comm_request[]){reduce[0], reduce[1], held, answer[0], answer[1]}, 5);
    EQUAL(out[0], 42);
    EQUAL(out[1], 42);
    EQUAL(got[0], 13);
    comm_event_free(gate);
    rig_close(&rig);
}

RIG_TEST(contract_1_5_messages_pass_a_barrier)
{
    struct rig rig;
    struct comm_request barrier[2], pair[4];
    int32_t word[2] = {1, 2}, got[2] = {0, 0};
    rig_open(&rig, 2, NULL);
    MUST(comm_barrier(rig.world[0], &barrier[0]));
    for (int32_t r = 0; r < 2; r++) {
        MUST(comm_send(rig.world[r], &word[r], 1, COMM_I32, 1 - r, 0, &pair[2 * r]));
        MUST(comm_recv(rig.world[r], &got[r], 1, COMM_I32, 1 - r, 0, NULL, &pair[2 * r + 1]));
    }
    rig_wait_all(pair, 4);
    EQUAL(got[0], 2);
    EQUAL(got[1], 1);
    IS(comm_test(barrier[0]), COMM_PENDING);
    MUST(comm_barrier(rig.world[1], &barrier[1]));
    rig_wait_all(barrier, 2);
    rig_close(&rig);
}

/* The barrier needs rank 1, which waits for the message first. */
RIG_TEST(contract_1_5_a_message_waits_for_the_point_alone)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_request barrier[2], sent, received;
    int32_t word = 7, got = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_barrier(rig.world[0], &barrier[0]));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 1, 0, &sent));
    MUST(comm_recv(rig.world[1], &got, 1, COMM_I32, 0, 0, NULL, &received));
    rig_progress_for(rig.world[0], 30 * RIG_MS);
    IS(comm_test(sent), COMM_PENDING);
    IS(comm_test(received), COMM_PENDING);
    MUST(comm_event_set(gate));
    rig_wait_all((struct comm_request[]){sent, received}, 2);
    EQUAL(got, 7);
    IS(comm_test(barrier[0]), COMM_PENDING);
    IS(comm_test(comm_last(rig.world[0])), COMM_PENDING); /* the queue wait keeps its place behind the barrier */
    MUST(comm_barrier(rig.world[1], &barrier[1]));
    rig_wait_all(barrier, 2);
    MUST(comm_sync(rig.world[0], RIG_PATIENCE));
    comm_event_free(gate);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.6 */
RIG_TEST(contract_1_6_markers_cover_both_lines_and_hold_nothing)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request receive, sent;
    int32_t got = 0, word = 4;
    rig_open(&rig, 2, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 0, NULL, &receive));
    MUST(comm_event_record(event, rig.world[0]));
    struct comm_request last = comm_last(rig.world[0]);
    rig_proves_alive(rig.world, 2); /* later work is not delayed */
    IS(comm_test(last), COMM_PENDING);
    IS(comm_event_query(event), COMM_PENDING);
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 0, &sent));
    rig_wait_all((struct comm_request[]){last, receive, sent}, 3);
    MUST(comm_event_sync(event, RIG_PATIENCE));
    EQUAL(got, 4);
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    MUST(comm_sync(rig.world[1], COMM_FOREVER));
    MUST(comm_wait(comm_last(rig.world[1]), 0));
    comm_event_free(event);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.7 */
RIG_TEST(contract_1_7_only_collectives_are_numbered)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request first, second, message[2];
    struct comm_request_info one = {.size = sizeof one}, two = {.size = sizeof two};
    int32_t word = 1, got = 0;
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_barrier(rig.world[0], &first));
    MUST(comm_queue_wait_event(rig.world[0], event));
    MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 0, 0, &message[0]));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 0, 0, NULL, &message[1]));
    MUST(comm_barrier(rig.world[0], &second));
    rig_wait_all((struct comm_request[]){first, second, message[0], message[1]}, 4);
    MUST(comm_describe_request(first, &one));
    MUST(comm_describe_request(second, &two));
    EQUAL(two.sequence, one.sequence + 1);
    EQUAL(two.result, COMM_OK);
    CHECK(one.queued_ns && one.queued_ns <= one.started_ns && one.started_ns <= one.completed_ns);
    comm_event_free(event);
    rig_close(&rig);
}

/* A plan with everything: its messages are messages, its request completes after all of it, and its wait copies the
 * event's point at each start. */
RIG_TEST(contract_1_1_a_plan_of_messages_work_and_waits)
{
    enum { RANKS = 3, STARTS = 50 };
    struct rig rig;
    struct comm_plan *plan[RANKS];
    struct comm_event *gate[RANKS];
    struct comm_request request[RANKS];
    static int64_t mine[RANKS], theirs[RANKS], sum[RANKS];
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *recorder;
        MUST(comm_event_create(rig.world[r], &gate[r]));
        MUST(comm_plan_begin(rig.world[r], &recorder));
        MUST(comm_recv(recorder, &theirs[r], 1, COMM_I64, (r + RANKS - 1) % RANKS, 7, NULL, NULL));
        MUST(comm_send(recorder, &mine[r], 1, COMM_I64, (r + 1) % RANKS, 7, NULL));
        MUST(comm_queue_wait_event(recorder, gate[r]));
        MUST(comm_allreduce(recorder, &mine[r], &sum[r], 1, COMM_I64, COMM_SUM, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int64_t k = 0; k < STARTS; k++) {
        for (int32_t r = 0; r < RANKS; r++) {
            mine[r] = 10 * k + r;
            MUST(comm_event_reset(gate[r]));
            MUST(comm_plan_start(plan[r], &request[r]));
        }
        rig_progress_for(rig.world[0], 100000);
        for (int32_t r = 0; r < RANKS; r++) {
            IS(comm_test(request[r]), COMM_PENDING); /* the gate delays the work, and so the request */
            MUST(comm_event_set(gate[r]));
        }
        rig_wait_all(request, RANKS);
        for (int32_t r = 0; r < RANKS; r++) {
            EQUAL(theirs[r], 10 * k + (r + RANKS - 1) % RANKS);
            EQUAL(sum[r], 30 * k + 3);
        }
    }
    for (int32_t r = 0; r < RANKS; r++) {
        comm_plan_free(plan[r]);
        comm_event_free(gate[r]);
    }
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.10 */
/* With one place for each peer, many large operations wait for it. The oldest gets it, so the queue moves and ends in
 * order. */
RIG_TEST(contract_1_10_the_oldest_is_served_first)
{
    enum { MANY = 12, LONG = 60000 };
    static int32_t in[3][LONG], out[3][MANY][LONG];
    struct rig rig;
    struct comm_request request[3][MANY];
    rig_open_options(&rig, 3, "minimal=1");
    for (int32_t r = 0; r < 3; r++) {
        for (int i = 0; i < LONG; i++)
            in[r][i] = i + r;
        for (int k = 0; k < MANY; k++)
            MUST(comm_allreduce(rig.world[r], in[r], out[r][k], LONG, COMM_I32, COMM_SUM, &request[r][k]));
    }
    for (int k = 0; k < MANY; k++) {
        for (int32_t r = 0; r < 3; r++) {
            MUST(comm_wait(request[r][k], RIG_PATIENCE));
            EQUAL(out[r][k][LONG - 1], 3 * LONG);
            EQUAL(out[r][k][0], 3);
        }
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_1_tickets_grow_by_one),
        cmocka_unit_test(contract_1_1_a_plan_of_messages_work_and_waits),
        cmocka_unit_test(contract_1_1_work_retires_in_order),
        cmocka_unit_test(contract_1_1_group_with_messages),
        cmocka_unit_test(contract_1_2_receive_before_collective),
        cmocka_unit_test(contract_1_2_manager_and_workers),
        cmocka_unit_test(contract_1_2_more_sends_than_window),
        cmocka_unit_test(contract_1_2_held_back_keeps_order),
        cmocka_unit_test(contract_1_3_requests_name_their_line),
        cmocka_unit_test(contract_1_4_conflicting_work_is_ordered),
        cmocka_unit_test(contract_1_4_work_and_messages_conflict),
        cmocka_unit_test(contract_1_4_a_receive_waits_for_the_send_before_it),
        cmocka_unit_test(contract_1_4_a_send_waits_for_the_receive_before_it),
        cmocka_unit_test(contract_1_5_a_queue_wait_holds_back_what_follows),
        cmocka_unit_test(contract_1_5_messages_pass_a_barrier),
        cmocka_unit_test(contract_1_5_a_message_waits_for_the_point_alone),
        cmocka_unit_test(contract_1_6_markers_cover_both_lines_and_hold_nothing),
        cmocka_unit_test(contract_1_7_only_collectives_are_numbered),
        cmocka_unit_test(contract_1_10_the_oldest_is_served_first),
    };
    return cmocka_run_group_tests_name("contract_1", tests, NULL, NULL);
}
