/*
 * The nodes of a message room: one for each posted operation and each early arrival. Blocks double in size and never move, so the wire may
 * keep the address of a node. A free node is reused before a block is added, so nothing is allocated below the high-water mark. A node's
 * generation changes each time it is freed, so that a late event for an earlier use of the node is recognised. This file knows nothing of
 * matching.
 */
#ifndef MESSAGE_POOL_H
#define MESSAGE_POOL_H

#include "message/message.h"

enum { MESSAGE_POOL_FIRST_NODES = 64, MESSAGE_POOL_BLOCKS_MAX = 24 };

enum message_state {
    MESSAGE_FREE = 0,
    MESSAGE_POSTED,   /* a receive without an arrival */
    MESSAGE_EARLY,    /* an arrival without a receive */
    MESSAGE_UNTAKEN,  /* an arrival that belongs to the library and was not taken yet */
    MESSAGE_SELF,     /* a send to this rank without a receive: an arrival whose bytes are in the sender's buffer */
    MESSAGE_STALLED,  /* a send, or a matched receive, for which the wire had no room */
    MESSAGE_WIRED,    /* the wire has it; an event with its cookie will follow */
    MESSAGE_FINISHED, /* its result was not taken yet */
};

struct message_link {
    struct message_link *next, *before;
};

struct message_node {
    struct message_link near;  /* in a bucket, or in the list of wildcard receives */
    struct message_link line;  /* in the list of all posted receives or of all arrivals, oldest first */
    struct message_node *next; /* in one queue: free, stalled or finished */
    uint64_t order;            /* sequence number of its posting */
    wire_key key;
    void *buf;
    size_t bytes;         /* length of a send, capacity of a receive */
    size_t arrived_bytes; /* length of the message that arrived */
    struct comm_status *status;
    _Atomic uint64_t *moved; /* as in message_call */
    struct wire_span span;   /* the bytes that a send exposes; must not move while the wire may read it */
    int32_t peer;            /* as requested; after a match, the actual sender */
    uint32_t tag;
    uint32_t slot;
    uint32_t index, generation;
    enum comm_result result;
    uint16_t wire_peer; /* peer, in the type that the wire reads */
    uint8_t state, kind;
    bool is_send;
};

struct message_pool {
    const struct comm_env *env;
    struct message_node *block[MESSAGE_POOL_BLOCKS_MAX];
    struct message_node *free;
    uint32_t blocks, nodes; /* nodes: the total over all blocks */
};

/* NULL: no memory. */
struct message_node *message_pool_take(struct message_pool *pool);
void message_pool_give(struct message_pool *pool, struct message_node *node);
struct message_node *message_pool_at(const struct message_pool *pool, uint32_t index); /* index < pool->nodes */
void message_pool_close(struct message_pool *pool);

#endif
