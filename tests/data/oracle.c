/* The correct result of a reduction, computed slowly and differently from the kernels. */
#include "oracle.h"

#include <math.h>
#include <string.h>

bool oracle_is_float(enum comm_type type)
{
    return type == COMM_F16 || type == COMM_BF16 || type == COMM_F32 || type == COMM_F64;
}

/* ------------------------------------------------------------------------------------------------------------ halves */
/* exponent bits, mantissa bits, bias */
static void half_shape(enum comm_type type, int *exponents, int *mantissas)
{
    *exponents = type == COMM_F16 ? 5 : 8;
    *mantissas = type == COMM_F16 ? 10 : 7;
}

double oracle_decode_half(enum comm_type type, uint16_t bits)
{
    int exponents, mantissas;
    half_shape(type, &exponents, &mantissas);
    const int bias = (1 << (exponents - 1)) - 1, top = (1 << exponents) - 1;
    const int exponent = bits >> mantissas & top, mantissa = bits & ((1 << mantissas) - 1);
    double value;
    if (exponent == top)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - mantissas);
    else
        value = ldexp(mantissa + (1 << mantissas), exponent - bias - mantissas);
    return bits & 0x8000 ? -value : value;
}

/* Counts in units of the last place at this magnitude, and rounds by comparing the remainder. */
uint16_t oracle_encode_half(enum comm_type type, double value)
{
    int exponents, mantissas, exponent;
    half_shape(type, &exponents, &mantissas);
    const int bias = (1 << (exponents - 1)) - 1, top = (1 << exponents) - 1;
    const uint16_t sign = signbit(value) ? 0x8000 : 0, infinite = (uint16_t)(top << mantissas);
    if (isnan(value))
        return (uint16_t)(sign | infinite | 1 << (mantissas - 1));
    if (isinf(value))
        return sign | infinite;
    value = fabs(value);
    (void)frexp(value, &exponent);
    exponent -= 1; /* value is in [2^exponent, 2^(exponent+1)) */
    if (value == 0 || exponent < 1 - bias)
        exponent = 1 - bias;
    const double units = ldexp(value, mantissas - exponent), below = floor(units), rest = units - below;
    uint32_t whole = (uint32_t)below;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
        whole++;
    /* whole still has its leading one if normal: so the exponent less one is added, and a carry moves up by itself */
    const uint32_t bits = ((uint32_t)(exponent + bias - 1) << mantissas) + whole;
    return (uint16_t)(sign | (bits >= infinite ? infinite : bits));
}

/* ------------------------------------------------------------------------------------------------------------ elements */
static bool is_signed(enum comm_type type)
{
    return type >= COMM_I8 && type <= COMM_I64;
}

static uint64_t extend(enum comm_type type, uint64_t bits)
{
    const unsigned width = (unsigned)data_type_bytes(type) * 8;
    if (width == 64)
        return bits;
    bits &= (UINT64_C(1) << width) - 1;
    if (is_signed(type) && bits >> (width - 1))
        bits |= ~UINT64_C(0) << width;
    return bits;
}

struct oracle_value oracle_load(enum comm_type type, bool partial, const void *from, size_t at)
{
    struct oracle_value value = {0};
    const size_t bytes = partial ? data_partial_bytes(type) : data_type_bytes(type);
    const char *here = (const char *)from + at * bytes;
    uint16_t half;
    float single;
    if ((type == COMM_F16 || type == COMM_BF16) && !partial) {
        memcpy(&half, here, 2);
        value.f = oracle_decode_half(type, half);
    } else if (type == COMM_F64) {
        memcpy(&value.f, here, 8);
    } else if (oracle_is_float(type)) {
        memcpy(&single, here, 4);
        value.f = (double)single;
    } else {
        memcpy(&value.u, here, bytes);
        value.u = extend(type, value.u);
    }
    return value;
}

void oracle_store(enum comm_type type, bool partial, void *to, size_t at, struct oracle_value value)
{
    const size_t bytes = partial ? data_partial_bytes(type) : data_type_bytes(type);
    char *here = (char *)to + at * bytes;
    const float single = (float)value.f;
    if ((type == COMM_F16 || type == COMM_BF16) && !partial) {
        const uint16_t half = oracle_encode_half(type, value.f);
        memcpy(here, &half, 2);
    } else if (type == COMM_F64) {
        memcpy(here, &value.f, 8);
    } else if (oracle_is_float(type)) {
        memcpy(here, &single, 4);
    } else {
        memcpy(here, &value.u, bytes);
    }
}

