/*
 * frames: the simulated network wire. Between each ordered pair of ranks there is a stream of frames, in order, with
 * latency, bandwidth and accidents; streams overtake each other. A receiver stores what arrives before it is requested;
 * the acknowledgements limit how much that can be. Frames leave only at flush, exposures may keep their bytes until
 * they are sent, and a view's bytes are poisoned once it is released: an engine that relies on more than the interface
 * promises fails here.
 */
#ifndef TESTS_SIM_FRAMES_H
#define TESTS_SIM_FRAMES_H

#include "sim/frames_head.h"
#include "sim/inside.h"

enum {
    FRAMES_INLINE = 48,
    FRAMES_ONCE_MAX = 65536,
    FRAMES_CHUNK = 65536,
    FRAMES_WINDOW = 64,
    FRAMES_AREAS = 2,
    FRAMES_CREDITS = 4,
    FRAMES_ONCE_PLACES = 8,
    FRAMES_EAGER = 4096,
    FRAMES_BUCKETS = 256,
    FRAMES_PIECES = 3,
    FRAMES_CHANNELS = 256, /* of one wire at a time */
    FRAMES_TOLD_ALL = 128, /* members of a larger channel hear what is retired only if they send to this rank */
    FRAMES_KEPT = 16,      /* frames that a channel sent last, which may come again */
    FRAMES_KEPT_BYTES = 4096,
    FRAMES_AGAIN = 3, /* frames that come again at one time */
};

/* Numbered as in frames_head.h. */
enum frame_kind {
    FRAME_BYTES,    /* an exposure, or a piece of it */
    FRAME_ACK,      /* for an exposure of a stream: its place is free */
    FRAME_RETIRED,  /* operation `key` and all before it are retired */
    FRAME_NOTE,     /* tag, bytes: a note */
    FRAME_EAGER,    /* a whole message */
    FRAME_ANNOUNCE, /* a message whose bytes wait for a grant */
    FRAME_GRANT,    /* `total` bytes of message key */
    FRAME_DATA,     /* the bytes of a granted message */
    FRAME_CONSUMED, /* `key` messages have been noticed */
};

struct frames_channel;
struct frame {
    struct frame *next;
    struct frames_channel *from;
    uint32_t to; /* rank of the team */
    enum frame_kind kind;
    wire_key key;
    uint32_t tag, edge;
    uint64_t total, begin, bytes; /* length of the exposure or message; where this piece begins, and its length */
    const char *held;             /* the user's bytes, not copied yet; NULL: they are in `data` */
    uint64_t cookie;              /* of the exposure that holds the bytes; reported with the last piece */
    struct held *hold;
    size_t memory;
    unsigned char head[FRAMES_HEAD]; /* key, tag, edge and addressee, as they travel */
    bool again;                      /* it was sent before */
    char data[];
};

/* An exposure whose bytes are still in user memory. */
struct held {
    uint32_t pieces; /* left to send, over all peers */
    uint64_t cookie;
};

/* One key of one peer: what has arrived, and whether it was requested. */
struct slot {
    struct slot *next;
    uint32_t peer, tag, edge;
    wire_key key;
    uint64_t total, arrived, memory;
    char *data; /* NULL: nothing has arrived */
    bool asked, viewed;
    struct wire_look look;
};

struct message {
    struct message *next;
    uint32_t peer, tag;
    bool sent, granted;
    wire_key key;
    uint64_t bytes, take, cookie;
    char *data; /* for an eager message; a sent message's is user memory */
    void *land;
};

struct note {
    bool fresh;
    uint32_t tag, bytes;
    wire_key key;
    char data[WIRE_NOTE_LONG_BYTES];
};

struct frames_peer {
    struct frames_channel *channel;
    uint32_t name;  /* its name for this channel */
    bool elsewhere; /* served by another wire */
    uint32_t retired;
    bool sends;                                           /* something came from it since this rank last told it what is retired */
    uint32_t sent, consumed, arrived;                     /* messages sent to it, and noticed there; messages from it */
    uint64_t (*acked)[WIRE_STREAM_EDGES][FRAMES_CREDITS]; /* [FRAMES_AREAS]; NULL: no stream has been used */
    struct note *note;                                    /* [WIRE_NOTE_SORTS]; NULL: none has come */
};

