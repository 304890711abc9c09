/* The life of a communicator's state: its memory, its channel, its programs. */
#include "comm/parts.h"

#include "base/format.h"
#include "message/message.h"

#include <string.h>

static size_t offers_bytes(const struct comm_state *b)
{
    return (size_t)b->team.size * ((size_t)NATIVE_OFFER_BYTES > WIRE_OFFER_BYTES ? (size_t)NATIVE_OFFER_BYTES : WIRE_OFFER_BYTES);
}

static bool take_places(struct comm_state *b, uint32_t window)
{
    const struct comm_env *env = b->unit.engine->env;

    b->runs.places = env->take(env, window * sizeof *b->runs.places, 64);
    b->runs.store_policy.env = env;
    for (uint32_t i = 0; b->runs.places && i < window; i++)
        b->runs.places[i].run.store_policy = &b->runs.store_policy;
    return b->runs.places != NULL;
}

static enum comm_result join(struct comm_state *b, const struct wire_limits *limits, const void *offers, void *offer)
{
    const struct comm_env *env = b->unit.engine->env;
    struct wire_team team = {b->team.id, b->team.rank, b->team.size, b->team.world, NULL};
    int before = env->cancel(env, ENV_CANCEL_OFF);
    enum comm_result r = b->world->backend->wire->join(b->world->port.wire, &team, limits, offers, offer, &b->channel);

    env->cancel(env, before);
    return r;
}

static enum comm_result make_places(struct comm_state *b, struct wire_limits limits, struct team_offer *offer)
{
    const struct comm_env *env = b->unit.engine->env;

    limits.survivors = b->terms.programs_only;
    enum comm_result r = join(b, &limits, NULL, offer->wire);
    if (r != COMM_OK)
        return r;
    b->wire = b->channel->class;
    b->calls.mask = (b->channel->caps.calls ? b->channel->caps.calls : 2 * limits.window) - 1;
    r = timeline_open(&b->line, env, b->unit.handle, sizeof(struct entry), limits.window, (uint32_t)b->unit.engine->options.queue);
    if (r != COMM_OK)
        return r;
    bool places = take_places(b, limits.window);
    b->failure.closed_at = env->take(env, (size_t)b->team.size * sizeof *b->failure.closed_at, 64);
    b->failure.heard = env->take(env, (size_t)b->team.size * sizeof *b->failure.heard, 64);
    b->others = env->take(env, (size_t)b->team.size * sizeof *b->others, 64);
    b->offers = env->take(env, offers_bytes(b), 64);
    for (int32_t i = 0; b->others && i < b->team.size; i++)
        b->others[i] = (uint16_t)((b->team.rank + 1 + i) % b->team.size);
    if (b->world->measured)
        b->choice.bucket = env->take(env, COLLECTIVE_END * BUCKETS, 64);
    if (!places || !b->failure.closed_at || !b->failure.heard || !b->others || !b->offers || (b->world->measured && !b->choice.bucket))
        return COMM_ERR_MEMORY;
    r = message_open(env, b->channel, b->team.rank, b->team.size, (uint32_t)b->unit.engine->options.queue, &b->messages);
    if (r == COMM_OK)
        r = engine_enlist(b->unit.engine, b->unit.handle, &b->index);
    if (r == COMM_OK)
        engine_set_priority(b->unit.engine, b->index, b->terms.priority);
    PARTS_EACH (part, b->unit.engine)
        if (r == COMM_OK && (*part)->open)
            r = (*part)->open(b, offer);
    return r;
}

static struct comm_communicator *take_handle(const struct comm_state *b)
{
    struct comm_communicator *handle = timeline_handle_take(b->unit.engine->env, NULL);

    if (handle) {
        atomic_store_explicit(&handle->rank, b->team.rank, memory_order_relaxed);
        atomic_store_explicit(&handle->size, b->team.size, memory_order_relaxed);
    }
    return handle;
}

