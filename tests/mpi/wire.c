/*
 * Tests of the wire over MPI (backend shm+mpi) that go beyond the suite. This program is one rank of a world under MPI's launcher:
 *
 *   wire messages | windows | loop | room | survivors
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 5 << 20, MANY = 40, TURNS = 10, OVER = 4000, AHEAD = 120, BROADCAST = 2048, PATIENCE_MS = 10000 };

static int32_t rank, ranks;

static struct comm_communicator *open_world(void)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct comm_info info = {.size = sizeof info};
    enum comm_result r = comm_open(
        COMM_CONFIG(.backend = "shm+mpi", .operation_timeout_ns = 20 * RIG_S, .error_text = text, .error_text_bytes = sizeof text), &world);
    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        exit(3);
    }
    rank = comm_rank(world);
    ranks = comm_size(world);
    MUST(comm_describe(world, &info));
    CHECK(strcmp(info.backend, "shm+mpi") == 0 && info.nodes == ranks);
    return world;
}

/* ------------------------------------------------------------------------------------------------------------ messages */
static void fill(unsigned char *at, size_t n, int32_t from)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (unsigned char)(i * 7 + i / 4093 + (size_t)from);
}

static void has(const unsigned char *at, size_t n, int32_t from)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != (unsigned char)(i * 7 + i / 4093 + (size_t)from))
            rig_die(__FILE__, __LINE__, "byte %zu of %zu from rank %d is wrong", i, n, from);
}

