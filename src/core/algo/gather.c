/*
 * gather/direct: each rank exposes its block to the root at once, and the root copies it. gather/throttled (and
 * gather_v): each block is a stream of chunks of its own. The root takes a few peers at a time: each of its lanes takes
 * one peer after the other, so that few peers use buffer space at once. `out` of a rank other than the root is never
 * touched. In place, the root's own block is already where it belongs, and the COPY does nothing.
 */
#include "algo/algorithms.h"

static void own_block(struct build *b)
{
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, b->spec.rank), .src = ref_block(BUF_IN, b->spec.rank));
    build_lane_end(b);
}

struct comm_program *gather_direct(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "direct", spec);
    if (!b)
        return NULL;
    int32_t next = (spec->root + 1) % spec->size;
    b->program.own_in = 1;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    if (spec->rank == spec->root) {
        land_lane(b, 0, ref_block(BUF_OUT, next), build_peers(b, next, spec->size - 1));
        own_block(b);
        return build_end(b);
    }
    build_lane(b);
    BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = build_peer(b, spec->root), .npeers = 1, .src = ref_block(BUF_IN, spec->rank));
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *gather_throttled(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "throttled", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, ahead = (spec->rank - spec->root + size) % size;
    b->program.own_in = 1;
    throttled_edges(b);
    if (!ahead) {
        throttled_land(b, spec->root, 1);
        own_block(b);
    } else {
        throttled_expose_one(b, ahead, spec->root, ref_block(BUF_IN, spec->rank));
    }
    return build_end(b);
}
