/* A rank that is a process of its own, on a mock device of its own: its world, and two buffers of device memory. */
#ifndef CUDA_PROCESS_H
#define CUDA_PROCESS_H

#include "bench.h"

#include <commstream/comm.h>

enum { RANKS_MOST = 8, WORDS = 64 };

extern struct rank {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out; /* WORDS for each of RANKS_MOST ranks */
    char text[512];
} my;

void make_buffers(int32_t rank);
void drop_buffers(void); /* also checks that nothing of the mock is left */
/* Waits for the request, and checks that WORDS words of `out` from `at` on are `want`. */
void expect(struct comm_request q, size_t at, uint32_t want);

#endif
