/*
 * Passes and waiting. A thread that waits moves every communicator of the engine. Only one thread at a time, the holder of poll_owner,
 * sleeps on the bell; the others park. A thread that leaves wakes the others, so that at least one waiting thread always looks.
 *
 * No wake-up is lost. The waking side publishes its change and then looks for sleepers. The sleeping side publishes that it sleeps,
 * executes a seq_cst fence, looks at everything once more, which takes the lock of each active communicator, and then sleeps. The two are
 * ordered by that lock, if the waking side holds it (engine_wake), and otherwise by a seq_cst fence of the waking side
 * (engine_wake_unlocked). Between processes the wires' flush and arm have fences or a barrier (docs/internals/memory-model.md).
 */
#include "progress/engine.h"

enum { SLEEP_SHORT_NS = 1000000, PATIENCE_MOST = 20, YIELD_LONG_NS = 300000, YIELD_AVOID_NS = 50000000, SPIN_LONGER = 4, RISE_TURNS = 64 };
enum { YIELD_CROWDED_NS = 1000000, YIELD_EACH_NS = 250000, YIELD_WINDOW_NS = 20000000, YIELD_CROWDED_AVOID_NS = 100000000 };
enum {
    TURNS_PER_CLOCK = 32,
    DEADLINE_TURNS = 64,
    STAND_BACK_TURNS = 16,
    OWN_TURNS = 8,
    SLEEP_MOST_NS = 1000000000,
    CROWDED_YIELD_NS = 1000000,
    PASSES_OF_ALL = 16,
    YIELD_TO_POLL = 32 /* times as long: a library may be at work inside, and moves only when it is called */
};

/* ------------------------------------------------------------------------------------------------------------ one pass */
/* The monitor did not get the communicator, although this thread stood back. So this thread makes its checks (failure/watch.c). */
static void check_unseen(struct engine *e, struct comm_communicator *handle, struct progress_unit *unit)
{
    atomic_store_explicit(&handle->unseen, 0, memory_order_relaxed);
    if (e->monitor.check(unit, e->env->now(e->env)))
        atomic_store_explicit(&e->monitor.found, 1, memory_order_relaxed);
}

static enum pass step_handle(struct engine *e, struct comm_communicator *handle, bool callbacks)
{
    bool moved = false, due = false;

    if (!base_home_trylock(&handle->lock, handle->env))
        return PASS_BUSY;
    struct progress_unit *unit = unit_of(e, handle);
    if (unit) {
        due = atomic_load_explicit(&unit->notice_count, memory_order_relaxed) != 0;
        moved = e->class->step(unit);
        if (BASE_UNLIKELY(atomic_load_explicit(&handle->unseen, memory_order_acquire)))
            check_unseen(e, handle, unit);
    }
    base_home_unlock(&handle->lock, handle->env);
    if (due && callbacks)
        notify_run(e, handle);
    return moved ? PASS_MOVED : PASS_IDLE;
}

enum pass engine_step(struct engine *e, struct comm_communicator *handle)
{
    return step_handle(e, handle, false);
}

/* The active communicators of a word that are urgent (priority 1), yielding (-1) or neither (0). */
static uint64_t active_of_priority(const struct engine *e, uint32_t word, int32_t priority)
{
    uint64_t urgent = atomic_load_explicit(&e->table.urgent[word], memory_order_relaxed);
    uint64_t yielding = atomic_load_explicit(&e->table.yielding[word], memory_order_relaxed);
    uint64_t which = priority > 0 ? urgent : priority < 0 ? yielding : ~(urgent | yielding);

    return atomic_load_explicit(&e->table.active[word], memory_order_acquire) & which;
}

