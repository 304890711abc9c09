/*
 * The end of an MPI that this library started, when the process exits; and the end of a peer, which must not end this process.
 *
 * MPI_Finalize may hang: MPICH 4.0 with UCX does on several hosts, in up to half of the runs, when every rank is in that call. So the ranks
 * meet first, for as long as the slowest of them works. After that MPI_Finalize has END_S seconds, and then the process exits without it,
 * with the status that it was exiting with. A rank that has died never comes to that meeting, so when a process of this host has ended, the
 * meeting has that time too: one that ended well has left it, and then all have come.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { END_S = 20 };

static _Atomic bool met, ended;
static int exit_status;
static char version[NATIVE_VERSION_BYTES];

static void nap_a_second(void)
{
    struct timespec left = {.tv_sec = 1};

    while (nanosleep(&left, &left) && errno == EINTR)
        ; /* a signal that the program handles */
}

/* Nothing that the process still has can be closed, because its main thread is in MPI. */
static void *exit_if_late(void *unused)
{
    bool finalizes = false;

    (void)unused;
    for (int late = 0; late < END_S; late++) {
        nap_a_second();
        if (atomic_load(&ended))
            return NULL;
        if (!finalizes && (atomic_load(&met) || !mpi_process_has_ended()))
            late = -1; /* the time begins anew */
        finalizes = atomic_load(&met);
    }
    if (finalizes)
        dprintf(STDERR_FILENO, "commstream: mpi: MPI_Finalize of %s has not returned for %d s; this process exits without it\n", version,
                END_S);
    else
        dprintf(STDERR_FILENO,
                "commstream: mpi: a process of the world has ended without MPI_Finalize %d s ago, and %s would wait for it; this process "
                "exits without it\n",
                END_S, version);
    _exit(exit_status);
}

void mpi_end(int status)
{
    pthread_t late;

    fflush(NULL); /* in case nothing can be written after MPI_Finalize */
    exit_status = status;
    mpi_library_text(version, sizeof version);
    bool bounded = pthread_create(&late, NULL, exit_if_late, NULL) == 0;
    if (bounded)
        pthread_detach(late);
    MPI_Barrier(MPI_COMM_WORLD);
    atomic_store(&met, true);
    MPI_Finalize();
    atomic_store(&ended, true);
}

static void hear_broken_pipe(int number)
{
    (void)number;
}

/* MPI libraries leave SIGPIPE at its default, and a rank over Open MPI 5 was killed by it after another one had left. With a handler that
 * does nothing the write fails instead. A handler, unlike SIG_IGN, is not inherited by what the program executes (execve(2)). The program's
 * own setting stays. */
void mpi_survive_broken_pipes(void)
{
    struct sigaction action;

    if (sigaction(SIGPIPE, NULL, &action) || action.sa_flags & SA_SIGINFO || action.sa_handler != SIG_DFL)
        return;
    action.sa_handler = hear_broken_pipe;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPIPE, &action, NULL);
}
