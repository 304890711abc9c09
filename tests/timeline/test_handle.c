/* Faces, requests, slots, exceptions, gates and points: what a request answers through its whole life and after. */
#define _GNU_SOURCE
#include "timeline/fake_env.h"
#include "timeline/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ITEM = sizeof(struct timeline_entry), MANY = TIMELINE_EXCEPTIONS + 500 };

static enum comm_result test_of(struct comm_communicator *handle, uint64_t ticket)
{
    return timeline_test((struct comm_request){handle, ticket});
}

/* One entry from issue to retirement. */
static uint64_t run_one(struct timeline *line, enum comm_result result)
{
    enum comm_result why;
    struct timeline_entry *e = timeline_room(line, &why);

    assert_non_null(e);
    *e = (struct timeline_entry){.kind = TIMELINE_WORK};
    uint64_t ticket = timeline_issue(line);
    assert_int_equal(timeline_startable(line), ticket);
    timeline_start(line, ticket);
    timeline_end(line, ticket, result);
    timeline_retire(line);
    return ticket;
}

/* ------------------------------------------------------------------------------------------------------------ requests as values */
static void requests_without_a_handle(void **state)
{
    (void)state;
    assert_int_equal(timeline_test(COMM_REQUEST_NONE), COMM_OK);
    assert_int_equal(timeline_test(timeline_refusal(COMM_ERR_FULL)), COMM_ERR_FULL);
    assert_int_equal(timeline_test(timeline_refusal(COMM_ERR_UNSUPPORTED)), COMM_ERR_UNSUPPORTED);
}

static void a_forked_child_is_told(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    (void)state;
    uint64_t next = atomic_load(&handle->next);
    assert_int_equal(test_of(handle, next), COMM_ERR_ARGUMENT);
    assert_int_equal(test_of(handle, 0), COMM_ERR_ARGUMENT);
    atomic_store(&fake_alive, 0);
    assert_int_equal(test_of(handle, next), COMM_ERR_FORKED);
    atomic_store(&fake_alive, 1);
    timeline_handle_give(handle);
}

/* ------------------------------------------------------------------------------------------------------------ exceptions */
static void the_last_two_thousand_errors(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    struct timeline line;
    static uint64_t ticket[MANY];
    (void)state;
    assert_int_equal(timeline_open(&line, &fake_env, handle, ITEM, 8, 64), COMM_OK);
    uint64_t well = run_one(&line, COMM_OK);
    for (int i = 0; i < MANY; i++)
        ticket[i] = run_one(&line, i % 2 ? COMM_ERR_TRUNCATED : COMM_ERR_ARGUMENT);
    uint64_t last = run_one(&line, COMM_OK);
    for (int i = 0; i < MANY; i++) {
        enum comm_result kept = i % 2 ? COMM_ERR_TRUNCATED : COMM_ERR_ARGUMENT;
        assert_int_equal(test_of(handle, ticket[i]), i < MANY - TIMELINE_EXCEPTIONS ? COMM_ERR_CLOSED : kept);
    }
    assert_int_equal(test_of(handle, well), COMM_OK); /* older than errors that are forgotten */
    assert_int_equal(test_of(handle, last), COMM_OK);
    timeline_close(&line);
    timeline_handle_give(handle);
}

/* Between errors that are forgotten, of work and of messages. After so many more requests that a later group took its place, a request that
 * succeeded is not distinguished from one that failed. */
static void successes_between_forgotten_errors(void **state)
{
    enum { FAR = 64 * TIMELINE_GROUPS };
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    struct timeline line;
    static uint64_t work[MANY], message[MANY];
    (void)state;
    assert_int_equal(timeline_open(&line, &fake_env, handle, ITEM, 8, 64), COMM_OK);
    for (int i = 0; i < MANY; i++) {
        enum comm_result result = i % 5 ? COMM_ERR_TRUNCATED : COMM_OK;
        work[i] = run_one(&line, result);
        message[i] = timeline_slot_open(handle, 0);
        if (result != COMM_OK)
            timeline_except(handle, message[i], result, false);
        timeline_slot_finish(handle, message[i], result);
    }
    for (int i = 0; i < MANY / 5; i++) {
        assert_int_equal(test_of(handle, work[i]), i % 5 ? COMM_ERR_CLOSED : COMM_OK);
        assert_int_equal(test_of(handle, message[i]), i % 5 ? COMM_ERR_CLOSED : COMM_OK);
    }
    for (int i = 0; i < FAR; i++)
        run_one(&line, i < FAR - 2 * MANY ? COMM_OK : COMM_ERR_TRUNCATED);
    assert_int_equal(test_of(handle, work[0]), COMM_ERR_CLOSED);
    assert_int_equal(test_of(handle, work[MANY - 1]), COMM_ERR_CLOSED);
    assert_int_equal(test_of(handle, message[0]), COMM_OK);
    timeline_close(&line);
    timeline_handle_give(handle);
}

