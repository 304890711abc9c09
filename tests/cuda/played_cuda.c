/* libcuda.so.1, played: the driver's entry points on the machine of played.c. */
#include "played_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT CUDA_UNKNOWN
#define BEGIN                                                                                                                              \
    if (played_begin(__func__))                                                                                                            \
    return FAULT
#define END(result)                                                                                                                        \
    do {                                                                                                                                   \
        unsigned told = (unsigned)(result);                                                                                                \
        played_end();                                                                                                                      \
        return told;                                                                                                                       \
    } while (0)

/* The declarations of what a library of this name exports, from the list that the module loads by. */
#define EXPORT(field, symbol, result, parameters) PLAYED_API result played_##field parameters __asm__(symbol);
CUDA_CALLS(EXPORT)

static _Thread_local struct CUctx_st *stack[32];
static _Thread_local int depth;

int played_device(void)
{
    return depth ? stack[depth - 1]->device : -1;
}

/* ------------------------------------------------------------------------------------------------------------ the driver, devices */
unsigned played_cuInit(unsigned flags)
{
    BEGIN;
    (void)flags;
    played.initialised = played.options.init_result == 0;
    END(played.options.init_result);
}

unsigned played_cuDriverGetVersion(int *version)
{
    BEGIN;
    *version = played.options.driver ? played.options.driver : 13000;
    END(CUDA_OK);
}

unsigned played_cuGetErrorName(unsigned error, const char **text)
{
    static _Thread_local char name[32];

    snprintf(name, sizeof name, "PLAYED_ERROR_%u", error);
    *text = name;
    return CUDA_OK;
}

unsigned played_cuDeviceGetCount(int *count)
{
    BEGIN;
    *count = played.options.devices < 0 ? 0 : played.options.devices;
    END(CUDA_OK);
}

unsigned played_cuDeviceGet(int *device, int ordinal)
{
    BEGIN;
    *device = ordinal;
    END(ordinal >= 0 && ordinal < played.options.devices ? CUDA_OK : CUDA_INVALID_DEVICE);
}

unsigned played_cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN;
    snprintf(name, (size_t)bytes, "Played %d", device);
    END(CUDA_OK);
}

unsigned played_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    BEGIN;
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_MEMOPS_64 && !played.options.no_memops;
    END(CUDA_OK);
}

unsigned played_cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    BEGIN;
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", 0xe0 + (played.options.backwards ? 7 - device : device));
    END(CUDA_OK);
}

unsigned played_cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    BEGIN;
    played.context[device].retained++;
    *context = &played.context[device];
    END(CUDA_OK);
}

unsigned played_cuDevicePrimaryCtxRelease(int device)
{
    BEGIN;
    played.context[device].retained--;
    END(CUDA_OK);
}

unsigned played_cuCtxPushCurrent(struct CUctx_st *context)
{
    BEGIN;
    if (depth == 32)
        abort();
    stack[depth++] = context;
    END(CUDA_OK);
}

/* Always does it: a thread's stack of contexts is the driver's own, which breaks last. */
unsigned played_cuCtxPopCurrent(struct CUctx_st **context)
{
    if (!depth)
        abort();
    *context = stack[--depth];
    return CUDA_OK;
}

unsigned played_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN;
    *least = 0;
    *greatest = -5;
    END(played_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned played_cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    static _Thread_local unsigned now = 0;
    unsigned before = now;

    BEGIN;
    now = *mode;
    *mode = before;
    END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ streams */
static int queue_for_stream(void)
{
    if (played.options.queues == PLAYED_QUEUES)
        return played.streams++ % PLAYED_QUEUES;
    return (int)played_draw((uint64_t)played.options.queues);
}

unsigned played_cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    BEGIN;
    (void)priority;
    if (played_device() < 0 || flags != CUDA_STREAM_NON_BLOCKING)
        END(CUDA_INVALID_CONTEXT);
    *stream = calloc(1, sizeof **stream);
    (*stream)->device = played_device();
    (*stream)->queue = queue_for_stream();
    played_add(THING_STREAM, *stream, 0, (*stream)->device);
    END(CUDA_OK);
}

/* As the real one: what stands on it still runs. Here that is waited for, or not (a test that steps by hand has drained). */
unsigned played_cuStreamDestroy(struct CUstream_st *stream)
{
    BEGIN;
    if (!played_remove(THING_STREAM, stream))
        END(CUDA_INVALID_HANDLE);
    while (stream->pending && played.running)
        pthread_cond_wait(&played.changed, &played.lock);
    if (!stream->pending)
        free(stream);
    END(CUDA_OK);
}

unsigned played_cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context)
{
    BEGIN;
    if (stream ? played_find(stream) != THING_STREAM : played_device() < 0)
        END(CUDA_INVALID_HANDLE);
    *context = &played.context[stream ? stream->device : played_device()];
    END(CUDA_OK);
}

unsigned played_cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    BEGIN;
    *status = stream->capturing;
    END(CUDA_OK);
}

static bool usable(struct CUstream_st *stream)
{
    return played_device() >= 0 && played_find(stream) == THING_STREAM;
}

static struct played_mark *hold(struct played_mark *mark)
{
    mark->references++;
    return mark;
}

static void drop(struct played_mark *mark)
{
    if (mark && --mark->references == 0)
        free(mark);
}

