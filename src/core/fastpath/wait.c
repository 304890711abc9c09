/* Blocking calls. Each is bounded, by the caller's timeout or by the deadlines of the operations. */
#include "fastpath/fastpath.h"
#include "fastpath/wait.h"

#include "comm/parts.h"
#include "p2p/op.h"

/* Returns the engine of the request's communicator, with a reference for the time of the wait. NULL: it is closed. */
static struct engine *enter(struct comm_communicator *handle)
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

static void leave(struct comm_communicator *handle, struct engine *e)
{
    atomic_fetch_sub_explicit(&handle->inside, 1, memory_order_seq_cst);
    engine_drop(e);
}

/* ------------------------------------------------------------------------------------------------------------ one request */
struct one {
    struct comm_request request;
    enum comm_result result;
};

/* A close in another thread, which has ended all work, also ends the wait. */
static bool closing(const struct comm_communicator *handle)
{
    return atomic_load_explicit(&handle->closing, memory_order_relaxed) != 0;
}

static bool one_done(void *arg)
{
    struct one *one = arg;

    one->result = timeline_peek(one->request);
    if (one->result == COMM_PENDING && closing(one->request.comm))
        one->result = COMM_ERR_CLOSED;
    return one->result != COMM_PENDING;
}

enum comm_result engine_test(struct comm_request request)
{
    enum comm_result r = timeline_test(request);

    if (r != COMM_PENDING) {
        engine_glance(request.comm);
        return r;
    }
    struct engine *e = enter(request.comm);
    if (!e)
        return COMM_ERR_CLOSED;
    if (!engine_in_callback(e))
        engine_pass(e, e->notify == COMM_NOTIFY_ANY);
    leave(request.comm, e);
    return timeline_test(request);
}

static void wait_ended(struct engine *e)
{
    PARTS_EACH (part, e)
        if ((*part)->wait_ended)
            (*part)->wait_ended(e);
}

/* A call of the program returns the result of this request, so comm_sync need not report its error again. Programs often exit after an
 * error, so give the log a moment to write what it has. */
static enum comm_result tell(struct comm_request request, enum comm_result result)
{
    if (BASE_UNLIKELY(result < 0) && request.comm) {
        (void)timeline_test(request);
        base_log_drain(request.comm->env);
    }
    return result;
}

/* told: whether the program gets the result. Not inlined, so that small operations save no registers for it. */
static __attribute__((noinline)) enum comm_result wait_long(struct comm_request request, int64_t timeout_ns, bool inside, bool told)
{
    struct one one = {request, timeline_peek(request)};
    if (one.result != COMM_PENDING && !inside) {
        engine_glance(request.comm);
        return told ? tell(request, one.result) : one.result;
    }
    struct engine *e = enter(request.comm);
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
        (void)tell(request, one.result); /* first: once this thread has left, a close may forget the error */
    wait_ended(e);
    leave(request.comm, e);
    return one.result;
}

/* A forked child is not inside: the callback is the parent's. */
static inline bool inside_callback(struct comm_request request)
{
    return request.comm && atomic_load_explicit(&request.comm->notifying, memory_order_relaxed) && engine_alive(request.comm) == COMM_OK;
}

/* A brief wait, for operations that end at once. True: the request is complete, a message without an error. */
static inline bool wait_short(struct comm_request request, bool inside)
{
    if (inside || engine_alive(request.comm) != COMM_OK) /* a forked child must not even poll: it would take what belongs to its parent */
        return false;
    if (request.ticket & TIMELINE_MESSAGE)
        return fastpath_wait_message(request);
    return request.ticket > atomic_load_explicit(&request.comm->done, memory_order_acquire) && fastpath_wait(request);
}

