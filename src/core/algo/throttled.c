/*
 * A stream of chunks for each pair of ranks, whose lengths only the two of them know. A rank gives or takes in W lanes: the d-th peer from
 * `first` on (d = 1, 2, ..) is lane (d - 1) % W's, which goes through its peers one after the other, each chunk by chunk. Each lane has an
 * edge of its own, so that none waits for another's places or views.
 *
 * Of the v forms a brief block is shown at once instead, on a ONCE edge, whose places are many calls deep: that the blocks are brief is
 * known to the two ends alone, so both ways are in the program, and a longer block is announced on the one as being longer. One such edge
 * will do where a rank gives to one other; to several it needs one each, and so only small teams have them. In larger ones a scatter has
 * one that is private, with a line for each reader at the root and nothing at the others.
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

/* One for all, where a rank gives to one other or has lines for single readers. */
static bool has_one_brief_edge(uint32_t collective, int32_t size)
{
    return collective == COLLECTIVE_GATHER_V || throttled_brief_kind(collective, size) == WIRE_ONCE;
}

uint16_t throttled_brief_edge(uint32_t collective, int32_t size, int32_t apart)
{
    return apart == 1 || has_one_brief_edge(collective, size) ? 0 : (uint16_t)(apart + ALGO_THROTTLE - 1);
}

/* Behind the first brief one, where there is one. */
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

/* Brief blocks to or from one rank. */
static void show_brief(struct build *b, int32_t apart, int32_t rank, struct comm_ref block)
{
    if (b->program.brief)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = throttled_brief_edge(b->spec.collective, b->spec.size, apart),
                   .peer = build_peer(b, rank), .npeers = 1, .src = brief(block));
}

static void land_brief(struct build *b, int32_t apart, int32_t rank, struct comm_ref block)
{
    if (b->program.brief)
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .edge = throttled_brief_edge(b->spec.collective, b->spec.size, apart),
                   .peer = build_peer(b, rank), .npeers = 1, .dst = brief(block), .src = brief(block));
}

/* On one edge, and so by one step, however many there are: a gather's root lands what comes, a scatter's shows to each its own. */
static void all_briefs(struct build *b, int32_t first, bool shows)
{
    uint16_t others = build_peers(b, first + 1, b->spec.size - 1);
    struct comm_ref blocks = brief(ref_block(shows ? BUF_IN : BUF_OUT, algo_wrap(b, first + 1)));

    if (!shows) {
        blocks.step = 1;
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .edge = 0, .peer = others, .npeers = (uint16_t)(b->spec.size - 1),
                   .dst = blocks, .src = blocks);
        return;
    }
    blocks.outer = 1;
    build_loop(b, (uint32_t)b->spec.size - 1);
    BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = others, .npeers = 1, .peer_outer = 1, .src = blocks);
    build_loop_end(b);
}

/* Of all peers, by the first lane: they do not wait for one another. */
static void each_brief(struct build *b, int32_t lane, int32_t first, int32_t direction, bool shows)
{
    if (!b->program.brief || lane != 0)
        return;
    if (has_one_brief_edge(b->spec.collective, b->spec.size)) {
        all_briefs(b, first, shows);
        return;
    }
    for (int32_t d = 1; d < b->spec.size; d++) {
        int32_t rank = algo_wrap(b, first + direction * d);
        if (shows)
            show_brief(b, d, rank, ref_block(BUF_IN, rank));
        else
            land_brief(b, d, rank, ref_block(BUF_OUT, rank));
    }
}

/* The peers of a lane, in its order; returns how many. */
static uint32_t lane_peers(struct build *b, int32_t lane, int32_t first, int32_t direction, uint16_t *at)
{
    uint32_t count = 0;

    *at = b->program.peers;
    for (int32_t d = lane + 1; d < b->spec.size; d += ALGO_THROTTLE, count++)
        build_peer(b, algo_wrap(b, first + direction * d));
    return count;
}

static struct comm_ref lane_blocks(const struct build *b, uint8_t buf, int32_t lane, int32_t first, int32_t direction)
{
    struct comm_ref ref = ref_block(buf, algo_wrap(b, first + direction * (lane + 1)));
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
    each_brief(b, lane, first, direction, true);
    build_loop(b, count);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = edge_of(b, lane), .peer = at, .npeers = 1, .peer_outer = 1,
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
    each_brief(b, lane, first, direction, false);
    build_loop(b, count);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = edge_of(b, lane), .peer = at, .npeers = 1, .peer_outer = 1,
               .dst = block, .src = block);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_expose_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block)
{
    int32_t lane = (ahead - 1) % ALGO_THROTTLE;

    build_lane(b);
    show_brief(b, ahead, rank, block);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = edge_of(b, lane), .peer = build_peer(b, rank), .npeers = 1,
               .src = block);
    build_loop_end(b);
    build_lane_end(b);
}

void throttled_land_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block)
{
    int32_t lane = (ahead - 1) % ALGO_THROTTLE;

    build_lane(b);
    land_brief(b, ahead, rank, block);
    build_loop_over(b, block);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = edge_of(b, lane), .peer = build_peer(b, rank), .npeers = 1,
               .dst = block, .src = block);
    build_loop_end(b);
    build_lane_end(b);
}
