/* All builders of this room, and the parts that they share. Private: other rooms use the table of algorithms. */
#ifndef ALGO_ALGORITHMS_H
#define ALGO_ALGORITHMS_H

#include "program/build.h"

enum {
    ALGO_GROUP = 16,           /* ranks whose contributions are viewed at once; a power of two, so that each group is a subtree of T */
    ALGO_RANKS_MAX = 65535,    /* entries of a peer table, for algorithms in which one rank's table has all ranks */
    ALGO_RANKS_WIDE = 1 << 20, /* for one edge per level: the programs exist, though no wire supports so many ranks yet */
    ALGO_TREE_RANKS = 256,     /* groups of groups: view slots for one group and for one partial result of each group */
    ALGO_WHOLE_RANKS = 64,     /* views of all ranks at once */
    ALGO_SCAN_RANKS = 62,      /* the same, and two more view slots */
    ALGO_HOSTS_RANKS = 384,    /* ranks over several hosts: each has a slice, and steps for most others */
    ALGO_HOSTS_LEVELS = 10,    /* view slots where T over unequal parts is computed by halves: two per level */
    ALGO_THROTTLE = 3,         /* lanes that send or receive blocks of pairs: one less than there are edges for streams */
    ALGO_BRIEF_RANKS = 4,      /* more ranks would need more ONCE edges, and every channel has lines for each of them */
    ALGO_EACH_RANKS = 1024     /* readers of an edge with a line for each reader; only the exposing rank has these lines */
};

/* The builder of each row of the table. */
#define ROW(collective, name, ranks_min, ranks_max, bound, build, flags, help) program_build_fn build;
#include "algo/rows.def"
#undef ROW

/* VIEWs the contributions of all ranks and REDUCEs them in T's order, FINAL. Up to ALGO_GROUP ranks this is one step.
 * Above that, aligned groups are reduced first, and their partial results lie in the first scratch items. Needs
 * tree_scratch items. If `release`, no view is held afterwards. */
struct tree {
    uint16_t edge;  /* over which the contributions of the other ranks come */
    uint16_t peers; /* where ranks 0 .. size - 1 begin in the peer table */
    uint8_t flags;  /* STEP_CHUNKED or 0 */
    uint8_t tee;    /* STEP_TEE if an EXPOSE of dst follows (tree_tee), or 0 */
    uint16_t wait;  /* counter that the last REDUCE waits for */
    int32_t need, need_inner;
    struct comm_ref own; /* this rank's contribution, as long as that of each other rank */
    struct comm_ref dst;
    bool release;
};
uint16_t tree_scratch(const struct program_spec *spec);
/* For a result that each other rank lands, of contributions on the edge before, a private stream: for two ranks it may be an answer. */
uint8_t tree_tee(const struct build *b);
void tree_reduce(struct build *b, const struct tree *tree);

/* A lane that exposes to each other rank what that rank will reduce, chunk by chunk: `next` and the items behind it,
 * one to each of `others`, on edge 0. */
void scatter_lane(struct build *b, struct comm_ref next, uint16_t others);
/* A lane that copies what the other ranks expose to all, on a stream or a ONCE edge: into `next` and the items behind
 * it, one from each of `others`. */
void land_lane(struct build *b, uint16_t edge, struct comm_ref next, uint16_t others);

/* Streams between pairs (throttled.c). First the edges; then the lanes that send IN's blocks to all others, or receive
 * OUT's from them, in the order of first + direction * d; or one block to or from one rank. */
void throttled_edges(struct build *b);
void throttled_expose(struct build *b, int32_t first, int32_t direction);
void throttled_land(struct build *b, int32_t first, int32_t direction);
void throttled_expose_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block); /* ahead: distance from the root */
void throttled_land_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block);
/* The longest block that goes by ONCE edges (0: there are no such edges), the kind of these edges, and the edge of two
 * ranks at this distance. */
uint32_t throttled_brief_bytes(uint32_t collective, int32_t size);
uint8_t throttled_brief_kind(uint32_t collective, int32_t size);
uint16_t throttled_brief_edge(uint32_t collective, int32_t size, int32_t apart);
uint16_t pairs_edge(int32_t apart); /* pairs.c: the edge of two ranks at this distance */

/* The rank modulo the number of ranks: rank 0 follows the last rank. */
static inline int32_t algo_wrap(const struct build *b, int32_t rank)
{
    return ((rank % b->spec.size) + b->spec.size) % b->spec.size;
}

/* Computes what reductions can do with this placement of ranks on hosts (hosts.c). */
void algo_hosts_survey(struct program_hosts *hosts, int32_t size, int32_t order_block);

#endif
