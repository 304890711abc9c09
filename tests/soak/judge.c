/*
 * judge: one run, in a process of its own. It starts the ranks, strikes from outside if the seed says so, continues stopped ranks, and
 * checks the survivors: all of them ended, in time, reported the right rank with one cause, and leaked nothing. Time without a CPU is
 * subtracted: the kernel counts it for the ranks (schedstat), and how late this process woke up shows the rest.
 */
#define _GNU_SOURCE
#include "soak/soak.h"

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

#define NEVER INT64_MAX
/* The contract allows 1 s. The limit is lower, so that a check once per second cannot pass for a notice. */
#define TOLD_WITHIN (RIG_S * 4 / 5)

const char *const soak_verdict_names[SOAK_VERDICTS - SOAK_HANG] = {"hang", "late", "wrong cause", "leftover", "wrong result", "crash"};

struct run {
    const struct soak_program *program;
    struct soak_outcome *outcome;
    struct proc proc;
    int32_t processes, living;
    int64_t begin, strike_at, resume_at, stood;
    int64_t ended[SOAK_RANKS_MAX]; /* when its process had ended; 0: not yet */
    int64_t stopped;               /* when the victim was last stopped; 0: never */
    int status[SOAK_RANKS_MAX];
    bool strikes; /* false: the same program without a fault */
    bool traced, orphans;
};

/* A run that does not hang takes less than a tenth of this. SOAK_HANG_SECONDS is for the test that plants a hang. */
static int64_t hang_ns(void)
{
    const char *seconds = getenv("SOAK_HANG_SECONDS");
    return (seconds ? strtoll(seconds, NULL, 10) : 90) * RIG_S;
}

/* ------------------------------------------------------------------------------------------------------------ reports of a failed run */
static void kill_all(struct run *run)
{
    for (int32_t i = 0; i < run->processes; i++)
        if (run->proc.pid[i] > 0 && !run->ended[i])
            kill(run->proc.pid[i], SIGKILL);
}