enum comm_result state_create(struct engine *e, const struct state_config *config, struct team_offer *offer, struct comm_state **body)
{
    const struct comm_env *env = e->env;
    struct comm_state *b = env->take(env, sizeof *b, 64);
    enum comm_result r = COMM_ERR_MEMORY;

    if (!b) {
        struct team team = config->team;
        team_free(env, &team);
        return COMM_ERR_MEMORY;
    }
    b->unit.engine = e;
    b->devices = e->env->devices;
    b->world = config->world;
    b->wire = config->world->backend->wire;
    b->unit.asks = config->world->port.asks;
    b->team = config->team;
    b->timeout_ns = config->timeout_ns;
    b->terms.free_order = config->free_order;
    b->terms.priority = config->priority;
    base_copy_text(b->terms.forced, sizeof b->terms.forced, config->forced);
    b->terms.fixed_order = config->fixed_order;
    b->terms.programs_only = config->programs_only;
    b->terms.stream = config->stream;
    b->p2p.free = b->p2p.first = b->p2p.last = P2P_NONE;
    base_copy_text(b->name, sizeof b->name, config->name);
    b->index = ENGINE_COMMUNICATORS;
    engine_hold(e);
    atomic_fetch_add_explicit(&b->world->references, 1, memory_order_relaxed);
    b->unit.handle = take_handle(b);
    if (b->unit.handle && state_find_hosts(b))
        r = make_places(b, b->world->limits, offer);
    if (r != COMM_OK) {
        state_destroy(b);
        return r;
    }
    *body = b;
    return COMM_OK;
}

/* This rank allocated all that it needs before it sent its offer, so members that connect here cannot fail one another. */
enum comm_result state_connect(struct comm_state *b, const struct team_offer *offers)
{
    unsigned char *packed = b->offers;

    for (int32_t r = 0; r < b->team.size; r++)
        memcpy(packed + (size_t)r * WIRE_OFFER_BYTES, offers[r].wire, WIRE_OFFER_BYTES);
    enum comm_result r = join(b, NULL, packed, NULL);
    if (r != COMM_OK) {
        b->channel = NULL; /* after an error of join the channel no longer exists */
        return r;
    }
    PARTS_EACH (part, b->unit.engine)
        if (r == COMM_OK && (*part)->connect)
            r = (*part)->connect(b, offers);
    b->unit.engine->env->give(b->unit.engine->env, b->offers, offers_bytes(b));
    b->offers = NULL;
    if (r != COMM_OK)
        return r;
    /* passes already see this handle, so set it to the complete state under the lock */
    base_home_visit(&b->unit.handle->lock, b->unit.handle->env);
    atomic_store_explicit(&b->unit.handle->state, b, memory_order_release);
    state_hear_down(b);
    state_hear_abort(b); /* the thread that spreads an abort may have passed this handle before */
    base_home_unlock(&b->unit.handle->lock, b->unit.handle->env);
    engine_note_timeout(b->unit.engine, b->timeout_ns);
    return COMM_OK;
}

struct comm_state *state_recorder(struct comm_state *of)
{
    const struct comm_env *env = of->unit.engine->env;
    struct comm_state *b = env->take(env, sizeof *b, 64);
    int32_t *world = b ? env->take(env, (size_t)of->team.size * sizeof *world, 64) : NULL;

    if (!world) {
        env_give_back(env, b, sizeof *b);
        return NULL;
    }
    b->unit.engine = of->unit.engine;
    b->devices = of->native && of->library_work.flags & NATIVE_STREAM ? NULL : of->devices;
    b->world = of->world;
    b->wire = of->wire;
    b->unit.asks = of->unit.asks;
    b->team = of->team;
    b->team.world = memcpy(world, of->team.world, (size_t)of->team.size * sizeof *world);
    b->terms.unpacked = of->terms.unpacked;
    b->index = ENGINE_COMMUNICATORS;
    b->p2p.free = b->p2p.first = b->p2p.last = P2P_NONE;
    base_format(b->name, sizeof b->name, "%.*s.recorder", 20, of->name);
    engine_hold(b->unit.engine);
    atomic_fetch_add_explicit(&b->world->references, 1, memory_order_relaxed);
    b->unit.handle = take_handle(b);
    if (!b->unit.handle) {
        state_destroy(b);
        return NULL;
    }
    return b;
}