/* then_urgent: steps all urgent communicators after each step of another one. */
static enum pass pass_of_priority(struct engine *e, int32_t priority, bool then_urgent, bool callbacks)
{
    enum pass all = PASS_IDLE;
    uint32_t words = atomic_load_explicit(&e->table.words, memory_order_acquire);

    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t bits = active_of_priority(e, w, priority); bits; bits &= bits - 1) {
            struct comm_communicator *handle =
                atomic_load_explicit(&e->table.handles[w * 64 + (uint32_t)__builtin_ctzll(bits)], memory_order_acquire);
            if (!handle)
                continue;
            all |= step_handle(e, handle, callbacks);
            for (uint32_t u = 0; then_urgent && u < words; u++)
                for (uint64_t more = active_of_priority(e, u, 1); more; more &= more - 1) {
                    struct comm_communicator *urgent =
                        atomic_load_explicit(&e->table.handles[u * 64 + (uint32_t)__builtin_ctzll(more)], memory_order_acquire);
                    if (urgent)
                        all |= step_handle(e, urgent, callbacks);
                }
        }
    }
    return all;
}

/* Urgent communicators are stepped first, and again after each other communicator, so that they wait for at most one step of bulk work.
 * Yielding communicators are stepped when nothing else moved. Every PASSES_OF_ALL passes they are stepped anyway, so that they cannot
 * starve. */
static enum pass prioritized_pass(struct engine *e, bool callbacks)
{
    bool all_priorities = atomic_fetch_add_explicit(&e->table.passes, 1, memory_order_relaxed) % PASSES_OF_ALL == 0;
    enum pass all = pass_of_priority(e, 1, false, callbacks);

    all |= pass_of_priority(e, 0, true, callbacks);
    if (!(all & PASS_MOVED) || all_priorities)
        all |= pass_of_priority(e, -1, true, callbacks);
    return all;
}

static inline enum pass plain_pass(struct engine *e, bool callbacks)
{
    enum pass all = PASS_IDLE;
    uint32_t words = atomic_load_explicit(&e->table.words, memory_order_acquire);

    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t bits = atomic_load_explicit(&e->table.active[w], memory_order_acquire); bits; bits &= bits - 1) {
            uint32_t index = w * 64 + (uint32_t)__builtin_ctzll(bits);
            struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[index], memory_order_acquire);
            if (handle)
                all |= step_handle(e, handle, callbacks);
        }
    }
    return all;
}

enum pass engine_pass(struct engine *e, bool callbacks)
{
    bool prioritized = atomic_load_explicit(&e->table.prioritized, memory_order_relaxed);
    enum pass all = BASE_UNLIKELY(prioritized) ? prioritized_pass(e, callbacks) : plain_pass(e, callbacks);
    struct device *device = atomic_load_explicit(&e->streams.device, memory_order_acquire);
    if (BASE_UNLIKELY(device && device->polled))
        device->class->poll(device);
    return all;
}

/* Called under a communicator's lock, so it needs no fence. A thread that is about to sleep publishes that first, and then takes the lock
 * of every active communicator once more (engine_pass). If it had the lock before this thread, this thread sees that it sleeps. If it gets
 * the lock later, it sees what this thread did. */
void engine_wake(struct engine *e)
{
    const struct comm_env *env = e->env;

    if (BASE_UNLIKELY(atomic_load_explicit(&e->streams.parks, memory_order_relaxed)))
        for (const struct comm_part *const *part = e->parts; *part; part++)
            if ((*part)->progressed)
                (*part)->progressed(e);
    if (atomic_load_explicit(&e->sleepers.asleep, memory_order_relaxed) | atomic_load_explicit(&e->sleepers.armed, memory_order_relaxed))
        env->bell_ring(env, &e->bell);
    if (atomic_load_explicit(&e->sleepers.parked, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&e->sleepers.epoch, 1, memory_order_seq_cst);
        env->wake(env, &e->sleepers.epoch, UINT32_MAX);
    }
}

void engine_wake_unlocked(struct engine *e)
{
    atomic_thread_fence(memory_order_seq_cst);
    engine_wake(e);
}

/* ------------------------------------------------------------------------------------------------------------ sleeping */
static void arm_wires(struct engine *e, bool on, int64_t *deadline)
{
    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        if (!atomic_load_explicit(&e->table.worlds[i], memory_order_relaxed))
            continue;
        base_lock(&e->poll_lock, e->env); /* another thread may be closing that world */
        struct progress_wire *w = atomic_load_explicit(&e->table.worlds[i], memory_order_acquire);
        if (w)
            w->class->arm(w->wire, on, deadline);
        base_unlock(&e->poll_lock, e->env);
    }
}

