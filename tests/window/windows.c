/*
 * Windows as their users see them: each case is what one rank does, run by threads over the in-process wire and by processes over shared
 * memory; and again (COMM_BACKEND) over connections, between hosts, and with memory of the caller's that peers cannot reach, where the same
 * calls go to the owner of a part. What a rank sees of another's part it then gets by comm_get.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>
#include <complex.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };
typedef void case_fn(struct comm_communicator *c, int32_t rank, int32_t ranks);

static void says(struct comm_communicator *c, const char *text)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.text, text);
}

static void done(struct comm_request req)
{
    MUST(comm_wait(req, RIG_PATIENCE));
}

static void fence(struct comm_window *w)
{
    struct comm_request req;
    MUST(comm_window_fence(w, &req));
    done(req);
}

static void barrier(struct comm_communicator *c)
{
    struct comm_request req;
    MUST(comm_barrier(c, &req));
    done(req);
}

static void *part_of(struct comm_window *w, int32_t rank, size_t want)
{
    void *at = NULL;
    size_t bytes = 0;
    MUST(comm_window_pointer(w, rank, &at, &bytes));
    EQUAL(bytes, want);
    return at;
}

/* Reads of a part: where it lies, or a copy of it. */
static _Thread_local void *copy; /* the last one is looked at until the next */
static const void *look(struct comm_window *w, int32_t rank, size_t want)
{
    struct comm_request req;
    void *at = NULL;
    size_t bytes = 0;
    enum comm_result r = comm_window_pointer(w, rank, &at, &bytes);
    if (r == COMM_OK) {
        EQUAL(bytes, want);
        return at;
    }
    EQUAL(r, COMM_ERR_UNSUPPORTED);
    free(copy);
    copy = at = malloc(want);
    MUST(comm_get(w, at, want, COMM_BYTE, rank, 0, &req));
    done(req);
    return at;
}

/* A store into another's part: direct, or by the owner. */
static void poke(struct comm_window *w, int32_t rank, size_t offset, const void *from, size_t bytes)
{
    struct comm_request req;
    void *at = NULL;
    if (comm_window_pointer(w, rank, &at, NULL) == COMM_OK) {
        memcpy((char *)at + offset, from, bytes);
        return;
    }
    MUST(comm_put(w, from, bytes, COMM_BYTE, rank, offset, &req));
    done(req);
}

static struct comm_window *make(struct comm_communicator *c, size_t bytes, uint32_t signals)
{
    struct comm_window *w = NULL;
    MUST(comm_window_create(c, bytes, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .signals = signals}, &w,
                            NULL));
    return w;
}

/* ------------------------------------------------------------------------------------------------------------ pointers */
/* Each rank fills its part through its pointer, everybody reads everybody's; then each writes into the next one's. */
static void all_populated(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { WORDS = 5000 };
    struct comm_window *w = make(c, (size_t)(WORDS + rank) * 8, 0);
    uint64_t *mine = part_of(w, rank, (size_t)(WORDS + rank) * 8);
    for (size_t i = 0; i < WORDS + (size_t)rank; i++) {
        EQUAL(mine[i], 0);
        mine[i] = (uint64_t)rank << 32 | i;
    }
    fence(w);
    for (int32_t r = 0; r < ranks; r++) {
        const uint64_t *at = look(w, r, (size_t)(WORDS + r) * 8);
        for (size_t i = 0; i < WORDS + (size_t)r; i++)
            EQUAL(at[i], (uint64_t)r << 32 | i);
    }
    fence(w);
    int32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const uint64_t mark = 77u + (uint64_t)rank;
    poke(w, next, 0, &mark, sizeof mark);
    fence(w);
    EQUAL(mine[0], 77 + before);
    MUST(comm_window_free(w));
}

