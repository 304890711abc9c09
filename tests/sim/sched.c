/*
 * The scheduler: which thread runs next, and what time it is. One thread runs at a time. It yields when it waits, and
 * when it has used up the number of atomic operations that the seed gave it; then the next one is chosen among the
 * ready threads. Time advances by a step with each choice, and jumps to the next timer when no thread is ready. If no
 * thread is ready and there is no timer, the run has failed.
 */
#define _GNU_SOURCE
#include "sim/frames.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#    define SIM_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define SIM_ASAN 1
#    endif
#endif
#ifdef SIM_ASAN
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
#    define STACK_BYTES ((size_t)1 << 20)
#else
#    define STACK_BYTES ((size_t)256 << 10)
#endif
#define GUARD_BYTES ((size_t)4096)
#define STACKS_AT UINT64_C(0x180000000000)

#define QUIET_NS INT64_C(1000000) /* if nothing happens for this long, the script delivers */

struct sim sim;
int32_t sim_budget = INT32_MAX;

void sim_mix(uint64_t value)
{
    sim.hash = (sim.hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    sim.hash ^= sim.hash >> 32;
}

/* ------------------------------------------------------------------------------------------------------------ timers */
struct timer {
    int64_t ns;
    uint64_t tie; /* from the seed: events at one time happen in any order */
    sim_timer_fn *fn;
    void *arg;
    uint64_t what;
};
static struct timer *heap;
static size_t heap_count, heap_room;

static bool before(const struct timer *a, const struct timer *b)
{
    return a->ns < b->ns || (a->ns == b->ns && a->tie < b->tie);
}

static void heap_push(const struct timer *timer)
{
    if (heap_count == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
        if (!heap)
            abort();
    }
    size_t at = heap_count++;
    for (; at && before(timer, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = *timer;
}

static struct timer heap_pop(void)
{
    struct timer top = heap[0], last = heap[--heap_count];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < heap_count; at = child) {
        child += child + 1 < heap_count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &last))
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

void sim_at(int64_t ns, sim_timer_fn *fn, void *arg, uint64_t what)
{
    heap_push(&(struct timer){ns, sim.config.meter ? ++sim.ties : sim_draw(&sim.schedule), fn, arg, what});
}

/* ------------------------------------------------------------------------------------------------------------ ready threads */
static void make_ready(struct sim_thread *t)
{
    t->state = THREAD_READY;
    t->waits_for = NULL;
    t->waits++;
    t->ready_at = sim.ready_count;
    sim.ready[sim.ready_count++] = t;
}

static void take_ready(struct sim_thread *t)
{
    if (sim.mood.order >= SIM_ORDER_TURNS) { /* keep the order of arrival */
        sim.ready_count--;
        for (uint32_t i = t->ready_at; i < sim.ready_count; i++) {
            sim.ready[i] = sim.ready[i + 1];
            sim.ready[i]->ready_at = i;
        }
        return;
    }
    struct sim_thread *last = sim.ready[--sim.ready_count];
    sim.ready[t->ready_at] = last;
    last->ready_at = t->ready_at;
}

static void timer_wakes(void *arg, uint64_t waits)
{
    struct sim_thread *t = arg;

    if (t->state == THREAD_WAITS && t->waits == waits)
        make_ready(t);
}

void sim_wake(int32_t rank, const void *what, uint32_t count)
{
    int32_t from = rank < 0 ? 0 : rank, to = rank < 0 ? sim.config.ranks : rank + 1;

    for (int32_t r = from; r < to && count; r++) {
        for (struct sim_thread *t = sim.member[r].threads; t && count; t = t->next) {
            if (t->state == THREAD_WAITS && t->waits_for == what) {
                make_ready(t);
                count--;
            }
        }
    }
}

static struct sim_thread *pick(void)
{
    uint32_t at = 0;

    switch (sim.mood.order) {
    case SIM_ORDER_UNIFORM:
        at = (uint32_t)sim_below(&sim.schedule, sim.ready_count);
        break;
    case SIM_ORDER_PRIORITY:
        if (sim_below(&sim.schedule, sim.mood.change) == 0)
            sim.current->priority = --sim.lowest;
        for (uint32_t i = 1; i < sim.ready_count; i++)
            at = sim.ready[i]->priority > sim.ready[at]->priority ? i : at;
        break;
    default: /* in turns, also with a script */
        break;
    }
    return sim.ready[at];
}

/* ------------------------------------------------------------------------------------------------------------ switching */
static void draw_budget(void)
{
    sim_budget = sim.mood.budget ? (int32_t)sim_below(&sim.schedule, 2 * (uint64_t)sim.mood.budget + 1) : INT32_MAX;
}

static void go(void **from, void *to, struct sim_thread *target)
{
#ifdef SIM_ASAN
    static const void *outside_stack;
    static size_t outside_bytes;
    struct sim_thread *self = sim.current;
    const void *old;
    size_t old_bytes;
    void *fake = NULL;
    bool ends = from == NULL || (from != &sim.outside && self->state >= THREAD_ENDED);

    __sanitizer_start_switch_fiber(ends ? NULL : &fake, target ? target->stack : outside_stack,
                                   target ? target->stack_bytes : outside_bytes);
    sim.current = target ? target : self;
    sim_switch(from, to);
    __sanitizer_finish_switch_fiber(fake, &old, &old_bytes);
    if (!outside_stack) {
        outside_stack = old;
        outside_bytes = old_bytes;
    }
#else
    if (target)
        sim.current = target;
    sim_switch(from, to);
#endif
}

void sim_finish(void)
{
    static void *nowhere;

    sim.active = false;
    sim_budget = INT32_MAX;
    go(&nowhere, sim.outside, NULL);
    abort();
}

static void tell_stuck(const char *what)
{
    sim_failed("%s", what);
}

/* Runs the timers that are due or, if no thread is ready, the next one. */
static void run_timers(void)
{
    while (heap_count && (heap[0].ns <= sim.clock || !sim.ready_count)) {
        if (sim.config.order == SIM_ORDER_SCRIPT && heap[0].ns > sim.clock + QUIET_NS && frames_script_deliver())
            continue;
        if (heap[0].ns > sim.limit_ns)
            break;
        struct timer t = heap_pop();
        if (t.ns > sim.clock)
            sim.clock = t.ns;
        t.fn(t.arg, t.what);
    }
}

/* Whether a ready thread's rank stands still or is slow, so that the thread becomes ready later. */
static bool is_late(struct sim_thread *t)
{
    struct sim_member *m = &sim.member[t->rank];
    int64_t until = m->paused_until;

    if (sim.clock >= until)
        return false;
    take_ready(t);
    t->state = THREAD_WAITS;
    sim_at(until, timer_wakes, t, ++t->waits);
    return true;
}

/* Chooses the next thread; it may be the running one. */
static void choose(void)
{
    struct sim_thread *self = sim.current, *next;

    sim.events++;
    sim.clock += sim.mood.step_ns;
    if (sim.config.watch)
        sim.config.watch(sim.config.watch_arg);
    if (sim.events >= sim.fault_event)
        sim_faults_due();
    do {
        run_timers();
        if (sim.result->failed)
            sim_finish();
        if (!sim.ready_count)
            tell_stuck(heap_count ? "stuck: the virtual time that the run may take is over"
                                  : "deadlock: nobody can run, and nothing will happen");
        else if (sim.events > sim.limit_events || sim.clock > sim.limit_ns)
            tell_stuck("stuck: the run takes more events or virtual time than it may");
        if (sim.result->failed)
            sim_finish();
        next = pick();
    } while (is_late(next));
    sim_mix((uint64_t)sim.clock << 10 ^ next->id);
    if (sim.config.trace)
        dprintf(sim.config.trace, "%llu %lld rank %d thread %u%s%s\n", (unsigned long long)sim.events, (long long)sim.clock, next->rank,
                next->id, next->place ? " from " : "", next->place ? next->place : "");
    draw_budget();
    if (next != self)
        go(&self->sp, next->sp, next);
}

/* The count is used up: a ready thread yields. */
void sim_preempt(void)
{
    if (!sim.active || sim.held) {
        sim_budget = sim.active ? 8 : INT32_MAX;
        return;
    }
    struct sim_thread *self = sim.current;
    struct sim_member *m = sim_self();
    if (m->slow > 1 && sim.clock < m->slow_until) {
        sim_sleep(sim.mood.step_ns * (int64_t)m->slow, "a slow rank");
        return;
    }
    if (sim.mood.order >= SIM_ORDER_TURNS) {
        take_ready(self);
        make_ready(self);
    }
    choose();
}

void sim_wait(const void *what, int64_t until, const char *place)
{
    struct sim_thread *self = sim.current;

    take_ready(self);
    self->state = THREAD_WAITS;
    self->waits_for = what;
    self->until = until;
    self->waits++;
    if (until != INT64_MAX)
        sim_at(until, timer_wakes, self, self->waits);
    self->place = place;
    choose();
    self->place = NULL;
}

void sim_sleep(int64_t ns, const char *place)
{
    sim_wait(NULL, sim.clock + (ns > 0 ? ns : 1), place);
}

/* ------------------------------------------------------------------------------------------------------------ threads */
static char *stacks;

static char *stack_of(uint32_t id)
{
    static uint32_t guarded; /* stacks below this one have their guard page */
    size_t each = STACK_BYTES + GUARD_BYTES;

    if (!stacks) {
        stacks = mmap((void *)(uintptr_t)STACKS_AT, SIM_THREADS_MAX * each, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
    }
    for (; guarded <= id; guarded++)
        mprotect(stacks + guarded * each, GUARD_BYTES, PROT_NONE);
    return stacks + id * each + GUARD_BYTES;
}

static void thread_entry(void)
{
#ifdef SIM_ASAN
    const void *old;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &old, &bytes);
#endif
    struct sim_thread *self = sim.current;

    self->fn(self->arg);
    take_ready(self);
    self->state = THREAD_ENDED;
    sim_wake(self->rank, self, UINT32_MAX);
    choose();
    abort(); /* it is never chosen again */
}

struct sim_thread *sim_thread_start(int32_t rank, void (*fn)(void *arg), void *arg, bool application)
{
    struct sim_member *m = &sim.member[rank];

    if (sim.thread_count == SIM_THREADS_MAX)
        return NULL;
    struct sim_thread *t = &sim.threads[sim.thread_count];
    *t = (struct sim_thread){.id = sim.thread_count, .rank = rank, .fn = fn, .arg = arg, .application = application};
    t->stack = stack_of(t->id);
    t->stack_bytes = STACK_BYTES;
#ifdef SIM_ASAN
    __asan_unpoison_memory_region(t->stack, STACK_BYTES); /* remove marks of the run before */
#endif
    t->sp = sim_context(t->stack, STACK_BYTES, thread_entry);
    t->priority = (UINT32_C(1) << 31) + (uint32_t)sim_below(&sim.schedule, UINT32_C(1) << 30);
    t->next = m->threads;
    m->threads = t;
    sim.thread_count++;
    make_ready(t);
    return t;
}

/* Stops all threads of the rank where they are. If the running one is among them, the caller then chooses another. */
void sim_stop_rank(int32_t rank)
{
    for (struct sim_thread *t = sim.member[rank].threads; t; t = t->next) {
        if (t->state == THREAD_READY)
            take_ready(t);
        if (t->state != THREAD_ENDED)
            t->state = THREAD_STOPPED;
    }
}

void sim_leave(void)
{
    choose();
    abort();
}

/* ------------------------------------------------------------------------------------------------------------ reports */
void sim_tell_threads(char *text, size_t bytes)
{
    static const char *const states[] = {"ready", "waits", "ended", "stopped"};
    size_t at = strlen(text);

    for (uint32_t i = 0; i < sim.thread_count && at < bytes; i++) {
        const struct sim_thread *t = &sim.threads[i];
        if (t->state == THREAD_ENDED)
            continue;
        at += (size_t)snprintf(text + at, bytes - at, "\n  rank %d thread %u (%s): %s%s%s", t->rank, t->id,
                               t->application ? "application" : "library", states[t->state], t->place ? " in " : "",
                               t->place ? t->place : "");
        if (at < bytes && t->state == THREAD_WAITS && t->until != INT64_MAX)
            at += (size_t)snprintf(text + at, bytes - at, " until %lld ns", (long long)t->until);
        if (at < bytes && t->application && t->doing)
            at += (size_t)snprintf(text + at, bytes - at, ", at %s %llu", t->doing, (unsigned long long)t->sequence);
    }
}

static void failed_list(const char *format, va_list list)
{
    struct sim_result *r = sim.result;
    int at;

    if (r->failed)
        return;
    r->failed = true;
    at = snprintf(r->text, sizeof r->text, "seed %llu, event %llu, %lld.%06lld ms: ", (unsigned long long)sim.config.seed,
                  (unsigned long long)sim.events, (long long)(sim.clock / 1000000), (long long)(sim.clock % 1000000));
    vsnprintf(r->text + at, sizeof r->text - (size_t)at, format, list);
    sim_tell_threads(r->text, sizeof r->text);
}

void sim_failed(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    failed_list(format, list);
    va_end(list);
}

void sim_fail(const char *format, ...)
{
    char text[1024];
    const struct sim_thread *self = sim.current;
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    sim_failed("rank %d, %s %llu: %s", self->rank, self->doing ? self->doing : "start", (unsigned long long)self->sequence, text);
    sim_finish();
}

/* ------------------------------------------------------------------------------------------------------------ one run */
void sim_schedule_reset(void);
void sim_schedule_run(void);

void sim_schedule_reset(void)
{
    heap_count = 0;
    sim.lowest = UINT32_C(1) << 31;
}

/* Called by sim_run: starts the first thread, and returns when the run is over. */
void sim_schedule_run(void)
{
    sim.active = true;
    run_timers();
    sim.current = &sim.threads[0];
    struct sim_thread *first = pick();
    draw_budget();
    go(&sim.outside, first->sp, first);
}
