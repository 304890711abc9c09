/* One process per device, over the mock NCCL, whose ranks communicate in memory that the processes share. Also what happens where one rank
 * has no NCCL, or another one, and option nccl_fallback is given. */
#define _GNU_SOURCE
#include "../net/hosts.h"
#include "../proc/proc.h"
#include "clean.h"
#include "mock.h"
#include "process.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAUNCHES = 100 };

static const char *backend = "nccl"; /* set before the ranks are forked */

static enum comm_result open_rank(int32_t rank, int32_t ranks, int64_t timeout)
{
    char device[16];

    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 1 + rank % 8});
    mock_run(true);
    (void)ranks;
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", backend, 1); /* overrides the tcp of hosts_place */
    return comm_open(COMM_CONFIG(.device = device, .open_timeout_ns = timeout, .operation_timeout_ns = 30 * RIG_S, .error_text = my.text,
                                 .error_text_bytes = sizeof my.text),
                     &my.world);
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
    if (strcmp(info.backend, backend) != 0 || !info.device_buffers)
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

/* Backend cuda: sums and the graph are kernels that wait for the mailboxes of other processes; the rest is staged. */
RIG_TEST(a_process_for_each_device_with_kernels)
{
    proc_needs_shm();
    backend = "cuda";
    for (int32_t ranks = HAS_KERNELS ? 1 : RANKS_MOST + 1; ranks <= RANKS_MOST; ranks += rig_quick() ? 3 : 1) {
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

static void sum_and_look(struct comm_communicator *c, uint32_t want, bool is_staged)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q;

    MUST(comm_queue_wait_stream(c, my.stream));
    MUST(comm_allreduce(c, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
    expect(q, 0, want);
    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, is_staged ? COMM_INFO_STAGED : 0);
}

/* A communicator of several hosts stages; one within a host has kernels. */
static void within_hosts(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *near;
    struct comm_request q;

    (void)none;
    if (open_rank(rank, proc->ranks, 20 * RIG_S) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    make_buffers(rank);
    bench_fill(&my.bench, my.stream, my.in, (uint32_t)rank + 1, WORDS);
    sum_and_look(my.world, 10, true);
    MUST(comm_split(my.world, rank / 2, rank, &near, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    sum_and_look(near, rank / 2 ? 7 : 3, !HAS_KERNELS);
    MUST(comm_close(near, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(kernels_within_each_of_two_hosts)
{
    struct proc proc = {.raw = true};
    struct hosts h;

    backend = "cuda";
    hosts_open(&h, 2, 2);
    hosts_place(&h, &proc);
    proc_start(&proc, 4, within_hosts);
    proc_finish(&proc, -1, RIG_PATIENCE);
    hosts_close(&h);
}

/* ------------------------------------------------------------------------------------------------------------ one without NCCL */
enum { LACKS_DEVICE, LACKS_WORKING_NCCL, LACKS_VERSION, LACKS_CONNECTION, LACKS, LACKING_RANK = 2 };
static const char *const lacks_text[LACKS] = {"no device", "an NCCL that never connects", "another NCCL", "an NCCL that works only alone"};
static int lacking;
static int warned;

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    warned += level == COMM_LOG_WARNING && strstr(line, "nccl_fallback: ") != NULL;
}

/* The rank without a device has host buffers, the others stage theirs. Rank 0 says it, once. */
static void do_without(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct mock_options options = {.seed = (uint64_t)rank, .queues = 32};
    bool lacks = rank == LACKING_RANK, here = lacks && lacking == LACKS_DEVICE;
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q;
    uint32_t one = 1, sum = 0;

    (void)none;
    if (lacks && lacking == LACKS_DEVICE)
        options.devices = -1;
    if (lacks && lacking == LACKS_WORKING_NCCL)
        options.slow_join = -1;
    if (lacks && lacking == LACKS_VERSION)
        options.nccl = 22703;
    if (lacks && lacking == LACKS_CONNECTION)
        options.lost_rank = LACKING_RANK + 1;
    mock_reset(&options);
    mock_run(true);
    setenv("COMM_BACKEND", "nccl", 1);
    if (comm_open(COMM_CONFIG(.open_timeout_ns = 6 * RIG_S, .options = "nccl_fallback=yes", .log = hear, .error_text = my.text,
                              .error_text_bytes = sizeof my.text),
                  &my.world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    if (!here)
        make_buffers(rank);
    if (!here)
        bench_fill(&my.bench, my.stream, my.in, 1, WORDS);
    MUST(here ? COMM_OK : comm_queue_wait_stream(my.world, my.stream));
    MUST(comm_allreduce(my.world, here ? &one : my.in, here ? &sum : my.out, 1, COMM_U32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, here ? 0 : COMM_INFO_STAGED);
    if (!here)
        bench_read(&my.bench, my.stream, &sum, my.out, 1);
    EQUAL(sum, proc->ranks);
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    EQUAL(warned, rank == 0);
    if (!here)
        drop_buffers();
}

RIG_TEST(a_rank_without_a_device_or_a_working_nccl)
{
    proc_needs_shm();
    for (lacking = 0; lacking < LACKS; lacking++) {
        struct proc proc = {.raw = true};
        rig_note("rank %d has %s", LACKING_RANK, lacks_text[lacking]);
        proc_start(&proc, 4, do_without);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

static void differ(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)proc;
    (void)none;
    mock_reset(&(struct mock_options){.seed = 1, .nccl = rank == LACKING_RANK ? 22703 : 22809});
    setenv("COMM_BACKEND", "nccl", 1);
    IS(comm_open(COMM_CONFIG(.error_text = my.text, .error_text_bytes = sizeof my.text, .log = hear), &my.world), COMM_ERR_CONFIG);
    if (!strstr(my.text, "rank 0 has NCCL 2.28.9, rank 2 has NCCL 2.27.3; expected"))
        rig_die(__FILE__, __LINE__, "\"%s\"", my.text);
}

RIG_TEST(versions_that_differ_are_named)
{
    struct proc proc = {.raw = true};

    proc_needs_shm();
    proc_start(&proc, 3, differ);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* If a launcher started the program, it runs as one rank of the first test. */
static int by_launcher(void)
{
    struct proc proc = {.ranks = (int32_t)strtol(getenv("COMM_RANKS"), NULL, 10)};

    work(&proc, (int32_t)strtol(getenv("COMM_RANK"), NULL, 10), NULL);
    return 0;
}

int main(int count, char **arguments)
{
    if (getenv("COMM_RANK"))
        return by_launcher();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_for_each_device),
        cmocka_unit_test(a_process_for_each_device_with_kernels),
        cmocka_unit_test(ranks_of_two_hosts),
        cmocka_unit_test(kernels_within_each_of_two_hosts),
        cmocka_unit_test(a_rank_without_a_device_or_a_working_nccl),
        cmocka_unit_test(versions_that_differ_are_named),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_process", tests, NULL, NULL);
}
