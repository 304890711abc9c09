/*
 * scatter/direct: the root exposes its whole buffer at once, and each rank copies its own block. scatter/throttled (and
 * scatter_v): each block is a stream of chunks of its own, and the root serves a few peers at a time. In place at the
 * root, its own block stays where it is.
 */
#include "algo/algorithms.h"

static void own_block(struct build *b)
{
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, b->spec.rank), .src = ref_block(BUF_IN, b->spec.rank));
    build_lane_end(b);
}

struct comm_program *scatter_direct(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "direct", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, root = spec->root;
    b->program.own_out = 1;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    if (spec->rank == root) {
        if (size > 1) {
            build_lane(b);
            uint16_t others = build_peers(b, root + 1, size - 1);
            BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = others, .npeers = (uint16_t)(size - 1), .src = ref_whole());
            build_lane_end(b);
        }
        own_block(b);
        return build_end(b);
    }
    build_lane(b);
    BUILD_STEP(b, .code = STEP_VIEW, .edge = 0, .peer = build_peer(b, root), .npeers = 1, .dst = ref_views(0, 1), .src = ref_whole());
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, spec->rank), .src = ref_views_of(0, 1, spec->rank));
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *scatter_throttled(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "throttled", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, ahead = (spec->rank - spec->root + size) % size;
    b->program.own_out = 1;
    throttled_edges(b);
    if (!ahead) {
        throttled_expose(b, spec->root, 1);
        own_block(b);
    } else {
        throttled_land_one(b, ahead, spec->root, ref_block(BUF_OUT, spec->rank));
    }
    return build_end(b);
}
