/*
 * leave: ends a rank without MPI_Finalize. A launcher may kill the other ranks as soon as one has ended so. So a rank that has done its
 * work says so in $SAY_TO, where run.sh reads what ranks print (WANT_EACH "leaves MPI open"), and ends when every rank has said it.
 */
#ifndef TESTS_MPI_LEAVE_H
#define TESTS_MPI_LEAVE_H

#include "conform/rig.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int leave_said(const char *path)
{
    char line[4096];
    int n = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        n += strstr(line, "leaves MPI open") != NULL;
    if (file)
        fclose(file);
    return n;
}

static inline _Noreturn void leave_mpi_open(int rank, int ranks)
{
    const char *path = getenv("SAY_TO");
    FILE *file = path ? fopen(path, "a") : NULL;
    int found;
    if (!file || fprintf(file, "rank %d: leaves MPI open\n", rank) < 0 || fclose(file))
        rig_die(__FILE__, __LINE__, "cannot write to SAY_TO=%s", path ? path : "");
    fflush(stdout);
    for (int64_t until = rig_now() + RIG_PATIENCE; leave_said(path) < ranks; rig_nap(5 * RIG_MS)) {
        CHECK(rig_now() < until);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE); /* others may wait for an answer of MPI's */
    }
    _exit(0);
}
#endif
