/* Events: each holds one point that can be waited for. */
#include "event/event.h"

#include "comm/state.h"
#include "fastpath/wait.h"

struct comm_event {
    struct engine *engine;
    struct comm_event *before, *after; /* in the engine's list; its lock protects them, and is taken before `lock` */
    struct base_lock lock;
    struct timeline_point point;
    int64_t asked_ns; /* when it was asked whether the device of the point still runs */
};

struct engine *event_engine_of(struct comm_communicator *c, const struct comm_request *request, enum comm_result *r)
{
    struct comm_state *b = state_lock(c, r);

    if (!b)
        return NULL;
    if (request)
        *r = timeline_belongs(*request);
    struct engine *e = *r == COMM_OK ? b->unit.engine : NULL;
    state_unlock(b);
    return e;
}

static enum comm_result alive(const struct comm_event *event)
{
    if (!event)
        return COMM_ERR_ARGUMENT;
    return engine_is_own(event->engine) ? COMM_OK : COMM_ERR_FORKED;
}

static void enlist(struct engine *e, struct comm_event *event)
{
    base_lock(&e->events.lock, e->env);
    event->after = e->events.first;
    if (event->after)
        event->after->before = event;
    e->events.first = event;
    base_unlock(&e->events.lock, e->env);
}

static void delist(struct engine *e, const struct comm_event *event)
{
    base_lock(&e->events.lock, e->env);
    *(event->before ? &event->before->after : &e->events.first) = event->after;
    if (event->after)
        event->after->before = event->before;
    base_unlock(&e->events.lock, e->env);
}

enum comm_result engine_event_create(struct comm_communicator *c, struct comm_event **event)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    const struct comm_env *env = b->unit.engine->env;
    struct comm_event *made = env->take(env, sizeof *made, 64);
    if (made) {
        made->engine = b->unit.engine;
        engine_hold(made->engine);
        enlist(made->engine, made);
        *event = made;
    }
    state_unlock(b);
    return made ? COMM_OK : COMM_ERR_MEMORY;
}

/* Stores a new point. If the old one is a manual event that was never set, nobody can set it any more: those who wait
 * for it end with ABANDONED. */
void event_replace(struct comm_event *event, struct timeline_point point)
{
    const struct comm_env *env = event->engine->env;
    int32_t pending = COMM_PENDING;

    base_lock(&event->lock, env);
    struct timeline_point old = event->point;
    event->point = point;
    event->asked_ns = 0;
    base_unlock(&event->lock, env);
    bool abandoned = old.kind == POINT_MANUAL && atomic_compare_exchange_strong(&old.manual->state, &pending, COMM_ERR_ABANDONED);
    timeline_point_drop(&old);
    if (abandoned) {
        engine_pass(event->engine, false);
        engine_wake_unlocked(event->engine);
    }
}

void engine_event_destroy(struct comm_event *event)
{
    struct engine *e = event->engine;

    if (!engine_is_own(e))
        return;
    event_replace(event, (struct timeline_point){0});
    delist(e, event);
    e->env->give(e->env, event, sizeof *event);
    engine_drop(e);
}

void events_settle(struct engine *e, const struct comm_communicator *c)
{
    base_lock(&e->events.lock, e->env);
    for (struct comm_event *event = e->events.first; event; event = event->after) {
        base_lock(&event->lock, e->env);
        timeline_point_settle(&event->point, c);
        base_unlock(&event->lock, e->env);
    }
    base_unlock(&e->events.lock, e->env);
}

enum comm_result engine_event_record(struct comm_event *event, struct comm_communicator *c)
{
    enum comm_result r = alive(event);
    struct comm_state *b = r == COMM_OK ? state_lock(c, &r) : NULL;

    if (!b)
        return r;
    r = b->recording.plan ? COMM_ERR_STATE : b->unit.engine == event->engine ? COMM_OK : COMM_ERR_UNSUPPORTED;
    state_unlock(b);
    if (r != COMM_OK)
        return r;
    struct comm_request last = engine_last(c);
    if (!last.comm && (enum comm_result)(int32_t)(int64_t)last.ticket == COMM_ERR_FULL)
        return COMM_ERR_FULL;
    struct timeline_point point = {.kind = POINT_REQUEST, .request = last};
    stream_place(c, &point);
    event_replace(event, point);
    return COMM_OK;
}

enum comm_result engine_event_reset(struct comm_event *event)
{
    enum comm_result r = alive(event);

    if (r != COMM_OK)
        return r;
    const struct comm_env *env = event->engine->env;
    struct timeline_manual *manual = timeline_manual_make(env);
    if (!manual)
        return COMM_ERR_MEMORY;
    base_lock(&event->lock, env);
    bool already = event->point.kind == POINT_MANUAL && atomic_load(&event->point.manual->state) == COMM_PENDING;
    struct timeline_point old = event->point;
    if (!already)
        event->point = (struct timeline_point){.kind = POINT_MANUAL, .manual = manual};
    base_unlock(&event->lock, env);
    if (already)
        old = (struct timeline_point){.kind = POINT_MANUAL, .manual = manual};
    timeline_point_drop(&old);
    return already ? COMM_ERR_STATE : COMM_OK;
}

enum comm_result engine_event_set(struct comm_event *event)
{
    enum comm_result r = alive(event);
    int32_t pending = COMM_PENDING;

