/*
 * The reduction that runs on the device, one element at a time. It is plain C: nvcc compiles it for devices (kernels.cu), and the tests
 * compile it for the CPU, where they compare it with the host's kernels. Both evaluate the canonical tree of data/data.h in the same
 * accumulators and round in the same places, so the bits are equal, except for the payload of a NaN that an addition or product made.
 */
#ifndef CUDA_FOLD_KERNEL_H
#define CUDA_FOLD_KERNEL_H

#include <commstream/type.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#    define FOLD_INLINE static __device__ inline
#else
#    define FOLD_INLINE static inline
#endif

enum { FOLD_LEVELS = 17 /* of the tree of 65,536 inputs */ };

/* The argument of the kernel. Input r begins r * stride bytes behind `in`, or at inputs[r]. */
struct fold_args {
    const void *in;
    const char *const *inputs; /* NULL: `in` has them all */
    void *out;                 /* it overlaps no input */
    size_t stride, elements;
    uint32_t ways, divisor; /* divisor: of AVG */
    uint32_t type, op;
};

/* Whether the kernel has this pair. The host's kernels have all. */
static inline bool fold_has(enum comm_type type, comm_op op)
{
    bool is_integer = (type >= COMM_I8 && type <= COMM_I64) || (type >= COMM_U8 && type <= COMM_U64);
    bool is_float = type >= COMM_F16 && type <= COMM_F64;

    if (type == COMM_BYTE)
        return op >= COMM_BAND && op <= COMM_BXOR;
    return (is_integer && op >= COMM_SUM && op <= COMM_LXOR && op != COMM_AVG) || (is_float && op >= COMM_SUM && op <= COMM_AVG);
}

/* ------------------------------------------------------------------------------------------------------------ integers */
/* All are widened to 64 bits. Sums and products are right in their lower bits. */
FOLD_INLINE uint64_t fold_load_integer(const char *at, uint32_t type)
{
    switch (type) {
    case COMM_I8:
        return (uint64_t)(int64_t) * (const int8_t *)at;
    case COMM_I16:
        return (uint64_t)(int64_t) * (const int16_t *)(const void *)at;
    case COMM_I32:
        return (uint64_t)(int64_t) * (const int32_t *)(const void *)at;
    case COMM_U16:
        return *(const uint16_t *)(const void *)at;
    case COMM_U32:
        return *(const uint32_t *)(const void *)at;
    case COMM_I64:
    case COMM_U64:
        return *(const uint64_t *)(const void *)at;
    default:
        return *(const uint8_t *)at;
    }
}

FOLD_INLINE uint64_t fold_integers(uint64_t a, uint64_t b, uint32_t op, bool is_signed)
{
    bool less = is_signed ? (int64_t)a < (int64_t)b : a < b, more = is_signed ? (int64_t)a > (int64_t)b : a > b;

    switch (op) {
    case COMM_PROD:
        return a * b;
    case COMM_MIN:
        return less ? a : b;
    case COMM_MAX:
        return more ? a : b;
    case COMM_BAND:
        return a & b;
    case COMM_BOR:
        return a | b;
    case COMM_BXOR:
        return a ^ b;
    case COMM_LAND:
        return a != 0 && b != 0;
    case COMM_LOR:
        return (a | b) != 0;
    case COMM_LXOR:
        return (a != 0) != (b != 0);
    default:
        return a + b;
    }
}

FOLD_INLINE void fold_store_integer(char *at, uint64_t value, size_t bytes)
{
    if (bytes == 1)
        *(uint8_t *)at = (uint8_t)value;
    else if (bytes == 2)
        *(uint16_t *)(void *)at = (uint16_t)value;
    else if (bytes == 4)
        *(uint32_t *)(void *)at = (uint32_t)value;
    else
        *(uint64_t *)(void *)at = value;
}

/* ------------------------------------------------------------------------------------------------------------ floats */
FOLD_INLINE uint32_t fold_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FOLD_INLINE float fold_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

