/* How the programs for GPUs fail, and what they measure with. */
#define _GNU_SOURCE
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

_Noreturn void suite_die(const char *file, int line, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    exit(1);
}

double suite_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double suite_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}
