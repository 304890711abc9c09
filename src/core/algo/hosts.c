/* The placement of ranks on hosts, and which subtrees of T lie on one host. It depends only on data that is equal on
 * all ranks. */
#include "algo/hosts.h"

/* ------------------------------------------------------------------------------------------------------------ hosts and subtrees */
/* For when the placement is unknown: assumes hosts of a power of two of ranks, about as many hosts as ranks on each, so
 * that the programs are correct there too. */
static int32_t assumed_block(int32_t size)
{
    int32_t block = 1;

    while (block * block < size)
        block *= 2;
    return block;
}

static int32_t host_of(const struct program_hosts *hosts, int32_t size, int32_t rank)
{
    return hosts ? hosts->of[rank] : rank / assumed_block(size);
}

int32_t places_split(int32_t lo, int32_t hi, int32_t order_block)
{
    int32_t unit = order_block && hi - lo > order_block ? order_block : 1, many = (hi - lo + unit - 1) / unit, half = 1;

    while (half * 2 < many)
        half *= 2;
    return lo + half * unit;
}

struct cutter {
    const struct program_hosts *hosts;
    int32_t size, order_block;
    int32_t nodes, longest; /* results: number of nodes, ranks of the largest */
    int32_t *of;            /* node of each rank; NULL: only count */
};

/* Numbers the nodes of a subtree, in T's order. Recurses at most as deep as T. */
static void cut(struct cutter *c, int32_t lo, int32_t hi)
{
    bool one = !c->order_block || hi - lo <= c->order_block;

    for (int32_t r = lo + 1; one && r < hi; r++)
        one = host_of(c->hosts, c->size, r) == host_of(c->hosts, c->size, lo);
    if (!one) {
        int32_t middle = places_split(lo, hi, c->order_block);
        cut(c, lo, middle);
        cut(c, middle, hi);
        return;
    }
    for (int32_t r = lo; c->of && r < hi; r++)
        c->of[r] = c->nodes;
    c->nodes++;
    c->longest = hi - lo > c->longest ? hi - lo : c->longest;
}

void algo_hosts_survey(struct program_hosts *hosts, int32_t size, int32_t order_block)
{
    struct cutter c = {.hosts = hosts, .size = size, .order_block = order_block};

    hosts->reduces = hosts->even = false;
    if (size > ALGO_HOSTS_RANKS)
        return;
    cut(&c, 0, size);
    hosts->reduces = c.nodes > 1 && c.nodes + c.longest + ALGO_HOSTS_LEVELS <= PROGRAM_VIEWS_MAX;
    hosts->even = c.nodes == hosts->count && hosts->count * hosts->longest == size;
}

/* ------------------------------------------------------------------------------------------------------------ places */
/* Derives the other arrays from `of`, by a counting sort. */
static void list_members(struct group_map *g, int32_t size)
{
    for (int32_t i = 0; i <= g->count; i++)
        g->start[i] = 0;
    for (int32_t r = 0; r < size; r++)
        g->number[r] = g->start[g->of[r] + 1]++;
    for (int32_t i = 0; i < g->count; i++)
        g->start[i + 1] += g->start[i];
    for (int32_t r = 0; r < size; r++)
        g->members[g->start[g->of[r]] + g->number[r]] = r;
}

static int32_t *take(int32_t **notes, int32_t count)
{
    int32_t *at = *notes;
    *notes += count;
    return at;
}

static struct group_map map_of(int32_t **notes, int32_t size)
{
    return (struct group_map){
        .of = take(notes, size), .number = take(notes, size), .start = take(notes, size + 1), .members = take(notes, size)};
}

bool places_find(struct build *b, struct places *places)
{
    int32_t size = b->spec.size;
    int32_t *notes = build_notes(b, sizeof *notes * (2 * (4 * (size_t)size + 1) + (size_t)size));
    struct cutter cutter = {.hosts = b->spec.hosts, .size = size, .order_block = b->spec.block};

    if (!notes)
        return false;
    places->host = map_of(&notes, size);
    places->node = map_of(&notes, size);
    places->item = take(&notes, size);
    for (int32_t r = 0; r < size; r++) {
        int32_t host = places->host.of[r] = host_of(b->spec.hosts, size, r);
        places->host.count = host >= places->host.count ? host + 1 : places->host.count;
        places->item[r] = r;
    }
    list_members(&places->host, size);
    if (b->spec.collective == COLLECTIVE_BARRIER) {
        places->node = places->host;
        return true;
    }
    cutter.of = places->node.of;
    cut(&cutter, 0, size);
    places->node.count = cutter.nodes;
    list_members(&places->node, size);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ counters */
struct landing landing_of(uint16_t first, int32_t count)
{
    int32_t room = PROGRAM_COUNTERS - first;
    return (struct landing){.first = first, .count = count, .counters = count < room ? count : room};
}

/* Thing 0 never shares its counter: its readers must not wait for things that depend on it. */
static int32_t counter_of(const struct landing *l, int32_t t)
{
    return t ? 1 + (t - 1) % (l->counters - 1) : 0;
}

/* How many things share the counter of thing t. */
static int32_t sharers(const struct landing *l, int32_t t)
{
    return t ? (l->count - 1 - (t - 1) % (l->counters - 1) + l->counters - 2) / (l->counters - 1) : 1;
}

void landing_view(const struct landing *l, int32_t t, struct comm_step *view)
{
    view->wait = view->bump = (uint16_t)(l->first + counter_of(l, t));
    view->need = 0;
    view->need_inner = sharers(l, t);
}

void landing_wait(const struct landing *l, int32_t t, struct comm_step *reader)
{
    reader->wait = (uint16_t)(l->first + counter_of(l, t));
    reader->need = reader->need_inner = sharers(l, t);
}
