/*
 * Natives under the engine that fail: openings, operations and calls that a native refuses, calls that differ, and the buffers that it may
 * still use after a failure.
 */
#define _GNU_SOURCE
#include "engine/cases.h"

#include "engine/memory_env.h"
#include "engine/native_calls.h"
#include "wire/native.h"

#include <stdio.h>
#include <string.h>

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

RIG_CASE(an_opening_that_fails_leaves_nothing)
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

RIG_CASE(a_native_that_never_connects)
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

/* COMM_FOREVER is no deadline that has passed. */
RIG_CASE(a_native_that_connects_late)
{
    struct comm_communicator *world[RANKS];
    fake.connects = 20;
    MUST(comm_open_local(COMM_CONFIG(.open_timeout_ns = COMM_FOREVER), RANKS, NULL, world));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(world[r], RIG_S));
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

RIG_CASE(an_operation_that_fails)
{
    for (uint64_t i = 1; i <= RANKS; i++) {
        operation_fails(FAKE_START, i);
        operation_fails(FAKE_ENDS, i);
    }
}

/* The monitor must not enter such a native, but may be the one that notices a failure. Then the native hears of it before the close;
 * otherwise it would wait for the other ranks at its end. */
RIG_CASE(a_failure_that_the_monitor_notices)
{
    struct rig rig;
    fake.flags = NATIVE_CALLER;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER));
    rig_proves_alive(rig.world, RANKS);
    EQUAL(fake.failed, 0);
    MUST(comm_abort(rig.world[0], 3));
    rig_nap(RIG_S);
    for (int32_t r = 0; r < RANKS; r++)
        (void)!comm_close(rig.world[r], RIG_S);
    EQUAL(fake.failed, RANKS);
    EQUAL(fake.channels, 0);
}

/* If a native rejects the arguments of one rank, that rank's call is refused. The number is used up, and ranks that started the call get
 * REFUSED. */
RIG_CASE(a_call_that_a_native_refuses)
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

RIG_CASE(contract_4_5_calls_that_differ)
{
    differ(4000, 3000, COMM_SUM, false);
    differ(4000, 4000, COMM_MAX, false);
    differ(4000, 4000, COMM_SUM, true);
    differ(2, 3, COMM_SUM, false);
    differ(2, 2, COMM_MAX, false);
    differ(2, 2, COMM_SUM, true);
}

/* ------------------------------------------------------------------------------------------------------------ buffers held */
static uint32_t flags_of(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    return info.flags;
}

RIG_CASE(contract_4_3_buffers_are_held_until_close)
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
    CHECK(fake.failed >= RANKS && !fake.gone);
    IS(comm_close(rig.world[0], RIG_S / 10), COMM_ERR_TIMEOUT);
    EQUAL(fake.channels, RANKS); /* kept on purpose */
    fake.holds = false;
    MUST(comm_close(rig.world[1], RIG_S)); /* OK: the caller owns the buffers again */
    MUST(comm_close(rig.world[2], RIG_S));
    comm_event_free(gate);
}

/* Some libraries do not survive another call once a rank is gone, so they are told why they are left. */
RIG_CASE(contract_4_3_a_native_is_told_that_a_rank_is_gone)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake.stalls = fake.holds = true;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    issue_sums(rig.world, in, out, q);
    IS(comm_close(rig.world[0], RIG_S / 10), COMM_ERR_TIMEOUT);
    uint64_t of_closing = fake.failed;
    for (int32_t r = 1; r < RANKS; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_CLOSED);
        EQUAL(flags_of(q[r]), COMM_INFO_BUFFERS_HELD);
    }
    CHECK(fake.gone >= RANKS - 1 && fake.failed == of_closing);
    for (int32_t r = 1; r < RANKS; r++)
        IS(comm_close(rig.world[r], RIG_S / 10), COMM_ERR_TIMEOUT); /* it asks with the same cause */
    CHECK(fake.gone >= 2 * (RANKS - 1) && fake.failed == of_closing);
}

RIG_CASE(contract_2_3_a_native_has_the_deadline_too)
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
