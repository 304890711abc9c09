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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_order),    cmocka_unit_test(oracle_zeros_and_nan),           cmocka_unit_test(oracle_half),
        cmocka_unit_test(oracle_integers), cmocka_unit_test(oracle_data_tells_orders_apart),
    };
    return cmocka_run_group_tests_name("conform_oracle", tests, NULL, NULL);
}
