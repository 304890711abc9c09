/* What the random programs do not say: bounds, memory that ends, late events, and that nothing is allocated below the high-water mark. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

static struct fake_world world;
static struct fake_env env;

static enum comm_result post(int32_t rank, bool is_send, int32_t peer, uint32_t tag, void *buf, size_t bytes, uint32_t slot)
{
    struct message_call call = {.buf = buf, .bytes = bytes, .peer = peer, .tag = tag, .slot = slot, .is_send = is_send};
    return message_post(world.room[rank], &call);
}

static void expect_finished(int32_t rank, uint32_t slot, enum comm_result result)
{
    struct message_finished out;
    assert_int_equal(message_take_finished(world.room[rank], &out, 1), 1);
    assert_int_equal(out.slot, slot);
    assert_int_equal(out.result, result);
}

static int open_two(void **state)
{
    (void)state;
    fake_env_open(&env);
    fake_open(&world, &env.base, 2, 1000, 7);
    return 0;
}

static int close_two(void **state)
{
    (void)state;
    fake_close(&world);
    return env.held == 0 ? 0 : -1;
}

static void full_says_so_and_changes_nothing(void **state)
{
    (void)state;
    char byte = 0;
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(post(0, false, 1, i, &byte, 1, i), COMM_OK);
    assert_int_equal(post(0, false, 1, 0, &byte, 1, 1000), COMM_ERR_FULL);
    assert_int_equal(message_pending(world.room[0]), 1000);
    assert_int_equal(message_cancel(world.room[0], 1000, COMM_ERR_CANCELLED), COMM_ERR_STATE);
    assert_int_equal(message_cancel(world.room[0], 500, COMM_ERR_CANCELLED), COMM_OK);
    expect_finished(0, 500, COMM_ERR_CANCELLED);
    assert_int_equal(post(0, false, 1, 0, &byte, 1, 1000), COMM_OK);
    message_cancel_all(world.room[0]);
}

static void nothing_is_allocated_below_the_mark(void **state)
{
    (void)state;
    char from[64], to[64];
    uint64_t takes = 0;
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 200; i++)
            assert_int_equal(post(0, true, 1, i, from, sizeof from, i), COMM_OK);
        fake_drain(&world);
        for (uint32_t i = 200; i-- > 0;)
            assert_int_equal(post(1, false, i % 3 ? 0 : COMM_ANY_PEER, i, to, sizeof to, i), COMM_OK);
        fake_drain(&world);
        struct message_finished out[200];
        assert_int_equal(message_take_finished(world.room[0], out, 200), 200);
        assert_int_equal(message_take_finished(world.room[1], out, 200), 200);
        if (round == 0)
            takes = env.takes;
    }
    assert_int_equal(env.takes, takes);
}

static void a_post_without_memory_leaves_nothing(void **state)
{
    (void)state;
    char byte = 0;
    env.fail_from = env.takes + 1;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 0), COMM_ERR_MEMORY);
    assert_int_equal(message_pending(world.room[0]), 0);
    env.fail_from = 0;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 0), COMM_OK);
    expect_finished(0, 0, COMM_OK);
}

/* Buckets that could not be made cost time alone. */
static void matching_does_without_buckets(void **state)
{
    (void)state;
    char byte = 0;
    env.fail_from = env.takes + 2;
    assert_int_equal(post(0, false, 0, 5, &byte, 1, 0), COMM_OK);
    env.fail_from = 0;
    assert_int_equal(post(0, false, 0, 6, &byte, 1, 1), COMM_OK);
    assert_int_equal(post(0, true, 0, 6, &byte, 1, 2), COMM_OK);
    expect_finished(0, 2, COMM_OK);
    expect_finished(0, 1, COMM_OK);
    for (uint32_t i = 3; i < 300; i++)
        assert_int_equal(post(0, false, 0, 5, &byte, 1, i), COMM_OK);
    for (uint32_t i = 300; i < 310; i++) {
        uint32_t expected = i == 300 ? 0 : i - 298;
        assert_int_equal(post(0, true, 0, 5, &byte, 1, i), COMM_OK);
        expect_finished(0, i, COMM_OK);
        expect_finished(0, expected, COMM_OK);
    }
}

