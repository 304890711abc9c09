/**
 * @file type.h
 * @brief Element types and reduction operators.
 *
 * Types and operators are numbers, and part of the ABI. There are no derived datatypes: copy a strided layout into a dense buffer.
 * Every type can be moved. These pairs can be reduced; any other pair is COMM_ERR_UNSUPPORTED:
 *
 * | types | operators |
 * |---|---|
 * | F32, F64, F16, BF16, F8E4M3, F8E5M2 | SUM, PROD, MIN, MAX, AVG |
 * | C64, C128 | SUM, PROD, AVG |
 * | I8 to I64, U8 to U64 | SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR |
 * | BYTE | BAND, BOR, BXOR |
 * | BOOL | LAND, LOR, LXOR |
 * | the INDEX types | MINLOC, MAXLOC |
 *
 * A reduction of a floating type gives the same bits on every rank and in every run, except where backends mpi and nccl choose the
 * order (rule 1.14 of docs/reference/contract.md). 16-bit and 8-bit floating types are summed in f32 and rounded once. Integers wrap. In
 * MIN and MAX a NaN wins, and -0 is less than +0. F8E4M3 has no infinity: values above 448 become NaN.
 */
#ifndef COMMSTREAM_TYPE_H
#define COMMSTREAM_TYPE_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The type of an element: MPI_FLOAT and ncclFloat32 are COMM_F32, MPI_DOUBLE is COMM_F64, MPI_BYTE is COMM_BYTE, and so on.
 *
 * COMM_BOOL is one byte, zero or not zero. The INDEX types are packed pairs {value, index}, such as struct comm_f32_index; f32 and i32
 * have an int32_t index, f64 and i64 an int64_t index.
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

/**
 * Returns the size of one element of a type. Like MPI_Type_size.
 *
 * A buffer of n elements has n * comm_type_size(type) bytes. Local; any thread may call, also before a world is open.
 *
 * @param type  any number
 * @return its size in bytes, 1 to 16; 0 if it is not a type
 */
COMM_MUST size_t comm_type_size(enum comm_type type);

/** One element of COMM_F32_INDEX. */
struct comm_f32_index {
    float value;   /**< the value to compare */
    int32_t index; /**< what comes with it */
};

/** One element of COMM_F64_INDEX. */
struct comm_f64_index {
    double value;  /**< the value to compare */
    int64_t index; /**< what comes with it */
};

/** A reduction operator: a built-in number, or one that comm_op_create() or comm_op_create_premul_sum() made. 0 is never valid. */
typedef uint32_t comm_op;

/** The built-in operators. COMM_REPLACE and COMM_NOOP are for windows only. Ties of MINLOC and MAXLOC go to the lower index. */
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

/**
 * A user-defined operator: inout[i] = in[i] op inout[i] for each element; `in` comes from lower ranks.
 *
 * It runs on whichever thread makes progress, and on several threads at once if several reductions run. It must not call the library, or
 * CUDA. Like MPI_User_function.
 *
 * @param inout     right operand, and the result
 * @param in        left operand
 * @param elements  number of elements
 * @param arg       the argument of comm_op_create()
 */
typedef void comm_op_fn(void *inout, const void *in, size_t elements, void *arg);

/** What comm_op_create() needs to know of an operator. */
struct comm_op_options {
    size_t size;          /**< sizeof(struct comm_op_options) */
    const char *name;     /**< identifies the operator: the same on all ranks */
    size_t element_bytes; /**< size of an element, 1 to 4096, such as 32 for a 2x2 matrix of f64. Calls then pass COMM_BYTE, and n in bytes:
                               a multiple of it (otherwise COMM_ERR_ARGUMENT). */
    int32_t ordered;      /**< 1: associative but not commutative */
    int32_t reserved;     /**< 0 */
};

/**
 * Makes a user-defined reduction operator.
 *
 * Local. Each rank that reduces with it makes an operator of the same name, element size and order. It lives until comm_op_free() or
 * until the last communicator of its world is closed. Any number may exist. `fn` is applied in rank order, so it need only be
 * associative. Like MPI_Op_create. Any thread may call.
 *
 * @param c        a communicator of the world that uses the operator
 * @param fn       the operation
 * @param arg      passed to `fn`
 * @param options  name, element size and order; copied
 * @param op       receives the operator
 * @return COMM_OK; COMM_ERR_ARGUMENT; COMM_ERR_UNSUPPORTED for an option that this library does not know; COMM_ERR_MEMORY; COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg, const struct comm_op_options *options,
                                          comm_op *op);

/**
 * Makes a pre-multiplied sum: the operator that multiplies each rank's input by a factor of that rank's own, and adds the products.
 *
 * Local. Calls pass the operator with elements of `type`, in every collective that reduces. Each rank of a call makes one of that type; the
 * factors may differ. If one rank passes another operator, the calls differ: COMM_ERR_MISMATCH. The result is that of COMM_SUM over inputs
 * that the program has multiplied itself: each product is rounded once to the type, then COMM_SUM adds the products. So the bits are those
 * of COMM_SUM. On backend nccl, NCCL computes both. Integers wrap; complex numbers are multiplied as COMM_PROD does. The input is not
 * changed, unless the call is in place. The operator lives until comm_op_free() or until the last communicator of its world is closed. Like
 * ncclRedOpCreatePreMulSum with a scalar of the host. Any thread may call.
 *
 * @param c       a communicator of the world that uses the operator
 * @param type    an integer, floating or complex type
 * @param factor  one element of that type, in host memory; copied
 * @param op      receives the operator
 * @return COMM_OK; COMM_ERR_ARGUMENT; COMM_ERR_UNSUPPORTED for a type without products, such as COMM_BYTE; COMM_ERR_MEMORY; COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_op_create_premul_sum(struct comm_communicator *c, enum comm_type type, const void *factor, comm_op *op);

/**
 * Frees a user-defined operator or a pre-multiplied sum.
 *
 * Operations that use it and are still running finish with it. A built-in operator is ignored. Like MPI_Op_free and ncclRedOpDestroy. Any
 * thread may call.
 *
 * @param c   an open communicator of the world that it was made for; a closed one frees nothing
 * @param op  the operator
 */
COMM_API void comm_op_free(struct comm_communicator *c, comm_op op);

#ifdef __cplusplus
}
#endif

#endif
