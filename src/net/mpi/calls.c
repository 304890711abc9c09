/* Runs collectives as nonblocking or persistent calls of MPI: starts them, tracks the pending ones and collects the completed ones. */
#include "net/mpi/mpi_module.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 16 };

/* ------------------------------------------------------------------------------------------------------------ start */
static bool grow(struct mpi_channel *c)
{
    uint32_t room = c->room ? c->room * 2 : ROOM_FIRST;
    MPI_Request *request = realloc(c->request, room * sizeof *request);
    c->request = request ? request : c->request;
    struct mpi_pending *pending = realloc(c->pending, room * sizeof *pending);
    c->pending = pending ? pending : c->pending;
    int *index = realloc(c->index, room * sizeof *index);
    c->index = index ? index : c->index;
    MPI_Status *status = realloc(c->status, room * sizeof *status);
    c->status = status ? status : c->status;

    if (!request || !pending || !index || !status)
        return false;
    memset(c->pending + c->room, 0, (room - c->room) * sizeof *pending);
    c->room = room;
    return true;
}

static int start_once(struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request)
{
    if (!mpi_prepare(c, call, p))
        return MPI_NO_MEMORY;
    mpi_enter(c->world);
    int said = mpi_issue_one(c, call, p, request);
    mpi_exit(c->world);
    return said;
}

static enum comm_result start(struct mpi_channel *c, const struct native_call *call, int32_t *code)
{
    if (mpi_is_over() || !mpi_may_call(c->world)) {
        *code = mpi_is_over() ? MPI_OVER : MPI_OTHER_THREAD;
        return COMM_ERR_STATE;
    }
    if (c->count == c->room && !grow(c))
        return COMM_ERR_MEMORY;
    struct mpi_pending *p = &c->pending[c->count];
    p->cookie = call->cookie;
    p->standing = NULL;
    int said = call->standing ? mpi_start_standing(c, call, p, &c->request[c->count]) : start_once(c, call, p, &c->request[c->count]);
    *code = said;
    if (said == MPI_NO_MEMORY)
        return COMM_ERR_MEMORY;
    c->count += said == MPI_SUCCESS;
    return said == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND;
}

enum comm_result mpi_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct mpi_channel *c = mpi_channel_of(channel);

    mpi_go_in(&c->caller);
    enum comm_result r = start(c, call, code);
    mpi_go_out(&c->caller);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ advance */
/* Moves the last pending call into the free place. Keeps the memory of the removed call for the next one. */
static void remove_pending(struct mpi_channel *c, uint32_t i)
{
    if (i == --c->count)
        return;
    struct mpi_pending gone = c->pending[i];
    c->request[i] = c->request[c->count];
    c->pending[i] = c->pending[c->count];
    c->pending[c->count] = gone;
}

static struct native_event ended(const struct mpi_channel *c, uint32_t i, int code)
{
    const struct mpi_pending *p = &c->pending[i], *staged = p->standing ? &p->standing->place : p;

    if (code == MPI_SUCCESS && staged->to)
        memcpy(staged->to, staged->stage, staged->to_bytes);
    if (code == MPI_SUCCESS && staged->averaged)
        mpi_divide(c, staged);
    if (p->standing)
        mpi_standing_ended(p->standing, c->request[i]);
    return (struct native_event){p->cookie, code == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND, code};
}

static uint32_t advance_one(struct mpi_channel *c, struct native_event *event)
{
    int flag = 0, code = MPI_Test(&c->request[0], &flag, MPI_STATUS_IGNORE);

    if (code == MPI_SUCCESS && !flag)
        return 0;
    *event = ended(c, 0, code);
    remove_pending(c, 0);
    return 1;
}

static int by_place_down(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

/* Asks about the calls from `first` on. */
static uint32_t advance_slice(struct mpi_channel *c, uint32_t first, uint32_t looked, struct native_event *events)
{
    int count = 0;
    uint32_t made = 0;
    int code = MPI_Testsome((int)looked, c->request + first, &count, c->index, c->status);

    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) { /* MPI does not say which call failed: report one; the channel fails */
        events[0] = ended(c, first, code);
        remove_pending(c, first);
        return 1;
    }
    if (count == MPI_UNDEFINED || count <= 0)
        return 0;
    for (int i = 0; i < count; i++) {
        uint32_t at = first + (uint32_t)c->index[i];
        events[made++] = ended(c, at, code == MPI_ERR_IN_STATUS ? c->status[i].MPI_ERROR : MPI_SUCCESS);
    }
    /* From the highest place down, because a removal moves only the last entry. */
    qsort(c->index, (size_t)count, sizeof *c->index, by_place_down);
    for (int i = 0; i < count; i++)
        remove_pending(c, first + (uint32_t)c->index[i]);
    return made;
}

/* Asks about all calls, as many at once as there is room for events. From the last ones down, because a removal then moves only a call that
 * was asked about: the oldest call may be anywhere, and it may be the only one that has ended. */
static uint32_t advance_some(struct mpi_channel *c, struct native_event *events, uint32_t max)
{
    uint32_t made = 0, looked;

    for (uint32_t end = c->count; end && made < max; end -= looked) {
        looked = end < max - made ? end : max - made;
        made += advance_slice(c, end - looked, looked, events + made);
    }
    return made;
}

/* Makes MPI progress when no call of this rank is pending, because MPI may still have to send for calls that are complete here. No message
 * is ever sent on this MPI_Comm, so the probe finds none. */
static uint32_t pay(struct mpi_channel *c)
{
    int found = 0;

    if (mpi_is_over() || atomic_load_explicit(&c->state, memory_order_acquire) != MPI_JOINED)
        return 0;
    mpi_enter(c->world);
    (void)MPI_Iprobe(MPI_ANY_SOURCE, 0, c->comm, &found, MPI_STATUS_IGNORE);
    mpi_exit(c->world);
    return 0;
}

static uint32_t advance(struct mpi_channel *c, struct native_event *events, uint32_t max)
{
    uint32_t made = 0;

    if (!mpi_may_call(c->world))
        return 0;
    if (!c->count)
        return pay(c);
    if (mpi_is_over()) { /* the program finalized MPI while this communicator was open */
        events[0] = (struct native_event){c->pending[0].cookie, COMM_ERR_STATE, MPI_OVER};
        remove_pending(c, 0);
        return 1;
    }
    mpi_enter(c->world);
    made = c->count == 1 ? advance_one(c, events) : advance_some(c, events, max);
    mpi_exit(c->world);
    return made;
}

uint32_t mpi_advance(struct native_channel *channel, struct native_event *events, uint32_t max)
{
    struct mpi_channel *c = mpi_channel_of(channel);

    mpi_go_in(&c->caller);
    uint32_t made = advance(c, events, max);
    mpi_go_out(&c->caller);
    return made;
}
