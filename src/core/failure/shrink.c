/*
 * comm_shrink: an agreement on which ranks are dead, a new communicator of the others (the child), and an agreement on whether all of them
 * have it. If a rank died meanwhile, all drop what they created and start again without it. If a rank could not create its part, the call
 * fails on all ranks.
 *
 * The child has no native, because a native's offers do not fit into a note. If the communicator had NCCL, the survivors duplicate the
 * child, which connects NCCL anew, and agree on whether all have the copy. Then the caller gets the copy. If NCCL could not connect them,
 * it gets the child, which stages device buffers.
 */
#include "failure/recover.h"

#include "base/format.h"
#include "base/hash.h"
#include "comm/parts.h"

#include <string.h>

/* Bits that a rank clears in its word of readiness. */
enum { LACKS_MEMORY = 1, HEARD_DEATH = 2, COULD_NOT = 4, LACKS_COPY = 8 };

static struct recovery_note *my_note(struct comm_state *b)
{
    return recovery_note(b->recovery.state, b->team.rank);
}

static size_t lists_bytes(int32_t count)
{
    return (size_t)count * (sizeof(struct team_offer) + sizeof(int32_t));
}

static void forget(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    struct shrinking *s = &b->recovery.state->shrinking;

    env_give_back(env, s->offers, lists_bytes(s->count));
    s->child = NULL;
    s->copy = NULL;
    s->connected = false;
    s->offers = NULL;
    s->members = NULL;
    s->count = 0;
}

void shrink_drop(struct comm_state *b)
{
    struct shrinking *s = &b->recovery.state->shrinking;

    if (s->copy)
        state_destroy(state_of(s->copy));
    if (s->child)
        state_destroy(s->child);
    forget(b);
}

/* Other ranks may have it: tells them that this rank does not. */
static void discard(struct comm_state *made)
{
    struct cause cause = {.rank = made->team.rank, .peer = made->team.rank, .result = COMM_ERR_CLOSED};

    base_home_visit(&made->unit.handle->lock, made->unit.handle->env);
    made->unit.closing = true; /* so that it does not wait for another rank to choose the cause */
    state_hear_abort(made);    /* closing then does not count as a failure of this rank */
    state_propose(made, &cause);
    base_home_unlock(&made->unit.handle->lock, made->unit.handle->env);
    state_destroy(made);
}

void shrink_abandon(struct comm_state *b)
{
    struct shrinking *s = &b->recovery.state->shrinking;

    if (s->copy)
        discard(state_of(s->copy));
    if (s->child && s->connected)
        discard(s->child);
    else if (s->child)
        state_destroy(s->child);
    forget(b);
}

static bool list_members(struct comm_state *b, struct shrinking *s)
{
    const struct comm_env *env = b->unit.engine->env;
    int32_t count = 0;

    for (int32_t r = 0; r < b->team.size; r++)
        count += !recovery_has(s->base, r);
    s->offers = env->take(env, lists_bytes(count), 64);
    if (!s->offers)
        return false;
    s->members = (int32_t *)(void *)(s->offers + count);
    for (int32_t r = 0; r < b->team.size; r++)
        if (!recovery_has(s->base, r))
            s->members[s->count++] = r;
    return true;
}

/* Creates the child without a native: its collectives run as programs over the wire. */
static enum comm_result make_child(struct comm_state *b, struct shrinking *s, struct team_offer *offer)
{
    uint64_t identity = base_hash(0, (uint64_t)s->count);
    char name[sizeof b->name];
    struct state_config config = {.world = b->world,
                                  .timeout_ns = b->timeout_ns,
                                  .name = name,
                                  .forced = b->terms.forced,
                                  .priority = b->terms.priority,
                                  .free_order = b->terms.free_order,
                                  .fixed_order = b->terms.fixed_order,
                                  .programs_only = true,
                                  .stream = b->terms.stream};

    if (!list_members(b, s))
        return COMM_ERR_MEMORY;
    for (int32_t i = 0; i < s->count; i++)
        identity = base_hash(identity, (uint64_t)s->members[i]);
    base_format(name, sizeof name, "%.*s/shrunk.%u", 14, b->name, my_note(b)->instance);
    enum comm_result r = team_subset(b->unit.engine->env, &b->team, my_note(b)->instance, identity, s->members, s->count, &config.team);
    return r == COMM_OK ? state_create(b->unit.engine, &config, offer, &s->child) : r;
}

void shrink_begin_child(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    struct recovery_note *mine = my_note(b);
    struct team_offer offer = {0};

    mine->could = (int32_t)make_child(b, &v->shrinking, &offer);
    if (mine->could != COMM_OK)
        shrink_drop(b);
    memcpy(mine->offer, offer.wire, sizeof mine->offer);
    mine->offered = mine->instance;
    v->stage = RECOVERY_OFFERS;
    v->changed = true;
}

static uint64_t lacks(enum comm_result result)
{
    return result == COMM_OK ? 0 : result == COMM_ERR_MEMORY ? LACKS_MEMORY : COULD_NOT;
}

