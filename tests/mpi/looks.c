/*
 * How often the wire over MPI asks MPI for something that is not there. Such a call is dear: Open MPI then looks at all its connections.
 * If its launcher allows more ranks than CPUs, it also yields the CPU. So comm_progress may make only a few of them, which are its few
 * passes, however many operations wait.
 *
 * The program counts the calls: its own functions stand in front of MPI's, for the library's module too. Rank 1 starts late, so rank 0 has
 * operations that wait for room and others that wait for data. Two ranks, each a host.
 *
 * A root of short broadcasts looks only when it lacks room, and by then has sent more than it asks MPI about in one call. Sends of which it
 * does not know that they have ended must not become more and more: each keeps its memory.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { CALLS = 24, LENGTH = 20000, PASSES = 50, LOOKS_A_TURN = 20 };

enum { SHORTS = 20000, SENDS_MOST = 1000 };

static _Atomic int vain, sends;

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int code = PMPI_Test(request, flag, status);
    vain += !*flag;
    return code;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    int code = PMPI_Iprobe(source, tag, comm, flag, status);
    vain += !*flag;
    return code;
}

int MPI_Testsome(int count, MPI_Request *request, int *ended, int *index, MPI_Status *status)
{
    int code = PMPI_Testsome(count, request, ended, index, status);
    vain += *ended <= 0;
    sends -= *ended > 0 ? *ended : 0;
    return code;
}

int MPI_Isend(const void *at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    sends++;
    return PMPI_Isend(at, count, type, to, tag, comm, request);
}

/* All frames of a short broadcast are short, so no call of MPI_Testsome is about receives. */
static void send_shorts(struct comm_communicator *world)
{
    int32_t value = 0, most = 0, before = sends;
    struct comm_request q;
    for (int i = 0; i < SHORTS; i++) {
        value = comm_rank(world) == 0 ? i : -1;
        MUST(comm_broadcast(world, &value, 1, COMM_I32, 0, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(value, i);
        most = sends - before > most ? sends - before : most;
    }
    printf("at most %d sends in %d broadcasts\n", most, SHORTS);
    CHECK(most <= SENDS_MOST);
}

static float in[CALLS][2 * LENGTH], out[CALLS][2 * LENGTH];

static void issue(struct comm_communicator *world, struct comm_request *q)
{
    static const size_t counts[] = {LENGTH, LENGTH};
    for (int i = 0; i < CALLS; i++)
        MUST(comm_alltoall_v(world, in[i], counts, NULL, out[i], counts, NULL, COMM_F32, &q[i]));
}

int main(void)
{
    struct comm_communicator *world;
    struct comm_request q[CALLS];
    int provided, before;
    rig_end_after(100);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MUST(comm_open(COMM_CONFIG(.backend = "shm+mpi", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 20 * RIG_S), &world));
    if (comm_rank(world) == 0) {
        issue(world, q);
        before = vain;
        for (int i = 0; i < PASSES; i++)
            (void)!comm_progress(world);
        printf("%d looks in %d turns\n", vain - before, PASSES);
        CHECK(vain > before && vain - before <= LOOKS_A_TURN * PASSES);
        MPI_Send(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        issue(world, q);
    }
    MUST(comm_wait_all(q, CALLS, RIG_PATIENCE));
    send_shorts(world);
    MUST(comm_close(world, RIG_PATIENCE));
    MPI_Finalize();
    return 0;
}
