/* Every short length and alignment, through the cache and past it, with guards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
