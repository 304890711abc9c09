/*
 * soak: runs seeds, each in a process of its own, several in parallel, and prints a summary in one line. For a failed seed it prints the
 * fault and the command that repeats it.
 */
#define _GNU_SOURCE
#include "soak/soak.h"

#include "proc/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BESIDE_MAX = 16 };

struct arguments {
    uint64_t seed, runs;
    double seconds; /* 0: until all runs are done */
    uint64_t beside;
    const char *list; /* seeds that are run first */
    bool hostile, verbose, failed;
};

struct tally {
    uint64_t runs, failed, of[FAULT_KINDS], clean, told, recovered, opening, starved, verdicts[SOAK_VERDICTS - SOAK_HANG];
    int64_t slowest_ns;
};

struct place {
    pid_t pid;
    uint64_t seed;
    int heard; /* the output of the run */
    struct soak_program program;
    struct soak_outcome *outcome;
};
static struct place places[BESIDE_MAX];
static struct tally tally;

/* ------------------------------------------------------------------------------------------------------------ arguments */
static uint64_t number_of(struct arguments *a, const char *name, const char *text)
{
    char *end = NULL;

    errno = 0;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || errno) {
        fprintf(stderr, "soak: %s is '%s'; expected a number\n", name, text ? text : "missing");
        a->failed = true;
    }
    return value;
}

/* As ctest runs it: with new seeds. COMM_TEST_FRESH=0 leaves them out. Another number is the first seed, so that a run can be repeated. */
static void choose_test(struct arguments *a)
{
    const char *from = getenv("COMM_TEST_FRESH");

    a->seed = from && *from ? number_of(a, "COMM_TEST_FRESH", from) : (uint64_t)time(NULL) * 1000;
    a->runs = a->seed ? (a->hostile ? 60 : 220) : 0;
    a->runs /= selected(1, 2, 2);
    a->seconds = 40;
}

static bool parse(struct arguments *a, int count, char **text)
{
    for (int i = 1; i < count; i++) {
        const char *name = text[i], *value = i + 1 < count ? text[i + 1] : NULL;
        if (!strcmp(name, "--hostile"))
            a->hostile = true;
        else if (!strcmp(name, "--verbose"))
            a->verbose = true;
        else if (!strcmp(name, "--test"))
            choose_test(a);
        else if (!strcmp(name, "--seed"))
            a->seed = number_of(a, name, value), i++;
        else if (!strcmp(name, "--runs"))
            a->runs = number_of(a, name, value), i++;
        else if (!strcmp(name, "--seconds"))
            a->seconds = (double)number_of(a, name, value), i++;
        else if (!strcmp(name, "--beside"))
            a->beside = number_of(a, name, value), i++;
        else if (!strcmp(name, "--list") && value)
            a->list = value, i++;
        else
            return false;
    }
    return !a->failed && a->beside >= 1 && a->beside <= BESIDE_MAX;
}

static int help(void)
{
    puts("usage: soak_run [--hostile] [--seed FIRST | --test] [--runs N] [--seconds S] [--beside 1..16] [--list FILE] [--verbose]\n"
         "  random programs over every wire, a rank of which is killed, exits, aborts, is stopped, or with --hostile misbehaves");
    return 2;
}

/* ------------------------------------------------------------------------------------------------------------ runs */
static bool ring_is_there(void)
{
    unsigned char parameters[120] = {0};
    long fd = syscall(SYS_io_uring_setup, 1, parameters);

    if (fd >= 0)
        close((int)fd);
    return fd >= 0;
}

static void start(struct place *at, uint64_t seed, struct soak_can can)
{
    soak_make(&at->program, seed, can);
    at->seed = seed;
    memset(at->outcome, 0, sizeof *at->outcome);
    at->heard = memfd_create("soak output", MFD_CLOEXEC);
    fflush(NULL);
    at->pid = fork();
    if (at->pid < 0 || at->heard < 0) {
        fprintf(stderr, "soak: a run could not be started: %s\n", strerror(errno));
        exit(3);
    }
    if (at->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(at->heard, STDERR_FILENO);
        soak_judge(&at->program, at->outcome);
    }
}

static void print_heard(const struct place *at)
{
    char text[4096];
    ssize_t got;

    for (off_t from = 0; (got = pread(at->heard, text, sizeof text, from)) > 0; from += got)
        fwrite(text, 1, (size_t)got, stdout);
}

