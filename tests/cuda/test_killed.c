/*
 * Processes on mock devices, of which one is killed at each stage of its life: the others must get the error within a second, shrink, and
 * go on. Also what a shrink does if a rank dies while NCCL connects the survivors, or if NCCL cannot connect them.
 */
#define _GNU_SOURCE
#include "../net/hosts.h"
#include "../proc/proc.h"
#include "clean.h"
#include "mock.h"
#include "now.h"
#include "process.h"

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

/* ------------------------------------------------------------------------------------------------------------ one is killed */
/* The victim dies as it begins a call of the driver or of NCCL: the `nth` of its name from `from` on. */
enum from { AT_OPEN, AT_FIRST, AT_LATER, AT_LONG, AT_DUP, AT_SHRINK, AT_CLOSE };
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
                   {"split of a dup", "ncclCommSplit", AT_DUP, 1, 2},
                   {"warm-up of a dup", "ncclGroupEnd", AT_DUP, 1, 0},
                   {"close", "ncclCommDestroy", AT_CLOSE, 1, 1}},
  staged_stages[] = {{"making a stage", "cuMemHostRegister", AT_FIRST, 1, 1},
                     {"fetch", "cuMemcpyAsync", AT_LATER, 1, 0},
                     {"the word behind a fetch", "cuStreamWriteValue64", AT_LATER, 1, 3},
                     {"store", "cuMemcpy2DAsync", AT_LATER, 1, 2},
                     {"in the middle of an operation", NULL, AT_LATER, 0, 1},
                     {"close", "cuMemHostUnregister", AT_CLOSE, 1, 2}},
  cuda_stages[] = {{"pinning a mailbox", "cuMemHostRegister", AT_OPEN, 2, 2},
                   {"giving its memory to a peer", "cuMemExportToShareableHandle", AT_OPEN, 2, 0},
                   {"taking a peer's memory", "cuMemImportFromShareableHandle", AT_OPEN, 1, 3},
                   {"the first trial", "cuLaunchKernel", AT_OPEN, 1, 1},
                   {"the second trial", "cuLaunchKernel", AT_OPEN, 2, 2},
                   {"the sum of the trials", "cuMemcpyAsync", AT_OPEN, 1, 0},
                   {"the first launch", "cuLaunchKernel", AT_FIRST, 1, 1},
                   {"a later launch", "cuLaunchKernel", AT_LATER, 1, 3},
                   {"in the middle of an operation", NULL, AT_LATER, 0, 0},
                   {"send of a long sum", "cuMemcpyAsync", AT_LONG, 1, 2},
                   {"reduction of a long sum", "cuLaunchKernel", AT_LONG, 2, 1},
                   {"the word behind a step of a long sum", "cuStreamWriteValue64", AT_LONG, 5, 3},
                   {"pinning a mailbox of a dup", "cuMemHostRegister", AT_DUP, 1, 1},
                   {"a trial of a dup", "cuLaunchKernel", AT_DUP, 1, 3},
                   {"close", "cuMemHostUnregister", AT_CLOSE, 1, 1},
                   {"unmapping a peer's memory", "cuMemUnmap", AT_CLOSE, 1, 2}},
  shrink_stages[] = {{"id", "ncclGetUniqueId", AT_SHRINK, 1, 0},
                     {"init", "ncclCommInitRankConfig", AT_SHRINK, 1, 2},
                     {"split", "ncclCommSplit", AT_SHRINK, 1, 1},
                     {"warm-up", "ncclGroupEnd", AT_SHRINK, 1, 3}};
#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { RANKS = 4, LONG_WORDS = 100000 };
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

