/* Every short length and alignment, through the cache and past it, with guard bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/data.h"

#include <string.h>

enum { ROOM = 1024, GUARD = 0x5a };
static _Alignas(64) unsigned char from[ROOM], to[ROOM];

static void copies(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t bytes = 0; bytes < 400; bytes++) {
        for (size_t offset = 0; offset < 64; offset += bytes % 2 ? 7 : 16) {
            for (int stream = 0; stream < 2; stream++) {
                memset(to, GUARD, ROOM);
                data_copy(to + offset, from + (bytes & 31), bytes, stream);
                assert_memory_equal(to + offset, from + (bytes & 31), bytes);
                for (size_t i = 0; i < ROOM; i++)
                    assert_true((i >= offset && i < offset + bytes) || to[i] == GUARD);
            }
        }
    }
    data_copy(NULL, NULL, 0, true);
    data_copy(from, from, ROOM, true);
    assert_int_equal(from[300], (unsigned char)(300 * 7 + 1));
}

/* The bytes arrive, one byte in each of their source lines is written, and nothing outside. */
static void takes(void **state)
{
    unsigned char before[ROOM];

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        before[i] = (unsigned char)(1 + i % 251);
    for (size_t bytes = 0; bytes < 400; bytes++) {
        for (int stream = 0; stream < 4; stream++) {
            size_t at = 64, offset = (size_t)(stream / 2) * 5;
            memcpy(from, before, ROOM);
            memset(to, GUARD, ROOM);
            data_take(to + offset, from + at, bytes, stream % 2);
            assert_memory_equal(to + offset, before + at, bytes);
            for (size_t i = 0; i < ROOM; i++) {
                assert_true((i >= offset && i < offset + bytes) || to[i] == GUARD);
                bool dirty = i >= at && i < at + bytes && i % 64 == 0;
                assert_int_equal(from[i], dirty ? 0 : before[i]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
