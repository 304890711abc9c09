/*
 * alltoall/direct: each rank exposes its whole buffer to all others at once, and each of them copies its block. One
 * exchange, but p times the bytes: for small sizes. alltoall/throttled (and alltoall_v): a stream of chunks for each
 * pair; in turn d rank r sends to r+d and receives from r-d, a few turns at a time.
 *
 *   lanes 0 .. W-1    for i: for k: EXPOSE in[block r+1+w+W*i].k -> that rank #w
 *   lanes W .. 2W-1   for i: for k: VIEW <- r-1-w-W*i #w LAND out[that block].k
 *
 * A rank that sends in turn d meets a rank that receives in turn d, so the rank that is furthest behind can always
 * continue. The caller ensures that `out` is not `in`. Only direct allows it: its COPY waits until nobody reads the
 * buffer any more.
 */
#include "algo/algorithms.h"

struct comm_program *alltoall_direct(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "direct", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size;
    uint16_t all = build_peers(b, 0, size), others = build_peers(b, spec->rank + 1, size - 1);
    struct comm_ref out = ref_block(BUF_OUT, 0);
    out.step = 1;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (size > 1)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = others, .npeers = (uint16_t)(size - 1), .bump = 1, .src = ref_whole());
    BUILD_STEP(b, .code = STEP_VIEW, .edge = 0, .peer = all, .npeers = (uint16_t)size, .dst = ref_views(0, (uint32_t)size),
               .src = ref_whole());
    BUILD_STEP(b, .code = STEP_COPY, .wait = size > 1 ? 1 : 0, .need = 1, .dst = out, .src = ref_views_of(0, (uint32_t)size, spec->rank));
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *alltoall_throttled(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "throttled", spec);
    if (!b)
        return NULL;
    throttled_edges(b);
    throttled_expose(b, spec->rank, 1);
    throttled_land(b, spec->rank, -1);
    build_lane(b);
    BUILD_STEP(b, .code = STEP_COPY, .dst = ref_block(BUF_OUT, spec->rank), .src = ref_block(BUF_IN, spec->rank));
    build_lane_end(b);
    return build_end(b);
}
