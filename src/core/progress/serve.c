/*
 * Serving: peers may request access to a part of a window that only its owner can reach. The owner serves such requests soon, even if its
 * program waits for nothing. A thread that waits or makes progress serves them in its passes. Otherwise two others do. A call that starts
 * or tests something serves them when it returns (unit_leave), if peers have set the asks word. The monitor serves them when peers ring it.
 * It naps for a millisecond at a time while requests come, and then sleeps until it is rung again. So a process that gets no requests wakes
 * up only for its ticks, and not each of several requests in a row needs a ring.
 */
#include "progress/engine.h"

enum {
    SERVE_NAP_NS = 1000000,
    SERVE_BESIDE_NS = 4000000, /* other threads make passes: they have served the requests */
    SERVE_QUIET = 4,
    SERVE_TURNS = 8, /* in a row, while something moves: long transfers come in chunks */
    GLANCES = 32,    /* one in so many calls without a lock takes the lock and looks */
};

/* ------------------------------------------------------------------------------------------------------------ one pass */
/* Also MOVED if work remains that no peer will announce again: a peer that makes room for a message wakes only threads that wait. */
static enum pass serve_handle(struct engine *e, struct comm_communicator *handle, bool guest)
{
    enum pass moved = PASS_IDLE;

    if (!base_home_trylock(&handle->lock, handle->env))
        return PASS_BUSY;
    struct progress_unit *unit = unit_of(e, handle);
    if (unit && e->class->serve(unit, guest))
        moved = PASS_MOVED;
    base_home_unlock(&handle->lock, handle->env);
    return moved;
}

static enum pass serve(struct engine *e, bool guest)
{
    enum pass all = PASS_IDLE;

    for (uint32_t w = 0; w < atomic_load_explicit(&e->table.words, memory_order_acquire); w++)
        for (uint64_t bits = atomic_load_explicit(&e->table.apart[w], memory_order_acquire); bits; bits &= bits - 1) {
            struct comm_communicator *handle =
                atomic_load_explicit(&e->table.handles[w * 64 + (uint32_t)__builtin_ctzll(bits)], memory_order_acquire);
            if (handle)
                all |= serve_handle(e, handle, guest);
        }
    return all;
}

/* ------------------------------------------------------------------------------------------------------------ in calls */
/* Called with the lock held; releases it. `inside` keeps the communicator open meanwhile. If more work may remain, WIRE_ASKED is set again,
 * for the next call or the monitor. */
void unit_leave_asked(struct progress_unit *unit)
{
    struct comm_communicator *handle = unit->handle;
    struct engine *e = unit->engine;
    _Atomic uint32_t *asks = unit->asks;

    if (engine_in_callback(e)) {
        unit_unlock(unit);
        return;
    }
    atomic_fetch_and_explicit(asks, ~(uint32_t)WIRE_ASKED, memory_order_acq_rel);
    atomic_fetch_add_explicit(&handle->inside, 1, memory_order_seq_cst);
    unit_unlock(unit);
    if (serve(e, false) != PASS_IDLE)
        atomic_fetch_or_explicit(asks, WIRE_ASKED, memory_order_acq_rel);
    atomic_fetch_sub_explicit(&handle->inside, 1, memory_order_seq_cst);
}

void engine_glance(struct comm_communicator *handle)
{
    enum comm_result r;

    if (!handle)
        return;
    uint32_t glances = atomic_load_explicit(&handle->glances, memory_order_relaxed);
    atomic_store_explicit(&handle->glances, glances + 1, memory_order_relaxed);
    struct progress_unit *unit = glances % GLANCES == GLANCES - 1 ? unit_lock(handle, &r) : NULL;
    if (unit)
        unit_leave(unit);
}

/* ------------------------------------------------------------------------------------------------------------ in the monitor */
static bool heed_wires(struct engine *e, bool on)
{
    bool came = false;

    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        if (!atomic_load_explicit(&e->table.worlds[i], memory_order_relaxed))
            continue;
        base_lock(&e->poll_lock, e->env);
        struct progress_wire *w = atomic_load_explicit(&e->table.worlds[i], memory_order_acquire);
        if (w && w->class->heed)
            came |= w->class->heed(w->wire, on);
        base_unlock(&e->poll_lock, e->env);
    }
    return came;
}

/* Another thread of this rank seems to hold the lock all the time: its next call serves the requests. */
static void leave_to_calls(struct engine *e)
{
    base_lock(&e->poll_lock, e->env);
    for (uint32_t i = 0; i < ENGINE_WORLDS; i++) {
        struct progress_wire *w = atomic_load_explicit(&e->table.worlds[i], memory_order_acquire);
        if (w)
            atomic_fetch_or_explicit(w->asks, WIRE_ASKED, memory_order_acq_rel);
    }
    base_unlock(&e->poll_lock, e->env);
}

/* 0: until it is rung. A silent wire rings no bell, so then the monitor polls. */
static int64_t rest_of(struct engine *e)
{
    bool silent =
        atomic_load_explicit(&e->sleepers.silents, memory_order_relaxed) && atomic_load_explicit(&e->table.aparts, memory_order_relaxed);

    return silent ? SERVE_BESIDE_NS : 0;
}

bool engine_heed(struct engine *e, struct serve_round *round)
{
    round->heeds = !round->nap_ns && atomic_load_explicit(&e->table.aparts, memory_order_seq_cst);
    return round->heeds && heed_wires(e, true);
}

bool engine_rise(struct engine *e, struct serve_round *round)
{
    return (round->heeds || round->nap_ns) && heed_wires(e, false);
}

/* A thread that waits, or moves work, makes passes itself, but it may leave before it has seen a request. So the monitor looks once more.
 */
void engine_serve_round(struct engine *e, struct serve_round *round, bool came)
{
    bool waiters = atomic_load_explicit(&e->sleepers.waiters, memory_order_seq_cst) |
                   atomic_load_explicit(&e->sleepers.thread_moves, memory_order_seq_cst);

    round->quiet = came ? 0 : round->quiet + 1;
    if ((came || round->owed) && !waiters) {
        enum pass pass = serve(e, true);
        for (int turn = 1; turn < SERVE_TURNS && pass == PASS_MOVED && serve(e, true) & PASS_MOVED; turn++)
            ;
        if (pass & PASS_BUSY)
            leave_to_calls(e);
        round->owed = pass != PASS_IDLE;
        round->nap_ns = pass != PASS_IDLE ? SERVE_NAP_NS : SERVE_BESIDE_NS;
    } else if (came) {
        round->owed = true;
        round->nap_ns = SERVE_BESIDE_NS;
    } else {
        round->owed = false;
        round->nap_ns = round->nap_ns == SERVE_NAP_NS && round->quiet < SERVE_QUIET ? SERVE_NAP_NS : rest_of(e);
    }
}
