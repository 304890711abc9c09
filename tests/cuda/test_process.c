/*
 * One process per device, over the mock NCCL, whose ranks communicate in memory that the processes share. Tests all collectives. Also kills
 * one process at each stage of its life. The other ranks must get the error within a second.
 */
#define _GNU_SOURCE
#include "../net/hosts.h"
#include "../proc/proc.h"
#include "bench.h"
#include "clean.h"
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
    clean_end();
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

/* ------------------------------------------------------------------------------------------------------------ one is killed */
/* The victim dies as it begins a call of the driver or of NCCL: the `nth` of its name from `from` on. */
enum from { AT_OPEN, AT_FIRST, AT_LATER, AT_CLOSE };
static const struct stage {
    const char *name, *call; /* call NULL: in the middle of an operation */
    enum from from;
    int nth;
    int32_t victim;
} nccl_stages[] = {{"id", "ncclGetUniqueId", AT_OPEN, 1, 0},
                   {"init", "ncclCommInitRankConfig", AT_OPEN, 1, 2},
                   {"init", "ncclCommInitRankConfig", AT_OPEN, 1, 0},
                   {"split", "ncclCommSplit", AT_OPEN, 1, 1},
                   {"warm-up", "ncclGroupEnd", AT_OPEN, 1, 3},
                   {"warm-up, at the sum", "ncclAllReduce", AT_OPEN, 1, 1},
                   {"in the middle of an operation", NULL, AT_LATER, 0, 2},
                   {"close", "ncclCommDestroy", AT_CLOSE, 1, 1}},
  staged_stages[] = {{"making a stage", "cuMemHostRegister", AT_FIRST, 1, 1},
                     {"fetch", "cuMemcpyAsync", AT_LATER, 1, 0},
                     {"the word behind a fetch", "cuStreamWriteValue64", AT_LATER, 1, 3},
                     {"store", "cuMemcpyAsync", AT_LATER, 2, 2},
                     {"in the middle of an operation", NULL, AT_LATER, 0, 1},
                     {"close", "cuMemHostUnregister", AT_CLOSE, 1, 2}};
#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { RANKS = 4 };
/* Set before the ranks are forked. */
static const struct stage *now;
static const char *backend;
static int until_death;

static void die(void *page)
{
    atomic_store(&((struct proc_page *)page)->time, rig_now());
    kill(getpid(), SIGKILL);
}

static void die_in_time(void *page)
{
    if (--until_death == 0)
        die(page);
}

static void reach(enum from from, struct proc_page *page, int32_t rank)
{
    if (rank != now->victim || from != now->from || !now->call)
        return;
    until_death = now->nth;
    mock_at(now->call, die_in_time, page);
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
    enum comm_result r = comm_close(world, 2 * RIG_S);

    CHECK(r == COMM_OK || r == COMM_ERR_PEER || r == COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 4 * RIG_S);
}

static void sum_of_those_left(struct comm_communicator *c, int32_t rank, uint32_t sum, bool staged)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q;

    bench_fill(&my.bench, my.stream, my.in, (uint32_t)rank + 1, WORDS);
    MUST(comm_queue_wait_stream(c, my.stream));
    MUST(comm_allreduce(c, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
    expect(q, 0, sum);
    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, staged ? COMM_INFO_STAGED : 0);
}

/* The ranks that are left go on, on a communicator of their own, which stages; its children use NCCL again. */
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
    sum_of_those_left(left, rank, sum, true);
    sum_of_those_left(dup, rank, sum, strcmp(backend, "nccl") != 0);
    MUST(comm_close(dup, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(left, COMM_DEFAULT_TIMEOUT));
}

static enum comm_result sum_up(void)
{
    struct comm_request q;
    enum comm_result r = comm_allreduce(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q);

    return r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
}

/* A victim at its store has given what the others need, so they may learn of its death in a later sum. */
static void operate(struct proc *proc, int32_t rank, const struct stage *stage)
{
    struct proc_page *page = &proc->page[rank];
    enum comm_result r = COMM_OK;

    make_buffers(rank);
    reach(AT_FIRST, page, rank);
    for (int i = 0; i < 3 && r == COMM_OK; i++)
        r = sum_up();
    reach(AT_LATER, page, rank);
    if (!stage->call && rank == stage->victim) {
        rig_nap(50 * RIG_MS); /* the other ranks' operations are under way */
        die(page);
    }
    if (stage->from != AT_CLOSE) {
        while (r == COMM_OK)
            r = sum_up();
        proc_tell_failure(page, my.world, r);
        go_on(proc, rank, stage);
    }
    reach(AT_CLOSE, page, rank);
    end(my.world);
    drop_buffers();
}

