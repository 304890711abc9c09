/*
 * wire: exposures and messages over MPI's point-to-point calls, for networks that MPI reaches and this library does not. Private to the
 * files of this folder.
 *
 * MPI carries frames. A frame is a head of 64 bytes and a payload, in memory of this wire on both sides, so MPI never holds the user's
 * memory. A *guard* does what MPI cannot do, or does too late: it detects deaths and cut links, and carries notes, published calls,
 * wake-ups and addresses. The guard is a complete wire of its own among the same ranks (tcp). A look at it costs system calls, so most
 * passes leave it alone (guard.c).
 *
 * Flow control works as over tcp (net/tcp). Whether there is room follows from the key of an exposure, from what its reader has retired
 * and, for a stream, from what the reader has acknowledged. One lock protects the whole wire. Any thread that looks for events polls MPI
 * for new frames. MPI never wakes a thread.
 */
#ifndef NET_MPIWIRE_MPIWIRE_H
#define NET_MPIWIRE_MPIWIRE_H

#include "net/mpi/mpi_module.h"
#include "wire/wire.h"

enum {
    MPIWIRE_TAG = 1,        /* heads, with the payloads of short frames */
    MPIWIRE_TAG_LONG = 2,   /* payloads of long frames, in the order of their heads */
    MPIWIRE_POSTED = 16,    /* receives that wait in MPI for frames of any rank */
    MPIWIRE_WHOLE = 32768,  /* the longest payload that is sent with its head: less than the limit (64 KiB) up to which Open MPI sends at
                             * once over TCP. Two messages take twice as long as one */
    MPIWIRE_AT_ONCE = 8192, /* bytes that MPICH sends at once within a machine */
    MPIWIRE_SMALL = 2112, /* what comes up to this length is moved to a block of its size, so that the long one can be posted again. To move
                           * more takes longer than to post another block */
    MPIWIRE_BUCKETS = 64,
    MPIWIRE_INLINE = 240,          /* exposures on once-edges up to this size, .. */
    MPIWIRE_FRAME = 2048,          /* .. and up to this one have room for twice the window of operations, .. */
    MPIWIRE_PAGES = 16384,         /* .. up to this one for at least 8 and at most as many, .. */
    MPIWIRE_PAGES_SHOWN = 512,     /* .. of all peers together for this many, .. */
    MPIWIRE_ONCE_PLACES = 8,       /* .. and longer ones for 8 */
    MPIWIRE_AREAS = 16,            /* number of operations whose streams have room at the same time */
    MPIWIRE_TELLS = 4,             /* a sender hears of a quarter of its room that is free again: it goes on meanwhile */
    MPIWIRE_CREDITS = 8,           /* exposures of one such stream that the reader has not yet released, */
    MPIWIRE_CREDITS_NEAR = 4,      /* or, if all ranks are on one machine, so many longer ones */
    MPIWIRE_MANY = 4096,           /* a channel of more members has room for few: */
    MPIWIRE_FEW = 4,               /* so many such operations, and so many such exposures */
    MPIWIRE_EAGER = MPIWIRE_WHOLE, /* a message up to this size is sent at once, */
    MPIWIRE_EAGER_ROOM = 1 << 18,  /* unless this many bytes of ones longer than MPIWIRE_INLINE are unreceived */
    MPIWIRE_DATA = MPIWIRE_WHOLE,  /* size of a piece of a longer message, */
    MPIWIRE_DATA_NEAR = 1 << 18,   /* if all ranks are on one machine */
    MPIWIRE_DATA_AHEAD = 16,       /* pieces of one message that may be in flight, */
    MPIWIRE_DATA_AHEAD_NEAR = 4,   /* of the longer ones */
    MPIWIRE_CLASSES = 40,          /* size classes of blocks: payloads of powers of two */
    MPIWIRE_HEAD = 64,
};

