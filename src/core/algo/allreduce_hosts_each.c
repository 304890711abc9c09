/*
 * allreduce/hosts_each: every host computes the whole result. The ranks of a host share the buffer: each reduces one
 * slice of its own host, exposes that partial result to the rank with the same slice on each other host, and combines
 * the partial results of all hosts. So each byte crosses once, as a partial result, and finished results do not cross.
 * Compared with allreduce/hosts this saves one trip and half of the packets, and each of H hosts sends n (H - 1) bytes.
 * With two hosts that is as much as there; with more it pays only for small n.
 *
 *   lane 0  for k, for each other rank d of my node that works:  EXPOSE in[d's].k -> d #GIVE
 *   lane 1  for k: VIEW v <- my node #GIVE;  REDUCE t[k%D] = T(v);  RELEASE v;  EXPOSE t[k%D] -> same slice elsewhere #PARTIAL
 *   lane 2  for k: VIEW w <- same slice elsewhere #PARTIAL (own = t[k%D]);  REDUCE out[mine].k = T(w) FINAL;  RELEASE w;
 *                  EXPOSE out[mine].k -> my node #FINISHED
 *   lane 3  for k, for each other rank d of my node that works:  VIEW <- d #FINISHED LAND out[d's].k
 *
 * There are as many slices as the smallest node has ranks. Nodes are as in hosts_reduce.c. In place, a rank that is
 * alone in its node exposes a copy of its slice, because no message tells it that the other nodes have read the slice.
 */
#include "algo/hosts.h"

struct each {
    struct places p;
    int32_t node, here, number, slices; /* this rank's node, its ranks, this rank's number in it, slices */
    bool works;
};

static int32_t smallest_node(const struct places *p)
{
    int32_t least = group_ranks(&p->node, 0);

    for (int32_t n = 1; n < p->node.count; n++)
        least = group_ranks(&p->node, n) < least ? group_ranks(&p->node, n) : least;
    return least;
}

static bool find(struct build *b, struct each *e)
{
    if (!places_find(b, &e->p))
        return false;
    e->p.host = e->p.node; /* a rank's number in its node is the number of its slice */
    e->node = e->p.node.of[b->spec.rank];
    e->here = group_ranks(&e->p.node, e->node);
    e->number = e->p.node.number[b->spec.rank];
    e->slices = smallest_node(&e->p);
    e->works = e->number < e->slices;
    return true;
}

static struct comm_ref slice_of(const struct each *e, uint8_t buf)
{
    return ref_slice(buf, e->number % e->slices);
}

/* This node's part of this rank's slice, as it waits to be sent: the input if the rank is alone in its node. */
static struct comm_ref part_of(const struct each *e)
{
    struct comm_ref part = ref_scratch(0, slice_of(e, BUF_IN));

    part.inner = 1;
    return e->here > 1 ? ref_partial(part) : part;
}

/* Adds the other ranks of this rank's node to the peer table. */
static uint16_t add_others(struct build *b, const struct each *e)
{
    uint16_t first = b->program.peers;

    for (int32_t d = 1; d < e->here; d++)
        build_peer(b, group_member(&e->p.node, e->node, (e->number + d) % e->here));
    return first;
}

static void give_lane(struct build *b, const struct each *e)
{
    build_chunks_lane(b);
    for (int32_t d = 1; d < e->here; d++) {
        int32_t to = (e->number + d) % e->here;
        if (to < e->slices)
            BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_GIVE,
                       .peer = build_peer(b, group_member(&e->p.node, e->node, to)), .npeers = 1, .src = ref_slice(BUF_IN, to));
    }
    build_chunks_lane_end(b);
}

