/*
 * A mock libcuda.so.1 for programs that do not use devices. All memory is device memory, except registered memory. It is preloaded, so that
 * every buffer of such a program must be staged. So the conformance tests for host memory also test device memory.
 *
 * A test that links to it instead takes device memory with mock_take, which the CPU cannot access. It can also make calls fail.
 *
 * Copies are done at once. With MOCK_LATE=N the device has no stream memory operations, an event is reached at the N-th query, and copies
 * are not done before. The process that loaded the mock fails at its exit if neither it nor its children copied anything.
 */
#define _GNU_SOURCE
#include "mock_everywhere_inside.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

MOCK_API unsigned mock_cuStreamQuery(struct CUstream_st *stream) __asm__("cuStreamQuery");

enum { RANGES = 1 << 16, OPS = 1 << 14, STREAMS = 64, TAKEN = 256, IS_MANAGED = 8, ORDINAL = 9 };
/* A copy, or with `word` a write of the word. */
struct op {
    void *to;
    const void *from;
    size_t bytes;
    uint64_t *word, value;
};
struct CUstream_st {
    uint64_t first, next; /* range of its operations that are not done */
    struct op op[OPS];
};
struct CUevent_st {
    struct CUstream_st *stream;
    uint64_t behind; /* the event is after this many operations of the stream */
    long left;       /* queries until it is reached */
};

static struct {
    uintptr_t from, to;
} registered[RANGES];
static struct {
    char *at, *seen;
    size_t bytes;
} taken[TAKEN];
static struct CUstream_st *streams[STREAMS];
static uint32_t ranges, takes, stream_count;
static uintptr_t managed_from, managed_to;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t *copied; /* in this process and in its children */
static _Atomic uint64_t calls, fail_at, objects, pinned;
static pid_t loader;
static long late;
static bool some, standing;

