/*
 * The steady state: after the warm-up, nothing between issue and completion allocates memory, or makes a system call that waiting does not
 * need. Both are counted from outside: a kernel filter turns every system call into a signal, and an allocator in the C library's place
 * counts what the library asks for.
 */
#define _GNU_SOURCE
#include "conform/counted.h"
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
enum { STEADY_COUNTED = 0 };
#else
enum { STEADY_COUNTED = 1 };
#endif
enum { STEADY_CALLS_MAX = 16, STEADY_LONG = 20000 };

static volatile sig_atomic_t steady_calls;
static volatile int steady_numbers[STEADY_CALLS_MAX];

static void steady_count(int number, siginfo_t *info, void *context)
{
    (void)number;
    if (steady_calls < STEADY_CALLS_MAX)
        steady_numbers[steady_calls] = info->si_syscall;
    steady_calls++;
#if defined(__x86_64__)
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 0;
#else
    (void)context;
#endif
}

/* From here on, every system call of this thread that is not in `allowed` is counted and not made. This cannot be undone. */
static void steady_filter(const int *allowed, size_t count)
{
    struct sock_filter code[64];
    unsigned short at = 0;
    struct sigaction action = {.sa_sigaction = steady_count, .sa_flags = SA_SIGINFO};
    EQUAL(sigaction(SIGSYS, &action, NULL), 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = at, .filter = code};
    EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        rig_skip("this kernel takes no seccomp filter");
}

