/* Plans: recorded collectives, messages and queue waits that are started many times. A recorder is a handle whose state only records.
 * Groups use the same list. */
#include "plan/plan.h"
#include "plan/recording.h"

#include "comm/pack.h"
#include "event/event.h"
#include "fastpath/fastpath.h"
#include "p2p/op.h"

#include <string.h>

enum { FIRST_STEPS = 8 };

/* With its communicator closed, nothing is kept any more. */
static void stand_back(struct comm_plan *plan)
{
    enum comm_result r;
    struct comm_state *b = plan_lock_target(plan, &r);

    for (uint32_t i = 0; b && b->library && i < plan->count; i++)
        if (plan->step[i].standing)
            b->library->stand_back(b, plan->step[i].standing);
    if (b)
        state_unlock(b);
}

void plan_drop(struct comm_plan *plan)
{
    const struct comm_env *env = plan->engine->env;
    struct engine *e = plan->engine;

    if (atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->step[i].pack)
            pack_drop(plan->step[i].pack);
    if (plan->number)
        stand_back(plan);
    env_give_back(env, plan->step, plan->room * sizeof *plan->step);
    env_give_back(env, plan->vectors, plan->vector_room * STATE_VECTORS * (size_t)plan->size * sizeof *plan->vectors);
    env->give(env, plan, sizeof *plan);
    engine_drop(e);
}

/* Doubles the room. NULL: no memory, and nothing changed. */
static void *grow(const struct comm_env *env, void *old, uint32_t count, uint32_t *room, size_t item)
{
    uint32_t more = *room ? *room * 2 : FIRST_STEPS;
    void *bigger = env->take(env, more * item, 64);

    if (bigger && old) {
        memcpy(bigger, old, count * item);
        env->give(env, old, *room * item);
    }
    if (bigger)
        *room = more;
    return bigger;
}

enum comm_result plan_add(struct comm_plan *plan, const struct plan_step *step)
{
    if (plan->count == plan->room) {
        struct plan_step *bigger = grow(plan->engine->env, plan->step, plan->count, &plan->room, sizeof *plan->step);
        if (!bigger)
            return COMM_ERR_MEMORY;
        plan->step = bigger;
    }
    plan->step[plan->count++] = *step;
    plan->messages += step->kind == STEP_P2P;
    plan->waits += step->kind == STEP_WAIT;
    plan->doubles += step->kind == STEP_CALL && step->call.collective == COLLECTIVE_BROADCAST_BYTES;
    return COMM_OK;
}

static void copy_vector(size_t *to, const size_t *from, size_t size)
{
    if (from)
        memcpy(to, from, size * sizeof *to);
}

enum comm_result plan_add_call(struct comm_plan *plan, const struct engine_call *call, uint32_t flags)
{
    struct plan_step step = {.kind = STEP_CALL, .vectors = plan->vector_count, .call = *call};
    size_t size = plan->size, block = STATE_VECTORS * size;

    step.call.flags |= flags;
    if (call->counts) {
        if (plan->vector_count == plan->vector_room) {
            size_t *bigger = grow(plan->engine->env, plan->vectors, plan->vector_count, &plan->vector_room, block * sizeof *plan->vectors);
            if (!bigger)
                return COMM_ERR_MEMORY;
            plan->vectors = bigger;
        }
        size_t *vectors = plan->vectors + plan->vector_count++ * block;
        copy_vector(vectors, call->counts, size);
        copy_vector(vectors + size, call->displs, size);
        copy_vector(vectors + 2 * size, call->places ? call->places : call->in_counts, size);
        copy_vector(vectors + 3 * size, call->in_displs, size);
    }
    return plan_add(plan, &step);
}

struct engine_call plan_call(const struct comm_plan *plan, uint32_t i)
{
    struct engine_call call = plan->step[i].call;
    size_t size = plan->size;

    if (call.counts) {
        call.counts = plan->vectors + plan->step[i].vectors * STATE_VECTORS * size;
        call.displs = call.counts + size;
    }
    if (call.in_counts) {
        call.in_counts = call.counts + 2 * size;
        call.in_displs = call.counts + 3 * size;
    }
    if (call.places)
        call.places = call.counts + 2 * size;
    return call;
}

enum comm_result plan_keep(struct comm_plan *plan, enum comm_result r)
{
    if (plan->refused == COMM_OK)
        plan->refused = r;
    return r;
}

static enum comm_result record_call(struct comm_state *recorder, const struct engine_call *call)
{
    struct comm_plan *plan = recorder->recording.plan;

