/* Device buffers on a host backend, ordered by streams. The sum uses the values that a stream wrote before it, and a stream that reads
 * after the sum reads the sum. A seed chooses the order of the device's work. All ranks are in this process: on one device that runs by
 * itself, and on one that is stepped by hand (orders.h). Each stream that waits for the host has its own hardware queue, since
 * in a shared one a blocked stream may block the copies that it waits for (docs/guide/cuda.md). */
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"
#include "orders.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, WORDS = 64, ROUNDS = 4 };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in, *out, *copy;
};
static struct side sides[RANKS];
static struct rig rig;

static void make_sides(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, 0);
        s->compute = bench_stream(&s->bench);
        s->consume = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
        s->copy = bench_memory(&s->bench, WORDS);
    }
}

static void drop_sides(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_free(&s->bench, s->copy);
        bench_drop_stream(&s->bench, s->compute);
        bench_drop_stream(&s->bench, s->consume);
        bench_close(&s->bench);
    }
}

static void one_round(uint32_t round)
{
    struct comm_request q[RANKS];
    uint32_t got[WORDS];

    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_fill(&s->bench, s->compute, s->in, 10 * round + (uint32_t)r, WORDS);
        MUST(comm_queue_wait_stream(rig.world[r], s->compute));
        MUST(comm_allreduce(rig.world[r], s->in, s->out, WORDS, COMM_U32, COMM_SUM, &q[r]));
        MUST(comm_stream_wait_request(s->consume, q[r]));
        bench_copy(&s->bench, s->consume, s->copy, s->out, sizeof got);
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request(q[r], &info));
        EQUAL(info.flags, COMM_INFO_STAGED);
        bench_read(&sides[r].bench, sides[r].consume, got, sides[r].copy, WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], 20 * round + 1);
        /* Only the wait of the host orders the next round's fill after this round's sum. */
    }
}

RIG_TEST(sums_stand_in_the_order_of_streams)
{
    uint64_t seeds = selected(2000, 300, 40);

    mock_reset(&(struct mock_options){.seed = 1, .devices = 1, .queues = 32});
    mock_run(true);
    make_sides();
    rig_open(&rig, RANKS, NULL);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        rig_note("seed %llu", (unsigned long long)seed);
        mock_seed(seed);
        for (uint32_t round = 1; round <= ROUNDS; round++)
            one_round(round);
    }
    rig_close(&rig);
    drop_sides();
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ rounds that overlap */
static const struct orders_config with_words = {.words = WORDS, .queues = 32, .devices = 1, .is_staged = true};
static const struct orders_config without_words = {.words = WORDS, .queues = 32, .devices = 1, .no_memops = true, .is_staged = true};
static const struct orders_config in_one_queue = {.words = WORDS, .queues = 1, .devices = 1, .is_staged = true};

RIG_TEST(streams_and_queues_in_every_order)
{
    uint64_t seeds = selected(2000, 300, 40);

    orders_open(&with_words);
    orders_hold(BY_EVENTS, seeds);
    orders_hold(BY_REQUEST, seeds);
    orders_close();
    orders_open(&without_words);
    orders_hold(BY_HOST, seeds);
    orders_close();
    orders_open(&in_one_queue);
    orders_hold(BY_HOST, seeds);
    orders_close();
}

/* Leaves out each order that staging puts on a stream, one at a time. */
RIG_TEST(every_missing_order_is_found)
{
    orders_open(&with_words);
    orders_find_each(BY_EVENTS);
    orders_find_each(BY_REQUEST);
    orders_find_each(BY_HOST);
    orders_close();
    orders_open(&without_words);
    orders_find_each(BY_HOST);
    orders_close();
}

/* ------------------------------------------------------------------------------------------------------------ in parts */
enum { BLOCK = 400000, LONG_SEEDS = 8 }; /* an allgather of three parts */
static struct {
    uint32_t *in, *out, *copy, *kept; /* `in` has one block, the others one of each rank */
} longs[RANKS];

static void one_long_round(uint32_t round)
{
    struct comm_request q[RANKS];

    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_fill(&s->bench, s->compute, longs[r].in, 10 * round + (uint32_t)r, BLOCK);
        MUST(comm_queue_wait_stream(rig.world[r], s->compute));
        MUST(comm_allgather(rig.world[r], longs[r].in, longs[r].out, BLOCK, COMM_U32, &q[r]));
        MUST(comm_stream_wait_request(s->consume, q[r]));
        bench_copy(&s->bench, s->consume, longs[r].copy, longs[r].out, RANKS * BLOCK * sizeof(uint32_t));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        for (uint32_t from = 0; from < RANKS; from++)
            for (size_t at = 0; at < BLOCK; at += BLOCK / 16 - 1) {
                uint32_t got = 0;
                bench_read(&sides[r].bench, sides[r].consume, &got, longs[r].copy + from * BLOCK + at, 1);
                EQUAL(got, 10 * round + from);
            }
}

