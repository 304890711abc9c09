/* The parts of a communicator, in the order in which their slots are called (progress/part.h). */
#include "world/part_table.h"

#include "event/event.h"
#include "failure/failure.h"
#include "fastpath/fastpath.h"
#include "inspect/trace.h"
#include "native/native.h"
#include "p2p/op.h"
#include "rma/queue.h"
#include "staged/staged.h"

const struct comm_part *const world_parts[] = {
    &native_part,   &staged_part,   &fastpath_part, &p2p_part,    &rma_part,    &subset_part,
    &recovery_part, &deadlock_part, &trace_part,    &stream_part, &create_part, NULL,
};
