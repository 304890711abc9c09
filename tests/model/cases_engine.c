/*
 * Sleeping in one process. A thread that retires an operation notifies (engine_wake, which has no fence) while another
 * sleeps on the bell, with the poll ownership, or parks; and the progress thread rests when there is nothing to do.
 * Runs the real progress/pass.c, thread.c and engine.c, over a communicator whose only work is a flag.
 */
#include "model/cases.h"

#define notify_run model_notify
#define engine_callback_due model_due
#include "progress/pass.c"
#undef notify_run
#undef engine_callback_due
#define engine_callback_due model_due
#include "progress/engine.c"
#include "progress/thread.c"
#undef engine_callback_due

static struct office {
    struct engine engine;
    struct progress_unit unit;
    struct comm_communicator handle;
    _Atomic(struct comm_communicator *) handles[64];
    uint32_t posted;       /* protected by the handle's lock */
    bool last;             /* the engine ends with the posted work */
    _Atomic uint32_t done; /* as the handle's word: changed under the lock, read by any thread */
} * o;

/* The next pass does the posted work, whichever thread makes it. */
static bool step(struct progress_unit *unit)
{
    if (!o->posted)
        return false;
    o->posted--;
    atomic_fetch_add_explicit(&o->done, 1, memory_order_release);
    engine_wake(unit->engine);
    if (!o->posted)
        engine_activate(unit->engine, 0, false);
    if (o->last)
        atomic_store_explicit(&unit->engine->stopping, 1, memory_order_relaxed);
    return true;
}

static void check(struct progress_unit *unit, int64_t now)
{
    (void)unit;
    (void)now;
}

static const struct progress_class class = {.step = step, .check = check};
static const struct comm_part *const no_parts[] = {NULL};

void model_notify(struct engine *e, struct comm_communicator *handle);
bool model_due(struct engine *e);
void model_notify(struct engine *e, struct comm_communicator *handle)
{
    (void)e;
    (void)handle;
}

bool model_due(struct engine *e)
{
    (void)e;
    return false;
}

static void setup(bool barrier_is_there)
{
    model_has_barrier = barrier_is_there;
    o = model_env.take(&model_env, sizeof *o, 64);
    struct engine *e = &o->engine;
    e->env = &model_env;
    e->class = &class;
    e->parts = no_parts;
    e->table.handles = o->handles;
    e->waiting.spin_ns = 1000; /* by a clock that stands still: a thread that moves things keeps looking */
    atomic_store(&e->table.words, 1);
    atomic_store(&e->table.active[0], 1);
    atomic_store(&e->monitor.tick_ns, 1000000000);
    atomic_store(&o->handles[0], &o->handle);
    o->handle.env = &model_env;
    atomic_store(&o->handle.state, &o->unit);
    atomic_store(&o->handle.lock.home, barrier_is_there ? 1 : BASE_HOME_NEVER); /* thread 0 is its home, or no thread */
    o->unit.engine = e;
    o->unit.handle = &o->handle;
    model_constant(e->table.worlds, sizeof e->table.worlds);
    model_constant(o->handles, sizeof o->handles);
    model_constant(&e->table.words, sizeof e->table.words);
    model_constant(&e->monitor.tick_ns, sizeof e->monitor.tick_ns);
    model_constant(&e->waiting.sleep_until, sizeof e->waiting.sleep_until);
    model_constant(&o->handle.state, sizeof o->handle.state);
    model_constant(&o->handle.lock.home, sizeof o->handle.lock.home);
    model_constant(&o->unit.notice_count, sizeof o->unit.notice_count);
    model_name(&e->sleepers.asleep, 4, "asleep");
    model_name(&e->sleepers.parked, 4, "parked");
    model_name(&e->sleepers.poll_owner, 4, "poll owner");
    model_name(&e->sleepers.epoch, 4, "epoch");
    model_name(&e->table.active, 8, "active");
    model_name(&e->sleepers.work, 4, "work");
    model_name(&e->sleepers.thread_rests, 4, "thread rests");
    model_name(&e->sleepers.thread_moves, 4, "thread moves");
    model_name(&e->sleepers.waiters, 4, "waiters");
    model_name(&e->stopping, 4, "stopping");
    model_name(&o->done, 4, "done");
    model_name(&o->handle.lock.inside, 4, "inside");
    model_name(&o->handle.lock.guests, 4, "guests");
}

static void home_setup(void)
{
    setup(true);
}

static void ordinary_setup(void)
{
    setup(false);
}

static bool is_done(void *arg)
{
    (void)arg;
    return atomic_load_explicit(&o->done, memory_order_acquire) != 0;
}

/* As a wire's event does: the operation ends in the publisher's own pass, which leaves nothing to do. */
static void retire(void)
{
    base_home_lock(&o->handle.lock, &model_env);
    atomic_fetch_add_explicit(&o->done, 1, memory_order_release);
    engine_wake(&o->engine);
    engine_activate(&o->engine, 0, false);
    base_home_unlock(&o->handle.lock, &model_env);
}

