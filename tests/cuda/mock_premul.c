/*
 * The operators of ncclRedOpCreatePreMulSum of the mock NCCL. As in the real one, an operator belongs to one communicator and one type, its
 * number means nothing to other ranks, and it may be destroyed as soon as the calls that got it have returned.
 */
#include "mock_clique.h"

#include <string.h>

enum { FIRST = NCCL_AVG + 1 };

static struct premul *find(struct ncclComm *c, unsigned op)
{
    return op >= FIRST && op < FIRST + PREMULS && c->op[op - FIRST].type ? &c->op[op - FIRST] : NULL;
}

unsigned mock_find_op(struct launch *l)
{
    if (l->op < FIRST)
        return NCCL_OK;
    const struct premul *op = find(l->comm, l->op);
    if (!op || op->type != l->type + 1)
        return mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no such operator, or of another type");
    l->by = *op;
    l->op = FIRST;
    return NCCL_OK;
}

bool mock_has_op(const struct ncclComm *c)
{
    bool has = false;

    for (unsigned i = 0; i < PREMULS; i++)
        has |= c->op[i].type != 0;
    return has;
}

unsigned mock_ncclRedOpCreatePreMulSum(unsigned *op, void *scalar, unsigned type, unsigned residence, struct ncclComm *comm)
{
    NCCL_BEGIN;
    unsigned free = 0;
    while (free < PREMULS && comm->op[free].type)
        free++;
    if (free == PREMULS || residence != NCCL_SCALAR_OF_HOST || !mock_type_bytes(type))
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: too many operators, a scalar elsewhere, or no such type"));
    comm->op[free].type = type + 1;
    memcpy(comm->op[free].factor, scalar, mock_type_bytes(type));
    *op = FIRST + free;
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclRedOpDestroy(unsigned op, struct ncclComm *comm)
{
    NCCL_BEGIN;
    struct premul *gone = find(comm, op);
    if (!gone)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no such operator"));
    gone->type = 0;
    NCCL_END(NCCL_OK);
}
