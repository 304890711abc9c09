/*
 * reduce/read_all: each rank exposes its input to the root, which reduces everything itself. For small sizes. `out` of
 * a rank other than the root is never touched. In place at the root, `out` is the root's own contribution, which no
 * other rank reads.
 */
#include "algo/algorithms.h"

struct comm_program *reduce_read_all(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "read_all", spec);
    if (!b)
        return NULL;
    b->program.scratch = spec->rank == spec->root ? tree_scratch(spec) : 0;
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (spec->rank == spec->root) {
        tree_reduce(b, &(struct tree){
                           .edge = 0,
                           .peers = build_peers(b, 0, spec->size),
                           .own = ref_block(BUF_IN, 0),
                           .dst = ref_block(BUF_OUT, 0),
                       });
    } else {
        uint16_t root = build_peer(b, spec->root);
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = root, .npeers = 1, .src = ref_block(BUF_IN, 0));
    }
    build_lane_end(b);
    return build_end(b);
}