/* One copy per host: the last rank brings all of it, with each placement, and the others only look. */
static void leader_populated(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    for (int placement = COMM_PLACEMENT_DEFAULT; placement <= COMM_PLACEMENT_INTERLEAVE; placement++) {
        size_t bytes = (size_t)3 << 20;
        int32_t leader = ranks - 1;
        struct comm_window *w = NULL;
        struct comm_request req;
        MUST(comm_window_create(
            c, rank == leader ? bytes : 0,
            &(struct comm_window_options){.size = sizeof(struct comm_window_options), .placement = (enum comm_placement)placement}, &w,
            &req));
        done(req);
        if (rank)
            CHECK(rank == leader || part_of(w, rank, 0) == NULL);
        if (rank == leader)
            memset(part_of(w, leader, bytes), 0x40 + placement, bytes);
        fence(w);
        const unsigned char *at = look(w, leader, bytes);
        for (size_t i = 0; i < bytes; i += 997)
            EQUAL(at[i], 0x40 + placement);
        MUST(comm_window_free(w));
    }
}

/* ------------------------------------------------------------------------------------------------------------ put and get */
static void puts_and_gets(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { BLOCK = 700000 }; /* floats: more than one piece */
    struct comm_window *w = make(c, (size_t)ranks * BLOCK * 4, 0);
    float *from = malloc(BLOCK * sizeof *from), *to = malloc(BLOCK * sizeof *to);
    struct comm_request req;
    for (int32_t r = 0; r < ranks; r++) { /* this rank's block in everybody's part */
        for (size_t i = 0; i < BLOCK; i++)
            from[i] = (float)(rank * 1000 + r) + (float)(i % 1000) / 1024;
        MUST(comm_put(w, from, BLOCK, COMM_F32, r, (size_t)rank * BLOCK * 4, &req));
        done(req);
    }
    MUST(comm_window_flush(w, COMM_ANY_PEER, &req));
    done(req);
    fence(w);
    for (int32_t r = 0; r < ranks; r++) {
        for (int32_t block = 0; block < ranks; block++) {
            memset(to, 0, BLOCK * sizeof *to);
            MUST(comm_get(w, to, BLOCK, COMM_F32, r, (size_t)block * BLOCK * 4, &req));
            done(req);
            for (size_t i = 0; i < BLOCK; i += 13)
                CHECK(to[i] == (float)(block * 1000 + r) + (float)(i % 1000) / 1024);
        }
    }
    MUST(comm_put(w, NULL, 0, COMM_F32, 0, 0, NULL)); /* nothing, to the very end too */
    MUST(comm_get(w, NULL, 0, COMM_F32, ranks - 1, (size_t)ranks * BLOCK * 4, NULL));
    free(from);
    free(to);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ updates */
#define UPDATES (rig_quick() ? 60 : 300)

/* All ranks add to all parts at once, in each kind of element; what is there in the end is known. */
static void sums(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 256, 0);
    struct comm_request req;
    const int8_t small = 1;
    const uint16_t two = 3;
    const uint32_t four = 5;
    const uint64_t eight[2] = {7, (uint64_t)1 << 40};
    const double real = 0.5, value = (double)(rank + 1);
    const double pair[2] = {1, -2}; /* a complex number: no atomic is so wide */
    const struct comm_f64_index index = {value, rank};
    for (int32_t i = 0; i < UPDATES; i++) {
        for (int32_t r = 0; r < ranks; r++) {
            MUST(comm_accumulate(w, &small, 1, COMM_I8, COMM_SUM, r, 0, NULL));
            MUST(comm_accumulate(w, &two, 1, COMM_U16, COMM_SUM, r, 2, NULL));
            MUST(comm_accumulate(w, &four, 1, COMM_U32, COMM_SUM, r, 4, NULL));
            MUST(comm_accumulate(w, eight, 2, COMM_U64, COMM_SUM, r, 8, NULL));
            MUST(comm_accumulate(w, &real, 1, COMM_F64, COMM_SUM, r, 24, NULL));
            MUST(comm_accumulate(w, pair, 1, COMM_C128, COMM_SUM, r, 32, NULL));
            MUST(comm_accumulate(w, &index, 1, COMM_F64_INDEX, COMM_MAXLOC, r, 48, NULL));
            MUST(comm_accumulate(w, &value, 1, COMM_F64, COMM_MAX, r, 64, NULL));
            MUST(comm_accumulate(w, &four, 1, COMM_U32, COMM_SUM, r, 73, NULL)); /* not aligned: by the lock */
        }
    }
    MUST(comm_window_flush(w, COMM_ANY_PEER, &req));
    done(req);
    fence(w);
    const unsigned char *at = part_of(w, rank, 256);
    uint32_t odd;
    memcpy(&odd, at + 73, sizeof odd);
    EQUAL((uint8_t)at[0], (uint8_t)(ranks * UPDATES));
    EQUAL(*(const uint16_t *)(const void *)(at + 2), (uint16_t)(3 * ranks * UPDATES));
    EQUAL(*(const uint32_t *)(const void *)(at + 4), 5 * ranks * UPDATES);
    EQUAL(*(const uint64_t *)(const void *)(at + 8), 7 * ranks * UPDATES);
    EQUAL(*(const uint64_t *)(const void *)(at + 16), ((uint64_t)ranks * UPDATES) << 40);
    CHECK(*(const double *)(const void *)(at + 24) == 0.5 * ranks * UPDATES);
    CHECK(*(const double *)(const void *)(at + 32) == ranks * UPDATES);
    CHECK(*(const double *)(const void *)(at + 40) == -2.0 * ranks * UPDATES);
    const struct comm_f64_index *best = (const void *)(at + 48);
    CHECK(best->value == ranks && best->index == ranks - 1);
    CHECK(*(const double *)(const void *)(at + 64) == ranks);
    EQUAL(odd, 5 * ranks * UPDATES);
    MUST(comm_window_free(w));
}