FOLD_INLINE float fold_decode(uint32_t half, uint32_t type)
{
    uint32_t body = half & 0x7fff, sign = (half & 0x8000) << 16;

    if (type == COMM_BF16)
        return fold_float(half << 16);
    if (body >= 0x7c00) /* infinite; or a NaN, made quiet */
        return fold_float((body << 13) | 0x7f800000 | (body > 0x7c00 ? 0x400000u : 0) | sign);
    if (body >= 0x400)
        return fold_float(((body << 13) + (112u << 23)) | sign);
    return fold_float(fold_bits(fold_float((body << 13) | (113u << 23)) - fold_float(113u << 23)) | sign);
}

/* Rounds to nearest, ties to even. */
FOLD_INLINE uint32_t fold_encode(float value, uint32_t type)
{
    uint32_t bits = fold_bits(value), sign = bits & 0x80000000u, body = bits ^ sign;

    if (type == COMM_BF16)
        return (value != value ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16) & 0xffff;
    if (body >= 0x47800000)
        return (body > 0x7f800000 ? 0x7e00 | (body >> 13 & 0x3ff) : 0x7c00) | sign >> 16;
    if (body < 0x38800000) /* 0.5: its last place is the smallest f16 */
        return (fold_bits(fold_float(body) + fold_float(126u << 23)) - (126u << 23)) | sign >> 16;
    return (body - (112u << 23) + 0xfff + (body >> 13 & 1)) >> 13 | sign >> 16;
}

/* In min and max a NaN wins, and -0 is less than 0. */
#define FOLD_FLOATS(name, element, word)                                                                                                   \
    FOLD_INLINE element name(element a, element b, uint32_t op)                                                                            \
    {                                                                                                                                      \
        word x, y, z;                                                                                                                      \
        element value;                                                                                                                     \
        if (op == COMM_PROD)                                                                                                               \
            return a * b;                                                                                                                  \
        if (op != COMM_MIN && op != COMM_MAX)                                                                                              \
            return a + b;                                                                                                                  \
        if (a < b || a > b)                                                                                                                \
            return (a < b) == (op == COMM_MIN) ? a : b;                                                                                    \
        memcpy(&x, &a, sizeof x);                                                                                                          \
        memcpy(&y, &b, sizeof y);                                                                                                          \
        z = op == COMM_MAX && a == b ? x & y : x | y;                                                                                      \
        memcpy(&value, &z, sizeof value);                                                                                                  \
        return value;                                                                                                                      \
    }
FOLD_FLOATS(fold_singles, float, uint32_t)
FOLD_FLOATS(fold_doubles, double, uint64_t)

/* ------------------------------------------------------------------------------------------------------------ the tree */
FOLD_INLINE const char *fold_input(const struct fold_args *a, uint32_t r)
{
    return a->inputs ? a->inputs[r] : (const char *)a->in + r * a->stride;
}

/* Inputs are paired along bit 0 of their index, then bit 1, and so on, the lower one on the left. */
#define FOLD_TREE(name, value_type, load, combine)                                                                                         \
    FOLD_INLINE value_type name(const struct fold_args *a, size_t at)                                                                      \
    {                                                                                                                                      \
        value_type waiting[FOLD_LEVELS];                                                                                                   \
        uint32_t depth = 0;                                                                                                                \
        waiting[0] = 0;                                                                                                                    \
        for (uint32_t r = 0; r < a->ways; r++) {                                                                                           \
            const char *from = fold_input(a, r) + at;                                                                                      \
            value_type value = load;                                                                                                       \
            for (uint32_t bits = r; bits & 1; bits >>= 1) {                                                                                \
                value_type left = waiting[--depth];                                                                                        \
                value = combine;                                                                                                           \
            }                                                                                                                              \
            waiting[depth++] = value;                                                                                                      \
        }                                                                                                                                  \
        while (depth > 1) {                                                                                                                \
            value_type value = waiting[--depth], left = waiting[depth - 1];                                                                \
            waiting[depth - 1] = combine;                                                                                                  \
        }                                                                                                                                  \
        return waiting[0];                                                                                                                 \
    }
