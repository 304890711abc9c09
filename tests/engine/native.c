/*
 * Natives under the engine, with one inside the test (native_fake): which calls it serves and which programs serve, what is looked at when,
 * and children. Failures are in native_failures.c, plans in native_plans.c, repeated calls in native_repeat.c.
 */
#define _GNU_SOURCE
#include "engine/cases.h"

#include "engine/native_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory_env.h"
#include "wire/native.h"

/* ------------------------------------------------------------------------------------------------------------ native or program */
static void algorithm_of(struct comm_request q, const char *want)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, want) != 0)
        rig_die(__FILE__, __LINE__, "served by %s, expected %s", info.algorithm, want);
}

RIG_TEST(a_native_serves_what_it_accepts)
{
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    float in[RANKS] = {1, 2, 3}, out[RANKS];
    struct comm_request q[RANKS];
    rig_open(&rig, RANKS, NULL);
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.fixed_order, 0);
    EQUAL(info.device_order, 0);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "fake");
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_reduce(rig.world[r], &in[r], &out[r], 1, COMM_F32, COMM_SUM, 0, &q[r]));
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "read_all"); /* because the fake lacks reduce */
    char text[256];
    MUST(comm_explain(
        rig.world[0],
        &(struct comm_call){.size = sizeof(struct comm_call), .collective = "allreduce", .n = 1, .type = COMM_F32, .op = COMM_SUM}, text,
        sizeof text));
    CHECK(strstr(text, "fake itself"));
    MUST(comm_explain(
        rig.world[0],
        &(struct comm_call){.size = sizeof(struct comm_call), .collective = "reduce", .n = 1, .type = COMM_F32, .op = COMM_SUM}, text,
        sizeof text));
    CHECK(strstr(text, "read_all"));
    CHECK(out[0] == 6);
    rig_close(&rig);
    EQUAL(fake.channels, 0);
    EQUAL(fake.natives, 0);
}

/* A native may use its own order only if no fixed order was requested. Integer results do not depend on the order. */
RIG_TEST(fixed_order_is_never_relaxed)
{
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    struct comm_request q[RANKS];
    float in[RANKS] = {1, 2, 3}, out[RANKS];
    int32_t whole[RANKS], sum[RANKS];
    rig_open_options(&rig, RANKS, "order=fixed");
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.fixed_order, 1);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "read_all");
    issue_sums(rig.world, whole, sum, q);
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "fake");
    for (int32_t r = 0; r < RANKS; r++) /* copies have no order */
        MUST(comm_broadcast(rig.world[r], &out[r], 1, COMM_F32, 1, &q[r]));
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "fake");
    rig_close(&rig);
    rig_open_options(&rig, RANKS, "algorithm=allreduce:slices"); /* an algorithm requested by name is used */
    issue_sums(rig.world, whole, sum, q);
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "slices");
    rig_close(&rig);
}

RIG_TEST(ended_in_any_order_retired_in_order)
{
    enum { MANY = 40 };
    struct rig rig;
    static int32_t in[RANKS][MANY], out[RANKS][MANY];
    static struct comm_request q[RANKS][MANY];
    fake.delay = 30;
    rig_open(&rig, RANKS, NULL);
    for (int round = 0; round < 20; round++) {
        fake.seed = (uint64_t)round;
        for (int32_t r = 0; r < RANKS; r++) {
            for (int i = 0; i < MANY; i++) {
                in[r][i] = r + i;
                MUST(comm_allreduce(rig.world[r], &in[r][i], &out[r][i], 1, COMM_I32, COMM_SUM, &q[r][i]));
            }
        }
        for (int i = MANY; i-- > 0;) {
            while (comm_test(q[0][i]) == COMM_PENDING)
                continue;
            for (int k = 0; k <= i; k++)
                MUST(comm_test(q[0][k]));
        }
        for (int32_t r = 0; r < RANKS; r++)
            rig_wait_all(q[r], MANY);
        for (int i = 0; i < MANY; i++)
            EQUAL(out[RANKS - 1][i], 3 + 3 * i);
    }
    EQUAL(fake.order, 0);
    EQUAL(fake.mixed, 0);
    EQUAL(fake.started, fake.ended);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ what it owes */
/* A library that moves only inside its calls may owe a peer something for an operation that has ended here, and the peer may be what this
 * rank waits for. */
static void check_looks(struct comm_communicator *const *world, bool expected)
{
    int32_t in = 1, out = 0;
    struct comm_request q;
    uint64_t before = atomic_load(&fake.looks);
    rig_nap(700 * RIG_MS); /* two ticks in which nobody waits */
    CHECK((atomic_load(&fake.looks) > before) == expected);
    before = atomic_load(&fake.looks);
    MUST(comm_reduce(world[0], &in, &out, 1, COMM_I32, COMM_SUM, 0, &q)); /* a program, for which the others do not come */
    IS(comm_wait(q, 50 * RIG_MS), COMM_PENDING);
    CHECK((atomic_load(&fake.looks) > before + 10) == expected);
    before = atomic_load(&fake.looks);
    for (int i = 0; i < 5000; i++)
        IS(comm_test(q), COMM_PENDING);
    CHECK((atomic_load(&fake.looks) > before + 10) == expected);
    for (int32_t r = 1; r < RANKS; r++)
        MUST(comm_reduce(world[r], &in, &out, 1, COMM_I32, COMM_SUM, 0, NULL));
    MUST(comm_wait(q, RIG_PATIENCE));
}

RIG_TEST(a_library_is_looked_at_when_nothing_is_pending)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    struct comm_communicator **world = rig.world;
    rig.ranks = RANKS;
    MUST(comm_open_local(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 1200 * RIG_MS), RANKS, NULL, world));
    check_looks(world, false); /* it has done nothing yet */
    issue_sums(world, in, out, q);
    rig_wait_all(q, RANKS);
    check_looks(world, true);
    rig_close(&rig);
}

