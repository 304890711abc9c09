/* The mock libcuda.so.1: the driver's entry points, on the machine of mock.c. */
#include "mock_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT CUDA_UNKNOWN
#define BEGIN                                                                                                                              \
    if (mock_begin(__func__))                                                                                                              \
    return FAULT
#define END(result)                                                                                                                        \
    do {                                                                                                                                   \
        unsigned told = (unsigned)(result);                                                                                                \
        mock_end();                                                                                                                        \
        return told;                                                                                                                       \
    } while (0)

/* Calls that need a context fail without one, and after a fault of its device. */
#define BEGIN_INSIDE                                                                                                                       \
    BEGIN;                                                                                                                                 \
    if (mock_device() < 0)                                                                                                                 \
        END(CUDA_INVALID_CONTEXT);                                                                                                         \
    if (mock.fault[mock_device()])                                                                                                         \
    END(CUDA_LAUNCH_FAILED)

/* Declares the exported symbols, from the list that the module loads. */
#define EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);
CUDA_CALLS(EXPORT)

static _Thread_local struct CUctx_st *stack[32];
static _Thread_local int depth;

int mock_device(void)
{
    return depth ? stack[depth - 1]->device : -1;
}

/* ------------------------------------------------------------------------------------------------------------ default streams */
enum { THREADS = 512 };
static struct CUstream_st legacy[MOCK_DEVICES], by_thread[THREADS][MOCK_DEVICES];
static int threads;

static struct CUstream_st *of_this_thread(int device)
{
    static _Thread_local int mine = -1;

    if (mine < 0)
        mine = threads++;
    if (mine >= THREADS)
        abort();
    return &by_thread[mine][device];
}

struct CUstream_st *mock_stream(struct CUstream_st *handle)
{
    uintptr_t number = (uintptr_t)handle;

    if (number > CUDA_STREAM_PER_THREAD)
        return mock_find(handle) == THING_STREAM ? handle : NULL;
    if (mock_device() < 0)
        return NULL;
    struct CUstream_st *stream = number == CUDA_STREAM_PER_THREAD ? of_this_thread(mock_device()) : &legacy[mock_device()];
    stream->device = mock_device();
    return stream;
}

bool mock_stream_on(struct CUstream_st *handle, int device)
{
    const struct CUstream_st *stream = mock_stream(handle);

    return stream && stream->device == device;
}

/* ------------------------------------------------------------------------------------------------------------ the driver, devices */
unsigned mock_cuInit(unsigned flags)
{
    BEGIN;
    (void)flags;
    mock.initialised = mock.options.init_result == 0;
    END(mock.options.init_result);
}

unsigned mock_cuDriverGetVersion(int *version)
{
    BEGIN;
    *version = mock.options.driver ? mock.options.driver : 13000;
    END(CUDA_OK);
}

unsigned mock_cuGetErrorName(unsigned error, const char **text)
{
    static _Thread_local char name[32];

    snprintf(name, sizeof name, "MOCK_ERROR_%u", error);
    *text = name;
    return CUDA_OK;
}

unsigned mock_cuDeviceGetCount(int *count)
{
    BEGIN;
    *count = mock.options.devices < 0 ? 0 : mock.options.devices;
    END(CUDA_OK);
}

unsigned mock_cuDeviceGet(int *device, int ordinal)
{
    BEGIN;
    *device = ordinal;
    END(ordinal >= 0 && ordinal < mock.options.devices ? CUDA_OK : CUDA_INVALID_DEVICE);
}

unsigned mock_cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN;
    snprintf(name, (size_t)bytes, "Played %d", device);
    END(CUDA_OK);
}

unsigned mock_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    BEGIN;
    (void)device;
    *value = attribute == CUDA_ATTRIBUTE_MEMOPS_64 && !mock.options.no_memops;
    END(CUDA_OK);
}

unsigned mock_cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    BEGIN;
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", 0xe0 + (mock.options.backwards ? 7 - device : device));
    END(CUDA_OK);
}

unsigned mock_cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    BEGIN;
    mock.context[device].retained++;
    *context = &mock.context[device];
    END(CUDA_OK);
}

unsigned mock_cuDevicePrimaryCtxRelease(int device)
{
    BEGIN;
    mock.context[device].retained--;
    END(CUDA_OK);
}

