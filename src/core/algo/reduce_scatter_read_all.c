/*
 * reduce_scatter/read_all (and reduce_scatter_v): each rank exposes its whole buffer to all others at once, and each
 * reduces its own block of all. One exchange, but p times the bytes: for small sizes. In place, `out` is block r of
 * `in`, which others may read until the EXPOSE completes.
 */
#include "algo/algorithms.h"

struct comm_program *reduce_scatter_read_all(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "read_all", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size;
    uint16_t all = build_peers(b, 0, size), others = build_peers(b, spec->rank + 1, size - 1);
    b->program.own_out = 1;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (size > 1)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = others, .npeers = (uint16_t)(size - 1), .bump = 1, .src = ref_whole());
    BUILD_STEP(b, .code = STEP_VIEW, .edge = 0, .peer = all, .npeers = (uint16_t)size, .dst = ref_views(0, (uint32_t)size),
               .src = ref_whole());
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_FINAL, .wait = size > 1 ? 1 : 0, .need = 1, .dst = ref_block(BUF_OUT, spec->rank),
               .src = ref_views_of(0, (uint32_t)size, spec->rank));
    build_lane_end(b);
    return build_end(b);
}
