/*
 * Natives under the engine, with one inside the test (native_fake): which calls it serves and which programs serve, failures of each of its
 * functions, buffers held after failures, children, and calls that differ.
 */
#define _GNU_SOURCE
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

/* ------------------------------------------------------------------------------------------------------------ failures */
/* Whatever fails while a world opens: the error is returned, and nothing is leaked. */
static void opening_fails(enum fake_function function, uint64_t at, bool expected)
{
    struct comm_communicator *world[RANKS] = {NULL};
    char text[256] = "";
    int64_t before = atomic_load(&memory_held);
    fake_reset();
    fake.connects = 2;
    fake.fails = function;
    fake.fails_at = at;
    rig_note("function %d, call %d", (int)function, (int)at);
    enum comm_result r = comm_open_local(
        COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .error_text = text, .error_text_bytes = sizeof text, .log_level = COMM_LOG_ERROR),
        RANKS, NULL, world);
    if (!expected) {
        MUST(r);
        for (int32_t i = 0; i < RANKS; i++)
            MUST(comm_close(world[i], RIG_S));
    } else {
        EQUAL(r, COMM_ERR_BACKEND);
    }
    EQUAL(fake.channels, 0);
    EQUAL(fake.natives, 0);
    if (atomic_load(&memory_held) != before)
        memory_tell();
    EQUAL(atomic_load(&memory_held), before);
}

RIG_TEST(an_opening_that_fails_leaves_nothing)
{
    opening_fails(FAKE_NONE, 0, false);
    opening_fails(FAKE_PROBE, 1, true);
    opening_fails(FAKE_OPEN, 1, true);
    for (uint64_t i = 1; i <= RANKS; i++) {
        opening_fails(FAKE_JOIN, i, true);
        opening_fails(FAKE_CONNECT, i, true);
        opening_fails(FAKE_JOINED, 3 * i, true);
    }
}

RIG_TEST(a_native_that_never_connects)
{
    struct comm_communicator *world[RANKS];
    char text[256] = "";
    fake.connects = UINT32_MAX;
    int64_t start = rig_now();
    IS(comm_open_local(
           COMM_CONFIG(.open_timeout_ns = RIG_S / 5, .log_level = COMM_LOG_ERROR, .error_text = text, .error_text_bytes = sizeof text),
           RANKS, NULL, world),
       COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 2 * RIG_S);
    CHECK(strstr(text, "fake") && strstr(text, "200 ms"));
    EQUAL(fake.channels, 0);
}

/* If a start or an operation fails on one rank, the communicator fails on all, with the library's error number and text. Other
 * communicators continue. */
static void operation_fails(enum fake_function function, uint64_t at)
{
    struct rig rig;
    struct comm_communicator *other[RANKS];
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake_reset();
    fake.delay = 3;
    rig_note("function %d, call %d", (int)function, (int)at);
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    rig_dup(rig.world, RANKS, other);
    fake.fails_at = atomic_load(&fake.calls[function]) + at;
    fake.fails = function;
    enum comm_result said[RANKS] = {COMM_OK};
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = r;
        said[r] = comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &q[r]);
        CHECK(said[r] == COMM_OK || said[r] == COMM_ERR_BACKEND);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_error error;
        enum comm_result ended = comm_wait(q[r], RIG_PATIENCE);
        CHECK(ended == COMM_ERR_BACKEND || (ended == COMM_OK && function == FAKE_ENDS)); /* success is local */
        rig_fails_within(rig.world[r], COMM_ERR_BACKEND, 2 * RIG_S, &error);
        EQUAL(error.backend_code, 4711);
        CHECK(strstr(error.text, "the fake's error 4711") && strcmp(error.operation, "allreduce") == 0);
    }
    fake.fails = FAKE_NONE;
    rig_proves_alive(other, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(other[r], RIG_S));
    rig_close(&rig);
    EQUAL(fake.channels, 0);
}

RIG_TEST(an_operation_that_fails)
{
    for (uint64_t i = 1; i <= RANKS; i++) {
        operation_fails(FAKE_START, i);
        operation_fails(FAKE_ENDS, i);
    }
}

/* If a native rejects the arguments of one rank, that rank's call is refused. The number is used up, and ranks that started the call get
 * REFUSED. */
RIG_TEST(a_call_that_a_native_refuses)
{
    struct rig rig;
    int32_t in[RANKS][4] = {{1}, {2}, {3}}, out[RANKS][4];
    struct comm_request q[RANKS];
    rig_open(&rig, RANKS, NULL);
    fake.result = COMM_ERR_ARGUMENT;
    fake.fails = FAKE_ACCEPT;
    for (int32_t r = 0; r < RANKS; r++) { /* all ranks refuse it: nothing has happened */
        fake.fails_at = atomic_load(&fake.calls[FAKE_ACCEPT]) + 1;
        IS(comm_allreduce(rig.world[r], in[r], out[r], 2 + (size_t)r, COMM_I32, COMM_SUM, &q[r]), COMM_ERR_ARGUMENT);
        struct comm_error error = detail_of(rig.world[r]);
        if (!strstr(error.text, "does not like"))
            rig_die(__FILE__, __LINE__, "the detail says: %s", error.text);
    }
    fake.fails = FAKE_NONE;
    rig_proves_alive(rig.world, RANKS);
    fake.fails = FAKE_ACCEPT;
    fake.fails_at = atomic_load(&fake.calls[FAKE_ACCEPT]) + 100;
    MUST(comm_allreduce(rig.world[0], in[0], out[0], 1, COMM_I32, COMM_SUM, &q[0]));
    fake.fails_at = atomic_load(&fake.calls[FAKE_ACCEPT]) + 1;
    /* a call with a new shape, so the native is asked */
    IS(comm_broadcast(rig.world[1], out[1], 1, COMM_I32, 0, &q[1]), COMM_ERR_ARGUMENT);
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_REFUSED);
    rig_close(&rig);
}

