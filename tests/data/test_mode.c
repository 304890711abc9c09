/* The caller's floating-point mode changes no result, and is restored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oracle.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#    include <xmmintrin.h>

/* Denormal inputs and results, and sums that depend on the rounding mode. */
static void fill(enum comm_type type, void *to, size_t elements, uint64_t *seed)
{
    for (size_t at = 0; at < elements; at++) {
        const uint64_t bits = oracle_random(seed);
        struct oracle_value value = {.f = (double)(int64_t)bits * 0x1p-62};
        if (at % 3 == 0) /* near the smallest normal number of the type */
            value.f *= type == COMM_F64 ? 0x1p-1022 : type == COMM_F16 ? 0x1p-15 : 0x1p-127;
        oracle_store(type, false, to, at, value);
    }
}

static void modes_do_not_matter(void **state)
{
    (void)state;
    enum { N = 77 };
    static const uint32_t modes[] = {0x9f80, 0x1fc0, 0x9fc0, 0x3f80, 0x5f80, 0x7f80, 0xffc0, 0x1fbf, 0x1f00};
    static const enum comm_type types[] = {COMM_F32, COMM_F64, COMM_F16, COMM_BF16};
    static const comm_op ops[] = {COMM_SUM, COMM_PROD, COMM_MIN, COMM_MAX, COMM_AVG};
    static char in[5][N * 8], to[N * 8], expected[N * 8];
    const uint32_t before = _mm_getcsr();
    uint64_t seed = 3;
    for (size_t i = 0; i < 4 * 5 * 9; i++) {
        const enum comm_type type = types[i % 4];
        const comm_op op = ops[i / 4 % 5];
        const uint32_t mode = modes[i / 20];
        const void *from[5];
        for (int w = 0; w < 5; w++) {
            fill(type, in[w], N, &seed);
            from[w] = in[w];
        }
        for (unsigned c = 0; c < 4u * (data_isa_best() + 1u); c++) {
            struct data_reduce reduce = {
                .from = from, .ways = c & 1 ? 2 : 5, .divisor = 3, .to = expected, .elements = c & 2 ? N : 3, .final = true};
            oracle_reduce(type, op, &reduce, expected);
            reduce.to = to;
            data_reduce_fn *const reducer = data_reducer(type, op, c / 4);
            _mm_setcsr(mode);
            reducer(&reduce);
            const uint32_t after = _mm_getcsr(), word = data_float_mode();
            _mm_setcsr(before);
            assert_int_equal(after & ~0x3fu, mode & ~0x3fu);
            assert_int_equal(word, mode & 0xe040);
            for (size_t at = 0; at < reduce.elements; at++)
                assert_true(oracle_same(type, false, to, expected, at));
        }
    }
    assert_int_equal(data_float_mode(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(modes_do_not_matter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    puts("skipped: this CPU's floating-point control word is not known to the library");
    return 77;
}
#endif
