/* Rules for calls on windows: their order among themselves and relative to work, the caller's own memory, refusals. */
#define _GNU_SOURCE
#include "window/cases.h"
#include "now.h"

/* ------------------------------------------------------------------------------------------------------------ order */
/* A put behind a queue wait is held. So are a signal and a flush behind the put, and a fence behind them. */
void window_held(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
    value = 100 + rank; /* the buffer belongs to the library; changing it shows that it was not read yet */
    MUST(comm_event_set(gate));
    done(end);
    MUST(comm_test(put));
    MUST(comm_test(flush));
    MUST(comm_test(signal));
    EQUAL(*(const int64_t *)look(w, next, 64), 100 + rank);
    fence(w);
    /* Calls issued behind an unfinished fence wait for it. */
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
    comm_event_free(gate);
}

/* A put from a buffer that a collective is still writing transfers the collective's result. */
void window_behind_work(struct comm_communicator *c, int32_t rank, int32_t ranks)
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

/* The operands of a swap lie around memory that a receive and a sum still write. The swap does not wait for these, which here wait for
 * it. */
void window_swap_around(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct {
        int64_t expected, inbox, sum, desired;
    } own = {.desired = 1 + rank};
    int64_t old = -1, one = 1;
    struct comm_window *w = make(c, 8 * (size_t)ranks, 0);
    struct comm_request in, sum, swap;
    int32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MUST(comm_recv(c, &own.inbox, 1, COMM_I64, before, 5, NULL, &in));
    if (rank == 0)
        MUST(comm_allreduce(c, &one, &own.sum, 1, COMM_I64, COMM_SUM, &sum));
    MUST(comm_compare_swap(w, &own.expected, &own.desired, &old, COMM_I64, next, 8 * (size_t)rank, &swap));
    done(swap);
    EQUAL(old, 0);
    EQUAL(comm_test(in), COMM_PENDING);
    if (rank == 0) { /* only now do the others go on */
        for (int32_t r = 1; r < ranks; r++)
            MUST(comm_send(c, NULL, 0, COMM_BYTE, r, 6, NULL));
    } else {
        MUST(NOW(comm_recv, c, NULL, 0, COMM_BYTE, 0, 6, NULL));
        MUST(comm_allreduce(c, &one, &own.sum, 1, COMM_I64, COMM_SUM, &sum));
    }
    done(sum);
    EQUAL(own.sum, ranks);
    MUST(comm_send(c, &own.desired, 1, COMM_I64, next, 5, NULL));
    done(in);
    EQUAL(own.inbox, 1 + before);
    fence(w);
    EQUAL(((const int64_t *)look(w, next, 8 * (size_t)ranks))[rank], own.desired);
    MUST(comm_window_free(w));
}

/* A swap waits for what writes its operands: a receive into `expected`, a get into `desired`. What is received into `expected` later waits
 * for the swap. */
void window_swap_behind(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { FIRST = 70, SECOND = 80, THIRD = 90 };
    struct comm_window *w = make(c, 16 * (size_t)ranks, 0);
    struct comm_request in, swap, late;
    int32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    int64_t pair[2] = {FIRST, THIRD}, second = SECOND, expected = -1, desired = -1, old = -1;
    MUST(comm_put(w, pair, 2, COMM_I64, next, 16 * (size_t)rank, NULL));
    fence(w);
    MUST(comm_recv(c, &expected, 1, COMM_I64, before, 5, NULL, &in));
    MUST(comm_get(w, &desired, 1, COMM_I64, next, 16 * (size_t)rank + 8, NULL));
    MUST(comm_compare_swap(w, &expected, &desired, &old, COMM_I64, next, 16 * (size_t)rank, &swap));
    MUST(comm_recv(c, &expected, 1, COMM_I64, before, 6, NULL, &late));
    for (int i = 0; i < 20; i++)
        (void)!comm_progress(c);
    EQUAL(comm_test(swap), COMM_PENDING);
    barrier(c); /* it writes no memory, so it does not wait for the swap */
    MUST(comm_send(c, &second, 1, COMM_I64, next, 6, NULL));
    MUST(comm_send(c, &pair[0], 1, COMM_I64, next, 5, NULL));
    done(swap);
    EQUAL(old, FIRST);
    done(late);
    EQUAL(expected, SECOND);
    MUST(comm_test(in));
    fence(w);
    EQUAL(((const int64_t *)look(w, next, 16 * (size_t)ranks))[2 * rank], THIRD);
    MUST(comm_window_free(w));
}

