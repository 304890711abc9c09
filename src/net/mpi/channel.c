/*
 * The MPI_Comm of a communicator. The world has base, which belongs to the native: communicators are created from it even after the world
 * was closed. The world's channel makes base. Each MPI_Comm is made by MPI_Comm_create_group. That call blocks until all members have
 * called it, so it runs on a separate thread. This requires MPI_THREAD_MULTIPLE. Below that level a child has no native, and the library's
 * own programs serve it; the thread that opens a world makes its base. The offer of each member contains its rank in the parent.
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

#define NO_COMM "no MPI_Comm for one more communicator"

_Static_assert(sizeof(struct mpi_card) <= NATIVE_OFFER_BYTES, "a member's offer");

/* ------------------------------------------------------------------------------------------------------------ tags */
int mpi_tag_take(struct mpi_world *w)
{
    uint64_t taken = atomic_load(w->tags_taken), all = w->tags_each == 64 ? UINT64_MAX : (UINT64_C(1) << w->tags_each) - 1;

    for (;;) {
        if ((taken & all) == all)
            return -1;
        int at = __builtin_ctzll(~taken);
        if (atomic_compare_exchange_weak(w->tags_taken, &taken, taken | UINT64_C(1) << at))
            return at;
    }
}

void mpi_tag_give(struct mpi_world *w, int index)
{
    if (index >= 0)
        atomic_fetch_and(w->tags_taken, ~(UINT64_C(1) << index));
}

struct mpi_card mpi_card_of(const struct mpi_world *w, int tag_index)
{
    return (struct mpi_card){tag_index < 0 ? -1 : w->first_tag + w->parent_rank * w->tags_each + tag_index, w->parent_rank};
}

static void give_tag_back(struct mpi_channel *c)
{
    mpi_tag_give(c->world, c->tag_taken);
    c->tag_taken = -1;
}

/* ------------------------------------------------------------------------------------------------------------ joining */
static void channel_free(struct mpi_channel *c)
{
    mpi_caller_remove(&c->caller);
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

/* base belongs to the native. */
static void channel_end(struct mpi_channel *c)
{
    mpi_forget_all(c);
    mpi_go_in(&c->caller);
    if (c->comm != MPI_COMM_NULL && c->comm != c->world->base && !mpi_is_over())
        MPI_Comm_free(&c->comm); /* only at MULTIPLE a communicator has one of its own */
    mpi_go_out(&c->caller);
    channel_free(c);
}

static enum comm_result make_channel(struct mpi_world *w, const struct wire_team *team, struct native_channel **channel)
{
    bool first = team->size == w->ranks && !w->base_taken;
    struct mpi_channel *c = calloc(1, sizeof *c);

    if (!first && !w->shared) {
        free(c);
        return COMM_ERR_UNSUPPORTED;
    }
    if (!c)
        return COMM_ERR_MEMORY;
    c->handle.native = &w->handle;
    c->world = w;
    c->size = team->size;
    c->rank = team->rank;
    c->comm = MPI_COMM_NULL;
    c->makes_base = first;
    c->tag = c->tag_taken = -1;
    w->base_taken |= first; /* on all ranks alike, also where the first one has no tag */
    if (team->rank == 0 && (c->tag_taken = mpi_tag_take(w)) < 0) {
        free(c);
        return COMM_ERR_UNSUPPORTED;
    }
    atomic_init(&c->state, MPI_JOINING);
    c->members = malloc((size_t)team->size * sizeof *c->members);
    if (!c->members) {
        channel_free(c);
        return COMM_ERR_MEMORY;
    }
    mpi_caller_add(&c->caller);
    *channel = &c->handle;
    return COMM_OK;
}

int mpi_create_group(const struct mpi_world *w, const int *members, int size, int tag, MPI_Comm *comm)
{
    MPI_Group all, group;

    int code = MPI_Comm_group(w->parent, &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(all, size, members, &group);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(w->parent, group, tag, comm);
        MPI_Group_free(&group);
    }
    MPI_Group_free(&all);
    if (code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN); /* it has its parent's, which by default ends the job */
        code = MPI_Barrier(*comm);
    }
    if (code != MPI_SUCCESS) /* it is never freed: what others send on it may come when a new one has its number */
        *comm = MPI_COMM_NULL;
    return code;
}

