/*
 * Distributes every rank's item to all ranks, over hosts: the common part of allgather and the second half of
 * allreduce. A rank's twins are one rank on each other host, which expose its item there. So an item crosses to each
 * host once, and all ranks of a host receive about equally many.
 *
 *   (another lane)  for k: EXPOSE item[me].k -> my host, my twins #FINISHED
 *   lane 0  for k: VIEW <- each rank x of my host #FINISHED LAND out[x].k;  VIEW <- each x whose twin here I am #FINISHED LAND out[x].k
 *   lane 1  for k, for each x whose twin here I am:          EXPOSE out[x].k -> my host #SHOW
 *   lane 2  for k, for each x whose twin d of my host is:    VIEW <- d #SHOW LAND out[x].k
 */
#include "algo/hosts.h"

static struct comm_ref item_of(const struct hosts_gather *g, uint8_t buf, int32_t rank)
{
    int32_t item = g->places->item[rank];

    return g->unit == UNIT_SLICE ? ref_slice(buf, item) : ref_block(buf, item);
}

static uint16_t add_host(struct build *b, const struct places *p)
{
    int32_t host = p->host.of[b->spec.rank], here = group_ranks(&p->host, host), number = p->host.number[b->spec.rank];

    for (int32_t j = 1; j < here; j++)
        build_peer(b, group_member(&p->host, host, (number + j) % here));
    return (uint16_t)(here - 1);
}

uint16_t hosts_gather_readers(struct build *b, const struct places *p, uint16_t *peers)
{
    int32_t host = p->host.of[b->spec.rank];

    *peers = b->program.peers;
    add_host(b, p);
    for (int32_t i = 1; i < p->host.count; i++)
        build_peer(b, places_twin(p, b->spec.rank, (host + i) % p->host.count));
    return (uint16_t)(b->program.peers - *peers);
}

/* The next rank behind x that has an item and whose twin on this host is `rank`; -1: no more. The hosts behind this one
 * come first, so that not all ranks read from the same one at once. Begin with x = -1. */
static int32_t next_guest(const struct places *p, int32_t rank, int32_t x)
{
    int32_t size = p->host.start[p->host.count], host = p->host.of[rank], from = p->host.start[host];
    /* Positions in the list of members, in a circle that begins behind this host. */
    int32_t at = x < 0 ? from + group_ranks(&p->host, host) : p->host.start[p->host.of[x]] + p->host.number[x] + 1;

    for (;; at++) {
        int32_t guest = p->host.members[at % size];
        if (p->host.of[guest] == host)
            return -1;
        if (p->item[guest] >= 0 && places_twin(p, guest, host) == rank)
            return guest;
    }
}

static int32_t count_guests(const struct places *p, int32_t rank)
{
    int32_t count = 0;

    for (int32_t x = next_guest(p, rank, -1); x >= 0; x = next_guest(p, rank, x))
        count++;
    return count;
}

static void land(struct build *b, const struct hosts_gather *g, uint16_t edge, int32_t from, int32_t whose, struct comm_step step)
{
    step.code = STEP_VIEW;
    step.flags |= STEP_CHUNKED | STEP_LAND;
    step.edge = edge;
    step.peer = build_peer(b, from);
    step.npeers = 1;
    step.dst = step.src = item_of(g, BUF_OUT, whose);
    build_step(b, step);
}

static void take_lane(struct build *b, const struct hosts_gather *g, const struct landing *landing)
{
    const struct places *p = g->places;
    int32_t rank = b->spec.rank, host = p->host.of[rank], here = group_ranks(&p->host, host), t = 0;

    build_lane(b);
    build_loop_chunks(b);
    for (int32_t j = 1; j < here; j++) {
        int32_t from = group_member(&p->host, host, (p->host.number[rank] + j) % here);
        if (p->item[from] >= 0)
            land(b, g, HOSTS_FINISHED, from, from, (struct comm_step){.code = STEP_VIEW});
    }
    for (int32_t x = next_guest(p, rank, -1); x >= 0; x = next_guest(p, rank, x)) {
        struct comm_step step = {.code = STEP_VIEW};
        landing_view(landing, t++, &step);
        land(b, g, HOSTS_FINISHED, x, x, step);
    }
    build_loop_end(b);
    build_lane_end(b);
}

static void show_lane(struct build *b, const struct hosts_gather *g, const struct landing *landing)
{
    uint16_t peers = b->program.peers, count = add_host(b, g->places);
    int32_t t = 0;

    if (!count || !landing->count)
        return;
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t x = next_guest(g->places, b->spec.rank, -1); x >= 0; x = next_guest(g->places, b->spec.rank, x), t++) {
        struct comm_step step = {.code = STEP_EXPOSE,
                                 .flags = STEP_CHUNKED | STEP_EACH,
                                 .turn = (uint16_t)t,
                                 .turns = (uint16_t)landing->count,
                                 .edge = HOSTS_SHOW,
                                 .peer = peers,
                                 .npeers = count,
                                 .src = item_of(g, BUF_OUT, x)};
        landing_wait(landing, t, &step);
        build_step(b, step);
    }
    build_loop_end(b);
    build_lane_end(b);
}

static void look_lane(struct build *b, const struct hosts_gather *g)
{
    const struct places *p = g->places;
    int32_t rank = b->spec.rank, host = p->host.of[rank], here = group_ranks(&p->host, host);
    bool more = true;

    if (here == 1)
        return;
    build_lane(b);
    build_loop_chunks(b);
    for (int32_t turn = 0; more; turn++) { /* Every peer's first item, then every peer's second: a later item of one peer must not block the
                                            * next item of another. */
        more = false;
        for (int32_t j = 1; j < here; j++) {
            int32_t d = group_member(&p->host, host, (p->host.number[rank] + j) % here), turns = count_guests(p, d), x = -1;
            more |= turn + 1 < turns;
            for (int32_t i = 0; i <= turn && turn < turns; i++)
                x = next_guest(p, d, x);
            if (x >= 0)
                land(b, g, HOSTS_SHOW, d, x, (struct comm_step){.flags = STEP_EACH, .turn = (uint16_t)turn, .turns = (uint16_t)turns});
        }
    }
    build_loop_end(b);
    build_lane_end(b);
}

void hosts_gather(struct build *b, const struct hosts_gather *g)
{
    struct landing landing = landing_of(g->counter, count_guests(g->places, b->spec.rank));

    build_edge(b, HOSTS_FINISHED, WIRE_TO_ALL);
    build_edge(b, HOSTS_SHOW, WIRE_TO_ALL);
    if (b->spec.size == 1)
        return;
    take_lane(b, g, &landing);
    if (g->places->host.count > 1) {
        show_lane(b, g, &landing);
        look_lane(b, g);
    }
}
