/*
 * Ranks as processes with few resources: no locked memory, few descriptors, no access to other processes, namespaces of their own, a
 * /dev/shm without room, little address space, few CPUs. Each case must work, or the error must say what is missing and what helps.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 1 << 19, SKIPPED = 1 /* in page.number[0]: the system refuses the confinement */, USED = 1 /* in page.stage */ };

/* ------------------------------------------------------------------------------------------------------------ work of the ranks */
static void use(struct comm_communicator *c, int32_t rank, int32_t ranks)
{
    float *in, *out;
    struct comm_request request[2];
    int32_t next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, word = rank, got = -1;
    struct comm_window *w;

    MUST(comm_mem_alloc(c, LONG * sizeof *in, (void **)&in));
    out = malloc(LONG * sizeof *out);
    CHECK(out != NULL);
    for (size_t n = 1; n <= LONG; n *= LONG) {
        for (size_t i = 0; i < n; i++)
            in[i] = (float)(rank + 1);
        MUST(comm_allreduce(c, in, out, n, COMM_F32, COMM_SUM, NULL));
        MUST(comm_sync(c, COMM_FOREVER));
        CHECK(out[0] == (float)(ranks * (ranks + 1) / 2) && out[n - 1] == out[0]);
    }
    MUST(comm_send(c, &word, 1, COMM_I32, next, 1, &request[0]));
    MUST(comm_recv(c, &got, 1, COMM_I32, last, 1, NULL, &request[1]));
    MUST(comm_wait_all(request, 2, RIG_PATIENCE));
    EQUAL(got, last);
    MUST(NOW(comm_window_create, c, 4096, NULL, &w));
    MUST(comm_put(w, &word, 1, COMM_I32, next, 0, NULL));
    MUST(comm_window_fence(w, NULL));
    MUST(comm_sync(c, COMM_FOREVER));
    MUST(comm_get(w, &got, 1, COMM_I32, rank, 0, NULL));
    MUST(comm_sync(c, COMM_FOREVER));
    EQUAL(got, last);
    MUST(comm_window_free(w));
    comm_mem_free(c, in);
    free(out);
}

