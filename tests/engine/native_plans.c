/*
 * Plans over natives. One with NATIVE_STANDS, as MPI with persistent collectives, keeps something of each call between the starts. It must
 * get the same buffers at each start, never a second start of a call that runs, and the same plans in the same order on all ranks.
 */
#define _GNU_SOURCE
#include "engine/cases.h"

#include "engine/memory_env.h"
#include "engine/native_calls.h"
#include "wire/native.h"

#include <string.h>

struct planned {
    struct rig rig;
    int32_t in[RANKS], sum[RANKS], all[RANKS][RANKS];
    struct comm_plan *plan[RANKS];
    struct comm_request q[RANKS];
};

static void open_kept(struct planned *p)
{
    fake.flags = NATIVE_STANDS;
    rig_open(&p->rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
}

/* A sum, a barrier, a broadcast of the sum, and a reduction, which the fake leaves to a program. */
static struct comm_plan *record(struct planned *p, int32_t r)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    MUST(comm_plan_begin(p->rig.world[r], &recorder));
    MUST(comm_allreduce(recorder, &p->in[r], &p->sum[r], 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_broadcast(recorder, &p->sum[r], 1, COMM_I32, 1, NULL));
    MUST(comm_allgather_v(recorder, &p->in[r], p->all[r], (size_t[]){1, 1, 1}, NULL, COMM_I32, NULL));
    MUST(comm_reduce(recorder, &p->in[r], &p->all[r][0], 0, COMM_I32, COMM_SUM, 0, NULL));
    MUST(comm_plan_end(recorder, &plan));
    return plan;
}

enum { NATIVE_CALLS = 4 };

static void start_all(struct planned *p, int turn)
{
    for (int32_t r = 0; r < RANKS; r++) {
        p->in[r] = turn * 10 + r;
        MUST(comm_plan_start(p->plan[r], &p->q[r]));
    }
    rig_wait_all(p->q, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        EQUAL(p->sum[r], turn * 30 + 3);
        for (int32_t k = 0; k < RANKS; k++)
            EQUAL(p->all[r][k], turn * 10 + k);
    }
}

static void record_all(struct planned *p)
{
    for (int32_t r = 0; r < RANKS; r++)
        p->plan[r] = record(p, r);
}

static void free_all(struct planned *p)
{
    for (int32_t r = 0; r < RANKS; r++)
        comm_plan_free(p->plan[r]);
}

static void nothing_wrong(void)
{
    EQUAL(fake.moved, 0);
    EQUAL(fake.overlaps, 0);
    EQUAL(fake.mixed, 0);
}

RIG_CASE(plans_match_plans)
{
    struct planned p = {.in = {0}};
    fake.delay = 5;
    rig_open(&p.rig, RANKS, NULL);
    record_all(&p);
    for (int i = 0; i < 50; i++)
        start_all(&p, i);
    EQUAL(fake.started, 50 * NATIVE_CALLS * RANKS);
    EQUAL(fake.noted, 0);
    free_all(&p);
    rig_close(&p.rig);
}

/* On an idle communicator and behind other calls, two plans in turn, and one more after they were freed. */
RIG_CASE(plans_whose_calls_are_kept)
{
    struct planned p = {.in = {0}}, second = {.in = {0}};
    int32_t one[RANKS] = {1, 1, 1}, sum[RANKS];
    fake.delay = 5;
    open_kept(&p);
    second.rig = p.rig;
    record_all(&p);
    record_all(&second);
    for (int i = 0; i < 30; i++) {
        start_all(&p, i);
        for (int32_t r = 0; r < RANKS && i % 2; r++)
            MUST(comm_allreduce(p.rig.world[r], &one[r], &sum[r], 1, COMM_I32, COMM_SUM, NULL));
        start_all(&second, -i);
    }
    EQUAL(fake.noted, 2 * NATIVE_CALLS * RANKS);
    EQUAL(fake.forgotten, 0);
    free_all(&p);
    EQUAL(fake.forgotten, NATIVE_CALLS * RANKS);
    start_all(&second, 7);
    free_all(&second);
    record_all(&p);
    start_all(&p, 8);
    free_all(&p);
    EQUAL(fake.noted, 3 * NATIVE_CALLS * RANKS);
    EQUAL(fake.forgotten, fake.noted);
    nothing_wrong();
    rig_close(&p.rig);
}

/* The root of a broadcast only reads, so nothing else would hold back the second start. */
RIG_CASE(a_kept_call_never_runs_twice_at_once)
{
    enum { STARTS = 10 };
    struct planned p = {.in = {5, 0, 0}};
    struct comm_request q[RANKS][STARTS];
    struct comm_communicator *recorder;
    fake.delay = 7;
    open_kept(&p);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(p.rig.world[r], &recorder));
        MUST(comm_broadcast(recorder, &p.in[r], 1, COMM_I32, 0, NULL));
        MUST(comm_plan_end(recorder, &p.plan[r]));
    }
    for (int i = 0; i < STARTS; i++)
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_plan_start(p.plan[r], &q[r][i]));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_wait_all(q[r], STARTS, RIG_PATIENCE));
    EQUAL(p.in[2], 5);
    EQUAL(fake.noted, RANKS);
    nothing_wrong();
    free_all(&p);
    rig_close(&p.rig);
}