bool mock_fails(void)
{
    uint64_t at = __atomic_add_fetch((uint64_t *)&calls, 1, __ATOMIC_RELAXED);

    return fail_at && at == fail_at;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("MOCK_LATE");

    late = text ? strtol(text, NULL, 10) : 0;
    loader = getpid();
    copied = mmap(NULL, sizeof *copied, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

__attribute__((destructor)) static void end(void)
{
    if (getpid() != loader || *copied || some || !dlsym(RTLD_DEFAULT, "comm_open")) /* a launcher has no buffers, so it may copy nothing */
        return;
    fprintf(stderr, "mock_everywhere: nothing was copied: no buffer was staged\n");
    _exit(1);
}

/* ------------------------------------------------------------------------------------------------------------ for tests */
/* The table is written under the lock: threads of the library run copies. */
void *mock_take(size_t bytes)
{
    int file = memfd_create("mock", 0);

    if (takes == TAKEN || file < 0 || ftruncate(file, (off_t)bytes))
        abort();
    pthread_mutex_lock(&lock);
    taken[takes].at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
    taken[takes].seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    taken[takes].bytes = bytes;
    if (taken[takes].at == MAP_FAILED || taken[takes].seen == MAP_FAILED)
        abort();
    close(file);
    some = true;
    void *at = taken[takes++].at;
    pthread_mutex_unlock(&lock);
    return at;
}

static uint32_t find_taken(const void *at)
{
    for (uint32_t i = 0; i < takes; i++)
        if ((uintptr_t)at - (uintptr_t)taken[i].at < taken[i].bytes)
            return i;
    return TAKEN;
}

void mock_give(void *at)
{
    pthread_mutex_lock(&lock);
    uint32_t i = find_taken(at);
    munmap(taken[i].at, taken[i].bytes);
    munmap(taken[i].seen, taken[i].bytes);
    taken[i] = taken[--takes];
    pthread_mutex_unlock(&lock);
}

void *mock_peek(const void *at)
{
    uint32_t i = find_taken(at);

    return i < TAKEN ? taken[i].seen + ((const char *)at - taken[i].at) : (void *)(uintptr_t)at;
}

void mock_managed(const void *at, size_t bytes)
{
    managed_from = (uintptr_t)at;
    managed_to = managed_from + bytes;
    some = true;
}

void mock_late(long looks)
{
    late = looks;
}

bool mock_is_late(void)
{
    return late;
}

void mock_fail(uint64_t n)
{
    fail_at = n ? calls + n : 0;
}

uint64_t mock_calls(void)
{
    return calls;
}

uint64_t mock_objects(void)
{
    return objects;
}

size_t mock_pinned(void)
{
    return pinned;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static int is_host(uintptr_t at)
{
    if (some)
        return find_taken((const void *)at) == TAKEN;
    for (uint32_t i = 0; i < ranges; i++)
        if (at >= registered[i].from && at < registered[i].to)
            return 1;
    return 0;
}

static unsigned add(void *memory, size_t bytes)
{
    objects++;
    pinned += bytes;
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
            pinned -= registered[i].to - registered[i].from;
            registered[i] = registered[--ranges];
            result = CUDA_OK;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static unsigned tell(void *data, unsigned attribute, cuda_address pointer)
{
    pthread_mutex_lock(&lock);
    bool is_managed = pointer >= managed_from && pointer < managed_to;
    unsigned type = !is_managed && is_host((uintptr_t)pointer) ? CUDA_MEMORY_HOST : CUDA_MEMORY_DEVICE;
    uint32_t i = find_taken((const void *)(uintptr_t)pointer);
    pthread_mutex_unlock(&lock);
    if (some && type == CUDA_MEMORY_HOST)
        return CUDA_INVALID_VALUE;
    if (attribute == CUDA_POINTER_MEMORY_TYPE || attribute == IS_MANAGED)
        *(unsigned *)data = attribute == IS_MANAGED ? is_managed : type;
    else if (attribute == ORDINAL)
        *(int *)data = 0;
    else if (attribute == CUDA_POINTER_RANGE_START)
        *(cuda_address *)data = i < TAKEN ? (uintptr_t)taken[i].at : pointer;
    else if (attribute == CUDA_POINTER_RANGE_SIZE)
        *(size_t *)data = i < TAKEN ? taken[i].bytes : (size_t)1 << 40;
    else
        return CUDA_INVALID_VALUE;
    return CUDA_OK;
}

/* As in the real driver, what is not known of an address is 0, and no error. */
unsigned mock_cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data, cuda_address pointer)
{
    for (unsigned i = 0; i < count; i++) {
        bool is_long = attributes[i] == CUDA_POINTER_RANGE_START || attributes[i] == CUDA_POINTER_RANGE_SIZE;
        if (tell(data[i], attributes[i], pointer) != CUDA_OK)
            memset(data[i], 0, is_long ? sizeof(uint64_t) : sizeof(unsigned));
    }
    return CUDA_OK;
}

unsigned mock_cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    BEGIN;
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
    BEGIN;
    *stream = stream_count < STREAMS ? calloc(1, sizeof **stream) : NULL;
    if (!*stream)
        return CUDA_OUT_OF_MEMORY;
    objects++;
    streams[stream_count++] = *stream;
    return CUDA_OK;
}

unsigned mock_cuStreamDestroy(struct CUstream_st *stream)
{
    for (uint32_t i = 0; i < stream_count; i++)
        if (streams[i] == stream)
            streams[i] = streams[--stream_count];
    free(stream);
    return CUDA_OK;
}

unsigned mock_cuStreamQuery(struct CUstream_st *stream)
{
    return stream->first == stream->next ? CUDA_OK : CUDA_NOT_READY;
}

static void run(struct CUstream_st *stream, uint64_t until)
{
    for (; stream->first < until && !standing; stream->first++) {
        const struct op *op = &stream->op[stream->first % OPS];
        if (op->word)
            __atomic_store_n(op->word, op->value, __ATOMIC_RELEASE);
        else
            memcpy(mock_peek(op->to), mock_peek(op->from), op->bytes);
    }
}

static unsigned put(struct CUstream_st *stream, const struct op *op, bool sound)
{
    pthread_mutex_lock(&lock);
    if (op->bytes) { /* one side must be entirely host memory, and the other entirely device memory */
        uintptr_t to = (uintptr_t)op->to, from = (uintptr_t)op->from, last = op->bytes - 1;
        sound = is_host(to) == is_host(to + last) && is_host(from) == is_host(from + last) && is_host(to) != is_host(from);
        ++*copied;
    }
    sound = sound && stream->next - stream->first < OPS;
    if (sound)
        stream->op[stream->next++ % OPS] = *op;
    if (!late)
        run(stream, stream->next);
    pthread_mutex_unlock(&lock);
    return sound ? CUDA_OK : CUDA_INVALID_VALUE;
}

void mock_stand(bool on)
{
    pthread_mutex_lock(&lock);
    standing = on;
    for (uint32_t i = 0; i < stream_count && !late; i++)
        run(streams[i], streams[i]->next);
    pthread_mutex_unlock(&lock);
}

/* The stream that stands at a copy in this direction, or NULL. */
static struct CUstream_st *standing_at(bool to_device)
{
    for (uint32_t i = 0; i < stream_count; i++) {
        struct CUstream_st *s = streams[i];
        if (s->first != s->next && is_host((uintptr_t)s->op[s->first % OPS].to) == !to_device)
            return s;
    }
    return NULL;
}

static void run_one(struct CUstream_st *s)
{
    standing = false;
    do
        run(s, s->first + 1);
    while (s->first != s->next && s->op[s->first % OPS].word);
    standing = true;
}

bool mock_step(bool to_device)
{
    pthread_mutex_lock(&lock);
    struct CUstream_st *s = standing ? standing_at(to_device) : NULL;
    if (s)
        run_one(s);
    pthread_mutex_unlock(&lock);
    return s != NULL;
}

bool mock_stands_at(bool to_device)
{
    pthread_mutex_lock(&lock);
    bool stands = standing && standing_at(to_device);
    pthread_mutex_unlock(&lock);
    return stands;
}

unsigned mock_cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream)
{
    BEGIN;
    return put(stream, &(struct op){.to = (void *)(uintptr_t)to, .from = (const void *)(uintptr_t)from, .bytes = bytes}, bytes != 0);
}

unsigned mock_cuMemcpy2DAsync(const struct cuda_rows *rows, struct CUstream_st *stream)
{
    BEGIN;
    return put(stream, &(struct op){.to = (void *)(uintptr_t)rows->to, .from = rows->from_host, .bytes = rows->width * rows->height}, true);
}

unsigned mock_cuStreamWriteValue64(struct CUstream_st *stream, cuda_address word, uint64_t value, unsigned flags)
{
    BEGIN;
    return late ? (unsigned)CUDA_NOT_SUPPORTED : put(stream, &(struct op){.word = (uint64_t *)(uintptr_t)word, .value = value}, true);
}

unsigned mock_cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    BEGIN;
    *event = calloc(1, sizeof **event);
    objects++;
    return *event ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

unsigned mock_cuEventDestroy(struct CUevent_st *event)
{
    free(event);
    return CUDA_OK;
}

unsigned mock_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    *event = (struct CUevent_st){stream, stream->next, late};
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

unsigned mock_cuEventQuery(struct CUevent_st *event)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    int reached = !standing && --event->left <= 0;
    if (reached)
        run(event->stream, event->behind);
    pthread_mutex_unlock(&lock);
    return reached ? CUDA_OK : CUDA_NOT_READY;
}
