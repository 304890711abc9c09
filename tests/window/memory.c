/*
 * comm_mem_alloc: what it returns and refuses, and that collectives are correct wherever their buffers are. Each rank draws by itself which
 * of its buffers are from comm_mem_alloc, so that ranks that show their memory and ranks that copy meet in one operation. With threads and,
 * over shared memory, with processes.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, MOST = 300000 /* elements of a buffer for all blocks */ };

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*seed * below >> 32);
}

struct side {
    struct comm_communicator *c;
    int32_t rank, ranks;
    int32_t *in[2], *out[2]; /* [0] from malloc, [1] from comm_mem_alloc */
};

static void side_open(struct side *s, struct comm_communicator *c)
{
    *s = (struct side){.c = c, .rank = comm_rank(c), .ranks = comm_size(c)};
    void *at[2];
    s->in[0] = malloc(MOST * sizeof(int32_t));
    s->out[0] = malloc(MOST * sizeof(int32_t));
    for (int i = 0; i < 2; i++) {
        MUST(comm_mem_alloc(c, MOST * sizeof(int32_t), &at[i]));
        EQUAL((uintptr_t)at[i] % 4096, 0);
        for (size_t k = 0; k < MOST; k++)
            EQUAL(((int32_t *)at[i])[k], 0);
    }
    s->in[1] = at[0];
    s->out[1] = at[1];
}

static void side_close(struct side *s)
{
    free(s->in[0]);
    free(s->out[0]);
    comm_mem_free(s->c, s->in[1]);
    comm_mem_free(s->c, s->out[1]);
    comm_mem_free(s->c, NULL);
}

