/*
 * frames: the simulated network wire. Between each ordered pair of ranks runs a stream of frames, in order, with latency, bandwidth and
 * accidents; streams overtake each other. A receiver stores what comes before it is asked for; how much that can be is bounded by what its
 * acknowledgements allow. Frames leave at flush and not before, exposures may keep their bytes until they are sent, and a view's bytes are
 * poisoned once it is released: what the engine must not rely on breaks here.
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
    FRAMES_KEPT = 16,      /* what a channel sent last, where it may come again */
    FRAMES_KEPT_BYTES = 4096,
    FRAMES_AGAIN = 3, /* come again at one time */
};

/* Numbered as in frames_head.h. */
enum frame_kind {
    FRAME_BYTES,    /* an exposure, or a piece of it */
    FRAME_ACK,      /* of a stream's exposure: its place is free */
    FRAME_RETIRED,  /* operation `key` and all before it */
    FRAME_NOTE,     /* tag, bytes: a note */
    FRAME_EAGER,    /* a whole message */
    FRAME_ANNOUNCE, /* a message whose bytes wait to be granted */
    FRAME_GRANT,    /* `total` bytes of message key */
    FRAME_DATA,     /* the bytes of a granted message */
    FRAME_CONSUMED, /* `key` messages were taken notice of */
};

struct frames_channel;
struct frame {
    struct frame *next;
    struct frames_channel *from;
    uint32_t to; /* rank of the team */
    enum frame_kind kind;
    wire_key key;
    uint32_t tag, edge;
    uint64_t total, begin, bytes; /* of the exposure or message; where this piece begins, and how long it is */
    const char *held;             /* the user's bytes, not copied yet; NULL: they are `data` */
    uint64_t cookie;              /* of the exposure that holds them; told with the last piece */
    struct held *hold;
    size_t memory;
    unsigned char head[FRAMES_HEAD]; /* key, tag, edge and whose it is, as they travel */
    bool again;                      /* it was sent before */
    char data[];
};

/* An exposure whose bytes the user still lends. */
struct held {
    uint32_t pieces; /* to be sent, over all peers */
    uint64_t cookie;
};

/* One key of one peer: what came of it, who asks for it. */
struct slot {
    struct slot *next;
    uint32_t peer, tag, edge;
    wire_key key;
    uint64_t total, arrived, memory;
    char *data; /* NULL: nothing came yet */
    bool asked, viewed;
    struct wire_look look;
};

struct message {
    struct message *next;
    uint32_t peer, tag;
    bool sent, granted;
    wire_key key;
    uint64_t bytes, take, cookie;
    char *data; /* an eager one's; a sent one's is the user's */
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
    uint32_t name;  /* its name of this channel */
    bool elsewhere; /* another wire's */
    uint32_t retired;
    uint64_t acked[FRAMES_AREAS][WIRE_STREAM_EDGES][FRAMES_CREDITS];
    uint32_t sent, consumed, arrived; /* messages to it, of those noticed there; messages from it */
    struct note note[WIRE_NOTE_SORTS];
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
    struct slot *slot[FRAMES_BUCKETS];
    struct message *messages; /* arrived or sent, unfinished */
    struct frame *out, **out_last;
    struct wire_event *event; /* to be handed over */
    uint32_t events, events_first, events_room;
    struct wire_board board;
    struct slot *pads; /* reserved and not exposed */
    char note[WIRE_NOTE_SORTS * 4][WIRE_NOTE_LONG_BYTES];
    struct frames_channel *before; /* of its wire's, open or not */
    struct frame *kept[FRAMES_KEPT];
    uint32_t keeps; /* so many so far */
};

struct frames_wire {
    struct wire wire;
    struct sim_port *port;
    const struct comm_env *env;
    bool across; /* members of one host are another wire's */
    struct frames_channel *channel[FRAMES_CHANNELS], *newest;
    struct frames_wire *older; /* of this rank's */
    uint32_t count;            /* of its channels so far */
};

/* frames_net.c: the streams */
struct frame *frame_make(struct frames_channel *from, uint32_t to, enum frame_kind kind, wire_key key, const void *bytes, size_t count);
void frame_post(struct frames_channel *c, struct frame *f); /* into the outbox */
void frames_send(struct frames_channel *c);                 /* the outbox */
void frame_free(struct frame *f);
void frame_launch(struct frame *f, bool numbered); /* onto its stream; not numbered: its header says an older number */
void frames_net_reset(void);
bool frames_fault(const struct sim_fault *f);
/* Script: how many streams have something, and the delivery of the one that is chosen. */
bool frames_script_deliver(void);

/* frames_stale.c: what was sent may come again */
void frames_stale_reset(void);
void frames_stale_wire(struct frames_wire *w);
void frames_keep(const struct frame *f);
bool frames_come_again(const struct sim_fault *fault);

/* wire_frames.c: what comes of a frame, called by the net */
struct frames_channel *frames_find(struct frames_wire *w, uint32_t name, uint32_t from, int32_t peer); /* NULL: whom it is for has gone */
void frames_arrive(struct frames_channel *c, struct frame *f);
void frames_event(struct frames_channel *c, const struct wire_event *event);
struct slot *slot_find(struct frames_channel *c, uint32_t peer, wire_key key, bool make);
void slot_drop(struct frames_channel *c, struct slot *s);

/* frames_message.c */
enum wire_result frames_message_expose(struct frames_channel *c, const struct wire_expose *e);
enum wire_result frames_message_view(struct frames_channel *c, const struct wire_look *l);
void frames_message_arrive(struct frames_channel *c, uint32_t peer, struct frame *f);
void frames_message_forget(struct frames_channel *c);

#endif