enum comm_result engine_wait(struct comm_request request, int64_t timeout_ns)
{
    bool inside = inside_callback(request);

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

/* ------------------------------------------------------------------------------------------------------------ many requests */
struct many {
    const struct comm_request *requests;
    size_t count, want; /* how many must be complete */
    size_t first;       /* all earlier ones are complete and are not tested again; used when waiting for all */
};

static bool complete(struct comm_request request)
{
    return timeline_peek(request) != COMM_PENDING || (request.comm && closing(request.comm));
}

static bool many_done(void *arg)
{
    struct many *m = arg;
    size_t found = 0;

    if (m->want == m->count) {
        while (m->first < m->count && complete(m->requests[m->first]))
            m->first++;
        return m->first == m->count;
    }
    for (size_t i = 0; i < m->count && found < m->want; i++)
        found += (m->requests[i].comm || m->requests[i].ticket) && complete(m->requests[i]);
    return found >= m->want;
}

static bool is_of_engine(struct comm_communicator *handle, const struct engine *e)
{
    base_home_lock(&handle->lock, handle->env);
    const struct comm_state *b = state_of(handle);
    bool same = !b || b->unit.engine == e;
    base_home_unlock(&handle->lock, handle->env);
    return same;
}

static bool one_engine(const struct comm_request *requests, size_t count, struct engine *e)
{
    const struct comm_communicator *last = NULL;

    for (size_t i = 0; i < count; i++) {
        if (requests[i].comm && requests[i].comm != last && !is_of_engine(requests[i].comm, e))
            return false;
        last = requests[i].comm;
    }
    return true;
}

/* The program does not get the result yet. */
static void wait_a_turn(struct comm_request request, int64_t timeout_ns)
{
    bool inside = inside_callback(request);

    if (timeline_peek(request) == COMM_PENDING && !wait_short(request, inside))
        (void)wait_long(request, timeout_ns, inside, false);
}

/* Requests of several engines: moves each engine in turn, by short waits. */
static bool move_many(struct engine *e, struct many *m, int64_t deadline)
{
    enum { TURN_NS = 100000 };

    if (one_engine(m->requests, m->count, e))
        return engine_move_until(e, NULL, many_done, m, deadline);
    while (!many_done(m)) {
        int64_t now = e->env->now(e->env);
        if (now >= deadline)
            return false;
        for (size_t i = 0; i < m->count && !many_done(m); i++)
            wait_a_turn(m->requests[i], now + TURN_NS < deadline ? TURN_NS : deadline - now);
    }
    return true;
}

/* A wait inside a callback is an error, even if everything is complete. */
static bool many_in_callback(const struct many *m)
{
    for (size_t i = 0; i < m->count; i++) {
        struct comm_communicator *handle = m->requests[i].comm;
        if (inside_callback(m->requests[i]) &&
            atomic_load_explicit(&handle->notifying, memory_order_relaxed) == handle->env->self(handle->env))
            return true;
    }
    return false;
}

/* COMM_OK: as many as wanted are complete. PENDING: the timeout has passed. STATE: called inside a callback. */
static enum comm_result wait_many(struct many *m, int64_t timeout_ns)
{
    struct comm_communicator *handle = NULL;
    struct engine *e = NULL;

    if (many_done(m)) {
        engine_glance(m->count ? m->requests->comm : NULL);
        return many_in_callback(m) ? COMM_ERR_STATE : COMM_OK;
    }
    for (size_t i = 0; i < m->count && !e; i++) {
        handle = m->requests[i].comm;
        e = handle && timeline_peek(m->requests[i]) == COMM_PENDING ? enter(handle) : NULL;
    }
    if (!e)
        return many_done(m) ? COMM_OK : COMM_ERR_CLOSED;
    enum comm_result r = COMM_OK;
    if (engine_in_callback(e))
        r = COMM_ERR_STATE;
    else if (!move_many(e, m, engine_deadline(e, timeout_ns)))
        r = COMM_PENDING;
    wait_ended(e);
    leave(handle, e);
    return r;
}

static enum comm_result final_result(struct comm_request request)
{
    enum comm_result r = timeline_peek(request);

    return r == COMM_PENDING && request.comm && closing(request.comm) ? COMM_ERR_CLOSED : r;
}

/* All completed without an error, and no callback is running in which a wait would be an error. */
static bool all_well(const struct comm_request *requests, size_t count)
{
    bool well = true;

    for (size_t i = 0; i < count && well; i++)
        well = timeline_peek(requests[i]) == COMM_OK && !inside_callback(requests[i]);
    return well;
}

static inline bool is_none(struct comm_request request)
{
    return !request.comm && !request.ticket;
}

/* The last request is usually the newest. If it is a collective, all earlier ones are complete too. Of messages each is waited for. */
static bool all_end_shortly(const struct comm_request *requests, size_t count)
{
    size_t messages = 0;

    while (messages < count && (is_none(requests[messages]) || (requests[messages].ticket & TIMELINE_MESSAGE &&
                                                                wait_short(requests[messages], inside_callback(requests[messages])))))
        messages++;
    if (messages == count)
        return true;
    return wait_short(requests[count - 1], inside_callback(requests[count - 1])) && all_well(requests, count);
}

enum comm_result engine_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns)
{
    if (timeout_ns && all_end_shortly(requests, count))
        return COMM_OK;
    struct many m = {requests, count, count, 0};
    enum comm_result first = COMM_OK, r = wait_many(&m, timeout_ns);

