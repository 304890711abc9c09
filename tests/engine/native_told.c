/* Failures that a call or a brief wait of a native (native_fake) finds: they are told to sleepers, and nothing is queued after them. */
#define _GNU_SOURCE
#include "engine/native_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/told.h"
#include "wire/native.h"

/* The at-th operation that ends from now on ends with an error. */
static void fail_end(uint64_t at)
{
    fake.fails_at = atomic_load(&fake.calls[FAKE_ENDS]) + at;
    fake.fails = FAKE_ENDS;
}

/* The last rank's call finds the first end, its own. The wait of the first rank finds the second. */
RIG_TEST(a_failure_that_a_brief_wait_finds)
{
    for (uint64_t at = 1; at <= 2; at++) {
        struct rig rig;
        int32_t in[RANKS], out[RANKS], failed = at == 1 ? RANKS - 1 : 0;
        struct comm_request q[RANKS];
        fake_reset();
        rig_note("end %d", (int)at);
        rig_open_options(&rig, RANKS, "progress=caller,cpus=8");
        rig_proves_alive(rig.world, RANKS);
        fail_end(at);
        issue_sums(rig.world, in, out, q);
        if (at == 2)
            IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_BACKEND);
        CHECK(is_told(rig.world[failed]));
        IS(comm_wait(q[failed], RIG_PATIENCE), COMM_ERR_BACKEND);
        rig_close(&rig);
    }
}

enum { WINDOW = 4, BLOCK = 3 /* elements that the native takes */ };

/* A program that may not start yet stands before the next call on the stream. So that call looks, and finds that the first one failed. */
static void open_held_back(struct rig *rig, int32_t *sums)
{
    static int32_t word = 1, block[BLOCK];
    fake_reset();
    fake.flags = NATIVE_STREAM;
    fake.partly = true;
    rig_open_options(rig, RANKS, "progress=caller,window=4");
    fail_end(1);
    MUST(comm_broadcast(rig->world[0], block, BLOCK, COMM_I32, 0, NULL));
    for (int i = 0; i < WINDOW; i++)
        MUST(comm_allreduce(rig->world[0], &word, &sums[i], 1, COMM_I32, COMM_SUM, NULL));
}

static void is_refused(struct rig *rig, struct comm_request q)
{
    CHECK(q.comm == NULL);
    IS(comm_test(q), COMM_ERR_BACKEND);
    CHECK(is_told(rig->world[0]));
    fake.fails = FAKE_NONE;
    rig_close(rig);
    EQUAL(fake.channels, 0);
}

RIG_TEST(a_call_that_finds_a_failure_before_it)
{
    struct rig rig;
    int32_t sums[WINDOW], block[BLOCK];
    struct comm_request q = COMM_REQUEST_NONE;
    open_held_back(&rig, sums);
    uint64_t started = fake.started;
    IS(comm_broadcast(rig.world[0], block, BLOCK, COMM_I32, 0, &q), COMM_ERR_BACKEND);
    EQUAL(fake.started, started);
    is_refused(&rig, q);
}

RIG_TEST(a_queue_wait_that_finds_a_failure_before_it)
{
    struct rig rig;
    int32_t sums[WINDOW];
    struct comm_event *gate;
    open_held_back(&rig, sums);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    IS(comm_queue_wait_event(rig.world[0], gate), COMM_ERR_BACKEND);
    EQUAL(fake.waits, 0);
    comm_event_free(gate);
    is_refused(&rig, comm_last(rig.world[0]));
}

/* A plan with two waits for the host finds room for one, because another communicator has the rest: it starts nothing. Once there is room
 * for both, nobody else may take it while the plan starts. */
