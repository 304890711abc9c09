/* The simulated env: one per rank, all in virtual time. Functions that may block park the simulated thread; functions
 * that may fail do so when a fault says so. */
#define _GNU_SOURCE
#include "sim/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_member *member_of(const struct comm_env *env)
{
    return (struct sim_member *)(uintptr_t)env;
}

static int env_start(const struct comm_env *env)
{
    (void)env;
    return 0;
}

static int64_t env_now(const struct comm_env *env)
{
    sim_point();
    return sim.clock + member_of(env)->clock_ahead;
}

/* Converts a deadline in this rank's time to true time. */
static int64_t true_time(const struct comm_env *env, int64_t deadline)
{
    return deadline == ENV_FOREVER ? INT64_MAX : deadline - member_of(env)->clock_ahead;
}

static void env_relax(const struct comm_env *env, bool yield)
{
    (void)env;
    sim_sleep(sim_between(&sim.schedule, 1, sim.mood.relax_ns), yield ? "yield" : "pause");
}

static void env_park(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    sim_point();
    int64_t until = true_time(env, deadline);
    if (atomic_load(word) == seen && until > sim.clock)
        sim_wait((const void *)word, until, "park");
}

static void env_wake(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count)
{
    sim_point();
    sim_wake(member_of(env)->rank, (const void *)word, count);
}

static bool env_barrier(const struct comm_env *env)
{
    (void)env;
    sim_point();
    return sim.mood.barrier; /* threads see each other's stores at once here, so there is nothing to do */
}

/* ------------------------------------------------------------------------------------------------------------ bells */
static int env_bell_open(const struct comm_env *env, struct env_bell *bell)
{
    if (sim.bells == SIM_BELLS_MAX)
        return EMFILE;
    uint32_t at = sim.bells++;
    sim.bell[at] = (struct sim_bell){.rank = member_of(env)->rank, .open = true};
    bell->ring_fd = bell->wait_fd = (int32_t)(SIM_BELL_BASE + at);
    return 0;
}

static struct sim_bell *bell_of(const struct env_bell *bell)
{
    return bell->ring_fd >= SIM_BELL_BASE ? &sim.bell[bell->ring_fd - SIM_BELL_BASE] : NULL;
}

void sim_ring(uint32_t bell)
{
    struct sim_bell *b = &sim.bell[bell - SIM_BELL_BASE];

    if (!b->open)
        return;
    b->rung = true;
    sim_wake(b->rank, b, UINT32_MAX);
}

static void env_bell_ring(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    sim_point();
    sim_ring((uint32_t)bell->ring_fd);
}

static bool env_bell_clear(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    sim_point();
    bool rung = bell_of(bell)->rung;
    bell_of(bell)->rung = false;
    return rung;
}

static int env_bell_watch(const struct comm_env *env, struct env_bell *bell, int fd)
{
    (void)env;
    (void)bell;
    (void)fd;
    return ENOSYS; /* the simulated wires have no descriptors: they ring */
}

static void env_bell_wait(const struct comm_env *env, struct env_bell *bell, int64_t deadline)
{
    struct sim_bell *b = bell_of(bell);

    sim_point();
    int64_t until = true_time(env, deadline);
    if (!b->rung && until > sim.clock)
        sim_wait(b, until, "bell_wait");
}

static void env_bell_close(const struct comm_env *env, struct env_bell *bell)
{
    struct sim_bell *b = bell_of(bell);

    (void)env;
    if (b)
        b->open = false;
    bell->ring_fd = bell->wait_fd = -1;
}

/* ------------------------------------------------------------------------------------------------------------ memory, randomness */
static void *env_take(const struct comm_env *env, size_t bytes, size_t align)
{
    struct sim_member *m = member_of(env);

    sim_point();
    if (sim_denied_memory(m))
        return NULL;
    void *memory = sim_memory_take(bytes, align);
    if (memory && !sim.current->in_handle) {
        m->held += (int64_t)bytes;
        m->held_blocks++;
    }
    return memory;
}

static void env_give(const struct comm_env *env, void *memory, size_t bytes)
{
    struct sim_member *m = member_of(env);

    if (!memory)
        return;
    sim_memory_give(memory, bytes, true);
    m->held -= (int64_t)bytes;
    m->held_blocks--;
}

static int env_random(const struct comm_env *env, void *memory, size_t bytes)
{
    unsigned char *to = memory;

    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)sim_draw(&member_of(env)->entropy);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ threads */
static int env_spawn(const struct comm_env *env, env_thread_fn *fn, void *arg, struct env_thread *thread)
{
    sim_point();
    struct sim_thread *t = sim_thread_start(member_of(env)->rank, fn, arg, false);
    if (!t)
        return EAGAIN;
    thread->handle = t->id + 1;
    atomic_store(&thread->ended, 0);
    return 0;
}

