/* User-defined operators and pre-multiplied sums: each world has a table of them. */
#ifndef COMMON_OPERATOR_H
#define COMMON_OPERATOR_H

#include "common/world.h"

#include <commstream/collective.h>

#include "program/program.h"

#define OPERATOR_USER UINT32_C(0x80000000)   /* bit of a comm_op: a user-defined operator, or a pre-multiplied sum */
#define OPERATOR_PREMUL UINT32_C(0x40000000) /* and this bit too: a pre-multiplied sum */
static inline bool operator_is_premul(comm_op op)
{
    return (op & (OPERATOR_USER | OPERATOR_PREMUL)) == (OPERATOR_USER | OPERATOR_PREMUL);
}

struct user_op;

enum comm_result operator_create(struct world *w, const struct data_user *user, const struct comm_op_options *options, comm_op *op);
void operator_free(struct world *w, comm_op op);
size_t operator_bytes(struct world *w, comm_op op, enum comm_type *type); /* lengths are multiples of it; 0: no such operator */
struct user_op *operator_hold(struct world *w, comm_op op);               /* takes a reference; NULL: no such operator */
void operator_drop(struct user_op *own);
/* A program runs a pre-multiplied sum as a sum of the products. They are made once, when it starts: in `out` where the collective fills all
 * of it, otherwise beside the scratch memory. operator_beside: the bytes that this takes; input: bytes of the whole input. */
size_t operator_scratch(const struct user_op *own, const struct comm_program *program, const struct run_call *call,
                        const struct wire_channel *channel, int32_t size);
size_t operator_beside(const struct user_op *own, uint32_t collective, size_t input);
void operator_start(const struct user_op *own, struct run *run, const struct comm_program *program, size_t input, void *beside);
uint32_t operator_identity(struct world *w, comm_op op); /* what ranks compare */
void operators_close(struct world *w);

#endif
