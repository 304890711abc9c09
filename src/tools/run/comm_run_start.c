/* Starts the ranks of comm-run, and ensures that none outlives it. Each rank asks the kernel to kill it when this process dies. The keeper,
 * in its own session, kills what the ranks themselves have started. */
#define _GNU_SOURCE
#include "comm_run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The lowest-numbered hardware thread of a CPU's core. */
static int core_of(int cpu)
{
    char path[96];
    int first = cpu;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &first) != 1)
            first = cpu;
        fclose(file);
    }
    return first;
}

/* More CPUs than a kernel can be built for: it refuses a set smaller than its own. */
enum { CPUS = 1 << 16 };
struct cpus {
    cpu_set_t part[CPUS / CPU_SETSIZE];
};
#define CPUS_HAS(cpu, of) CPU_ISSET_S(cpu, sizeof *(of), (of)->part)
#define CPUS_ADD(cpu, to) CPU_SET_S(cpu, sizeof *(to), (to)->part)

/* The usable hardware threads of the index-th usable core. Returns the number of usable cores. */
static int pick_core(int32_t index, struct cpus *picked)
{
    struct cpus usable, cores;
    int count = 0, wanted = -1;

    memset(picked, 0, sizeof *picked);
    memset(&cores, 0, sizeof cores);
    memset(&usable, 0, sizeof usable);
    if (sched_getaffinity(0, sizeof usable, usable.part) != 0)
        return 0;
    for (size_t cpu = 0; cpu < CPUS; cpu++) {
        if (!CPUS_HAS(cpu, &usable))
            continue;
        int core = core_of((int)cpu);
        if (!CPUS_HAS((size_t)core, &cores) && count++ == index)
            wanted = core;
        CPUS_ADD((size_t)core, &cores);
        if (core == wanted)
            CPUS_ADD(cpu, picked);
    }
    return count;
}

static void set_number(const char *name, int32_t number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    run_set_variable(name, text);
}

static void set_identity(const struct job *job, int32_t index)
{
    const struct settings *settings = job->settings;

    set_number("COMM_RANK", settings->first + index);
    set_number("COMM_LOCAL_RANK", index);
    set_number("COMM_RANKS", settings->ranks);
    set_number("COMM_LOCAL_RANKS", settings->children);
}

struct ends {
    int out[2], err[2], in[2], go[2];
};

static void move_fd(int from, int to)
{
    if (from >= 0 && dup2(from, to) < 0)
        _exit(RUN_STATUS_CANNOT_RUN);
}

static void prepare_rank(const struct job *job, int32_t index)
{
    struct cpus core;

    if (job->settings->bind && (pick_core(index, &core), sched_setaffinity(0, sizeof core, core.part)) != 0)
        _exit(RUN_STATUS_CANNOT_RUN);
    set_identity(job, index);
}

/* Once the ranks, or the agents of hosts, have it. */
static void forget_secret(void)
{
    char *secret = getenv("COMM_SECRET");

    if (secret)
        explicit_bzero(secret, strlen(secret));
    unsetenv("COMM_SECRET");
}

/* Runs in the new process. Every child waits at `go` until all children and the keeper exist. */
__attribute__((noreturn)) static void become_child(const struct job *job, int32_t index, const struct ends *ends, pid_t parent)
{
    const struct settings *settings = job->settings;
    bool reads = settings->host_count || (index == 0 && !settings->agent);
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || setpgid(0, 0) != 0)
        _exit(RUN_STATUS_CANNOT_RUN);
    move_fd(reads ? ends->in[0] : open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    move_fd(ends->out[1], STDOUT_FILENO);
    move_fd(ends->err[1], STDERR_FILENO);
    if (!settings->host_count)
        prepare_rank(job, index);
    setrlimit(RLIMIT_NOFILE, &job->files_before);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
    close(ends->go[1]);
    if (read(ends->go[0], &byte, 1) != 1)
        _exit(RUN_STATUS_CANNOT_RUN);
    if (settings->host_count)
        forget_secret(); /* ssh does not need it */
    char **command = settings->host_count ? run_host_command(settings, index) : settings->command;
    execvp(command[0], command);
    if (index == 0) /* the other children have the same error */
        fprintf(stderr, "comm-run: cannot run %s: %s\n", command[0], strerror(errno));
    fflush(stderr);
    _exit(RUN_STATUS_CANNOT_RUN);
}

