#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUctx_st;
typedef unsigned long long address;
enum { NON_BLOCKING = 1, PORTABLE = 1 };

static unsigned (*init)(unsigned flags);
static unsigned (*get_count)(int *count);
static unsigned (*retain)(struct CUctx_st **context, int device);
static unsigned (*push)(struct CUctx_st *context);
static unsigned (*make_stream)(struct CUstream_st **stream, unsigned flags, int priority);
static unsigned (*end_stream)(struct CUstream_st *stream);
static unsigned (*take)(address *memory, size_t bytes);
static unsigned (*give)(address memory);
static unsigned (*take_pinned)(void **memory, size_t bytes, unsigned flags);
static unsigned (*give_pinned)(void *memory);
static unsigned (*copy)(address to, address from, size_t bytes, struct CUstream_st *stream);

static const struct {
    const char *name;
    void *pointer; /* to the variable above */
} calls[] = {
    {"cuInit", &init},
    {"cuDeviceGetCount", &get_count},
    {"cuDevicePrimaryCtxRetain", &retain},
    {"cuCtxPushCurrent_v2", &push},
    {"cuStreamCreateWithPriority", &make_stream},
    {"cuStreamDestroy_v2", &end_stream},
    {"cuMemAlloc_v2", &take},
    {"cuMemFree_v2", &give},
    {"cuMemHostAlloc", &take_pinned},
    {"cuMemFreeHost", &give_pinned},
    {"cuMemcpyAsync", &copy},
};

static void must(unsigned result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: CUDA error %u\n", what, result);
    exit(1);
}

bool device_load(void)
{
    int count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; driver != NULL && i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(driver, calls[i].name);
        if (symbol == NULL)
            driver = NULL;
        memcpy(calls[i].pointer, &symbol, sizeof symbol);
    }
    if (driver != NULL && init(0) == 0 && get_count(&count) == 0 && count > 0)
        return true;
    fprintf(stderr, "train_cuda: no CUDA driver (libcuda.so.1), or no device\n");
    return false;
}

bool device_use(int rank_of_host)
{
    int count = 0;
    struct CUctx_st *context = NULL;
    return get_count(&count) == 0 && count > 0 && retain(&context, rank_of_host % count) == 0 && push(context) == 0;
}

struct CUstream_st *device_stream(void)
{
    struct CUstream_st *stream = NULL;
    must(make_stream(&stream, NON_BLOCKING, 0), "cuStreamCreateWithPriority");
    return stream;
}

void device_drop_stream(struct CUstream_st *stream)
{
    must(end_stream(stream), "cuStreamDestroy");
}

void *device_memory(size_t bytes)
{
    address memory = 0;
    must(take(&memory, bytes), "cuMemAlloc");
    return (void *)(uintptr_t)memory;
}

void device_free(void *memory)
{
    must(give((uintptr_t)memory), "cuMemFree");
}

void *device_pinned(size_t bytes)
{
    void *memory = NULL;
    must(take_pinned(&memory, bytes, PORTABLE), "cuMemHostAlloc");
    memset(memory, 0, bytes);
    return memory;
}

void device_free_pinned(void *memory)
{
    must(give_pinned(memory), "cuMemFreeHost");
}

void device_copy(struct CUstream_st *stream, void *to, const void *from, size_t bytes)
{
    must(copy((uintptr_t)to, (uintptr_t)from, bytes, stream), "cuMemcpyAsync");
}
