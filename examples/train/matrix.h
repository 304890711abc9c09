/* Products of dense row-major matrices of float: by a BLAS library on one thread if the build found one, else by a blocked loop. */
#ifndef TRAIN_MATRIX_H
#define TRAIN_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

/* c (rows x columns) = op(a) * op(b). inner is the length of the sums. op transposes if the flag is set. */
struct matrix_product {
    bool transpose_a, transpose_b;
    size_t rows, columns, inner;
    const float *a, *b;
    float *c;
};

void matrix_begin(void); /* call once: a rank has one CPU, so a BLAS library must not start threads */
const char *matrix_library(void);
void matrix_multiply(const struct matrix_product *product);

#endif
