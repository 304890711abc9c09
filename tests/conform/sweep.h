/*
 * sweep: calls of many shapes, in batches that are under way together, each compared bit for bit with the oracle.
 */
#ifndef CONFORM_SWEEP_H
#define CONFORM_SWEEP_H

#include "conform/job.h"

/* A selection of shapes: one in `thin` of all (rig_thin: of few selections one in more), of one kind or all, and how they are driven. */
struct sweep_plan {
    unsigned thin;
    int kind; /* -1: all */
    bool threads, large;
    const char *options;   /* of the world that is opened; an algorithm named first may refuse what it cannot do, on all ranks alike */
    const char *algorithm; /* sweep_over: by which alone calls are done, unless it refuses them in the same way; NULL: any */
};

/* These return how many calls were done and compared. */
size_t sweep_ranks(int32_t ranks, const struct sweep_plan *plan); /* in a world of its own */
size_t sweep_over(struct comm_communicator *const *c, int32_t ranks, const struct sweep_plan *plan);
/* One call, which may not be refused. */
size_t sweep_one(struct comm_communicator *const *c, int32_t ranks, const struct job_shape *shape, const char *algorithm);

/* On 1 to SWEEP_RANKS ranks; prints how many calls were compared. */
enum { SWEEP_RANKS = 9 };
void sweep_all(const struct sweep_plan *plan);

#endif
