/*
 * allreduce/read_all: each rank exposes its whole input to all others and reduces everything itself. One exchange, but
 * p times the bytes: for the smallest sizes. With no elements this is a barrier.
 *
 *   EXPOSE in -> others #0;  VIEW v0.. <- all #0 (own = in);  REDUCE out = T(v0..) FINAL
 *
 * In place, others read `out` until the EXPOSE completes, so the REDUCE waits for that. The wire copies data that is
 * sent in lines, so the EXPOSE completes without any action of a peer.
 */
#include "algo/algorithms.h"

struct comm_program *allreduce_read_all(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "read_all", spec);
    if (!b)
        return NULL;
    uint16_t all = build_peers(b, 0, spec->size), others = build_peers(b, spec->rank + 1, spec->size - 1);
    bool alone = spec->size == 1;

    b->program.scratch = tree_scratch(spec);
    build_edge(b, 0, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    if (!alone)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = 0, .peer = others, .npeers = (uint16_t)(spec->size - 1), .bump = 1,
                   .src = ref_block(BUF_IN, 0));
    tree_reduce(b, &(struct tree){
                       .edge = 0,
                       .peers = all,
                       .wait = alone ? 0 : 1,
                       .need = 1,
                       .own = ref_block(BUF_IN, 0),
                       .dst = ref_block(BUF_OUT, 0),
                   });
    build_lane_end(b);
    return build_end(b);
}
