/*
 * Predictions at sizes that are not at hand: every algorithm's production programs for up to 131,072 ranks and more, run in size-only mode
 * by the cost model. What it prints is the model's word and no measurement, but for the speed of the model itself.
 *
 *   sim_scale                 the prediction table, in Markdown
 *   sim_scale --csv           every cell, for the plots of docs/performance/scale.md
 *   sim_scale --speed         how fast the model itself runs, and its memory
 *   --machine FILE            the figures of another machine (comm-perf --fit writes them); else the library's own
 */
#define _GNU_SOURCE
#include "select/select.h"
#include "model/cost.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a cell may cost to run exactly, in exposures and views, together or of a rank; above both the quick form stands in, and is marked.
 */
enum { EXACT_MOST = 1000000, EXACT_RANK_MOST = 100, HOST_RANKS = 16 };

static void *take(const struct comm_env *env, size_t bytes, size_t align)
{
    void *memory;
    (void)env;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    return memset(memory, 0, bytes);
}

static void give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    (void)bytes;
    free(memory);
}
static const struct comm_env env = {.name = "scale", .take = take, .give = give};

static struct comm_env const *const memory = &env;
static struct cost_machine machine;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ------------------------------------------------------------------------------------------------------------ cells */
enum layout { ONE_HOST, MANY_HOSTS, ONE_EACH };
static const char *const layout_names[] = {"one host", "16 a host", "1 a host"};

/* As the memory wires cut it on one host; across hosts, whole places. */
static struct wire_caps caps_of(int32_t size, enum layout layout)
{
    struct wire_caps caps = {.inline_max = 48, .window = 64, .once_max = 65536, .chunk_all = 65536, .chunk_private = 65536};
    size_t share = size > 1 ? ((size_t)4 * 65536 / (size_t)(size - 1)) & ~(size_t)4095 : 65536;
    if (layout == ONE_HOST)
        caps.chunk_private = share < 8192 ? 8192 : share > 65536 ? 65536 : share;
    return caps;
}

struct cell {
    struct cost_result result;
    uint64_t ps;
    bool exact, served;
};

/* How many exposures and views the exact form would count. */
static double work_of(const struct algo_row *row, int32_t size, const struct cost_case *what)
{
    struct program_spec spec = {.collective = row->collective, .rank = 0, .size = size, .root = 0};
    double work = 0;
    spec.rank = size > 1 ? 1 : 0;
    struct comm_program *p = row->build(memory, &spec);
    if (!p)
        return 1e18;
    struct run_cut cut = run_cut_of(p, what->caps, what->size, what->n, what->raw, what->partial);
    for (uint32_t i = 0, trips = 1; i < p->steps; i++) {
        const struct comm_step *s = &p->step[i];
        if (s->code == STEP_LOOP && !(s->flags & STEP_CHUNKED))
            trips = s->src.count;
        if (s->code == STEP_END)
            trips = 1;
        if (s->code == STEP_EXPOSE || s->code == STEP_VIEW)
            work += (s->code == STEP_VIEW ? s->npeers : 1.0) * (s->flags & STEP_CHUNKED ? cut.chunks : 1) * trips;
    }
    program_free(memory, p);
    return work * size;
}

static struct cell price(const struct algo_row *row, int32_t size, size_t bytes, enum layout layout)
{
    struct cost_machine here = machine;
    struct wire_caps caps = caps_of(size, layout);
    struct cell cell = {.exact = true};
    struct cost_case what = {.machine = &here,
                             .caps = &caps,
                             .build = row->build,
                             .collective = row->collective,
                             .size = size,
                             .n = bytes / 4 ? bytes / 4 : 1,
                             .raw = 4,
                             .partial = 4,
                             .calls = 1,
                             .host_ranks = layout == ONE_HOST     ? 0
                                           : layout == MANY_HOSTS ? HOST_RANKS
                                                                  : 1};
    if (row->collective == COLLECTIVE_BARRIER)
        what.n = 0;
    here.cpus = layout == ONE_HOST ? (uint64_t)size : HOST_RANKS; /* a CPU for each rank */
    cell.served = size >= row->ranks_min && size <= row->ranks_max && (!row->once_bytes || what.n * what.raw <= caps.once_max);
    if (!cell.served)
        return cell;
    enum comm_result result = COMM_ERR_UNSUPPORTED;
    double work = work_of(row, size, &what);
    if (work <= EXACT_MOST || work <= (double)size * EXACT_RANK_MOST)
        result = cost_run(memory, &what, &cell.result);
    cell.ps = cell.result.ps;
    if (result == COMM_ERR_UNSUPPORTED) {
        cell.exact = false;
        result = cost_estimate_all(memory, &what, &cell.ps);
    }
    cell.served = result == COMM_OK;
    return cell;
}

