/*
 * The wire over MPI gets a frame that no rank of this library sends, or MPI says that it could not receive one. No call waits for what is
 * lost: the communicator fails on all ranks, with an error that says so. Each rank is a host of its own:
 *
 *   unsound shorter | longer | payload | failed | nameless
 *
 * The program's own functions stand in front of MPI's, for the library's module too. They change what rank 1 receives from rank 0 or from
 * any rank. MPI fails in two of the cases, and says in one of them whose frame it was; what it means then is reported after 10 s.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 20000, HEAD = 64, WHOLE = 4096 };
enum how { SHORTER, LONGER, PAYLOAD, FAILED, NAMELESS, HOWS };

static enum how how;
static _Atomic bool armed;

static int length_of(const MPI_Status *status)
{
    int length = 0;
    PMPI_Get_count(status, MPI_BYTE, &length);
    return length;
}

/* The receives of payloads are asked about together with sends, whose statuses say nothing of a length. */
static void shorten_payloads(int ended, MPI_Status *status)
{
    for (int i = 0; i < ended; i++)
        if (length_of(&status[i]) > WHOLE)
            PMPI_Status_set_elements(&status[i], MPI_BYTE, length_of(&status[i]) - 1);
}

int MPI_Testsome(int count, MPI_Request *request, int *ended, int *index, MPI_Status *status)
{
    int code = PMPI_Testsome(count, request, ended, index, status);
    if (code == MPI_SUCCESS && atomic_load(&armed) && how == PAYLOAD)
        shorten_payloads(*ended, status);
    return code;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int code = PMPI_Test(request, flag, status);
    if (code != MPI_SUCCESS || !*flag || status == MPI_STATUS_IGNORE || length_of(status) < HEAD || how == PAYLOAD)
        return code;
    if (!atomic_exchange(&armed, false))
        return code;
    if (how == SHORTER)
        PMPI_Status_set_elements(status, MPI_BYTE, HEAD - 1);
    if (how == NAMELESS)
        status->MPI_SOURCE = MPI_ANY_SOURCE;
    return how == SHORTER ? MPI_SUCCESS : how == LONGER ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
}

int main(int count, char **argument)
{
    static const char *const names[HOWS] = {"shorter", "longer", "payload", "failed", "nameless"};
    static const enum comm_result want[HOWS] = {COMM_ERR_CORRUPT, COMM_ERR_CORRUPT, COMM_ERR_CORRUPT, COMM_ERR_BACKEND, COMM_ERR_BACKEND};
    static unsigned char bytes[LENGTH];
    struct comm_communicator *world = NULL;
    struct comm_error error = {.size = sizeof error};
    struct comm_request q;
    const char *file = getenv("SAY_TO");

    rig_end_after(100);
    while (count > 1 && how < HOWS && strcmp(names[how], argument[1]) != 0)
        how++;
    if (count != 2 || how == HOWS || (file && !freopen(file, "a", stdout)))
        return 3;
    MUST(comm_open(COMM_CONFIG(.backend = "shm+mpi", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 60 * RIG_S), &world));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    atomic_store(&armed, comm_rank(world) == 1);
    enum comm_result r = COMM_OK;
    while (r == COMM_OK) {
        r = comm_broadcast(world, bytes, LENGTH, COMM_U8, 0, &q);
        if (r == COMM_OK)
            r = comm_wait(q, 80 * RIG_S);
    }
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s: %s\n", comm_rank(world), comm_result_name(r), error.text);
    fflush(stdout);
    IS(r, want[how]);
    (void)comm_close(world, RIG_S);
    return 0;
}
