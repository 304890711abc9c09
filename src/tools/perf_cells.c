/*
 * The ranks' side of comm-perf --fit. It measures each algorithm of each collective at many lengths. Each of several worlds is configured
 * to use other algorithms. All cells are measured in short batches, round after round, so that a temporary disturbance affects few batches
 * of each cell. The time of a batch is that of its slowest rank. The time of a cell is the 5th percentile of its batches: the minimum may
 * be luck, and the median is often disturbed by other programs. Buffers rotate as in comm-perf.
 *
 * Rank 0 writes one line per cell: ranks collective algorithm bytes elements nanoseconds
 */
#define _GNU_SOURCE
#include "tools/perf_fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VARIANTS = 4, CELLS_MOST = 512, ARENA_BYTES = 64 << 20, OPTION_BYTES = 240, OUT_BYTES_MOST = 32 << 20, SAMPLES_MOST = 512 };

struct cell {
    const struct perf_collective *collective;
    int variant;
    char algorithm[24];
    size_t bytes;
    int samples;
    double ns[SAMPLES_MOST];
};
struct cells {
    struct perf perf;
    struct comm_communicator *world[VARIANTS], *free_choice;
    unsigned char *arena;
    struct cell cell[CELLS_MOST];
    double round[CELLS_MOST];
    int count;
};

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(const struct cells *cells, enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "comm-perf: rank %d: %s: %s\n", cells->perf.rank, what, comm_result_text(result));
    exit(1);
}

/* ------------------------------------------------------------------------------------------------------------ worlds */
/* "allreduce:slices,broadcast:direct,..": for each collective its algorithm with this number, or its first. */
static void variant_option(int variant, int32_t ranks, char *text, size_t room)
{
    struct comm_algorithm_info info = {.size = sizeof info};
    const char *names = perf_collective_names(), *between = "algorithm=";
    char collective[24];
    size_t at = 0;
    for (int length = 0; sscanf(names, "%23s%n", collective, &length) == 1; names += length) {
        int number = 0;
        char name[24] = "";
        for (size_t i = 0; comm_describe_algorithm(i, &info) == COMM_OK; i++) {
            bool serves = !strcmp(info.collective, collective) && ranks >= info.ranks_min && ranks <= info.ranks_max && !info.over_hosts;
            if (serves && (number++ == variant || !name[0]))
                snprintf(name, sizeof name, "%s", info.name);
            info = (struct comm_algorithm_info){.size = sizeof info};
        }
        if (name[0] && at < room && perf_collective_find(collective)->fitted) {
            at += (size_t)snprintf(text + at, room - at, "%s%s:%s", between, collective, name);
            between = ",";
        }
    }
}

static struct comm_communicator *open_world(const struct cells *cells, const char *options)
{
    struct comm_communicator *world;
    char why[512] = "";
    enum comm_result result = comm_open(COMM_CONFIG(.backend = cells->perf.backend, .options = options, .engine_of = cells->free_choice,
                                                    .error_text = why, .error_text_bytes = sizeof why),
                                        &world);
    if (result == COMM_OK)
        return world;
    fprintf(stderr, "comm-perf: cannot open the world: %s: %s\n", comm_result_text(result), why);
    exit(1);
}

static void open_worlds(struct cells *cells)
{
    char options[OPTION_BYTES + 32];
    struct perf *perf = &cells->perf;
    cells->free_choice = open_world(cells, "");
    perf->ranks = comm_size(cells->free_choice);
    perf->rank = comm_rank(cells->free_choice);
    for (int v = 0; v < VARIANTS; v++) {
        variant_option(v, perf->ranks, options, sizeof options);
        cells->world[v] = open_world(cells, options);
    }
}

