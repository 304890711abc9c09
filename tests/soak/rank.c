/*
 * rank: the life of one rank. It opens the world, runs the program, is struck if the seed says so, and otherwise writes on its page what it
 * was told. After a failed step it polls until the world reports the cause, and revokes all other open communicators, so that no rank waits
 * for it there. Then it either closes everything, or agrees, shrinks and continues.
 */
#define _GNU_SOURCE
#include "soak/soak.h"

#include "conform/oracle.h"
#include "proc/trace.h"
#include "now.h"

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

bool soak_planted(const char *what)
{
    const char *plant = getenv("SOAK_PLANT");
    return plant && strcmp(plant, what) == 0;
}

/* ------------------------------------------------------------------------------------------------------------ the strike */
static enum soak_fault_kind struck_by;

static void on_alarm(int number)
{
    (void)number;
    if (struck_by == FAULT_EXIT)
        _exit(0);
    signal(SIGABRT, SIG_DFL);
    abort();
}

/* The kernel strikes when the time has come, whatever this process does at that moment. */
static void arm(const struct soak_fault *f)
{
    bool stops = f->kind == FAULT_PAUSE || f->kind == FAULT_STOP;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = f->kind == FAULT_KILL ? SIGKILL : stops ? SIGSTOP : SIGUSR1};
    struct itimerspec in = {.it_value = {f->amount / RIG_S, f->amount % RIG_S}};
    timer_t timer;

    struck_by = f->kind;
    signal(SIGUSR1, on_alarm);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &in, NULL) == 0);
}

static void strike(struct soak_rank *r, const struct soak_fault *f)
{
    if (f->kind == FAULT_HOSTILE)
        soak_turn_hostile(r->program->seed);
    else if (f->kind == FAULT_COMM_ABORT)
        (void)!comm_abort(r->slot[0].c, 7);
    else if (f->when == WHEN_TIMER)
        arm(f);
    else
        trace_me();
}

static void reach(struct soak_rank *r, int32_t step)
{
    atomic_store(&r->page->number[SAYS_STEP], step);
    for (int32_t i = 0; i < r->program->fault_count; i++) {
        const struct soak_fault *f = &r->program->fault[i];
        if (f->victim == r->rank && f->step == step && f->when != WHEN_FRACTION)
            strike(r, f);
    }
}

/* ------------------------------------------------------------------------------------------------------------ reports */
int64_t soak_delay(pid_t pid)
{
    char folder[64];
    int64_t all = 0;

    snprintf(folder, sizeof folder, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(folder);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[400];
        long long ran = 0, waited = 0;
        snprintf(path, sizeof path, "%s/%s/schedstat", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fscanf(file, "%lld %lld", &ran, &waited) == 2)
            all += waited;
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return all;
}

/* For readers of a hang: the error of a child, as long as the world reports none. */
static void note_child(struct soak_rank *r)
{
    for (int32_t i = 1; i < SOAK_SLOTS; i++) {
        struct comm_error error = {.size = sizeof error};
        if (r->slot[i].c && comm_error_detail(r->slot[i].c, &error) == COMM_OK && error.result != COMM_OK)
            snprintf(r->page->text, sizeof r->page->text, "(of slot %d) %.480s", i, error.text);
    }
}

/* Reports the cause of the world, which must come. With a hostile peer the world may have none; then it is revoked. */
static void tell_world(struct soak_rank *r, enum comm_result first)
{
    struct comm_communicator *world = r->slot[0].c;
    struct comm_error error = {.size = sizeof error};
    int64_t begin = rig_now();

    atomic_store(&r->page->number[SAYS_FIRST], first);
    note_child(r);
    while (comm_error_detail(world, &error) != COMM_OK || error.result == COMM_OK) {
        if (comm_progress(world) == COMM_OK)
            rig_nap(RIG_MS / 20);
        if (r->program->hostile && rig_now() - begin > 5 * RIG_S)
            (void)!comm_revoke(world);
    }
    proc_tell_failure(r->page, world, error.result);
}

static void plant(struct soak_rank *r)
{
    if (soak_planted("rank"))
        r->page->rank = (r->page->rank + 1) % r->program->ranks;
    if (soak_planted("hang"))
        rig_nap(INT64_C(1000) * RIG_S);
    if (soak_planted("late"))
        r->page->time += 3 * RIG_S;
    if (soak_planted("memfd"))
        CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memfd_create("commstream", 0), 0) != MAP_FAILED);
    if (soak_planted("process") && fork() == 0) {
        rig_nap(2 * RIG_S);
        _exit(0);
    }
    if (soak_planted("crash"))
        abort();
}

