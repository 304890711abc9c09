/* The correct result of a reduction, computed as simply as possible and unlike the kernels: by recursion over ranges of
 * inputs, one element at a time, with half floats rounded by exact arithmetic in double. Slow. */
#ifndef TESTS_DATA_ORACLE_H
#define TESTS_DATA_ORACLE_H

#include "data/data.h"

/* One number in the accumulator of a type: a float type in f (which holds f32 exactly), an integer in u
 * (sign-extended). */
struct oracle_value {
    double f;
    uint64_t u;
};

bool oracle_is_float(enum comm_type type);
double oracle_decode_half(enum comm_type type, uint16_t bits);
uint16_t oracle_encode_half(enum comm_type type, double value); /* value is an f32 */

/* Element `at` of a buffer of raw elements or of accumulators. */
struct oracle_value oracle_load(enum comm_type type, bool partial, const void *from, size_t at);
void oracle_store(enum comm_type type, bool partial, void *to, size_t at, struct oracle_value value);

/* What the reduction writes: the elements of its output. */
void oracle_reduce(enum comm_type type, comm_op op, const struct data_reduce *reduce, void *to);

/* Equal bits, or NaN in both. */
bool oracle_same(enum comm_type type, bool partial, const void *a, const void *b, size_t at);

uint64_t oracle_random(uint64_t *state);
/* Values of every kind: small numbers, any bits, zeros of both signs, infinities, NaN, denormals, ties. */
void oracle_fill(enum comm_type type, bool partial, void *to, size_t elements, uint64_t *state);

#endif