/* Waits for all earlier exposures of the part, because they may complete in any order. */
static void make_part(struct build *b, const struct each *e)
{
    uint32_t here = (uint32_t)e->here;
    uint16_t all = b->program.peers;

    if (here == 1) {
        BUILD_STEP(b, .code = STEP_COPY, .flags = STEP_CHUNKED, .wait = HOSTS_COUNT_SENT, .need_inner = 1, .bump = HOSTS_COUNT_MINE,
                   .dst = part_of(e), .src = slice_of(e, BUF_IN));
        return;
    }
    for (int32_t i = 0; i < e->here; i++)
        build_peer(b, group_member(&e->p.node, e->node, i));
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = HOSTS_GIVE, .peer = all, .npeers = (uint16_t)here,
               .wait = e->p.node.count > 1 ? HOSTS_COUNT_SENT : 0, .need_inner = 1, .dst = ref_views(0, here), .src = slice_of(e, BUF_IN));
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED, .wait = HOSTS_COUNT_FINISHED, .need = 1 - HOSTS_DEPTH, .need_inner = 1,
               .bump = HOSTS_COUNT_MINE, .dst = part_of(e), .src = ref_views(0, here));
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, here));
}

static void part_lane(struct build *b, const struct each *e)
{
    uint16_t twins = b->program.peers;
    int32_t nodes = e->p.node.count;

    if (e->here == 1 && nodes == 1)
        return;
    for (int32_t d = 1; d < nodes; d++)
        build_peer(b, group_member(&e->p.node, (e->node + d) % nodes, e->number));
    build_chunks_lane(b);
    make_part(b, e);
    if (nodes > 1)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_PARTIAL, .peer = twins, .npeers = (uint16_t)(nodes - 1),
                   .bump = HOSTS_COUNT_SENT, .src = part_of(e));
    build_chunks_lane_end(b);
}

static void finish_lane(struct build *b, const struct each *e)
{
    bool lone = e->here == 1, copied = lone && e->p.node.count > 1;
    struct comm_ref own = slice_of(e, BUF_IN), out = slice_of(e, BUF_OUT);
    struct hosts_combine parts = {.places = &e->p,
                                  .flags = STEP_CHUNKED,
                                  .edge = HOSTS_PARTIAL,
                                  .wait_mine = HOSTS_COUNT_MINE,
                                  .slot = lone ? 0 : (uint32_t)e->here,
                                  .scratch = HOSTS_DEPTH,
                                  .item = own,
                                  .mine = lone ? own : part_of(e)};
    uint16_t others = add_others(b, e);

    build_chunks_lane(b);
    struct comm_ref views = hosts_combine(b, &parts);
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED | STEP_FINAL, .wait = copied ? HOSTS_COUNT_MINE : 0, .need = 1,
               .need_inner = 1, .bump = HOSTS_COUNT_FINISHED, .dst = out, .src = views);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = views);
    if (!lone)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_FINISHED, .peer = others, .npeers = (uint16_t)(e->here - 1),
                   .src = out);
    build_chunks_lane_end(b);
    b->program.scratch = (uint16_t)parts.scratch;
}

static void take_lane(struct build *b, const struct each *e)
{
    build_chunks_lane(b);
    for (int32_t d = 1; d < e->here; d++) {
        int32_t from = (e->number + d) % e->here;
        struct comm_ref slice = ref_slice(BUF_OUT, from);
        if (from < e->slices)
            BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = HOSTS_FINISHED,
                       .peer = build_peer(b, group_member(&e->p.node, e->node, from)), .npeers = 1, .dst = slice, .src = slice);
    }
    build_chunks_lane_end(b);
}

struct comm_program *allreduce_hosts_each(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts_each", spec);
    struct each e = {0};
    if (!b || !find(b, &e))
        return build_end(b);
    b->program.slices = (uint16_t)e.slices;
    b->program.chunk_unit = UNIT_SLICE;
    b->program.wide = 1;
    b->program.depth = HOSTS_DEPTH;
    b->program.scratch = HOSTS_DEPTH;
    build_edge(b, HOSTS_GIVE, 0);
    build_edge(b, HOSTS_PARTIAL, WIRE_TO_ALL);
    build_edge(b, HOSTS_FINISHED, WIRE_TO_ALL);
    if (e.here > 1)
        give_lane(b, &e);
    if (e.works) {
        part_lane(b, &e);
        finish_lane(b, &e);
    }
    if (e.here > 1)
        take_lane(b, &e);
    return build_end(b);
}