unsigned mock_cuCtxPushCurrent(struct CUctx_st *context)
{
    BEGIN;
    if (depth == 32)
        abort();
    stack[depth++] = context;
    END(CUDA_OK);
}

/* Never fails: in the driver, a thread's stack of contexts works even after other errors. */
unsigned mock_cuCtxPopCurrent(struct CUctx_st **context)
{
    if (!depth)
        abort();
    *context = stack[--depth];
    return CUDA_OK;
}

unsigned mock_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN_INSIDE;
    *least = 0;
    *greatest = -5;
    END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    static _Thread_local unsigned now = 0;
    unsigned before = now;

    BEGIN;
    now = *mode;
    *mode = before;
    END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ streams */
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_ISOLATION = 905 };

/* In a capture the library may put only NCCL's operations, copies and fills on a stream. Anything else breaks the capture, or would run
 * again at each launch of the graph. */
static bool breaks_capture(struct CUstream_st *stream, const char *what)
{
    const struct CUstream_st *s = mock_device() >= 0 ? mock_stream(stream) : NULL;

    if (!s || !s->graph)
        return false;
    mock.misused = what;
    return true;
}

static int queue_for_stream(void)
{
    if (mock.options.queues == MOCK_QUEUES)
        return mock.streams++ % MOCK_QUEUES;
    return (int)mock_draw((uint64_t)mock.options.queues);
}

unsigned mock_cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    BEGIN_INSIDE;
    (void)priority;
    if (mock_device() < 0 || flags != CUDA_STREAM_NON_BLOCKING)
        END(CUDA_INVALID_CONTEXT);
    *stream = calloc(1, sizeof **stream);
    (*stream)->device = mock_device();
    (*stream)->queue = queue_for_stream();
    mock_add(THING_STREAM, *stream, 0, (*stream)->device);
    END(CUDA_OK);
}

/* As with the real driver, work that is still on the stream runs. If a thread steps the machine, this waits for that work. A test that
 * steps by hand has drained the machine before. */
unsigned mock_cuStreamDestroy(struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    if (!mock_remove(THING_STREAM, stream))
        END(CUDA_INVALID_HANDLE);
    while (stream->pending && mock.running)
        pthread_cond_wait(&mock.changed, &mock.lock);
    if (!stream->pending)
        free(stream);
    END(CUDA_OK);
}

unsigned mock_cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context)
{
    BEGIN;
    if (!mock_stream(stream))
        END(CUDA_INVALID_HANDLE);
    *context = &mock.context[mock_stream(stream)->device];
    END(CUDA_OK);
}

unsigned mock_cuStreamQuery(struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    if (!mock_stream(stream))
        END(CUDA_INVALID_HANDLE);
    if (breaks_capture(stream, "cuStreamQuery in a capture"))
        END(CAPTURE_UNSUPPORTED);
    END(mock_stream(stream)->pending ? CUDA_NOT_READY : CUDA_OK);
}

unsigned mock_cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    BEGIN_INSIDE;
    if (!mock_stream(stream))
        END(CUDA_INVALID_HANDLE);
    *status = mock_is_capturing(mock_stream(stream)) ? CUDA_CAPTURE_ACTIVE : CUDA_CAPTURE_NONE;
    END(CUDA_OK);
}

static bool usable(struct CUstream_st *stream)
{
    return mock_device() >= 0 && mock_stream(stream);
}

static struct mock_mark *hold(struct mock_mark *mark)
{
    mark->references++;
    return mark;
}

static void drop(struct mock_mark *mark)
{
    if (mark && --mark->references == 0)
        free(mark);
}

unsigned mock_cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    BEGIN_INSIDE;
    (void)flags;
    if (!usable(stream) || mock_find(event) != THING_EVENT)
        END(CUDA_INVALID_HANDLE);
    if (breaks_capture(stream, "cuStreamWaitEvent in a capture, for an event outside of it"))
        END(CAPTURE_ISOLATION);
    mock.waits++;
    if (mock.drop_at && --mock.drop_at == 0)
        END(CUDA_OK);
    if (event->mark)
        mock_push(mock_stream(stream), OP_WAIT)->mark = hold(event->mark);
    END(CUDA_OK);
}

