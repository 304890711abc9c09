/* Callbacks: run from progress alone, outside every lock, those of one communicator one at a time in ticket order. */
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
    struct notice *n = take_notice(unit), **at = &unit->notices;
    if (!n) {
        unit_unlock(unit);
        return COMM_ERR_MEMORY;
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
    if (timeline_test(request) != COMM_PENDING)
        engine_told(unit->engine); /* due now: an armed loop must come */
    unit_unlock(unit);
    return COMM_OK;
}

/* The first callback that is due, taken out of the list. Messages (top bit) stand last and may be due in any order. */
static struct notice *take_due(struct progress_unit *unit, enum comm_result *result)
{
    for (struct notice **at = &unit->notices; *at; at = &(*at)->next) {
        struct notice *n = *at;
        *result = timeline_test(n->request);
        if (*result != COMM_PENDING) {
            *at = n->next;
            return n;
        }
        if (!(n->request.ticket & TIMELINE_MESSAGE)) { /* work completes in order: no later one is due */
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
    atomic_fetch_sub_explicit(&unit->notice_count, 1, memory_order_relaxed); /* the state waits for `notifying` before it goes */
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
    int before = e->env->cancel(e->env, ENV_CANCEL_OFF); /* a thread that ended inside one would be `notifying` for ever */
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
        if (timeline_test(n->request) != COMM_PENDING)
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

/* Has any communicator a callback to run now? An armed loop must not sleep on it. */
bool engine_callback_due(struct engine *e)
{
    uint32_t most = atomic_load_explicit(&e->table.words, memory_order_acquire) * 64;
    bool due = false;

    for (uint32_t i = 0; i < most && !due; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        if (!handle || !(atomic_load_explicit(&e->table.active[i / 64], memory_order_relaxed) >> i % 64 & 1))
            continue;
        if (!base_home_trylock(&handle->lock, handle->env)) {
            due = true; /* the holder may make one due, or keep the lock for long: look again later, without waiting for it */
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