/* ------------------------------------------------------------------------------------------------------------ one cell */
static void set_size(struct cells *cells, const struct cell *cell)
{
    struct perf *perf = &cells->perf;
    size_t ranks = (size_t)perf->ranks, width = perf->type->bytes;
    perf->collective = cell->collective;
    perf->n = cell->bytes < width ? 1 : cell->bytes / width;
    perf->block = perf->n < ranks ? 1 : perf->n / ranks;
    if (cell->collective->out == OUT_BLOCK)
        perf->n = perf->block * ranks;
    perf->in_bytes = perf->n * width;
    perf->out_bytes = cell->collective->out == OUT_ALL ? perf->in_bytes * ranks : perf->in_bytes;
    perf->slots = ARENA_BYTES / (perf->in_bytes + perf->out_bytes);
    perf->slots = perf->slots > PERF_DEPTH ? PERF_DEPTH : perf->slots < 1 ? 1 : perf->slots;
    perf->in = cells->arena;
    perf->out = cells->arena + (perf->slots * perf->in_bytes + 4095) / 4096 * 4096;
    for (size_t r = 0; r < ranks; r++)
        perf->counts[r] = perf->n;
}

static struct comm_request start(const struct cells *cells, struct comm_communicator *world, size_t call)
{
    const struct perf *perf = &cells->perf;
    size_t slot = call % perf->slots;
    struct comm_request request[PERF_REQUESTS] = {COMM_REQUEST_NONE};
    struct perf_buffers at = {perf->in + slot * perf->in_bytes, perf->out + slot * perf->out_bytes};
    must(cells, perf->collective->start(perf, world, at, request), perf->collective->name);
    return request[0];
}

static void call_once(const struct cells *cells, struct comm_communicator *world, size_t call)
{
    must(cells, comm_wait(start(cells, world, call), COMM_FOREVER), cells->perf.collective->name);
}

static void barrier(const struct cells *cells)
{
    struct comm_request request;
    must(cells, comm_barrier(cells->free_choice, &request), "barrier");
    must(cells, comm_wait(request, COMM_FOREVER), "barrier");
}

static double batch(struct cells *cells, const struct cell *cell)
{
    size_t calls = cell->bytes <= 4096 ? 50 : cell->bytes <= 65536 ? 20 : cell->bytes <= 1 << 20 ? 4 : 2;
    struct comm_communicator *world = cells->world[cell->variant];
    set_size(cells, cell);
    for (size_t i = 0; i < calls / 4 + 1; i++)
        call_once(cells, world, i);
    barrier(cells);
    double begin = now_ns();
    for (size_t i = 0; i < calls; i++)
        call_once(cells, world, i);
    return (now_ns() - begin) / (double)calls;
}

/* ------------------------------------------------------------------------------------------------------------ all cells */
/* Asks the library which algorithm really runs. An algorithm that cannot serve this length has no cell. */
static bool try_cell(struct cells *cells, struct cell *cell)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request request[PERF_REQUESTS] = {COMM_REQUEST_NONE};
    struct comm_communicator *world = cells->world[cell->variant];
    set_size(cells, cell);
    struct perf_buffers at = {cells->perf.in, cells->perf.out};
    if (cell->collective->start(&cells->perf, world, at, request) != COMM_OK)
        return false;
    must(cells, comm_wait(request[0], COMM_FOREVER), cell->collective->name);
    if (comm_describe_request(request[0], &info) == COMM_OK)
        snprintf(cell->algorithm, sizeof cell->algorithm, "%.23s", info.algorithm);
    for (int i = 0; i < cells->count; i++)
        if (cells->cell[i].collective == cell->collective && cells->cell[i].bytes == cell->bytes &&
            !strcmp(cells->cell[i].algorithm, cell->algorithm))
            return false; /* this collective has fewer algorithms than there are worlds */
    return true;
}

static void list_cells(struct cells *cells, const struct perf_fit *fit)
{
    const char *names = perf_collective_names();
    char name[24];
    for (int length = 0; sscanf(names, "%23s%n", name, &length) == 1; names += length) {
        const struct perf_collective *collective = perf_collective_find(name);
        for (size_t s = 0; collective->fitted && s < fit->lengths && (collective->sized || s == 0); s++) {
            size_t ranks = (size_t)cells->perf.ranks, bytes = fit->length[s];
            if (bytes * (collective->out == OUT_ALL ? ranks : 1) > OUT_BYTES_MOST || (collective->out == OUT_BLOCK && bytes < 4 * ranks))
                continue;
            for (int v = 0; v < VARIANTS && cells->count < CELLS_MOST; v++) {
                struct cell *cell = &cells->cell[cells->count];
                *cell = (struct cell){.collective = collective, .variant = v, .bytes = bytes};
                cells->count += try_cell(cells, cell);
            }
        }
    }
}

