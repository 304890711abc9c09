/* The machine: hardware queues of operations, and which of their heads runs next. */
#define _GNU_SOURCE
#include "played_inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct played_machine played = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ------------------------------------------------------------------------------------------------------------ calls */
static _Thread_local bool exempt;

void played_exempt(bool on)
{
    exempt = on;
}

bool played_begin(const char *name)
{
    pthread_mutex_lock(&played.lock);
    if (exempt)
        return false;
    played.calls++;
    bool fails = played.broken;
    if (played.fail_at && --played.fail_at == 0) {
        fails = true;
        played.broken = played.sticky;
        played.failed = name;
    }
    if (fails)
        pthread_mutex_unlock(&played.lock);
    return fails;
}

void played_end(void)
{
    pthread_cond_broadcast(&played.changed);
    pthread_mutex_unlock(&played.lock);
}

uint64_t played_draw(uint64_t below)
{
    played.random ^= played.random << 13;
    played.random ^= played.random >> 7;
    played.random ^= played.random << 17;
    return played.random % below;
}

/* ------------------------------------------------------------------------------------------------------------ what exists */
void played_add(enum played_thing kind, void *at, size_t bytes, int device)
{
    for (int i = 0; i < PLAYED_THINGS; i++) {
        if (played.thing[i].kind)
            continue;
        played.thing[i].kind = kind;
        played.thing[i].at = at;
        played.thing[i].bytes = bytes;
        played.thing[i].device = device;
        return;
    }
    abort();
}

bool played_remove(enum played_thing kind, void *at)
{
    for (int i = 0; i < PLAYED_THINGS; i++) {
        if (played.thing[i].kind == kind && played.thing[i].at == at) {
            memset(&played.thing[i], 0, sizeof played.thing[i]);
            return true;
        }
    }
    return false;
}

enum played_thing played_find(const void *at)
{
    for (int i = 0; i < PLAYED_THINGS; i++) {
        const char *from = played.thing[i].at;
        if (played.thing[i].kind && (const char *)at >= from &&
            (const char *)at < from + (played.thing[i].bytes ? played.thing[i].bytes : 1))
            return played.thing[i].kind;
    }
    return 0;
}

static int count_live(bool tell)
{
    static const char *const kinds[] = {"copy", "fill", "kernel", "record", "wait for an event", "write", "wait for a word", "collective"};
    int live = 0;

    pthread_mutex_lock(&played.lock);
    for (int d = 0; d < PLAYED_DEVICES && tell; d++)
        for (int q = 0; q < PLAYED_QUEUES; q++)
            for (struct played_op *op = played.first[d][q]; op; op = op->next)
                printf("pending on device %d, queue %d: %s, stream %p, word %p value %llu\n", d, q, kinds[op->kind], (void *)op->stream,
                       op->to, (unsigned long long)op->value);
    for (int i = 0; i < PLAYED_THINGS; i++) {
        live += played.thing[i].kind != 0;
        if (tell && played.thing[i].kind)
            printf("alive: kind %d at %p, %zu bytes\n", (int)played.thing[i].kind, played.thing[i].at, played.thing[i].bytes);
    }
    for (int i = 0; i < PLAYED_DEVICES; i++) {
        live += played.context[i].retained;
        if (tell && played.context[i].retained)
            printf("alive: context of device %d, %d times\n", i, played.context[i].retained);
    }
    pthread_mutex_unlock(&played.lock);
    return live;
}

int played_live(void)
{
    return count_live(false);
}

void played_list_live(void)
{
    count_live(true);
}

/* ------------------------------------------------------------------------------------------------------------ operations */
struct played_op *played_push(struct CUstream_st *stream, enum played_kind kind)
{
    struct played_op *op = calloc(1, sizeof *op), **last = &played.last[stream->device][stream->queue];

    if (!op)
        abort();
    op->kind = kind;
    op->stream = stream;
    if (*last)
        (*last)->next = op;
    else
        played.first[stream->device][stream->queue] = op;
    *last = op;
    stream->pending++;
    played.pending++;
    return op;
}

static bool can_run(struct played_op *op)
{
    switch (op->kind) {
    case OP_WAIT:
        return op->mark->done;
    case OP_STAND:
        return (int64_t)(atomic_load_explicit((_Atomic uint64_t *)op->to, memory_order_acquire) - op->value) >= 0;
    case OP_FOREIGN:
        return op->ready(op);
    default:
        return true;
    }
}

/* True: it is over. */
static bool run(struct played_op *op)
{
    switch (op->kind) {
    case OP_COPY:
        memmove(op->to, op->from, op->bytes);
        return true;
    case OP_FILL:
        for (size_t i = 0; i < op->bytes; i++)
            ((uint32_t *)op->to)[i] = (uint32_t)op->value;
        return true;
    case OP_KERNEL:
        op->fn(op->arg);
        return true;
    case OP_RECORD:
        op->mark->done = true;
        return true;
    case OP_WRITE:
        atomic_store_explicit((_Atomic uint64_t *)op->to, op->value, memory_order_release);
        return true;
    case OP_FOREIGN:
        return op->go(op);
    default:
        return true;
    }
}

static void pop(int device, int queue)
{
    struct played_op *op = played.first[device][queue];

    played.first[device][queue] = op->next;
    if (!op->next)
        played.last[device][queue] = NULL;
    if (op->mark && --op->mark->references == 0)
        free(op->mark);
    op->stream->pending--;
    played.pending--;
    free(op);
}

