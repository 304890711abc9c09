/* The internals of a message room, only for the files of this room. */
#ifndef MESSAGE_ROOM_H
#define MESSAGE_ROOM_H

#include "message/match.h"
#include "message/message.h"
#include "message/pool.h"

struct message_queue {
    struct message_node *first, *last;
};

struct message_peer {
    struct message_queue unsent;
    struct message_queue came[2]; /* asks and answers that were not taken yet */
    uint32_t sent;                /* number of messages given to the wire, and so the number of the last one */
    uint32_t next_stalled;        /* 1 + the next peer with unsent messages; 0: none */
};

struct message_room {
    struct message_due due; /* first */
    const struct comm_env *env;
    struct wire_channel *channel;
    int32_t rank, size;
    uint32_t depth;
    uint32_t live;                /* posted, result not taken */
    uint32_t pending;             /* posted, not finished */
    uint32_t stalled_peers;       /* 1 + the first peer with unsent messages; 0: none */
    enum comm_result refused;     /* not OK: the result of every post */
    struct message_queue untaken; /* matched receives for which the wire had no room */
    struct message_queue finished;
    struct message_queue setup_messages; /* not taken yet */
    uint32_t came;                       /* asks and answers in the queues of all peers */
    struct message_pool pool;
    struct message_match match;
    struct message_peer peer[];
};

#endif
