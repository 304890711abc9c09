/* The mock machine: hardware queues of operations, and the choice of the head that runs next. */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mock_machine mock = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .put = PTHREAD_COND_INITIALIZER};

/* ------------------------------------------------------------------------------------------------------------ calls */
static _Thread_local bool exempt;

void mock_exempt(bool on)
{
    exempt = on;
}

bool mock_is_exempt(void)
{
    return exempt;
}

/* What the next call of a name does first. Threads of the library make calls too, so it is read under the machine's lock. */
static struct first {
    const char *name;
    void (*fn)(void *arg);
    void *arg;
} first;

void mock_at(const char *call, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&mock.lock);
    first = (struct first){call, fn, arg};
    pthread_mutex_unlock(&mock.lock);
}

/* The lock is held, but not while fn runs. */
static void begin_first(const char *name)
{
    struct first now = first;

    if (!now.fn || strcmp(name + strlen("mock_"), now.name) != 0)
        return;
    pthread_mutex_unlock(&mock.lock);
    now.fn(now.arg);
    pthread_mutex_lock(&mock.lock);
}

/* Counts the call. Whether one of its name has failed often enough (mock_options). */
static bool is_spared(const char *name)
{
    int i = 0;

    while (mock.named[i].name && mock.named[i].name != name)
        if (++i == MOCK_NAMES)
            abort();
    mock.named[i].name = name;
    uint32_t before = mock.named[i].calls++;
    return mock.options.every && before >= mock.options.first && before % mock.options.every;
}

bool mock_begin(const char *name)
{
    pthread_mutex_lock(&mock.lock);
    begin_first(name);
    if (exempt)
        return false;
    mock.calls++;
    bool fails = mock.broken, spared = mock.fail_at && is_spared(name);
    mock.armed++;
    if (mock.fail_at && mock.armed >= mock.fail_at && !spared) {
        fails = true;
        mock.broken = mock.sticky;
        mock.failed = name;
        mock.failed_at = mock.armed;
        mock.fail_at = 0;
    }
    if (fails)
        pthread_mutex_unlock(&mock.lock);
    return fails;
}

static bool step(void);

void mock_end(void)
{
    while (mock.at_once && mock.pending && step())
        ;
    pthread_cond_broadcast(&mock.changed);
    pthread_mutex_unlock(&mock.lock);
}

uint64_t mock_draw(uint64_t below)
{
    mock.random ^= mock.random << 13;
    mock.random ^= mock.random >> 7;
    mock.random ^= mock.random << 17;
    return mock.random % below;
}

/* ------------------------------------------------------------------------------------------------------------ what exists */
void mock_add(enum mock_thing kind, void *at, size_t bytes, int device)
{
    mock.made += kind != THING_GRAPH && kind != THING_EXEC;
    for (int i = 0; i < MOCK_THINGS; i++) {
        if (mock.thing[i].kind)
            continue;
        mock.thing[i].kind = kind;
        mock.thing[i].at = at;
        mock.thing[i].bytes = bytes;
        mock.thing[i].device = device;
        mock.things = i < mock.things ? mock.things : i + 1;
        return;
    }
    abort();
}

bool mock_remove(enum mock_thing kind, void *at)
{
    for (int i = 0; i < mock.things; i++) {
        if (mock.thing[i].kind == kind && mock.thing[i].at == at) {
            memset(&mock.thing[i], 0, sizeof mock.thing[i]);
            return true;
        }
    }
    return false;
}

enum mock_thing mock_find(const void *at)
{
    for (int i = 0; i < mock.things; i++) {
        const char *from = mock.thing[i].at;
        if (mock.thing[i].kind && (const char *)at >= from && (const char *)at < from + (mock.thing[i].bytes ? mock.thing[i].bytes : 1))
            return mock.thing[i].kind;
    }
    return 0;
}

int mock_owner(const void *at)
{
    for (int i = 0; i < mock.things; i++) {
        const char *from = mock.thing[i].at;
        if (mock.thing[i].kind == THING_DEVICE_MEMORY && (const char *)at >= from && (const char *)at < from + mock.thing[i].bytes)
            return mock.thing[i].device;
    }
    return -1;
}

