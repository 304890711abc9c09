/* Explores every schedule and every choice, one run after another: the threads are coroutines that yield at each
 * operation. */
#define _GNU_SOURCE
#include "model/threads.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, CHOICES = 4096, STEPS = 2000, SITES = 256 };

struct fiber {
    ucontext_t first;
    jmp_buf here;
    bool begun;
    enum thread_state state;
    struct op next;
};

/* Where the run branched. */
struct choice {
    uint32_t count, taken;
};

static struct {
    const struct model_case *c;
    const struct model_fault *fault;
    struct model_report *report;
    struct fiber fiber[MODEL_THREADS];
    struct choice choice[CHOICES];
    uint32_t choices, at;     /* recorded, replayed */
    uint32_t running, asleep; /* asleep: one bit per thread whose next step was tried already, if nothing that it depends on has happened
                               * since */
    bool exploring;
    uint64_t chance; /* 0: all choices in turn; otherwise the state from which random choices are drawn */
    struct {
        uint32_t thread;
        struct op op;
        uint64_t value;
    } step[STEPS];
    uint32_t steps;
    jmp_buf main, verdict;
    uintptr_t site[SITES];
    uint32_t sites;
} x;
static _Alignas(4096) char stacks[MODEL_THREADS][STACK_BYTES];

/* ------------------------------------------------------------------------------------------------------------ error reports */
static const char *kind_name(enum model_kind kind)
{
    static const char *const text[] = {"starts",       "loads",   "stores", "changes", "fence", "signal fence",
                                       "barrier",      "relaxes", "parks",  "wakes",   "rings", "waits for a bell",
                                       "clears a bell"};
    return text[kind];
}

static void describe_run(char *text, size_t bytes)
{
    size_t at = strlen(text);
    for (uint32_t i = 0; i < x.steps && at + 100 < bytes; i++) {
        const struct op *op = &x.step[i].op;
        at += (size_t)snprintf(text + at, bytes - at, "\n  thread %u %s %s = %llx", x.step[i].thread, kind_name(op->kind),
                               op->address ? memory_name(op->address) : "", (unsigned long long)x.step[i].value);
    }
}

void model_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(x.report->text, sizeof x.report->text, format, list);
    va_end(list);
    x.report->found = true;
    describe_run(x.report->text, sizeof x.report->text);
    _exit(1);
}

static void trapped(int number)
{
    model_fail("%s", number == SIGILL || number == SIGTRAP ? "an assertion of the library's own" : "a wild access");
}

/* ------------------------------------------------------------------------------------------------------------ choices */
static struct choice *next_choice(uint32_t count)
{
    static struct choice by_chance;
    if (x.chance) {
        x.chance = x.chance * UINT64_C(6364136223846793005) + 1442695040888963407;
        by_chance.taken = (uint32_t)(x.chance >> 33) % count;
        return &by_chance;
    }
    if (x.at == CHOICES)
        model_fail("a run with more than %d choices", CHOICES);
    struct choice *c = &x.choice[x.at++];
    if (x.at > x.choices) {
        c->count = count;
        c->taken = 0;
        x.choices = x.at;
    } else if (c->count != count) {
        model_fail("the run is not the same again: %u choices, then %u", c->count, count);
    }
    return c;
}

uint32_t explore_choose(uint32_t n)
{
    return n < 2 ? 0 : next_choice(n)->taken;
}

