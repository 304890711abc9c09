/*
 * The state of the tcp wire, which connects processes that share no memory (they may be on one host). Each pair of ranks has two
 * connections: small frames use one and bulk data the other, so that bulk data never delays small frames. The bytes of an exposure arrive
 * either where a posted view wants them, or in a block for which the sender had a credit of that communicator. docs/internals/network.md
 * has the protocol and its reasons.
 *
 * One lock protects the whole wire, because a thread that reads a socket may find frames of any channel. It is taken inside a
 * communicator's lock. Only the poller and memory functions are called while it is held.
 */
#ifndef NET_STATE_STATE_H
#define NET_STATE_STATE_H

#include "base/lock.h"
#include "net/frame/frame.h"
#include "net/poll/poller.h"
#include "net/record/record.h"
#include "wire/boot.h"
#include "wire/wire.h"

enum {
    TCP_LANES = 2,
    TCP_LANE_SMALL = 0,
    TCP_LANE_BULK = 1,
    TCP_BEAT = 2, /* a third connection, for the monitor only, so that heartbeats do not wake threads that wait for data */
    TCP_SOCKETS = 3,
    TCP_SMALL_BYTES = 16384, /* an exposure up to this length uses the small lane, and is copied */
    TCP_WINDOW = 64,
    TCP_WINDOW_MIN = 4,
    TCP_WINDOW_MAX = 1024,
    TCP_INLINE = 240,      /* an exposure up to this length has room in two windows of operations */
    TCP_ONCE_MAX = 524288, /* limit of what two ranks expose at once; with more ranks it is seldom over an eighth of that */
    TCP_ONCE_PLACES = 8,
    TCP_FRAME_BYTES = 2048,
    TCP_PAGES_SHOWN = 256, /* exposures of TCP_FRAME_BYTES to TCP_SMALL_BYTES to all peers together: more would not stay in a cache */
    TCP_AREAS = 4,
    TCP_CREDITS = 4,
    TCP_HEARS = 256, /* operations after an exposure in which its sender hears of retirements as often as that kind needs */
    TCP_CHUNK = 262144,
    TCP_CHUNK_LEAST = 131072,
    TCP_EAGER_BYTES = 4096,
    TCP_EAGER_ROOM = 16384,  /* per ordered pair: bytes of eager messages longer than TCP_INLINE that were not taken yet */
    TCP_DATA_BYTES = 262144, /* of a granted message, in one frame */
    TCP_STAGE_SMALL = 32768,
    TCP_AHEAD_BYTES = 65536, /* of a payload, received in its block before its header was read */
    TCP_LOOK_AHEAD = 8192,
    TCP_STAGE_BULK = 64 + TCP_AHEAD_BYTES + TCP_LOOK_AHEAD,
    TCP_READ_WHOLE = 36864, /* bytes of a frame that is read together with its header */
    TCP_BUCKETS = 64,
    TCP_ORDER_LEAST = 8,
    TCP_ORDER_MOST = 20, /* the largest block has 2^order bytes */
    TCP_NOTES_PASS = 16,
    TCP_CHANNELS_MAX = 65535,
    TCP_ALONE_BYTES = FRAME_LINE + TCP_SMALL_BYTES + FRAME_LINE,
    TCP_VECTORS = 32,
    TCP_ROUNDS = 32,          /* of the poller in one pump, ... */
    TCP_PUMP_BYTES = 1 << 20, /* ... unless it has received this much */
    TCP_ACKS = 16,            /* the most that are owed to one member */
    TCP_FEW = 3,              /* that many sockets are tried without asking epoll, if each attempt is a system call, ... */
    TCP_FEW_BATCH = 32,       /* ... or that many, if one call tries them all */
    TCP_ROW = 3,              /* after so many sends without a pump between them, the next is held back, ... */
    TCP_ROW_MESSAGES = 1,     /* ... or after so many if one is a message, because more often follow, ... */
    TCP_ROW_GAP_NS = 10000,   /* ... if less than this is between them, ... */
    TCP_HOLD_NS = 100000,     /* ... for at most this long. But after so many rows ... */
    TCP_ROWS_ENDED = 16,
    TCP_ROWS_GAP_NS = 1000000, /* ... with less than this between them, all ended by their caller, ... */
    TCP_GUARD_NS = 2000000,    /* ... the timer is this long. If each row held back at least TCP_ROW_LONG frames, the first is held too */
    TCP_ROW_LONG = 4,
    TCP_LINKS_MANY = 32, /* in larger worlds each rank connects only to the ranks that it needs */
    TCP_BASE_MOST = 8,   /* steps of the base graph: 1, 2, 4, 16, 64 ... */
    TCP_DIALS = 128,     /* connections being made at once, if links are made when needed */
};

