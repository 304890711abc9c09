/*
 * The arithmetic of the mock NCCL, which is that of the real kernels. Each step is rounded to the type. Minimum and maximum are fminf and
 * fmaxf, so a number wins over a NaN. An average multiplies each input by 1/n and then sums. 8-bit floats saturate.
 */
#include "mock_clique.h"

#include <math.h>
#include <string.h>

/* A float with `exponent` and `mantissa` bits. In a format without infinity, the largest bit pattern is the NaN. */
struct small_float {
    int exponent, mantissa;
    bool infinity, saturates;
};
static const struct small_float half = {5, 10, true, false}, brain = {8, 7, true, false}, e4m3 = {4, 3, false, true},
                                e5m2 = {5, 2, true, true};

static const struct small_float *small_of(unsigned type)
{
    return type == NCCL_F16 ? &half : type == NCCL_BF16 ? &brain : type == NCCL_F8E4M3 ? &e4m3 : type == NCCL_F8E5M2 ? &e5m2 : NULL;
}

static double largest(const struct small_float *f)
{
    int bias = (1 << (f->exponent - 1)) - 1, top = (1 << f->exponent) - (f->infinity ? 2 : 1);
    double mantissa = 2 - ldexp(f->infinity ? 1 : 2, -f->mantissa);

    return ldexp(mantissa, top - bias);
}

static double widen(const struct small_float *f, uint32_t bits)
{
    int bias = (1 << (f->exponent - 1)) - 1;
    uint32_t sign = bits >> (f->exponent + f->mantissa), magnitude = bits & ((1u << (f->exponent + f->mantissa)) - 1);
    uint32_t e = magnitude >> f->mantissa, m = magnitude & ((1u << f->mantissa) - 1), all = (1u << f->exponent) - 1;
    double value;

    if (e == all && f->infinity)
        value = m ? (double)NAN : (double)INFINITY;
    else if (e == all && m == (1u << f->mantissa) - 1)
        value = (double)NAN;
    else
        value = e ? ldexp(1 + ldexp(m, -f->mantissa), (int)e - bias) : ldexp(m, 1 - bias - f->mantissa);
    return sign ? -value : value;
}

/* Rounds to nearest, ties to even. */
static uint32_t narrow(const struct small_float *f, double value)
{
    int bias = (1 << (f->exponent - 1)) - 1, e;
    uint32_t sign = (signbit(value) ? 1u : 0u) << (f->exponent + f->mantissa), all = (1u << f->exponent) - 1;
    uint32_t none = all << f->mantissa | ((1u << f->mantissa) - 1), inf = f->infinity ? all << f->mantissa : none;

    value = fabs(value);
    if (isnan(value))
        return sign | none;
    if (value == 0)
        return sign;
    e = isinf(value) ? bias : ilogb(value) < 1 - bias ? 1 - bias : ilogb(value);
    if (!isinf(value))
        value = ldexp(nearbyint(ldexp(value, f->mantissa - e)), e - f->mantissa);
    if (value > largest(f) && !f->saturates)
        return sign | inf;
    value = value > largest(f) ? largest(f) : value;
    if (value == 0)
        return sign;
    e = ilogb(value) < 1 - bias ? 1 - bias : ilogb(value);
    uint32_t q = (uint32_t)ldexp(value, f->mantissa - e);
    return sign | (q < 1u << f->mantissa ? q : (uint32_t)(e + bias) << f->mantissa | (q - (1u << f->mantissa)));
}

static double apply(double a, double b, unsigned op)
{
    return op == NCCL_PROD ? a * b : op == NCCL_MAX ? fmax(a, b) : op == NCCL_MIN ? fmin(a, b) : a + b;
}

static double load(const void *at, size_t i, unsigned type)
{
    const struct small_float *f = small_of(type);
    uint16_t two;

    if (type == NCCL_F32)
        return (double)((const float *)at)[i];
    if (type == NCCL_F64)
        return ((const double *)at)[i];
    if (mock_type_bytes(type) == 1)
        return widen(f, ((const uint8_t *)at)[i]);
    memcpy(&two, (const char *)at + 2 * i, sizeof two);
    return widen(f, two);
}

static void store(void *at, size_t i, unsigned type, double value)
{
    const struct small_float *f = small_of(type);

    if (type == NCCL_F32)
        ((float *)at)[i] = (float)value;
    else if (type == NCCL_F64)
        ((double *)at)[i] = value;
    else if (mock_type_bytes(type) == 1)
        ((uint8_t *)at)[i] = (uint8_t)narrow(f, value);
    else
        memcpy((char *)at + 2 * i, &(uint16_t){(uint16_t)narrow(f, value)}, 2);
}

/* Integers wrap, as on the device. */
#define FOLD(name, element)                                                                                                                \
    static void fold_##name(element *to, const element *from, size_t n, unsigned op)                                                       \
    {                                                                                                                                      \
        for (size_t i = 0; i < n; i++)                                                                                                     \
            to[i] = op == NCCL_PROD  ? (element)((uint64_t)to[i] * (uint64_t)from[i])                                                      \
                    : op == NCCL_MAX ? (to[i] > from[i] ? to[i] : from[i])                                                                 \
                    : op == NCCL_MIN ? (to[i] < from[i] ? to[i] : from[i])                                                                 \
                                     : (element)((uint64_t)to[i] + (uint64_t)from[i]);                                                     \
    }
FOLD(i8, int8_t)
FOLD(u8, uint8_t)
FOLD(i32, int32_t)
FOLD(u32, uint32_t)
FOLD(i64, int64_t)
FOLD(u64, uint64_t)

size_t mock_type_bytes(unsigned type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

void mock_fold(void *to, const void *from, size_t n, unsigned type, unsigned op)
{
    switch (type) {
    case NCCL_I8:
        fold_i8(to, from, n, op);
        return;
    case NCCL_U8:
        fold_u8(to, from, n, op);
        return;
    case NCCL_I32:
        fold_i32(to, from, n, op);
        return;
    case NCCL_U32:
        fold_u32(to, from, n, op);
        return;
    case NCCL_I64:
        fold_i64(to, from, n, op);
        return;
    case NCCL_U64:
        fold_u64(to, from, n, op);
        return;
    default:
        for (size_t i = 0; i < n; i++)
            store(to, i, type, apply(load(to, i, type), load(from, i, type), op));
    }
}

void mock_premultiply(void *to, size_t bytes, const struct premul *by)
{
    unsigned type = by->type - 1;

    for (size_t at = 0; at < bytes; at += mock_type_bytes(type))
        mock_fold((char *)to + at, by->factor, 1, type, NCCL_PROD);
}

/* For an average NCCL multiplies the inputs before the sum. */
void mock_scale(void *to, size_t n, unsigned type, double by)
{
    for (size_t i = 0; i < n && (type == NCCL_F32 || type == NCCL_F64 || small_of(type)); i++)
        store(to, i, type, load(to, i, type) * by);
}