/* Kinds of room for exposures: of once-edges by their length, and of streams. */
enum mpiwire_room { MPIWIRE_ROOM_INLINE, MPIWIRE_ROOM_FRAME, MPIWIRE_ROOM_PAGES, MPIWIRE_ROOM_LONG, MPIWIRE_ROOM_AREAS, MPIWIRE_ROOMS };

enum mpiwire_kind {
    MPIWIRE_EXPOSE = 1,
    MPIWIRE_ACK,      /* key: the key of the released exposure */
    MPIWIRE_RETIRED,  /* only a head, which has the retired sequence number */
    MPIWIRE_WANT,     /* the sender lacks room and asks what is retired */
    MPIWIRE_SHORT,    /* a whole message */
    MPIWIRE_ANNOUNCE, /* payload: the length of the message */
    MPIWIRE_GRANT,    /* payload: how many bytes the receiver wants */
    MPIWIRE_PIECE,    /* a piece of a granted message; pieces come in order */
    MPIWIRE_CONSUMED, /* key: the newest message that the receiver has seen; tag: bytes that were taken from its eager room */
    MPIWIRE_NOTED,    /* only a head: the sender has sent a note over the guard, so look there */
    MPIWIRE_LAST,     /* only a head, of no channel: the sender has closed the wire, and nothing comes after this */
};

/* Sent as it is in memory: mpiwire_open makes sure that both ends have the same library version and kind of machine. */
struct mpiwire_head {
    uint64_t id; /* id of the channel */
    uint64_t key;
    uint64_t bytes;
    uint32_t tag;     /* tag of a message, or fingerprint of an exposure */
    uint32_t retired; /* what the sender has retired */
    uint16_t from, kind;
    uint32_t room; /* of an exposure: for how many operations the sender has room for such ones; it waits for the receiver after that */
    uint32_t reserved[6];
};
_Static_assert(sizeof(struct mpiwire_head) == MPIWIRE_HEAD, "payloads begin at a line");

enum mpiwire_open { MPIWIRE_OPEN_REQUEST = 1, MPIWIRE_OPEN_HEAD = 2 };
/* What has come of a frame. LACKS: the head, and there was no memory for the payload, which waits in MPI. COMES: the head, and MPI has a
 * receive for the payload. LOST: the head, and the payload never comes. WRONG: the head, and a payload of another length. */
enum mpiwire_state { MPIWIRE_HERE = 0, MPIWIRE_LACKS, MPIWIRE_COMES, MPIWIRE_LOST, MPIWIRE_WRONG };

