/* Blocking calls. Each is bounded, by the caller's timeout or by the deadlines of the operations. */
#include "fastpath/waiting.h"

#include "comm/parts.h"
#include "p2p/op.h"

struct engine *wait_enter(struct comm_communicator *handle)
{
    struct engine *e = NULL;

    BASE_ASSERT(handle); /* a request without a communicator is never pending */
    atomic_fetch_add_explicit(&handle->inside, 1, memory_order_seq_cst);
    base_home_lock(&handle->lock, handle->env);
    struct comm_state *b = atomic_load_explicit(&handle->state, memory_order_relaxed);
    if (b) {
        e = b->unit.engine;
        engine_hold(e);
    }
    base_home_unlock(&handle->lock, handle->env);
    if (!e)
        atomic_fetch_sub_explicit(&handle->inside, 1, memory_order_seq_cst);
    return e;
}

void wait_leave(struct comm_communicator *handle, struct engine *e)
{
    atomic_fetch_sub_explicit(&handle->inside, 1, memory_order_seq_cst);
    engine_drop(e);
}

/* ------------------------------------------------------------------------------------------------------------ one request */
struct one {
    struct comm_request request;
    enum comm_result result;
};

static bool one_done(void *arg)
{
    struct one *one = arg;

    one->result = wait_result(one->request);
    return one->result != COMM_PENDING;
}

enum comm_result engine_test(struct comm_request request)
{
    enum comm_result r = timeline_test(request);

    if (r != COMM_PENDING) {
        engine_glance(request.comm);
        return r;
    }
    struct engine *e = wait_enter(request.comm);
    if (!e)
        return COMM_ERR_CLOSED;
    if (!engine_in_callback(e))
        engine_pass(e, e->notify == COMM_NOTIFY_ANY);
    r = timeline_test(request); /* once this thread has left, a close may end, and the request return CLOSED */
    wait_leave(request.comm, e);
    return r;
}

void wait_ended(struct engine *e)
{
    PARTS_EACH (part, e)
        if ((*part)->wait_ended)
            (*part)->wait_ended(e);
}

enum comm_result wait_tell(struct comm_request request, enum comm_result result)
{
    if (BASE_UNLIKELY(result < 0) && request.comm) {
        (void)timeline_test(request);
        base_log_drain(request.comm->env);
    }
    return result;
}

/* Not inlined, so that small operations save no registers for it. */
__attribute__((noinline)) enum comm_result wait_long(struct comm_request request, int64_t timeout_ns, bool inside, bool told)
{
    struct one one = {request, timeline_peek(request)};
    if (one.result != COMM_PENDING && !inside) {
        engine_glance(request.comm);
        return told ? wait_tell(request, one.result) : one.result;
    }
    struct engine *e = wait_enter(request.comm);
    if (!e)
        return COMM_ERR_CLOSED;
    bool refused = engine_in_callback(e);
    if (refused)
        one.result = COMM_ERR_STATE;
    else if (e->oversubscribed && timeout_ns > 0 && fastpath_wait_in_turn(e, request))
        one.result = timeline_peek(request);
    else if (one.result == COMM_PENDING && !engine_move_until(e, request.comm, one_done, &one, engine_deadline(e, timeout_ns)))
        one.result = COMM_PENDING;
    if (told && !refused)
        (void)wait_tell(request, one.result); /* first: once this thread has left, a close may forget the error */
    wait_ended(e);
    wait_leave(request.comm, e);
    return one.result;
}

enum comm_result engine_wait(struct comm_request request, int64_t timeout_ns)
{
    bool inside = wait_in_callback(request);

    if (timeout_ns && wait_short(request, inside))
        return request.ticket & TIMELINE_MESSAGE ? COMM_OK : timeline_test(request);
    return wait_long(request, timeout_ns, inside, true);
}

enum comm_result engine_answer(enum comm_result issued, struct comm_request own, struct comm_request *req)
{
    if (req)
        *req = issued == COMM_OK ? own : timeline_refusal(issued);
    return issued;
}

/* ------------------------------------------------------------------------------------------------------------ points, markers, sync */
struct point_wait {
    const struct engine *engine;
    const struct timeline_point *point;
    enum comm_result result;
    int64_t asked_ns;
};

enum comm_result wait_point(const struct engine *e, const struct timeline_point *point, int64_t *asked_ns)
{
    const struct device_place place = {(_Atomic uint64_t *)(uintptr_t)point->word, point->value};
    enum comm_result r = timeline_point_test(point);

    return r == COMM_PENDING && point->kind == POINT_WORD && engine_ask_device(e, &place, asked_ns) != COMM_OK ? COMM_ERR_BACKEND : r;
}

static bool point_done(void *arg)
{
    struct point_wait *w = arg;

    w->result = w->point->kind == POINT_REQUEST ? wait_result(w->point->request) : wait_point(w->engine, w->point, &w->asked_ns);
    return w->result != COMM_PENDING;
}

