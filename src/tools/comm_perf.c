/*
 * comm-perf: measures how long a collective takes, with public calls only. Run it under comm-run or any launcher.
 *
 * Method: buffers rotate if they fit into 64 MiB. Before the first size, 20 ms of calls warm up CPUs and the library; before each other
 * size, a few calls. Then 15 batches of calls are timed in a tight loop after a barrier, each at most 0.1 s. The time of a batch is that of
 * its slowest rank. The smallest, the median and the largest batch are printed. tests/perf/mpi_bench.c does the same over MPI.
 *   request (= blocking)  call and wait at once
 *   isolated              a barrier before each call, whose time is not counted, as the OSU Micro-Benchmarks do
 *   aligned               all ranks, of one host, begin each call at the same time of the clock
 *   pipelined             16 calls on disjoint buffers, then one wait for all; time is per call
 *   plan                  the call was recorded once per buffer, and is started and waited for
 *   overlap               call, compute for as long as the call alone takes, wait; prints how much of the call was hidden
 * --touch: the caller writes each input and reads each output, a byte per cache line. The time of that alone is subtracted.
 */
#define _GNU_SOURCE
#include "tools/perf_fit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERF_BATCHES = 15, PERF_WARM_BATCHES = 100, PERF_LINE = 64, PERF_ROTATE_BYTES = 64 << 20 };
static const double PERF_BATCH_SECONDS = 0.1, PERF_WARM_SECONDS = 0.02, PERF_SOON = 5e-6;

static void die(const struct perf *perf, enum comm_result result, const char *what)
{
    struct comm_error error = {.size = sizeof error};
    bool known = perf->comm && comm_error_detail(perf->comm, &error) == COMM_OK && error.text[0];
    fprintf(stderr, "comm-perf: rank %d: %s: %s (%s)%s%s\n", perf->rank, what, comm_result_text(result), comm_result_name(result),
            known ? ": " : "", known ? error.text : "");
    exit(1);
}

void perf_must(const struct perf *perf, enum comm_result result, const char *what)
{
    if (result != COMM_OK)
        die(perf, result, what);
}

/* ------------------------------------------------------------------------------------------------------------ the clock */
double perf_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void compute(double seconds)
{
    volatile double sink;
    double end = perf_now() + seconds, x = 1.0;
    do {
        for (int i = 0; i < 64; i++)
            x = x * 1.0000001 + 1e-9;
    } while (perf_now() < end);
    sink = x;
    (void)sink;
}

struct perf_buffers perf_buffers_at(const struct perf *perf, size_t call)
{
    size_t slot = call % perf->slots;
    return (struct perf_buffers){perf->in + slot * perf->in_bytes, perf->out + slot * perf->out_bytes};
}

static void touch_in(const struct perf *perf, size_t call)
{
    volatile unsigned char *at = perf_buffers_at(perf, call).in;
    for (size_t i = 0; i < perf->in_bytes; i += PERF_LINE)
        at[i] = 1;
}

static void touch_out(const struct perf *perf, size_t call)
{
    volatile unsigned char *at = perf_buffers_at(perf, call).out;
    for (size_t i = 0; i < perf->out_bytes; i += PERF_LINE)
        (void)at[i];
}

void perf_barrier(const struct perf *perf)
{
    struct comm_request req;
    perf_must(perf, comm_barrier(perf->comm, &req), "barrier");
    perf_must(perf, comm_wait(req, COMM_FOREVER), "barrier");
}

double perf_slowest(const struct perf *perf, double mine)
{
    struct comm_request req;
    double all = mine;
    perf_must(perf, comm_allreduce(perf->comm, &mine, &all, 1, COMM_F64, COMM_MAX, &req), "allreduce of the times");
    perf_must(perf, comm_wait(req, COMM_FOREVER), "allreduce of the times");
    return all;
}

/* ------------------------------------------------------------------------------------------------------------ one call, one batch */
void perf_start(const struct perf *perf, size_t call, struct comm_request *req)
{
    const struct perf_collective *collective = perf->collective;
    if (perf->plan[0])
        perf_must(perf, comm_plan_start(perf->plan[call % perf->slots], req), "start of the plan");
    else
        perf_must(perf, collective->start(perf, perf->comm, perf_buffers_at(perf, call), req), collective->name);
}

static void wait_calls(const struct perf *perf, const struct comm_request *req, size_t count)
{
    perf_must(perf, count == 1 ? comm_wait(*req, COMM_FOREVER) : comm_wait_all(req, count, COMM_FOREVER), perf->collective->name);
}

static size_t requests_of(const struct perf *perf)
{
    return perf->collective->is_work || perf->plan[0] ? 1 : PERF_REQUESTS;
}

