/*
 * mixed: the wire of a world over several hosts, made of two others: the near one joins the ranks of each host, the far one ranks of
 * different hosts, so each pair of ranks has exactly one of them. A communicator within one host gets the near wire's channel and nothing
 * of this; every other gets a channel that hands each call on, by peer.
 *
 *   exposures  to peers of both sides become one on each; what one side had no room for is remembered, so that AGAIN repeats nothing
 *   views      carry the channel they came by, and are given back there
 *   messages   go by their one peer; notes to all, by both
 *   calls      are published once, in the near channel's memory, from which the far one sends them
 *   board      none: it would be one a host. So a cause is chosen by notes, and nobody is shown bytes in a peer's own memory
 *   deaths     each wire tells of its own peers
 */
#ifndef HYBRID_MIXED_H
#define HYBRID_MIXED_H

#include "base/check.h"
#include "wire/boot.h"
#include "wire/wire.h"

extern const struct wire_class wire_mixed;

struct mixed_wire {
    struct wire wire;
    const struct comm_env *env;
    struct wire *near, *far;
    struct wire_boot *boot; /* of this host's ranks */
    int32_t rank, ranks;    /* rank -1: all are here, and the near wire knows them by their world ranks */
    int32_t *host;          /* by world rank */
    int32_t *index;         /* by world rank: its number on its host */
    int32_t *local;         /* world ranks of this rank's host, by that number */
    size_t bytes;
};

/* An exposure to both sides. Each has it or has not yet, and if it has, may still read it. */
enum mixed_side { MIXED_NEAR = 1, MIXED_FAR = 2, MIXED_BOTH = 3 };
struct mixed_half {
    wire_key key; /* 0: free */
    uint64_t cookie;
    uint8_t issued, pending; /* a bit per side */
    bool owed;               /* its cookie was promised */
};

struct mixed_channel {
    struct wire_channel handle;
    struct mixed_wire *w;
    struct wire_channel *near, *far;
    uint32_t rank, size, nears;
    int32_t *near_world;               /* how the near wire knows its members */
    int32_t *near_member;              /* near member -> rank of the team */
    uint16_t *to_near;                 /* rank of the team -> near member */
    bool *is_near;                     /* by rank of the team */
    uint16_t *near_peers, *far_peers;  /* of the exposure in hand */
    struct mixed_half *half;           /* of `halves` */
    uint32_t halves, used, unfinished; /* used: none is taken from here on; unfinished: one side has it and the other has not */
    struct wire_call **calls;          /* by rank of the team */
    size_t bytes;
};

static inline struct mixed_channel *mixed_of(struct wire_channel *channel)
{
    return (struct mixed_channel *)channel;
}

/* mixed_join.c */
enum comm_result mixed_open(const struct wire_config *config, struct wire **wire);
void mixed_close(struct wire *wire);
enum comm_result mixed_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                            void *offer, struct wire_channel **channel);
void mixed_leave(struct wire_channel *channel, enum wire_leave how);

/* mixed.c */
enum wire_result mixed_reserve(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad);
enum wire_result mixed_expose(struct wire_channel *channel, const struct wire_expose *expose);
enum wire_result mixed_view(struct wire_channel *channel, const struct wire_look *look);
void mixed_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
uint32_t mixed_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max);
void mixed_flush(struct wire_channel *channel);
void mixed_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes);

#endif