/* Passes a message round the ring. The receive is posted before or after the send. */
static void pass_on(struct comm_communicator *c, size_t n, bool late)
{
    static unsigned char out[LONGEST], in[LONGEST];
    int32_t to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    struct comm_request q[2];
    fill(out, n, rank);
    memset(in, 0, n);
    if (late) {
        MUST(comm_send(c, out, n, COMM_U8, to, 5, &q[0]));
        rig_nap(20 * RIG_MS);
    }
    MUST(comm_recv(c, in, n, COMM_U8, late ? COMM_ANY_PEER : from, 5, NULL, &q[1]));
    if (!late)
        MUST(comm_send(c, out, n, COMM_U8, to, 5, &q[0]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    has(in, n, from);
}

/* Sends more messages than a receiver has room for before it receives any. */
static void pile_up(struct comm_communicator *c, size_t n)
{
    static unsigned char out[MANY][8192], in[8192];
    int32_t to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    struct comm_request sent[MANY], q;
    struct comm_status status;
    for (int i = 0; i < MANY; i++) {
        fill(out[i], n, i);
        MUST(comm_send(c, out[i], n, COMM_U8, to, (uint32_t)i, &sent[i]));
    }
    MUST(comm_probe(c, from, MANY - 1, RIG_PATIENCE, &status));
    EQUAL(status.bytes, n);
    for (int i = MANY; i-- > 0;) {
        MUST(comm_recv(c, in, n, COMM_U8, from, (uint32_t)i, NULL, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        has(in, n, i);
    }
    MUST(comm_wait_all(sent, MANY, RIG_PATIENCE));
}

static void cut_short(struct comm_communicator *c, size_t n)
{
    static unsigned char out[LONGEST], in[64];
    int32_t to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    struct comm_request q[2];
    MUST(comm_send(c, out, n, COMM_U8, to, 9, &q[0]));
    MUST(comm_recv(c, in, sizeof in, COMM_U8, from, 9, NULL, &q[1]));
    IS(comm_wait(q[1], RIG_PATIENCE), COMM_ERR_TRUNCATED);
    MUST(comm_wait(q[0], RIG_PATIENCE));
}

static void messages(void)
{
    static const size_t lengths[] = {0, 1, 240, 241, 2048, 2049, 32768, 32769, 262144, 262145, LONGEST};
    struct comm_communicator *world = open_world();
    struct comm_request q;
    char byte;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pass_on(world, lengths[i], false);
        MUST(comm_barrier(world, &q)); /* late receives accept any source, so they must not match a message of the next round */
        MUST(comm_wait(q, RIG_PATIENCE));
        pass_on(world, lengths[i], true);
        MUST(comm_barrier(world, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
    }
    pile_up(world, 100);
    pile_up(world, 3000);
    pile_up(world, 8000);
    cut_short(world, 1000);
    cut_short(world, LONGEST);
    MUST(comm_recv(world, &byte, 1, COMM_U8, COMM_ANY_PEER, 77, NULL, &q));
    MUST(comm_cancel(q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_CANCELLED);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ windows */
/* Rank 1 makes no call until rank 0 has written here, so its monitor thread must serve the window. */
static void await_word(struct comm_window *w)
{
    int64_t *word;
    size_t bytes;
    void *memory;
    MUST(comm_window_pointer(w, rank, &memory, &bytes));
    word = (int64_t *)memory + OVER / 8;
    for (int64_t until = rig_now() + RIG_PATIENCE; !__atomic_load_n(word, __ATOMIC_ACQUIRE);) {
        CHECK(rig_now() < until);
        rig_nap(5 * RIG_MS);
    }
}

static void windows(void)
{
    struct comm_communicator *world = open_world();
    struct comm_window *w;
    int64_t value[TURNS] = {0}, old = -1, one = 1, back = -1;
    struct comm_request q;
    MUST(NOW(comm_window_create, world, 4096, NULL, &w));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    if (rank == 1)
        await_word(w);
    for (int i = 0; i < TURNS && rank == 0; i++) {
        value[i] = 100 + i;
        MUST(comm_put(w, &value[i], 1, COMM_I64, 1, (size_t)i * 8, NULL));
        MUST(comm_window_flush(w, 1, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        MUST(comm_get(w, &back, 1, COMM_I64, 1, (size_t)i * 8, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(back, 100 + i);
        MUST(comm_fetch_op(w, &one, &old, 1, COMM_I64, COMM_SUM, 1, 2048, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(old, i);
    }
    if (rank == 0) {
        MUST(comm_put(w, &one, 1, COMM_I64, 1, OVER, NULL));
        MUST(comm_window_flush(w, 1, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
    }
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_window_free(w));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ an event loop */
static void wait_by_loop(struct comm_communicator *world, struct comm_request q)
{
    int fd;
    MUST(comm_fd(world, &fd));
    while (comm_test(q) == COMM_PENDING) {
        while (comm_progress(world) == COMM_PENDING)
            continue;
        struct pollfd it = {.fd = fd, .events = POLLIN};
        if (comm_arm(world) == COMM_OK && comm_test(q) == COMM_PENDING)
            CHECK(poll(&it, 1, 20000) > 0);
    }
    MUST(comm_test(q));
}

/* Both ranks sleep in poll() between the rounds. A frame over MPI must wake them soon, although MPI signals no descriptor. */
static void loop(void)
{
    struct comm_communicator *world = open_world();
    int64_t turn = 0, start = rig_now();
    struct comm_request q;
    for (int i = 0; i < TURNS && rank < 2; i++) {
        if (i % 2 == rank) {
            rig_nap(10 * RIG_MS);
            turn = i;
            MUST(comm_send(world, &turn, 1, COMM_I64, 1 - rank, 1, &q));
        } else {
            MUST(comm_recv(world, &turn, 1, COMM_I64, 1 - rank, 1, NULL, &q));
        }
        wait_by_loop(world, q);
        EQUAL(turn, i);
    }
    CHECK(rig_now() - start < 3 * RIG_S);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ room */
/* The root of short broadcasts need not wait for ranks that make no calls: these begin when it has made all of its own. The launcher is the
 * parent of all ranks, so its number names the file by which the root says so. */
static void room(void)
{
    static unsigned char bytes[AHEAD][BROADCAST];
    struct comm_communicator *world = open_world();
    struct comm_request q[AHEAD];
    char done[64];

    snprintf(done, sizeof done, "/tmp/comm_mpi_room.%d", (int)getppid());
    for (int i = 0; rank == 0 && i < AHEAD; i++) {
        fill(bytes[i], BROADCAST, i);
        MUST(comm_broadcast(world, bytes[i], BROADCAST, COMM_U8, 0, &q[i]));
        MUST(comm_wait(q[i], RIG_PATIENCE));
    }
    if (rank == 0)
        CHECK(close(open(done, O_CREAT | O_WRONLY, 0600)) == 0);
    for (int i = 0; access(done, F_OK) && i < PATIENCE_MS; i++)
        usleep(1000);
    CHECK(access(done, F_OK) == 0);
    for (int i = 0; rank && i < AHEAD; i++)
        MUST(comm_broadcast(world, bytes[i], BROADCAST, COMM_U8, 0, &q[i]));
    if (rank)
        MUST(comm_wait_all(q, AHEAD, RIG_PATIENCE));
    for (int i = 0; i < AHEAD; i++)
        has(bytes[i], BROADCAST, i);
    MUST(comm_barrier(world, &q[0]));
    MUST(comm_wait(q[0], RIG_PATIENCE));
    (void)unlink(done);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ survivors */
static void survivors(void)
{
    struct comm_communicator *world = open_world(), *rest = NULL;
    enum comm_result r = COMM_OK;
    static float in[70000], out[70000];
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        if (i == 20 && rank == 1)
            kill(getpid(), SIGKILL);
        r = comm_allreduce(world, in, out, 70000, COMM_F32, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    IS(r, COMM_ERR_PEER);
    MUST(NOW(comm_shrink, world, &rest));
    EQUAL(comm_size(rest), ranks - 1);
    for (int i = 0; i < 20; i++) {
        in[i] = (float)comm_rank(rest) + 1;
        MUST(comm_allreduce(rest, in, out, i % 2 ? 70000 : 20, COMM_F32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        CHECK(out[i] == (float)(ranks * (ranks - 1) / 2));
    }
    printf("rank %d: goes on as rank %d of %d\n", rank, comm_rank(rest), comm_size(rest));
    fflush(stdout);
    MUST(comm_close(rest, RIG_PATIENCE));
    (void)comm_close(world, RIG_S / 5);
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"messages", messages}, {"windows", windows}, {"loop", loop}, {"room", room}, {"survivors", survivors}};
    const char *file = getenv("SAY_TO");

    rig_end_after(100);
    if (count != 2 || (file && !freopen(file, "a", stdout)))
        return 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argument[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    return 3;
}
