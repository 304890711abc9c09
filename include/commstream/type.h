#ifndef COMMSTREAM_TYPE_H
#define COMMSTREAM_TYPE_H

#include <commstream/export.h>
#include <commstream/result.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are ABI. Pairs are packed {value, index}: f32 i32 with int32_t index, f64 i64 with int64_t index (no padding). */
enum comm_type {
    COMM_BYTE = 1, COMM_BOOL = 2, /* bool: 1 byte, 0 or not 0; land lor lxor only */
    COMM_I8 = 8, COMM_I16 = 9, COMM_I32 = 10, COMM_I64 = 11,
    COMM_U8 = 16, COMM_U16 = 17, COMM_U32 = 18, COMM_U64 = 19,
    COMM_F8E4M3 = 24, COMM_F8E5M2 = 25, COMM_F16 = 26, COMM_BF16 = 27, COMM_F32 = 28, COMM_F64 = 29,
    COMM_C64 = 40, COMM_C128 = 41,
    COMM_F32_INDEX = 48, COMM_F64_INDEX = 49, COMM_I32_INDEX = 50, COMM_I64_INDEX = 51,
    COMM_TYPE_INT = 0x7fffffff
};
struct comm_f32_index { float value; int32_t index; };
struct comm_f64_index { double value; int64_t index; };

/* Operators are numbers too, so that the caller's own ones pass through the same argument. 0 is never valid. */
typedef uint32_t comm_op;
enum {
    COMM_SUM = 1, COMM_PROD = 2, COMM_MIN = 3, COMM_MAX = 4, COMM_AVG = 5 /* floating and complex only */,
    COMM_BAND = 6, COMM_BOR = 7, COMM_BXOR = 8, COMM_LAND = 9, COMM_LOR = 10, COMM_LXOR = 11,
    COMM_MINLOC = 12, COMM_MAXLOC = 13,
    COMM_REPLACE = 14, COMM_NOOP = 15 /* windows only */
};

typedef void comm_op_fn(void *inout, const void *in, size_t elements, void *arg); /* inout = in (op) inout, lower rank on the left */
struct comm_op_options {
    size_t size;
    const char *name;       /* part of the fingerprint: the same on all ranks                                        */
    size_t element_bytes;   /* one element of fn, e.g. 32 for a 2x2 matrix of f64: never split; buffers are COMM_BYTE */
    int32_t ordered, reserved; /* ordered 1: associative but not commutative                                          */
};
/* Operators live as long as the world that c belongs to, or until freed after their last use. No limit on how many. */
COMM_MUST enum comm_result comm_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg,
                                          const struct comm_op_options *options, comm_op *op);
COMM_API void comm_op_free(struct comm_communicator *c, comm_op op);

#ifdef __cplusplus
}
#endif

#endif
