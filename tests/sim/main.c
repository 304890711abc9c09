/* sim: runs seeds of a workload, each of which is the whole life of a world, and prints how to repeat a failing one. */
#define _GNU_SOURCE
#include "sim/sim.h"
#include "selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct arguments {
    uint64_t seed, seeds;
    uint64_t fresh; /* seeds from here on follow while there is time; 0: none */
    double seconds;
    const char *workload, *list; /* list: a file of workloads and seeds */
    struct sim_options options;
    bool twice, probes, failed, want_failure;
};

static uint64_t number_of(struct arguments *a, const char *name, const char *text)
{
    char *end = NULL;

    errno = 0;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || errno) {
        fprintf(stderr, "sim: %s is '%s'; expected a number\n", name, text ? text : "missing");
        a->failed = true;
    }
    return value;
}

static int help(void)
{
    puts("usage: sim [--seeds N] [--seconds S] [--seed FIRST] [--faults on|off] [--ranks P] [--workload NAME] [--twice] [--probes] "
         "[--verbose]");
    for (size_t i = 0; i < sim_workload_count; i++)
        printf("  %-16s %s\n", sim_workloads[i].name, sim_workloads[i].help);
    return 2;
}

/* As ctest runs it: always the same seeds first, then new ones, while there is time (selection.h). COMM_TEST_FRESH=0 leaves the new ones
 * out; any other number is the first new seed, so that a run can be repeated. */
static void choose_test(struct arguments *a)
{
    enum { SEEDS = 60, FIRST = 8000 };
    const char *from = getenv("COMM_TEST_FRESH");

    a->seconds = selected(44, 20, 9);
    a->seeds = SEEDS;
    a->seed = FIRST;
    a->fresh = from && *from ? number_of(a, "COMM_TEST_FRESH", from) : (uint64_t)time(NULL) * 1000;
}

static bool parse(struct arguments *a, int count, char **text)
{
    for (int i = 1; i < count; i++) {
        const char *name = text[i], *value = i + 1 < count ? text[i + 1] : NULL;
        if (!strcmp(name, "--twice"))
            a->twice = true;
        else if (!strcmp(name, "--want-failure"))
            a->want_failure = true;
        else if (!strcmp(name, "--probes"))
            a->probes = true;
        else if (!strcmp(name, "--verbose"))
            a->options.verbose = true;
        else if (!strcmp(name, "--seeds"))
            a->seeds = number_of(a, name, value), i++;
        else if (!strcmp(name, "--seconds"))
            a->seconds = (double)number_of(a, name, value), i++;
        else if (!strcmp(name, "--seed"))
            a->seed = number_of(a, name, value), i++;
        else if (!strcmp(name, "--ranks"))
            a->options.ranks = (int32_t)number_of(a, name, value), i++;
        else if (!strcmp(name, "--workload"))
            a->workload = value, i++;
        else if (!strcmp(name, "--list"))
            a->list = value, i++;
        else if (!strcmp(name, "--fresh"))
            a->seed = (uint64_t)time(NULL) * 1000;
        else if (!strcmp(name, "--test"))
            choose_test(a);
        else if (!strcmp(name, "--faults") && value && (!strcmp(value, "on") || !strcmp(value, "off")))
            a->options.faults = !strcmp(value, "on"), i++;
        else
            return false;
    }
    return !a->failed;
}

