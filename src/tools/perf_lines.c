/*
 * What it costs to write again to cache lines of shared memory that another CPU has read, and to those that it has read and then written
 * to. On some processors the first takes several times as long: a line that two caches share must be taken from one of them, while a line
 * that one cache has modified only moves. A world lets ranks write to what they have read if that is less here (docs/internals/memory.md).
 */
#define _GNU_SOURCE
#include "tools/perf_fit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { LINE = 64, WINDOW = 64 << 10, LINES = WINDOW / LINE, ROUNDS = 201 };

static struct {
    _Alignas(2 * LINE) _Atomic uint32_t turn; /* even: the writer's, odd: the reader's */
    _Alignas(4096) unsigned char window[WINDOW];
    int cpu[2];
    bool dirties;
} lines;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void await_turn(uint32_t turn)
{
    while (atomic_load_explicit(&lines.turn, memory_order_acquire) != turn)
        ;
}

static void pass(uint32_t turn)
{
    atomic_store_explicit(&lines.turn, turn + 1, memory_order_release);
}

static void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static void *reader(void *arg)
{
    bind_to(lines.cpu[1]);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        await_turn(2 * round + 1);
        for (size_t i = 0; i < WINDOW; i += LINE) {
            volatile unsigned char *line = &lines.window[i];
            (void)*line;
            if (lines.dirties)
                *line = 0;
        }
        pass(2 * round + 1);
    }
    return arg;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the rounds, for a line. */
static double measure(bool dirties)
{
    static double time[ROUNDS];
    pthread_t thread;
    lines.dirties = dirties;
    atomic_store(&lines.turn, 0);
    if (pthread_create(&thread, NULL, reader, NULL))
        return 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        await_turn(2 * round);
        double begin = now_ns();
        for (size_t i = 0; i < WINDOW; i += LINE)
            *(volatile unsigned char *)&lines.window[i] = (unsigned char)round;
        atomic_thread_fence(memory_order_seq_cst); /* the stores are done, not only under way */
        time[round] = now_ns() - begin;
        pass(2 * round);
    }
    pthread_join(thread, NULL);
    qsort(time, ROUNDS, sizeof time[0], by_value);
    return time[ROUNDS / 2] / LINES;
}

bool perf_lines(double *read, double *dirtied)
{
    cpu_set_t before;
    int found = 0;
    CPU_ZERO(&before);
    if (sched_getaffinity(0, sizeof before, &before))
        return false;
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET((size_t)i, &before))
            lines.cpu[found++] = i;
    if (found < 2)
        return false;
    bind_to(lines.cpu[0]);
    *read = measure(false);
    *dirtied = measure(true);
    (void)sched_setaffinity(0, sizeof before, &before);
    return *read > 0 && *dirtied > 0;
}