/* ------------------------------------------------------------------------------------------------------------ the end */
/* With a hostile peer, a call may return any valid result. */
static void must_be(const struct soak_rank *r, enum comm_result got, const char *call)
{
    if (got == COMM_OK || (r->program->hostile && got < 0))
        return;
    struct comm_error error = {.size = sizeof error};
    (void)!comm_error_detail(r->slot[0].c, &error);
    rig_die(__FILE__, __LINE__, "rank %d, behind step %d: %s: %s; the world says %s", r->rank, (int)r->page->number[SAYS_STEP], call,
            comm_result_name(got), error.text);
}

/* All ranks free their windows in the same order. If a death leaves a rank alone in it, the rank gets an error. */
static enum comm_result free_windows(struct soak_rank *r)
{
    enum comm_result result = COMM_OK;
    for (int32_t i = SOAK_SLOTS - 1; i >= 0 && result == COMM_OK; i--) {
        result = comm_window_free(r->slot[i].window);
        r->slot[i].window = NULL;
    }
    return result;
}

static void give_back(struct soak_rank *r, bool failed)
{
    for (int32_t i = SOAK_SLOTS - 1; i > 0 && failed; i--)
        if (r->slot[i].c)
            (void)!comm_revoke(r->slot[i].c);
    for (int32_t i = SOAK_SLOTS - 1; i >= 0; i--) {
        (void)!comm_window_free(r->slot[i].window);
        r->slot[i].window = NULL;
        if (i) {
            must_be(r, comm_close(r->slot[i].c, RIG_PATIENCE), "comm_close of a child");
            r->slot[i].c = NULL;
        }
    }
}

/* Checks that all members of c have the same list of world ranks, and that sums are correct. Returns the first error. */
static enum comm_result prove(struct soak_rank *r, struct comm_communicator *c)
{
    int32_t all[SOAK_RANKS_MAX], size = comm_size(c), sum = 0;
    struct comm_request request;
    enum comm_result result = COMM_OK;

    CHECK(size >= 1 && size <= r->program->ranks);
    for (int round = 0; round < 3 && result == COMM_OK; round++) {
        result = comm_allgather(c, &r->rank, all, 1, COMM_I32, &request);
        result = result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
        if (result == COMM_OK)
            result = comm_allreduce(c, &r->rank, &sum, 1, COMM_I32, COMM_SUM, &request);
        result = result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
    }
    if (result != COMM_OK || r->program->hostile)
        return result;
    r->page->number[SAYS_MEMBERS] = 0;
    for (int32_t i = 0; i < size; i++) {
        CHECK(all[i] >= 0 && all[i] < r->program->ranks && (i == 0 || all[i] > all[i - 1]));
        r->page->number[SAYS_MEMBERS] |= INT64_C(1) << all[i];
        sum -= all[i];
    }
    EQUAL(sum, 0);
    EQUAL(all[comm_rank(c)], r->rank);
    return COMM_OK;
}

/* A rank that was given up while it was stopped learns that only from its next agreement. */
static bool left_out(struct soak_rank *r, enum comm_result result, const char *call)
{
    const struct soak_fault *f = &r->program->fault[0];
    if (result == COMM_ERR_PEER && f->kind == FAULT_STOP && f->victim == r->rank) {
        r->page->number[SAYS_DONE] = 3;
        return true;
    }
    must_be(r, result, call);
    return result != COMM_OK;
}

/* Agrees whether all live ranks are well; if not, shrinks, and shrinks again if a rank died meanwhile. Closes c. */
static struct comm_communicator *recover(struct soak_rank *r, struct comm_communicator *c, bool well)
{
    for (;;) {
        uint64_t all_well = well;
        if (!r->agreed && (left_out(r, NOW(comm_agree, c, &all_well), "comm_agree") || all_well))
            return c;
        r->agreed = false;
        if (well)
            give_back(r, true); /* another rank failed */
        struct comm_communicator *next = NULL;
        if (left_out(r, NOW(comm_shrink, c, &next), "comm_shrink"))
            return c;
        must_be(r, comm_close(c, RIG_PATIENCE), "comm_close of what failed");
        r->slot[0].c = c = next;
        well = prove(r, c) == COMM_OK;
        r->page->number[SAYS_DONE] = 2;
    }
}

