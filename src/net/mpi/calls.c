/* Collectives as MPI's nonblocking calls. What MPI would do by other rules than ours (minima of floats with NaN, averages, half precision,
 * more elements than an int counts) is not accepted, and a program of ours serves it over the wire. */
#include "net/mpi/mpi_module.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 16 };

/* ------------------------------------------------------------------------------------------------------------ types and operators */
static MPI_Datatype number_type(enum comm_type type)
{
    switch ((int)type) {
    case COMM_I8:
        return MPI_INT8_T;
    case COMM_I16:
        return MPI_INT16_T;
    case COMM_I32:
        return MPI_INT32_T;
    case COMM_I64:
        return MPI_INT64_T;
    case COMM_U8:
    case COMM_BYTE:
        return MPI_UINT8_T;
    case COMM_U16:
        return MPI_UINT16_T;
    case COMM_U32:
        return MPI_UINT32_T;
    case COMM_U64:
        return MPI_UINT64_T;
    case COMM_F32:
        return MPI_FLOAT;
    case COMM_F64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/* Open MPI 4.1 adds and multiplies short integers with saturation where the CPU has AVX; ours wrap. */
static bool wraps(enum comm_type type)
{
    return type == COMM_I32 || type == COMM_I64 || type == COMM_U32 || type == COMM_U64;
}

/* MPICH 4.0 compares unsigned numbers as signed ones. */
static bool is_signed(enum comm_type type)
{
    return type >= COMM_I8 && type <= COMM_I64;
}

static bool is_float(enum comm_type type)
{
    return type == COMM_F32 || type == COMM_F64;
}

static MPI_Op operator_of(enum comm_type type, comm_op op)
{
    switch (op) {
    case COMM_SUM:
        return wraps(type) || is_float(type) ? MPI_SUM : MPI_OP_NULL;
    case COMM_PROD:
        return wraps(type) || is_float(type) ? MPI_PROD : MPI_OP_NULL;
    case COMM_MIN:
        return is_signed(type) ? MPI_MIN : MPI_OP_NULL;
    case COMM_MAX:
        return is_signed(type) ? MPI_MAX : MPI_OP_NULL;
    case COMM_BAND:
        return is_float(type) ? MPI_OP_NULL : MPI_BAND;
    case COMM_BOR:
        return is_float(type) ? MPI_OP_NULL : MPI_BOR;
    case COMM_BXOR:
        return is_float(type) ? MPI_OP_NULL : MPI_BXOR;
    default:
        return MPI_OP_NULL;
    }
}

/* Of what is only moved the width alone counts. */
static MPI_Datatype moved_type(size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return MPI_BYTE;
    case 2:
        return MPI_INT16_T;
    case 4:
        return MPI_INT32_T;
    case 8:
        return MPI_INT64_T;
    case 16:
        return MPI_C_DOUBLE_COMPLEX;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/* ------------------------------------------------------------------------------------------------------------ accept */
static enum comm_result accept_gather_v(const struct mpi_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    size_t all = 0;

    if (!call->counts)
        return COMM_OK; /* somebody only asks */
    for (int r = 0; r < c->size; r++) {
        if (call->counts[r] > INT_MAX || all > INT_MAX)
            return COMM_ERR_UNSUPPORTED;
        all += call->counts[r];
    }
    if (all > INT_MAX || all == 0)
        return COMM_ERR_UNSUPPORTED;
    for (int r = 0; r < c->size; r++) { /* this rank's own choice: the others cannot follow it to another way */
        if (call->displs[r] <= INT_MAX || !call->counts[r])
            continue;
        snprintf(why, why_bytes, "allgather_v: displs[%d]=%zu; expected at most %d elements over mpi", r, call->displs[r], INT_MAX);
        return COMM_ERR_ARGUMENT;
    }
    return COMM_OK;
}

enum comm_result mpi_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    if (call->collective == COLLECTIVE_BARRIER)
        return COMM_OK;
    if (call->n == 0 || call->n > INT_MAX || moved_type(call->element_bytes) == MPI_DATATYPE_NULL)
        return COMM_ERR_UNSUPPORTED;
    switch (call->collective) {
    case COLLECTIVE_BROADCAST:
        return COMM_OK;
    case COLLECTIVE_ALLGATHER:
        return call->n <= (size_t)INT_MAX / (size_t)mpi_channel_of(channel)->size ? COMM_OK : COMM_ERR_UNSUPPORTED;
    case COLLECTIVE_ALLGATHER_V:
        return accept_gather_v(mpi_channel_of(channel), call, why, why_bytes);
    case COLLECTIVE_ALLREDUCE:
        return number_type(call->type) != MPI_DATATYPE_NULL && operator_of(call->type, call->op) != MPI_OP_NULL ? COMM_OK
                                                                                                                : COMM_ERR_UNSUPPORTED;
    default:
        return COMM_ERR_UNSUPPORTED;
    }
}

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

static bool copy_vectors(struct mpi_channel *c, struct mpi_pending *p, const struct native_call *call)
{
    if (!call->counts)
        return true;
    if (!p->vectors)
        p->vectors = malloc(2 * (size_t)c->size * sizeof *p->vectors);
    if (!p->vectors)
        return false;
    for (int r = 0; r < c->size; r++) {
        p->vectors[r] = (int)call->counts[r];
        p->vectors[c->size + r] = call->counts[r] ? (int)call->displs[r] : 0;
    }
    return true;
}

static int issue(struct mpi_channel *c, const struct native_call *call, const int *vectors, MPI_Request *request)
{
    MPI_Datatype moved = moved_type(call->element_bytes);
    int n = (int)call->n;

    switch (call->collective) {
    case COLLECTIVE_BARRIER:
        return MPI_Ibarrier(c->comm, request);
    case COLLECTIVE_BROADCAST:
        return MPI_Ibcast(call->out, n, moved, call->root, c->comm, request);
    case COLLECTIVE_ALLREDUCE:
        return MPI_Iallreduce(call->in == call->out ? MPI_IN_PLACE : call->in, call->out, n, number_type(call->type),
                              operator_of(call->type, call->op), c->comm, request);
    case COLLECTIVE_ALLGATHER: {
        const char *own = (const char *)call->out + (size_t)c->rank * call->n * call->element_bytes;
        return MPI_Iallgather(call->in == own ? MPI_IN_PLACE : call->in, n, moved, call->out, n, moved, c->comm, request);
    }
    default: {
        const char *own = (const char *)call->out + call->displs[c->rank] * call->element_bytes;
        bool in_place = call->counts[c->rank] && call->in == own;
        return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : call->in, vectors[c->rank], moved, call->out, vectors, vectors + c->size, moved,
                               c->comm, request);
    }
    }
}

enum comm_result mpi_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct mpi_channel *c = mpi_channel_of(channel);

    if (mpi_is_over() || !mpi_may_call(c->world)) {
        *code = mpi_is_over() ? MPI_OVER : MPI_OTHER_THREAD;
        return COMM_ERR_STATE;
    }
    if ((c->count == c->room && !grow(c)) || !copy_vectors(c, &c->pending[c->count], call))
        return COMM_ERR_MEMORY;
    struct mpi_pending *p = &c->pending[c->count];
    p->cookie = call->cookie;
    mpi_enter(c->world);
    int said = issue(c, call, p->vectors, &c->request[c->count]);
    mpi_exit(c->world);
    *code = said;
    c->count += said == MPI_SUCCESS;
    return said == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND;
}

