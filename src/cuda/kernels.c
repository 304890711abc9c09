/* Loads the module's kernels into a device, and launches them. */
#include "cuda/kernels.h"

enum { THREADS = 256, BLOCKS_MOST = 128 };

void cuda_load_kernels(struct cuda_device *d)
{
    const struct cuda_calls *calls = d->calls;
    struct CUfunc_st *fold = NULL;

    if (!cuda_kernels_bytes || atomic_exchange_explicit(&d->kernels.asked, true, memory_order_relaxed))
        return;
    if (calls->cuModuleLoadData(&d->kernels.module, cuda_kernels) != CUDA_OK) {
        d->kernels.module = NULL; /* the driver is older than the toolkit, or the device is older than all that it compiled for */
        return;
    }
    if (calls->cuModuleGetFunction(&fold, d->kernels.module, "comm_fold") == CUDA_OK)
        atomic_store_explicit(&d->kernels.fold, fold, memory_order_release);
}

void cuda_unload_kernels(struct cuda_device *d)
{
    if (d->kernels.module)
        d->calls->cuModuleUnload(d->kernels.module);
}

bool cuda_can_fold(struct cuda_device *d, enum comm_type type, comm_op op)
{
    return fold_has(type, op) && atomic_load_explicit(&d->kernels.fold, memory_order_acquire);
}

unsigned cuda_fold(struct cuda_device *d, const struct fold_args *args, struct CUstream_st *stream)
{
    struct fold_args copy = *args;
    void *parameters[] = {&copy};
    size_t blocks = (args->elements + THREADS - 1) / THREADS;

    return d->calls->cuLaunchKernel(atomic_load_explicit(&d->kernels.fold, memory_order_acquire),
                                    (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST), 1, 1, THREADS, 1, 1, 0, stream, parameters,
                                    NULL);
}
