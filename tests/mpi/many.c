/*
 * More ranks than CPUs, and so many that each rank opens connections to a few others only (COMM_TCP_LINKS=auto, above 32 ranks). Few calls:
 * one of each kind that reaches ranks to which there is no connection yet, and the close.
 */
#define _GNU_SOURCE
#include "mpi/rank.h"
#include "now.h"

#include <stdio.h>

enum { ROUNDS = 3, LONG = 70000 };
#define CLOSED_WITHIN (4 * RIG_S) /* after 5 s the wire gives up waiting for the last frames of others (net/mpiwire/close.c) */

static void sums(struct comm_communicator *c, size_t n)
{
    static int64_t in[LONG], out[LONG];
    struct comm_request q;
    for (size_t i = 0; i < n; i++)
        in[i] = comm_rank(c) + (int64_t)i;
    MUST(comm_allreduce(c, in, out, n, COMM_I64, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    for (size_t i = 0; i < n; i++)
        EQUAL(out[i], (int64_t)comm_size(c) * (comm_size(c) - 1) / 2 + comm_size(c) * (int64_t)i);
}

/* The longest distance there is; no rank opens a connection that far. */
static void exchange_with_opposite(struct comm_communicator *c)
{
    static int32_t in[LONG], out[LONG];
    int32_t rank = comm_rank(c), size = comm_size(c), to = (rank + size / 2 + 1) % size, from = (rank + size - size / 2 - 1) % size;
    struct comm_request q[2];
    for (int i = 0; i < LONG; i++)
        out[i] = rank * 3 + i;
    MUST(comm_recv(c, in, LONG, COMM_I32, from, 5, NULL, &q[0]));
    MUST(comm_send(c, out, LONG, COMM_I32, to, 5, &q[1]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    for (int i = 0; i < LONG; i++)
        EQUAL(in[i], from * 3 + i);
}

void rank_many(void)
{
    struct comm_communicator *world = rank_open(NULL), *part = NULL;
    int32_t root = me.ranks - 1, word = 0;
    struct comm_request q;
    for (int i = 0; i < ROUNDS; i++) {
        sums(world, 1);
        word = me.rank == root ? 77 + i : 0;
        MUST(comm_broadcast(world, &word, 1, COMM_I32, root, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(word, 77 + i);
    }
    sums(world, LONG);
    exchange_with_opposite(world);
    MUST(NOW(comm_split, world, me.rank % 3, me.rank, &part));
    sums(part, 1000);
    MUST(comm_close(part, RIG_PATIENCE));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    int64_t since = rig_now();
    MUST(comm_close(world, RIG_PATIENCE));
    printf("rank %d: closed within %lld ms\n", me.rank, (long long)((rig_now() - since) / RIG_MS));
    CHECK(rig_now() - since < CLOSED_WITHIN);
}