    return plan_keep(plan, plan_add_call(plan, call, plan->group ? ENGINE_CALL_GROUP : ENGINE_CALL_PLAN));
}

static void record_refusal(struct comm_state *recorder, enum comm_result reason)
{
    if (reason != COMM_ERR_STATE) /* a call that no plan can have */
        (void)plan_keep(recorder->recording.plan, reason);
}

static enum comm_result record_message(struct comm_state *recorder, const struct message_call *message)
{
    struct comm_plan *plan = recorder->recording.plan;

    return plan_keep(plan, plan_add(plan, &(struct plan_step){.kind = STEP_P2P, .message = *message}));
}

static enum comm_result record_wait(struct comm_state *recorder, struct comm_event *event, const struct timeline_point *point)
{
    struct plan_step step = {.kind = STEP_WAIT, .event = event};

    if (!event)
        step.point = *point;
    return plan_keep(recorder->recording.plan, plan_add(recorder->recording.plan, &step));
}

static const struct call_recorder recorder_calls = {
    .call = record_call, .message = record_message, .wait = record_wait, .refused = record_refusal};

/* ------------------------------------------------------------------------------------------------------------ recording */
static struct comm_plan *plan_make(struct comm_state *b, bool group)
{
    struct comm_plan *plan = b->unit.engine->env->take(b->unit.engine->env, sizeof *plan, 64);

    if (!plan)
        return NULL;
    plan->engine = b->unit.engine;
    plan->target = b->unit.handle;
    plan->target_life = b->unit.handle->life;
    plan->size = (uint32_t)b->team.size;
    plan->group = group;
    atomic_store_explicit(&plan->references, 1, memory_order_relaxed);
    engine_hold(plan->engine);
    return plan;
}

enum comm_result plan_begin(struct comm_communicator *c, bool group, struct comm_communicator **recorder)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r), *made;

    if (!b)
        return r;
    bool nested = b->recording.plan && !(group && !b->recording.plan->group); /* only a group inside a plan is allowed */
    if (nested || b->failed) {
        r = nested ? COMM_ERR_STATE : (enum comm_result)b->failure.cause.result;
        state_unlock(b);
        return r;
    }
    made = state_recorder(b);
    if (made)
        made->recording = (struct recording){.calls = &recorder_calls, .for_library = b->library || b->recording.for_library};
    if (made && !(made->recording.plan = plan_make(b, group))) {
        state_destroy(made);
        made = NULL;
    }
    state_unlock(b);
    if (!made)
        return COMM_ERR_MEMORY;
    atomic_store_explicit(&made->unit.handle->state, made, memory_order_release);
    *recorder = made->unit.handle;
    return COMM_OK;
}

static struct call_shape alone(const struct comm_plan *plan)
{
    bool alone = plan->count == 1 && !plan->messages && !plan->group && !plan->doubles && plan->step[0].kind == STEP_CALL &&
                 !plan->step[0].call.on_device;

    return alone ? call_shape_of(&plan->step[0].call, 0) : (struct call_shape){.known = false};
}

struct comm_plan *plan_take(struct comm_communicator *recorder, bool group, enum comm_result *r)
{
    struct comm_state *b = state_lock(recorder, r);

    if (!b)
        return NULL;
    struct comm_plan *plan = b->recording.plan && b->recording.plan->group == group ? b->recording.plan : NULL;
    if (plan) {
        b->recording.plan = NULL;
        plan->alone = alone(plan);
        atomic_store_explicit(&recorder->state, NULL, memory_order_release);
    }
    state_unlock(b);
    if (plan)
        state_destroy(b);
    else
        *r = COMM_ERR_STATE;
    return plan;
}

enum comm_result engine_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder)
{
    return plan_begin(c, false, recorder);
}

enum comm_result engine_plan_end(struct comm_communicator *recorder, struct comm_plan **plan)
{
    enum comm_result r;
    struct comm_plan *made = plan_take(recorder, false, &r);

    if (!made)
        return r;
    r = made->refused;
    if (r == COMM_OK && plan_overtakes(made))
        r = engine_decline(made->target, COMM_ERR_UNSUPPORTED, NULL,
                           "plan: a call in the stream uses memory of an earlier message with a tag; expected it in a plan of its own");
    if (r == COMM_OK)
        *plan = made;
    else
        plan_drop(made);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ starting */
static enum comm_result start_call(struct comm_state *b, const struct comm_plan *plan, uint32_t i, struct comm_request *req)
{
    struct engine_call call = plan_call(plan, i);
    struct pack *pack = plan->step[i].pack;

