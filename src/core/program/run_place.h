/*
 * Resolves the refs of a running program's steps: the buffer, the block or slice in it, the chunk of that, and the view
 * slot or scratch item, for a lane's current i and k. Pure functions; part of the interpreter (run.c), which calls them
 * for each step.
 */
#ifndef PROGRAM_RUN_PLACE_H
#define PROGRAM_RUN_PLACE_H

#include "base/check.h"
#include "program/shape.h"

#define PLACE_MIX UINT64_C(0x9e3779b97f4a7c15)

/* Where a ref lies, resolved for one i and k. */
struct run_range {
    char *at;
    size_t elements, bytes;
    size_t whole; /* elements of the block of which this is a chunk; in a program with `swaps` a number made of both blocks' lengths */
};

static inline uint32_t turn_of(const struct run *run, uint32_t k)
{
    return run->program->depth ? k % run->program->depth : k;
}

/* Index of a scratch item or of the first view slot. */
static inline uint32_t slot_of(const struct run *run, const struct comm_ref *ref, const struct run_lane *lane)
{
    return ref->inner ? (uint32_t)((int32_t)ref->first + ref->inner * (int32_t)turn_of(run, lane->k)) : ref->first;
}

static inline uint32_t wrapped(int32_t x, uint32_t size)
{
    if (BASE_LIKELY((uint32_t)x < size))
        return (uint32_t)x;
    x %= (int32_t)size;
    return (uint32_t)(x < 0 ? x + (int32_t)size : x);
}

/* In elements, from the beginning of a buffer that holds all blocks. */
static inline size_t block_start(const struct run *run, uint8_t buf, uint32_t block)
{
    const struct run_call *call = &run->call;
    const size_t *displs = buf == BUF_IN && call->in_displs ? call->in_displs : call->displs;
    return displs ? displs[block] : block * call->n;
}

static inline size_t block_length(const struct run *run, uint8_t buf, uint32_t block)
{
    const struct run_call *call = &run->call;
    const size_t *counts = buf == BUF_IN && call->in_counts ? call->in_counts : call->counts;
    return counts ? counts[block] : call->n;
}

/* Which of elements `from` to `to`, a block or slice of a ragged program, this step exposes or views. A brief block has no chunks, and
 * nothing of a longer one goes at once; of blocks that are swapped, chunks are what follows the slices. Returns what both ends compare. */
static inline size_t cut_ragged(const struct run *run, const struct comm_step *s, const struct comm_ref *ref, size_t *from, size_t *to)
{
    const struct comm_program *program = run->program;
    size_t whole = *to - *from, common = shape_common(program, &run->call, run->raw);
    bool brief = !common && whole * run->raw <= program->brief, chunked = s->flags & STEP_CHUNKED;

    if (ref->unit == UNIT_BRIEF && !brief)
        *to = *from;
    if (!chunked || !program->brief)
        return whole;
    if (ref->unit == UNIT_BLOCK)
        *from = brief ? *to : *from + common;
    if (!program->swaps)
        return whole;
    uint32_t other = (uint32_t)!run->rank;
    size_t given = block_length(run, BUF_IN, other), taken = block_length(run, BUF_OUT, other);
    return run->rank ? taken * PLACE_MIX + given : given * PLACE_MIX + taken;
}

static struct run_range place_of(const struct run *run, const struct comm_step *s, const struct comm_ref *ref, const struct run_lane *lane,
                                 uint32_t j)
{
    const struct run_call *call = &run->call;
    size_t width = ref->unit & UNIT_PARTIAL ? run->partial : run->raw, start = 0, from = 0, to = call->n, add = 0, whole;
    bool scratch = ref->buf == BUF_SCRATCH;
    int32_t x = scratch ? (int32_t)ref->count : (int32_t)ref->first + ref->step * (int32_t)j + ref->outer * (int32_t)lane->i;

    if ((ref->unit & ~UNIT_PARTIAL) == UNIT_SLICE) {
        uint32_t slice = wrapped(x, run->program->slices);
        if (BASE_UNLIKELY(run->program->each_block)) {
            uint32_t block = (uint32_t)x / run->program->slices;
            to = run->program->ragged ? shape_common(run->program, call, run->raw) : block_length(run, ref->buf, block);
            start = ref->buf == BUF_IN && run->program->own_in ? 0 : block_start(run, ref->buf, block);
        }
        from = smaller(slice * run->slice, to);
        to = smaller(from + run->slice, to);
    } else if (BASE_UNLIKELY((ref->unit & ~UNIT_PARTIAL) == UNIT_WHOLE)) {
        to = block_start(run, BUF_IN, (uint32_t)run->size - 1) + block_length(run, BUF_IN, (uint32_t)run->size - 1);
    } else {
        uint32_t block = wrapped(x, (uint32_t)run->size);
        start = block_start(run, ref->buf, block);
        to = block_length(run, ref->buf, block);
        if (ref->buf == BUF_IN ? run->program->own_in : run->program->own_out)
            start = 0;
    }
    whole = BASE_UNLIKELY(run->program->ragged) ? cut_ragged(run, s, ref, &from, &to) : to - from;
    if (s->flags & STEP_CHUNKED) {
        from = smaller(from + lane->k * run->chunk, to);
        to = smaller(from + run->chunk, to);
    }
    char *base = scratch ? run->scratch : ref->buf == BUF_OUT ? call->out : (char *)(uintptr_t)call->in;
    add = scratch ? (slot_of(run, ref, lane) + (uint32_t)ref->step * j) * run->scratch_item : (start + from) * width;
    BASE_DEBUG_ASSERT(!scratch || slot_of(run, ref, lane) + (uint32_t)ref->step * j < run->program->scratch);
    /* Computed as a number, because a barrier's buffers are NULL. */
    return (struct run_range){.at = (char *)((uintptr_t)base + add), .elements = to - from, .bytes = (to - from) * width, .whole = whole};
}

/* Where a COPY or REDUCE reads a view: its beginning, or one block of a whole buffer. */
static inline const char *view_at(const struct run *run, const struct comm_ref *ref, uint32_t slot)
{
    const char *at = run->view[slot].at;
    return BASE_UNLIKELY(ref->unit == UNIT_BLOCK) ? at + block_start(run, BUF_IN, (uint32_t)ref->step) * run->raw : at;
}

/* Of two views of a REDUCE the one that is not of this rank's own memory. */
static inline struct wire_view *other_view(struct run *run, const struct run_lane *lane, const struct comm_step *s)
{
    uint32_t slot = slot_of(run, &s->src, lane);

    BASE_DEBUG_ASSERT(s->src.count == 2 && (run->view_own >> slot & 3) != 3);
    return &run->view[slot + (run->view_own >> slot & 1)];
}

#endif