enum comm_result engine_wait_on(struct engine *e, const struct timeline_point *point, int64_t timeout_ns)
{
    struct point_wait w = {e, point, COMM_PENDING, 0};

    if (point_done(&w))
        return w.result;
    if (engine_in_callback(e))
        return COMM_ERR_STATE;
    if (point->kind == POINT_WORD)
        engine_need_polls(e, true);
    bool reached = engine_move_until(e, NULL, point_done, &w, engine_deadline(e, timeout_ns));
    if (point->kind == POINT_WORD)
        engine_need_polls(e, false);
    return reached ? w.result : COMM_PENDING;
}

/* A request for everything that was issued on c, a communicator of this engine (NULL: of any). *life: of the handle, which another
 * communicator may have when the wait is over. */
static struct comm_request last_of(const struct engine *e, struct comm_communicator *c, uint64_t *life)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (b && e && b->unit.engine != e) {
        state_unlock(b);
        return timeline_refusal(COMM_ERR_CLOSED);
    }
    if (!b)
        return timeline_refusal(r);
    *life = c->life;
    uint64_t ticket = b->failed || b->recording.plan ? 0 : p2p_mark(b);
    struct comm_request request = {ticket ? c : NULL, ticket};
    if (b->recording.plan)
        request = timeline_refusal(COMM_ERR_STATE);
    else if (b->failed)
        request = timeline_refusal((enum comm_result)b->failure.cause.result);
    else if (ticket == UINT64_MAX)
        request = timeline_refusal(COMM_ERR_FULL);
    if (!b->recording.plan)
        state_activate(b);
    state_leave(b);
    return request;
}

struct comm_request engine_last(struct comm_communicator *c)
{
    uint64_t life;

    return last_of(NULL, c, &life);
}

static enum comm_result sync_in(const struct engine *e, struct comm_communicator *c, int64_t timeout_ns)
{
    uint64_t life = 0;
    enum comm_result r = engine_wait(last_of(e, c, &life), timeout_ns);

    return r == COMM_OK ? timeline_untold(c, life) : r; /* only a call that returns the error has told it */
}

enum comm_result engine_sync(struct comm_communicator *c, int64_t timeout_ns)
{
    return sync_in(NULL, c, timeout_ns);
}

/* The rest of a timeout that began at `since`. */
static int64_t time_left(const struct comm_env *env, int64_t since, int64_t timeout_ns)
{
    int64_t spent = timeout_ns == COMM_FOREVER ? 0 : env->now(env) - since;

    return spent < timeout_ns ? timeout_ns - spent : 0;
}

enum comm_result engine_sync_all(struct comm_communicator *c, int64_t timeout_ns)
{
    enum comm_result first = COMM_OK, r;
    bool pending = false;
    struct engine *e = engine_alive(c) == COMM_OK ? wait_enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    engine_hold(e);
    wait_leave(c, e); /* its close must not wait for the others */
    int64_t since = e->env->now(e->env);
    for (uint32_t i = 0; i < atomic_load_explicit(&e->table.words, memory_order_acquire) * 64; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        r = handle ? sync_in(e, handle, time_left(e->env, since, timeout_ns)) : COMM_OK;
        pending |= r == COMM_PENDING;
        if (r == COMM_PENDING || (handle != c && r == COMM_ERR_CLOSED))
            continue; /* closed meanwhile, or the timeout has passed */
        first = first == COMM_OK ? r : first;
    }
    engine_drop(e);
    return first == COMM_OK && pending ? COMM_PENDING : first;
}

/* ------------------------------------------------------------------------------------------------------------ event loops of the caller */
enum comm_result engine_progress(struct comm_communicator *c)
{
    struct engine *e = engine_alive(c) == COMM_OK ? wait_enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    enum pass moved = PASS_MOVED;
    if (!engine_in_callback(e)) {
        if (atomic_exchange_explicit(&e->sleepers.armed, 0, memory_order_seq_cst))
            engine_disarm(e);
        moved = engine_step(e, c) | engine_pass(e, true); /* steps c even if it is idle: its peers may have failed it */
    }
    wait_leave(c, e);
    return moved == PASS_IDLE ? COMM_OK : COMM_PENDING;
}

enum comm_result engine_arm(struct comm_communicator *c)
{
    struct engine *e = engine_alive(c) == COMM_OK ? wait_enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    enum pass moved = PASS_MOVED;
    if (!engine_in_callback(e))
        moved = engine_arm_bell(e);
    wait_leave(c, e);
    return moved == PASS_IDLE ? COMM_OK : COMM_PENDING;
}

enum comm_result engine_fd(struct comm_communicator *c, int *fd)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    *fd = b->unit.engine->bell.wait_fd;
    state_unlock(b);
    return *fd >= 0 ? COMM_OK : COMM_ERR_UNSUPPORTED;
}
