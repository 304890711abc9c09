/* Every short length and alignment, through the cache and past it, with guard bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/data.h"

#include <string.h>

enum { ROOM = 1024, SWAP_ROOM = 4608, GUARD = 0x5a };
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

/* One exchange: all three destinations, or some of them; the place is that of the view, or another. */
static void swap_once(size_t bytes, size_t offset, size_t apart, unsigned which)
{
    static _Alignas(64) unsigned char taken[SWAP_ROOM], kept[SWAP_ROOM], place[SWAP_ROOM], view[SWAP_ROOM], was[SWAP_ROOM],
        given[SWAP_ROOM];
    unsigned char *at = which & 8 ? view : place;

    memset(taken, GUARD, SWAP_ROOM);
    memset(kept, GUARD, SWAP_ROOM);
    memset(place, GUARD, SWAP_ROOM);
    for (size_t i = 0; i < SWAP_ROOM; i++) {
        view[i] = (unsigned char)(i * 7 + i / 256);
        given[i] = (unsigned char)(i * 5 + 3);
    }
    memcpy(was, view, SWAP_ROOM);
    data_swap(&(struct data_swap){.taken = which & 1 ? (char *)taken + offset : NULL,
                                  .view = which & 1 ? (char *)view : NULL,
                                  .place = which & 2 ? (char *)at : NULL,
                                  .kept = which & 4 ? (char *)kept + offset + apart : NULL,
                                  .given = which & 6 ? (char *)given : NULL,
                                  .bytes = bytes,
                                  .nontemporal = which & 16});
    for (size_t i = 0; i < SWAP_ROOM; i++) {
        bool in_taken = which & 1 && i >= offset && i < offset + bytes;
        bool in_kept = which & 4 && i >= offset + apart && i < offset + apart + bytes;
        unsigned char lay = at == view ? was[i] : GUARD;
        assert_int_equal(taken[i], in_taken ? was[i - offset] : GUARD);
        assert_int_equal(kept[i], in_kept ? given[i - offset - apart] : GUARD);
        assert_int_equal(at[i], which & 2 && i < bytes ? given[i] : lay);
    }
}

static void swaps(void **state)
{
    (void)state;
    for (unsigned which = 1; which < 32; which++)
        for (size_t bytes = 0; bytes <= 4300; bytes += bytes < 130 ? 3 : 1390)
            for (size_t offset = 0; offset < 64; offset += 16 + offset % 3)
                for (size_t apart = 0; apart < 128; apart += 40 + apart % 64)
                    swap_once(bytes, offset, apart, which);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(takes), cmocka_unit_test(swaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
