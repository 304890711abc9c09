/*
 * Creating calls. They are operations of the parent's queue, in stages that are issued together, each with its own number. Each stage reads
 * data that the end of the previous one wrote, so the queue itself keeps them in order:
 *
 *   colors   (split only) which ranks belong together; the memory for a channel depends on the number of members
 *   offers   the offers of all members for the new channel; then each member connects
 *   ready    whether every member could connect: all succeed, or all end with the same error
 *
 * So if a rank gets a child from the last stage, all members have connected. If the parent fails at just that moment, one member may have
 * the child and another not. The other one is connected, and fails the child with the parent's cause before it drops it, so that no rank
 * waits there for a rank that will never come.
 */
#include "world/communicators.h"
#include "world/create.h"
#include "world/part_table.h"

#include "base/format.h"
#include "fastpath/wait.h"

#include <string.h>

enum { STAGE_COLORS, STAGE_OFFERS, STAGE_READY };
/* In `ready`, added to the result: only the library could not connect, and the child can do without it. */
enum { READY_STAGED = 1 << 16 };

#define CREATION_OPTION "algorithm="

static size_t creation_bytes(int32_t size)
{
    return sizeof(struct creation) + (size_t)size * (2 * sizeof(struct team_ticket) + sizeof(struct team_offer) + 2 * sizeof(int32_t));
}

void creation_drop(struct creation *n)
{
    if (--n->references)
        return;
    if (n->child)
        state_destroy(n->child);
    n->env->give(n->env, n, creation_bytes(n->size));
}

void creation_name(struct creation *n, const char *parent, const char *own)
{
    base_format(n->name, sizeof n->name, "%.*s/%s", (int)(sizeof n->name - 2 - strlen(own)), parent, own);
}

struct creation *creation_make(struct comm_state *b, struct comm_communicator **out)
{
    const struct comm_env *env = b->unit.engine->env;
    struct creation *n = env->take(env, creation_bytes(b->team.size), 64);

    if (!n)
        return NULL;
    n->env = env;
    n->size = b->team.size;
    n->out = out;
    n->all[0] = (struct team_ticket *)(void *)(n + 1);
    n->all[1] = n->all[0] + n->size;
    n->offers = (struct team_offer *)(void *)(n->all[1] + n->size);
    n->members = (int32_t *)(void *)(n->offers + n->size);
    n->all_ready = n->members + n->size;
    n->references = 1;
    n->number = b->sequence + 1;
    return n;
}

static int32_t everybody(struct creation *n)
{
    for (int32_t r = 0; r < n->size; r++)
        n->members[r] = r;
    return n->size;
}

/* True if children use no library. A child of a shrunk communicator uses one only if the library can create new groups whatever became of
 * the old ones. MPI cannot. */
static bool without_library(const struct comm_state *parent)
{
    const struct native *native = parent->world->native;

    return parent->terms.programs_only && !(native && native->flags & (NATIVE_STREAM | NATIVE_DEVICE));
}

void creation_offer(struct comm_state *parent, struct creation *n, int32_t count)
{
    struct state_config config = {.world = parent->world,
                                  .timeout_ns = parent->timeout_ns,
                                  .name = n->name,
                                  .forced = n->forced[0] ? n->forced : parent->terms.forced,
                                  .priority = n->dup ? n->options.priority : parent->terms.priority,
                                  .free_order = parent->terms.free_order,
                                  .fixed_order = parent->terms.fixed_order,
                                  .programs_only = without_library(parent),
                                  .stream = n->options.stream ? n->options.stream : parent->terms.stream};
    struct team_ticket *mine = &n->mine[1];

    if (n->options.operation_timeout_ns)
        config.timeout_ns = n->options.operation_timeout_ns;
    if (n->options.order != COMM_ORDER_DEFAULT) {
        config.free_order = n->options.order == COMM_ORDER_FREE;
        config.fixed_order = n->options.order == COMM_ORDER_FIXED;
    }
    mine->color = n->color;
    mine->result = team_subset(parent->unit.engine->env, &parent->team, n->number, n->identity, n->members, count, &config.team);
    if (mine->result == COMM_OK)
        mine->result = state_create(parent->unit.engine, &config, &mine->offer, &n->child);
}