static double seconds_now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs one seed once, or twice: then the second run must equal the first. */
static bool run_seed(const struct arguments *a, const struct sim_workload *w, uint64_t seed, uint64_t *events)
{
    enum { TELL_MOST = 3 };
    static struct sim_result result, again;
    static uint32_t told;
    bool ok = w->run(seed, &a->options, &result);

    *events += result.events;
    if (a->options.verbose)
        printf("seed %" PRIu64 ": %s hash=%016" PRIx64 " events=%" PRIu64 " faults=%" PRIu64 " ms=%" PRId64 "\n", seed,
               ok ? "ok" : "FAILED", result.hash, result.events, result.faults, result.ns / 1000000);
    if (!ok) {
        if (++told > TELL_MOST && !a->options.verbose) {
            printf("%s: seed %" PRIu64 " too\n", w->name, seed);
            return false;
        }
        printf("%s: %s\nrun it again: ./dev sim --workload %s --seed %" PRIu64 " --seeds 1 --faults %s\n", w->name, result.text, w->name,
               seed, a->options.faults ? "on" : "off");
        return false;
    }
    if (!a->twice)
        return true;
    w->run(seed, &a->options, &again);
    *events += again.events;
    if (again.hash == result.hash && again.events == result.events)
        return true;
    printf("%s: seed %" PRIu64 " is not the same twice: %016" PRIx64 " after %" PRIu64 " events, %016" PRIx64 " after %" PRIu64 "\n",
           w->name, seed, result.hash, result.events, again.hash, again.events);
    return false;
}

/* Lines of a workload's name and a seed; the rest of a line is a comment. */
static bool run_list(const struct arguments *a, uint64_t *run, uint64_t *failures, uint64_t *events)
{
    char line[512], name[64];
    FILE *file = fopen(a->list, "r");

    if (!file) {
        fprintf(stderr, "sim: --list %s: %s\n", a->list, strerror(errno));
        return false;
    }
    while (fgets(line, sizeof line, file)) {
        uint64_t seed;
        const struct sim_workload *found = NULL;
        if (*line == '#' || sscanf(line, "%63s %" SCNu64, name, &seed) != 2)
            continue;
        for (size_t w = 0; w < sim_workload_count; w++)
            found = strcmp(sim_workloads[w].name, name) ? found : &sim_workloads[w];
        if (!found)
            fprintf(stderr, "sim: %s: no workload is called '%s'\n", a->list, name);
        *failures += !found || !run_seed(a, found, seed, events);
        ++*run;
    }
    fclose(file);
    return true;
}

struct tally {
    uint64_t run, failures, events;
};

static void run_seeds(const struct arguments *a, uint64_t first, uint64_t seeds, double begin, struct tally *t)
{
    double spent = 0;

    for (uint64_t i = 0; i < seeds && (a->seconds <= 0 || spent < a->seconds) && !(a->want_failure && t->failures); i++) {
        for (size_t w = 0; w < sim_workload_count && !(a->want_failure && t->failures); w++) {
            if (a->workload && strcmp(a->workload, sim_workloads[w].name) != 0)
                continue;
            t->failures += !run_seed(a, &sim_workloads[w], first + i, &t->events);
            t->run++;
        }
        spent = seconds_now(CLOCK_MONOTONIC) - begin;
    }
}

int main(int count, char **text)
{
    struct arguments a = {.seed = 1, .seeds = 1000, .options = {.faults = true}};
    struct tally t = {0, 0, 0};

    if (!parse(&a, count, text))
        return help();
    setvbuf(stdout, NULL, _IOLBF, 0);
    double begin = seconds_now(CLOCK_MONOTONIC);
    if (a.list && !run_list(&a, &t.run, &t.failures, &t.events))
        return 2;
    run_seeds(&a, a.seed, a.seeds, begin, &t);
    if (a.fresh && !t.failures) {
        printf("sim: fresh seeds from %" PRIu64 "; COMM_TEST_FRESH=%" PRIu64 " runs them again\n", a.fresh, a.fresh);
        run_seeds(&a, a.fresh, UINT64_MAX, begin, &t);
    }
    if (a.probes)
        sim_probe_report(true);
    double computed = seconds_now(CLOCK_PROCESS_CPUTIME_ID); /* in seconds of one core's time, whatever else uses it */
    printf("sim: seeds=%" PRIu64 " failures=%" PRIu64 " events_per_s=%.0f\n", t.run, t.failures, (double)t.events / computed);
    if (a.want_failure)
        printf("%s\n", t.failures ? "found, as it must be" : "NOT found");
    return a.want_failure ? !t.failures : t.failures || !t.run;
}
