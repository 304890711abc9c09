/*
 * The cost of a communicator that is created, used and closed: `comm-run -n 2 bin/made_cost [dup|split|subset]`. Prints medians of the
 * creation and of the whole cycle, and the CPU time of the caller's thread. It runs one at a time, ten at a time, and after sums of some
 * lengths, because memory that a channel has used is cleared for the next one. On a machine with other load, `chrt -f 1` in front keeps the
 * CPUs for the ranks.
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include "now.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TOGETHER = 10, CYCLES = 2000, WARM = 100, LONGEST = 1 << 20, RANKS_MOST = 64 };
static const struct {
    int together;
    size_t bytes; /* of a sum on each; 0: it is not used */
} rows[] = {{1, 0}, {10, 0}, {1, 8}, {1, 1000}, {1, 60000}, {1, 1 << 20}};

static double clock_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, comm_result_name(result));
    exit(1);
}

static struct comm_communicator *make(struct comm_communicator *world, const char *kind)
{
    static int32_t ranks[RANKS_MOST];
    struct comm_communicator *made = NULL;

    for (int32_t r = 0; r < RANKS_MOST; r++)
        ranks[r] = r;
    if (strcmp(kind, "split") == 0)
        must(NOW(comm_split, world, 0, 0, &made), "comm_split");
    else if (strcmp(kind, "subset") == 0)
        must(NOW(comm_subset, world, ranks, (size_t)comm_size(world), 1, &made), "comm_subset");
    else
        must(NOW(comm_dup, world, NULL, &made), "comm_dup");
    return made;
}

static int earlier(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *figures)
{
    qsort(figures, CYCLES, sizeof *figures, earlier);
    return figures[CYCLES / 2];
}

static void row(struct comm_communicator *world, const char *kind, int together, size_t bytes)
{
    static double making[CYCLES], cycle[CYCLES];
    static char sum[LONGEST];
    struct comm_communicator *c[MOST_TOGETHER];
    struct comm_request request;
    double used = 0;

    for (int i = -WARM; i < CYCLES; i++) {
        double from = clock_us(CLOCK_MONOTONIC);
        if (i == 0)
            used = clock_us(CLOCK_THREAD_CPUTIME_ID);
        for (int k = 0; k < together; k++)
            c[k] = make(world, kind);
        double made = clock_us(CLOCK_MONOTONIC);
        for (int k = 0; k < together && bytes; k++) {
            must(comm_allreduce(c[k], COMM_IN_PLACE, sum, bytes, COMM_U8, COMM_MAX, &request), "comm_allreduce");
            must(comm_wait(request, COMM_FOREVER), "comm_wait");
        }
        for (int k = 0; k < together; k++)
            must(comm_close(c[k], COMM_DEFAULT_TIMEOUT), "comm_close");
        if (i < 0)
            continue;
        making[i] = (made - from) / together;
        cycle[i] = (clock_us(CLOCK_MONOTONIC) - from) / together;
    }
    used = (clock_us(CLOCK_THREAD_CPUTIME_ID) - used) / CYCLES / together;
    if (comm_rank(world) == 0)
        printf("%s, %2d at a time, a sum of %7zu B: made %7.1f us, made used and closed %7.1f us, CPU of the caller %7.1f us\n", kind,
               together, bytes, median(making), median(cycle), used);
}

int main(int argc, char **argv)
{
    struct comm_config config = {.size = sizeof config};
    struct comm_communicator *world = NULL;

    must(comm_open(&config, &world), "comm_open");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        row(world, argc > 1 ? argv[1] : "dup", rows[i].together, rows[i].bytes);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "comm_close");
    return 0;
}
