/*
 * comm-perf --fit: measures the parameters of this machine, and how well they predict lengths that were not used to fit them. It uses only
 * public calls. Worlds of several sizes measure each algorithm (perf_cells.c), comm_predict computes the model's prediction for a machine
 * file, and a search over the parameters matches the two. It minimizes the mean of |log(predicted / measured)|, on which a single disturbed
 * cell has little influence.
 */
#define _GNU_SOURCE
#include "tools/perf_fit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CELLS_MOST = 4096, FIGURES_MOST = 64, TEXT_BYTES = 16384, SWEEPS = 4 };

/* Lengths to fit to, and others to check with. */
static const size_t learn[] = {8, 48, 64, 512, 4096, 16384, 65536, 256 << 10, 1 << 20, 4 << 20};
static const size_t others[] = {16, 32, 128, 1024, 8192, 32768, 128 << 10, 512 << 10, 2 << 20, 8 << 20};
enum { LEARN = sizeof learn / sizeof *learn, OTHERS = sizeof others / sizeof *others };

struct cell {
    int32_t ranks;
    int chosen;
    size_t bytes, n;
    double measured, predicted;
    char collective[24], algorithm[24];
};
struct figure {
    char key[32], unit[8], help[128];
    double value;
    bool fitted;
};
struct fit {
    struct perf_fit asked;
    struct cell cell[CELLS_MOST];
    int cells;
    struct figure figure[FIGURES_MOST];
    int figures;
    char head[64]; /* the first line of a machine file */
    /* Worlds of each size, all in this process, to predict with: the prediction depends on how such a world cuts its chunks. */
    struct comm_communicator *all[FIT_WORLDS_MOST][64], *by[FIT_WORLDS_MOST];
    char text[TEXT_BYTES];
};

__attribute__((noreturn)) static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "comm-perf: %s%s%s\n", what, why[0] ? ": " : "", why);
    exit(1);
}

/* ------------------------------------------------------------------------------------------------------------ measuring */
static void beside(const char *name, char *path, size_t room)
{
    ssize_t length = readlink("/proc/self/exe", path, room - 1);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    size_t at = slash ? (size_t)(slash + 1 - path) : 0;
    if (length <= 0 || at + strlen(name) >= room)
        give_up("cannot tell where comm-run lies", "");
    memcpy(path + at, name, strlen(name) + 1);
}