/* Ranks make different calls. For long calls, this is found before the library gets the second call; for short ones, a waiting rank finds
 * it. */
static void differ(size_t n, size_t other, comm_op op, bool planned)
{
    struct rig rig;
    static int32_t in[2][5000], out[2][5000];
    struct comm_request q[2];
    struct comm_communicator *recorder;
    struct comm_plan *plan = NULL;
    char first[64];
    fake_reset();
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    rig_proves_alive(rig.world, 2);
    uint64_t before = fake.started;
    MUST(comm_allreduce(rig.world[0], in[0], out[0], n, COMM_I32, COMM_SUM, &q[0]));
    if (planned) {
        MUST(comm_plan_begin(rig.world[1], &recorder));
        MUST(comm_allreduce(recorder, in[1], out[1], other, COMM_I32, op, NULL));
        MUST(comm_plan_end(recorder, &plan));
    }
    fake.stalls = true;
    int64_t start = rig_now();
    enum comm_result said =
        planned ? comm_plan_start(plan, &q[1]) : comm_allreduce(rig.world[1], in[1], out[1], other, COMM_I32, op, &q[1]);
    CHECK(said == COMM_OK || said == COMM_ERR_MISMATCH);
    if (n >= 1024)
        EQUAL(fake.started, before + 1);
    for (int32_t r = 0; r < 2; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
        struct comm_error error = detail_of(rig.world[r]);
        snprintf(first, sizeof first, "rank 0 called allreduce n=%zu", n);
        CHECK(strstr(error.text, first) && strstr(error.text, planned ? "rank 1 called a planned" : "rank 1 called"));
    }
    CHECK(rig_now() - start < 2 * RIG_S);
    comm_plan_free(plan);
    rig_close(&rig);
    if (n >= 1024)
        EQUAL(fake.mixed, 0);
}

RIG_TEST(contract_4_5_calls_that_differ)
{
    differ(4000, 3000, COMM_SUM, false);
    differ(4000, 4000, COMM_MAX, false);
    differ(4000, 4000, COMM_SUM, true);
    differ(2, 3, COMM_SUM, false);
    differ(2, 2, COMM_MAX, false);
    differ(2, 2, COMM_SUM, true);
}

RIG_TEST(plans_match_plans)
{
    struct rig rig;
    int32_t in[RANKS] = {1, 2, 3}, out[RANKS];
    struct comm_plan *plan[RANKS];
    struct comm_request q[RANKS];
    fake.delay = 5;
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *recorder;
        MUST(comm_plan_begin(rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, &in[r], &out[r], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_barrier(recorder, NULL));
        MUST(comm_broadcast(recorder, &out[r], 1, COMM_I32, 1, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int i = 0; i < 50; i++) {
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, RANKS);
        EQUAL(out[2], 6);
    }
    EQUAL(fake.started, 50 * 3 * RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        comm_plan_free(plan[r]);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ buffers held */
static uint32_t flags_of(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    return info.flags;
}

RIG_TEST(contract_4_3_buffers_are_held_until_close)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS], queued;
    struct comm_event *gate;
    fake.stalls = fake.holds = true;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    issue_sums(rig.world, in, out, q);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_allreduce(rig.world[0], &in[0], &out[1], 1, COMM_I32, COMM_SUM, &queued));
    MUST(comm_revoke(rig.world[0]));
    for (int32_t r = 0; r < RANKS; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_REVOKED);
        EQUAL(flags_of(q[r]), COMM_INFO_BUFFERS_HELD);
    }
    EQUAL(flags_of(queued), 0); /* it never started */
    IS(comm_close(rig.world[0], RIG_S / 10), COMM_ERR_TIMEOUT);
    EQUAL(fake.channels, RANKS); /* kept on purpose */
    fake.holds = false;
    MUST(comm_close(rig.world[1], RIG_S)); /* OK: the caller owns the buffers again */
    MUST(comm_close(rig.world[2], RIG_S));
    comm_event_free(gate);
}

RIG_TEST(contract_2_3_a_native_has_the_deadline_too)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake.stalls = true;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = RIG_S / 2));
    issue_sums(rig.world, in, out, q);
    int64_t start = rig_now();
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 5 * RIG_S);
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
        cmocka_unit_test(a_library_is_looked_at_when_nothing_is_pending),
        cmocka_unit_test(a_wait_ends_in_time_while_a_library_copies),
        cmocka_unit_test(an_opening_that_fails_leaves_nothing),
        cmocka_unit_test(a_native_that_never_connects),
        cmocka_unit_test(an_operation_that_fails),
        cmocka_unit_test(a_call_that_a_native_refuses),
        cmocka_unit_test(contract_4_5_calls_that_differ),
        cmocka_unit_test(plans_match_plans),
        cmocka_unit_test(contract_4_3_buffers_are_held_until_close),
        cmocka_unit_test(contract_2_3_a_native_has_the_deadline_too),
        cmocka_unit_test(children_have_a_native_when_all_members_have),
        cmocka_unit_test(a_child_whose_native_does_not_connect),
    };
    return cmocka_run_group_tests_name("engine_native", tests, NULL, NULL);
}
