/*
 * 8-bit floats. Their accumulator is f32. A block of each input is decoded, the f32 kernel of the instruction set
 * reduces it, and the result is rounded once. E4M3 is the form without infinities: 448 is its largest number, and
 * anything larger becomes NaN. E5M2 is the upper byte of an f16. Conversions only move bits or are exact, so they do
 * not depend on the control word.
 */
#include "data/kernel.h"

#include <string.h>

enum { F8_BLOCK = 64 };

/* ------------------------------------------------------------------------------------------------------------ conversions */
struct f8_shape {
    uint32_t mantissa, bias;   /* bits of the mantissa; bias of the exponent */
    uint32_t beyond, overflow; /* the bits of the smallest f32 beyond the largest number, and what it becomes */
    uint32_t nan;
};
static const struct f8_shape e4m3 = {3, 7, 0x43f00000, 0x7f, 0x7f}, e5m2 = {2, 15, 0x47800000, 0x7c, 0x7e};

static float decode_one(uint8_t bits, const struct f8_shape *shape)
{
    uint32_t exponent = (bits & 0x7fu) >> shape->mantissa, mantissa = bits & ((1u << shape->mantissa) - 1);
    uint32_t word = ((exponent + 127 - shape->bias) << 23) | mantissa << (23 - shape->mantissa);
    float value;

    if ((bits & 0x7fu) == 0x7f || (shape == &e5m2 && exponent == 31))
        word = shape == &e5m2 && !mantissa ? 0x7f800000 : 0x7fc00000;
    if (exponent == 0) { /* a multiple of the smallest number, normal in f32 */
        value = (float)mantissa / (float)(1u << (shape->bias - 1 + shape->mantissa));
        memcpy(&word, &value, sizeof word);
    }
    word |= (uint32_t)(bits & 0x80u) << 24;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even; a carry moves into the exponent by itself. */
static uint8_t encode_one(float value, const struct f8_shape *shape)
{
    uint32_t word, sign, size, shift = 23 - shape->mantissa, exponent, whole, rest, half;

    memcpy(&word, &value, sizeof word);
    sign = word >> 24 & 0x80;
    size = word & 0x7fffffff;
    exponent = size >> 23;
    if (size > 0x7f800000)
        return (uint8_t)(sign | shape->nan);
    if (size >= shape->beyond)
        return (uint8_t)(sign | shape->overflow);
    if (exponent > 127 - shape->bias) {
        whole = (size + (1u << (shift - 1)) - 1 + (size >> shift & 1)) >> shift;
        return (uint8_t)(sign | (whole - ((127 - shape->bias) << shape->mantissa)));
    }
    shift += 128 - shape->bias - exponent; /* in units of the smallest number */
    if (shift > 25)
        return (uint8_t)sign;
    size = (size & 0x7fffff) | 0x800000;
    whole = size >> shift;
    rest = size & ((1u << shift) - 1);
    half = 1u << (shift - 1);
    return (uint8_t)(sign | (whole + (rest > half || (rest == half && (whole & 1)))));
}

/* ------------------------------------------------------------------------------------------------------------ reducing */
static void put(const struct data_reduce *reduce, void *out, size_t at, size_t count, const float *from, const struct f8_shape *shape)
{
    if (!out)
        return;
    if (!reduce->final) {
        memcpy((char *)out + at * sizeof *from, from, count * sizeof *from);
        return;
    }
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)out)[at + i] = encode_one(from[i], shape);
}

static void reduce_blocks(const struct data_reduce *reduce, const struct f8_shape *shape, data_reduce_fn *kernel)
{
    float wide[DATA_WAYS_MAX][F8_BLOCK], result[F8_BLOCK];
    const void *from[DATA_WAYS_MAX];

    for (size_t at = 0; at < reduce->elements; at += F8_BLOCK) {
        size_t count = reduce->elements - at < F8_BLOCK ? reduce->elements - at : F8_BLOCK;
        for (uint32_t w = 0; w < reduce->ways; w++) {
            const uint8_t *raw = reduce->from[w];
            from[w] = wide[w];
            if (reduce->partial >> w & 1)
                from[w] = raw + at * sizeof(float);
            for (size_t i = 0; i < count && from[w] == wide[w]; i++)
                wide[w][i] = decode_one(raw[at + i], shape);
        }
        struct data_reduce block = {.from = from,
                                    .partial = UINT64_MAX,
                                    .ways = reduce->ways,
                                    .divisor = reduce->divisor,
                                    .to = result,
                                    .elements = count,
                                    .final = reduce->final};
        kernel(&block);
        put(reduce, reduce->to, at, count, result, shape);
        put(reduce, reduce->also, at, count, result, shape);
    }
}

/* X(name, operator) for each operator, and all of them for each instruction set. */
#define F8_OPS(X, isa) X(isa, sum, COMM_SUM) X(isa, prod, COMM_PROD) X(isa, min, COMM_MIN) X(isa, max, COMM_MAX) X(isa, avg, COMM_AVG)
#define F8_DEFINE(isa, op, number)                                                                                                         \
    static void reduce_e4m3_##op##_##isa(const struct data_reduce *reduce)                                                                 \
    {                                                                                                                                      \
        reduce_blocks(reduce, &e4m3, data_reducers_##isa[DATA_KERNEL_f32_##op]);                                                           \
    }                                                                                                                                      \
    static void reduce_e5m2_##op##_##isa(const struct data_reduce *reduce)                                                                 \
    {                                                                                                                                      \
        reduce_blocks(reduce, &e5m2, data_reducers_##isa[DATA_KERNEL_f32_##op]);                                                           \
    }
#define F8_ROW(isa, op, number) [number] = {reduce_e4m3_##op##_##isa, reduce_e5m2_##op##_##isa},
#define F8_TABLE(isa)                                                                                                                      \
    F8_OPS(F8_DEFINE, isa)                                                                                                                 \
    static data_reduce_fn *const f8_##isa[COMM_AVG + 1][2] = {F8_OPS(F8_ROW, isa)};

F8_TABLE(scalar)
#if DATA_WIDE
F8_TABLE(avx2)
F8_TABLE(avx512)
#endif

data_reduce_fn *data_reducer_f8(enum comm_type type, comm_op op, enum data_isa isa)
{
    bool second = type == COMM_F8E5M2;

    if (op > COMM_AVG || (type != COMM_F8E4M3 && !second))
        return NULL;
#if DATA_WIDE
    if (isa == DATA_AVX512)
        return f8_avx512[op][second];
    if (isa == DATA_AVX2)
        return f8_avx2[op][second];
#endif
    (void)isa;
    return f8_scalar[op][second];
}
