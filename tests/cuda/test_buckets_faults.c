/*
 * Each call of CUDA or NCCL fails once while ranks make gradient buckets in device memory, train three steps with them, and free them. The
 * program gets an error, nothing hangs, nothing leaks, and every result of a step that is reported as OK is right.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, GRADIENTS = 5, LONGEST = 70, STEPS = 3 /* of which the host waits for the last */ };
/* From the last on: a bucket that one stream writes, a gradient that is reduced in place, and a bucket that two streams write. */
static const size_t counts[GRADIENTS] = {30, 30, LONGEST, 20, 40};
static const bool by_other[GRADIENTS] = {true, false, true, false, false};

struct setting {
    bool staged, no_memops, adopt;
};
struct side {
    struct bench bench;
    struct CUstream_st *compute, *other;
    uint32_t *own[GRADIENTS], *data[GRADIENTS]; /* data: of this step's buckets, `own` or in a bucket */
    struct comm_buckets *buckets;
};
static struct side sides[RANKS];
static struct rig rig;
static _Atomic bool keeps;

static void make_sides(bool staged)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        *s = (struct side){0};
        bench_open(&s->bench, staged ? 0 : r);
        s->compute = bench_stream(&s->bench);
        s->other = bench_stream(&s->bench);
        for (size_t i = 0; i < GRADIENTS; i++)
            s->own[i] = bench_memory(&s->bench, counts[i]);
    }
}

static void drop_sides(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        for (size_t i = 0; i < GRADIENTS; i++)
            bench_free(&s->bench, s->own[i]);
        bench_drop_stream(&s->bench, s->compute);
        bench_drop_stream(&s->bench, s->other);
        bench_close(&s->bench);
    }
}

/* ------------------------------------------------------------------------------------------------------------ training */
static enum comm_result make_buckets(int rank, bool adopt)
{
    struct side *s = &sides[rank];
    struct comm_gradient list[GRADIENTS];
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 300, .first_bytes = 260, .op = COMM_SUM, .adopt = adopt ? 2 : 0};

    for (size_t i = 0; i < GRADIENTS; i++) {
        s->data[i] = s->own[i];
        list[i] = (struct comm_gradient){.data = adopt ? NULL : s->own[i], .count = counts[i], .type = COMM_U32};
    }
    enum comm_result r = comm_buckets_create(rig.world[rank], list, GRADIENTS, &options, &s->buckets);
    for (size_t i = 0; i < GRADIENTS && adopt && r == COMM_OK; i++) {
        void *at;
        MUST(comm_buckets_data(s->buckets, i, &at));
        s->data[i] = at;
    }
    return r;
}

static bool again(enum comm_result r, int64_t end)
{
    if ((r != COMM_ERR_FULL && r != COMM_PENDING) || rig_now() > end)
        return false;
    enum comm_result moved = comm_progress(rig.world[0]);
    return moved == COMM_OK || moved == COMM_PENDING;
}

/* Rank 1 does not report the second gradient. The second stream writes when the first has the results of the step before. */
static enum comm_result put_gradients(int rank, int at)
{
    struct side *s = &sides[rank];
    struct comm_event *results;
    enum comm_result r = comm_event_create(rig.world[rank], &results);

    if (r != COMM_OK)
        return r;
    r = comm_event_record_stream(results, s->compute);
    if (r == COMM_OK)
        r = comm_stream_wait_event(s->other, results);
    comm_event_free(results);
    for (size_t i = GRADIENTS; i-- > 0 && r == COMM_OK;) {
        struct CUstream_st *stream = by_other[i] ? s->other : s->compute;
        int64_t end = rig_now() + 5 * RIG_S;
        if (rank == 1 && i == 1)
            continue;
        bench_fill(&s->bench, stream, s->data[i], (uint32_t)(10 * at + rank) + 1, counts[i]);
        do
            r = comm_buckets_ready_stream(s->buckets, i, stream);
        while (again(r, end));
    }
    return r;
}

static enum comm_result put_wait(int rank)
{
    struct side *s = &sides[rank];
    int64_t end = rig_now() + 5 * RIG_S;
    enum comm_result r;

    do
        r = comm_buckets_wait_stream(s->buckets, s->compute);
    while (again(r, end));
    return r;
}

/* In turn, since this thread makes progress for all ranks. */
static bool host_waits(void)
{
    int64_t end = rig_now() + 5 * RIG_S;
    bool done[RANKS] = {false};

    for (int left = RANKS; left;)
        for (int r = 0; r < RANKS; r++) {
            enum comm_result one = done[r] ? COMM_PENDING : comm_buckets_wait(sides[r].buckets, RIG_MS);
            if (one != COMM_OK && one != COMM_PENDING && one != COMM_ERR_FULL)
                return false;
            CHECK(rig_now() < end);
            done[r] |= one == COMM_OK;
            left -= one == COMM_OK;
        }
    return true;
}

