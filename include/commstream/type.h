/*
 * Element types and operators. Both are numbers that travel between ranks and are ABI; there is no datatype engine (copy a strided layout
 * into a dense buffer). A reduction of floating type gives the same bits on every rank, backend and run, unless order=free was chosen:
 * half-precision types are summed in f32, integers wrap, NaN wins in min and max, and -0 is less than +0.
 *
 * Every type can be moved. Reductions know: F32, F64, F16, BF16, F8E4M3 and F8E5M2 with SUM, PROD, MIN, MAX and AVG; C64 and C128 with SUM,
 * PROD and AVG; I8 to I64 and U8 to U64 with SUM, PROD, MIN, MAX, the bit and the logical operators; BYTE with the bit, BOOL with the
 * logical operators; the INDEX types with MINLOC and MAXLOC. Other pairs have no meaning and are COMM_ERR_UNSUPPORTED. F8E4M3 has no
 * infinities: what is past 448 becomes not a number. May change until 0.1.
 */
#ifndef COMMSTREAM_TYPE_H
#define COMMSTREAM_TYPE_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * MPI_FLOAT and ncclFloat32 are COMM_F32, MPI_DOUBLE is COMM_F64, MPI_BYTE is COMM_BYTE, and so on.
 * COMM_BOOL is one byte, zero or not zero, for the logical operators alone. The INDEX types are packed pairs {value, index} for MINLOC and
 * MAXLOC: f32 and i32 with an int32_t index, f64 and i64 with an int64_t index.
 */
enum comm_type {
    COMM_BYTE = 1,
    COMM_BOOL = 2,
    COMM_I8 = 8,
    COMM_I16 = 9,
    COMM_I32 = 10,
    COMM_I64 = 11,
    COMM_U8 = 16,
    COMM_U16 = 17,
    COMM_U32 = 18,
    COMM_U64 = 19,
    COMM_F8E4M3 = 24,
    COMM_F8E5M2 = 25,
    COMM_F16 = 26,
    COMM_BF16 = 27,
    COMM_F32 = 28,
    COMM_F64 = 29,
    COMM_C64 = 40,
    COMM_C128 = 41,
    COMM_F32_INDEX = 48,
    COMM_F64_INDEX = 49,
    COMM_I32_INDEX = 50,
    COMM_I64_INDEX = 51,
    COMM_TYPE_INT = 0x7fffffff /* keeps the enum an int under -fshort-enums */
};

struct comm_f32_index {
    float value;
    int32_t index;
};

struct comm_f64_index {
    double value;
    int64_t index;
};

/* Operators are numbers too, so that the caller's own ones pass through the same argument. 0 is never valid. */
typedef uint32_t comm_op;

/* AVG is for floating and complex types; REPLACE and NOOP are for windows alone. Ties of MINLOC and MAXLOC go to the lower index. */
enum {
    COMM_SUM = 1,
    COMM_PROD = 2,
    COMM_MIN = 3,
    COMM_MAX = 4,
    COMM_AVG = 5,
    COMM_BAND = 6,
    COMM_BOR = 7,
    COMM_BXOR = 8,
    COMM_LAND = 9,
    COMM_LOR = 10,
    COMM_LXOR = 11,
    COMM_MINLOC = 12,
    COMM_MAXLOC = 13,
    COMM_REPLACE = 14,
    COMM_NOOP = 15
};

/* inout = in (op) inout, element by element; in comes from the lower ranks. Runs on whichever thread makes progress, on several at once
 * where several reductions run; may not call the library. */
typedef void comm_op_fn(void *inout, const void *in, size_t elements, void *arg);

struct comm_op_options {
    size_t size;      /* sizeof(struct comm_op_options) */
    const char *name; /* part of what ranks compare: the same on all of them */
    size_t
        element_bytes; /* one element of fn, 1 to 4096, e.g. 32 for a 2x2 matrix of f64: never split; buffers are COMM_BYTE, n in bytes */
    int32_t ordered;   /* 1: associative but not commutative */
    int32_t reserved;
};

/*
 * Makes an operator of the caller's own; its number is used wherever a comm_op is. Local; every rank that reduces with it makes one of the
 * same name, element size and order. Lives as long as the world that c belongs to, or until freed; there is no limit on how many.
 * fn is used along the same order as any other operator's, so it need only be associative. Errors: ARGUMENT, MEMORY. Any thread.
 * MPI_Op_create, ncclRedOpCreatePreMulSum.
 */
COMM_MUST enum comm_result comm_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg, const struct comm_op_options *options,
                                          comm_op *op);
/*
 * Gives an operator back; operations in flight that use it still finish with it. Built-in operators are left alone. Any thread.
 * MPI_Op_free.
 */
COMM_API void comm_op_free(struct comm_communicator *c, comm_op op);

#ifdef __cplusplus
}
#endif

#endif