static void make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        run_stop(RUN_STATUS_USAGE, "cannot make a pipe: %s", strerror(errno));
}

/* For what an agent is given: they hold the variables also when the user has so many pipes that the kernel makes new ones small. */
static void make_sockets(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        run_stop(RUN_STATUS_USAGE, "cannot make a pair of sockets: %s", strerror(errno));
}

static struct stream keep_end(int ends[2], struct output *out)
{
    if (ends[1] >= 0)
        close(ends[1]);
    if (ends[0] >= 0)
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return (struct stream){.fd = ends[0], .out = out};
}

static void start_child(struct job *job, int32_t index, struct ends *ends)
{
    const struct settings *settings = job->settings;
    struct child *child = &job->children[index];
    pid_t parent = getpid();

    if (settings->ranks > 1 || settings->agent || settings->host_count) { /* a single rank here writes directly to our output */
        make_pipe(ends->out);
        make_pipe(ends->err);
    }
    if (settings->host_count)
        make_sockets(ends->in);
    child->pid = fork();
    if (child->pid < 0)
        run_stop(RUN_STATUS_USAGE, "cannot start a process: %s", strerror(errno)); /* what was started dies with this process */
    if (child->pid == 0)
        become_child(job, index, ends, parent);
    setpgid(child->pid, child->pid);
    child->streams[0] = keep_end(ends->out, &job->out);
    child->streams[1] = keep_end(ends->err, &job->err);
    child->orders = -1;
    if (settings->host_count) {
        close(ends->in[0]);
        child->orders = ends->in[1];
        fcntl(child->orders, F_SETFL, O_NONBLOCK);
        run_send_variables(settings, child->orders);
    }
    job->running++;
}

/* An agent passes signals on. It ends its ranks when the connection to it ends, so a host that takes no orders is left to that. */
static void order(const struct child *child, int number)
{
    char byte = (char)number;

    if (write(child->orders, &byte, 1) != 1)
        kill(-child->pid, number == SIGKILL ? SIGKILL : SIGTERM);
}

static void signal_child(const struct child *child, int number)
{
    if (child->orders >= 0 && !child->ended) {
        order(child, number);
        return;
    }
    kill(-child->pid, number);
    if (number == SIGKILL)
        kill(child->pid, number); /* for a rank that has left its group */
}

void run_signal_ranks(const struct job *job, int number, bool ended_too)
{
    /* Children are reaped only at the end, so their process group ids cannot have been reused. */
    for (int32_t i = 0; i < job->settings->children; i++)
        if (job->children[i].pid > 0 && (ended_too || !job->children[i].ended))
            signal_child(&job->children[i], number);
}

void run_cut_hosts(const struct job *job)
{
    for (int32_t i = 0; i < job->settings->host_count; i++)
        kill(-job->children[i].pid, SIGKILL);
}

/* Closes one descriptor at a time only on kernels before 5.9: that takes milliseconds of CPU time while the ranks start. */
static void close_from(int first)
{
    long most = sysconf(_SC_OPEN_MAX);

#ifdef SYS_close_range
    if (!syscall(SYS_close_range, (unsigned)first, ~0u, 0u))
        return;
#endif
    for (int fd = first; fd < most && fd < 4 * RUN_RANKS_MAX; fd++)
        close(fd);
}

/* The keeper survives a SIGKILL of this process, and then kills all process groups, because a rank's own children do not die with this
 * process. */
