/* Messages: when a send is complete, what a receive matches, and what ends a single receive. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* Small sends need no receiver; the buffer may be reused when the request is complete, and the bytes sent are those at
 * the call. */
RIG_TEST(contract_1_11_a_send_is_complete_when_its_buffer_is_free)
{
    struct rig rig;
    struct comm_request send, receive;
    int32_t word = 7, got = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 1, 0, &send));
    MUST(comm_wait(send, RIG_PATIENCE));
    word = 8;
    MUST(comm_recv(rig.world[1], &got, 1, COMM_I32, 0, 0, NULL, &receive));
    MUST(comm_wait(receive, RIG_PATIENCE));
    EQUAL(got, 7);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_truncation_ends_one_receive)
{
    size_t lengths[] = {2, 16, 5000, 300000};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct comm_request send, receive;
        struct comm_status status = {0};
        unsigned char *out = calloc(1, lengths[i]), *in = malloc(lengths[i]);
        CHECK(out && in);
        memset(in, 0x5a, lengths[i]);
        MUST(comm_recv(rig.world[1], in, lengths[i] - 1, COMM_BYTE, 0, 3, &status, &receive));
        MUST(comm_send(rig.world[0], out, lengths[i], COMM_BYTE, 1, 3, &send));
        IS(comm_wait(receive, RIG_PATIENCE), COMM_ERR_TRUNCATED);
        MUST(comm_wait(send, RIG_PATIENCE));
        EQUAL(in[lengths[i] - 1], 0x5a);
        EQUAL(status.bytes, lengths[i]);
        rig_proves_alive(rig.world, 2);
        IS(comm_test(receive), COMM_ERR_TRUNCATED);
        free(out);
        free(in);
    }
    rig_close(&rig);
}

RIG_TEST(contract_1_11_cancel)
{
    struct rig rig;
    struct comm_request unmatched, matched, send, work;
    int32_t word = 1, got = 0, other = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &other, 1, COMM_I32, 1, 9, NULL, &unmatched));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 8, NULL, &matched));
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 8, &send));
    MUST(comm_wait(matched, RIG_PATIENCE));
    IS(comm_cancel(matched), COMM_ERR_STATE);
    MUST(comm_cancel(unmatched));
    IS(comm_wait(unmatched, RIG_PATIENCE), COMM_ERR_CANCELLED);
    MUST(comm_barrier(rig.world[0], &work));
    IS(comm_cancel(work), COMM_ERR_STATE);
    MUST(comm_barrier(rig.world[1], NULL));
    rig_wait_all((struct comm_request[]){send, work, matched}, 3);
    /* A cancelled receive takes no message: the next receive gets it. */
    word = 33;
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 9, &send));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 9, NULL, &matched));
    rig_wait_all((struct comm_request[]){send, matched}, 2);
    EQUAL(got, 33);
    EQUAL(other, 0);
    rig_close(&rig);
}

/* A call that finds no room for the point to wait for is FULL. The error that nobody has been told is told later. */
RIG_TEST(contract_2_4_sync_without_room_loses_no_error)
{
    struct rig rig;
    int32_t words[2] = {1, 2}, got[2] = {0, 0}, marks = 0;
    rig_open_options(&rig, 2, "queue=16");
    MUST(comm_recv(rig.world[0], &got[0], 1, COMM_I32, 1, 0, NULL, NULL));
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 0, NULL));
    MUST(comm_sync(rig.world[1], COMM_FOREVER));
    MUST(comm_recv(rig.world[0], &got[1], 1, COMM_I32, 1, 1, NULL, NULL));
    struct comm_request point;
    do { /* each needs a place until the receive ends */
        rig_proves_alive(rig.world, 2);
        point = comm_last(rig.world[0]);
    } while (++marks < 1000 && point.comm);
    IS(comm_test(point), COMM_ERR_FULL);
    IS(comm_sync(rig.world[0], COMM_FOREVER), COMM_ERR_FULL);
    IS(comm_sync_all(rig.world[0], COMM_FOREVER), COMM_ERR_FULL);
    MUST(comm_send(rig.world[1], words, 1, COMM_I32, 0, 1, NULL));
    while (got[1] != 1)
        CHECK(comm_progress(rig.world[0]) >= COMM_OK);
    IS(comm_sync(rig.world[0], COMM_FOREVER), COMM_ERR_TRUNCATED);
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    rig_close(&rig);
}

