/*
 * wire: exposures and messages over MPI's point-to-point calls, for networks that MPI reaches and this library does not. Private to the
 * files wire*.c of the module.
 *
 * MPI carries frames: a head of 64 bytes and a payload, in memory of this wire's own on both sides, so MPI never holds a user's memory.
 * What MPI cannot do, or only late, a *guard* does, which is a whole wire of its own among the same ranks (tcp): deaths and cut links,
 * notes, published calls, waking, addresses.
 *
 * Room is as over tcp (net/tcp): it follows from an exposure's key, from what its reader has retired and, of a stream, acknowledged. All
 * under the wire's one lock. MPI is asked for what came by whoever looks; it wakes nobody.
 */
#ifndef NET_MPI_WIRE_H
#define NET_MPI_WIRE_H

#include "net/mpi/mpi_module.h"
#include "wire/wire.h"

enum {
    MPIWIRE_TAG = 1,
    MPIWIRE_BUCKETS = 64,
    MPIWIRE_INLINE = 240,     /* bytes of a once-edge that have room in twice the window of operations ... */
    MPIWIRE_ONCE_PLACES = 8,  /* ... and longer ones in so many */
    MPIWIRE_AREAS = 4,        /* operations whose streams have room at once */
    MPIWIRE_CREDITS = 4,      /* exposures of one of these streams that its reader may not have given back */
    MPIWIRE_EAGER = 4096,     /* a message up to that length goes at once, ... */
    MPIWIRE_EAGER_SLOTS = 16, /* ... and so many of them that nobody received */
    MPIWIRE_DATA = 1 << 18,   /* a piece of a longer one, ... */
    MPIWIRE_DATA_AHEAD = 4,   /* ... of which so many of a message may be on their way */
    MPIWIRE_CLASSES = 40,     /* of blocks, by powers of two */
    MPIWIRE_HEAD = 64,
};

enum mpiwire_kind {
    MPIWIRE_EXPOSE = 1,
    MPIWIRE_ACK,      /* key: of the exposure that was given back */
    MPIWIRE_RETIRED,  /* says what every head says */
    MPIWIRE_WANT,     /* the sender lacks room: say what is retired */
    MPIWIRE_SHORT,    /* a whole message */
    MPIWIRE_ANNOUNCE, /* payload: its length */
    MPIWIRE_GRANT,    /* payload: how much of it is wanted */
    MPIWIRE_PIECE,    /* of a granted one, in order */
    MPIWIRE_CONSUMED, /* key: the newest message that was taken notice of; tag: how many of the slots were given back */
};

/* Both ends are of one library, version and machine kind: see mpiwire_open. */
struct mpiwire_head {
    uint64_t id; /* of the channel */
    uint64_t key;
    uint64_t bytes;
    uint32_t tag;     /* or the fingerprint */
    uint32_t retired; /* by its sender */
    uint16_t from, kind;
    uint32_t reserved[7];
};
_Static_assert(sizeof(struct mpiwire_head) == MPIWIRE_HEAD, "payloads begin at a line");

/* Memory of a frame; its head and payload stand behind it. */
struct mpiwire_block {
    struct mpiwire_block *next;
    MPI_Request request;
    uint32_t class;                   /* the power of two of its bytes */
    int32_t source;                   /* a receive's: world rank */
    uint64_t length;                  /* a receive's: head and payload, as MPI says */
    struct mpiwire_message *piece_of; /* a send's: NULL, or the message of which it is a piece */
    _Alignas(64) char frame[];
};
static inline struct mpiwire_head *mpiwire_head_of(struct mpiwire_block *b)
{
    return (struct mpiwire_head *)(void *)b->frame;
}
static inline char *mpiwire_payload(struct mpiwire_block *b)
{
    return b->frame + MPIWIRE_HEAD;
}

/* An exposure that came, or a view that waits for one. */
struct mpiwire_slot {
    struct mpiwire_slot *next;
    wire_key key;
    uint32_t peer;
    bool asked, differs;
    struct mpiwire_block *block; /* NULL: it has not come */
    struct wire_look look;       /* asked */
    int64_t until_ns;            /* differs: for so long its peer's calls are waited for */
};

struct mpiwire_message {
    struct mpiwire_message *next;
    struct mpiwire_channel *channel; /* NULL: it was left, and only pieces of it are on their way */
    wire_key key;
    uint32_t peer, tag, ahead; /* ahead: pieces on their way */
    bool granted, slot, told;
    uint64_t bytes, take, done;
    char *at;
    uint64_t cookie;
    struct mpiwire_block *block; /* arrived whole */
};

