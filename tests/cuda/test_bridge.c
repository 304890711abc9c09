/*
 * Streams, queues and the host wait for each other. This tests the dependencies between a program's streams and the communicators' streams
 * on the mock devices, whose order of execution is chosen by a seed. A missing dependency shows as wrong data.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, WORDS = 16, ROUNDS = 4 };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in, *out, *kept[ROUNDS];
    struct comm_event *ready, *reduced;
    struct comm_communicator *dup; /* in-stream */
};
struct set {
    struct comm_communicator *world[RANKS];
    struct side side[RANKS];
};

static void step(void)
{
    mock_step();
}

static void open_set(struct set *set, const struct mock_options *options, bool in_stream)
{
    struct comm_request q[RANKS];

    mock_reset(options);
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER), RANKS, NULL, set->world));
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &set->side[r];
        *s = (struct side){0};
        bench_open(&s->bench, r);
        s->compute = bench_stream(&s->bench);
        s->consume = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
        for (int i = 0; i < ROUNDS; i++)
            s->kept[i] = bench_memory(&s->bench, WORDS);
        MUST(comm_event_create(set->world[r], &s->ready));
        MUST(comm_event_create(set->world[r], &s->reduced));
        if (in_stream)
            MUST(
                comm_dup(set->world[r], &(struct comm_options){.size = sizeof(struct comm_options), .stream = s->compute}, &s->dup, &q[r]));
    }
    int64_t start = rig_now();
    if (in_stream)
        rig_wait_all(q, RANKS);
    CHECK(rig_now() - start < 500 * RIG_MS); /* no event wakes a waiting thread when a join ends, so it polls */
    mock_run(false);
    bench_step = step;
}

static void close_set(struct set *set)
{
    bench_step = NULL;
    mock_run(true);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &set->side[r];
        comm_event_free(s->ready);
        comm_event_free(s->reduced);
        if (s->dup)
            MUST(comm_close(s->dup, COMM_DEFAULT_TIMEOUT));
        MUST(comm_close(set->world[r], COMM_DEFAULT_TIMEOUT));
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        for (int i = 0; i < ROUNDS; i++)
            bench_free(&s->bench, s->kept[i]);
        bench_drop_stream(&s->bench, s->compute);
        bench_drop_stream(&s->bench, s->consume);
        bench_close(&s->bench);
    }
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static uint32_t value_of(int rank, int round)
{
    return (uint32_t)(1000 * (round + 1) + rank);
}

static uint32_t sum_of(int round)
{
    uint32_t sum = 0;

    for (int r = 0; r < RANKS; r++)
        sum += value_of(r, round);
    return sum;
}

/* ------------------------------------------------------------------------------------------------------------ the round trip */
enum way { BY_EVENTS, BY_STREAM_AND_REQUEST, BY_NEWEST_REQUEST, IN_STREAM, WAYS };

/* `compute` writes `in`, the communicator sums it, `consume` copies the sum. Then `compute` may write again. The host does not wait. */
static void put_round(struct side *s, struct comm_communicator *c, enum way way, int round, int rank)
{
    struct comm_request q, last;

    if (round > 0 && way != IN_STREAM) { /* the allreduce of the last round has read `in` */
        MUST(comm_event_record(s->reduced, c));
        MUST(comm_stream_wait_event(s->compute, s->reduced));
    }
    bench_fill(&s->bench, s->compute, s->in, value_of(rank, round), WORDS);
    if (way == BY_EVENTS) {
        MUST(comm_event_record_stream(s->ready, s->compute));
        MUST(comm_queue_wait_event(c, s->ready));
    } else if (way != IN_STREAM) {
        MUST(comm_queue_wait_stream(c, s->compute));
    }
    if (round > 0) { /* `out` was copied */
        MUST(comm_event_record_stream(s->ready, s->consume));
        MUST(comm_queue_wait_event(c, s->ready));
    }
    MUST(comm_allreduce(c, s->in, s->out, WORDS, COMM_U32, COMM_SUM, &q));
    if (way == BY_STREAM_AND_REQUEST) /* so q is not the newest operation, and has no event after it */
        MUST(comm_barrier(c, &last));
    if (way == BY_EVENTS || way == IN_STREAM) {
        MUST(comm_event_record(s->reduced, c));
        MUST(comm_stream_wait_event(s->consume, s->reduced));
    } else {
        MUST(comm_stream_wait_request(s->consume, q));
    }
    bench_copy(&s->bench, s->consume, s->kept[round], s->out, WORDS * sizeof(uint32_t));
}