    if (r != COMM_OK)
        return r;
    base_lock(&event->lock, event->engine->env);
    bool set = event->point.kind == POINT_MANUAL && atomic_compare_exchange_strong(&event->point.manual->state, &pending, COMM_OK);
    base_unlock(&event->lock, event->engine->env);
    if (!set)
        return COMM_ERR_STATE;
    engine_pass(event->engine, false); /* starts the operations that the event releases */
    engine_wake_unlocked(event->engine);
    return COMM_OK;
}

struct engine *event_engine(const struct comm_event *event)
{
    return event->engine;
}

void event_keep_open(const struct timeline_point *point)
{
    if (point->kind == POINT_REQUEST && point->request.comm)
        atomic_fetch_add_explicit(&point->request.comm->inside, 1, memory_order_seq_cst);
}

/* Under the event's lock: a close makes all events settle first (events_settle, which takes it too). */
struct timeline_point event_hold(struct comm_event *event)
{
    base_lock(&event->lock, event->engine->env);
    struct timeline_point point = timeline_point_copy(&event->point);
    event_keep_open(&point);
    base_unlock(&event->lock, event->engine->env);
    return point;
}

/* `point` as event_hold returned it, even if the caller's copy has changed. */
void event_let_go(const struct timeline_point *point)
{
    if (point->kind == POINT_REQUEST && point->request.comm)
        atomic_fetch_sub_explicit(&point->request.comm->inside, 1, memory_order_seq_cst);
}

enum comm_result engine_event_query(struct comm_event *event)
{
    return engine_event_sync(event, 0);
}

/* A close changes the event's point under this lock before its requests change, so a point that is reached needs no hold. */
static enum comm_result look(struct comm_event *event)
{
    base_lock(&event->lock, event->engine->env);
    enum comm_result r = wait_point(event->engine, &event->point, &event->asked_ns);
    if (r < 0 && event->point.kind == POINT_REQUEST)
        timeline_tell(event->point.request, r);
    base_unlock(&event->lock, event->engine->env);
    return r;
}

enum comm_result engine_event_sync(struct comm_event *event, int64_t timeout_ns)
{
    enum comm_result r = alive(event);

    if (r == COMM_OK)
        r = look(event);
    if (r != COMM_PENDING)
        return r;
    struct timeline_point point = event_hold(event);
    struct engine *e = event->engine;
    engine_hold(e);
    if (timeout_ns == 0) {
        r = timeline_point_test(&point);
        if (r == COMM_PENDING && !engine_in_callback(e)) {
            engine_pass(e, e->notify == COMM_NOTIFY_ANY);
            r = timeline_point_test(&point);
        }
    } else {
        r = engine_wait_on(e, &point, timeout_ns);
    }
    if (point.kind == POINT_REQUEST)
        timeline_tell(point.request, r);
    event_let_go(&point);
    timeline_point_drop(&point);
    engine_drop(e);
    return r;
}

/* PENDING: c is not recording a plan. event NULL: use the point. */
static enum comm_result record_wait(struct comm_communicator *c, struct comm_event *event, const struct timeline_point *point)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    r = b->recording.plan ? b->recording.calls->wait(b, event, point) : COMM_PENDING;
    state_unlock(b);
    return r;
}

enum comm_result engine_queue_wait_event(struct comm_communicator *c, struct comm_event *event)
{
    enum comm_result r = alive(event);
    struct engine *e = r == COMM_OK ? event_engine_of(c, NULL, &r) : NULL;

    if (!e)
        return r;
    if (e != event->engine)
        return engine_decline(
            c, COMM_ERR_UNSUPPORTED, NULL,
            "queue_wait_event: event belongs to another engine; expected one made for this world (engine_of joins worlds)");
    r = record_wait(c, event, NULL);
    if (r != COMM_PENDING)
        return r;
    struct timeline_point held = event_hold(event), point = held;
    r = stream_join(c, &point);
    if (r == COMM_OK)
        r = queue_wait_call(c, &point);
    event_let_go(&held);
    timeline_point_drop(&point);
    return r;
}

static enum comm_result wait_for_request(struct comm_communicator *c, struct comm_request request)
{
    enum comm_result r;
    struct engine *e = event_engine_of(c, NULL, &r);

    if (!e)
        return r;
    struct engine *other = request.comm ? event_engine_of(request.comm, &request, &r) : e;
    if (!other && r == COMM_ERR_ARGUMENT)
        return engine_decline(c, r, NULL, "queue_wait_request: request is none that a call returned; expected one of this world");
    if (other && other != e)
        return engine_decline(c, COMM_ERR_UNSUPPORTED, NULL,
                              "queue_wait_request: request belongs to another engine; expected one of this world (engine_of joins worlds)");
    struct timeline_point point = {.kind = POINT_REQUEST, .request = request};
    r = record_wait(c, NULL, &point);
    if (r != COMM_PENDING)
        return r;
    r = stream_join(c, &point);
    return r == COMM_OK ? queue_wait_call(c, &point) : r;
}

enum comm_result engine_queue_wait_request(struct comm_communicator *c, struct comm_request request)
{
    struct timeline_point point = {.kind = POINT_REQUEST, .request = request};

    event_keep_open(&point);
    enum comm_result r = wait_for_request(c, request);
    event_let_go(&point);
    return r;
}
