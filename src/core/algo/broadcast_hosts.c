/*
 * broadcast/hosts: n bytes leave the root's host and n reach each other host, for any placement of ranks. The buffer is
 * cut into one share for each host other than the root's, and each share into w slices, where w is the number of ranks
 * on the smallest host. Slice (i, j) goes from rank number j of the root's host to rank number j of host i, which
 * passes it on to number j of the other hosts. Inside each host, the rank that has a slice exposes it to all. So no
 * host sends more than n bytes, and the connections of w ranks of each host are in use.
 *
 *   the root   lane  for k, for each slice s:              EXPOSE in[s].k -> my host #SHOW
 *   its host   lane  for k, for each slice s:              VIEW <- root #SHOW LAND out[s].k
 *   its host's number j, also if that is the root
 *              lane  for k, for each other host i:         EXPOSE [i, j].k -> number j there #CROSS
 *   host i's number j
 *              lane  for k: VIEW <- j of the root's host #CROSS LAND out[i, j].k;
 *                           for each other host h: VIEW <- j there #PASS LAND out[h, j].k
 *              lane  for k: EXPOSE out[i, j].k -> number j of the other hosts #PASS
 *              lane  for k, for each host h other than the root's: EXPOSE out[h, j].k -> my host #SHOW
 *   host i     lane  for k, for each of my host's d < w, each h: VIEW <- d #SHOW LAND out[h, d].k
 */
#include "algo/hosts.h"

enum { EDGE_SHOW, EDGE_CROSS, EDGE_PASS };

struct spread {
    struct places p;
    struct landing landing;      /* counters of this rank's column of slices */
    int32_t home, others, width; /* the root's host; number of other hosts; ranks of a host that carry slices */
    int32_t host, here, number;  /* this rank's host, that host's ranks, this rank's number on it */
    uint16_t all_here;           /* index in the peer table of the other ranks of this host */
    bool works, at_root;
};

/* The i-th host other than the root's, from 0. */
static int32_t other_host(const struct spread *s, int32_t i)
{
    return (s->home + 1 + i) % s->p.host.count;
}

static int32_t index_of(const struct spread *s, int32_t host)
{
    return (host - s->home - 1 + s->p.host.count) % s->p.host.count;
}

static struct comm_ref slice_of(const struct spread *s, int32_t i, int32_t column)
{
    return ref_slice(s->at_root ? BUF_IN : BUF_OUT, i * s->width + column);
}

static uint16_t peer_on(struct build *b, const struct spread *s, int32_t host)
{
    return build_peer(b, group_member(&s->p.host, host, s->number));
}

static struct comm_step landing_step(uint16_t edge, uint16_t peer, struct comm_ref slice)
{
    return (struct comm_step){
        .code = STEP_VIEW, .flags = STEP_CHUNKED | STEP_LAND, .edge = edge, .peer = peer, .npeers = 1, .dst = slice, .src = slice};
}

/* ------------------------------------------------------------------------------------------------------------ on the root's host */
static void root_shows(struct build *b, const struct spread *s)
{
    int32_t slices = s->others * s->width;

    if (s->here == 1)
        return;
    build_chunks_lane(b);
    for (int32_t turn = 0; turn < slices; turn++)
        BUILD_STEP(b, .code = STEP_EXPOSE, .flags = STEP_CHUNKED | STEP_EACH, .turn = (uint16_t)turn, .turns = (uint16_t)slices,
                   .edge = EDGE_SHOW, .peer = s->all_here, .npeers = (uint16_t)(s->here - 1), .src = ref_slice(BUF_IN, turn));
    build_chunks_lane_end(b);
}

static void root_seen(struct build *b, const struct spread *s)
{
    int32_t slices = s->others * s->width;
    uint16_t root = build_peer(b, b->spec.root);

    build_chunks_lane(b);
    for (int32_t turn = 0; turn < slices; turn++) {
        struct comm_step step = landing_step(EDGE_SHOW, root, ref_slice(BUF_OUT, turn));
        step.flags |= STEP_EACH;
        step.turn = (uint16_t)turn;
        step.turns = (uint16_t)slices;
        if (s->works && turn % s->width == s->number)
            landing_view(&s->landing, turn / s->width, &step);
        build_step(b, step);
    }
    build_chunks_lane_end(b);
}

static void cross(struct build *b, const struct spread *s)
{
    build_chunks_lane(b);
    for (int32_t i = 0; i < s->others; i++) {
        struct comm_step step = {.code = STEP_EXPOSE,
                                 .flags = STEP_CHUNKED,
                                 .edge = EDGE_CROSS,
                                 .peer = peer_on(b, s, other_host(s, i)),
                                 .npeers = 1,
                                 .src = slice_of(s, i, s->number)};
        if (!s->at_root)
            landing_wait(&s->landing, i, &step);
        build_step(b, step);
    }
    build_chunks_lane_end(b);
}

/* ------------------------------------------------------------------------------------------------------------ on the other hosts */
/* The turn-th share in this host's order. Its own share is first, because it arrives first. */
static int32_t share_at(const struct spread *s, int32_t turn)
{
    return (index_of(s, s->host) + turn) % s->others;
}

