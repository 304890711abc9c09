/*
 * An MPI_Finalize that never returns, in a program whose MPI this library started: the process ends all the same, with its own status. Its
 * own MPI_Finalize stands in front of MPI's, for the library's module too.
 */
#include "conform/rig.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STATUS = 3 };

int MPI_Finalize(void)
{
    for (;;)
        pause();
}

int main(void)
{
    struct comm_communicator *world;
    struct comm_request q;
    MUST(comm_open(COMM_CONFIG(.backend = "mpi"), &world));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    printf("this is kept"); /* without the end of its line, so it is still in the buffer */
    exit(STATUS);
}