/* ------------------------------------------------------------------------------------------------------------ ends of stages */
static void colors_known(struct comm_state *b, struct creation *n)
{
    if (n->color >= 0)
        creation_offer(b, n, team_pick(n->all[0], n->size, b->team.rank, n->members));
    else
        n->mine[1].color = -1;
}

/* The result that a member reported. */
static enum comm_result result_of(int32_t said)
{
    return heard_is_result(said) ? (enum comm_result)said : COMM_ERR_CORRUPT;
}

/* Connects the child. The members' offers are here. All ranks know alike whether an offer is missing, but not whether every member could
 * connect. */
static enum comm_result connect_child(struct creation *n)
{
    enum comm_result worst = COMM_OK;
    int32_t count = n->child ? n->child->team.size : 0;

    for (int32_t r = 0; r < n->size; r++)
        if (n->all[1][r].result != COMM_OK)
            worst = result_of(n->all[1][r].result);
    if (worst != COMM_OK || !n->child)
        return worst;
    if (n->connecting)
        return state_library_joined(n->child);
    for (int32_t i = 0; i < count; i++)
        n->offers[i] = n->all[1][n->members[i]].offer;
    worst = state_connect(n->child, n->offers);
    n->connecting = worst == COMM_OK;
    return worst == COMM_OK ? state_library_joined(n->child) : worst;
}

/* Until this returns OK, no rank has the child, because this rank has not reported that it is ready. */
enum comm_result creation_connect(struct creation *n)
{
    enum comm_result r = connect_child(n);

    if (r == COMM_PENDING)
        return r;
    bool staged = r != COMM_OK && n->connecting && n->child->world->falls_back;
    n->connected = n->child && (r == COMM_OK || staged);
    n->ready = (int32_t)r + (staged ? READY_STAGED : 0);
    return COMM_OK;
}

static bool is_staged(const struct creation *n, int32_t rank)
{
    int32_t result = n->all_ready[rank] - READY_STAGED;

    return heard_is_result(result) && result != COMM_OK;
}

/* The library could not connect a member of the child, so no member uses it there. */
static void do_without(struct creation *n, int32_t rank)
{
    struct comm_state *child = n->child;

    if (child->team.rank == 0)
        base_log(&child->unit.engine->log, LOG_WARNING,
                 "nccl_fallback: comm=%s: rank %d was not connected by %s (%s); device buffers are staged", child->name, rank,
                 child->world->backend->name, base_result_name(result_of(n->all_ready[n->members[rank]] - READY_STAGED)));
    child->library->drop(child);
}

enum comm_result creation_agreed(struct creation *n)
{
    int32_t count = n->child ? n->child->team.size : 0, staged = -1;

    for (int32_t r = 0; r < n->size; r++)
        if (n->all_ready[r] != COMM_OK && !is_staged(n, r))
            return result_of(n->all_ready[r]);
    for (int32_t i = count; i-- > 0;)
        staged = is_staged(n, n->members[i]) ? i : staged;
    if (staged >= 0 && n->child->library)
        do_without(n, staged);
    return COMM_OK;
}

/* The rank in the child of a rank of the parent; -1: it is not a member. */
static int32_t rank_in_child(const struct comm_state *parent, const struct comm_state *child, int32_t rank)
{
    return rank < 0 ? -1 : team_find(&child->team, parent->team.world[rank]);
}

