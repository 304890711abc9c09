/**
 * @file plan.h
 * @brief Groups and plans: several operations recorded and started as one.
 *
 * The begin functions return a *recorder*: a communicator on which the program makes the usual calls with `req` NULL. Recording is local
 * and runs nothing. Collectives, sends, receives and waits for events and requests can be recorded. On a recorder the calls that
 * sync, probe, split, copy, revoke, agree, shrink and close, those that create windows and symmetric memory, and comm_event_record() return
 * COMM_ERR_STATE. If one call is refused while recording, the end returns its error and makes nothing of the others. The end functions
 * consume the recorder. The communicator itself can be used as usual meanwhile.
 *
 * **A plan** is started many times. It keeps the addresses of its buffers. A start puts its collectives into the queue at once, in the
 * order of recording, each with a sequence number of its own. A start while the last one runs queues behind it. Plans match plans and
 * groups match groups, not single calls: all ranks record the same collectives, and start the same plans in the same order. (Over backend
 * mpi, one rank's plan that is started twice and another rank's two equal plans are COMM_ERR_MISMATCH.) A queue wait copies its event's
 * point at each start, so the event must outlive the plan. A request that a start finds complete holds back no later start, also after
 * its communicator was closed.
 *
 * **A group** is one batch that runs once. Its operations start together, without an order between them; if two of them conflict, the
 * group is refused. Small allreduces, together up to 4 KiB, are packed into one exchange under one sequence number. They start
 * together, when all of them may start. Sends and receives that match inside a group cannot deadlock. A group may be recorded inside a
 * plan, which is refused with it; neither can be recorded inside a group.
 *
 * Any thread may call; one thread at a time uses a recorder.
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

/**
 * Begins a group. comm_group_end() must follow. The buffers belong to the library from that end on. Like ncclGroupStart.
 *
 * @param c         communicator, or the recorder of a plan
 * @param recorder  receives the recorder
 * @return COMM_OK; COMM_ERR_STATE inside a group; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_CLOSED, or what the communicator failed with
 */
COMM_MUST enum comm_result comm_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);

/**
 * Starts the recorded group and consumes the recorder, also on an error, unless it is the recorder of a plan. Like ncclGroupEnd.
 *
 * The request completes when all operations of the group are complete, with the first error among them. Inside a plan it is
 * COMM_REQUEST_NONE.
 *
 * @param recorder  from comm_group_begin()
 * @param req       receives the request; NULL: none is returned, and comm_sync() waits for the group
 * @return COMM_OK; COMM_ERR_ARGUMENT if two operations conflict, or the error of a call that was refused while recording (in both cases the
 *         group uses one sequence number, unless it is inside a plan); COMM_ERR_FULL if the queue has no room: nothing was queued, and the
 *         group must be recorded again; COMM_ERR_STATE for the recorder of a plan, or for what is no recorder; COMM_ERR_ARGUMENT for NULL;
 *         COMM_ERR_MEMORY; COMM_ERR_CLOSED, also if the recorder has ended; or what the communicator failed with
 */
COMM_MUST enum comm_result comm_group_end(struct comm_communicator *recorder, struct comm_request *req);

/**
 * Begins a plan. comm_plan_end() must follow. Like MPI_Allreduce_init and the other persistent operations of MPI.
 *
 * @param c         communicator
 * @param recorder  receives the recorder
 * @return COMM_OK; COMM_ERR_STATE if c is a recorder; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_CLOSED, or what the communicator failed
 *         with
 */
COMM_MUST enum comm_result comm_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);

/**
 * Makes a plan of the recorded calls and consumes the recorder, also on an error, unless `plan` is NULL or it is the recorder of a group.
 *
 * The plan keeps the addresses of the buffers; their contents are read at each start.
 *
 * @param recorder  from comm_plan_begin()
 * @param plan      receives the plan; free it with comm_plan_free()
 * @return COMM_OK; the error of a call that was refused while recording; COMM_ERR_STATE for the recorder of a group, or for what is no
 *         recorder; COMM_ERR_CLOSED if the recorder has ended; COMM_ERR_ARGUMENT or COMM_ERR_MEMORY; COMM_ERR_UNSUPPORTED, on nccl, if a
 *         call on device memory comes after a message with a tag and uses its memory
 */
COMM_MUST enum comm_result comm_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);

/**
 * Starts a plan: puts its collectives into the queue and starts its messages, either all or (COMM_ERR_FULL) none.
 *
 * All ranks start the same plans in the same order among their collectives. The buffers belong to the library until the request completes.
 * After the first starts it allocates no memory. The error of a recorded message (COMM_ERR_TRUNCATED, COMM_ERR_TIMEOUT) is reported by
 * comm_sync(). Like MPI_Start.
 *
 * @param plan  the plan
 * @param req   receives the request, which completes when all operations of this start are complete; NULL: none is returned, and
 *              comm_sync() waits for them
 * @return COMM_OK; COMM_ERR_FULL (make progress and call again); COMM_ERR_ARGUMENT if plan is NULL; COMM_ERR_CLOSED if its communicator was
 *         closed; what the communicator failed with; or the first error with which a recorded call is refused at this start, such as
 *         COMM_ERR_MEMORY: the other calls have started. On nccl nothing has started after COMM_ERR_UNSUPPORTED (the stream cannot do a
 *         queue wait), COMM_ERR_ARGUMENT (a message with a tag on device memory, and the stream is captured), and COMM_ERR_FULL while
 *         such a message of an earlier start uses the memory
 */
COMM_MUST enum comm_result comm_plan_start(struct comm_plan *plan, struct comm_request *req);

/**
 * Frees a plan. A start that is running finishes first, and keeps its buffers until then. Local. Like MPI_Request_free.
 *
 * @param plan  the plan; NULL is ignored
 */
COMM_API void comm_plan_free(struct comm_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
