/*
 * MPI makes a communicator for a child, and then fails on rank 1 in the barrier that shows that all members have it. No rank gets the
 * child. What other ranks have sent on that MPI_Comm may still come, so it is not freed: MPI would give its number to the next one.
 *
 * The program's own functions stand in front of MPI's, for the library's module too.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

static _Atomic bool fails;
static pthread_t program;
static MPI_Comm half = MPI_COMM_NULL;

int MPI_Barrier(MPI_Comm comm)
{
    int code = PMPI_Barrier(comm);
    if (pthread_equal(program, pthread_self()) || !atomic_exchange(&fails, false))
        return code;
    half = comm;
    return MPI_ERR_OTHER;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    CHECK(half == MPI_COMM_NULL || *comm != half);
    return PMPI_Comm_free(comm);
}

int main(void)
{
    struct comm_communicator *world, *child = NULL;
    struct comm_request q;
    int provided;
    rig_end_after(60);
    program = pthread_self();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MUST(comm_open(COMM_CONFIG(.backend = "mpi", .operation_timeout_ns = 20 * RIG_S), &world));
    atomic_store(&fails, comm_rank(world) == 1);
    IS(NOW(comm_dup, world, NULL, &child), COMM_ERR_BACKEND);
    CHECK(!child && (comm_rank(world) != 1 || half != MPI_COMM_NULL));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(NOW(comm_dup, world, NULL, &child));
    MUST(comm_close(child, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Finalize();
    return 0;
}