/* ------------------------------------------------------------------------------------------------------------ advance */
/* The last one takes its place; vectors are kept for the next. */
static void remove_pending(struct mpi_channel *c, uint32_t i)
{
    struct mpi_pending gone = c->pending[i];

    c->count--;
    c->request[i] = c->request[c->count];
    c->pending[i] = c->pending[c->count];
    c->pending[c->count] = gone;
}

static struct native_event ended(const struct mpi_channel *c, uint32_t i, int code)
{
    return (struct native_event){c->pending[i].cookie, code == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND, code};
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

static uint32_t advance_some(struct mpi_channel *c, struct native_event *events, uint32_t max)
{
    int count = 0;
    uint32_t looked = c->count < max ? c->count : max, made = 0;
    int code = MPI_Testsome((int)looked, c->request, &count, c->index, c->status);

    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) { /* it says not which: the first stands for all, the communicator fails */
        events[0] = ended(c, 0, code);
        remove_pending(c, 0);
        return 1;
    }
    if (count == MPI_UNDEFINED || count <= 0)
        return 0;
    for (int i = 0; i < count; i++) {
        uint32_t at = (uint32_t)c->index[i];
        events[made++] = ended(c, at, code == MPI_ERR_IN_STATUS ? c->status[i].MPI_ERROR : MPI_SUCCESS);
    }
    /* From the back, so that places named by the rest stay what they were. */
    qsort(c->index, (size_t)count, sizeof *c->index, by_place_down);
    for (int i = 0; i < count; i++)
        remove_pending(c, (uint32_t)c->index[i]);
    return made;
}

uint32_t mpi_advance(struct native_channel *channel, struct native_event *events, uint32_t max)
{
    struct mpi_channel *c = mpi_channel_of(channel);
    uint32_t made = 0;

    if (!c->count || !mpi_may_call(c->world))
        return 0;
    if (mpi_is_over()) { /* the program finalised MPI under a communicator that it had not closed */
        events[0] = (struct native_event){c->pending[0].cookie, COMM_ERR_STATE, MPI_OVER};
        remove_pending(c, 0);
        return 1;
    }
    mpi_enter(c->world);
    made = c->count == 1 ? advance_one(c, events) : advance_some(c, events, max);
    mpi_exit(c->world);
    return made;
}
