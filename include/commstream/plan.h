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
 * begin gives a recorder: a struct comm_communicator * on which its holder makes the usual calls, with req NULL; c itself goes on as usual for
 * everybody. Recording is local and runs nothing; wait, sync, split and close on a recorder are COMM_ERR_STATE. end consumes it.
 * A group is one batch: its members start together, unordered among themselves (conflicting ones are refused at end); small ones are packed
 * into one round (min + 3 sums: one trip); matched send/recv inside cannot deadlock. A plan keeps its buffers' addresses, and starting it
 * allocates nothing and issues its first steps at once; a start while the last one runs queues behind it. Plans match plans, batches batches.
 */
COMM_MUST enum comm_result comm_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);
COMM_MUST enum comm_result comm_group_end(struct comm_communicator *recorder, struct comm_request *req);
COMM_MUST enum comm_result comm_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);
COMM_MUST enum comm_result comm_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);
COMM_MUST enum comm_result comm_plan_start(struct comm_plan *plan, struct comm_request *req);
COMM_API void comm_plan_free(struct comm_plan *plan); /* a start in flight still finishes */

#ifdef __cplusplus
}
#endif

#endif
