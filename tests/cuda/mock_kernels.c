/*
 * Kernels of the mock driver. The module's kernels are compiled here for the CPU, from the source that nvcc compiles for devices. A launch
 * runs all threads of all blocks, one after the other. The order is a permutation that the seed chooses, since a device has no order.
 */
#include "mock_inside.h"

#include "cuda/fold_kernel.h"

#include <stdlib.h>
#include <string.h>

CUDA_CALLS(CUDA_EXPORT)

enum { UNSUPPORTED_PTX = 222, NOT_FOUND = 500 };
struct CUmod_st {
    int device;
};
struct CUfunc_st {
    const char *name;
    size_t bytes; /* of its argument */
    void (*thread)(const void *args, size_t index, size_t count);
};
struct launched {
    const struct CUfunc_st *function;
    size_t threads;
    uint64_t order;
    bool recorded; /* it belongs to a graph */
    _Alignas(16) unsigned char args[128];
};

static void fold(const void *args, size_t index, size_t count)
{
    fold_thread(args, index, count);
}

static struct CUfunc_st functions[] = {{"comm_fold", sizeof(struct fold_args), fold}};

unsigned mock_cuModuleLoadData(struct CUmod_st **module, const void *image)
{
    CUDA_BEGIN_INSIDE;
    if (mock.options.no_kernels || !image)
        CUDA_END(UNSUPPORTED_PTX);
    *module = malloc(sizeof **module);
    (*module)->device = mock_device();
    mock_add(THING_MODULE, *module, 0, mock_device());
    CUDA_END(CUDA_OK);
}

unsigned mock_cuModuleUnload(struct CUmod_st *module)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_remove(THING_MODULE, module))
        CUDA_END(CUDA_INVALID_VALUE);
    free(module);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    CUDA_BEGIN_INSIDE;
    if (mock_find(module) != THING_MODULE)
        CUDA_END(CUDA_INVALID_VALUE);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        *function = &functions[i];
        CUDA_END(CUDA_OK);
    }
    CUDA_END(NOT_FOUND);
}

/* i * odd + shift is a permutation of a power of two; those beyond the end are left out. */
static void run(void *arg)
{
    struct launched *l = arg;
    size_t most = 1;

    while (most < l->threads)
        most *= 2;
    for (size_t i = 0; i < most; i++) {
        size_t index = (i * (l->order | 1) + (l->order >> 32)) & (most - 1);
        if (index < l->threads)
            l->function->thread(l->args, index, l->threads);
    }
    if (!l->recorded)
        free(l);
}

unsigned mock_cuLaunchKernel(struct CUfunc_st *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                             unsigned threads_y, unsigned threads_z, unsigned shared_bytes, struct CUstream_st *stream, void **parameters,
                             void **extra)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream) || !blocks_x || blocks_y != 1 || blocks_z != 1 || threads_x > 1024 || threads_y != 1 || threads_z != 1 ||
        shared_bytes || extra)
        CUDA_END(CUDA_INVALID_VALUE);
    struct launched *l = calloc(1, sizeof *l);
    l->function = function;
    l->threads = (size_t)blocks_x * threads_x;
    l->order = mock_draw(UINT32_MAX) << 32 | mock_draw(UINT32_MAX);
    l->recorded = mock_stream(stream)->graph != NULL;
    memcpy(l->args, parameters[0], function->bytes);
    struct mock_op *op = mock_push(mock_stream(stream), OP_KERNEL);
    op->fn = run;
    op->arg = l;
    op->drop = l->recorded ? free : NULL;
    CUDA_END(CUDA_OK);
}
