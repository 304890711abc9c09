/* Plans: recorded collectives, started many times. A recorder is a face whose body only records. */
#include "engine/body.h"

#include "base/format.h"

#include <string.h>

enum { FIRST_STEPS = 8 };

struct comm_plan {
    struct engine *engine;
    struct comm_communicator *target;
    uint64_t target_life; /* the target's `first` when recording began: a reused face is another communicator */
    struct engine_call *call;
    size_t *vectors; /* of v forms: 2 * size each, by step */
    uint32_t count, room, size;
    _Atomic uint32_t references;
};

static void plan_drop(struct comm_plan *plan)
{
    const struct comm_env *env = plan->engine->env;
    struct engine *e = plan->engine;

    if (atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->call)
        env->give(env, plan->call, plan->room * sizeof *plan->call);
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
    struct engine_call *call = env->take(env, room * sizeof *call, 64);
    size_t *vectors = env->take(env, room * each * sizeof *vectors, 64);

    if (!call || !vectors) {
        if (call)
            env->give(env, call, room * sizeof *call);
        if (vectors)
            env->give(env, vectors, room * each * sizeof *vectors);
        return COMM_ERR_MEMORY;
    }
    if (plan->room) {
        memcpy(call, plan->call, plan->room * sizeof *call);
        memcpy(vectors, plan->vectors, plan->room * each * sizeof *vectors);
        env->give(env, plan->call, plan->room * sizeof *call);
        env->give(env, plan->vectors, plan->room * each * sizeof *vectors);
    }
    plan->call = call;
    plan->vectors = vectors;
    plan->room = room;
    return COMM_OK;
}

enum comm_result plan_record(struct body *recorder, const struct engine_call *call)
{
    struct comm_plan *plan = recorder->recording;
    enum comm_result r = plan->count == plan->room ? grow(plan) : COMM_OK;
    size_t size = plan->size;

    if (r != COMM_OK)
        return r;
    size_t *vectors = plan->vectors + plan->count * 2 * size;
    plan->call[plan->count] = *call;
    plan->call[plan->count].flags |= ENGINE_CALL_PLAN;
    if (call->counts) {
        memcpy(vectors, call->counts, size * sizeof *vectors);
        memcpy(vectors + size, call->displs, size * sizeof *vectors);
    }
    plan->count++;
    return COMM_OK;
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
static enum comm_result start_locked(struct body *b, struct comm_plan *plan, struct comm_request *req)
{
    enum comm_result r = COMM_OK;

    if (!timeline_reserve(&b->line, plan->count))
        return COMM_ERR_FULL; /* all of it or nothing */
    for (uint32_t i = 0; i < plan->count; i++) {
        struct engine_call call = plan->call[i];
        if (call.counts) {
            call.counts = plan->vectors + i * 2 * (size_t)plan->size;
            call.displs = call.counts + plan->size;
        }
        enum comm_result one = express_issue(b, &call, req) ? COMM_OK : body_issue(b, &call, NULL, NULL, req);
        r = r == COMM_OK ? one : r;
        if (b->failed) /* by what a peer said of this very call: nothing is queued after that */
            return (enum comm_result)b->cause.result;
    }
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
