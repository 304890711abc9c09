/*
 * The wire over MPI without memory: a frame that cannot be kept is never lost in silence. Either it waits, or the communicator fails with
 * COMM_ERR_MEMORY on all ranks. This program is one rank of a world under MPI's launcher, each a host of its own:
 *
 *   scarce exposure | message | events | pieces | answers
 *
 * It takes the place of the C library's allocator, and refuses what the module asks for. Rank 1 is the one without memory.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

enum scarce { SMALL, LONG, FRAME, PIECE, SCARCE_KINDS }; /* notes of the wire and its queues by malloc, frames by aligned_alloc */
static const struct {
    size_t least, most;
} lengths[SCARCE_KINDS] = {{1, 1000}, {3000, 20000}, {1, 1000}, {200000, 1 << 21}};
enum { AHEAD = 100, SENT = 60, LONGEST = 5 << 20, STREAM = 16 << 20, FOR_EVER = 1 << 30 };

static _Atomic int left[SCARCE_KINDS], hits; /* how many requests are still refused, and how many were */
static int32_t rank, ranks;

static bool refuses(enum scarce kind, size_t bytes, const void *caller)
{
    Dl_info from;

    if (atomic_load(&left[kind]) <= 0 || bytes < lengths[kind].least || bytes > lengths[kind].most)
        return false;
    if (!dladdr(caller, &from) || !strstr(from.dli_fname, "commstream_mpi_") || atomic_fetch_sub(&left[kind], 1) <= 0)
        return false;
    hits++;
    return true;
}

void *malloc(size_t bytes)
{
    const void *caller = __builtin_return_address(0);

    return refuses(SMALL, bytes, caller) || refuses(LONG, bytes, caller) ? NULL : __libc_malloc(bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    const void *caller = __builtin_return_address(0);

    return refuses(FRAME, bytes, caller) || refuses(PIECE, bytes, caller) ? NULL : __libc_memalign(align, bytes);
}

/* ------------------------------------------------------------------------------------------------------------ what ranks do */
static struct comm_communicator *open_world(void)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "shm+mpi", .progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 15 * RIG_S,
                                               .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s: %s", comm_result_name(r), text);
    rank = comm_rank(world);
    ranks = comm_size(world);
    return world;
}

static void meet(struct comm_communicator *world)
{
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
}

/* Rank 1 looks until what comes has found no memory. */
static void run_short(struct comm_communicator *c)
{
    for (int64_t until = rig_now() + RIG_PATIENCE; rank == 1 && !atomic_load(&hits); rig_nap(RIG_MS)) {
        CHECK(rig_now() < until);
        (void)!comm_progress(c);
    }
}

/* All ranks hear why. A barrier may still be over before the first one knows. */
static void fails(struct comm_communicator *world)
{
    struct comm_error error = {.size = sizeof error};
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int64_t until = rig_now() + RIG_PATIENCE; r == COMM_OK; rig_nap(RIG_MS)) {
        CHECK(rig_now() < until);
        r = comm_barrier(world, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s: %s\n", rank, comm_result_name(r), error.text);
    fflush(stdout);
    IS(r, COMM_ERR_MEMORY);
    (void)comm_close(world, RIG_S);
}

/* What rank 0 exposes comes before rank 1 asks for it. */
static void exposure(struct comm_communicator *world)
{
    int32_t value[AHEAD] = {0};
    struct comm_request q;
    enum comm_result r = COMM_OK;
    atomic_store(&left[SMALL], rank == 1);
    run_short(world);
    for (int i = 0; r == COMM_OK && i < AHEAD; i++) {
        r = comm_broadcast(world, &value[i], 1, COMM_I32, 0, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    CHECK(r == COMM_OK || r == COMM_ERR_MEMORY);
    fails(world);
}

/* Rank 1 may have failed before the last one is sent. */
static void send_some(struct comm_communicator *world)
{
    static int64_t value[SENT];
    struct comm_request q;
    enum comm_result r = COMM_OK;
    for (int i = 0; rank != 1 && r == COMM_OK && i < SENT; i++) {
        r = comm_send(world, &value[i], 1, COMM_I64, 1, 5, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    CHECK(r == COMM_OK || r == COMM_ERR_MEMORY);
}

static void message(struct comm_communicator *world)
{
    send_some(world);
    atomic_store(&left[SMALL], rank == 1);
    run_short(world);
    fails(world);
}

/* The first event of a communicator finds no memory for a queue of events. */
static void events(struct comm_communicator *world)
{
    struct comm_communicator *child = NULL;
    meet(world);
    MUST(NOW(comm_dup, world, NULL, &child));
    atomic_store(&left[LONG], rank == 1);
    meet(world);
    send_some(child);
    run_short(child);
    fails(child);
    (void)comm_close(world, RIG_S);
}

/* A piece of a message leaves, or is taken, when there is memory again. */
static void pieces(struct comm_communicator *world)
{
    static unsigned char bytes[LONGEST];
    struct comm_request q;
    atomic_store(&left[PIECE], 3);
    for (size_t i = 0; rank == 0 && i < LONGEST; i++)
        bytes[i] = (unsigned char)(i / 4093);
    if (rank < 2)
        MUST(rank == 0 ? comm_send(world, bytes, LONGEST, COMM_U8, 1, 5, &q) : comm_recv(world, bytes, LONGEST, COMM_U8, 0, 5, NULL, &q));
    if (rank < 2)
        MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(hits, rank < 2 ? 3 : 0);
    for (size_t i = 0; rank < 2 && i < LONGEST; i++)
        EQUAL(bytes[i], (unsigned char)(i / 4093));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* A reader tells that it has taken an exposure of a stream, though it has no memory for that. */
static void answers(struct comm_communicator *world)
{
    static unsigned char bytes[STREAM];
    struct comm_request q;
    if (rank)
        atomic_store(&left[FRAME], FOR_EVER);
    for (size_t i = 0; rank == 0 && i < STREAM; i++)
        bytes[i] = (unsigned char)(i / 4093);
    MUST(comm_broadcast(world, bytes, STREAM, COMM_U8, 0, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    atomic_store(&left[FRAME], 0);
    CHECK(rank == 0 || hits > 0);
    for (size_t i = 0; i < STREAM; i++)
        EQUAL(bytes[i], (unsigned char)(i / 4093));
    MUST(comm_close(world, RIG_PATIENCE));
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*run)(struct comm_communicator *world);
    } cases[] = {{"exposure", exposure}, {"message", message}, {"events", events}, {"pieces", pieces}, {"answers", answers}};
    const char *file = getenv("SAY_TO");

    rig_end_after(60);
    if (count != 2 || (file && !freopen(file, "a", stdout)))
        return 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argument[1], cases[i].name) == 0) {
            cases[i].run(open_world());
            return 0;
        }
    return 3;
}
