/* f16 and bf16 against an independent conversion: decodes all 65536 values of each, and encodes many floats, with every
 * instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oracle.h"

#include <math.h>
#include <string.h>

static const enum comm_type halves[] = {COMM_F16, COMM_BF16};
static uint16_t raw[65536 + 64], back[65536 + 64];
static float wide[65536 + 64];

/* One input: the reduction converts it, from raw to partial or from partial to raw. */
static void convert(enum comm_type type, enum data_isa isa, const void *from, void *to, size_t elements, bool partial)
{
    const void *inputs[1] = {from};
    const struct data_reduce reduce = {.from = inputs, .partial = partial, .ways = 1, .to = to, .elements = elements, .final = partial};
    data_reducer(type, COMM_SUM, isa)(&reduce);
}

/* With `one`, element by element, so that the tails convert too. */
static void convert_all(enum comm_type type, enum data_isa isa, const void *from, void *to, size_t elements, bool partial, bool one)
{
    const size_t in = partial ? 4 : 2, out = partial ? 2 : 4, step = one ? 1 : elements;
    for (size_t at = 0; at < elements; at += step)
        convert(type, isa, (const char *)from + at * in, (char *)to + at * out, step, partial);
}

static void every_half_is_read(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++)
        raw[bits] = (uint16_t)bits;
    for (size_t h = 0; h < 2; h++) {
        for (unsigned isa_one = 0; isa_one < 2u * (data_isa_best() + 1u); isa_one++) {
            convert_all(halves[h], isa_one / 2, raw, wide, 65536, false, isa_one & 1);
            for (uint32_t bits = 0; bits < 65536; bits++) {
                const float value = (float)oracle_decode_half(halves[h], (uint16_t)bits);
                if (isnan(value) ? !isnan(wide[bits]) : memcmp(&value, &wide[bits], 4) != 0)
                    fail_msg("%s %#x read as %a, not %a (%s)", data_type_name(halves[h]), bits, (double)wide[bits], (double)value,
                             data_isa_name(isa_one / 2));
            }
            convert_all(halves[h], isa_one / 2, wide, back, 65536, true, isa_one & 1);
            for (uint32_t bits = 0; bits < 65536; bits++)
                assert_true(back[bits] == bits || isnan(wide[bits]));
        }
    }
}

static void check_written(enum comm_type type, enum data_isa isa, size_t elements, bool one)
{
    convert_all(type, isa, wide, back, elements, true, one);
    for (size_t at = 0; at < elements; at++) {
        const uint16_t bits = oracle_encode_half(type, (double)wide[at]);
        if (isnan(wide[at]) ? !isnan(oracle_decode_half(type, back[at])) : bits != back[at])
            fail_msg("%a written to %s as %#x, not %#x (%s)", (double)wide[at], data_type_name(type), back[at], bits, data_isa_name(isa));
    }
}

/* Every half, the middle between it and the next one, and the floats next to both: every point where rounding changes. */
static void edges_are_rounded(void **state)
{
    (void)state;
    static const int32_t steps[] = {-1, 0, 1};
    for (size_t h = 0; h < 2; h++) {
        for (unsigned which = 0; which < 6; which++) {
            for (uint32_t bits = 0; bits < 65535; bits++) {
                const double low = oracle_decode_half(halves[h], (uint16_t)bits),
                             high = oracle_decode_half(halves[h], (uint16_t)(bits + 1));
                float value = which < 3 ? (float)low : (float)((low + high) / 2);
                uint32_t word;
                memcpy(&word, &value, 4);
                word += (uint32_t)steps[which % 3];
                memcpy(&wide[bits], &word, 4);
            }
            for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++) {
                check_written(halves[h], isa, 65535, false);
                check_written(halves[h], isa, 65535, true);
            }
        }
    }
}

static void any_float_is_rounded(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (unsigned round = 0; round < 16; round++) {
        for (size_t at = 0; at < 65536; at++) {
            uint32_t word = (uint32_t)oracle_random(&seed);
            if (round & 1) /* near the exponents that f16 has */
                word = (word & 0x807fffff) | (100 + word % 45) << 23;
            memcpy(&wide[at], &word, 4);
        }
        for (size_t h = 0; h < 2; h++) {
            for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++)
                check_written(halves[h], isa, 65536, false);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_half_is_read), cmocka_unit_test(edges_are_rounded),
                                       cmocka_unit_test(any_float_is_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
