/*
 * What shared memory allows two processes of this machine in an allreduce (f32, sum), a broadcast or an allgather: loops written by hand,
 * with no library around them. comm-perf is compared with this figure, so the method is comm-perf's: buffers that rotate within 64 MiB, a
 * tight loop for each batch, the median batch. Every way of shm_floor_methods.c that takes a length is checked and then measured, batch by
 * batch in turns; the floor is the fastest of them.
 *
 *   shm_floor [allreduce|broadcast|allgather] [--touch] [--max BYTES]     the columns of comm-perf, as CSV; the time is the first rank's
 */
#define _GNU_SOURCE
#include "shm_floor_methods.h"
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 11, WARM_BATCHES = 75, WARM_CALLS = 5000 };
static const size_t ROTATE_BYTES = 64u << 20, ROTATE_MOST = 16, BYTES_MAX = 8u << 20;

struct loop {
    const struct collective *collective;
    const struct method *method; /* NULL: no call, what touching alone takes */
    char *in, *out;
    size_t bytes, iterations, slots;
    bool touch;
};

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void touch_in(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE)
        ((volatile char *)at)[i] = 1;
}

static void touch_out(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE)
        (void)((const volatile char *)at)[i];
}

/* A barrier: neither rank goes on before the other has left its last call, so another method may have the window. */
static void meet(struct rank *rank)
{
    (void)exchange(rank, "", 0);
}

static double run_batch(struct rank *rank, const struct loop *loop)
{
    size_t out_bytes = loop->bytes * loop->collective->outs;
    meet(rank);
    double begin = now_us();
    for (size_t i = 0; i < loop->iterations; i++) {
        char *in = loop->in + i % loop->slots * loop->bytes, *out = loop->out + i % loop->slots * out_bytes;
        if (loop->touch)
            touch_in(in, loop->bytes);
        if (loop->method)
            loop->method->run(rank, loop->method, in, out, loop->bytes);
        if (loop->touch)
            touch_out(out, out_bytes);
    }
    return (now_us() - begin) / (double)loop->iterations;
}

static float value_of(size_t index, size_t i, size_t turn)
{
    return (float)((i * 7 + turn * 13 + index * 1001) % 4099);
}

static float answer_of(const struct loop *loop, size_t i, size_t turn)
{
    size_t n = loop->bytes / sizeof(float);
    switch (loop->collective - collectives) {
    case 0:
        return value_of(0, i, turn) + value_of(1, i, turn);
    case 1:
        return value_of(0, i, turn);
    default:
        return value_of(i >= n, i % n, turn);
    }
}