/* Asking about the backend loads the module, which stays loaded. */
static struct proc_held hold_with_module(void)
{
    struct comm_backend_info info = {.size = sizeof info};

    for (size_t i = 0; strcmp(info.name, "nccl") != 0; i++)
        MUST(comm_describe_backend(i, &info));
    CHECK(info.available);
    return proc_hold();
}

static void be_killed(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct proc_page *page = &proc->page[rank];
    char device[16];

    (void)none;
    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = strcmp(backend, "nccl") == 0 ? 2 : 32});
    mock_run(true);
    struct proc_held before = hold_with_module();
    reach(AT_OPEN, page, rank);
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", backend, 1);
    enum comm_result r = comm_open(COMM_CONFIG(.device = device, .open_timeout_ns = 20 * RIG_S, .operation_timeout_ns = 30 * RIG_S,
                                               .error_text = my.text, .error_text_bytes = sizeof my.text, .log = hush),
                                   &my.world);
    if (r == COMM_OK) {
        operate(proc, rank, now);
        before.threads--; /* the device's */
    } else {
        atomic_store(&page->time, rig_now());
        atomic_store(&page->result, r);
        snprintf(page->text, sizeof page->text, "%s", my.text);
        mock_run(false);
        before.threads--;
        mock_drain();
        if (mock_live())
            mock_list_live();
        EQUAL(mock_live(), 0);
    }
    proc_holds_as(&before);
}

static void check_told(struct proc *proc, const struct stage *stage)
{
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc->page[r];
        if (r == stage->victim || stage->from == AT_CLOSE)
            continue;
        if (page->result != COMM_ERR_PEER)
            rig_die(__FILE__, __LINE__, "rank %d was told %s: %s", r, comm_result_text((enum comm_result)page->result), page->text);
        int64_t took = page->time - proc->page[stage->victim].time;
        if (took > RIG_S + proc->stood_ns)
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms", r, (long long)(took / RIG_MS));
    }
    if (proc->page[stage->victim].time == 0)
        rig_die(__FILE__, __LINE__, "rank %d was not killed", stage->victim);
    EQUAL(proc_names(proc), 0);
}

static void kill_at_every_stage(const char *name, const struct stage *stages, size_t count, struct hosts *hosts)
{
    size_t apart = rig_quick() && (hosts || !strcmp(name, "tcp")) ? 2 : 1; /* a sanitizer has seen all stages of this host */

    backend = name;
    for (size_t i = 0; i < count; i += apart) {
        struct proc proc = {.raw = true};
        now = &stages[i];
        rig_note("%s: rank %d is killed: %s", backend, now->victim, now->name);
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
    kill_at_every_stage("nccl", nccl_stages, COUNT(nccl_stages), NULL);
}

RIG_TEST(contract_4_1_a_process_with_staged_buffers_is_killed)
{
    proc_needs_shm();
    kill_at_every_stage("shm", staged_stages, COUNT(staged_stages), NULL);
    kill_at_every_stage("tcp", staged_stages, COUNT(staged_stages), NULL);
}

RIG_TEST(contract_4_1_a_process_of_two_hosts_is_killed)
{
    struct hosts h;

    hosts_open(&h, 2, RANKS / 2);
    kill_at_every_stage("nccl", nccl_stages, COUNT(nccl_stages), &h);
    hosts_close(&h);
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
        cmocka_unit_test(ranks_of_two_hosts),
        cmocka_unit_test(a_rank_without_a_device_or_a_working_nccl),
        cmocka_unit_test(versions_that_differ_are_named),
        cmocka_unit_test(contract_4_1_a_process_is_killed_at_every_stage),
        cmocka_unit_test(contract_4_1_a_process_with_staged_buffers_is_killed),
        cmocka_unit_test(contract_4_1_a_process_of_two_hosts_is_killed),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_process", tests, NULL, NULL);
}
