/* comm_close: local and bounded. It frees the communicator, unless it may not be called here (COMM_ERR_STATE). */
#include "world/communicators.h"

#include "base/format.h"
#include "staged/staged.h"
#include "event/event.h"
#include "failure/failure.h"
#include "failure/recover.h"
#include "native/native.h"
#include "p2p/op.h"
#include "rma/queue.h"

static const int64_t close_default_ns = 5000000000;

struct drain {
    struct comm_communicator *handle;
};

/* True if both lines are empty. Takes the lock and waits for it: the monitor may hold it although no work is left. A caller that mistook
 * that for work and slept would not be woken. */
static bool drained(void *arg)
{
    struct drain *d = arg;
    bool idle = false;

    base_home_visit(&d->handle->lock, d->handle->env);
    struct comm_state *b = atomic_load_explicit(&d->handle->state, memory_order_relaxed);
    idle = b->failed ? !native_holds(b) && !staged_holds(b) && !b->recovery.running : state_idle(b);
    base_home_unlock(&d->handle->lock, d->handle->env);
    return idle;
}

static bool alone(void *arg)
{
    struct drain *d = arg;

    return atomic_load_explicit(&d->handle->inside, memory_order_seq_cst) == 0 &&
           atomic_load_explicit(&d->handle->notifying, memory_order_seq_cst) == 0;
}

static struct comm_state *begin(struct comm_communicator *c, enum comm_result *r)
{
    char why[256] = "";
    struct comm_state *b = state_lock(c, r);

    if (!b)
        return NULL;
    if (b->recording.plan || engine_in_callback(b->unit.engine)) { /* only the end of its plan or group closes a recorder */
        state_unlock(b);
        *r = COMM_ERR_STATE;
        return NULL;
    }
    *r = native_may_close(b, why, sizeof why);
    if (*r != COMM_OK) {
        if (b->failed) /* its detail says why it failed */
            base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s comm_close: %s", b->name, why);
        state_unlock(b);
        (void)!engine_decline(c, *r, NULL, "comm_close: %s", why);
        return NULL;
    }
    (void)state_step(b);    /* a receive whose message has arrived must complete and not be cancelled */
    b->unit.closing = true; /* new calls are refused from now on */
    if (!b->failed) {
        message_cancel_all(b->messages);
        p2p_cancel_held(b);
        p2p_forget_window(b, NULL, COMM_ERR_CANCELLED); /* waits for signals */
        state_settle(b);
    }
    engine_hold(b->unit.engine);
    engine_wake(b->unit.engine);
    state_unlock(b);
    return b;
}

/* Members that need more from this rank must learn that nothing more comes. */
static void tell_close(struct comm_state *b)
{
    if (b->failed)
        return;
    state_tell_close(b);
    b->wire->flush(b->channel);
}

static void end_work(struct comm_state *b)
{
    struct cause cause = {
        .number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = COMM_ERR_CLOSED, .code = (int32_t)b->sequence};

    state_propose(b, &cause);
    if (!b->failed)
        (void)state_step(b); /* another rank has chosen the cause */
}

/* Only now, when no work uses the buffers any more, the waits of other threads return: their callers may free them then. */
static void say_goodbye(struct comm_state *b)
{
    base_home_visit(&b->unit.handle->lock, b->unit.handle->env);
    recovery_leave(b);
    if (state_idle(b))
        tell_close(b); /* at most an agree or shrink is unfinished */
    else if (!b->failed)
        end_work(b);
    recovery_withdraw(b);
    state_settle(b); /* others may wait for what has ended here, also in a loop that sleeps */
    atomic_store_explicit(&b->unit.handle->closing, 1, memory_order_seq_cst);
    base_home_unlock(&b->unit.handle->lock, b->unit.handle->env);
}

/* Queue waits of other communicators may wait for requests of c. So may waits that a CUDA stream makes. Other entries wait for nothing. */
static void settle_points(struct comm_state *b, const struct comm_communicator *c)
{
    bool waits = b->line.waits_issued || b->library_work.parked;

    for (uint64_t t = b->line.done + 1; waits && t < b->line.next; t++)
        timeline_point_settle(&state_entry(b, t)->point, c);
}

static void settle_waiters(struct engine *e, const struct comm_communicator *c)
{
    uint32_t words = atomic_load_explicit(&e->table.words, memory_order_acquire);

    for (uint32_t w = 0; w < words; w++) { /* a communicator with a queue wait is active */
        for (uint64_t bits = atomic_load_explicit(&e->table.active[w], memory_order_acquire); bits; bits &= bits - 1) {
            struct comm_communicator *handle =
                atomic_load_explicit(&e->table.handles[w * 64 + (uint32_t)__builtin_ctzll(bits)], memory_order_acquire);
            if (!handle || handle == c)
                continue;
            base_home_visit(&handle->lock, handle->env);
            struct comm_state *b = atomic_load_explicit(&handle->state, memory_order_relaxed);
            if (b && b->unit.engine == e)
                settle_points(b, c);
            base_home_unlock(&handle->lock, handle->env);
        }
    }
}

enum comm_result engine_close(struct comm_communicator *c, int64_t timeout_ns)
{
    enum comm_result r;
    struct comm_state *b = begin(c, &r);

    if (!b)
        return r;
    struct engine *e = b->unit.engine;
    const struct comm_env *env = e->env;
    int before = env->cancel(env, ENV_CANCEL_OFF);
    int64_t deadline = engine_deadline(e, timeout_ns == COMM_DEFAULT_TIMEOUT ? close_default_ns : timeout_ns);
    struct drain d = {c};
    bool clean = engine_move_until(e, c, drained, &d, deadline);

    say_goodbye(b);
    events_settle(e, c);
    do { /* repeat: another thread that ran callbacks may have found none due just before the last one became due */
        notify_run(e, c);
        /* Threads inside a wait on c see `closing` and leave. They need little time, so this loop ends. */
        while (!alone(&d)) {
            engine_wake_unlocked(e);
            env->relax(env, true);
        }
    } while (notify_due(&b->unit));
    settle_waiters(e, c); /* after the events: nobody copies a point of c from one any more */
    state_destroy(b);
    engine_drop(e);
    env->cancel(env, before);
    return clean ? COMM_OK : COMM_ERR_TIMEOUT;
}
