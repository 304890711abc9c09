/*
 * broadcast/tree: a binomial tree below the root, chunk by chunk: who has a chunk shows it to all of its children. Every rank serves at
 * most log2 p others, where `direct` and `pipeline` have the root serve all: for teams across hosts, whose root has one link.
 *
 * Ranks are counted from the root. v has the children v + 1, v + 2, v + 4, .. below its own lowest bit, and the farthest is served first,
 * since it has the most below it.
 *
 *   for k: VIEW <- parent #0 LAND out.k +c1;  EXPOSE out.k -> children #0 {c1 >= k+1}
 *
 * One lane, so that chunks land one behind the other: what c1 counts is then the chunk that is shown.
 */
#include "algo/algorithms.h"

/* Adds them to the peer table, the farthest first; returns how many there are. */
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
