/*
 * reduce_scatter/direct: rank r reduces block r of all ranks, chunk by chunk, into out.
 *
 *   lane 0  for k, for d: EXPOSE in[block r+d].k -> r+d #0
 *   lane 1  for k: VIEW v <- all #0 (own = in[block r].k); REDUCE out.k = T(v) FINAL; RELEASE v
 *
 * Blocks may differ in length (reduce_scatter_v): all have as many chunks as the longest one, some of them empty. In
 * place, `out` is block r of `in`, which only this rank reads. Each rank begins with the peer behind itself.
 */
#include "algo/algorithms.h"

struct comm_program *reduce_scatter_direct(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "direct", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, next = (spec->rank + 1) % size;
    b->program.chunk_unit = UNIT_BLOCK;
    b->program.own_out = 1;
    b->program.scratch = tree_scratch(spec);
    build_edge(b, 0, 0);
    uint16_t all = build_peers(b, 0, size), others = build_peers(b, next, size - 1);
    scatter_lane(b, ref_block(BUF_IN, next), others);
    build_lane(b);
    build_loop_chunks(b);
    tree_reduce(b, &(struct tree){
                       .edge = 0,
                       .peers = all,
                       .flags = STEP_CHUNKED,
                       .own = ref_block(BUF_IN, spec->rank),
                       .dst = ref_block(BUF_OUT, spec->rank),
                       .release = true,
                   });
    build_loop_end(b);
    build_lane_end(b);
    return build_end(b);
}
