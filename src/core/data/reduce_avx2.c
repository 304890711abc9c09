/* The kernels in 32-byte vectors, with the CPU's f16 conversions. Compiled for AVX2 and F16C; used only if
 * data_isa_best finds them. */
#define DATA_VECTOR_BYTES 32
#define DATA_ISA avx2
#include "data/reduce_body.h"
