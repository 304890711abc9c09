/*
 * Combines all nodes' parts of one item in T's order. Where nodes are equally long, one REDUCE of all parts is T over
 * the ranks. Otherwise the parts are combined by halves, with intermediate results in scratch.
 */
#include "algo/hosts.h"

static void view_node(struct build *b, const struct hosts_combine *c, int32_t node, uint32_t slot)
{
    const struct places *p = c->places;
    bool own = node == p->node.of[b->spec.rank], lone = group_ranks(&p->node, node) == 1;
    struct comm_ref src = own ? c->mine : lone ? c->item : ref_partial(c->item);

    BUILD_STEP(b, .code = STEP_VIEW, .flags = c->flags, .edge = c->edge, .peer = build_peer(b, places_worker(p, b->spec.rank, node)),
               .npeers = 1, .wait = own && !lone ? c->wait_mine : 0, .need = 1, .need_inner = 1, .dst = ref_views(slot, 1), .src = src);
}

/* Views the results of the nodes one by one, in order. This rank's own comes last, since the lane may have to wait for
 * it. */
static void view_nodes(struct build *b, const struct hosts_combine *c, int32_t first, int32_t count, uint32_t slot)
{
    int32_t own = c->places->node.of[b->spec.rank];

    for (int32_t i = 0; i < count; i++)
        if (first + i != own)
            view_node(b, c, first + i, slot + (uint32_t)i);
    if (own >= first && own < first + count)
        view_node(b, c, own, slot + (uint32_t)(own - first));
}

/* Number of nodes in ranks lo .. hi - 1, a subtree. */
static int32_t nodes_of(const struct places *p, int32_t lo, int32_t hi)
{
    return p->node.of[hi - 1] - p->node.of[lo] + 1;
}

/* Whether T over these nodes, with each node as one leaf, is T over their ranks. */
static bool is_plain(const struct build *b, const struct places *p, int32_t lo, int32_t hi)
{
    int32_t count = nodes_of(p, lo, hi), middle = places_split(lo, hi, b->spec.block);

    if (count == 1)
        return true;
    return p->node.of[middle] - p->node.of[lo] == places_split(0, count, 0) && is_plain(b, p, lo, middle) && is_plain(b, p, middle, hi);
}

static void combine(struct build *b, struct hosts_combine *c, int32_t lo, int32_t hi, uint32_t slot, uint32_t room);

/* Views the two halves, or all nodes where that gives the same result, from `slot` on; returns the number of views. */
static uint32_t view_parts(struct build *b, struct hosts_combine *c, int32_t lo, int32_t hi, uint32_t slot)
{
    int32_t middle = places_split(lo, hi, b->spec.block);

    if (is_plain(b, c->places, lo, hi)) {
        view_nodes(b, c, c->places->node.of[lo], nodes_of(c->places, lo, hi), slot);
        return (uint32_t)nodes_of(c->places, lo, hi);
    }
    combine(b, c, lo, middle, slot, slot + 2);
    combine(b, c, middle, hi, slot + 1, slot + 2);
    return 2;
}

/* Makes T over ranks lo .. hi - 1 available as one view; free slots begin at `room`. */
static void combine(struct build *b, struct hosts_combine *c, int32_t lo, int32_t hi, uint32_t slot, uint32_t room)
{
    if (nodes_of(c->places, lo, hi) == 1) {
        view_node(b, c, c->places->node.of[lo], slot);
        return;
    }
    struct comm_ref part = ref_partial(ref_scratch(c->scratch++, c->item));
    struct comm_ref views = ref_views(room, view_parts(b, c, lo, hi, room));
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = c->flags, .dst = part, .src = views);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = c->flags, .src = views);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = c->flags, .edge = c->edge, .peer = build_peer(b, b->spec.rank), .npeers = 1,
               .dst = ref_views(slot, 1), .src = part);
}

struct comm_ref hosts_combine(struct build *b, struct hosts_combine *c)
{
    if (b->spec.collective == COLLECTIVE_BARRIER) { /* the nodes of a barrier have no order and need none */
        view_nodes(b, c, 0, c->places->node.count, c->slot);
        return ref_views(c->slot, (uint32_t)c->places->node.count);
    }
    return ref_views(c->slot, view_parts(b, c, 0, b->spec.size, c->slot));
}
