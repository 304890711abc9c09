/*
 * Prints the time in nanoseconds in which two CPUs exchange one cache line: how far apart the CPUs are that this machine gives now. On a
 * virtual machine they may move: threads of one core take 15 to 35 ns, cores that share a cache 40 to 90 ns, others more.
 *
 *   cache_line [CPU CPU]      the first two CPUs of this process, unless said
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 15, EXCHANGES = 20000, LINE = 128 };

static struct {
    _Alignas(LINE) _Atomic unsigned turn;
} line;
static int cpu[2];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bind_to(int one)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)one, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        perror("cache_line: sched_setaffinity");
}

/* Both count the word up in turn: side 0 from even values, side 1 from odd ones. */
static void exchange(unsigned side)
{
    for (unsigned i = 0; i < EXCHANGES; i++) {
        unsigned mine = 2 * i + side;
        while (atomic_load_explicit(&line.turn, memory_order_acquire) != mine)
            __asm__ __volatile__("" ::: "memory");
        atomic_store_explicit(&line.turn, (mine + 1) % (2 * EXCHANGES), memory_order_release);
    }
}

static void *other(void *arg)
{
    (void)arg;
    bind_to(cpu[1]);
    for (int i = 0; i < BATCHES; i++)
        exchange(1);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void choose_cpus(int argc, char **argv)
{
    cpu_set_t set;
    int found = 0;
    if (argc == 3) {
        for (int i = 0; i < 2; i++)
            cpu[i] = (int)strtol(argv[i + 1], NULL, 10);
        return;
    }
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
            if (CPU_ISSET((size_t)i, &set))
                cpu[found++] = i;
    if (found < 2) {
        fputs("cache_line: this process may use one CPU; expected two\n", stderr);
        exit(77);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    double time[BATCHES];
    choose_cpus(argc, argv);
    if (pthread_create(&thread, NULL, other, NULL) != 0) {
        fputs("cache_line: no thread can be started\n", stderr);
        return 1;
    }
    bind_to(cpu[0]);
    for (int i = 0; i < BATCHES; i++) {
        double begin = now_ns();
        exchange(0);
        time[i] = (now_ns() - begin) / (2 * EXCHANGES);
    }
    pthread_join(thread, NULL);
    qsort(time, BATCHES, sizeof time[0], by_value);
    printf("%.0f\n", time[BATCHES / 4]); /* a batch in which a CPU was taken away is among the slow ones */
    return 0;
}