struct head {
    int device, queue;
};

/* Half of the seeds draw each time. The others give queues ranks, and change one now and then: so a queue may stay behind for long, which
 * uniform draws hardly ever make happen. */
static uint64_t choose(const struct head *head, uint64_t count)
{
    uint64_t best = 0;

    if (!played.ranked)
        return played_draw(count);
    if (played_draw(32) == 0)
        played.rank[head[played_draw(count)].device][head[played_draw(count)].queue] = (uint32_t)played_draw(1000);
    for (uint64_t i = 1; i < count; i++)
        if (played.rank[head[i].device][head[i].queue] > played.rank[head[best].device][head[best].queue])
            best = i;
    return best;
}

static void set_seed(uint64_t seed)
{
    played.random = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    played.ranked = seed & 1;
    for (int d = 0; d < PLAYED_DEVICES; d++)
        for (int q = 0; q < PLAYED_QUEUES; q++)
            played.rank[d][q] = (uint32_t)played_draw(1000);
}

static bool step(void)
{
    struct head head[PLAYED_DEVICES * PLAYED_QUEUES];
    uint64_t count = 0;

    for (int d = 0; d < PLAYED_DEVICES; d++)
        for (int q = 0; q < PLAYED_QUEUES; q++)
            if (played.first[d][q] && can_run(played.first[d][q])) {
                head[count].device = d;
                head[count++].queue = q;
            }
    if (!count)
        return false;
    uint64_t chosen = choose(head, count);
    int device = head[chosen].device, queue = head[chosen].queue;
    if (run(played.first[device][queue]))
        pop(device, queue);
    pthread_cond_broadcast(&played.changed);
    return true;
}

bool played_step(void)
{
    pthread_mutex_lock(&played.lock);
    bool stepped = step();
    pthread_mutex_unlock(&played.lock);
    return stepped;
}

void played_drain(void)
{
    while (played_step())
        ;
}

bool played_idle(void)
{
    pthread_mutex_lock(&played.lock);
    bool idle = played.pending == 0;
    pthread_mutex_unlock(&played.lock);
    return idle;
}

static void *runner(void *arg)
{
    pthread_mutex_lock(&played.lock);
    while (!played.stop) {
        struct timespec until;
        if (step()) {
            pthread_mutex_unlock(&played.lock); /* others may come between any two operations */
            pthread_mutex_lock(&played.lock);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50000; /* a word of the host's makes no noise */
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&played.changed, &played.lock, &until);
    }
    pthread_mutex_unlock(&played.lock);
    return arg;
}

void played_run(bool on)
{
    if (on == played.running)
        return;
    played.running = on;
    pthread_mutex_lock(&played.lock);
    played.stop = !on;
    pthread_cond_broadcast(&played.changed);
    pthread_mutex_unlock(&played.lock);
    if (on && pthread_create(&played.runner, NULL, runner, NULL))
        abort();
    if (!on)
        pthread_join(played.runner, NULL);
}

void played_kernel(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&played.lock);
    struct played_op *op = played_push(stream, OP_KERNEL);
    op->fn = fn;
    op->arg = arg;
    played_end();
}

/* ------------------------------------------------------------------------------------------------------------ the test's hand */
void played_reset(const struct played_options *options)
{
    pthread_mutex_lock(&played.lock);
    if (played.pending)
        abort();
    played.options = *options;
    if (!played.options.devices)
        played.options.devices = PLAYED_DEVICES;
    if (!played.options.queues)
        played.options.queues = 8;
    set_seed(options->seed);
    played.calls = played.fail_at = played.waits = played.drop_at = 0;
    played.sticky = played.broken = false;
    played.failed = NULL;
    played.async_error = 0;
    for (int i = 0; i < PLAYED_DEVICES; i++)
        played.context[i].device = i;
    pthread_mutex_unlock(&played.lock);
}

void played_seed(uint64_t seed)
{
    pthread_mutex_lock(&played.lock);
    set_seed(seed);
    pthread_mutex_unlock(&played.lock);
}

void played_fail(uint64_t n, bool sticky)
{
    pthread_mutex_lock(&played.lock);
    played.fail_at = n;
    played.sticky = sticky;
    played.broken = false;
    played.failed = NULL;
    pthread_mutex_unlock(&played.lock);
}

void played_drop_wait(uint64_t n)
{
    pthread_mutex_lock(&played.lock);
    played.drop_at = n;
    pthread_mutex_unlock(&played.lock);
}

uint64_t played_calls(void)
{
    pthread_mutex_lock(&played.lock);
    uint64_t calls = played.calls;
    pthread_mutex_unlock(&played.lock);
    return calls;
}

uint64_t played_waits(void)
{
    pthread_mutex_lock(&played.lock);
    uint64_t waits = played.waits;
    pthread_mutex_unlock(&played.lock);
    return waits;
}

const char *played_failed(void)
{
    pthread_mutex_lock(&played.lock);
    const char *failed = played.failed;
    pthread_mutex_unlock(&played.lock);
    return failed;
}

void played_free_abort(void)
{
    pthread_mutex_lock(&played.lock);
    played.options.abort_hangs = 0;
    played_end();
}

void played_capture(struct CUstream_st *stream, bool on)
{
    pthread_mutex_lock(&played.lock);
    stream->capturing = on;
    pthread_mutex_unlock(&played.lock);
}

void played_async_error(int result)
{
    pthread_mutex_lock(&played.lock);
    played.async_error = result;
    pthread_mutex_unlock(&played.lock);
}