/* Fails the child with the parent's cause. If the rank of that cause is not a member of the child, the cause is DEPENDENCY. */
void creation_fail(const struct comm_state *parent, struct creation *n)
{
    struct comm_state *child = n->child;
    struct cause cause = parent->failure.cause;

    if (!n->connected)
        return;
    n->connected = 0;
    cause.rank = rank_in_child(parent, child, cause.rank);
    cause.peer = rank_in_child(parent, child, cause.peer);
    if (cause.peer < 0)
        cause.peer = child->team.rank;
    if (cause.rank < 0)
        cause = (struct cause){.rank = child->team.rank,
                               .peer = child->team.rank,
                               .result = COMM_ERR_DEPENDENCY,
                               .collective = n->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT,
                               .point = (uint32_t)parent->failure.cause.result};
    base_home_visit(&child->unit.handle->lock, child->unit.handle->env);
    child->unit.closing = true; /* this rank will not be here when another one chooses */
    state_hear_abort(child);
    state_propose(child, &cause);
    base_home_unlock(&child->unit.handle->lock, child->unit.handle->env);
}

void creation_hand_over(struct creation *n)
{
    *n->out = n->child ? n->child->unit.handle : NULL;
    n->child = NULL;
}

static enum comm_result stage_ended(struct comm_state *b, struct creation *n, int stage)
{
    if (n->abandoned)
        return COMM_OK;
    if (stage == STAGE_READY)
        return n->result = creation_agreed(n);
    if (stage == STAGE_COLORS)
        colors_known(b, n);
    else
        return creation_connect(n);
    return COMM_OK;
}

static enum comm_result stage_at(struct comm_state *b, enum entry_phase phase, struct creation *n, int stage)
{
    if (phase == ENTRY_ENDED)
        return stage_ended(b, n, stage);
    if (phase == ENTRY_DROPPED)
        creation_fail(b, n);
    if (phase == ENTRY_RETIRED && stage == STAGE_READY && n->result == COMM_OK)
        creation_hand_over(n);
    creation_drop(n);
    return COMM_OK;
}

static enum comm_result colors_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    return stage_at(b, phase, arg, STAGE_COLORS);
}

static enum comm_result offers_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    return stage_at(b, phase, arg, STAGE_OFFERS);
}

static enum comm_result ready_at(struct comm_state *b, enum entry_phase phase, void *arg)
{
    return stage_at(b, phase, arg, STAGE_READY);
}

/* ------------------------------------------------------------------------------------------------------------ stages */
static struct timeline_range range_of(const void *at, size_t bytes)
{
    return (struct timeline_range){(uintptr_t)at, (uintptr_t)at + bytes};
}

/* Ranks must choose the same algorithms and orders of operands, so this is part of what they compare. 0: no options. */
static comm_op options_hash(const struct creation *n)
{
    uint64_t hash = n->options.order == COMM_ORDER_DEFAULT ? 0 : base_hash(0, (uint64_t)n->options.order);

    for (const char *at = n->forced; *at; at++)
        hash = base_hash(hash, (unsigned char)*at);
    return (comm_op)hash & ~OPERATOR_USER;
}

static enum comm_result issue_stage(struct comm_state *b, struct creation *n, int stage, struct comm_request *req)
{
    static entry_ended_fn *const at[] = {colors_at, offers_at, ready_at};
    const void *in = stage == STAGE_READY ? (const void *)&n->ready : &n->mine[stage];
    void *out = stage == STAGE_READY ? (void *)n->all_ready : n->all[stage];
    size_t bytes = stage == STAGE_READY ? sizeof n->ready : sizeof n->mine[stage];
    struct engine_call call = {
        .collective = n->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT, .type = COMM_BYTE, .in = in, .out = out, .n = bytes, .root = -1};

    call.op = options_hash(n);
    call.read = range_of(in, bytes);
    call.write = range_of(out, (size_t)n->size * bytes);
    struct timeline_range sent_next = range_of(&n->mine[1], sizeof n->mine[1]);
    if (stage == STAGE_OFFERS)
        sent_next = range_of(&n->ready, sizeof n->ready);
    if (stage != STAGE_READY) /* the end of a stage writes what the next one sends */
        timeline_widen(&call.write, &sent_next);
    n->references++;
    enum comm_result r = state_issue(b, &call, at[stage], n, req);
    if (r != COMM_OK)
        n->references--;
    return r;
}

