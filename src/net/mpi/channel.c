/*
 * The MPI_Comm of a communicator. The world uses the copy that was made when it opened. A child communicator, and a world that is a part of
 * MPI_COMM_WORLD, needs MPI_Comm_create_group. That call blocks until all members have called it, so it runs on a separate thread. This
 * requires MPI_THREAD_MULTIPLE. Below that level a child has no native, and the library's own programs serve it. The offer of each member
 * contains its rank in the parent.
 *
 * MPI distinguishes overlapping creations only by their tags. So the first member gives each creation a tag that no other creation in
 * progress has. Each rank has its own range of tags. A tag is free again when all members have left MPI_Comm_create_group, which a barrier
 * on the new communicator shows. If a rank has no free tag, it gives none, and the library's own programs serve that child.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct offer {
    int tag; /* all members use the first member's tag */
    int parent_rank;
};
_Static_assert(sizeof(struct offer) <= NATIVE_OFFER_BYTES, "a member's offer");

/* ------------------------------------------------------------------------------------------------------------ tags */
static bool take_tag(struct mpi_channel *c)
{
    struct mpi_world *w = c->world;
    uint64_t taken = atomic_load(w->tags_taken), all = w->tags_each == 64 ? UINT64_MAX : (UINT64_C(1) << w->tags_each) - 1;

    for (;;) {
        if ((taken & all) == all)
            return false;
        int at = __builtin_ctzll(~taken);
        if (atomic_compare_exchange_weak(w->tags_taken, &taken, taken | UINT64_C(1) << at)) {
            c->tag_taken = at;
            c->tag = w->first_tag + w->parent_rank * w->tags_each + at;
            return true;
        }
    }
}

static void give_tag_back(struct mpi_channel *c)
{
    if (c->tag_taken >= 0)
        atomic_fetch_and(c->world->tags_taken, ~(UINT64_C(1) << c->tag_taken));
    c->tag_taken = -1;
}

/* ------------------------------------------------------------------------------------------------------------ joining */
static void channel_free(struct mpi_channel *c)
{
    if (!c->begun) /* then no member has begun: on one of them MPI is missing */
        give_tag_back(c);
    for (uint32_t i = 0; i < c->room; i++) {
        free(c->pending[i].vectors);
        free(c->pending[i].stage);
    }
    free(c->request);
    free(c->pending);
    free(c->index);
    free(c->status);
    free(c->members);
    free(c);
}

static void let_go(struct mpi_channel *c)
{
    if (atomic_fetch_sub_explicit(&c->owners, 1, memory_order_acq_rel) != 1)
        return;
    if (c->owns_comm && c->comm != MPI_COMM_NULL && !mpi_is_over()) {
        mpi_enter(c->world);
        MPI_Comm_free(&c->comm);
        mpi_exit(c->world);
    }
    channel_free(c);
}

static enum comm_result make_channel(struct mpi_world *w, const struct wire_team *team, struct native_channel **channel)
{
    bool whole = team->size == w->ranks && !w->base_taken && w->base != MPI_COMM_NULL;
    struct mpi_channel *c = calloc(1, sizeof *c);

    if (!whole && !w->shared) {
        free(c);
        return COMM_ERR_UNSUPPORTED;
    }
    if (!c)
        return COMM_ERR_MEMORY;
    c->handle.native = &w->handle;
    c->world = w;
    c->size = team->size;
    c->rank = team->rank;
    c->comm = whole ? w->base : MPI_COMM_NULL;
    w->base_taken |= whole;
    c->owns_comm = true;
    c->tag = c->tag_taken = -1;
    if (!whole && team->rank == 0 && !take_tag(c)) {
        free(c);
        return COMM_ERR_UNSUPPORTED;
    }
    atomic_init(&c->state, whole ? MPI_JOINED : MPI_JOINING);
    atomic_init(&c->owners, 1);
    c->members = malloc((size_t)team->size * sizeof *c->members);
    if (!c->members) {
        let_go(c);
        return COMM_ERR_MEMORY;
    }
    *channel = &c->handle;
    return COMM_OK;
}

static void *create_group(void *arg)
{
    struct mpi_channel *c = arg;
    MPI_Group all, group;

    c->code = MPI_Comm_group(c->world->parent, &all);
    if (c->code == MPI_SUCCESS) {
        c->code = MPI_Group_incl(all, c->size, c->members, &group);
        if (c->code == MPI_SUCCESS) {
            c->code = MPI_Comm_create_group(c->world->parent, group, c->tag, &c->comm);
            MPI_Group_free(&group);
        }
        MPI_Group_free(&all);
    }
    if (c->code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
        c->code = MPI_Barrier(c->comm);
    }
    if (c->code == MPI_SUCCESS)
        give_tag_back(c);
    if (c->code == MPI_SUCCESS && !c->world->has_rules) /* the first communicator is the world's: nothing else is created before it */
        mpi_agree_on_rules(c->world, c->comm);
    atomic_store_explicit(&c->state, c->code == MPI_SUCCESS ? MPI_JOINED : MPI_JOIN_FAILED, memory_order_release);
    let_go(c);
    return NULL;
}

/* The new thread blocks all signals, so the program's signals are delivered to the program's own threads. */
static enum comm_result connect_channel(struct mpi_channel *c)
{
    pthread_t thread;
    sigset_t all, before;

    if (atomic_load(&c->state) != MPI_JOINING)
        return COMM_OK;
    c->begun = true;
    atomic_fetch_add(&c->owners, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, create_group, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        let_go(c);
        let_go(c); /* for the communicator: an error ends the channel */
        return COMM_ERR_SYSTEM;
    }
    pthread_detach(thread);
    return COMM_OK;
}

enum comm_result mpi_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                          struct native_channel **channel)
{
    struct mpi_world *w = (struct mpi_world *)native;
    struct offer said;

    if (!offers) {
        enum comm_result r = make_channel(w, team, channel);
        if (r == COMM_OK) {
            said = (struct offer){mpi_channel_of(*channel)->tag, w->parent_rank};
            memcpy(offer, &said, sizeof said);
        }
        return r;
    }
    struct mpi_channel *c = mpi_channel_of(*channel);
    for (int i = team->size; i-- > 0;) { /* ends with the first member, whose tag is used */
        memcpy(&said, (const char *)offers + (size_t)i * NATIVE_OFFER_BYTES, sizeof said);
        c->members[i] = said.parent_rank;
    }
    c->tag = said.tag;
    return connect_channel(c);
}

enum comm_result mpi_joined(struct native_channel *channel)
{
    static const enum comm_result result[] = {COMM_PENDING, COMM_OK, COMM_ERR_BACKEND};

    return result[atomic_load_explicit(&mpi_channel_of(channel)->state, memory_order_acquire)];
}

/* MPI cannot cancel a collective. MPI owns the buffers of a started collective until it completes, and after a failure it may never
 * complete. */
uint32_t mpi_leave(struct native_channel *channel, enum wire_leave how)
{
    struct mpi_channel *c = mpi_channel_of(channel);
    struct native_event ignored[64];
    uint32_t left = mpi_is_over() ? 0 : c->count; /* after MPI_Finalize MPI holds nothing any more */

    while (left && mpi_advance(channel, ignored, sizeof ignored / sizeof *ignored))
        left = c->count;
    if (how == WIRE_ABORT) {
        mpi_failed();
        return left;
    }
    if (left || (atomic_load(&c->state) == MPI_JOINING && atomic_load(&c->owners) > 1))
        mpi_keep();
    if (!left)
        let_go(c);
    return left;
}
