/* The kernels of the module, for devices. nvcc compiles this file where it is; the module has the result as data, and loads it. */
#include "cuda/fold_kernel.h"

extern "C" __global__ void comm_fold(struct fold_args a)
{
    fold_thread(&a, (size_t)blockIdx.x * blockDim.x + threadIdx.x, (size_t)gridDim.x * blockDim.x);
}
