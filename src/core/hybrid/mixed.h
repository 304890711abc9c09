/*
 * mixed: the wire of a world over several hosts. It consists of two other wires: the near one joins the ranks of each
 * host, the far one joins ranks of different hosts, so each pair of ranks uses exactly one of them. A communicator
 * within one host gets the near wire's channel itself. Every other communicator gets a channel that forwards each call
 * by its peer.
 *
 *   exposures  to peers of both sides become one exposure on each side. If one side had no room, that is remembered, so that a retry
 *              after AGAIN repeats nothing
 *   views      remember the channel by which they came, and are released there
 *   messages   go by their peer's side; notes go to all, by both sides
 *   calls      are published once, in the near channel's memory, from where the far channel sends them
 *   board      none, because there would be one per host. So a cause is chosen by notes, and no bytes are exposed in a peer's own memory
 *   deaths     each wire reports its own peers
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
    struct wire_boot *boot; /* among this host's ranks */
    int32_t rank, ranks;    /* rank -1: all ranks are in this process, and the near wire uses world ranks */
    int32_t *host;          /* by world rank */
    int32_t *index;         /* by world rank: its number on its host */
    int32_t *local;         /* world ranks of this rank's host, by their number on it */
    size_t bytes;
};

/* An exposure to both sides. Each side has it or not yet; a side that has it may still read it. */
enum mixed_side { MIXED_NEAR = 1, MIXED_FAR = 2, MIXED_BOTH = 3 };
struct mixed_half {
    wire_key key; /* 0: free */
    uint64_t cookie;
    uint8_t issued, pending; /* one bit per side */
    bool owed;               /* PENDING was returned, so its cookie is due */
};

struct mixed_channel {
    struct wire_channel handle;
    struct mixed_wire *w;
    struct wire_channel *near, *far;
    uint32_t rank, size, nears;
    int32_t *near_world;               /* the near wire's names of its members */
    int32_t *near_member;              /* near member -> rank of the team */
    uint16_t *to_near;                 /* rank of the team -> near member */
    bool *is_near;                     /* by rank of the team */
    uint16_t *near_peers, *far_peers;  /* for the current exposure */
    struct mixed_half *half;           /* `halves` of them */
    uint32_t halves, used, unfinished; /* used: none at or above this index is taken; unfinished: halves that one side has and the other has
                                        * not */
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
