/* Callbacks. Only progress runs them, outside every lock. The callbacks of one communicator run one at a time, in ticket order. */
#include "progress/engine.h"

bool engine_in_callback(struct engine *e)
{
    if (BASE_LIKELY(!atomic_load_explicit(&e->callbacks, memory_order_relaxed)))
        return false;
    uint64_t self = e->env->self(e->env);
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (handle && atomic_load_explicit(&handle->notifying, memory_order_relaxed) == self)
            return true;
    }
    return false;
}

static bool earlier(const struct notice *a, const struct notice *b)
{
    return a->request.ticket <= b->request.ticket;
}

static struct notice *take_notice(struct progress_unit *unit)
{
    struct notice *n = unit->notices_free;

    if (!n)
        return unit->engine->env->take(unit->engine->env, sizeof *n, 16);
    unit->notices_free = n->next;
    return n;
}

enum comm_result engine_notify(struct comm_request request, comm_notify_fn *fn, void *arg)
{
    enum comm_result r;
    struct progress_unit *unit = unit_lock(request.comm, &r);

    if (!unit)
        return r;
    r = timeline_belongs(request); /* nothing of a recorder does, and of an earlier communicator with this handle nothing is left */
    struct notice *n = r == COMM_OK ? take_notice(unit) : NULL, **at = &unit->notices;
    if (!n) {
        unit_unlock(unit);
        return r == COMM_OK ? COMM_ERR_MEMORY : r;
    }
    n->request = request;
    n->fn = fn;
    n->arg = arg;
    while (*at && earlier(*at, n))
        at = &(*at)->next;
    n->next = *at;
    *at = n;
    atomic_fetch_add_explicit(&unit->notice_count, 1, memory_order_relaxed);
    unit->engine->class->activate(unit);
    if (timeline_peek(request) != COMM_PENDING)
        engine_wake(unit->engine); /* due now: wakes an armed loop */
    unit_unlock(unit);
    return COMM_OK;
}

/* Removes and returns the first callback that is due. Callbacks of messages (top bit of the ticket) are last in the list and become due in
 * any order. */
static struct notice *take_due(struct progress_unit *unit, enum comm_result *result)
{
    for (struct notice **at = &unit->notices; *at; at = &(*at)->next) {
        struct notice *n = *at;
        *result = timeline_test(n->request);
        if (*result != COMM_PENDING) {
            *at = n->next;
            return n;
        }
        if (!(n->request.ticket & TIMELINE_MESSAGE)) { /* work completes in order: no later work is due either, so skip to the messages */
            while (*at && !((*at)->request.ticket & TIMELINE_MESSAGE))
                at = &(*at)->next;
            if (!*at)
                return NULL;
            n = *at;
            *result = timeline_test(n->request);
            if (*result != COMM_PENDING) {
                *at = n->next;
                return n;
            }
        }
    }
    return NULL;
}

static bool run_one(struct engine *e, struct comm_communicator *handle)
{
    enum comm_result result;
    struct notice *n = NULL;

    base_home_visit(&handle->lock, handle->env);
    struct progress_unit *unit = unit_of(e, handle);
    if (unit)
        n = take_due(unit, &result);
    base_home_unlock(&handle->lock, handle->env);
    if (!n)
        return false;
    n->fn(n->request, result, n->arg);
    base_home_visit(&handle->lock, handle->env);
    atomic_fetch_sub_explicit(&unit->notice_count, 1, memory_order_relaxed); /* `unit` still exists: closing waits until `notifying` is 0 */
    n->next = unit->notices_free;
    unit->notices_free = n;
    unit->engine->class->activate(unit);
    base_home_unlock(&handle->lock, handle->env);
    return true;
}

void notify_run(struct engine *e, struct comm_communicator *handle)
{
    uint64_t nobody = 0;

    if (!atomic_compare_exchange_strong_explicit(&handle->notifying, &nobody, e->env->self(e->env), memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    /* a thread that was cancelled inside a callback would leave `notifying` set for ever */
    int before = e->env->cancel(e->env, ENV_CANCEL_OFF);
    atomic_fetch_add_explicit(&e->callbacks, 1, memory_order_relaxed);
    while (run_one(e, handle))
        ;
    atomic_fetch_sub_explicit(&e->callbacks, 1, memory_order_relaxed);
    atomic_store_explicit(&handle->notifying, 0, memory_order_release);
    e->env->cancel(e->env, before);
}

static bool any_due(const struct progress_unit *unit)
{
    for (const struct notice *n = unit->notices; n; n = n->next)
        if (timeline_peek(n->request) != COMM_PENDING)
            return true;
    return false;
}

bool notify_due(struct progress_unit *unit)
{
    base_home_visit(&unit->handle->lock, unit->handle->env);
    bool due = any_due(unit);
    base_home_unlock(&unit->handle->lock, unit->handle->env);
    return due;
}

/* Does any communicator have a callback to run now? Then an armed loop must not sleep. */
bool engine_callback_due(struct engine *e)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    bool due = false;

    for (uint32_t i = 0; i < most && !due; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle || !(atomic_load_explicit(&e->table.active[i / 64], memory_order_relaxed) >> i % 64 & 1))
            continue;
        if (!base_home_trylock(&handle->lock, handle->env)) {
            due = true; /* the holder may make one due, or keep the lock for long: report one as due, so that the loop looks again */
            break;
        }
        struct progress_unit *unit = unit_of(e, handle);
        due = unit && any_due(unit);
        base_home_unlock(&handle->lock, handle->env);
    }
    return due;
}

void notify_free(struct progress_unit *unit)
{
    const struct comm_env *env = unit->engine->env;

    for (int pass = 0; pass < 2; pass++) {
        for (struct notice *n = pass ? unit->notices : unit->notices_free, *next; n; n = next) {
            next = n->next;
            env->give(env, n, sizeof *n);
        }
    }
}
