/*
 * broadcast/tree: a binomial tree below the root, chunk by chunk: a rank that has a chunk exposes it to all of its
 * children. Each rank serves at most log2 p others, while in `direct` and `pipeline` the root serves all. For teams
 * across hosts, where the root has one link.
 *
 * Ranks are counted from the root. Rank v has the children v + 1, v + 2, v + 4, .. below its own lowest set bit. The
 * farthest is served first, because it has the largest subtree.
 *
 *   for k: VIEW <- parent #0 LAND out.k +c1;  EXPOSE out.k -> children #0 {c1 >= k+1}
 *
 * There is one lane, so that chunks arrive in order: the value of c1 then tells which chunk can be exposed.
 */
#include "algo/algorithms.h"

/* Adds the children to the peer table, the farthest first; returns their number. */
static uint16_t add_children(struct build *b, int32_t from_root, uint16_t *first)
{
    int32_t size = b->spec.size, low = 1;
    *first = b->program.peers;
    while (low < size && !(from_root & low))
        low *= 2;
    for (int32_t step = low / 2; step; step /= 2)
        if (from_root + step < size)
            build_peer(b, (b->spec.root + from_root + step) % size);
    return (uint16_t)(b->program.peers - *first);
}

struct comm_program *broadcast_tree(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "tree", spec);
    if (!b)
        return NULL;
    int32_t size = spec->size, from_root = (spec->rank - spec->root + size) % size;
    bool at_root = from_root == 0;
    uint16_t first, children = add_children(b, from_root, &first);
    b->program.chunk_unit = UNIT_BLOCK;
    build_edge(b, 0, WIRE_TO_ALL);
    build_lane(b);
    build_loop_chunks(b);
    if (!at_root) {
        uint16_t parent = build_peer(b, (spec->root + (from_root & (from_root - 1))) % size);
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = 0, .peer = parent, .npeers = 1, .bump = 1,
                   .dst = ref_block(BUF_OUT, 0), .src = ref_block(BUF_OUT, 0));
    }
    if (children)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = 0, .peer = first, .npeers = children, .wait = at_root ? 0 : 1,
                   .need = 1, .need_inner = 1, .src = ref_block(at_root ? BUF_IN : BUF_OUT, 0));
    build_loop_end(b);
    build_lane_end(b);
    return build_end(b);
}
