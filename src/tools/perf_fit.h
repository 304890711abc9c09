/* comm-perf --fit: its two sides. The parent starts worlds of several sizes under comm-run, one after the other; their ranks measure. */
#ifndef TOOLS_PERF_FIT_H
#define TOOLS_PERF_FIT_H

#include "tools/perf.h"

enum { FIT_LENGTHS_MOST = 24, FIT_WORLDS_MOST = 8 };

struct perf_fit {
    const char *backend, *machine; /* machine: the file to write, or to check */
    const char *cells;             /* of a rank: where its cells go; of the parent: where they come from, NULL: they are measured */
    double seconds;                /* for each world to measure */
    bool check, as_it_is;          /* measure at other lengths too; the file is there, nothing is fitted */
    size_t length[FIT_LENGTHS_MOST], lengths;
    int32_t world[FIT_WORLDS_MOST];
    int worlds;
};

/* Takes argv from --fit on. Exits with the program's status. */
int perf_fit_main(int argc, char **argv);
int perf_cells(const struct perf_fit *fit);

#endif