/* Prepares the next run: advances the last choice that has alternatives left. False: all runs were made. */
static bool turn(void)
{
    while (x.choices && x.choice[x.choices - 1].taken + 1 == x.choice[x.choices - 1].count)
        x.choices--;
    if (!x.choices)
        return false;
    x.choice[x.choices - 1].taken++;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ faults */
bool explore_is_removed(const struct op *op)
{
    const struct model_fault *f = x.fault;
    if (!f || f->kind != op->kind || (f->thread >= 0 && (uint32_t)f->thread != x.running))
        return false;
    return f->site ? f->site == op->site : !f->name || strcmp(f->name, memory_name(op->address)) == 0;
}

static void weaken(struct op *op)
{
    if (!explore_is_removed(op))
        return;
    op->order = op->order_failed = __ATOMIC_RELAXED;
    op->sc = false;
}

/* For model_weaken_each: records the places that order something. */
static void note_site(const struct op *op)
{
    if (op->order == __ATOMIC_RELAXED && op->kind != MODEL_SIGNAL_FENCE)
        return;
    for (uint32_t i = 0; i < x.sites; i += 2)
        if (x.site[i] == op->site)
            return;
    if (x.sites + 2 > SITES)
        return;
    x.site[x.sites++] = op->site;
    x.site[x.sites++] = op->kind;
}

/* ------------------------------------------------------------------------------------------------------------ operations */
static void leave_fiber(void)
{
    if (!_setjmp(x.fiber[x.running].here))
        _longjmp(x.main, 1);
}

bool explore_running(uint32_t *thread)
{
    *thread = x.running;
    return x.exploring;
}

static void record(const struct op *op, uint64_t value)
{
    if (x.steps == STEPS)
        model_fail("a run of more than %d steps", STEPS);
    x.step[x.steps].thread = x.running;
    x.step[x.steps].op = *op;
    x.step[x.steps++].value = value;
}

uint64_t explore_atomic(struct op *op)
{
    struct fiber *f = &x.fiber[x.running];
    if (memory_is_constant(op))
        return memory_constant(op);
    note_site(op);
    weaken(op);
    f->next = *op;
    leave_fiber();
    uint64_t old = memory_atomic(x.running, op);
    record(op, op->kind == MODEL_STORE ? op->operand : old);
    return old;
}

void explore_fence(struct op *op)
{
    struct fiber *f = &x.fiber[x.running];
    note_site(op);
    if (explore_is_removed(op))
        return;
    if (op->kind == MODEL_SIGNAL_FENCE) {
        memory_signal_fence(x.running);
        return;
    }
    if (op->sc) { /* other fences concern this thread alone */
        f->next = *op;
        leave_fiber();
    }
    memory_fence(x.running, op->order);
    record(op, 0);
}

void explore_plain(uintptr_t address, size_t bytes, bool write)
{
    memory_plain(x.running, address, bytes, write);
}

void explore_step(enum model_kind kind, uintptr_t address)
{
    x.fiber[x.running].next = (struct op){.kind = kind, .address = address, .sc = true};
    leave_fiber();
    record(&x.fiber[x.running].next, 0);
}

void explore_sleep(enum thread_state state)
{
    x.fiber[x.running].state = state;
    leave_fiber();
}

void explore_wake(enum thread_state state, uintptr_t address, uint32_t most)
{
    for (uint32_t t = 0; t < x.c->threads && most; t++) {
        if (x.fiber[t].state == state && x.fiber[t].next.address == address) {
            x.fiber[t].state = THREAD_READY;
            most--;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ independence */
static bool of_kernel(const struct op *op)
{
    return op->kind >= MODEL_PARK;
}

static bool writes(const struct op *op)
{
    return op->kind == MODEL_STORE || op->kind == MODEL_CHANGE;
}

/* Whether the next steps of two threads have the same effect in either order. */
static bool independent(const struct op *a, const struct op *b)
{
    if (a->kind == MODEL_START || b->kind == MODEL_START)
        return true;
    if (a->kind == MODEL_BARRIER || b->kind == MODEL_BARRIER || (of_kernel(a) && of_kernel(b)))
        return false;
    if (a->kind == MODEL_RELAX || b->kind == MODEL_RELAX)
        return !writes(a) && !writes(b);
    bool a_fence = a->kind == MODEL_FENCE || of_kernel(a), b_fence = b->kind == MODEL_FENCE || of_kernel(b);
    if ((a_fence && (b_fence || b->sc)) || (b_fence && a->sc))
        return false;
    return a->address != b->address || (a->kind == MODEL_LOAD && b->kind == MODEL_LOAD);
}

/* ------------------------------------------------------------------------------------------------------------ one run */
static void enter_fiber(void)
{
    x.c->run(x.running);
    x.fiber[x.running].state = THREAD_ENDED;
    _longjmp(x.main, 1);
}

static void resume(uint32_t thread)
{
    struct fiber *f = &x.fiber[thread];
    x.running = thread;
    x.exploring = true;
    if (!_setjmp(x.main)) {
        if (f->begun)
            _longjmp(f->here, 1);
        f->begun = true;
        setcontext(&f->first);
    }
    x.exploring = false;
}

static void make_fibers(void)
{
    for (uint32_t t = 0; t < x.c->threads; t++) {
        struct fiber *f = &x.fiber[t];
        *f = (struct fiber){.next = {.kind = MODEL_START}};
        getcontext(&f->first);
        f->first.uc_stack.ss_sp = stacks[t];
        f->first.uc_stack.ss_size = STACK_BYTES;
        makecontext(&f->first, enter_fiber, 0);
    }
}

static bool can_go(uint32_t thread)
{
    const struct fiber *f = &x.fiber[thread];
    return f->state == THREAD_READY && (f->next.kind != MODEL_RELAX || memory_changed(thread));
}

/* No thread can continue. A sleeper's deadline may help, where that is allowed. True: a thread continues. */
static bool pass_time(void)
{
    uint32_t sleeper[MODEL_THREADS], count = 0, left = 0;
    for (uint32_t t = 0; t < x.c->threads; t++) {
        left += x.fiber[t].state != THREAD_ENDED;
        if (x.fiber[t].state == THREAD_PARKED || x.fiber[t].state == THREAD_RINGING)
            sleeper[count++] = t;
    }
    if (!left)
        return false;
    if (!count || !x.c->deadlines)
        model_fail("nobody goes on: %s", count ? "a sleeper that nobody wakes" : "a loop that waits for what never comes");
    x.fiber[sleeper[explore_choose(count)]].state = THREAD_READY;
    return true;
}

/* False: pruned. */
static bool schedule(uint32_t *thread)
{
    uint32_t can = 0, count = 0, tried = 0;
    uint8_t candidates[MODEL_THREADS];
    for (uint32_t i = 0; i < x.c->threads; i++) {
        uint32_t t = (x.running + i) % x.c->threads; /* the running thread continues first */
        can += can_go(t);
        if (can_go(t) && !(x.asleep >> t & 1))
            candidates[count++] = (uint8_t)t;
    }
    if (!count)
        return can == 0;
    uint32_t taken = count < 2 ? 0 : next_choice(count)->taken;
    *thread = candidates[taken];
    for (uint32_t i = 0; i < taken && !x.chance; i++)
        tried |= 1u << candidates[i];
    uint32_t asleep = (x.asleep | tried) & ~(1u << *thread);
    x.asleep = 0;
    for (uint32_t t = 0; t < x.c->threads; t++)
        if (asleep >> t & 1 && independent(&x.fiber[t].next, &x.fiber[*thread].next))
            x.asleep |= 1u << t;
    return true;
}

/* False: this run repeats another. */
static bool run_once(void)
{
    enum { NOBODY = MODEL_THREADS };
    memory_restore();
    memory_reset(x.c->threads);
    env_reset();
    x.at = x.steps = x.running = x.asleep = 0;
    make_fibers();
    for (;;) {
        uint32_t thread = NOBODY;
        if (!schedule(&thread))
            return false;
        if (thread != NOBODY)
            resume(thread);
        else if (!pass_time())
            break;
    }
    if (x.c->finish)
        x.c->finish();
    return true;
}

static void explore_all(uint64_t most)
{
    struct model_report *report = x.report;
    x.c->setup();
    memory_keep();
    do {
        if (report->runs + report->pruned == most)
            break;
        if (run_once())
            report->runs++;
        else
            report->pruned++;
        report->complete = !turn();
    } while (!report->complete);
    x.chance = report->complete ? 0 : 1;
    for (uint64_t i = 0; x.chance && i < most; i++) /* runs in turn vary only the ends of runs: so do as many random ones */
        report->runs += run_once();
}

/* ------------------------------------------------------------------------------------------------------------ the handle */
static uintptr_t *shared_sites;

void model_explore(const struct model_case *c, const struct model_fault *fault, uint64_t most, struct model_report *report)
{
    static const int fatal[] = {SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE};
    struct model_report *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
            signal(fatal[i], trapped);
        x.c = c;
        x.fault = fault;
        x.report = shared;
        explore_all(most);
        if (shared_sites)
            memcpy(shared_sites, x.site, sizeof x.site);
        _exit(0);
    }
    waitpid(child, &status, 0);
    *report = *shared;
    munmap(shared, sizeof *shared);
    if (!report->found && (!WIFEXITED(status) || WEXITSTATUS(status))) {
        report->found = true;
        snprintf(report->text, sizeof report->text, "the exploration itself ended with %#x", (unsigned)status);
    }
}

void model_weaken_each(const struct model_case *c, uint64_t most)
{
    struct model_report report;
    uintptr_t *sites = mmap(NULL, sizeof x.site, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_sites = sites;
    model_explore(c, NULL, most, &report);
    shared_sites = NULL;
    for (uint32_t i = 0; i < SITES && sites[i]; i += 2) {
        struct model_fault fault = {.what = "one place", .kind = (enum model_kind)sites[i + 1], .thread = -1, .site = sites[i]};
        model_explore(c, &fault, most, &report);
        printf("%s %#lx %s: %s\n", c->name, (unsigned long)sites[i], kind_name(fault.kind),
               report.found      ? "needed"
               : report.complete ? "not needed here"
                                 : "not found in so many runs");
    }
    munmap(sites, sizeof x.site);
}
