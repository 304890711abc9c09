/*
 * Memory of a world: what callers got from comm_mem_alloc, and what they have registered. If the communicator's library has memory of a
 * device, comm_mem_alloc uses that; otherwise, if the wire has memory that peers can reach, that; otherwise the heap. All of it is freed
 * at the latest with the world.
 */
#include "rma/memory.h"
#include "rma/queue.h"

enum { PAGE = 4096 };

static const struct wire_memory_class *class_of(const struct world *w)
{
    return w->backend->wire->memory;
}

void memory_drop(struct world *w, struct world_memory *m)
{
    const struct comm_env *env = w->engine->env;

    if (m->kind == MEMORY_REACHED)
        class_of(w)->give(w->port.wire, m->at, false);
    if (m->kind == MEMORY_HEAP)
        env->give(env, m->at, m->bytes);
    if (m->kind == MEMORY_DEVICE && w->native) /* otherwise the library gave it back when it was closed */
        w->native->class->give(w->native, m->at);
    env->give(env, m, sizeof *m);
}

void memory_close(struct world *w)
{
    for (struct world_memory *m = w->memories, *next; m; m = next) {
        next = m->next;
        memory_drop(w, m);
    }
    w->memories = NULL;
}

static struct world_memory **find(struct world *w, const void *at, bool own)
{
    struct world_memory **link = &w->memories;

    while (*link && ((*link)->at != at || ((*link)->kind != MEMORY_REGISTERED) != own))
        link = &(*link)->next;
    return link;
}

static void take(struct comm_state *b, struct world_memory *m)
{
    const struct world *w = b->world;
    const struct comm_env *env = w->engine->env;

    if (memory_library(b)) {
        m->kind = MEMORY_DEVICE;
        m->at = memory_library(b)->take(b->native, m->bytes);
    } else if (class_of(w)) {
        m->kind = MEMORY_REACHED;
        m->at = class_of(w)->take(w->port.wire, m->bytes, WIRE_PLACE_DEFAULT);
    } else {
        m->kind = MEMORY_HEAP;
        m->at = env->take(env, m->bytes, PAGE);
    }
}

struct world_memory *memory_make(struct comm_state *b, size_t bytes)
{
    const struct comm_env *env = b->unit.engine->env;
    struct world_memory *m = env->take(env, sizeof *m, 64);

    if (!m)
        return NULL;
    *m = (struct world_memory){.bytes = bytes};
    take(b, m);
    if (!m->at) {
        env->give(env, m, sizeof *m);
        return NULL;
    }
    return m;
}

/* Adds it to the list. STATE: the same memory is registered already. */
static enum comm_result enlist(struct world *w, struct world_memory *m)
{
    const struct comm_env *env = w->engine->env;

    base_lock(&w->memory_lock, env);
    bool there = m->kind == MEMORY_REGISTERED && *find(w, m->at, false);
    if (!there) {
        m->next = w->memories;
        w->memories = m;
    }
    base_unlock(&w->memory_lock, env);
    return there ? COMM_ERR_STATE : COMM_OK;
}

void memory_keep(struct world *w, struct world_memory *m)
{
    (void)enlist(w, m);
}

enum comm_result engine_memory_take(struct comm_communicator *c, size_t bytes, void **at)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    const struct comm_env *env = b->unit.engine->env;
    int before = env->cancel(env, ENV_CANCEL_OFF);
    struct world_memory *m = memory_make(b, bytes);
    if (m) {
        *at = m->at;
        memory_keep(b->world, m);
    }
    env->cancel(env, before);
    state_unlock(b);
    return m ? COMM_OK : COMM_ERR_MEMORY;
}

static enum comm_result add_registered(struct comm_state *b, void *at, size_t bytes)
{
    const struct comm_env *env = b->unit.engine->env;
    struct world_memory *m = env->take(env, sizeof *m, 64);

    if (!m)
        return COMM_ERR_MEMORY;
    *m = (struct world_memory){.at = at, .bytes = bytes, .kind = MEMORY_REGISTERED};
    enum comm_result r = enlist(b->world, m);
    if (r != COMM_OK)
        env->give(env, m, sizeof *m);
    else if (memory_library(b))
        memory_library(b)->enlist(b->native, at, bytes);
    return r;
}

enum comm_result engine_memory_register(struct comm_communicator *c, void *at, size_t bytes)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    const struct comm_env *env = b->unit.engine->env;
    int before = env->cancel(env, ENV_CANCEL_OFF);
    r = add_registered(b, at, bytes);
    env->cancel(env, before);
    state_unlock(b);
    return r;
}

enum comm_result engine_memory_give(struct comm_communicator *c, void *at, bool own)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    struct world *w = b->world;
    const struct comm_env *env = b->unit.engine->env;
    int before = env->cancel(env, ENV_CANCEL_OFF);
    base_lock(&w->memory_lock, env);
    struct world_memory **link = find(w, at, own), *m = *link;
    if (m)
        *link = m->next;
    base_unlock(&w->memory_lock, env);
    if (m && (!own || m->symmetric) && memory_library(b))
        memory_library(b)->delist(b->native, at);
    if (m)
        memory_drop(w, m);
    env->cancel(env, before);
    state_unlock(b);
    return m ? COMM_OK : COMM_ERR_STATE;
}
