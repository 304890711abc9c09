/*
 * Memory of a world: what callers got from comm_mem_alloc, and what they have registered. If the communicator's library has memory of a
 * device, comm_mem_alloc uses that; otherwise, if the wire has memory that peers can reach, that; otherwise the heap. All of it is freed
 * at the latest with the world.
 */
#include "rma/queue.h"

enum { PAGE = 4096 };
enum kind { KIND_REACHED, KIND_HEAP, KIND_DEVICE, KIND_REGISTERED };
struct world_memory {
    struct world_memory *next;
    void *at;
    size_t bytes;
    enum kind kind;
};

static const struct wire_memory_class *class_of(const struct world *w)
{
    return w->backend->wire->memory;
}

static void give_back(struct world *w, struct world_memory *m)
{
    const struct comm_env *env = w->engine->env;

    if (m->kind == KIND_REACHED)
        class_of(w)->give(w->port.wire, m->at, false);
    if (m->kind == KIND_HEAP)
        env->give(env, m->at, m->bytes);
    if (m->kind == KIND_DEVICE && w->native) /* otherwise the library gave it back when it was closed */
        w->native->class->give(w->native, m->at);
    env->give(env, m, sizeof *m);
}

void memory_close(struct world *w)
{
    for (struct world_memory *m = w->memories, *next; m; m = next) {
        next = m->next;
        give_back(w, m);
    }
    w->memories = NULL;
}

static struct world_memory **find(struct world *w, const void *at, bool own)
{
    struct world_memory **link = &w->memories;

    while (*link && ((*link)->at != at || ((*link)->kind != KIND_REGISTERED) != own))
        link = &(*link)->next;
    return link;
}

static const struct native_class *library_of(const struct comm_state *b)
{
    return b->native && b->native->native->class->take ? b->native->native->class : NULL;
}

static void take(struct comm_state *b, struct world_memory *m)
{
    const struct world *w = b->world;
    const struct comm_env *env = w->engine->env;

    if (library_of(b)) {
        m->kind = KIND_DEVICE;
        m->at = library_of(b)->take(b->native, m->bytes);
    } else if (class_of(w)) {
        m->kind = KIND_REACHED;
        m->at = class_of(w)->take(w->port.wire, m->bytes, WIRE_PLACE_DEFAULT);
    } else {
        m->kind = KIND_HEAP;
        m->at = env->take(env, m->bytes, PAGE);
    }
}

/* Adds it to the list. STATE: the same memory is registered already. */
static enum comm_result enlist(struct world *w, struct world_memory *m)
{
    const struct comm_env *env = w->engine->env;

    base_lock(&w->memory_lock, env);
    bool there = m->kind == KIND_REGISTERED && *find(w, m->at, false);
    if (!there) {
        m->next = w->memories;
        w->memories = m;
    }
    base_unlock(&w->memory_lock, env);
    return there ? COMM_ERR_STATE : COMM_OK;
}

static enum comm_result add(struct comm_communicator *c, size_t bytes, void *registered, void **at)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    const struct comm_env *env = b->unit.engine->env;
    int before = env->cancel(env, ENV_CANCEL_OFF);
    struct world_memory *m = env->take(env, sizeof *m, 64);
    r = COMM_ERR_MEMORY;
    if (m) {
        *m = (struct world_memory){.at = registered, .bytes = bytes, .kind = KIND_REGISTERED};
        if (!registered)
            take(b, m);
        if (m->at)
            r = enlist(b->world, m);
        if (r == COMM_OK && registered && library_of(b))
            library_of(b)->enlist(b->native, m->at, bytes);
        if (r == COMM_OK)
            *at = m->at;
        else
            env->give(env, m, sizeof *m);
    }
    env->cancel(env, before);
    state_unlock(b);
    return r;
}

enum comm_result engine_memory_take(struct comm_communicator *c, size_t bytes, void **at)
{
    return add(c, bytes, NULL, at);
}

enum comm_result engine_memory_register(struct comm_communicator *c, void *at, size_t bytes)
{
    return add(c, bytes, at, &at);
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
    if (m && !own && library_of(b))
        library_of(b)->delist(b->native, at);
    if (m)
        give_back(w, m);
    env->cancel(env, before);
    state_unlock(b);
    return m ? COMM_OK : COMM_ERR_STATE;
}
