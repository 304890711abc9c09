/*
 * A thread that is cancelled inside a call of the library leaves no lock held: calls are not cancellation points. The
 * cancel is pending from the start, or comes at any moment. The thread's call is complete, and another thread continues
 * with the communicator.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { RANKS = 2, ROUNDS = 40, LONG = 200000 };

struct calls {
    struct comm_communicator **c;
    int rounds;        /* number to make */
    _Atomic int begun; /* calls may be cancelled from now on */
    _Atomic int made;  /* complete rounds */
    _Atomic int go;    /* the cancel is pending */
    float *in[RANKS], *out[RANKS];
};

static void one_round(struct calls *calls, size_t n)
{
    struct comm_request q[3 * RANKS];

    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_allreduce(calls->c[r], calls->in[r], calls->out[r], n, COMM_F32, COMM_SUM, &q[3 * r]));
        MUST(comm_send(calls->c[r], calls->in[r], n, COMM_F32, 1 - r, 1, &q[3 * r + 1]));
        MUST(comm_recv(calls->c[r], calls->out[r] + LONG, n, COMM_F32, 1 - r, 1, NULL, &q[3 * r + 2]));
    }
    for (int i = 0; i < 3 * RANKS; i++)
        MUST(comm_wait(q[i], RIG_PATIENCE));
    EQUAL(calls->out[0][n - 1], 3);
    EQUAL(calls->out[1][LONG + n - 1], 1);
}

static void *call_and_be_cancelled(void *arg)
{
    struct calls *calls = arg;

    atomic_store(&calls->begun, 1);
    while (!atomic_load(&calls->go)) /* not a cancellation point */
        ;
    for (int i = 0; i < calls->rounds; i++) {
        struct comm_communicator *second[RANKS];
        struct comm_request q[RANKS];
        one_round(calls, i % 2 ? LONG : 3);
        if (i % 8 == 0) {
            for (int32_t r = 0; r < RANKS; r++)
                MUST(comm_dup(calls->c[r], NULL, &second[r], &q[r]));
            MUST(comm_wait_all(q, RANKS, RIG_PATIENCE));
            for (int32_t r = 0; r < RANKS; r++)
                MUST(comm_close(second[r], RIG_PATIENCE));
        }
        atomic_fetch_add(&calls->made, 1);
    }
    for (;;)
        pthread_testcancel();
    return NULL;
}

static void cancel_after(struct calls *calls, int64_t ns)
{
    pthread_t thread;
    void *end;

    atomic_store(&calls->begun, 0);
    atomic_store(&calls->made, 0);
    atomic_store(&calls->go, ns != 0);
    EQUAL(pthread_create(&thread, NULL, call_and_be_cancelled, calls), 0);
    while (!atomic_load(&calls->begun))
        rig_nap(RIG_MS / 10);
    if (ns)
        rig_nap(ns);
    EQUAL(pthread_cancel(thread), 0);
    atomic_store(&calls->go, 1);
    EQUAL(pthread_join(thread, &end), 0);
    CHECK(end == PTHREAD_CANCELED);
    EQUAL(calls->made, calls->rounds); /* all its calls have ended */
    one_round(calls, 1000);            /* and another thread continues */
}

RIG_TEST(contract_6_11_a_cancelled_thread_leaves_no_lock)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rig_skip("a sanitizer's own system calls are cancellation points");
#endif
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    struct calls calls = {.c = rig.world, .rounds = ROUNDS};
    for (int32_t r = 0; r < RANKS; r++) {
        calls.in[r] = calloc(LONG, sizeof(float));
        calls.out[r] = calloc(2 * LONG, sizeof(float));
        for (size_t i = 0; i < LONG; i++)
            calls.in[r][i] = (float)(r + 1);
    }
    cancel_after(&calls, 0); /* pending before its first call: the first cancellation point would end the thread */
    for (int i = 1; i < 10; i++)
        cancel_after(&calls, i * RIG_MS);
    for (int32_t r = 0; r < RANKS; r++) {
        free(calls.in[r]);
        free(calls.out[r]);
    }
    rig_close(&rig);
}

/* A wait that does not end yet is not a cancellation point either. */
static void *wait_long(void *arg)
{
    MUST(comm_wait(*(struct comm_request *)arg, RIG_PATIENCE));
    for (;;)
        pthread_testcancel();
    return NULL;
}

RIG_TEST(contract_6_11_a_cancelled_wait_ends_with_its_request)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rig_skip("a sanitizer's own system calls are cancellation points");
#endif
    struct comm_request request;
    pthread_t thread;
    int64_t in = 7, out = 0;
    void *end;
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_recv(rig.world[0], &out, 1, COMM_I64, 1, 1, NULL, &request));
    EQUAL(pthread_create(&thread, NULL, wait_long, &request), 0);
    rig_nap(20 * RIG_MS); /* asleep by now, or about to be */
    EQUAL(pthread_cancel(thread), 0);
    rig_nap(20 * RIG_MS);
    CHECK(pthread_tryjoin_np(thread, &end) != 0);
    MUST(comm_send(rig.world[1], &in, 1, COMM_I64, 0, 1, NULL));
    EQUAL(pthread_join(thread, &end), 0);
    CHECK(end == PTHREAD_CANCELED);
    EQUAL(out, 7);
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
}

/* A callback that reaches a cancellation point of its own. */
static void reach_a_cancellation_point(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    (void)result;
    pthread_testcancel();
    atomic_fetch_add((_Atomic int *)arg, 1);
}

struct reduction {
    struct comm_communicator **c;
    _Atomic int called;
    float in[RANKS], out[RANKS];
};

static void *reduce_with_a_callback(void *arg)
{
    struct reduction *x = arg;
    struct comm_request q[RANKS];

    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(x->c[r], &x->in[r], &x->out[r], 1, COMM_F32, COMM_SUM, &q[r]));
    MUST(comm_notify(q[0], reach_a_cancellation_point, &x->called));
    EQUAL(pthread_cancel(pthread_self()), 0);
    for (int32_t r = 0; r < RANKS; r++)
        while (comm_test(q[r]) == COMM_PENDING) /* a wait could sleep, and would end the thread there */
            continue;
    for (int64_t end = rig_now() + RIG_PATIENCE; !x->called && rig_now() < end;)
        CHECK(comm_progress(x->c[0]) >= 0);
    for (;;)
        pthread_testcancel();
    return NULL;
}

RIG_TEST(contract_6_11_a_callback_is_not_cancelled)
{
    struct rig rig;
    rig_open_options(&rig, RANKS, "progress=caller");
    struct reduction x = {.c = rig.world};
    pthread_t thread;
    void *end;

    EQUAL(pthread_create(&thread, NULL, reduce_with_a_callback, &x), 0);
    EQUAL(pthread_join(thread, &end), 0);
    CHECK(end == PTHREAD_CANCELED);
    EQUAL(x.called, 1);
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contract_6_11_a_cancelled_thread_leaves_no_lock),
                                       cmocka_unit_test(contract_6_11_a_cancelled_wait_ends_with_its_request),
                                       cmocka_unit_test(contract_6_11_a_callback_is_not_cancelled)};

    return cmocka_run_group_tests_name("contract_6_cancel", tests, NULL, NULL);
}
