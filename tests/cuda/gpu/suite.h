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
_Noreturn void suite_die(const char *file, int line, const char *what);
double suite_now_us(void);
#define HOLDS(condition) ((condition) ? (void)0 : suite_die(__FILE__, __LINE__, #condition))
#define OK(call) HOLDS((call) == COMM_OK)

#endif
