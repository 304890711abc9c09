/* The cache of programs: what takes turns stays, however the keys fall; what is too much makes room, and nothing is in it twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "program/cache.h"

enum { KEPT = PROGRAM_CACHE_PLACES / 2, TRIES = 2000 };

/* Only their addresses are used. */
static struct comm_program programs[1000];

/* What a caller does; returns whether it had to build. */
static bool use(struct program_cache *cache, uint64_t key, struct comm_program *program)
{
    struct cached_program *place = program_cache_place(cache, key);
    bool is_there = place->key == key;

    if (is_there)
        assert_ptr_equal(place->program, program);
    *place = (struct cached_program){key, program};
    return !is_there;
}

static void what_takes_turns_stays(void **state)
{
    (void)state;
    for (uint64_t try = 0; try < TRIES; try++) {
        struct program_cache cache = {.displaced = 0};
        for (uint64_t i = 0; i < KEPT; i++)
            assert_true(use(&cache, (try * KEPT + i + 1) << 32, &programs[i]));
        for (uint64_t i = 0; i < KEPT; i++)
            assert_false(use(&cache, (try * KEPT + i + 1) << 32, &programs[i]));
    }
}

static void too_many_make_room(void **state)
{
    struct program_cache cache = {.displaced = 0};
    uint32_t there = 0;

    (void)state;
    for (uint64_t round = 0; round < 3; round++)
        for (uint64_t i = 0; i < 1000; i++) {
            (void)use(&cache, i + 1, &programs[i]);
            assert_false(use(&cache, i + 1, &programs[i]));
        }
    for (uint32_t i = 0; i < PROGRAM_CACHE_PLACES; i++) {
        there += cache.place[i].key != 0;
        for (uint32_t k = 0; k < i; k++)
            assert_true(cache.place[k].key != cache.place[i].key);
    }
    assert_int_equal(there, PROGRAM_CACHE_PLACES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_takes_turns_stays),
        cmocka_unit_test(too_many_make_room),
    };

    return cmocka_run_group_tests_name("program_cache", tests, NULL, NULL);
}
