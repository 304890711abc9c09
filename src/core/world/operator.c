/* User-defined operators, by communicator: each call finds its world under the communicator's lock. */
#include "world/operator.h"
#include "comm/state.h"

enum comm_result engine_op_create(struct comm_communicator *c, const struct data_user *user, const struct comm_op_options *options,
                                  comm_op *op)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return r;
    r = operator_create(b->world, user, options, op);
    state_unlock(b);
    return r;
}

void engine_op_free(struct comm_communicator *c, comm_op op)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    if (!b)
        return;
    operator_free(b->world, op);
    state_unlock(b);
}

size_t engine_op_bytes(struct comm_communicator *c, comm_op op, enum comm_type *type)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    size_t bytes = b ? operator_bytes(b->world, op, type) : 0;

    if (b)
        state_unlock(b);
    return bytes;
}