static void run_world(const struct fit *fit, int32_t ranks, const char *cells, double for_seconds)
{
    char launcher[4096], self[4096], count[16], seconds[32];
    beside("comm-run", launcher, sizeof launcher);
    beside("comm-perf", self, sizeof self);
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(seconds, sizeof seconds, "%.3f", for_seconds);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(launcher, "comm-run", "-n", count, self, fit->asked.check ? "--fit-cells-check" : "--fit-cells", cells, "--seconds", seconds,
              "--backend", fit->asked.backend, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
        give_up("a world that measures failed",
                WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "comm-run is not in the folder of comm-perf" : "");
}

static bool read_cell(FILE *file, struct cell *c)
{
    return fscanf(file, "%d %23s %23s %zu %zu %lf", &c->ranks, c->collective, c->algorithm, &c->bytes, &c->n, &c->measured) == 6;
}

static void read_cells(struct fit *fit, const char *path)
{
    FILE *file = fopen(path, "r");
    while (file && fit->cells < CELLS_MOST && read_cell(file, &fit->cell[fit->cells]))
        fit->cells++;
    if (!file || fclose(file))
        give_up(path, "cannot be read");
}

static bool same_call(const struct cell *a, const struct cell *b)
{
    return a->ranks == b->ranks && a->bytes == b->bytes && !strcmp(a->collective, b->collective);
}

/* Reads what an earlier --fit-try printed. */
static void read_printed(struct fit *fit, const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    while (file && fit->cells < CELLS_MOST && fgets(line, sizeof line, file)) {
        struct cell *c = &fit->cell[fit->cells];
        if (sscanf(line, "%d,%23[^,],%23[^,],%zu,%zu,%lf", &c->ranks, c->collective, c->algorithm, &c->bytes, &c->n, &c->measured) != 6)
            continue;
        c->measured *= 1e3;
        for (int w = 0; w < fit->asked.worlds; w++)
            if (fit->asked.world[w] == c->ranks) {
                fit->cells++;
                break;
            }
    }
    if (!file || fclose(file) || !fit->cells)
        give_up(path, "has no cells that --fit-try printed");
}

static void measure(struct fit *fit)
{
    char path[] = "/tmp/comm-perf-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        give_up(path, strerror(errno));
    close(file);
    for (int w = 0; w < fit->asked.worlds; w++) {
        int before = fit->cells;
        run_world(fit, fit->asked.world[w], path, fit->asked.seconds);
        read_cells(fit, path);
        printf("# %d ranks: %d cells measured\n", fit->asked.world[w], fit->cells - before);
    }
    unlink(path);
}

/* ------------------------------------------------------------------------------------------------------------ figures */
static void take_figures(struct fit *fit, const char *text)
{
    struct figure *f = fit->figure;
    fit->figures = 0;
    snprintf(fit->head, sizeof fit->head, "%.*s", (int)strcspn(text, "\n"), text);
    for (const char *line = strchr(text, '\n'); line && line[1] && fit->figures < FIGURES_MOST; line = strchr(line + 1, '\n')) {
        *f = (struct figure){.value = 0};
        if (sscanf(line + 1, "%31s %lf %7s # %127[^\n]", f->key, &f->value, f->unit, f->help) < 3)
            continue;
        f->fitted = strcmp(f->key, "cpus") && strncmp(f->key, "net.", 4) && strcmp(f->key, "shm.read") && strcmp(f->key, "shm.dirtied");
        fit->figures++;
        f++;
    }
}

static struct figure *figure_named(struct fit *fit, const char *key)
{
    for (int i = 0; i < fit->figures; i++)
        if (!strcmp(fit->figure[i].key, key))
            return &fit->figure[i];
    give_up(key, "the library has no such figure");
}

/* These two are no part of a call's time, so nothing is fitted to them. */
static void measure_lines(struct fit *fit)
{
    double read, dirtied;
    if (!perf_lines(&read, &dirtied)) {
        printf("# one CPU: shm.read and shm.dirtied keep their built-in values\n");
        return;
    }
    figure_named(fit, "shm.read")->value = read;
    figure_named(fit, "shm.dirtied")->value = dirtied;
    printf("# writing again to a line: %.1f ns if it was read, %.1f ns if it was read and written to\n", read, dirtied);
}

static void write_figures(struct fit *fit)
{
    size_t at = (size_t)snprintf(fit->text, sizeof fit->text, "%s\n", fit->head);
    for (int i = 0; i < fit->figures && at < sizeof fit->text; i++) {
        const struct figure *f = &fit->figure[i];
        at += (size_t)snprintf(fit->text + at, sizeof fit->text - at, "%s %.3f %s # %s\n", f->key, f->value, f->unit, f->help);
    }
}

static void open_predictors(struct fit *fit)
{
    for (int w = 0; w < fit->asked.worlds; w++) {
        int32_t ranks = fit->asked.world[w];
        if (comm_open_local(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER), ranks, NULL, fit->all[w]) != COMM_OK)
            give_up("a world to predict with cannot be opened", "");
        fit->by[w] = fit->all[w][0];
    }
}

static void close_predictors(struct fit *fit)
{
    for (int w = 0; w < fit->asked.worlds; w++)
        for (int32_t r = 0; r < fit->asked.world[w]; r++)
            (void)!comm_close(fit->all[w][r], COMM_DEFAULT_TIMEOUT);
}