/* Reports through the exit status, because writing would be another system call. */
_Noreturn static void steady_end(const char *what)
{
    static char text[256];
    int calls = (int)steady_calls;
    if (calls == 0)
        _exit(0);
    int at = snprintf(text, sizeof text, "%s: %d system calls, numbers", what, calls);
    for (int i = 0; i < calls && i < STEADY_CALLS_MAX && at < 240; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %d", steady_numbers[i]);
    rig_die(__FILE__, __LINE__, "%s", text);
}

/* ------------------------------------------------------------------------------------------------------------ the repeated work */
struct steady {
    struct comm_communicator *const *c;
    int32_t ranks;
    float in[4][4 * STEADY_LONG], out[4][4 * STEADY_LONG];
};
static struct steady steady;

static void one_round(int i)
{
    struct comm_request request[8];
    size_t count = 0, n = i % 10 == 0 ? STEADY_LONG : 2;
    for (int32_t r = 0; r < steady.ranks; r++)
        MUST(comm_allreduce(steady.c[r], steady.in[r], steady.out[r], n, COMM_F32, COMM_SUM, &request[count++]));
    if (comm_wait_all(request, count, RIG_PATIENCE) != COMM_OK)
        rig_die(__FILE__, __LINE__, "allreduce");
    count = 0;
    for (int32_t r = 0; r < steady.ranks; r++) {
        int32_t next = (r + 1) % steady.ranks, last = (r + steady.ranks - 1) % steady.ranks;
        MUST(comm_send(steady.c[r], steady.in[r], n, COMM_F32, next, 1, &request[count++]));
        MUST(comm_recv(steady.c[r], steady.out[r], n, COMM_F32, last, 1, NULL, &request[count++]));
    }
    if (comm_wait_all(request, count, RIG_PATIENCE) != COMM_OK)
        rig_die(__FILE__, __LINE__, "messages");
    for (int32_t r = 0; r < steady.ranks; r++) {
        MUST(comm_queue_wait_request(steady.c[r], request[0]));
        MUST(comm_barrier(steady.c[r], NULL));
    }
    for (int32_t r = 0; r < steady.ranks; r++)
        MUST(comm_sync(steady.c[r], COMM_FOREVER));
}

/* All ranks are in one thread, so no rank ever waits, and there is no system call at all. */
RIG_TEST(steady_no_system_call)
{
    static const int allowed[] = {SYS_rt_sigreturn, SYS_exit_group, SYS_write, SYS_clock_gettime};
    struct rig rig;
    if (!STEADY_COUNTED)
        rig_skip("sanitizers make system calls of their own");
    rig_open(&rig, 4, NULL);
    steady.c = rig.world;
    steady.ranks = 4;
    for (int i = 0; i < 3000; i++)
        one_round(i);
    steady_filter(allowed, sizeof allowed / sizeof *allowed);
    for (int i = 0; i < 3000; i++)
        one_round(i);
    steady_end("4 ranks of one thread");
}

static long address_space_pages(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld", &pages) == 1);
    fclose(statm);
    return pages;
}

/* Whether this many rounds ask for no memory, after as many that may. */
static void asks_for_nothing(void (*round)(int i), int warm, int rounds)
{
    struct rig rig;

    rig_open(&rig, 4, NULL);
    steady.c = rig.world;
    steady.ranks = 4;
    (void)counted_calls();
    for (int i = 0; i < warm; i++)
        round(i);
    (void)address_space_pages();
    long pages = address_space_pages();
    uint64_t before = counted_calls();
    for (int i = 0; i < rounds; i++)
        round(i);
    if (counted_calls() != before)
        counted_tell();
    EQUAL(counted_calls() - before, 0);
    EQUAL(address_space_pages(), pages);
    rig_close(&rig);
}

RIG_TEST(steady_no_allocation)
{
    if (!counted_can())
        rig_skip("sanitizers have an allocator of their own");
    asks_for_nothing(one_round, 3000, 10000);
}

static enum comm_result issue(uint32_t collective, int32_t r, size_t n, int32_t root, struct comm_request *request)
{
    struct comm_communicator *c = steady.c[r];
    float *in = steady.in[r], *out = steady.out[r];

    switch (collective) {
    case 0:
        return comm_allreduce(c, in, out, n, COMM_F32, COMM_SUM, request);
    case 1:
        return comm_reduce(c, in, out, n, COMM_F32, COMM_SUM, root, request);
    case 2:
        return comm_broadcast(c, out, n, COMM_F32, root, request);
    case 3:
        return comm_gather(c, in, out, n, COMM_F32, root, request);
    case 4:
        return comm_scatter(c, in, out, n, COMM_F32, root, request);
    case 5:
        return comm_allgather(c, in, out, n, COMM_F32, request);
    case 6:
        return comm_reduce_scatter(c, in, out, n, COMM_F32, COMM_SUM, request);
    case 7:
        return comm_alltoall(c, in, out, n, COMM_F32, request);
    case 8:
        return comm_scan(c, in, out, n, COMM_F32, COMM_SUM, request);
    case 9:
        return comm_exscan(c, in, out, n, COMM_F32, COMM_SUM, request);
    default:
        return comm_barrier(c, request);
    }
}

static void issue_on_all(uint32_t collective, size_t n, int32_t root)
{
    struct comm_request request[4];

    for (int32_t r = 0; r < steady.ranks; r++)
        MUST(issue(collective, r, n, root, &request[r]));
    if (comm_wait_all(request, (size_t)steady.ranks, RIG_PATIENCE) != COMM_OK)
        rig_die(__FILE__, __LINE__, "collective %u", collective);
}

/* Every collective, short and long, and each root in turn: a communicator keeps the program of each. */
static void every_collective(int i)
{
    size_t n = i % 2 ? STEADY_LONG : 2;

    for (int32_t root = 0; root < steady.ranks; root++)
        for (uint32_t k = 0; k < 11; k++)
            issue_on_all(k, n, root);
}

RIG_TEST(steady_programs_are_kept)
{
    if (!counted_can())
        rig_skip("sanitizers have an allocator of their own");
    asks_for_nothing(every_collective, 300, 20);
}

/* ------------------------------------------------------------------------------------------------------------ as processes */
/* Waiting may yield, sleep and ring; nothing else. */
static void steady_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static const int allowed[] = {
        SYS_rt_sigreturn, SYS_exit_group, SYS_sched_yield, SYS_futex,   SYS_poll,          SYS_ppoll,    SYS_epoll_wait,
        SYS_epoll_pwait,  SYS_read,       SYS_write,       SYS_recvmsg, SYS_clock_gettime, SYS_recvfrom,
#ifdef SYS_epoll_pwait2
        SYS_epoll_pwait2,
#endif
#ifdef SYS_membarrier
        SYS_membarrier, /* before a sleep */
#endif
    };
    static float in[20000], out[20000];
    const int rounds = 20000 / (int)rig_thin(1, 1, 5);
    for (int i = 0; i < rounds; i++) {
        struct comm_request request;
        if (i == rounds / 4)
            steady_filter(allowed, sizeof allowed / sizeof *allowed);
        MUST(comm_allreduce(world, in, out, i % 10 ? 2 : 20000, COMM_F32, COMM_SUM, &request));
        if (comm_wait(request, RIG_PATIENCE) != COMM_OK)
            rig_die(__FILE__, __LINE__, "rank %d of %d", rank, proc->ranks);
    }
    steady_end("a process");
}

RIG_TEST(steady_processes)
{
    struct proc proc = {0};
    proc_needs_shm();
    if (!STEADY_COUNTED)
        rig_skip("sanitizers make system calls of their own");
    proc_start(&proc, 2, steady_process);
    proc_finish(&proc, -1, 3 * RIG_PATIENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_no_system_call),
        cmocka_unit_test(steady_no_allocation),
        cmocka_unit_test(steady_programs_are_kept),
        cmocka_unit_test(steady_processes),
    };
    return cmocka_run_group_tests_name("proc_steady", tests, NULL, NULL);
}
