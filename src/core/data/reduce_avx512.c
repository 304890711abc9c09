/* The kernels in 64-byte vectors. Compiled for AVX-512 F, BW, DQ and VL; used only if data_isa_best finds them. */
#define DATA_VECTOR_BYTES 64
#define DATA_ISA avx512
#include "data/reduce_body.h"