static void check_active(struct engine *e, int64_t now)
{
    uint32_t words = atomic_load_explicit(&e->table.words, memory_order_acquire);

    for (uint32_t i = 0; i < words * 64; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle || !(atomic_load_explicit(&e->table.active[i / 64], memory_order_relaxed) >> i % 64 & 1) ||
            !base_home_trylock(&handle->lock, handle->env))
            continue;
        struct progress_unit *unit = unit_of(e, handle);
        if (unit)
            e->class->check(unit, now);
        base_home_unlock(&handle->lock, handle->env);
    }
}

/* A sleep shorter than its own wake-up costs more than it saves, and two ranks can alternate in it for ever: each goes to sleep before the
 * other is awake. So a short sleep makes the next sleep start later, and a long one makes it start earlier. */
static void learn_patience(struct engine *e, int64_t slept_ns)
{
    uint32_t patience = atomic_load_explicit(&e->waiting.patience, memory_order_relaxed);

    if (slept_ns < SLEEP_SHORT_NS)
        patience = patience * 2 < PATIENCE_MOST ? patience * 2 + 1 : PATIENCE_MOST;
    else
        patience /= 2;
    atomic_store_explicit(&e->waiting.patience, patience, memory_order_relaxed);
}

/* A loop has armed the engine and was rung. The bell is the loop's descriptor, so it stays readable until the loop comes, if it ever does.
 * Until then the bell can wake no other thread, and a thread that waited on it would return at once, again and again. So that thread takes
 * short naps instead, and not on the bell. When the loop comes, it then finds no thread that needs the bell, and may clear it
 * (engine_disarm). Otherwise the loop would be called repeatedly while the thread naps. */
static bool nap_beside_loop(struct engine *e, uint32_t seen, int64_t until)
{
    const struct comm_env *env = e->env;
    int64_t now = env->now(env);

    if (!e->sleepers.loud || !atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst))
        return false;
    e->sleepers.loud = false; /* the next sleep is on the bell again */
    atomic_fetch_sub_explicit(&e->sleepers.asleep, 1, memory_order_seq_cst);
    env->park(env, &e->sleepers.epoch, seen, until < now + SLEEP_SHORT_NS ? until : now + SLEEP_SHORT_NS);
    atomic_fetch_add_explicit(&e->sleepers.asleep, 1, memory_order_seq_cst);
    return true;
}

/* The bell has two users: the loop that armed it and the thread that sleeps on it. The last one to leave clears it. If the other came back
 * meanwhile, the cleared ring may have been meant for it, so the bell is rung again. */
static void clear_bell(struct engine *e, const _Atomic uint32_t *other)
{
    int64_t ignored = ENGINE_NEVER;

    if (atomic_load_explicit(other, memory_order_seq_cst))
        return;
    arm_wires(e, false, &ignored);
    e->env->bell_clear(e->env, &e->bell);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(other, memory_order_seq_cst)) {
        arm_wires(e, true, &ignored);
        e->env->bell_ring(e->env, &e->bell);
    }
}

void engine_lower_deadline(struct engine *e, int64_t now, int64_t *until)
{
    for (const struct comm_part *const *part = e->parts; *part; part++)
        if ((*part)->nap)
            (*part)->nap(e, now, until);
}

/* Does anything but silent wires have to be polled? Those have put the time of their next look into `until` (arm). */
static bool must_poll_others(struct engine *e)
{
    return atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed) >
           atomic_load_explicit(&e->sleepers.silents, memory_order_relaxed);
}

