/* Plans: recorded collectives, messages and queue waits, started many times. A recorder is a face whose body only records. */
#include "engine/body.h"

#include "base/format.h"

#include <string.h>

enum { FIRST_STEPS = 8 };

enum step_kind { STEP_CALL, STEP_TALK, STEP_WAIT };
struct plan_step {
    enum step_kind kind;
    struct engine_call call;
    struct message_call message;
    struct comm_event *event;    /* its point is copied at each start; NULL: the point below */
    struct timeline_point point; /* of a request: never a gate's, so it holds nothing */
};

struct comm_plan {
    struct engine *engine;
    struct comm_communicator *target;
    uint64_t target_life; /* the target's `first` when recording began: a reused face is another communicator */
    struct plan_step *step;
    size_t *vectors; /* of v forms: 2 * size each, by step */
    uint32_t count, room, size, messages;
    _Atomic uint32_t references;
};

static void plan_drop(struct comm_plan *plan)
{
    const struct comm_env *env = plan->engine->env;
    struct engine *e = plan->engine;

    if (atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->step)
        env->give(env, plan->step, plan->room * sizeof *plan->step);
    if (plan->vectors)
        env->give(env, plan->vectors, plan->room * 2 * (size_t)plan->size * sizeof *plan->vectors);
    env->give(env, plan, sizeof *plan);
    engine_drop(e);
}

static enum comm_result grow(struct comm_plan *plan)
{
    const struct comm_env *env = plan->engine->env;
    uint32_t room = plan->room ? plan->room * 2 : FIRST_STEPS;
    size_t each = 2 * (size_t)plan->size;
    struct plan_step *step = env->take(env, room * sizeof *step, 64);
    size_t *vectors = env->take(env, room * each * sizeof *vectors, 64);

    if (!step || !vectors) {
        if (step)
            env->give(env, step, room * sizeof *step);
        if (vectors)
            env->give(env, vectors, room * each * sizeof *vectors);
        return COMM_ERR_MEMORY;
    }
    if (plan->room) {
        memcpy(step, plan->step, plan->room * sizeof *step);
        memcpy(vectors, plan->vectors, plan->room * each * sizeof *vectors);
        env->give(env, plan->step, plan->room * sizeof *step);
        env->give(env, plan->vectors, plan->room * each * sizeof *vectors);
    }
    plan->step = step;
    plan->vectors = vectors;
    plan->room = room;
    return COMM_OK;
}

static enum comm_result record(struct comm_plan *plan, const struct plan_step *step)
{
    enum comm_result r = plan->count == plan->room ? grow(plan) : COMM_OK;

    if (r == COMM_OK)
        plan->step[plan->count++] = *step;
    return r;
}

enum comm_result plan_record(struct body *recorder, const struct engine_call *call)
{
    struct comm_plan *plan = recorder->recording;
    struct plan_step step = {.kind = STEP_CALL, .call = *call};
    size_t size = plan->size;

    step.call.flags |= ENGINE_CALL_PLAN;
    enum comm_result r = record(plan, &step);
    if (r == COMM_OK && call->counts) {
        size_t *vectors = plan->vectors + (plan->count - 1) * 2 * size;
        memcpy(vectors, call->counts, size * sizeof *vectors);
        memcpy(vectors + size, call->displs, size * sizeof *vectors);
    }
    return r;
}

enum comm_result plan_record_message(struct body *recorder, const struct message_call *message)
{
    enum comm_result r = record(recorder->recording, &(struct plan_step){.kind = STEP_TALK, .message = *message});

    recorder->recording->messages += r == COMM_OK;
    return r;
}

enum comm_result plan_record_wait(struct comm_communicator *c, struct comm_event *event, const struct timeline_point *point)
{
    enum comm_result r;
    struct body *b = body_lock(c, &r);

    if (!b)
        return r;
    r = COMM_PENDING; /* no recorder */
    if (b->recording) {
        struct plan_step step = {.kind = STEP_WAIT, .event = event};
        if (!event)
            step.point = *point;
        r = record(b->recording, &step);
    }
    body_unlock(b);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ recording */
static struct comm_plan *plan_make(struct body *b)
{
    struct comm_plan *plan = b->engine->env->take(b->engine->env, sizeof *plan, 64);

    if (!plan)
        return NULL;
    plan->engine = b->engine;
    plan->target = b->face;
    plan->target_life = atomic_load_explicit(&b->face->first, memory_order_relaxed);
    plan->size = (uint32_t)b->team.size;
    atomic_store_explicit(&plan->references, 1, memory_order_relaxed);
    engine_hold(plan->engine);
    return plan;
}

enum comm_result engine_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder)
{
    enum comm_result r;
    struct body *b = body_lock(c, &r), *made;

