/*
 * judge: one run, in a process of its own. It starts the ranks, strikes from outside if the seed says so, continues stopped ranks, waits
 * until all of them have ended, and has the survivors checked (check.c). Time without a CPU is subtracted: the kernel counts it for the
 * ranks (schedstat), and how late this process woke up shows the rest.
 */
#define _GNU_SOURCE
#include "soak/run.h"

#include "proc/trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *const soak_verdict_names[SOAK_VERDICTS - SOAK_HANG] = {"hang", "late", "wrong cause", "leftover", "wrong result", "crash"};

/* A run that does not hang takes less than a tenth of this. SOAK_HANG_SECONDS is for the test that plants a hang. */
static int64_t hang_ns(void)
{
    const char *seconds = getenv("SOAK_HANG_SECONDS");
    return (seconds ? strtoll(seconds, NULL, 10) : 90) * RIG_S;
}

/* ------------------------------------------------------------------------------------------------------------ reports of a failed run */
static void kill_all(struct soak_run *run)
{
    for (int32_t i = 0; i < run->processes; i++)
        if (run->proc.pid[i] > 0 && !run->ended[i])
            kill(run->proc.pid[i], SIGKILL);
}

_Noreturn void soak_end_with(struct soak_run *run, enum soak_verdict verdict, const char *format, ...)
{
    va_list list;

    fprintf(stderr, "%s: ", soak_verdict_names[verdict - SOAK_HANG]);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    for (int32_t r = 0; r < run->program->ranks; r++) {
        const struct proc_page *page = &run->proc.page[r];
        fprintf(stderr, "    rank %d: step %d, done %d, first %s, told %s of rank %d by %s/%s #%lld: %s\n", r, (int)page->number[SAYS_STEP],
                (int)page->number[SAYS_DONE], comm_result_name((enum comm_result)page->number[SAYS_FIRST]),
                comm_result_name((enum comm_result)page->result), page->rank, page->cause, page->operation, (long long)page->sequence,
                page->text);
    }
    kill_all(run);
    fflush(stderr);
    _exit(verdict);
}

/* If there is a debugger, shows the stacks of all threads of a rank that does not end. */
static void show_stacks(pid_t pid)
{
    char number[16];
    snprintf(number, sizeof number, "%ld", (long)pid);
    pid_t child = fork();
    if (child == 0) {
        sigset_t empty;
        sigemptyset(&empty);
        sigprocmask(SIG_SETMASK, &empty, NULL);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execlp("timeout", "timeout", "-s", "KILL", "30", "gdb", "-p", number, "-batch", "-nx", "-ex", "thread apply all bt 30",
               (char *)NULL);
        _exit(1);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
}

_Noreturn static void hang(struct soak_run *run)
{
    for (int32_t i = 0; i < run->processes; i++)
        if (!run->ended[i])
            show_stacks(run->proc.pid[i]);
    soak_end_with(run, SOAK_HANG, "%d of %d processes have not ended %lld s after the run began", run->living, run->processes,
                  (long long)((rig_now() - run->begin) / RIG_S));
}

static void on_alarm(int number)
{
    static const char text[] = "hang: the run's own process was not heard of for four hours\n";
    (void)number;
    ssize_t done = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(done > 0 ? SOAK_HANG : 1);
}

/* ------------------------------------------------------------------------------------------------------------ the run */
static void enter(struct proc *proc, int32_t rank)
{
    const struct soak_program *p = proc->place;
    static const char *const others[] = {"COMM_SECRET",    "COMM_TCP_SEAL", "COMM_TCP_POLLER",   "COMM_TCP_LINKS", "COMM_HOST",
                                         "COMM_SHM_DEATH", "COMM_BACKEND",  "COMM_PEER_TIMEOUT", "COMM_LOG"};
    struct rlimit none = {0, 0};
    sigset_t empty;

    (void)rank;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    for (size_t i = 0; i < sizeof p->wire->set / sizeof *p->wire->set && p->wire->set[i]; i += 2)
        setenv(p->wire->set[i], p->wire->set[i + 1], 1);
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGALRM, SIG_DFL);
    alarm(0);
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
}

/* The victim is stopped before the step in which it must die. Moves it on by the given number of system calls or instructions, and kills
 * it. */
static void walk(struct soak_run *run, int32_t rank, const struct soak_fault *f)
{
    pid_t pid = run->proc.pid[rank];
    bool alive = true;

    run->traced = true;
    trace_take(pid);
    for (int64_t i = 0; i < f->amount && alive; i++)
        alive = trace_on(pid, f->when == WHEN_CALLS ? PTRACE_SYSCALL : PTRACE_SINGLESTEP);
    if (!alive) { /* it ended before that */
        run->ended[rank] = rig_now();
        run->living--;
        return;
    }
    kill(pid, SIGKILL);
}

