/*
 * One process per device, over the mock NCCL, whose ranks communicate in memory that the processes share. Tests all collectives. Also kills
 * one process at each stage of its life. The other ranks must get the error within a second.
 */
#define _GNU_SOURCE
#include "../net/hosts.h"
#include "../proc/proc.h"
#include "bench.h"
#include "mock.h"
#include "now.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MOST = 8, WORDS = 64, OPENED = 1, WORKS = 2, LAUNCHES = 100 };
static struct rank {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
    char text[512];
} my;

static enum comm_result open_rank(int32_t rank, int32_t ranks, int64_t timeout)
{
    char device[16];

    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 1 + rank % 8});
    mock_run(true);
    (void)ranks;
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", "nccl", 1); /* overrides the tcp of hosts_place */
    return comm_open(COMM_CONFIG(.backend = "nccl", .device = device, .open_timeout_ns = timeout, .operation_timeout_ns = 30 * RIG_S,
                                 .error_text = my.text, .error_text_bytes = sizeof my.text),
                     &my.world);
}

static void make_buffers(int32_t rank)
{
    bench_open(&my.bench, rank);
    my.stream = bench_stream(&my.bench);
    my.in = bench_memory(&my.bench, WORDS * RANKS_MOST);
    my.out = bench_memory(&my.bench, WORDS * RANKS_MOST);
}

