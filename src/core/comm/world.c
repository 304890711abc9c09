/* A world ends with its last communicator. */
#include "comm/parts.h"

void world_drop(struct world *w)
{
    struct engine *e = w->engine;

    if (atomic_fetch_sub_explicit(&w->references, 1, memory_order_acq_rel) != 1)
        return;
    engine_forget_wire(e, &w->port);
    if (w->native)
        w->native->class->close(w->native);
    PARTS_EACH (part, e)
        if ((*part)->world_close)
            (*part)->world_close(w);
    if (w->port.wire)
        w->backend->wire->close(w->port.wire);
    operators_close(w, e->env);
    hosts_close(w);
    if (w->down)
        e->env->give(e->env, w->down, (size_t)w->ranks * sizeof *w->down);
    e->env->give(e->env, w, sizeof *w);
    engine_drop(e);
}

struct comm_state *state_at(struct engine *e, uint32_t index)
{
    enum comm_result r;
    struct comm_communicator *handle = atomic_load_explicit(&e->handles[index], memory_order_acquire);
    struct comm_state *b = handle ? state_lock(handle, &r) : NULL;

    if (!b || b->unit.engine == e)
        return b;
    state_unlock(b);
    return NULL;
}