/* What an exposure needs of its receiver. Later kinds have fewer places. */
enum tcp_room {
    TCP_ROOM_LINES,  /* on a once-edge, up to TCP_INLINE */
    TCP_ROOM_FRAMES, /* up to TCP_FRAME_BYTES */
    TCP_ROOM_PAGES,  /* up to TCP_SMALL_BYTES */
    TCP_ROOM_LONG,
    TCP_ROOM_AREAS, /* of a stream */
    TCP_ROOMS,
};
enum tcp_seal_choice { TCP_SEAL_AUTO, TCP_SEAL_YES, TCP_SEAL_NO };
enum tcp_links { TCP_LINKS_AUTO, TCP_LINKS_ALL, TCP_LINKS_NEEDED };

struct tcp_wire;
struct tcp_channel;
struct tcp_lane;

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Received bytes that wait to be viewed; or bytes to send, perhaps followed by bytes of the user's buffer. */
struct tcp_block {
    struct tcp_block *next;
    struct tcp_channel *channel; /* the channel of the user's bytes; NULL: none */
    struct tcp_hold *hold;
    const char *user;
    size_t user_bytes;
    uint32_t bytes; /* used bytes of data */
    uint32_t order;
    _Alignas(64) char data[];
};

/* An exposure or message that still uses the user's buffer. */
struct tcp_hold {
    struct tcp_hold *next;
    uint64_t cookie;
    uint32_t pieces; /* still to be sent, over all peers */
    uint32_t peer;
};

/* One key of one peer: what has arrived for it, and the look that waits for it. */
struct tcp_slot {
    struct tcp_slot *next;
    wire_key key;
    uint32_t peer, tag;
    uint64_t total;
    uint32_t rounds;                   /* from the look */
    struct tcp_block *block;           /* NULL: nothing has arrived, or it is received directly where it is wanted */
    bool begun, whole, asked, differs; /* differs: the look waits for the peer's calls, to report MISMATCH */
    struct wire_look look;
};

/* A message that was sent and not granted yet, or has arrived and was not taken yet. */
struct tcp_message {
    struct tcp_message *next;
    wire_key key;
    uint32_t peer, tag;
    uint64_t bytes, take, begun; /* take: bytes to transfer; begun: of those, queued, or received or being received */
    uint64_t cookie;
    struct tcp_block *block; /* the bytes of an eager message */
    char *at;                /* the user's buffer */
    uint32_t room;           /* of the eager room: bytes that it occupies */
    bool granted;
    struct tcp_hold *hold;         /* sent: the grant is here, and not all bytes are queued */
    const _Atomic uint64_t *there; /* sent: how many bytes are there, or NULL: all */
    _Atomic uint64_t *came;        /* arrived: where to store how many have, or NULL */
};

/* ------------------------------------------------------------------------------------------------------------ channels */
struct tcp_note {
    wire_key key;
    uint32_t tag, bytes;
    uint32_t number; /* order of its sender's forwarded notes: an older note may arrive later */
    unsigned char data[WIRE_NOTE_LONG_BYTES];
};

/* This rank's view of a member. */
struct tcp_member {
    struct tcp_lane *lane;                          /* its two lanes; NULL: this rank itself, or a member of another wire */
    uint32_t channel;                               /* its name of this channel */
    uint32_t retired;                               /* last operation that it retired */
    uint32_t retired_told;                          /* this rank's last retirement that was sent to it */
    uint32_t came[TCP_ROOMS], went[TCP_ROOMS];      /* last operation with an exposure (or a WANT) of that kind from it, and to it */
    uint32_t sent, consumed, room_sent, room_taken; /* messages to it, and bytes of them in its eager room: all, and taken */
    uint32_t arrived, seen, seen_told;              /* messages from it: arrived, processed, and acknowledged */
    uint32_t filled, taken, taken_told;             /* bytes of them in the eager room: arrived, taken, and acknowledged */
    uint32_t looks[TCP_LANES];                      /* looks that wait for a frame, by lane */
    wire_key ack[TCP_ACKS];                         /* exposures to acknowledge */
    wire_key acknowledged;                          /* the newest one, told or not */
    uint32_t acks;
    uint8_t fresh, unsent;                 /* a bit per kind of note: arrived; to be sent */
    bool asking, calls_here;               /* its published calls: requested; all have arrived */
    bool asked;                            /* it requested this rank's calls, which were not posted yet */
    bool lost;                             /* it is gone, and the engine knows that something from it is missing */
    struct tcp_note note[WIRE_NOTE_SORTS]; /* from it */
};