/* While a receive waits, each comm_sync and comm_event_record needs a point behind it: the same one, as long as nothing is issued. */
RIG_TEST(contract_1_11_points_behind_a_message_use_up_nothing)
{
    struct rig rig;
    struct comm_request unmatched, send;
    struct comm_event *event;
    int32_t got = 0, word = 5;
    rig_open_options(&rig, 2, "queue=64");
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 9, NULL, &unmatched));
    for (int i = 0; i < 1000; i++) {
        IS(comm_sync(rig.world[0], 0), COMM_PENDING);
        MUST(comm_event_record(event, rig.world[0]));
    }
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 9, &send));
    rig_wait_all((struct comm_request[]){unmatched, send}, 2);
    MUST(comm_event_query(event));
    EQUAL(got, 5);
    comm_event_free(event);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_order_per_pair_and_wildcards)
{
    enum { MANY = 30 };
    struct rig rig;
    struct comm_request request[4 * MANY];
    struct comm_status status[2 * MANY] = {{0}};
    int32_t out[2][MANY], in[2 * MANY];
    rig_open(&rig, 3, NULL);
    for (int i = 0; i < MANY; i++) {
        for (int32_t r = 0; r < 2; r++) {
            out[r][i] = (r + 1) * 1000 + i;
            MUST(comm_send(rig.world[r + 1], &out[r][i], 1, COMM_I32, 0, (uint32_t)i, &request[2 * i + r]));
        }
    }
    for (int i = 0; i < 2 * MANY; i++)
        MUST(comm_recv(rig.world[0], &in[i], 1, COMM_I32, COMM_ANY_PEER, COMM_ANY_TAG, &status[i], &request[2 * MANY + i]));
    rig_wait_all(request, 4 * MANY);
    int next[2] = {0, 0};
    for (int i = 0; i < 2 * MANY; i++) {
        CHECK(status[i].peer == 1 || status[i].peer == 2);
        int *expected = &next[status[i].peer - 1];
        EQUAL(status[i].tag, *expected);
        EQUAL(status[i].bytes, 4);
        EQUAL(in[i], status[i].peer * 1000 + *expected);
        ++*expected;
    }
    EQUAL(next[0], MANY);
    EQUAL(next[1], MANY);
    rig_close(&rig);
}

/* The oldest receive that matches takes a message, whether it is general or exact, and only that one. */
RIG_TEST(contract_1_11_a_wildcard_matches_once)
{
    struct rig rig;
    struct comm_request any, exact, send[2];
    struct comm_status status = {0};
    int32_t word[2] = {1, 2}, got[2] = {0, 0};
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &got[0], 1, COMM_I32, COMM_ANY_PEER, COMM_ANY_TAG, &status, &any));
    MUST(comm_recv(rig.world[0], &got[1], 1, COMM_I32, 1, 5, NULL, &exact));
    MUST(comm_send(rig.world[1], &word[0], 1, COMM_I32, 0, 5, &send[0]));
    MUST(comm_wait(any, RIG_PATIENCE));
    IS(comm_test(exact), COMM_PENDING);
    MUST(comm_send(rig.world[1], &word[1], 1, COMM_I32, 0, 5, &send[1]));
    rig_wait_all((struct comm_request[]){exact, send[0], send[1]}, 3);
    EQUAL(got[0], 1);
    EQUAL(got[1], 2);
    EQUAL(status.tag, 5);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_tags_are_taken_out_of_order)
{
    enum { MANY = 12 };
    size_t sizes[] = {0, 4, 3000, 90000};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct comm_request request[2 * MANY];
        unsigned char *out = malloc(MANY * sizes[s] + 1), *in = malloc(MANY * sizes[s] + 1);
        CHECK(out && in);
        for (size_t i = 0; i < MANY; i++) {
            memset(out + i * sizes[s], (int)i + 1, sizes[s]);
            MUST(comm_send(rig.world[1], out + i * sizes[s], sizes[s], COMM_BYTE, 0, (uint32_t)i, &request[i]));
        }
        for (size_t i = MANY; i-- > 0;)
            MUST(comm_recv(rig.world[0], in + i * sizes[s], sizes[s], COMM_BYTE, 1, (uint32_t)i, NULL, &request[MANY + i]));
        rig_wait_all(request, 2 * MANY);
        CHECK(memcmp(in, out, MANY * sizes[s]) == 0);
        free(out);
        free(in);
    }
    rig_close(&rig);
}

