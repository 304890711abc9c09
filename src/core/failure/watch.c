/*
 * The monitor sleeps on death notices and looks at all communicators once per tick. It proposes failures and warns of late ranks. It runs
 * no programs, except for communicators with window requests from peers while no thread here waits (serve.c). A waiting thread makes the
 * same checks before it sleeps.
 */
#include "failure/failure.h"

#include "comm/state.h"

enum {
    WAIT_TICK_NS = 200000000, /* tick while a queue wait is open or another rank must choose a cause; this rarely lasts long */
    COME_BY_TURNS = 16,
};

/* The world may have been freed meanwhile, and another one may have its address; so compare the id too. */
static void member_down(struct engine *e, const struct world *w, uint64_t id, const struct wire_event *event)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;

    for (uint32_t i = 0; i < most; i++) {
        struct comm_state *b = state_at(e, i);
        if (!b)
            continue;
        int32_t rank = b->world == w && b->world->id == id ? team_find(&b->team, event->peer) : -1;
        if (rank >= 0 && rank != b->team.rank) {
            b->guest = true;
            state_step(b); /* first process its last notes: it may have closed, or failed for another cause */
            state_down(b, rank, event);
            state_settle(b);
            b->guest = false;
        }
        state_unlock(b);
    }
}

/* Records deaths before any communicator hears of them, and while the world still exists. */
static void note_down(struct world *w, const struct wire_event *events, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++)
        if (events[k].kind == WIRE_EVENT_DOWN)
            world_note_end(w, &events[k]);
}

void engine_poll(struct engine *e)
{
    int before = e->env->cancel(e->env, ENV_CANCEL_OFF);

    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        struct wire_event events[ENGINE_EVENTS];
        uint32_t count = 0;
        uint64_t id = 0;

        base_lock(&e->poll_lock, e->env);
        struct world *w = (struct world *)(void *)atomic_load_explicit(&e->table.worlds[i], memory_order_acquire);
        if (w) {
            id = w->id;
            count = w->backend->wire->poll(w->port.wire, events, ENGINE_EVENTS);
            note_down(w, events, count);
        }
        base_unlock(&e->poll_lock, e->env);
        for (uint32_t k = 0; k < count; k++)
            if (events[k].kind == WIRE_EVENT_DOWN)
                member_down(e, w, id, &events[k]);
    }
    e->env->cancel(e->env, before);
}

/* A caller that makes progress all the time also holds the lock nearly all the time, and may never sleep, as over an MPI whose looks take
 * long. So ask it to stand back (engine_move), and try several times, but not for long: a look may not return. If that was in vain, whoever
 * steps the communicator next makes the checks (progress/pass.c). */
static bool come_by(struct engine *e, struct comm_communicator *handle)
{
    bool came = base_home_trylock(&handle->lock, handle->env);

    if (!came) {
        atomic_store_explicit(&e->monitor.waits, 1, memory_order_relaxed);
        for (int turn = 0; turn < COME_BY_TURNS && !came; turn++) {
            handle->env->relax(handle->env, true);
            came = base_home_trylock(&handle->lock, handle->env);
        }
        atomic_store_explicit(&e->monitor.waits, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&handle->unseen, !came, memory_order_release);
    return came;
}

bool engine_monitor_check(struct progress_unit *unit, int64_t now)
{
    struct comm_state *b = (struct comm_state *)(void *)unit;

    state_check(b, now);
    bool soon = !b->recording.plan && deadlock_tell(b);
    return soon | (b->failure.proposal.result && !b->failed); /* this rank waits for another rank's choice, which does not take long */
}

/* Checks every communicator, including idle ones, because it must notice an abort or a close although no thread here waits for it. `open`:
 * it had to look soon, which still holds where it cannot look. */
static bool look_around(struct engine *e, int64_t now, bool open)
{
    bool soon = atomic_exchange_explicit(&e->monitor.found, 0, memory_order_relaxed);
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;

    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle)
            continue;
        if (!come_by(e, handle)) {
            soon |= open;
            continue;
        }
        struct comm_state *b = state_of(handle);
        if (b && b->unit.engine == e) {
            b->guest = true;
            const struct wire_board *board = b->channel ? b->channel->board : NULL;
            if (b->channel && !b->failed && (!board || atomic_load_explicit(&board->cause, memory_order_relaxed)))
                state_step(b); /* without a board, the causes of other ranks come only in their notes */
            soon |= engine_monitor_check(&b->unit, now);
            b->guest = false;
        }
        base_home_unlock(&handle->lock, handle->env);
    }
    return soon;
}

/* Why the monitor woke up: peers request something of windows; a wire's descriptor is readable, which may mean just that; anything else. */
enum woken { WOKEN_ASKED = 1, WOKEN_BY_WIRE = 2, WOKEN_DUE = 4 };

/* Sleeps until the bell rings, a wire's descriptor is readable, the tick is over, or requests must be polled again. `looked`: when the
 * monitor last looked at all communicators. */
static uint32_t monitor_sleeps(struct engine *e, struct serve_round *round, bool soon, int64_t looked)
{
    const struct comm_env *env = e->env;
    int64_t now = env->now(env), tick = atomic_load_explicit(&e->monitor.tick_ns, memory_order_relaxed);
    int64_t until = looked + (soon && tick > WAIT_TICK_NS ? WAIT_TICK_NS : tick);
    bool timer = atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst) &&
                 atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed);

    if (timer)
        engine_lower_deadline(e, now, &until);
    int64_t alarm = round->nap_ns && now + round->nap_ns < until ? now + round->nap_ns : until;
    bool came = engine_heed(e, round);
    if (!came)
        env->bell_wait(env, &e->monitor.bell, alarm);
    bool rung = env->bell_clear(env, &e->monitor.bell);
    came |= engine_rise(e, round);
    now = env->now(env);
    if (timer && now >= until && atomic_load_explicit(&e->sleepers.armed, memory_order_seq_cst) &&
        atomic_load_explicit(&e->sleepers.must_poll, memory_order_relaxed))
        env->bell_ring(env, &e->bell); /* a loop that sleeps on the descriptor must poll what rings nobody */
    bool early = now < alarm, due = rung || now >= until || (early && !came);
    return (came ? WOKEN_ASKED : 0) | (early ? WOKEN_BY_WIRE : 0) | (due ? WOKEN_DUE : 0);
}

void engine_monitor(void *arg)
{
    struct engine *e = arg;
    const struct comm_env *env = e->env;
    struct serve_round round = {0};
    int64_t looked = env->now(env);
    bool soon = false;

    while (!atomic_load_explicit(&e->stopping, memory_order_acquire)) {
        uint32_t why = monitor_sleeps(e, &round, soon, looked);
        if (why & (WOKEN_DUE | WOKEN_BY_WIRE))
            engine_poll(e);
        if (atomic_exchange_explicit(&e->monitor.heard_abort, 0, memory_order_acq_rel))
            abort_spread(e);
        if (why & WOKEN_DUE) {
            looked = env->now(env);
            soon = look_around(e, looked, soon);
            if (soon)
                deadlock_look(e);
        }
        engine_serve_round(e, &round, why & WOKEN_ASKED);
    }
}
