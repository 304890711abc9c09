/*
 * Creating calls: operations of the parent's queue. A dup is one allgather, of everybody's offer for the new channel; a split is two, of
 * colors first, since how much memory a channel needs follows from how many its members are. The second stage is issued with the first,
 * under the next number, and reads what the first stage's end writes, so the queue itself keeps them in order.
 */
#include "engine/body.h"

#include "base/format.h"

#include <string.h>

struct creation {
    const struct comm_env *env;
    struct comm_communicator **out;
    struct body *child; /* made, not connected */
    int32_t color, key, size;
    uint64_t number; /* of the first stage: part of the child's identity */
    struct comm_options options;
    char name[32];
    char forced[256];
    uint32_t dup, orphan;       /* orphan: the second stage never came */
    struct team_ticket mine[2]; /* what stage 0 and stage 1 send */
    struct team_ticket *all[2]; /* `size` each */
    int32_t *members;
    uint8_t *offers; /* of the members, in their order */
};

#define CREATION_OPTION "algorithm="

static size_t creation_bytes(int32_t size)
{
    return sizeof(struct creation) + (size_t)size * (2 * sizeof(struct team_ticket) + WIRE_OFFER_BYTES + sizeof(int32_t));
}

static void creation_free(struct creation *n)
{
    if (n->child)
        body_destroy(n->child);
    n->env->give(n->env, n, creation_bytes(n->size));
}

static struct creation *creation_make(struct body *b, struct comm_communicator **out)
{
    const struct comm_env *env = b->engine->env;
    struct creation *n = env->take(env, creation_bytes(b->team.size), 64);

    if (!n)
        return NULL;
    n->env = env;
    n->size = b->team.size;
    n->out = out;
    n->all[0] = (struct team_ticket *)(void *)(n + 1);
    n->all[1] = n->all[0] + n->size;
    n->offers = (uint8_t *)(n->all[1] + n->size);
    n->members = (int32_t *)(void *)(n->offers + (size_t)n->size * WIRE_OFFER_BYTES);
    n->number = b->sequence + 1;
    return n;
}

static int32_t everybody(struct creation *n)
{
    for (int32_t r = 0; r < n->size; r++)
        n->members[r] = r;
    return n->size;
}

/* Makes this rank's part of the child and writes its offer, or why it could not, into what the last stage sends. */
static void offer_child(struct body *parent, struct creation *n, int32_t count)
{
    struct body_config config = {.world = parent->world,
                                 .timeout_ns = parent->timeout_ns,
                                 .name = n->name,
                                 .forced = n->forced[0] ? n->forced : parent->forced,
                                 .priority = n->dup ? n->options.priority : parent->priority,
                                 .free_order = parent->free_order};
    struct team_ticket *mine = &n->mine[1];
    uint64_t color = n->dup ? UINT64_C(1) << 32 : (uint64_t)(uint32_t)n->color;

    if (n->options.operation_timeout_ns)
        config.timeout_ns = n->options.operation_timeout_ns;
    if (n->options.order != COMM_ORDER_DEFAULT)
        config.free_order = n->options.order == COMM_ORDER_FREE;
    mine->color = n->color;
    mine->result = team_subset(parent->engine->env, &parent->team, n->number, color, n->members, count, &config.team);
    if (mine->result == COMM_OK)
        mine->result = body_create(parent->engine, &config, mine->offer, &n->child);
}

/* The first stage of a split ended: everybody's color is known. */
static enum comm_result colors_known(struct body *b, uint64_t ticket, void *arg)
{
    struct creation *n = arg;

    if (n->orphan) {
        creation_free(n);
        return COMM_OK;
    }
    if (!ticket)
        return COMM_OK; /* the parent failed: the second stage's end tidies up */
    if (n->color >= 0)
        offer_child(b, n, team_pick(n->all[0], n->size, b->team.rank, n->members));
    else
        n->mine[1].color = -1;
    return COMM_OK;
}

static enum comm_result connect_child(struct creation *n)
{
    enum comm_result worst = COMM_OK;
    int32_t count = n->child ? n->child->team.size : 0;

    for (int32_t r = 0; r < n->size; r++)
        if (n->all[1][r].result != COMM_OK)
            worst = (enum comm_result)n->all[1][r].result;
    if (worst != COMM_OK || !n->child)
        return worst;
    for (int32_t i = 0; i < count; i++)
        memcpy(n->offers + (size_t)i * WIRE_OFFER_BYTES, n->all[1][n->members[i]].offer, WIRE_OFFER_BYTES);
    return body_connect(n->child, n->offers);
}

static enum comm_result offers_known(struct body *b, uint64_t ticket, void *arg)
{
    struct creation *n = arg;
    enum comm_result r = ticket ? connect_child(n) : COMM_OK;

