/*
 * Messages of device memory with tags on backend nccl. NCCL knows no tags, so those of tag 0 are NCCL's, in the stream, and all others are
 * staged and matched on the wire. They follow what is on the stream, and nothing that uses their memory is put there until they are over.
 */
#include "clean.h"
#include "selection.h"
#include "sides.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CONFIG COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S)

/* The memory of a side is parts of PART words. */
enum { PART = 16, PARTS = 24, WORDS = PART * PARTS, LONG = (3 << 20) / 4 + 5 };

static uint32_t *part_of(uint32_t *memory, int part)
{
    return memory + part * PART;
}

static void fill_part(int rank, uint32_t *memory, int part, uint32_t value)
{
    bench_fill(&sides[rank].bench, sides[rank].stream, part_of(memory, part), value, PART);
}

static void expect(int rank, const uint32_t *at, size_t words, uint32_t value)
{
    uint32_t got[PART];

    bench_read(&sides[rank].bench, sides[rank].stream, got, at, words);
    for (size_t i = 0; i < words; i++)
        if (got[i] != value)
            rig_die(__FILE__, __LINE__, "rank %d, word %d: %u; expected %u", rank, (int)i, got[i], value);
}

static void send_part(int rank, int part, int peer, uint32_t tag, struct comm_request *q)
{
    MUST(comm_send(sides[rank].comm, part_of(sides[rank].in, part), PART, COMM_U32, peer, tag, q));
}

static void receive_part(int rank, int part, int peer, uint32_t tag, struct comm_status *status, struct comm_request *q)
{
    MUST(comm_recv(sides[rank].comm, part_of(sides[rank].out, part), PART, COMM_U32, peer, tag, status, q));
}

static void say_staged(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    CHECK(info.flags & COMM_INFO_STAGED);
}

/* ------------------------------------------------------------------------------------------------------------ matching */
/* Rank 0 sends with many tags to rank 1, which receives them in another order, some of them from any peer. */
RIG_TEST(many_tags_in_any_order)
{
    struct comm_request sent[PARTS], got[PARTS];
    struct comm_status status[PARTS];

    for (int how = 0; how < 3; how++) {
        sides_open(&(struct mock_options){.seed = (uint64_t)how + 1, .queues = how == 1 ? 1 : 0, .no_memops = how == 2}, CONFIG, WORDS);
        for (uint32_t round = 1; round < (rig_quick() ? 3u : 10u); round++) {
            for (int i = 0; i < PARTS; i++) {
                fill_part(0, sides[0].in, i, round * 100 + (uint32_t)i);
                send_part(0, i, 1, 1000 + (uint32_t)i, &sent[i]);
            }
            for (int k = 0; k < PARTS; k++) {
                int i = (k * 7 + (int)round) % PARTS;
                receive_part(1, i, k % 3 ? 0 : COMM_ANY_PEER, 1000 + (uint32_t)i, &status[i], &got[i]);
            }
            rig_wait_all(sent, PARTS);
            rig_wait_all(got, PARTS);
            for (int i = 0; i < PARTS; i++) {
                EQUAL(status[i].peer, 0);
                EQUAL(status[i].tag, 1000 + (uint32_t)i);
                EQUAL(status[i].bytes, PART * sizeof(uint32_t));
                expect(1, part_of(sides[1].out, i), PART, round * 100 + (uint32_t)i);
            }
            say_staged(sent[3]);
            say_staged(got[3]);
        }
        sides_close(false);
    }
}

/* Messages of one tag keep their order. Those of tag 0, and those of the host's memory, are beside them. */
RIG_TEST(one_tag_keeps_its_order_beside_others)
{
    enum { MANY = 8 };
    struct comm_request q[2 * MANY + 4];
    uint32_t host_in = 77, host_out = 0;

    sides_open(&(struct mock_options){.seed = 5}, CONFIG, WORDS);
    for (int i = 0; i < MANY; i++) {
        fill_part(0, sides[0].in, i, 10 + (uint32_t)i);
        send_part(0, i, 1, 9, &q[i]);
        receive_part(1, i, 0, 9, NULL, &q[MANY + i]);
    }
    fill_part(0, sides[0].in, MANY, 5);
    send_part(0, MANY, 1, 0, &q[2 * MANY]);
    receive_part(1, MANY, 0, 0, NULL, &q[2 * MANY + 1]);
    MUST(comm_send(sides[0].comm, &host_in, 1, COMM_U32, 1, 10, &q[2 * MANY + 2]));
    MUST(comm_recv(sides[1].comm, &host_out, 1, COMM_U32, 0, 10, NULL, &q[2 * MANY + 3]));
    rig_wait_all(q, 2 * MANY + 4);
    for (int i = 0; i <= MANY; i++)
        expect(1, part_of(sides[1].out, i), PART, i < MANY ? 10 + (uint32_t)i : 5);
    EQUAL(host_out, 77);
    sides_close(false);
}