struct tcp_slots {
    struct tcp_slot *bucket[TCP_BUCKETS];
    uint64_t filled; /* a bit per bucket that may not be empty */
    struct tcp_slot *free;
    uint32_t live, live_most; /* slots in use, and a limit that no honest team approaches */
};

struct tcp_messages {
    struct tcp_message *sent, *arrived, *free;
    struct tcp_message **sent_last, **arrived_last;
    uint32_t growing; /* sent, granted, and not all of their bytes are queued */
};

/* A ring of events for the engine. */
struct tcp_events {
    struct wire_event *at;
    uint32_t count, first, room;
};

struct tcp_channel {
    struct wire_channel handle;
    struct wire_traffic traffic; /* written under the wire's lock */
    struct tcp_wire *wire;
    struct tcp_port *port;
    uint64_t id;
    uint32_t name, rank, size;
    uint32_t areas, credits;
    uint32_t places[TCP_ROOMS]; /* how many operations may be unretired that have an exposure of that kind or could have one */
    uint32_t lag[TCP_ROOMS];    /* how many retirements a peer that sends such exposures may not have been told of; at most places */
    uint32_t lag_silent;        /* the same for a peer that sends nothing */
    uint32_t rendezvous;
    uint16_t other;         /* the other rank of two */
    struct tcp_block *seen; /* the last payload polled inline, valid until its operation is retired; NULL: none yet */
    wire_key seen_key;
    bool connected, aborted;
    bool owes, retires; /* peers are owed something; or retirements alone */
    bool urges;         /* messages for it must be served though no thread waits (wire.h, urge) */
    uint32_t retired;
    struct tcp_member *member;
    uint64_t *acked; /* [member][area][edge][credit]: last acknowledged key */
    struct tcp_slots slots;
    struct tcp_messages messages;
    struct tcp_hold *free_hold;
    struct tcp_events events;
    struct tcp_note note[WIRE_NOTE_SORTS]; /* this rank's */
    uint32_t notes_fresh;                  /* over all members */
    unsigned char given[TCP_NOTES_PASS][WIRE_NOTE_LONG_BYTES];
    uint32_t calls_told, calls_shown; /* the newest published call sent to all members; the newest sent to all because calls differ */
    struct wire_call *mirror;
    const int32_t *world;
    size_t bytes; /* of this allocation */
};

/* ------------------------------------------------------------------------------------------------------------ connections */
struct tcp_lane {
    int fd;
    uint32_t socket; /* index in the poller */
    struct tcp_port *port;
    struct tcp_link *link;
    uint32_t lane;
    bool ended, dirty, urgent;
    bool deaf; /* the other end reads nothing more, but data that it sent before may still be readable */
    /* sending */
    bool sending;
    uint32_t out_number, out_count;
    uint32_t delivered; /* segments that had been acknowledged at the last look */
    struct tcp_block *out, **out_last;
    size_t sent;                  /* bytes sent of the first block and its user bytes */
    struct record_layer *records; /* NULL: plain, without records */
    struct iovec out_vector[TCP_VECTORS];
    struct tcp_lane *next_dirty;
    /* receiving */
    uint32_t in_number, begin, end, stage_bytes; /* of the stage */
    struct iovec in_vector[3];
    struct frame frame; /* the frame whose payload is arriving */
    bool in_body;
    size_t left;
    uint32_t body_bytes; /* length of the last payload that was received */
    bool kept;           /* that payload went into a block */
    struct tcp_block *ahead;
    uint32_t ahead_bytes,
        ahead_got; /* bytes of the block offered to the current receive, and bytes received in it, which belong to the frame in the stage */
    uint32_t pad;  /* padding after the last frame, to be skipped */
    char *land;
    struct tcp_channel *channel; /* the channel of the arriving payload; NULL: it was left */
    struct tcp_slot *slot;
    struct tcp_message *message;
    uint32_t looks, hot; /* number of looks that wait for a frame here; 1 + index in the wire's list of such sockets */
    char *stage;
};

