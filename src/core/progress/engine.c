/* The engine's creation, destruction and tables. Worlds, communicators, events and plans each hold a reference to it and may drop it in any
 * order. */
#include "progress/engine.h"

#include "base/format.h"

#include <string.h>

enum { LOOKS_BEFORE_REST = 5, TICK_NS = 1000000000, TICK_LEAST_NS = 1000000, DEVICE_ASKED_NS = 100000000 };

static void stop_thread(struct engine *e, struct env_thread *thread)
{
    e->env->join(e->env, thread, ENV_FOREVER);
}

static void engine_destroy(struct engine *e)
{
    const struct comm_env *env = e->env;

    atomic_store_explicit(&e->stopping, 1, memory_order_seq_cst);
    if (e->monitor.runs) {
        env->bell_ring(env, &e->monitor.bell);
        stop_thread(e, &e->monitor.thread);
    }
    if (engine_has_thread(e)) {
        atomic_fetch_add_explicit(&e->sleepers.work, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&e->sleepers.epoch, 1, memory_order_seq_cst);
        env->wake(env, &e->sleepers.work, UINT32_MAX);
        env->wake(env, &e->sleepers.epoch, UINT32_MAX);
        env->bell_ring(env, &e->bell);
        stop_thread(e, &e->progress_thread);
    }
    for (const struct comm_part *const *part = e->parts; *part; part++)
        if ((*part)->engine_close && !(*part)->engine_close(e))
            return;
    base_log_end(&e->log);
    if (e->logs)
        env->log.stop(env);
    env->bell_close(env, &e->monitor.bell);
    env->bell_close(env, &e->bell);
    env_give_back(env, e->table.handles, ENGINE_COMMUNICATORS * sizeof *e->table.handles);
    env->give(env, e, sizeof *e);
}

void engine_hold(struct engine *e)
{
    atomic_fetch_add_explicit(&e->references, 1, memory_order_relaxed);
}

void engine_drop(struct engine *e)
{
    if (atomic_fetch_sub_explicit(&e->references, 1, memory_order_acq_rel) == 1)
        engine_destroy(e);
}

static enum data_isa isa_of(const struct base_options *options)
{
    enum data_isa best = data_isa_best();

    return options->isa == OPTION_ISA_AUTO || (enum data_isa)(options->isa - OPTION_ISA_SCALAR) > best
               ? best
               : (enum data_isa)(options->isa - OPTION_ISA_SCALAR);
}

static void list_calls(struct comm_part_calls *calls, const struct comm_part *const *parts)
{
    uint32_t step = 0, beside = 0;

    for (uint32_t i = 0; parts[i]; i++) {
        BASE_ASSERT(i < PARTS_MOST);
        calls->step[step] = parts[i]->step;
        calls->step_beside[beside] = parts[i]->step_beside;
        step += parts[i]->step != NULL;
        beside += parts[i]->step_beside != NULL;
    }
    calls->step[step] = calls->step_beside[beside] = NULL;
}

/* Starts the log's thread and opens the bells. Returns 0, or an errno, and then sets *what to the resource that is missing. */
static int open_bells(struct engine *e, const char **what)
{
    const struct comm_env *env = e->env;
    int failed = env->log.start(env);

    e->logs = !failed;
    if (failed) {
        *what = "no thread for the log";
        return failed;
    }
    failed = env->bell_open(env, &e->bell);
    if (!failed)
        failed = env->bell_open(env, &e->monitor.bell);
    if (failed)
        *what = "no descriptor for an engine's bells";
    return failed;
}

/* A queue indexes its entries by the low bits of their tickets. Messages have the same bound, so that the option has one meaning. */
static uint32_t queue_of(const struct base_options *options)
{
    uint32_t bound = 1;

    while (bound < options->queue)
        bound *= 2;
    return bound;
}

enum comm_result engine_create(const struct engine_config *config, char *text, size_t text_bytes, struct engine **engine)
{
    const struct comm_env *env = config->env;
    const struct base_options *options = config->options;
    struct engine *e = env->take(env, sizeof *e, 64);

