/*
 * Ranks as processes over shared memory: the same bits as in one process, ranks that die or stop at several moments, ranks that leave, and
 * leaks.
 */
#define _GNU_SOURCE
#include "proc/bits.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 10 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif
#define TOLD (INT64_C(1) << 40) /* the stage of a rank that reported a failure */

/* ------------------------------------------------------------------------------------------------------------ the same bits */
/* The parent opens nothing while it still forks. */
RIG_TEST(processes_have_the_bits_of_one_process)
{
    static struct proc proc[5];
    proc_needs_shm();
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        rig_note("%d ranks", ranks);
        proc_start(&proc[ranks - 1], ranks, bits_run);
        proc_finish(&proc[ranks - 1], -1, 3 * RIG_PATIENCE);
    }
    for (int32_t ranks = 1; ranks <= 5; ranks++)
        bits_compare(&proc[ranks - 1]);
}

/* ------------------------------------------------------------------------------------------------------------ deaths */
/* Computes sums until one fails, and reports the failure. */
static void sum_until_failure(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    static float in[3000], out[3000];
    for (int64_t i = 0;; i++) {
        struct comm_request request;
        size_t n = i % 7 == 0 ? 3000 : 2;
        in[0] = (float)(rank + i % 100);
        enum comm_result result = comm_allreduce(world, in, out, n, COMM_F32, COMM_SUM, &request);
        if (result == COMM_OK)
            result = comm_wait(request, RIG_PATIENCE);
        if (result != COMM_OK) {
            proc_tell_failure(page, world, result);
            break;
        }
        CHECK(out[0] == (float)(proc->ranks * (proc->ranks - 1) / 2) + (float)(proc->ranks * (i % 100)));
        atomic_fetch_add(&page->stage, 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

/* All survivors report the same cause with that rank. */
static void check_survivors(struct proc *proc, int32_t victim, int64_t since, enum comm_result want)
{
    int32_t first = victim == 0 ? 1 : 0;
    for (int32_t r = 0; r < proc->ranks; r++) {
        struct proc_page *page = &proc->page[r], *other = &proc->page[first];
        if (r == victim)
            continue;
        if (page->result != (int32_t)want || page->rank != victim)
            rig_die(__FILE__, __LINE__, "rank %d was told %s of rank %d, must be %s of rank %d: %s", r,
                    comm_result_name((enum comm_result)page->result), page->rank, comm_result_name(want), victim, page->text);
        if (page->time - since - proc->stood_ns >=
            /* The contract allows 1 s. The limit is lower, so that a check once per second cannot pass for a notice. */
            4 * RIG_S / 5)
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms", r, (long long)((page->time - since) / RIG_MS));
        EQUAL(page->sequence, other->sequence);
        CHECK(strcmp(page->cause, other->cause) == 0 && strcmp(page->operation, other->operation) == 0);
    }
}

static void kill_at(int32_t ranks, int32_t victim, int64_t stage)
{
    struct proc proc = {0};
    rig_note("%d ranks, rank %d killed at its sum %lld", ranks, victim, (long long)stage);
    proc_start(&proc, ranks, sum_until_failure);
    proc_await(&proc, victim, stage);
    int64_t since = rig_now();
    kill(proc.pid[victim], SIGKILL);
    proc_finish(&proc, victim, RIG_PATIENCE);
    check_survivors(&proc, victim, since, COMM_ERR_PEER);
}

RIG_TEST(processes_killed_in_a_stream)
{
    static const int64_t stages[] = {1, 40, 700};
    proc_needs_shm();
    for (int32_t victim = 0; victim < 4; victim++) {
        for (int s = 0; s < (rig_quick() ? 1 : 3); s++)
            kill_at(victim % 2 ? 4 : 3, victim % 2 ? victim : victim / 2, stages[s]);
    }
}

/* The victim waits inside the library, or has made no call at all. The others start the same operation after it is dead. */
static void meet_late(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_request request;
    bool victim = rank == (int32_t)page->number[0];
    atomic_store(&page->stage, 1);
    if (victim && page->number[1] == 0)
        rig_nap(RIG_PATIENCE);
    while (!victim && atomic_load(proc->go) == 0)
        rig_nap(RIG_MS);
    enum comm_result result = COMM_OK;
    for (int i = 0; i < 2 && result == COMM_OK; i++) { /* the first may succeed: the victim had already done its part */
        result = comm_barrier(world, &request);
        if (result == COMM_OK)
            result = comm_wait(request, RIG_PATIENCE);
    }
    proc_tell_failure(page, world, result);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void meet_late_numbered(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    while (atomic_load(&proc->page[rank].number[2]) == 0)
        rig_nap(RIG_MS);
    meet_late(proc, rank, world);
}

static void set_numbers(struct proc *proc, int32_t victim, int64_t inside)
{
    for (int32_t r = 0; r < proc->ranks; r++) {
        proc->page[r].number[0] = victim;
        proc->page[r].number[1] = inside;
        atomic_store(&proc->page[r].number[2], 1);
    }
}

RIG_TEST(processes_killed_before_and_inside_a_wait)
{
    proc_needs_shm();
    for (int32_t k = 0; k < 6; k++) {
        struct proc proc = {0};
        int32_t victim = k % 3;
        rig_note("rank %d killed %s", victim, k / 3 ? "inside a wait" : "before any call");
        proc_start(&proc, 3, meet_late_numbered);
        set_numbers(&proc, victim, k / 3);
        for (int32_t r = 0; r < 3; r++)
            proc_await(&proc, r, 1);
        rig_nap(100 * RIG_MS);
        kill(proc.pid[victim], SIGKILL);
        rig_nap(50 * RIG_MS);
        int64_t since = rig_now();
        atomic_store(proc.go, 1);
        proc_finish(&proc, victim, RIG_PATIENCE);
        check_survivors(&proc, victim, since, COMM_ERR_PEER);
    }
}

/* Two ranks die at once: all survivors report the same one. */
RIG_TEST(processes_two_killed_at_once)
{
    proc_needs_shm();
    struct proc proc = {0};
    proc_start(&proc, 5, sum_until_failure);
    for (int32_t r = 0; r < 5; r++)
        proc_await(&proc, r, 20);
    kill(proc.pid[1], SIGKILL);
    kill(proc.pid[4], SIGKILL);
    for (int32_t r = 0; r < 5; r++) {
        if (r == 1 || r == 4)
            continue;
        for (int64_t end = rig_now() + 3 * RIG_S; atomic_load(&proc.page[r].stage) < TOLD && rig_now() < end;)
            rig_nap(RIG_MS);
        EQUAL(proc.page[r].result, COMM_ERR_PEER);
        EQUAL(proc.page[r].rank, proc.page[0].rank);
        CHECK(proc.page[r].rank == 1 || proc.page[r].rank == 4);
    }
    for (int32_t r = 0; r < 5; r++)
        kill(proc.pid[r], SIGKILL);
}

/* ------------------------------------------------------------------------------------------------------------ stopped ranks, and ranks
 * that leave */
/* Rank 0 alone looks at *go, and tells the others in the sum itself; so all ranks end after the same one. */
static void sum_a_while(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static float in[20000], out[20000];
    for (int64_t i = 0; out[1] == 0; i++) {
        struct comm_request request;
        for (size_t k = 0; k < 20000; k += 997)
            in[k] = (float)(rank + 1) + (float)(i % 50);
        in[1] = rank == 0 && atomic_load(proc->go);
        MUST(comm_allreduce(world, in, out, i % 3 ? 5 : 20000, COMM_F32, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        float want = (float)(proc->ranks * (proc->ranks + 1) / 2) + (float)(proc->ranks * (i % 50));
        CHECK(out[0] == want && (i % 3 || out[997 * 20] == want));
        atomic_store(&proc->page[rank].stage, i + 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_a_stopped_rank_comes_back)
{
    proc_needs_shm();
    struct proc proc = {0};
    proc_start(&proc, 3, sum_a_while);
    for (int32_t victim = 0; victim < 3; victim += 2) {
        int64_t before = atomic_load(&proc.page[victim].stage);
        proc_await(&proc, victim, before + 50);
        kill(proc.pid[victim], SIGSTOP);
        rig_nap(RIG_S);
        int64_t stopped = atomic_load(&proc.page[victim].stage);
        kill(proc.pid[victim], SIGCONT);
        proc_await(&proc, victim, stopped + 50);
    }
    atomic_store(proc.go, 1);
    proc_finish(&proc, -1, 3 * RIG_PATIENCE);
}

/* Rank 1 leaves without the call that the others make: it closes, or it exits without a close. */
static void leave_early(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_request request;
    MUST(comm_barrier(world, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    atomic_store(&page->stage, 1);
    if (rank == 1) {
        while (atomic_load(proc->go) == 0)
            rig_nap(RIG_MS);
        if (atomic_load(proc->go) == 2)
            syscall(SYS_exit_group, 0); /* at once: the _exit of a sanitizer sleeps first */
        MUST(comm_close(world, RIG_PATIENCE));
        return;
    }
    MUST(comm_barrier(world, &request));
    proc_tell_failure(page, world, comm_wait(request, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_a_rank_leaves_without_a_call)
{
    proc_needs_shm();
    for (int64_t how = 1; how <= 2; how++) {
        struct proc proc = {0};
        rig_note("rank 1 leaves by %s", how == 1 ? "close" : "ending");
        proc_start(&proc, 3, leave_early);
        for (int32_t r = 0; r < 3; r++)
            proc_await(&proc, r, 1);
        rig_nap(50 * RIG_MS);
        int64_t since = rig_now();
        atomic_store(proc.go, how);
        proc_finish(&proc, -1, RIG_PATIENCE);
        check_survivors(&proc, 1, since, how == 1 ? COMM_ERR_CLOSED : COMM_ERR_PEER);
    }
}

static void call_differently(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_error error;
    int32_t in[4] = {0}, out[16];
    enum comm_result called =
        rank == 1 ? comm_allgather(world, in, out, 4, COMM_I32, NULL) : comm_allreduce(world, in, out, 4, COMM_I32, COMM_SUM, NULL);
    CHECK(called == COMM_OK || called == COMM_ERR_MISMATCH); /* the last rank may learn of it inside its call */
    rig_fails_within(world, COMM_ERR_MISMATCH, 2 * RIG_S, &error);
    proc_tell_failure(&proc->page[rank], world, COMM_ERR_MISMATCH);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_mismatch)
{
    struct proc proc = {0};
    proc_needs_shm();
    proc_start(&proc, 3, call_differently);
    proc_finish(&proc, -1, RIG_PATIENCE);
    for (int32_t r = 0; r < 3; r++) {
        EQUAL(proc.page[r].rank, proc.page[0].rank);
        const char *text = proc.page[r].text;
        CHECK(strstr(text, "allreduce") && strstr(text, "allgather"));
    }
}

static void abort_in_one(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    if (rank == 2) {
        rig_nap(100 * RIG_MS);
        int64_t start = rig_now(), slept = rig_slept();
        (void)comm_abort(world, 5);
        proc->page[rank].number[0] = rig_slept() - slept;
        atomic_store(&proc->page[rank].time, start);
    } else {
        MUST(comm_barrier(world, &request));
        proc_tell_failure(&proc->page[rank], world, comm_wait(request, RIG_PATIENCE));
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_abort)
{
    enum { TIMES = 5 };
    int64_t slept = 0;
    proc_needs_shm();
    for (int i = 0; i < TIMES; i++) {
        struct proc proc = {0};
        proc_start(&proc, 3, abort_in_one);
        proc_finish(&proc, -1, RIG_PATIENCE);
        check_survivors(&proc, 2, proc.page[2].time, COMM_ERR_ABORTED);
        slept += proc.page[2].number[0];
    }
    if (slept > TIMES * 100 * RIG_MS) /* a single one may wait for a lock whose holder has no CPU */
        rig_die(__FILE__, __LINE__, "%d aborts slept for %lld ms", TIMES, (long long)(slept / RIG_MS));
}

/* ------------------------------------------------------------------------------------------------------------ leaks */
static void open_and_close(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    struct proc_held before = proc_hold();
    struct comm_communicator *world = proc_open(proc, rank), *second = NULL;
    static float in[100000], out[2][100000]; /* the two communicators do not track each other's buffers */
    MUST(NOW(comm_dup, world, NULL, &second));
    for (int i = 0; i < 5; i++)
        MUST(comm_allreduce(i % 2 ? world : second, in, out[i % 2], 100000, COMM_F32, COMM_SUM, NULL));
    MUST(comm_sync_all(world, COMM_FOREVER));
    proc_holds_more(&before);
    MUST(comm_close(world, RIG_PATIENCE));
    MUST(comm_close(second, RIG_PATIENCE));
    proc_holds_as(&before);
}

/* A member is killed while the world is in use. The others close it and must have leaked nothing. */
static void fail_and_close(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    struct proc_held before = proc_hold();
    struct comm_communicator *world = proc_open(proc, rank);
    proc_holds_more(&before);
    sum_until_failure(proc, rank, world);
    proc_holds_as(&before);
}

/* Survivors hold nothing of the world, and its names are gone. The memory has no name, so nothing else can outlive the processes. */
RIG_TEST(processes_leave_nothing_behind)
{
    proc_needs_shm();
    struct proc_held before = proc_hold();
    struct proc proc = {.raw = true}, killed = {.raw = true};
    proc_start(&proc, 4, open_and_close);
    proc_finish(&proc, -1, RIG_PATIENCE);
    EQUAL(proc_names(&proc), 0);
    proc_start(&killed, 3, fail_and_close);
    proc_await(&killed, 0, 20);
    kill(killed.pid[0], SIGKILL);
    proc_finish(&killed, 0, RIG_PATIENCE);
    EQUAL(proc_names(&killed), 0);
    proc_holds_as(&before);
}

/* ------------------------------------------------------------------------------------------------------------ more ranks than CPUs */
static void many_small(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    int64_t in, out, start = 0;
    for (int64_t i = 0; i < 2000; i++) {
        struct comm_request request;
        in = rank + i;
        if (i == 10)
            start = rig_now();
        MUST(comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        EQUAL(out, proc->ranks * (proc->ranks - 1) / 2 + proc->ranks * i);
    }
    proc->page[rank].time = rig_now() - start;
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Of all children that have ended. */
static int64_t processor_time(void)
{
    struct rusage use;
    EQUAL(getrusage(RUSAGE_CHILDREN, &use), 0);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * RIG_S + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

RIG_TEST(processes_more_ranks_than_processors)
{
    cpu_set_t all, two;
    struct proc proc = {0};
    proc_needs_shm();
    EQUAL(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&two);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++) {
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &two);
    }
    EQUAL(sched_setaffinity(0, sizeof two, &two), 0);
    int64_t used = processor_time();
    proc_start(&proc, 8, many_small);
    proc_finish(&proc, -1, 90 * RIG_S);
    used = processor_time() - used;
    fprintf(stderr, "    8 ranks on %d processors: %.1f us each, %lld ms of processor time\n", CPU_COUNT(&two),
            (double)proc.page[0].time / 1990e3, (long long)(used / RIG_MS));
    /* A waiting rank must yield its CPU. Otherwise each turn of a sum takes a time slice of milliseconds from a rank that could
     * continue. */
    CHECK(used < 8 * SLOWER * RIG_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_have_the_bits_of_one_process),
        cmocka_unit_test(processes_killed_in_a_stream),
        cmocka_unit_test(processes_killed_before_and_inside_a_wait),
        cmocka_unit_test(processes_two_killed_at_once),
        cmocka_unit_test(processes_a_stopped_rank_comes_back),
        cmocka_unit_test(processes_a_rank_leaves_without_a_call),
        cmocka_unit_test(processes_mismatch),
        cmocka_unit_test(processes_abort),
        cmocka_unit_test(processes_leave_nothing_behind),
        cmocka_unit_test(processes_more_ranks_than_processors),
    };
    return cmocka_run_group_tests_name("proc_processes", tests, NULL, NULL);
}
