/*
 * A stream of chunks for each pair of ranks, whose lengths only the two of them know. A rank gives or takes in W lanes: the d-th peer from
 * `first` on (d = 1, 2, ..) is lane (d - 1) % W's, which goes through its peers one after the other, each chunk by chunk. Each lane has an
 * edge of its own, so that none waits for another's places or views.
 */
#include "algo/algorithms.h"

static int32_t wrap(const struct build *b, int32_t rank)
{
    return ((rank % b->spec.size) + b->spec.size) % b->spec.size;
}

void throttled_edges(struct build *b)
{
    b->program.chunk_unit = UNIT_BLOCK;
    b->program.ragged = 1;
    for (int32_t lane = 0; lane < ALGO_THROTTLE; lane++)
        build_edge(b, (uint16_t)lane, 0);
}

/* The peers of a lane, in its order; returns how many. */
static uint32_t lane_peers(struct build *b, int32_t lane, int32_t first, int32_t direction, uint16_t *at)
{
    uint32_t count = 0;

    *at = b->program.peers;
    for (int32_t d = lane + 1; d < b->spec.size; d += ALGO_THROTTLE, count++)
        build_peer(b, wrap(b, first + direction * d));
    return count;
}

static struct comm_ref lane_blocks(const struct build *b, uint8_t buf, int32_t lane, int32_t first, int32_t direction)
{
    struct comm_ref ref = ref_block(buf, wrap(b, first + direction * (lane + 1)));
    ref.outer = (int16_t)(direction * ALGO_THROTTLE);
    return ref;
}

void throttled_expose(struct build *b, int32_t lane, int32_t first, int32_t direction)
{
    uint16_t at;
    uint32_t count = lane_peers(b, lane, first, direction, &at);
    struct comm_ref block = lane_blocks(b, BUF_IN, lane, first, direction);

    if (!count)
        return;
    build_lane(b);
    build_loop(b, count);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = (uint16_t)lane, .peer = at, .npeers = 1, .peer_outer = 1,
               .src = block);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_land(struct build *b, int32_t lane, int32_t first, int32_t direction)
{
    uint16_t at;
    uint32_t count = lane_peers(b, lane, first, direction, &at);
    struct comm_ref block = lane_blocks(b, BUF_OUT, lane, first, direction);

    if (!count)
        return;
    build_lane(b);
    build_loop(b, count);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = (uint16_t)lane, .peer = at, .npeers = 1, .peer_outer = 1,
               .dst = block, .src = block);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_expose_one(struct build *b, int32_t lane, int32_t rank, struct comm_ref block)
{
    build_lane(b);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = (uint16_t)lane, .peer = build_peer(b, rank), .npeers = 1,
               .src = block);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_land_one(struct build *b, int32_t lane, int32_t rank, struct comm_ref block)
{
    build_lane(b);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = (uint16_t)lane, .peer = build_peer(b, rank), .npeers = 1,
               .dst = block, .src = block);
    build_loop_end(b);
    build_lane_end(b);
}