static void sleep_on_bell(struct engine *e, const struct mover *m)
{
    const struct comm_env *env = e->env;
    int64_t now = env->now(env), until = now + atomic_load_explicit(&e->monitor.tick_ns, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&e->sleepers.epoch, memory_order_seq_cst);

    if (until > m->deadline)
        until = m->deadline;
    check_active(e, now);
    atomic_fetch_add_explicit(&e->sleepers.asleep, 1, memory_order_seq_cst);
    bool naps = e->sleepers.loud;
    atomic_fetch_add_explicit(&e->sleepers.parked, naps, memory_order_seq_cst);
    arm_wires(e, true, &until);
    if (must_poll_others(e))
        engine_lower_deadline(e, now, &until);
    atomic_thread_fence(memory_order_seq_cst);
    if (engine_pass(e, m->callbacks) == PASS_IDLE && !m->reached(m->arg) && !nap_beside_loop(e, seen, until)) {
        now = env->now(env);
        env->bell_wait(env, &e->bell, until);
        e->sleepers.loud = atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst) && env->now(env) < until;
        /* naps are short by design, and the progress thread does not climb the ladder: nothing can be learned from them */
        if (!m->sleeps_at_once && !atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed))
            learn_patience(e, env->now(env) - now);
    }
    atomic_fetch_sub_explicit(&e->sleepers.parked, naps, memory_order_seq_cst);
    atomic_fetch_sub_explicit(&e->sleepers.asleep, 1, memory_order_seq_cst);
    clear_bell(e, &e->sleepers.armed);
    atomic_fetch_add_explicit(&e->sleepers.risen, 1, memory_order_seq_cst);
}

static void park(struct engine *e, const struct mover *m)
{
    const struct comm_env *env = e->env;
    int64_t until = env->now(env) + SLEEP_MOST_NS;
    uint32_t seen = atomic_load_explicit(&e->sleepers.epoch, memory_order_seq_cst);

    atomic_fetch_add_explicit(&e->sleepers.parked, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&e->sleepers.poll_owner, memory_order_seq_cst) && engine_pass(e, false) == PASS_IDLE && !m->reached(m->arg))
        env->park(env, &e->sleepers.epoch, seen, until < m->deadline ? until : m->deadline);
    atomic_fetch_sub_explicit(&e->sleepers.parked, 1, memory_order_seq_cst);
}

static void engine_sleep(struct engine *e, const struct mover *m)
{
    uint32_t free = 0;

    if (!atomic_compare_exchange_strong_explicit(&e->sleepers.poll_owner, &free, 1, memory_order_seq_cst, memory_order_seq_cst)) {
        park(e, m);
        return;
    }
    sleep_on_bell(e, m);
    atomic_store_explicit(&e->sleepers.poll_owner, 0, memory_order_seq_cst);
    if (atomic_load_explicit(&e->sleepers.parked, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&e->sleepers.epoch, 1, memory_order_seq_cst);
        e->env->wake(e->env, &e->sleepers.epoch, UINT32_MAX);
    }
}

int64_t engine_deadline(const struct engine *e, int64_t timeout_ns)
{
    int64_t now = e->env->now(e->env);

    return timeout_ns >= ENGINE_NEVER - now ? ENGINE_NEVER : now + timeout_ns;
}

/* ------------------------------------------------------------------------------------------------------------ spin, yield, sleep */
struct ladder {
    uint32_t turns;
    int64_t idle_since; /* 0: not idle yet */
    int64_t now;
};

/* Was that yield longer than yields to other ranks explain? If several ranks share a CPU, each of them may have work to do. If a rank
 * mistakes them for another program, they all sleep, and each operation takes longer by one wake-up per rank. So the answer is true only if
 * such yields made up half of the last 20 ms. A CPU that the hypervisor takes away for a moment looks like another program too, and so does
 * a program that seldom runs. */
static bool met_stranger(struct engine *e, int64_t took, int64_t now)
{
    int64_t all = YIELD_EACH_NS * (int64_t)e->local_ranks / (int64_t)(e->cpus ? e->cpus : 1), begin = now - took;

    if (!e->oversubscribed)
        return true;
    if (took <= (all > YIELD_CROWDED_NS ? all : YIELD_CROWDED_NS))
        return false;
    int64_t last = atomic_exchange_explicit(&e->waiting.yielded_long, now, memory_order_relaxed);
    begin = last > begin ? last : begin; /* threads with overlapping yields met the same time slice, so count it once */
    if (now - atomic_load_explicit(&e->waiting.long_since, memory_order_relaxed) > YIELD_WINDOW_NS) {
        atomic_store_explicit(&e->waiting.long_since, begin, memory_order_relaxed);
        atomic_store_explicit(&e->waiting.long_ns, 0, memory_order_relaxed);
    }
    return atomic_fetch_add_explicit(&e->waiting.long_ns, now - begin, memory_order_relaxed) + now - begin > YIELD_WINDOW_NS / 2;
}