static int count_live(bool tell)
{
    static const char *const kinds[] = {"copy", "fill", "kernel", "record", "wait for an event", "write", "wait for a word", "collective"};
    int live = 0;

    pthread_mutex_lock(&mock.lock);
    for (int d = 0; d < MOCK_DEVICES && tell; d++)
        for (int q = 0; q < MOCK_QUEUES; q++)
            for (struct mock_op *op = mock.first[d][q]; op; op = op->next)
                printf("pending on device %d, queue %d: %s, stream %p, word %p value %llu\n", d, q, kinds[op->kind], (void *)op->stream,
                       op->to, (unsigned long long)op->value);
    for (int i = 0; i < mock.things; i++) {
        live += mock.thing[i].kind != 0;
        if (tell && mock.thing[i].kind)
            printf("alive: kind %d at %p, %zu bytes\n", (int)mock.thing[i].kind, mock.thing[i].at, mock.thing[i].bytes);
    }
    for (int i = 0; i < MOCK_DEVICES; i++) {
        live += mock.context[i].retained;
        if (tell && mock.context[i].retained)
            printf("alive: context of device %d, %d times\n", i, mock.context[i].retained);
    }
    pthread_mutex_unlock(&mock.lock);
    return live;
}

uint64_t mock_held(void)
{
    uint64_t bytes = 0;

    pthread_mutex_lock(&mock.lock);
    for (int i = 0; i < mock.things; i++)
        if (mock.thing[i].kind == THING_DEVICE_MEMORY || mock.thing[i].kind == THING_HOST_MEMORY)
            bytes += mock.thing[i].bytes;
    pthread_mutex_unlock(&mock.lock);
    return bytes;
}

int mock_live(void)
{
    return count_live(false);
}

void mock_list_live(void)
{
    count_live(true);
}

/* ------------------------------------------------------------------------------------------------------------ operations */
struct mock_op *mock_push(struct CUstream_st *stream, enum mock_kind kind)
{
    if (stream->graph)
        return mock_record(stream, kind);
    struct mock_op *op = calloc(1, sizeof *op), **last = &mock.last[stream->device][stream->queue];
    if (!op)
        abort();
    op->kind = kind;
    op->stream = stream;
    if (*last)
        (*last)->next = op;
    else
        mock.first[stream->device][stream->queue] = op;
    *last = op;
    stream->pending++;
    mock.pending++;
    pthread_cond_signal(&mock.put);
    return op;
}

static bool can_run(struct mock_op *op)
{
    if (op->stream->held || (op->stream->running && op->stream->running != op))
        return false;
    switch (op->kind) {
    case OP_WAIT:
        return op->mark->done;
    case OP_STAND:
        return (int64_t)(atomic_load_explicit((_Atomic uint64_t *)mock_reach(op->to), memory_order_acquire) - op->value) >= 0;
    case OP_FOREIGN:
        return op->ready(op);
    default:
        return true;
    }
}

/* Runs the operation, and returns true when it is over. */
static bool run(struct mock_op *op)
{
    switch (op->kind) {
    case OP_COPY:
        memmove(mock_reach(op->to), mock_reach(op->from), op->bytes);
        return true;
    case OP_FILL:
        mock_fill(op);
        return true;
    case OP_KERNEL:
        op->fn(op->arg);
        return true;
    case OP_RECORD:
        op->mark->done = true;
        return true;
    case OP_WRITE:
        atomic_store_explicit((_Atomic uint64_t *)mock_reach(op->to), op->value, memory_order_release);
        return true;
    case OP_FOREIGN:
        return op->go(op);
    default:
        return true;
    }
}

static void pop(int device, int queue)
{
    struct mock_op *op = mock.first[device][queue];

    mock.first[device][queue] = op->next;
    if (!op->next)
        mock.last[device][queue] = NULL;
    if (op->mark && --op->mark->references == 0)
        free(op->mark);
    op->stream->pending--;
    mock.pending--;
    free(op);
}

