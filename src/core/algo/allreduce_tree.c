/*
 * allreduce/tree: up along T and down along the same tree, chunk by chunk. At T's levels rank r takes the results of r
 * + 1, r + 2, r + 4, .. below its own lowest set bit, and passes its own to the rank without that bit. Rank 0 gets the
 * whole result, which goes back down. For large sizes over more ranks than can view each other: each rank has at most
 * log2 p + 1 peers, though ranks near rank 0 carry more traffic than others.
 *
 *   lane 0  for k: for each child: VIEW mine, theirs #0; REDUCE t[child] = T(mine, theirs); RELEASE;    EXPOSE mine -> parent #0 +c1
 *           rank 0: the last one REDUCE out.k FINAL TEE; RELEASE; EXPOSE out.k -> children #1
 *   lane 1  others, for k: VIEW <- parent #1 LAND out.k +c2;  EXPOSE out.k -> children #1 {c2 >= k+1}
 *
 * A child that is a leaf exposes its input, other children their accumulators. An exposed chunk stays in its scratch
 * item until the wire has its bytes. A REDUCE into the item waits for all earlier exposures, because exposures may
 * complete in any order and a counter does not say which completed.
 * In place: a result that arrives in chunk k of `out` was reduced from chunk k of every `in`, so nobody reads that
 * chunk any more.
 */
#include "algo/algorithms.h"

enum { TREE_UP = 0, TREE_DOWN = 1, TREE_SHOWN = 1, TREE_LANDED = 2 };

/* Whether the rank's result is its own input alone. */
static bool is_leaf(const struct build *b, int32_t rank)
{
    return rank & 1 || rank + 1 >= b->spec.size;
}

static int32_t child_of(const struct build *b, int32_t number)
{
    int32_t rank = b->spec.rank, child = rank + (1 << number);
    return rank >> number & 1 || child >= b->spec.size ? -1 : child;
}

static int32_t children_of(const struct build *b)
{
    int32_t count = 0;
    while (child_of(b, count) > 0)
        count++;
    return count;
}

static void view(struct build *b, int32_t rank, uint32_t slot, struct comm_ref like)
{
    uint16_t peer = build_peer(b, rank);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = TREE_UP, .peer = peer, .npeers = 1, .dst = ref_views(slot, 1),
               .src = like);
}

/* Combines child `number` with what this rank has so far; returns the result. */
static struct comm_ref take_child(struct build *b, int32_t number, bool last, struct comm_ref mine)
{
    int32_t child = child_of(b, number);
    bool whole = last && b->spec.rank == 0;
    uint32_t slot = 2 * (uint32_t)number;
    struct comm_ref block = ref_block(BUF_IN, 0), to = ref_partial(ref_scratch((uint32_t)number, block));
    view(b, b->spec.rank, slot, mine);
    view(b, child, slot + 1, is_leaf(b, child) ? block : ref_partial(block));
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED | (whole ? STEP_FINAL | STEP_TEE : 0), .wait = last && !whole ? TREE_SHOWN : 0,
               .need_inner = 1, .dst = whole ? ref_block(BUF_OUT, 0) : to, .src = ref_views(slot, 2));
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(slot, 2));
    return to;
}

static void show_children(struct build *b, int32_t count, uint8_t tee, uint16_t wait)
{
    uint16_t first = b->program.peers;
    for (int32_t number = count - 1; number >= 0; number--) /* the child with the largest subtree first */
        build_peer(b, child_of(b, number));
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | tee, .edge = TREE_DOWN, .peer = first, .npeers = (uint16_t)count,
               .wait = wait, .need = 1, .need_inner = 1, .src = ref_block(BUF_OUT, 0));
}

static void up_lane(struct build *b, int32_t children)
{
    struct comm_ref mine = ref_block(BUF_IN, 0);
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t number = 0; number < children; number++)
        mine = take_child(b, number, number == children - 1, mine);
    if (b->spec.rank) {
        uint16_t parent = build_peer(b, b->spec.rank & (b->spec.rank - 1));
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = TREE_UP, .peer = parent, .npeers = 1, .bump = TREE_SHOWN,
                   .src = mine);
    } else if (children) {
        show_children(b, children, STEP_TEE, 0);
    } else {
        view(b, 0, 0, mine);
        BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED | STEP_FINAL, .dst = ref_block(BUF_OUT, 0), .src = ref_views(0, 1));
        BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, 1));
    }
    build_loop_end(b);
    build_lane_end(b);
}

static void down_lane(struct build *b, int32_t children)
{
    build_lane(b);
    build_loop_chunks(b);
    uint16_t parent = build_peer(b, b->spec.rank & (b->spec.rank - 1));
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = TREE_DOWN, .peer = parent, .npeers = 1, .bump = TREE_LANDED,
               .dst = ref_block(BUF_OUT, 0), .src = ref_block(BUF_OUT, 0));
    if (children)
        show_children(b, children, 0, TREE_LANDED);
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *allreduce_tree(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "tree", spec);
    if (!b)
        return NULL;
    int32_t children = children_of(b);
    b->program.chunk_unit = UNIT_BLOCK;
    b->program.wide = 1;
    b->program.scratch = (uint16_t)children;
    build_edge(b, TREE_UP, 0);
    build_edge(b, TREE_DOWN, WIRE_TO_ALL);
    up_lane(b, children);
    if (spec->rank)
        down_lane(b, children);
    return build_end(b);
}
