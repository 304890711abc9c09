/*
 * Waits for several requests. If another thread closes one of their communicators meanwhile, that close keeps the results until this wait
 * has taken them, which it does as soon as it sees the close.
 */
#include "fastpath/waiting.h"

/* A communicator whose close waits until this thread has taken the results of its requests. */
struct held {
    struct comm_communicator *handle;
    bool gone; /* they are taken, although the wait goes on */
};

enum { HELD_MOST = 16 };
struct many {
    const struct comm_request *requests;
    size_t count;
    bool all;                /* waits for all of them, otherwise for any */
    size_t first;            /* of a wait for all: the results of all earlier ones are taken */
    size_t failed_at;        /* the first index with an error, as far as results are taken; count: none */
    enum comm_result failed; /* that error */
    struct engine *engine;   /* a reference; NULL: none was needed */
    uint32_t holds;
    struct held held[HELD_MOST];
};

/* False: it is pending. */
static bool take_result(struct many *m, size_t i)
{
    enum comm_result r = wait_result(m->requests[i]);

    if (r != COMM_OK && r != COMM_PENDING && i < m->failed_at) {
        m->failed_at = i;
        m->failed = r;
    }
    return r != COMM_PENDING;
}

static struct held *find_held(struct many *m, const struct comm_communicator *handle)
{
    for (uint32_t h = 0; h < m->holds; h++)
        if (m->held[h].handle == handle)
            return &m->held[h];
    return NULL;
}

static void let_go(struct held *held)
{
    if (!held->gone)
        atomic_fetch_sub_explicit(&held->handle->inside, 1, memory_order_seq_cst);
    held->gone = true;
}

/* A close waits for this thread, and the wait for the other requests may be long. */
static void let_closing_go(struct many *m)
{
    for (uint32_t h = 0; h < m->holds; h++) {
        struct held *held = &m->held[h];
        if (held->gone || !atomic_load_explicit(&held->handle->closing, memory_order_acquire))
            continue;
        for (size_t i = m->first; i < m->count; i++)
            if (m->requests[i].comm == held->handle)
                (void)take_result(m, i);
        let_go(held);
    }
}

static bool all_done(struct many *m)
{
    let_closing_go(m);
    for (; m->first < m->count; m->first++) {
        const struct held *held = find_held(m, m->requests[m->first].comm);
        if (!(held && held->gone) && !take_result(m, m->first))
            return false;
    }
    return true;
}

static bool many_done(void *arg)
{
    struct many *m = arg;
    bool found = false;

    if (m->all)
        return all_done(m);
    for (size_t i = 0; i < m->count && !found; i++)
        found = (m->requests[i].comm || m->requests[i].ticket) && wait_result(m->requests[i]) != COMM_PENDING;
    return found;
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
    bool inside = wait_in_callback(request);

    if (timeline_peek(request) == COMM_PENDING && !wait_short(request, inside))
        (void)wait_long(request, timeout_ns, inside, false);
}

/* Moves each engine in turn, by short waits. */
static bool move_in_turns(const struct engine *e, struct many *m, int64_t deadline)
{
    enum { TURN_NS = 100000 };

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
        if (wait_in_callback(m->requests[i]) &&
            atomic_load_explicit(&handle->notifying, memory_order_relaxed) == handle->env->self(handle->env))
            return true;
    }
    return false;
}

/* Returns the engine of the first pending request; NULL: none is pending in an open communicator. */
static struct engine *enter_any(struct many *m)
{
    struct engine *e = NULL;

    for (size_t i = 0; i < m->count && !e; i++) {
        struct comm_communicator *handle = m->requests[i].comm;
        e = handle && timeline_peek(m->requests[i]) == COMM_PENDING ? wait_enter(handle) : NULL;
        if (e)
            m->held[m->holds++] = (struct held){.handle = handle};
    }
    return e;
}

/* All communicators are of the engine that is held already. Those beyond HELD_MOST are not held: their requests may return CLOSED. */
static void enter_others(struct many *m)
{
    for (size_t i = 0; i < m->count && m->holds < HELD_MOST; i++) {
        struct comm_communicator *handle = m->requests[i].comm;
        struct engine *e = handle && !find_held(m, handle) ? wait_enter(handle) : NULL;
        if (!e)
            continue;
        m->held[m->holds++] = (struct held){.handle = handle};
        engine_drop(e);
    }
}

