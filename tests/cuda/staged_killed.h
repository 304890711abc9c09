/* What the tests share in which a rank dies between the copies of its mock device. */
#ifndef STAGED_KILLED_H
#define STAGED_KILLED_H

#include "conform/rig.h"

#include "mock_everywhere.h"

/* Moves the communicator until there is a copy in this direction, and runs it. */
static inline void step_when_there(struct comm_communicator *c, bool to_device)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_step(to_device);) {
        enum comm_result moved = comm_progress(c);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
        CHECK(rig_now() < end);
    }
}

#endif
