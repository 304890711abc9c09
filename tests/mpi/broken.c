/* What goes wrong in a world over MPI: calls that differ, a killed rank, a cut cable, a rank that leaves. */
#define _GNU_SOURCE
#include "mpi/rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

enum { MISMATCH_WITHIN = 2 /* s: until every rank knows that calls differ */ };

static void print_cause(struct comm_communicator *world, enum comm_result r, int64_t since)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s after %lld ms: %s\n", me.rank, comm_result_name(r), (long long)((rig_now() - since) / RIG_MS), error.text);
    fflush(stdout);
}

void rank_differ(size_t n)
{
    struct comm_communicator *world = rank_open(NULL);
    static int32_t in[100000], out[100000];
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE); /* other ranks may have left the barrier and caused the mismatch already */
    int64_t start = rig_now();
    if (r == COMM_OK)
        r = comm_allreduce(world, in, out, me.rank == 1 ? n : n + 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    if (r == COMM_OK) /* MPI did not notice it on this rank, but the comparison of published calls does */
        r = comm_wait(comm_last(world), RIG_PATIENCE);
    for (int64_t end = rig_now() + MISMATCH_WITHIN * RIG_S; r == COMM_OK && rig_now() < end; rig_nap(RIG_MS)) {
        struct comm_error error = {.size = sizeof error};
        (void)!comm_progress(world);
        MUST(comm_error_detail(world, &error));
        r = error.result;
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_MISMATCH && rig_now() - start < MISMATCH_WITHIN * RIG_S);
    r = comm_close(world, RIG_S / 5); /* MPI keeps the buffers of a call that it has started */
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

/* Rank 1 sends the root more than the root receives. MPI may report an error at the root, or truncate the data. The published calls show
 * the mismatch to all ranks. With option check, and over a wire, programs compare both ends of the edge. */
void rank_edge(void)
{
    struct comm_communicator *world = rank_open(NULL);
    static int32_t in[40], out[400];
    size_t counts[RIG_RANKS_MAX];
    struct comm_request q;
    int64_t start = rig_now();
    for (int32_t r = 0; r < me.ranks; r++)
        counts[r] = 10;
    enum comm_result r = comm_gather_v(world, in, me.rank == 1 ? 40 : 10, out, counts, NULL, COMM_I32, 0, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    for (int64_t end = rig_now() + MISMATCH_WITHIN * RIG_S; r == COMM_OK && rig_now() < end;
         rig_nap(RIG_MS)) { /* a leaf completes before the root */
        struct comm_error error = {.size = sizeof error};
        (void)!comm_progress(world);
        MUST(comm_error_detail(world, &error));
        r = error.result;
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_MISMATCH && rig_now() - start < MISMATCH_WITHIN * RIG_S);
    r = comm_close(world, RIG_S / 5);
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

void rank_killed(void)
{
    struct comm_communicator *world = rank_open(NULL);
    int64_t in = 1, out = 0, start = 0;
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        start = rig_now(); /* another rank may fail in the call before the one that the killed rank misses */
        if (i == 200 && me.rank == 1)
            kill(getpid(), SIGKILL);
        r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_PEER && rig_now() - start < RIG_S);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    enum comm_result closed = comm_close(world, RIG_S / 5);
    rig_note("flags %x, closed %s", info.flags, comm_result_name(closed));
    CHECK(closed == COMM_OK || (info.flags & COMM_INFO_BUFFERS_HELD && closed == COMM_ERR_TIMEOUT)); /* MPI may release them meanwhile */
    fflush(NULL);
}

/* Rank 0 has the cable of the second host unplugged (in_hosts.c). The ranks of each host must get an error about the other host's. */
void rank_cut(void)
{
    struct comm_communicator *world = rank_open(NULL);
    int64_t in = 1, out = 0, start = 0;
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        start = rig_now();
        FILE *flag = i == 200 && me.rank == 0 ? fopen(getenv("CUT"), "w") : NULL;
        if (flag)
            CHECK(fputs("now", flag) >= 0 && fclose(flag) == 0);
        r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_PEER && rig_now() - start < 5 * RIG_S);
    (void)comm_close(world, RIG_S / 5);
    fflush(NULL);
    _exit(0); /* skips MPI's exit handlers, which wait for the other host */
}

/* Exits while its world is open. No rank may wait for it in MPI_Finalize, and the launcher must see its exit status. */
void rank_leave(void)
{
    struct comm_communicator *world = rank_open(NULL);
    int32_t in = 1, out;
    struct comm_request q;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE);
    CHECK(r == COMM_OK || r == COMM_ERR_PEER); /* another rank may have left before this rank checks */
    exit(9);
}