/* Every rank draws numbers out of one counter: each is drawn once. Then a lock made of compare_swap, around a count without an atomic. */
static void tickets(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 8 + 8 + 8 + (size_t)(ranks * UPDATES), 0);
    const unsigned char taken = 1;
    struct comm_request req;
    const int64_t one = 1, free_word = 0, mine = rank + 1;
    int64_t old;
    for (int i = 0; i < UPDATES; i++) {
        MUST(comm_fetch_op(w, &one, &old, 1, COMM_I64, COMM_SUM, 0, 0, &req));
        done(req);
        CHECK(old >= 0 && old < ranks * UPDATES);
        poke(w, 0, 24 + (size_t)old, &taken, 1);
    }
    for (int i = 0; i < UPDATES / 10; i++) {
        int64_t count;
        do {
            MUST(comm_compare_swap(w, &free_word, &mine, &old, COMM_I64, 0, 8, &req));
            done(req);
            if (old)
                (void)!comm_progress(c);
        } while (old != 0);
        MUST(comm_get(w, &count, 1, COMM_I64, 0, 16, &req));
        done(req);
        count++;
        MUST(comm_put(w, &count, 1, COMM_I64, 0, 16, &req));
        done(req);
        MUST(comm_fetch_op(w, &free_word, &old, 1, COMM_I64, COMM_REPLACE, 0, 8, &req));
        done(req);
        EQUAL(old, mine);
    }
    fence(w);
    const unsigned char *drawn = (const unsigned char *)look(w, 0, 24 + (size_t)(ranks * UPDATES)) + 24;
    for (int i = 0; i < ranks * UPDATES; i++)
        EQUAL(drawn[i], 1);
    MUST(comm_fetch_op(w, NULL, &old, 1, COMM_I64, COMM_NOOP, 0, 16, &req)); /* reads */
    done(req);
    EQUAL(old, ranks * (UPDATES / 10));
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ signals */
/* A block goes around the ring, each rank adding its own; who waits for the signal sees the block. */
static void ring(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { WORDS = 3000, ROUNDS = 20 };
    struct comm_window *w = make(c, WORDS * 4, 2);
    uint32_t *mine = part_of(w, rank, WORDS * 4), *out = malloc(WORDS * sizeof *out);
    int32_t next = (rank + 1) % ranks;
    struct comm_request req;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (rank || round > 1) {
            MUST(comm_window_wait_signal(w, 1, rank ? round : round - 1, &req));
            done(req);
        }
        for (size_t i = 0; i < WORDS; i++)
            out[i] = mine[i] + (uint32_t)i;
        MUST(comm_put(w, out, WORDS, COMM_U32, next, 0, NULL));
        MUST(comm_window_signal(w, next, 1, 1, &req));
        done(req);
    }
    if (rank == 0) {
        MUST(comm_window_wait_signal(w, 1, ROUNDS, &req));
        done(req);
        for (size_t i = 0; i < WORDS; i++)
            EQUAL(mine[i], (uint32_t)i * ROUNDS * (uint32_t)ranks);
    }
    MUST(comm_window_wait_signal(w, 0, 0, &req));
    done(req);
    barrier(c);
    free(out);
    MUST(comm_window_free(w));
}

