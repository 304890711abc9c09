/*
 * Over hosts: each byte crosses the network once in each direction that it must, and every rank of a host has its part of it.
 *
 * Hosts are blocks of T, so what a host reduces is a subtree. Block 0 is cut into hosts x width slices, where width is how many ranks every
 * host has at least; the rank with number j on host h is to finish slice (h, j), and on its own host works on column j: the slices (i, j)
 * of all hosts i. Its twins are the ranks with number j on other hosts.
 *
 *   lane 0  for k, for each host i, each column d but mine:    EXPOSE in[i, d].k -> its rank here #0
 *   lane 1  for k, for each other host i:  VIEW v <- all here #0;  REDUCE t[i] = T(v);  RELEASE v;  EXPOSE t[i] -> twin i #1
 *                  and for mine:           VIEW v <- all here #0;  REDUCE mine[k] = T(v);  RELEASE v
 *   lane 2  for k: VIEW w <- twins #1 (own = mine[k]);  REDUCE out[h, j].k = T(w) FINAL;  RELEASE w;  EXPOSE out[h, j].k -> twins #2
 *   lane 3  for k, for each other host i:  VIEW <- twin i #2 LAND out[i, j].k
 *   lane 4  for k, for each host i:        EXPOSE out[i, j].k -> all here #3
 *   lane 5  for k, for each host i, each column d but mine:    VIEW <- its rank here #3 LAND out[i, d].k
 *
 * So a host sends n (H - 1) / H of partial results and as much of finished ones, and receives as much: what any allreduce of H hosts must.
 * Ranks beyond the width only give and take (lanes 0 and 5). Own hosts come last, since twins wait for theirs.
 *
 * In place: a slice of out is written when the rank that finished it had this rank's part of it, or by that rank itself.
 */
#include "algo/algo.h"

#include "algo/algorithms.h"

enum { EDGE_GIVE, EDGE_PARTIAL, EDGE_FINISHED, EDGE_SHOW, DEPTH = 4, COUNT_SENT = 1, COUNT_FINISHED, COUNT_MINE, COUNT_LANDED };

bool algo_hosts_fit(const struct program_hosts *hosts, int32_t size, int32_t order_block)
{
    int32_t block = hosts ? hosts->block : 0;
    bool subtrees = order_block ? block == order_block : block && !(block & (block - 1));

    return subtrees && hosts->count > 1 && hosts->count <= ALGO_HOSTS_MAX && block + hosts->count <= PROGRAM_VIEWS_MAX &&
           size <= ALGO_HOSTS_RANKS;
}

/* Where ranks lie, as this rank sees it. */
struct layout {
    int32_t hosts, block, width; /* ranks of a host but the last; of the last */
    int32_t host, number, here;  /* this rank's; how many ranks its host has */
    uint16_t all_here, others_here, twins, all_twins;
};

/* Not said, or not blocks of T: in blocks of a power of two, about as many as each has ranks. */
static int32_t block_of(const struct program_spec *spec)
{
    int32_t block = 1;

    if (spec->hosts)
        return spec->hosts->block;
    while (block * block < spec->size || block * ALGO_HOSTS_MAX < spec->size)
        block *= 2;
    return block;
}

static struct layout layout_of(struct build *b)
{
    struct layout l = {.block = block_of(&b->spec)};
    int32_t size = b->spec.size, rank = b->spec.rank, first = rank / l.block * l.block;

    l.hosts = (size + l.block - 1) / l.block;
    l.width = size - (l.hosts - 1) * l.block;
    l.host = rank / l.block;
    l.number = rank - first;
    l.here = size - first < l.block ? size - first : l.block;
    l.all_here = build_peers(b, first, l.here);
    l.others_here = b->program.peers;
    for (int32_t j = 1; j < l.here; j++)
        build_peer(b, first + (l.number + j) % l.here);
    l.all_twins = b->program.peers;
    for (int32_t i = 0; i < l.hosts && l.number < l.width; i++)
        build_peer(b, i * l.block + l.number);
    l.twins = b->program.peers;
    for (int32_t i = 1; i < l.hosts && l.number < l.width; i++)
        build_peer(b, (l.host + i) % l.hosts * l.block + l.number);
    return l;
}

/* The turn-th host in this rank's order, of which the last is its own. */
static int32_t host_at(const struct layout *l, int32_t turn)
{
    return (l->host + 1 + turn) % l->hosts;
}

static struct comm_ref slice_of(const struct layout *l, uint8_t buf, int32_t host, int32_t column)
{
    return ref_slice(buf, host * l->width + column);
}

/* The d-th of the others here works on a column, which is its number. -1: it does not. */
static int32_t column_of(const struct layout *l, int32_t d)
{
    int32_t number = (l->number + 1 + d) % l->here;

    return number < l->width ? number : -1;
}

/* ------------------------------------------------------------------------------------------------------------ inside the host */
static void give_lane(struct build *b, const struct layout *l)
{
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; turn < l->hosts; turn++)
        for (int32_t d = 0; d < l->here - 1; d++)
            if (column_of(l, d) >= 0)
                BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_EACH, .turn = (uint32_t)turn, .edge = EDGE_GIVE,
                           .peer = (uint16_t)(l->others_here + d), .npeers = 1,
                           .src = slice_of(l, BUF_IN, host_at(l, turn), column_of(l, d)));
    build_loop_end(b);
    build_lane_end(b);
}

static void take_lane(struct build *b, const struct layout *l)
{
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; turn < l->hosts; turn++)
        for (int32_t d = 0; d < l->here - 1; d++) {
            struct comm_ref slice = slice_of(l, BUF_OUT, host_at(l, turn), column_of(l, d));
            if (column_of(l, d) >= 0)
                BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_EACH | STEP_LAND, .turn = (uint32_t)turn, .edge = EDGE_SHOW,
                           .peer = (uint16_t)(l->others_here + d), .npeers = 1, .dst = slice, .src = slice);
        }
    build_loop_end(b);
    build_lane_end(b);
}

