/* User-defined operators: each world has a table of them. */
#ifndef COMMON_OPERATOR_H
#define COMMON_OPERATOR_H

#include "common/world.h"

#include <commstream/collective.h>

#include "program/program.h"

#define OPERATOR_USER UINT32_C(0x80000000) /* bit of a comm_op: a user-defined operator */

struct user_op;

enum comm_result operator_create(struct world *w, comm_op_fn *fn, void *arg, const struct comm_op_options *options, comm_op *op);
void operator_free(struct world *w, comm_op op);
size_t operator_bytes(struct world *w, comm_op op);         /* size of its element; 0: no such operator */
struct user_op *operator_hold(struct world *w, comm_op op); /* takes a reference; NULL: no such operator */
void operator_drop(struct user_op *own);
struct run_element operator_element(const struct user_op *own);
uint32_t operator_identity(struct world *w, comm_op op); /* what ranks compare */
void operators_close(struct world *w);

#endif
