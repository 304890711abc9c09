/*
 * kernel: what the files of this room share. One list names every kernel. Each instruction set compiles the list once,
 * from the same source, so a new pair is one row here, and the results' bits cannot differ.
 *
 * Sums, products and bit operators of signed integers use the unsigned kernels; only min and max need signed ones.
 */
#ifndef DATA_KERNEL_H
#define DATA_KERNEL_H

#include "data/data.h"

#if defined(__x86_64__)
#    define DATA_X86 1
#else
#    define DATA_X86 0
#endif

#define DATA_INLINE static inline __attribute__((always_inline))

/* X(name, type, op, hot): a hot kernel has separate loops for 2, 3, 4 and 8 inputs. */
#define DATA_KERNELS_FLOAT(X, t, type)                                                                                                     \
    X(t##_sum, type, COMM_SUM, 1)                                                                                                          \
    X(t##_avg, type, COMM_AVG, 1)                                                                                                          \
    X(t##_prod, type, COMM_PROD, 0)                                                                                                        \
    X(t##_min, type, COMM_MIN, 0)                                                                                                          \
    X(t##_max, type, COMM_MAX, 0)
#define DATA_KERNELS_SIGNED(X, t, type)                                                                                                    \
    X(t##_min, type, COMM_MIN, 0)                                                                                                          \
    X(t##_max, type, COMM_MAX, 0)
#define DATA_KERNELS_ANY_SIGN(X, t, type)                                                                                                  \
    X(t##_sum, type, COMM_SUM, 1)                                                                                                          \
    X(t##_prod, type, COMM_PROD, 0)                                                                                                        \
    X(t##_band, type, COMM_BAND, 0)                                                                                                        \
    X(t##_bor, type, COMM_BOR, 0)                                                                                                          \
    X(t##_bxor, type, COMM_BXOR, 0)                                                                                                        \
    X(t##_land, type, COMM_LAND, 0)                                                                                                        \
    X(t##_lor, type, COMM_LOR, 0)                                                                                                          \
    X(t##_lxor, type, COMM_LXOR, 0)
#define DATA_KERNELS_INTEGER(X, bits)                                                                                                      \
    DATA_KERNELS_ANY_SIGN(X, u##bits, COMM_U##bits)                                                                                        \
    DATA_KERNELS_SIGNED(X, u##bits, COMM_U##bits)                                                                                          \
    DATA_KERNELS_SIGNED(X, i##bits, COMM_I##bits)
#define DATA_KERNELS(X)                                                                                                                    \
    DATA_KERNELS_FLOAT(X, f32, COMM_F32)                                                                                                   \
    DATA_KERNELS_FLOAT(X, f64, COMM_F64)                                                                                                   \
    DATA_KERNELS_FLOAT(X, f16, COMM_F16)                                                                                                   \
    DATA_KERNELS_FLOAT(X, bf16, COMM_BF16)                                                                                                 \
    DATA_KERNELS_INTEGER(X, 8)                                                                                                             \
    DATA_KERNELS_INTEGER(X, 16)                                                                                                            \
    DATA_KERNELS_INTEGER(X, 32)                                                                                                            \
    DATA_KERNELS_INTEGER(X, 64)

enum data_kernel {
#define DATA_KERNEL_ENUM(name, type, op, hot) DATA_KERNEL_##name,
    DATA_KERNELS(DATA_KERNEL_ENUM)
#undef DATA_KERNEL_ENUM
        DATA_KERNEL_COUNT
};

extern data_reduce_fn *const data_reducers_scalar[DATA_KERNEL_COUNT];
extern data_reduce_fn *const data_reducers_avx2[DATA_KERNEL_COUNT];
extern data_reduce_fn *const data_reducers_avx512[DATA_KERNEL_COUNT];

/* Reduces elements first .. first + count - 1 in the vectors that every CPU has: the few that are too short for a wide
 * loop. Uses plain stores; the caller has set the float mode. */
#define DATA_TAIL_DECLARE(name, type, op, hot) void data_tail_##name(const struct data_reduce *reduce, size_t first, size_t count);
DATA_KERNELS(DATA_TAIL_DECLARE)
#undef DATA_TAIL_DECLARE

/* Reducers made of these kernels. NULL for pairs that these files do not handle. */
data_reduce_fn *data_reducer_f8(enum comm_type type, comm_op op, enum data_isa isa);
data_reduce_fn *data_reducer_pairs(enum comm_type type, comm_op op, enum data_isa isa);

/* Runs the kernel with the default control word, then restores the caller's. */
void data_reduce_pinned(const struct data_reduce *reduce, data_reduce_fn *kernel);

/* MXCSR: the low six bits are only status flags; the default of the rest is round to nearest, no flushing, no traps. */
#if DATA_X86
#    include <xmmintrin.h>
enum { DATA_MXCSR_DEFAULT = 0x1f80, DATA_MXCSR_STICKY = 0x3f };
DATA_INLINE bool data_float_is_default(void)
{
    return (_mm_getcsr() & ~(uint32_t)DATA_MXCSR_STICKY) == DATA_MXCSR_DEFAULT;
}
#else
DATA_INLINE bool data_float_is_default(void)
{
    return true;
}
#endif

DATA_INLINE bool data_type_is_half(enum comm_type type)
{
    return type == COMM_F16 || type == COMM_BF16;
}
DATA_INLINE bool data_type_is_float(enum comm_type type)
{
    return data_type_is_half(type) || type == COMM_F32 || type == COMM_F64;
}

#endif
