/*
 * scan/read_all and exscan/read_all: each rank exposes its input to the ranks above it. Each rank reduces all inputs
 * below it, with its own (scan) or without (exscan). One exchange: for small sizes and few ranks. Every prefix consists
 * of whole subtrees, because a reduction of the first ranks is T over them.
 *
 *   EXPOSE in -> ranks above #0;  VIEW v0.. <- ranks below #0 (scan: own = in);  REDUCE out = T(v0..) FINAL
 *
 * In place, ranks above may read `out` until the EXPOSE completes.
 */
#include "algo/algorithms.h"

static struct comm_program *read_all(struct build *b, bool inclusive)
{
    if (!b)
        return NULL;
    int32_t size = b->spec.size, rank = b->spec.rank, ways = inclusive ? rank + 1 : rank;
    bool shows = rank + 1 < size;

    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (shows) {
        uint16_t above = build_peers(b, rank + 1, size - rank - 1);
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = above, .npeers = (uint16_t)(size - rank - 1), .bump = 1,
                   .src = ref_block(BUF_IN, 0));
    }
    if (ways) {
        uint16_t below = build_peers(b, 0, ways);
        BUILD_STEP(b, .code = STEP_VIEW, .edge = 0, .peer = below, .npeers = (uint16_t)ways, .dst = ref_views(0, (uint32_t)ways),
                   .src = ref_block(BUF_IN, 0));
        BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_FINAL, .wait = shows ? 1 : 0, .need = 1, .dst = ref_block(BUF_OUT, 0),
                   .src = ref_views(0, (uint32_t)ways));
    }
    build_lane_end(b);
    return build_end(b);
}

struct comm_program *scan_read_all(const struct comm_env *env, const struct program_spec *spec)
{
    return read_all(build_begin(env, "read_all", spec), true);
}

struct comm_program *exscan_read_all(const struct comm_env *env, const struct program_spec *spec)
{
    return read_all(build_begin(env, "read_all", spec), false);
}
