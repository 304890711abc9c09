/* The two sides of comm-perf --fit. The parent starts worlds of several sizes under comm-run, one after another; their ranks measure. */
#ifndef TOOLS_PERF_FIT_H
#define TOOLS_PERF_FIT_H

#include "tools/perf.h"

enum { FIT_LENGTHS_MOST = 24, FIT_WORLDS_MOST = 8, FIT_SECONDS_MOST = 3600 };

struct perf_fit {
    const char *backend, *machine; /* machine: the file to write, or to check */
    const char *cells;             /* of a rank: the file for its cells; of the parent: the file to read cells from, NULL: measure them */
    double seconds;                /* for each world to measure */
    bool check, as_it_is;          /* check: also measure other lengths; as_it_is: the file exists, nothing is fitted */
    size_t length[FIT_LENGTHS_MOST], lengths;
    int32_t world[FIT_WORLDS_MOST];
    int worlds;
};

/* argv begins with the --fit option. Returns the program's exit status. */
int perf_fit_main(int argc, char **argv);
int perf_cells(const struct perf_fit *fit);
/* Nanoseconds to write again to a line that another CPU has read, and to one that it has also written to. False: there is one CPU. */
bool perf_lines(double *read, double *dirtied);

#endif