static void live(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    if (proc->page[rank].number[0] == SKIPPED)
        return;
    struct comm_communicator *world = proc_open(proc, rank);
    use(world, rank, proc->ranks);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void run(const char *what, int32_t ranks, void (*enter)(struct proc *proc, int32_t rank), proc_main *main)
{
    struct proc proc = {.enter = enter, .raw = true};

    proc_needs_shm();
    proc_start(&proc, ranks, main);
    proc_finish(&proc, -1, RIG_PATIENCE);
    if (proc.page[0].number[0] == SKIPPED)
        rig_skip(what);
}

static void confined(struct proc *proc, int32_t rank, bool done)
{
    proc->page[rank].number[0] = done ? 0 : SKIPPED;
}

static void limit(int which, rlim_t most)
{
    struct rlimit limit;

    CHECK(getrlimit((__rlimit_resource_t)which, &limit) == 0);
    limit.rlim_cur = limit.rlim_max = most;
    CHECK(setrlimit((__rlimit_resource_t)which, &limit) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ limits */
static void lock_nothing(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    limit(RLIMIT_MEMLOCK, 0);
}

RIG_TEST(confined_to_no_locked_memory)
{
    run("", 3, lock_nothing, live);
}

static void open_64(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    limit(RLIMIT_NOFILE, 64);
}

RIG_TEST(confined_to_64_descriptors)
{
    run("", 8, open_64, live);
}

/* Address space is what shared memory needs most. If there is too little, the error must name the option that needs less, and with that
 * option it must work. */
static void address_2g(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    limit(RLIMIT_AS, (rlim_t)2 << 30);
}

static void address_40g(struct proc *proc, int32_t rank) /* enough for its own memory, but not for that of all ranks */
{
    (void)proc;
    (void)rank;
    limit(RLIMIT_AS, (rlim_t)40 << 30);
}

static void told_of_address_space(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    char text[512] = "";
    struct comm_communicator *world = NULL;

    (void)proc;
    (void)none;
    enum comm_result r = comm_open(
        COMM_CONFIG(.backend = "shm", .open_timeout_ns = 10 * RIG_S, .error_text = text, .error_text_bytes = sizeof text), &world);
    if (r == COMM_OK || !strstr(text, "COMM_SHM_SEGMENT_BYTES"))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
}

static void less_address_space(struct proc *proc, int32_t rank)
{
    address_2g(proc, rank);
    setenv("COMM_SHM_SEGMENT_BYTES", "64M", 1);
}

RIG_TEST(confined_to_little_address_space)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rig_skip("the sanitizer needs address space of its own");
#endif
    run("", 3, address_2g, told_of_address_space);
    run("", 3, address_40g, told_of_address_space);
    run("", 3, less_address_space, live);
}

/* ------------------------------------------------------------------------------------------------------------ no access to other processes
 */
static void no_ptrace(struct proc *proc, int32_t rank)
{
    static const int refused[] = {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
                                  SYS_kcmp,   434 /* pidfd_open */, 438 /* pidfd_getfd */};
    struct sock_filter code[2 + 2 * sizeof refused / sizeof *refused];
    unsigned short at = 0;

    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = at, .filter = code};
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    confined(proc, rank, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

/* A death must be noticed nevertheless: a rank exits without closing. */
static void one_leaves(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_request request;
    float in = 1, out;

    (void)none;
    if (proc->page[rank].number[0] == SKIPPED)
        return;
    struct comm_communicator *world = proc_open(proc, rank);
    use(world, rank, proc->ranks);
    atomic_store(&proc->page[rank].stage, USED);
    /* so that the last operation ends without an error on the others too, unless this rank dies during it */
    for (int32_t r = 0; rank == 1 && r < proc->ranks; r++)
        while (atomic_load(&proc->page[r].stage) != USED)
            rig_nap(RIG_MS);
    if (rank == 1)
        syscall(SYS_exit_group, 0); /* at once: the _exit of a sanitizer sleeps first */
    int64_t since = rig_now();
    enum comm_result r = comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &request);
    r = r == COMM_OK ? comm_wait(request, RIG_PATIENCE) : r;
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    if (r != COMM_ERR_PEER || error.rank != 1 || rig_now() - since > RIG_S)
        rig_die(__FILE__, __LINE__, "%s after %lld ms: %s", comm_result_name(r), (long long)((rig_now() - since) / RIG_MS), error.text);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(confined_without_ptrace)
{
#if defined(__SANITIZE_ADDRESS__)
    rig_skip("who looks for leaks at the end uses ptrace himself");
#endif
    run("this kernel takes no seccomp filter", 3, no_ptrace, live);
    run("", 3, no_ptrace, one_leaves);
}

/* ------------------------------------------------------------------------------------------------------------ namespaces */
/* Each rank is process 1 of its own namespace. The process outside only passes on its exit status. */
static void own_processes(struct proc *proc, int32_t rank)
{
    int status = 0;

    confined(proc, rank, unshare(CLONE_NEWPID | CLONE_NEWIPC) == 0);
    if (proc->page[rank].number[0] == SKIPPED)
        return;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        EQUAL(getpid(), 1);
        return;
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

RIG_TEST(confined_to_process_name_spaces)
{
    run("this process may not make pid and ipc namespaces", 3, own_processes, live);
    run("", 3, own_processes, one_leaves);
}

static void tiny_dev_shm(struct proc *proc, int32_t rank)
{
    confined(proc, rank,
             unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                 mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0);
}

RIG_TEST(confined_to_a_tiny_dev_shm)
{
    run("this process may not make mount namespaces", 3, tiny_dev_shm, live);
}

/* ------------------------------------------------------------------------------------------------------------ processors */
enum { CPUS = 2 /* in page.number: the number of CPUs that the world reports */, MOST = 64 };
static int cpu[MOST], cpus;

static void bound_to(int which)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)which, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void all_on_one(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    bound_to(cpu[cpus - 1]);
}

static void each_on_its_own(struct proc *proc, int32_t rank)
{
    (void)proc;
    bound_to(cpu[rank % cpus]);
}

static bool put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* Creates a control group with the time of one CPU, at the root, where the kernel's path of this process's group begins. */
static void quota_of_one(struct proc *proc, int32_t rank)
{
    bool done = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0;

    confined(proc, rank, done);
    if (done)
        CHECK(put("/sys/fs/cgroup/cpu.max", "100000 100000\n") && mkdir("/sys/fs/cgroup/cpu", 0755) == 0 &&
              put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n") && put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"));
}

static void count_cpus(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_info info = {.size = sizeof info};

    (void)none;
    if (proc->page[rank].number[0] == SKIPPED)
        return;
    struct comm_communicator *world = proc_open(proc, rank);
    MUST(comm_describe(world, &info));
    proc->page[rank].number[CPUS] = info.cpus;
    use(world, rank, proc->ranks);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Returns the number that all ranks reported; `what`: why this case cannot run here. */
static int64_t counted(const char *what, int32_t ranks, void (*enter)(struct proc *proc, int32_t rank))
{
    struct proc proc = {.enter = enter, .raw = true};

    proc_start(&proc, ranks, count_cpus);
    proc_finish(&proc, -1, RIG_PATIENCE);
    if (proc.page[0].number[0] == SKIPPED)
        rig_skip(what);
    for (int32_t r = 1; r < ranks; r++)
        EQUAL(proc.page[r].number[CPUS], proc.page[0].number[CPUS]);
    return proc.page[0].number[CPUS];
}

/* The number of CPUs of all ranks together, which decides how they wait, is detected and needs no option. */
RIG_TEST(confined_to_few_processors)
{
    cpu_set_t all;

    proc_needs_shm();
    unsetenv("COMM_CPUS");
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int i = 0; i < CPU_SETSIZE && cpus < MOST; i++)
        if (CPU_ISSET((size_t)i, &all))
            cpu[cpus++] = i;
    if (cpus < 2 || counted("", 2, NULL) < 2)
        rig_skip("there is one CPU");
    EQUAL(counted("", 2, each_on_its_own), 2);
    EQUAL(counted("", 3, all_on_one), 1);
    EQUAL(counted("this process may not make mount namespaces", 3, quota_of_one), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confined_to_no_locked_memory),     cmocka_unit_test(confined_to_64_descriptors),
        cmocka_unit_test(confined_to_little_address_space), cmocka_unit_test(confined_without_ptrace),
        cmocka_unit_test(confined_to_process_name_spaces),  cmocka_unit_test(confined_to_a_tiny_dev_shm),
        cmocka_unit_test(confined_to_few_processors),
    };

    return cmocka_run_group_tests_name("proc_confined", tests, NULL, NULL);
}
