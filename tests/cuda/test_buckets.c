/*
 * Gradient buckets in device memory, over nccl and staged. Streams write the gradients and read the results, and the host does not wait.
 * All ranks are in this process. A seed chooses the order of the device's work. A missing dependency shows as wrong data.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, GRADIENTS = 7, STEPS = 4, LONGEST = 96 };
static const size_t counts[GRADIENTS] = {5, 96, 0, 1, 40, 17, 64};
static const enum comm_type types[GRADIENTS] = {COMM_F32, COMM_F32, COMM_F32, COMM_I32, COMM_F32, COMM_I32, COMM_F32};

enum way { OVER_NCCL, STAGED };
struct side {
    struct bench bench;
    struct CUstream_st *compute, *other, *read;
    uint32_t *data[GRADIENTS], *copy[STEPS][GRADIENTS];
    struct comm_buckets *buckets;
};
static struct side sides[RANKS];
static struct rig rig;

/* A gradient's value. Its sum over the ranks is exact in each type. */
static uint32_t value_of(int rank, int step, size_t i)
{
    uint32_t word = (uint32_t)(rank + 1) * 8 + (uint32_t)step * 100 + (uint32_t)i;
    float number = (float)word;

    if (types[i] == COMM_F32)
        memcpy(&word, &number, sizeof word);
    return word;
}

/* Whether the rank reports gradient i in the step. Rank 1 never reports the fifth. The seventh is missing in every other step. */
static bool reports(int rank, int step, size_t i)
{
    return !(i == 4 && rank == 1) && !(i == 6 && step % 2 == 1);
}

static uint32_t want(int step, size_t i)
{
    uint32_t sum = 0;
    float number = 0;

    for (int r = 0; r < RANKS; r++)
        if (reports(r, step, i))
            sum += (uint32_t)(r + 1) * 8 + (uint32_t)step * 100 + (uint32_t)i;
    number = (float)sum;
    if (types[i] == COMM_F32)
        memcpy(&sum, &number, sizeof sum);
    return sum;
}

static void make_side(struct side *s, int device, struct comm_communicator *c, int32_t adopt)
{
    struct comm_gradient list[GRADIENTS];
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 300, .first_bytes = 260, .op = COMM_SUM, .adopt = adopt ? 2 : 0};

    *s = (struct side){0};
    bench_open(&s->bench, device);
    s->compute = bench_stream(&s->bench);
    s->other = bench_stream(&s->bench);
    s->read = bench_stream(&s->bench);
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!adopt && counts[i])
            s->data[i] = bench_memory(&s->bench, counts[i]);
        for (int step = 0; step < STEPS; step++)
            s->copy[step][i] = bench_memory(&s->bench, LONGEST);
        list[i] = (struct comm_gradient){.data = s->data[i], .count = counts[i], .type = types[i]};
    }
    MUST(comm_buckets_create(c, list, GRADIENTS, &options, &s->buckets));
    for (size_t i = 0; adopt && i < GRADIENTS; i++) {
        void *at;
        MUST(comm_buckets_data(s->buckets, i, &at));
        s->data[i] = at;
    }
}

static void drop_side(struct side *s, bool adopt)
{
    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!adopt && counts[i])
            bench_free(&s->bench, s->data[i]);
        for (int step = 0; step < STEPS; step++)
            bench_free(&s->bench, s->copy[step][i]);
    }
    bench_drop_stream(&s->bench, s->compute);
    bench_drop_stream(&s->bench, s->other);
    bench_drop_stream(&s->bench, s->read);
    bench_close(&s->bench);
}

static void open_all(enum way way, const struct mock_options *options, int32_t adopt)
{
    mock_reset(options);
    mock_run(true);
    if (way == OVER_NCCL) {
        rig.ranks = RANKS;
        MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .operation_timeout_ns = 30 * RIG_S), RANKS, NULL, rig.world));
    } else {
        for (int r = 0; r < RANKS; r++) /* the driver is loaded before the communicators are created */
            bench_open(&sides[r].bench, 0);
        rig_open(&rig, RANKS, NULL);
        for (int r = 0; r < RANKS; r++)
            bench_close(&sides[r].bench);
    }
    for (int r = 0; r < RANKS; r++)
        make_side(&sides[r], way == OVER_NCCL ? r : 0, rig.world[r], adopt);
}

