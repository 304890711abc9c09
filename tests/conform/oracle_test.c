/* Tests the oracle against results computed by hand: a wrong oracle would make a wrong library look right. */
#include "conform/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static void reduce_f32(const float *values, int32_t ranks, comm_op op, float *out)
{
    const void *in[ORACLE_RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++)
        in[r] = &values[r];
    oracle_reduce(in, ranks, 1, COMM_F32, op, out);
}

/* Six ranks add as ((01)(23))(45): 2^24 + 1 + 1 keeps one only if the ones are added first. */
static void oracle_order(void **state)
{
    (void)state;
    float big = 16777216.0f, out;
    reduce_f32((float[]){big, 0, 1, 1, 0, 0}, 6, COMM_SUM, &out);
    assert_true(out == big + 2);
    reduce_f32((float[]){big, 1, 1, 0, 0, 0}, 6, COMM_SUM, &out);
    assert_true(out == big);
    reduce_f32((float[]){big, 0, 0, 0, 1, 1}, 6, COMM_SUM, &out);
    assert_true(out == big + 2);
    reduce_f32((float[]){big, 0, 1, 0, 1}, 5, COMM_SUM, &out);
    assert_true(out == big);
    reduce_f32((float[]){0, 0, 1, 0, big, 1, 1}, 7, COMM_SUM, &out);
    assert_true(out == big); /* ((0 0)(1 0)) ((big 1) 1): each one is added to the large number alone and is lost */
}

static void oracle_zeros_and_nan(void **state)
{
    (void)state;
    float out;
    reduce_f32((float[]){0.0f, -0.0f}, 2, COMM_MIN, &out);
    assert_true(out == 0 && signbit(out));
    reduce_f32((float[]){-0.0f, 0.0f}, 2, COMM_MAX, &out);
    assert_true(out == 0 && !signbit(out));
    reduce_f32((float[]){1, NAN, -INFINITY}, 3, COMM_MIN, &out);
    assert_true(isnan(out));
    reduce_f32((float[]){-0.0f, -0.0f, -0.0f}, 3, COMM_SUM, &out);
    assert_true(out == 0 && signbit(out));
    reduce_f32((float[]){1, 2, 4}, 3, COMM_AVG, &out);
    assert_true(out == 7.0f / 3.0f);
}

/* Every finite half and bfloat16 survives a round trip; ties round to even; the largest numbers overflow correctly. */
static void oracle_half(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t one = (uint16_t)bits, back[2];
        const void *in[1] = {&one};
        oracle_reduce(in, 1, 1, COMM_F16, COMM_SUM, &back[0]);
        oracle_reduce(in, 1, 1, COMM_BF16, COMM_SUM, &back[1]);
        assert_int_equal(oracle_differ(&back[0], &one, 1, COMM_F16), 1);
        assert_int_equal(oracle_differ(&back[1], &one, 1, COMM_BF16), 1);
    }
    const struct {
        uint16_t a, b, sum;
        enum comm_type type;
    } known[] = {
        {0x6800, 0x3c00, 0x6800, COMM_F16},  {0x6801, 0x3c00, 0x6802, COMM_F16},  {0x7bff, 0x4c00, 0x7c00, COMM_F16},
        {0x0001, 0x0001, 0x0002, COMM_F16},  {0x4380, 0x3f80, 0x4380, COMM_BF16}, {0x4381, 0x3f80, 0x4382, COMM_BF16},
        {0x7f7f, 0x7f7f, 0x7f80, COMM_BF16},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint16_t got;
        const void *in[2] = {&known[i].a, &known[i].b};
        oracle_reduce(in, 2, 1, known[i].type, COMM_SUM, &got);
        assert_int_equal(got, known[i].sum);
    }
}

static void oracle_integers(void **state)
{
    (void)state;
    int8_t a = 127, b = 1, c = -128, out;
    oracle_reduce((const void *[]){&a, &b}, 2, 1, COMM_I8, COMM_SUM, &out);
    assert_int_equal(out, -128);
    oracle_reduce((const void *[]){&a, &c}, 2, 1, COMM_I8, COMM_MIN, &out);
    assert_int_equal(out, -128);
    oracle_reduce((const void *[]){&a, &c}, 2, 1, COMM_U8, COMM_MIN, &out);
    assert_int_equal(out, 127);
    oracle_reduce((const void *[]){&a, &c}, 2, 1, COMM_I8, COMM_LAND, &out);
    assert_int_equal(out, 1);
    assert_false(oracle_pair(COMM_I32, COMM_AVG));
    assert_false(oracle_pair(COMM_F32, COMM_BAND));
}

