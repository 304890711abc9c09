/*
 * oracle: what every collective must produce, computed one element at a time from the specified order alone: the tree
 * T(p) evaluated recursively, in the accumulator, rounded once. It shares no line with the library's kernels, and is
 * slow on purpose. It also makes the data: values whose sum shows in which order they were added, among them NaN,
 * infinities, both zeros and denormals.
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
/* Whether the pair is valid: avg is for floating and complex types, bit and logical operators for integers, an order
 * for types that have one. */
bool oracle_pair(enum comm_type type, comm_op op);

/* splitmix64: the only source of randomness in these tests. */
uint64_t oracle_random(uint64_t *state);

/* Element i of rank's contribution depends only on (seed, i, rank). */
void oracle_fill(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank);
/* Values of which every order of operands makes the same result, since no step rounds: the sum or product of all ranks, and of any of them;
 * an average also if the inputs are divided before the sum. Small whole numbers; for products powers of two, but for one rank's factor. */
void oracle_fill_exact(void *at, size_t n, enum comm_type type, comm_op op, uint64_t seed, int32_t rank, int32_t ranks);
/* Whether there are such values. Not for averages over a number of ranks that is no power of two, since 1/3 is rounded. */
bool oracle_has_exact(enum comm_type type, comm_op op, int32_t ranks);
/* 1, or the number of ranks of the blocks over which T is evaluated first. Set only while nothing else runs. */
extern int32_t oracle_block;
/* out[i] = T over in[0..ranks)[i]. */
void oracle_reduce(const void *const *in, int32_t ranks, size_t n, enum comm_type type, comm_op op, void *out);

/* The first element that differs, or n. Compares bits, except that all NaNs are equal. */
size_t oracle_differ(const void *got, const void *want, size_t n, enum comm_type type);
bool oracle_has_nan(const void *at, size_t n, enum comm_type type);
/* A hash of n elements, in which all NaNs are equal, for comparison across processes. */
uint64_t oracle_hash(const void *at, size_t n, enum comm_type type, uint64_t seed);
/* An element as text, for error messages. */
const char *oracle_text(const void *at, size_t i, enum comm_type type, char text[64]);

#endif
