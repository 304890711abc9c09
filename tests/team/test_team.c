/* Teams: the world, subsets, who is who, and what a split makes of its tickets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "team/team.h"

#include <stdlib.h>
#include <string.h>

/* Counts what is taken and fails the n-th. */
static int taken, given, fail_at;

static void *take(const struct comm_env *env, size_t bytes, size_t align)
{
    (void)env;
    (void)align;
    return ++taken == fail_at ? NULL : calloc(1, bytes);
}

static void give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    (void)bytes;
    given++;
    free(memory);
}

static const struct comm_env env = {.take = take, .give = give};

static int fresh(void **state)
{
    (void)state;
    taken = given = fail_at = 0;
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    return taken - (fail_at && fail_at <= taken ? 1 : 0) == given ? 0 : -1;
}

static void the_world(void **state)
{
    struct team team, other;

    (void)state;
    assert_int_equal(team_world(&env, 77, 2, 5, &team), COMM_OK);
    assert_int_equal(team.rank, 2);
    assert_int_equal(team.size, 5);
    assert_int_equal(team.depth, 0);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(team_find(&team, i), i);
    assert_int_equal(team_find(&team, 5), -1);
    assert_int_equal(team_find(&team, -1), -1);
    assert_int_equal(team_world(&env, 78, 0, 5, &other), COMM_OK);
    assert_true(team.id && other.id && team.id != other.id);
    team_free(&env, &team);
    team_free(&env, &other);
    assert_null(team.world);
    team_free(&env, &team);
}

static void subsets(void **state)
{
    const int32_t members[] = {4, 0, 3}, inner[] = {2, 1};
    struct team world, there, half, same, later, deep;

    (void)state;
    assert_int_equal(team_world(&env, 1, 3, 5, &world), COMM_OK);
    assert_int_equal(team_world(&env, 1, 0, 5, &there), COMM_OK);
    assert_int_equal(team_subset(&env, &world, 9, 0, members, 3, &half), COMM_OK);
    assert_int_equal(half.rank, 2);
    assert_int_equal(half.size, 3);
    assert_int_equal(half.depth, 1);
    assert_int_equal(half.world[0], 4);
    assert_int_equal(half.world[1], 0);
    assert_int_equal(half.world[2], 3);
    assert_int_equal(team_find(&half, 3), 2);
    assert_int_equal(team_find(&half, 0), 1);
    assert_int_equal(team_find(&half, 1), -1);
    assert_int_equal(team_subset(&env, &there, 9, 0, members, 3, &same), COMM_OK);
    assert_int_equal(same.rank, 1);
    assert_true(same.id == half.id);
    assert_int_equal(team_subset(&env, &world, 10, 0, members, 3, &later), COMM_OK);
    assert_true(later.id != half.id && half.id != world.id);
    assert_int_equal(team_subset(&env, &half, 1, 0, inner, 2, &deep), COMM_OK);
    assert_int_equal(deep.world[0], 3);
    assert_int_equal(deep.world[1], 0);
    assert_int_equal(deep.depth, 2);
    struct team *all[] = {&world, &there, &half, &same, &later, &deep};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        team_free(&env, all[i]);
}

static void wrong_subsets(void **state)
{
    const int32_t twice[] = {1, 0, 1}, outside[] = {0, 1, 5}, negative[] = {1, -1}, without_me[] = {0, 2};
    struct team world, none = {.rank = 42};

    (void)state;
    assert_int_equal(team_world(&env, 1, 1, 5, &world), COMM_OK);
    assert_int_equal(team_subset(&env, &world, 1, 0, twice, 3, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(team_subset(&env, &world, 1, 0, outside, 3, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(team_subset(&env, &world, 1, 0, negative, 2, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(team_subset(&env, &world, 1, 0, without_me, 2, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(team_subset(&env, &world, 1, 0, twice, 0, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(team_subset(&env, &world, 1, 0, twice, 6, &none), COMM_ERR_ARGUMENT);
    assert_int_equal(none.rank, 42);
    team_free(&env, &world);
}

/* Every taking fails once; nothing stays behind (nothing_left looks). */
static void memory_runs_out(void **state)
{
    const int32_t members[] = {0, 1};
    struct team world, half;

    (void)state;
    fail_at = 1;
    assert_int_equal(team_world(&env, 1, 0, 2, &world), COMM_ERR_MEMORY);
    for (int n = 1; n <= 2; n++) {
        taken = given = fail_at = 0;
        assert_int_equal(team_world(&env, 1, 0, 2, &world), COMM_OK);
        fail_at = taken + n;
        assert_int_equal(team_subset(&env, &world, 1, 0, members, 2, &half), COMM_ERR_MEMORY);
        team_free(&env, &world);
        assert_int_equal(taken - 1, given);
    }
}

static void picks_by_color_key_and_rank(void **state)
{
    static const struct team_ticket tickets[] = {{.color = 1, .key = 5}, {.color = 0, .key = 9}, {.color = 1, .key = -3}, {.color = -1},
                                                 {.color = 1, .key = 5}, {.color = 0, .key = 9}, {.color = 1, .key = 0}};
    int32_t members[7];

    (void)state;
    assert_int_equal(team_pick(tickets, 7, 0, members), 4);
    assert_int_equal(members[0], 2);
    assert_int_equal(members[1], 6);
    assert_int_equal(members[2], 0);
    assert_int_equal(members[3], 4);
    assert_int_equal(team_pick(tickets, 7, 5, members), 2);
    assert_int_equal(members[0], 1);
    assert_int_equal(members[1], 5);
    assert_int_equal(team_pick(tickets, 7, 3, members), 0);
}

/* Against the definition, for many sizes, with few and with many equal keys. */
static void picks_are_sorted(void **state)
{
    enum { MOST = 257 };
    static struct team_ticket tickets[MOST];
    static int32_t members[MOST];
    uint32_t noise = 12345;

    (void)state;
    for (int32_t size = 1; size <= MOST; size++) {
        int32_t wanted = 0;
        for (int32_t i = 0; i < size; i++) {
            noise = noise * 1664525 + 1013904223;
            tickets[i] =
                (struct team_ticket){.color = (int32_t)(noise >> 30), .key = size % 2 ? (int32_t)noise : (int32_t)(noise >> 20 & 3)};
        }
        for (int32_t i = 0; i < size; i++)
            wanted += tickets[i].color == tickets[size / 2].color;
        assert_int_equal(team_pick(tickets, size, size / 2, members), wanted);
        for (int32_t i = 1; i < wanted; i++) {
            const struct team_ticket *a = &tickets[members[i - 1]], *b = &tickets[members[i]];
            assert_true(a->key < b->key || (a->key == b->key && members[i - 1] < members[i]));
            assert_int_equal(a->color, b->color);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_world, fresh, nothing_left),
        cmocka_unit_test_setup_teardown(subsets, fresh, nothing_left),
        cmocka_unit_test_setup_teardown(wrong_subsets, fresh, nothing_left),
        cmocka_unit_test_setup_teardown(memory_runs_out, fresh, nothing_left),
        cmocka_unit_test(picks_by_color_key_and_rank),
        cmocka_unit_test(picks_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
