/*
 * The ranks of a test in which each works in a stream of the program's: all are in this process, each has a device, a stream, and a
 * communicator in that stream (a comm_dup with options.stream).
 */
#ifndef SIDES_H
#define SIDES_H

#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

enum { SIDES = 3 };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    struct comm_communicator *comm; /* works in `stream` */
    uint32_t *in, *out;
    struct bench_graph graph;
};
extern struct side sides[SIDES];
extern struct rig sides_rig; /* the world that the communicators were duplicated from */

/* Each side has `words` words of memory for `in` and for `out`. */
void sides_open(const struct mock_options *options, const struct comm_config *config, size_t words);
void sides_drop_graphs(void);
/* Graphs are dropped first. `failed`: communicators have failed, so closing them may say so. */
void sides_close(bool failed);

void sides_fill(uint32_t value, size_t words);
/* The first word of `of`, when the rank's stream has come so far. */
uint32_t sides_word(int rank, const uint32_t *of);
/* A sum of `in` in place, not in a graph; returns when it is complete. */
void sides_sum(size_t words);
/* A graph for each rank that sums `in` and stores the sum as the next input: a launch multiplies the value by the number of ranks. */
void sides_capture_sum(size_t words);
void sides_launch(void);

/* The result is the expected one, and the communicator's error has the text. */
void sides_refused(struct side *s, enum comm_result result, enum comm_result expected, const char *text);

#endif
