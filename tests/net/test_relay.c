/* Forwarded words: the fuzzer's model over generated rows of words, most of them valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/frame/frame.h"
#include "fuzz/fuzz.h"

#include <commstream/result.h>

#include <stdbool.h>
#include <string.h>

enum { ROOM = 65536, HEAD = 15, ROWS = 1500, LONGEST = 60, NOTE = 1, CALLS, DOWN, GOODBYE };

struct row {
    unsigned char bytes[ROOM];
    size_t count;
    uint32_t name; /* of the channel on the only rank */
};
static struct row row;

static uint64_t seed = 88172645463325252u;
static uint32_t dice(uint32_t sides)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed % sides);
}

/* Adds a word. The payload is zero except its first words. */
static void add(uint32_t via, uint32_t kind, uint32_t origin, uint32_t number, uint32_t sort, uint32_t bytes, uint32_t first,
                int32_t second)
{
    static const uint32_t member[] = {0, 0, 0, 1, 2, 0, 3, 0}; /* rank in the team of each world rank */
    unsigned char *at = row.bytes + row.count, *payload = at + HEAD;
    size_t length = FRAME_PASS_HEAD + (size_t)bytes;

    if (row.count + HEAD + length > ROOM)
        return;
    memset(at, 0, HEAD + length);
    at[0] = (unsigned char)via;
    at[1] = (unsigned char)length;
    at[2] = (unsigned char)(length >> 8);
    base_put32(at + 3, sort);
    payload[0] = 1;
    base_put32(payload + 8, origin);
    base_put32(payload + 12, number);
    base_put32(payload + 16, 1 << 16);
    base_put32(payload + 20, kind);
    base_put32(payload + 24, member[origin % 8]);
    if (bytes >= 8) {
        base_put32(payload + FRAME_PASS_HEAD, first);
        base_put32(payload + FRAME_PASS_HEAD + 4, (uint32_t)second);
    }
    row.count += HEAD + length;
}

static int hear(void)
{
    int fresh = fuzz_relay(row.bytes, row.count);

    row.count = 0;
    return fresh;
}

/*
 * A word that its first receiver must refuse is not forwarded. Otherwise one rank's invalid word would cost all others their connections.
 */
static void nonsense_goes_no_further(void **state)
{
    static const struct {
        uint32_t kind, sort, bytes, first;
        int32_t second;
    } cases[] = {{NOTE, 5, 8, 0, 0},
                 {NOTE, 0, 49, 0, 0},
                 {NOTE, 4, 513, 0, 0},
                 {CALLS, 0, 33, 0, 0},
                 {DOWN, 0, 24, 8, COMM_ERR_PEER},
                 {DOWN, 0, 24, 2, 0},
                 {DOWN, 0, 23, 2, COMM_ERR_PEER},
                 {0, 0, 0, 0, 0},
                 {5, 0, 0, 0, 0},
                 {GOODBYE, 0, 1, 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        add(0, cases[i].kind, 4, 1, cases[i].sort, cases[i].bytes, cases[i].first, cases[i].second);
        assert_int_equal(hear(), 0);
    }
    for (uint32_t origin = 3; origin < 10; origin += origin == 3 ? 5 : 1) { /* this rank itself, and a rank that does not exist */
        add(0, NOTE, origin, 1, 0, 8, 0, 0);
        assert_int_equal(hear(), 0);
    }
}

static void each_once(void **state)
{
    (void)state;
    for (uint32_t number = 1; number <= 5; number++)
        for (uint32_t via = 0; via < 6; via++)
            add(via, NOTE, 4, number, number % 5, 8, 1, 2);
    assert_int_equal(hear(), 5);
    for (uint32_t number = 5; number > 0; number--) /* over a new connection, in reverse order */
        add(0, CALLS, 6, number, 0, 64, number, 0);
    add(1, DOWN, 1, 1, 0, 24, 2, COMM_ERR_PEER);
    add(1, GOODBYE, 7, 1, 0, 0, 0, 0);
    assert_int_equal(hear(), 7);
}

static void anything(void **state)
{
    static const uint32_t lengths[] = {0, 8, 24, 32, 48, 49, 64, 512, 513, 4096};
    int fresh = 0;

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        uint32_t number[8] = {0};
        for (uint32_t said = dice(LONGEST); said; said--) {
            uint32_t origin = dice(16) ? dice(8) : dice(20), of = origin % 8;
            number[of] += dice(20) ? 1 : dice(200);
            add(dice(6), dice(16) ? NOTE + dice(2) : dice(6), origin, number[of] - (dice(3) ? 0 : dice(80)), dice(30) ? dice(5) : dice(8),
                lengths[dice(sizeof lengths / sizeof *lengths)], dice(10), dice(2) ? COMM_ERR_PEER : (int32_t)dice(40) - 20);
        }
        fresh += hear();
    }
    assert_true(fresh > 5 * ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_once),
        cmocka_unit_test(nonsense_goes_no_further),
        cmocka_unit_test(anything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