static void hear(struct soak_run *run, pid_t pid, int status)
{
    int32_t rank = 0;
    while (rank < run->processes && run->proc.pid[rank] != pid)
        rank++;
    if (rank == run->processes) {
        run->orphans = true;
        return;
    }
    const struct soak_fault *f = soak_fault_of(run, rank);
    if (!WIFSTOPPED(status)) {
        run->status[rank] = status;
        run->ended[rank] = rig_now();
        run->living--;
    } else if (f && (f->when == WHEN_CALLS || f->when == WHEN_STEPS) && !run->traced) {
        walk(run, rank, f);
    } else if (f) {
        run->stopped = rig_now();
        run->resume_at = run->stopped + f->stopped_ns;
    }
}

static void act(struct soak_run *run)
{
    const struct soak_fault *f = &run->program->fault[0];
    int64_t now = rig_now();

    if (now >= run->strike_at) {
        run->strike_at = SOAK_NEVER;
        if (!run->ended[f->victim])
            kill(run->proc.pid[f->victim], f->kind == FAULT_KILL ? SIGKILL : SIGSTOP);
    }
    if (now >= run->resume_at) {
        run->resume_at = SOAK_NEVER;
        kill(run->proc.pid[f->victim], SIGCONT);
    }
}

/* How long the threads of the remaining ranks have waited for a CPU. */
static int64_t delay_of(const struct soak_run *run)
{
    int64_t all = 0;
    for (int32_t i = 0; i < run->processes; i++)
        all += run->ended[i] ? 0 : soak_delay(run->proc.pid[i]);
    return all;
}

/* The largest CPU time of the remaining ranks; a whole run takes less than a second. */
static int64_t cpu_of(const struct soak_run *run)
{
    int64_t most = 0;
    for (int32_t i = 0; i < run->processes; i++) {
        clockid_t clock;
        struct timespec t;
        if (run->ended[i] || clock_getcpuclockid(run->proc.pid[i], &clock) != 0 || clock_gettime(clock, &t) != 0)
            continue;
        int64_t used = t.tv_sec * RIG_S + t.tv_nsec;
        most = used > most ? used : most;
    }
    return most;
}

/* A run that waited for CPUs has more time, but not one that had them. */
static bool has_hung(const struct soak_run *run)
{
    int64_t took = rig_now() - run->begin - run->stood, most = hang_ns();
    return took > most && (took > most + 2 * delay_of(run) || cpu_of(run) > 10 * RIG_S);
}

/* Waits until something happens or the next action is due. */
static void rest(struct soak_run *run)
{
    sigset_t set;
    int64_t now = rig_now(), until = run->begin + hang_ns() + run->stood;

    until = until > now ? until : now + RIG_S; /* checked again then */
    until = run->strike_at < until ? run->strike_at : until;
    until = run->resume_at < until ? run->resume_at : until;
    int64_t in = until > now ? until - now : 0;
    struct timespec t = {in / RIG_S, in % RIG_S};
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigtimedwait(&set, NULL, &t) < 0 && errno == EAGAIN) {
        int64_t over = rig_now() - until - 100 * RIG_MS; /* busy CPUs explain this much */
        run->stood += over > 0 ? over : 0;
    }
}

static void oversee(struct soak_run *run, bool strikes)
{
    const struct soak_program *p = run->program;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    run->strikes = strikes;
    run->processes = run->living = p->local ? 1 : p->ranks;
    run->proc = (struct proc){.raw = true, .enter = enter, .place = (void *)(uintptr_t)p};
    run->begin = rig_now();
    run->resume_at = SOAK_NEVER;
    if (!strikes)
        run->strike_at = SOAK_NEVER;
    proc_start(&run->proc, run->processes, soak_rank_main);
    while (run->living) {
        int status;
        pid_t pid;
        while (run->living && (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
            hear(run, pid, status);
        act(run);
        if (!run->living)
            break;
        if (has_hung(run))
            hang(run);
        rest(run);
    }
}

static void note_strike(struct soak_run *run)
{
    const struct soak_fault *f = &run->program->fault[0];
    bool struck = run->stopped != 0;

    for (int32_t r = 0; r < run->processes; r++)
        struck |= soak_has_died(run, r);
    if (f->kind == FAULT_COMM_ABORT || f->kind == FAULT_HOSTILE)
        struck = run->proc.page[f->victim].number[SAYS_STEP] >= f->step;
    atomic_store(&run->outcome->struck, struck);
    atomic_store(&run->outcome->kind, f->kind);
}

void soak_judge(const struct soak_program *program, struct soak_outcome *outcome)
{
    struct soak_run run = {.program = program, .outcome = outcome, .strike_at = SOAK_NEVER};

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGALRM, on_alarm);
    alarm(4 * 3600);
    if (program->fault[0].when == WHEN_FRACTION) { /* first measures the program without the fault: it must succeed and leak nothing */
        struct soak_program calm = *program;
        calm.fault_count = 0;
        run.program = &calm;
        oversee(&run, false);
        int64_t took = rig_now() - run.begin;
        soak_check(&run);
        run = (struct soak_run){.program = program, .outcome = outcome};
        run.strike_at = rig_now() + took * program->fault[0].amount / 1000000;
    }
    oversee(&run, true);
    note_strike(&run);
    soak_check(&run);
    _exit(SOAK_OK);
}
