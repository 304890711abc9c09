/* Finds the kernel of a pair, and the instruction sets of this machine. The lookup happens for each operation, so it is
 * a table. */
#include "data/kernel.h"

#include "base/check.h"

#if DATA_WIDE
#    include <cpuid.h>

/* __builtin_cpu_supports also checks the operating system's part (saved registers), but not every compiler's version
 * knows F16C. */
static bool cpu_has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

enum data_isa data_isa_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !cpu_has_f16c())
        return DATA_SCALAR;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return DATA_AVX512;
    return DATA_AVX2;
}
#else
enum data_isa data_isa_best(void)
{
    return DATA_SCALAR;
}
#endif

const char *data_isa_name(enum data_isa isa)
{
    static const char *const names[] = {[DATA_SCALAR] = "scalar", [DATA_AVX2] = "avx2", [DATA_AVX512] = "avx512"};
    return (unsigned)isa < sizeof(names) / sizeof(names[0]) ? names[isa] : "?";
}

enum { TYPE_COUNT = COMM_F64 + 1, OP_COUNT = COMM_LXOR + 1 };

/* 1 + the kernel; 0: none. A byte uses the bit operators of u8, a bool its logical ones. What does not depend on the
 * sign uses the unsigned kernel. */
static const uint8_t kernel_of[TYPE_COUNT][OP_COUNT] = {
#define KERNEL_OF(name, type, op, hot) [type][op] = 1 + DATA_KERNEL_##name,
    DATA_KERNELS(KERNEL_OF)
#undef KERNEL_OF
#define KERNEL_OF_SIGNED(bits, name, op) [COMM_I##bits][op] = 1 + DATA_KERNEL_u##bits##_##name,
#define KERNELS_OF_SIGNED(bits)                                                                                                            \
    KERNEL_OF_SIGNED(bits, sum, COMM_SUM)                                                                                                  \
    KERNEL_OF_SIGNED(bits, prod, COMM_PROD)                                                                                                \
    KERNEL_OF_SIGNED(bits, band, COMM_BAND)                                                                                                \
    KERNEL_OF_SIGNED(bits, bor, COMM_BOR)                                                                                                  \
    KERNEL_OF_SIGNED(bits, bxor, COMM_BXOR)                                                                                                \
    KERNEL_OF_SIGNED(bits, land, COMM_LAND)                                                                                                \
    KERNEL_OF_SIGNED(bits, lor, COMM_LOR)                                                                                                  \
    KERNEL_OF_SIGNED(bits, lxor, COMM_LXOR)
        KERNELS_OF_SIGNED(8) KERNELS_OF_SIGNED(16) KERNELS_OF_SIGNED(32) KERNELS_OF_SIGNED(64)
#undef KERNELS_OF_SIGNED
#undef KERNEL_OF_SIGNED
            [COMM_BYTE][COMM_BAND] = 1 + DATA_KERNEL_u8_band,
    [COMM_BYTE][COMM_BOR] = 1 + DATA_KERNEL_u8_bor,
    [COMM_BYTE][COMM_BXOR] = 1 + DATA_KERNEL_u8_bxor,
    [COMM_BOOL][COMM_LAND] = 1 + DATA_KERNEL_u8_land,
    [COMM_BOOL][COMM_LOR] = 1 + DATA_KERNEL_u8_lor,
    [COMM_BOOL][COMM_LXOR] = 1 + DATA_KERNEL_u8_lxor,
};
_Static_assert(DATA_KERNEL_COUNT < 255, "a kernel's number fits a byte");

static const uint8_t bytes_of[TYPE_COUNT] = {
    [COMM_BYTE] = 1, [COMM_BOOL] = 1, [COMM_I8] = 1,  [COMM_U8] = 1,  [COMM_I16] = 2, [COMM_U16] = 2, [COMM_F16] = 2,
    [COMM_BF16] = 2, [COMM_I32] = 4,  [COMM_U32] = 4, [COMM_F32] = 4, [COMM_I64] = 8, [COMM_U64] = 8, [COMM_F64] = 8,
};

static data_reduce_fn *other_reducer(enum comm_type type, comm_op op, enum data_isa isa)
{
    data_reduce_fn *reducer = data_reducer_f8(type, op, isa);

    return reducer ? reducer : data_reducer_pairs(type, op, isa);
}

size_t data_pair_bytes(enum comm_type type, comm_op op)
{
    if (BASE_LIKELY((unsigned)type < TYPE_COUNT && op < OP_COUNT && kernel_of[type][op]))
        return bytes_of[type];
    return other_reducer(type, op, DATA_SCALAR) ? data_type_bytes(type) : 0;
}

data_reduce_fn *data_reducer(enum comm_type type, comm_op op, enum data_isa isa)
{
    if ((unsigned)type >= TYPE_COUNT || op >= OP_COUNT || !kernel_of[type][op])
        return other_reducer(type, op, isa);
    const unsigned kernel = kernel_of[type][op] - 1u;
#if DATA_WIDE
    if (isa == DATA_AVX512)
        return data_reducers_avx512[kernel];
    if (isa == DATA_AVX2)
        return data_reducers_avx2[kernel];
#endif
    (void)isa;
    return data_reducers_scalar[kernel];
}