/* The time until which no thread here yields. Oversubscribed ranks all resume yielding at the same moment. Otherwise a rank that yields
 * while the others sleep waits for each of them, mistakes that for another program, and goes to sleep when the others no longer do. */
static int64_t avoid_until(const struct engine *e, int64_t now)
{
    return e->oversubscribed ? (now / YIELD_CROWDED_AVOID_NS + 1) * YIELD_CROWDED_AVOID_NS : now + YIELD_AVOID_NS;
}

/* Yields the CPU and measures what that costs. A program that computes keeps the CPU for a time slice of milliseconds; another rank would
 * return it in microseconds. If a slice was lost, sleeping is better, because a sleeper that is rung gets the CPU back at once. Then no
 * thread here yields for a while. */
bool engine_yield(struct engine *e, int64_t *now)
{
    int64_t before = *now ? *now : e->env->now(e->env);

    if (before < atomic_load_explicit(&e->waiting.sleep_until, memory_order_relaxed))
        return false;
    e->env->relax(e->env, true);
    *now = e->env->now(e->env);
    if (BASE_UNLIKELY(*now - before > YIELD_LONG_NS) && met_stranger(e, *now - before, *now))
        atomic_store_explicit(&e->waiting.sleep_until, avoid_until(e, *now), memory_order_relaxed);
    return true;
}

/* One idle turn: spin, then yield, then sleep. If ranks outnumber CPUs, yield at once. */
static void climb(struct engine *e, struct ladder *l, enum pass found, const struct mover *m)
{
    int64_t spin = e->oversubscribed ? 0 : e->waiting.spin_ns, yield = e->oversubscribed ? CROWDED_YIELD_NS : e->waiting.yield_ns;

    if (l->turns++ % TURNS_PER_CLOCK == 0)
        l->now = e->env->now(e->env);
    if (!l->idle_since)
        l->idle_since = l->now;
    if (l->now < atomic_load_explicit(&e->waiting.sleep_until, memory_order_relaxed)) {
        yield = 0;
        spin *= SPIN_LONGER; /* longer than a wake-up, so that two ranks that are both awake stay awake */
    } else {
        yield *= 1 + atomic_load_explicit(&e->waiting.patience, memory_order_relaxed);
        yield *= atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed) && !e->oversubscribed ? YIELD_TO_POLL : 1;
    }
    int64_t idle = l->now - l->idle_since;
    if (m->sleeps_at_once) {
        if (l->turns == 1 || found & PASS_BUSY)
            engine_pause_thread(e);
        engine_sleep(e, m);
    } else if (idle < spin)
        e->env->relax(e->env, false);
    else if (idle < spin + yield && engine_yield(e, &l->now))
        return;
    else
        engine_sleep(e, m);
}

/* While passes move something, the clock is read only now and then. But what moves need not be what the caller waits for. */
static bool is_late(struct engine *e, uint32_t turn, int64_t deadline)
{
    return turn % DEADLINE_TURNS == DEADLINE_TURNS - 1 && e->env->now(e->env) >= deadline;
}

/* A thread of the program starts to wait. The progress thread gives way: it leaves the bell, if it sleeps there, and then rests. */
static void begin_waiting(struct engine *e)
{
    atomic_fetch_add_explicit(&e->sleepers.waiters, 1, memory_order_seq_cst);
    if (BASE_UNLIKELY(atomic_load_explicit(&e->sleepers.thread_moves, memory_order_seq_cst) &&
                      atomic_load_explicit(&e->sleepers.asleep, memory_order_seq_cst)))
        e->env->bell_ring(e->env, &e->bell);
}

