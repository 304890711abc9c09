/*
 * reduce/slices: rank r reduces slice r of all ranks, chunk by chunk. The root reduces its own slice into `out` and
 * copies the others there. For large sizes: the work is shared, and the root reads each byte once.
 *
 *   lane 0  for k, for d: EXPOSE in[slice r+d].k -> r+d #0
 *   lane 1  for k: VIEW v <- all #0 (own = in[slice r].k); REDUCE t = T(v) FINAL TEE; RELEASE v; EXPOSE t -> root #1
 *   lane 2  at the root, for k: VIEW <- others #1 LAND out[slice ..].k
 *
 * A finished chunk stays in a scratch item until the wire has its bytes: counter 1 counts completed exposures. There is
 * one item and not more, because exposures may complete in any order, and a count does not say which completed. In
 * place at the root, each arriving slice was reduced from that slice of the root's input, so nobody reads it there any
 * more. With two ranks, the other one may store its results where it read the root's slice (ANSWER).
 */
#include "algo/algorithms.h"

static void reduce_lane(struct build *b, uint16_t all)
{
    int32_t rank = b->spec.rank, root = b->spec.root;
    bool at_root = rank == root;
    struct comm_ref own = ref_slice(BUF_IN, rank), kept = ref_scratch(tree_scratch(&b->spec), own);

    build_lane(b);
    build_loop_chunks(b);
    tree_reduce(b, &(struct tree){
                       .edge = 0,
                       .peers = all,
                       .flags = STEP_CHUNKED,
                       .tee = at_root ? 0 : tree_tee(b),
                       .wait = at_root ? 0 : 1,
                       .need_inner = 1,
                       .own = own,
                       .dst = at_root ? ref_slice(BUF_OUT, rank) : kept,
                       .release = true,
                   });
    if (!at_root)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_TEE, .edge = 1, .peer = (uint16_t)(all + root), .npeers = 1,
                   .bump = 1, .src = kept);
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *reduce_slices(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "slices", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, next = (spec->rank + 1) % size;
    bool at_root = spec->rank == spec->root;
    b->program.slices = (uint16_t)size;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.scratch = (uint16_t)(tree_scratch(spec) + (at_root ? 0 : 1));
    build_edge(b, 0, 0);
    build_edge(b, 1, 0);
    uint16_t all = build_peers(b, 0, size), others = build_peers(b, next, size - 1);

    if (at_root && size == 2) /* first, because the answers that it takes make room for what it exposes */
        land_lane(b, 1, ref_slice(BUF_OUT, next), others);
    scatter_lane(b, ref_slice(BUF_IN, next), others);
    reduce_lane(b, all);
    if (at_root && size != 2)
        land_lane(b, 1, ref_slice(BUF_OUT, next), others);
    return build_end(b);
}
