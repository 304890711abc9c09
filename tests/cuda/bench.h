/* What the program of a test has on a device: streams, memory, kernels, all through the module's table of the driver's calls, so that it
 * runs on the mock driver and on a real one. Each thing belongs to the device's primary context, as cudart's do. */
#ifndef BENCH_H
#define BENCH_H

#include "cuda/calls.h"

#include <stdbool.h>

struct bench {
    int device;
    struct CUctx_st *context;
    const struct cuda_calls *calls;
    void *pinned; /* what bench_read reads into; made and freed with the rest, since both wait for all streams, and one may stand */
    struct CUevent_st *read;
};
enum { BENCH_READ_BYTES = 1 << 18 }; /* at most */

/* Loads the driver, for all devices; false: there is none, and why is told. */
bool bench_load(char *why, size_t why_bytes);
void bench_open(struct bench *b, int device);
void bench_close(struct bench *b);
struct CUstream_st *bench_stream(struct bench *b);
void bench_drop_stream(struct bench *b, struct CUstream_st *stream);
uint32_t *bench_memory(struct bench *b, size_t words);
void bench_free(struct bench *b, uint32_t *memory);
void bench_fill(struct bench *b, struct CUstream_st *stream, uint32_t *to, uint32_t value, size_t words);
void bench_copy(struct bench *b, struct CUstream_st *stream, void *to, const void *from, size_t bytes);
/* Waits for the stream; in the end, the memory's first words are in `to`. */
void bench_read(struct bench *b, struct CUstream_st *stream, uint32_t *to, const uint32_t *from, size_t words);
/* Lets the device go on: the mock one by a step. */
void bench_turn(void);
extern void (*bench_inside)(bool on); /* NULL, or told around the program's own calls of the driver */
extern void (*bench_step)(void);      /* NULL: the device runs by itself */

#endif