/* A waiter that sleeps is rung. */
static void rings(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 8, 1);
    struct comm_request req;
    (void)ranks;
    if (rank == 0) {
        MUST(comm_window_wait_signal(w, 0, 5, &req));
        IS(comm_wait(req, RIG_MS), COMM_PENDING);
        done(req);
    } else if (rank == 1) {
        rig_nap(50 * RIG_MS);
        MUST(comm_window_signal(w, 0, 0, 2, NULL));
        rig_nap(20 * RIG_MS);
        MUST(comm_window_signal(w, 0, 0, 3, NULL));
    }
    barrier(c);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ order */
/* Behind a queue wait a put is held, and so are a signal and a flush behind it, and a fence behind them; nothing of another part is. */
static void held(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 64, 1);
    struct comm_event *gate;
    struct comm_request put, flush, signal, end, again;
    int64_t value = 41 + rank;
    void *seen;
    int32_t next = (rank + 1) % ranks;
    MUST(comm_event_create(c, &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(c, gate));
    MUST(comm_put(w, &value, 1, COMM_I64, next, 0, &put));
    MUST(comm_window_flush(w, next, &flush));
    MUST(comm_window_signal(w, next, 0, 1, &signal));
    MUST(comm_window_fence(w, &end));
    (void)!comm_progress(c);
    EQUAL(comm_test(put), COMM_PENDING);
    EQUAL(comm_test(flush), COMM_PENDING);
    EQUAL(comm_test(signal), COMM_PENDING);
    EQUAL(comm_test(end), COMM_PENDING);
    if (comm_window_pointer(w, next, &seen, NULL) == COMM_OK)
        EQUAL(*(const int64_t *)seen, 0);
    value = 100 + rank; /* the buffer is the library's, but to see that it was not read yet */
    MUST(comm_event_set(gate));
    done(end);
    MUST(comm_test(put));
    MUST(comm_test(flush));
    MUST(comm_test(signal));
    EQUAL(*(const int64_t *)look(w, next, 64), 100 + rank);
    fence(w);
    /* What is issued behind a fence that has not ended waits for it. */
    if (rank == 0) {
        MUST(comm_window_fence(w, &end));
        MUST(comm_put(w, &value, 1, COMM_I64, 1, 8, &again));
        for (int i = 0; i < 50; i++)
            (void)!comm_progress(c);
        EQUAL(comm_test(again), COMM_PENDING);
        MUST(comm_send(c, NULL, 0, COMM_BYTE, 1, 1, NULL));
        done(again);
    } else {
        if (rank == 1) {
            MUST(comm_recv(c, NULL, 0, COMM_BYTE, 0, 1, NULL, &again));
            done(again);
            EQUAL(((const int64_t *)part_of(w, 1, 64))[1], 0);
        }
        MUST(comm_window_fence(w, &end));
    }
    done(end);
    fence(w);
    if (rank == 1)
        EQUAL(((const int64_t *)part_of(w, 1, 64))[1], 100);
    MUST(comm_window_free(w));
    comm_event_destroy(gate);
}