static void untold_errors_once(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    struct timeline line;
    (void)state;
    assert_int_equal(timeline_open(&line, &fake_env, handle, ITEM, 8, 64), COMM_OK);
    assert_int_equal(timeline_untold(handle, handle->life), COMM_OK);
    uint64_t asked = run_one(&line, COMM_ERR_TRUNCATED);
    run_one(&line, COMM_ERR_ARGUMENT);
    run_one(&line, COMM_ERR_UNSUPPORTED);
    assert_int_equal(test_of(handle, asked), COMM_ERR_TRUNCATED); /* learned here: not told again */
    assert_int_equal(timeline_untold(handle, handle->life), COMM_ERR_ARGUMENT);
    assert_int_equal(timeline_untold(handle, handle->life), COMM_ERR_UNSUPPORTED);
    assert_int_equal(timeline_untold(handle, handle->life), COMM_OK);
    timeline_close(&line);
    timeline_handle_give(handle);
}

/* An error that cannot be kept is CLOSED, never a wrong OK. A fresh handle: a used one keeps its memory. */
static void no_memory_for_an_error(void **state)
{
    enum { FACES = 16 };
    struct comm_communicator *handle[FACES], *fresh = NULL;
    struct timeline line;
    int taken = 0;
    (void)state;
    while (taken < FACES && !fresh) {
        handle[taken] = timeline_handle_take(&fake_env, &line);
        assert_non_null(handle[taken]);
        if (!handle[taken]->failures)
            fresh = handle[taken];
        taken++;
    }
    assert_non_null(fresh);
    assert_int_equal(timeline_open(&line, &fake_env, fresh, ITEM, 8, 64), COMM_OK);
    fake_left = 0;
    uint64_t lost = run_one(&line, COMM_ERR_TRUNCATED);
    fake_left = -1;
    uint64_t kept = run_one(&line, COMM_ERR_TRUNCATED), well = run_one(&line, COMM_OK);
    assert_int_equal(test_of(fresh, lost), COMM_ERR_CLOSED);
    assert_int_equal(test_of(fresh, kept), COMM_ERR_TRUNCATED);
    assert_int_equal(test_of(fresh, well), COMM_OK);
    timeline_close(&line);
    while (taken > 0)
        timeline_handle_give(handle[--taken]);
}

/* ------------------------------------------------------------------------------------------------------------ handles */
static void handles_are_reused_oldest_first(void **state)
{
    struct comm_communicator *handle[3], *again[3], *used[16];
    uint64_t next[3];
    struct timeline line;
    int taken = 0;
    (void)state;
    while (true) { /* whatever other tests gave back first, so that the list is empty */
        long before = fake_held;
        handle[0] = timeline_handle_take(&fake_env, &line);
        if (fake_held != before)
            break;
        assert_true(taken < 16);
        used[taken++] = handle[0];
    }
    handle[1] = timeline_handle_take(&fake_env, &line);
    handle[2] = timeline_handle_take(&fake_env, &line);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(timeline_open(&line, &fake_env, handle[i], ITEM, 8, 64), COMM_OK);
        for (int k = 0; k <= i; k++)
            run_one(&line, k ? COMM_ERR_TRUNCATED : COMM_OK);
        timeline_close(&line);
        next[i] = atomic_load(&handle[i]->next);
        assert_int_equal(next[i], (uint64_t)i + 2);
    }
    for (int i = 0; i < 3; i++)
        timeline_handle_give(handle[(i + 1) % 3]);
    long before = fake_held;
    for (int i = 0; i < 3; i++) {
        again[i] = timeline_handle_take(&fake_env, &line);
        assert_ptr_equal(again[i], handle[(i + 1) % 3]);
    }
    assert_int_equal(fake_held, before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(test_of(handle[i], 1), COMM_ERR_CLOSED); /* of the earlier life */
        assert_int_equal(test_of(handle[i], next[i] - 1), COMM_ERR_CLOSED);
        assert_int_equal(test_of(handle[i], next[i]), COMM_ERR_ARGUMENT);
        assert_int_equal(timeline_untold(handle[i], handle[i]->life), COMM_OK); /* and its errors are not told in this one */
        assert_int_equal(timeline_open(&line, &fake_env, handle[i], ITEM, 8, 64), COMM_OK);
        assert_int_equal(run_one(&line, COMM_OK), next[i]);
        assert_int_equal(test_of(handle[i], next[i]), COMM_OK);
        timeline_close(&line);
        timeline_handle_give(handle[i]);
    }
    while (taken > 0)
        timeline_handle_give(used[--taken]);
}