/* ------------------------------------------------------------------------------------------------------------ what is printed */
static const int32_t sizes[] = {2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384, 65536, 131072};
static const size_t lengths[] = {8, 512, 4096, 32768, 65536, 262144, 1 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, LENGTHS = sizeof lengths / sizeof *lengths };

/* One host has so many ranks at most; what only sets up worlds is no one's choice, and blocks of equal length cost what others do. */
static bool wanted(const struct algo_row *row, int32_t size, enum layout layout)
{
    if (row->collective == COLLECTIVE_SPLIT || row->collective == COLLECTIVE_DUP || row->collective == COLLECTIVE_WINDOW ||
        row->collective == COLLECTIVE_MEMORY || row->collective == COLLECTIVE_ALLGATHER_V)
        return false;
    return layout == ONE_HOST ? size <= 256 : size > (layout == MANY_HOSTS ? HOST_RANKS : 1);
}

static void print_csv(void)
{
    printf("collective,algorithm,layout,ranks,bytes,us,form,events,program_bytes_a_rank,table_bytes_a_rank\n");
    for (uint32_t i = 0; i < algo_count; i++) {
        for (int l = ONE_HOST; l <= ONE_EACH; l++) {
            for (size_t s = 0; s < SIZES; s++) {
                for (size_t b = 0; b < LENGTHS && wanted(&algo_table[i], sizes[s], (enum layout)l); b++) {
                    struct cell cell = price(&algo_table[i], sizes[s], lengths[b], (enum layout)l);
                    if (!cell.served || (algo_table[i].collective == COLLECTIVE_BARRIER && b))
                        continue;
                    printf("%s,%s,%s,%d,%zu,%.3f,%s,%llu,%.0f,%.0f\n", collective_name(algo_table[i].collective), algo_table[i].name,
                           layout_names[l], sizes[s], lengths[b], (double)cell.ps * 1e-6, cell.exact ? "exact" : "estimate",
                           (unsigned long long)cell.result.events, (double)cell.result.program_bytes / sizes[s],
                           (double)cell.result.table_bytes / sizes[s]);
                    fflush(stdout);
                }
            }
        }
    }
}

static void print_time(const struct cell *cell)
{
    double us = (double)cell->ps * 1e-6;
    if (!cell->served)
        printf(" | -");
    else if (us < 1000)
        printf(" | %.3g%s us", us, cell->exact ? "" : "~");
    else
        printf(" | %.4g%s ms", us * 1e-3, cell->exact ? "" : "~");
}

static void print_table(void)
{
    static const int32_t shown[] = {16, 1000, 10000, 131072};
    printf("Predicted, not measured. ~: by the quick form.\n\n| collective | algorithm | layout | ranks | 8 B | 4 KiB | 64 KiB | 1 MiB |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < algo_count; i++) {
        for (size_t s = 0; s < sizeof shown / sizeof *shown; s++) {
            static const size_t bytes[] = {8, 4096, 65536, 1 << 20};
            enum layout layout = shown[s] <= HOST_RANKS ? ONE_HOST : MANY_HOSTS;
            struct cell cell[4];
            bool any = false, once = algo_table[i].collective == COLLECTIVE_BARRIER;
            for (int b = 0; b < 4 && wanted(&algo_table[i], shown[s], layout); b++) {
                cell[b] = b && once ? (struct cell){.served = false} : price(&algo_table[i], shown[s], bytes[b], layout);
                any |= cell[b].served;
            }
            if (!any || !wanted(&algo_table[i], shown[s], layout))
                continue;
            printf("| %s | %s | %s | %d", collective_name(algo_table[i].collective), algo_table[i].name, layout_names[layout], shown[s]);
            for (int b = 0; b < 4; b++)
                print_time(&cell[b]);
            printf(" |\n");
            fflush(stdout);
        }
    }
}