FOLD_TREE(fold_tree_of_integers, uint64_t, fold_load_integer(from, a->type),
          fold_integers(left, value, a->op, a->type >= COMM_I8 && a->type <= COMM_I64))
FOLD_TREE(fold_tree_of_singles, float, *(const float *)(const void *)from, fold_singles(left, value, a->op))
FOLD_TREE(fold_tree_of_halves, float, fold_decode(*(const uint16_t *)(const void *)from, a->type), fold_singles(left, value, a->op))
FOLD_TREE(fold_tree_of_doubles, double, *(const double *)(const void *)from, fold_doubles(left, value, a->op))

FOLD_INLINE size_t fold_bytes(uint32_t type)
{
    if (type == COMM_F16 || type == COMM_BF16 || type == COMM_I16 || type == COMM_U16)
        return 2;
    if (type == COMM_F32 || type == COMM_I32 || type == COMM_U32)
        return 4;
    return type == COMM_F64 || type == COMM_I64 || type == COMM_U64 ? 8 : 1;
}

FOLD_INLINE void fold_element(const struct fold_args *a, size_t index)
{
    size_t bytes = fold_bytes(a->type), at = index * bytes;
    char *to = (char *)a->out + at;

    if (a->type == COMM_F32) {
        float sum = fold_tree_of_singles(a, at);
        *(float *)(void *)to = a->op == COMM_AVG ? sum / (float)a->divisor : sum;
    } else if (a->type == COMM_F64) {
        double sum = fold_tree_of_doubles(a, at);
        *(double *)(void *)to = a->op == COMM_AVG ? sum / (double)a->divisor : sum;
    } else if (a->type == COMM_F16 || a->type == COMM_BF16) {
        float sum = fold_tree_of_halves(a, at);
        *(uint16_t *)(void *)to = (uint16_t)fold_encode(a->op == COMM_AVG ? sum / (float)a->divisor : sum, a->type);
    } else {
        fold_store_integer(to, fold_tree_of_integers(a, at), bytes);
    }
}

FOLD_INLINE bool fold_is_half(uint32_t type)
{
    return type == COMM_F16 || type == COMM_BF16;
}

/* The accumulator of some inputs: a subtree of the tree of all. It is no longer than an element, except that of 16-bit floats it is a
 * float, since they are rounded once. */
FOLD_INLINE void fold_accumulate(const struct fold_args *a, size_t index, void *accumulators)
{
    size_t bytes = fold_bytes(a->type), at = index * bytes;
    char *to = (char *)accumulators + at;

    if (fold_is_half(a->type))
        ((float *)accumulators)[index] = fold_tree_of_halves(a, at);
    else if (a->type == COMM_F32)
        *(float *)(void *)to = fold_tree_of_singles(a, at);
    else if (a->type == COMM_F64)
        *(double *)(void *)to = fold_tree_of_doubles(a, at);
    else
        fold_store_integer(to, fold_tree_of_integers(a, at), bytes);
}

/* As fold_element, of inputs that are accumulators. */
FOLD_INLINE void fold_accumulated(const struct fold_args *a, size_t index)
{
    if (fold_is_half(a->type)) {
        float sum = fold_tree_of_singles(a, index * sizeof(float));
        ((uint16_t *)a->out)[index] = (uint16_t)fold_encode(a->op == COMM_AVG ? sum / (float)a->divisor : sum, a->type);
    } else {
        fold_element(a, index);
    }
}

/* One thread's part: every step-th element, from `first` on. */
FOLD_INLINE void fold_thread(const struct fold_args *a, size_t first, size_t step)
{
    for (size_t i = first; i < a->elements; i += step)
        fold_element(a, i);
}

#endif