static void no_memory_for_a_handle(void **state)
{
    struct comm_communicator *used[16];
    int taken = 0;
    (void)state;
    fake_left = 0;
    while (taken < 16 && (used[taken] = timeline_handle_take(&fake_env, NULL)) != NULL)
        taken++;
    assert_true(taken < 16);
    fake_left = -1;
    while (taken > 0)
        timeline_handle_give(used[--taken]);
}

/* ------------------------------------------------------------------------------------------------------------ slots */
static void slots_and_their_generations(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    (void)state;
    uint64_t first = timeline_slot_open(handle, 3);
    assert_true(first & TIMELINE_MESSAGE);
    assert_int_equal(timeline_slot_index(first), 3);
    assert_int_equal(test_of(handle, first), COMM_PENDING);
    assert_int_equal(test_of(handle, TIMELINE_MESSAGE | (timeline_slot_number(first) + 1) << TIMELINE_INDEX_BITS | 3), COMM_ERR_ARGUMENT);
    assert_int_equal(test_of(handle, TIMELINE_MESSAGE | timeline_slot_number(first) << TIMELINE_INDEX_BITS | 100000), COMM_ERR_ARGUMENT);
    timeline_slot_finish(handle, first, COMM_OK);
    assert_int_equal(test_of(handle, first), COMM_OK);
    uint64_t second = timeline_slot_open(handle, 3);
    assert_int_equal(timeline_slot_number(second), timeline_slot_number(first) + 1);
    assert_int_equal(test_of(handle, first), COMM_OK); /* the slot is another's, its result is not lost */
    assert_int_equal(test_of(handle, second), COMM_PENDING);
    timeline_except(handle, second, COMM_ERR_CANCELLED, false);
    timeline_slot_finish(handle, second, COMM_ERR_CANCELLED);
    assert_int_equal(test_of(handle, second), COMM_ERR_CANCELLED);
    uint64_t third = timeline_slot_open(handle, 3);
    timeline_slot_finish(handle, third, COMM_OK);
    assert_int_equal(test_of(handle, second), COMM_ERR_CANCELLED);
    timeline_handle_give(handle);
}

/* A number that was used up would be taken for an older one. */
static void numbers_are_used_up(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    (void)state;
    handle->next_message = TIMELINE_NUMBERS - 1;
    uint64_t last = timeline_slot_open(handle, 3);
    assert_int_equal(test_of(handle, last), COMM_PENDING);
    assert_int_equal(timeline_slot_index(last), 3);
    assert_int_equal(timeline_slot_open(handle, 4), 0);
    timeline_slot_finish(handle, last, COMM_OK);
    assert_int_equal(test_of(handle, last), COMM_OK);
    timeline_handle_give(handle);
    struct comm_communicator *next = timeline_handle_take(&fake_env, &next);
    assert_true(next != handle); /* it serves no other communicator */
    timeline_handle_give(next);
}

/* Every index of every chunk has a word of its own. */
static void slots_in_every_chunk(void **state)
{
    enum { SLOTS = 5000 };
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    static uint64_t ticket[SLOTS];
    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++)
        ticket[i] = timeline_slot_open(handle, i);
    for (uint32_t i = 0; i < SLOTS; i += 3)
        timeline_slot_finish(handle, ticket[i], COMM_ERR_TRUNCATED);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(test_of(handle, ticket[i]), i % 3 ? COMM_PENDING : COMM_ERR_TRUNCATED);
    assert_int_equal(timeline_slot_open(handle, UINT32_C(64) * 65535), 0); /* beyond the last chunk */
    fake_left = 0;
    assert_int_equal(timeline_slot_open(handle, 100000), 0);
    fake_left = -1;
    assert_int_not_equal(timeline_slot_open(handle, 100000), 0);
    timeline_handle_give(handle);
}