/* ------------------------------------------------------------------------------------------------------------ the caller's memory */
void window_own_memory(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    void *base;
    struct comm_window *w;
    MUST(comm_mem_alloc(c, 8192, &base));
    MUST(NOW(comm_window_create, c, 4096,
             &(struct comm_window_options){.size = sizeof(struct comm_window_options), .base = (char *)base + 4096}, &w));
    CHECK(part_of(w, rank, 4096) == (char *)base + 4096);
    poke(w, (rank + 1) % ranks, 0, &rank, sizeof rank);
    fence(w);
    EQUAL(*(int32_t *)(void *)((char *)base + 4096), (rank + ranks - 1) % ranks);
    MUST(comm_window_free(w));
    *(char *)base = 1; /* it still belongs to the caller */
    comm_mem_free(c, base);
}

/* Rank 1's part is on its heap, which other processes cannot address. The others send requests to rank 1, also for memory that it updates
 * itself. */
void window_heap_memory(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    enum { ADDS = 200 };
    int64_t *own = rank == 1 ? calloc(64, sizeof *own) : NULL, old = 0;
    const int64_t one = 1;
    const double pair[2] = {1, -1};
    struct comm_request req;
    struct comm_window *w = NULL;
    void *at;
    MUST(NOW(comm_window_create, c, 512,
             &(struct comm_window_options){.size = sizeof(struct comm_window_options), .base = own, .signals = 1}, &w));
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

/* Updates longer than a piece, with and without the old values; many gets and puts, each with its own buffer. */
void window_crowds(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
    MUST(comm_fetch_op(w, from, from, 0, COMM_U32, COMM_SUM, next, 0, &req[2])); /* of 0 elements, behind them */
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

/* The owner's program makes no calls: its progress thread, if there is one, serves the requests. */
void window_left_alone(struct comm_communicator *c, int32_t rank, int32_t ranks)
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

/* ------------------------------------------------------------------------------------------------------------ refusals */
void window_refusals(struct comm_communicator *c, int32_t rank, int32_t ranks)
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
    MUST(comm_window_wait_signal(w, 0, 1, &req)); /* cancelled by comm_cancel, and by the end of the window */
    MUST(comm_cancel(req));
    EQUAL(comm_test(req), COMM_ERR_CANCELLED);
    MUST(comm_window_wait_signal(w, 1, 1, &req)); /* one that has ended cannot be cancelled */
    MUST(comm_window_signal(w, rank, 1, 1, NULL));
    done(req);
    IS(comm_cancel(req), COMM_ERR_STATE);
    EQUAL(comm_test(req), COMM_OK);
    MUST(comm_sync(c, RIG_PATIENCE));
    MUST(comm_window_wait_signal(w, 0, 1, &req));
    MUST(comm_window_free(w));
    EQUAL(comm_test(req), COMM_ERR_CANCELLED);
    MUST(comm_window_free(NULL));
    /* All ranks refuse it, so the communicator continues. */
    IS(comm_window_create(
           c, 8, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .placement = (enum comm_placement)9}, &w, &req),
       COMM_ERR_ARGUMENT);
    IS(comm_window_create(c, 8, NULL, NULL, &req), COMM_ERR_ARGUMENT);
    barrier(c);
}

/* The communicator is closed before the window is freed. */
void window_closed_first(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    struct comm_communicator *other;
    struct comm_window *w;
    struct comm_request req;
    int x = 0;
    (void)rank;
    (void)ranks;
    MUST(NOW(comm_dup, c, NULL, &other));
    w = make(other, 64, 0);
    fence(w);
    MUST(comm_close(other, COMM_DEFAULT_TIMEOUT));
    IS(comm_put(w, &x, 1, COMM_I32, 0, 0, &req), COMM_ERR_CLOSED);
    IS(comm_window_fence(w, &req), COMM_ERR_CLOSED);
    IS(comm_window_free(w), COMM_ERR_CLOSED);
    barrier(c);
}
