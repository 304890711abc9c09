/* Makes one call of MPI for each accepted call. It converts the buffers and the count vectors to MPI's form, and calls the function with
 * int or with MPI_Count, depending on what the library has. */
#include "net/mpi/mpi_module.h"

#include <stdlib.h>
#include <string.h>

/* Buffers in MPI's form: MPI_IN_PLACE if input and output are the same memory. A buffer is never NULL, because some libraries refuse NULL
 * even if nothing is read or written. */
struct placed {
    const void *in;
    void *out;
};

static char nothing[16];

/* The number of elements in this rank's block, and where the block begins in a buffer of all blocks. */
static size_t own_count(const struct mpi_channel *c, const struct native_call *call)
{
    return call->counts ? call->counts[c->rank] : call->n;
}
static const char *own_block(const struct mpi_channel *c, const struct native_call *call, const void *all)
{
    size_t before = call->displs ? call->displs[c->rank] : (size_t)c->rank * call->n;
    return (const char *)all + before * call->element_bytes;
}

static size_t all_count(const struct mpi_channel *c, const size_t *counts)
{
    size_t all = 0;

    for (int r = 0; r < c->size; r++)
        all += counts[r];
    return all;
}

/* The call uses a buffer of the library where MPI cannot work in the caller's memory. STAGE_RESULT is for reduce_scatter in place, where
 * MPI puts the result at the beginning of the buffer and this library puts it into this rank's block. It is also for exscan on rank 0,
 * where MPI leaves the result undefined and this library leaves the buffer unchanged. STAGE_INPUT is for alltoall in place. MPI requires
 * MPI_IN_PLACE on all ranks or on none, but in this library each rank decides alone. Open MPI 4.1 also loses blocks of MPI_Ialltoallv in
 * place. MPI requires the same of allreduce, where only Open MPI makes use of it: the ranks of a long call choose another algorithm if
 * their input is in place. */
enum stage { STAGE_NONE, STAGE_RESULT, STAGE_INPUT };
enum { APART_RANKS = 4, APART_BYTES = 65536 /* from here on Open MPI 4.1 and 5.0 choose so */ };

static bool comes_apart(const struct mpi_channel *c, const struct native_call *call)
{
    return c->world->apart >> call->collective & 1 && c->size >= APART_RANKS && call->n * call->element_bytes >= APART_BYTES;
}

static enum stage stage_of(const struct mpi_channel *c, const struct native_call *call)
{
    switch (call->collective) {
    case COLLECTIVE_ALLREDUCE:
        return call->in == call->out && comes_apart(c, call) ? STAGE_INPUT : STAGE_NONE;
    case COLLECTIVE_EXSCAN:
        return c->rank == 0 ? STAGE_RESULT : STAGE_NONE;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_REDUCE_SCATTER_V:
        return own_count(c, call) && own_block(c, call, call->in) == (const char *)call->out ? STAGE_RESULT : STAGE_NONE;
    case COLLECTIVE_ALLTOALL:
        return call->in == call->out ? STAGE_INPUT : STAGE_NONE;
    case COLLECTIVE_ALLTOALL_V:
        return call->in_counts ? STAGE_NONE : STAGE_INPUT;
    default:
        return STAGE_NONE;
    }
}

/* The number of elements of the input in place, up to the end of the last block. */
static size_t end_of(const struct mpi_channel *c, const struct native_call *call)
{
    size_t blocks = call->collective == COLLECTIVE_ALLREDUCE ? 1 : (size_t)c->size, end = call->counts ? 0 : call->n * blocks;

    for (int r = 0; call->counts && r < c->size; r++)
        if (call->counts[r] && call->displs[r] + call->counts[r] > end)
            end = call->displs[r] + call->counts[r];
    return end;
}

bool mpi_prepare_stage(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p)
{
    enum stage stage = stage_of(c, call);
    size_t bytes = (stage == STAGE_INPUT ? end_of(c, call) : own_count(c, call)) * call->element_bytes;

    p->to = NULL;
    p->sums = call->out;
    p->type = call->type;
    p->averaged = mpi_averages(call) && call->out ? own_count(c, call) : 0;
    if (stage == STAGE_NONE || !bytes)
        return true;
    if (bytes > p->stage_bytes) {
        free(p->stage);
        p->stage = malloc(bytes);
        p->stage_bytes = p->stage ? bytes : 0;
    }
    if (!p->stage)
        return false;
    if (stage == STAGE_INPUT)
        memcpy(p->stage, call->in, bytes);
    else if (call->collective != COLLECTIVE_EXSCAN)
        p->to = call->out;
    p->to_bytes = bytes;
    return true;
}