static void end(struct soak_rank *r, enum comm_result result)
{
    if (result == COMM_OK)
        result = free_windows(r);
    if (result == COMM_OK) {
        r->page->number[SAYS_DONE] = 1;
    } else {
        tell_world(r, result);
        plant(r);
    }
    give_back(r, result != COMM_OK);
    if (r->program->recovers)
        r->slot[0].c = recover(r, r->slot[0].c, result == COMM_OK);
    must_be(r, comm_close(r->slot[0].c, RIG_PATIENCE), "comm_close of the world");
}

/* ------------------------------------------------------------------------------------------------------------ the life of a rank */
static void run_steps(struct soak_rank *r)
{
    const struct soak_program *p = r->program;
    enum comm_result result = COMM_OK;

    for (int32_t i = 0; i < p->steps && result == COMM_OK; i++) {
        reach(r, i + 1);
        result = soak_step_run(r, &p->step[i]);
    }
    if (result == COMM_OK)
        reach(r, p->steps + 1);
    end(r, result);
}

static bool may_die_early(const struct soak_program *p)
{
    return p->fault[0].step == 0 || p->fault[0].when == WHEN_FRACTION;
}

static struct comm_config config_of(const struct soak_program *p, char text[512])
{
    return (struct comm_config){.size = sizeof(struct comm_config),
                                .backend = p->local ? NULL : p->wire->backend,
                                .options = p->options,
                                .error_text = text,
                                .error_text_bytes = 512,
                                .open_timeout_ns = (may_die_early(p) ? 2 : 120) * RIG_S,
                                .operation_timeout_ns = (p->hostile ? 3 : 1000) * RIG_S};
}

static void open_and_run(struct soak_rank *r)
{
    char text[512] = "";
    struct comm_config config = config_of(r->program, text);

    reach(r, 0);
    enum comm_result result = comm_open(&config, &r->slot[0].c);
    if (result == COMM_OK) {
        r->slot[0].size = r->program->ranks;
        r->slot[0].me = r->rank;
        run_steps(r);
        return;
    }
    r->page->time = rig_now();
    r->page->result = result;
    snprintf(r->page->text, sizeof r->page->text, "%s", text);
    r->page->number[SAYS_OPENING] = 1;
}

static struct comm_communicator *local_world[SOAK_RANKS_MAX];
static void run_thread(void *arg, int32_t rank)
{
    struct proc *proc = arg;
    struct soak_rank *r = calloc(1, sizeof *r);

    CHECK(r);
    *r = (struct soak_rank){.proc = proc, .page = &proc->page[rank], .program = proc->place, .rank = rank};
    r->slot[0] = (struct soak_slot){.c = local_world[rank], .size = r->program->ranks, .me = rank};
    run_steps(r);
    free(r);
}

/* All ranks are in this process. The page of rank 0 has what the process leaked. */
static void open_local_and_run(struct soak_rank *r)
{
    char text[512] = "";
    struct comm_config config = config_of(r->program, text);

    reach(r, 0);
    enum comm_result result = comm_open_local(&config, r->program->ranks, NULL, local_world);
    if (result != COMM_OK)
        rig_die(__FILE__, __LINE__, "comm_open_local: %s: %s", comm_result_name(result), text);
    rig_threads(r->program->ranks, run_thread, r->proc);
}

/* Prints where a rank crashed; addr2line -e soak_run decodes the numbers in brackets. */
static void on_crash(int number)
{
    void *at[40];
    backtrace_symbols_fd(at, backtrace(at, 40), STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number);
}

static void tell_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    void *first[1];

    backtrace(first, 1); /* this loads a library, which a signal handler must not do */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], on_crash);
}

void soak_rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct soak_rank r = {.proc = proc, .page = &proc->page[rank], .program = proc->place, .rank = rank};

    (void)none;
    tell_crashes();
    int64_t before = proc_holdings();
    if (r.program->local)
        open_local_and_run(&r);
    else
        open_and_run(&r);
    r.page->number[SAYS_DELAY] = soak_delay(getpid());
    for (int i = 0; i < 200 && proc_holdings() != before; i++)
        rig_nap(10 * RIG_MS); /* a joined thread leaves the list a moment later */
    r.page->number[SAYS_LEFT] = proc_holdings() - before;
    r.page->number[SAYS_OVER] = 1;
}