/* A receive whose message is there may end in its call, if those before it did. What it takes is the same. */
static void send_word(struct rig *rig, int32_t value, uint32_t tag)
{
    MUST(comm_send(rig->world[1], &value, 1, COMM_I32, 0, tag, NULL)); /* it is short: its bytes are those at the call */
}

static struct comm_request receive_from(struct rig *rig, int32_t *word, int32_t peer, uint32_t tag)
{
    struct comm_request receive;
    MUST(comm_recv(rig->world[0], word, 1, COMM_I32, peer, tag, NULL, &receive));
    return receive;
}

static struct comm_request receive_word(struct rig *rig, int32_t *word, uint32_t tag)
{
    return receive_from(rig, word, 1, tag);
}

static void receive_several(struct rig *rig)
{
    enum { SEVERAL = 600 }; /* after receives that looked in vain, many must have found their messages before the next one looks */
    for (int32_t i = 0, got = -1; i < SEVERAL; i++) {
        send_word(rig, i, 5);
        MUST(comm_wait(receive_word(rig, &got, 5), RIG_PATIENCE));
        EQUAL(got, i);
    }
}

RIG_TEST(contract_1_11_a_posted_receive_comes_first)
{
    struct rig rig;
    int32_t got[2] = {0, 0};
    rig_open(&rig, 2, NULL);
    receive_several(&rig);
    struct comm_request any = receive_from(&rig, &got[0], COMM_ANY_PEER, COMM_ANY_TAG);
    send_word(&rig, 1, 5);
    send_word(&rig, 2, 5);
    struct comm_request exact = receive_word(&rig, &got[1], 5);
    rig_wait_all((struct comm_request[]){any, exact}, 2);
    EQUAL(got[0], 1);
    EQUAL(got[1], 2);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_an_older_message_comes_first)
{
    struct rig rig;
    int32_t got[3] = {0, 0, 0};
    rig_open(&rig, 2, NULL);
    receive_several(&rig);
    send_word(&rig, 1, 6);
    send_word(&rig, 2, 5);
    struct comm_request later = receive_word(&rig, &got[1], 5); /* the next message has another tag */
    MUST(comm_wait(later, RIG_PATIENCE));
    MUST(comm_wait(receive_word(&rig, &got[0], 6), RIG_PATIENCE));
    receive_several(&rig);
    send_word(&rig, 3, 5);
    MUST(comm_probe(rig.world[0], 1, 5, RIG_PATIENCE, NULL)); /* it has been looked at, the next one has not */
    send_word(&rig, 4, 5);
    MUST(comm_wait(receive_word(&rig, &got[2], 5), RIG_PATIENCE));
    EQUAL(got[0], 1);
    EQUAL(got[1], 2);
    EQUAL(got[2], 3);
    MUST(comm_wait(receive_word(&rig, &got[2], 5), RIG_PATIENCE));
    EQUAL(got[2], 4);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_a_message_that_waits_is_described)
{
    struct rig rig;
    struct comm_request receive;
    struct comm_status status = {0};
    struct comm_request_info info = {.size = sizeof info};
    struct comm_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    int32_t words[2] = {7, 8}, got[3] = {0, 0, 0};
    rig_open(&rig, 2, NULL);
    receive_several(&rig);
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 5, NULL));
    MUST(comm_statistics(rig.world[0], &before));
    MUST(comm_recv(rig.world[0], got, 3, COMM_I32, 1, COMM_ANY_TAG, &status, &receive));
    MUST(comm_wait(receive, RIG_PATIENCE));
    MUST(comm_statistics(rig.world[0], &after));
    CHECK(got[0] == 7 && got[1] == 8 && got[2] == 0);
    CHECK(status.peer == 1 && status.tag == 5 && status.bytes == 8);
    CHECK(after.messages == before.messages + 1 && after.bytes_in == before.bytes_in + 8);
    MUST(comm_describe_request(receive, &info));
    CHECK(info.result == COMM_OK && info.bytes == 12 && info.waited_for == 1 && !strcmp(info.algorithm, "recv"));
    CHECK(info.queued_ns && info.started_ns >= info.queued_ns && info.completed_ns >= info.started_ns);
    receive_several(&rig);
    MUST(comm_send(rig.world[1], words, 2, COMM_I32, 0, 5, NULL));
    MUST(comm_recv(rig.world[0], got, 1, COMM_I32, 1, 5, &status, &receive));
    IS(comm_wait(receive, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    rig_close(&rig);
}

/* A receive waits for an earlier one into the same memory, though its message is there. */
RIG_TEST(contract_1_11_receives_into_the_same_memory_end_in_order)
{
    struct rig rig;
    int32_t got = 0;
    rig_open(&rig, 2, NULL);
    receive_several(&rig);
    struct comm_request first = receive_from(&rig, &got, COMM_ANY_PEER, 9);
    send_word(&rig, 2, 5);
    struct comm_request second = receive_word(&rig, &got, 5);
    IS(comm_test(second), COMM_PENDING);
    send_word(&rig, 1, 9);
    rig_wait_all((struct comm_request[]){first, second}, 2);
    EQUAL(got, 2);
    rig_close(&rig);
}

RIG_TEST(contract_1_11_probe)
{
    struct rig rig;
    struct comm_request send, receive;
    struct comm_status status = {0};
    int32_t words[3] = {1, 2, 3}, got[3] = {0, 0, 0};
    rig_open(&rig, 2, NULL);
    IS(comm_probe(rig.world[0], 1, 6, 0, &status), COMM_PENDING);
    MUST(comm_send(rig.world[1], words, 3, COMM_I32, 0, 6, &send));
    MUST(comm_probe(rig.world[0], COMM_ANY_PEER, COMM_ANY_TAG, RIG_PATIENCE, &status));
    EQUAL(status.peer, 1);
    EQUAL(status.tag, 6);
    EQUAL(status.bytes, 12);
    MUST(comm_recv(rig.world[0], got, 3, COMM_I32, 1, 6, NULL, &receive));
    rig_wait_all((struct comm_request[]){send, receive}, 2);
    EQUAL(got[2], 3);
    IS(comm_probe(rig.world[0], 1, 6, 0, &status), COMM_PENDING);
    rig_close(&rig);
}

/* Invalid arguments of a message concern only the caller. */
RIG_TEST(contract_1_11_refused_messages)
{
    struct rig rig;
    struct comm_request request;
    int32_t word = 0;
    rig_open(&rig, 2, NULL);
    IS(comm_send(rig.world[0], &word, 1, COMM_I32, 2, 0, &request), COMM_ERR_ARGUMENT);
    IS(comm_test(request), COMM_ERR_ARGUMENT);
    IS(comm_send(rig.world[0], &word, 1, COMM_I32, COMM_ANY_PEER, 0, NULL), COMM_ERR_ARGUMENT);
    IS(comm_send(rig.world[0], &word, 1, COMM_I32, 1, COMM_ANY_TAG, NULL), COMM_ERR_ARGUMENT);
    IS(comm_send(rig.world[0], NULL, 1, COMM_I32, 1, 0, NULL), COMM_ERR_ARGUMENT);
    IS(comm_recv(rig.world[0], &word, 1, COMM_I32, -2, 0, NULL, NULL), COMM_ERR_ARGUMENT);
    IS(comm_recv(rig.world[0], &word, 1, (enum comm_type)0, 1, 0, NULL, NULL), COMM_ERR_ARGUMENT);
    IS(comm_send(rig.world[0], &word, SIZE_MAX, COMM_I32, 1, 0, NULL), COMM_ERR_ARGUMENT);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_2_4_sync_without_room_loses_no_error),
        cmocka_unit_test(contract_1_11_a_send_is_complete_when_its_buffer_is_free),
        cmocka_unit_test(contract_1_11_truncation_ends_one_receive),
        cmocka_unit_test(contract_1_11_cancel),
        cmocka_unit_test(contract_1_11_points_behind_a_message_use_up_nothing),
        cmocka_unit_test(contract_1_11_order_per_pair_and_wildcards),
        cmocka_unit_test(contract_1_11_a_wildcard_matches_once),
        cmocka_unit_test(contract_1_11_tags_are_taken_out_of_order),
        cmocka_unit_test(contract_1_11_a_posted_receive_comes_first),
        cmocka_unit_test(contract_1_11_an_older_message_comes_first),
        cmocka_unit_test(contract_1_11_a_message_that_waits_is_described),
        cmocka_unit_test(contract_1_11_receives_into_the_same_memory_end_in_order),
        cmocka_unit_test(contract_1_11_probe),
        cmocka_unit_test(contract_1_11_refused_messages),
    };
    return cmocka_run_group_tests_name("contract_1_messages", tests, NULL, NULL);
}