static void sleep_until_done(void)
{
    const struct mover m = {.reached = is_done, .deadline = ENGINE_NEVER};

    while (!is_done(NULL)) {
        engine_sleep(&o->engine, &m);
        if (!is_done(NULL))
            model_env.relax(&model_env, true); /* a lock was held: try again when that may have changed */
    }
}

static void one_retires(uint32_t t)
{
    if (t == 0)
        retire();
    else
        sleep_until_done();
}

/* A point that is set by hand: no lock is held, so the notifying thread fences. */
static void set_by_hand(uint32_t t)
{
    if (t) {
        sleep_until_done();
        return;
    }
    atomic_store_explicit(&o->done, 1, memory_order_release);
    engine_wake_unlocked(&o->engine);
}

/* A thread that does not wait posted the operation; the waiting thread finds it by a pass of its own. */
static void one_posts(uint32_t t)
{
    if (t) {
        sleep_until_done();
        return;
    }
    base_home_lock(&o->handle.lock, &model_env);
    o->posted++;
    base_home_unlock(&o->handle.lock, &model_env);
    base_home_lock(&o->handle.lock, &model_env);
    (void)step(&o->unit);
    base_home_unlock(&o->handle.lock, &model_env);
}

static const struct model_fault home_faults[] = {
    {.what = "no barrier before the home thread's lock is looked at", .kind = MODEL_BARRIER, .thread = 1},
    {.what = "the home thread's store and load may be swapped", .kind = MODEL_SIGNAL_FENCE, .thread = 0},
    {.what = NULL},
};
static const struct model_fault hand_faults[] = {
    {.what = "the teller makes no fence", .kind = MODEL_FENCE, .thread = 0},
    {.what = "the sleeper makes no fence", .kind = MODEL_FENCE, .thread = 1},
    {.what = NULL},
};
const struct model_case case_told_home = {
    .name = "told, from the home thread", .threads = 2, .setup = home_setup, .run = one_retires, .faults = home_faults, .most = 40000};
const struct model_case case_told_ordinary = {
    .name = "told, under an ordinary lock", .threads = 2, .setup = ordinary_setup, .run = one_retires, .most = 40000};
const struct model_case case_told_by_hand = {
    .name = "told, by hand", .threads = 2, .setup = ordinary_setup, .run = set_by_hand, .faults = hand_faults};
const struct model_case case_told_posted = {
    .name = "told, posted and found", .threads = 2, .setup = home_setup, .run = one_posts, .faults = home_faults, .most = 40000};

/* ------------------------------------------------------------------------------------------------------------ two sleepers */
static void two_sleep(uint32_t t)
{
    if (t == 0)
        retire();
    else
        sleep_until_done();
}
const struct model_case case_told_two = {
    .name = "told, a sleeper and one who parks", .threads = 3, .setup = ordinary_setup, .run = two_sleep, .most = 60000};

/* ------------------------------------------------------------------------------------------------------------ the progress thread */
static struct comm_env napping_env;

/* A nap between looks ends by its timer, whatever others do. A pause between passes waits for them. A rest does not end by itself. */
static void nap_or_rest(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    if (deadline - env->now(env) > NAP_MOST_NS)
        model_env.park(&model_env, word, seen, deadline);
    else if (deadline - env->now(env) == PAUSE_NS)
        model_env.relax(&model_env, true);
}

static void progress_thread_setup(void)
{
    setup(false);
    napping_env = model_env;
    napping_env.park = nap_or_rest;
    o->engine.env = &napping_env;
    o->engine.waiting.looks = 1;
    atomic_store(&o->engine.table.active[0], 0);
    o->last = true;
}

/* Work arrives while the progress thread rests, or is about to, and is done though no thread waits for it. */
static void progress_thread(uint32_t t)
{
    if (t) {
        engine_progress_thread(&o->engine);
        return;
    }
    base_home_lock(&o->handle.lock, &model_env);
    o->posted++;
    engine_activate(&o->engine, 0, true);
    base_home_unlock(&o->handle.lock, &model_env);
}

static const struct model_fault progress_thread_faults[] = {
    {.what = "what is active is set without seq_cst", .kind = MODEL_CHANGE, .name = "active", .thread = 0},
    {.what = "who looks for a resting progress thread does so without seq_cst", .kind = MODEL_LOAD, .name = "thread rests", .thread = 0},
    {.what = "the progress thread says that it rests without seq_cst", .kind = MODEL_STORE, .name = "thread rests", .thread = 1},
    {.what = "the progress thread looks for what is active without seq_cst", .kind = MODEL_LOAD, .name = "active", .thread = 1},
    {.what = NULL},
};
const struct model_case case_progress_thread = {
    .name = "progress_thread", .threads = 2, .setup = progress_thread_setup, .run = progress_thread, .faults = progress_thread_faults};