static void close_all(bool adopt)
{
    for (int r = 0; r < RANKS; r++)
        comm_buckets_free(sides[r].buckets);
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++)
        drop_side(&sides[r], adopt);
    clean_end();
}

static void again(struct comm_communicator *c, enum comm_result r)
{
    CHECK(r == COMM_ERR_FULL || r == COMM_PENDING);
    r = comm_progress(c);
    CHECK(r >= 0);
}

/* The backward pass, in another order on each rank and on two streams. The second stream waits for the results of the previous step. */
static void put_gradients(int rank, int step)
{
    struct side *s = &sides[rank];
    struct comm_event *results;

    MUST(comm_event_create(rig.world[rank], &results));
    MUST(comm_event_record_stream(results, s->compute));
    MUST(comm_stream_wait_event(s->other, results));
    comm_event_free(results);
    for (size_t k = 0; k < GRADIENTS; k++) {
        size_t i = (GRADIENTS - 1 - k + (size_t)rank) % GRADIENTS;
        struct CUstream_st *stream = i % 3 == 1 ? s->other : s->compute;
        enum comm_result r = COMM_ERR_FULL;
        if (!reports(rank, step, i))
            continue;
        if (counts[i])
            bench_fill(&s->bench, stream, s->data[i], value_of(rank, step, i), counts[i]);
        while ((r = comm_buckets_ready_stream(s->buckets, i, stream)) != COMM_OK)
            again(rig.world[rank], r);
    }
}

static void put_step(int rank, int step)
{
    struct side *s = &sides[rank];
    enum comm_result r;

    put_gradients(rank, step);
    while ((r = comm_buckets_wait_stream(s->buckets, s->compute)) != COMM_OK)
        again(rig.world[rank], r);
    for (size_t i = 0; i < GRADIENTS; i++)
        if (counts[i])
            bench_copy(&s->bench, s->compute, s->copy[step][i], s->data[i], counts[i] * sizeof(uint32_t));
}

static void check_step(int rank, int step)
{
    struct side *s = &sides[rank];
    uint32_t got[LONGEST];

    for (size_t i = 0; i < GRADIENTS; i++) {
        if (!counts[i])
            continue;
        bench_read(&s->bench, s->compute, got, s->copy[step][i], counts[i]);
        for (size_t k = 0; k < counts[i]; k++)
            if (got[k] != want(step, i))
                rig_die(__FILE__, __LINE__, "rank %d step %d gradient %zu element %zu: %08x, expected %08x", rank, step, i, k, got[k],
                        want(step, i));
    }
}

static void train(enum way way, uint64_t seed, int32_t adopt, bool no_memops)
{
    open_all(way, &(struct mock_options){.seed = seed, .devices = way == STAGED ? 1 : 0, .queues = 32, .no_memops = no_memops}, adopt);
    mock_seed(seed);
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < RANKS; r++)
            put_step(r, step);
    for (int r = 0; r < RANKS; r++)
        for (int step = 0; step < STEPS; step++)
            check_step(r, step);
    close_all(adopt);
}

RIG_TEST(steps_over_nccl)
{
    for (uint64_t seed = 1; seed <= (rig_quick() ? 10 : 60); seed++) {
        rig_note("seed %llu", (unsigned long long)seed);
        train(OVER_NCCL, seed, seed % 3 == 0, seed % 5 == 0);
    }
}

