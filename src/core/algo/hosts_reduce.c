/*
 * Reduces node by node: the common part of allreduce, reduce and reduce_scatter over hosts. A finishing rank x computes
 * T of all contributions to item x. In each node one rank, x's worker there, reduces that node's part of the item. W(x)
 * are x's workers, in the order of nodes. A node of one rank exposes its input as it is.
 *
 *   lane 0  for k, for each other rank d of my node, each item x that d works on:    EXPOSE in[x].k -> d #GIVE
 *   lane 1  for k, for each item x that I work on for another node:  VIEW v <- my node #GIVE;  REDUCE t[x] = T(v);  RELEASE v;
 *                                                                    EXPOSE t[x] -> x #PARTIAL
 *                  and for my own:                                   VIEW v <- my node #GIVE;  REDUCE mine[k] = T(v);  RELEASE v
 *   lane 2  for k: VIEW w <- W(me) #PARTIAL (own = mine[k]);  REDUCE dst.k = T(w) FINAL;  RELEASE w;  EXPOSE dst.k, if requested
 *
 * So of each item a host sends no more than its nodes' partial results: one if its ranks are a subtree.
 *
 * In place, dst is this rank's own item, and the others have read their part of it before it is written.
 */
#include "algo/hosts.h"

/* ------------------------------------------------------------------------------------------------------------ which rank does what */
struct work {
    const struct hosts_reduce *ask;
    const struct places *p;
    int32_t rank, node, here; /* this rank, its node, number of ranks in that node */
    int32_t foreign;          /* number of items that this rank reduces for other nodes */
    uint32_t base, scratch;   /* base: first scratch item; scratch: next free one */
    uint16_t all_here;        /* index in the peer table of all ranks of this node */
    bool finishes;
};

/* The next rank behind x, in a circle from this rank on, whose item `worker` of this node works on. A worker's own
 * item, which it finishes itself, comes last. -1: no more. Begin with x = worker. */
static int32_t next_item(const struct build *b, const struct work *w, int32_t worker, int32_t x)
{
    for (;;) {
        if (x == worker + b->spec.size)
            return -1;
        x++;
        int32_t rank = x % b->spec.size;
        bool own = rank == worker, here = w->p->node.of[rank] == w->node;
        if (w->p->item[rank] >= 0 && (own || (!here && places_worker(w->p, rank, w->node) == worker)))
            return x;
    }
}

static uint16_t count_items(const struct build *b, const struct work *w, int32_t worker)
{
    uint16_t count = 0;

    for (int32_t x = next_item(b, w, worker, worker); x >= 0; x = next_item(b, w, worker, x))
        count++;
    return count;
}

static struct comm_ref item_of(const struct work *w, uint8_t buf, int32_t rank)
{
    int32_t item = w->p->item[rank];
    return w->ask->unit == UNIT_SLICE ? ref_slice(buf, item) : ref_block(buf, item);
}

/* ------------------------------------------------------------------------------------------------------------ inside a node */
static void give(struct build *b, const struct work *w, int32_t worker, uint16_t turn, uint16_t turns)
{
    int32_t x = worker;

    for (uint16_t i = 0; i <= turn; i++)
        x = next_item(b, w, worker, x);
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_EACH, .turn = turn, .turns = turns, .edge = HOSTS_GIVE,
               .peer = (uint16_t)(w->all_here + w->p->node.number[worker]), .npeers = 1, .src = item_of(w, BUF_IN, x % b->spec.size));
}

/* Every worker's first item, then every worker's second: the next item of one worker must not block a worker that waits
 * for its own. */
static void give_lane(struct build *b, const struct work *w)
{
    bool more = true;

    if (w->here == 1)
        return;
    build_lane(b);
    build_loop_chunks(b);
    for (uint16_t turn = 0; more; turn++) {
        more = false;
        for (int32_t d = 1; d < w->here; d++) {
            int32_t worker = group_member(&w->p->node, w->node, (w->p->node.number[w->rank] + d) % w->here);
            uint16_t turns = count_items(b, w, worker);
            if (turn < turns)
                give(b, w, worker, turn, turns);
            more |= turn + 1 < turns;
        }
    }
    build_loop_end(b);
    build_lane_end(b);
}

