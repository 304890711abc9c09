/*
 * The overhead of commstream over MPI: the same collective as a request and a wait, by MPI itself and through a communicator of backend
 * mpi, or shm+mpi. Both run in one process, with the same MPI, in alternating batches. So both have the same neighbours, the same distance
 * between the CPUs, and the same thread level, which alone changes a small exchange of Open MPI by half.
 *
 *   mpirun -n 2 mpi_over_openmpi [COLLECTIVE] [--min BYTES] [--max BYTES] [--rounds N] [--level LEVEL] [--backend NAME] [--written]
 *   mpirun -n 256 mpi_over_openmpi open [--rounds N] [--backend NAME]
 *
 * LEVEL is single, serialized or multiple. There is a program for each MPI: mpi_over_mpich is started by mpiexec.hydra. With --written each
 * rank writes what it sends before each call, as a program does that computes. The time of this is part of both figures. Otherwise what MPI
 * reads is always the same, and lies in the reader's cache.
 *
 * Prints the least of all rounds of each, their difference, their ratio, and the geometric mean of the ratios. With --limit the exit status
 * is 1 if the mean is above 1.1 or one ratio above 1.3. "open" prints how long MPI_Init_thread took, and what opening and closing a world
 * takes afterwards, on the slowest rank.
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FACTOR = 4, SIZES = 16, BATCH_NS = 2000000, LEAST = 3, MOST = 2000 };

struct bench {
    const char *collective, *backend;
    struct comm_communicator *world;
    MPI_Comm comm;
    int rank, ranks, rounds;
    size_t min, max;
    bool limit, written;
    float *in, *out;
    size_t *counts;
    int *numbers, *places;
};

static void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "mpi_over: %s: %s\n", what, comm_result_name(result));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Each of two ranks sends to the other and receives from it. */
static void bare_sendrecv(const struct bench *b, int n)
{
    MPI_Request q[2];

    MPI_Irecv(b->out, n, MPI_FLOAT, 1 - b->rank, 1, b->comm, &q[0]);
    MPI_Isend(b->in, n, MPI_FLOAT, 1 - b->rank, 1, b->comm, &q[1]);
    MPI_Wait(&q[0], MPI_STATUS_IGNORE);
    MPI_Wait(&q[1], MPI_STATUS_IGNORE);
}

static void our_sendrecv(const struct bench *b, int n)
{
    struct comm_request q[2];

    must(comm_recv(b->world, b->out, (size_t)n, COMM_F32, 1 - b->rank, 1, NULL, &q[0]), "recv");
    must(comm_send(b->world, b->in, (size_t)n, COMM_F32, 1 - b->rank, 1, &q[1]), "send");
    must(comm_wait_all(q, 2, COMM_FOREVER), "wait");
}