static void drop_buffers(void)
{
    bench_free(&my.bench, my.in);
    bench_free(&my.bench, my.out);
    bench_drop_stream(&my.bench, my.stream);
    bench_close(&my.bench);
    mock_run(false);
    if (mock_misused())
        rig_die(__FILE__, __LINE__, "%s", mock_misused());
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static void expect(struct comm_request q, size_t at, uint32_t want)
{
    uint32_t got[WORDS * RANKS_MOST];

    MUST(comm_wait(q, RIG_PATIENCE));
    bench_read(&my.bench, my.stream, got, my.out, WORDS * RANKS_MOST);
    for (size_t i = 0; i < WORDS; i++)
        EQUAL(got[at + i], want);
}

/* ------------------------------------------------------------------------------------------------------------ all is well */
/* A graph that sums, launched many times: the result of a launch is the next one's input. */
static void launch_graph(uint32_t n)
{
    struct comm_options options = {.size = sizeof options, .stream = my.stream};
    struct comm_communicator *c;
    struct comm_request q;
    struct bench_graph graph;
    uint32_t want = 1, got;

    MUST(comm_dup(my.world, &options, &c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    bench_fill(&my.bench, my.stream, my.in, want, WORDS);
    bench_capture(&my.bench, my.stream);
    MUST(comm_allreduce(c, COMM_IN_PLACE, my.in, WORDS, COMM_U32, COMM_SUM, NULL));
    bench_end_capture(&my.bench, my.stream, &graph);
    for (int i = 0; i < LAUNCHES; i++) {
        bench_launch(&my.bench, &graph, my.stream);
        want *= n;
    }
    bench_read(&my.bench, my.stream, &got, my.in, 1);
    EQUAL(got, want);
    bench_drop_graph(&my.bench, &graph);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
}

static void work(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    uint32_t n = (uint32_t)proc->ranks, me = (uint32_t)rank;
    struct comm_request q;
    struct comm_info info = {.size = sizeof info};

    (void)none;
    if (open_rank(rank, proc->ranks, 20 * RIG_S) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    MUST(comm_describe(my.world, &info));
    if (strcmp(info.backend, "nccl") != 0 || !info.device_buffers)
        rig_die(__FILE__, __LINE__, "the backend is %s", info.backend);
    make_buffers(rank);
    for (uint32_t round = 0; round < 5; round++) {
        bench_fill(&my.bench, my.stream, my.in, round + me + 1, WORDS * n);
        MUST(comm_queue_wait_stream(my.world, my.stream));
        MUST(comm_allreduce(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        expect(q, 0, n * round + n * (n + 1) / 2);
        MUST(comm_alltoall(my.world, my.in, my.out, WORDS, COMM_U32, &q));
        for (uint32_t r = 0; r < n; r++)
            expect(q, r * WORDS, round + r + 1);
        MUST(comm_scan(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        expect(q, 0, (me + 1) * round + (me + 1) * (me + 2) / 2);
        MUST(comm_gather(my.world, my.in, my.out, WORDS, COMM_U32, (int32_t)(round % n), &q));
        if (me == round % n)
            expect(q, (n - 1) * WORDS, round + n);
        MUST(comm_wait(q, RIG_PATIENCE));
    }
    launch_graph(n);
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(a_process_for_each_device)
{
    proc_needs_shm();
    for (int32_t ranks = 1; ranks <= (rig_quick() ? 4 : RANKS_MOST); ranks++) {
        struct proc proc = {.raw = true};
        rig_note("%d ranks", ranks);
        proc_start(&proc, ranks, work);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

/* The hosts exchange ids and calls over TCP, and NCCL has one communicator. */
RIG_TEST(ranks_of_two_hosts)
{
    struct proc proc = {.raw = true};
    struct hosts h;

    hosts_open(&h, 2, 2);
    hosts_place(&h, &proc);
    proc_start(&proc, 4, work);
    proc_finish(&proc, -1, RIG_PATIENCE);
    hosts_close(&h);
}

/* ------------------------------------------------------------------------------------------------------------ one is killed */
static const struct stage {
    const char *name, *call; /* NULL: in the middle of an operation */
    int32_t victim;
} stages[] = {{"id", "ncclGetUniqueId", 0},
              {"init", "ncclCommInitRankConfig", 2},
              {"init", "ncclCommInitRankConfig", 0},
              {"split", "ncclCommSplit", 1},
              {"warm-up", "ncclGroupEnd", 3},
              {"warm-up, at the sum", "ncclAllReduce", 1},
              {"in the middle of an operation", NULL, 2},
              {"close", "ncclCommDestroy", 1}};
enum { STAGES = sizeof stages / sizeof *stages, RANKS = 4 };
static const struct stage *now; /* set before the ranks are forked */

static void die(void *page)
{
    atomic_store(&((struct proc_page *)page)->time, rig_now());
    kill(getpid(), SIGKILL);
}

static void hush(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static void end(struct comm_communicator *world)
{
    int64_t start = rig_now();

    (void)!comm_close(world, 2 * RIG_S);
    CHECK(rig_now() - start < 4 * RIG_S);
}

/* The ranks that are left go on, on a communicator of their own, whose children use NCCL again. */
static void go_on(const struct proc *proc, int32_t rank, const struct stage *stage)
{
    struct comm_communicator *left, *dup;
    struct comm_request q;
    uint32_t sum = 0;

    for (int32_t r = 0; r < proc->ranks; r++)
        sum += r == stage->victim ? 0 : (uint32_t)r + 1;
    MUST(comm_shrink(my.world, &left, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(comm_size(left), proc->ranks - 1);
    MUST(NOW(comm_dup, left, NULL, &dup));
    bench_fill(&my.bench, my.stream, my.in, (uint32_t)rank + 1, WORDS);
    MUST(comm_queue_wait_stream(dup, my.stream));
    MUST(comm_allreduce(dup, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
    expect(q, 0, sum);
    MUST(comm_close(dup, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(left, COMM_DEFAULT_TIMEOUT));
}

static void operate(struct proc *proc, int32_t rank, const struct stage *stage)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_request q;

    make_buffers(rank);
    for (int i = 0; i < 3; i++) {
        MUST(comm_allreduce(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
    }
    if (!stage->call && rank == stage->victim) {
        rig_nap(50 * RIG_MS); /* the other ranks' operations are on their streams */
        die(page);
    }
    if (!stage->call) {
        MUST(comm_allreduce(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        enum comm_result r = comm_wait(q, RIG_PATIENCE);
        proc_tell_failure(page, my.world, r);
        go_on(proc, rank, stage);
    }
    end(my.world);
    drop_buffers();
}

static void be_killed(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    const struct stage *stage = now;
    struct proc_page *page = &proc->page[rank];
    char device[16];

    (void)none;
    if (rank == stage->victim && stage->call)
        mock_at(stage->call, die, page);
    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 2});
    mock_run(true);
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", "nccl", 1);
    enum comm_result r =
        comm_open(COMM_CONFIG(.backend = "nccl", .device = device, .open_timeout_ns = 20 * RIG_S, .operation_timeout_ns = 30 * RIG_S,
                              .error_text = my.text, .error_text_bytes = sizeof my.text, .log = hush),
                  &my.world);
    if (r == COMM_OK) {
        operate(proc, rank, stage);
        return;
    }
    atomic_store(&page->time, rig_now());
    atomic_store(&page->result, r);
    mock_run(false);
    mock_drain();
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

static void check_told(struct proc *proc, const struct stage *stage)
{
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc->page[r];
        if (r == stage->victim || (stage->call && strcmp(stage->call, "ncclCommDestroy") == 0))
            continue;
        if (page->result != COMM_ERR_PEER)
            rig_die(__FILE__, __LINE__, "rank %d was told %s: %s", r, comm_result_text((enum comm_result)page->result), page->text);
        int64_t took = page->time - proc->page[stage->victim].time;
        if (took > RIG_S + proc->stood_ns)
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms", r, (long long)(took / RIG_MS));
    }
}

static void kill_at_every_stage(struct hosts *hosts)
{
    for (size_t i = 0; i < STAGES; i++) {
        struct proc proc = {.raw = true};
        now = &stages[i];
        rig_note("rank %d is killed: %s", now->victim, now->name);
        if (hosts)
            hosts_place(hosts, &proc);
        proc_start(&proc, RANKS, be_killed);
        proc_finish(&proc, now->victim, RIG_PATIENCE);
        check_told(&proc, now);
    }
}

RIG_TEST(contract_4_1_a_process_is_killed_at_every_stage)
{
    proc_needs_shm();
    kill_at_every_stage(NULL);
}

RIG_TEST(contract_4_1_a_process_of_two_hosts_is_killed)
{
    struct hosts h;

    hosts_open(&h, 2, RANKS / 2);
    kill_at_every_stage(&h);
    hosts_close(&h);
}

/* If a launcher started the program, it runs as one rank of the first test. */
static int by_launcher(void)
{
    struct proc proc = {.ranks = (int32_t)strtol(getenv("COMM_RANKS"), NULL, 10)};

    work(&proc, (int32_t)strtol(getenv("COMM_RANK"), NULL, 10), NULL);
    return 0;
}

int main(void)
{
    if (getenv("COMM_RANK"))
        return by_launcher();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_for_each_device),
        cmocka_unit_test(ranks_of_two_hosts),
        cmocka_unit_test(contract_4_1_a_process_is_killed_at_every_stage),
        cmocka_unit_test(contract_4_1_a_process_of_two_hosts_is_killed),
    };
    return cmocka_run_group_tests_name("cuda_process", tests, NULL, NULL);
}