/* Reduces this node's contributions to one item. */
static void reduce_here(struct build *b, const struct work *w, int32_t rank, uint16_t turn, uint16_t turns, struct comm_step reduce)
{
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_EACH, .turn = turn, .turns = turns, .edge = HOSTS_GIVE,
               .peer = w->all_here, .npeers = (uint16_t)w->here, .dst = ref_views(0, (uint32_t)w->here), .src = item_of(w, BUF_IN, rank));
    reduce.code = STEP_REDUCE;
    reduce.flags = STEP_CHUNKED;
    reduce.src = ref_views(0, (uint32_t)w->here);
    build_step(b, reduce);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, (uint32_t)w->here));
}

/* This node's part of this rank's own item. */
static struct comm_ref mine_of(const struct work *w)
{
    struct comm_ref own = item_of(w, BUF_IN, w->rank);

    if (w->here == 1)
        return own;
    own = ref_partial(ref_scratch(w->base + (uint32_t)w->foreign, own));
    own.inner = 1;
    return own;
}

static void show_partial(struct build *b, const struct work *w, int32_t rank, uint16_t turn, uint16_t turns)
{
    struct comm_ref part = item_of(w, BUF_IN, rank);
    uint16_t peer = build_peer(b, rank);

    if (w->here > 1) {
        part = ref_partial(ref_scratch(w->base + turn, part));
        /* Waits for all earlier exposures, because they may complete in any order. */
        reduce_here(b, w, rank, turn, turns, (struct comm_step){.wait = HOSTS_COUNT_SENT, .need_inner = w->foreign, .dst = part});
    }
    BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = HOSTS_PARTIAL, .peer = peer, .npeers = 1, .bump = HOSTS_COUNT_SENT,
               .src = part);
}

static void partial_lane(struct build *b, const struct work *w)
{
    uint16_t turns = count_items(b, w, w->rank), turn = 0;

    if (!turns)
        return;
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t x = next_item(b, w, w->rank, w->rank); x >= 0; x = next_item(b, w, w->rank, x), turn++) {
        if (x != w->rank + b->spec.size)
            show_partial(b, w, x % b->spec.size, turn, turns);
        else if (w->here > 1)
            reduce_here(
                b, w, w->rank, turn, turns,
                (struct comm_step){
                    .wait = HOSTS_COUNT_FINISHED, .need = 1 - HOSTS_DEPTH, .need_inner = 1, .bump = HOSTS_COUNT_MINE, .dst = mine_of(w)});
    }
    build_loop_end(b);
    build_lane_end(b);
}

/* ------------------------------------------------------------------------------------------------------------ between
 * nodes */
static void finish_lane(struct build *b, struct work *w)
{
    struct hosts_combine parts = {.places = w->p,
                                  .flags = STEP_CHUNKED,
                                  .edge = HOSTS_PARTIAL,
                                  .wait_mine = HOSTS_COUNT_MINE,
                                  .slot = w->here > 1 ? (uint32_t)w->here : 0,
                                  .scratch = w->scratch,
                                  .item = item_of(w, BUF_IN, w->rank),
                                  .mine = mine_of(w)};

    if (!w->finishes)
        return;
    build_lane(b);
    build_loop_chunks(b);
    struct comm_ref views = hosts_combine(b, &parts);
    w->scratch = parts.scratch;
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED | STEP_FINAL, .wait = w->ask->counts_shown ? HOSTS_COUNT_SHOWN : 0,
               .need_inner = 1, .bump = HOSTS_COUNT_FINISHED, .dst = w->ask->dst, .src = views);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = views);
    if (w->ask->after.npeers)
        build_step(b, w->ask->after);
    build_loop_end(b);
    build_lane_end(b);
}

void hosts_reduce(struct build *b, const struct hosts_reduce *ask)
{
    const struct places *p = ask->places;
    struct work w = {.ask = ask, .p = p, .rank = b->spec.rank, .node = p->node.of[b->spec.rank]};

    w.here = group_ranks(&p->node, w.node);
    w.finishes = p->item[w.rank] >= 0;
    w.foreign = count_items(b, &w, w.rank) - w.finishes;
    w.all_here = b->program.peers;
    for (int32_t i = 0; i < w.here; i++)
        build_peer(b, group_member(&p->node, w.node, i));
    w.base = b->program.scratch;
    w.scratch = w.base + (w.here > 1 ? (uint32_t)w.foreign + (w.finishes ? HOSTS_DEPTH : 0) : 0);
    b->program.wide = 1;
    b->program.depth = HOSTS_DEPTH;
    build_edge(b, HOSTS_GIVE, 0);
    build_edge(b, HOSTS_PARTIAL, 0);
    give_lane(b, &w);
    partial_lane(b, &w);
    finish_lane(b, &w);
    b->program.scratch = (uint16_t)w.scratch;
}