static void messages_have_their_own_errors(void **state)
{
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    static uint64_t ticket[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++) { /* one slot, again and again */
        ticket[i] = timeline_slot_open(handle, 0);
        timeline_except(handle, ticket[i], COMM_ERR_TRUNCATED, false);
        timeline_slot_finish(handle, ticket[i], COMM_ERR_TRUNCATED);
    }
    for (int i = 0; i < MANY; i++)
        assert_int_equal(test_of(handle, ticket[i]), i < MANY - TIMELINE_EXCEPTIONS ? COMM_ERR_CLOSED : COMM_ERR_TRUNCATED);
    timeline_handle_give(handle);
    for (int i = 0; i < MANY; i++) { /* its result, or that it is over: never a wrong OK */
        enum comm_result after = test_of(handle, ticket[i]);
        assert_true(after == COMM_ERR_CLOSED || (after == COMM_ERR_TRUNCATED && i >= MANY - TIMELINE_EXCEPTIONS));
    }
}

/* ------------------------------------------------------------------------------------------------------------ points */
static void gates_are_shared(void **state)
{
    long before = fake_held;
    (void)state;
    struct timeline_manual *manual = timeline_manual_make(&fake_env);
    struct timeline_point point = {.kind = POINT_MANUAL, .manual = manual}, copy = timeline_point_copy(&point);
    assert_int_equal(timeline_point_test(&point), COMM_PENDING);
    atomic_store(&manual->state, COMM_OK);
    timeline_point_drop(&point);
    assert_int_equal(point.kind, POINT_REACHED);
    timeline_point_drop(&point); /* dropped once only */
    assert_int_equal(fake_held, before + 1);
    assert_int_equal(timeline_point_test(&copy), COMM_OK);
    atomic_store(&manual->state, COMM_ERR_ABANDONED);
    assert_int_equal(timeline_point_test(&copy), COMM_ERR_ABANDONED);
    timeline_point_drop(&copy);
    assert_int_equal(fake_held, before);
    fake_left = 0;
    assert_null(timeline_manual_make(&fake_env));
    fake_left = -1;
}

static void words_and_requests_as_points(void **state)
{
    static _Atomic uint64_t word = 4;
    struct comm_communicator *handle = timeline_handle_take(&fake_env, &handle);
    uint64_t slot = timeline_slot_open(handle, 0);
    struct timeline_point none = {0}, foreign = {.kind = POINT_WORD, .word = &word, .value = 5},
                          request = {.kind = POINT_REQUEST, .request = {handle, slot}};
    (void)state;
    assert_int_equal(timeline_point_test(&none), COMM_OK);
    assert_int_equal(timeline_point_test(&foreign), COMM_PENDING);
    atomic_store(&word, 6);
    assert_int_equal(timeline_point_test(&foreign), COMM_OK);
    assert_int_equal(timeline_point_test(&request), COMM_PENDING);
    timeline_slot_finish(handle, slot, COMM_ERR_PEER);
    assert_int_equal(timeline_point_test(&request), COMM_ERR_PEER);
    timeline_handle_give(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_without_a_handle),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(the_last_two_thousand_errors),
        cmocka_unit_test(successes_between_forgotten_errors),
        cmocka_unit_test(untold_errors_once),
        cmocka_unit_test(no_memory_for_an_error),
        cmocka_unit_test(handles_are_reused_oldest_first),
        cmocka_unit_test(no_memory_for_a_handle),
        cmocka_unit_test(slots_and_their_generations),
        cmocka_unit_test(numbers_are_used_up),
        cmocka_unit_test(slots_in_every_chunk),
        cmocka_unit_test(messages_have_their_own_errors),
        cmocka_unit_test(gates_are_shared),
        cmocka_unit_test(words_and_requests_as_points),
    };
    return cmocka_run_group_tests_name("timeline_handle", tests, NULL, NULL);
}
