/* The mock libcuda.so.1: the driver's entry points, on the machine of mock.c. */
#include "mock_inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUDA_CALLS(CUDA_EXPORT)

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
    CUDA_BEGIN;
    (void)flags;
    mock.initialised = mock.options.init_result == 0;
    CUDA_END(mock.options.init_result);
}

unsigned mock_cuDriverGetVersion(int *version)
{
    CUDA_BEGIN;
    *version = mock.options.driver ? mock.options.driver : 13000;
    CUDA_END(CUDA_OK);
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
    CUDA_BEGIN;
    *count = mock.options.devices < 0 ? 0 : mock.options.devices;
    CUDA_END(CUDA_OK);
}

unsigned mock_cuDeviceGet(int *device, int ordinal)
{
    CUDA_BEGIN;
    *device = ordinal;
    CUDA_END(ordinal >= 0 && ordinal < mock.options.devices ? CUDA_OK : CUDA_INVALID_DEVICE);
}

unsigned mock_cuDeviceGetName(char *name, int bytes, int device)
{
    CUDA_BEGIN;
    snprintf(name, (size_t)bytes, "Played %d", device);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    CUDA_BEGIN;
    (void)device;
    bool shares = attribute == CUDA_ATTRIBUTE_MAPPINGS || attribute == CUDA_ATTRIBUTE_DESCRIPTORS;
    *value = (attribute == CUDA_ATTRIBUTE_MEMOPS_64 && !mock.options.no_memops) || attribute == CUDA_ATTRIBUTE_HOST_POINTERS ||
             (shares && !mock.options.no_share);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    CUDA_BEGIN;
    snprintf(id, (size_t)bytes, "%04X:%02X:00.0", mock.options.many_hosts ? (unsigned)mock.calls & 0xffff : 0,
             0xe0 + mock_hardware(device));
    CUDA_END(CUDA_OK);
}

unsigned mock_cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    CUDA_BEGIN;
    mock.context[device].retained++;
    *context = &mock.context[device];
    CUDA_END(CUDA_OK);
}

unsigned mock_cuDevicePrimaryCtxRelease(int device)
{
    CUDA_BEGIN;
    mock.context[device].retained--;
    CUDA_END(CUDA_OK);
}

unsigned mock_cuCtxPushCurrent(struct CUctx_st *context)
{
    CUDA_BEGIN;
    if (depth == 32)
        abort();
    stack[depth++] = context;
    CUDA_END(CUDA_OK);
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
    CUDA_BEGIN_INSIDE;
    *least = 0;
    *greatest = -5;
    CUDA_END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    static _Thread_local unsigned now = 0;
    unsigned before = now;

    CUDA_BEGIN;
    now = *mode;
    *mode = before;
    CUDA_END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ streams */
/* In a capture the library may put only NCCL's operations, copies and fills on a stream. Anything else breaks the capture, or would run
 * again at each launch of the graph. */
bool mock_breaks_capture(struct CUstream_st *stream, const char *what)
{
    const struct CUstream_st *s = mock_device() >= 0 ? mock_stream(stream) : NULL;

    if (!s || !s->graph)
        return false;
    mock.misused = what;
    return true;
}

static int queue_for_stream(void)
{
    if (mock.options.queues == MOCK_STREAM_QUEUES)
        return mock.streams[mock_device()]++ % MOCK_STREAM_QUEUES;
    return (int)mock_draw((uint64_t)mock.options.queues);
}

unsigned mock_cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    CUDA_BEGIN_INSIDE;
    (void)priority;
    if (mock_device() < 0 || flags != CUDA_STREAM_NON_BLOCKING)
        CUDA_END(CUDA_INVALID_CONTEXT);
    *stream = calloc(1, sizeof **stream);
    (*stream)->device = mock_device();
    (*stream)->queue = queue_for_stream();
    mock_add(THING_STREAM, *stream, 0, (*stream)->device);
    CUDA_END(CUDA_OK);
}

/* As with the real driver, work that is still on the stream runs. If a thread steps the machine, this waits for that work. A test that
 * steps by hand has drained the machine before. */