/* A peer, as seen from one port. */
struct tcp_link {
    struct tcp_lane lane[TCP_SOCKETS]; /* the last one has only a socket */
    int32_t peer;                      /* rank in the world */
    bool ours; /* this wire carries the data to that rank, which is neither this rank itself nor one of another wire */
    bool goodbye, down, warned, here; /* here: connected */
    bool wanted, wants_base;          /* the link is being made; as one of the base graph */
    bool neighbour;                   /* it is one of the base graph */
    bool sure;                   /* the small connection is known to be established at the other end too, which will say goodbye on it */
    bool nudge;                  /* wake the other end's monitor when the queued frames have left */
    int64_t wanted_ns, again_ns; /* since when it is wanted; when to dial again */
    struct wire_event told;      /* the end of this peer as reported by others ... */
    int64_t told_ns;             /* ... and since when */
    struct wire_event gone;      /* the reported cause, once it is down */
    int64_t ended_ns;            /* when the first of its connections ended */
    uint32_t beat, beat_seen;
    int64_t silent_ns, unheard_ns; /* time without a byte from it; time in which nothing sent to it was acknowledged */
    char address[64];
};

/* A rank that lives in this process: one, or all of them. */
struct tcp_port {
    struct tcp_wire *wire;
    int32_t rank;
    struct tcp_link *link; /* by world rank */
};

/* For links that are made when needed (COMM_TCP_LINKS, net/mesh/links.c): the links that are being made, and the base graph, whose links
 * always exist. */
struct tcp_relay;
struct tcp_graph {
    struct tcp_relay *relay;
    uint32_t steps, wanting, bases;
    int32_t step[TCP_BASE_MOST]; /* neighbours are this many ranks ahead or behind */
    int32_t *want;               /* ranks to which a link is being made */
    struct tcp_link **base;      /* links to neighbours */
};

/* Sends in a row that wait to leave together (burst.c). */
struct tcp_burst {
    bool held;                 /* something is held back, and the timer runs */
    bool messages;             /* messages are among the frames to send */
    int timer;                 /* wakes the monitor */
    uint32_t row;              /* number of sends since the last pump or gap */
    int64_t row_ns;            /* time of the last send */
    uint32_t rows_ended;       /* rows in close succession that their caller ended */
    uint32_t rows_long, waits; /* how many of those rows were long; number of sends held back in this row */
    int64_t guard_ns;          /* expiry of the timer that is not set for each row */
};

/* What wakes the monitor (tcp/heed.c, tcp/watch.c). */
struct tcp_monitor {
    int deaths;            /* an epoll instance for the ends of connections */
    int heed;              /* an eventfd in `deaths`: another thread has read something */
    bool heeds, came;      /* arrivals must wake the monitor; something has arrived since it was last awake */
    int64_t polled_ns;     /* when it last looked */
    _Atomic uint32_t asks; /* wire.asks, unless a mixed wire has one word for both of its wires */
};

struct tcp_times {
    int64_t timeout_ns, link_timeout_ns, warn_ns, tick_ns;
};

struct tcp_memory {
    struct tcp_block *free_block[TCP_ORDER_MOST + 1];
    unsigned char *alone; /* the buffer in which alone.c makes a frame */
    char *zeros, *sink;   /* FRAME_PAYLOAD_MAX bytes each: zeros to send, and a target for bytes to discard, after a channel was left in the
                             middle of a frame */
    char *stages;
    size_t bytes, stage_bytes;
};

struct tcp_wire {
    struct wire wire;
    const struct comm_env *env;
    const struct base_log *log;
    struct env_bell *bell, *watch;
    struct base_lock lock;
    struct poller *poller;
    struct tcp_port *port;
    struct tcp_link *links;
    int32_t ports, ranks, rank;
    bool armed, rung, sealed, checked;
    uint8_t seal_choice; /* enum tcp_seal_choice: the option's value */
    bool aes;            /* this rank prefers AES */
    bool nudges;
    bool leaves;   /* the process is exiting while the monitor still runs */
    bool dry;      /* the last pump left nothing to read */
    bool given_up; /* some peer has said that it gave this rank up, because this rank was silent */
    struct tcp_lane *dirty;
    uint32_t few[TCP_FEW_BATCH], few_number[TCP_FEW_BATCH],
        fews;            /* all small lanes, if they are few: read while no thread waits for a particular frame */
    uint32_t *hot, hots; /* sockets on which a thread waits for a frame */
    size_t pumped;       /* bytes received in the current pump */
    uint32_t arrivals;   /* number of exposures that have arrived, except pieces of long ones */
    struct tcp_channel **channel;
    uint32_t channels, channels_room, generation;
    struct tcp_graph *graph; /* NULL: all links were made when the world opened */
    struct tcp_burst burst;
    struct tcp_monitor monitor;
    struct tcp_times times;
    struct tcp_memory memory;
    struct env_farewell farewell;
};

#endif