    enum comm_result r = COMM_ERR_UNSUPPORTED;
    if (call.collective == COLLECTIVE_BROADCAST_BYTES)
        return bytes_issue(b, &call, req);
    if (plan->number)
        r = b->library->issue_standing(b, &call, &plan->step[i].standing, plan->number, req);
    if (r != COMM_ERR_UNSUPPORTED)
        return r;
    if (!call.on_device && (fastpath_issue(b, &call, req) || (b->library && b->library->issue(b, &call, req))))
        return COMM_OK;
    r = state_issue(b, &call, NULL, NULL, req);
    if (r == COMM_OK && pack && !b->failed)
        pack_stand(state_entry(b, b->line.next - 1), pack);
    return r;
}

/* The recorder of a communicator with a stream does not know where the memory is. */
static enum comm_result start_message(struct comm_state *b, struct message_call message, uint32_t marker)
{
    message.on_device |= p2p_is_beside_stream(b, &message);
    return p2p_post(b, &message, marker, NULL);
}

static enum comm_result start_step(struct comm_state *b, const struct comm_plan *plan, uint32_t i, uint32_t marker,
                                   struct comm_request *req)
{
    switch (plan->step[i].kind) {
    case STEP_P2P:
        return start_message(b, plan->step[i].message, marker);
    case STEP_WAIT:
        return queue_wait_issue(b, &plan->step[i].point, req);
    case STEP_CALL:
        break;
    }
    return start_call(b, plan, i, req);
}

/* A message that the library does. Only the target's state, not the recorder's, can tell whether it is in device memory. */
static bool is_of_device(struct comm_state *b, const struct plan_step *step)
{
    return step->kind == STEP_P2P && p2p_is_in_stream(b, &step->message);
}

/* Each of these, with any tag, is an entry of the queue. */
static uint32_t device_messages(struct comm_state *b, const struct comm_plan *plan)
{
    uint32_t count = 0;

    for (uint32_t i = 0; b->library_work.flags && plan->messages && i < plan->count; i++)
        count += plan->step[i].kind == STEP_P2P && state_is_device_memory(b, plan->step[i].message.buf);
    return count;
}

/* Starts `most` steps, those that are device messages, as one call. All of a group are one call: one by one, each would block the stream
 * until its peer's message comes, and two ranks that both send first would wait for each other. */
static enum comm_result start_device(struct comm_state *b, const struct comm_plan *plan, uint32_t first, uint32_t most)
{
    const struct comm_env *env = b->unit.engine->env;
    uint32_t count = 0;
    struct native_message *messages = env->take(env, most * sizeof *messages, 64);
    enum comm_result r = messages ? COMM_OK : COMM_ERR_MEMORY;

    for (uint32_t i = first; i < first + most && r == COMM_OK; i++)
        if (is_of_device(b, &plan->step[i]))
            r = p2p_of_device(b, &plan->step[i].message, &messages[count++]);
    if (r == COMM_OK && count)
        r = state_stream_messages(b, messages, count, NULL);
    env_give_back(env, messages, most * sizeof *messages);
    return r;
}

static enum comm_result start_member(struct comm_state *b, const struct comm_plan *plan, uint32_t i, uint32_t marker, bool devices,
                                     struct comm_request *req)
{
    if (!devices || !is_of_device(b, &plan->step[i]))
        return start_step(b, plan, i, marker, req);
    return plan->group ? COMM_OK : start_device(b, plan, i, 1);
}

static enum comm_result start_turn(struct comm_state *b, const struct comm_plan *plan, bool late, uint32_t marker, bool devices,
                                   struct comm_request *req)
{
    enum comm_result r = COMM_OK;

    for (uint32_t i = 0; i < plan->count && !b->failed; i++) {
        enum comm_result one = plan->step[i].late == late ? start_member(b, plan, i, marker, devices, req) : COMM_OK;
        r = r == COMM_OK ? one : r;
    }
    return r;
}

/* A library may start the collectives of a group together. The device messages of a group come after them: ranks may have different
 * messages, and all of them must put the collectives into the stream in one order. */
static enum comm_result start_members(struct comm_state *b, const struct comm_plan *plan, uint32_t marker, bool devices, uint64_t behind,
                                      struct comm_request *req)
{
    bool together = plan->group && b->library;
    enum comm_result r, one = COMM_OK;