_Noreturn static void end_with(struct run *run, enum soak_verdict verdict, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn static void end_with(struct run *run, enum soak_verdict verdict, const char *format, ...)
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

_Noreturn static void hang(struct run *run)
{
    for (int32_t i = 0; i < run->processes; i++)
        if (!run->ended[i])
            show_stacks(run->proc.pid[i]);
    end_with(run, SOAK_HANG, "%d of %d processes have not ended %lld s after the run began", run->living, run->processes,
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

static const struct soak_fault *fault_of(const struct run *run, int32_t rank)
{
    for (int32_t i = 0; i < run->program->fault_count && run->strikes; i++)
        if (run->program->fault[i].victim == rank)
            return &run->program->fault[i];
    return NULL;
}

/* The victim is stopped before the step in which it must die. Moves it on by the given number of system calls or instructions, and kills
 * it. */
static void walk(struct run *run, int32_t rank, const struct soak_fault *f)
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

static void hear(struct run *run, pid_t pid, int status)
{
    int32_t rank = 0;
    while (rank < run->processes && run->proc.pid[rank] != pid)
        rank++;
    if (rank == run->processes) {
        run->orphans = true;
        return;
    }
    const struct soak_fault *f = fault_of(run, rank);
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

static void act(struct run *run)
{
    const struct soak_fault *f = &run->program->fault[0];
    int64_t now = rig_now();

    if (now >= run->strike_at) {
        run->strike_at = NEVER;
        if (!run->ended[f->victim])
            kill(run->proc.pid[f->victim], f->kind == FAULT_KILL ? SIGKILL : SIGSTOP);
    }
    if (now >= run->resume_at) {
        run->resume_at = NEVER;
        kill(run->proc.pid[f->victim], SIGCONT);
    }
}

/* How long the threads of the remaining ranks have waited for a CPU. */
static int64_t delay_of(const struct run *run)
{
    int64_t all = 0;
    for (int32_t i = 0; i < run->processes; i++)
        all += run->ended[i] ? 0 : soak_delay(run->proc.pid[i]);
    return all;
}

/* The largest CPU time of the remaining ranks; a whole run takes less than a second. */
static int64_t cpu_of(const struct run *run)
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
static bool has_hung(const struct run *run)
{
    int64_t took = rig_now() - run->begin - run->stood, most = hang_ns();
    return took > most && (took > most + 2 * delay_of(run) || cpu_of(run) > 10 * RIG_S);
}

/* Waits until something happens or the next action is due. */
static void rest(struct run *run)
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

static void oversee(struct run *run, bool strikes)
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
    run->resume_at = NEVER;
    if (!strikes)
        run->strike_at = NEVER;
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

/* ------------------------------------------------------------------------------------------------------------ checks of the reports */
static bool is_victim(const struct run *run, int32_t rank)
{
    return fault_of(run, rank) != NULL;
}

static bool was_told(const struct proc_page *page)
{
    return atomic_load(&page->stage) >> 40;
}

/* How long all survivors together had no CPU. */
static int64_t starved_ns(const struct run *run)
{
    int64_t all = run->stood;
    for (int32_t r = 0; r < run->program->ranks; r++)
        all += run->proc.page[r].number[SAYS_DELAY];
    return all;
}

static void check_ends(struct run *run)
{
    for (int32_t i = 0; i < run->processes; i++) {
        int status = run->status[i];
        const struct soak_fault *f = fault_of(run, i);
        bool dies = f && f->kind <= FAULT_ABORT, turns = f && f->kind == FAULT_HOSTILE;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || dies || turns)
            continue;
        if (WIFSIGNALED(status))
            end_with(run, SOAK_CRASH, "rank %d ended by signal %d", i, WTERMSIG(status));
        end_with(run, SOAK_WRONG_RESULT, "rank %d ended with %d", i, WEXITSTATUS(status));
    }
}

/* Was the rank struck? Then it is gone and had not reached its end. */
static bool has_died(const struct run *run, int32_t rank)
{
    const struct soak_fault *f = fault_of(run, rank);
    return f && f->kind <= FAULT_ABORT && !run->proc.page[rank].number[SAYS_OVER];
}

static int64_t first_death(const struct run *run)
{
    int64_t first = NEVER;
    for (int32_t r = 0; r < run->processes; r++)
        if (has_died(run, r) && run->ended[r] < first)
            first = run->ended[r];
    return first;
}

/* While the world opens, others report a death, or a rank that does not come. */
static void check_opening(struct run *run, int32_t r)
{
    const struct proc_page *page = &run->proc.page[r];
    char name[32];
    bool named = false;

    atomic_store(&run->outcome->in_opening, 1);
    for (int32_t v = 0; v < run->processes; v++) {
        snprintf(name, sizeof name, "%d", v);
        named |= (has_died(run, v) || run->proc.page[v].number[SAYS_OPENING]) && strstr(page->text, name);
    }
    bool right = named && (page->result == COMM_ERR_PEER || page->result == COMM_ERR_TIMEOUT);
    if (page->result == COMM_ERR_TIMEOUT && starved_ns(run) > RIG_S / 2) {
        atomic_store(&run->outcome->starved, 1);
        return;
    }
    if (!right)
        end_with(run, SOAK_WRONG_CAUSE, "rank %d could not open: %s: %s", r, comm_result_name((enum comm_result)page->result), page->text);
    int64_t limit = (page->result == COMM_ERR_TIMEOUT ? 2 * RIG_S : 0) + RIG_S, took = page->time - first_death(run);
    if (took > limit + starved_ns(run))
        end_with(run, SOAK_LATE, "rank %d was told after %lld ms while the world opened", r, (long long)(took / RIG_MS));
}

static bool is_right(const struct run *run, const struct proc_page *page)
{
    const struct soak_fault *f = &run->program->fault[0];
    bool of_victim = page->rank >= 0 && page->rank < run->program->ranks &&
                     (f->kind == FAULT_COMM_ABORT || f->kind == FAULT_STOP ? page->rank == f->victim : has_died(run, page->rank));
    if (f->kind == FAULT_PAUSE)
        return false;
    return of_victim && page->result == (f->kind == FAULT_COMM_ABORT ? COMM_ERR_ABORTED : COMM_ERR_PEER);
}

static void check_time(struct run *run, int32_t r)
{
    const struct soak_fault *f = &run->program->fault[0];
    int64_t since = f->kind == FAULT_STOP ? run->stopped : first_death(run);
    int64_t limit = f->kind == FAULT_STOP ? 4 * RIG_S : TOLD_WITHIN;
    int64_t took = run->proc.page[r].time - since;

    if (since == NEVER || f->kind == FAULT_COMM_ABORT || r == f->victim)
        return;
    if (f->kind != FAULT_STOP && took > atomic_load(&run->outcome->slowest_ns))
        atomic_store(&run->outcome->slowest_ns, took);
    if (took > limit + starved_ns(run))
        end_with(run, SOAK_LATE, "rank %d was told after %lld ms, of which it had no CPU for %lld", r, (long long)(took / RIG_MS),
                 (long long)(starved_ns(run) / RIG_MS));
    if (took > limit)
        atomic_store(&run->outcome->starved, 1);
}

/* The rank was given up while it was stopped, and its first call afterwards was an agree, which reports that instead of the cause. */
static bool was_left_out(const struct run *run, int32_t r)
{
    return run->program->fault[0].kind == FAULT_STOP && is_victim(run, r) && strstr(run->proc.page[r].text, "was given up by the others");
}

static void check_causes(struct run *run)
{
    const struct proc_page *other = NULL;
    const struct soak_fault *f = &run->program->fault[0];

    for (int32_t r = 0; r < run->program->ranks; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (has_died(run, r) || (run->program->local && has_died(run, 0)))
            continue;
        if (page->number[SAYS_OPENING]) {
            check_opening(run, r);
            continue;
        }
        if (!was_told(page)) {
            if (!page->number[SAYS_DONE])
                end_with(run, SOAK_WRONG_RESULT, "rank %d was told nothing and did not come to its end", r);
            continue;
        }
        if (f->kind == FAULT_STOP && starved_ns(run) > RIG_S / 2) { /* other ranks may have been considered stopped */
            atomic_store(&run->outcome->starved, 1);
            return;
        }
        if (!is_right(run, page))
            end_with(run, SOAK_WRONG_CAUSE, "rank %d", r);
        atomic_fetch_add(&run->outcome->told, 1);
        if (was_left_out(run, r))
            continue;
        if (other && (other->rank != page->rank || other->sequence != page->sequence || strcmp(other->cause, page->cause) != 0 ||
                      strcmp(other->operation, page->operation) != 0))
            end_with(run, SOAK_WRONG_CAUSE, "rank %d was told another one", r);
        other = page;
        check_time(run, r);
    }
}

/* With a hostile rank: each other rank ends by itself, with a valid result, and with a text if it is an error. */
static void check_hostile(struct run *run)
{
    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (is_victim(run, r))
            continue;
        atomic_fetch_add(&run->outcome->told, was_told(page) || page->number[SAYS_OPENING]);
        if (page->result != COMM_OK && (page->result > 0 || !page->text[0]))
            end_with(run, SOAK_WRONG_CAUSE, "rank %d ended with %s and no text", r, comm_result_name((enum comm_result)page->result));
    }
}

/* All ranks that recovered have the same communicator, with all of them as members. */
static void check_recovered(struct run *run)
{
    int64_t members = 0, who = 0, first = -1;

    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (page->number[SAYS_DONE] != 2 || has_died(run, r) || run->program->hostile)
            continue;
        who |= INT64_C(1) << r;
        members = page->number[SAYS_MEMBERS];
        if (first >= 0 && members != run->proc.page[first].number[SAYS_MEMBERS])
            end_with(run, SOAK_WRONG_RESULT, "rank %d went on with members %llx, rank %lld with %llx", r, (long long)members,
                     (long long)first, (long long)run->proc.page[first].number[SAYS_MEMBERS]);
        first = r;
        atomic_fetch_add(&run->outcome->recovered, 1);
    }
    for (int32_t r = 0; r < run->processes && first >= 0; r++)
        if ((who >> r & 1) != (members >> r & 1) && !has_died(run, r))
            end_with(run, SOAK_WRONG_RESULT, "rank %d %s a member of what the others went on with: %llx", r,
                     members >> r & 1 ? "is" : "is not", (long long)members);
}

static void check_leftovers(struct run *run)
{
    int status;

    for (int32_t r = 0; r < run->processes; r++) {
        const struct proc_page *page = &run->proc.page[r];
        if (page->number[SAYS_OVER] && page->number[SAYS_LEFT] && !(is_victim(run, r) && run->program->hostile))
            end_with(run, SOAK_LEFTOVER, "rank %d kept %lld descriptors, threads or mappings", r, (long long)page->number[SAYS_LEFT]);
    }
    if (run->orphans || waitpid(-1, &status, WNOHANG) >= 0 || errno != ECHILD)
        end_with(run, SOAK_LEFTOVER, "a process that no rank is");
    if (proc_lines("/proc/net/unix", run->proc.job))
        end_with(run, SOAK_LEFTOVER, "a socket of this job in /proc/net/unix");
    if (proc_entries("/dev/shm", run->proc.job) || proc_entries("/tmp", run->proc.job))
        end_with(run, SOAK_LEFTOVER, "a file of this job in /dev/shm or /tmp");
}

static void note_strike(struct run *run)
{
    const struct soak_fault *f = &run->program->fault[0];
    bool struck = run->stopped != 0;

    for (int32_t r = 0; r < run->processes; r++)
        struck |= has_died(run, r);
    if (f->kind == FAULT_COMM_ABORT || f->kind == FAULT_HOSTILE)
        struck = run->proc.page[f->victim].number[SAYS_STEP] >= f->step;
    atomic_store(&run->outcome->struck, struck);
    atomic_store(&run->outcome->kind, f->kind);
}

static void judge(struct run *run)
{
    check_ends(run);
    if (run->program->hostile)
        check_hostile(run);
    else
        check_causes(run);
    check_recovered(run);
    check_leftovers(run);
}

void soak_judge(const struct soak_program *program, struct soak_outcome *outcome)
{
    struct run run = {.program = program, .outcome = outcome, .strike_at = NEVER};

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGALRM, on_alarm);
    alarm(4 * 3600);
    if (program->fault[0].when == WHEN_FRACTION) { /* first measures the program without the fault: it must succeed and leak nothing */
        struct soak_program calm = *program;
        calm.fault_count = 0;
        run.program = &calm;
        oversee(&run, false);
        int64_t took = rig_now() - run.begin;
        judge(&run);
        run = (struct run){.program = program, .outcome = outcome};
        run.strike_at = rig_now() + took * program->fault[0].amount / 1000000;
    }
    oversee(&run, true);
    note_strike(&run);
    judge(&run);
    _exit(SOAK_OK);
}
