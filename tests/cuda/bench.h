/* The program's side of a device in a test: streams, memory and kernels. It uses the module's table of driver calls, so it runs on the mock
 * driver and on a real one. All objects belong to the device's primary context, as those of the CUDA runtime do. */
#ifndef BENCH_H
#define BENCH_H

#include "cuda/calls.h"

#include <stdbool.h>

struct bench {
    int device;
    struct CUctx_st *context;
    const struct cuda_calls *calls;
    void *pinned; /* buffer of bench_read. Allocated once, since cuMemHostAlloc waits for all streams, and one may block */
    struct CUevent_st *read;
};
enum { BENCH_READ_BYTES = 1 << 18 }; /* at most */

/* Loads the driver for all devices. Returns false, with the reason in `why`, if there is none. */
bool bench_load(char *why, size_t why_bytes);
int bench_devices(void); /* how many this process sees; ends the program if there is none */
/* What was captured from a stream. */
struct bench_graph {
    struct CUgraph_st *graph;
    struct CUgraphExec_st *exec;
};

void bench_open(struct bench *b, int device);
void bench_close(struct bench *b);
/* In between the device's context is the thread's, as in a program that uses the device. */
void bench_enter(struct bench *b);
void bench_leave(struct bench *b);
struct CUstream_st *bench_stream(struct bench *b);
void bench_drop_stream(struct bench *b, struct CUstream_st *stream);
uint32_t *bench_memory(struct bench *b, size_t words);
void bench_free(struct bench *b, uint32_t *memory);
void *bench_pinned(struct bench *b, size_t bytes); /* memory of the host, which the device copies asynchronously */
void bench_free_pinned(struct bench *b, void *memory);
void bench_fill(struct bench *b, struct CUstream_st *stream, uint32_t *to, uint32_t value, size_t words);
void bench_copy(struct bench *b, struct CUstream_st *stream, void *to, const void *from, size_t bytes);
void bench_wait(struct bench *b, struct CUstream_st *stream);
/* Waits for the stream, and copies the memory's first words to `to`. */
void bench_read(struct bench *b, struct CUstream_st *stream, uint32_t *to, const uint32_t *from, size_t words);
/* What is put on the stream in between goes into the graph. bench_drop_graph ignores an empty one. */
void bench_capture(struct bench *b, struct CUstream_st *stream);
void bench_end_capture(struct bench *b, struct CUstream_st *stream, struct bench_graph *graph);
void bench_launch(struct bench *b, const struct bench_graph *graph, struct CUstream_st *stream);
void bench_drop_graph(struct bench *b, struct bench_graph *graph);
/* Lets the device make progress: one step of the mock machine. */
void bench_turn(void);
extern void (*bench_inside)(bool on); /* NULL, or called before and after the program's own driver calls */
extern void (*bench_step)(void);      /* NULL: the device runs by itself */

#endif