/* For c's algorithm, or with `chosen` for the one that would be chosen. */
static double predicted(const struct fit *fit, const struct cell *c, bool chosen)
{
    int64_t ns = 0;
    struct comm_call call = {.size = sizeof call, .collective = c->collective, .n = c->n, .type = COMM_F32, .op = COMM_SUM};
    for (int w = 0; w < fit->asked.worlds; w++) {
        struct comm_error error = {.size = sizeof error};
        if (fit->asked.world[w] != c->ranks)
            continue;
        enum comm_result result = comm_predict(fit->by[w], &call, chosen ? NULL : c->algorithm, fit->text, &ns);
        if (result != COMM_OK)
            give_up("no prediction", comm_error_detail(fit->by[w], &error) == COMM_OK ? error.text : comm_result_text(result));
    }
    return (double)ns;
}

static double error_of(const struct cell *c)
{
    return fabs(log(c->predicted / c->measured));
}

static bool is_other(const struct cell *c)
{
    for (size_t i = 0; i < OTHERS; i++)
        if (c->bytes == others[i])
            return true;
    return false;
}

static double predict_all(struct fit *fit)
{
    double sum = 0, cells = 0;
    write_figures(fit);
    for (int i = 0; i < fit->cells; i++) {
        if (is_other(&fit->cell[i]))
            continue;
        fit->cell[i].predicted = predicted(fit, &fit->cell[i], false);
        sum += error_of(&fit->cell[i]);
        cells++;
    }
    return sum / cells;
}

/* Changes one parameter at a time, up and down, in decreasing steps. */
static double search(struct fit *fit)
{
    static const double factors[] = {2.5, 1.6, 1.25, 1.1};
    double best = predict_all(fit);
    for (size_t s = 0; s < sizeof factors / sizeof *factors; s++) {
        for (int sweep = 0, better = 1; sweep < SWEEPS && better; sweep++) {
            better = 0;
            for (int i = 0; i < fit->figures; i++) {
                double kept = fit->figure[i].value, tried[] = {kept * factors[s], kept / factors[s]};
                for (int k = 0; k < 2 && fit->figure[i].fitted; k++) {
                    fit->figure[i].value = tried[k] < 0.01 ? 0.01 : tried[k];
                    double now = predict_all(fit);
                    better |= now < best - 1e-5;
                    if (now < best - 1e-5) {
                        best = now;
                        kept = fit->figure[i].value;
                        break;
                    }
                    fit->figure[i].value = kept;
                }
            }
        }
        printf("# steps of %.2f: mean |log(predicted / measured)| %.3f\n", factors[s], best);
        fflush(stdout);
    }
    (void)predict_all(fit);
    return best;
}

/* ------------------------------------------------------------------------------------------------------------ results */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of |predicted - measured| / measured over cells from ranks_min to ranks_max. */
static double median_error(const struct fit *fit, int32_t ranks_min, int32_t ranks_max, int *count)
{
    static double error[CELLS_MOST];
    *count = 0;
    for (int i = 0; i < fit->cells; i++)
        if (fit->cell[i].ranks >= ranks_min && fit->cell[i].ranks <= ranks_max && is_other(&fit->cell[i]) == fit->asked.check)
            error[(*count)++] = fabs(fit->cell[i].predicted / fit->cell[i].measured - 1);
    qsort(error, (size_t)*count, sizeof *error, by_value);
    return *count ? error[*count / 2] : 0;
}

/* Counts calls that have a choice, and those in which the library's choice was within a tenth of the best. */
static void count_choices(const struct fit *fit, int *calls, int *good)
{
    *calls = *good = 0;
    for (int i = 0; i < fit->cells; i++) {
        const struct cell *c = &fit->cell[i];
        double best = c->measured, chosen = c->chosen ? c->measured : 0;
        int algorithms = 1;
        bool first = true;
        for (int k = 0; k < fit->cells; k++) {
            if (k == i || !same_call(c, &fit->cell[k]))
                continue;
            first &= k > i;
            algorithms++;
            best = fit->cell[k].measured < best ? fit->cell[k].measured : best;
            chosen = fit->cell[k].chosen ? fit->cell[k].measured : chosen;
        }
        if (!first || algorithms < 2 || c->ranks < 2 || !is_other(c)) /* with one rank, all algorithms only copy */
            continue;
        ++*calls;
        *good += chosen > 0 && chosen <= best * 1.1;
        if (chosen > best * 1.1)
            printf("# not the best: %s %d ranks %zu bytes: %.2f us, the best %.2f\n", c->collective, c->ranks, c->bytes, chosen * 1e-3,
                   best * 1e-3);
    }
}

