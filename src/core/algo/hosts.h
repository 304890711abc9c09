/*
 * Programs over several hosts: where ranks lie, and the lanes that these programs share. Private to this room.
 *
 * There are two partitions of the ranks. A *host* is all ranks on one machine, in whatever order they are numbered. A
 * *node* is a subtree of T, as large as possible, whose ranks share a host: the ranks that one host can reduce by
 * itself without changing the result's bits. If each host is a block of consecutive ranks that is a subtree of T, hosts
 * and nodes are the same. If ranks are dealt to hosts in turn, each rank is a node.
 */
#ifndef ALGO_HOSTS_H
#define ALGO_HOSTS_H

#include "algo/algorithms.h"

struct group_map {
    int32_t count;
    int32_t *of, *number;     /* by rank: its group, and its number in that group */
    int32_t *start, *members; /* start: by group, where its ranks begin in `members`, and one entry more for the end */
};
struct places {
    struct group_map host, node;
    int32_t *item; /* by rank: the item that it finishes. By default the rank itself; -1: none */
};
/* Computes where all ranks lie, in the builder's notes. False: the builder failed. A barrier has no order, so its nodes
 * are the hosts. */
bool places_find(struct build *b, struct places *places);

static inline int32_t group_ranks(const struct group_map *g, int32_t group)
{
    return g->start[group + 1] - g->start[group];
}

static inline int32_t group_member(const struct group_map *g, int32_t group, int32_t number)
{
    return g->members[g->start[group] + number];
}

/* The rank's counterpart on another host. */
static inline int32_t places_twin(const struct places *p, int32_t rank, int32_t host)
{
    return group_member(&p->host, host, p->host.number[rank] % group_ranks(&p->host, host));
}

/* The rank that reduces a node's part of this rank's item; in its own node that is the rank itself. */
static inline int32_t places_worker(const struct places *p, int32_t rank, int32_t node)
{
    if (p->node.of[rank] == node)
        return rank;
    return group_member(&p->node, node, p->host.number[rank] % group_ranks(&p->node, node));
}

/* Where T splits ranks lo .. hi - 1, a subtree, into two. */
int32_t places_split(int32_t lo, int32_t hi, int32_t order_block);

/* ------------------------------------------------------------------------------------------------------------ counters */
/* Counters for things that arrive again in each round. Each thing has a counter of its own. If there are too few
 * counters, only the first thing has, and the others share. A shared counter's next round is requested only when all of
 * this round have arrived, so that the count tells the round. */
struct landing {
    uint16_t first; /* the first of its counters */
    int32_t count, counters;
};
struct landing landing_of(uint16_t first, int32_t count);
/* landing_view sets wait and bump of a VIEW that receives thing `t`; landing_wait sets the wait of a step that reads
 * it. */
void landing_view(const struct landing *l, int32_t t, struct comm_step *view);
void landing_wait(const struct landing *l, int32_t t, struct comm_step *reader);

/* ------------------------------------------------------------------------------------------------------------ parts of programs */
/* Views the parts of this rank's item from all nodes; a REDUCE of these views is T over all ranks (hosts_combine.c). */
struct hosts_combine {
    const struct places *places;
    uint8_t flags;            /* STEP_CHUNKED or 0 */
    uint16_t edge, wait_mine; /* edge: over which the other parts come; wait_mine: counter that says when the part of this rank's node is
                               * ready, or 0 */
    uint32_t slot, scratch;   /* slot: first free view slot; scratch: first free scratch item, updated by the call */
    struct comm_ref item;     /* in IN */
    struct comm_ref mine;     /* the part of this rank's node: a partial result, or the item itself if the rank is alone in the node */
};
struct comm_ref hosts_combine(struct build *b, struct hosts_combine *combine);

/* Reduces node by node (hosts_reduce.c). Each finishing rank has an item, a block or a slice, and computes T of all
 * ranks' contributions to it. In every node one rank reduces that node's part and exposes it to the finishing rank. */
enum { HOSTS_GIVE, HOSTS_PARTIAL, HOSTS_FINISHED, HOSTS_SHOW }; /* edges */
enum {
    HOSTS_COUNT_SENT = 1,
    HOSTS_COUNT_FINISHED, /* chunks of this rank's item */
    HOSTS_COUNT_MINE,
    HOSTS_COUNT_SHOWN,
    HOSTS_COUNT_MORE, /* from here on, counters of the program itself */
    HOSTS_DEPTH = 4
};
struct hosts_reduce {
    const struct places *places;
    uint8_t unit;           /* of items: UNIT_BLOCK or UNIT_SLICE */
    struct comm_ref dst;    /* where this rank's result goes */
    bool counts_shown;      /* dst is memory that is free again when HOSTS_COUNT_SHOWN says so */
    struct comm_step after; /* an EXPOSE of the result that follows; npeers 0: none */
};
/* Adds edges HOSTS_GIVE and HOSTS_PARTIAL, three lanes and scratch. */
void hosts_reduce(struct build *b, const struct hosts_reduce *reduce);

/* Distributes items to all ranks (hosts_gather.c). The item of each rank that has one is exposed to its own host and to
 * one rank on each other host, which exposes it there. Adds edges HOSTS_FINISHED and HOSTS_SHOW. The caller exposes
 * this rank's own item in another lane, to the peers from hosts_gather_readers. */
struct hosts_gather {
    const struct places *places;
    uint8_t unit;
    uint16_t counter; /* the first of its counters */
};
/* Adds all direct readers of this rank's item to the peer table; returns their number. */
uint16_t hosts_gather_readers(struct build *b, const struct places *places, uint16_t *peers);
void hosts_gather(struct build *b, const struct hosts_gather *gather);

#endif