static void place_v(const struct mpi_channel *c, const struct native_call *call, struct placed *at)
{
    switch (call->collective) {
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_GATHER_V: /* only the root has counts */
        if (call->counts && call->in == own_block(c, call, call->out))
            at->in = own_count(c, call) ? MPI_IN_PLACE : nothing;
        else if (!own_count(c, call))
            at->in = nothing;
        return;
    case COLLECTIVE_SCATTER_V:
        if (call->counts && call->out == own_block(c, call, call->in))
            at->out = own_count(c, call) ? MPI_IN_PLACE : nothing;
        else if (!own_count(c, call))
            at->out = nothing;
        return;
    case COLLECTIVE_ALLTOALL_V:
        if (all_count(c, call->in_counts ? call->in_counts : call->counts) == 0)
            at->in = nothing;
        else if (all_count(c, call->counts) == 0)
            at->out = nothing;
        return;
    default: /* reduce_scatter_v */
        if (!own_count(c, call))
            at->out = nothing;
    }
}

static struct placed place(const struct mpi_channel *c, const struct native_call *call, const struct mpi_pending *p)
{
    struct placed at = {call->in, call->out};
    enum stage stage = stage_of(c, call);

    switch (call->collective) {
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_SCAN:
    case COLLECTIVE_EXSCAN:
        if (at.in == at.out)
            at.in = MPI_IN_PLACE;
        break;
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_GATHER:
        if (at.out && at.in == own_block(c, call, at.out))
            at.in = MPI_IN_PLACE;
        break;
    case COLLECTIVE_SCATTER:
        if (at.in && at.out == own_block(c, call, at.in))
            at.out = MPI_IN_PLACE;
        break;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_ALLTOALL:
        break;
    default:
        place_v(c, call, &at);
    }
    if (stage == STAGE_INPUT)
        at.in = p->stage;
    if (stage == STAGE_RESULT)
        at = (struct placed){call->in, p->stage};
    at.in = at.in ? at.in : nothing;
    at.out = at.out ? at.out : nothing;
    return at;
}

/* ------------------------------------------------------------------------------------------------------------ with int, and MPI_Count */
#define FILLS
#define BARRIER MPI_Ibarrier
#define COMM c->comm
#ifndef MPI_ABI_CALLS /* libraries with the standard ABI have all calls with MPI_Count */
#    define COUNT int
#    define DISPL int
#    define CALL(name) MPI_##name
#    define NAME(name) name##_int
#    include "net/mpi/issue_body.h"
#    undef COUNT
#    undef DISPL
#    undef CALL
#    undef NAME
#else
#    define fill_int fill_large
#    define issue_int issue_large
#endif

#define COUNT MPI_Count
#define DISPL MPI_Aint
#define CALL(name) c->world->large->name
#define NAME(name) name##_large
#include "net/mpi/issue_body.h"
#undef CALL
#undef NAME

/* ------------------------------------------------------------------------------------------------------------ persistent calls */
#undef FILLS
#undef BARRIER
#undef COMM
#define BARRIER CALL(Ibarrier)
#define COMM c->comm, MPI_INFO_NULL
#define CALL(name) c->world->standing_large->name
#define NAME(name) name##_standing_large
#include "net/mpi/issue_body.h"
#undef COUNT
#undef DISPL
#undef CALL
#undef NAME

#define COUNT int
#define DISPL int
#define CALL(name) c->world->standing_int->name
#define NAME(name) name##_standing_int
#include "net/mpi/issue_body.h"

/* ------------------------------------------------------------------------------------------------------------ one call */
bool mpi_prepare(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p)
{
    if (!mpi_prepare_stage(c, call, p))
        return false;
    if (!call->counts)
        return true;
    if (!p->vectors)
        p->vectors = malloc(4 * (size_t)c->size * (c->world->large ? sizeof(MPI_Count) : sizeof(int)));
    if (!p->vectors)
        return false;
    c->world->large ? fill_large(c, call, p->vectors) : fill_int(c, call, p->vectors);
    return true;
}

int mpi_issue_one(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request)
{
    struct placed at = place(c, call, p);

    return c->world->large ? issue_large(c, call, &at, p->vectors, request) : issue_int(c, call, &at, p->vectors, request);
}

int mpi_issue_standing(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request)
{
    struct placed at = place(c, call, p);

    return c->world->standing_large ? issue_standing_large(c, call, &at, p->vectors, request)
                                    : issue_standing_int(c, call, &at, p->vectors, request);
}