/* A put out of a buffer that a collective still writes takes what that wrote. */
static void behind_work(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { WORDS = 40000 };
    struct comm_window *w = make(c, WORDS * 4, 0);
    int32_t *in = malloc(WORDS * sizeof *in), *out = calloc(WORDS, sizeof *out);
    struct comm_request req;
    for (size_t i = 0; i < WORDS; i++)
        in[i] = (int32_t)i + rank;
    MUST(comm_allreduce(c, in, out, WORDS, COMM_I32, COMM_SUM, NULL));
    MUST(comm_put(w, out, WORDS, COMM_I32, (rank + 1) % ranks, 0, &req));
    done(req);
    fence(w);
    const int32_t *at = part_of(w, rank, WORDS * 4);
    for (size_t i = 0; i < WORDS; i++)
        EQUAL(at[i], ranks * (int32_t)i + ranks * (ranks - 1) / 2);
    free(in);
    free(out);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ the caller's memory */
static void own_memory(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    void *base;
    struct comm_window *w;
    MUST(comm_mem_alloc(c, 8192, &base));
    MUST(comm_window_create(c, 4096, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .base = (char *)base + 4096},
                            &w, NULL));
    CHECK(part_of(w, rank, 4096) == (char *)base + 4096);
    poke(w, (rank + 1) % ranks, 0, &rank, sizeof rank);
    fence(w);
    EQUAL(*(int32_t *)(void *)((char *)base + 4096), (rank + ranks - 1) % ranks);
    MUST(comm_window_free(w));
    *(char *)base = 1; /* it stays the caller's */
    comm_mem_free(c, base);
}

/* Rank 1's part is of its heap, which processes cannot show each other: the others ask rank 1, also for what it updates itself. */
static void heap_memory(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { ADDS = 200 };
    int64_t *own = rank == 1 ? calloc(64, sizeof *own) : NULL, old = 0;
    const int64_t one = 1;
    const double pair[2] = {1, -1};
    struct comm_request req;
    struct comm_window *w = NULL;
    void *at;
    MUST(comm_window_create(c, 512, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .base = own, .signals = 1},
                            &w, NULL));
    if (rank == 1)
        CHECK(part_of(w, 1, 512) == own);
    else if (comm_window_pointer(w, 1, &at, NULL) != COMM_OK)
        says(c, "comm_window_pointer: rank 1 shares no memory of this window with this rank");
    for (int i = 0; i < ADDS; i++) {
        for (int32_t r = 0; r < ranks; r++) {
            MUST(comm_accumulate(w, &one, 1, COMM_I64, COMM_SUM, r, 0, NULL));
            MUST(comm_accumulate(w, pair, 1, COMM_C128, COMM_SUM, r, 16, NULL));
            MUST(comm_window_signal(w, r, 0, 1, &req));
        }
        done(req);
    }
    MUST(comm_window_wait_signal(w, 0, (uint64_t)(ADDS * ranks), &req));
    done(req);
    for (int32_t r = 0; r < ranks; r++) {
        if (r == rank)
            EQUAL(*(const int64_t *)part_of(w, r, 512), ADDS * ranks);
        MUST(comm_fetch_op(w, &one, &old, 1, COMM_I64, COMM_SUM, r, 8, &req));
        done(req);
        CHECK(old >= 0 && old < ranks);
    }
    fence(w);
    const double *sum = (const void *)((const char *)part_of(w, rank, 512) + 16);
    CHECK(sum[0] == ADDS * ranks && sum[1] == -ADDS * ranks);
    EQUAL(((const int64_t *)part_of(w, rank, 512))[1], ranks);
    MUST(comm_window_free(w));
    free(own);
}

