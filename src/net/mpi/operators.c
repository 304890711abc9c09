/*
 * Operators for MPI that compute with this library's kernels. They serve pairs of a type and an operator for which MPI's own operator
 * follows other rules: minima and maxima of floats, in which a NaN must not get lost, or sums of short integers that an MPI saturates. So
 * its collectives serve these calls too. (MPI 4.1, 6.9.5: MPI_Op_create)
 *
 * MPI gives the function of an operator no argument of its maker's. So each pair has a function of its own, which knows its place in a
 * table.
 */
#include "net/mpi/mpi_module.h"

#include <stdatomic.h>

enum { PLACES = 64 };

data_reduce_fn *(*mpi_reducer)(enum comm_type type, comm_op op);

/* Of this process, as MPI is. A place does not change any more when `place` names it: its index and 1, or 0. */
static struct own {
    MPI_Op made;
    data_reduce_fn *kernel;
} own[PLACES];
static _Atomic uint8_t place[MPI_TYPES][COMM_MAXLOC + 1];
static uint8_t owns;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static void reduce(const struct own *o, const void *in, void *inout, int count)
{
    const void *from[] = {in, inout};

    o->kernel(&(struct data_reduce){.from = from, .ways = 2, .divisor = 1, .to = inout, .elements = (size_t)count, .final = true});
}

/* Numbers in octal: 00 to 077. */
#define EACH_OF_8(X, i) X(i##0) X(i##1) X(i##2) X(i##3) X(i##4) X(i##5) X(i##6) X(i##7)
#define EACH(X)                                                                                                                            \
    EACH_OF_8(X, 0)                                                                                                                        \
    EACH_OF_8(X, 01) EACH_OF_8(X, 02) EACH_OF_8(X, 03) EACH_OF_8(X, 04) EACH_OF_8(X, 05) EACH_OF_8(X, 06) EACH_OF_8(X, 07)

#define FUNCTION(octal)                                                                                                                    \
    static void reduce_##octal(void *in, void *inout, int *count, MPI_Datatype *type)                                                      \
    {                                                                                                                                      \
        (void)type;                                                                                                                        \
        reduce(&own[octal], in, inout, *count);                                                                                            \
    }
EACH(FUNCTION)
#undef FUNCTION

static MPI_User_function *const functions[] = {
#define NAME(octal) reduce_##octal,
    EACH(NAME)
#undef NAME
};
_Static_assert(sizeof functions / sizeof *functions == PLACES, "a function for each place");

/* The results do not depend on the order of the operands, except those of sums and products of floats, whose order is MPI's anyway. */
static MPI_Op make(enum comm_type type, comm_op op)
{
    if (owns == PLACES)
        return MPI_OP_NULL;
    own[owns] = (struct own){MPI_OP_NULL, mpi_reducer(type, op)};
    if (MPI_Op_create(functions[owns], 1, &own[owns].made) != MPI_SUCCESS)
        return MPI_OP_NULL;
    owns++;
    atomic_store_explicit(&place[type][op], owns, memory_order_release);
    return own[owns - 1].made;
}

MPI_Op mpi_own_operator(enum comm_type type, comm_op op)
{
    uint8_t at = atomic_load_explicit(&place[type][op], memory_order_acquire);

    if (at)
        return own[at - 1].made;
    pthread_mutex_lock(&making);
    at = atomic_load_explicit(&place[type][op], memory_order_relaxed); /* another thread may have made it meanwhile */
    MPI_Op made = at ? own[at - 1].made : make(type, op);
    pthread_mutex_unlock(&making);
    return made;
}

MPI_Op mpi_operator_of(const struct mpi_world *w, const struct native_call *call)
{
    comm_op op = mpi_averages(call) ? COMM_SUM : call->op;

    return w->rules[call->type] >> op & 1 ? mpi_operator(op) : mpi_own_operator(call->type, op);
}

void mpi_divide(const struct mpi_channel *c, const struct mpi_pending *p)
{
    const void *from[] = {p->sums};

    c->world->average[p->type == COMM_F64](&(struct data_reduce){
        .from = from, .ways = 1, .divisor = (uint32_t)c->size, .to = p->sums, .elements = p->averaged, .final = true});
}
