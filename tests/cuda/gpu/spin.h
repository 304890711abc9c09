/* A kernel that keeps a stream of the program's busy, without memory or bandwidth: it runs for a time, or until it is told to stop. */
#ifndef SPIN_H
#define SPIN_H

#include "bench.h"

struct spin {
    struct bench *bench;
    struct CUmod_st *module;
    struct CUfunc_st *kernel;
    uint64_t *stop; /* in pinned memory, which the kernel reads */
};

void spin_open(struct spin *s, struct bench *bench);
void spin_close(struct spin *s); /* no kernel runs */
void spin_start(struct spin *s, struct CUstream_st *stream, uint64_t ns);
void spin_stop(struct spin *s); /* those that were started */

#endif
