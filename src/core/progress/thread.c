/*
 * The progress thread moves work while the program computes. It gives way to the program's threads: it moves nothing while one of them
 * waits, nor what they themselves complete, and it never spins without a CPU of its own.
 *
 * To wake it costs a system call and takes a CPU from someone, so a call does that only if the thread rests. It rests after some looks that
 * found nothing to do; before that it naps between looks.
 */
#include "progress/engine.h"

enum {
    NAP_LEAST_NS = 50000,
    NAP_SCARCE_NS = 400000, /* where ranks need all CPUs */
    NAP_MOST_NS = 1600000,
    PAUSE_NS = 500000,
    REST_MOST_NS = 1000000000
};

/* What the thread knows from its last looks. */
struct looks {
    int64_t nap_ns;
    uint32_t fruitless; /* how many looks in a row found nothing that it might have to move */
    bool noted;         /* the last look found work, and `done` was the sum of what its communicators had completed */
    uint64_t done;
};

static bool is_stopping(const struct engine *e)
{
    return atomic_load_explicit(&e->stopping, memory_order_seq_cst);
}

bool engine_nothing_active(const struct engine *e)
{
    for (uint32_t w = 0; w < atomic_load_explicit(&e->table.words, memory_order_acquire); w++)
        if (atomic_load_explicit(&e->table.active[w], memory_order_seq_cst))
            return false;
    return true;
}

void engine_wake_thread(struct engine *e)
{
    if (!atomic_load_explicit(&e->sleepers.thread_rests, memory_order_seq_cst))
        return;
    atomic_fetch_add_explicit(&e->sleepers.work, 1, memory_order_seq_cst);
    e->env->wake(e->env, &e->sleepers.work, 1);
}

void engine_pause_thread(struct engine *e)
{
    uint32_t seen = atomic_load_explicit(&e->sleepers.work, memory_order_seq_cst);

    if (!is_stopping(e))
        e->env->park(e->env, &e->sleepers.work, seen, e->env->now(e->env) + PAUSE_NS);
}

/* True if each CPU is needed by a rank: whatever this thread does takes a CPU from a rank. */
static bool cpus_are_scarce(const struct engine *e)
{
    return e->cpus <= e->local_ranks;
}

static struct looks first_look(const struct engine *e)
{
    return (struct looks){.nap_ns = cpus_are_scarce(e) ? NAP_SCARCE_NS : NAP_LEAST_NS};
}

static bool has_nothing_to_do(const struct engine *e)
{
    return engine_nothing_active(e) || atomic_load_explicit(&e->sleepers.waiters, memory_order_seq_cst);
}

static bool gives_way(void *arg)
{
    const struct engine *e = arg;

    return is_stopping(e) || has_nothing_to_do(e);
}

/* Changes when an operation of an active communicator completes. */
static uint64_t sum_of_done(const struct engine *e)
{
    uint64_t sum = 0;

    for (uint32_t w = 0; w < atomic_load_explicit(&e->table.words, memory_order_acquire); w++)
        for (uint64_t bits = atomic_load_explicit(&e->table.active[w], memory_order_acquire); bits; bits &= bits - 1) {
            const struct comm_communicator *handle =
                atomic_load_explicit(&e->table.handles[w * 64 + (uint32_t)__builtin_ctzll(bits)], memory_order_acquire);
            if (handle)
                sum += atomic_load_explicit(&handle->done, memory_order_relaxed) +
                       atomic_load_explicit(&handle->delivered, memory_order_relaxed);
        }
    return sum;
}

/* True if there is work, no thread waits, and nothing was completed since the last look: the program is elsewhere. A thread that waits only
 * briefly is not counted as waiting, but it completes what it waits for. A look too many is cheap; a pass too many is not: if this thread
 * loses its CPU while it holds a communicator's lock, the caller waits for a time slice. A device stream that waits for the host has no
 * thread that would wait for it, so then this thread moves at once. */
static bool is_left_alone(const struct engine *e, struct looks *l)
{
    if (has_nothing_to_do(e)) {
        l->fruitless++;
        l->noted = false;
        return false;
    }
    uint64_t done = sum_of_done(e);
    bool same = (l->noted && done == l->done) || atomic_load_explicit(&e->streams.parks, memory_order_relaxed);
    l->fruitless = 0;
    l->noted = true;
    l->done = done;
    return same;
}

/* A call that makes a communicator active sets its bit first and looks at thread_rests then; here it is the other way round. So does a
 * thread that stops waiting. Returns true if it was woken. */
static bool rest(struct engine *e, uint32_t seen)
{
    const struct comm_env *env = e->env;

    atomic_store_explicit(&e->sleepers.thread_rests, 1, memory_order_seq_cst);
    if (has_nothing_to_do(e) && !is_stopping(e))
        env->park(env, &e->sleepers.work, seen, engine_nothing_active(e) ? ENV_FOREVER : env->now(env) + REST_MOST_NS);
    atomic_store_explicit(&e->sleepers.thread_rests, 0, memory_order_seq_cst);
    return atomic_load_explicit(&e->sleepers.work, memory_order_seq_cst) != seen;
}

static void nap(struct engine *e, struct looks *l, uint32_t seen)
{
    const struct comm_env *env = e->env;

    env->park(env, &e->sleepers.work, seen, env->now(env) + l->nap_ns);
    l->nap_ns = l->nap_ns * 2 < NAP_MOST_NS ? l->nap_ns * 2 : NAP_MOST_NS;
}

static void move(struct engine *e)
{
    struct mover m = {.reached = gives_way,
                      .arg = e,
                      .deadline = ENGINE_NEVER,
                      .callbacks = e->notify == COMM_NOTIFY_ANY,
                      .sleeps_at_once = cpus_are_scarce(e)};

    atomic_store_explicit(&e->sleepers.thread_moves, 1, memory_order_seq_cst);
    (void)engine_move(e, NULL, &m);
    atomic_store_explicit(&e->sleepers.thread_moves, 0, memory_order_seq_cst);
}

void engine_progress_thread(void *arg)
{
    struct engine *e = arg;
    struct looks l = first_look(e);

    while (!is_stopping(e)) {
        uint32_t seen = atomic_load_explicit(&e->sleepers.work, memory_order_seq_cst);
        if (is_left_alone(e, &l)) {
            move(e);
            l = first_look(e);
        } else if (l.fruitless < e->waiting.looks) {
            nap(e, &l, seen);
        } else if (rest(e, seen)) {
            l = first_look(e);
        }
    }
}
