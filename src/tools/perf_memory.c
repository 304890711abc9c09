/*
 * Where the buffers of comm-perf are: memory of malloc, of comm_mem_alloc, or of the rank's CUDA device. The few calls of the CUDA driver
 * are loaded at run time, so comm-perf builds and runs without CUDA.
 */
#define _GNU_SOURCE
#include "tools/perf.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_ALIGN = 64, CU_NON_BLOCKING = 1, CU_NOT_READY = 600 };
struct CUctx_st;
typedef unsigned long long cu_address;

static unsigned (*cu_init)(unsigned flags);
static unsigned (*cu_count)(int *count);
static unsigned (*cu_retain)(struct CUctx_st **context, int device);
static unsigned (*cu_push)(struct CUctx_st *context);
static unsigned (*cu_make_stream)(struct CUstream_st **stream, unsigned flags, int priority);
static unsigned (*cu_query)(struct CUstream_st *stream);
static unsigned (*cu_take)(cu_address *memory, size_t bytes);
static unsigned (*cu_give)(cu_address memory);
static unsigned (*cu_copy)(cu_address to, cu_address from, size_t bytes, struct CUstream_st *stream);
static struct CUstream_st *stream; /* of all copies; NULL: the buffers are in memory of the host */

static const struct {
    const char *name;
    void *pointer; /* to the variable above */
} calls[] = {
    {"cuInit", &cu_init},
    {"cuDeviceGetCount", &cu_count},
    {"cuDevicePrimaryCtxRetain", &cu_retain},
    {"cuCtxPushCurrent_v2", &cu_push},
    {"cuStreamCreateWithPriority", &cu_make_stream},
    {"cuStreamQuery", &cu_query},
    {"cuMemAlloc_v2", &cu_take},
    {"cuMemFree_v2", &cu_give},
    {"cuMemcpyAsync", &cu_copy},
};

const char *perf_memory_name(enum perf_memory memory)
{
    static const char *const names[] = {"malloc", "comm", "device"};
    return names[memory];
}

static void fail(const struct perf *perf, const char *what, unsigned error)
{
    fprintf(stderr, "comm-perf: rank %d: %s: CUDA error %u\n", perf->rank, what, error);
    exit(1);
}

static void must(const struct perf *perf, unsigned result, const char *what)
{
    if (result)
        fail(perf, what, result);
}

static void load(const struct perf *perf)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const char *missing = driver ? NULL : "libcuda.so.1";
    for (size_t i = 0; !missing && i < sizeof calls / sizeof *calls; i++) {
        void *found = dlsym(driver, calls[i].name);
        memcpy(calls[i].pointer, &found, sizeof found);
        missing = found ? NULL : calls[i].name;
    }
    if (!missing)
        return;
    fprintf(stderr, "comm-perf: rank %d: the buffers are memory of a device; expected a CUDA driver with %s\n", perf->rank, missing);
    exit(1);
}

void perf_load_memory(const struct perf *perf)
{
    if (perf->memory == PERF_DEVICE)
        load(perf);
}

/* The device that the library chooses: that of the local rank. On backend nccl comm_mem_alloc gives memory of that device too. */
void perf_open_memory(const struct perf *perf, const struct comm_info *info)
{
    struct CUctx_st *context = NULL;
    int count = 0;
    if (perf->memory != PERF_DEVICE && !(perf->memory == PERF_COMM && !strcmp(perf->backend_name, "nccl")))
        return;
    load(perf);
    must(perf, cu_init(0), "cuInit");
    must(perf, cu_count(&count), "cuDeviceGetCount");
    if (count < 1) {
        fprintf(stderr, "comm-perf: rank %d: the buffers are memory of a device, and there is none\n", perf->rank);
        exit(1);
    }
    must(perf, cu_retain(&context, (int)(info->local_rank % count)), "cuDevicePrimaryCtxRetain");
    must(perf, cu_push(context), "cuCtxPushCurrent");
    must(perf, cu_make_stream(&stream, CU_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
}

void *perf_take(const struct perf *perf, size_t bytes)
{
    void *memory = aligned_alloc(MEMORY_ALIGN, (bytes + MEMORY_ALIGN) / MEMORY_ALIGN * MEMORY_ALIGN);
    if (!memory) {
        fprintf(stderr, "comm-perf: rank %d: no memory for %zu bytes; ask for less with --max\n", perf->rank, bytes);
        exit(1);
    }
    return memory;
}

void *perf_take_buffers(const struct perf *perf, size_t bytes)
{
    void *memory = NULL;
    cu_address device = 0;
    switch (perf->memory) {
    case PERF_MALLOC:
        return perf_take(perf, bytes);
    case PERF_COMM:
        perf_must(perf, comm_mem_alloc(perf->comm, bytes ? bytes : 1, &memory), "comm_mem_alloc");
        return memory;
    case PERF_DEVICE:
        must(perf, cu_take(&device, bytes ? bytes : 1), "cuMemAlloc");
    }
    return (void *)(uintptr_t)device; // NOLINT(performance-no-int-to-ptr): the driver's addresses are numbers
}

void perf_give_buffers(const struct perf *perf, void *memory)
{
    switch (perf->memory) {
    case PERF_MALLOC:
        free(memory);
        return;
    case PERF_COMM:
        comm_mem_free(perf->comm, memory);
        return;
    case PERF_DEVICE:
        must(perf, cu_give((uintptr_t)memory), "cuMemFree");
    }
}

/* Returns when the bytes are there. */
static void copy(const struct perf *perf, void *to, const void *from, size_t bytes)
{
    unsigned state = CU_NOT_READY;
    if (!stream) {
        memcpy(to, from, bytes);
        return;
    }
    must(perf, cu_copy((uintptr_t)to, (uintptr_t)from, bytes, stream), "cuMemcpyAsync");
    while (state == CU_NOT_READY) {
        sched_yield();
        state = cu_query(stream);
    }
    must(perf, state, "a copy of a buffer");
}

void perf_fill_buffer(const struct perf *perf, void *to, size_t n)
{
    size_t bytes = n * perf->type->bytes;
    void *host = stream ? perf_take(perf, bytes) : to;
    perf_fill(perf->type, perf->op, perf->rank, host, n);
    if (!stream)
        return;
    copy(perf, to, host, bytes);
    free(host);
}

void perf_zero_buffer(const struct perf *perf, void *to, size_t bytes)
{
    void *host = stream ? perf_take(perf, bytes) : to;
    memset(host, 0, bytes);
    if (!stream)
        return;
    copy(perf, to, host, bytes);
    free(host);
}

bool perf_buffers_hold(const struct perf *perf, struct perf_buffers at, size_t *bad)
{
    if (!stream)
        return perf->collective->check(perf, at, bad);
    struct perf_buffers host = {perf_take(perf, perf->in_bytes), perf_take(perf, perf->out_bytes)};
    copy(perf, host.in, at.in, perf->in_bytes);
    copy(perf, host.out, at.out, perf->out_bytes);
    bool holds = perf->collective->check(perf, host, bad);
    free(host.in);
    free(host.out);
    return holds;
}
