/*
 * The nodes of a room: one per posted operation and one per early arrival. Blocks double in size and never move, so a node's address may be
 * given to the wire; a free node is reused before a block is added, so nothing is allocated below the high-water mark. A node's generation
 * changes each time it is given back: a late event that names an older life of it is recognised. Nothing of matching is known here.
 */
#ifndef MESSAGE_POOL_H
#define MESSAGE_POOL_H

#include "message/message.h"

enum { MESSAGE_POOL_FIRST_NODES = 64, MESSAGE_POOL_BLOCKS_MAX = 24 };

enum message_state {
    MESSAGE_FREE = 0,
    MESSAGE_POSTED,   /* a receive without an arrival */
    MESSAGE_EARLY,    /* an arrival without a receive */
    MESSAGE_UNTAKEN,  /* an arrival of the library's own that was not taken yet */
    MESSAGE_SELF,     /* a send to this rank without a receive: an arrival whose bytes are the sender's buffer */
    MESSAGE_STALLED,  /* a send, or a matched receive, for which the wire had no room */
    MESSAGE_WIRED,    /* the wire has it and its cookie comes */
    MESSAGE_FINISHED, /* its result was not taken yet */
};

struct message_link {
    struct message_link *next, *before;
};

struct message_node {
    struct message_link near;  /* among those of one bucket, or among the wildcard receives */
    struct message_link line;  /* among all posted receives, or among all arrivals, oldest first */
    struct message_node *next; /* in one queue: free, stalled, finished */
    uint64_t order;            /* number of its posting */
    wire_key key;
    void *buf;
    size_t bytes;         /* a send's length, a receive's capacity */
    size_t arrived_bytes; /* length of the message that came */
    struct comm_status *status;
    struct wire_span span; /* what a send exposes; in place as long as the wire may look at it */
    int32_t peer;          /* as asked for; once matched, as it came */
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
    uint32_t blocks, nodes; /* nodes: in all blocks together */
};

/* NULL: no memory. */
struct message_node *message_pool_take(struct message_pool *pool);
void message_pool_give(struct message_pool *pool, struct message_node *node);
struct message_node *message_pool_at(const struct message_pool *pool, uint32_t index); /* index < pool->nodes */
void message_pool_close(struct message_pool *pool);

#endif