/* One half in the host's memory, and lengths that travel in pieces. */
RIG_TEST(memory_of_the_host_and_long_messages)
{
    static uint32_t host[LONG];
    struct comm_request q[4];

    sides_open(&(struct mock_options){.seed = 6}, CONFIG, LONG);
    for (uint32_t i = 0; i < LONG; i++)
        host[i] = 31;
    bench_fill(&sides[0].bench, sides[0].stream, sides[0].in, 42, LONG);
    MUST(comm_send(sides[0].comm, sides[0].in, LONG, COMM_U32, 1, 2, &q[0]));
    MUST(comm_recv(sides[1].comm, sides[1].out, LONG, COMM_U32, 0, 2, NULL, &q[1]));
    MUST(comm_send(sides[2].comm, host, LONG, COMM_U32, 0, 3, &q[2]));
    MUST(comm_recv(sides[0].comm, sides[0].out, LONG, COMM_U32, COMM_ANY_PEER, 3, NULL, &q[3]));
    rig_wait_all(q, 4);
    for (size_t at = 0; at < 2; at++) {
        expect(1, sides[1].out + (at ? LONG - PART : 0), PART, 42);
        expect(0, sides[0].out + (at ? LONG - PART : 0), PART, 31);
    }
    MUST(comm_send(sides[1].comm, sides[1].out, LONG, COMM_U32, 2, 4, &q[0]));
    MUST(comm_recv(sides[2].comm, host, LONG, COMM_U32, 1, 4, NULL, &q[1]));
    rig_wait_all(q, 2);
    EQUAL(host[0], 42);
    EQUAL(host[LONG - 1], 42);
    sides_close(false);
}

