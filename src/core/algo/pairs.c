/*
 * scatter/pairs and alltoall/pairs: each block is exposed at once to the one rank that needs it. The edge is chosen by
 * the distance between the two ranks. No rank receives bytes that it does not need, and no block is cut. This lies
 * between direct, which exposes all bytes to all ranks, and throttled, whose streams hold few calls. Each such edge
 * costs lines in every channel, so only small teams have them.
 *
 *   lane 0  for d = 1 ..: EXPOSE in[block r+d] -> r+d #d-1        (scatter: at the root)
 *   lane 1  for d = 1 ..: VIEW <- r-d #d-1 LAND out[block r-d]    (scatter: of the root, its one block)
 *
 * As for throttled, the caller ensures that `out` is not `in`, except at the root of a scatter, where the root's own
 * block stays where it is.
 */
#include "algo/algorithms.h"

uint16_t pairs_edge(int32_t apart)
{
    return (uint16_t)(apart - 1);
}

static void pairs_edges(struct build *b)
{
    b->program.ragged = 1; /* a line carries the length of its block */
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    for (int32_t apart = 2; apart < b->spec.size; apart++)
        build_edge(b, pairs_edge(apart), WIRE_ONCE | WIRE_TO_ALL);
}

static void show_each(struct build *b)
{
    if (b->spec.size == 1)
        return;
    build_lane(b);
    for (int32_t apart = 1; apart < b->spec.size; apart++) {
        int32_t to = algo_wrap(b, b->spec.rank + apart);
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = pairs_edge(apart), .peer = build_peer(b, to), .npeers = 1, .src = ref_block(BUF_IN, to));
    }
    build_lane_end(b);
}

static void land(struct build *b, int32_t apart, int32_t from, struct comm_ref block)
{
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_LAND, .edge = pairs_edge(apart), .peer = build_peer(b, from), .npeers = 1, .dst = block,
               .src = block);
}

static void own_block(struct build *b)
{
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, b->spec.rank), .src = ref_block(BUF_IN, b->spec.rank));
    build_lane_end(b);
}

struct comm_program *scatter_pairs(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "pairs", spec);
    if (!b)
        return NULL;
    b->program.own_out = 1;
    pairs_edges(b);
    if (spec->rank == spec->root) {
        show_each(b);
        own_block(b);
        return build_end(b);
    }
    build_lane(b);
    land(b, algo_wrap(b, spec->rank - spec->root), spec->root, ref_block(BUF_OUT, spec->rank));
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *alltoall_pairs(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "pairs", spec);
    if (!b)
        return NULL;
    pairs_edges(b);
    show_each(b);
    if (spec->size > 1) {
        build_lane(b);
        for (int32_t apart = 1; apart < spec->size; apart++) {
            int32_t from = algo_wrap(b, spec->rank - apart);
            land(b, apart, from, ref_block(BUF_OUT, from));
        }
        build_lane_end(b);
    }
    own_block(b);
    return build_end(b);
}
