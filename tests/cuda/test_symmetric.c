/*
 * comm_mem_alloc_symmetric on backend nccl, all ranks in one process: windows of NCCL that all ranks register, what happens if a rank does
 * not come, asks for another length or cannot register, and that memory can be freed whatever became of its communicator.
 */
#define _GNU_SOURCE
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, WORDS = 32, BYTES = WORDS * 4 };
static struct bench bench[RANKS];
static struct CUstream_st *stream[RANKS];
static struct rig rig;
static uint32_t *memory[RANKS];
static struct comm_request q[RANKS];
static _Atomic int said;

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    said += level == COMM_LOG_WARNING && strstr(line, "has no symmetric windows") != NULL;
}

static void open_all(int32_t ranks, int64_t timeout, const struct mock_options *mock)
{
    mock_reset(mock);
    mock_run(true);
    rig.ranks = ranks;
    said = 0;
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .log = hear, .operation_timeout_ns = timeout), ranks, NULL, rig.world));
    for (int r = 0; r < ranks; r++) {
        bench_open(&bench[r], r);
        stream[r] = bench_stream(&bench[r]);
    }
}

static void close_benches(void)
{
    for (int r = 0; r < rig.ranks; r++) {
        bench_drop_stream(&bench[r], stream[r]);
        bench_close(&bench[r]);
    }
    clean_end();
}

static void close_all(void)
{
    int32_t ranks = rig.ranks;

    rig_close(&rig);
    rig.ranks = ranks;
    close_benches();
}

/* Of worlds that have failed. */
static void close_failed(void)
{
    for (int r = 0; r < rig.ranks; r++)
        (void)comm_close(rig.world[r], COMM_DEFAULT_TIMEOUT);
    close_benches();
}

static void ask(struct comm_communicator *const *c, int from, int to)
{
    for (int r = from; r < to; r++) {
        memory[r] = NULL;
        MUST(comm_mem_alloc_symmetric(c[r], BYTES, (void **)&memory[r], &q[r]));
    }
}

static void allocate(struct comm_communicator *const *c)
{
    ask(c, 0, rig.ranks);
    rig_wait_all(q, (size_t)rig.ranks);
    for (int r = 0; r < rig.ranks; r++)
        CHECK(memory[r]);
}

static void free_all(struct comm_communicator *const *c)
{
    for (int r = 0; r < rig.ranks; r++)
        comm_mem_free(c[r], memory[r]);
}

/* Every request ends with this, and no rank has memory. */
static void none_has(enum comm_result want, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        IS(comm_wait(q[r], RIG_PATIENCE), want);
        CHECK(!memory[r]);
    }
}

/* Sums in place. */
static void sum(struct comm_communicator *const *c)
{
    uint32_t ranks = (uint32_t)rig.ranks;

    for (uint32_t r = 0; r < ranks; r++) {
        bench_fill(&bench[r], stream[r], memory[r], r + 1, WORDS);
        MUST(comm_queue_wait_stream(c[r], stream[r]));
        MUST(comm_allreduce(c[r], COMM_IN_PLACE, memory[r], WORDS, COMM_U32, COMM_SUM, &q[r]));
    }
    rig_wait_all(q, ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t got[WORDS];
        bench_read(&bench[r], stream[r], got, memory[r], WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], ranks * (ranks + 1) / 2);
    }
}

/* ------------------------------------------------------------------------------------------------------------ all is well */
RIG_TEST(memory_that_all_ranks_register)
{
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) {
        rig_note("%d ranks", ranks);
        open_all(ranks, 20 * RIG_S, &(struct mock_options){.seed = (uint64_t)ranks});
        allocate(rig.world);
        EQUAL(mock_windows(), ranks);
        sum(rig.world);
        int before = mock_live();
        free_all(rig.world);
        EQUAL(mock_windows(), 0);
        EQUAL(mock_live(), before - 2 * ranks); /* the windows, and the memory */
        EQUAL(said, 0);
        allocate(rig.world); /* and what is not freed is freed with the world */
        close_all();
    }
}

/* The window belongs to the communicator that allocated. Another one has ordinary memory, and can free it when that has ended. */
RIG_TEST(memory_of_another_communicator)
{
    struct comm_communicator *dup[RANKS];

    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1});
    rig_dup(rig.world, 3, dup);
    allocate(dup);
    sum(dup);
    sum(rig.world);
    int before = mock_live();
    free_all(rig.world);
    EQUAL(mock_windows(), 3);
    EQUAL(mock_live(), before); /* kept */
    for (int r = 0; r < 3; r++)
        MUST(comm_close(dup[r], COMM_DEFAULT_TIMEOUT));
    for (int64_t start = rig_now(); mock_windows() && rig_now() - start < RIG_PATIENCE;)
        rig_nap(RIG_MS); /* a thread ends them */
    EQUAL(mock_windows(), 0);
    allocate(rig.world);
    EQUAL(mock_windows(), 3);
    for (int r = 0; r < 3; r++)
        comm_mem_free(rig.world[r], memory[(r + 1) % 3]); /* each through another rank's */
    close_all();
}