/* Updates longer than a piece, with and without what was there; gets and puts in a crowd, each out of memory of its own. */
static void crowds(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { WORDS = 50000, MANY = 600 };
    struct comm_window *w = make(c, WORDS * 4, 0);
    uint32_t *from = malloc(WORDS * sizeof *from), *to = calloc(WORDS, sizeof *to);
    struct comm_request req[3], all;
    int32_t next = (rank + 1) % ranks;
    for (size_t i = 0; i < WORDS; i++)
        from[i] = (uint32_t)i + 1;
    MUST(comm_accumulate(w, from, WORDS, COMM_U32, COMM_SUM, next, 0, &req[0]));
    MUST(comm_fetch_op(w, from, to, WORDS, COMM_U32, COMM_SUM, next, 0, &req[1]));
    MUST(comm_fetch_op(w, from, from, 0, COMM_U32, COMM_SUM, next, 0, &req[2])); /* of nothing, behind them */
    for (int i = 0; i < 3; i++)
        done(req[i]);
    for (size_t i = 0; i < WORDS; i++)
        EQUAL(to[i], (uint32_t)i + 1);
    fence(w);
    const uint32_t *mine = part_of(w, rank, WORDS * 4);
    for (size_t i = 0; i < WORDS; i++)
        EQUAL(mine[i], 2 * ((uint32_t)i + 1));
    fence(w);
    for (uint32_t i = 0; i < MANY; i++) {
        from[i] = (uint32_t)rank * 10000 + i;
        MUST(comm_put(w, &from[i], 1, COMM_U32, next, 4 * (size_t)i, NULL));
        MUST(comm_get(w, &to[i], 1, COMM_U32, next, 4 * (size_t)i, NULL)); /* in the order of the calls */
    }
    MUST(comm_window_flush(w, next, &all));
    done(all);
    for (uint32_t i = 0; i < MANY; i++)
        EQUAL(to[i], (uint32_t)rank * 10000 + i);
    fence(w);
    free(from);
    free(to);
    MUST(comm_window_free(w));
}

/* Nobody at the owner calls the library: its helper does what is asked, where there is one. */
static void left_alone(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 64, 0);
    struct comm_request req;
    int64_t value = 77, got = 0;
    (void)ranks;
    fence(w);
    int64_t until = rig_now() + 200 * RIG_MS;
    if (rank == 0) {
        MUST(comm_put(w, &value, 1, COMM_I64, 1, 8, NULL));
        MUST(comm_get(w, &got, 1, COMM_I64, 1, 8, &req));
        done(req);
        EQUAL(got, 77);
        CHECK(rig_now() < until);
    } else {
        rig_nap(200 * RIG_MS);
    }
    fence(w);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ what is refused */