static void bare(const struct bench *b, int n)
{
    MPI_Request q;

    if (strcmp(b->collective, "sendrecv") == 0) {
        bare_sendrecv(b, n);
        return;
    }
    if (strcmp(b->collective, "broadcast") == 0)
        MPI_Ibcast(b->out, n, MPI_FLOAT, 0, b->comm, &q);
    else if (strcmp(b->collective, "allgather_v") == 0)
        MPI_Iallgatherv(b->in, n, MPI_FLOAT, b->out, b->numbers, b->places, MPI_FLOAT, b->comm, &q);
    else if (strcmp(b->collective, "alltoall") == 0)
        MPI_Ialltoall(b->in, n, MPI_FLOAT, b->out, n, MPI_FLOAT, b->comm, &q);
    else if (strcmp(b->collective, "barrier") == 0)
        MPI_Ibarrier(b->comm, &q);
    else
        MPI_Iallreduce(b->in, b->out, n, MPI_FLOAT, MPI_SUM, b->comm, &q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
}

static void ours(const struct bench *b, int n)
{
    struct comm_request q;

    if (strcmp(b->collective, "sendrecv") == 0) {
        our_sendrecv(b, n);
        return;
    }
    if (strcmp(b->collective, "broadcast") == 0)
        must(comm_broadcast(b->world, b->out, (size_t)n, COMM_F32, 0, &q), "broadcast");
    else if (strcmp(b->collective, "allgather_v") == 0)
        must(comm_allgather_v(b->world, b->in, b->out, b->counts, NULL, COMM_F32, &q), "allgather_v");
    else if (strcmp(b->collective, "alltoall") == 0)
        must(comm_alltoall(b->world, b->in, b->out, (size_t)n, COMM_F32, &q), "alltoall");
    else if (strcmp(b->collective, "barrier") == 0)
        must(comm_barrier(b->world, &q), "barrier");
    else
        must(comm_allreduce(b->world, b->in, b->out, (size_t)n, COMM_F32, COMM_SUM, &q), "allreduce");
    must(comm_wait(q, COMM_FOREVER), "wait");
}

/* What this rank sends in a call, as if it had computed that. */
static void write_input(const struct bench *b, size_t bytes, int call)
{
    bool casts = strcmp(b->collective, "broadcast") == 0, spreads = strcmp(b->collective, "alltoall") == 0;

    if (casts && b->rank == 0)
        memset(b->out, call & 1, bytes);
    else if (!casts)
        memset(b->in, call & 1, spreads ? bytes * (size_t)b->ranks : bytes);
}

/* Microseconds per call, on the slowest rank. */
static double batch(const struct bench *b, void (*call)(const struct bench *, int), int n, int calls)
{
    MPI_Barrier(b->comm);
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) {
        if (b->written)
            write_input(b, (size_t)n * sizeof(float), i);
        call(b, n);
    }
    double us = (MPI_Wtime() - begin) * 1e6 / calls;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, b->comm);
    return us;
}

static void set_blocks(struct bench *b, int n)
{
    for (int r = 0; r < b->ranks; r++) {
        b->numbers[r] = n;
        b->places[r] = r * n;
        b->counts[r] = (size_t)n;
    }
}

static double one_size(struct bench *b, size_t bytes)
{
    double least_bare = 1e30, least_ours = 1e30;
    int n = (int)(bytes / sizeof(float));

    set_blocks(b, n);
    double first = batch(b, bare, n, LEAST);
    int calls = first > 0 ? (int)(BATCH_NS / (first * 1000)) : MOST;
    calls = calls < LEAST ? LEAST : calls > MOST ? MOST : calls;
    batch(b, ours, n, calls);
    for (int round = 0; round < b->rounds; round++) {
        double us = batch(b, bare, n, calls);
        least_bare = us < least_bare ? us : least_bare;
        us = batch(b, ours, n, calls);
        least_ours = us < least_ours ? us : least_ours;
    }
    if (b->rank == 0)
        printf("%-12s %9zu %10.3f %10.3f %8.0f %6.2f\n", b->collective, bytes, least_bare, least_ours, (least_ours - least_bare) * 1000,
               least_ours / least_bare);
    return least_ours / least_bare;
}

static int level_of(const char *name)
{
    return strcmp(name, "multiple") == 0     ? MPI_THREAD_MULTIPLE
           : strcmp(name, "serialized") == 0 ? MPI_THREAD_SERIALIZED
           : strcmp(name, "single") == 0     ? MPI_THREAD_SINGLE
                                             : -1;
}

static int read_arguments(struct bench *b, int count, char **argument)
{
    int level = MPI_THREAD_SERIALIZED;

    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? argument[i + 1] : "";
        if (strcmp(argument[i], "--max") == 0)
            b->max = (size_t)strtoull(value, NULL, 10), i++;
        else if (strcmp(argument[i], "--min") == 0)
            b->min = (size_t)strtoull(value, NULL, 10), i++;
        else if (strcmp(argument[i], "--rounds") == 0)
            b->rounds = (int)strtol(value, NULL, 10), i++;
        else if (strcmp(argument[i], "--level") == 0)
            level = level_of(value), i++;
        else if (strcmp(argument[i], "--backend") == 0)
            b->backend = value, i++;
        else if (strcmp(argument[i], "--limit") == 0)
            b->limit = true;
        else if (strcmp(argument[i], "--written") == 0)
            b->written = true;
        else
            b->collective = argument[i];
    }
    if (level < 0 || b->rounds < 1 || b->min < sizeof(double) || b->max < b->min) {
        fprintf(stderr, "mpi_over: arguments: see the head of tests/perf/mpi_over.c\n");
        exit(2);
    }
    return level;
}

