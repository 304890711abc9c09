/* The inside of a room of messages, for the files of this room alone. */
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
    struct message_queue came[2]; /* asks, answers: not taken yet */
    uint32_t sent;                /* messages given to the wire; the last one's number */
    uint32_t next_stalled;        /* 1 + the next peer with unsent messages; 0: none */
};

struct message_room {
    const struct comm_env *env;
    struct wire_channel *channel;
    int32_t rank, size;
    uint32_t depth;
    uint32_t live;                /* posted, result not taken */
    uint32_t pending;             /* posted, not finished */
    uint32_t stalled_peers;       /* 1 + the first peer with unsent messages; 0: none */
    enum comm_result refused;     /* not OK: what every post is answered */
    struct message_queue untaken; /* matched receives for which the wire had no room */
    struct message_queue finished;
    struct message_queue setup_messages; /* not taken yet */
    uint32_t came;                       /* in all peers' queues of the library's own */
    struct message_pool pool;
    struct message_match match;
    struct message_peer peer[];
};

#endif