/* Only while the world opens: its ranks have met, and each of them waits here for the others. */
static void make_base(struct mpi_channel *c)
{
    c->code = mpi_make_base_of(c->world, c->members, c->tag, c->tag_taken);
    if (c->code == MPI_SUCCESS)
        c->tag_taken = -1;
    c->comm = c->world->base;
}

/* The program may have finalized MPI since the ranks agreed on it. MPI_Finalize waits for this call too. */
static enum mpi_join_state create(struct mpi_channel *c)
{
    struct mpi_caller caller;

    mpi_call_begin(&caller);
    if (mpi_is_over()) {
        c->code = MPI_OVER;
    } else if (c->makes_base) {
        make_base(c);
    } else {
        c->code = mpi_create_group(c->world, c->members, c->size, c->tag, &c->comm);
        if (c->code == MPI_SUCCESS)
            give_tag_back(c);
    }
    mpi_call_end(&caller);
    return c->code == MPI_SUCCESS ? MPI_JOINED : MPI_JOIN_FAILED;
}

/* With the store of its state the channel is the communicator's alone, which may free it and its world at once. */
static void *create_in_thread(void *arg)
{
    struct mpi_channel *c = arg;
    enum mpi_join_state state = create(c);

    if (atomic_exchange_explicit(&c->state, (int)state, memory_order_acq_rel) == MPI_JOIN_LEFT)
        channel_end(c);
    return NULL;
}

/* The new thread blocks all signals, so the program's signals are delivered to the program's own threads. */
static enum comm_result start_thread(struct mpi_channel *c)
{
    pthread_t thread;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, create_in_thread, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return COMM_ERR_SYSTEM;
    c->in_thread = true;
    pthread_detach(thread);
    return COMM_PENDING;
}

enum comm_result mpi_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                          struct native_channel **channel)
{
    struct mpi_world *w = (struct mpi_world *)native;
    struct mpi_card said;

    if (!offers && mpi_is_over()) {
        mpi_tell(w, NO_COMM, MPI_OVER);
        return COMM_ERR_STATE;
    }
    if (!offers) {
        enum comm_result r = make_channel(w, team, channel);
        if (r == COMM_OK) {
            said = mpi_card_of(w, mpi_channel_of(*channel)->tag_taken);
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
    c->begun = true;
    return COMM_OK;
}

/* Begins here, and not in mpi_join: opening a world, all ranks have connected by then, so none of them waits for one that could not. */
enum comm_result mpi_joined(struct native_channel *channel)
{
    static const enum comm_result result[] = {COMM_PENDING, COMM_OK, COMM_ERR_BACKEND};
    struct mpi_channel *c = mpi_channel_of(channel);

    if (!c->in_thread && atomic_load(&c->state) == MPI_JOINING) {
        if (c->world->shared)
            return start_thread(c);
        atomic_store(&c->state, (int)create(c));
    }
    int state = atomic_load_explicit(&c->state, memory_order_acquire);
    if (state == MPI_JOIN_FAILED && !c->told)
        mpi_tell(c->world, NO_COMM, c->code);
    c->told |= state == MPI_JOIN_FAILED;
    return result[state];
}

/* MPI cannot cancel a collective. MPI owns the buffers of a started collective until it completes, and after a failure it may never
 * complete. Once a rank is gone, some libraries must not even be asked. */
uint32_t mpi_leave(struct native_channel *channel, enum native_leave how)
{
    struct mpi_channel *c = mpi_channel_of(channel);
    struct native_event ignored[64];
    uint32_t left = mpi_is_over() ? 0 : c->count; /* after MPI_Finalize MPI holds nothing any more */

    c->untouchable |= how == NATIVE_LEAVE_GONE && c->world->dies_with_peers;
    while (left && !c->untouchable && mpi_advance(channel, ignored, sizeof ignored / sizeof *ignored))
        left = c->count;
    if (how != NATIVE_LEAVE_CLOSE) {
        mpi_failed();
        return left;
    }
    if (left || c->untouchable || (c->in_thread && atomic_exchange(&c->state, MPI_JOIN_LEFT) == MPI_JOINING))
        mpi_keep(); /* MPI has the buffers, or the thread has the channel */
    else
        channel_end(c);
    return left;
}
