/*
 * libcuda.so.1, mock, for programs that know nothing of devices: all memory is a device's but what was registered. Loaded before such a
 * program it makes every buffer one that has to be staged, so that the conformance tests of the host are those of the device too.
 *
 * Copies are done at once, or with MOCK_LATE=N late: a device without stream memory operations, whose events are reached at the N-th look
 * and whose copies are done no sooner. The process that loaded it fails in the end where nothing was copied in it or in its children.
 */
#define _GNU_SOURCE
#include "cuda/calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define MOCK_API __attribute__((visibility("default")))
#define EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);
CUDA_CALLS(EXPORT)
#define IDLE(field, parameters)                                                                                                            \
    unsigned mock_##field parameters                                                                                                       \
    {                                                                                                                                      \
        return CUDA_OK;                                                                                                                    \
    }

enum { RANGES = 1 << 16, COPIES = 1 << 14, IS_MANAGED = 8 };
struct copy {
    void *to;
    const void *from;
    size_t bytes;
};
struct CUstream_st {
    uint64_t first, next; /* of its copies: not done yet */
    struct copy copy[COPIES];
};
struct CUevent_st {
    struct CUstream_st *stream;
    uint64_t behind; /* copies of the stream */
    long left;       /* looks */
};
struct CUctx_st {
    int none;
};

static struct {
    uintptr_t from, to;
} registered[RANGES];
static uint32_t ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st context;
static _Atomic uint64_t *copied; /* in this process and in its children */
static pid_t loader;
static long late;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("MOCK_LATE");

    late = text ? strtol(text, NULL, 10) : 0;
    loader = getpid();
    copied = mmap(NULL, sizeof *copied, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

__attribute__((destructor)) static void end(void)
{
    if (getpid() != loader || *copied)
        return;
    fprintf(stderr, "mock_everywhere: nothing was copied: no buffer was staged\n");
    _exit(1);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static int is_host(uintptr_t at)
{
    for (uint32_t i = 0; i < ranges; i++)
        if (at >= registered[i].from && at < registered[i].to)
            return 1;
    return 0;
}

static unsigned add(void *memory, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (ranges == RANGES)
        abort();
    registered[ranges].from = (uintptr_t)memory;
    registered[ranges++].to = (uintptr_t)memory + bytes;
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

static unsigned take_away(void *memory)
{
    unsigned result = CUDA_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < ranges && result != CUDA_OK; i++)
        if (registered[i].from == (uintptr_t)memory) {
            registered[i] = registered[--ranges];
            result = CUDA_OK;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

unsigned mock_cuPointerGetAttribute(void *data, unsigned attribute, cuda_address pointer)
{
    pthread_mutex_lock(&lock);
    unsigned type = is_host((uintptr_t)pointer) ? CUDA_MEMORY_HOST : CUDA_MEMORY_DEVICE;
    pthread_mutex_unlock(&lock);
    if (attribute == CUDA_POINTER_MEMORY_TYPE || attribute == IS_MANAGED)
        *(unsigned *)data = attribute == IS_MANAGED ? 0 : type;
    else if (attribute == CUDA_POINTER_RANGE_START)
        *(cuda_address *)data = pointer;
    else if (attribute == CUDA_POINTER_RANGE_SIZE)
        *(size_t *)data = (size_t)1 << 40;
    else
        return CUDA_INVALID_VALUE;
    return CUDA_OK;
}

unsigned mock_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    return add(memory, bytes);
}

unsigned mock_cuMemHostUnregister(void *memory)
{
    return take_away(memory);
}

unsigned mock_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *memory ? add(*memory, bytes) : (unsigned)CUDA_OUT_OF_MEMORY;
}

unsigned mock_cuMemFreeHost(void *memory)
{
    unsigned result = take_away(memory);

    free(memory);
    return result;
}

unsigned mock_cuMemHostGetDevicePointer(cuda_address *device, void *host, unsigned flags)
{
    *device = (uintptr_t)host;
    return CUDA_OK;
}

unsigned mock_cuMemAlloc(cuda_address *memory, size_t bytes)
{
    *memory = (uintptr_t)malloc(bytes);
    return *memory ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

unsigned mock_cuMemFree(cuda_address memory)
{
    free((void *)(uintptr_t)memory);
    return CUDA_OK;
}

/* ------------------------------------------------------------------------------------------------------------ streams */
unsigned mock_cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    *stream = calloc(1, sizeof **stream);
    return *stream ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

unsigned mock_cuStreamDestroy(struct CUstream_st *stream)
{
    free(stream);
    return CUDA_OK;
}

static void do_copies(struct CUstream_st *stream, uint64_t until)
{
    for (; stream->first < until; stream->first++) {
        const struct copy *c = &stream->copy[stream->first % COPIES];
        memcpy(c->to, c->from, c->bytes);
    }
}

/* One side is registered, the other is not: all of it. */
unsigned mock_cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    pthread_mutex_lock(&lock);
    int sound = bytes && stream->next - stream->first < COPIES && is_host((uintptr_t)to) == is_host((uintptr_t)to + bytes - 1) &&
                is_host((uintptr_t)to) != is_host((uintptr_t)from);
    if (sound) {
        stream->copy[stream->next++ % COPIES] = (struct copy){(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes};
        ++*copied;
    }
    if (!late)
        do_copies(stream, stream->next);
    pthread_mutex_unlock(&lock);
    return sound ? CUDA_OK : CUDA_INVALID_VALUE;
}

unsigned mock_cuStreamWriteValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    if (late)
        return CUDA_NOT_SUPPORTED;
    __atomic_store_n((uint64_t *)(uintptr_t)word, value, __ATOMIC_RELEASE);
    return CUDA_OK;
}

unsigned mock_cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    return *event ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

unsigned mock_cuEventDestroy(struct CUevent_st *event)
{
    free(event);
    return CUDA_OK;
}

unsigned mock_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    pthread_mutex_lock(&lock);
    *event = (struct CUevent_st){stream, stream->next, late};
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

unsigned mock_cuEventQuery(struct CUevent_st *event)
{
    pthread_mutex_lock(&lock);
    int reached = --event->left <= 0;
    if (reached)
        do_copies(event->stream, event->behind);
    pthread_mutex_unlock(&lock);
    return reached ? CUDA_OK : CUDA_NOT_READY;
}

/* ------------------------------------------------------------------------------------------------------------ devices */
unsigned mock_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_OK;
}

unsigned mock_cuGetErrorName(unsigned error, const char **text)
{
    *text = "mock";
    return CUDA_OK;
}

unsigned mock_cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_OK;
}

