/* Loads the module's kernels into a device, and launches them. */
#include "cuda/kernels.h"

enum { THREADS = 256, BLOCKS_MOST = 128, LOOK_NS = 10000000 };

static void find(struct cuda_device *d, const char *name, _Atomic(struct CUfunc_st *) *to)
{
    struct CUfunc_st *function = NULL;

    if (d->calls->cuModuleGetFunction(&function, d->kernels.module, name) == CUDA_OK)
        atomic_store_explicit(to, function, memory_order_release);
}

static void load(struct cuda_device *d)
{
    if (d->calls->cuModuleLoadData(&d->kernels.module, cuda_kernels) != CUDA_OK) {
        d->kernels.module = NULL; /* the driver is older than the toolkit, or the device is older than all that it compiled for */
        return;
    }
    find(d, "comm_fold", &d->kernels.fold);
    find(d, "comm_allreduce", &d->kernels.oneshot);
    find(d, "comm_trial", &d->kernels.trial);
    find(d, "comm_combine", &d->kernels.combine);
    find(d, "comm_combine_many", &d->kernels.combine_many);
}

void cuda_load_kernels(struct cuda_device *d)
{
    const struct comm_env *env = d->env;
    uint32_t before = CUDA_UNLOADED;

    if (!cuda_kernels_bytes)
        return;
    if (atomic_compare_exchange_strong(&d->kernels.asked, &before, CUDA_LOADING)) {
        load(d);
        atomic_store_explicit(&d->kernels.asked, CUDA_LOADED, memory_order_release);
        env->wake(env, &d->kernels.asked, UINT32_MAX);
    }
    while (atomic_load_explicit(&d->kernels.asked, memory_order_acquire) == CUDA_LOADING)
        env->park(env, &d->kernels.asked, CUDA_LOADING, env->now(env) + LOOK_NS);
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

/* A thread for each unit, up to a number of blocks; then each thread has several. */
static unsigned launch_for(struct cuda_device *d, struct CUfunc_st *function, size_t units, void *args, struct CUstream_st *stream)
{
    size_t blocks = (units + THREADS - 1) / THREADS;

    return d->calls->cuLaunchKernel(function, (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST), 1, 1, THREADS, 1, 1, 0, stream,
                                    (void *[]){args}, NULL);
}

unsigned cuda_fold(struct cuda_device *d, const struct fold_args *args, struct CUstream_st *stream)
{
    struct fold_args copy = *args;

    return launch_for(d, atomic_load_explicit(&d->kernels.fold, memory_order_acquire), args->elements, &copy, stream);
}

static bool has_host_pointers(struct cuda_device *d)
{
    int has = 0;

    return d->calls->cuDeviceGetAttribute(&has, CUDA_ATTRIBUTE_HOST_POINTERS, d->ordinal) == CUDA_OK && has;
}

bool cuda_can_combine(struct cuda_device *d)
{
    return atomic_load_explicit(&d->kernels.combine, memory_order_acquire) &&
           atomic_load_explicit(&d->kernels.combine_many, memory_order_acquire) && has_host_pointers(d);
}

unsigned cuda_combine(struct cuda_device *d, const struct combine_args *args, struct CUstream_st *stream)
{
    struct combine_args copy = *args;
    size_t each = args->in_pieces ? ONESHOT_PIECE_BYTES / fold_bytes(args->type) : 1;

    _Atomic(struct CUfunc_st *) *kernel = args->ranks > ONESHOT_BATCH ? &d->kernels.combine_many : &d->kernels.combine;
    return launch_for(d, atomic_load_explicit(kernel, memory_order_acquire), (args->elements + each - 1) / each, &copy, stream);
}

bool cuda_can_run_oneshot(struct cuda_device *d)
{
    return atomic_load_explicit(&d->kernels.oneshot, memory_order_acquire) && has_host_pointers(d);
}

unsigned cuda_run_oneshot(struct cuda_device *d, const struct oneshot_args *args, struct CUstream_st *stream)
{
    struct oneshot_args copy = *args;
    void *parameters[] = {&copy};

    return d->calls->cuLaunchKernel(atomic_load_explicit(&d->kernels.oneshot, memory_order_acquire), args->parts, 1, 1, ONESHOT_THREADS, 1,
                                    1, 0, stream, parameters, NULL);
}

bool cuda_can_try(struct cuda_device *d)
{
    return atomic_load_explicit(&d->kernels.trial, memory_order_acquire) != NULL;
}

unsigned cuda_run_trial(struct cuda_device *d, const struct oneshot_trial *trial, struct CUstream_st *stream)
{
    struct oneshot_trial copy = *trial;
    void *parameters[] = {&copy};

    return d->calls->cuLaunchKernel(atomic_load_explicit(&d->kernels.trial, memory_order_acquire), 1, 1, 1, ONESHOT_THREADS, 1, 1, 0,
                                    stream, parameters, NULL);
}
