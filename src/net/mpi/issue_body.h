/* issue.c includes this file for each type of count, for nonblocking and for persistent calls. COUNT is the type of a count, CALL(x) is the
 * call of MPI, COMM is the communicator and what follows it before the request, and NAME(x) is the function defined here. DISPL is the type
 * of a displacement. */

#ifdef FILLS
static void NAME(fill)(const struct mpi_channel *c, const struct native_call *call, void *vectors)
{
    COUNT *counts = vectors, *in_counts = counts + 2 * c->size;
    DISPL *displs = (DISPL *)(counts + c->size), *in_displs = (DISPL *)(counts + 3 * c->size);

    for (int r = 0; r < c->size; r++) {
        counts[r] = (COUNT)call->counts[r];
        displs[r] = call->counts[r] ? (DISPL)call->displs[r] : 0;
    }
    for (int r = 0; call->collective == COLLECTIVE_ALLTOALL_V && r < c->size; r++) {
        in_counts[r] = call->in_counts ? (COUNT)call->in_counts[r] : counts[r];
        in_displs[r] = !call->in_counts ? displs[r] : call->in_counts[r] ? (DISPL)call->in_displs[r] : 0;
    }
}
#endif

static int NAME(reduce)(const struct mpi_channel *c, const struct native_call *call, const struct placed *at, const COUNT *counts,
                        MPI_Request *request)
{
    MPI_Datatype type = mpi_type_number(call->type);
    MPI_Op op = mpi_operator_of(c->world, call);
    COUNT n = (COUNT)call->n;

    switch (call->collective) {
    case COLLECTIVE_ALLREDUCE:
        return CALL(Iallreduce)(at->in, at->out, n, type, op, COMM, request);
    case COLLECTIVE_REDUCE:
        return CALL(Ireduce)(at->in, at->out, n, type, op, call->root, COMM, request);
    case COLLECTIVE_SCAN:
        return CALL(Iscan)(at->in, at->out, n, type, op, COMM, request);
    case COLLECTIVE_EXSCAN:
        return CALL(Iexscan)(at->in, at->out, n, type, op, COMM, request);
    case COLLECTIVE_REDUCE_SCATTER:
        return CALL(Ireduce_scatter_block)(at->in, at->out, n, type, op, COMM, request);
    default:
        return CALL(Ireduce_scatter)(at->in, at->out, counts, type, op, COMM, request);
    }
}

static int NAME(move_v)(const struct mpi_channel *c, const struct native_call *call, const struct placed *at, const COUNT *counts,
                        MPI_Request *request)
{
    const DISPL *displs = counts ? (const DISPL *)(counts + c->size) : NULL;
    MPI_Datatype type = mpi_type_moved(call->element_bytes);
    COUNT own = (COUNT)own_count(c, call);

    switch (call->collective) {
    case COLLECTIVE_ALLGATHER_V:
        return CALL(Iallgatherv)(at->in, own, type, at->out, counts, displs, type, COMM, request);
    case COLLECTIVE_GATHER_V:
        return CALL(Igatherv)(at->in, own, type, at->out, counts, displs, type, call->root, COMM, request);
    case COLLECTIVE_SCATTER_V:
        return CALL(Iscatterv)(at->in, counts, displs, type, at->out, own, type, call->root, COMM, request);
    default:
        return CALL(Ialltoallv)(at->in, counts + 2 * c->size, (const DISPL *)(counts + 3 * c->size), type, at->out, counts, displs, type,
                                COMM, request);
    }
}

static int NAME(issue)(const struct mpi_channel *c, const struct native_call *call, const struct placed *at, const void *vectors,
                       MPI_Request *request)
{
    MPI_Datatype type = mpi_type_moved(call->element_bytes);
    const COUNT *counts = call->counts ? vectors : NULL;
    COUNT n = (COUNT)call->n;

    switch (call->collective) {
    case COLLECTIVE_BARRIER:
        return BARRIER(COMM, request);
    case COLLECTIVE_BROADCAST:
        return CALL(Ibcast)(at->out, n, type, call->root, COMM, request);
    case COLLECTIVE_ALLGATHER:
        return CALL(Iallgather)(at->in, n, type, at->out, n, type, COMM, request);
    case COLLECTIVE_GATHER:
        return CALL(Igather)(at->in, n, type, at->out, n, type, call->root, COMM, request);
    case COLLECTIVE_SCATTER:
        return CALL(Iscatter)(at->in, n, type, at->out, n, type, call->root, COMM, request);
    case COLLECTIVE_ALLTOALL:
        return CALL(Ialltoall)(at->in, n, type, at->out, n, type, COMM, request);
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_GATHER_V:
    case COLLECTIVE_SCATTER_V:
    case COLLECTIVE_ALLTOALL_V:
        return NAME(move_v)(c, call, at, counts, request);
    default:
        return NAME(reduce)(c, call, at, counts, request);
    }
}
