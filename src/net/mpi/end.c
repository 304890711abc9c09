/*
 * The end of an MPI that this library started, when the process exits.
 *
 * MPI_Finalize may hang: MPICH 4.0 with UCX does on several hosts, in up to half of the runs, when every rank is in that call. So the ranks
 * meet first, for as long as the slowest of them works. After that MPI_Finalize has END_S seconds, and then the process exits without it,
 * with the status that it was exiting with.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { END_S = 20 };

static _Atomic bool ended;
static int exit_status;
static char version[NATIVE_VERSION_BYTES];

/* Nothing that the process still has can be closed, because its main thread is in MPI. */
static void *exit_if_late(void *unused)
{
    (void)unused;
    sleep(END_S);
    if (atomic_load(&ended))
        return NULL;
    dprintf(STDERR_FILENO, "commstream: mpi: MPI_Finalize of %s has not returned for %d s; this process exits without it\n", version,
            END_S);
    _exit(exit_status);
}

void mpi_end(int status)
{
    pthread_t late;

    fflush(NULL); /* in case nothing can be written after MPI_Finalize */
    exit_status = status;
    mpi_library_text(version, sizeof version);
    MPI_Barrier(MPI_COMM_WORLD);
    bool bounded = pthread_create(&late, NULL, exit_if_late, NULL) == 0;
    if (bounded)
        pthread_detach(late);
    MPI_Finalize();
    atomic_store(&ended, true);
}
