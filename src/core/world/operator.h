/* User-defined operators. */
#ifndef WORLD_OPERATOR_H
#define WORLD_OPERATOR_H

#include "comm/call.h"

enum comm_result engine_op_create(struct comm_communicator *c, const struct data_user *user, const struct comm_op_options *options,
                                  comm_op *op);
void engine_op_free(struct comm_communicator *c, comm_op op);
/* Lengths are multiples of it; 0: no such operator. *type: what calls pass. */
size_t engine_op_bytes(struct comm_communicator *c, comm_op op, enum comm_type *type);

#endif
