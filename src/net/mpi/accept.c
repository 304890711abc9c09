/* Decides which collectives MPI runs. The library's own programs run a collective if MPI has different rules for it, or cannot count its
 * elements. All ranks must decide alike, so the choice depends only on values that are equal on all ranks. If a value that only this rank
 * has is too large for MPI, the call is refused. */
#include "net/mpi/mpi_module.h"

#include <limits.h>
#include <stdio.h>

static bool reduces(uint32_t collective)
{
    return collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_REDUCE_SCATTER ||
           collective == COLLECTIVE_REDUCE_SCATTER_V || collective == COLLECTIVE_SCAN || collective == COLLECTIVE_EXSCAN;
}

/* Whether MPI computes with this type and operator by this library's rules, by its own operator or by one of this library's. */
static bool has_pair(const struct mpi_world *w, const struct native_call *call)
{
    comm_op op = mpi_averages(call) ? COMM_SUM : call->op;

    return op <= COMM_MAXLOC && (w->rules[call->type] | w->own[call->type]) >> op & 1;
}

/* The number of blocks of n elements in the longer of the two buffers. */
static size_t blocks_of(const struct mpi_channel *c, uint32_t collective)
{
    bool whole = collective == COLLECTIVE_BROADCAST || collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_ALLREDUCE ||
                 collective == COLLECTIVE_SCAN || collective == COLLECTIVE_EXSCAN;

    return whole ? 1 : (size_t)c->size;
}

/* Whether an operator of this library's computes it. MPI tells such an operator in an int how many elements it has. Of a longer vector
 * MPICH 5 ends the process. */
static bool has_own_operator(const struct mpi_world *w, const struct native_call *call)
{
    comm_op op = mpi_averages(call) ? COMM_SUM : call->op;

    return reduces(call->collective) && !(w->rules[call->type] >> op & 1);
}

static size_t most_elements(const struct mpi_channel *c, const struct native_call *call)
{
    size_t most = c->world->most_bytes / call->element_bytes, counted = has_own_operator(c->world, call) ? INT_MAX : c->world->most;

    return most < counted ? most : counted;
}

static enum comm_result refuse(const char *what, int rank, size_t value, size_t most, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes,
             "%s[%d]=%zu; expected at most %zu elements in all, which is what this MPI can count: option algorithm lets a program do it",
             what, rank, value, most);
    return COMM_ERR_ARGUMENT;
}

/* Returns UNSUPPORTED if the sum is more than MPI can count. Sets *none if all blocks are empty. */
static enum comm_result sum_counts(const struct mpi_channel *c, const size_t *counts, size_t most, bool *none)
{
    size_t all = 0;

    for (int r = 0; r < c->size; r++) {
        if (counts[r] > most - all)
            return COMM_ERR_UNSUPPORTED;
        all += counts[r];
    }
    *none = all == 0;
    return COMM_OK;
}

static enum comm_result check_displs(const struct mpi_channel *c, const size_t *counts, const size_t *displs, const char *name, char *why,
                                     size_t why_bytes)
{
    for (int r = 0; r < c->size; r++)
        if (counts[r] && displs[r] > c->world->most)
            return refuse(name, r, displs[r], c->world->most, why, why_bytes);
    return COMM_OK;
}

/* allgather_v and reduce_scatter_v: the counts are equal on all ranks, but each rank has its own displacements. */
static enum comm_result accept_counted(const struct mpi_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    bool none = false;

    if (!call->counts)
        return COMM_OK; /* the caller asks in general, without buffers or counts */
    enum comm_result r = sum_counts(c, call->counts, most_elements(c, call), &none);
    if (r != COMM_OK || none)
        return COMM_ERR_UNSUPPORTED;
    return check_displs(c, call->counts, call->displs, "displs", why, why_bytes);
}

/* gather_v, scatter_v and alltoall_v: a rank knows only its own counts. */
static enum comm_result accept_ragged(const struct mpi_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    const struct {
        const size_t *counts, *displs;
        const char *count_name, *displ_name;
    } sides[] = {{call->counts, call->displs, "counts", "displs"}, {call->in_counts, call->in_displs, "in_counts", "in_displs"}};
    size_t most = most_elements(c, call);
    bool none;

    if (call->n > most)
        return refuse("n of rank ", c->rank, call->n, most, why, why_bytes);
    for (int i = 0; i < 2; i++) {
        if (!sides[i].counts)
            continue;
        if (sum_counts(c, sides[i].counts, most, &none) != COMM_OK)
            return refuse(sides[i].count_name, 0, sides[i].counts[0], most, why, why_bytes);
        enum comm_result r = check_displs(c, sides[i].counts, sides[i].displs, sides[i].displ_name, why, why_bytes);
        if (r != COMM_OK)
            return r;
    }
    return COMM_OK;
}

enum comm_result mpi_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    const struct mpi_channel *c = mpi_channel_of(channel);

    if (call->collective == COLLECTIVE_BARRIER)
        return COMM_OK;
    if (c->size == 1 && call->collective == COLLECTIVE_ALLGATHER_V) /* of one rank, MPICH 4.0 ignores the displacement */
        return COMM_ERR_UNSUPPORTED;
    if (mpi_type_moved(call->element_bytes) == MPI_DATATYPE_NULL || c->world->without >> call->collective & 1)
        return COMM_ERR_UNSUPPORTED;
    if (reduces(call->collective) && !has_pair(c->world, call))
        return COMM_ERR_UNSUPPORTED;
    switch (call->collective) {
    case COLLECTIVE_GATHER_V:
    case COLLECTIVE_SCATTER_V:
    case COLLECTIVE_ALLTOALL_V:
        return accept_ragged(c, call, why, why_bytes);
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_REDUCE_SCATTER_V:
        return accept_counted(c, call, why, why_bytes);
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_SCAN:
    case COLLECTIVE_EXSCAN:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_ALLTOALL:
        return call->n > 0 && call->n <= most_elements(c, call) / blocks_of(c, call->collective) ? COMM_OK : COMM_ERR_UNSUPPORTED;
    default:
        return COMM_ERR_UNSUPPORTED;
    }
}
