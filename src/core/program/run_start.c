/* How a run begins: how it is cut into slices and chunks, and the initial state of its lanes. */
#include "program/shape.h"

#include "base/check.h"

#include <string.h>

enum {
    RUN_NONTEMPORAL_BYTES = 1 << 20,
    RUN_NONTEMPORAL_LARGE_CACHE_BYTES = 1 << 21,
    RUN_NONTEMPORAL_SHARED_BYTES = 1 << 19,
    RUN_NONTEMPORAL_TOGETHER_BYTES = 1 << 22
};

size_t run_scratch_bytes(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel, int32_t size)
{
    struct run_element element = {.raw = data_type_bytes(call->type), .partial = data_partial_bytes(call->type)};
    return run_scratch_bytes_as(program, call, channel, size, &element);
}

struct run_cut run_cut_of(const struct comm_program *program, const struct wire_caps *caps, int32_t size, size_t n, size_t raw,
                          size_t partial)
{
    const struct wire_channel channel = {.caps = *caps};
    const struct run_call call = {.n = n};
    const struct run_element element = {.raw = raw, .partial = partial};
    struct shape shape = shape_of(program, &call, &channel, size, &element);
    return (struct run_cut){shape.longest, shape.slice, shape.chunk, shape.scratch_item, shape.chunks};
}

static bool only_copies_from_peers(const struct comm_program *program)
{
    for (uint32_t i = 0; i < program->steps; i++)
        if (program->step[i].code == STEP_EXPOSE || program->step[i].code == STEP_REDUCE)
            return false;
    return true;
}

/* Stores that bypass the cache save reading what they overwrite. That gains nothing while a rank only waits for its peers' bytes, and a
 * large cache keeps the result for its reader. */
static size_t least_long(const struct run *run, const struct comm_program *program)
{
    if (!run->channel->caps.keeps_long)
        return RUN_NONTEMPORAL_BYTES;
    return only_copies_from_peers(program) ? SIZE_MAX : RUN_NONTEMPORAL_LARGE_CACHE_BYTES;
}

/* Whether the data is too long to stay in a cache: what this rank writes, with the block that it copies for itself
 * (own_in). If ranks share CPUs, also half as much without such a block, and what all of them write. */
static bool is_long(const struct run *run, const struct comm_program *program, size_t bytes)
{
    size_t size = (size_t)run->size, written = program->own_in ? bytes * size : bytes;

    if (written >= RUN_NONTEMPORAL_BYTES && written >= least_long(run, program))
        return true;
    return run->oversubscribed &&
           ((!program->own_in && bytes >= RUN_NONTEMPORAL_SHARED_BYTES) || bytes * size >= RUN_NONTEMPORAL_TOGETHER_BYTES);
}

void run_start_as(struct run *run, const struct comm_program *program, const struct run_element *element)
{
    BASE_ASSERT((!run->call.counts || run->call.displs) && program->peer);
    struct shape shape = shape_of(program, &run->call, run->channel, run->size, element);
    run->program = program;
    run->reduce = element->reduce;
    run->context = element->context;
    run->raw = element->raw;
    run->partial = element->partial;
    run->slice = shape.slice;
    run->chunk = shape.chunk;
    run->chunks = shape.chunks;
    run->scratch_item = shape.scratch_item;
    run->nontemporal = is_long(run, program, shape.longest * element->raw);
    run->way = RUN_WAY_UNDECIDED;
    run->timed = false;
    run->pending = 0;
    run->mismatch_peer = -1;
    run->open = (uint16_t)ones(program->lanes);
    run->waited = 0;
    run->again = true;
    run->present = run->view_partial = run->view_own = 0;
    for (uint32_t l = 0; l < program->lanes; l++)
        run->lane[l] = (struct run_lane){.pc = program->lane[l]};
    if (program->counters)
        memset(run->counter, 0, sizeof run->counter);
}

void run_start(struct run *run, const struct comm_program *program)
{
    struct run_element element = {.raw = data_type_bytes(run->call.type), .partial = data_partial_bytes(run->call.type)};
    if (run->call.op) /* data movement has no operator */
        element.reduce = data_reducer(run->call.type, run->call.op, run->isa);
    run_start_as(run, program, &element);
}