struct frames_channel {
    struct wire_channel handle;
    struct frames_wire *wire;
    uint64_t id;
    uint32_t name, rank, size;
    const int32_t *world;
    uint32_t areas, credits, once_places;
    bool aborted, closed, retire;
    uint32_t retired;
    struct frames_peer *peer;
    uint32_t fresh_notes;
    struct slot *slot[FRAMES_BUCKETS];
    struct message *messages; /* arrived or sent, unfinished */
    struct frame *out, **out_last;
    struct wire_event *event; /* events to return */
    uint32_t events, events_first, events_room;
    struct wire_board board;
    struct slot *pads; /* reserved and not exposed */
    char note[WIRE_NOTE_SORTS * 4][WIRE_NOTE_LONG_BYTES];
    struct frames_channel *before; /* the previous channel of this wire, open or not */
    struct frame *kept[FRAMES_KEPT];
    uint32_t keeps; /* number kept so far */
};

struct frames_wire {
    struct wire wire;
    struct sim_port *port;
    const struct comm_env *env;
    bool across; /* another wire serves members of one host */
    struct frames_channel *channel[FRAMES_CHANNELS], *newest;
    struct frames_wire *older; /* the previous wire of this rank */
    uint32_t count;            /* number of channels so far */
};

static inline struct frames_channel *frames_of(struct wire_channel *channel)
{
    return (struct frames_channel *)channel;
}

/* Whether operation `at` is `wanted` or a later one; numbers wrap. */
static inline bool frames_reached(uint32_t at, uint32_t wanted)
{
    wanted -= wanted == 0; /* there is no number 0 */
    return (int32_t)(at - wanted) >= 0;
}

/* frames_net.c: the streams */
struct frame *frame_make(struct frames_channel *from, uint32_t to, enum frame_kind kind, wire_key key, const void *bytes, size_t count);
void frame_post(struct frames_channel *c, struct frame *f); /* puts it into the outbox */
void frames_send(struct frames_channel *c);                 /* sends the outbox */
void frame_free(struct frame *f);
void frame_launch(struct frame *f, bool numbered); /* puts it onto its stream; not numbered: its header has an older number */
void frames_net_reset(void);
bool frames_fault(const struct sim_fault *f);
/* For script order: delivers a frame of the chosen stream. False: no stream has a frame. */
bool frames_script_deliver(void);

/* frames_stale.c: sent frames may come again */
void frames_stale_reset(void);
void frames_stale_wire(struct frames_wire *w);
void frames_keep(const struct frame *f);
bool frames_come_again(const struct sim_fault *fault);

/* wire_frames.c: handles a frame; called by the net */
extern const struct wire_class wire_sim_frames;
void frames_arrive(struct frames_channel *c, struct frame *f);
void frames_note_arrives(struct frames_channel *c, uint32_t peer, const struct frame *f);
uint32_t frames_advance_notes(struct frames_channel *c, struct wire_event *events, uint32_t max);

/* frames_slots.c */
struct slot *slot_find(struct frames_channel *c, uint32_t peer, wire_key key, bool make); /* make: if there is none */
void slot_drop(struct frames_channel *c, struct slot *s);
void slot_drop_until(struct slot **list, uint32_t seq);                      /* the slots of operation seq and of all before it */
void frames_event(struct frames_channel *c, const struct wire_event *event); /* advance will return it */

/* frames_join.c */
struct frames_channel *frames_find(struct frames_wire *w, uint32_t name, uint32_t from, int32_t peer); /* NULL: the receiver's channel is
                                                                                                        * gone */
enum comm_result frames_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                             void *offer, struct wire_channel **channel);
void frames_leave(struct wire_channel *channel, enum wire_leave how);

/* frames_message.c */
enum wire_result frames_message_expose(struct frames_channel *c, const struct wire_expose *e);
enum wire_result frames_message_view(struct frames_channel *c, const struct wire_look *l);
void frames_message_arrive(struct frames_channel *c, uint32_t peer, struct frame *f);
void frames_message_forget(struct frames_channel *c);

#endif
