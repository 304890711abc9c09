/* Checks that backend nccl must pass on any device, real or mock, with one rank and streams of the program. A failed check ends the
 * program. */
#ifndef SUITE_H
#define SUITE_H

#include <commstream/comm.h>

#include "bench.h"
#include "cuda/load.h"

struct suite {
    struct comm_communicator *world;
    struct bench bench;
    struct CUstream_st *compute, *consume;
    uint32_t *in, *out, *kept, *slow;
    size_t slow_words; /* enough that filling them takes the device some time */
};
enum { SUITE_WORDS = 4096 };

struct suite_check {
    const char *name;
    void (*run)(struct suite *s);
};
extern const struct suite_check suite_checks[];
extern const int suite_check_count;

struct suite_figure {
    const char *name, *unit;
    double (*measure)(struct suite *s);
};
extern const struct suite_figure suite_figures[];
extern const int suite_figure_count;

void suite_open(struct suite *s, size_t slow_words);
void suite_close(struct suite *s);
void suite_delay(struct suite *s, struct CUstream_st *stream); /* what is put there from now on is late */
/* All SUITE_WORDS words have this value when the stream has come so far. */
void suite_expect(struct suite *s, struct CUstream_st *stream, const uint32_t *memory, uint32_t value);
double suite_round_trips(struct suite *s, struct comm_communicator *world, size_t words); /* us for each */
/* A graph that lives has calls of the communicator: comm_close says so, within a bound, and does nothing else. */
void suite_refuses_to_close(struct comm_communicator *c);
#define SUITE_PATIENCE_NS INT64_C(20000000000)

/* oneshot.c */
void suite_one_kernel(struct suite *s);
void suite_kernels_in_a_stream(struct suite *s);
void suite_kernels_in_a_graph(struct suite *s);
double suite_one_kernel_round_trip(struct suite *s);

/* report.c */
_Noreturn void suite_die(const char *file, int line, const char *what);
double suite_now_us(void);
double suite_median(double *values, int count); /* sorts them */
#define HOLDS(condition) ((condition) ? (void)0 : suite_die(__FILE__, __LINE__, #condition))
#define OK(call) HOLDS((call) == COMM_OK)

#endif
