/*
 * build: the handle with which an algorithm emits its program. Every call appends. If something does not fit or is not
 * valid, the builder remembers the error, and only build_end reports it. So a builder function reads like the list of
 * its steps.
 *
 * An algorithm sets the program's shape directly (slices, chunk_unit, depth, scratch, own_in, wide) and everything else
 * with these calls.
 */
#ifndef PROGRAM_BUILD_H
#define PROGRAM_BUILD_H

#include "program/program.h"

enum { BUILD_LOOPS_MAX = 2 };

struct build {
    const struct comm_env *env;
    struct program_spec spec;
    struct comm_program program;
    struct comm_step *step;
    uint32_t *peer;
    uint32_t step_room, peer_room;
    uint16_t loop[BUILD_LOOPS_MAX]; /* the open LOOP steps */
    uint32_t loops;
    void *notes; /* memory for the algorithm, until build_end */
    size_t notes_bytes;
    bool failed, in_lane;
};

/* Memory for the algorithm's own tables; once per builder. NULL: no memory, and the builder has failed. */
void *build_notes(struct build *b, size_t bytes);

/* Adds ranks first, first + 1, .. (modulo the team's size), count of them; returns the index of the first in the peer
 * table. */
uint16_t build_peers(struct build *b, int32_t first, int32_t count);
/* Adds one rank at the end; returns its index. */
uint16_t build_peer(struct build *b, int32_t rank);
void build_edge(struct build *b, uint16_t edge, uint8_t kind); /* the same calls on every rank, even if the rank does not use the edge */

void build_lane(struct build *b);
void build_lane_end(struct build *b);
void build_loop_chunks(struct build *b);                    /* loop: k over the chunks of the operation */
void build_loop_over(struct build *b, struct comm_ref ref); /* loop: k over the chunks of ref, in a ragged program */
void build_loop(struct build *b, uint32_t trips);           /* loop: i = 0 .. trips - 1 */
void build_loop_end(struct build *b);                       /* closes the innermost loop */
void build_chunks_lane(struct build *b);                    /* a lane that is one loop over chunks */
void build_chunks_lane_end(struct build *b);
void build_step(struct build *b, struct comm_step step);
#define BUILD_STEP(b, ...) build_step((b), (struct comm_step){__VA_ARGS__})

static inline struct comm_ref ref_block(uint8_t buf, int32_t block)
{
    return (struct comm_ref){.buf = buf, .unit = UNIT_BLOCK, .first = (uint32_t)block, .count = 1};
}

static inline struct comm_ref ref_slice(uint8_t buf, int32_t slice)
{
    return (struct comm_ref){.buf = buf, .unit = UNIT_SLICE, .first = (uint32_t)slice, .count = 1};
}

/* All blocks of IN. */
static inline struct comm_ref ref_whole(void)
{
    return (struct comm_ref){.buf = BUF_IN, .unit = UNIT_WHOLE, .count = 1};
}

static inline struct comm_ref ref_views(uint32_t first, uint32_t count)
{
    return (struct comm_ref){.buf = BUF_VIEW, .first = first, .count = count};
}

/* Scratch item `item`, as long as the block or slice that `like` names. */
static inline struct comm_ref ref_scratch(uint32_t item, struct comm_ref like)
{
    return (struct comm_ref){.buf = BUF_SCRATCH, .unit = like.unit, .first = item, .count = like.first};
}

/* Block `block` of views that are WHOLE. */
static inline struct comm_ref ref_views_of(uint32_t first, uint32_t count, int32_t block)
{
    return (struct comm_ref){.buf = BUF_VIEW, .unit = UNIT_BLOCK, .step = (int16_t)block, .first = first, .count = count};
}

static inline struct comm_ref ref_partial(struct comm_ref ref)
{
    ref.unit |= UNIT_PARTIAL;
    return ref;
}

#endif