RIG_TEST(probed_cancelled_and_refused)
{
    struct comm_request q;
    struct comm_status status = {0};

    sides_open(&(struct mock_options){.seed = 7}, CONFIG, WORDS);
    receive_part(1, 0, 0, 6, NULL, &q);
    IS(comm_wait(q, 10 * RIG_MS), COMM_PENDING);
    MUST(comm_cancel(q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_CANCELLED);
    IS(comm_probe(sides[1].comm, 0, 6, 0, &status), COMM_PENDING);
    fill_part(0, sides[0].in, 0, 8);
    send_part(0, 0, 1, 6, &q);
    MUST(comm_probe(sides[1].comm, 0, COMM_ANY_TAG, RIG_PATIENCE, &status));
    EQUAL(status.tag, 6);
    EQUAL(status.bytes, PART * sizeof(uint32_t));
    MUST(comm_recv(sides[1].comm, sides[1].out, PART / 2, COMM_U32, 0, 6, &status, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    sides_refused(&sides[1], comm_recv(sides[1].comm, sides[1].out, PART, COMM_U32, COMM_ANY_PEER, 0, NULL, &q), COMM_ERR_UNSUPPORTED,
                  "expected a rank, or a tag other than 0");
    sides_refused(&sides[1], comm_recv(sides[1].comm, sides[1].out, PART, COMM_U32, COMM_ANY_PEER, COMM_ANY_TAG, NULL, &q),
                  COMM_ERR_UNSUPPORTED, "expected a rank, or a tag other than 0");
    bench_capture(&sides[0].bench, sides[0].stream);
    sides_refused(&sides[0], comm_send(sides[0].comm, sides[0].in, PART, COMM_U32, 1, 6, &q), COMM_ERR_ARGUMENT,
                  "being captured; expected a message of tag 0");
    bench_end_capture(&sides[0].bench, sides[0].stream, &sides[0].graph);
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ order with the stream */
/* The device stands while the calls are made: a message that did not follow the stream would send what was there before. */
RIG_TEST(a_message_follows_the_stream)
{
    struct comm_request q[2];

    for (uint64_t seed = 1; seed <= (rig_quick() ? 5u : 40u); seed++) {
        sides_open(&(struct mock_options){.seed = seed, .queues = (int)(seed % 8) + 1}, CONFIG, WORDS);
        mock_run(false);
        fill_part(0, sides[0].in, 0, 3);
        fill_part(1, sides[1].out, 0, 9);
        send_part(0, 0, 1, 1, &q[0]);
        receive_part(1, 0, 0, 1, NULL, &q[1]);
        rig_progress_for(sides[0].comm, 2 * RIG_MS);
        IS(comm_test(q[0]), COMM_PENDING);
        IS(comm_test(q[1]), COMM_PENDING);
        mock_run(true);
        rig_wait_all(q, 2);
        expect(1, part_of(sides[1].out, 0), PART, 3);
        sides_close(false);
    }
}

static void sum_in_place(int rank, int part, struct comm_request *q)
{
    MUST(comm_allreduce(sides[rank].comm, COMM_IN_PLACE, part_of(sides[rank].out, part), PART, COMM_U32, COMM_SUM, q));
}

/* A call of the stream that uses the memory of a message is FULL until the message is over, well or not. Other memory is free. */
RIG_TEST(what_a_message_uses_is_full_for_the_stream)
{
    enum { COMES, CANCELLED, TOO_LONG, WAYS };
    struct comm_request sent = COMM_REQUEST_NONE, got, sum[SIDES], other[SIDES], untagged;

    sides_open(&(struct mock_options){.seed = 11, .queues = 32}, CONFIG, WORDS);
    for (int how = 0; how < WAYS; how++) {
        uint32_t host[2 * PART];
        for (int i = 0; i < 2 * PART; i++)
            host[i] = 30;
        for (int r = 0; r < SIDES; r++)
            fill_part(r, sides[r].out, 0, 1000);
        receive_part(1, 0, 0, 5, NULL, &got);
        for (int r = 0; r < SIDES; r++)
            sum_in_place(r, 2, &other[r]);
        rig_wait_all(other, SIDES);
        sum_in_place(0, 0, &sum[0]);
        sides_refused(&sides[1], comm_allreduce(sides[1].comm, COMM_IN_PLACE, part_of(sides[1].out, 0), PART, COMM_U32, COMM_SUM, &sum[1]),
                      COMM_ERR_FULL, "an unfinished recv of tag 5 uses the same memory");
        IS(comm_send(sides[1].comm, part_of(sides[1].out, 0), PART, COMM_U32, 2, 0, &untagged), COMM_ERR_FULL);
        sum_in_place(2, 0, &sum[2]);
        if (how == CANCELLED)
            MUST(comm_cancel(got));
        else
            MUST(comm_send(sides[0].comm, host, how == COMES ? PART : 2 * PART, COMM_U32, 1, 5, &sent));
        IS(comm_wait(got, RIG_PATIENCE), how == COMES ? COMM_OK : how == CANCELLED ? COMM_ERR_CANCELLED : COMM_ERR_TRUNCATED);
        MUST(comm_wait(sent, RIG_PATIENCE));
        sum_in_place(1, 0, &sum[1]);
        rig_wait_all(sum, SIDES);
        expect(0, part_of(sides[0].out, 0), PART, how == COMES ? 2030 : 3000);
    }
    sides_close(false);
}

/* ------------------------------------------------------------------------------------------------------------ plans and groups */
static void start_when_free(struct comm_plan *plan, struct comm_request *q, uint64_t *full)
{
    int64_t end = rig_now() + RIG_PATIENCE;
    enum comm_result r;

    for (; (r = comm_plan_start(plan, q)) == COMM_ERR_FULL && rig_now() < end; ++*full)
        CHECK(comm_progress(sides[0].comm) >= COMM_OK);
    MUST(r);
}

/* A sum, and then a message of its result to the next rank. */
RIG_TEST(a_plan_of_a_sum_and_tags)
{
    struct comm_plan *plan[SIDES];
    struct comm_request q[SIDES];
    uint64_t full = 0;

    sides_open(&(struct mock_options){.seed = 13, .queues = 32}, CONFIG, WORDS);
    for (int r = 0; r < SIDES; r++) {
        struct comm_communicator *recorder;
        MUST(comm_plan_begin(sides[r].comm, &recorder));
        MUST(comm_allreduce(recorder, part_of(sides[r].in, 0), part_of(sides[r].in, 1), PART, COMM_U32, COMM_SUM, NULL));
        MUST(comm_send(recorder, part_of(sides[r].in, 1), PART, COMM_U32, (r + 1) % SIDES, 20 + (uint32_t)r, NULL));
        MUST(comm_recv(recorder, part_of(sides[r].out, 0), PART, COMM_U32, (r + 2) % SIDES, 20 + (uint32_t)(r + 2) % SIDES, NULL, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (uint32_t round = 1; round < (rig_quick() ? 10u : 60u); round++) {
        for (int r = 0; r < SIDES; r++)
            fill_part(r, sides[r].in, 0, round + (uint32_t)r);
        for (uint32_t start = 0; start <= round % 2; start++) /* a second start's sum writes what the first one's message sends */
            for (int r = 0; r < SIDES; r++)
                start_when_free(plan[r], &q[r], &full);
        rig_wait_all(q, SIDES);
        for (int r = 0; r < SIDES; r++)
            expect(r, part_of(sides[r].out, 0), PART, SIDES * round + 3);
    }
    CHECK(full > 0);
    for (int r = 0; r < SIDES; r++)
        comm_plan_free(plan[r]);
    sides_close(false);
}

RIG_TEST(a_plan_that_would_come_too_early_is_refused)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;

    sides_open(&(struct mock_options){.seed = 14}, CONFIG, WORDS);
    MUST(comm_plan_begin(sides[0].comm, &recorder));
    MUST(comm_recv(recorder, part_of(sides[0].out, 0), PART, COMM_U32, 1, 3, NULL, NULL));
    MUST(comm_allreduce(recorder, COMM_IN_PLACE, part_of(sides[0].out, 0), PART, COMM_U32, COMM_SUM, NULL));
    sides_refused(&sides[0], comm_plan_end(recorder, &plan), COMM_ERR_UNSUPPORTED, "uses memory of an earlier message with a tag");
    sides_close(false);
}

RIG_TEST(groups_with_tags)
{
    struct comm_request q[SIDES];

    sides_open(&(struct mock_options){.seed = 15}, CONFIG, WORDS);
    for (uint32_t round = 1; round < 8; round++) {
        for (int r = 0; r < SIDES; r++) {
            struct comm_communicator *group;
            for (int i = 0; i < 3; i++)
                fill_part(r, sides[r].in, i, 10 * round + (uint32_t)r);
            MUST(comm_group_begin(sides[r].comm, &group));
            MUST(comm_send(group, part_of(sides[r].in, 0), PART, COMM_U32, (r + 1) % SIDES, 0, NULL));
            MUST(comm_send(group, part_of(sides[r].in, 1), PART, COMM_U32, (r + 1) % SIDES, 8, NULL));
            MUST(comm_recv(group, part_of(sides[r].out, 1), PART, COMM_U32, (r + 2) % SIDES, 8, NULL, NULL));
            MUST(comm_recv(group, part_of(sides[r].out, 0), PART, COMM_U32, (r + 2) % SIDES, 0, NULL, NULL));
            MUST(comm_allreduce(group, part_of(sides[r].in, 2), part_of(sides[r].out, 2), PART, COMM_U32, COMM_MAX, NULL));
            MUST(comm_group_end(group, &q[r]));
        }
        rig_wait_all(q, SIDES);
        for (int r = 0; r < SIDES; r++) {
            expect(r, part_of(sides[r].out, 0), PART, 10 * round + (uint32_t)(r + 2) % SIDES);
            expect(r, part_of(sides[r].out, 1), PART, 10 * round + (uint32_t)(r + 2) % SIDES);
            expect(r, part_of(sides[r].out, 2), PART, 10 * round + 2);
        }
    }
    sides_close(false);
}

/* A message with a tag does not wait for what the stream does for its own group, which waits for the peer. */
RIG_TEST(a_group_whose_stream_waits_for_the_peer)
{
    struct comm_communicator *group;
    struct comm_request q[2];

    sides_open(&(struct mock_options){.seed = 17, .queues = 32}, CONFIG, WORDS);
    fill_part(0, sides[0].in, 0, 7);
    fill_part(1, sides[1].in, 1, 8);
    MUST(comm_group_begin(sides[0].comm, &group));
    MUST(comm_recv(group, part_of(sides[0].out, 1), PART, COMM_U32, 1, 0, NULL, NULL));
    MUST(comm_send(group, part_of(sides[0].in, 0), PART, COMM_U32, 1, 5, NULL));
    MUST(comm_group_end(group, &q[0]));
    receive_part(1, 0, 0, 5, NULL, &q[1]);
    MUST(comm_wait(q[1], RIG_PATIENCE));
    send_part(1, 1, 0, 0, &q[1]);
    rig_wait_all(q, 2);
    expect(1, part_of(sides[1].out, 0), PART, 7);
    expect(0, part_of(sides[0].out, 1), PART, 8);
    sides_close(false);
}

/* A rank that never calls: the receive ends at its deadline, alone. A send that nobody receives fails the communicator. */
RIG_TEST(deadlines_of_tags)
{
    struct comm_request q;

    sides_open(&(struct mock_options){.seed = 16},
               COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 300 * RIG_MS), LONG);
    receive_part(1, 0, 0, 5, NULL, &q);
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    MUST(comm_send(sides[0].comm, sides[0].in, LONG, COMM_U32, 1, 5, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    sides_close(true);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_tags_in_any_order),
        cmocka_unit_test(one_tag_keeps_its_order_beside_others),
        cmocka_unit_test(memory_of_the_host_and_long_messages),
        cmocka_unit_test(probed_cancelled_and_refused),
        cmocka_unit_test(a_message_follows_the_stream),
        cmocka_unit_test(what_a_message_uses_is_full_for_the_stream),
        cmocka_unit_test(a_plan_of_a_sum_and_tags),
        cmocka_unit_test(a_plan_that_would_come_too_early_is_refused),
        cmocka_unit_test(groups_with_tags),
        cmocka_unit_test(a_group_whose_stream_waits_for_the_peer),
        cmocka_unit_test(deadlines_of_tags),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_tags", tests, NULL, NULL);
}
