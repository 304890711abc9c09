/*
 * oracle: what every collective must produce, worked out one element at a time from the written order alone: the tree T(p) evaluated
 * recursively, in the accumulator, rounded once. It shares no line with the library's kernels, and is slow on purpose. It also makes the
 * data: values whose sum shows in which order they were added, and among them not-a-number, infinities, both zeros and denormals.
 */
#ifndef CONFORM_ORACLE_H
#define CONFORM_ORACLE_H

#include <commstream/type.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORACLE_TYPES = 21, ORACLE_OPS = 13, ORACLE_RANKS_MAX = 64 };
extern const enum comm_type
    oracle_types[ORACLE_TYPES];              /* f32 f64 f16 bf16, signed, unsigned integers, 8-bit floats, bool, complex, indexed */
extern const comm_op oracle_ops[ORACLE_OPS]; /* sum .. maxloc */

const char *oracle_type_name(enum comm_type type);
const char *oracle_op_name(comm_op op);
size_t oracle_type_bytes(enum comm_type type);
bool oracle_is_float(enum comm_type type);
/* Whether the pair means something: avg is for floating and complex types, bits and truth values for integers, an order for what has one.
 */
bool oracle_pair(enum comm_type type, comm_op op);

/* splitmix64: the one source of chance in these tests. */
uint64_t oracle_random(uint64_t *state);

/* Element i of rank's contribution depends on (seed, i, rank) alone. */
void oracle_fill(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank);
/* 1; or of how many ranks the blocks are over which T is evaluated first. Set while nothing else runs. */
extern int32_t oracle_block;
/* out[i] = T over in[0..ranks)[i]. */
void oracle_reduce(const void *const *in, int32_t ranks, size_t n, enum comm_type type, comm_op op, void *out);

/* The first element where they differ, or n. Bits count, but that every not-a-number is like any other. */
size_t oracle_differ(const void *got, const void *want, size_t n, enum comm_type type);
bool oracle_has_nan(const void *at, size_t n, enum comm_type type);
/* One number for n elements, with the same view of not-a-numbers, to compare across processes. */
uint64_t oracle_hash(const void *at, size_t n, enum comm_type type, uint64_t seed);
/* An element as text for a failure. */
const char *oracle_text(const void *at, size_t i, enum comm_type type, char text[64]);

#endif
