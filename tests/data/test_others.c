/* The types that use other types' kernels, or are reduced element by element: compared with the oracle of the
 * conformance tests, in one step and with partial results. Also every conversion of an 8-bit float. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "conform/oracle.h"
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 200, SLOT = MOST * 16 + 64, GUARD = 0x5a };

static const enum comm_type types[] = {COMM_F8E4M3,    COMM_F8E5M2,    COMM_BOOL,      COMM_C64,      COMM_C128,
                                       COMM_F32_INDEX, COMM_F64_INDEX, COMM_I32_INDEX, COMM_I64_INDEX};
static const uint32_t all_ways[] = {1, 2, 3, 4, 5, 8, 13, 33, 64};
static const size_t counts[] = {0, 1, 2, 63, 64, 65, MOST};

static char input[DATA_WAYS_MAX][SLOT], output[SLOT], second[SLOT], expected[SLOT], partial[DATA_WAYS_MAX][SLOT * 4];
static const void *from[DATA_WAYS_MAX];

static void fill(enum comm_type type, comm_op op, uint32_t ways, size_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < ways; i++) {
        char *at = input[i] + (seed + i) % 5; /* at odd addresses */
        oracle_fill(at, n, type, op, seed, (int32_t)i);
        from[i] = at;
    }
    oracle_reduce(from, (int32_t)ways, n, type, op, expected);
    memset(output, GUARD, SLOT);
    memset(second, GUARD, SLOT);
}

static void same(enum comm_type type, comm_op op, uint32_t ways, size_t n, const char *got, const char *what)
{
    char a[64], b[64];
    size_t bad = oracle_differ(got, expected, n, type);
    if (bad < n)
        fail_msg("%s %s, %u ways, %zu elements, %s: element %zu is %s, must be %s", oracle_type_name(type), oracle_op_name(op), ways, n,
                 what, bad, oracle_text(got, bad, type, a), oracle_text(expected, bad, type, b));
    assert_int_equal(got[n * oracle_type_bytes(type)], GUARD);
}

static void at_once(enum comm_type type, comm_op op, uint32_t ways, size_t n, enum data_isa isa)
{
    struct data_reduce reduce = {
        .from = from, .ways = ways, .divisor = ways, .to = output, .also = n % 2 ? second : NULL, .elements = n, .final = true};
    data_reducer(type, op, isa)(&reduce);
    same(type, op, ways, n, output, "at once");
    if (n % 2)
        same(type, op, ways, n, second, "the second result");
    /* In place of an input: the last one, which is on the right of all others. */
    memcpy(output, from[ways - 1], n * oracle_type_bytes(type));
    const void *own[DATA_WAYS_MAX];
    memcpy(own, from, sizeof own);
    own[ways - 1] = output;
    reduce.from = own;
    data_reducer(type, op, isa)(&reduce);
    same(type, op, ways, n, output, "in place");
}

/* Reduces aligned groups first, in the accumulator; a group of one stays as it is. */
static void by_groups(enum comm_type type, comm_op op, uint32_t ways, size_t n, uint32_t group, enum data_isa isa)
{
    const void *groups[DATA_WAYS_MAX];
    uint64_t in_accumulator = 0;
    uint32_t count = 0;
    for (uint32_t first = 0; first < ways; first += group, count++) {
        uint32_t here = ways - first < group ? ways - first : group;
        struct data_reduce part = {.from = from + first, .ways = here, .divisor = ways, .to = partial[count], .elements = n};
        groups[count] = here == 1 ? from[first] : partial[count];
        if (here == 1)
            continue;
        data_reducer(type, op, isa)(&part);
        in_accumulator |= UINT64_C(1) << count;
    }
    memset(output, GUARD, SLOT);
    struct data_reduce whole = {
        .from = groups, .partial = in_accumulator, .ways = count, .divisor = ways, .to = output, .elements = n, .final = true};
    data_reducer(type, op, isa)(&whole);
    same(type, op, ways, n, output, "by groups");
}

static void against_the_oracle(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (comm_op op = COMM_SUM; op <= COMM_MAXLOC; op++) {
            assert_int_equal(data_check(types[t], op, NULL) == COMM_OK, oracle_pair(types[t], op));
            assert_int_equal(data_pair_bytes(types[t], op), oracle_pair(types[t], op) ? oracle_type_bytes(types[t]) : 0);
            for (size_t i = 0; oracle_pair(types[t], op) && i < sizeof all_ways / sizeof *all_ways * 7; i++) {
                uint32_t ways = all_ways[i / 7];
                size_t n = counts[i % 7];
                for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++) {
                    fill(types[t], op, ways, n, seed++);
                    at_once(types[t], op, ways, n, isa);
                    for (uint32_t group = 2; group < ways; group *= 2)
                        by_groups(types[t], op, ways, n, group, isa);
                }
            }
        }
    }
}