/* A few calls in a row whose values differ at each place, rank and call. */
static void check(struct rank *rank, const struct loop *loop)
{
    size_t n = loop->bytes / sizeof(float);
    meet(rank);
    for (size_t turn = 0; turn < 2 * loop->slots; turn++) {
        float *in = (float *)(void *)(loop->in + turn % loop->slots * loop->bytes);
        float *out = (float *)(void *)(loop->out + turn % loop->slots * loop->bytes * loop->collective->outs);
        for (size_t i = 0; i < n; i++)
            in[i] = value_of(rank->index, i, turn);
        loop->method->run(rank, loop->method, (char *)in, (char *)out, loop->bytes);
        for (size_t i = 0; i < n * loop->collective->outs && (rank->index || loop->collective != &collectives[1]); i++) {
            if (out[i] != answer_of(loop, i, turn)) {
                fprintf(stderr, "shm_floor: method %td of %s is wrong at %zu of %zu: %f; expected %f\n",
                        loop->method - loop->collective->methods, loop->collective->name, i, n, (double)out[i],
                        (double)answer_of(loop, i, turn));
                exit(1);
            }
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool takes(const struct method *method, size_t bytes)
{
    return method->run && bytes >= method->least && bytes <= method->most;
}

/* Sorts the batches: their median is the time. */
static double median_of(double batches[BATCHES])
{
    qsort(batches, BATCHES, sizeof batches[0], by_value);
    return batches[BATCHES / 2];
}

static const struct method *next_method(const struct loop *loop, const struct method *method)
{
    const struct method *end = loop->collective->methods + METHODS;
    while (method < end && !takes(method, loop->bytes))
        method++;
    return method < end ? method : NULL;
}

/* Batches of all methods that take the length, in turns; the sorted batches of the fastest, and which it was. */
static const struct method *run_methods(struct rank *rank, struct loop loop, double fastest[BATCHES])
{
    const struct method *first = loop.collective->methods, *best = NULL;
    double times[METHODS][BATCHES];
    for (int batch = -1; batch < BATCHES; batch++) {
        for (loop.method = next_method(&loop, first); loop.method; loop.method = next_method(&loop, loop.method + 1)) {
            if (batch < 0)
                check(rank, &loop);
            else
                times[loop.method - first][batch] = run_batch(rank, &loop);
        }
    }
    for (loop.method = next_method(&loop, first); loop.method; loop.method = next_method(&loop, loop.method + 1)) {
        double *found = times[loop.method - first];
        if (median_of(found) < (best ? fastest[BATCHES / 2] : 1e12)) {
            best = loop.method;
            memcpy(fastest, found, sizeof times[0]);
        }
    }
    return best;
}

static double touching_alone(struct rank *rank, const struct loop *loop)
{
    double times[BATCHES];
    for (int batch = 0; loop->touch && batch < BATCHES; batch++)
        times[batch] = run_batch(rank, loop);
    return loop->touch ? median_of(times) : 0;
}

static void measure(struct rank *rank, struct loop loop)
{
    double time[BATCHES] = {0};
    loop.slots = ROTATE_BYTES / (loop.bytes * (1 + loop.collective->outs));
    loop.slots = loop.slots > ROTATE_MOST ? ROTATE_MOST : loop.slots;
    loop.iterations = loop.bytes <= 4096 ? 5000 : loop.bytes <= 262144 ? 300 : loop.bytes <= (2u << 20) ? 30 : 8;
    double touching = touching_alone(rank, &loop);
    const struct method *method = run_methods(rank, loop, time);
    if (rank->index == 0) {
        printf("%s,floor,2,f32,%zu,request,%.3f,%.3f,%.3f,0.0,%td\n", loop.collective->name, loop.bytes, time[0] - touching,
               time[BATCHES / 2] - touching, time[BATCHES - 1] - touching, method - loop.collective->methods);
        fflush(stdout);
    }
}

/* Runs before the first size, as in the other benchmarks: CPUs leave sleep states and train their predictors. */
static void warm_up(struct rank *rank, struct loop loop)
{
    loop.iterations = WARM_CALLS;
    loop.method = loop.collective->methods;
    loop.slots = 1;
    loop.touch = false;
    for (int batch = 0; batch < WARM_BATCHES; batch++)
        (void)run_batch(rank, &loop);
}

/* Starts two processes, each on a CPU of its own if there are two. A spinning orphan would spoil all later measurements. */
static struct rank start_ranks(void)
{
    struct side *sides = mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sides == MAP_FAILED) {
        perror("shm_floor: mmap");
        exit(1);
    }
    memset(sides, 0, 2 * sizeof *sides);
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        perror("shm_floor: fork");
        exit(1);
    }
    struct rank rank = {.index = child == 0};
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    rank.mine = &sides[rank.index];
    rank.theirs = &sides[!rank.index];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank.index, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    return rank;
}

/* Memory whose pages are there. */
static char *buffer_of(size_t bytes)
{
    char *at = aligned_alloc(4096, bytes);
    if (!at) {
        fprintf(stderr, "shm_floor: no memory for buffers of %zu bytes\n", bytes);
        exit(1);
    }
    memset(at, 0, bytes);
    return at;
}

static const struct collective *collective_named(const char *name)
{
    for (size_t i = 0; i < COLLECTIVES; i++)
        if (!strcmp(collectives[i].name, name))
            return &collectives[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct loop loop = {.collective = collectives, .bytes = 8};
    size_t max = BYTES_MAX;
    for (int i = 1; i < argc; i++) {
        const struct collective *named = collective_named(argv[i]);
        if (named) {
            loop.collective = named;
        } else if (!strcmp(argv[i], "--touch")) {
            loop.touch = true;
        } else if (!strcmp(argv[i], "--max") && i + 1 < argc) {
            max = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: shm_floor [allreduce|broadcast|allgather] [--touch] [--max BYTES]; '%s' is none of these\n", argv[i]);
            return 2;
        }
    }
    struct rank rank = start_ranks();
    loop.in = buffer_of(ROTATE_BYTES);
    loop.out = buffer_of(ROTATE_BYTES);
    if (rank.index == 0)
        printf("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct,method\n");
    warm_up(&rank, loop);
    for (; loop.bytes <= max && loop.bytes <= BYTES_MAX; loop.bytes *= 4)
        measure(&rank, loop);
    if (rank.index == 1)
        _exit(0);
    int status = 0;
    wait(&status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