/* Returns true if every rank kept the right sum of every round. */
static bool play(struct set *set, enum way way, uint64_t seed, uint64_t drop)
{
    struct comm_communicator *c[RANKS];
    bool good = true;

    mock_seed(seed);
    mock_drop_wait(drop);
    for (int r = 0; r < RANKS; r++)
        c[r] = way == IN_STREAM ? set->side[r].dup : set->world[r];
    for (int round = 0; round < ROUNDS; round++)
        for (int r = 0; r < RANKS; r++) {
            put_round(&set->side[r], c[r], way, round, r);
            for (uint64_t turns = seed % 7; turns; turns--)
                mock_step();
        }
    mock_drain();
    CHECK(mock_idle()); /* all operations ran: none waits for the host */
    for (int r = 0; r < RANKS; r++) {
        uint32_t got[WORDS];
        struct side *s = &set->side[r];
        for (int round = 0; round < ROUNDS; round++) {
            bench_read(&s->bench, s->consume, got, s->kept[round], WORDS);
            for (int i = 0; i < WORDS; i++)
                good &= got[i] == sum_of(round);
            bench_fill(&s->bench, s->consume, s->kept[round], 0, WORDS);
        }
        bench_fill(&s->bench, s->compute, s->out, 0, WORDS);
        bench_fill(&s->bench, s->compute, s->in, 0, WORDS);
    }
    mock_drain();
    for (int r = 0; r < RANKS; r++)
        MUST(comm_sync(c[r], COMM_FOREVER));
    return good;
}

static const int queues_of[] = {1, 3, 32};

RIG_TEST(streams_and_queues_in_every_order)
{
    struct set set;
    for (int k = 0; k < 6; k++) {
        open_set(&set, &(struct mock_options){.seed = (uint64_t)k, .queues = queues_of[k % 3], .no_memops = k >= 3}, true);
        for (uint64_t seed = 1; seed <= selected(2000, 300, 40); seed++) {
            enum way way = (enum way)(seed % WAYS);
            rig_note("setting %d seed %llu", k, (unsigned long long)seed);
            if (k >= 3 && way == BY_STREAM_AND_REQUEST) /* an older operation without a word is waited for by its own event */
                way = BY_NEWEST_REQUEST;
            CHECK(play(&set, way, seed, 0));
        }
        close_set(&set);
    }
}

/* Drops each wait that the bridge puts on a stream, one at a time. Each must show as wrong data within 1,000 seeds. */
RIG_TEST(every_missing_edge_is_found)
{
    struct set set;
    open_set(&set, &(struct mock_options){.seed = 1, .queues = 32}, true); /* one queue would order its streams anyway */
    for (enum way way = 0; way < WAYS; way++) {
        uint64_t before = mock_waits();
        CHECK(play(&set, way, 1, 0));
        uint64_t edges = mock_waits() - before, most = 0;
        CHECK(edges >= RANKS * ROUNDS);
        for (uint64_t edge = 1; edge <= edges; edge++) {
            uint64_t seed = 1;
            while (seed <= 1000 && play(&set, way, seed, edge))
                seed++;
            if (seed > 1000)
                rig_die(__FILE__, __LINE__, "way %d: edge %llu of %llu was lost and not found", (int)way, (unsigned long long)edge,
                        (unsigned long long)edges);
            most = seed > most ? seed : most;
        }
        printf("way %d: each of %llu edges found, the last after %llu seeds\n", (int)way, (unsigned long long)edges,
               (unsigned long long)most);
    }
    close_set(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_queues_in_every_order),
        cmocka_unit_test(every_missing_edge_is_found),
    };
    return cmocka_run_group_tests_name("cuda_bridge", tests, NULL, NULL);
}
