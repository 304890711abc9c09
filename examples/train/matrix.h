/* Products of dense row-major matrices of float: a BLAS library where the build found one, on one thread, else a blocked loop. */
#ifndef TRAIN_MATRIX_H
#define TRAIN_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

/* c (rows x columns) = op(a) * op(b); inner is the length summed over; op transposes where told. */
struct matrix_product {
    bool transpose_a, transpose_b;
    size_t rows, columns, inner;
    const float *a, *b;
    float *c;
};

void matrix_begin(void); /* once: one rank is one CPU, so a BLAS library must not start threads of its own */
const char *matrix_library(void);
void matrix_multiply(const struct matrix_product *product);

#endif
