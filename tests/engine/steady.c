/*
 * The steady state of a world in one process: after the warm-up, no memory is allocated or freed between issue and completion. The env
 * counts, for each call and each class of size. (With processes: tests/proc/steady.c.)
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "engine/memory_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, STEPS = 4, MANY = 10000, WARM = 200, RECORDS = 2100 };
static const size_t word = sizeof(float);

struct bench {
    struct rig rig;
    struct comm_plan *plan[RANKS];
    float *in[RANKS], *out[RANKS];
    size_t bytes;
};
typedef void round_fn(struct bench *b);

static void both(struct bench *b, const struct comm_request *q, size_t count)
{
    (void)b;
    rig_wait_all(q, count);
}

static void allreduces(struct bench *b)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(b->rig.world[r], b->in[r], b->out[r], b->bytes / word, COMM_F32, COMM_SUM, &q[r]));
    both(b, q, RANKS);
}

static void reduces(struct bench *b)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_reduce(b->rig.world[r], b->in[r], b->out[r], b->bytes / word, COMM_F32, COMM_SUM, 0, &q[r]));
    both(b, q, RANKS);
}

static void broadcasts(struct bench *b)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_broadcast(b->rig.world[r], r ? b->out[r] : b->in[r], b->bytes / word, COMM_F32, 0, &q[r]));
    both(b, q, RANKS);
}

static void pairs(struct bench *b)
{
    struct comm_request q[2 * RANKS];
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_send(b->rig.world[r], b->in[r], b->bytes / word, COMM_F32, 1 - r, 1, &q[r]));
        MUST(comm_recv(b->rig.world[r], b->out[r], b->bytes / word, COMM_F32, 1 - r, 1, NULL, &q[RANKS + r]));
    }
    both(b, q, 2 * RANKS);
}

static void gathers(struct bench *b)
{
    struct comm_request q[RANKS];
    size_t half = b->bytes / word / 2, counts[RANKS] = {half, half / 2 + 1}, displs[RANKS] = {0, half};
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allgather_v(b->rig.world[r], b->in[r], b->out[r], counts, displs, COMM_F32, &q[r]));
    both(b, q, RANKS);
}

static void plans(struct bench *b)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_plan_start(b->plan[r], &q[r]));
    both(b, q, RANKS);
}

static void mixtures(struct bench *b)
{
    struct comm_request last[RANKS];
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_allreduce(b->rig.world[r], b->in[r], b->out[r], 8, COMM_F32, COMM_SUM, NULL));
        MUST(comm_send(b->rig.world[r], b->in[r], 3, COMM_F32, 1 - r, 1, NULL));
        MUST(comm_queue_wait_request(b->rig.world[r], comm_last(b->rig.world[r])));
        MUST(comm_recv(b->rig.world[r], b->out[r], 3, COMM_F32, 1 - r, 1, NULL, NULL));
        MUST(comm_reduce_scatter(b->rig.world[r], b->in[r], b->out[r], b->bytes / word / RANKS, COMM_F32, COMM_SUM, NULL));
        last[r] = comm_last(b->rig.world[r]);
    }
    both(b, last, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_sync(b->rig.world[r], COMM_FOREVER));
}

static void record_plan(struct bench *b, int32_t r)
{
    struct comm_communicator *record;
    MUST(comm_plan_begin(b->rig.world[r], &record));
    for (int i = 0; i < STEPS; i++)
        MUST(comm_allreduce(record, b->in[r], b->out[r], b->bytes / word, COMM_F32, COMM_MAX, NULL));
    MUST(comm_plan_end(record, &b->plan[r]));
}

/* Lets the records of past operations grow to their final size. */
static void allreduce_one(struct bench *b)
{
    size_t bytes = b->bytes;
    b->bytes = 4;
    allreduces(b);
    b->bytes = bytes;
}

static void open_bench(struct bench *b, size_t bytes)
{
    *b = (struct bench){.bytes = bytes};
    rig_open(&b->rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        b->in[r] = calloc(bytes + 64, 2);
        b->out[r] = calloc(bytes + 64, 2);
        CHECK(b->in[r] && b->out[r]);
        record_plan(b, r);
    }
    for (int i = 0; i < RECORDS; i++)
        allreduce_one(b);
}

static void close_bench(struct bench *b)
{
    for (int32_t r = 0; r < RANKS; r++) {
        comm_plan_free(b->plan[r]);
        free(b->in[r]);
        free(b->out[r]);
    }
    rig_close(&b->rig);
    EQUAL(atomic_load(&memory_held), 0);
}

static void steady(round_fn *round, size_t bytes, int warm, int many)
{
    struct bench b;
    open_bench(&b, bytes);
    for (int i = 0; i < warm; i++)
        round(&b);
    uint64_t takes = atomic_load(&memory_takes), gives = atomic_load(&memory_gives);
    for (int i = 0; i < many; i++)
        round(&b);
    EQUAL(atomic_load(&memory_takes) - takes, 0);
    EQUAL(atomic_load(&memory_gives) - gives, 0);
    close_bench(&b);
}

static int count(int many)
{
    return rig_quick() ? many / 20 : many;
}

RIG_TEST(steady_allreduce)
{
    steady(allreduces, 8, WARM, count(MANY));
    steady(allreduces, 65536, WARM, count(MANY));
    steady(allreduces, 1048576, WARM, count(MANY) / 20);
}
RIG_TEST(steady_broadcast)
{
    steady(broadcasts, 8, WARM, count(MANY));
    steady(broadcasts, 65536, WARM, count(MANY));
}
RIG_TEST(steady_messages)
{
    steady(pairs, 8, WARM, count(MANY));
    steady(pairs, 2000, WARM, count(MANY));
    steady(pairs, 65536, WARM, count(MANY) / 2);
}
RIG_TEST(steady_allgather_v)
{
    steady(gathers, 64, WARM, count(MANY));
    steady(gathers, 40000, WARM, count(MANY) / 2);
}
RIG_TEST(steady_plan)
{
    steady(plans, 8, WARM, count(MANY));
    steady(plans, 20000, WARM, count(MANY) / 4);
}
RIG_TEST(steady_mixture)
{
    steady(mixtures, 4000, WARM, count(MANY));
}
/* Consecutive operations each use the memory that the previous one returned: all of it is there before each place of the window has
 * had one. */
RIG_TEST(steady_from_the_second)
{
    enum { FIRST = 2, ROUNDS = 80 };
    steady(reduces, 1048576, FIRST, ROUNDS);
    steady(allreduces, 1048576, FIRST, ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_allreduce),       cmocka_unit_test(steady_broadcast), cmocka_unit_test(steady_messages),
        cmocka_unit_test(steady_allgather_v),     cmocka_unit_test(steady_plan),      cmocka_unit_test(steady_mixture),
        cmocka_unit_test(steady_from_the_second),
    };
    return cmocka_run_group_tests_name("engine_steady", tests, NULL, NULL);
}