struct mpiwire_member {
    uint32_t retired, retired_told; /* by it, as it said; by this rank, as it was told */
    bool sends;                     /* it has exposed something since it was told ... */
    bool wants;                     /* ... or has no room for it until it is told more */
    bool wanted;                    /* it was asked what it has retired, and has not said */
    bool lost;
    uint32_t sent, consumed, eager_sent, eager_taken;                 /* messages to it */
    uint32_t arrived, seen, seen_told, slots_taken, slots_taken_told; /* messages from it */
};

struct mpiwire_channel {
    struct wire_channel handle; /* first */
    struct mpiwire *wire;
    struct mpiwire_channel *next;
    struct wire_channel *guard;
    uint64_t id;
    uint32_t rank, size, areas, credits, once_places, lag, retired;
    const int32_t *world;
    bool aborted, rendezvous, retires, owes;
    struct mpiwire_member *member;
    uint64_t *acked;
    struct mpiwire_slot *bucket[MPIWIRE_BUCKETS];
    uint64_t filled; /* buckets that are not empty */
    uint32_t differing;
    struct mpiwire_message *sent, *arrived;
    struct wire_event *event; /* a ring */
    uint32_t events_first, events, events_room;
    struct wire_traffic traffic;
};

struct mpiwire {
    struct wire wire; /* first */
    struct wire *guard;
    const struct comm_env *env;
    struct mpi_world *world;
    pthread_mutex_t lock;
    int32_t ranks;
    struct mpiwire_channel *channels;
    struct mpiwire_block *sending, **sending_last, *receiving, **receiving_last, *spare[MPIWIRE_CLASSES];
    struct mpiwire_slot *spare_slots;
    struct mpiwire_message *spare_messages;
    struct wire_event *gone; /* by world rank: how it went; kind 0: it has not */
    int64_t *gone_ns;
    uint64_t *behind; /* by world rank: the turn in which an older frame of its was not here yet */
    uint64_t turn;
    uint32_t goners;
    bool came; /* something, since heed was asked last */
    int64_t nap_ns;
};

static inline struct mpiwire_channel *mpiwire_of(struct wire_channel *channel)
{
    return (struct mpiwire_channel *)channel;
}
static inline bool mpiwire_reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}
static inline uint64_t *mpiwire_ack_of(struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    size_t place = (size_t)peer * c->areas + wire_key_seq(key) % c->areas;

    return &c->acked[(place * WIRE_STREAM_EDGES + wire_key_edge(key) % WIRE_STREAM_EDGES) * c->credits + wire_key_round(key) % c->credits];
}

/* wire.c */
extern const struct wire_class mpiwire_class;

/* wire_frame.c: under the lock */
struct mpiwire_block *mpiwire_block_take(struct mpiwire *w, size_t payload); /* NULL: no memory */
void mpiwire_block_give(struct mpiwire *w, struct mpiwire_block *b);
/* A frame to a member: its head is filled and it begins to leave. False: no memory. */
bool mpiwire_post(struct mpiwire_channel *c, uint32_t peer, enum mpiwire_kind kind, wire_key key, uint32_t tag, const void *payload,
                  size_t bytes);
void mpiwire_send(struct mpiwire_channel *c, uint32_t peer, struct mpiwire_block *b, struct mpiwire_head head);
void mpiwire_progress(struct mpiwire *w); /* what came, and what has left */
void mpiwire_tell(struct mpiwire_channel *c, const struct wire_event *event);
void mpiwire_lose(struct mpiwire_channel *c); /* LOST, of members that are gone */

/* wire_view.c */
void mpiwire_exposed(struct mpiwire_channel *c, struct mpiwire_block *b); /* takes the block */
void mpiwire_look_at_differing(struct mpiwire_channel *c);
void mpiwire_slots_forget(struct mpiwire_channel *c);
enum wire_result mpiwire_expose_work(struct mpiwire_channel *c, const struct wire_expose *e);
enum wire_result mpiwire_view_work(struct mpiwire_channel *c, const struct wire_look *l);
void mpiwire_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
void mpiwire_tell_retired(struct mpiwire_channel *c); /* to members that send */

/* wire_message.c */
void mpiwire_message_came(struct mpiwire_channel *c, struct mpiwire_block *b); /* takes the block */
void mpiwire_piece_left(struct mpiwire *w, struct mpiwire_message *m);
enum wire_result mpiwire_expose_message(struct mpiwire_channel *c, const struct wire_expose *e);
enum wire_result mpiwire_view_message(struct mpiwire_channel *c, const struct wire_look *l);
void mpiwire_messages_forget(struct mpiwire_channel *c);
void mpiwire_tell_consumed(struct mpiwire_channel *c);

#endif