static void check(int rank)
{
    struct side *s = &sides[rank];
    uint32_t got[LONGEST], last = 10 * (STEPS - 1);

    for (size_t i = 0; i < GRADIENTS; i++) {
        bench_read(&s->bench, s->compute, got, s->data[i], counts[i]);
        for (size_t k = 0; k < counts[i]; k++)
            EQUAL(got[k], i == 1 ? last + 1 : 2 * last + 3);
    }
}

/* Returns true if every call succeeded. */
static bool train(bool adopt)
{
    bool well = true;

    for (int r = 0; r < RANKS && well; r++)
        well = make_buckets(r, adopt) == COMM_OK;
    for (int at = 0; at < STEPS && well; at++)
        for (int r = 0; r < RANKS && well; r++)
            well = put_gradients(r, at) == COMM_OK && (at == STEPS - 1 || put_wait(r) == COMM_OK);
    well = well && host_waits();
    for (int r = 0; r < RANKS && well; r++)
        check(r);
    for (int r = 0; r < RANKS && !well; r++)
        (void)!comm_revoke(rig.world[r]);
    for (int r = 0; r < RANKS; r++)
        comm_buckets_free(sides[r].buckets);
    return well;
}

/* ------------------------------------------------------------------------------------------------------------ faults */
/* If a call that frees an object fails, that object leaks. */
static bool loses(const char *call)
{
    return strstr(call, "Destroy") || strstr(call, "Free") || strstr(call, "Release") || strstr(call, "PushCurrent");
}

/* Of a stage that the device may still use, the memory is left, and the log says so. */
static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "kept on purpose"))
        keeps = true;
}

static void end_clean(const struct setting *is, int before, bool may_leak)
{
    int64_t end = rig_now() + RIG_PATIENCE;

    while (!mock_idle() && rig_now() < end)
        rig_nap(RIG_MS);
    CHECK(mock_idle());
    CHECK(!keeps || is->staged);
    for (int turn = 0; mock_live() > before && !may_leak && !keeps && turn < 50; turn++)
        rig_nap(20 * RIG_MS);
    if (mock_live() <= before || may_leak || keeps)
        return;
    mock_list_live();
    fflush(stdout);
    rig_die(__FILE__, __LINE__, "%d things are left, staged %d", mock_live() - before, is->staged);
}

/* Call n fails, or the next one that is not spared; stores its number there. Returns false if no call failed. */
static bool run_with(const struct setting *is, uint64_t *number)
{
    uint64_t n = *number;

    mock_reset(&(struct mock_options){.seed = n,
                                      .devices = is->staged ? 1 : 0,
                                      .queues = 32,
                                      .no_memops = is->no_memops,
                                      .first = selected(0, 2, 1),
                                      .every = selected(0, 12, 24)});
    keeps = false;
    make_sides(is->staged);
    int before = mock_live();
    rig_open(&rig, RANKS, COMM_CONFIG(.backend = is->staged ? NULL : "nccl", .operation_timeout_ns = 10 * RIG_S, .log = hear));
    mock_fail(n, false);
    bool well = train(is->adopt);
    const char *failed = mock_failed();
    *number = failed ? mock_failed_at() : n;
    mock_fail(0, false);
    rig_note("staged %d, no words %d, call %llu (%s) fails", is->staged, is->no_memops, (unsigned long long)*number,
             failed ? failed : "none");
    CHECK(well || failed);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(rig.world[r], 3 * RIG_S);
    end_clean(is, before, failed && loses(failed));
    drop_sides();
    return failed != NULL;
}

static void every_call(const struct setting *is)
{
    uint64_t n = 1, tried = 0;

    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    bench_inside = mock_exempt;
    for (; run_with(is, &n); n++)
        tried++;
    mock_run(false);
    printf("%llu faults, one at a time, in %llu calls\n", (unsigned long long)tried, (unsigned long long)n);
    CHECK(tried > 10 && n > 50);
}

RIG_TEST(a_fault_at_every_call_over_nccl)
{
    every_call(&(struct setting){0});
    every_call(&(struct setting){.no_memops = true, .adopt = true});
}

RIG_TEST(a_fault_at_every_call_staged)
{
    every_call(&(struct setting){.staged = true});
    every_call(&(struct setting){.staged = true, .adopt = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_at_every_call_over_nccl),
        cmocka_unit_test(a_fault_at_every_call_staged),
    };
    return cmocka_run_group_tests_name("cuda_buckets_faults", tests, NULL, NULL);
}
