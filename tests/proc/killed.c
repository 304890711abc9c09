/*
 * A rank is killed at many points: after its n-th system call while the world opens, and after its n-th instruction inside operations.
 * ptrace counts both from outside, so a point is the same point each time. The other ranks report the same failure within a second, and
 * leak nothing: no descriptor, no thread, no mapping, no name.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "proc/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, SETUP_POINTS = 24, STEP_POINTS = 20, EARLY_OPEN_MS = 1500, OPEN_MS = 20000 };
enum { NUMBER_VICTIM, NUMBER_OPEN_MS };
enum { CLOSE_VICTIM = 1 };
struct place {
    int32_t victim;
    /* true: no rank knows of the victim yet, so the others wait as long as opening may take. false: the time-out is long, because tracing
     * is slow. */
    bool early;
};

/* ------------------------------------------------------------------------------------------------------------ the rank */
static enum comm_result sum_until_failure(struct comm_communicator *world)
{
    static float in[30000], out[30000];
    enum comm_result r = COMM_OK;

    for (int64_t i = 0; r == COMM_OK; i++) {
        struct comm_request request;
        r = comm_allreduce(world, in, out, i % 3 == 2 ? 30000 : 2, COMM_F32, COMM_SUM, &request);
        if (r == COMM_OK)
            r = comm_wait(request, RIG_PATIENCE);
    }
    return r;
}

static void live(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct proc_page *page = &proc->page[rank];
    bool victim = rank == (int32_t)page->number[NUMBER_VICTIM];
    struct comm_communicator *world = NULL;
    struct proc_held before = proc_hold();
    char text[512] = "";

    (void)none;
    if (victim) {
        atomic_store(&page->stage, 1);
        trace_me();
    }
    atomic_store(&page->stage, 1);
    enum comm_result r =
        comm_open(COMM_CONFIG(.backend = "shm", .options = "log=off", .error_text = text, .error_text_bytes = sizeof text,
                              .open_timeout_ns = page->number[NUMBER_OPEN_MS] * RIG_MS, .operation_timeout_ns = 60 * RIG_S),
                  &world);
    if (r == COMM_OK) {
        if (victim)
            raise(SIGSTOP);
        r = sum_until_failure(world);
        proc_tell_failure(page, world, r);
        MUST(comm_close(world, RIG_PATIENCE));
    } else {
        page->time = rig_now();
        page->result = r;
        snprintf(page->text, sizeof page->text, "%s", text);
    }
    proc_holds_as(&before);
}

/* The victim makes no call. The others wait for it inside comm_close, which has far more time than a death needs to be noticed. */
static void close_with_work(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static float in[2], out[2];
    struct proc_page *page = &proc->page[rank];
    struct comm_request request;

    if (rank == CLOSE_VICTIM) {
        atomic_store(&page->stage, 1);
        for (;;)
            rig_nap(RIG_S);
    }
    MUST(comm_allreduce(world, in, out, 2, COMM_F32, COMM_SUM, &request));
    atomic_store(&page->stage, 1);
    page->result = comm_close(world, RIG_PATIENCE);
    page->time = rig_now();
}

/* ------------------------------------------------------------------------------------------------------------ the tracer */
static void go_on(pid_t pid, int how)
{
    CHECK(trace_on(pid, how));
}

/* Starts the ranks; the victim is stopped before its comm_open. */
static pid_t start(struct proc *proc, int32_t victim)
{
    int status;

    proc->raw = true;
    proc_start(proc, RANKS, live);
    pid_t pid = proc->pid[victim];
    for (int32_t r = 0; r < RANKS; r++)
        while (!atomic_load(&proc->page[r].stage))
            rig_nap(RIG_MS / 10);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
    trace_take(pid);
    return pid;
}

static void enter(struct proc *proc, int32_t rank)
{
    const struct place *place = proc->place;

    proc->page[rank].number[NUMBER_VICTIM] = place->victim;
    proc->page[rank].number[NUMBER_OPEN_MS] = place->early ? EARLY_OPEN_MS : OPEN_MS;
}

/* Whether others know of the victim after the system call at which it stopped: rank 0 listens, or another rank identifies itself. */
static bool introduces(pid_t pid, int32_t victim, bool *dials)
{
    long call = trace_call(pid);

    *dials |= call == SYS_connect;
    return victim ? *dials && (call == SYS_sendto || call == SYS_sendmsg || call == SYS_write) : call == SYS_listen;
}

