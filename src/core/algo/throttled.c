/*
 * A stream of chunks for each pair of ranks; only the two of them know its length. A rank sends or receives in W lanes.
 * The d-th peer from `first` on (d = 1, 2, ..) belongs to lane (d - 1) % W. A lane goes through its peers one after the
 * other, chunk by chunk. Each lane has an edge of its own, so that no lane waits for another's buffer places or views.
 *
 * The _v forms expose a brief (short) block at once instead, on a ONCE edge, which holds many calls at once. Only the
 * two ends know that a block is brief, so both ways are in the program, and the ONCE edge announces a longer block as
 * longer. A rank that sends to one other needs only one such edge. A rank that sends to several needs one for each, and
 * so only small teams have them. In larger teams a scatter has one private ONCE edge, which has a line for each reader
 * at the root and none at the others.
 */
#include "algo/algorithms.h"

uint8_t throttled_brief_kind(uint32_t collective, int32_t size)
{
    return collective == COLLECTIVE_SCATTER_V && size > ALGO_BRIEF_RANKS ? WIRE_ONCE : WIRE_ONCE | WIRE_TO_ALL;
}

uint32_t throttled_brief_bytes(uint32_t collective, int32_t size)
{
    int32_t most = collective == COLLECTIVE_GATHER_V ? size : collective == COLLECTIVE_SCATTER_V ? ALGO_EACH_RANKS : ALGO_BRIEF_RANKS;

    if (!collective_is_ragged(collective) || size == 1 || size > most)
        return 0;
    return throttled_brief_kind(collective, size) == WIRE_ONCE ? WIRE_EACH_BYTES : PROGRAM_BRIEF_BYTES;
}

/* Whether one edge serves all: each rank sends to only one other, or there are lines for single readers. */
static bool has_one_brief_edge(uint32_t collective, int32_t size)
{
    return collective == COLLECTIVE_GATHER_V || throttled_brief_kind(collective, size) == WIRE_ONCE;
}

uint16_t throttled_brief_edge(uint32_t collective, int32_t size, int32_t apart)
{
    return apart == 1 || has_one_brief_edge(collective, size) ? 0 : (uint16_t)(apart + ALGO_THROTTLE - 1);
}

/* The lanes' edges come behind the first brief edge, if there is one. */
static uint16_t edge_of(const struct build *b, int32_t lane)
{
    return (uint16_t)(lane + (b->program.brief != 0));
}

void throttled_edges(struct build *b)
{
    uint32_t collective = b->spec.collective;
    int32_t size = b->spec.size, edges = has_one_brief_edge(collective, size) ? 1 : size - 1;

    b->program.chunk_unit = UNIT_BLOCK;
    b->program.ragged = 1;
    b->program.brief = throttled_brief_bytes(collective, size);
    for (int32_t lane = 0; lane < ALGO_THROTTLE; lane++)
        build_edge(b, edge_of(b, lane), 0);
    for (int32_t apart = 1; b->program.brief && apart <= edges; apart++)
        build_edge(b, throttled_brief_edge(collective, size, apart), throttled_brief_kind(collective, size));
}

static struct comm_ref brief(struct comm_ref block)
{
    block.unit = UNIT_BRIEF;
    return block;
}

/* Brief blocks to or from one rank, which is entry `at` of the program's peers. */
static void show_brief(struct build *b, int32_t apart, uint16_t at, struct comm_ref block)
{
    if (b->program.brief)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = throttled_brief_edge(b->spec.collective, b->spec.size, apart), .peer = at, .npeers = 1,
                   .src = brief(block));
}

static void land_brief(struct build *b, int32_t apart, uint16_t at, struct comm_ref block)
{
    if (b->program.brief)
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .edge = throttled_brief_edge(b->spec.collective, b->spec.size, apart),
                   .peer = at, .npeers = 1, .dst = brief(block), .src = brief(block));
}

/* What a rank sends to or receives from all others. These are the program's peers from `others` on, in the order of d. */
struct flow {
    int32_t first, direction;
    uint16_t others;
    bool shows;
};

