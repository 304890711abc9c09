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
    if (n->abandoned) /* the communicator is about to fail; until then no rank may get the child */
        return stage == STAGE_READY ? COMM_PENDING : COMM_OK;
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

/* Earlier stages are queued, and the other ranks cannot go on without this one. */
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

static int first_stage(const struct creation *n)
{
    return n->dup ? STAGE_OFFERS : STAGE_COLORS;
}

/* There is room for all stages. `behind`: those of another creation of the same call come before. */
static enum comm_result issue_stages(struct comm_state *b, struct creation *n, bool behind, struct comm_request *req)
{
    enum comm_result r = COMM_OK;
    int first = first_stage(n);
    char own[24];

    n->number = b->sequence + 1;
    if (!n->name[0]) {
        base_format(own, sizeof own, "%llu", (unsigned long long)n->number);
        creation_name(n, b->name, own);
    }
    if (n->dup)
        creation_offer(b, n, everybody(n));
    else
        n->mine[0] = (struct team_ticket){.color = n->color, .key = n->key};
    for (int stage = first; stage <= STAGE_READY && r == COMM_OK; stage++) {
        r = issue_stage(b, n, stage, stage == STAGE_READY ? req : NULL);
        if (r != COMM_OK && (behind || stage != first))
            abandon(b, n, r);
        else if (r == COMM_OK && b->failed && stage != STAGE_READY) /* a peer's note on this call: all earlier stages have ended */
            r = (enum comm_result)b->failure.cause.result;
    }
    return r;
}

/* All stages of all, or none: FULL may be tried again. After another error no child is created: the caller's `out` may be gone. */
static enum comm_result issue_all(struct comm_state *b, struct creation *const *made, size_t count, struct comm_request *req)
{
    enum comm_result r = timeline_reserve(&b->line, count * (size_t)(STAGE_READY - first_stage(made[0]) + 1)) ? COMM_OK : COMM_ERR_FULL;

    for (size_t i = 0; i < count && r == COMM_OK; i++) {
        r = issue_stages(b, made[i], i > 0, req);
        if (r == COMM_OK && b->failed && i + 1 < count)
            r = (enum comm_result)b->failure.cause.result;
    }
    for (size_t i = 0; i < count && r != COMM_OK; i++)
        made[i]->abandoned = 1;
    return r;
}

/* What a call asks for. */
struct wanted {
    int64_t color;
    int32_t key;
    uint32_t dup;
    struct comm_options options;
};

static struct creation *make(struct comm_state *b, const struct wanted *wanted, struct comm_communicator **out)
{
    struct creation *n = creation_make(b, out);

    if (!n)
        return NULL;
    n->dup = wanted->dup;
    n->color = wanted->color;
    n->identity = wanted->dup ? UINT64_C(1) << 32 : (uint64_t)wanted->color;
    n->key = wanted->key;
    n->options = wanted->options;
    base_copy_text(n->name, sizeof n->name, wanted->options.name);
    base_copy_text(n->forced, sizeof n->forced, wanted->options.options ? wanted->options.options + strlen(CREATION_OPTION) : NULL);
    return n;
}

/* Issues up to CREATE_AXES_MAX creations together. The memory for all comes first: without it the call uses one number, and nothing is
 * queued. */
static enum comm_result issue(struct comm_state *b, const struct wanted *wanted, size_t count, struct comm_communicator **out,
                              struct comm_request *req)
{
    struct creation *made[CREATE_AXES_MAX];
    enum comm_result r = b->recording.plan ? COMM_ERR_STATE : b->failed ? (enum comm_result)b->failure.cause.result : COMM_OK;
    size_t have = 0;

    while (r == COMM_OK && have < count) {
        made[have] = make(b, &wanted[have], &out[have]);
        if (made[have])
            have++;
        else
            r = state_refuse(b, &(struct engine_call){.collective = wanted->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT}, COMM_ERR_MEMORY);
    }
    if (r == COMM_OK)
        r = issue_all(b, made, count, req);
    while (have > 0)
        creation_drop(made[--have]);
    if (!b->recording.plan)
        state_settle(b);
    return r;
}

static enum comm_result create(struct comm_communicator *c, const struct wanted *wanted, size_t count, struct comm_communicator **out,
                               struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;

    c->env->find_devices(c->env);
    struct comm_state *b = state_lock(c, &r);
    if (b) {
        r = issue(b, wanted, count, out, &own);
        state_unlock(b);
    }
    return engine_answer(r, own, req);
}

static enum comm_result copy(struct comm_state *b, struct comm_communicator **out, struct comm_request *req)
{
    return issue(b, &(struct wanted){.dup = 1, .options = {.name = b->name, .priority = b->terms.priority}}, 1, out, req);
}

enum comm_result engine_split(struct comm_communicator *c, int64_t color, int32_t key, struct comm_communicator **out,
                              struct comm_request *req)
{
    return create(c, &(struct wanted){.color = color, .key = key}, 1, out, req);
}

/* One split for each axis: the color is made of all other coordinates, and the key is the coordinate on this axis. The splits complete in
 * order, so the request of the last one covers all. */
enum comm_result engine_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes, struct comm_communicator **axis,
                                   struct comm_request *req)
{
    struct wanted wanted[CREATE_AXES_MAX] = {{0}};
    int32_t rank = engine_rank(c), behind = 1;

    for (size_t i = axes; i-- > 0; behind *= shape[i]) {
        int32_t own = rank / behind % shape[i];
        wanted[i] = (struct wanted){.color = rank - own * behind, .key = own};
        axis[i] = NULL;
    }
    return create(c, wanted, axes, axis, req);
}

enum comm_result engine_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                            struct comm_request *req)
{
    return create(c, &(struct wanted){.dup = 1, .options = *options}, 1, out, req);
}

const struct comm_part create_part = {.name = "create", .copy = copy};