    if (together)
        b->library->group(b, true);
    r = start_turn(b, plan, false, marker, devices, req);
    if (together)
        b->library->group(b, false);
    if (plan->group && devices && !b->failed)
        one = start_device(b, plan, 0, plan->count);
    r = r == COMM_OK ? one : r;
    one = b->failed ? COMM_OK : plan_follow_stream(b, plan, behind);
    r = r == COMM_OK ? one : r;
    one = start_turn(b, plan, true, marker, devices, req);
    b->p2p.follows = 0;
    return r == COMM_OK ? one : r;
}

/* A library that keeps calls of plans between their starts knows a plan by its number. All ranks have the same plans of collectives, and
 * each rank may have others, of messages. */
static void number(struct comm_state *b, struct comm_plan *plan)
{
    for (uint32_t i = 0; !plan->number && !plan->group && i < plan->count; i++)
        if (plan->step[i].kind == STEP_CALL)
            plan->number = ++b->library_work.plans;
}

/* With messages, the request is a marker behind all members. Otherwise it is the last work entry. If a member cannot be queued, the request
 * ends with that error too, but only after the other members. */
enum comm_result plan_start(struct comm_state *b, struct comm_plan *plan, struct comm_request *req)
{
    enum comm_result r = COMM_OK;
    uint32_t marker = P2P_NONE, of_devices = device_messages(b, plan);
    uint64_t behind = 0;
    uint32_t marks = of_devices ? 2 : 0; /* plan_meet_stream, plan_follow_stream */
    uint32_t work = plan->count - plan->messages + plan->doubles + of_devices + marks;

    BASE_ASSERT(!b->recording.plan); /* a recorder has no queue */
    bool in_turn = plan_put_in_turn(b, plan);
    if (b->failed)
        return (enum comm_result)b->failure.cause.result;
    if (!in_turn || !timeline_reserve(&b->line, work) || ((plan->messages || plan->group) && !p2p_reserve(b, plan->messages)))
        return COMM_ERR_FULL;
    r = plan_keep_waits(b, plan);
    if (r != COMM_OK)
        return r;
    r = plan_meet_stream(b, plan, &behind); /* last: it leaves a mark on the stream, which a FULL must not */
    if (r != COMM_OK || b->failed) {
        plan_leave_waits(b, plan);
        return b->failed ? (enum comm_result)b->failure.cause.result : r;
    }
    if (BASE_UNLIKELY(b->library_work.flags & NATIVE_STANDS && !plan->number))
        number(b, plan);
    if (plan->messages || (plan->group && plan->doubles))
        r = p2p_open_marker(b, plan->group, &marker);
    if (r == COMM_OK)
        r = start_members(b, plan, marker, of_devices != 0, behind, req);
    plan_leave_waits(b, plan);
    if (b->failed) /* a peer's note on one of the calls failed the communicator: nothing is queued after that */
        return (enum comm_result)b->failure.cause.result;
    if (r != COMM_OK && plan->group && plan->count > 1 && marker == P2P_NONE)
        (void)p2p_open_marker(b, true, &marker);
    if (marker == P2P_NONE)
        return r;
    p2p_close_marker(b, marker, r, req);
    return plan->group ? COMM_OK : r;
}

struct comm_state *plan_lock_target(const struct comm_plan *plan, enum comm_result *r)
{
    struct comm_state *b = state_lock(plan->target, r);

    if (BASE_LIKELY(b && plan->target->life == plan->target_life))
        return b;
    if (b) {
        state_unlock(b);
        *r = COMM_ERR_CLOSED;
    }
    return NULL;
}

/* Starts a plan that is one small exchange. false: nothing happened. */
static inline bool start_alone(struct comm_state *b, const struct comm_plan *plan, struct comm_request *req)
{
    if (!plan->alone.known) /* it may have no step at all */
        return false;
    const struct engine_call *as = &plan->step[0].call;
    if (BASE_LIKELY(fastpath_again(b, &plan->alone, as->in, as->out, req)))
        return true;
    struct engine_call call = plan_call(plan, 0);
    return fastpath_issue(b, &call, req);
}

enum comm_result engine_plan_start(struct comm_plan *plan, struct comm_request *req)
{
    enum comm_result r;
    struct comm_state *b = plan ? plan_lock_target(plan, &r) : NULL;

    if (!plan)
        r = COMM_ERR_ARGUMENT;
    if (req)
        *req = COMM_REQUEST_NONE;
    if (b && start_alone(b, plan, req)) {
        state_unlock(b);
        return COMM_OK;
    }
    if (b) {
        r = b->failed ? (enum comm_result)b->failure.cause.result : plan_start(b, plan, req);
        state_settle(b);
        state_unlock(b);
    }
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}

void engine_plan_free(struct comm_plan *plan)
{
    if (engine_is_own(plan->engine))
        plan_drop(plan);
}
