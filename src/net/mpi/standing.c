/*
 * Calls of plans as persistent collectives of MPI (MPI 4.1, section 6.13). MPI matches them in the order in which they are made, and not
 * with nonblocking ones. Every rank makes one at the first start of its plan, and all ranks start the same plans in the same order. In all
 * libraries that were tested, making one is local.
 */
#include "net/mpi/mpi_module.h"

#include <stdlib.h>

enum { SLOW_BYTES = 2048 /* from here on, those of slow_standing are the slower ones */ };

/* The answer is the same on all ranks. */
static bool is_worth_it(const struct mpi_channel *c, const struct native_call *call)
{
    return !(c->world->slow_standing >> call->collective & 1) || call->n * call->element_bytes < SLOW_BYTES;
}

const char *mpi_algorithm(struct native_channel *channel, const struct native_call *call, const char **how)
{
    bool persistent = call->standing && is_worth_it(mpi_channel_of(channel), call);

    *how = persistent ? "a persistent collective of MPI" : "MPI";
    return persistent ? "mpi_persistent" : mpi_native_class.name;
}

static struct mpi_standing *make(struct mpi_channel *c, const struct native_call *call)
{
    struct mpi_standing *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->request = MPI_REQUEST_NULL;
    s->is_persistent = is_worth_it(c, call);
    s->next = c->standing;
    c->standing = s;
    return s;
}

static int start(struct mpi_channel *c, const struct native_call *call, struct mpi_standing *s, MPI_Request *request)
{
    int said = MPI_SUCCESS;

    if (!s->is_persistent)
        return mpi_issue_one(c, call, &s->place, request);
    if (s->request == MPI_REQUEST_NULL)
        said = mpi_issue_standing(c, call, &s->place, &s->request);
    if (said == MPI_SUCCESS)
        said = MPI_Start(&s->request);
    *request = s->request;
    return said;
}

int mpi_start_standing(struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request)
{
    struct mpi_standing *s = *call->standing ? *call->standing : make(c, call);

    if (!s)
        return MPI_NO_MEMORY;
    *call->standing = s;
    bool ready = s->request == MPI_REQUEST_NULL ? mpi_prepare(c, call, &s->place) : mpi_prepare_stage(c, call, &s->place);
    if (!ready)
        return MPI_NO_MEMORY;
    mpi_enter(c->world);
    int said = start(c, call, s, request);
    mpi_exit(c->world);
    s->runs = said == MPI_SUCCESS;
    p->standing = s;
    return said;
}

void mpi_standing_ended(struct mpi_standing *s, MPI_Request request)
{
    s->runs = false;
    if (s->is_persistent)
        s->request = request;
}

static void free_one(struct mpi_channel *c, struct mpi_standing *s)
{
    mpi_go_in(&c->caller);
    if (s->request != MPI_REQUEST_NULL && !mpi_is_over() && mpi_may_call(c->world)) {
        mpi_enter(c->world);
        MPI_Request_free(&s->request);
        mpi_exit(c->world);
    }
    mpi_go_out(&c->caller);
    free(s->place.vectors);
    free(s->place.stage);
    free(s);
}

/* If this thread may not call MPI, or MPI still works on it after a failure, it stays until the channel ends. */
void mpi_forget(struct native_channel *channel, void *standing)
{
    struct mpi_channel *c = mpi_channel_of(channel);
    struct mpi_standing *gone = standing, **at = &c->standing;

    if (gone->runs || !mpi_may_call(c->world))
        return;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    free_one(c, gone);
}

void mpi_forget_all(struct mpi_channel *c)
{
    while (c->standing) {
        struct mpi_standing *gone = c->standing;
        c->standing = gone->next;
        free_one(c, gone);
    }
}