/* The memory of a frame. The head and the payload follow it. */
struct mpiwire_block {
    struct mpiwire_block *next;
    MPI_Request request;              /* of a frame, or of the payload of a long frame */
    MPI_Request head;                 /* send of a long frame: of its head */
    uint32_t class;                   /* log2 of the longest payload that it has room for */
    uint32_t open;                    /* send: bits of the requests that have not ended, enum mpiwire_open */
    int32_t peer;                     /* world rank: whom it goes to, or came from; of a receive that waits: its source for MPI */
    enum mpiwire_state state;         /* receive */
    uint64_t length;                  /* receive: bytes of head and payload */
    struct mpiwire_message *piece_of; /* send: the message that this is a piece of, or NULL */
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

/* An exposure that has arrived, or a view that waits for one. */
struct mpiwire_slot {
    struct mpiwire_slot *next;
    wire_key key;
    uint32_t peer;
    bool asked, differs;
    struct mpiwire_block *block; /* NULL: it has not arrived */
    struct wire_look look;       /* valid if asked */
    int64_t until_ns;            /* if differs: how long to wait for the peer's published calls */
};

struct mpiwire_message {
    struct mpiwire_message *next;
    struct mpiwire_channel *channel; /* NULL: the channel was left, and only pieces are still in flight */
    wire_key key;
    uint32_t peer, tag, ahead; /* ahead: number of pieces in flight */
    uint32_t room;             /* of the eager room: bytes that it occupies */
    bool granted, told;
    bool lacks; /* sent: its next bytes are not there yet */
    uint64_t bytes, take, done;
    char *at;
    const _Atomic uint64_t *there; /* sent: how many bytes are there, or NULL: all */
    _Atomic uint64_t *came;        /* arrived: where to store `done`, or NULL */
    uint64_t cookie;
    struct mpiwire_block *block; /* a message that arrived whole */
};

struct mpiwire_member {
    uint32_t retired, retired_told; /* by the member, as it last said; by this rank, as last told to the member */
    uint32_t room;                  /* the least of what it has exposed since this rank last told it; 0: it has exposed nothing */
    bool wants;                     /* it has no room until this rank tells it more */
    bool wanted;                    /* this rank has asked what it has retired, and has no answer yet */
    bool lost;
    bool deaf;                                      /* a frame from it was lost here: what it sent later is not taken */
    int32_t broken;                                 /* 0, or the comm_result with which a frame from or to it was lost on this rank */
    int64_t broken_ns;                              /* when that is reported: the guard may say before that it is gone */
    bool unsent;                                    /* a frame for it was left out, because MPI was finalized */
    uint32_t sent, consumed, room_sent, room_taken; /* messages to the member, and bytes of them in its eager room: all, and taken */
    uint32_t arrived, seen, seen_told, taken,
        taken_told; /* messages from the member, and bytes of them that were taken from the eager room */
};

struct mpiwire_channel {
    struct wire_channel handle; /* first */
    struct mpiwire *wire;
    struct mpiwire_channel *next;
    struct wire_channel *guard;
    uint64_t id;
    uint32_t rank, size, areas, credits, retired;
    uint32_t places[MPIWIRE_ROOMS]; /* for how many operations there is room of each kind */
    const int32_t *world;
    bool aborted, rendezvous, retires, owes;
    bool by_guard;          /* MPI carries nothing of it */
    bool due;               /* a message was granted and none of its pieces has left */
    bool lacks;             /* the next bytes of a granted message were not there */
    bool looked;            /* at MPI, since the last flush */
    bool noted;             /* the guard has something to send */
    _Atomic bool told;      /* a peer has said that a note is on its way */
    uint32_t guard_passes;  /* without a look at the clock */
    uint32_t stirs;         /* of the wire, at the last look */
    int64_t guard_ns;       /* when the guard must be looked at */
    int64_t guard_until_ns; /* until when each pass looks, for the note that a peer has told of */
    struct mpiwire_member *member;
    uint64_t *acked;
    uint32_t looks;        /* since the nap looks_before */
    uint64_t looks_before; /* the number of naps of the wire then */
    struct mpiwire_slot *bucket[MPIWIRE_BUCKETS];
    uint64_t filled; /* a bit for each bucket that is not empty */
    uint32_t differing;
    struct mpiwire_message *sent, *arrived;
    struct wire_event *event; /* a ring buffer */
    uint32_t events_first, events, events_room;
    struct wire_traffic traffic;
};

/* What a rank sends to this one. */
struct mpiwire_source {
    uint64_t behind;  /* the last turn in which an older frame had not arrived */
    uint32_t waiting; /* how many of its frames are in the list `receiving` */
};

struct mpiwire {
    struct wire wire; /* first */
    struct wire *guard;
    const struct comm_env *env;
    struct mpi_world *world;
    pthread_mutex_t lock;
    int32_t ranks;
    struct mpiwire_channel *channels;
    struct mpiwire_block *sending, **sending_last, *spare[MPIWIRE_CLASSES];
    struct mpiwire_block *posted[MPIWIRE_POSTED]; /* a ring buffer: MPI fills them in this order */
    uint32_t posted_first, posts;
    uint32_t unasked;                                  /* frames sent since MPI was asked which sends have ended */
    uint32_t pieces;                                   /* of messages, on their way: the next ones leave when these have ended */
    struct mpiwire_block *receiving, **receiving_last; /* long frames whose heads are here, and all that their sources sent later */
    uint32_t lacking;                                  /* how many of those lack memory */
    struct mpiwire_source *source;                     /* by world rank */
    uint64_t turn;
    uint64_t piece; /* the longest piece of a stream or message */
    struct mpiwire_slot *spare_slots;
    struct mpiwire_message *spare_messages;
    struct wire_event *gone; /* by world rank: how the rank ended; kind 0: it has not */
    int64_t *gone_ns;
    _Atomic uint32_t goners, stirs;
    bool *joined;           /* by world rank: this wire carries frames to it */
    bool *ended;            /* by world rank: its LAST has come */
    bool failed;            /* a channel was aborted */
    bool or_guard;          /* the guard carries the channels of survivors */
    int (*go_on)(MPI_Comm); /* MPIX_Comm_failure_ack, or NULL: this MPI has no fault tolerance */
    bool finds;             /* receives name their source: one is posted when MPI has a frame */
    bool came;              /* something arrived since the last call of heed */
    bool moved;             /* something arrived or left since the last nap, or a thread waits for something */
    bool oversubscribed;    /* ranks share CPUs */
    bool due, lacks;        /* of any channel */
    int64_t rests_since_ns;
    uint64_t naps;
};

static inline struct mpiwire_channel *mpiwire_of(struct wire_channel *channel)
{
    return (struct mpiwire_channel *)channel;
}
static inline bool mpiwire_is_near(const struct mpiwire *w) /* all ranks are on one machine */
{
    return w->piece == MPIWIRE_DATA_NEAR;
}
/* Whether a payload fits into a message that MPICH sends at once, and would not with its head. This length is common. */
static inline bool mpiwire_is_just_at_once(uint64_t payload)
{
    return payload <= MPIWIRE_AT_ONCE && payload > MPIWIRE_AT_ONCE - MPIWIRE_HEAD;
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

/* mpiwire.c */
extern const struct wire_class mpiwire_class;
struct native_config mpiwire_native_config(const struct wire_config *config); /* for starting MPI */
uint32_t mpiwire_poll(struct wire *wire, struct wire_event *events, uint32_t max);

/* fits.c: of a wire for which the guard may stand in, whether it must on any rank. The guard is open, so all ranks come here. The lowest
 * rank says why. */
enum comm_result mpiwire_fits(const struct wire_config *config, bool *fits);
/* How long pieces of streams and messages are: by whether all ranks are on machines of one name, by which MPI decides too whether it copies
 * from process to process. The guard is open, so all ranks come here. */
enum comm_result mpiwire_choose_piece(const struct wire_config *config, uint64_t *piece);
void mpiwire_tell_of_guard(const struct wire_config *config, const char *why); /* rank 0 logs it */
void mpiwire_warn_of_deaths(const struct wire_config *config);                 /* the same, where nothing but MPI carries it */

/* close.c */
void mpiwire_close(struct wire *wire);
void mpiwire_destroy(struct mpiwire *w);

/* frame.c, receive.c: the caller holds the lock */
struct mpiwire_block *mpiwire_block_take(struct mpiwire *w, size_t payload); /* NULL: no memory */
void mpiwire_block_give(struct mpiwire *w, struct mpiwire_block *b);
/* Sends a frame to a member: fills in the head and starts the send. False: no memory. */
bool mpiwire_post(struct mpiwire_channel *c, uint32_t peer, enum mpiwire_kind kind, wire_key key, uint32_t tag, const void *payload,
                  size_t bytes);
/* The same for a block whose head has its kind, key, tag, length and room; the rest of the head is zero. */
void mpiwire_send(struct mpiwire_channel *c, uint32_t peer, struct mpiwire_block *b);
/* Sends a block whose head is complete to a world rank. */
void mpiwire_start(struct mpiwire *w, int32_t to, struct mpiwire_block *b, size_t payload);
void mpiwire_sends(struct mpiwire *w, struct mpiwire_block *b); /* adds a block to the list of sends that have not ended */
/* Looks for frames that have arrived, and for sends that have ended if there are none. True: there is more to do now. */
bool mpiwire_progress(struct mpiwire *w);
void mpiwire_look(struct mpiwire_channel *c); /* the same, for a call that lacks something, but once in a pass */
void mpiwire_receive_end(struct mpiwire *w);  /* withdraws the receives that wait for frames */
void mpiwire_tell(struct mpiwire_channel *c, const struct wire_event *event); /* without memory its peer's link breaks */
/* A frame from this member (deaf), or to it, was lost on this rank: the channel fails with that result. */
void mpiwire_break(struct mpiwire_channel *c, uint32_t peer, enum comm_result result, bool deaf);
/* A frame of this world rank was lost on this rank, or is wrong, whatever channel it was for. rank < 0: MPI does not say whose it was. */
void mpiwire_stray(struct mpiwire *w, int32_t rank, enum comm_result result);
void mpiwire_refused(struct mpiwire *w, struct mpiwire_block *b); /* MPI did not send this frame */
/* Reports LOST for members that have died or left, and of which a frame was lost, or after MPI_Finalize. */
void mpiwire_lose(struct mpiwire_channel *c);
struct mpiwire_channel *mpiwire_find(struct mpiwire *w, uint64_t id);
bool mpiwire_is_too_long(int code); /* MPI says that what came is longer than the receive */

/* ends.c: the caller holds the lock */
/* Notes which payloads have come and, if asked, which sends have ended. */
void mpiwire_ends(struct mpiwire *w, bool sends);

/* guard.c: for a channel, under the lock of its communicator */
void mpiwire_guard_stir(struct mpiwire *w); /* the next pass over each channel looks at the guard */
uint32_t mpiwire_guard_look(struct mpiwire_channel *c, struct wire_event *events, uint32_t max); /* if it is due */
enum wire_result mpiwire_note(struct mpiwire_channel *c, const struct wire_expose *e);

/* view.c */
void mpiwire_exposed(struct mpiwire_channel *c, struct mpiwire_block *b); /* takes ownership of the block */
void mpiwire_look_at_differing(struct mpiwire_channel *c);
void mpiwire_slots_forget(struct mpiwire_channel *c);
enum wire_result mpiwire_expose_work(struct mpiwire_channel *c, const struct wire_expose *e);
enum wire_result mpiwire_view_work(struct mpiwire_channel *c, const struct wire_look *l);
void mpiwire_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
void mpiwire_tell_retired(struct mpiwire_channel *c); /* tells the members that send to this rank */

/* message.c */
void mpiwire_message_came(struct mpiwire_channel *c, struct mpiwire_block *b); /* takes ownership of the block */
void mpiwire_send_due(struct mpiwire *w);                                      /* sends the first pieces of messages that were granted */
void mpiwire_piece_left(struct mpiwire *w, struct mpiwire_message *m);
enum wire_result mpiwire_expose_message(struct mpiwire_channel *c, const struct wire_expose *e);
enum wire_result mpiwire_view_message(struct mpiwire_channel *c, const struct wire_look *l);
void mpiwire_messages_forget(struct mpiwire_channel *c);
/* Whether the member should hear how many of its messages this rank has seen. Not after every message, because it has room for several. */
static inline bool mpiwire_owes(const struct mpiwire_channel *c, const struct mpiwire_member *m)
{
    uint32_t seen = m->seen - m->seen_told, taken = m->taken - m->taken_told;

    return (seen && seen >= c->handle.caps.window / 4) || taken >= MPIWIRE_EAGER_ROOM / 4;
}
void mpiwire_tell_consumed(struct mpiwire_channel *c);

#endif
