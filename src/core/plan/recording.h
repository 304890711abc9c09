/* Plans and groups: the calls of the program. */
#ifndef PLAN_RECORDING_H
#define PLAN_RECORDING_H

#include <commstream/plan.h>

#include "comm/call.h"

enum comm_result engine_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);
enum comm_result engine_plan_start(struct comm_plan *plan, struct comm_request *req);
void engine_plan_free(struct comm_plan *plan);

enum comm_result engine_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_group_end(struct comm_communicator *recorder, struct comm_request *req);

/* Issues two entries of the queue together; on a recorder, records one step. */
enum comm_result engine_broadcast_bytes(struct comm_communicator *c, void *buf, size_t *bytes, int32_t root, struct comm_request *req,
                                        const void *site);

#endif
