/*
 * Groups and plans: several calls recorded and started as one. begin gives a recorder, a communicator on which its holder makes the usual
 * calls with req NULL; c itself goes on as usual for everybody. Recording is local and runs nothing; wait, sync, split and close on a
 * recorder are COMM_ERR_STATE. end consumes it. Collectives, sends, receives and queue waits can be recorded.
 *
 * A plan keeps its buffers' addresses. Starting it puts its collectives into the queue in one go, in the order in which they were recorded
 * and each with a ticket and number of its own; those that do not conflict run together. A start while the last one runs queues behind it.
 * Plans match plans and groups match groups, not plain calls: all ranks record the same collectives. Messages of a plan are messages like
 * any other. A queue wait copies its event's point at each start, so the event must live as long as the plan.
 *
 * A group is one batch: its members start together, without an order among themselves (conflicting ones are refused at end), and queue
 * waits stand before all of them; small allreduces, together up to 4 KiB, are packed into one exchange under one number; matched send and
 * recv inside cannot deadlock. A call that is refused while a group is recorded refuses the whole group at its end. A group may be made on
 * the recorder of a plan, whose starts then start it; no plan or group is made on the recorder of a group.
 *
 * Any thread may call; a recorder is used by one thread at a time. May change until 0.1.
 */
#ifndef COMMSTREAM_PLAN_H
#define COMMSTREAM_PLAN_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Begins a group: *recorder takes calls until comm_group_end, which must come. Buffers named on it are the library's only from the end on.
 * ncclGroupStart.
 */
COMM_MUST enum comm_result comm_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);
/*
 * Starts what was recorded as one batch in the queue, and consumes the recorder in every case. req stands for all of it: complete, with the
 * first error, when every member is; inside a plan it is COMM_REQUEST_NONE. ARGUMENT: two members conflict, or one was refused so; the
 * refused group uses up one number. FULL: nothing was queued. ncclGroupEnd.
 */
COMM_MUST enum comm_result comm_group_end(struct comm_communicator *recorder, struct comm_request *req);
/*
 * Begins a plan: *recorder takes calls until comm_plan_end, which must come. Nothing runs. MPI_Allreduce_init and its kind.
 */
COMM_MUST enum comm_result comm_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);
/*
 * Makes a plan of what was recorded and consumes the recorder in every case. Recorded calls keep their order. The plan is the caller's
 * until comm_plan_free; the buffers' addresses are kept, their contents are read at each start.
 */
COMM_MUST enum comm_result comm_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);
/*
 * Puts the plan's work into its communicator's queue and starts its messages, all of it or (FULL) none; all ranks do, in the same order
 * among their collectives. req is complete when all of it is, and stands at once for an empty plan. The error of a recorded message
 * (TRUNCATED, TIMEOUT) is told by comm_sync. The plan's buffers are the library's until then.
 * A start while the last one runs queues behind it. After warm-up it allocates nothing. CLOSED once its communicator was closed. MPI_Start.
 */
COMM_MUST enum comm_result comm_plan_start(struct comm_plan *plan, struct comm_request *req);
/*
 * Gives the plan back; a start in flight still finishes, and keeps its buffers until then. Local. NULL is fine. MPI_Request_free.
 */
COMM_API void comm_plan_free(struct comm_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
