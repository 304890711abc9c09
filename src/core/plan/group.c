/*
 * Groups: recorded like plans, started once. The members of a group have no order among themselves. So members that conflict are refused,
 * waits come first, and small allreduces are packed into one exchange. If one call is refused, the whole group is refused, under one
 * number, because the other members need not be equal on the ranks that refuse.
 */
#include "plan/plan.h"
#include "plan/recording.h"

#include "comm/pack.h"

#include <commstream/collective.h>

/* ------------------------------------------------------------------------------------------------------------ conflicts */
/* The length of bytes is only known when the group ends. */
static struct plan_ranges ranges_of_bytes(const struct comm_state *b, const struct engine_call *call)
{
    size_t bytes = *(const size_t *)call->in;
    struct timeline_range buf = {(uintptr_t)call->out, (uintptr_t)call->out + (bytes == COMM_ROOT_FAILED ? 0 : bytes)};

    return b->team.rank == call->root ? (struct plan_ranges){.read = buf} : (struct plan_ranges){.write = buf};
}

struct plan_ranges plan_ranges_of(const struct comm_state *b, const struct plan_step *step)
{
    struct plan_ranges ranges = {{0, 0}, {0, 0}};

    if (step->kind == STEP_CALL && step->call.collective == COLLECTIVE_BROADCAST_BYTES)
        ranges = ranges_of_bytes(b, &step->call);
    else if (step->kind == STEP_CALL)
        ranges = (struct plan_ranges){step->call.read, step->call.write};
    else if (step->kind == STEP_P2P)
        *(step->message.is_send ? &ranges.read : &ranges.write) =
            (struct timeline_range){(uintptr_t)step->message.buf, (uintptr_t)step->message.buf + step->message.bytes};
    return ranges;
}

/* Are two steps parts of one call? */
static bool one_call(const struct comm_plan *plan, uint32_t i, uint32_t k)
{
    return i - plan->step[i].call.nth == k - plan->step[k].call.nth;
}

/* Do two members conflict? A comparison with the union of all earlier members usually answers. */
static bool members_conflict(const struct comm_state *b, const struct comm_plan *plan)
{
    struct plan_ranges before = {{0, 0}, {0, 0}};

    for (uint32_t i = 0; i < plan->count; i++) {
        struct plan_ranges one = plan_ranges_of(b, &plan->step[i]);
        for (uint32_t k = 0; plan_meet(&before, &one) && k < i; k++) {
            struct plan_ranges other = plan_ranges_of(b, &plan->step[k]);
            if (!one_call(plan, i, k) && plan_meet(&other, &one))
                return true;
        }
        timeline_widen(&before.read, &one.read);
        timeline_widen(&before.write, &one.write);
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ sealing */
/* Picks the calls that go into one pack: the first ones that fit, until the block is full. */
static uint32_t pick_small(struct comm_state *b, const struct comm_plan *plan, const struct engine_call **small, uint32_t *from)
{
    uint32_t count = 0;
    size_t bytes = 0, one;

    for (uint32_t i = 0; i < plan->count && count < PACK_PARTS_MAX; i++) {
        if (plan->step[i].kind != STEP_CALL || !pack_fits(b, &plan->step[i].call, &one) || bytes + one > PACK_BYTES_MAX)
            continue;
        small[count] = &plan->step[i].call;
        from[count++] = i;
        bytes += one;
    }
    return count;
}

/* Replaces the packed calls by one call, at the position of the first. */
static enum comm_result pack_small(struct comm_state *b, struct comm_plan *plan)
{
    const struct comm_env *env = b->unit.engine->env;
    size_t bytes = plan->count * (sizeof(struct engine_call *) + sizeof(uint32_t));
    const struct engine_call **small = plan->count > 1 ? env->take(env, bytes, 64) : NULL;
    enum comm_result r = COMM_OK;

    if (!small)
        return plan->count > 1 ? COMM_ERR_MEMORY : COMM_OK;
    uint32_t *from = (uint32_t *)(void *)(small + plan->count), count = pick_small(b, plan, small, from);
    if (count > 1) {
        struct pack *pack = pack_make(b, small, count);
        uint32_t kept = from[0] + 1, next = 1;
        r = pack ? COMM_OK : COMM_ERR_MEMORY;
        if (pack)
            plan->step[from[0]] = (struct plan_step){.kind = STEP_CALL, .call = pack_call(pack, ENGINE_CALL_GROUP), .pack = pack};
        for (uint32_t i = kept; pack && i < plan->count; i++) {
            if (next < count && i == from[next])
                next++;
            else
                plan->step[kept++] = plan->step[i];
        }
        if (pack)
            plan->count = kept;
    }
    env->give(env, small, bytes);
    return r;
}

static void waits_first(struct comm_plan *plan)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->step[i].kind != STEP_WAIT)
            continue;
        struct plan_step wait = plan->step[i];
        for (uint32_t k = i; k > first; k--)
            plan->step[k] = plan->step[k - 1];
        plan->step[first++] = wait;
    }
}

