/*
 * Streams of a device and the engine's timelines wait for each other. A queue that waits for a stream waits for a word,
 * which the stream writes. A stream that waits for a host queue is blocked on a stream of the library's own until the
 * point is reached. The thread that notices this releases it with one store; so that there is always such a thread, a
 * progress thread is started first. Waiting for an operation of a communicator with a stream of its own happens on the
 * device alone.
 */
#include "event/event.h"

#include "base/format.h"
#include "comm/state.h"
#include "fastpath/wait.h"
#include "staging/staging.h"

static _Atomic uint64_t passed; /* the word of a point that the stream has already passed: 0 >= 0 */

/* ------------------------------------------------------------------------------------------------------------ the engine's device */
static struct device *engine_device(struct engine *e, enum comm_result *why)
{
    char text[256] = "";
    struct device *d = staging_device(e, why, text, sizeof text);

    if (!d)
        base_log(&e->log, LOG_ERROR, "device: %s", text);
    return d;
}

enum comm_result engine_hardware(struct comm_communicator *c, uint64_t *hardware, char *text, size_t bytes)
{
    enum comm_result r;
    struct CUstream_st *stream = NULL;
    struct device *d = NULL;
    struct comm_state *b = state_lock(c, &r);

    text[0] = 0;
    if (!b)
        return r;
    struct engine *e = b->unit.engine;
    if (b->native && b->library_work.flags & NATIVE_STREAM) /* ranks in one process have a device each */
        d = b->native->native->class->stream(b->native, NULL, &stream);
    engine_hold(e);
    state_unlock(b);
    if (!d)
        d = staging_device(e, &r, text, bytes);
    if (d)
        r = d->class->where(d, hardware);
    if (r != COMM_OK && !text[0])
        base_format(text, bytes, "the device does not say where it is");
    engine_drop(e);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ points of streams */
static enum comm_result record(struct engine *e, struct CUstream_st *stream, struct timeline_point *point)
{
    enum comm_result r;
    struct device *d = engine_device(e, &r);
    struct device_place place;

    if (!d)
        return r;
    r = d->class->record(d, stream, &place);
    if (r == COMM_OK)
        *point = (struct timeline_point){.kind = POINT_WORD, .word = place.word, .value = place.value};
    return r;
}

enum comm_result engine_event_record_stream(struct comm_event *event, struct CUstream_st *stream)
{
    struct timeline_point point;
    struct engine *e = event ? event_engine(event) : NULL;

    if (!e)
        return COMM_ERR_ARGUMENT;
    if (!atomic_load_explicit(e->env->alive, memory_order_relaxed))
        return COMM_ERR_FORKED;
    enum comm_result r = record(e, stream, &point);
    if (r == COMM_OK)
        event_replace(event, point);
    return r;
}

enum comm_result engine_queue_wait_stream(struct comm_communicator *c, struct CUstream_st *stream)
{
    struct timeline_point point;
    enum comm_result r;
    struct engine *e = event_engine_of(c, NULL, &r);
    char text[256] = "";

    if (!e)
        return r;
    if (!staging_device(e, &r, text, sizeof text))
        return engine_decline(c, r, NULL, "queue_wait_stream: %s", text);
    r = record(e, stream, &point);
    if (r == COMM_OK)
        r = queue_wait_call(c, &point);
    else
        r = engine_decline(c, r, NULL, "queue_wait_stream: no place on the stream (too many not reached, captured, or another device's)");
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ communicators' streams */
/* Locks c and returns its state; NULL: it has no stream. */
static struct comm_state *lock_stream(struct comm_communicator *c, enum comm_result *r)
{
    struct comm_state *b = state_lock(c, r);

    if (b && b->native && (b->library_work.flags & NATIVE_STREAM) && b->native->native->class->stream)
        return b;
    if (b) {
        state_unlock(b);
        *r = COMM_ERR_UNSUPPORTED;
    }
    return NULL;
}

bool engine_can_work_in_streams(struct comm_communicator *c)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    bool can = b && b->native && b->native->native->class->stream;

    if (b)
        state_unlock(b);
    return can;
}

enum comm_result engine_stream_of(struct comm_communicator *c, struct CUstream_st **stream)
{
    enum comm_result r;
    struct comm_state *b = lock_stream(c, &r);

    if (!b)
        return r == COMM_ERR_UNSUPPORTED
                   ? engine_decline(
                         c, r, NULL,
                         "stream_of: the communicator has no stream; expected one of backend nccl, or a comm_dup with options.stream")
                   : r;
    b->native->native->class->stream(b->native, NULL, stream);
    state_unlock(b);
    return COMM_OK;
}

enum comm_result engine_stream_sync(struct comm_communicator *c, int64_t timeout_ns)
{
    struct CUstream_st *stream;
    enum comm_result r = engine_stream_of(c, &stream);

    return r == COMM_OK ? engine_wait(engine_last(c), timeout_ns) : r;
}

void stream_place(struct comm_communicator *c, struct timeline_point *point)
{
    enum comm_result r;
    struct comm_state *b = point->request.comm ? lock_stream(c, &r) : NULL;
    struct CUstream_st *stream;
    struct device_place place;

    if (!b)
        return;
    struct device *d = b->native->native->class->stream(b->native, NULL, &stream);
    if (d->class->record(d, stream, &place) == COMM_OK) { /* otherwise a waiter on the device waits through the host */
        point->word = place.word;
        point->value = place.value;
    }
    state_unlock(b);
}

/* Makes what is put on `stream` from now on run after that operation. UNSUPPORTED: it is not an operation of a stream. */
static enum comm_result await_operation(struct CUstream_st *stream, struct comm_request request)
{
    enum comm_result r;
    struct comm_state *b = request.ticket & TIMELINE_MESSAGE ? NULL : lock_stream(request.comm, &r);

