#include "matrix.h"

#include <string.h>

#ifdef COMM_HAVE_BLAS
#    include <cblas.h>

/* Only OpenBLAS has this function. Other libraries start no threads by default. */
extern void train_blas_threads(int threads) __asm__("openblas_set_num_threads") __attribute__((weak));

void matrix_begin(void)
{
    if (train_blas_threads != NULL)
        train_blas_threads(1);
}

const char *matrix_library(void)
{
    return train_blas_threads != NULL ? "openblas" : "blas";
}

void matrix_multiply(const struct matrix_product *p)
{
    cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans, p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->rows,
                (int)p->columns, (int)p->inner, 1.0f, p->a, (int)(p->transpose_a ? p->rows : p->inner), p->b,
                (int)(p->transpose_b ? p->inner : p->columns), 0.0f, p->c, (int)p->columns);
}

#else

enum { TILE = 64 };

void matrix_begin(void) {}

const char *matrix_library(void)
{
    return "a plain loop";
}

/*
 * Adds the contribution of one tile of b to the product. The tile is stored row by row, so the innermost loop accesses consecutive memory.
 */
static void matrix_add_tile(const struct matrix_product *p, float tile[TILE][TILE], size_t inner, size_t inners, size_t column,
                            size_t columns)
{
    for (size_t i = 0; i < p->rows; i++) {
        float *to = p->c + i * p->columns + column;
        for (size_t k = 0; k < inners; k++) {
            float factor = p->transpose_a ? p->a[(inner + k) * p->rows + i] : p->a[i * p->inner + inner + k];
            for (size_t j = 0; j < columns; j++)
                to[j] += factor * tile[k][j];
        }
    }
}

void matrix_multiply(const struct matrix_product *p)
{
    float tile[TILE][TILE];
    memset(p->c, 0, p->rows * p->columns * sizeof *p->c);
    for (size_t inner = 0; inner < p->inner; inner += TILE) {
        size_t inners = p->inner - inner < TILE ? p->inner - inner : TILE;
        for (size_t column = 0; column < p->columns; column += TILE) {
            size_t columns = p->columns - column < TILE ? p->columns - column : TILE;
            for (size_t k = 0; k < inners; k++)
                for (size_t j = 0; j < columns; j++)
                    tile[k][j] = p->transpose_b ? p->b[(column + j) * p->inner + inner + k] : p->b[(inner + k) * p->columns + column + j];
            matrix_add_tile(p, tile, inner, inners, column, columns);
        }
    }
}

#endif