/* Long cells are measured less often. They would take most of the time, and disturbances are short compared with them. */
static bool is_due(const struct cell *cell, int round)
{
    return round % (cell->bytes <= 65536 ? 1 : cell->bytes <= 1 << 20 ? 3 : 9) == 0;
}

static void measure_round(struct cells *cells, int round)
{
    struct comm_request request;
    for (int i = 0; i < cells->count; i++)
        cells->round[i] = is_due(&cells->cell[i], round) ? batch(cells, &cells->cell[i]) : 0;
    must(cells, comm_allreduce(cells->free_choice, COMM_IN_PLACE, cells->round, (size_t)cells->count, COMM_F64, COMM_MAX, &request),
         "allreduce of the times");
    must(cells, comm_wait(request, COMM_FOREVER), "allreduce of the times");
    for (int i = 0; i < cells->count; i++)
        if (is_due(&cells->cell[i], round) && cells->cell[i].samples < SAMPLES_MOST)
            cells->cell[i].ns[cells->cell[i].samples++] = cells->round[i];
}

/* Rank 0's clock decides for all ranks. */
static bool go_on(const struct cells *cells, double end)
{
    struct comm_request request;
    int32_t more = now_ns() < end;
    must(cells, comm_broadcast(cells->free_choice, &more, 1, COMM_I32, 0, &request), "broadcast");
    must(cells, comm_wait(request, COMM_FOREVER), "broadcast");
    return more;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double low(const struct cell *cell)
{
    double sorted[SAMPLES_MOST];
    memcpy(sorted, cell->ns, sizeof sorted);
    qsort(sorted, (size_t)cell->samples, sizeof *sorted, by_value);
    return cell->samples ? sorted[cell->samples / 20] : 0;
}

static void write_cells(const struct cells *cells, const char *path)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < cells->count; i++) {
        const struct cell *c = &cells->cell[i];
        size_t n = c->bytes < 4 ? 1 : c->bytes / 4;
        if (c->collective->out == OUT_BLOCK)
            n = n < (size_t)cells->perf.ranks ? 1 : n / (size_t)cells->perf.ranks;
        fprintf(file, "%d %s %s %zu %zu %.1f\n", cells->perf.ranks, c->collective->name, c->algorithm, c->bytes, n, low(c));
    }
    if (!file || fclose(file)) {
        fprintf(stderr, "comm-perf: %s cannot be written\n", path);
        exit(1);
    }
}

int perf_cells(const struct perf_fit *fit)
{
    struct cells *cells = calloc(1, sizeof *cells);
    if (!cells)
        return 1;
    cells->perf = (struct perf){.type = perf_type_find("f32"), .op = COMM_SUM, .op_name = "sum", .backend = fit->backend};
    open_worlds(cells);
    cells->perf.counts = calloc((size_t)cells->perf.ranks, sizeof *cells->perf.counts);
    cells->arena = aligned_alloc(4096, ARENA_BYTES + OUT_BYTES_MOST * 2u);
    if (!cells->arena || !cells->perf.counts) {
        fprintf(stderr, "comm-perf: no memory for the buffers\n");
        return 1;
    }
    memset(cells->arena, 0, ARENA_BYTES + OUT_BYTES_MOST * 2u);
    list_cells(cells, fit);
    double end = now_ns() + fit->seconds * 1e9;
    int round = 0;
    do
        measure_round(cells, round++);
    while (go_on(cells, end));
    if (cells->perf.rank == 0)
        write_cells(cells, fit->cells);
    for (int v = 0; v < VARIANTS; v++)
        must(cells, comm_close(cells->world[v], COMM_DEFAULT_TIMEOUT), "close");
    must(cells, comm_close(cells->free_choice, COMM_DEFAULT_TIMEOUT), "close");
    free(cells->arena);
    free(cells->perf.counts);
    free(cells);
    return 0;
}
