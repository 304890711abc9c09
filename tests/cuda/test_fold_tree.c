/*
 * The canonical tree over any number of inputs by the host's kernels (cuda/nccl/fold_tree.c): every type and operator against the oracle,
 * which evaluates it recursively; lengths around a part; and an operator of the program's, whose elements are never split.
 */
#include "../conform/oracle.h"
#include "cuda/nccl/fold_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FEW = 13 };

/* in_place: the result takes the place of input 0. */
static void one(enum comm_type type, comm_op op, uint32_t ways, size_t n, bool in_place)
{
    size_t bytes = data_type_bytes(type), stride = n * bytes;
    char *in = malloc(ways * stride), *out = in_place ? in : malloc(stride), *want = malloc(stride), got_text[64], want_text[64];
    size_t room = (fold_tree_room(ways) + 63) / 64 * 64;
    const void **from = malloc(ways * sizeof *from);
    struct fold_tree t = {.kernel = data_reducer(type, op, DATA_SCALAR),
                          .in = in,
                          .out = out,
                          .room = room ? aligned_alloc(64, room) : NULL,
                          .stride = stride,
                          .elements = n,
                          .element_bytes = bytes,
                          .partial_bytes = data_partial_bytes(type),
                          .grain = 1,
                          .ways = ways,
                          .divisor = ways};

    for (uint32_t r = 0; r < ways; r++) {
        from[r] = in + r * stride;
        oracle_fill(in + r * stride, n, type, op, ways, (int32_t)r);
    }
    oracle_reduce(from, (int32_t)ways, n, type, op, want);
    fold_tree(&t);
    size_t differs = oracle_differ(out, want, n, type);
    if (differs < n)
        fail_msg("%s of %s, %u inputs of %zu, element %zu: %s, expected %s", oracle_op_name(op), oracle_type_name(type), ways, n, differs,
                 oracle_text(out, differs, type, got_text), oracle_text(want, differs, type, want_text));
    free(t.room);
    free(from);
    free(want);
    if (!in_place)
        free(out);
    free(in);
}

static void every_pair(void **state)
{
    static const uint32_t ways[] = {1, 2, 63, 64, 65, 66, 96, 127, 128, 129, 191, 192, 193, 256, 257, 1000};
    int pairs = 0;

    (void)state;
    for (int t = 0; t < ORACLE_TYPES; t++)
        for (int o = 0; o < ORACLE_OPS; o++) {
            if (!oracle_pair(oracle_types[t], oracle_ops[o]))
                continue;
            pairs++;
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
                one(oracle_types[t], oracle_ops[o], ways[w], FEW, w % 2);
        }
    assert_true(pairs > 100);
}

static void every_number_of_inputs(void **state)
{
    (void)state;
    for (uint32_t ways = 1; ways <= 600; ways++)
        one(COMM_BF16, COMM_SUM, ways, 3, ways % 2);
    one(COMM_F32, COMM_SUM, 4095, 3, true); /* 64 groups, and one more */
    one(COMM_F16, COMM_SUM, 4097, 3, true);
    one(COMM_F64, COMM_SUM, 65535, 1, false);
}

/* A part has 32 KiB of accumulators. */
static void every_length(void **state)
{
    static const enum comm_type types[] = {COMM_F8E4M3, COMM_BF16, COMM_F32, COMM_F64, COMM_C128};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t n = 32768 / data_partial_bytes(types[t]) - 1, last = n + 2; n <= last; n++) {
            one(types[t], COMM_SUM, 65, n, true);
            one(types[t], COMM_SUM, 130, 2 * n + 1, false);
        }
}

/* ------------------------------------------------------------------------------------------------------------ own operators */
enum { WIDE = 4096, NARROW = 24 };

/* An element is a 2x2 matrix, whose product is not commutative, and words behind it, which are those of the first input. The kernel asserts
 * that it gets whole elements. */
static void multiply(void *inout, const void *in, size_t elements, void *arg)
{
    size_t words = *(size_t *)arg / 4;
    uint32_t *b = inout;
    const uint32_t *a = in;

    for (size_t i = 0; i < elements; i++, a += words, b += words) {
        uint32_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, a, words * 4);
        memcpy(b, c, sizeof c);
    }
}

static void own(size_t element, uint32_t ways, size_t elements)
{
    size_t bytes = elements * element, room = (fold_tree_room(ways) + 63) / 64 * 64;
    char *in = malloc(ways * bytes), *want = malloc(bytes);
    struct data_user user = {.fn = multiply, .arg = &element, .element_bytes = element};
    struct fold_tree t = {.kernel = data_reduce_user,
                          .context = &user,
                          .in = in,
                          .out = in,
                          .room = room ? aligned_alloc(64, room) : NULL,
                          .stride = bytes,
                          .elements = bytes,
                          .element_bytes = 1,
                          .partial_bytes = 1,
                          .grain = element,
                          .ways = ways,
                          .divisor = ways};

    for (uint32_t r = 0; r < ways; r++)
        oracle_fill(in + r * bytes, bytes / 4, COMM_U32, COMM_SUM, element, (int32_t)r);
    memcpy(want, in + (ways - 1) * bytes, bytes);
    for (uint32_t r = ways - 1; r > 0; r--)
        multiply(want, in + (r - 1) * bytes, elements, &element);
    fold_tree(&t);
    assert_memory_equal(in, want, bytes);
    free(t.room);
    free(want);
    free(in);
}

static void an_operator_of_the_programs(void **state)
{
    (void)state;
    for (uint32_t ways = 1; ways <= 300; ways += ways < 60 || ways > 70 ? 7 : 1) {
        own(WIDE, ways, 9); /* more than a part, which has 8 */
        own(NARROW, ways, 1400);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),
        cmocka_unit_test(every_number_of_inputs),
        cmocka_unit_test(every_length),
        cmocka_unit_test(an_operator_of_the_programs),
    };
    return cmocka_run_group_tests_name("cuda_fold_tree", tests, NULL, NULL);
}
