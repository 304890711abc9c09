/* The world of the tests of what the real CUDA and NCCL do (test_real.c, test_real_memory.c). */
#ifndef REAL_H
#define REAL_H

#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

enum { WORDS = 64, RANKS = 3 };
struct real_side {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
};
struct real {
    struct rig rig;
    int ranks;
    struct real_side side[RIG_RANKS_MAX];
};

/* Opens a world on a mock machine with these options, and makes a stream and memory on each rank's device. */
void real_open(struct real *set, int ranks, const struct mock_options *options);
/* Frees those; nothing may be left on any device then, and nothing may have been misused. The world is closed already. */
void real_free(struct real *set);
void real_close(struct real *set); /* the world, and all of that */
/* Sums over all ranks, with a size for each algorithm. c: a communicator of each rank. */
void real_sums(struct comm_communicator *const *c, struct real *set);

/* Cases of test_real_memory.c. */
void default_streams(void **state);
void streams_that_a_communicator_may_have(void **state);
void memory_of_another_device_is_refused(void **state);
void pointers_are_asked_about_inside_a_context(void **state);
void sums_of_small_types(void **state);
void types_that_an_old_library_lacks(void **state);

#endif