    (void)b;
    if (ticket && r == COMM_OK) {
        *n->out = n->child ? n->child->face : NULL;
        n->child = NULL;
    }
    creation_free(n);
    return r;
}

/* Ranks must choose the same algorithms: part of what they compare. 0: no options. */
static comm_op options_hash(const struct creation *n)
{
    uint64_t hash = 0;

    for (const char *at = n->forced; *at; at++)
        hash = base_hash(hash, (unsigned char)*at);
    return (comm_op)hash & ~OPERATOR_USER;
}

static enum comm_result issue_stage(struct body *b, struct creation *n, int stage, uint32_t collective, entry_ended_fn *ended,
                                    struct comm_request *req)
{
    struct engine_call call = {
        .collective = collective, .type = COMM_BYTE, .in = &n->mine[stage], .out = n->all[stage], .n = sizeof n->mine[stage], .root = -1};

    call.op = options_hash(n);
    call.read = (struct timeline_hull){(uintptr_t)&n->mine[stage], (uintptr_t)(&n->mine[stage] + 1)};
    call.write = (struct timeline_hull){(uintptr_t)n->all[stage], (uintptr_t)(n->all[stage] + n->size)};
    if (stage == 0) /* its end writes what the next stage sends */
        timeline_widen(&call.write, &(struct timeline_hull){(uintptr_t)&n->mine[1], (uintptr_t)(&n->mine[1] + 1)});
    return body_issue(b, &call, ended, n, req);
}

static enum comm_result create_locked(struct body *b, struct creation *n, struct comm_request *req)
{
    enum comm_result r = COMM_OK;

    if (!timeline_reserve(&b->line, n->dup ? 1 : 2)) { /* all of it or nothing: FULL may be tried again */
        creation_free(n);
        return COMM_ERR_FULL;
    }
    if (!n->dup) {
        n->mine[0] = (struct team_ticket){.color = n->color, .key = n->key};
        r = issue_stage(b, n, 0, COLLECTIVE_SPLIT, colors_known, NULL);
        if (r != COMM_OK) {
            creation_free(n);
            return r;
        }
        if (b->failed) { /* by what a peer said of this very call: the first stage ended, nothing is queued after it */
            creation_free(n);
            return (enum comm_result)b->cause.result;
        }
    } else {
        offer_child(b, n, everybody(n));
    }
    r = issue_stage(b, n, 1, n->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT, offers_known, req);
    if (r != COMM_OK && !n->dup) { /* the first stage is on its way and still writes into n: the other ranks cannot go on without us */
        n->orphan = 1;
        body_propose(b,
                     &(struct cause){
                         .number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = r, .collective = COLLECTIVE_SPLIT});
        return r;
    }
    if (r != COMM_OK)
        creation_free(n);
    return r;
}

static enum comm_result create(struct comm_communicator *c, const struct creation *how, struct comm_communicator **out,
                               struct comm_request *req)
{
    enum comm_result r;
    struct comm_request own = COMM_REQUEST_NONE;
    struct body *b = body_lock(c, &r);

    if (!b)
        return r;
    struct creation *n = b->failed || b->recording ? NULL : creation_make(b, out);
    if (b->recording)
        r = COMM_ERR_STATE;
    else if (b->failed)
        r = (enum comm_result)b->cause.result;
    else if (!n) /* its number is used up all the same */
        r = body_refuse(b, &(struct engine_call){.collective = how->dup ? COLLECTIVE_DUP : COLLECTIVE_SPLIT}, COMM_ERR_MEMORY);
    if (n) {
        n->dup = how->dup;
        n->color = how->color;
        n->key = how->key;
        n->options = how->options;
        base_copy_text(n->name, sizeof n->name, how->options.name);
        base_copy_text(n->forced, sizeof n->forced, how->options.options ? how->options.options + strlen(CREATION_OPTION) : NULL);
        if (!n->name[0])
            base_format(n->name, sizeof n->name, "%.*s/%llu", 20, b->name, (unsigned long long)n->number);
        r = create_locked(b, n, &own);
    }
    if (!b->recording)
        body_settle(b);
    body_unlock(b);
    if (r != COMM_OK)
        own = timeline_refusal(r);
    if (req)
        *req = own;
    return req || r != COMM_OK ? r : engine_wait(own, COMM_FOREVER);
}

enum comm_result engine_split(struct comm_communicator *c, int32_t color, int32_t key, struct comm_communicator **out,
                              struct comm_request *req)
{
    return create(c, &(struct creation){.color = color, .key = key}, out, req);
}

enum comm_result engine_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                            struct comm_request *req)
{
    return create(c, &(struct creation){.dup = 1, .options = *options}, out, req);
}
