/* Closes a world when its last communicator is gone. */
#include "common/world.h"
#include "common/operator.h"

static void hosts_close(struct world *w)
{
    const struct comm_env *env = w->engine->env;
    size_t ranks = (size_t)w->hosts.ranks;

    env_give_back(env, w->hosts.of, ranks * sizeof *w->hosts.of);
    env_give_back(env, w->hosts.name, ranks * sizeof *w->hosts.name);
    w->hosts = (struct world_hosts){.of = NULL};
}

/* Whether a rank has ended in another way than by its close. */
static bool has_lost_a_rank(const struct world *w)
{
    if (atomic_load_explicit(&w->lost, memory_order_relaxed))
        return true;
    for (int32_t r = 0; w->down && r < w->ranks; r++) {
        int32_t result = world_end(w, r).result;
        if (result && result != COMM_ERR_CLOSED)
            return true;
    }
    return false;
}

void world_drop(struct world *w)
{
    struct engine *e = w->engine;

    if (atomic_fetch_sub_explicit(&w->references, 1, memory_order_acq_rel) != 1)
        return;
    engine_forget_wire(e, &w->port);
    if (w->native) {
        w->native->flags |= has_lost_a_rank(w) ? NATIVE_GONE : 0;
        w->native->class->close(w->native);
    }
    w->native = NULL;
    for (const struct comm_part *const *part = e->parts; *part; part++)
        if ((*part)->world_close)
            (*part)->world_close(w);
    if (w->port.wire)
        engine_note_silent(e, w->port.wire->silent ? -1 : 0);
    if (w->port.wire)
        w->backend->wire->close(w->port.wire);
    operators_close(w);
    hosts_close(w);
    env_give_back(e->env, w->down, (size_t)w->ranks * sizeof *w->down);
    e->env->give(e->env, w, sizeof *w);
    engine_drop(e);
}
