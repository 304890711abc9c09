/*
 * The wire over MPI gets a frame that no rank of this library sends, or MPI says that it could not receive one. No call waits for what is
 * lost: the communicator fails on all ranks, with an error that says so. Each rank is a host of its own:
 *
 *   unsound shorter | longer | payload | cut | both | failed | nameless | whose
 *
 * The program's own functions stand in front of MPI's, for the library's module too. They change what rank 1 receives from rank 0 or from
 * any rank. MPI fails in some of the cases, or does not say whose frame it was; what it means then is reported after 10 s. In `both` a
 * wrong frame comes after that, which is reported at once.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 1 << 20, SHORT_LENGTH = 20000, HEAD = 64, WHOLE = 32768 }; /* payloads of more than WHOLE are messages of their own */
enum how { SHORTER, LONGER, PAYLOAD, CUT, BOTH, FAILED, NAMELESS, WHOSE, HOWS };

static enum how how;
static _Atomic int armed; /* how many frames are still to be changed */

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

/* Whether this frame is to be as it is. A head alone cannot be cut, and both wrong frames are to be of one rank. */
static bool is_spared(const MPI_Status *status)
{
    return (how == CUT && length_of(status) == HEAD) || (how == BOTH && status->MPI_SOURCE != 0) || !atomic_load(&armed);
}

/* All frames are asked about under the lock of the wire. */
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int code = PMPI_Test(request, flag, status);
    if (code != MPI_SUCCESS || !*flag || status == MPI_STATUS_IGNORE || length_of(status) < HEAD || how == PAYLOAD || is_spared(status))
        return code;
    enum how now = how == BOTH ? (armed == 2 ? FAILED : SHORTER) : how;
    atomic_fetch_sub(&armed, 1);
    if (now == SHORTER || now == CUT)
        PMPI_Status_set_elements(status, MPI_BYTE, now == CUT ? HEAD : HEAD - 1);
    if (now == NAMELESS || now == WHOSE)
        status->MPI_SOURCE = MPI_ANY_SOURCE;
    return now == LONGER ? MPI_ERR_TRUNCATE : now == FAILED || now == NAMELESS ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int main(int count, char **argument)
{
    static const char *const names[HOWS] = {"shorter", "longer", "payload", "cut", "both", "failed", "nameless", "whose"};
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
    atomic_store(&armed, comm_rank(world) != 1 ? 0 : how == BOTH ? 2 : 1);
    enum comm_result r = COMM_OK;
    while (r == COMM_OK) {
        r = comm_broadcast(world, bytes, how == CUT ? SHORT_LENGTH : LENGTH, COMM_U8, 0, &q);
        if (r == COMM_OK)
            r = comm_wait(q, 80 * RIG_S);
    }
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s: %s\n", comm_rank(world), comm_result_name(r), error.text);
    fflush(stdout);
    IS(r, how < FAILED ? COMM_ERR_CORRUPT : COMM_ERR_BACKEND);
    (void)comm_close(world, RIG_S);
    return 0;
}
