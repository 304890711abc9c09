/*
 * Memory on backend nccl: comm_mem_alloc gives memory of the rank's device, comm_mem_register registers the program's with NCCL, and an old
 * NCCL has neither. Also what happens where a rank has no NCCL, or shares its device, and option nccl_fallback is given.
 */
#define _GNU_SOURCE
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, WORDS = 32 };
static struct bench bench[RANKS];
static struct CUstream_st *stream[RANKS];
static struct rig rig;
static _Atomic int said;

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    said += level == COMM_LOG_WARNING && strstr(line, "nccl_fallback: ") != NULL;
}

static void open_all(const char *options, const char *const *devices, bool share, const struct mock_options *mock)
{
    mock_reset(mock);
    mock_run(true);
    rig.ranks = RANKS;
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .options = options, .log = hear, .operation_timeout_ns = 20 * RIG_S), RANKS,
                         devices, rig.world));
    for (int r = 0; r < RANKS; r++) {
        bench_open(&bench[r], share ? 0 : r);
        stream[r] = bench_stream(&bench[r]);
    }
}

static void close_all(void)
{
    rig_close(&rig);
    for (int r = 0; r < RANKS; r++) {
        bench_drop_stream(&bench[r], stream[r]);
        bench_close(&bench[r]);
    }
    clean_end();
}

/* Sums in place: the ranks' memory begins with their ranks. */
static void sum(uint32_t *const memory[RANKS])
{
    struct comm_request q[RANKS];

    for (int r = 0; r < RANKS; r++) {
        bench_fill(&bench[r], stream[r], memory[r], (uint32_t)r + 1, WORDS);
        MUST(comm_queue_wait_stream(rig.world[r], stream[r]));
        MUST(comm_allreduce(rig.world[r], COMM_IN_PLACE, memory[r], WORDS, COMM_U32, COMM_SUM, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        uint32_t got[WORDS];
        bench_read(&bench[r], stream[r], got, memory[r], WORDS);
        for (int i = 0; i < WORDS; i++)
            EQUAL(got[i], 6);
    }
}

/* ------------------------------------------------------------------------------------------------------------ allocated */
static void allocate(const struct mock_options *options)
{
    uint32_t *memory[RANKS], *left;
    struct comm_error error = {.size = sizeof error};

    open_all(NULL, NULL, false, options);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_mem_alloc(rig.world[r], WORDS * 4, (void **)&memory[r]));
    sum(memory);
    comm_mem_free(rig.world[0], memory[0] + 1); /* no address of comm_mem_alloc */
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "expected an address of comm_mem_alloc"));
    for (int r = 0; r < RANKS; r++)
        comm_mem_free(rig.world[(r + 1) % RANKS], memory[r]); /* through any communicator of the world */
    MUST(comm_mem_alloc(rig.world[1], 100, (void **)&left));  /* freed with the world */
    close_all();
}

RIG_TEST(memory_of_the_device)
{
    allocate(&(struct mock_options){.seed = 1});
}

RIG_TEST(memory_with_an_old_nccl)
{
    allocate(&(struct mock_options){.seed = 1, .nccl = 21805});
}

/* ------------------------------------------------------------------------------------------------------------ registered */
static void enlist(const struct mock_options *options, int registrations)
{
    uint32_t *memory[RANKS], here[WORDS];

    open_all(NULL, NULL, false, options);
    int before = mock_live();
    for (int r = 0; r < RANKS; r++) {
        memory[r] = bench_memory(&bench[r], WORDS);
        MUST(comm_mem_register(rig.world[r], memory[r], WORDS * 4));
        IS(comm_mem_register(rig.world[r], memory[r], WORDS * 4), COMM_ERR_STATE);
    }
    MUST(comm_mem_register(rig.world[0], here, sizeof here)); /* host memory is only recorded */
    EQUAL(mock_live(), before + RANKS + registrations);
    sum(memory);
    before = mock_live();
    comm_mem_unregister(rig.world[0], here);
    for (int r = 0; r < RANKS - 1; r++) /* the last one's registration ends with the communicator */
        comm_mem_unregister(rig.world[r], memory[r]);
    EQUAL(mock_live(), before - (registrations ? RANKS - 1 : 0));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_close(rig.world[r], COMM_DEFAULT_TIMEOUT));
    for (int r = 0; r < RANKS; r++)
        bench_free(&bench[r], memory[r]);
    rig.ranks = 0;
    close_all();
}

RIG_TEST(registered_memory)
{
    enlist(&(struct mock_options){.seed = 1}, RANKS);
}

RIG_TEST(registered_memory_with_an_old_nccl)
{
    enlist(&(struct mock_options){.seed = 1, .nccl = 21805}, 0);
}

/* ------------------------------------------------------------------------------------------------------------ of the host */
static void free_window(void *windows, int32_t rank)
{
    MUST(comm_window_free(((struct comm_window **)windows)[rank]));
}

