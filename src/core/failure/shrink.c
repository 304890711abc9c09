/*
 * comm_shrink: an agreement on which ranks are dead, a new communicator of the others, and an agreement on whether all of them have it. If
 * a rank died meanwhile, all drop what they created and start again without it. If a rank could not create its part, the call fails on all
 * ranks.
 */
#include "failure/recover.h"

#include "base/format.h"
#include "base/hash.h"

#include <string.h>

/* Bits that a rank clears in its word of readiness. */
enum { LACKS_MEMORY = 1, HEARD_DEATH = 2, COULD_NOT = 4 };

static struct recovery_note *my_note(struct comm_state *b)
{
    return recovery_note(b->recovery.state, b->team.rank);
}

static size_t lists_bytes(int32_t count)
{
    return (size_t)count * (sizeof(struct team_offer) + sizeof(int32_t));
}

void shrink_drop(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;
    struct shrinking *s = &b->recovery.state->shrinking;

    if (s->child)
        state_destroy(s->child);
    if (s->offers)
        env->give(env, s->offers, lists_bytes(s->count));
    s->child = NULL;
    s->connected = false;
    s->offers = NULL;
    s->members = NULL;
    s->count = 0;
}

void shrink_abandon(struct comm_state *b)
{
    struct shrinking *s = &b->recovery.state->shrinking;
    struct comm_state *child = s->child;

    if (child && s->connected) {
        struct cause cause = {.rank = child->team.rank, .peer = child->team.rank, .result = COMM_ERR_CLOSED};
        base_home_visit(&child->unit.handle->lock, child->unit.handle->env);
        child->unit.closing = true; /* so that it does not wait for another rank to choose the cause */
        state_hear_abort(child);    /* closing then does not count as a failure of this rank */
        state_propose(child, &cause);
        base_home_unlock(&child->unit.handle->lock, child->unit.handle->env);
    }
    shrink_drop(b);
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

/* Creates the child without a native: a native may hang because of the dead ranks, and cannot leave them out. Its collectives run as
 * programs over the wire. */
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
                                  .programs_only = true};

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

void shrink_conclude(struct comm_state *b)
{
    struct recovery *v = b->recovery.state;
    struct shrinking *s = &v->shrinking;
    const uint64_t *dead = recovery_set(v, b->team.rank, SET_VALUE);
    uint64_t lacking = ~my_note(b)->value;
    bool more = (lacking & HEARD_DEATH) != 0;

    for (uint32_t w = 0; w < v->words; w++) {
        more |= (dead[w] & ~s->base[w]) != 0;
        s->base[w] |= dead[w];
    }
    if (!lacking && !more && s->out) {
        *s->out = s->child->unit.handle;
        s->child = NULL;
    }
    if (lacking || more)
        shrink_drop(b);
    else
        shrink_abandon(b);
    if (lacking & (LACKS_MEMORY | COULD_NOT))
        recovery_finish(b, lacking & LACKS_MEMORY ? COMM_ERR_MEMORY : COMM_ERR_SYSTEM);
    else if (more)
        shrink_begin_child(b);
    else
        recovery_finish(b, COMM_OK);
}
