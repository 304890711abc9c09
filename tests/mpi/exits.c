/* Rank 1 dies when nothing is open any more, or nothing over MPI, or while the others close. They exit all the same. */
#define _GNU_SOURCE
#include "mpi/rank.h"
#include "now.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void say(const char *what)
{
    printf("rank %d: %s\n", me.rank, what);
    fflush(stdout);
}

static void await_others(const char *what)
{
    for (int32_t r = 0; r < me.ranks; r++)
        if (r != me.rank)
            rank_await(r, what);
}

void rank_dies_last(void)
{
    struct comm_communicator *world = rank_open(NULL);
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    say("has closed");
    if (me.rank != 1)
        return;
    await_others("has closed");
    kill(getpid(), SIGKILL);
}

/* Below MPI_THREAD_MULTIPLE a child has no MPI_Comm, so its failure tells MPI nothing. */
void rank_dies_beside(void)
{
    struct comm_communicator *world = rank_open(NULL), *child = NULL;
    struct comm_request q;
    MUST(NOW(comm_dup, world, NULL, &child));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    say("has closed");
    await_others("has closed");
    if (me.rank == 1)
        kill(getpid(), SIGKILL);
    enum comm_result r = comm_barrier(child, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, COMM_ERR_PEER);
    (void)comm_close(child, RIG_S / 5);
}

/* The wire of the others waits for rank 1's last frame. */
void rank_dies_meanwhile(void)
{
    struct comm_communicator *world = rank_open(NULL);
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    say("closes");
    if (me.rank == 1) {
        await_others("closes");
        rig_nap(RIG_S); /* if they are not so far by then, their communicators fail: they exit as they should, too */
        kill(getpid(), SIGKILL);
    }
    (void)comm_close(world, RIG_PATIENCE);
}