/* How long the programs alone take to build. */
static double build_alone(const struct cost_case *what)
{
    double begin = now();
    struct comm_program **all = calloc((size_t)what->size, sizeof *all);
    for (int32_t r = 0; all && r < what->size; r++) {
        struct program_spec spec = {.collective = what->collective, .rank = r, .size = what->size, .root = what->root};
        all[r] = what->build(memory, &spec);
    }
    double seconds = now() - begin;
    for (int32_t r = 0; all && r < what->size; r++)
        program_free(memory, all[r]);
    free(all);
    return seconds;
}

/* Seconds include building the programs; events a second do not. */
static int print_speed(void)
{
    static const int32_t teams[] = {1024, 10000, 131072};
    const struct algo_row *row = NULL;
    int failed = 0;
    for (uint32_t i = 0; i < algo_count; i++)
        if (algo_table[i].collective == COLLECTIVE_ALLREDUCE && !strcmp(algo_table[i].name, "doubling"))
            row = &algo_table[i];
    for (size_t t = 0; row && t < sizeof teams / sizeof *teams; t++) {
        struct wire_caps caps = caps_of(teams[t], ONE_EACH);
        struct cost_case what = {.machine = &machine,
                                 .caps = &caps,
                                 .build = row->build,
                                 .collective = row->collective,
                                 .size = teams[t],
                                 .n = 2,
                                 .raw = 4,
                                 .partial = 4,
                                 .calls = 1,
                                 .host_ranks = HOST_RANKS};
        struct cost_result result;
        double built = build_alone(&what), begin = now();
        if (cost_run(memory, &what, &result) != COMM_OK)
            return 1;
        double all = now() - begin, run = all > built ? all - built : all;
        double a_rank = (double)(result.program_bytes + result.table_bytes) / teams[t];
        printf(
            "scale: allreduce/doubling ranks=%d events=%llu steps=%llu seconds=%.2f run_seconds=%.3f events_per_s=%.2fM bytes_a_rank=%.0f "
            "(programs %.0f)\n",
            teams[t], (unsigned long long)result.events, (unsigned long long)result.steps, all, run, (double)result.events / run * 1e-6,
            a_rank, (double)result.program_bytes / teams[t]);
        failed |= a_rank > 4096;
    }
    return failed;
}

static int read_machine(const char *path)
{
    static char text[COST_MACHINE_BYTES_MAX];
    char why[256];
    FILE *file = fopen(path, "r");
    size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    if (!file) {
        fprintf(stderr, "sim_scale: %s cannot be read\n", path);
        return 2;
    }
    fclose(file);
    if (cost_machine_parse(text, bytes, &machine, why, sizeof why))
        return 0;
    fprintf(stderr, "sim_scale: %s, %s\n", path, why);
    return 2;
}

int main(int argc, char **argv)
{
    const char *what = "";
    machine = cost_machine_default;
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--machine") && i + 1 < argc) {
            if (read_machine(argv[++i]))
                return 2;
        } else if (!strcmp(argv[i], "--csv") || !strcmp(argv[i], "--speed")) {
            what = argv[i];
        } else {
            fprintf(stderr, "usage: sim_scale [--csv | --speed] [--machine FILE]\n");
            return 2;
        }
    }
    if (!strcmp(what, "--csv"))
        print_csv();
    else if (!strcmp(what, "--speed"))
        return print_speed();
    else
        print_table();
    return 0;
}