static struct flow flow_of(struct build *b, int32_t first, int32_t direction, bool shows)
{
    struct flow flow = {first, direction, b->program.peers, shows};

    for (int32_t d = 1; d < b->spec.size; d++)
        build_peer(b, algo_wrap(b, first + direction * d));
    return flow;
}

/* All brief blocks over one edge, so one step does it for any number of ranks: a gather's root receives them, a
 * scatter's root exposes to each rank its own. */
static void all_briefs(struct build *b, const struct flow *flow)
{
    struct comm_ref blocks = brief(ref_block(flow->shows ? BUF_IN : BUF_OUT, algo_wrap(b, flow->first + flow->direction)));

    if (!flow->shows) {
        blocks.step = (int16_t)flow->direction;
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .edge = 0, .peer = flow->others, .npeers = (uint16_t)(b->spec.size - 1),
                   .dst = blocks, .src = blocks);
        return;
    }
    blocks.outer = (int16_t)flow->direction;
    build_loop(b, (uint32_t)b->spec.size - 1);
    BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = flow->others, .npeers = 1, .peer_outer = 1, .src = blocks);
    build_loop_end(b);
}

/* Brief blocks of all peers, in the first lane: they do not wait for one another. */
static void each_brief(struct build *b, const struct flow *flow)
{
    if (!b->program.brief)
        return;
    if (has_one_brief_edge(b->spec.collective, b->spec.size)) {
        all_briefs(b, flow);
        return;
    }
    for (int32_t d = 1; d < b->spec.size; d++) {
        int32_t rank = algo_wrap(b, flow->first + flow->direction * d);
        uint16_t at = (uint16_t)(flow->others + d - 1);
        if (flow->shows)
            show_brief(b, d, at, ref_block(BUF_IN, rank));
        else
            land_brief(b, d, at, ref_block(BUF_OUT, rank));
    }
}

static void flow_lane(struct build *b, const struct flow *flow, int32_t lane)
{
    struct comm_ref block = ref_block(flow->shows ? BUF_IN : BUF_OUT, algo_wrap(b, flow->first + flow->direction * (lane + 1)));
    uint16_t edge = edge_of(b, lane), at = (uint16_t)(flow->others + lane);

    block.outer = (int16_t)(flow->direction * ALGO_THROTTLE);
    build_lane(b);
    if (lane == 0)
        each_brief(b, flow);
    build_loop(b, (uint32_t)(b->spec.size - 1 - lane + ALGO_THROTTLE - 1) / ALGO_THROTTLE);
    build_loop_over(b, block);
    if (flow->shows)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = edge, .peer = at, .npeers = 1, .peer_outer = ALGO_THROTTLE,
                   .src = block);
    else
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = edge, .peer = at, .npeers = 1,
                   .peer_outer = ALGO_THROTTLE, .dst = block, .src = block);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);
}

static void flow_lanes(struct build *b, struct flow flow)
{
    for (int32_t lane = 0; lane < ALGO_THROTTLE && lane < b->spec.size - 1; lane++)
        flow_lane(b, &flow, lane);
}

void throttled_expose(struct build *b, int32_t first, int32_t direction)
{
    flow_lanes(b, flow_of(b, first, direction, true));
}

void throttled_land(struct build *b, int32_t first, int32_t direction)
{
    flow_lanes(b, flow_of(b, first, direction, false));
}

void throttled_expose_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block)
{
    uint16_t edge = edge_of(b, (ahead - 1) % ALGO_THROTTLE), at = build_peer(b, rank);

    build_lane(b);
    show_brief(b, ahead, at, block);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = edge, .peer = at, .npeers = 1, .src = block);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_land_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block)
{
    uint16_t edge = edge_of(b, (ahead - 1) % ALGO_THROTTLE), at = build_peer(b, rank);

    build_lane(b);
    land_brief(b, ahead, at, block);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = edge, .peer = at, .npeers = 1, .dst = block, .src = block);
    build_loop_end(b);
    build_lane_end(b);
}
