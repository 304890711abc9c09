/* The kernels of the module, for devices. nvcc compiles this file where it is; the module has the result as data, and loads it. */
#include "cuda/combine_kernel.h"

extern "C" __global__ void comm_fold(struct fold_args a)
{
    fold_thread(&a, (size_t)blockIdx.x * blockDim.x + threadIdx.x, (size_t)gridDim.x * blockDim.x);
}

extern "C" __global__ void __launch_bounds__(ONESHOT_THREADS) comm_combine(const __grid_constant__ struct combine_args a)
{
    combine_thread(&a, (size_t)blockIdx.x * blockDim.x + threadIdx.x, (size_t)gridDim.x * blockDim.x, false);
}

extern "C" __global__ void __launch_bounds__(ONESHOT_THREADS) comm_combine_many(const __grid_constant__ struct combine_args a)
{
    combine_thread(&a, (size_t)blockIdx.x * blockDim.x + threadIdx.x, (size_t)gridDim.x * blockDim.x, true);
}

/* A thread that must wait looks again. The others of its block wait at the barrier. */
extern "C" __global__ void __launch_bounds__(ONESHOT_THREADS) comm_allreduce(const __grid_constant__ struct oneshot_args a)
{
    __shared__ struct oneshot_block block;

#pragma unroll
    for (uint32_t phase = 0; phase < ONESHOT_PHASES; phase++) {
        while (!oneshot_step(&a, &block, phase, threadIdx.x, ONESHOT_THREADS))
            continue;
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(ONESHOT_THREADS) comm_trial(const __grid_constant__ struct oneshot_trial t)
{
    __shared__ struct oneshot_trial_block block;

    for (uint32_t phase = 0; phase < oneshot_trial_phases(&t); phase++) {
        while (!oneshot_try(&t, &block, phase, threadIdx.x, ONESHOT_THREADS))
            continue;
        __syncthreads();
    }
}