static void end_waiting(struct engine *e)
{
    if (atomic_fetch_sub_explicit(&e->sleepers.waiters, 1, memory_order_seq_cst) == 1 && !engine_nothing_active(e))
        engine_wake_thread(e);
}

/* The monitor tries to get a communicator, for a few turns (failure/watch.c). */
static void stand_back(struct engine *e)
{
    for (int turn = 0; turn < STAND_BACK_TURNS && atomic_load_explicit(&e->monitor.waits, memory_order_relaxed); turn++)
        e->env->relax(e->env, true);
}

bool engine_move(struct engine *e, struct comm_communicator *own, const struct mover *m)
{
    struct ladder l = {0};

    for (uint32_t turn = 0;; turn++) {
        enum pass moved = own && turn % OWN_TURNS ? step_handle(e, own, false) : engine_pass(e, m->callbacks);
        if (m->reached(m->arg))
            return true;
        if (BASE_UNLIKELY(atomic_load_explicit(&e->monitor.waits, memory_order_relaxed)))
            stand_back(e);
        if (moved & PASS_MOVED) {
            l = (struct ladder){0};
            if (is_late(e, turn, m->deadline))
                return false;
            continue;
        }
        climb(e, &l, moved, m);
        if (l.now >= m->deadline && e->env->now(e->env) >= m->deadline)
            return false;
    }
}

bool engine_move_until(struct engine *e, struct comm_communicator *own, engine_until_fn *fn, void *arg, int64_t deadline)
{
    struct mover m = {.reached = fn, .arg = arg, .deadline = deadline, .callbacks = e->notify == COMM_NOTIFY_ANY};

    begin_waiting(e);
    bool reached = engine_move(e, own, &m);
    end_waiting(e);
    return reached;
}

/* ------------------------------------------------------------------------------------------------------------ event loops of the caller */
void engine_disarm(struct engine *e)
{
    clear_bell(e, &e->sleepers.asleep);
}

/* The thread that sleeps on the bell may have been rung together with the loop, and may not be awake yet. Then the loop cannot clear the
 * bell (engine_disarm), because the sleeper still needs it. The loop would be called again and again until the sleeper gets a CPU, perhaps
 * the one that this thread uses. So this thread yields briefly, after all the work that the loop came for is done. */
static void let_sleeper_rise(struct engine *e)
{
    uint32_t risen = atomic_load_explicit(&e->sleepers.risen, memory_order_seq_cst);

    if (atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst) ||
        !atomic_load_explicit(&e->sleepers.asleep, memory_order_seq_cst) || !e->env->bell_clear(e->env, &e->bell))
        return;
    e->env->bell_ring(e->env, &e->bell);
    int64_t until = e->env->now(e->env) + SLEEP_SHORT_NS; /* another program that computes takes a whole time slice at each yield */
    for (uint32_t turn = 0; turn < RISE_TURNS && atomic_load_explicit(&e->sleepers.risen, memory_order_seq_cst) == risen; turn++) {
        e->env->relax(e->env, true);
        if (e->env->now(e->env) > until)
            break;
    }
}

/* Arms the engine for an event loop. PASS_IDLE: it is armed, and the loop may sleep on the descriptor. */
enum pass engine_arm_bell(struct engine *e)
{
    int64_t ignored = ENGINE_NEVER;
    enum pass moved;

    let_sleeper_rise(e);
    atomic_store_explicit(&e->sleepers.armed, 1, memory_order_seq_cst);
    arm_wires(e, true, &ignored);
    atomic_thread_fence(memory_order_seq_cst);
    moved = engine_pass(e, false);
    if (engine_callback_due(e))
        moved |= PASS_MOVED;
    if (moved != PASS_IDLE && atomic_exchange_explicit(&e->sleepers.armed, 0, memory_order_seq_cst))
        engine_disarm(e);
    else if (moved == PASS_IDLE && atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed))
        e->env->bell_ring(e->env, &e->monitor.bell); /* the monitor becomes the timer of what must be polled */
    return moved;
}
