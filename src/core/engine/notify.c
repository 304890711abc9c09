/* Callbacks: run from progress alone, outside every lock, those of one communicator one at a time in ticket order. */
#include "engine/body.h"

bool engine_in_callback(struct engine *e)
{
    if (BASE_LIKELY(!atomic_load_explicit(&e->callbacks, memory_order_relaxed)))
        return false;
    uint64_t self = e->env->self(e->env);
    uint32_t most = atomic_load_explicit(&e->words, memory_order_acquire) * 64;
    for (uint32_t i = 0; i < most; i++) {
        struct comm_communicator *face = atomic_load_explicit(&e->faces[i], memory_order_acquire);
        if (face && atomic_load_explicit(&face->notifying, memory_order_relaxed) == self)
            return true;
    }
    return false;
}

static bool earlier(const struct notice *a, const struct notice *b)
{
    return a->request.ticket <= b->request.ticket;
}

static struct notice *take_notice(struct body *b)
{
    struct notice *n = b->notices_free;

    if (!n)
        return b->engine->env->take(b->engine->env, sizeof *n, 16);
    b->notices_free = n->next;
    return n;
}

enum comm_result engine_notify(struct comm_request request, comm_notify_fn *fn, void *arg)
{
    enum comm_result r;
    struct body *b = body_lock(request.comm, &r);

    if (!b)
        return r;
    struct notice *n = take_notice(b), **at = &b->notices;
    if (!n) {
        body_unlock(b);
        return COMM_ERR_MEMORY;
    }
    n->request = request;
    n->fn = fn;
    n->arg = arg;
    while (*at && earlier(*at, n))
        at = &(*at)->next;
    n->next = *at;
    *at = n;
    atomic_fetch_add_explicit(&b->notice_count, 1, memory_order_relaxed);
    body_activate(b);
    if (timeline_test(request) != COMM_PENDING)
        engine_told(b->engine); /* due now: an armed loop must come */
    body_unlock(b);
    return COMM_OK;
}

/* The first callback that is due, taken out of the list. Messages (top bit) stand last and may be due in any order. */
static struct notice *take_due(struct body *b, enum comm_result *result)
{
    for (struct notice **at = &b->notices; *at; at = &(*at)->next) {
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

static bool run_one(struct engine *e, struct comm_communicator *face)
{
    enum comm_result result;
    struct notice *n = NULL;

    base_home_visit(&face->lock, face->env);
    struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
    if (b && b->engine == e)
        n = take_due(b, &result);
    base_home_unlock(&face->lock, face->env);
    if (!n)
        return false;
    n->fn(n->request, result, n->arg);
    base_home_visit(&face->lock, face->env);
    atomic_fetch_sub_explicit(&b->notice_count, 1, memory_order_relaxed); /* the body waits for `notifying` before it goes */
    n->next = b->notices_free;
    b->notices_free = n;
    body_activate(b);
    base_home_unlock(&face->lock, face->env);
    return true;
}

void notify_run(struct engine *e, struct comm_communicator *face)
{
    uint64_t nobody = 0;

    if (!atomic_compare_exchange_strong_explicit(&face->notifying, &nobody, e->env->self(e->env), memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    atomic_fetch_add_explicit(&e->callbacks, 1, memory_order_relaxed);
    while (run_one(e, face))
        ;
    atomic_fetch_sub_explicit(&e->callbacks, 1, memory_order_relaxed);
    atomic_store_explicit(&face->notifying, 0, memory_order_release);
}

static bool any_due(const struct body *b)
{
    for (const struct notice *n = b->notices; n; n = n->next)
        if (timeline_test(n->request) != COMM_PENDING)
            return true;
    return false;
}

bool notify_due(struct body *b)
{
    base_home_visit(&b->face->lock, b->face->env);
    bool due = any_due(b);
    base_home_unlock(&b->face->lock, b->face->env);
    return due;
}

/* Has any communicator a callback to run now? An armed loop must not sleep on it. */
bool engine_callback_due(struct engine *e)
{
    uint32_t most = atomic_load_explicit(&e->words, memory_order_acquire) * 64;
    bool due = false;

    for (uint32_t i = 0; i < most && !due; i++) {
        struct comm_communicator *face = atomic_load_explicit(&e->faces[i], memory_order_acquire);
        if (!face || !(atomic_load_explicit(&e->active[i / 64], memory_order_relaxed) >> i % 64 & 1))
            continue;
        if (!base_home_trylock(&face->lock, face->env)) {
            due = true; /* whoever holds it may make one due, or keep it for long: look again later, without waiting for him */
            break;
        }
        struct body *b = atomic_load_explicit(&face->body, memory_order_relaxed);
        due = b && b->engine == e && any_due(b);
        base_home_unlock(&face->lock, face->env);
    }
    return due;
}