static unsigned word_op(struct CUstream_st *stream, cuda_address word, uint64_t value, enum mock_kind kind)
{
    enum mock_thing memory = mock_find((void *)(uintptr_t)word);

    if (mock.options.no_memops)
        return CUDA_NOT_SUPPORTED;
    if (breaks_capture(stream, "a stream memory operation in a capture"))
        return CAPTURE_UNSUPPORTED;
    if (!usable(stream) || (memory != THING_HOST_MEMORY && memory != THING_REGISTERED && memory != THING_DEVICE_MEMORY) || word % 8)
        return CUDA_INVALID_VALUE;
    struct mock_op *op = mock_push(mock_stream(stream), kind);
    op->to = (void *)(uintptr_t)word;
    op->value = value;
    return CUDA_OK;
}

unsigned mock_cuStreamWriteValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    BEGIN_INSIDE;
    (void)flags;
    END(word_op(stream, word, value, OP_WRITE));
}

unsigned mock_cuStreamWaitValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    BEGIN_INSIDE;
    END(flags == CUDA_WAIT_GEQ ? word_op(stream, word, value, OP_STAND) : (unsigned)CUDA_INVALID_VALUE);
}

/* ------------------------------------------------------------------------------------------------------------ events */
unsigned mock_cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    BEGIN_INSIDE;
    if (mock_device() < 0 || flags != CUDA_EVENT_DISABLE_TIMING)
        END(CUDA_INVALID_CONTEXT);
    *event = calloc(1, sizeof **event);
    (*event)->device = mock_device();
    mock_add(THING_EVENT, *event, 0, mock_device());
    END(CUDA_OK);
}

unsigned mock_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    if (!usable(stream) || mock_find(event) != THING_EVENT || event->device != mock_stream(stream)->device)
        END(CUDA_INVALID_HANDLE);
    if (breaks_capture(stream, "cuEventRecord in a capture"))
        END(CAPTURE_UNSUPPORTED);
    drop(event->mark);
    event->mark = calloc(1, sizeof *event->mark);
    event->mark->references = 1;
    mock_push(mock_stream(stream), OP_RECORD)->mark = hold(event->mark);
    END(CUDA_OK);
}

unsigned mock_cuEventQuery(struct CUevent_st *event)
{
    BEGIN_INSIDE;
    END(!event->mark || event->mark->done ? CUDA_OK : CUDA_NOT_READY);
}

unsigned mock_cuEventDestroy(struct CUevent_st *event)
{
    BEGIN_INSIDE;
    if (!mock_remove(THING_EVENT, event))
        END(CUDA_INVALID_HANDLE);
    drop(event->mark);
    free(event);
    END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Returns the start or the length of the device allocation that has this byte. */
static unsigned range_of(void *data, unsigned attribute, uintptr_t at)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        uintptr_t from = (uintptr_t)mock.thing[i].at;
        if (mock.thing[i].kind != THING_DEVICE_MEMORY || at - from >= mock.thing[i].bytes)
            continue;
        if (attribute == CUDA_POINTER_RANGE_START)
            *(cuda_address *)data = from;
        else
            *(size_t *)data = mock.thing[i].bytes;
        return CUDA_OK;
    }
    return CUDA_INVALID_VALUE;
}

unsigned mock_cuPointerGetAttribute(void *data, unsigned attribute, cuda_address pointer)
{
    BEGIN_INSIDE;
    if (attribute == CUDA_POINTER_RANGE_START || attribute == CUDA_POINTER_RANGE_SIZE)
        END(range_of(data, attribute, (uintptr_t)pointer));
    enum mock_thing kind = mock_find((void *)(uintptr_t)pointer);
    int device = mock_owner((void *)(uintptr_t)pointer);
    unsigned type = kind == THING_DEVICE_MEMORY                             ? CUDA_MEMORY_DEVICE
                    : kind == THING_HOST_MEMORY || kind == THING_REGISTERED ? CUDA_MEMORY_HOST
                                                                            : 0;
    if (attribute == CUDA_POINTER_MEMORY_TYPE && type)
        *(unsigned *)data = type;
    if (attribute == CUDA_POINTER_ORDINAL && type)
        *(int *)data = device;
    END((attribute == CUDA_POINTER_MEMORY_TYPE || attribute == CUDA_POINTER_ORDINAL) && type ? CUDA_OK : CUDA_INVALID_VALUE);
}