static void leave_all(struct many *m)
{
    for (uint32_t h = 0; h < m->holds; h++)
        let_go(&m->held[h]);
    if (m->engine)
        engine_drop(m->engine);
}

/* COMM_OK: as many as wanted are complete. PENDING: the timeout has passed. STATE: called inside a callback. The caller then takes the
 * results, and calls leave_all. Of several engines nothing is held: a callback of one may close a communicator of another. */
static enum comm_result wait_many(struct many *m, int64_t timeout_ns)
{
    if (many_done(m)) {
        engine_glance(m->count ? m->requests->comm : NULL);
        return many_in_callback(m) ? COMM_ERR_STATE : COMM_OK;
    }
    struct engine *e = m->engine = enter_any(m);
    if (!e)
        return many_done(m) ? COMM_OK : COMM_ERR_CLOSED;
    bool one = one_engine(m->requests, m->count, e), reached = false;
    if (one)
        enter_others(m);
    else
        let_go(&m->held[--m->holds]);
    bool refused = engine_in_callback(e);
    if (!refused)
        reached = one ? engine_move_until(e, NULL, many_done, m, engine_deadline(e, timeout_ns))
                      : move_in_turns(e, m, engine_deadline(e, timeout_ns));
    wait_ended(e);
    return refused ? COMM_ERR_STATE : reached ? COMM_OK : COMM_PENDING;
}

/* All completed without an error, and no callback is running in which a wait would be an error. */
static bool all_well(const struct comm_request *requests, size_t count)
{
    bool well = true;

    for (size_t i = 0; i < count && well; i++)
        well = timeline_peek(requests[i]) == COMM_OK && !wait_in_callback(requests[i]);
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
                                                                wait_short(requests[messages], wait_in_callback(requests[messages])))))
        messages++;
    if (messages == count)
        return true;
    return wait_short(requests[count - 1], wait_in_callback(requests[count - 1])) && all_well(requests, count);
}

/* Not inlined, so that requests that end shortly cost nothing of it. */
static __attribute__((noinline)) enum comm_result wait_for_all(const struct comm_request *requests, size_t count, int64_t timeout_ns)
{
    struct many m = {.requests = requests, .count = count, .all = true, .failed_at = count};
    enum comm_result r = wait_many(&m, timeout_ns);

    if (r == COMM_OK && m.failed_at < count)
        r = wait_tell(requests[m.failed_at], m.failed);
    leave_all(&m);
    return r;
}

enum comm_result engine_wait_all(const struct comm_request *requests, size_t count, int64_t timeout_ns)
{
    return timeout_ns && all_end_shortly(requests, count) ? COMM_OK : wait_for_all(requests, count, timeout_ns);
}

static size_t count_live(const struct comm_request *requests, size_t count)
{
    size_t live = 0;

    for (size_t i = 0; i < count; i++)
        live += requests[i].comm || requests[i].ticket;
    return live;
}

/* Takes up to `most` complete requests out of the caller's array. Returns the first error among them. */
static enum comm_result take_complete(struct comm_request *requests, size_t count, size_t most, size_t *indices, enum comm_result *results,
                                      size_t *done)
{
    enum comm_result first = COMM_OK, r;

    for (size_t i = 0; i < count && *done < most; i++) {
        if ((!requests[i].comm && !requests[i].ticket) || (r = wait_result(requests[i])) == COMM_PENDING)
            continue;
        if (results || first == COMM_OK)
            (void)wait_tell(requests[i], r);
        if (results)
            results[*done] = r;
        indices[(*done)++] = i;
        requests[i] = COMM_REQUEST_NONE;
        first = first == COMM_OK ? r : first;
    }
    return first;
}

enum comm_result engine_wait_some(struct comm_request *requests, size_t count, int64_t timeout_ns, size_t most, size_t *indices,
                                  enum comm_result *results, size_t *done)
{
    struct many m = {.requests = requests, .count = count, .failed_at = count};

    *done = 0;
    if (count_live(requests, count) == 0)
        return COMM_OK;
    enum comm_result r = wait_many(&m, timeout_ns);
    if (r == COMM_OK)
        r = take_complete(requests, count, most, indices, results, done);
    leave_all(&m);
    return r;
}