/* A library's long poll counts as movement, but a wait ends at its time all the same. */
RIG_TEST(a_wait_ends_in_time_while_a_library_copies)
{
    struct rig rig;
    int32_t in = 1, out = 0;
    struct comm_request q;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    fake.look_ns = 20000;
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I32, COMM_SUM, &q));
    uint64_t before = atomic_load(&fake.looks);
    IS(comm_wait(q, 20 * RIG_MS), COMM_PENDING);
    CHECK(atomic_load(&fake.looks) - before < 5000); /* a thousand take as long */
    for (int32_t r = 1; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], &in, &out, 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_wait(q, RIG_PATIENCE));
    fake.look_ns = 0;
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ children */
RIG_TEST(children_have_a_native_when_all_members_have)
{
    struct rig rig;
    struct comm_communicator *child[RANKS] = {NULL};
    struct comm_request q[RANKS];
    int32_t in[RANKS], out[RANKS];
    fake.connects = 40; /* the creating call stays pending meanwhile, and nothing else is blocked */
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_split(rig.world[r], 0, -r, &child[r], &q[r]));
    IS(comm_test(q[0]), COMM_PENDING);
    rig_wait_all(q, RANKS);
    issue_sums(child, in, out, q);
    rig_wait_all(q, RANKS);
    algorithm_of(q[0], "fake");
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(child[r], RIG_S));
    fake.no_rank_0 = true;
    rig_dup(rig.world, RANKS, child);
    issue_sums(child, in, out, q);
    rig_wait_all(q, RANKS);
    algorithm_of(q[1], "read_all");
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(child[r], RIG_S));
    EQUAL(fake.channels, RANKS);
    rig_close(&rig);
}

RIG_TEST(a_child_whose_native_does_not_connect)
{
    for (uint64_t i = 1; i <= RANKS; i++) {
        struct rig rig;
        struct comm_communicator *child[RANKS] = {NULL};
        struct comm_request q[RANKS];
        fake_reset();
        rig_open(&rig, RANKS, NULL);
        fake.fails = i == 1 ? FAKE_CONNECT : i == 2 ? FAKE_JOIN : FAKE_JOINED;
        fake.fails_at = atomic_load(&fake.calls[fake.fails]) + 2;
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_dup(rig.world[r], NULL, &child[r], &q[r]));
        int bad = 0;
        for (int32_t r = 0; r < RANKS; r++)
            bad += comm_wait(q[r], RIG_PATIENCE) == COMM_ERR_BACKEND;
        CHECK(bad >= 1);
        fake.fails = FAKE_NONE;
        rig_proves_alive(rig.world, RANKS);
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_close(child[r], RIG_S));
        rig_close(&rig);
        EQUAL(fake.channels, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_native_serves_what_it_accepts),
        cmocka_unit_test(fixed_order_is_never_relaxed),
        cmocka_unit_test(ended_in_any_order_retired_in_order),
        cmocka_unit_test(a_repeated_call_checks_its_buffers),
        cmocka_unit_test(a_call_in_place_between_others),
        cmocka_unit_test(a_repeated_call_has_its_own_counts),
        cmocka_unit_test(a_call_of_a_native_has_its_times),
        cmocka_unit_test(a_library_is_looked_at_when_nothing_is_pending),
        cmocka_unit_test(a_wait_ends_in_time_while_a_library_copies),
        cmocka_unit_test(an_opening_that_fails_leaves_nothing),
        cmocka_unit_test(a_native_that_never_connects),
        cmocka_unit_test(a_native_that_connects_late),
        cmocka_unit_test(an_operation_that_fails),
        cmocka_unit_test(a_failure_that_the_monitor_notices),
        cmocka_unit_test(a_call_that_a_native_refuses),
        cmocka_unit_test(contract_4_5_calls_that_differ),
        cmocka_unit_test(plans_match_plans),
        cmocka_unit_test(plans_whose_calls_are_kept),
        cmocka_unit_test(a_kept_call_never_runs_twice_at_once),
        cmocka_unit_test(a_plan_is_freed_while_its_kept_calls_wait),
        cmocka_unit_test(a_kept_plan_outlives_its_communicator),
        cmocka_unit_test(a_kept_plan_of_a_failed_communicator),
        cmocka_unit_test(plans_of_messages_are_not_counted),
        cmocka_unit_test(contract_4_5_plans_that_differ),
        cmocka_unit_test(a_kept_call_that_finds_no_memory),
        cmocka_unit_test(contract_4_3_buffers_are_held_until_close),
        cmocka_unit_test(contract_4_3_a_native_is_told_that_a_rank_is_gone),
        cmocka_unit_test(contract_2_3_a_native_has_the_deadline_too),
        cmocka_unit_test(children_have_a_native_when_all_members_have),
        cmocka_unit_test(a_child_whose_native_does_not_connect),
    };
    return cmocka_run_group_tests_name("engine_native", tests, NULL, NULL);
}
