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

struct body *body_at(struct engine *e, uint32_t index)
{
    enum comm_result r;
    struct comm_communicator *face = atomic_load_explicit(&e->faces[index], memory_order_acquire);
    struct body *b = face ? body_lock(face, &r) : NULL;

    if (!b || b->unit.engine == e)
        return b;
    body_unlock(b);
    return NULL;
}
