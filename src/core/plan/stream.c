/*
 * Plans on a communicator whose library works in a stream, with messages of device memory that are staged beside it (p2p/tagged.c). What
 * the stream does is put there first (plan_put_in_turn), and these messages follow all of it.
 */
#include "plan/plan.h"
#include "plan/recording.h"

#include "p2p/op.h"

static bool is_of_stream(struct comm_state *b, const struct comm_plan *plan, uint32_t i)
{
    const struct plan_step *step = &plan->step[i];
    struct engine_call call = plan_call(plan, i);

    if (step->kind == STEP_CALL)
        return b->library->takes(b, &call) != COMM_ERR_UNSUPPORTED;
    return step->kind == STEP_WAIT || (step->kind == STEP_P2P && p2p_is_in_stream(b, &step->message));
}

bool plan_put_in_turn(struct comm_state *b, struct comm_plan *plan)
{
    if (BASE_LIKELY(!(b->library_work.flags & NATIVE_STREAM)) || (plan->count == 1 && b->line.started + 1 == b->line.next))
        return true;
    for (uint32_t i = 0; i < plan->count && !plan->in_turn; i++) {
        plan->step[i].late = !is_of_stream(b, plan, i);
        plan->has_stream |= !plan->step[i].late || (plan->step[i].kind == STEP_P2P && p2p_is_beside_stream(b, &plan->step[i].message));
    }
    plan->in_turn = true;
    return !plan->has_stream || state_held_back(b, NULL) == COMM_OK;
}

/* The length of broadcast_bytes is not known before its turn, and its memory is the host's. */
static bool uses_stream(struct comm_state *b, const struct plan_step *step)
{
    if (step->kind == STEP_CALL)
        return step->call.collective != COLLECTIVE_BROADCAST_BYTES;
    return step->kind == STEP_P2P && p2p_is_in_stream(b, &step->message);
}

static bool is_beside(struct comm_state *b, const struct plan_step *step)
{
    return step->kind == STEP_P2P && p2p_is_beside_stream(b, &step->message);
}

static bool overtakes(struct comm_state *b, const struct comm_plan *plan, uint32_t message)
{
    struct plan_ranges one = plan_ranges_of(b, &plan->step[message]);

    for (uint32_t k = message + 1; k < plan->count; k++) {
        if (!uses_stream(b, &plan->step[k]))
            continue;
        struct plan_ranges other = plan_ranges_of(b, &plan->step[k]);
        if (plan_meet(&one, &other))
            return true;
    }
    return false;
}

bool plan_overtakes(const struct comm_plan *plan)
{
    enum comm_result r;
    struct comm_state *b = plan->messages ? plan_lock_target(plan, &r) : NULL;
    bool does = false;

    for (uint32_t i = 0; b && !does && i < plan->count; i++)
        does = is_beside(b, &plan->step[i]) && overtakes(b, plan, i);
    if (b)
        state_unlock(b);
    return does;
}

/* The first of these messages; NULL: there is none. */
static const struct message_call *beside_stream(struct comm_state *b, const struct comm_plan *plan)
{
    for (uint32_t i = 0; plan->messages && b->library_work.flags & NATIVE_STREAM && i < plan->count; i++)
        if (is_beside(b, &plan->step[i]))
            return &plan->step[i].message;
    return NULL;
}

/* That such messages can follow the stream now is found out by making an entry that they could follow. */
enum comm_result plan_meet_stream(struct comm_state *b, const struct comm_plan *plan, uint64_t *behind)
{
    const struct message_call *message = beside_stream(b, plan);
    enum comm_result r = COMM_OK;

    for (uint32_t i = 0; i < plan->count && r == COMM_OK && b->p2p.pending && b->library_work.flags & NATIVE_STREAM; i++) {
        if (!uses_stream(b, &plan->step[i]))
            continue;
        struct plan_ranges use = plan_ranges_of(b, &plan->step[i]);
        r = p2p_precede_stream(b, &use.read, &use.write);
    }
    return r == COMM_OK && message ? p2p_follow_stream(b, message, behind) : r;
}

enum comm_result plan_follow_stream(struct comm_state *b, const struct comm_plan *plan, uint64_t behind)
{
    const struct message_call *message = plan->group ? NULL : beside_stream(b, plan);

    b->p2p.follows = plan->group ? behind : 0; /* no two calls of a group use the same memory, and they have no order */
    return message ? p2p_follow_stream(b, message, &b->p2p.follows) : COMM_OK;
}
