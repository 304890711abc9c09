/* What both suites of native tests use: three ranks, and a sum on each. */
#ifndef TESTS_ENGINE_NATIVE_CALLS_H
#define TESTS_ENGINE_NATIVE_CALLS_H

#include "conform/rig.h"
#include "engine/native_fake.h"

enum { RANKS = 3 };

static inline void issue_sums(struct comm_communicator *const *c, int32_t *in, int32_t *out, struct comm_request *q)
{
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = r + 1;
        out[r] = -1;
        MUST(comm_allreduce(c[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &q[r]));
    }
}

static inline struct comm_error detail_of(struct comm_communicator *c)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error;
}

#endif
