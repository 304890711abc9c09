/*
 * vector: one register of DATA_VECTOR_BYTES bytes, the operations on it, and its loads and stores. Written with the
 * compilers' generic vectors, so each lane is computed alike at every width. Each reduce_*.c includes it once and
 * defines the width first.
 *
 * Type and operator are constants at every call, so every switch here disappears.
 */
#ifndef DATA_VECTOR_H
#define DATA_VECTOR_H

#include "data/kernel.h"

#include <string.h>

#if DATA_X86
#    include <immintrin.h>
#endif

#define DATA_VECTOR(lane, name) typedef lane name __attribute__((vector_size(DATA_VECTOR_BYTES)))
DATA_VECTOR(uint8_t, vector_u8);
DATA_VECTOR(uint16_t, vector_u16);
DATA_VECTOR(uint32_t, vector_u32);
DATA_VECTOR(uint64_t, vector_u64);
DATA_VECTOR(int8_t, vector_i8);
DATA_VECTOR(int16_t, vector_i16);
DATA_VECTOR(int32_t, vector_i32);
DATA_VECTOR(int64_t, vector_i64);
DATA_VECTOR(float, vector_f32);
DATA_VECTOR(double, vector_f64);
#undef DATA_VECTOR
typedef vector_u64 vector; /* bits, without a meaning of lanes */

/* ------------------------------------------------------------------------------------------------------------ memory */
DATA_INLINE vector vector_load(const void *from)
{
    vector value;
    memcpy(&value, from, sizeof(value));
    return value;
}

DATA_INLINE void vector_store(void *to, vector value)
{
    memcpy(to, &value, sizeof(value));
}

/* Non-temporal store; `to` is aligned to the vector. */
DATA_INLINE void vector_stream(void *to, vector value)
{
#if DATA_VECTOR_BYTES == 64
    _mm512_stream_si512((__m512i *)to, (__m512i)value);
#elif DATA_VECTOR_BYTES == 32
    _mm256_stream_si256((__m256i *)to, (__m256i)value);
#elif DATA_X86
    _mm_stream_si128((__m128i *)to, (__m128i)value);
#else
    vector_store(to, value);
#endif
}

DATA_INLINE void vector_fence(void)
{
#if DATA_X86
    _mm_sfence();
#endif
}

/* ------------------------------------------------------------------------------------------------------------ operators */
DATA_INLINE vector vector_pick(vector mask, vector a, vector b)
{
    return (a & mask) | (b & ~mask);
}

/* If neither is less: equal numbers have equal bits, except zeros, where OR gives -0 and AND gives +0. A NaN ORed with
 * anything is a NaN. */
DATA_INLINE vector vector_float_min(vector less, vector more, vector a, vector b)
{
    return (a & less) | (b & more) | ((a | b) & ~(less | more));
}

DATA_INLINE vector vector_float_max(vector less, vector more, vector equal, vector a, vector b)
{
    return (a & more) | (b & less) | (a & b & equal) | ((a | b) & ~(less | more | equal));
}

#define DATA_COMBINE_FLOAT(lanes)                                                                                                          \
    DATA_INLINE vector combine_##lanes(vector x, vector y, comm_op op)                                                                     \
    {                                                                                                                                      \
        const vector_##lanes a = (vector_##lanes)x, b = (vector_##lanes)y;                                                                 \
        switch (op) {                                                                                                                      \
        case COMM_PROD:                                                                                                                    \
            return (vector)(a * b);                                                                                                        \
        case COMM_MIN:                                                                                                                     \
            return vector_float_min((vector)(a < b), (vector)(a > b), x, y);                                                               \
        case COMM_MAX:                                                                                                                     \
            return vector_float_max((vector)(a < b), (vector)(a > b), (vector)(a == b), x, y);                                             \
        default: /* SUM, AVG */                                                                                                            \
            return (vector)(a + b);                                                                                                        \
        }                                                                                                                                  \
    }

#define DATA_COMBINE_INTEGER(lanes)                                                                                                        \
    DATA_INLINE vector combine_##lanes(vector x, vector y, comm_op op)                                                                     \
    {                                                                                                                                      \
        const vector_##lanes a = (vector_##lanes)x, b = (vector_##lanes)y, none = {0};                                                     \
        const vector one = (vector)(none + 1);                                                                                             \
        switch (op) {                                                                                                                      \
        case COMM_PROD:                                                                                                                    \
            return (vector)(a * b);                                                                                                        \
        case COMM_MIN:                                                                                                                     \
            return vector_pick((vector)(a < b), x, y);                                                                                     \
        case COMM_MAX:                                                                                                                     \
            return vector_pick((vector)(a > b), x, y);                                                                                     \
        case COMM_BAND:                                                                                                                    \
            return x & y;                                                                                                                  \
        case COMM_BOR:                                                                                                                     \
            return x | y;                                                                                                                  \
        case COMM_BXOR:                                                                                                                    \
            return x ^ y;                                                                                                                  \
        case COMM_LAND:                                                                                                                    \
            return (vector)(a != none) & (vector)(b != none) & one;                                                                        \
        case COMM_LOR:                                                                                                                     \
            return (vector)((a | b) != none) & one;                                                                                        \
        case COMM_LXOR:                                                                                                                    \
            return ((vector)(a != none) ^ (vector)(b != none)) & one;                                                                      \
        default:                                                                                                                           \
            return (vector)(a + b);                                                                                                        \
        }                                                                                                                                  \
    }

/* Signed lanes: only min and max; the unsigned kernels do what could overflow. */
#define DATA_COMBINE_SIGNED(lanes)                                                                                                         \
    DATA_INLINE vector combine_##lanes(vector x, vector y, comm_op op)                                                                     \
    {                                                                                                                                      \
        const vector_##lanes a = (vector_##lanes)x, b = (vector_##lanes)y;                                                                 \
        return op == COMM_MIN ? vector_pick((vector)(a < b), x, y) : vector_pick((vector)(a > b), x, y);                                   \
    }

DATA_COMBINE_FLOAT(f32)
DATA_COMBINE_FLOAT(f64)
DATA_COMBINE_INTEGER(u8)
DATA_COMBINE_INTEGER(u16)
DATA_COMBINE_INTEGER(u32)
DATA_COMBINE_INTEGER(u64)
DATA_COMBINE_SIGNED(i8)
DATA_COMBINE_SIGNED(i16)
DATA_COMBINE_SIGNED(i32)
DATA_COMBINE_SIGNED(i64)

/* One node of the tree, the lower rank on the left. */
DATA_INLINE vector vector_combine(vector left, vector right, enum comm_type type, comm_op op)
{
    switch (type) {
    case COMM_F64:
        return combine_f64(left, right, op);
    case COMM_U8:
        return combine_u8(left, right, op);
    case COMM_U16:
        return combine_u16(left, right, op);
    case COMM_U32:
        return combine_u32(left, right, op);
    case COMM_U64:
        return combine_u64(left, right, op);
    case COMM_I8:
        return combine_i8(left, right, op);
    case COMM_I16:
        return combine_i16(left, right, op);
    case COMM_I32:
        return combine_i32(left, right, op);
    case COMM_I64:
        return combine_i64(left, right, op);
    default: /* F32, and the accumulator of the half types */
        return combine_f32(left, right, op);
    }
}

DATA_INLINE vector vector_divide(vector sum, uint32_t divisor, enum comm_type type)
{
    if (type == COMM_F64)
        return (vector)((vector_f64)sum / (double)divisor);
    return (vector)((vector_f32)sum / (float)divisor);
}

#endif