static void start_keeper(struct job *job)
{
    int ends[2];
    char byte;

    make_pipe(ends);
    job->keeper = fork();
    if (job->keeper < 0)
        run_stop(RUN_STATUS_USAGE, "cannot start the keeper: %s", strerror(errno));
    if (job->keeper == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid();
        move_fd(ends[0], 0);
        close_from(1);
        while (read(0, &byte, 1) < 0 && errno == EINTR)
            ;
        for (int32_t i = 0; i < job->settings->children; i++)
            job->children[i].orders = -1;
        run_signal_ranks(job, SIGKILL, true);
        _exit(0);
    }
    close(ends[0]); /* ends[1] stays open while this process lives */
}

static void make_words(char *text, size_t count)
{
    unsigned char bytes[32];

    if (getrandom(bytes, count, 0) != (ssize_t)count)
        run_stop(RUN_STATUS_USAGE, "no random bytes: %s", strerror(errno));
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

/* The same words as in the library (base/option.c). */
static bool is_yes(const char *name)
{
    static const char *const words[] = {"yes", "1", "on", "true"};
    const char *value = getenv(name);
    bool yes = false;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        yes |= value && strcmp(value, words[i]) == 0;
    return yes;
}

/* So that no pipe gets the number of standard input, output or error. */
static void open_standard_files(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
}

/* The job's name, and what its ranks need to find and trust each other. */
static void identify(const struct settings *settings)
{
    bool needs_secret = is_yes("COMM_TCP_SEAL") || (settings->host_count && !is_yes("COMM_TCP_INSECURE"));
    char job[33], secret[65];

    make_words(job, 16);
    run_set_variable("COMM_JOB", job);
    if (settings->host_count)
        run_choose_address(settings, job);
    if (needs_secret && !is_set("COMM_SECRET") && !is_set("COMM_SECRET_FILE")) {
        make_words(secret, 32);
        run_set_variable("COMM_SECRET", secret);
        explicit_bzero(secret, sizeof secret);
    }
}

/* By nohup, say. A blocked signal would come even so, and ranks on other hosts do not ignore it. */
static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void prepare(struct job *job)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    struct rlimit files;
    sigset_t set;

    open_standard_files();
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!is_ignored(wanted[i]))
            sigaddset(&set, wanted[i]);
    sigprocmask(SIG_BLOCK, &set, &job->mask_before);
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    getrlimit(RLIMIT_NOFILE, &job->files_before);
    files = job->files_before;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (job->settings->agent)
        run_take_variables();
    else
        identify(job->settings);
    job->children = calloc((size_t)job->settings->children, sizeof *job->children);
    job->polls = calloc((size_t)job->settings->children * 2 + 5, sizeof *job->polls);
    if (job->signals < 0 || !job->children || !job->polls)
        run_stop(RUN_STATUS_USAGE, "cannot start: %s", strerror(errno));
}

void run_start(struct job *job)
{
    struct ends ends = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    struct cpus core;

    prepare(job);
    int cores = job->settings->bind && !job->settings->host_count ? pick_core(0, &core) : RUN_RANKS_MAX;

    if (cores < job->settings->children)
        run_stop(RUN_STATUS_USAGE, "--bind core: %d ranks, but this process may use %d cores", job->settings->children, cores);
    make_pipe(ends.go);
    /* Terminal input is read here and forwarded: rank 0 is not in the terminal's foreground group and would be stopped if it read. */
    if (isatty(STDIN_FILENO) && !job->settings->host_count)
        make_pipe(ends.in);
    for (int32_t i = 0; i < job->settings->children; i++)
        start_child(job, i, &ends);
    forget_secret();
    start_keeper(job);
    for (int32_t i = 0; i < job->settings->children; i++)
        if (write(ends.go[1], "g", 1) != 1)
            run_stop(RUN_STATUS_USAGE, "cannot let the ranks go: %s", strerror(errno));
    close(ends.go[0]);
    close(ends.go[1]);
    if (job->settings->host_count)
        return;
    if (ends.in[0] >= 0) {
        close(ends.in[0]);
        fcntl(ends.in[1], F_SETFL, O_NONBLOCK);
    }
    job->input = ends.in[1];
}
