/* User-defined operators. */
#ifndef COMM_OPERATOR_H
#define COMM_OPERATOR_H

#include "comm/call.h"

enum comm_result engine_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg, const struct comm_op_options *options,
                                  comm_op *op);
void engine_op_free(struct comm_communicator *c, comm_op op);
size_t engine_op_bytes(struct comm_communicator *c, comm_op op); /* of one element; 0: no such operator */

#endif
