/* Every builder of this room, and the one piece that they share. Private: others go through the table. */
#ifndef ALGO_ALGORITHMS_H
#define ALGO_ALGORITHMS_H

#include "program/build.h"

enum {
    ALGO_GROUP = 16,           /* ranks whose contributions are viewed at once: a power of two, so that groups are subtrees */
    ALGO_RANKS_MAX = 65535,    /* entries of a peer table, for who has everyone in it */
    ALGO_RANKS_WIDE = 1 << 20, /* one edge a level; the programs are there, though no wire has so many ranks yet */
    ALGO_TREE_RANKS = 256,     /* groups of groups: view slots for one group and for one partial result of each */
    ALGO_WHOLE_RANKS = 64,     /* views of everybody at once */
    ALGO_SCAN_RANKS = 62,      /* the same, and a pair beside them */
    ALGO_HOSTS_RANKS = 384,    /* of several hosts: each has a slice, and steps for most others */
    ALGO_HOSTS_LEVELS = 10,    /* view slots where T over unequal parts goes by halves: two a level */
    ALGO_THROTTLE = 3,         /* lanes that give or take blocks of pairs: as many as there are edges for streams, but for one */
    ALGO_BRIEF_RANKS = 4,      /* more would need more ONCE edges, for each of which every channel has lines */
    ALGO_EACH_RANKS = 1024     /* of a line for each reader, which only who shows has */
};

/* Every builder that has a row. */
#define ROW(collective, name, ranks_min, ranks_max, bound, build, flags, help) program_build_fn build;
#include "algo/rows.def"
#undef ROW

/* VIEW what every rank contributes and REDUCE it in T's order, FINAL: at once up to ALGO_GROUP ranks, above in aligned groups whose partial
 * results lie in the first scratch items. Needs tree_scratch items; leaves nothing viewed when `release`. */
struct tree {
    uint16_t edge;  /* by which the others' contributions come */
    uint16_t peers; /* where the peer table has ranks 0 .. size - 1 */
    uint8_t flags;  /* STEP_CHUNKED or 0 */
    uint8_t tee;    /* STEP_TEE or 0: an EXPOSE of dst follows */
    uint16_t wait;  /* of the last REDUCE */
    int32_t need, need_inner;
    struct comm_ref own; /* this rank's contribution, as long as everyone's */
    struct comm_ref dst;
    bool release;
};
uint16_t tree_scratch(const struct program_spec *spec);
void tree_reduce(struct build *b, const struct tree *tree);

/* A lane that shows each other rank what it will reduce: chunk by chunk, `next` and the items behind it, one to each of `others`, on edge
 * 0. */
void scatter_lane(struct build *b, struct comm_ref next, uint16_t others);
/* A lane that lands what the others show to all on a stream or line: `next` and the items behind it, one from each of `others`. */
void land_lane(struct build *b, uint16_t edge, struct comm_ref next, uint16_t others);

/* Streams between pairs (throttled.c): edges first; then the lanes that give IN's or take OUT's blocks of all others, in the order of
 * first + direction * d, or one block to or from one rank. */
void throttled_edges(struct build *b);
void throttled_expose(struct build *b, int32_t first, int32_t direction);
void throttled_land(struct build *b, int32_t first, int32_t direction);
void throttled_expose_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block); /* ahead: how far, of the root */
void throttled_land_one(struct build *b, int32_t ahead, int32_t rank, struct comm_ref block);
/* How long blocks may be that go by ONCE edges, 0: there are none; of which kind the edges are, and that of two ranks so far apart. */
uint32_t throttled_brief_bytes(uint32_t collective, int32_t size);
uint8_t throttled_brief_kind(uint32_t collective, int32_t size);
uint16_t throttled_brief_edge(uint32_t collective, int32_t size, int32_t apart);
uint16_t pairs_edge(int32_t apart); /* pairs.c: of two ranks so far apart */

/* Ranks in a circle: behind the last comes the first. */
static inline int32_t algo_wrap(const struct build *b, int32_t rank)
{
    return ((rank % b->spec.size) + b->spec.size) % b->spec.size;
}

/* Fills in what such hosts are for reductions (hosts.c). */
void algo_hosts_survey(struct program_hosts *hosts, int32_t size, int32_t order_block);

#endif
