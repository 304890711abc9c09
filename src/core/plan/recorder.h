/* Plans and groups. */
#ifndef PLAN_RECORDER_H
#define PLAN_RECORDER_H

#include <commstream/plan.h>

#include "comm/call.h"

enum comm_result engine_plan_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_plan_end(struct comm_communicator *recorder, struct comm_plan **plan);
enum comm_result engine_plan_start(struct comm_plan *plan, struct comm_request *req);
void engine_plan_free(struct comm_plan *plan);

enum comm_result engine_group_begin(struct comm_communicator *c, struct comm_communicator **recorder);
enum comm_result engine_group_end(struct comm_communicator *recorder, struct comm_request *req);

#endif