/* True: all members have sent their offers. */
static bool all_offered(struct comm_state *b, uint64_t *lacking)
{
    struct recovery *v = b->recovery.state;
    const struct recovery_note *mine = my_note(b);
    bool all = true;

    *lacking = lacks((enum comm_result)mine->could);
    for (int32_t r = 0; r < b->team.size; r++) {
        const struct recovery_note *n = recovery_note(v, r);
        if (recovery_has(v->shrinking.base, r))
            continue;
        if (recovery_has(recovery_set(v, b->team.rank, SET_DEAD), r))
            *lacking |= HEARD_DEATH;
        else if (n->offered != mine->offered)
            all = false;
        else
            *lacking |= lacks((enum comm_result)n->could);
    }
    return all;
}

bool shrink_take_offers(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    struct shrinking *s = &v->shrinking;
    uint64_t lacking;
    bool all = all_offered(b, &lacking);

    if (!all && !lacking)
        return false;
    for (int32_t i = 0; i < s->count && !lacking; i++)
        memcpy(s->offers[i].wire, recovery_note(v, s->members[i])->offer, WIRE_OFFER_BYTES);
    if (!lacking) {
        lacking = lacks(state_connect(s->child, s->offers));
        s->connected = !lacking;
    }
    recovery_enter(b, RECOVERY_READY, ~lacking);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ the copy */
/* MPI cannot leave out a rank that died, so only NCCL and kernels on devices are connected anew. */
static bool wants_copy(const struct comm_state *b)
{
    return b->native && b->library_work.flags & (NATIVE_STREAM | NATIVE_DEVICE);
}

static void begin_copy(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    struct comm_state *child = v->shrinking.child;
    enum comm_result r = COMM_ERR_UNSUPPORTED;

    base_home_visit(&child->unit.handle->lock, child->unit.handle->env);
    PARTS_EACH (part, b->unit.engine)
        if ((*part)->copy)
            r = (*part)->copy(child, &v->shrinking.copy, &v->shrinking.copying);
    base_home_unlock(&child->unit.handle->lock, child->unit.handle->env);
    if (r != COMM_OK)
        v->shrinking.copying = timeline_refusal(r);
    v->stage = RECOVERY_JOINING;
}

/* What it means for the shrink that the child could not be duplicated. */
static uint64_t lacks_copy(struct comm_state *child)
{
    base_home_visit(&child->unit.handle->lock, child->unit.handle->env);
    enum comm_result result = child->failed ? (enum comm_result)child->failure.cause.result : COMM_OK;
    base_home_unlock(&child->unit.handle->lock, child->unit.handle->env);
    if (result == COMM_OK)
        return LACKS_COPY;
    return result == COMM_ERR_PEER || result == COMM_ERR_CLOSED ? HEARD_DEATH : COULD_NOT;
}

bool shrink_take_copy(struct comm_state *b)
{
    struct shrinking *s = &b->recovery.state->shrinking;
    enum comm_result r = timeline_test(s->copying);

    if (r == COMM_PENDING)
        return false;
    recovery_enter(b, RECOVERY_JOINED, r == COMM_OK ? UINT64_MAX : ~lacks_copy(s->child));
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ the end */
/* Gives the caller the copy, if it is complete, otherwise the child. */
static void deliver(struct comm_state *b, bool copied)
{
    struct shrinking *s = &b->recovery.state->shrinking;
    struct comm_communicator *given = copied ? s->copy : s->child->unit.handle;

    if (wants_copy(b) && !copied && s->child->team.rank == 0)
        base_log(&b->unit.engine->log, LOG_WARNING, "comm=%s: %s could not connect the survivors; device buffers are staged",
                 s->child->name, b->world->backend->name);
    if (!s->out) {
        shrink_abandon(b);
        return;
    }
    *s->out = given;
    if (copied)
        s->copy = NULL;
    else
        s->child = NULL;
    shrink_drop(b); /* all ranks drop the other one, so none must hear of it */
}

/* Ranks that died since the set of the dead was agreed on are added to it. */
static bool more_died(struct recovery *v, const uint64_t *dead)
{
    bool more = false;

    for (uint32_t w = 0; w < v->words; w++) {
        more |= (dead[w] & ~v->shrinking.base[w]) != 0;
        v->shrinking.base[w] |= dead[w];
    }
    return more;
}

void shrink_conclude(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    uint64_t lacking = ~my_note(b)->value;
    bool more = more_died(v, recovery_set(v, b->team.rank, SET_VALUE)) || lacking & HEARD_DEATH;

    if (lacking & (LACKS_MEMORY | COULD_NOT)) {
        shrink_drop(b);
        recovery_finish(b, lacking & LACKS_MEMORY ? COMM_ERR_MEMORY : COMM_ERR_SYSTEM);
    } else if (more) {
        shrink_drop(b);
        shrink_begin_child(b);
    } else if (v->stage == RECOVERY_READY && wants_copy(b)) {
        begin_copy(b);
    } else {
        deliver(b, v->stage == RECOVERY_JOINED && !(lacking & LACKS_COPY));
        recovery_finish(b, COMM_OK);
    }
}