struct head {
    int device, queue;
};

/* Half of the seeds choose uniformly at each step. The others give the queues priorities, and change one now and then. So a queue may fall
 * far behind, which uniform choices hardly ever cause. */
static uint64_t choose(const struct head *head, uint64_t count)
{
    uint64_t best = 0;

    if (!mock.ranked)
        return mock_draw(count);
    if (mock_draw(32) == 0)
        mock.rank[head[mock_draw(count)].device][head[mock_draw(count)].queue] = (uint32_t)mock_draw(1000);
    for (uint64_t i = 1; i < count; i++)
        if (mock.rank[head[i].device][head[i].queue] > mock.rank[head[best].device][head[best].queue])
            best = i;
    return best;
}

void mock_choose_by(uint64_t seed)
{
    mock.random = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    mock.ranked = seed & 1;
    for (int d = 0; d < MOCK_DEVICES; d++)
        for (int q = 0; q < MOCK_QUEUES; q++)
            mock.rank[d][q] = (uint32_t)mock_draw(1000);
}

static bool step(void)
{
    struct head head[MOCK_DEVICES * MOCK_QUEUES];
    uint64_t count = 0;

    for (int d = 0; d < MOCK_DEVICES; d++)
        for (int q = 0; q < MOCK_QUEUES && !mock.fault[d]; q++)
            if (mock.first[d][q] && can_run(mock.first[d][q])) {
                head[count].device = d;
                head[count++].queue = q;
            }
    if (!count)
        return false;
    uint64_t chosen = choose(head, count);
    int device = head[chosen].device, queue = head[chosen].queue;
    if (run(mock.first[device][queue]))
        pop(device, queue);
    pthread_cond_broadcast(&mock.changed);
    return true;
}

bool mock_step(void)
{
    pthread_mutex_lock(&mock.lock);
    bool stepped = step();
    pthread_mutex_unlock(&mock.lock);
    return stepped;
}

void mock_drain(void)
{
    while (mock_step())
        ;
}

bool mock_idle(void)
{
    pthread_mutex_lock(&mock.lock);
    bool idle = mock.pending == 0;
    pthread_mutex_unlock(&mock.lock);
    return idle;
}

static void *runner(void *arg)
{
    pthread_mutex_lock(&mock.lock);
    while (!mock.stop) {
        struct timespec until;
        if (step()) {
            pthread_mutex_unlock(&mock.lock); /* let other threads in between two operations */
            pthread_mutex_lock(&mock.lock);
            continue;
        }
        if (!mock.pending) {
            pthread_cond_wait(&mock.put, &mock.lock);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50000; /* the host's writes to a word wake no thread */
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&mock.put, &mock.lock, &until);
    }
    pthread_mutex_unlock(&mock.lock);
    return arg;
}

void mock_run(bool on)
{
    if (on == mock.running)
        return;
    mock.running = on;
    pthread_mutex_lock(&mock.lock);
    mock.stop = !on;
    pthread_cond_broadcast(&mock.changed);
    pthread_cond_signal(&mock.put);
    pthread_mutex_unlock(&mock.lock);
    if (on && pthread_create(&mock.runner, NULL, runner, NULL))
        abort();
    if (!on)
        pthread_join(mock.runner, NULL);
}

void mock_kernel(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&mock.lock);
    struct mock_op *op = mock_push((uintptr_t)stream > CUDA_STREAM_PER_THREAD ? stream : mock_stream(stream), OP_KERNEL);
    op->fn = fn;
    op->arg = arg;
    mock_end();
}

/* For a program without calls to the mock: with MOCK_RUN in the environment, the devices exist and run by themselves. */
__attribute__((constructor)) static void run_by_itself(void)
{
    const char *seed = getenv("MOCK_RUN");

    if (!seed)
        return;
    mock_reset(&(struct mock_options){.seed = strtoull(seed, NULL, 10), .queues = 32});
    mock_run(true);
}