unsigned mock_cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return CUDA_OK;
}

unsigned mock_cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "everywhere");
    return CUDA_OK;
}

unsigned mock_cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    snprintf(id, (size_t)bytes, "0000:01:00.0");
    return CUDA_OK;
}

unsigned mock_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    *value = attribute == CUDA_ATTRIBUTE_MEMOPS_64 && !late;
    return CUDA_OK;
}

unsigned mock_cuDevicePrimaryCtxRetain(struct CUctx_st **made, int device)
{
    *made = &context;
    return CUDA_OK;
}

unsigned mock_cuCtxPopCurrent(struct CUctx_st **popped)
{
    *popped = &context;
    return CUDA_OK;
}

unsigned mock_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_OK;
}

unsigned mock_cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **of)
{
    *of = &context;
    return CUDA_OK;
}

unsigned mock_cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    *status = CUDA_CAPTURE_NONE;
    return CUDA_OK;
}

IDLE(cuInit, (unsigned flags))
IDLE(cuDevicePrimaryCtxRelease, (int device))
IDLE(cuCtxPushCurrent, (struct CUctx_st * pushed))
IDLE(cuThreadExchangeStreamCaptureMode, (unsigned *mode))
IDLE(cuStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st *event, unsigned flags))
IDLE(cuStreamWaitValue64, (struct CUstream_st * stream, cuda_address word, uint64_t value, unsigned flags))
IDLE(cuMemsetD32Async, (cuda_address to, unsigned value, size_t count, struct CUstream_st *stream))