static void free_spares(const struct comm_env *env, struct spare *s)
{
    for (struct spare *next; s; s = next) {
        next = s->next;
        env->give(env, s, s->bytes);
    }
}

static void free_places(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    for (uint32_t i = 0; b->runs.places && i < b->line.window; i++) {
        env_give_back(env, b->runs.places[i].views.at, b->runs.places[i].views.bytes);
        env_give_back(env, b->runs.places[i].scratch.at, b->runs.places[i].scratch.bytes);
    }
    free_spares(env, b->runs.spare_views);
    free_spares(env, b->runs.spare_scratch);
    env_give_back(env, b->runs.places, b->line.window * sizeof *b->runs.places);
}

static void free_lists(struct comm_state *b)
{
    const struct comm_env *env = b->unit.engine->env;

    notify_free(&b->unit);
    for (size_t *v = b->runs.vectors, *next; v; v = next) {
        memcpy(&next, v, sizeof next);
        env->give(env, v, STATE_VECTORS * (size_t)b->team.size * sizeof *v + sizeof v);
    }
    env_give_back(env, b->records.at, b->records.room * sizeof *b->records.at);
    env_give_back(env, b->offers, offers_bytes(b));
    env_give_back(env, b->others, (size_t)b->team.size * sizeof *b->others);
    env_give_back(env, b->choice.bucket, COLLECTIVE_END * BUCKETS);
    env_give_back(env, b->failure.heard, (size_t)b->team.size * sizeof *b->failure.heard);
    env_give_back(env, b->failure.closed_at, (size_t)b->team.size * sizeof *b->failure.closed_at);
}

void state_destroy(struct comm_state *b)
{
    struct engine *e = b->unit.engine;
    const struct comm_env *env = e->env;
    struct world *world = b->world;

    if (b->unit.handle) { /* from now on no thread finds it; the monitor may be looking at one whose opening failed */
        base_home_visit(&b->unit.handle->lock, env);
        atomic_store_explicit(&b->unit.handle->state, NULL, memory_order_release);
        base_home_unlock(&b->unit.handle->lock, env);
    }
    if (b->index < ENGINE_COMMUNICATORS) {
        if (b->is_active)
            engine_activate(e, b->index, false);
        engine_set_priority(e, b->index, 0);
        engine_note_apart(e, b->index, false);
        atomic_store_explicit(&e->table.handles[b->index], NULL, memory_order_release);
    }
    PARTS_EACH (part, e)
        if ((*part)->leave)
            (*part)->leave(b);
    if (b->messages)
        message_close(b->messages);
    if (b->channel)
        b->wire->leave(b->channel, WIRE_CLOSE);
    PARTS_EACH (part, e)
        if ((*part)->close)
            (*part)->close(b);
    for (uint32_t i = 0; i < PROGRAM_CACHE_PLACES; i++)
        if (b->choice.cache.place[i].program)
            state_release_program(b, b->choice.cache.place[i].program);
    free_places(b);
    free_lists(b);
    state_free_hosts(b);
    timeline_close(&b->line);
    team_free(env, &b->team);
    if (b->unit.handle)
        timeline_handle_give(b->unit.handle);
    env->give(env, b, sizeof *b);
    world_drop(world);
    engine_drop(e);
}

struct comm_state *state_at(struct engine *e, uint32_t index)
{
    struct comm_communicator *handle = atomic_load_explicit(&e->table.handles[index], memory_order_acquire);

    if (!handle || engine_alive(handle) != COMM_OK)
        return NULL;
    base_home_visit(&handle->lock, handle->env);
    struct comm_state *b = state_of(handle);
    if (b && b->unit.engine == e)
        return b;
    base_home_unlock(&handle->lock, handle->env);
    return NULL;
}