static double run_single(const struct perf *perf, bool overlap, size_t iterations, double alone)
{
    struct comm_request req[PERF_REQUESTS];
    size_t each = requests_of(perf);
    double begin = perf_now();
    for (size_t i = 0; i < iterations; i++) {
        if (perf->touch)
            touch_in(perf, i);
        perf_start(perf, i, req);
        if (overlap)
            compute(alone);
        wait_calls(perf, req, each);
        if (perf->touch)
            touch_out(perf, i);
    }
    return perf_now() - begin;
}

/* Rank 0 names a time, and all wait for it. A barrier lets some rank go first, and its share of the call is then hidden from the others:
 * how much depends on the library's barrier (S. Hunold, A. Carpen-Amarie: Reproducible MPI Benchmarking Is Still Not as Easy as You Think,
 * IEEE TPDS 27, 2016). */
static void wait_for_the_clock(const struct perf *perf)
{
    struct comm_request req;
    double begin = perf_now() + PERF_SOON;
    perf_must(perf, comm_broadcast(perf->comm, &begin, 1, COMM_F64, 0, &req), "broadcast of the time");
    perf_must(perf, comm_wait(req, COMM_FOREVER), "broadcast of the time");
    while (perf_now() < begin)
        ;
}

/* One call at a time: no rank begins a call before all have ended the one before. */
static double run_isolated(const struct perf *perf, bool aligned, size_t iterations)
{
    struct comm_request req[PERF_REQUESTS];
    size_t each = requests_of(perf);
    double seconds = 0;
    for (size_t i = 0; i < iterations; i++) {
        if (perf->touch)
            touch_in(perf, i);
        perf_barrier(perf);
        if (aligned)
            wait_for_the_clock(perf);
        double begin = perf_now();
        perf_start(perf, i, req);
        wait_calls(perf, req, each);
        seconds += perf_now() - begin;
        if (perf->touch)
            touch_out(perf, i);
    }
    return seconds;
}

static double run_pipelined(const struct perf *perf, size_t iterations)
{
    struct comm_request req[PERF_DEPTH * PERF_REQUESTS];
    size_t each = requests_of(perf);
    double begin = perf_now();
    for (size_t i = 0; i < iterations; i++) {
        for (size_t k = 0; perf->touch && k < PERF_DEPTH; k++)
            touch_in(perf, k);
        for (size_t k = 0; k < PERF_DEPTH; k++)
            perf_start(perf, k, &req[k * each]);
        wait_calls(perf, req, PERF_DEPTH * each);
        for (size_t k = 0; perf->touch && k < PERF_DEPTH; k++)
            touch_out(perf, k);
    }
    return perf_now() - begin;
}

static double touching_alone(const struct perf *perf, size_t calls)
{
    double begin = perf_now();
    for (size_t i = 0; i < calls; i++) {
        touch_in(perf, i);
        touch_out(perf, i);
    }
    return perf_now() - begin;
}