RIG_TEST(steps_staged)
{
    for (uint64_t seed = 1; seed <= (rig_quick() ? 10 : 60); seed++) {
        rig_note("seed %llu", (unsigned long long)seed);
        train(STAGED, seed, seed % 3 == 0, false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the host waits */
static void host_waits(enum way way, bool no_memops)
{
    rig_note("way %d, no_memops %d", (int)way, no_memops);
    open_all(way, &(struct mock_options){.seed = 7, .devices = way == STAGED ? 1 : 0, .queues = 32, .no_memops = no_memops}, 0);
    for (int step = 0; step < STEPS; step++) {
        bool done[RANKS] = {false};
        for (int r = 0; r < RANKS; r++)
            put_gradients(r, step);
        for (int left = RANKS; left;)
            for (int r = 0; r < RANKS; r++) { /* in turn, since this thread makes progress for all ranks */
                enum comm_result one = done[r] ? COMM_PENDING : comm_buckets_wait(sides[r].buckets, RIG_MS);
                CHECK(one == COMM_OK || one == COMM_PENDING || one == COMM_ERR_FULL);
                done[r] |= one == COMM_OK;
                left -= one == COMM_OK;
            }
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < GRADIENTS; i++) {
                uint32_t got[LONGEST];
                if (!counts[i])
                    continue;
                bench_read(&sides[r].bench, sides[r].read, got, sides[r].data[i], counts[i]); /* only the host orders this read */
                for (size_t k = 0; k < counts[i]; k++)
                    EQUAL(got[k], want(step, i));
            }
    }
    close_all(false);
}

RIG_TEST(the_host_waits_for_a_step)
{
    host_waits(OVER_NCCL, false);
    host_waits(OVER_NCCL, true);
    host_waits(STAGED, false);
    host_waits(STAGED, true);
}

/* ------------------------------------------------------------------------------------------------------------ accumulation */
/* A held step keeps the reported gradients, and they count in the next step. */
RIG_TEST(held_steps_count_later)
{
    for (int way = OVER_NCCL; way <= STAGED; way++) {
        uint32_t got[LONGEST];
        open_all((enum way)way, &(struct mock_options){.seed = 3, .devices = way == STAGED ? 1 : 0, .queues = 32}, 0);
        for (int r = 0; r < RANKS; r++) {
            struct side *s = &sides[r];
            MUST(comm_buckets_hold(s->buckets, 1));
            bench_fill(&s->bench, s->compute, s->data[3], (uint32_t)r + 1, counts[3]);
            MUST(comm_buckets_ready_stream(s->buckets, 3, s->compute));
            MUST(comm_buckets_wait_stream(s->buckets, s->compute));
            MUST(comm_buckets_hold(s->buckets, 0));
        }
        for (int r = 0; r < RANKS; r++) { /* now neither this gradient nor the sixth is reported */
            struct side *s = &sides[r];
            bench_fill(&s->bench, s->compute, s->data[5], 77, counts[5]);
            for (enum comm_result one; (one = comm_buckets_wait_stream(s->buckets, s->compute)) != COMM_OK;)
                again(rig.world[r], one);
        }
        for (int r = 0; r < RANKS; r++) {
            bench_read(&sides[r].bench, sides[r].compute, got, sides[r].data[3], counts[3]);
            EQUAL(got[0], 1 + 2 + 3);
            bench_read(&sides[r].bench, sides[r].compute, got, sides[r].data[5], counts[5]);
            EQUAL(got[0], 0);
        }
        close_all(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
RIG_TEST(what_is_refused)
{
    struct comm_gradient list[2];
    struct comm_buckets *host;
    uint32_t here[4] = {0};
    for (int way = OVER_NCCL; way <= STAGED; way++) {
        rig_note("way %d", way);
        open_all((enum way)way, &(struct mock_options){.seed = 3, .devices = way == STAGED ? 1 : 0, .queues = 32}, 0);
        struct side *s = &sides[0];
        IS(comm_buckets_ready(s->buckets, 0), COMM_ERR_UNSUPPORTED);
        IS(comm_buckets_ready_stream(s->buckets, GRADIENTS, s->compute), COMM_ERR_ARGUMENT);
        IS(comm_buckets_ready_stream(NULL, 0, s->compute), COMM_ERR_ARGUMENT);
        IS(comm_buckets_wait_stream(NULL, s->compute), COMM_ERR_ARGUMENT);
        mock_capture(s->other, true); /* the call is refused and has no effect on the step */
        for (size_t i = 0; i < GRADIENTS; i++)
            if (counts[i])
                IS(comm_buckets_ready_stream(s->buckets, i, s->other), COMM_ERR_UNSUPPORTED);
        IS(comm_buckets_wait_stream(s->buckets, s->other), COMM_ERR_UNSUPPORTED);
        mock_capture(s->other, false);
        MUST(comm_buckets_ready_stream(s->buckets, 0, s->other));
        IS(comm_buckets_ready_stream(s->buckets, 0, s->other), COMM_ERR_STATE);
        list[0] = (struct comm_gradient){.data = s->data[0], .count = 1, .type = COMM_U32};
        list[1] = (struct comm_gradient){.data = here, .count = 1, .type = COMM_U32};
        IS(comm_buckets_create(rig.world[0], list, 2, NULL, &host), COMM_ERR_ARGUMENT);
        MUST(comm_buckets_create(rig.world[0], list + 1, 1, NULL, &host));
        IS(comm_buckets_ready_stream(host, 0, s->compute), COMM_ERR_UNSUPPORTED);
        IS(comm_buckets_wait_stream(host, s->compute), COMM_ERR_UNSUPPORTED);
        comm_buckets_free(host);
        for (int r = 0; r < RANKS; r++)
            for (enum comm_result one; (one = comm_buckets_wait_stream(sides[r].buckets, sides[r].compute)) != COMM_OK;)
                again(rig.world[r], one);
        close_all(false);
    }
}

/* ------------------------------------------------------------------------------------------------------------ freeing */
/* Buckets whose step the streams finish are freed while a message is under way that its sender sends later. */
RIG_TEST(freeing_waits_for_no_message)
{
    struct comm_request received[RANKS], sent[RANKS];
    int32_t word[RANKS] = {0}, one = 1;

    open_all(STAGED, &(struct mock_options){.seed = 6, .devices = 1, .queues = 32}, 0);
    for (int r = 0; r < RANKS; r++)
        put_step(r, 0);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_recv(rig.world[r], &word[r], 1, COMM_I32, (r + 1) % RANKS, 0, NULL, &received[r]));
    int64_t began = rig_now();
    for (int r = 0; r < RANKS; r++) {
        comm_buckets_free(sides[r].buckets);
        sides[r].buckets = NULL;
    }
    CHECK(rig_now() - began < 10 * RIG_S);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_send(rig.world[r], &one, 1, COMM_I32, (r + RANKS - 1) % RANKS, 0, &sent[r]));
    rig_wait_all(received, RANKS);
    rig_wait_all(sent, RANKS);
    for (int r = 0; r < RANKS; r++)
        EQUAL(word[r], 1);
    for (int r = 0; r < RANKS; r++)
        check_step(r, 0);
    close_all(false);
}

/* ------------------------------------------------------------------------------------------------------------ failures */
/* A rank dies. The streams of the other ranks continue, and the next call returns the error. */
RIG_TEST(a_communicator_that_fails)
{
    for (int way = OVER_NCCL; way <= STAGED; way++) {
        open_all((enum way)way, &(struct mock_options){.seed = 3, .devices = way == STAGED ? 1 : 0, .queues = 32}, 0);
        for (int r = 1; r < RANKS; r++)
            put_step(r, 0);
        MUST(comm_revoke(rig.world[0]));
        for (int r = 1; r < RANKS; r++) {
            enum comm_result one = COMM_OK;
            uint32_t got[LONGEST];
            bench_read(&sides[r].bench, sides[r].compute, got, sides[r].data[0], counts[0]); /* the stream does not hang */
            for (int64_t until = rig_now() + RIG_PATIENCE; one == COMM_OK && rig_now() < until; rig_nap(RIG_MS))
                one = comm_buckets_wait_stream(sides[r].buckets, sides[r].compute);
            IS(one, COMM_ERR_REVOKED);
        }
        for (int r = 0; r < RANKS; r++)
            comm_buckets_free(sides[r].buckets);
        for (int r = 0; r < RANKS; r++)
            (void)!comm_close(rig.world[r], COMM_DEFAULT_TIMEOUT);
        for (int r = 0; r < RANKS; r++)
            drop_side(&sides[r], false);
        mock_run(false);
        EQUAL(mock_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_over_nccl),
        cmocka_unit_test(steps_staged),
        cmocka_unit_test(the_host_waits_for_a_step),
        cmocka_unit_test(held_steps_count_later),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_communicator_that_fails),
        cmocka_unit_test(freeing_waits_for_no_message),
    };
    return cmocka_run_group_tests_name("cuda_buckets", tests, NULL, NULL);
}
