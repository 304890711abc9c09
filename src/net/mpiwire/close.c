/*
 * Closes the wire. MPI must have delivered all frames before the communicator that carries them is freed: Open MPI keeps what comes later
 * for the next communicator of the same number, and breaks when it makes that. So each rank sends a LAST frame to each other and waits for
 * theirs. After a failure it does not wait for theirs, and the communicator is never freed. A library that may not survive a send to a
 * rank that died may not return from one to a rank that has exited either, so with such a library a rank that failed sends no LAST.
 */
#include "net/mpiwire/mpiwire.h"

#include <stdlib.h>

/* How long to wait until peers have received the last frames, and for theirs. */
#define CLOSE_NS INT64_C(5000000000)

enum { EVENTS_A_POLL = 16 };

static void free_lists(struct mpiwire *w)
{
    for (int i = 0; i < MPIWIRE_CLASSES; i++)
        for (struct mpiwire_block *b; (b = w->spare[i]);) {
            w->spare[i] = b->next;
            free(b);
        }
    for (struct mpiwire_slot *s; (s = w->spare_slots);) {
        w->spare_slots = s->next;
        free(s);
    }
    for (struct mpiwire_message *m; (m = w->spare_messages);) {
        w->spare_messages = m->next;
        free(m);
    }
}

void mpiwire_destroy(struct mpiwire *w)
{
    free_lists(w);
    free(w->gone);
    free(w->gone_ns);
    free(w->source);
    free(w->joined);
    free(w->ended);
    free(w);
}

static bool is_dead(const struct mpiwire *w, int32_t rank)
{
    return w->gone[rank].kind && w->gone[rank].result != COMM_ERR_CLOSED;
}

static void send_last(struct mpiwire *w)
{
    if (w->failed && mpi_dies_with_peers())
        return;
    for (int32_t i = 0; i < w->ranks && !mpi_is_over(); i++) {
        struct mpiwire_block *b = w->joined[i] && !w->gone[i].kind ? mpiwire_block_take(w, 0) : NULL;
        if (!b)
            continue;
        *mpiwire_head_of(b) = (struct mpiwire_head){.kind = MPIWIRE_LAST};
        mpiwire_start(w, i, b, 0);
    }
}

/* Whether a living rank may still send something. */
static bool awaits_last(const struct mpiwire *w)
{
    for (int32_t i = 0; i < w->ranks && !w->failed; i++)
        if (w->joined[i] && !w->ended[i] && !is_dead(w, i))
            return true;
    return false;
}

/* Whether a rank may have sent something that has not come, and so may come later. */
static bool may_come(const struct mpiwire *w)
{
    for (int32_t i = 0; i < w->ranks; i++)
        if (w->joined[i] && !w->ended[i])
            return true;
    return false;
}

/* Frames to dead ranks will never be received. After a failure a rank that closed did not wait for them either. */
static bool still_sends(const struct mpiwire *w)
{
    for (const struct mpiwire_block *b = w->sending; b; b = b->next)
        if (w->failed ? !w->gone[b->peer].kind : !is_dead(w, b->peer))
            return true;
    return false;
}

/* A rank that died while no channel was open has failed none. It will not be there when MPI ends. */
static void tell_of_deaths(const struct mpiwire *w)
{
    for (int32_t i = 0; i < w->ranks; i++)
        if (is_dead(w, i))
            mpi_failed();
}

void mpiwire_close(struct wire *wire)
{
    struct mpiwire *w = (struct mpiwire *)wire;
    int64_t until = w->env->now(w->env) + CLOSE_NS;
    struct wire_event events[EVENTS_A_POLL];

    pthread_mutex_lock(&w->lock);
    send_last(w);
    pthread_mutex_unlock(&w->lock);
    while ((still_sends(w) || awaits_last(w)) && !mpi_is_over() && w->env->now(w->env) < until) {
        (void)mpiwire_poll(wire, events, EVENTS_A_POLL); /* it learns from the guard which ranks have died */
        w->env->relax(w->env, true);
    }
    tell_of_deaths(w);
    pthread_mutex_lock(&w->lock);
    mpiwire_receive_end(w);
    pthread_mutex_unlock(&w->lock);
    mpi_caller_remove(&w->world->wire);
    w->guard->class->close(w->guard);
    if (may_come(w))
        w->world->base = MPI_COMM_NULL;
    if (w->sending || w->receiving || w->posts) {
        mpi_keep(); /* MPI holds memory of this wire for ever */
        mpi_close(&w->world->handle);
        return;
    }
    mpi_close(&w->world->handle);
    pthread_mutex_destroy(&w->lock);
    mpiwire_destroy(w);
}
