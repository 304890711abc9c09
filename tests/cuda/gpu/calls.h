/* Part of the ranks' suite (ranks.c): calls that are not one collective, and memory of the library's. */
#ifndef GPU_CALLS_H
#define GPU_CALLS_H

#include <commstream/comm.h>

#include "bench.h"

/* On all ranks of the world together. A failed check ends the program. */
void calls_run(struct comm_communicator *world, struct bench *bench, struct CUstream_st *stream);

#endif