/* All 256 values survive a conversion. Values between two of them, and beyond the largest, are rounded as the oracle's
 * search for the nearest value says. */
static void every_8_bit_float(void **state)
{
    static const enum comm_type small[] = {COMM_F8E4M3, COMM_F8E5M2};
    (void)state;
    for (int t = 0; t < 2; t++) {
        uint8_t all[256], back[256], want[256];
        float wide[256];
        const void *one[1] = {all}, *two[2] = {all, all}, *sums[1] = {wide};
        for (int i = 0; i < 256; i++)
            all[i] = (uint8_t)i;
        struct data_reduce copy = {.from = one, .ways = 1, .to = back, .elements = 256, .final = true};
        struct data_reduce widen = {.from = one, .ways = 1, .to = wide, .elements = 256};
        struct data_reduce narrow = {.from = sums, .partial = 1, .ways = 1, .to = back, .elements = 256, .final = true};
        data_reducer(small[t], COMM_SUM, data_isa_best())(&copy);
        assert_int_equal(oracle_differ(back, all, 256, small[t]), 256);
        data_reducer(small[t], COMM_SUM, data_isa_best())(&widen);
        for (int shift = 0; shift < 256; shift++) { /* sums of every two values: half of them lie between values, some are ties */
            for (int i = 0; i < 256; i++)
                all[i] = (uint8_t)(i ^ shift);
            float copy_of[256], other[256];
            struct data_reduce again = {.from = one, .ways = 1, .to = other, .elements = 256};
            memcpy(copy_of, wide, sizeof wide);
            data_reducer(small[t], COMM_SUM, data_isa_best())(&again);
            for (int i = 0; i < 256; i++)
                wide[i] = copy_of[i] + other[i];
            data_reducer(small[t], COMM_SUM, data_isa_best())(&narrow);
            uint8_t plain[256];
            for (int i = 0; i < 256; i++)
                plain[i] = (uint8_t)i;
            two[0] = plain;
            oracle_reduce(two, 2, 256, small[t], COMM_SUM, want);
            assert_int_equal(oracle_differ(back, want, 256, small[t]), 256);
            memcpy(wide, copy_of, sizeof wide);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ user operators */
/* 2x2 matrices of small whole numbers: their product is associative but not commutative. */
static void multiply(void *inout, const void *in, size_t elements, void *arg)
{
    size_t *calls = arg;
    for (size_t e = 0; e < elements; e++) {
        uint64_t a[4], b[4];
        memcpy(a, (const char *)in + e * sizeof a, sizeof a);
        memcpy(b, (const char *)inout + e * sizeof b, sizeof b);
        uint64_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy((char *)inout + e * sizeof c, c, sizeof c);
    }
    *calls += elements;
}

static void operators_of_the_caller(void **state)
{
    enum { N = 97 };
    static uint64_t in[DATA_WAYS_MAX][N][4], out[N][4], also[N][4], want[4];
    size_t calls = 0;
    struct data_user user = {.fn = multiply, .arg = &calls, .element_bytes = sizeof want};
    (void)state;
    for (uint32_t ways = 1; ways <= DATA_WAYS_MAX; ways++) {
        for (uint32_t w = 0; w < ways; w++) {
            for (int e = 0; e < N; e++) {
                uint64_t matrix[4] = {1, (uint64_t)w * (uint64_t)e % 5, w % 3, 1 + (uint64_t)(w + (uint32_t)e) % 2};
                memcpy(in[w][e], matrix, sizeof matrix);
            }
            from[w] = in[w];
        }
        bool in_place = ways % 2;
        if (in_place) {
            memcpy(out, in[ways - 1], sizeof out);
            from[ways - 1] = out;
        }
        calls = 0;
        data_reduce_user(&(struct data_reduce){
            .from = from, .ways = ways, .context = &user, .to = out, .also = also, .elements = sizeof out, .final = true});
        assert_int_equal(calls, (ways - 1) * N);
        for (int e = 0; e < N; e++) {
            memcpy(want, in[0][e], sizeof want);
            for (uint32_t w = 1; w < ways; w++) {
                uint64_t right[4];
                memcpy(right, in[w][e], sizeof right);
                multiply(right, want, 1, &calls);
                memcpy(want, right, sizeof want);
            }
            assert_memory_equal(out[e], want, sizeof want);
            assert_memory_equal(also[e], want, sizeof want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_the_oracle), cmocka_unit_test(every_8_bit_float),
                                       cmocka_unit_test(operators_of_the_caller)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
