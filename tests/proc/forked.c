/*
 * A rank that has forked workers, as data loaders do, must die as visibly as one that has not: its children hold nothing by which its peers
 * would consider it alive. The children use their own copies of its memory, the library refuses their calls, and they live on.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, PARENT = 1, WORKERS = 10, LIFE_S = 100, LONG = 50000 };
enum { HAS_FORKED = 1, SUMS = 50 };

struct workers {
    pid_t pid[WORKERS];
    _Atomic int refused; /* number of workers that found their data intact and were refused by the library */
};
static struct workers *workers; /* shared with the process of the test */

static void sum(struct comm_communicator *world)
{
    static float in[LONG], out[LONG];
    struct comm_request q;

    for (size_t n = 1; n <= LONG; n *= LONG) {
        in[n - 1] = 2;
        MUST(comm_allreduce(world, in, out, n, COMM_F32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        CHECK(out[n - 1] == 2 * RANKS);
    }
}

static _Noreturn void work(struct comm_communicator *world, const int *data)
{
    int64_t in = 1, out = 0;
    bool sound = true;

    alarm(LIFE_S); /* if no process ends it */
    for (int i = 0; i < LONG; i++)
        sound &= data[i] == i;
    sound &= comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, NULL) == COMM_ERR_FORKED;
    atomic_fetch_add(&workers->refused, sound);
    for (;;)
        pause();
}

/* Forks, or makes a bare system call, which runs no hooks of the C library. */
static pid_t make_child(bool bare)
{
    return bare ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
}

static void fork_workers(struct comm_communicator *world, bool bare)
{
    int *data = malloc(LONG * sizeof *data);

    for (int i = 0; i < LONG; i++)
        data[i] = i;
    for (int i = 0; i < WORKERS; i++) {
        pid_t pid = make_child(bare);
        CHECK(pid >= 0);
        if (pid == 0)
            work(world, data);
        workers->pid[i] = pid;
        sum(world); /* the parent continues between any two forks */
    }
    for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&workers->refused) != WORKERS; rig_nap(RIG_MS))
        CHECK(rig_now() < end);
    free(data);
}

static void meet_workers(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    sum(world);
    for (int i = 0; rank != PARENT && i < WORKERS; i++)
        sum(world);
    if (rank == PARENT)
        fork_workers(world, proc->place != NULL);
    for (int i = 0; i < SUMS; i++)
        sum(world);
    atomic_store(&proc->page[rank].stage, HAS_FORKED);
}

/* Waits for a sum that the dead rank does not take part in. */
static void survive(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request q;
    int64_t in = 1, out;

    meet_workers(proc, rank, world);
    if (rank == PARENT)
        for (;;)
            pause();
    enum comm_result r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
    r = r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
    proc_tell_failure(&proc->page[rank], world, r);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void close_in_order(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    meet_workers(proc, rank, world);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void end_workers(void)
{
    for (int i = 0; i < WORKERS; i++) {
        CHECK(workers->pid[i] > 0 && kill(workers->pid[i], 0) == 0); /* they have lived until now */
        kill(workers->pid[i], SIGKILL);
    }
}

static void begin(void)
{
    proc_needs_shm();
    workers = mmap(NULL, sizeof *workers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(workers != MAP_FAILED);
}

static void killed(bool bare)
{
    struct proc proc = {0};
    begin();
    proc.place = bare ? workers : NULL;
    proc_start(&proc, RANKS, survive);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, HAS_FORKED);
    rig_nap(50 * RIG_MS); /* long enough for waiting ranks to fall asleep */
    int64_t since = rig_now();
    kill(proc.pid[PARENT], SIGKILL);
    proc_finish(&proc, PARENT, RIG_PATIENCE);
    end_workers();
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc.page[r];
        if (r == PARENT)
            continue;
        if (page->result != COMM_ERR_PEER || page->rank != PARENT)
            rig_die(__FILE__, __LINE__, "rank %d was told %s of rank %d: %s", r, comm_result_name((enum comm_result)page->result),
                    page->rank, page->text);
        if (page->time - since - proc.stood_ns > RIG_S)
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms", r, (long long)((page->time - since) / RIG_MS));
    }
}

RIG_TEST(forked_children_hide_no_death)
{
    killed(false);
}

RIG_TEST(cloned_children_hide_no_death)
{
    killed(true);
}

RIG_TEST(forked_children_hold_up_no_close)
{
    struct proc proc = {0};
    begin();
    proc_start(&proc, RANKS, close_in_order);
    proc_finish(&proc, -1, RIG_PATIENCE);
    end_workers();
}

/* A pidfd reports a death even if other processes have copies of its descriptors. Connections report it only when no process holds them any
 * more. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked_children_hide_no_death),
        cmocka_unit_test(forked_children_hold_up_no_close),
        cmocka_unit_test(cloned_children_hide_no_death),
    };
    const struct CMUnitTest connected[] = {tests[0], tests[1]};
    bool by_pidfd = !getenv("COMM_BACKEND") && !getenv("COMM_SHM_DEATH");

    return by_pidfd ? cmocka_run_group_tests_name("proc_forked", tests, NULL, NULL)
                    : cmocka_run_group_tests_name("proc_forked", connected, NULL, NULL);
}
