/*
 * shape: how an operation is cut into slices, chunks and scratch items. It depends only on program, call and caps, so
 * all ranks cut alike. Private to this room.
 */
#ifndef PROGRAM_SHAPE_H
#define PROGRAM_SHAPE_H

#include "program/program.h"

struct shape {
    size_t longest, slice, chunk; /* elements */
    size_t scratch_item;          /* bytes */
    uint32_t chunks;
};
struct shape shape_of(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel, int32_t size,
                      const struct run_element *element);

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* For a program with `swaps`: the elements that both blocks between the two ranks have, if these are long enough to swap them. Both ranks
 * know both lengths. */
static inline size_t shape_common(const struct comm_program *program, const struct run_call *call, size_t raw)
{
    uint32_t other = program->swaps ? program_peer(program, 0) : 0;
    size_t taken = call->counts ? call->counts[other] : call->n, given = call->in_counts ? call->in_counts[other] : taken;
    size_t common = smaller(taken, given);

    return program->swaps && common * raw > program->swaps ? common : 0;
}

/* A mask of `count` bits. */
static inline uint64_t ones(uint32_t count)
{
    return count >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
}

#endif
