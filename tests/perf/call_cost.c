/*
 * The cost of a call that waits for no other rank: an allreduce of 8 bytes on one rank, called and waited for, in nanoseconds. Only the
 * library's own work is left: checks, the queue, the program, the request. Also with 16 in flight, and with two ranks that one thread
 * drives in turn through memory of this process.
 *
 *   call_cost       one line per case: median and smallest of 31 batches
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 31, CALLS = 20000, DEPTH = 16, RANKS_MAX = 2 };

struct probe {
    struct comm_communicator *comm[RANKS_MAX];
    int32_t ranks;
    double in[RANKS_MAX][DEPTH], out[RANKS_MAX][DEPTH];
};

static void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "call_cost: %s: %s\n", what, comm_result_text(result));
    exit(1);
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Makes `depth` calls on every rank, then waits for all of them. Returns the number of calls. */
static size_t call_deep(struct probe *probe, size_t depth)
{
    struct comm_request req[RANKS_MAX * DEPTH];
    size_t count = 0;
    for (size_t k = 0; k < depth; k++) {
        for (int32_t r = 0; r < probe->ranks; r++)
            must(comm_allreduce(probe->comm[r], &probe->in[r][k], &probe->out[r][k], 1, COMM_F64, COMM_SUM, &req[count++]), "allreduce");
    }
    must(count == 1 ? comm_wait(req[0], COMM_FOREVER) : comm_wait_all(req, count, COMM_FOREVER), "wait");
    return depth;
}

static size_t call_single(struct probe *probe)
{
    return call_deep(probe, 1);
}

static size_t call_sixteen(struct probe *probe)
{
    return call_deep(probe, DEPTH);
}

static size_t call_barrier(struct probe *probe)
{
    struct comm_request req[RANKS_MAX];
    for (int32_t r = 0; r < probe->ranks; r++)
        must(comm_barrier(probe->comm[r], &req[r]), "barrier");
    for (int32_t r = 0; r < probe->ranks; r++)
        must(comm_wait(req[r], COMM_FOREVER), "wait");
    return 1;
}

/* Tests a complete request: a load and a compare. */
static size_t test_done(struct probe *probe)
{
    struct comm_request last = comm_last(probe->comm[0]);
    must(comm_wait(last, COMM_FOREVER), "wait");
    for (size_t i = 0; i < DEPTH; i++)
        must(comm_test(last), "test");
    return DEPTH;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct probe *probe, const char *world, const char *what, size_t (*call)(struct probe *probe))
{
    double time[BATCHES];
    for (int i = -1; i < BATCHES; i++) {
        size_t calls = 0;
        double begin = now_ns();
        while (calls < CALLS)
            calls += call(probe);
        if (i >= 0)
            time[i] = (now_ns() - begin) / (double)calls;
    }
    qsort(time, BATCHES, sizeof time[0], by_value);
    printf("%-28s %-28s %9.1f ns   (smallest %.1f)\n", world, what, time[BATCHES / 2], time[0]);
    fflush(stdout);
}

static void check(struct probe *probe)
{
    for (int32_t r = 0; r < probe->ranks; r++) {
        for (size_t k = 0; k < DEPTH; k++)
            probe->in[r][k] = (double)k + r;
    }
    (void)call_deep(probe, DEPTH);
    for (int32_t r = 0; r < probe->ranks; r++) {
        for (size_t k = 0; k < DEPTH; k++) {
            double expected = probe->ranks == 1 ? (double)k : 2.0 * (double)k + 1;
            if (probe->out[r][k] != expected) {
                fprintf(stderr, "call_cost: rank %d: a sum is %g; expected %g\n", r, probe->out[r][k], expected);
                exit(1);
            }
        }
    }
}

static void run(struct probe *probe, const char *world)
{
    check(probe);
    measure(probe, world, "allreduce, call and wait", call_single);
    measure(probe, world, "allreduce, 16 in flight", call_sixteen);
    measure(probe, world, "barrier, call and wait", call_barrier);
    measure(probe, world, "test of what is complete", test_done);
    for (int32_t r = 0; r < probe->ranks; r++)
        must(comm_close(probe->comm[r], COMM_DEFAULT_TIMEOUT), "close");
}

int main(void)
{
    static struct probe probe;
    probe.ranks = 1;
    must(comm_open(COMM_CONFIG(.rank = 0, .ranks = 1), &probe.comm[0]), "open of a world of one");
    run(&probe, "comm_open, 1 rank");
    must(comm_open_local(NULL, 1, NULL, probe.comm), "open of one local rank");
    run(&probe, "comm_open_local, 1 rank");
    probe.ranks = 2;
    must(comm_open_local(NULL, 2, NULL, probe.comm), "open of two local ranks");
    run(&probe, "comm_open_local, 2 ranks");
    return 0;
}