static bool env_join(const struct comm_env *env, struct env_thread *thread, int64_t deadline)
{
    const struct sim_thread *t = &sim.threads[thread->handle - 1];

    sim_point();
    int64_t until = true_time(env, deadline);
    while (t->state != THREAD_ENDED && sim.clock < until)
        sim_wait(t, until, "join");
    return t->state == THREAD_ENDED;
}

static uint64_t env_self(const struct comm_env *env)
{
    (void)env;
    return sim.current->id + 1;
}

/* ------------------------------------------------------------------------------------------------------------ environment */
const char *sim_option_value(const char *name)
{
    for (uint32_t i = 0; i < sim.options; i++)
        if (!strcmp(sim.option[i].name, name))
            return sim.option[i].value;
    return NULL;
}

static const char *env_lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    return sim_option_value(name);
}

static uint32_t env_cpus(const struct comm_env *env)
{
    (void)env;
    return (uint32_t)sim.config.ranks;
}

int32_t sim_host_of(int32_t rank)
{
    int32_t hosts = sim.config.hosts > 1 ? sim.config.hosts : 1;

    return sim.config.turns ? rank % hosts : (int32_t)((int64_t)rank * hosts / sim.config.ranks);
}

static void env_identity(const struct comm_env *env, struct env_identity *identity)
{
    int32_t rank = member_of(env)->rank, host = sim_host_of(rank);

    *identity = (struct env_identity){
        .host_id = 1 + (uint64_t)host, .place_id = 1 + (uint64_t)host, .pid = 1000 + (uint32_t)rank, .uid = 1000, .parent = 1};
    snprintf(identity->host, sizeof identity->host, "host%d", host);
    for (int32_t i = 0; i < sim.config.ranks && i < ENV_CPU_WORDS * 64; i++)
        identity->cpu[i / 64] |= UINT64_C(1) << i % 64;
}

static void *env_module(const struct comm_env *env, const char *name, char *why, size_t why_bytes)
{
    (void)env;
    snprintf(why, why_bytes, "there is no module %s in the simulator", name);
    return NULL;
}

static int env_file_open(const struct comm_env *env, const char *path)
{
    (void)env;
    (void)path;
    return -ENOENT;
}

static int64_t env_file_write(const struct comm_env *env, int file, const void *bytes, size_t count)
{
    (void)env;
    (void)file;
    (void)bytes;
    return (int64_t)count;
}

static void env_file_close(const struct comm_env *env, int file)
{
    (void)env;
    (void)file;
}

/* A line of the log is part of the run. */
static void env_write(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line)
{
    sim_note_bytes(line, strlen(line));
    if (sink)
        sink(arg, level, line);
    if (sim.config.trace)
        dprintf(sim.config.trace, "%llu %lld rank %d log: %s\n", (unsigned long long)sim.events, (long long)sim.clock, member_of(env)->rank,
                line);
}

static void env_find_devices(const struct comm_env *env)
{
    (void)env;
}

static int env_cancel(const struct comm_env *env, int state)
{
    (void)env;
    (void)state;
    return ENV_CANCEL_ON;
}

/* Every line is written at once. */
static int env_log_start(const struct comm_env *env)
{
    (void)env;
    return 0;
}

static void env_log_stop(const struct comm_env *env)
{
    (void)env;
}

static bool env_drain(const struct comm_env *env, int64_t deadline)
{
    (void)env;
    (void)deadline;
    return true;
}

static void env_forget(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns)
{
    (void)env;
    (void)sink;
    (void)arg;
    (void)patience_ns;
}

static void env_panic(const struct comm_env *env, const char *text)
{
    (void)env;
    sim_fail("panic: %s", text);
}

static void env_charge(const struct comm_env *env, int64_t ns)
{
    (void)env;
    sim_sleep(ns, "computing");
}

void sim_env_fill(struct sim_member *m)
{
    atomic_store(&m->alive, 1);
    m->env = (struct comm_env){
        .name = "sim",
        .alive = &m->alive,
        .start = env_start,
        .now = env_now,
        .relax = env_relax,
        .park = env_park,
        .wake = env_wake,
        .barrier = env_barrier,
        .bell_open = env_bell_open,
        .bell_ring = env_bell_ring,
        .bell_clear = env_bell_clear,
        .bell_watch = env_bell_watch,
        .bell_wait = env_bell_wait,
        .bell_close = env_bell_close,
        .take = env_take,
        .give = env_give,
        .random = env_random,
        .spawn = env_spawn,
        .join = env_join,
        .self = env_self,
        .find_devices = env_find_devices,
        .cancel = env_cancel,
        .lookup = env_lookup,
        .cpus = env_cpus,
        .identity = env_identity,
        .module = env_module,
        .file.open = env_file_open,
        .file.write = env_file_write,
        .file.close = env_file_close,
        .log.start = env_log_start,
        .log.stop = env_log_stop,
        .log.write = env_write,
        .log.drain = env_drain,
        .log.forget = env_forget,
        .panic = env_panic,
        .charge = env_charge,
    };
}
