/* What the ranks of one call may do in different ways: some give their input in place, and one is far ahead of the others. */
#define _GNU_SOURCE
#include "mpi/rank.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16, RANKS = 8, AHEAD = 200, BEHIND = 100, LEFT = 0x5a5a };

enum apart_kind { APART_ALLREDUCE, APART_REDUCE_SCATTER, APART_SCAN, APART_EXSCAN, APART_ALLGATHER, APART_ALLGATHER_V, APART_KINDS };
static const char *const names[] = {"allreduce", "reduce_scatter", "scan", "exscan", "allgather", "allgather_v"};

static int32_t value(int32_t rank, size_t i)
{
    return (int32_t)(i % 1000) + rank;
}

/* The sum over the first ranks. */
static int32_t sum_of(int32_t ranks, size_t i)
{
    return ranks * (int32_t)(i % 1000) + ranks * (ranks - 1) / 2;
}

static enum comm_result issue(struct comm_communicator *c, enum apart_kind kind, const void *in, int32_t *out, size_t n,
                              struct comm_request *q)
{
    static size_t counts[RANKS], displs[RANKS];
    for (int32_t r = 0; r < me.ranks; r++)
        counts[r] = n, displs[r] = n * (size_t)r;
    switch (kind) {
    case APART_ALLREDUCE:
        return comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, q);
    case APART_REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, out, n, COMM_I32, COMM_SUM, q);
    case APART_SCAN:
        return comm_scan(c, in, out, n, COMM_I32, COMM_SUM, q);
    case APART_EXSCAN:
        return comm_exscan(c, in, out, n, COMM_I32, COMM_SUM, q);
    case APART_ALLGATHER:
        return comm_allgather(c, in, out, n, COMM_I32, q);
    default:
        return comm_allgather_v(c, in, out, counts, displs, COMM_I32, q);
    }
}

static void fill(enum apart_kind kind, int32_t *in, int32_t *out, size_t n, bool in_place)
{
    bool gathers = kind >= APART_ALLGATHER;
    size_t blocks = kind == APART_REDUCE_SCATTER ? (size_t)me.ranks : 1;
    for (size_t i = 0; i < n * blocks; i++)
        in[i] = value(me.rank, i);
    for (size_t i = 0; i < n * (size_t)me.ranks; i++)
        out[i] = LEFT;
    if (in_place)
        memcpy(out + (gathers ? n * (size_t)me.rank : 0), in, n * blocks * sizeof *in);
}

static int32_t want(enum apart_kind kind, size_t n, size_t i, bool in_place)
{
    switch (kind) {
    case APART_ALLREDUCE:
        return sum_of(me.ranks, i);
    case APART_REDUCE_SCATTER:
        return sum_of(me.ranks, i + n * (size_t)me.rank);
    case APART_SCAN:
        return sum_of(me.rank + 1, i);
    case APART_EXSCAN:
        return me.rank ? sum_of(me.rank, i) : in_place ? value(0, i) : LEFT;
    default:
        return value((int32_t)(i / n), i % n);
    }
}

/* In MPI either all ranks give MPI_IN_PLACE to an allreduce or none does, and Open MPI's ranks otherwise use different algorithms from
 * 64 KiB on. */
static void some_in_place(struct comm_communicator *c)
{
    int32_t *in = calloc((size_t)MOST * RANKS, sizeof *in), *out = calloc((size_t)MOST * RANKS, sizeof *out);
    CHECK(in && out && me.ranks <= RANKS);
    for (int kind = 0; kind < APART_KINDS; kind++) {
        for (size_t n = 1; n <= MOST; n *= 16) {
            bool in_place = me.rank % 2, own = kind == APART_REDUCE_SCATTER && in_place;
            struct comm_request q;
            rig_note("%s of %zu elements", names[kind], n);
            fill(kind, in, out, n, in_place);
            MUST(issue(c, kind, in_place ? COMM_IN_PLACE : in, out, n, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            const int32_t *at = own ? out + n * (size_t)me.rank : out;
            for (size_t i = 0; i < n * (kind >= APART_ALLGATHER ? (size_t)me.ranks : 1); i++)
                EQUAL(at[i], want(kind, n, i, in_place));
        }
    }
    free(in);
    free(out);
}

/* Rank 0 has more calls in MPI than one look takes ends of. The others make the last ones only when it has seen the first ones end. */
static void one_ahead(struct comm_communicator *c)
{
    static int32_t in[AHEAD], out[AHEAD];
    static struct comm_request q[AHEAD];
    struct comm_request message;
    char byte = 0;
    for (int i = 0; i < AHEAD; i++) {
        if (i == BEHIND && me.rank) {
            MUST(comm_recv(c, &byte, 1, COMM_BYTE, 0, 1, NULL, &message));
            MUST(comm_wait(message, RIG_PATIENCE));
        }
        in[i] = value(me.rank, (size_t)i);
        MUST(comm_allreduce(c, &in[i], &out[i], 1, COMM_I32, COMM_SUM, &q[i]));
    }
    for (int i = 0; i < BEHIND; i++)
        MUST(comm_wait(q[i], RIG_PATIENCE));
    for (int32_t r = 1; r < me.ranks && me.rank == 0; r++) {
        MUST(comm_send(c, &byte, 1, COMM_BYTE, r, 1, &message));
        MUST(comm_wait(message, RIG_PATIENCE));
    }
    MUST(comm_wait_all(q, AHEAD, RIG_PATIENCE));
    for (int i = 0; i < AHEAD; i++)
        EQUAL(out[i], sum_of(me.ranks, (size_t)i));
}

void rank_apart(bool in_place)
{
    struct comm_communicator *world = rank_open("window=256");
    if (in_place)
        some_in_place(world);
    else
        one_ahead(world);
    MUST(comm_close(world, RIG_PATIENCE));
}