    for (size_t i = 0; r == COMM_OK && i < count; i++) {
        enum comm_result one = final_result(requests[i]);
        first = first == COMM_OK ? tell(requests[i], one) : first;
    }
    return r == COMM_OK ? first : r;
}

static size_t count_live(const struct comm_request *requests, size_t count)
{
    size_t live = 0;

    for (size_t i = 0; i < count; i++)
        live += requests[i].comm || requests[i].ticket;
    return live;
}

/* Takes up to `most` complete requests out of the caller's array. */
enum comm_result engine_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t most, size_t *indices,
                                  enum comm_result *results, size_t *done)
{
    struct many m = {requests, count, 1, 0};
    enum comm_result first = COMM_OK;

    *done = 0;
    if (count_live(requests, count) == 0)
        return COMM_OK;
    enum comm_result r = wait_many(&m, timeout_ns);
    if (r != COMM_OK)
        return r;
    for (size_t i = 0; i < count && *done < most; i++) {
        if ((!requests[i].comm && !requests[i].ticket) || (r = final_result(requests[i])) == COMM_PENDING)
            continue;
        if (results || first == COMM_OK)
            (void)tell(requests[i], r);
        if (results)
            results[*done] = r;
        indices[(*done)++] = i;
        requests[i] = COMM_REQUEST_NONE;
        first = first == COMM_OK ? r : first;
    }
    return first;
}

/* ------------------------------------------------------------------------------------------------------------ points, markers, sync */
struct point_wait {
    const struct timeline_point *point;
    enum comm_result result;
};

static bool point_done(void *arg)
{
    struct point_wait *w = arg;

    w->result = timeline_point_test(w->point);
    if (w->result == COMM_PENDING && w->point->kind == POINT_REQUEST && closing(w->point->request.comm))
        w->result = COMM_ERR_CLOSED;
    return w->result != COMM_PENDING;
}

enum comm_result engine_wait_on(struct engine *e, const struct timeline_point *point, int64_t timeout_ns)
{
    struct point_wait w = {point, COMM_PENDING};

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
    struct engine *e = engine_alive(c) == COMM_OK ? enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    int64_t since = e->env->now(e->env);
    for (uint32_t i = 0; i < atomic_load_explicit(&e->table.words, memory_order_acquire) * 64; i++) {
        struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[i], memory_order_acquire);
        r = handle ? sync_in(e, handle, time_left(e->env, since, timeout_ns)) : COMM_OK;
        pending |= r == COMM_PENDING;
        if (r == COMM_PENDING || (handle != c && r == COMM_ERR_CLOSED))
            continue; /* closed meanwhile, or the timeout has passed */
        first = first == COMM_OK ? r : first;
    }
    leave(c, e);
    return first == COMM_OK && pending ? COMM_PENDING : first;
}

/* ------------------------------------------------------------------------------------------------------------ event loops of the caller */
enum comm_result engine_progress(struct comm_communicator *c)
{
    struct engine *e = engine_alive(c) == COMM_OK ? enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    enum pass moved = PASS_MOVED;
    if (!engine_in_callback(e)) {
        if (atomic_exchange_explicit(&e->sleepers.armed, 0, memory_order_seq_cst))
            engine_disarm(e);
        moved = engine_step(e, c) | engine_pass(e, true); /* steps c even if it is idle: its peers may have failed it */
    }
    leave(c, e);
    return moved == PASS_IDLE ? COMM_OK : COMM_PENDING;
}

enum comm_result engine_arm(struct comm_communicator *c)
{
    struct engine *e = engine_alive(c) == COMM_OK ? enter(c) : NULL;

    if (!e)
        return engine_alive(c) == COMM_OK ? COMM_ERR_CLOSED : engine_alive(c);
    enum pass moved = PASS_MOVED;
    if (!engine_in_callback(e))
        moved = engine_arm_bell(e);
    leave(c, e);
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
