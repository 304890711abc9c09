/*
 * What moves between hosts with backend mpi beside MPI's own collectives: messages, windows, and the collectives that this library's
 * programs do. One rank of a world of two hosts, of which each has the first or the second half of the ranks:
 *
 *   between mpi | tcp      the wire that must carry them
 *   between survivors      a rank dies, and the others go on without it
 *
 * The program counts the frames that the module gives to MPI: its own MPI_Isend stands in front of MPI's. MPI's collectives do not call it.
 * For the standard ABI the program is built without MPI, and counts none.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef COUNTS
#    include "leave.h"
#endif

enum { LONG = 1 << 20, ELEMENTS = 70000, DEATH_AFTER = 20 };

static _Atomic int sends;
static int32_t rank, ranks;

#ifdef COUNTS
int MPI_Isend(const void *at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    sends++;
    return PMPI_Isend(at, count, type, to, tag, comm, request);
}
#endif

static struct comm_communicator *open_world(void)
{
    struct comm_communicator *world = NULL;
    struct comm_info info = {.size = sizeof info};
    char text[512] = "";
    enum comm_result r = comm_open(
        COMM_CONFIG(.backend = "mpi", .operation_timeout_ns = 20 * RIG_S, .error_text = text, .error_text_bytes = sizeof text), &world);
    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        exit(3);
    }
    rank = comm_rank(world);
    ranks = comm_size(world);
    MUST(comm_describe(world, &info));
    CHECK(strcmp(info.backend, "mpi") == 0 && info.nodes == 2 && ranks % 2 == 0);
    return world;
}

static void wires_are(struct comm_communicator *c, const char *far)
{
    for (int32_t r = 0; r < comm_size(c); r++) {
        struct comm_peer_info peer = {.size = sizeof peer};
        MUST(comm_describe_peer(c, r, &peer));
        const char *want = peer.local ? "shm" : far;
        if (strcmp(peer.wire, want) != 0)
            rig_die(__FILE__, __LINE__, "rank %d is reached over %s, expected %s", r, peer.wire, want);
    }
}

static void is_served(struct comm_request q, bool by_mpi)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if ((strcmp(info.algorithm, "mpi") == 0) != by_mpi)
        rig_die(__FILE__, __LINE__, "served by %s", info.algorithm);
}

/* Checks whether any rank has given MPI a frame since its counter was `before`. */
static void frames_went(struct comm_communicator *world, int before, bool want, const char *what)
{
    int32_t mine = sends - before, all = 0;
    struct comm_request q;
    MUST(comm_allreduce(world, &mine, &all, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    if ((all > 0) != want)
        rig_die(__FILE__, __LINE__, "%s: MPI got %d frames", what, all);
}

/* With the rank of the other host that has the same place there. */
static void exchange(struct comm_communicator *c, size_t n)
{
    static unsigned char out[LONG], in[LONG];
    int32_t size = comm_size(c), me = comm_rank(c), peer = (me + size / 2) % size;
    struct comm_request q[2];
    memset(out, me + 1, n);
    memset(in, 0, n);
    MUST(comm_recv(c, in, n, COMM_U8, peer, 5, NULL, &q[0]));
    MUST(comm_send(c, out, n, COMM_U8, peer, 5, &q[1]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    for (size_t i = 0; i < n; i++)
        EQUAL(in[i], peer + 1);
}

static void messages(struct comm_communicator *world, bool by_mpi)
{
    static const size_t lengths[] = {8, 5000, LONG};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct comm_stats before = {.size = sizeof before}, after = {.size = sizeof after};
        int frames = sends;
        MUST(comm_statistics(world, &before));
        exchange(world, lengths[i]);
        MUST(comm_statistics(world, &after));
        CHECK(after.network_out - before.network_out >= lengths[i]);
        CHECK(!by_mpi || sends > frames);
        CHECK(by_mpi || sends == 0);
    }
}

/* MPI has no such pairs. */
struct pair {
    int64_t value, index;
};

static void collectives(struct comm_communicator *world, bool by_mpi)
{
    static float in[ELEMENTS], out[ELEMENTS];
    static struct pair pairs[ELEMENTS], greatest[ELEMENTS];
    static const size_t lengths[] = {1, 1000, ELEMENTS};
    struct comm_request q;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int before = sends;
        for (size_t i = 0; i < lengths[k]; i++)
            in[i] = (float)(rank + 1), pairs[i] = (struct pair){rank + 1, rank};
        MUST(comm_allreduce(world, in, out, lengths[k], COMM_F32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        is_served(q, true);
        MUST(comm_allreduce(world, pairs, greatest, lengths[k], COMM_I64_INDEX, COMM_MAXLOC, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        is_served(q, false);
        for (size_t i = 0; i < lengths[k]; i++)
            CHECK(greatest[i].value == ranks && greatest[i].index == ranks - 1);
        frames_went(world, before, by_mpi, "the greatest of pairs");
    }
}

/* Rank 0 makes no call until its memory was written, so its monitor must serve the window. */
static void windows(struct comm_communicator *c, bool by_mpi)
{
    struct comm_window *w;
    struct comm_request q;
    int32_t me = comm_rank(c), size = comm_size(c), peer = (me + size / 2) % size, from = (me + size - size / 2) % size;
    int64_t mine = 1000 + me, *word, until = rig_now() + RIG_PATIENCE;
    int before = sends;
    size_t bytes;
    void *memory;
    MUST(NOW(comm_window_create, c, 64, NULL, &w));
    MUST(comm_window_pointer(w, me, &memory, &bytes));
    word = (int64_t *)memory + 1;
    MUST(comm_barrier(c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    for (; me == 0 && !__atomic_load_n(word, __ATOMIC_ACQUIRE); rig_nap(RIG_MS))
        CHECK(rig_now() < until);
    MUST(comm_put(w, &mine, 1, COMM_I64, peer, 8, NULL));
    MUST(comm_window_flush(w, peer, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_barrier(c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(*word, 1000 + from);
    CHECK(!by_mpi || sends > before);
    MUST(comm_window_free(w));
}

/* Children with ranks of both hosts. Only at MPI_THREAD_MULTIPLE MPI does their collectives. Their messages take the world's wire. */
static void children(struct comm_communicator *world, const char *far)
{
    struct comm_communicator *half, *copy;
    int32_t one = 1, sum = 0;
    struct comm_request q;
    MUST(NOW(comm_split, world, rank % 2, -rank, &half));
    MUST(NOW(comm_dup, half, NULL, &copy));
    wires_are(copy, far);
    exchange(copy, 3000);
    MUST(comm_allreduce(copy, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(sum, ranks / 2);
    is_served(q, !getenv("COMM_MPI_THREADS"));
    MUST(comm_close(copy, RIG_PATIENCE));
    MUST(comm_close(half, RIG_PATIENCE));
}

/* Twice, because MPI is running when the second world opens. */
static void moved(const char *far)
{
    bool by_mpi = strcmp(far, "mpi") == 0;
    for (int turn = 0; turn < 2; turn++) {
        struct comm_communicator *world = open_world();
        wires_are(world, far);
        messages(world, by_mpi);
        collectives(world, by_mpi);
        windows(world, by_mpi);
        children(world, far);
        MUST(comm_close(world, RIG_PATIENCE));
    }
    if (rank == 0)
        printf("between hosts: %s, %d frames\n", far, sends);
    fflush(stdout);
#ifdef COUNTS
    if (getenv("LEAVE_MPI_OPEN"))
        leave_mpi_open(rank, ranks);
#endif
}

static enum comm_result work(struct comm_communicator *c, int turn)
{
    static struct pair in[ELEMENTS], out[ELEMENTS];
    int32_t size = comm_size(c), me = comm_rank(c);
    struct comm_request q;
    in[0].value = me + 1;
    enum comm_result r = comm_allreduce(c, in, out, turn % 2 ? ELEMENTS : 20, COMM_I64_INDEX, COMM_MAXLOC, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    CHECK(r != COMM_OK || out[0].value == size);
    if (r == COMM_OK && me == 0)
        r = comm_send(c, in, ELEMENTS, COMM_I64_INDEX, size - 1, 3, &q);
    else if (r == COMM_OK && me == size - 1)
        r = comm_recv(c, out, ELEMENTS, COMM_I64_INDEX, 0, 3, NULL, &q);
    return r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
}

/* What dies while MPI has its frames must not take the others with it. They go on over tcp. The launcher may end more ranks. */
static void survivors(void)
{
    struct comm_communicator *c = open_world(), *rest[RIG_RANKS_MAX] = {c};
    enum comm_result r = COMM_OK;
    int made = 0, before = 0;
    wires_are(c, "mpi");
    for (int i = 0; r == COMM_OK; i++) {
        if (i == DEATH_AFTER && rank == 1)
            kill(getpid(), SIGKILL);
        r = work(c, i);
    }
    while (r != COMM_OK) {
        IS(r, COMM_ERR_PEER);
        MUST(NOW(comm_shrink, rest[made], &c));
        rest[++made] = c;
        CHECK(comm_size(c) < ranks);
        wires_are(c, "tcp");
        before = sends;
        r = COMM_OK;
        for (int i = 0; i < DEATH_AFTER && r == COMM_OK; i++)
            r = work(c, i);
    }
    if (comm_size(c) == ranks - 1) /* the launcher has ended no other rank */
        windows(c, false);
    EQUAL(sends, before);
    printf("rank %d: goes on as rank %d of %d\n", rank, comm_rank(c), comm_size(c));
    fflush(stdout);
    while (made >= 0)
        (void)comm_close(rest[made--], RIG_S / 5);
}

int main(int count, char **argument)
{
    const char *file = getenv("SAY_TO");

    rig_end_after(100);
    if (count != 2 || (file && !freopen(file, "a", stdout)))
        return 3;
    if (strcmp(argument[1], "survivors") == 0)
        survivors();
    else
        moved(argument[1]);
    return 0;
}