unsigned played_cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    BEGIN;
    (void)flags;
    if (!usable(stream) || played_find(event) != THING_EVENT)
        END(CUDA_INVALID_HANDLE);
    played.waits++;
    if (played.drop_at && --played.drop_at == 0)
        END(CUDA_OK);
    if (event->mark)
        played_push(stream, OP_WAIT)->mark = hold(event->mark);
    END(CUDA_OK);
}

static unsigned word_op(struct CUstream_st *stream, cuda_address word, uint64_t value, enum played_kind kind)
{
    enum played_thing memory = played_find((void *)(uintptr_t)word);

    if (played.options.no_memops)
        return CUDA_NOT_SUPPORTED;
    if (!usable(stream) || (memory != THING_HOST_MEMORY && memory != THING_REGISTERED && memory != THING_DEVICE_MEMORY) || word % 8)
        return CUDA_INVALID_VALUE;
    struct played_op *op = played_push(stream, kind);
    op->to = (void *)(uintptr_t)word;
    op->value = value;
    return CUDA_OK;
}

unsigned played_cuStreamWriteValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    BEGIN;
    (void)flags;
    END(word_op(stream, word, value, OP_WRITE));
}

unsigned played_cuStreamWaitValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    BEGIN;
    END(flags == CUDA_WAIT_GEQ ? word_op(stream, word, value, OP_STAND) : (unsigned)CUDA_INVALID_VALUE);
}

/* ------------------------------------------------------------------------------------------------------------ events */
unsigned played_cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    BEGIN;
    if (played_device() < 0 || flags != CUDA_EVENT_DISABLE_TIMING)
        END(CUDA_INVALID_CONTEXT);
    *event = calloc(1, sizeof **event);
    (*event)->device = played_device();
    played_add(THING_EVENT, *event, 0, played_device());
    END(CUDA_OK);
}

unsigned played_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    BEGIN;
    if (!usable(stream) || played_find(event) != THING_EVENT || event->device != stream->device)
        END(CUDA_INVALID_HANDLE);
    drop(event->mark);
    event->mark = calloc(1, sizeof *event->mark);
    event->mark->references = 1;
    played_push(stream, OP_RECORD)->mark = hold(event->mark);
    END(CUDA_OK);
}

unsigned played_cuEventQuery(struct CUevent_st *event)
{
    BEGIN;
    END(!event->mark || event->mark->done ? CUDA_OK : CUDA_NOT_READY);
}

unsigned played_cuEventDestroy(struct CUevent_st *event)
{
    BEGIN;
    if (!played_remove(THING_EVENT, event))
        END(CUDA_INVALID_HANDLE);
    drop(event->mark);
    free(event);
    END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
unsigned played_cuPointerGetAttribute(void *data, unsigned attribute, cuda_address pointer)
{
    BEGIN;
    enum played_thing kind = played_find((void *)(uintptr_t)pointer);
    unsigned type = kind == THING_DEVICE_MEMORY                             ? CUDA_MEMORY_DEVICE
                    : kind == THING_HOST_MEMORY || kind == THING_REGISTERED ? CUDA_MEMORY_HOST
                                                                            : 0;
    if (attribute == CUDA_POINTER_MEMORY_TYPE && type)
        *(unsigned *)data = type;
    END(attribute == CUDA_POINTER_MEMORY_TYPE && type ? CUDA_OK : CUDA_INVALID_VALUE);
}

static void *take(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

unsigned played_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN;
    (void)flags;
    *memory = take(bytes);
    played_add(THING_HOST_MEMORY, *memory, bytes, -1);
    END(played_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned played_cuMemFreeHost(void *memory)
{
    BEGIN;
    if (!played_remove(THING_HOST_MEMORY, memory))
        END(CUDA_INVALID_VALUE);
    free(memory);
    END(CUDA_OK);
}

unsigned played_cuMemHostGetDevicePointer(cuda_address *device, void *host, unsigned flags)
{
    BEGIN;
    (void)flags;
    *device = (uintptr_t)host;
    END(played_find(host) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned played_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    BEGIN;
    (void)flags;
    played_add(THING_REGISTERED, memory, bytes, -1);
    END(CUDA_OK);
}

unsigned played_cuMemHostUnregister(void *memory)
{
    BEGIN;
    END(played_remove(THING_REGISTERED, memory) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned played_cuMemAlloc(cuda_address *memory, size_t bytes)
{
    BEGIN;
    void *at = take(bytes);
    memset(at, 0xa5, bytes);
    played_add(THING_DEVICE_MEMORY, at, bytes, played_device());
    *memory = (uintptr_t)at;
    END(played_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned played_cuMemFree(cuda_address memory)
{
    BEGIN;
    if (!played_remove(THING_DEVICE_MEMORY, (void *)(uintptr_t)memory))
        END(CUDA_INVALID_VALUE);
    free((void *)(uintptr_t)memory);
    END(CUDA_OK);
}

unsigned played_cuMemsetD32Async(cuda_address to, unsigned value, size_t count, struct CUstream_st *stream)
{
    BEGIN;
    if (!usable(stream))
        END(CUDA_INVALID_HANDLE);
    struct played_op *op = played_push(stream, OP_FILL);
    op->to = (void *)(uintptr_t)to;
    op->bytes = count;
    op->value = value;
    END(CUDA_OK);
}

unsigned played_cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    BEGIN;
    if (!usable(stream))
        END(CUDA_INVALID_HANDLE);
    struct played_op *op = played_push(stream, OP_COPY);
    op->to = (void *)(uintptr_t)to;
    op->from = (void *)(uintptr_t)from;
    op->bytes = bytes;
    END(CUDA_OK);
}