RIG_TEST(a_plan_whose_waits_find_no_room)
{
    enum { GATES = 3, PARKS = 2 };
    struct rig rig;
    struct comm_communicator *other[RANKS], *recorder;
    struct comm_event *gate[GATES];
    struct comm_plan *plan;
    struct comm_request q[RANKS];
    int32_t block[RANKS][2][BLOCK] = {{{0}}};
    fake.flags = NATIVE_STREAM;
    fake.parks = PARKS;
    rig_open(&rig, RANKS, NULL);
    rig_dup(rig.world, RANKS, other);
    for (int i = 0; i < GATES; i++) {
        MUST(comm_event_create(rig.world[0], &gate[i]));
        MUST(comm_event_reset(gate[i]));
    }
    MUST(comm_plan_begin(rig.world[0], &recorder));
    for (int i = 0; i < 2; i++) {
        MUST(comm_queue_wait_event(recorder, gate[i]));
        MUST(comm_broadcast(recorder, block[0][i], BLOCK, COMM_I32, 0, NULL));
    }
    MUST(comm_plan_end(recorder, &plan));
    MUST(comm_queue_wait_event(other[0], gate[2]));
    uint64_t started = fake.started, waits = fake.waits;
    IS(comm_plan_start(plan, &q[0]), COMM_ERR_FULL);
    IS(comm_test(q[0]), COMM_ERR_FULL);
    EQUAL(fake.started, started);
    EQUAL(fake.waits, waits);
    EQUAL(fake.kept, 0);
    MUST(comm_event_set(gate[2]));
    MUST(comm_plan_start(plan, &q[0]));
    EQUAL(fake.waits, waits + 2);
    EQUAL(fake.kept, 0);
    IS(comm_queue_wait_event(other[0], gate[0]), COMM_ERR_FULL);
    for (int32_t r = 1; r < RANKS; r++) {
        MUST(comm_plan_begin(rig.world[r], &recorder)); /* calls of a plan meet calls of a plan */
        struct comm_plan *theirs;
        for (int i = 0; i < 2; i++)
            MUST(comm_broadcast(recorder, block[r][i], BLOCK, COMM_I32, 0, NULL));
        MUST(comm_plan_end(recorder, &theirs));
        MUST(comm_plan_start(theirs, &q[r]));
        comm_plan_free(theirs);
    }
    for (int i = 0; i < 2; i++)
        MUST(comm_event_set(gate[i]));
    rig_wait_all(q, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(other[r], RIG_S));
    comm_plan_free(plan);
    for (int i = 0; i < GATES; i++)
        comm_event_free(gate[i]);
    rig_close(&rig);
    EQUAL(fake.parked, 0);
}

/* The stream can wait for no such point. The plan is refused as the wait itself is, and before anything of it has started. */
RIG_TEST(a_plan_whose_waits_are_not_possible)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_event *gate;
    struct comm_plan *plan;
    struct comm_request q;
    int32_t block[BLOCK] = {0};
    fake.flags = NATIVE_STREAM;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_plan_begin(rig.world[0], &recorder));
    MUST(comm_broadcast(recorder, block, BLOCK, COMM_I32, 0, NULL));
    MUST(comm_queue_wait_event(recorder, gate));
    MUST(comm_plan_end(recorder, &plan));
    fake.parks_not = true;
    uint64_t started = fake.started;
    IS(comm_plan_start(plan, &q), COMM_ERR_UNSUPPORTED);
    IS(comm_test(q), COMM_ERR_UNSUPPORTED);
    EQUAL(fake.started, started);
    CHECK(strstr(detail_of(rig.world[0]).text, "the stream of fake may not park"));
    fake.parks_not = false;
    MUST(comm_event_set(gate));
    comm_plan_free(plan);
    comm_event_free(gate);
    rig_close(&rig);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_that_a_brief_wait_finds),           cmocka_unit_test(a_call_that_finds_a_failure_before_it),
        cmocka_unit_test(a_queue_wait_that_finds_a_failure_before_it), cmocka_unit_test(a_plan_whose_waits_find_no_room),
        cmocka_unit_test(a_plan_whose_waits_are_not_possible),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("engine_native_told", tests, NULL, NULL);
}