    if (!e) {
        base_format(text, text_bytes, "no memory for %zu bytes of an engine", sizeof *e);
        return COMM_ERR_MEMORY;
    }
    e->env = env;
    e->class = config->class;
    e->parts = config->parts;
    list_calls(&e->calls, e->parts);
    e->options = *options;
    e->options.queue = queue_of(options);
    e->log = *config->log;
    e->notify = config->notify == COMM_NOTIFY_DEFAULT ? COMM_NOTIFY_ANY : config->notify;
    e->isa = isa_of(options);
    e->waiting.spin_ns = options->spin_ns;
    e->waiting.yield_ns = options->yield_ns;
    e->waiting.looks = LOOKS_BEFORE_REST;
    e->cpus = options->cpus ? (uint32_t)options->cpus : env->cpus(env);
    atomic_store_explicit(&e->monitor.tick_ns, TICK_NS, memory_order_relaxed);
    atomic_store_explicit(&e->sleepers.nap_ns, TICK_LEAST_NS, memory_order_relaxed);
    env->identity(env, &e->identity);
    e->table.handles = env->take(env, ENGINE_COMMUNICATORS * sizeof *e->table.handles, 64);
    e->bell.ring_fd = e->bell.wait_fd = e->monitor.bell.ring_fd = e->monitor.bell.wait_fd = -1;
    const char *what = "no memory for an engine";
    int failed = open_bells(e, &what);
    atomic_store_explicit(&e->references, 1, memory_order_relaxed);
    if (!e->table.handles || failed) {
        base_format(text, text_bytes, "%s, errno=%d", what, failed);
        engine_drop(e);
        return failed ? COMM_ERR_SYSTEM : COMM_ERR_MEMORY;
    }
    *engine = e;
    return COMM_OK;
}