    if (!b)
        return r;
    if (b->recording || b->failed) {
        r = b->recording ? COMM_ERR_STATE : (enum comm_result)b->cause.result;
        body_unlock(b);
        return r;
    }
    made = body_recorder(b);
    if (made && !(made->recording = plan_make(b))) {
        body_destroy(made);
        made = NULL;
    }
    body_unlock(b);
    if (!made)
        return COMM_ERR_MEMORY;
    atomic_store_explicit(&made->face->body, made, memory_order_release);
    *recorder = made->face;
    return COMM_OK;
}

static struct comm_plan *take_recording(struct comm_communicator *recorder, enum comm_result *r)
{
    struct body *b = body_lock(recorder, r);

    if (!b)
        return NULL;
    struct comm_plan *plan = b->recording;
    if (plan) {
        b->recording = NULL;
        atomic_store_explicit(&recorder->body, NULL, memory_order_release);
    }
    body_unlock(b);
    if (plan)
        body_destroy(b);
    else
        *r = COMM_ERR_STATE;
    return plan;
}

enum comm_result engine_plan_end(struct comm_communicator *recorder, struct comm_plan **plan)
{
    enum comm_result r;
    struct comm_plan *made = take_recording(recorder, &r);

    if (!made)
        return r;
    *plan = made;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ starting */
static enum comm_result start_call(struct body *b, const struct comm_plan *plan, uint32_t i, struct comm_request *req)
{
    struct engine_call call = plan->step[i].call;

    if (call.counts) {
        call.counts = plan->vectors + i * 2 * (size_t)plan->size;
        call.displs = call.counts + plan->size;
    }
    return express_issue(b, &call, req) ? COMM_OK : body_issue(b, &call, NULL, NULL, req);
}

static enum comm_result start_wait(struct body *b, const struct plan_step *step, struct comm_request *req)
{
    struct timeline_point point = step->event ? event_point(step->event) : step->point;
    enum comm_result r = body_queue_wait(b, &point, req);

    timeline_point_drop(&point);
    return r;
}

static enum comm_result start_step(struct body *b, const struct comm_plan *plan, uint32_t i, uint32_t marker, struct comm_request *req)
{
    switch (plan->step[i].kind) {
    case STEP_TALK:
        return talk_post_for(b, &plan->step[i].message, marker);
    case STEP_WAIT:
        return start_wait(b, &plan->step[i], req);
    case STEP_CALL:
        break;
    }
    return start_call(b, plan, i, req);
}

/* All of it or nothing, as far as room goes. With messages the request is a marker behind all members; otherwise it is the last of the
 * work. */
static enum comm_result start_locked(struct body *b, struct comm_plan *plan, struct comm_request *req)
{
    enum comm_result r = COMM_OK;
    uint32_t marker = TALK_NONE;

    if (!timeline_reserve(&b->line, plan->count) || (plan->messages && !talk_reserve(b, plan->messages + 1)))
        return COMM_ERR_FULL;
    if (plan->messages)
        r = talk_open_marker(b, &marker);
    for (uint32_t i = 0; i < plan->count && (r == COMM_OK || i > 0); i++) {
        enum comm_result one = start_step(b, plan, i, marker, req);
        r = r == COMM_OK ? one : r;
        if (b->failed) /* by what a peer said of this very call: nothing is queued after that */
            return (enum comm_result)b->cause.result;
    }
    if (marker != TALK_NONE)
        talk_close_marker(b, marker, req);
    return r;
}

enum comm_result engine_plan_start(struct comm_plan *plan, struct comm_request *req)
{
    enum comm_result r;
    struct body *b = plan ? body_lock(plan->target, &r) : NULL;

    if (!plan)
        r = COMM_ERR_ARGUMENT;
    if (b && atomic_load_explicit(&b->face->first, memory_order_relaxed) != plan->target_life) {
        body_unlock(b);
        b = NULL;
        r = COMM_ERR_CLOSED;
    }
    if (req)
        *req = COMM_REQUEST_NONE;
    if (b) {
        r = b->failed ? (enum comm_result)b->cause.result : start_locked(b, plan, req);
        body_settle(b);
        body_unlock(b);
    }
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}

void engine_plan_free(struct comm_plan *plan)
{
    plan_drop(plan);
}