RIG_TEST(what_is_registered_alone_meanwhile)
{
    uint32_t *own;

    open_all(2, 20 * RIG_S, &(struct mock_options){.seed = 1});
    own = bench_memory(&bench[0], WORDS);
    MUST(comm_mem_register(rig.world[0], own, BYTES));
    ask(rig.world, 0, 1);
    IS(comm_allreduce(rig.world[0], COMM_IN_PLACE, own, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_FULL);
    comm_mem_unregister(rig.world[0], own);
    ask(rig.world, 1, 2);
    rig_wait_all(q, 2);
    sum(rig.world);
    bench_free(&bench[0], own);
    free_all(rig.world);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ without windows */
RIG_TEST(an_nccl_without_windows)
{
    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1, .nccl = 22605});
    for (int i = 0; i < 2; i++) {
        allocate(rig.world);
        EQUAL(mock_windows(), 0);
        sum(rig.world);
        int before = mock_live();
        free_all(rig.world);
        EQUAL(mock_live(), before - 6); /* the memory, and what each rank registered alone */
    }
    close_all();
    EQUAL(said, 1); /* a thread writes lines; close waits for it */
}

RIG_TEST(an_nccl_without_memory)
{
    open_all(2, 20 * RIG_S, &(struct mock_options){.seed = 1, .nccl = 21805});
    allocate(rig.world);
    sum(rig.world);
    free_all(rig.world);
    close_all();
    EQUAL(said, 1); /* a thread writes lines; close waits for it */
}

/* NCCL has the call, and the devices cannot reach each other's memory. */
RIG_TEST(devices_without_windows)
{
    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1, .no_windows = 1});
    allocate(rig.world);
    EQUAL(mock_windows(), 0);
    sum(rig.world);
    int before = mock_live();
    free_all(rig.world);
    EQUAL(mock_live(), before - 3);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ errors */
RIG_TEST(lengths_that_differ)
{
    struct comm_error error = {.size = sizeof error};

    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1});
    int before = mock_live();
    for (int r = 0; r < 3; r++)
        MUST(comm_mem_alloc_symmetric(rig.world[r], r == 2 ? 8192 : 4096, (void **)&memory[r], &q[r]));
    none_has(COMM_ERR_ARGUMENT, 3);
    for (int r = 0; r < 3; r++) {
        MUST(comm_error_detail(rig.world[r], &error));
        EQUAL(error.rank, 2);
        CHECK(strstr(error.text, "bytes=8192 on rank 2, and 4096 on rank 0; expected the same on every rank"));
    }
    EQUAL(mock_live(), before);
    allocate(rig.world); /* nothing else happened */
    sum(rig.world);
    close_all();
}

RIG_TEST(arguments_that_are_wrong)
{
    struct comm_error error = {.size = sizeof error};

    open_all(1, 20 * RIG_S, &(struct mock_options){.seed = 1});
    IS(comm_mem_alloc_symmetric(rig.world[0], 0, (void **)&memory[0], &q[0]), COMM_ERR_ARGUMENT);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "mem_alloc_symmetric: bytes=0; expected 1 or more"));
    IS(comm_mem_alloc_symmetric(rig.world[0], 1, NULL, &q[0]), COMM_ERR_ARGUMENT);
    IS(comm_mem_alloc_symmetric(rig.world[0], SIZE_MAX, (void **)&memory[0], &q[0]), COMM_ERR_ARGUMENT);
    IS(comm_mem_alloc_symmetric(NULL, 1, (void **)&memory[0], &q[0]), COMM_ERR_ARGUMENT);
    close_all();
}

RIG_TEST(a_rank_that_does_not_call)
{
    open_all(3, 600 * RIG_MS, &(struct mock_options){.seed = 1});
    ask(rig.world, 0, 2);
    none_has(COMM_ERR_TIMEOUT, 2);
    close_failed();
}

/* All ranks are inside NCCL when the deadline comes. Before 2.28 only an abort ends that. */
RIG_TEST(a_registration_that_does_not_end)
{
    static const int versions[] = {0, 22707};

    for (int i = 0; i < 2; i++) {
        open_all(3, 600 * RIG_MS, &(struct mock_options){.seed = 1, .nccl = versions[i]});
        mock_lose(2);
        ask(rig.world, 0, 3);
        none_has(COMM_ERR_TIMEOUT, 3);
        close_failed();
    }
}

