/*
 * The program calls MPI_Finalize while its world is open, and a thread of the library is inside a call of MPI: MPI ends when that call has,
 * and no other is made. The program's own functions stand in front of MPI's, for the library's module too.
 *
 *   finalizing BACKEND
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic bool armed, inside, finalized;
static pthread_t program;

/* Another thread than the program's takes a second for its call. What the last rank holds up, MPI_Finalize of the others may wait for. */
static void hold(const char *call)
{
    if (atomic_load(&finalized))
        rig_die(__FILE__, __LINE__, "%s was called after MPI_Finalize had returned", call);
    if (!atomic_load(&armed) || pthread_equal(program, pthread_self()) || atomic_exchange(&inside, true))
        return;
    rig_nap(RIG_S);
    if (atomic_load(&finalized))
        rig_die(__FILE__, __LINE__, "MPI_Finalize returned while a thread was inside %s", call);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    hold("MPI_Test");
    return PMPI_Test(request, flag, status);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    hold("MPI_Iprobe");
    return PMPI_Iprobe(source, tag, comm, flag, status);
}

int MPI_Testsome(int count, MPI_Request *request, int *ended, int *index, MPI_Status *status)
{
    hold("MPI_Testsome");
    return PMPI_Testsome(count, request, ended, index, status);
}

int main(int count, char **argument)
{
    struct comm_communicator *world;
    struct comm_request q;
    int provided;
    rig_end_after(60);
    program = pthread_self();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MUST(comm_open(COMM_CONFIG(.backend = count > 1 ? argument[1] : "mpi", .operation_timeout_ns = 20 * RIG_S), &world));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    atomic_store(&armed, true);
    for (int64_t until = rig_now() + RIG_PATIENCE; !atomic_load(&inside); rig_nap(RIG_MS))
        CHECK(rig_now() < until);
    MPI_Finalize();
    atomic_store(&finalized, true);
    rig_nap(3 * RIG_S); /* for the ticks of the monitor */
    enum comm_result r = comm_barrier(world, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, COMM_ERR_STATE);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    printf("%s\n", error.text);
    MUST(comm_close(world, RIG_S));
    return 0;
}