static void print_cells(const struct fit *fit)
{
    printf("ranks,collective,algorithm,bytes,elements,measured_us,predicted_us,error_pct,chosen\n");
    for (int i = 0; i < fit->cells; i++) {
        const struct cell *c = &fit->cell[i];
        printf("%d,%s,%s,%zu,%zu,%.3f,%.3f,%.1f,%d\n", c->ranks, c->collective, c->algorithm, c->bytes, c->n, c->measured * 1e-3,
               c->predicted * 1e-3, 100 * (c->predicted / c->measured - 1), c->chosen);
    }
}

static void summarise(const struct fit *fit)
{
    int cells, calls = 0, good = 0;
    for (int w = 0; w < fit->asked.worlds; w++) {
        int32_t ranks = fit->asked.world[w];
        double error = median_error(fit, ranks, ranks, &cells);
        printf("# %d ranks: %d cells, median error %.1f %%\n", ranks, cells, 100 * error);
    }
    double error = median_error(fit, 2, INT32_MAX, &cells); /* one rank alone is not counted, because it is too easy to predict */
    if (fit->asked.check)
        count_choices(fit, &calls, &good);
    printf("fit: cells=%d median_error=%.1f%%", cells, 100 * error);
    if (fit->asked.check)
        printf(" choices=%d within_a_tenth=%d (%.1f%%)", calls, good, calls ? 100.0 * good / calls : 100.0);
    printf("\n");
}

static void write_machine(const struct fit *fit, double error)
{
    char host[256] = "";
    FILE *file = fopen(fit->asked.machine, "w");
    (void)gethostname(host, sizeof host - 1);
    if (!file)
        give_up(fit->asked.machine, strerror(errno));
    const char *rest = strchr(fit->text, '\n') + 1;
    fprintf(file, "%.*s", (int)(rest - fit->text), fit->text);
    fprintf(file, "# by comm-perf --fit on %s: %d cells of worlds of", host, fit->cells);
    for (int w = 0; w < fit->asked.worlds; w++)
        fprintf(file, " %d", fit->asked.world[w]);
    fprintf(file, " ranks, mean |log(predicted / measured)| %.3f\n# cpus and net.* were not measured: set them as they are\n%s", error,
            rest);
    if (fclose(file))
        give_up(fit->asked.machine, strerror(errno));
    printf("# written: %s; use it with COMM_MACHINE=%s\n", fit->asked.machine, fit->asked.machine);
}

static void read_machine(struct fit *fit)
{
    static char text[TEXT_BYTES];
    FILE *file = fopen(fit->asked.machine, "r");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (!file)
        give_up(fit->asked.machine, strerror(errno));
    fclose(file);
    text[bytes] = 0;
    memcpy(fit->text, text, bytes + 1);
}

/* Before a minute of measuring, and without leaving a file behind. */
static void check_file(const struct perf_fit *asked)
{
    bool there = access(asked->machine, F_OK) == 0;
    FILE *file = fopen(asked->machine, asked->as_it_is ? "r" : "a");
    if (!file)
        give_up(asked->machine, strerror(errno));
    fclose(file);
    if (!there)
        (void)remove(asked->machine);
}