static int32_t value(int32_t rank, size_t i, uint32_t round)
{
    return (int32_t)((uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7919u + round * 31u);
}

static int32_t sum(int32_t ranks, size_t i, uint32_t round)
{
    uint32_t all = 0;
    for (int32_t r = 0; r < ranks; r++)
        all += (uint32_t)value(r, i, round);
    return (int32_t)all;
}

enum what { ALLREDUCE, ALLREDUCE_IN_PLACE, BROADCAST, ALLGATHER, REDUCE_SCATTER, REDUCE, ALLTOALL, GATHER, SCAN, WHATS };

static enum comm_result issue(struct side *s, enum what what, int32_t *in, int32_t *out, size_t n, int32_t root, struct comm_request *req)
{
    switch (what) {
    case ALLREDUCE:
        return comm_allreduce(s->c, in, out, n, COMM_I32, COMM_SUM, req);
    case ALLREDUCE_IN_PLACE:
        return comm_allreduce(s->c, COMM_IN_PLACE, in, n, COMM_I32, COMM_SUM, req);
    case BROADCAST:
        return comm_broadcast(s->c, in, n, COMM_I32, root, req);
    case ALLGATHER:
        return comm_allgather(s->c, in, out, n, COMM_I32, req);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(s->c, in, out, n, COMM_I32, COMM_SUM, req);
    case REDUCE:
        return comm_reduce(s->c, in, out, n, COMM_I32, COMM_SUM, root, req);
    case ALLTOALL:
        return comm_alltoall(s->c, in, out, n, COMM_I32, req);
    case GATHER:
        return comm_gather(s->c, in, out, n, COMM_I32, root, req);
    default:
        return comm_scan(s->c, in, out, n, COMM_I32, COMM_SUM, req);
    }
}

static int32_t expected(const struct side *s, enum what what, size_t i, size_t n, int32_t root, uint32_t round)
{
    switch (what) {
    case BROADCAST:
        return value(root, i, round);
    case ALLGATHER:
    case GATHER:
        return value((int32_t)(i / n), i % n, round);
    case REDUCE_SCATTER:
        return sum(s->ranks, (size_t)s->rank * n + i, round);
    case ALLTOALL:
        return value((int32_t)(i / n), (size_t)s->rank * n + i % n, round);
    case SCAN:
        return sum(s->rank + 1, i, round);
    default:
        return sum(s->ranks, i, round);
    }
}

static void check_round(const struct side *s, enum what what, const int32_t *in, const int32_t *out, size_t n, int32_t root, uint32_t round)
{
    bool in_place = what == ALLREDUCE_IN_PLACE || what == BROADCAST;
    bool all = what == ALLGATHER || what == ALLTOALL || what == GATHER;
    const int32_t *at = in_place ? in : out;
    if ((what == REDUCE || what == GATHER) && s->rank != root)
        return;
    for (size_t i = 0; i < (all ? n * (size_t)s->ranks : n); i++)
        if (at[i] != expected(s, what, i, n, root, round))
            rig_die(__FILE__, __LINE__, "round %u, collective %d, n %zu, element %zu of rank %d", round, what, n, i, s->rank);
    for (size_t i = 0; !in_place && i < n; i++)
        EQUAL(in[i], value(s->rank, i, round));
}

/* All ranks draw the same collective and length, but each draws its own buffers. */
static void rounds(struct comm_communicator *c)
{
    struct side s;
    uint32_t alike = 7, own = (uint32_t)comm_rank(c) * 77u + 5u;
    side_open(&s, c);
    for (uint32_t round = 0; round < selected(40, 40, 16); round++) {
        enum what what = round % WHATS;
        size_t n = 1 + draw(&alike, MOST / RANKS);
        int32_t root = (int32_t)draw(&alike, (uint32_t)s.ranks), *in = s.in[draw(&own, 4) != 0], *out = s.out[draw(&own, 4) != 0];
        struct comm_request req;
        for (size_t i = 0; i < MOST; i++)
            in[i] = value(s.rank, i, round);
        memset(out, 0x55, MOST * sizeof *out);
        MUST(issue(&s, what, in, out, n, root, &req));
        MUST(comm_wait(req, RIG_PATIENCE));
        check_round(&s, what, in, out, n, root, round);
    }
    side_close(&s);
}

static void rounds_of(void *arg, int32_t rank)
{
    rounds(((struct rig *)arg)->world[rank]);
}

RIG_TEST(memory_collectives)
{
    static const char *const options[] = {"", "minimal=1,window=4", "chunk=4096"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct rig rig;
        rig_open_options(&rig, RANKS, options[i]);
        rig_threads(RANKS, rounds_of, &rig);
        rig_close(&rig);
    }
}

static void rounds_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    (void)rank;
    rounds(world);
    MUST(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(memory_collectives_of_processes)
{
    struct proc proc = {.options = ""};
    proc_needs_shm();
    proc_start(&proc, RANKS, rounds_main);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* The same buffers in a plan that is started many times, each time with new contents. */
static void plan_of(void *arg, int32_t rank)
{
    struct comm_communicator *c = ((struct rig *)arg)->world[rank], *recorder;
    struct comm_plan *plan;
    struct side s;
    size_t n = 100000;
    side_open(&s, c);
    MUST(comm_plan_begin(c, &recorder));
    MUST(comm_allreduce(recorder, s.in[1], s.out[1], n, COMM_I32, COMM_SUM, NULL));
    MUST(comm_plan_end(recorder, &plan));
    for (uint32_t round = 0; round < 5; round++) {
        struct comm_request req;
        for (size_t i = 0; i < n; i++)
            s.in[1][i] = value(rank, i, round);
        MUST(comm_plan_start(plan, &req));
        MUST(comm_wait(req, RIG_PATIENCE));
        check_round(&s, ALLREDUCE, s.in[1], s.out[1], n, 0, round);
    }
    comm_plan_free(plan);
    side_close(&s);
}

RIG_TEST(memory_in_plans)
{
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_threads(RANKS, plan_of, &rig);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ failure */
/* Contract 4.2 and 4.3: rank 0 revokes at some moment, and overwrites its buffer as soon as its request has ended. If a rank's request
 * returns OK, its sum is correct nevertheless. */
struct torn {
    struct rig rig;
    int32_t *in[RANKS], *out[RANKS];
    int64_t pause;
};
enum { TORN = 60000 };
/* A late reader may read memory that its owner already overwrites, and checks the board afterwards to see whether the data are valid. This
 * race is intended, and ThreadSanitizer would report it. */
#if defined(__SANITIZE_THREAD__)
enum { OVERWRITES = false };
#else
enum { OVERWRITES = true };
#endif

static void torn_of(void *arg, int32_t rank)
{
    struct torn *t = arg;
    struct comm_communicator *c = t->rig.world[rank];
    struct comm_request req;
    enum comm_result r = comm_allreduce(c, t->in[rank], t->out[rank], TORN, COMM_I32, COMM_SUM, &req);
    if (r == COMM_OK && rank == 0) {
        (void)!comm_wait(req, t->pause);
        MUST(comm_revoke(c));
    }
    r = r == COMM_OK ? comm_wait(req, RIG_PATIENCE) : r;
    if (OVERWRITES && rank == 0 && r != COMM_OK)
        memset(t->in[0], 0x77, TORN * sizeof(int32_t));
    if (r != COMM_OK) {
        EQUAL(r, COMM_ERR_REVOKED);
        return;
    }
    for (size_t i = 0; i < TORN; i++)
        EQUAL(t->out[rank][i], sum(RANKS, i, 3));
}

RIG_TEST(contract_4_2_memory_of_a_failed_operation)
{
    for (int round = 0; round < (rig_quick() ? 10 : 40); round++) {
        struct torn t = {.pause = round * 20000};
        rig_open(&t.rig, RANKS, NULL);
        for (int32_t r = 0; r < RANKS; r++) {
            void *at[2];
            for (int i = 0; i < 2; i++)
                MUST(comm_mem_alloc(t.rig.world[r], TORN * sizeof(int32_t), &at[i]));
            t.in[r] = at[0];
            t.out[r] = at[1];
            for (size_t i = 0; i < TORN; i++)
                t.in[r][i] = value(r, i, 3);
        }
        rig_threads(RANKS, torn_of, &t);
        /* freed after a failure: no other allocation gets this memory while a peer may still write to it */
        for (int32_t r = 0; r < RANKS; r++) {
            comm_mem_free(t.rig.world[r], t.in[r]);
            comm_mem_free(t.rig.world[r], t.out[r]);
        }
        for (int32_t r = 0; r < RANKS; r++)
            (void)!comm_close(t.rig.world[r], COMM_DEFAULT_TIMEOUT);
    }
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
static void says(struct comm_communicator *c, const char *text)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.text, text);
}

RIG_TEST(memory_refuses)
{
    struct rig rig;
    void *at = NULL, *more[3];
    int own;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    IS(comm_mem_alloc(c, 0, &at), COMM_ERR_ARGUMENT);
    says(c, "comm_mem_alloc: bytes=0; expected 1 or more");
    IS(comm_mem_alloc(c, 8, NULL), COMM_ERR_ARGUMENT);
    IS(comm_mem_alloc(NULL, 8, &at), COMM_ERR_ARGUMENT);
    IS(comm_mem_alloc(c, (size_t)1 << 59, &at), COMM_ERR_MEMORY);
    CHECK(at == NULL);
    IS(comm_mem_register(c, NULL, 4), COMM_ERR_ARGUMENT);
    IS(comm_mem_register(c, &own, 0), COMM_ERR_ARGUMENT);
    MUST(comm_mem_register(c, &own, sizeof own));
    IS(comm_mem_register(c, &own, sizeof own), COMM_ERR_STATE);
    comm_mem_free(c, &own); /* registered, not allocated: reports that and does nothing */
    says(c, "comm_mem_free: ptr=");
    comm_mem_unregister(c, &own);
    comm_mem_unregister(c, &own);
    says(c, "comm_mem_unregister: ptr=");
    MUST(comm_mem_register(c, &own, sizeof own));
    for (int i = 0; i < 3; i++)
        MUST(comm_mem_alloc(c, 5000, &more[i]));
    CHECK(more[0] != more[1] && more[1] != more[2]);
    comm_mem_free(c, more[1]);
    comm_mem_free(c, more[1]);
    says(c, "comm_mem_free: ptr=");
    rig_close(&rig); /* the others are freed with the world */
}

/* All ranks get memory in one call together, or none does. */
RIG_TEST(memory_of_all_ranks)
{
    struct rig rig;
    struct comm_request q[RANKS];
    void *at[RANKS];

    rig_open(&rig, RANKS, NULL);
    for (int round = 0; round < 3; round++) {
        for (int r = 0; r < RANKS; r++)
            MUST(comm_mem_alloc_symmetric(rig.world[r], 5000, &at[r], &q[r]));
        rig_wait_all(q, RANKS);
        for (int r = 0; r < RANKS; r++) {
            EQUAL((uintptr_t)at[r] % 4096, 0);
            for (size_t i = 0; i < 5000; i++)
                EQUAL(((char *)at[r])[i], 0);
            memset(at[r], 1, 5000);
            if (round)
                comm_mem_free(rig.world[r], at[r]); /* the others are freed with the world */
        }
    }
    for (int r = 0; r < RANKS; r++) {
        at[r] = NULL;
        MUST(comm_mem_alloc_symmetric(rig.world[r], r == 1 ? 8 : 9, &at[r], &q[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_ARGUMENT);
        CHECK(at[r] == NULL);
        says(rig.world[r], "comm_mem_alloc_symmetric: bytes=8 on rank 1, and 9 on rank 0; expected the same on every rank");
        MUST(comm_mem_alloc_symmetric(rig.world[r], (size_t)1 << 59, &at[r], &q[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MEMORY);
        CHECK(at[r] == NULL);
        says(rig.world[r], "comm_mem_alloc_symmetric: bytes=576460752303423488: rank 0: ");
    }
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
}

/* In a small segment: memory runs out, which is reported, and freed memory can be allocated again, filled with zeros. */
static void small_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    enum { PIECE = 1 << 20, MOST_PIECES = 64 };
    char *at[MOST_PIECES];
    int had = 0;
    (void)proc;
    (void)rank;
    for (int round = 0; round < 3; round++) {
        int count = 0;
        void *piece;
        while (count < MOST_PIECES && comm_mem_alloc(world, PIECE, &piece) == COMM_OK) {
            at[count] = piece;
            for (size_t i = 0; i < PIECE; i += 512)
                EQUAL(at[count][i], 0);
            memset(at[count++], 1, PIECE);
        }
        CHECK(count > 4 && count < MOST_PIECES && (!round || count == had));
        says(world, "comm_mem_alloc: bytes=1048576");
        had = count;
        for (int i = 0; i < count; i++) /* in another order than they were allocated */
            comm_mem_free(world, at[(i * 7 + 3) % count]);
        if (count % 7 == 0) /* then that order is not a permutation: the rest is freed with the world */
            break;
    }
    rounds(world); /* there is room again */
    MUST(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(memory_of_a_small_segment)
{
    struct proc proc = {.options = ""};
    proc_needs_shm();
    setenv("COMM_SHM_SEGMENT_BYTES", "32M", 1);
    proc_start(&proc, 2, small_main);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ two ranks */
/* Whole pages of whole chunks: each rank also stores its half of the result in the other's memory. Lengths below and above that, one call
 * and several at once, in place and not. */
enum { PAIR = 2, PAIR_MOST = 1 << 19, PAIR_CALLS = 3 };

static void pair_round(struct comm_communicator *c, int32_t *const in[PAIR_CALLS], int32_t *const out[PAIR_CALLS], size_t n, uint32_t round)
{
    struct comm_request req[PAIR_CALLS];
    int32_t rank = comm_rank(c);
    for (uint32_t k = 0; k < PAIR_CALLS; k++)
        for (size_t i = 0; i < n; i++)
            in[k][i] = value(rank, i, round + k);
    for (uint32_t k = 0; k < PAIR_CALLS; k++)
        MUST(comm_allreduce(c, in[k] == out[k] ? COMM_IN_PLACE : in[k], out[k], n, COMM_I32, COMM_SUM, &req[k]));
    for (uint32_t k = 0; k < PAIR_CALLS; k++)
        MUST(comm_wait(req[k], RIG_PATIENCE));
    for (uint32_t k = 0; k < PAIR_CALLS; k++)
        for (size_t i = 0; i < n; i++)
            EQUAL(out[k][i], sum(PAIR, i, round + k));
}

static void pair_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static const size_t lengths[] = {PAIR_MOST, 1 << 15, (1 << 17) + 1, 100000, PAIR_MOST - 1024};
    int32_t *in[PAIR_CALLS], *out[PAIR_CALLS];
    void *at;
    (void)proc;
    for (uint32_t k = 0; k < PAIR_CALLS; k++) {
        MUST(comm_mem_alloc(world, PAIR_MOST * sizeof(int32_t), &at));
        in[k] = at;
        MUST(comm_mem_alloc(world, PAIR_MOST * sizeof(int32_t), &at));
        out[k] = k == 1 ? in[k] : rank == 0 && k == 2 ? malloc(PAIR_MOST * sizeof(int32_t)) : at;
    }
    for (uint32_t round = 0; round < 4 * sizeof lengths / sizeof *lengths; round++)
        pair_round(world, in, out, lengths[round % (sizeof lengths / sizeof *lengths)], round);
    if (rank == 0)
        free(out[2]);
    MUST(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(memory_results_of_two_processes)
{
    proc_needs_shm();
    for (int i = 0; i < 2; i++) {
        struct proc proc = {.options = i ? "minimal=1,window=4" : ""};
        proc_start(&proc, PAIR, pair_main);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_results_of_two_processes),
        cmocka_unit_test(memory_collectives),
        cmocka_unit_test(memory_collectives_of_processes),
        cmocka_unit_test(memory_in_plans),
        cmocka_unit_test(contract_4_2_memory_of_a_failed_operation),
        cmocka_unit_test(memory_refuses),
        cmocka_unit_test(memory_of_all_ranks),
        cmocka_unit_test(memory_of_a_small_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