    if (!b)
        return COMM_ERR_UNSUPPORTED;
    r = COMM_ERR_UNSUPPORTED;
    if (request.ticket <= b->line.done) /* it may have failed alone, or be of an earlier communicator with this handle */
        r = timeline_peek(request);
    else if (b->failed)
        r = (enum comm_result)b->failure.cause.result;
    else if (request.ticket <= b->line.started && state_entry(b, request.ticket)->by != ENTRY_BY_PROGRAM)
        r = b->native->native->class->await(b->native, request.ticket, stream);
    state_unlock(b);
    return r;
}

enum comm_result stream_join(struct comm_communicator *c, struct timeline_point *point)
{
    struct CUstream_st *stream;
    enum comm_result r;
    struct comm_state *b =
        point->kind == POINT_REQUEST && !point->word && point->request.comm && point->request.comm != c ? lock_stream(c, &r) : NULL;

    if (!b)
        return COMM_OK;
    b->native->native->class->stream(b->native, NULL, &stream);
    state_unlock(b);
    r = await_operation(stream, point->request);
    if (r == COMM_OK) {
        point->word = &passed;
        point->value = 0;
    }
    return r == COMM_ERR_FULL ? r : COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ streams that wait */
static void release_parks(struct engine *e)
{
    if (!atomic_load_explicit(&e->streams.parks, memory_order_relaxed))
        return;
    base_lock(&e->streams.park_lock, e->env);
    for (uint32_t i = 0; i < ENGINE_PARKS; i++) {
        struct engine_park *p = &e->streams.park[i];
        if (!p->taken || timeline_point_test(&p->point) == COMM_PENDING)
            continue;
        /* A failed point releases the stream too: it must not block for ever, and what it reads then is not a result. */
        atomic_store_explicit(p->place.word, p->place.value, memory_order_release);
        timeline_point_drop(&p->point);
        p->taken = false;
        atomic_fetch_sub_explicit(&e->streams.parks, 1, memory_order_relaxed);
    }
    base_unlock(&e->streams.park_lock, e->env);
}

static enum comm_result keep_park(struct engine *e, const struct timeline_point *point, struct device_place place)
{
    enum comm_result r = COMM_ERR_FULL;

    base_lock(&e->streams.park_lock, e->env);
    for (uint32_t i = 0; i < ENGINE_PARKS && r != COMM_OK; i++) {
        if (e->streams.park[i].taken)
            continue;
        e->streams.park[i] = (struct engine_park){timeline_point_copy(point), place, true};
        atomic_fetch_add_explicit(&e->streams.parks, 1, memory_order_seq_cst);
        r = COMM_OK;
    }
    base_unlock(&e->streams.park_lock, e->env);
    return r;
}

/* The point may have been reached before the park was registered. The thread that reached it did so under its
 * communicator's lock, or notifies with a fence. So once this thread has held that lock, either that thread sees the
 * park or this one sees the point. */
static void look_again(struct engine *e, const struct timeline_point *point)
{
    enum comm_result r;
    struct comm_state *b = point->kind == POINT_REQUEST && point->request.comm ? state_lock(point->request.comm, &r) : NULL;

    if (b)
        state_unlock(b);
    atomic_thread_fence(memory_order_seq_cst);
    release_parks(e);
}

static enum comm_result park(struct engine *e, struct device *d, struct CUstream_st *stream, const struct timeline_point *point)
{
    struct device_place place;
    enum comm_result r = engine_need_progress_thread(e);

    if (r == COMM_OK)
        r = d->class->park(d, stream, &place);
    if (r != COMM_OK)
        return r;
    r = keep_park(e, point, place);
    if (r != COMM_OK) /* release the stream again */
        atomic_store_explicit(place.word, place.value, memory_order_release);
    else
        look_again(e, point);
    return r;
}

/* Consumes the point. */
static enum comm_result stream_wait(struct engine *e, struct CUstream_st *stream, struct timeline_point *point)
{
    struct device_place place = {(_Atomic uint64_t *)(uintptr_t)point->word, point->value};
    enum comm_result r = timeline_point_test(point);
    struct device *d = r == COMM_PENDING ? engine_device(e, &r) : NULL;

    if (d && point->word)
        r = d->class->wait(d, stream, &place);
    else if (d)
        r = point->kind == POINT_REQUEST ? await_operation(stream, point->request) : COMM_ERR_UNSUPPORTED;
    if (d && !point->word && r == COMM_ERR_UNSUPPORTED)
        r = park(e, d, stream, point);
    timeline_point_drop(point);
    return r;
}

enum comm_result engine_stream_wait_event(struct CUstream_st *stream, struct comm_event *event)
{
    struct engine *e = event ? event_engine(event) : NULL;

    if (!e)
        return COMM_ERR_ARGUMENT;
    if (!atomic_load_explicit(e->env->alive, memory_order_relaxed))
        return COMM_ERR_FORKED;
    struct timeline_point held = event_hold(event), point = held;
    enum comm_result r = stream_wait(e, stream, &point);
    if (held.kind == POINT_REQUEST)
        timeline_tell(held.request, r);
    event_let_go(&held);
    return r;
}

enum comm_result engine_stream_wait_request(struct CUstream_st *stream, struct comm_request request)
{
    struct timeline_point point = {.kind = POINT_REQUEST, .request = request};
    enum comm_result r = timeline_test(request);
    struct engine *e = r == COMM_PENDING ? event_engine_of(request.comm, NULL, &r) : NULL;

    if (!e)
        return r;
    r = stream_wait(e, stream, &point);
    timeline_tell(request, r);
    return r;
}

const struct comm_part stream_part = {.name = "stream", .progressed = release_parks, .engine_close = staging_close_device};