static double run_sizes(struct bench *b, double *worst)
{
    double sum = 0, ratio;
    int sizes = 0;

    if (b->rank == 0)
        printf("collective       bytes     MPI us    ours us  more ns  ratio\n");
    for (size_t bytes = b->min; bytes <= b->max; bytes *= FACTOR, sizes++) {
        ratio = one_size(b, bytes);
        sum += log(ratio);
        *worst = ratio > *worst ? ratio : *worst;
        if (strcmp(b->collective, "barrier") == 0)
            return ratio;
    }
    if (b->rank == 0)
        printf("%-12s geometric mean %.3f, worst %.3f\n", b->collective, exp(sum / sizes), *worst);
    return exp(sum / sizes);
}

static void open_world(struct bench *b)
{
    char text[512] = "";

    if (comm_open(COMM_CONFIG(.backend = b->backend, .error_text = text, .error_text_bytes = sizeof text), &b->world) == COMM_OK)
        return;
    fprintf(stderr, "mpi_over: %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double of_slowest(const struct bench *b, double seconds)
{
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, b->comm);
    return seconds * 1000;
}

static void open_and_close(struct bench *b, double init)
{
    double took = of_slowest(b, init);

    if (b->rank == 0)
        printf("MPI_Init_thread of %d ranks took %.1f ms\n", b->ranks, took);
    for (int round = 0; round < b->rounds; round++) {
        MPI_Barrier(b->comm);
        double begin = MPI_Wtime();
        open_world(b);
        double opened = of_slowest(b, MPI_Wtime() - begin);
        begin = MPI_Wtime();
        must(comm_close(b->world, COMM_DEFAULT_TIMEOUT), "close");
        took = of_slowest(b, MPI_Wtime() - begin);
        if (b->rank == 0)
            printf("comm_open of %d ranks on %s took %.1f ms, comm_close %.1f ms\n", b->ranks, b->backend, opened, took);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int count, char **argument)
{
    struct bench b = {.collective = "allreduce", .backend = "mpi", .rounds = 15, .min = 8, .max = 8u << 20};
    double worst = 0;
    int provided, level = read_arguments(&b, count, argument);
    double begin = seconds();

    MPI_Init_thread(NULL, NULL, level, &provided);
    double init = seconds() - begin;
    MPI_Comm_dup(MPI_COMM_WORLD, &b.comm);
    MPI_Comm_rank(b.comm, &b.rank);
    MPI_Comm_size(b.comm, &b.ranks);
    if (strcmp(b.collective, "open") == 0) {
        open_and_close(&b, init);
        MPI_Finalize();
        return 0;
    }
    if (strcmp(b.collective, "sendrecv") == 0 && b.ranks != 2)
        MPI_Abort(b.comm, 2);
    open_world(&b);
    b.in = calloc((size_t)b.ranks, b.max);
    b.out = calloc((size_t)b.ranks, b.max);
    b.counts = calloc((size_t)b.ranks, sizeof *b.counts);
    b.numbers = calloc((size_t)b.ranks, sizeof *b.numbers);
    b.places = calloc((size_t)b.ranks, sizeof *b.places);
    if (!b.in || !b.out || !b.counts || !b.numbers || !b.places)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double mean = run_sizes(&b, &worst);
    must(comm_close(b.world, COMM_DEFAULT_TIMEOUT), "close");
    MPI_Comm_free(&b.comm);
    MPI_Finalize();
    return b.limit && (mean > 1.1 || worst > 1.3);
}