static void an_arrival_without_memory_ends_what_it_could_have_matched(void **state)
{
    (void)state;
    char from[8] = "abcdefg", to[8];
    assert_int_equal(post(1, true, 0, 3, from, sizeof from, 0), COMM_OK);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(post(0, false, 1, 9, to, sizeof to, i), COMM_OK);
    env.fail_from = env.takes + 1;
    assert_true(fake_act(&world));
    for (uint32_t i = 0; i < 64; i++)
        expect_finished(0, i, COMM_ERR_MEMORY);
    env.fail_from = 0;
    assert_int_equal(post(0, false, 1, 3, to, sizeof to, 64), COMM_ERR_MEMORY);
    assert_int_equal(message_pending(world.room[0]), 0);
}

static void a_self_send_waits_for_its_receive(void **state)
{
    (void)state;
    char from[8] = "abcdefg", to[8] = "";
    struct message_finished out;
    assert_int_equal(post(0, true, 0, 3, from, sizeof from, 0), COMM_OK);
    assert_int_equal(message_take_finished(world.room[0], &out, 1), 0);
    assert_int_equal(message_cancel(world.room[0], 0, COMM_ERR_CANCELLED), COMM_ERR_STATE);
    assert_int_equal(post(0, false, COMM_ANY_PEER, COMM_ANY_TAG, to, sizeof to, 1), COMM_OK);
    expect_finished(0, 0, COMM_OK);
    expect_finished(0, 1, COMM_OK);
    assert_string_equal(to, "abcdefg");
}

static void a_late_event_of_a_failed_life_is_ignored(void **state)
{
    (void)state;
    char byte = 0;
    struct message_finished out;
    world.pending_percent = 100;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 0), COMM_OK);
    uint64_t cookie = world.message[0].send_cookie;
    message_fail(world.room[0], COMM_ERR_REVOKED);
    expect_finished(0, 0, COMM_ERR_REVOKED);
    message_event(world.room[0], &(struct wire_event){.kind = WIRE_EVENT_DONE, .cookie = cookie});
    message_event(world.room[0], &(struct wire_event){.kind = WIRE_EVENT_ANNOUNCED, .result = WIRE_MESSAGE, .peer = 1, .bytes = 1});
    message_event(world.room[0], &(struct wire_event){.kind = WIRE_EVENT_DONE, .cookie = ~UINT64_C(0)});
    assert_int_equal(message_take_finished(world.room[0], &out, 1), 0);
    assert_int_equal(post(0, false, 1, 0, &byte, 1, 1), COMM_ERR_REVOKED);
}

static void an_event_told_twice_ends_nothing_else(void **state)
{
    (void)state;
    char byte = 0;
    struct message_finished out;
    world.pending_percent = 100;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 0), COMM_OK);
    struct wire_event event = {.kind = WIRE_EVENT_DONE, .cookie = world.message[0].send_cookie};
    message_event(world.room[0], &event);
    expect_finished(0, 0, COMM_OK);
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 1), COMM_OK);
    message_event(world.room[0], &event);
    assert_int_equal(message_take_finished(world.room[0], &out, 1), 0);
    event.cookie = world.message[1].send_cookie;
    message_event(world.room[0], &event);
    expect_finished(0, 1, COMM_OK);
}

static void a_stalled_peer_holds_back_no_other(void **state)
{
    (void)state;
    fake_close(&world);
    fake_open(&world, &env.base, 3, 1000, 7);
    char byte = 0;
    world.again_percent = 100;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 0), COMM_OK);
    assert_true(message_wants_step(world.room[0]));
    assert_false(message_step(world.room[0]));
    world.again_percent = 0;
    assert_int_equal(post(0, true, 1, 0, &byte, 1, 1), COMM_OK);
    assert_int_equal(world.messages, 0);
    assert_int_equal(post(0, true, 2, 0, &byte, 1, 2), COMM_OK);
    assert_int_equal(world.messages, 1);
    expect_finished(0, 2, COMM_OK);
    assert_true(message_step(world.room[0]));
    assert_false(message_wants_step(world.room[0]));
    expect_finished(0, 0, COMM_OK);
    expect_finished(0, 1, COMM_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_two, close_two)
    const struct CMUnitTest tests[] = {
        TEST(full_says_so_and_changes_nothing),
        TEST(nothing_is_allocated_below_the_mark),
        TEST(a_post_without_memory_leaves_nothing),
        TEST(matching_does_without_buckets),
        TEST(an_arrival_without_memory_ends_what_it_could_have_matched),
        TEST(a_self_send_waits_for_its_receive),
        TEST(a_late_event_of_a_failed_life_is_ignored),
        TEST(an_event_told_twice_ends_nothing_else),
        TEST(a_stalled_peer_holds_back_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
