/* Whether threads and loops that sleep were told of a communicator's failure. */
#ifndef ENGINE_TOLD_H
#define ENGINE_TOLD_H

#include "conform/rig.h"
#include "comm/state.h"

static inline bool is_told(struct comm_communicator *c)
{
    enum comm_result why;
    struct comm_state *b = state_lock(c, &why);
    MUST(why);
    bool told = b->failed && b->reported.failed;
    state_unlock(b);
    return told;
}

#endif
