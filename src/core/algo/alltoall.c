/*
 * alltoall/direct: everyone shows its whole buffer to everyone at once, who take their block out of it. One exchange, p times the bytes:
 * for the small. alltoall/throttled (and alltoall_v): a stream of chunks for each pair; in the d-th turn rank r gives to r+d and takes from
 * r-d, a few turns at a time.
 *
 *   lanes 0 .. W-1    for i: for k: EXPOSE in[block r+1+w+W*i].k -> that rank #w
 *   lanes W .. 2W-1   for i: for k: VIEW <- r-1-w-W*i #w LAND out[that block].k
 *
 * Whoever gives in turn d meets one who takes in turn d, so the one who is furthest behind can always go on. In place is the caller's care:
 * out is never in, but for direct, which waits until its buffer is no longer read.
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