static int parent(const struct perf_fit *asked)
{
    static struct fit fit;
    fit.asked = *asked;
    check_file(asked);
    if (asked->cells)
        read_printed(&fit, asked->cells);
    else
        measure(&fit);
    open_predictors(&fit);
    if (asked->as_it_is) {
        read_machine(&fit);
    } else {
        if (comm_describe_machine(fit.by[0], fit.text, sizeof fit.text) != COMM_OK)
            give_up("no figures to begin with", "");
        take_figures(&fit, fit.text);
        measure_lines(&fit);
        write_machine(&fit, search(&fit));
    }
    if (asked->check) {
        for (int i = 0; i < fit.cells; i++) {
            fit.cell[i].predicted = predicted(&fit, &fit.cell[i], false);
            fit.cell[i].chosen = predicted(&fit, &fit.cell[i], true) == fit.cell[i].predicted;
        }
        print_cells(&fit);
    }
    summarise(&fit);
    close_predictors(&fit);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ command line */
static const char usage[] =
    "usage: comm-perf --fit FILE [options]          measure this machine and write its parameters to FILE\n"
    "       comm-perf --fit-try FILE [options]      the same, and print how well they predict and choose at other lengths\n"
    "       comm-perf --fit-check FILE [options]    print that for a FILE that exists\n"
    "  --ranks N,N,..     sizes of the worlds to measure (2,3,4,8 and 1)\n"
    "  --seconds S        time for each of them (10)\n"
    "  --cells CELLS      measure nothing: the file CELLS has what an earlier --fit-try or --fit-check printed\n"
    "  --backend NAME     as COMM_BACKEND (auto)\n";

static void set_lengths(struct perf_fit *fit)
{
    memcpy(fit->length, learn, sizeof learn);
    fit->lengths = LEARN;
    if (!fit->check)
        return;
    memcpy(fit->length + fit->lengths, others, sizeof others);
    fit->lengths += OTHERS;
}

static bool parse_seconds(struct perf_fit *fit, const char *text)
{
    char *end;
    fit->seconds = strtod(text, &end);
    return end != text && !*end && fit->seconds > 0 && fit->seconds <= FIT_SECONDS_MOST;
}

static bool parse_ranks(struct perf_fit *fit, const char *text)
{
    char *end = (char *)(uintptr_t)text;
    for (fit->worlds = 0; *end && fit->worlds < FIT_WORLDS_MOST; end += *end == ',') {
        long ranks = strtol(end, &end, 10);
        if (ranks < 1 || ranks > 64 || (*end && *end != ','))
            return false;
        fit->world[fit->worlds++] = (int32_t)ranks;
    }
    return !*end && fit->worlds > 0;
}

static void reject(const char *option, const char *value)
{
    const char *expected = !strcmp(option, "--ranks")     ? "at most 8 numbers from 1 to 64, with commas between them"
                           : !strcmp(option, "--seconds") ? "seconds, above 0 and at most 3600"
                                                          : "--ranks, --seconds, --cells or --backend";
    bool known = expected[0] != '-';
    fprintf(stderr, "comm-perf: %s is '%s'; expected %s\n", known ? option : "an option", known ? value : option, expected);
}

int perf_fit_main(int argc, char **argv)
{
    struct perf_fit fit = {.backend = "auto", .seconds = 10, .world = {2, 3, 4, 8, 1}, .worlds = 5};
    bool rank = !strncmp(argv[0], "--fit-cells", 11);
    bool known = rank || !strcmp(argv[0], "--fit");
    fit.as_it_is = !strcmp(argv[0], "--fit-check");
    fit.check = fit.as_it_is || !strcmp(argv[0], "--fit-try") || !strcmp(argv[0], "--fit-cells-check");
    if (argc < 2 || argc % 2 || !(known || fit.check)) {
        fputs(usage, stderr);
        return 2;
    }
    *(rank ? &fit.cells : &fit.machine) = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--backend"))
            fit.backend = argv[i + 1];
        else if (!rank && !strcmp(argv[i], "--cells"))
            fit.cells = argv[i + 1];
        else if (!strcmp(argv[i], "--seconds") ? !parse_seconds(&fit, argv[i + 1])
                                               : strcmp(argv[i], "--ranks") || !parse_ranks(&fit, argv[i + 1])) {
            reject(argv[i], argv[i + 1]);
            return 2;
        }
    }
    set_lengths(&fit);
    return rank ? perf_cells(&fit) : parent(&fit);
}
