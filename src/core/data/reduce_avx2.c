/* The kernels in 32-byte vectors, with the CPU's f16 conversions. Compiled for AVX2 and F16C; reached only where data_isa_best found them.
 */
#define DATA_VECTOR_BYTES 32
#define DATA_ISA avx2
#include "data/reduce_body.h"