void engine_need_polls(struct engine *e, bool on)
{
    if (!on) {
        atomic_fetch_sub_explicit(&e->sleepers.must_poll, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&e->sleepers.must_poll, 1, memory_order_relaxed);
    atomic_store_explicit(&e->sleepers.nap_ns, ENGINE_NAP_LEAST_NS, memory_order_relaxed);
    engine_wake_unlocked(e); /* a thread that sleeps without a poll deadline must set one */
}

void engine_note_silent(struct engine *e, int32_t change)
{
    atomic_fetch_add_explicit(&e->sleepers.silents, (uint32_t)change, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->sleepers.must_poll, (uint32_t)change, memory_order_relaxed);
}

/* Shortens the monitor's tick, so that it checks often enough for the shortest timeout. */
void engine_note_timeout(struct engine *e, int64_t timeout_ns)
{
    int64_t tick = timeout_ns / 4 < TICK_LEAST_NS ? TICK_LEAST_NS : timeout_ns / 4;

    if (tick < atomic_load_explicit(&e->monitor.tick_ns, memory_order_relaxed)) {
        atomic_store_explicit(&e->monitor.tick_ns, tick, memory_order_relaxed);
        e->env->bell_ring(e->env, &e->monitor.bell);
    }
}

enum comm_result engine_start_progress_thread(struct engine *e)
{
    if (engine_has_thread(e))
        return COMM_OK;
    int failed = e->env->spawn(e->env, engine_progress_thread, e, &e->progress_thread);
    atomic_store_explicit(&e->progress_thread_runs, !failed, memory_order_relaxed);
    return failed ? COMM_ERR_SYSTEM : COMM_OK;
}

enum comm_result engine_need_progress_thread(struct engine *e)
{
    if (e->caller_only)
        return COMM_ERR_UNSUPPORTED;
    base_lock(&e->table.lock, e->env);
    enum comm_result r = engine_start_progress_thread(e);
    base_unlock(&e->table.lock, e->env);
    return r;
}

enum comm_result engine_enlist(struct engine *e, struct comm_communicator *handle, uint32_t *index)
{
    enum comm_result r = COMM_ERR_FULL;

    base_lock(&e->table.lock, e->env);
    for (uint32_t i = 0; i < ENGINE_COMMUNICATORS; i++) {
        if (atomic_load_explicit(&e->table.handles[i], memory_order_relaxed))
            continue;
        atomic_store_explicit(&e->table.handles[i], handle, memory_order_release);
        if (i / 64 >= atomic_load_explicit(&e->table.words, memory_order_relaxed))
            atomic_store_explicit(&e->table.words, i / 64 + 1, memory_order_release);
        *index = i;
        r = COMM_OK;
        break;
    }
    base_unlock(&e->table.lock, e->env);
    return r;
}

static bool set_bit(_Atomic uint64_t *words, uint32_t index, bool on)
{
    uint64_t bit = UINT64_C(1) << index % 64;
    uint64_t before = on ? atomic_fetch_or_explicit(&words[index / 64], bit, memory_order_seq_cst)
                         : atomic_fetch_and_explicit(&words[index / 64], ~bit, memory_order_seq_cst);

    return (before & bit) != 0;
}

void engine_set_priority(struct engine *e, uint32_t index, int32_t priority)
{
    bool before = set_bit(e->table.urgent, index, priority > 0);

    before |= set_bit(e->table.yielding, index, priority < 0);
    if (before != (priority != 0))
        atomic_fetch_add_explicit(&e->table.prioritized, before ? UINT32_MAX : 1, memory_order_seq_cst);
}

/* The first such communicator wakes the monitor, which must serve requests for them from now on. */
void engine_note_apart(struct engine *e, uint32_t index, bool on)
{
    if (set_bit(e->table.apart, index, on) == on)
        return;
    uint32_t before = atomic_fetch_add_explicit(&e->table.aparts, on ? 1 : UINT32_MAX, memory_order_seq_cst);
    if (on && !before)
        e->env->bell_ring(e->env, &e->monitor.bell);
}

void engine_activate(struct engine *e, uint32_t index, bool active)
{
    uint64_t bit = UINT64_C(1) << index % 64;

    if (active)
        atomic_fetch_or_explicit(&e->table.active[index / 64], bit, memory_order_seq_cst);
    else
        atomic_fetch_and_explicit(&e->table.active[index / 64], ~bit, memory_order_seq_cst);
    if (!active)
        return;
    engine_wake_thread(e);
    /* A thread that went to sleep before this call has not looked at this communicator, and another thread may already have read the data
     * that this communicator waits for. So wake it. */
    if (atomic_load_explicit(&e->sleepers.asleep, memory_order_seq_cst) | atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst))
        e->env->bell_ring(e->env, &e->bell);
}

void engine_forget_wire(struct engine *e, struct progress_wire *wire)
{
    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        struct progress_wire *mine = wire;
        if (atomic_compare_exchange_strong(&e->table.worlds[i], &mine, NULL))
            break;
    }
    base_lock(&e->poll_lock, e->env);
    base_unlock(&e->poll_lock, e->env);
}

/* ------------------------------------------------------------------------------------------------------------ small queries */
static bool is_open(const struct comm_communicator *c)
{
    return c && atomic_load_explicit(&c->state, memory_order_acquire);
}

int32_t engine_rank(const struct comm_communicator *c)
{
    return is_open(c) ? atomic_load_explicit(&c->rank, memory_order_relaxed) : -1;
}

int32_t engine_size(const struct comm_communicator *c)
{
    return is_open(c) ? atomic_load_explicit(&c->size, memory_order_relaxed) : -1;
}

/* ------------------------------------------------------------------------------------------------------------ the device */
enum comm_result engine_ask_device(const struct engine *e, const struct device_place *place, int64_t *asked_ns)
{
    struct device *device = atomic_load_explicit(&e->streams.device, memory_order_acquire);
    int64_t now = e->env->now(e->env), before = *asked_ns;

    enum comm_result r = COMM_OK;

    if (before && now - before < DEVICE_ASKED_NS)
        return COMM_OK;
    if (before && device && device->class->health)
        r = device->class->health(device, place);
    if (r == COMM_OK)
        *asked_ns = now;
    return r;
}