unsigned mock_cuStreamDestroy(struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_remove(THING_STREAM, stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    if (mock_fills(stream)) /* the real driver does not wait for it */
        mock.misused = "cuStreamDestroy of a stream that is still to fill memory";
    while (stream->pending && mock.running)
        pthread_cond_wait(&mock.changed, &mock.lock);
    if (!stream->pending)
        free(stream);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context)
{
    CUDA_BEGIN;
    if (!mock_stream(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    *context = &mock.context[mock_stream(stream)->device];
    CUDA_END(CUDA_OK);
}

unsigned mock_cuStreamQuery(struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_stream(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    if (mock_breaks_capture(stream, "cuStreamQuery in a capture"))
        CUDA_END(MOCK_CAPTURE_UNSUPPORTED);
    CUDA_END(mock_stream(stream)->pending ? CUDA_NOT_READY : CUDA_OK);
}

unsigned mock_cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_stream(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    *status = mock_is_capturing(mock_stream(stream)) ? CUDA_CAPTURE_ACTIVE : CUDA_CAPTURE_NONE;
    CUDA_END(CUDA_OK);
}

bool mock_usable(struct CUstream_st *stream)
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

/* Whether the order that a call of the library's is about to put on a stream has no effect. */
static bool loses_order(void)
{
    if (mock_is_exempt())
        return false;
    mock.orders++;
    return mock.drop_order_at && --mock.drop_order_at == 0;
}

unsigned mock_cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    CUDA_BEGIN_INSIDE;
    (void)flags;
    if (!mock_usable(stream) || mock_find(event) != THING_EVENT)
        CUDA_END(CUDA_INVALID_HANDLE);
    if (mock_breaks_capture(stream, "cuStreamWaitEvent in a capture, for an event outside of it"))
        CUDA_END(MOCK_CAPTURE_ISOLATION);
    mock.waits++;
    if (loses_order() || (mock.drop_at && --mock.drop_at == 0))
        CUDA_END(CUDA_OK);
    if (event->mark)
        mock_push(mock_stream(stream), OP_WAIT)->mark = hold(event->mark);
    CUDA_END(CUDA_OK);
}

static unsigned word_op(struct CUstream_st *stream, cuda_address word, uint64_t value, enum mock_kind kind)
{
    enum mock_thing memory = mock_find((void *)(uintptr_t)word);

    if (mock.options.no_memops)
        return CUDA_NOT_SUPPORTED;
    if (mock_breaks_capture(stream, "a stream memory operation in a capture"))
        return MOCK_CAPTURE_UNSUPPORTED;
    if (!mock_usable(stream) || (memory != THING_HOST_MEMORY && memory != THING_REGISTERED && memory != THING_DEVICE_MEMORY) || word % 8)
        return CUDA_INVALID_VALUE;
    struct CUstream_st *on = mock_stream(stream);
    bool lost = (kind == OP_STAND || (!on->stands && !on->spared)) && loses_order();
    on->stands |= kind == OP_STAND;
    if (lost && kind == OP_STAND)
        return CUDA_OK;
    if (lost) /* it is written again in its turn, since the words behind it are larger */
        atomic_store_explicit((_Atomic uint64_t *)mock_reach((void *)(uintptr_t)word), value, memory_order_release);
    struct mock_op *op = mock_push(on, kind);
    op->to = (void *)(uintptr_t)word;
    op->value = value;
    return CUDA_OK;
}

unsigned mock_cuStreamWriteValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    CUDA_BEGIN_INSIDE;
    (void)flags;
    CUDA_END(word_op(stream, word, value, OP_WRITE));
}

unsigned mock_cuStreamWaitValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    CUDA_BEGIN_INSIDE;
    CUDA_END(flags == CUDA_WAIT_GEQ ? word_op(stream, word, value, OP_STAND) : (unsigned)CUDA_INVALID_VALUE);
}

unsigned mock_cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    if (mock_breaks_capture(stream, "cuLaunchHostFunc in a capture"))
        CUDA_END(MOCK_CAPTURE_UNSUPPORTED);
    struct mock_op *op = mock_push(mock_stream(stream), OP_KERNEL);
    op->fn = fn;
    op->arg = arg;
    CUDA_END(CUDA_OK);
}

/* ------------------------------------------------------------------------------------------------------------ events */
unsigned mock_cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    CUDA_BEGIN_INSIDE;
    if (mock_device() < 0 || flags != CUDA_EVENT_DISABLE_TIMING)
        CUDA_END(CUDA_INVALID_CONTEXT);
    *event = calloc(1, sizeof **event);
    (*event)->device = mock_device();
    mock_add(THING_EVENT, *event, 0, mock_device());
    CUDA_END(CUDA_OK);
}

unsigned mock_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream) || mock_find(event) != THING_EVENT || event->device != mock_stream(stream)->device)
        CUDA_END(CUDA_INVALID_HANDLE);
    if (mock_breaks_capture(stream, "cuEventRecord in a capture"))
        CUDA_END(MOCK_CAPTURE_UNSUPPORTED);
    drop(event->mark);
    event->mark = calloc(1, sizeof *event->mark);
    event->mark->references = 1;
    event->mark->done = mock.options.no_memops && !mock_stream(stream)->spared && loses_order();
    mock_push(mock_stream(stream), OP_RECORD)->mark = hold(event->mark);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuEventQuery(struct CUevent_st *event)
{
    CUDA_BEGIN_INSIDE;
    CUDA_END(!event->mark || event->mark->done ? CUDA_OK : CUDA_NOT_READY);
}

unsigned mock_cuEventDestroy(struct CUevent_st *event)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_remove(THING_EVENT, event))
        CUDA_END(CUDA_INVALID_HANDLE);
    drop(event->mark);
    free(event);
    CUDA_END(CUDA_OK);
}
