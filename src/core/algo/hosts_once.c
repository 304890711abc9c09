/*
 * allreduce/hosts_once and barrier: for small sizes over several hosts. Each rank reads the inputs of its own host and
 * reduces them itself, which needs no packet. Then it exposes the result to one rank of each other host, and reads one
 * from each. So a host sends one packet for each of its ranks and each other host, while reading all ranks would cost
 * one packet for each pair of ranks.
 *
 *   EXPOSE in -> my node #0;  VIEW v <- my node #0;  REDUCE t = T(v);  EXPOSE t -> those whose worker here I am #1;
 *   VIEW w <- my workers in other nodes #1 (own = t);  REDUCE out = T(w) FINAL
 *
 * Nodes are subtrees of T that share a host, and workers are as in hosts_reduce.c; for a barrier, nodes are hosts. In
 * place, the last REDUCE waits until nobody reads this rank's input any more.
 */
#include "algo/hosts.h"

enum { EDGE_HERE, EDGE_ACROSS, COUNT_SHOWN = 1 };

static uint16_t add_clients(struct build *b, const struct places *p, int32_t node)
{
    uint16_t first = b->program.peers;

    for (int32_t d = 1; d < b->spec.size; d++) {
        int32_t x = (b->spec.rank + d) % b->spec.size;
        if (p->node.of[x] != node && places_worker(p, x, node) == b->spec.rank)
            build_peer(b, x);
    }
    return (uint16_t)(b->program.peers - first);
}

/* Reduces this node's part from the inputs of its ranks. Returns the number of exposures of the input. */
static int32_t reduce_here(struct build *b, const struct places *p, int32_t node, struct comm_ref to)
{
    uint16_t all = b->program.peers, others;
    uint32_t here = (uint32_t)group_ranks(&p->node, node);

    if (here == 1)
        return 0;
    for (uint32_t i = 0; i < here; i++)
        build_peer(b, group_member(&p->node, node, (int32_t)i));
    others = b->program.peers;
    for (uint32_t i = 1; i < here; i++)
        build_peer(b, group_member(&p->node, node, (p->node.number[b->spec.rank] + (int32_t)i) % (int32_t)here));
    BUILD_STEP(b, .code = STEP_EXPOSE, .edge = EDGE_HERE, .peer = others, .npeers = (uint16_t)(here - 1), .bump = COUNT_SHOWN,
               .src = ref_block(BUF_IN, 0));
    BUILD_STEP(b, .code = STEP_VIEW, .edge = EDGE_HERE, .peer = all, .npeers = (uint16_t)here, .dst = ref_views(0, here),
               .src = ref_block(BUF_IN, 0));
    BUILD_STEP(b, .code = STEP_REDUCE, .dst = to, .src = ref_views(0, here));
    BUILD_STEP(b, .code = STEP_RELEASE, .src = ref_views(0, here));
    return 1;
}

struct comm_program *hosts_once(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts_once", spec);
    struct places p = {0};
    if (!b || !places_find(b, &p))
        return build_end(b);
    int32_t node = p.node.of[spec->rank];
    bool lone = group_ranks(&p.node, node) == 1;
    struct comm_ref mine = lone ? ref_block(BUF_IN, 0) : ref_partial(ref_scratch(0, ref_block(BUF_IN, 0)));
    build_edge(b, EDGE_HERE, WIRE_ONCE | WIRE_TO_ALL);
    build_edge(b, EDGE_ACROSS, WIRE_ONCE | WIRE_TO_ALL);
    build_lane(b);
    int32_t shown = reduce_here(b, &p, node, mine);
    uint16_t clients = b->program.peers, count = add_clients(b, &p, node);
    if (count)
        BUILD_STEP(b, .code = STEP_EXPOSE, .edge = EDGE_ACROSS, .peer = clients, .npeers = count, .bump = lone ? COUNT_SHOWN : 0,
                   .src = mine);
    shown += lone && count;
    struct hosts_combine parts = {.places = &p,
                                  .edge = EDGE_ACROSS,
                                  .slot = lone ? 0 : (uint32_t)group_ranks(&p.node, node),
                                  .scratch = 1,
                                  .item = ref_block(BUF_IN, 0),
                                  .mine = mine};
    struct comm_ref views = hosts_combine(b, &parts);
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_FINAL, .wait = shown ? COUNT_SHOWN : 0, .need = shown, .dst = ref_block(BUF_OUT, 0),
               .src = views);
    b->program.scratch = (uint16_t)parts.scratch;
    build_lane_end(b);
    return build_end(b);
}
