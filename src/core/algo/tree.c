/*
 * Steps and lanes that several algorithms share.
 *
 * tree: one rank reads all others. Groups are aligned and ALGO_GROUP is a power of two, so the partial result of each
 * group is a subtree of T, and the groups' results are combined in T's order. A group of one rank (only the last group
 * can be one) is read as it is. If the order is T over blocks, these blocks are the groups.
 */
#include "algo/algorithms.h"

static int32_t group_of(const struct program_spec *spec)
{
    return spec->block ? spec->block : ALGO_GROUP;
}

uint16_t tree_scratch(const struct program_spec *spec)
{
    int32_t group = group_of(spec);

    return (uint16_t)(spec->size > group ? (spec->size + group - 1) / group : 0);
}

uint8_t tree_tee(const struct build *b)
{
    return b->spec.size == 2 ? STEP_TEE | STEP_ANSWER : STEP_TEE;
}

static void tree_view(struct build *b, const struct tree *tree, int32_t first, int32_t count, uint32_t slot)
{
    BUILD_STEP(b, .code = STEP_VIEW, .flags = tree->flags, .edge = tree->edge, .peer = (uint16_t)(tree->peers + first),
               .npeers = (uint16_t)count, .dst = ref_views(slot, (uint32_t)count), .src = tree->own);
}

static void tree_finish(struct build *b, const struct tree *tree, uint32_t slot, uint32_t count)
{
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = (uint8_t)(tree->flags | tree->tee | STEP_FINAL), .wait = tree->wait, .need = tree->need,
               .need_inner = tree->need_inner, .dst = tree->dst, .src = ref_views(slot, count));
    if (tree->release)
        BUILD_STEP(b, .code = STEP_RELEASE, .flags = tree->flags, .src = ref_views(slot, count));
}

void tree_reduce(struct build *b, const struct tree *tree)
{
    int32_t size = b->spec.size, group = group_of(&b->spec), groups = tree_scratch(&b->spec);
    if (!groups) {
        tree_view(b, tree, 0, size, 0);
        tree_finish(b, tree, 0, (uint32_t)size);
        return;
    }
    for (int32_t g = 0; g < groups; g++) {
        int32_t first = g * group, count = size - first < group ? size - first : group;
        uint32_t slot = (uint32_t)(ALGO_GROUP + g);
        struct comm_ref part = ref_partial(ref_scratch((uint32_t)g, tree->own));
        if (count == 1) {
            tree_view(b, tree, first, 1, slot);
            continue;
        }
        tree_view(b, tree, first, count, 0);
        BUILD_STEP(b, .code = STEP_REDUCE, .flags = tree->flags, .dst = part, .src = ref_views(0, (uint32_t)count));
        BUILD_STEP(b, .code = STEP_RELEASE, .flags = tree->flags, .src = ref_views(0, (uint32_t)count));
        BUILD_STEP(b, .code = STEP_VIEW, .flags = tree->flags, .edge = tree->edge, .peer = (uint16_t)(tree->peers + b->spec.rank),
                   .npeers = 1, .dst = ref_views(slot, 1), .src = part);
    }
    tree_finish(b, tree, ALGO_GROUP, (uint32_t)groups);
}

void scatter_lane(struct build *b, struct comm_ref next, uint16_t others)
{
    if (b->spec.size == 1)
        return;
    next.outer = 1;
    build_lane(b);
    build_loop_chunks(b);
    build_loop(b, (uint32_t)b->spec.size - 1);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = 0, .peer = others, .npeers = 1, .peer_outer = 1, .src = next);
    build_loop_end(b);
    build_loop_end(b);
    build_lane_end(b);
}

void land_lane(struct build *b, uint16_t edge, struct comm_ref next, uint16_t others)
{
    bool stream = !(b->program.edge[edge] & WIRE_ONCE);
    uint8_t chunked = stream ? STEP_CHUNKED : 0;
    if (b->spec.size == 1)
        return;
    next.step = 1;
    build_lane(b);
    if (stream)
        build_loop_chunks(b);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = chunked | STEP_LAND, .edge = edge, .peer = others, .npeers = (uint16_t)(b->spec.size - 1),
               .dst = next, .src = next);
    if (stream)
        build_loop_end(b);
    build_lane_end(b);
}