/* A shrink that succeeds leaves no error behind; the communicator that it copied is gone. */
static void hush(void *arg, int level, const char *line)
{
    (void)arg;
    if (level == COMM_LOG_ERROR && strstr(line, "/shrunk.") && now->from != AT_SHRINK)
        rig_die(__FILE__, __LINE__, "logged after a shrink: %s", line);
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

/* The ranks that are left go on, on a communicator of their own. lost: of -1, none. */
static void go_on(const struct proc *proc, int32_t rank, int32_t lost, bool staged)
{
    struct comm_communicator *left, *dup;
    struct comm_request q;
    uint32_t sum = 0;

    for (int32_t r = 0; r < proc->ranks; r++)
        sum += r == lost ? 0 : (uint32_t)r + 1;
    MUST(comm_shrink(my.world, &left, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(comm_size(left), proc->ranks - (lost >= 0));
    mock_lose(0);
    MUST(NOW(comm_dup, left, NULL, &dup));
    sum_of_those_left(left, rank, sum, staged);
    sum_of_those_left(dup, rank, sum, strcmp(backend, "nccl") != 0 && strcmp(backend, "cuda") != 0);
    MUST(comm_close(dup, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(left, COMM_DEFAULT_TIMEOUT));
}

static enum comm_result sum_of(const uint32_t *in, uint32_t *out, size_t words)
{
    struct comm_request q;
    enum comm_result r = comm_allreduce(my.world, in, out, words, COMM_U32, COMM_SUM, &q);

    return r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
}

static enum comm_result sum_up(void)
{
    return sum_of(my.in, my.out, WORDS);
}

/* Until a rank is killed. */
static enum comm_result sum_long(void)
{
    uint32_t *in = bench_memory(&my.bench, LONG_WORDS), *out = bench_memory(&my.bench, LONG_WORDS);
    enum comm_result r = COMM_OK;

    while (r == COMM_OK)
        r = sum_of(in, out, LONG_WORDS);
    bench_free(&my.bench, in);
    bench_free(&my.bench, out);
    return r;
}

/* A rank that has its dup may learn of the death later. */
static enum comm_result dup_once(void)
{
    struct comm_communicator *dup = NULL;
    struct comm_request q;
    enum comm_result r = comm_dup(my.world, NULL, &dup, &q);

    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    if (dup)
        end(dup);
    return r;
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
    reach(AT_LONG, page, rank);
    reach(AT_DUP, page, rank);
    if (stage->from == AT_LONG)
        r = sum_long();
    if (stage->from == AT_DUP)
        r = dup_once();
    if (!stage->call && rank == stage->victim) {
        rig_nap(50 * RIG_MS); /* the other ranks' operations are under way */
        die(page);
    }
    if (stage->from != AT_CLOSE) {
        while (r == COMM_OK)
            r = sum_up();
        proc_tell_failure(page, my.world, r);
        go_on(proc, rank, stage->victim, strcmp(backend, "nccl") != 0 && strcmp(backend, "cuda") != 0);
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

/* While the others' kernels wait for it, or before it launches its own. */
RIG_TEST(contract_4_1_a_process_with_kernels_is_killed)
{
    proc_needs_shm();
    if (HAS_KERNELS)
        kill_at_every_stage("cuda", cuda_stages, COUNT(cuda_stages), NULL);
}

RIG_TEST(contract_4_1_a_process_of_two_hosts_is_killed)
{
    struct hosts h;

    hosts_open(&h, 2, RANKS / 2);
    kill_at_every_stage("nccl", nccl_stages, COUNT(nccl_stages), &h);
    hosts_close(&h);
}

/* ------------------------------------------------------------------------------------------------------------ NCCL after a shrink */
/* All ranks revoke the world and shrink it. While NCCL connects them again, the victim dies, or cannot be connected. */
static void shrink(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 32});
    mock_run(true);
    setenv("COMM_BACKEND", "nccl", 1);
    MUST(comm_open(COMM_CONFIG(.open_timeout_ns = 6 * RIG_S, .operation_timeout_ns = 30 * RIG_S, .log = hush), &my.world));
    make_buffers(rank);
    MUST(comm_revoke(my.world));
    reach(AT_SHRINK, &proc->page[rank], rank);
    if (!now->call && rank == now->victim)
        mock_lose(rank + 1);
    go_on(proc, rank, now->call ? now->victim : -1, !now->call);
    end(my.world);
    drop_buffers();
}

RIG_TEST(a_process_is_killed_while_a_shrink_connects_nccl)
{
    proc_needs_shm();
    backend = "nccl";
    for (size_t i = 0; i < COUNT(shrink_stages); i++) {
        struct proc proc = {.raw = true};
        now = &shrink_stages[i];
        rig_note("rank %d is killed: %s", now->victim, now->name);
        proc_start(&proc, RANKS, shrink);
        proc_finish(&proc, now->victim, RIG_PATIENCE);
        CHECK(proc.page[now->victim].time != 0);
        EQUAL(proc_names(&proc), 0);
    }
}

/* Then the survivors have a communicator all the same, and it stages. */
RIG_TEST(a_shrink_that_cannot_connect_nccl)
{
    static const struct stage cannot = {.name = "not connected", .from = AT_SHRINK, .victim = 2};
    struct proc proc = {.raw = true};

    proc_needs_shm();
    backend = "nccl";
    now = &cannot;
    proc_start(&proc, RANKS, shrink);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_1_a_process_is_killed_at_every_stage),
        cmocka_unit_test(contract_4_1_a_process_with_staged_buffers_is_killed),
        cmocka_unit_test(contract_4_1_a_process_with_kernels_is_killed),
        cmocka_unit_test(contract_4_1_a_process_of_two_hosts_is_killed),
        cmocka_unit_test(a_process_is_killed_while_a_shrink_connects_nccl),
        cmocka_unit_test(a_shrink_that_cannot_connect_nccl),
    };
    return cmocka_run_group_tests_name("cuda_killed", tests, NULL, NULL);
}
