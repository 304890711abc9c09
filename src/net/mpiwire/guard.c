/*
 * When to look at the guard. A look costs system calls, and MPI's messages take less than one. The guard carries nothing that a call waits
 * for while all is well, so a pass looks only
 * - after a peer has said by MPI that it sent a note (NOTED), until the note is here;
 * - every GUARD_NS, since a peer that dies sends no NOTED;
 * - always if the communicator failed or a rank is gone, because recovery is all notes.
 * - after a sleeper or the monitor has read the guard's sockets (stir): what they hold of notes is given only to a look, and whoever read
 * them may sleep next. The monitor is woken when the kernel reports a death, so none of this makes a death known later.
 */
#include "net/mpiwire/mpiwire.h"

#define GUARD_NS INT64_C(100000)
#define NOTE_NS INT64_C(2000000) /* how long a pass expects the note that a peer has told of */

enum { PASSES_A_CLOCK = 8 /* reading the clock takes a tenth of a short exchange */ };

void mpiwire_guard_stir(struct mpiwire *w)
{
    atomic_fetch_add_explicit(&w->stirs, 1, memory_order_seq_cst);
}

/* Whether this pass looks at the guard. */
static bool is_due(struct mpiwire_channel *c)
{
    bool told = atomic_load_explicit(&c->told, memory_order_relaxed);
    uint32_t stirs = atomic_load_explicit(&c->wire->stirs, memory_order_seq_cst);

    if (c->aborted || c->stirs != stirs || atomic_load_explicit(&c->wire->goners, memory_order_relaxed)) {
        c->stirs = stirs;
        return true;
    }
    if (!told && ++c->guard_passes % PASSES_A_CLOCK)
        return false;
    int64_t now = c->wire->env->now(c->wire->env);
    if (told) {
        atomic_store_explicit(&c->told, false, memory_order_relaxed);
        c->guard_until_ns = now + NOTE_NS;
    }
    if (now < c->guard_ns && now >= c->guard_until_ns)
        return false;
    if (now < c->guard_until_ns)
        c->guard_passes = PASSES_A_CLOCK - 1; /* the next pass reads the clock too */
    c->guard_ns = now + GUARD_NS;
    return true;
}

uint32_t mpiwire_guard_look(struct mpiwire_channel *c, struct wire_event *events, uint32_t max)
{
    if (!is_due(c))
        return 0;
    uint32_t notes = c->guard->class->advance(c->guard, events, max);

    c->noted = true; /* a look may make the guard answer */
    if (notes)
        c->guard_until_ns = 0;
    if (notes == max)
        c->stirs--; /* there may be more */
    return notes;
}

/* A peer that is dead or gone needs to know nothing. */
enum wire_result mpiwire_note(struct mpiwire_channel *c, const struct wire_expose *e)
{
    struct mpiwire *w = c->wire;
    enum wire_result r = c->guard->class->expose(c->guard, e);

    c->noted = true;
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < c->size && !c->aborted && !mpi_is_over(); i++)
        if (w->joined[c->world[i]] && !w->gone[c->world[i]].kind)
            (void)mpiwire_post(c, i, MPIWIRE_NOTED, 0, 0, NULL, 0);
    pthread_mutex_unlock(&w->lock);
    return r;
}
