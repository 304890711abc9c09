/* What the calls on windows do: pointers to parts, put and get, updates, signals. */
#define _GNU_SOURCE
#include "window/cases.h"

/* ------------------------------------------------------------------------------------------------------------ pointers */
/* Each rank fills its part through its pointer, and all ranks read all parts. Then each rank writes into the next rank's part. */
void window_all_populated(struct comm_communicator *c, int32_t rank, int32_t ranks)
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

/* One copy per host: only the last rank provides memory, with each placement, and the others read it. */
void window_leader_populated(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
void window_puts_and_gets(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { BLOCK = 700000 }; /* floats: more than one piece */
    struct comm_window *w = make(c, (size_t)ranks * BLOCK * 4, 0);
    float *from = malloc(BLOCK * sizeof *from), *to = malloc(BLOCK * sizeof *to);
    struct comm_request req;
    for (int32_t r = 0; r < ranks; r++) { /* writes this rank's block into each part */
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
    MUST(comm_put(w, NULL, 0, COMM_F32, 0, 0, NULL)); /* 0 elements are valid, also at the end of the part */
    MUST(comm_get(w, NULL, 0, COMM_F32, ranks - 1, (size_t)ranks * BLOCK * 4, NULL));
    free(from);
    free(to);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ updates */
#define UPDATES (rig_quick() ? 60 : 300)

/* All ranks add to all parts at once, with each kind of element. The final values are known. */
void window_sums(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_window *w = make(c, 256, 0);
    struct comm_request req;
    const int8_t small = 1;
    const uint16_t two = 3;
    const uint32_t four = 5;
    const uint64_t eight[2] = {7, (uint64_t)1 << 40};
    const double real = 0.5, value = (double)(rank + 1);
    const double pair[2] = {1, -2}; /* a complex number, which is too wide for an atomic */
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
            MUST(comm_accumulate(w, &four, 1, COMM_U32, COMM_SUM, r, 73, NULL)); /* not aligned: uses the lock */
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

/* All ranks draw numbers from one counter, and each number is drawn once. Then compare_swap implements a lock around a count that is not
 * atomic. */
void window_tickets(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
    MUST(comm_fetch_op(w, NULL, &old, 1, COMM_I64, COMM_NOOP, 0, 16, &req)); /* this reads */
    done(req);
    EQUAL(old, ranks * (UPDATES / 10));
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ signals */
/* A block goes around the ring, and each rank adds its own values. A rank that waits for the signal sees the block. */
void window_ring(struct comm_communicator *c, int32_t rank, int32_t ranks)
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

/* A signal wakes a sleeping waiter. */
void window_rings(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