/* The other ranks wait in NCCL for it, until the deadline. */
RIG_TEST(a_rank_that_cannot_register)
{
    open_all(3, 600 * RIG_MS, &(struct mock_options){.seed = 1, .no_window_rank = 2});
    ask(rig.world, 0, 3);
    for (int r = 0; r < 3; r++) {
        CHECK(comm_wait(q[r], RIG_PATIENCE) != COMM_OK);
        CHECK(!memory[r]);
    }
    close_failed();
}

/* A rank alone cannot register: that is no failure of the communicator. */
RIG_TEST(a_lone_rank_that_cannot_register)
{
    struct comm_error error = {.size = sizeof error};

    open_all(1, 20 * RIG_S, &(struct mock_options){.seed = 1, .no_window_rank = 1});
    int before = mock_live();
    ask(rig.world, 0, 1);
    none_has(COMM_ERR_BACKEND, 1);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "rank 0 could not register 128 bytes with all ranks"));
    EQUAL(mock_live(), before);
    MUST(comm_mem_alloc(rig.world[0], BYTES, (void **)&memory[0]));
    sum(rig.world);
    close_all();
}

/* Each call of the driver and of NCCL fails once: nothing is lost, and nothing hangs. */
RIG_TEST(a_fault_at_every_call)
{
    for (uint64_t n = 1, failed = 1; failed; n += rig_quick() ? 3 : 1) {
        rig_note("call %llu", (unsigned long long)n);
        open_all(2, 300 * RIG_MS, &(struct mock_options){.seed = n});
        mock_fail(n, false);
        for (int r = 0; r < 2; r++) {
            memory[r] = NULL;
            q[r] = COMM_REQUEST_NONE;
            enum comm_result r0 = comm_mem_alloc_symmetric(rig.world[r], BYTES, (void **)&memory[r], &q[r]);
            CHECK(r0 == COMM_OK || r);
        }
        for (int r = 0; r < 2; r++)
            CHECK(comm_wait(q[r], RIG_PATIENCE) != COMM_PENDING);
        failed = mock_failed_at() && n < 60;
        mock_fail(0, false);
        free_all(rig.world);
        close_failed();
    }
}

/* ------------------------------------------------------------------------------------------------------------ after a failure */
static void free_after(void (*end)(void))
{
    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1});
    allocate(rig.world);
    for (int r = 0; r < 2; r++) /* an operation that never ends */
        MUST(comm_allreduce(rig.world[r], COMM_IN_PLACE, memory[r], WORDS, COMM_U32, COMM_SUM, &q[r]));
    end();
    for (int r = 0; r < 2; r++)
        CHECK(comm_wait(q[r], RIG_PATIENCE) != COMM_OK);
    free_all(rig.world);
    close_failed();
}

static void abort_one(void)
{
    MUST(comm_abort(rig.world[0], 3));
}

static void revoke_one(void)
{
    MUST(comm_revoke(rig.world[1]));
}

RIG_TEST(memory_that_is_freed_after_a_failure)
{
    free_after(revoke_one);
    free_after(abort_one);
}

/* A communicator of the survivors has windows of its own. */
RIG_TEST(memory_after_a_shrink)
{
    struct comm_communicator *left[RANKS];
    uint32_t *old[RANKS];

    open_all(3, 20 * RIG_S, &(struct mock_options){.seed = 1});
    allocate(rig.world);
    memcpy(old, memory, sizeof old);
    revoke_one();
    for (int r = 0; r < 3; r++)
        MUST(comm_shrink(rig.world[r], &left[r], &q[r]));
    rig_wait_all(q, 3);
    allocate(left);
    EQUAL(mock_windows(), 3);
    sum(left);
    for (int r = 0; r < 3; r++)
        comm_mem_free(left[r], old[r]);
    free_all(left);
    for (int r = 0; r < 3; r++)
        MUST(comm_close(left[r], COMM_DEFAULT_TIMEOUT));
    close_failed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_all_ranks_register),
        cmocka_unit_test(memory_of_another_communicator),
        cmocka_unit_test(what_is_registered_alone_meanwhile),
        cmocka_unit_test(an_nccl_without_windows),
        cmocka_unit_test(an_nccl_without_memory),
        cmocka_unit_test(devices_without_windows),
        cmocka_unit_test(lengths_that_differ),
        cmocka_unit_test(arguments_that_are_wrong),
        cmocka_unit_test(a_rank_that_does_not_call),
        cmocka_unit_test(a_registration_that_does_not_end),
        cmocka_unit_test(a_rank_that_cannot_register),
        cmocka_unit_test(a_lone_rank_that_cannot_register),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(memory_that_is_freed_after_a_failure),
        cmocka_unit_test(memory_after_a_shrink),
    };
    return cmocka_run_group_tests_name("cuda_symmetric", tests, NULL, NULL);
}