/* Each rank sends the other one what a stream wrote, in pieces; a stream that waits for the receive keeps it. */
static void one_round_of_messages(uint32_t round)
{
    enum { WORDS_SENT = RANKS * BLOCK };
    struct comm_request q[2 * RANKS];

    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_fill(&s->bench, s->compute, longs[r].out, 10 * round + (uint32_t)r, WORDS_SENT);
        MUST(comm_queue_wait_stream(rig.world[r], s->compute));
        MUST(comm_recv(rig.world[r], longs[r].copy, WORDS_SENT, COMM_U32, !r, 1, NULL, &q[2 * r]));
        MUST(comm_send(rig.world[r], longs[r].out, WORDS_SENT, COMM_U32, !r, 1, &q[2 * r + 1]));
        MUST(comm_stream_wait_request(s->consume, q[2 * r]));
        bench_copy(&s->bench, s->consume, longs[r].kept, longs[r].copy, WORDS_SENT * sizeof(uint32_t));
    }
    rig_wait_all(q, 2 * (size_t)RANKS);
    for (int r = 0; r < RANKS; r++)
        for (size_t at = 0; at < WORDS_SENT; at += WORDS_SENT / 32 - 1) {
            uint32_t got = 0;
            bench_read(&sides[r].bench, sides[r].consume, &got, longs[r].kept + at, 1);
            EQUAL(got, 10 * round + !r);
        }
}

static void long_rounds(void (*one)(uint32_t round))
{
    for (uint64_t seed = 1; seed <= LONG_SEEDS; seed++) {
        rig_note("seed %llu", (unsigned long long)seed);
        mock_reset(&(struct mock_options){.seed = seed, .devices = 1, .queues = 32});
        mock_run(true);
        make_sides();
        for (int r = 0; r < RANKS; r++) {
            longs[r].in = bench_memory(&sides[r].bench, BLOCK);
            longs[r].out = bench_memory(&sides[r].bench, RANKS * BLOCK);
            longs[r].copy = bench_memory(&sides[r].bench, RANKS * BLOCK);
            longs[r].kept = bench_memory(&sides[r].bench, RANKS * BLOCK);
        }
        rig_open(&rig, RANKS, NULL);
        for (uint32_t round = 1; round <= ROUNDS; round++)
            one(round);
        rig_close(&rig);
        for (int r = 0; r < RANKS; r++) {
            bench_free(&sides[r].bench, longs[r].in);
            bench_free(&sides[r].bench, longs[r].out);
            bench_free(&sides[r].bench, longs[r].copy);
            bench_free(&sides[r].bench, longs[r].kept);
        }
        drop_sides();
        clean_end();
    }
}

RIG_TEST(parts_stand_in_the_order_of_streams)
{
    long_rounds(one_long_round);
}

RIG_TEST(long_messages_stand_in_the_order_of_streams)
{
    long_rounds(one_round_of_messages);
}

/* Each start of a plan would wait for the same place of the stream, so a recorder takes none. */
RIG_TEST(a_recorder_takes_no_place_of_a_stream)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;

    mock_reset(&(struct mock_options){.seed = 1, .devices = 1, .queues = 32});
    mock_run(true);
    make_sides();
    rig_open(&rig, 1, NULL);
    MUST(comm_plan_begin(rig.world[0], &recorder));
    IS(comm_queue_wait_stream(recorder, sides[0].compute), COMM_ERR_STATE);
    MUST(comm_plan_end(recorder, &plan));
    comm_plan_free(plan);
    rig_close(&rig);
    drop_sides();
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ questions */
static void count_one(void *count)
{
    ++*(int *)count;
}

/* How often the driver is asked about the buffers of an allreduce, by all ranks together. */
static int questions(bool in_place, bool on_host)
{
    static uint32_t here[RANKS][2 * WORDS];
    struct comm_request q[RANKS];
    int count = 0;

    bench_enter(&sides[0].bench); /* as in a program that uses the device: its context is the thread's */
    mock_at("cuPointerGetAttributes", count_one, &count);
    for (int r = 0; r < RANKS; r++) {
        const uint32_t *in = on_host ? here[r] : sides[r].in;
        uint32_t *out = on_host ? here[r] + WORDS : sides[r].out;
        MUST(comm_allreduce(rig.world[r], in_place ? COMM_IN_PLACE : in, out, WORDS, COMM_U32, COMM_SUM, &q[r]));
    }
    mock_at(NULL, NULL, NULL);
    bench_leave(&sides[0].bench);
    rig_wait_all(q, RANKS);
    return count;
}

/* In a call like the one before. The first of a kind may ask more. */
RIG_TEST(one_question_for_a_buffer)
{
    mock_reset(&(struct mock_options){.seed = 1, .devices = 1, .queues = 32});
    mock_run(true);
    make_sides();
    rig_open(&rig, RANKS, NULL);
    for (int again = 0; again < 2; again++) {
        questions(false, false);
        EQUAL(questions(false, false), 2 * RANKS);
        EQUAL(questions(true, false), RANKS);
        questions(false, true);
        EQUAL(questions(false, true), 2 * RANKS);
        EQUAL(questions(true, true), RANKS);
    }
    rig_close(&rig);
    drop_sides();
    clean_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_stand_in_the_order_of_streams),
        cmocka_unit_test(streams_and_queues_in_every_order),
        cmocka_unit_test(every_missing_order_is_found),
        cmocka_unit_test(parts_stand_in_the_order_of_streams),
        cmocka_unit_test(long_messages_stand_in_the_order_of_streams),
        cmocka_unit_test(a_recorder_takes_no_place_of_a_stream),
        cmocka_unit_test(one_question_for_a_buffer),
    };

    return cmocka_run_group_tests_name("cuda_staged_streams", tests, NULL, NULL);
}