/* Counts the stops of the victim's opening, and finds the first one at which others know of it. */
static void count_stops(int32_t victim, int *known, int *stops)
{
    struct place place = {.victim = victim};
    struct proc proc = {.enter = enter, .place = &place};
    pid_t pid = start(&proc, victim);
    int status;
    bool dials = false;

    *known = *stops = 0;
    for (;;) {
        CHECK(ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        (*stops)++;
        if (!*known && introduces(pid, victim, &dials))
            *known = *stops + 1;
    }
    kill(pid, SIGKILL);
    proc_finish(&proc, victim, RIG_PATIENCE);
}

/* To the stop at which others know of the victim. It is not the same number in every run: the victim may have to look again for a rank
 * that is late. */
static void go_until_known(pid_t pid, int32_t victim)
{
    bool dials = false;

    do
        go_on(pid, PTRACE_SYSCALL);
    while (!introduces(pid, victim, &dials));
    go_on(pid, PTRACE_SYSCALL);
}

/* ------------------------------------------------------------------------------------------------------------ reports of the other ranks
 */
static void check(struct proc *proc, int32_t victim, int64_t since, bool early)
{
    char name[32];

    snprintf(name, sizeof name, "rank %d ", victim);
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc->page[r];
        if (r == victim)
            continue;
        if (page->result != (early ? COMM_ERR_TIMEOUT : COMM_ERR_PEER) ||
            (!early && (!strstr(page->text, name) || !strstr(page->text, "died"))))
            rig_die(__FILE__, __LINE__, "rank %d was told %s: %s", r, comm_result_name((enum comm_result)page->result), page->text);
        int64_t took = page->time - since - proc->stood_ns;
        if (took > (early ? EARLY_OPEN_MS * RIG_MS + RIG_S : RIG_S))
            rig_die(__FILE__, __LINE__, "rank %d was told after %lld ms: %s", r, (long long)(took / RIG_MS), page->text);
    }
    EQUAL(proc_names(proc), 0);
}

static void finish(struct proc *proc, int32_t victim, bool early)
{
    int64_t since = rig_now();

    kill(proc->pid[victim], SIGKILL);
    proc_finish(proc, victim, RIG_PATIENCE);
    check(proc, victim, since, early);
}

static void needs_ptrace(void)
{
#if defined(__SANITIZE_THREAD__)
    rig_skip("ThreadSanitizer's own thread and calls are counted with the library's");
#endif
    if (!trace_may())
        rig_skip("this process may not use ptrace");
}

RIG_TEST(killed_while_the_world_opens)
{
    static int32_t victims[] = {0, RANKS - 1};

    proc_needs_shm();
    needs_ptrace();
    for (int v = 0; v < 2; v++) {
        int known, stops, points = rig_quick() ? SETUP_POINTS / 4 : SETUP_POINTS / 2;
        count_stops(victims[v], &known, &stops);
        CHECK(known > 0 && stops > known + 20);
        for (int i = v && rig_quick() ? 0 : -1; i < points; i++) { /* -1: no rank knows of it yet */
            struct place place = {.victim = victims[v], .early = i < 0};
            struct proc proc = {.enter = enter, .place = &place};
            int further = i < 0 ? known / 2 : i * (stops - known) / points;
            rig_note("rank %d killed at stop %d of %d, %d the first at which it is known", victims[v], i < 0 ? further : known + further,
                     stops, known);
            pid_t pid = start(&proc, victims[v]);
            if (i >= 0)
                go_until_known(pid, victims[v]);
            for (int s = 0; s < further; s++)
                go_on(pid, PTRACE_SYSCALL);
            rig_nap((i ? 10 : 100) * RIG_MS); /* the others get as far as they can; they connect to rank 0 one by one */
            finish(&proc, victims[v], i < 0);
        }
    }
}

RIG_TEST(killed_inside_operations)
{
    proc_needs_shm();
    needs_ptrace();
    for (int i = 0; i < STEP_POINTS; i += rig_quick() ? 4 : 1) {
        int32_t victim = i % RANKS;
        struct place place = {.victim = victim};
        struct proc proc = {.enter = enter, .place = &place};
        int status, steps = 20 * i * i + 97 * i;
        pid_t pid = start(&proc, victim);
        rig_note("rank %d killed after %d instructions", victim, steps);
        CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        for (int s = 0; s < steps; s++)
            go_on(pid, PTRACE_SINGLESTEP);
        finish(&proc, victim, false);
    }
}

RIG_TEST(killed_while_others_close)
{
    struct proc proc = {0};

    proc_needs_shm();
    proc_start(&proc, RANKS, close_with_work);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, 1);
    rig_nap(200 * RIG_MS); /* the others get into comm_close */
    int64_t since = rig_now();
    kill(proc.pid[CLOSE_VICTIM], SIGKILL);
    proc_finish(&proc, CLOSE_VICTIM, RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++) {
        const struct proc_page *page = &proc.page[r];
        if (r == CLOSE_VICTIM)
            continue;
        EQUAL(page->result, COMM_OK); /* nothing is left to wait for: the death has ended the allreduce */
        int64_t took = page->time - since - proc.stood_ns;
        if (took > RIG_S)
            rig_die(__FILE__, __LINE__, "rank %d closed after %lld ms", r, (long long)(took / RIG_MS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_the_world_opens),
        cmocka_unit_test(killed_inside_operations),
        cmocka_unit_test(killed_while_others_close),
    };

    return cmocka_run_group_tests_name("proc_killed", tests, NULL, NULL);
}