/* Freeing memory waits until the device is idle, unless the test steps it by hand. */
static bool is_busy(int device)
{
    for (int q = 0; q < MOCK_QUEUES; q++)
        if (mock.first[device][q])
            return true;
    return false;
}

static void wait_for_device(int device)
{
    while (mock.running && is_busy(device) && !mock.fault[device])
        pthread_cond_wait(&mock.changed, &mock.lock);
}

static void *take(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

unsigned mock_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN_INSIDE;
    (void)flags;
    *memory = take(bytes);
    mock_add(THING_HOST_MEMORY, *memory, bytes, -1);
    END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuMemFreeHost(void *memory)
{
    BEGIN_INSIDE;
    wait_for_device(mock_device());
    if (!mock_remove(THING_HOST_MEMORY, memory))
        END(CUDA_INVALID_VALUE);
    free(memory);
    END(CUDA_OK);
}

unsigned mock_cuMemHostGetDevicePointer(cuda_address *device, void *host, unsigned flags)
{
    BEGIN;
    (void)flags;
    *device = (uintptr_t)host;
    END(mock_find(host) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned mock_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    BEGIN_INSIDE;
    (void)flags;
    mock_add(THING_REGISTERED, memory, bytes, -1);
    END(CUDA_OK);
}

unsigned mock_cuMemHostUnregister(void *memory)
{
    BEGIN_INSIDE;
    END(mock_remove(THING_REGISTERED, memory) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned mock_cuMemAlloc(cuda_address *memory, size_t bytes)
{
    BEGIN_INSIDE;
    void *at = take(bytes);
    memset(at, 0xa5, bytes);
    mock_add(THING_DEVICE_MEMORY, at, bytes, mock_device());
    *memory = (uintptr_t)at;
    END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuMemFree(cuda_address memory)
{
    BEGIN_INSIDE;
    wait_for_device(mock_device());
    if (!mock_remove(THING_DEVICE_MEMORY, (void *)(uintptr_t)memory))
        END(CUDA_INVALID_VALUE);
    free((void *)(uintptr_t)memory);
    END(CUDA_OK);
}

static unsigned fill_op(cuda_address to, size_t pitch, unsigned value, size_t width, size_t count, struct CUstream_st *stream)
{
    if (!usable(stream))
        return CUDA_INVALID_HANDLE;
    struct mock_op *op = mock_push(mock_stream(stream), OP_FILL);
    op->to = (void *)(uintptr_t)to;
    op->bytes = count;
    op->value = value;
    op->width = width;
    op->pitch = pitch;
    return CUDA_OK;
}

unsigned mock_cuMemsetD8Async(cuda_address to, unsigned char value, size_t count, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    END(fill_op(to, 1, value, 1, count, stream));
}

unsigned mock_cuMemsetD16Async(cuda_address to, unsigned short value, size_t count, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    END(fill_op(to, 2, value, 2, count, stream));
}

unsigned mock_cuMemsetD32Async(cuda_address to, unsigned value, size_t count, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    END(fill_op(to, 4, value, 4, count, stream));
}

unsigned mock_cuMemsetD2D32Async(cuda_address to, size_t pitch, unsigned value, size_t width, size_t height, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    END(width == 1 ? fill_op(to, pitch, value, 4, height, stream) : (unsigned)CUDA_NOT_SUPPORTED);
}

unsigned mock_cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    BEGIN_INSIDE;
    if (!usable(stream))
        END(CUDA_INVALID_HANDLE);
    if (breaks_capture(stream, "cuLaunchHostFunc in a capture"))
        END(CAPTURE_UNSUPPORTED);
    struct mock_op *op = mock_push(mock_stream(stream), OP_KERNEL);
    op->fn = fn;
    op->arg = arg;
    END(CUDA_OK);
}

unsigned mock_cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    BEGIN_INSIDE;
    if (!usable(stream))
        END(CUDA_INVALID_HANDLE);
    struct mock_op *op = mock_push(mock_stream(stream), OP_COPY);
    op->to = (void *)(uintptr_t)to;
    op->from = (void *)(uintptr_t)from;
    op->bytes = bytes;
    END(CUDA_OK);
}