static void add_up(const struct place *at, int status, const struct arguments *a)
{
    const struct soak_outcome *o = at->outcome;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : SOAK_CRASH;

    tally.runs++;
    tally.of[o->kind] += o->struck != 0;
    tally.clean += !o->struck;
    tally.told += (uint64_t)o->told;
    tally.recovered += o->recovered != 0;
    tally.opening += (uint64_t)o->in_opening;
    tally.starved += (uint64_t)o->starved;
    tally.slowest_ns = o->slowest_ns > tally.slowest_ns && !o->starved ? o->slowest_ns : tally.slowest_ns;
    if (code == SOAK_OK) {
        if (a->verbose) {
            printf("seed %" PRIu64 ": ok, struck %d, told %d, recovered %d\n", at->seed, o->struck, o->told, o->recovered);
            soak_tell(&at->program, stdout);
        }
        return;
    }
    tally.failed++;
    if (code < SOAK_HANG || code >= SOAK_VERDICTS)
        code = SOAK_CRASH; /* of the judge itself */
    tally.verdicts[code - SOAK_HANG]++;
    printf("FAILED seed %" PRIu64 ": %s\n", at->seed, soak_verdict_names[code - SOAK_HANG]);
    print_heard(at);
    soak_tell(&at->program, stdout);
    printf("run it again: ./dev soak --%s %" PRIu64 "\n", a->hostile ? "hostile" : "kill", at->seed);
}

/* Reaps one run that has ended. */
static void reap(const struct arguments *a)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);

    for (int i = 0; i < BESIDE_MAX; i++) {
        struct place *at = &places[i];
        if (pid <= 0 || at->pid != pid)
            continue;
        add_up(at, status, a);
        close(at->heard);
        at->pid = 0;
    }
}

static struct place *free_place(const struct arguments *a, uint64_t *running)
{
    *running = 0;
    struct place *found = NULL;
    for (uint64_t i = 0; i < a->beside; i++) {
        *running += places[i].pid != 0;
        found = places[i].pid ? found : &places[i];
    }
    return found;
}

static void run_one(const struct arguments *a, uint64_t seed, struct soak_can can)
{
    uint64_t running;
    struct place *at;

    while (!(at = free_place(a, &running)))
        reap(a);
    start(at, seed, can);
}

/* Each line is `kill` or `hostile` and a seed; the rest of a line is a comment. */
static void run_list(const struct arguments *a, struct soak_can can)
{
    char line[512], name[64];
    uint64_t seed;
    FILE *file = fopen(a->list, "r");

    if (!file) {
        fprintf(stderr, "soak: --list %s: %s\n", a->list, strerror(errno));
        exit(2);
    }
    while (fgets(line, sizeof line, file))
        if (*line != '#' && sscanf(line, "%63s %" SCNu64, name, &seed) == 2 && !strcmp(name, a->hostile ? "hostile" : "kill"))
            run_one(a, seed, can);
    fclose(file);
}

static void print_tally(const struct arguments *a, double seconds)
{
    const struct tally *t = &tally;

    printf("soak: kind=%s runs=%" PRIu64 " failed=%" PRIu64, a->hostile ? "hostile" : "kill", t->runs, t->failed);
    printf(" killed=%" PRIu64 " exited=%" PRIu64 " aborted=%" PRIu64 " paused=%" PRIu64 " stopped=%" PRIu64, t->of[FAULT_KILL],
           t->of[FAULT_EXIT], t->of[FAULT_ABORT], t->of[FAULT_PAUSE], t->of[FAULT_STOP]);
    printf(" comm_aborted=%" PRIu64 " turned=%" PRIu64 " clean=%" PRIu64, t->of[FAULT_COMM_ABORT], t->of[FAULT_HOSTILE], t->clean);
    printf(" told=%" PRIu64 " recovered=%" PRIu64 " opening=%" PRIu64 " starved=%" PRIu64, t->told, t->recovered, t->opening, t->starved);
    for (int i = 0; i < SOAK_VERDICTS - SOAK_HANG; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", soak_verdict_names[i]);
        for (char *at = name; *at; at++)
            *at = *at == ' ' ? '_' : *at;
        printf(" %s=%" PRIu64, name, t->verdicts[i]);
    }
    printf(" slowest_ms=%" PRId64 " seconds=%.1f\n", t->slowest_ns / RIG_MS, seconds);
}

int main(int count, char **text)
{
    struct arguments a = {.seed = 1, .runs = 100, .beside = 3};

    if (!parse(&a, count, text))
        return help();
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct soak_outcome *outcomes = mmap(NULL, sizeof *outcomes * BESIDE_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        return 3;
    for (int i = 0; i < BESIDE_MAX; i++)
        places[i].outcome = &outcomes[i];
    struct soak_can can = {.hostile = a.hostile, .ring = ring_is_there(), .traced = trace_may()};
    if (!can.ring || !can.traced)
        printf("soak: without%s%s\n", can.ring ? "" : " io_uring", can.traced ? "" : " ptrace");
    int64_t begin = rig_now();
    if (a.list)
        run_list(&a, can);
    if (a.runs)
        printf("soak: seeds from %" PRIu64 "; COMM_TEST_FRESH=%" PRIu64 " runs them again in the test\n", a.seed, a.seed);
    for (uint64_t i = 0; i < a.runs && (a.seconds <= 0 || (double)(rig_now() - begin) < a.seconds * 1e9); i++)
        run_one(&a, a.seed + i, can);
    for (uint64_t running; free_place(&a, &running), running;)
        reap(&a);
    print_tally(&a, (double)(rig_now() - begin) / 1e9);
    return tally.failed || !tally.runs;
}