static void refusals(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 100, 2);
    struct comm_request req;
    int32_t x = 0;
    double d = 0;
    void *at;
    IS(comm_put(w, &x, 1, COMM_I32, 0, 97, &req), COMM_ERR_ARGUMENT);
    EQUAL(comm_test(req), COMM_ERR_ARGUMENT);
    says(c, "comm_put: offset=97 and n=1 of 4 bytes each; expected to end within the 100 bytes of rank 0");
    IS(comm_get(w, &x, SIZE_MAX / 2, COMM_I32, 0, 0, &req), COMM_ERR_ARGUMENT);
    IS(comm_get(w, &x, 1, COMM_I32, 0, SIZE_MAX - 1, &req), COMM_ERR_ARGUMENT);
    IS(comm_get(w, NULL, 1, COMM_I32, 0, 0, &req), COMM_ERR_ARGUMENT);
    says(c, "comm_get: to=NULL; expected a buffer of 1 elements");
    IS(comm_put(w, &x, 1, (enum comm_type)99, 0, 0, &req), COMM_ERR_ARGUMENT);
    says(c, "comm_put: type=99; expected an enum comm_type");
    IS(comm_put(w, &x, 1, COMM_I32, ranks, 0, &req), COMM_ERR_ARGUMENT);
    says(c, "comm_put: peer=");
    IS(comm_accumulate(w, &d, 1, COMM_F64, COMM_AVG, 0, 0, &req), COMM_ERR_UNSUPPORTED);
    says(c, "comm_accumulate: type=f64");
    IS(comm_accumulate(w, &d, 1, COMM_F64, COMM_BXOR, 0, 0, &req), COMM_ERR_UNSUPPORTED);
    IS(comm_accumulate(w, &d, 1, COMM_F64, 12345, 0, 0, &req), COMM_ERR_ARGUMENT);
    IS(comm_fetch_op(w, &x, NULL, 1, COMM_I32, COMM_SUM, 0, 0, &req), COMM_ERR_ARGUMENT);
    IS(comm_compare_swap(w, &d, &d, &d, COMM_F64, 0, 0, &req), COMM_ERR_UNSUPPORTED);
    says(c, "expected an integer type");
    IS(comm_window_signal(w, 0, 2, 1, &req), COMM_ERR_ARGUMENT);
    says(c, "comm_window_signal: slot=2; expected less than the 2 of rank 0 (options.signals)");
    IS(comm_window_wait_signal(w, 2, 1, &req), COMM_ERR_ARGUMENT);
    IS(comm_window_flush(w, ranks, &req), COMM_ERR_ARGUMENT);
    IS(comm_window_pointer(w, -1, &at, NULL), COMM_ERR_ARGUMENT);
    IS(comm_window_pointer(NULL, 0, &at, NULL), COMM_ERR_ARGUMENT);
    IS(comm_put(NULL, &x, 1, COMM_I32, 0, 0, &req), COMM_ERR_ARGUMENT);
    MUST(comm_window_wait_signal(w, 0, 1, &req)); /* cancelled by hand, and by the end of the window */
    MUST(comm_cancel(req));
    EQUAL(comm_test(req), COMM_ERR_CANCELLED);
    MUST(comm_window_wait_signal(w, 0, 1, &req));
    (void)rank;
    MUST(comm_window_free(w));
    EQUAL(comm_test(req), COMM_ERR_CANCELLED);
    MUST(comm_window_free(NULL));
    /* Refused by all alike: the communicator goes on. */
    IS(comm_window_create(
           c, 8, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .placement = (enum comm_placement)9}, &w, &req),
       COMM_ERR_ARGUMENT);
    IS(comm_window_create(c, 8, NULL, NULL, &req), COMM_ERR_ARGUMENT);
    barrier(c);
}

/* Closed before it was freed. */
static void closed_first(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_communicator *other;
    struct comm_window *w;
    struct comm_request req;
    int x = 0;
    (void)rank;
    (void)ranks;
    MUST(comm_dup(c, NULL, &other, NULL));
    w = make(other, 64, 0);
    fence(w);
    MUST(comm_close(other, COMM_DEFAULT_TIMEOUT));
    IS(comm_put(w, &x, 1, COMM_I32, 0, 0, &req), COMM_ERR_CLOSED);
    IS(comm_window_fence(w, &req), COMM_ERR_CLOSED);
    IS(comm_window_free(w), COMM_ERR_CLOSED);
    barrier(c);
}

/* ------------------------------------------------------------------------------------------------------------ threads, processes */
static case_fn *const cases[] = {all_populated, leader_populated, puts_and_gets, sums,        tickets, ring,     rings,
                                 held,          behind_work,      own_memory,    heap_memory, crowds,  refusals, closed_first};
enum { CASES = sizeof cases / sizeof *cases };

static void all_cases(struct comm_communicator *c)
{
    for (int i = 0; i < CASES; i++) {
        if (comm_rank(c) == 0)
            rig_note("case %d\n", i);
        cases[i](c, comm_rank(c), comm_size(c));
    }
    free(copy);
    copy = NULL;
}

static void thread_of(void *arg, int32_t rank)
{
    all_cases(((struct rig *)arg)->world[rank]);
}

static void in_threads(int32_t ranks, const char *options)
{
    struct rig rig;
    rig_open_options(&rig, ranks, options);
    rig_threads(ranks, thread_of, &rig);
    rig_close(&rig);
}

RIG_TEST(windows_of_threads)
{
    in_threads(RANKS, "");
}

RIG_TEST(windows_of_two_with_the_least_of_everything)
{
    in_threads(2, "minimal=1,window=4,progress=thread");
}

