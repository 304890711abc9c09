/*
 * Over hosts: where ranks lie, and the lanes that programs over several hosts share. Private to this room.
 *
 * Two partitions of the ranks. A *host* is the ranks that share one, in whatever order they stand. A *node* is a subtree of T, as large as
 * can be, whose ranks share a host: what one host reduces by itself without changing the order of bits. Where hosts are blocks of T the two
 * are the same; where ranks stand on hosts in turns, each rank is a node.
 */
#ifndef ALGO_HOSTS_H
#define ALGO_HOSTS_H

#include "algo/algorithms.h"

struct group_map {
    int32_t count;
    int32_t *of, *number;     /* by rank: which group, and which of its ranks */
    int32_t *start, *members; /* by group: where its ranks begin among the members; one more behind the last */
};
struct places {
    struct group_map host, node;
    int32_t *item; /* by rank: what it finishes; the rank itself, where the program says nothing else; -1: nothing */
};
/* Works out where all ranks lie; in the builder's notes. False: the builder failed. A barrier has no order: its nodes are the hosts. */
bool places_find(struct build *b, struct places *places);

static inline int32_t group_ranks(const struct group_map *g, int32_t group)
{
    return g->start[group + 1] - g->start[group];
}

static inline int32_t group_member(const struct group_map *g, int32_t group, int32_t number)
{
    return g->members[g->start[group] + number];
}

/* Who has to do with this rank on another host. */
static inline int32_t places_twin(const struct places *p, int32_t rank, int32_t host)
{
    return group_member(&p->host, host, p->host.number[rank] % group_ranks(&p->host, host));
}

/* Who reduces a node's part of what this rank finishes: itself in its own. */
static inline int32_t places_worker(const struct places *p, int32_t rank, int32_t node)
{
    if (p->node.of[rank] == node)
        return rank;
    return group_member(&p->node, node, p->host.number[rank] % group_ranks(&p->node, node));
}

/* Where T over ranks lo .. hi - 1, a subtree, falls in two. */
int32_t places_split(int32_t lo, int32_t hi, int32_t order_block);

/* ------------------------------------------------------------------------------------------------------------ counters */
/* Things that land again and again, each told by a counter of its own, but where there are many the first alone: the others then share, and
 * the next round of those that share one is asked for when all of this round are there, so that the count says which it was. */
struct landing {
    uint16_t first; /* of its counters */
    int32_t count, counters;
};
struct landing landing_of(uint16_t first, int32_t count);
/* Fills wait and bump of a VIEW that lands thing `t` and, in the other case, the wait of a step that reads it. */
void landing_view(const struct landing *l, int32_t t, struct comm_step *view);
void landing_wait(const struct landing *l, int32_t t, struct comm_step *reader);

/* ------------------------------------------------------------------------------------------------------------ parts of programs */
/* Views of all nodes' parts of this rank's item, of which a REDUCE is T over all ranks (hosts_combine.c). */
struct hosts_combine {
    const struct places *places;
    uint8_t flags;            /* STEP_CHUNKED or 0 */
    uint16_t edge, wait_mine; /* by which the others come; the counter that says when this rank's node's part is there, or 0 */
    uint32_t slot, scratch;   /* the first free view slot; the first free item of scratch, and afterwards the next */
    struct comm_ref item;     /* in IN */
    struct comm_ref mine;     /* this rank's node's part: a partial result, or the item where the rank is alone in it */
};
struct comm_ref hosts_combine(struct build *b, struct hosts_combine *combine);

/* Reducing, node by node (hosts_reduce.c). Each finisher has an item, a block or a slice, and works out T of all ranks' contributions to
 * it: in every node one rank reduces that node's part and shows it to the finisher. */
enum { HOSTS_GIVE, HOSTS_PARTIAL, HOSTS_FINISHED, HOSTS_SHOW }; /* edges */
enum {
    HOSTS_COUNT_SENT = 1,
    HOSTS_COUNT_FINISHED, /* chunks of this rank's item */
    HOSTS_COUNT_MINE,
    HOSTS_COUNT_SHOWN,
    HOSTS_COUNT_MORE, /* from here on the program's own */
    HOSTS_DEPTH = 4
};
struct hosts_reduce {
    const struct places *places;
    uint8_t unit;           /* of items: UNIT_BLOCK or UNIT_SLICE */
    struct comm_ref dst;    /* of this rank's result */
    bool counts_shown;      /* dst is memory that HOSTS_COUNT_SHOWN says is free again */
    struct comm_step after; /* an EXPOSE of the result; npeers 0: none */
};
/* Edges HOSTS_GIVE and HOSTS_PARTIAL, three lanes, scratch. */
void hosts_reduce(struct build *b, const struct hosts_reduce *reduce);

/* Showing to all (hosts_gather.c): each rank's item, where it has one, is shown to its host and to one rank on each other host, which shows
 * it there. Edges HOSTS_FINISHED and HOSTS_SHOW. The exposure of this rank's own item is in another lane, by hosts_gather_expose's peers.
 */
struct hosts_gather {
    const struct places *places;
    uint8_t unit;
    uint16_t counter; /* from here on they are its own */
};
/* Everybody who reads this rank's item: added to the peer table; how many. */
uint16_t hosts_gather_readers(struct build *b, const struct places *places, uint16_t *peers);
void hosts_gather(struct build *b, const struct hosts_gather *gather);

#endif