static enum comm_result seal(struct comm_state *b, struct comm_plan *plan)
{
    if (plan->refused != COMM_OK)
        return plan->refused;
    plan->conflicts = members_conflict(b, plan);
    if (plan->conflicts)
        return COMM_ERR_ARGUMENT;
    waits_first(plan);
    return pack_small(b, plan);
}

/* ------------------------------------------------------------------------------------------------------------ ending */
static enum comm_result into_plan(struct comm_plan *plan, struct comm_plan *group)
{
    enum comm_result r = COMM_OK;

    for (uint32_t i = 0; i < group->count && r == COMM_OK; i++) {
        struct plan_step *step = &group->step[i];
        struct engine_call call = plan_call(group, i);
        if (step->kind == STEP_CALL && !step->pack) {
            r = plan_add_call(plan, &call, ENGINE_CALL_PLAN);
            continue;
        }
        step->call.flags |= ENGINE_CALL_PLAN;
        r = plan_add(plan, step);
        if (r == COMM_OK)
            step->pack = NULL;
    }
    return r;
}

static enum comm_result end_locked(struct comm_state *b, struct comm_plan *group, struct comm_request *req)
{
    struct comm_plan *plan = b->recording.plan;

    if (b->failed || (plan && plan->group))
        return b->failed ? (enum comm_result)b->failure.cause.result : COMM_ERR_STATE;
    enum comm_result r = seal(b, group);
    if (plan)
        return plan_keep(plan, r == COMM_OK ? into_plan(plan, group) : r);
    return r == COMM_OK ? plan_start(b, group, req)
                        : state_refuse(b, &(struct engine_call){.collective = COLLECTIVE_GROUP, .flags = ENGINE_CALL_GROUP}, r);
}

static void explain(struct comm_communicator *c, const struct comm_plan *group, enum comm_result r)
{
    if (group->conflicts)
        (void)engine_decline(c, r, NULL,
                             "group: of %u members two use the same memory, and one of them writes it; expected members in any order",
                             group->count);
}

enum comm_result engine_group_begin(struct comm_communicator *c, struct comm_communicator **recorder)
{
    return plan_begin(c, true, recorder);
}

enum comm_result engine_group_end(struct comm_communicator *recorder, struct comm_request *req)
{
    enum comm_result r;
    struct comm_plan *group = plan_take(recorder, true, &r);
    struct comm_state *b = group ? plan_lock_target(group, &r) : NULL;

    if (req)
        *req = COMM_REQUEST_NONE;
    if (b) {
        r = end_locked(b, group, req);
        if (!b->recording.plan)
            state_settle(b);
        state_unlock(b);
        explain(group->target, group, r);
    }
    if (group)
        plan_drop(group);
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}