/* The data must distinguish between orders, in every floating type. */
static void oracle_data_tells_orders_apart(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        double mine[3][64], sum[2][64];
        enum comm_type type = oracle_types[t];
        for (int32_t r = 0; r < 3; r++)
            oracle_fill(mine[r], 64, type, COMM_SUM, 7, r);
        oracle_reduce((const void *[]){mine[0], mine[1], mine[2]}, 3, 64, type, COMM_SUM, sum[0]);
        oracle_reduce((const void *[]){mine[1], mine[2], mine[0]}, 3, 64, type, COMM_SUM, sum[1]);
        if (oracle_differ(sum[0], sum[1], 64, type) == 64)
            fail_msg("%s", oracle_type_name(type));
    }
}

/* a = a op b, rounded to the type. */
static void step(enum comm_type type, comm_op op, void *a, const void *b, size_t n)
{
    oracle_reduce((const void *[]){a, b}, 2, n, type, op, a);
}

enum { EXACT = 96, EXACT_RANKS = 17 };
static double exact[EXACT_RANKS][EXACT], exact_sum[EXACT], exact_other[EXACT];

/* As NCCL averages: each input is divided by the number of ranks. An average of the value and ranks - 1 zeros is that. */
static void divide(enum comm_type type, double *at, int32_t ranks)
{
    static const double zeros[EXACT];
    const void *in[EXACT_RANKS] = {at};

    for (int32_t r = 1; r < ranks; r++)
        in[r] = zeros;
    oracle_reduce(in, ranks, EXACT, type, COMM_AVG, at);
}

static void other_orders(enum comm_type type, comm_op op, int32_t ranks)
{
    uint64_t chance = (uint64_t)ranks;

    for (int turn = 0; turn < 20; turn++) {
        int32_t shift = (int32_t)(oracle_random(&chance) % (uint64_t)ranks), by = turn % 2 ? ranks - 1 : 1;
        memcpy(exact_other, exact[shift], sizeof exact_other);
        for (int32_t k = 1; k < ranks; k++)
            step(type, op == COMM_AVG ? COMM_SUM : op, exact_other, exact[(shift + k * by) % ranks], EXACT);
        size_t at = oracle_differ(exact_other, exact_sum, EXACT, type);
        if (at < EXACT)
            fail_msg("%s of %s, %d ranks, element %zu", oracle_op_name(op), oracle_type_name(type), ranks, at);
    }
}

static void exact_data(enum comm_type type, comm_op op, int32_t ranks)
{
    const void *in[EXACT_RANKS];
    size_t bytes = oracle_type_bytes(type), same = 1;

    for (int32_t r = 0; r < ranks; r++) {
        oracle_fill_exact(exact[r], EXACT, type, op, 5, r, ranks);
        in[r] = exact[r];
    }
    oracle_reduce(in, ranks, EXACT, type, op, exact_sum);
    assert_false(oracle_has_nan(exact_sum, EXACT, type));
    while (same < EXACT && memcmp(exact_sum, (const char *)exact_sum + same * bytes, bytes) == 0)
        same++;
    assert_true(same < EXACT);
    for (int32_t r = 0; r < ranks && op == COMM_AVG; r++)
        divide(type, exact[r], ranks);
    other_orders(type, op, ranks);
}

static void oracle_exact_data_has_one_result(void **state)
{
    (void)state;
    assert_false(oracle_has_exact(COMM_F32, COMM_AVG, 3));
    assert_false(oracle_has_exact(COMM_I32, COMM_SUM, 2));
    for (int t = 0; t < ORACLE_TYPES; t++)
        for (int o = 0; o < ORACLE_OPS; o++)
            for (int32_t ranks = 1; ranks <= EXACT_RANKS; ranks++)
                if (oracle_has_exact(oracle_types[t], oracle_ops[o], ranks))
                    exact_data(oracle_types[t], oracle_ops[o], ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_order),
        cmocka_unit_test(oracle_zeros_and_nan),
        cmocka_unit_test(oracle_half),
        cmocka_unit_test(oracle_integers),
        cmocka_unit_test(oracle_data_tells_orders_apart),
        cmocka_unit_test(oracle_exact_data_has_one_result),
    };
    return cmocka_run_group_tests_name("conform_oracle", tests, NULL, NULL);
}
