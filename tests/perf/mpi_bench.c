/*
 * The measurements of comm-perf, over MPI, the library that a program would use instead. Calls, buffers, batches, iterations and columns
 * are the same; src/tools/comm_perf.c explains the method and the modes. MPI libraries implement blocking and nonblocking calls separately,
 * so --blocking measures the former.
 *
 *   mpirun -np 2 mpi_bench COLLECTIVE [--min BYTES] [--max BYTES] [--mode MODE] [--blocking] [--touch]
 *
 * MODE: request isolated aligned pipelined plan overlap. plan: persistent collectives, if the MPI library has them (MPI 4). pipelined, plan
 * and overlap have no blocking form.
 */
#define _GNU_SOURCE
#include "mpi_bench_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 15, WARM_BATCHES = 100, ALIGN = 64, CACHE_LINE = 64, FACTOR = 4, REQUESTS = 2 };
static const size_t ROTATE_BYTES = 64u << 20;
static const double BATCH_SECONDS = 0.1, WARM_SECONDS = 0.02, SOON = 5e-6;
static const char *const mode_names[] = {"request", "isolated", "aligned", "pipelined", "plan", "overlap"};

/* ------------------------------------------------------------------------------------------------------------ one batch */
/* Open MPI's MPI_Wtime has a zero of its own in each process. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void compute(double seconds)
{
    volatile double sink;
    double end = now() + seconds, x = 1.0;
    do {
        for (int i = 0; i < 64; i++)
            x = x * 1.0000001 + 1e-9;
    } while (now() < end);
    sink = x;
    (void)sink;
}

static float *in_of(const struct bench *bench, size_t call)
{
    return bench->in + call % bench->slots * bench->in_floats;
}

static float *out_of(const struct bench *bench, size_t call)
{
    return bench->out + call % bench->slots * bench->out_floats;
}

static void touch_in(const struct bench *bench, size_t call)
{
    volatile char *at = (volatile char *)in_of(bench, call);
    for (size_t i = 0; i < bench->in_floats * sizeof(float); i += CACHE_LINE)
        at[i] = 1;
}

static void touch_out(const struct bench *bench, size_t call)
{
    volatile char *at = (volatile char *)out_of(bench, call);
    for (size_t i = 0; i < bench->out_floats * sizeof(float); i += CACHE_LINE)
        (void)at[i];
}

static void start_call(const struct bench *bench, enum mode mode, size_t call, MPI_Request *req)
{
    if (mode == PLAN) {
        req[0] = bench->plan[call % bench->slots];
        MPI_Start(&req[0]);
    } else {
        bench->collective->start(bench, in_of(bench, call), out_of(bench, call), bench->blocking ? CALL : START, req);
    }
}

static void wait_call(const struct bench *bench, MPI_Request *req)
{
    int requests = (int)bench->collective->requests;
    if (!bench->blocking && requests == 1)
        MPI_Wait(req, MPI_STATUS_IGNORE);
    else if (!bench->blocking)
        MPI_Waitall(requests, req, MPI_STATUSES_IGNORE);
}

static double run_single(const struct bench *bench, enum mode mode, int iterations, double alone)
{
    MPI_Request req[REQUESTS];
    double begin = now();
    for (size_t i = 0; i < (size_t)iterations; i++) {
        if (bench->touch)
            touch_in(bench, i);
        start_call(bench, mode, i, req);
        if (mode == OVERLAP)
            compute(alone);
        wait_call(bench, req);
        if (bench->touch)
            touch_out(bench, i);
    }
    return now() - begin;
}

/* As the OSU Micro-Benchmarks measure. aligned: all begin at the same time, which rank 0 names; comm_perf.c says why. */
static double run_isolated(const struct bench *bench, bool aligned, int iterations)
{
    MPI_Request req[REQUESTS];
    double seconds = 0;
    for (size_t i = 0; i < (size_t)iterations; i++) {
        if (bench->touch)
            touch_in(bench, i);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now() + SOON;
        if (aligned)
            MPI_Bcast(&begin, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        while (aligned && now() < begin)
            ;
        begin = now();
        start_call(bench, ISOLATED, i, req);
        wait_call(bench, req);
        seconds += now() - begin;
        if (bench->touch)
            touch_out(bench, i);
    }
    return seconds;
}

static double run_pipelined(const struct bench *bench, int iterations)
{
    MPI_Request req[DEPTH * REQUESTS];
    size_t requests = bench->collective->requests;
    double begin = now();
    for (int i = 0; i < iterations; i++) {
        for (size_t k = 0; bench->touch && k < DEPTH; k++)
            touch_in(bench, k);
        for (size_t k = 0; k < DEPTH; k++)
            start_call(bench, PIPELINED, k, &req[k * requests]);
        MPI_Waitall((int)(DEPTH * requests), req, MPI_STATUSES_IGNORE);
        for (size_t k = 0; bench->touch && k < DEPTH; k++)
            touch_out(bench, k);
    }
    return now() - begin;
}

static double touching_alone(const struct bench *bench, size_t calls)
{
    double begin = now();
    for (size_t i = 0; i < calls; i++) {
        touch_in(bench, i);
        touch_out(bench, i);
    }
    return now() - begin;
}

static double run_batch(const struct bench *bench, enum mode mode, int iterations, double alone)
{
    size_t calls = (size_t)iterations * (mode == PIPELINED ? DEPTH : 1);
    bool isolated = mode == ISOLATED || mode == ALIGNED;
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = isolated            ? run_isolated(bench, mode == ALIGNED, iterations)
                     : mode == PIPELINED ? run_pipelined(bench, iterations)
                                         : run_single(bench, mode, iterations, alone);
    if (bench->touch && !isolated)
        seconds -= touching_alone(bench, calls);
    seconds /= (double)calls;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct times {
    double min, median, max;
};

static struct times measure(struct bench *bench, enum mode mode, int iterations, double alone)
{
    double time[BATCHES];
    (void)run_batch(bench, mode, 1, alone);
    int depth = mode == PIPELINED ? DEPTH : 1;
    double enough = BATCH_SECONDS / (run_batch(bench, mode, iterations / 16 + 1, alone) * depth + 1e-9) + 1;
    iterations = enough < iterations ? (int)enough : iterations; /* fewer calls per batch if they are slow */
    for (int i = 0; i < WARM_BATCHES && bench->warmed < WARM_SECONDS; i++)
        bench->warmed += run_batch(bench, mode, iterations, alone) * iterations * depth;
    for (int i = 0; i < BATCHES; i++)
        time[i] = run_batch(bench, mode, iterations, alone);
    qsort(time, BATCHES, sizeof time[0], by_value);
    return (struct times){time[0], time[BATCHES / 2], time[BATCHES - 1]};
}

/* ------------------------------------------------------------------------------------------------------------ one size */
static void *take(size_t bytes)
{
    void *memory = aligned_alloc(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN);
    if (!memory) {
        fprintf(stderr, "mpi_bench: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static void open_size(struct bench *bench, size_t bytes)
{
    int ranks = bench->ranks;
    bench->n = bytes < sizeof(float) ? 1 : (int)(bytes / sizeof(float));
    bench->block = bench->n < ranks ? 1 : bench->n / ranks;
    if (bench->collective->blocks)
        bench->n = bench->block * ranks;
    bench->in_floats = (size_t)bench->n;
    bench->out_floats = bench->in_floats * (bench->collective->gathers ? (size_t)ranks : 1);
    bench->slots = ROTATE_BYTES / ((bench->in_floats + bench->out_floats) * sizeof(float));
    if (bench->slots > DEPTH || bench->mode == PIPELINED)
        bench->slots = DEPTH;
    if (bench->slots < 1)
        bench->slots = 1;
    bench->in = take(bench->slots * bench->in_floats * sizeof(float));
    bench->out = take(bench->slots * bench->out_floats * sizeof(float));
    for (size_t i = 0; i < bench->slots * bench->in_floats; i++)
        bench->in[i] = (float)((i % bench->in_floats + (size_t)bench->rank) % 7);
    memset(bench->out, 0, bench->slots * bench->out_floats * sizeof(float));
    bench->counts = take((size_t)ranks * sizeof(int));
    bench->places = take((size_t)ranks * sizeof(int));
    for (int r = 0; r < ranks; r++) {
        bench->counts[r] = bench->collective->blocks ? bench->block : bench->n;
        bench->places[r] = bench->counts[r] * r;
    }
    for (size_t i = 0; bench->mode == PLAN && i < bench->slots; i++)
        bench->collective->start(bench, in_of(bench, i), out_of(bench, i), RECORD, &bench->plan[i]);
}

static void close_size(struct bench *bench)
{
    for (size_t i = 0; bench->mode == PLAN && i < bench->slots; i++)
        MPI_Request_free(&bench->plan[i]);
    free(bench->in);
    free(bench->out);
    free(bench->counts);
    free(bench->places);
}

static void measure_size(struct bench *bench, size_t bytes)
{
    int iterations = bytes <= 4096 ? 2000 : bytes <= 262144 ? 200 : bytes <= (4u << 20) ? 20 : 4;
    if (bench->mode == PIPELINED)
        iterations = iterations / 4 + 1;
    open_size(bench, bytes);
    double alone = 0, overlap = 0;
    if (bench->mode == OVERLAP)
        alone = measure(bench, REQUEST, iterations, 0).median;
    struct times time = measure(bench, bench->mode, iterations, alone);
    if (bench->mode == OVERLAP) {
        overlap = 100.0 * (1.0 - (time.median - alone) / alone);
        overlap = overlap < 0 ? 0 : overlap > 100 ? 100 : overlap;
    }
    if (bench->rank == 0) {
        printf("%s,mpi,%d,f32,%zu,%s,%.3f,%.3f,%.3f,%.1f\n", bench->name, bench->ranks, bytes, mode_names[bench->mode], time.min * 1e6,
               time.median * 1e6, time.max * 1e6, overlap);
        fflush(stdout);
    }
    close_size(bench);
}

/* ------------------------------------------------------------------------------------------------------------ arguments */
static bool parse_mode(struct bench *bench, const char *text)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof mode_names[0]; i++) {
        if (!strcmp(text, mode_names[i])) {
            bench->mode = (enum mode)i;
            return true;
        }
    }
    return false;
}

/* NULL: all arguments are valid. Otherwise the invalid one. */
static const char *parse(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--touch")) {
            bench->touch = true;
        } else if (!strcmp(argv[i], "--blocking")) {
            bench->blocking = true;
        } else if (!strcmp(argv[i], "--min") && *value) {
            bench->min = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--max") && *value) {
            bench->max = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--mode") && parse_mode(bench, value)) {
            i++;
        } else if (argv[i][0] != '-') {
            bench->name = argv[i];
        } else {
            return argv[i];
        }
    }
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        if (!strcmp(bench->name, collectives[i].name))
            bench->collective = &collectives[i];
    }
    if (!bench->collective)
        return bench->name;
    if (bench->blocking && bench->mode >= PIPELINED)
        return "--blocking in this mode";
    bool recordable = MPI_VERSION >= 4 && bench->collective->requests == 1;
    return bench->mode == PLAN && !recordable ? "--mode plan (not in this MPI library)" : NULL;
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "COLLECTIVE", .mode = REQUEST, .min = 8, .max = 16u << 20};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
    const char *wrong = parse(&bench, argc, argv);
    if (wrong) {
        if (bench.rank == 0)
            fprintf(
                stderr,
                "mpi_bench: cannot do '%s'; usage: mpi_bench COLLECTIVE [--min BYTES] [--max BYTES] [--mode MODE] [--blocking] [--touch]\n",
                wrong);
        MPI_Finalize();
        return 2;
    }
    if (bench.rank == 0)
        printf("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct\n");
    for (size_t bytes = bench.min > 0 ? bench.min : 1; bytes <= bench.max; bytes *= FACTOR) {
        measure_size(&bench, bytes);
        if (!bench.collective->sized)
            break;
    }
    MPI_Finalize();
    return 0;
}