static double run_batch(const struct perf *perf, enum perf_mode mode, size_t iterations, double alone)
{
    size_t calls = iterations * (mode == MODE_PIPELINED ? PERF_DEPTH : 1);
    perf_barrier(perf);
    bool isolated = mode == MODE_ISOLATED || mode == MODE_ALIGNED;
    double seconds = mode == MODE_PIPELINED ? run_pipelined(perf, iterations)
                     : isolated             ? run_isolated(perf, mode == MODE_ALIGNED, iterations)
                                            : run_single(perf, mode == MODE_OVERLAP, iterations, alone);
    if (perf->touch && !isolated)
        seconds -= touching_alone(perf, calls);
    return perf_slowest(perf, seconds / (double)calls);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct perf_times {
    double min, median, max;
};

/* Fewer calls per batch if they are slow. `seconds` is the same on all ranks. */
static size_t fewer_if_slow(size_t iterations, double seconds)
{
    size_t enough = (size_t)(PERF_BATCH_SECONDS / (seconds + 1e-9)) + 1;
    return enough < iterations ? enough : iterations;
}

static struct perf_times measure(struct perf *perf, enum perf_mode mode, size_t iterations, double alone)
{
    double time[PERF_BATCHES];
    size_t depth = mode == MODE_PIPELINED ? PERF_DEPTH : 1;
    (void)run_batch(perf, mode, 1, alone);
    iterations = fewer_if_slow(iterations, run_batch(perf, mode, iterations / 16 + 1, alone) * (double)depth);
    for (int i = 0; i < PERF_WARM_BATCHES && perf->warmed < PERF_WARM_SECONDS; i++)
        perf->warmed += run_batch(perf, mode, iterations, alone) * (double)(iterations * depth);
    for (int i = 0; i < PERF_BATCHES; i++)
        time[i] = run_batch(perf, mode, iterations, alone);
    qsort(time, PERF_BATCHES, sizeof time[0], by_value);
    return (struct perf_times){time[0], time[PERF_BATCHES / 2], time[PERF_BATCHES - 1]};
}

/* ------------------------------------------------------------------------------------------------------------ one size */
static size_t iterations_for(const struct perf *perf, size_t bytes)
{
    size_t iterations = bytes <= 4096 ? 2000 : bytes <= 262144 ? 200 : bytes <= (4u << 20) ? 20 : 4;
    return perf->mode == MODE_PIPELINED ? iterations / 4 + 1 : iterations;
}

void perf_set_size(struct perf *perf, size_t bytes)
{
    size_t ranks = (size_t)perf->ranks, width = perf->type->bytes;
    perf->n = bytes < width ? 1 : bytes / width;
    perf->block = perf->n < ranks ? 1 : perf->n / ranks;
    if (perf->collective->out == OUT_BLOCK)
        perf->n = perf->block * ranks;
    perf->in_bytes = perf->n * width;
    perf->out_bytes = perf->collective->out == OUT_ALL ? perf->in_bytes * ranks : perf->in_bytes;
    perf->slots = PERF_ROTATE_BYTES / (perf->in_bytes + perf->out_bytes);
    if (perf->slots > PERF_DEPTH || perf->mode == MODE_PIPELINED)
        perf->slots = PERF_DEPTH;
    if (perf->slots < 1)
        perf->slots = 1;
    perf->counts = perf_take(perf, ranks * sizeof *perf->counts);
    for (size_t r = 0; r < ranks; r++)
        perf->counts[r] = perf->collective->out == OUT_BLOCK ? perf->block : perf->n;
}

static void open_size(struct perf *perf, size_t bytes)
{
    perf_set_size(perf, bytes);
    perf->in = perf_take_buffers(perf, perf->slots * perf->in_bytes);
    perf->out = perf_take_buffers(perf, perf->slots * perf->out_bytes);
    for (size_t i = 0; i < perf->slots; i++)
        perf_fill_buffer(perf, perf_buffers_at(perf, i).in, perf->n);
    perf_zero_buffer(perf, perf->out, perf->slots * perf->out_bytes);
}

static void record_plans(struct perf *perf)
{
    for (size_t i = 0; i < perf->slots; i++) {
        struct comm_communicator *recorder;
        perf_must(perf, comm_plan_begin(perf->comm, &recorder), "begin of the plan");
        perf_must(perf, perf->collective->start(perf, recorder, perf_buffers_at(perf, i), NULL), perf->collective->name);
        perf_must(perf, comm_plan_end(recorder, &perf->plan[i]), "end of the plan");
    }
}

static void close_size(struct perf *perf)
{
    for (size_t i = 0; i < PERF_DEPTH; i++) {
        comm_plan_free(perf->plan[i]);
        perf->plan[i] = NULL;
    }
    perf_give_buffers(perf, perf->in);
    perf_give_buffers(perf, perf->out);
    free(perf->counts);
}

void perf_check(const struct perf *perf, size_t call, size_t bytes)
{
    size_t bad;
    if (!perf->check || !perf->collective->check || perf_buffers_hold(perf, perf_buffers_at(perf, call), &bad))
        return;
    fprintf(stderr, "comm-perf: rank %d: %s of %zu bytes of %s: element %zu is wrong\n", perf->rank, perf->collective->name, bytes,
            perf->type->name, bad);
    exit(1);
}

void perf_ask_algorithm(struct perf *perf, struct comm_request req)
{
    struct comm_request_info info = {.size = sizeof info};
    if (comm_describe_request(req, &info) == COMM_OK)
        memcpy(perf->algorithm, info.algorithm, sizeof perf->algorithm);
}

/* Runs every buffer once before anything is timed, as many at a time as the mode does. Also asks which algorithm ran. */
static void try_once(struct perf *perf, size_t bytes)
{
    struct comm_request req[PERF_DEPTH * PERF_REQUESTS] = {0};
    size_t each = requests_of(perf), together = perf->mode == MODE_PIPELINED ? perf->slots : 1;
    for (size_t i = 0; i < perf->slots; i += together) {
        for (size_t k = 0; k < together; k++)
            perf_start(perf, i + k, &req[k * each]);
        wait_calls(perf, req, together * each);
        for (size_t k = 0; k < together; k++)
            perf_check(perf, i + k, bytes);
    }
    perf_ask_algorithm(perf, req[0]);
}

static void print_header(const struct perf *perf)
{
    if (perf->format == FORMAT_CSV)
        printf("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct,algorithm\n");
    else if (perf->format == FORMAT_TABLE)
        printf("# %s over %s, %d ranks, %s, %s%s%s%s%s\n%12s %11s %11s %11s %9s %9s  %s\n", perf->collective->name, perf->backend_name,
               perf->ranks, perf->type->name, perf->mode_name, perf->touch ? ", touched" : "",
               perf->memory == PERF_MALLOC ? "" : ", memory ", perf->memory == PERF_MALLOC ? "" : perf_memory_name(perf->memory),
               perf->check ? ", checked" : "", "bytes", "min us", "median us", "max us", "GB/s", "hidden %", "algorithm");
}

static void print_row(const struct perf *perf, size_t bytes, struct perf_times time, double overlap)
{
    double min = time.min * 1e6, median = time.median * 1e6, max = time.max * 1e6;
    if (perf->format == FORMAT_JSON)
        printf("{\"collective\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"type\":\"%s\",\"op\":\"%s\",\"bytes\":%zu,\"mode\":\"%s\","
               "\"memory\":\"%s\",\"touch\":%s,\"min_us\":%.3f,\"median_us\":%.3f,\"max_us\":%.3f,\"overlap_pct\":%.1f,"
               "\"algorithm\":\"%s\"}\n",
               perf->collective->name, perf->backend_name, perf->ranks, perf->type->name, perf->op_name, bytes, perf->mode_name,
               perf_memory_name(perf->memory), perf->touch ? "true" : "false", min, median, max, overlap, perf->algorithm);
    else if (perf->format == FORMAT_CSV)
        printf("%s,%s,%d,%s,%zu,%s,%.3f,%.3f,%.3f,%.1f,%s\n", perf->collective->name, perf->backend_name, perf->ranks, perf->type->name,
               bytes, perf->mode_name, min, median, max, overlap, perf->algorithm);
    else if (perf->mode == MODE_OVERLAP)
        printf("%12zu %11.3f %11.3f %11.3f %9.2f %9.1f  %s\n", bytes, min, median, max, (double)bytes / (median * 1e3), overlap,
               perf->algorithm);
    else
        printf("%12zu %11.3f %11.3f %11.3f %9.2f %9s  %s\n", bytes, min, median, max, (double)bytes / (median * 1e3), "-", perf->algorithm);
    fflush(stdout);
}

static void measure_size(struct perf *perf, size_t bytes)
{
    open_size(perf, bytes);
    if (perf->mode == MODE_PLAN)
        record_plans(perf);
    try_once(perf, bytes);
    size_t iterations = iterations_for(perf, bytes);
    double overlap = 0, alone = 0;
    if (perf->mode == MODE_OVERLAP)
        alone = measure(perf, MODE_REQUEST, iterations, 0).median;
    struct perf_times time = measure(perf, perf->mode, iterations, alone);
    if (perf->mode == MODE_OVERLAP) {
        overlap = 100.0 * (1.0 - (time.median - alone) / alone);
        overlap = overlap < 0 ? 0 : overlap > 100 ? 100 : overlap;
    }
    if (perf->rank == 0)
        print_row(perf, bytes, time, overlap);
    close_size(perf);
}

static void measure_sizes(struct perf *perf)
{
    if (perf->rank == 0)
        print_header(perf);
    for (size_t bytes = perf->min; bytes <= perf->max; bytes *= perf->factor) {
        measure_size(perf, bytes);
        if (!perf->collective->sized || bytes > SIZE_MAX / perf->factor)
            break;
    }
}

static void open_world(struct perf *perf)
{
    char why[512] = "";
    perf_load_memory(perf);
    enum comm_result result =
        comm_open(COMM_CONFIG(.backend = perf->backend, .error_text = why, .error_text_bytes = sizeof why), &perf->comm);
    if (result != COMM_OK) {
        fprintf(stderr, "comm-perf: cannot open the world: %s%s%s\n", comm_result_text(result), why[0] ? ": " : "", why);
        exit(1);
    }
    perf->rank = comm_rank(perf->comm);
    perf->ranks = comm_size(perf->comm);
    struct comm_info info = {.size = sizeof info};
    perf_must(perf, comm_describe(perf->comm, &info), "describe");
    memcpy(perf->backend_name, info.backend, sizeof perf->backend_name);
    perf_open_memory(perf, &info);
}

int perf_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "comm-perf: cannot write the output: %s\n", strerror(errno));
    return status ? status : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strncmp(argv[1], "--fit", 5))
        return perf_end(perf_fit_main(argc - 1, argv + 1));
    struct perf perf = {.type = perf_type_find("f32"), .op = COMM_SUM, .op_name = "sum", .factor = 4, .mode_name = "request"};
    perf_parse(&perf, argc, argv);
    open_world(&perf);
    if (perf.sides)
        perf_compare(&perf);
    else
        measure_sizes(&perf);
    enum comm_result closed = comm_close(perf.comm, COMM_DEFAULT_TIMEOUT);
    if (closed != COMM_OK) {
        fprintf(stderr, "comm-perf: rank %d: close: %s\n", perf.rank, comm_result_text(closed));
        return perf_end(1);
    }
    return perf_end(0);
}