/* ------------------------------------------------------------------------------------------------------------ operators */
static double float_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && b == 0)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static double float_combine(enum comm_type type, comm_op op, double a, double b)
{
    double value;
    switch (op) {
    case COMM_MIN:
        return float_min(a, b);
    case COMM_MAX:
        return -float_min(-a, -b);
    case COMM_PROD:
        value = a * b;
        break;
    default:
        value = a + b;
        break;
    }
    /* Rounding the sum or product of two f32 from double to f32 gives the correctly rounded f32: double has more than
     * twice the bits. */
    return type == COMM_F64 ? value : (double)(float)value;
}

static uint64_t integer_combine(enum comm_type type, comm_op op, uint64_t a, uint64_t b)
{
    const bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case COMM_SUM:
        return extend(type, a + b);
    case COMM_PROD:
        return extend(type, a * b);
    case COMM_MIN:
        return less ? a : b;
    case COMM_MAX:
        return less ? b : a;
    case COMM_BAND:
        return a & b;
    case COMM_BOR:
        return a | b;
    case COMM_BXOR:
        return a ^ b;
    case COMM_LAND:
        return a && b;
    case COMM_LOR:
        return a || b;
    default:
        return !a != !b;
    }
}

/* T over inputs [first, end): split at the largest power of two below the length, where the left subtree is complete. */
static struct oracle_value tree(enum comm_type type, comm_op op, const struct data_reduce *reduce, size_t at, uint32_t first, uint32_t end)
{
    if (end - first == 1)
        return oracle_load(type, reduce->partial >> first & 1, reduce->from[first], at);
    uint32_t half = 1;
    while (half * 2 < end - first)
        half *= 2;
    const struct oracle_value left = tree(type, op, reduce, at, first, first + half);
    const struct oracle_value right = tree(type, op, reduce, at, first + half, end);
    struct oracle_value value = {0};
    if (oracle_is_float(type))
        value.f = float_combine(type, op, left.f, right.f);
    else
        value.u = integer_combine(type, op, left.u, right.u);
    return value;
}

void oracle_reduce(enum comm_type type, comm_op op, const struct data_reduce *reduce, void *to)
{
    for (size_t at = 0; at < reduce->elements; at++) {
        struct oracle_value value = tree(type, op, reduce, at, 0, reduce->ways);
        if (op == COMM_AVG && reduce->final)
            value.f = type == COMM_F64 ? value.f / reduce->divisor : (double)((float)value.f / (float)reduce->divisor);
        oracle_store(type, !reduce->final, to, at, value);
    }
}

bool oracle_same(enum comm_type type, bool partial, const void *a, const void *b, size_t at)
{
    const size_t bytes = partial ? data_partial_bytes(type) : data_type_bytes(type);
    if (memcmp((const char *)a + at * bytes, (const char *)b + at * bytes, bytes) == 0)
        return true;
    return oracle_is_float(type) && isnan(oracle_load(type, partial, a, at).f) && isnan(oracle_load(type, partial, b, at).f);
}

/* ------------------------------------------------------------------------------------------------------------ inputs */
uint64_t oracle_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double special(uint64_t which)
{
    static const double values[] = {0.0,   -0.0,  INFINITY, -INFINITY, NAN,    1e-40,   -1e-42, 3e-8,
                                    65504, 65520, -65519,   3.4e38,    5e-324, -1e-310, 1,      -1};
    return values[which % (sizeof(values) / sizeof(values[0]))];
}

void oracle_fill(enum comm_type type, bool partial, void *to, size_t elements, uint64_t *state)
{
    for (size_t at = 0; at < elements; at++) {
        const uint64_t bits = oracle_random(state), kind = bits & 15;
        struct oracle_value value = {.f = ldexp((double)(int64_t)oracle_random(state), -62), .u = oracle_random(state)};
        if (kind == 0)
            value.f = special(bits >> 8);
        if (kind == 1)
            value.f = ldexp(value.f, (int)(bits >> 8 & 63) - 40);
        if (kind <= 1)
            value.u = bits >> 8 & 1 ? 0 : ~UINT64_C(0) << (bits >> 16 & 63);
        oracle_store(type, partial, to, at, value);
        const size_t bytes = partial ? data_partial_bytes(type) : data_type_bytes(type);
        if (kind == 2) /* any bits */
            memcpy((char *)to + at * bytes, &value.u, bytes);
    }
}