/* What is kept is forgotten after the last start that waits has ended, and not before. */
RIG_CASE(a_plan_is_freed_while_its_kept_calls_wait)
{
    struct planned p = {.in = {1, 2, 3}};
    struct comm_request first[RANKS];
    open_kept(&p);
    record_all(&p);
    fake.stalls = true;
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_plan_start(p.plan[r], &first[r]));
        MUST(comm_plan_start(p.plan[r], &p.q[r]));
    }
    free_all(&p);
    EQUAL(fake.forgotten, 0);
    fake.stalls = false;
    rig_wait_all(first, RANKS);
    rig_wait_all(p.q, RANKS);
    EQUAL(p.sum[1], 6);
    EQUAL(fake.noted, NATIVE_CALLS * RANKS);
    EQUAL(fake.forgotten, fake.noted);
    nothing_wrong();
    rig_close(&p.rig);
}

RIG_CASE(a_kept_plan_outlives_its_communicator)
{
    struct planned p = {.in = {0}};
    int64_t before = atomic_load(&memory_held);
    open_kept(&p);
    record_all(&p);
    start_all(&p, 1);
    rig_close(&p.rig);
    EQUAL(fake.channels, 0);
    IS(comm_plan_start(p.plan[0], &p.q[0]), COMM_ERR_CLOSED);
    free_all(&p);
    EQUAL(atomic_load(&memory_held), before);
}

RIG_CASE(a_kept_plan_of_a_failed_communicator)
{
    struct planned p = {.in = {0}};
    int64_t before = atomic_load(&memory_held);
    open_kept(&p);
    record_all(&p);
    start_all(&p, 1);
    fake.stalls = true;
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_plan_start(p.plan[r], &p.q[r]));
    MUST(comm_revoke(p.rig.world[0]));
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(p.q[r], RIG_PATIENCE), COMM_ERR_REVOKED);
    IS(comm_plan_start(p.plan[0], &p.q[0]), COMM_ERR_REVOKED);
    comm_plan_free(p.plan[0]);
    rig_close(&p.rig);
    comm_plan_free(p.plan[1]);
    comm_plan_free(p.plan[2]);
    EQUAL(atomic_load(&memory_held), before);
}

/* Each rank may have plans of messages of its own. */
RIG_CASE(plans_of_messages_are_not_counted)
{
    struct planned p = {.in = {0}};
    struct comm_communicator *recorder;
    struct comm_plan *message[2];
    struct comm_request q[2];
    int32_t out = 4, in = 0;
    open_kept(&p);
    MUST(comm_plan_begin(p.rig.world[0], &recorder));
    MUST(comm_send(recorder, &out, 1, COMM_I32, 1, 7, NULL));
    MUST(comm_plan_end(recorder, &message[0]));
    MUST(comm_plan_begin(p.rig.world[1], &recorder));
    MUST(comm_recv(recorder, &in, 1, COMM_I32, 0, 7, NULL, NULL));
    MUST(comm_plan_end(recorder, &message[1]));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_plan_start(message[r], &q[r]));
    rig_wait_all(q, 2);
    EQUAL(in, 4);
    record_all(&p);
    start_all(&p, 3);
    nothing_wrong();
    free_all(&p);
    comm_plan_free(message[0]);
    comm_plan_free(message[1]);
    rig_close(&p.rig);
}

/* One rank has two plans in turn where the others start one twice: alike calls, which a library would not match. */
RIG_CASE(contract_4_5_plans_that_differ)
{
    struct planned p = {.in = {0}}, other = {.in = {0}};
    open_kept(&p);
    other.rig = p.rig;
    record_all(&p);
    other.plan[1] = record(&other, 1);
    start_all(&p, 1);
    fake.stalls = true;
    for (int32_t r = 0; r < RANKS; r++) {
        enum comm_result said = comm_plan_start(r == 1 ? other.plan[1] : p.plan[r], &p.q[r]);
        CHECK(said == COMM_OK || said == COMM_ERR_MISMATCH);
    }
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(p.q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    struct comm_error error = detail_of(p.rig.world[0]);
    if (!strstr(error.text, "called a planned allreduce") || !strstr(error.text, "all ranks start the same plans in the same order"))
        rig_die(__FILE__, __LINE__, "the detail says: %s", error.text);
    comm_plan_free(other.plan[1]);
    free_all(&p);
    rig_close(&p.rig);
}

/* At the first start of one rank. The others get its refusal. The plan has one call: the fake would mix a second one with theirs. */
RIG_CASE(a_kept_call_that_finds_no_memory)
{
    struct planned p = {.in = {0}};
    struct comm_communicator *recorder;
    open_kept(&p);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(p.rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, &p.in[r], &p.sum[r], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_plan_end(recorder, &p.plan[r]));
    }
    for (int32_t r = 0; r < RANKS; r++) /* the queue has room for a plan of this length */
        MUST(comm_barrier(p.rig.world[r], &p.q[r]));
    rig_wait_all(p.q, RANKS);
    atomic_store(&memory_fail_at, atomic_load(&memory_takes) + 1);
    IS(comm_plan_start(p.plan[0], &p.q[0]), COMM_ERR_MEMORY);
    CHECK(atomic_load(&memory_failed) == 1);
    atomic_store(&memory_fail_at, 0);
    for (int32_t r = 1; r < RANKS; r++)
        (void)!comm_plan_start(p.plan[r], &p.q[r]);
    for (int32_t r = 1; r < RANKS; r++)
        IS(comm_wait(p.q[r], RIG_PATIENCE), COMM_ERR_REFUSED);
    EQUAL(fake.overlaps, 0);
    free_all(&p);
    rig_close(&p.rig);
}
