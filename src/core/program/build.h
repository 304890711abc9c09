/*
 * build: the handle by which an algorithm emits its program. Every call appends; what does not fit or does not make sense is remembered and
 * told by build_end alone, so that a builder reads as the list of steps it is.
 *
 * An algorithm sets the program's shape directly (slices, chunk_unit, depth, scratch, own_in, wide) and everything else through these
 * calls.
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
    uint16_t loop[BUILD_LOOPS_MAX]; /* the LOOP steps that are open */
    uint32_t loops;
    void *notes; /* of the algorithm, until build_end */
    size_t notes_bytes;
    bool failed, in_lane;
};

/* Memory in which an algorithm keeps what it works out, once for a builder. NULL: there is none, and the builder failed. */
void *build_notes(struct build *b, size_t bytes);

/* Ranks first, first + 1, .. (mod the team's size), count of them; returns the place of the first in the peer table. */
uint16_t build_peers(struct build *b, int32_t first, int32_t count);
/* One rank behind those added last. */
uint16_t build_peer(struct build *b, int32_t rank);
void build_edge(struct build *b, uint16_t edge, uint8_t kind); /* on every rank alike, also where a rank does not use it */

void build_lane(struct build *b);
void build_lane_end(struct build *b);
void build_loop_chunks(struct build *b);                    /* k over the chunks of the operation */
void build_loop_over(struct build *b, struct comm_ref ref); /* k over the chunks of ref: of a ragged program */
void build_loop(struct build *b, uint32_t trips);           /* i = 0 .. trips - 1 */
void build_loop_end(struct build *b);                       /* closes the innermost */
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

/* Scratch item `item`, as long as what `like` names (a block or a slice). */
static inline struct comm_ref ref_scratch(uint32_t item, struct comm_ref like)
{
    return (struct comm_ref){.buf = BUF_SCRATCH, .unit = like.unit, .first = item, .count = like.first};
}

/* Of views that are WHOLE, block `block`. */
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