static void take(struct build *b, const struct spread *s)
{
    build_chunks_lane(b);
    for (int32_t turn = 0; turn < s->others; turn++) {
        int32_t i = share_at(s, turn);
        struct comm_step step =
            landing_step(turn ? EDGE_PASS : EDGE_CROSS, peer_on(b, s, turn ? other_host(s, i) : s->home), slice_of(s, i, s->number));
        landing_view(&s->landing, turn, &step);
        build_step(b, step);
    }
    build_chunks_lane_end(b);
}

static void pass_on(struct build *b, const struct spread *s)
{
    uint16_t peers = b->program.peers;
    struct comm_step step = {.code = STEP_EXPOSE,
                             .flags = STEP_CHUNKED,
                             .edge = EDGE_PASS,
                             .peer = peers,
                             .npeers = (uint16_t)(s->others - 1),
                             .src = slice_of(s, share_at(s, 0), s->number)};

    if (s->others == 1)
        return;
    for (int32_t turn = 1; turn < s->others; turn++)
        peer_on(b, s, other_host(s, share_at(s, turn)));
    landing_wait(&s->landing, 0, &step);
    build_chunks_lane(b);
    build_step(b, step);
    build_chunks_lane_end(b);
}

static void show(struct build *b, const struct spread *s)
{
    if (s->here == 1)
        return;
    build_chunks_lane(b);
    for (int32_t turn = 0; turn < s->others; turn++) {
        struct comm_step step = {.code = STEP_EXPOSE,
                                 .flags = STEP_CHUNKED | STEP_EACH,
                                 .turn = (uint16_t)turn,
                                 .turns = (uint16_t)s->others,
                                 .edge = EDGE_SHOW,
                                 .peer = s->all_here,
                                 .npeers = (uint16_t)(s->here - 1),
                                 .src = slice_of(s, share_at(s, turn), s->number)};
        landing_wait(&s->landing, turn, &step);
        build_step(b, step);
    }
    build_chunks_lane_end(b);
}

static void look(struct build *b, const struct spread *s)
{
    if (s->works && s->width == 1)
        return; /* it is the only rank that exposes anything */
    build_chunks_lane(b);
    for (int32_t turn = 0; turn < s->others; turn++)
        for (int32_t j = 1; j < s->here; j++) {
            int32_t d = (s->number + j) % s->here;
            struct comm_step step =
                landing_step(EDGE_SHOW, (uint16_t)(s->all_here + j - 1), slice_of(s, share_at(s, turn), d < s->width ? d : 0));
            step.flags |= STEP_EACH;
            step.turn = (uint16_t)turn;
            step.turns = (uint16_t)s->others;
            if (d < s->width)
                build_step(b, step);
        }
    build_chunks_lane_end(b);
}

/* ------------------------------------------------------------------------------------------------------------ all */
static bool spread_of(struct build *b, struct spread *s)
{
    if (!places_find(b, &s->p))
        return false;
    s->home = s->p.host.of[b->spec.root];
    s->others = s->p.host.count - 1;
    s->host = s->p.host.of[b->spec.rank];
    s->here = group_ranks(&s->p.host, s->host);
    s->number = s->p.host.number[b->spec.rank];
    s->width = b->spec.size;
    for (int32_t h = 0; h < s->p.host.count; h++)
        s->width = group_ranks(&s->p.host, h) < s->width ? group_ranks(&s->p.host, h) : s->width;
    s->works = s->number < s->width;
    s->at_root = b->spec.rank == b->spec.root;
    s->landing = landing_of(1, s->others);
    s->all_here = b->program.peers;
    for (int32_t j = 1; j < s->here; j++)
        build_peer(b, group_member(&s->p.host, s->host, (s->number + j) % s->here));
    return true;
}

struct comm_program *broadcast_hosts(const struct comm_env *env, const struct program_spec *spec)
{
    struct build *b = build_begin(env, "hosts", spec);
    struct spread s = {.others = 0};
    if (!b || !spread_of(b, &s))
        return build_end(b);
    if (!s.others) { /* one host: one share, which the root exposes */
        s.others = 1;
        s.width = 1;
        s.works = false;
    }
    b->program.slices = (uint16_t)(s.others * s.width);
    b->program.chunk_unit = UNIT_SLICE;
    build_edge(b, EDGE_SHOW, WIRE_TO_ALL);
    build_edge(b, EDGE_CROSS, 0);
    build_edge(b, EDGE_PASS, WIRE_TO_ALL);
    if (s.at_root)
        root_shows(b, &s);
    else if (s.host == s.home)
        root_seen(b, &s);
    else {
        if (s.works) {
            take(b, &s);
            pass_on(b, &s);
            show(b, &s);
        }
        look(b, &s);
    }
    if (s.host == s.home && s.works)
        cross(b, &s);
    if (!b->program.lanes) { /* a single rank */
        build_lane(b);
        build_lane_end(b);
    }
    return build_end(b);
}