/* What the CPU reads and writes itself is refused in memory of the device, although collectives take it. */
RIG_TEST(windows_and_factors_are_in_memory_of_the_host)
{
    struct comm_window *window[RANKS];
    struct comm_request q[RANKS];
    struct comm_error error = {.size = sizeof error};
    comm_op op;

    open_all(NULL, NULL, false, &(struct mock_options){.seed = 1});
    uint32_t *memory = bench_memory(&bench[0], WORDS);
    const struct comm_window_options options = {.size = sizeof options, .base = memory};
    for (int r = 0; r < RANKS; r++)
        MUST(comm_window_create(rig.world[r], WORDS * 4, NULL, &window[r], &q[r]));
    rig_wait_all(q, RANKS);
    IS(comm_put(window[0], memory, 1, COMM_U32, 1, 0, NULL), COMM_ERR_ARGUMENT);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "expected memory of the host"));
    IS(comm_op_create_premul_sum(rig.world[0], COMM_U32, memory, &op), COMM_ERR_ARGUMENT);
    rig_threads(RANKS, free_window, window);
    IS(comm_window_create(rig.world[0], WORDS * 4, &options, &window[0], &q[0]), COMM_ERR_ARGUMENT);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "expected memory of the host"));
    bench_free(&bench[0], memory);
    for (int r = 1; r < RANKS; r++) /* a refused collective is refused on all ranks */
        IS(NOW(comm_window_create, rig.world[r], WORDS * 4, NULL, &window[r]), COMM_ERR_REFUSED);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ without NCCL */
/* All ranks have one device, which NCCL refuses. */
RIG_TEST(ranks_that_share_a_device_fall_back)
{
    static const char *const one[RANKS] = {"cuda:0", "cuda:0", "cuda:0"};
    struct comm_communicator *dup[RANKS];
    struct comm_info info = {.size = sizeof info};
    uint32_t *memory[RANKS];

    open_all("nccl_fallback=yes", one, true, &(struct mock_options){.seed = 1});
    for (int r = 0; r < RANKS; r++)
        memory[r] = bench_memory(&bench[r], WORDS);
    MUST(comm_describe(rig.world[0], &info));
    CHECK(!info.device_order && !info.graph_capture && info.device_buffers);
    sum(memory);
    rig_dup(rig.world, RANKS, dup);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_close(dup[r], COMM_DEFAULT_TIMEOUT));
    for (int r = 0; r < RANKS; r++)
        bench_free(&bench[r], memory[r]);
    close_all();
    EQUAL(said, 1);
}

static void falls_back(const char *more, const struct mock_options *options)
{
    uint32_t *memory[RANKS];
    char text[64];

    snprintf(text, sizeof text, "nccl_fallback=yes%s", more);
    open_all(text, NULL, true, options);
    for (int r = 0; r < RANKS; r++)
        memory[r] = bench_memory(&bench[r], WORDS);
    sum(memory);
    for (int r = 0; r < RANKS; r++)
        bench_free(&bench[r], memory[r]);
    close_all();
    EQUAL(said, 1);
}

RIG_TEST(an_nccl_too_old_falls_back)
{
    falls_back("", &(struct mock_options){.seed = 1, .nccl = 21700});
}

/* NCCL is there, but a communicator is never ready. Each rank finds that by itself, before the ranks meet. */
RIG_TEST(an_nccl_that_does_not_work_falls_back)
{
    falls_back(",open_timeout=8s", &(struct mock_options){.seed = 1, .slow_join = -1});
}

/* NCCL works on each rank alone, and cannot connect them. */
RIG_TEST(ranks_that_nccl_cannot_connect_fall_back)
{
    falls_back(",open_timeout=8s", &(struct mock_options){.seed = 1, .lost_rank = 2});
}

/* As above, but only ranks 0 and 1 of a split. Rank 2 has a child of its own, which keeps NCCL, as the parent does. */
RIG_TEST(children_that_nccl_cannot_connect_fall_back)
{
    struct comm_communicator *half[RANKS];
    struct comm_request q[RANKS];
    uint32_t *memory[RANKS];

    open_all("nccl_fallback=yes,open_timeout=8s", NULL, false, &(struct mock_options){.seed = 1});
    mock_lose(2);
    for (int r = 0; r < RANKS; r++) {
        memory[r] = bench_memory(&bench[r], WORDS);
        MUST(comm_split(rig.world[r], r / 2, r, &half[r], &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct comm_info info = {.size = sizeof info};
        MUST(comm_describe(half[r], &info));
        EQUAL(info.device_order, r == 2);
        bench_fill(&bench[r], stream[r], memory[r], (uint32_t)r, WORDS);
        MUST(comm_queue_wait_stream(half[r], stream[r]));
        MUST(comm_allreduce(half[r], COMM_IN_PLACE, memory[r], WORDS, COMM_U32, COMM_SUM, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        uint32_t got[WORDS];
        bench_read(&bench[r], stream[r], got, memory[r], WORDS);
        EQUAL(got[WORDS - 1], r == 2 ? 2 : 1);
        MUST(comm_close(half[r], COMM_DEFAULT_TIMEOUT));
    }
    sum(memory);
    for (int r = 0; r < RANKS; r++)
        bench_free(&bench[r], memory[r]);
    close_all();
    EQUAL(said, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_device),
        cmocka_unit_test(memory_with_an_old_nccl),
        cmocka_unit_test(registered_memory),
        cmocka_unit_test(registered_memory_with_an_old_nccl),
        cmocka_unit_test(windows_and_factors_are_in_memory_of_the_host),
        cmocka_unit_test(ranks_that_share_a_device_fall_back),
        cmocka_unit_test(ranks_that_nccl_cannot_connect_fall_back),
        cmocka_unit_test(children_that_nccl_cannot_connect_fall_back),
        cmocka_unit_test(an_nccl_too_old_falls_back),
        cmocka_unit_test(an_nccl_that_does_not_work_falls_back),
    };
    return cmocka_run_group_tests_name("cuda_memory", tests, NULL, NULL);
}
