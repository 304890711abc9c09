/* How results are stored in a peer's memory: the faster way is chosen, and chosen anew when the machine changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "program/store_policy.h"

enum { PIECE = 16384, MANY = 1024 };

/* Runs this many operations, each of which takes its way's time; returns how many stored near. */
static uint32_t run_many(struct store_policy *policy, uint32_t count, int64_t past_ns, int64_t near_ns)
{
    uint32_t went_near = 0;

    for (uint32_t i = 0; i < count; i++) {
        bool timed;
        enum store_way way = store_policy_choose(policy, &timed);
        assert_true(way == RUN_WAY_PAST || way == RUN_WAY_NEAR);
        went_near += way == RUN_WAY_NEAR;
        if (timed)
            store_policy_tell(policy, way, way == RUN_WAY_NEAR ? near_ns : past_ns, PIECE);
    }
    return went_near;
}

static void the_better_way_is_found(void **state)
{
    struct store_policy apart = {.turn = 0}, together = {.turn = 0};

    (void)state;
    assert_true(run_many(&apart, MANY, 1400, 3300) < MANY / 50);
    run_many(&together, MANY, 1200, 1500);
    assert_true(run_many(&together, MANY, 1200, 1500) > MANY - MANY / 50);
}

static void it_is_found_again_after_a_change(void **state)
{
    struct store_policy policy = {.turn = 0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        run_many(&policy, MANY, 1400, 3300);
        assert_true(run_many(&policy, MANY, 1400, 3300) < MANY / 50);
        run_many(&policy, MANY, 1200, 1000);
        assert_true(run_many(&policy, MANY, 1200, 1000) > MANY - MANY / 50);
    }
}

/* A piece during which the thread had no CPU. */
static void one_long_time_changes_nothing(void **state)
{
    struct store_policy policy = {.turn = 0};

    (void)state;
    run_many(&policy, MANY, 1200, 1100);
    store_policy_tell(&policy, RUN_WAY_NEAR, INT64_C(4000000000), PIECE);
    store_policy_tell(&policy, RUN_WAY_PAST, -5, PIECE); /* a clock that was set back */
    store_policy_tell(&policy, RUN_WAY_PAST, 1200, PIECE);
    assert_true(run_many(&policy, MANY, 1200, 1100) > MANY - MANY / 20);
}

/* Where time stands still, as in the simulator. */
static void without_times_results_go_past_the_cache(void **state)
{
    struct store_policy policy = {.turn = 0};

    (void)state;
    assert_true(run_many(&policy, MANY, 0, 0) < MANY / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_better_way_is_found),
        cmocka_unit_test(it_is_found_again_after_a_change),
        cmocka_unit_test(one_long_time_changes_nothing),
        cmocka_unit_test(without_times_results_go_past_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