/* Earlier stages have started, and the other ranks cannot go on without this one. */
static void abandon(struct comm_state *b, struct creation *n, enum comm_result why)
{
    struct cause cause = {.number = b->sequence,
                          .rank = b->team.rank,
                          .peer = b->team.rank,
                          .result = why,
                          .collective = n->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT};

    n->abandoned = 1;
    state_propose(b, &cause);
}

static enum comm_result create_locked(struct comm_state *b, struct creation *n, struct comm_request *req)
{
    enum comm_result r = COMM_OK;
    int first = n->dup ? STAGE_OFFERS : STAGE_COLORS;

    if (!timeline_reserve(&b->line, (uint64_t)(STAGE_READY - first + 1))) { /* all stages or none: FULL may be tried again */
        creation_drop(n);
        return COMM_ERR_FULL;
    }
    if (n->dup)
        creation_offer(b, n, everybody(n));
    else
        n->mine[0] = (struct team_ticket){.color = n->color, .key = n->key};
    for (int stage = first; stage <= STAGE_READY && r == COMM_OK; stage++) {
        r = issue_stage(b, n, stage, stage == STAGE_READY ? req : NULL);
        if (r != COMM_OK && stage != first)
            abandon(b, n, r);
        else if (r == COMM_OK && b->failed && stage != STAGE_READY) /* a peer's note on this call: all earlier stages have ended */
            r = (enum comm_result)b->failure.cause.result;
    }
    creation_drop(n);
    return r;
}

static enum comm_result issue(struct comm_state *b, const struct creation *how, struct comm_communicator **out, struct comm_request *req)
{
    enum comm_result r = COMM_OK;
    struct creation *n = b->failed || b->recording.plan ? NULL : creation_make(b, out);
    if (b->recording.plan)
        r = COMM_ERR_STATE;
    else if (b->failed)
        r = (enum comm_result)b->failure.cause.result;
    else if (!n) /* its number is used up too */
        r = state_refuse(b, &(struct engine_call){.collective = how->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT}, COMM_ERR_MEMORY);
    if (n) {
        n->dup = how->dup;
        n->color = how->color;
        n->identity = how->dup ? UINT64_C(1) << 32 : (uint64_t)how->color;
        n->key = how->key;
        n->options = how->options;
        base_copy_text(n->name, sizeof n->name, how->options.name);
        base_copy_text(n->forced, sizeof n->forced, how->options.options ? how->options.options + strlen(CREATION_OPTION) : NULL);
        if (!n->name[0]) {
            char own[24];
            base_format(own, sizeof own, "%llu", (unsigned long long)n->number);
            creation_name(n, b->name, own);
        }
        r = create_locked(b, n, req);
    }
    if (!b->recording.plan)
        state_settle(b);
    return r;
}

static enum comm_result create(struct comm_communicator *c, const struct creation *how, struct comm_communicator **out,
                               struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct comm_state *b = state_lock(c, &r);

    if (b) {
        r = issue(b, how, out, &own);
        state_unlock(b);
    }
    return engine_answer(r, own, req);
}

static enum comm_result copy(struct comm_state *b, struct comm_communicator **out, struct comm_request *req)
{
    return issue(b, &(struct creation){.dup = 1, .options = {.name = b->name, .priority = b->terms.priority}}, out, req);
}

enum comm_result engine_split(struct comm_communicator *c, int64_t color, int32_t key, struct comm_communicator **out,
                              struct comm_request *req)
{
    c->env->find_devices(c->env);
    return create(c, &(struct creation){.color = color, .key = key}, out, req);
}

enum comm_result engine_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                            struct comm_request *req)
{
    c->env->find_devices(c->env);
    return create(c, &(struct creation){.dup = 1, .options = *options}, out, req);
}

const struct comm_part create_part = {.name = "create", .copy = copy};
