/* The environment of explored threads: what the library asks of an operating system (waiting, waking, bells, the barrier, memory, the
 * clock), as steps of the exploration. Time stands still. It must not know how threads are switched or chosen. */
#include "model/threads.h"

#include <string.h>

enum { BELLS = 8 };

struct bell {
    uintptr_t at;
    bool rung;
    struct view view;
};

static struct bell bells[BELLS];
bool model_has_barrier;

void env_reset(void)
{
    memset(bells, 0, sizeof bells);
}

static uint32_t running(void)
{
    uint32_t thread;
    (void)explore_running(&thread);
    return thread;
}

static int64_t still(const struct comm_env *env)
{
    (void)env;
    return 1000000000;
}

static void relax(const struct comm_env *env, bool yield)
{
    uint32_t self;
    (void)env;
    (void)yield;
    if (!explore_running(&self))
        return;
    explore_step(MODEL_RELAX, 0);
    memory_refresh(self);
}

/* As the kernel does: a fence, a look and going to sleep, in one step as seen by the waking thread. */
static void park(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    uint32_t self = running();
    struct op look = {.kind = MODEL_LOAD, .address = (uintptr_t)word, .bytes = sizeof *word, .order = __ATOMIC_RELAXED};
    (void)env;
    (void)deadline;
    explore_step(MODEL_PARK, (uintptr_t)word);
    memory_fence(self, __ATOMIC_SEQ_CST);
    if (memory_atomic(self, &look) != seen)
        return;
    explore_sleep(THREAD_PARKED);
    memory_fence(self, __ATOMIC_SEQ_CST);
    memory_refresh(self);
}

static void wake(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count)
{
    uint32_t self;
    (void)env;
    if (!explore_running(&self))
        return;
    explore_step(MODEL_WAKE, (uintptr_t)word);
    memory_fence(self, __ATOMIC_SEQ_CST);
    explore_wake(THREAD_PARKED, (uintptr_t)word, count);
}

static bool barrier(const struct comm_env *env)
{
    struct op op = {.kind = MODEL_BARRIER};
    uint32_t self;
    (void)env;
    if (!explore_running(&self) || !model_has_barrier)
        return model_has_barrier;
    explore_step(MODEL_BARRIER, 0);
    if (!explore_is_removed(&op))
        memory_barrier(self);
    return true;
}

static struct bell *bell_at(uintptr_t at)
{
    uint32_t i = 0;
    while (i < BELLS && bells[i].at && bells[i].at != at)
        i++;
    if (i == BELLS)
        model_fail("more than %d bells", BELLS);
    bells[i].at = at;
    return &bells[i];
}

void model_ring(const void *which)
{
    uintptr_t at = (uintptr_t)which;
    explore_step(MODEL_RING, at);
    struct bell *bell = bell_at(at);
    memory_meet(running(), &bell->view, true);
    bell->rung = true;
    explore_wake(THREAD_RINGING, at, UINT32_MAX);
}

static void bell_ring(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    uint32_t self;
    if (explore_running(&self))
        model_ring(bell);
}

bool model_clear(const void *which)
{
    uint32_t self;
    if (!explore_running(&self))
        return false;
    explore_step(MODEL_BELL_CLEAR, (uintptr_t)which);
    struct bell *b = bell_at((uintptr_t)which);
    memory_meet(running(), &b->view, false);
    bool rung = b->rung;
    b->rung = false;
    return rung;
}

static bool bell_clear(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    return model_clear(bell);
}

void model_sleep(const void *which)
{
    uintptr_t at = (uintptr_t)which;
    explore_step(MODEL_BELL_WAIT, at);
    struct bell *b = bell_at(at);
    if (!b->rung) {
        explore_sleep(THREAD_RINGING);
    }
    memory_meet(running(), &b->view, false);
}

static void bell_wait(const struct comm_env *env, struct env_bell *bell, int64_t deadline)
{
    (void)env;
    (void)deadline;
    model_sleep(bell);
}

static void *take(const struct comm_env *env, size_t bytes, size_t align)
{
    (void)env;
    return memory_take(bytes, align);
}

/* A thread that still uses the memory races with this. */
static void give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    uint32_t self;
    if (explore_running(&self))
        memory_plain(self, (uintptr_t)memory, bytes, true);
}

static uint64_t own_number(const struct comm_env *env)
{
    uint32_t self;
    (void)env;
    return explore_running(&self) ? self + 1 : MODEL_THREADS + 1;
}

static void ignore_line(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line)
{
    (void)env, (void)sink, (void)arg, (void)level, (void)line;
}

const struct comm_env model_env = {.name = "model",
                                   .now = still,
                                   .relax = relax,
                                   .park = park,
                                   .wake = wake,
                                   .barrier = barrier,
                                   .bell_ring = bell_ring,
                                   .bell_clear = bell_clear,
                                   .bell_wait = bell_wait,
                                   .take = take,
                                   .give = give,
                                   .self = own_number,
                                   .log.write = ignore_line};