static void show_lane(struct build *b, const struct layout *l)
{
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; turn < l->hosts; turn++) {
        bool own = turn == l->hosts - 1;
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_EACH, .turn = (uint32_t)turn, .edge = EDGE_SHOW,
                   .peer = l->others_here, .npeers = (uint16_t)(l->here - 1),
                   .wait = (uint16_t)(own ? COUNT_FINISHED : COUNT_LANDED + turn), .need = 1, .need_inner = 1,
                   .src = slice_of(l, BUF_OUT, host_at(l, turn), l->number));
    }
    build_loop_end(b);
    build_lane_end(b);
}

/* Everybody's part here of one slice of this rank's column. */
static void reduce_here(struct build *b, const struct layout *l, int32_t turn, struct comm_step reduce)
{
    struct comm_ref own = slice_of(l, BUF_IN, host_at(l, turn), l->number);

    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_EACH, .turn = (uint32_t)turn, .edge = EDGE_GIVE, .peer = l->all_here,
               .npeers = (uint16_t)l->here, .dst = ref_views(0, (uint32_t)l->here), .src = own);
    reduce.code = STEP_REDUCE;
    reduce.flags = STEP_CHUNKED;
    reduce.src = ref_views(0, (uint32_t)l->here);
    build_step(b, reduce);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = ref_views(0, (uint32_t)l->here));
}

static struct comm_ref mine_of(const struct layout *l)
{
    struct comm_ref ref = ref_partial(ref_scratch((uint32_t)l->hosts - 1, slice_of(l, BUF_IN, l->host, l->number)));

    ref.inner = 1;
    return ref;
}

static void partial_lane(struct build *b, const struct layout *l)
{
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; turn < l->hosts - 1; turn++) {
        struct comm_ref to = ref_partial(ref_scratch((uint32_t)turn, slice_of(l, BUF_IN, host_at(l, turn), l->number)));
        /* All that were sent before: they may be gone in another order. */
        reduce_here(b, l, turn, (struct comm_step){.wait = COUNT_SENT, .need_inner = l->hosts - 1, .dst = to});
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = EDGE_PARTIAL, .peer = (uint16_t)(l->twins + turn), .npeers = 1,
                   .bump = COUNT_SENT, .src = to);
    }
    reduce_here(b, l, l->hosts - 1,
                (struct comm_step){.wait = COUNT_FINISHED, .need = 1 - DEPTH, .need_inner = 1, .bump = COUNT_MINE, .dst = mine_of(l)});
    build_loop_end(b);
    build_lane_end(b);
}

/* ------------------------------------------------------------------------------------------------------------ across */
static void finish_lane(struct build *b, const struct layout *l)
{
    struct comm_ref views = ref_views((uint32_t)l->here, (uint32_t)l->hosts), out = slice_of(l, BUF_OUT, l->host, l->number);

    build_lane(b);
    build_loop_chunks(b);
    BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED, .edge = EDGE_PARTIAL, .peer = l->all_twins, .npeers = (uint16_t)l->hosts,
               .dst = views, .src = mine_of(l));
    BUILD_STEP(b, .code = STEP_REDUCE, .flags = STEP_CHUNKED | STEP_FINAL, .wait = COUNT_MINE, .need = 1, .need_inner = 1,
               .bump = COUNT_FINISHED, .dst = out, .src = views);
    BUILD_STEP(b, .code = STEP_RELEASE, .flags = STEP_CHUNKED, .src = views);
    if (l->hosts > 1)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED, .edge = EDGE_FINISHED, .peer = l->twins,
                   .npeers = (uint16_t)(l->hosts - 1), .src = out);
    build_loop_end(b);
    build_lane_end(b);
}

/* One view at a time from each twin: then their count says which landed. */
static void land_twins_lane(struct build *b, const struct layout *l)
{
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; turn < l->hosts - 1; turn++) {
        struct comm_ref slice = slice_of(l, BUF_OUT, host_at(l, turn), l->number);
        uint16_t landed = (uint16_t)(COUNT_LANDED + turn);
        BUILD_STEP(b, .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = EDGE_FINISHED, .peer = (uint16_t)(l->twins + turn),
                   .npeers = 1, .wait = landed, .need_inner = 1, .bump = landed, .dst = slice, .src = slice);
    }
    build_loop_end(b);
    build_lane_end(b);
}

struct comm_program *allreduce_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    if (!b)
        return NULL;
    struct layout l = layout_of(b);
    bool works = l.number<l.width, company = l.here> 1 && l.width > works;
    b->program.slices = (uint16_t)(l.hosts * l.width);
    b->program.chunk_unit = UNIT_SLICE;
    b->program.wide = 1;
    b->program.turns = (uint16_t)l.hosts;
    b->program.depth = DEPTH;
    b->program.scratch = (uint16_t)(l.hosts - 1 + DEPTH);
    build_edge(b, EDGE_GIVE, 0);
    build_edge(b, EDGE_PARTIAL, 0);
    build_edge(b, EDGE_FINISHED, WIRE_TO_ALL);
    build_edge(b, EDGE_SHOW, WIRE_TO_ALL);
    if (company)
        give_lane(b, &l);
    if (works)
        partial_lane(b, &l);
    if (works)
        finish_lane(b, &l);
    if (works && l.hosts > 1)
        land_twins_lane(b, &l);
    if (works && l.here > 1)
        show_lane(b, &l);
    if (company)
        take_lane(b, &l);
    return build_end(b);
}