static void main_of(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    (void)rank;
    all_cases(world);
    MUST(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(windows_of_processes)
{
    struct proc proc = {.options = ""};
    proc_needs_shm();
    proc_start(&proc, RANKS, main_of);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

static void free_inside(struct comm_request req, enum comm_result result, void *arg)
{
    (void)req;
    (void)result;
    struct comm_window **w = arg;
    IS(comm_window_free(w[0]), COMM_ERR_STATE);
    w[1] = w[0];
}

RIG_TEST(windows_end_outside_callbacks)
{
    struct rig rig;
    struct comm_window *w[2] = {NULL, NULL};
    struct comm_request req;
    rig_open(&rig, 1, NULL);
    w[0] = make(rig.world[0], 8, 0);
    MUST(comm_barrier(rig.world[0], &req));
    MUST(comm_notify(req, free_inside, w));
    rig_progress_for(rig.world[0], 5 * RIG_MS);
    CHECK(w[1] == w[0]);
    MUST(comm_window_free(w[0]));
    rig_close(&rig);
}

/* Two windows, fenced in different order: found, and told alike. Nobody fences before all have made theirs: the failure would end that. */
static _Atomic int made;

static void crossed(void *arg, int32_t rank)
{
    struct comm_communicator *c = ((struct rig *)arg)->world[rank];
    struct comm_window *w[2] = {make(c, 8, 0), make(c, 8, 0)};
    struct comm_request req[2];
    enum comm_result r = COMM_OK;
    for (atomic_fetch_add(&made, 1); atomic_load(&made) < RANKS;)
        rig_nap(RIG_MS / 10);
    for (int i = 0; i < 2 && r == COMM_OK; i++)
        r = comm_window_fence(w[rank == 1 ? 1 - i : i], &req[i]);
    r = r == COMM_OK ? comm_wait(req[1], RIG_PATIENCE) : r;
    EQUAL(r, COMM_ERR_MISMATCH);
    for (int i = 0; i < 2; i++)
        IS(comm_window_free(w[i]), COMM_ERR_MISMATCH);
    (void)!comm_close(c, COMM_DEFAULT_TIMEOUT);
}

RIG_TEST(windows_of_different_order_mismatch)
{
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_threads(RANKS, crossed, &rig);
}

/* Over sockets memory of comm_mem_alloc is memory as any other, and a world of one has its window all the same. */
static void apart_of(void *arg, int32_t rank)
{
    struct comm_communicator *c = ((struct rig *)arg)->world[rank], *alone;
    struct comm_request req;
    void *memory;
    left_alone(c, rank, comm_size(c));
    MUST(comm_mem_alloc(c, 100000, &memory));
    memset(memory, rank, 100000);
    MUST(comm_allreduce(c, COMM_IN_PLACE, memory, 100000, COMM_U8, COMM_MAX, &req));
    done(req);
    EQUAL(((unsigned char *)memory)[99999], comm_size(c) - 1);
    comm_mem_free(c, memory);
    MUST(comm_split(c, rank, 0, &alone, NULL));
    refusals(alone, 0, 1);
    tickets(alone, 0, 1);
    MUST(comm_close(alone, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(windows_where_nothing_is_shared)
{
    struct comm_backend_info info = {.size = sizeof info};
    struct rig rig;
    for (size_t i = 0; strcmp(info.name, "tcp") != 0; i++)
        if (comm_describe_backend(i, &info) != COMM_OK)
            rig_skip("this library has no backend called tcp");
    if (info.missing[0])
        rig_skip(info.missing);
    setenv("COMM_BACKEND", "tcp", 1);
    rig_open_options(&rig, 2, "progress=thread");
    rig_threads(2, apart_of, &rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_threads),
        cmocka_unit_test(windows_of_two_with_the_least_of_everything),
        cmocka_unit_test(windows_of_processes),
        cmocka_unit_test(windows_end_outside_callbacks),
        cmocka_unit_test(windows_where_nothing_is_shared),
        cmocka_unit_test(windows_of_different_order_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
