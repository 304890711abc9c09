/* The mock driver's memory: what it allocates, what it knows of an address, and fills and copies on streams. */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

CUDA_CALLS(CUDA_EXPORT)

enum { ALREADY_REGISTERED = 712, PAGE = 4096 };

/* ------------------------------------------------------------------------------------------------------------ devices' memory */
/* Memory of a device is at addresses that the host cannot access, so that a test finds who does. The machine has the bytes DISTANCE behind
 * them. Addresses are not used again. */
#define DISTANCE ((uintptr_t)64 << 30)
static char *arena;
static size_t arena_used;
static bool has_managed;

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The memory ends where its last page does, and the page behind that stays inaccessible. */
static void *take_device(size_t bytes)
{
    size_t room = pages(bytes ? bytes : 1), exact = (bytes + 255) / 256 * 256;

    if (!arena)
        arena = mmap(NULL, 2 * DISTANCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED || arena_used + room + PAGE > DISTANCE || mprotect(arena + arena_used + DISTANCE, room, PROT_READ | PROT_WRITE))
        abort();
    char *at = arena + arena_used + room - exact;
    arena_used += room + PAGE;
    return at;
}

static void give_device(void *memory, size_t bytes)
{
    char *from = (char *)((uintptr_t)memory / PAGE * PAGE);

    if (mmap(from, pages(bytes ? bytes : 1), PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED ||
        mmap(from + DISTANCE, pages(bytes ? bytes : 1), PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) ==
            MAP_FAILED)
        abort();
}

/* Returns the start or the length of the device allocation that has this byte. */
static unsigned range_of(void *data, unsigned attribute, uintptr_t at)
{
    for (int i = 0; i < mock.things; i++) {
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

/* As in the real driver, managed memory is memory of a device, and one more attribute tells. */
static bool is_managed(uintptr_t at)
{
    for (int i = 0; has_managed && i < mock.things; i++)
        if (mock.thing[i].managed && at - (uintptr_t)mock.thing[i].at < mock.thing[i].bytes)
            return true;
    return false;
}

/* From now on the host and the machine have it at the same addresses. */
void mock_manage(void *memory)
{
    pthread_mutex_lock(&mock.lock);
    for (int i = 0; i < mock.things; i++) {
        if (mock.thing[i].kind != THING_DEVICE_MEMORY || mock.thing[i].at != memory || mock.thing[i].managed)
            continue;
        size_t bytes = mock.thing[i].bytes;
        if (mprotect((char *)((uintptr_t)memory / PAGE * PAGE), pages(bytes ? bytes : 1), PROT_READ | PROT_WRITE))
            abort();
        memcpy(memory, mock_reach(memory), bytes);
        mock.thing[i].managed = has_managed = true;
    }
    pthread_mutex_unlock(&mock.lock);
}

void *mock_reach(const void *at)
{
    uintptr_t number = (uintptr_t)at;
    bool moved = arena && number >= (uintptr_t)arena && number < (uintptr_t)arena + DISTANCE && !is_managed(number);

    return (void *)(number + (moved ? DISTANCE : 0));
}

void mock_reach_all(void *arguments, size_t bytes)
{
    void **word = arguments;

    for (size_t i = 0; i < bytes / sizeof *word; i++)
        word[i] = mock_reach(word[i]);
}

static unsigned tell(void *data, unsigned attribute, cuda_address pointer)
{
    enum mock_thing kind = mock_find((void *)(uintptr_t)pointer);
    unsigned type = kind == THING_DEVICE_MEMORY                             ? CUDA_MEMORY_DEVICE
                    : kind == THING_HOST_MEMORY || kind == THING_REGISTERED ? CUDA_MEMORY_HOST
                                                                            : 0;

    if (attribute == CUDA_POINTER_RANGE_START || attribute == CUDA_POINTER_RANGE_SIZE)
        return range_of(data, attribute, (uintptr_t)pointer);
    if (!type)
        return CUDA_INVALID_VALUE;
    if (attribute == CUDA_POINTER_MEMORY_TYPE)
        *(unsigned *)data = type;
    else if (attribute == CUDA_POINTER_MANAGED)
        *(unsigned *)data = is_managed((uintptr_t)pointer);
    else if (attribute == CUDA_POINTER_ORDINAL)
        *(int *)data = mock_owner((void *)(uintptr_t)pointer);
    else
        return CUDA_INVALID_VALUE;
    return CUDA_OK;
}

static size_t bytes_of(unsigned attribute)
{
    return attribute == CUDA_POINTER_RANGE_START || attribute == CUDA_POINTER_RANGE_SIZE ? sizeof(uint64_t) : sizeof(unsigned);
}

/* As in the real driver, what is not known of an address is 0, and no error. */
unsigned mock_cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data, cuda_address pointer)
{
    CUDA_BEGIN_INSIDE;
    for (unsigned i = 0; i < count; i++)
        if (tell(data[i], attributes[i], pointer) != CUDA_OK)
            memset(data[i], 0, bytes_of(attributes[i]));
    CUDA_END(CUDA_OK);
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
    CUDA_BEGIN_INSIDE;
    (void)flags;
    *memory = take(bytes);
    mock_add(THING_HOST_MEMORY, *memory, bytes, -1);
    CUDA_END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuMemFreeHost(void *memory)
{
    CUDA_BEGIN_INSIDE;
    wait_for_device(mock_device());
    if (!mock_remove(THING_HOST_MEMORY, memory))
        CUDA_END(CUDA_INVALID_VALUE);
    free(memory);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemHostGetDevicePointer(cuda_address *device, void *host, unsigned flags)
{
    CUDA_BEGIN;
    (void)flags;
    *device = (uintptr_t)host;
    CUDA_END(mock_find(host) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned mock_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    CUDA_BEGIN_INSIDE;
    (void)flags;
    if (mock_find(memory) == THING_REGISTERED)
        CUDA_END(ALREADY_REGISTERED);
    mock_add(THING_REGISTERED, memory, bytes, -1);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemHostUnregister(void *memory)
{
    CUDA_BEGIN_INSIDE;
    if (mock_is_read(memory, 1))
        mock.misused = "cuMemHostUnregister of memory that a kernel reads";
    wait_for_device(mock_device());
    CUDA_END(mock_remove(THING_REGISTERED, memory) ? CUDA_OK : CUDA_INVALID_VALUE);
}

unsigned mock_cuMemAlloc(cuda_address *memory, size_t bytes)
{
    CUDA_BEGIN_INSIDE;
    void *at = take_device(bytes);
    memset(mock_reach(at), 0xa5, bytes);
    mock_add(THING_DEVICE_MEMORY, at, bytes, mock_device());
    *memory = (uintptr_t)at;
    CUDA_END(mock_device() < 0 ? CUDA_INVALID_CONTEXT : CUDA_OK);
}

unsigned mock_cuMemFree(cuda_address memory)
{
    CUDA_BEGIN_INSIDE;
    wait_for_device(mock_device());
    void *at = (void *)(uintptr_t)memory;
    size_t bytes = 0;
    (void)range_of(&bytes, CUDA_POINTER_RANGE_SIZE, (uintptr_t)at);
    if (!mock_remove(THING_DEVICE_MEMORY, at))
        CUDA_END(CUDA_INVALID_VALUE);
    give_device(at, bytes);
    CUDA_END(CUDA_OK);
}

void mock_fill(const struct mock_op *op)
{
    char *to = mock_reach(op->to);

    for (size_t i = 0; i < op->bytes; i++)
        memcpy(to + i * op->pitch, &op->value, op->width); /* little endian */
}

/* The library fills by bytes, and the tests fill by words: their streams may end with such work. */
bool mock_fills(const struct CUstream_st *stream)
{
    for (const struct mock_op *op = mock.first[stream->device][stream->queue]; op; op = op->next)
        if (op->stream == stream && op->kind == OP_FILL && op->width == 1)
            return true;
    return false;
}

static unsigned fill_op(cuda_address to, size_t pitch, unsigned value, size_t width, size_t count, struct CUstream_st *stream)
{
    if (!mock_usable(stream))
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
    CUDA_BEGIN_INSIDE;
    CUDA_END(fill_op(to, 1, value, 1, count, stream));
}

unsigned mock_cuMemsetD16Async(cuda_address to, unsigned short value, size_t count, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    CUDA_END(fill_op(to, 2, value, 2, count, stream));
}

unsigned mock_cuMemsetD32Async(cuda_address to, unsigned value, size_t count, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    CUDA_END(fill_op(to, 4, value, 4, count, stream));
}

unsigned mock_cuMemsetD2D32Async(cuda_address to, size_t pitch, unsigned value, size_t width, size_t height, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    CUDA_END(width == 1 ? fill_op(to, pitch, value, 4, height, stream) : (unsigned)CUDA_NOT_SUPPORTED);
}

unsigned mock_cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    struct mock_op *op = mock_push(mock_stream(stream), OP_COPY);
    op->to = (void *)(uintptr_t)to;
    op->from = (void *)(uintptr_t)from;
    op->bytes = bytes;
    CUDA_END(CUDA_OK);
}

/* Rows without gaps, from the host to a device: the library copies no others. */
unsigned mock_cuMemcpy2DAsync(const struct cuda_rows *rows, struct CUstream_st *stream)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream))
        CUDA_END(CUDA_INVALID_HANDLE);
    if (rows->from_type != CUDA_MEMORY_HOST || rows->to_type != CUDA_MEMORY_DEVICE || !rows->width || rows->from_pitch != rows->width ||
        rows->to_pitch != rows->width)
        CUDA_END(CUDA_INVALID_VALUE);
    struct mock_op *op = mock_push(mock_stream(stream), OP_COPY);
    op->to = (void *)(uintptr_t)rows->to;
    op->from = rows->from_host;
    op->bytes = rows->width * rows->height;
    CUDA_END(CUDA_OK);
}
