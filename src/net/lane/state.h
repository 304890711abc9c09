/*
 * tcp: the wire between processes that share no memory, also on one host. Two connections run between each pair of ranks: what is small
 * goes over one, bulk over the other, so that nobody's bytes stand before anybody's small ones. Bytes of an exposure either land where a
 * posted view wants them, or in a block of memory for which its sender had a credit of that very communicator. docs/internals/network.md
 * has the protocol and why it is so.
 *
 * One lock for the whole wire: whoever reads a socket may find frames of any channel there. It is taken inside a communicator's lock, and
 * inside it only the poller and memory are called.
 */
#ifndef NET_LANE_STATE_H
#define NET_LANE_STATE_H

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
    TCP_BEAT = 2, /* a third connection, of the monitor alone: so that no heartbeat wakes who waits for something else */
    TCP_SOCKETS = 3,
    TCP_SMALL_BYTES = 16384, /* an exposure up to here goes over the small lane, and is copied there */
    TCP_WINDOW = 64,
    TCP_WINDOW_MIN = 4,
    TCP_WINDOW_MAX = 1024,
    TCP_INLINE = 240,      /* an exposure up to here has room in two windows of operations */
    TCP_ONCE_MAX = 524288, /* two ranks show so much at once; among more it is seldom over an eighth of that */
    TCP_ONCE_PLACES = 8,
    TCP_AREAS = 4,
    TCP_CREDITS = 4,
    TCP_CHUNK = 262144,
    TCP_CHUNK_LEAST = 131072,
    TCP_EAGER_BYTES = 4096,
    TCP_EAGER_SLOTS = 16,    /* eager messages above TCP_INLINE of an ordered pair that nobody has taken yet */
    TCP_DATA_BYTES = 262144, /* of a granted message in one frame */
    TCP_STAGE_SMALL = 32768,
    TCP_AHEAD_BYTES = 65536, /* of a payload that is received in its block before its header was read */
    TCP_LOOK_AHEAD = 8192,
    TCP_STAGE_BULK = 64 + TCP_AHEAD_BYTES + TCP_LOOK_AHEAD,
    TCP_READ_WHOLE = 36864, /* bytes of a frame that is read with its header */
    TCP_BUCKETS = 64,
    TCP_ORDER_LEAST = 8,
    TCP_ORDER_MOST = 20, /* of a block: 2^order bytes */
    TCP_NOTES_PASS = 16,
    TCP_CHANNELS_MAX = 65535,
    TCP_ALONE_BYTES = FRAME_LINE + TCP_SMALL_BYTES + FRAME_LINE,
    TCP_VECTORS = 32,
    TCP_ROUNDS = 32,          /* of the poller in one pump, which ends earlier ... */
    TCP_PUMP_BYTES = 1 << 20, /* ... when it has received so much */
    TCP_ACKS = 16,            /* owed to a member at most */
    TCP_FEW = 3,
    TCP_ROW = 3,            /* what is sent after so many times without a pump between them waits for company ... */
    TCP_ROW_MESSAGES = 1,   /* ... where messages are in it: who has one to send has often more ... */
    TCP_ROW_GAP_NS = 10000, /* ... and with less than this between them ... */
    TCP_HOLD_NS = 100000,   /* ... for so long at most; but where so many rows, ... */
    TCP_ROWS_ENDED = 16,
    TCP_ROWS_GAP_NS = 1000000, /* ... with less than this between them, were all ended by their caller, ... */
    TCP_GUARD_NS = 2000000,    /* ... for so long, and where so much waited in each of them, what is first waits too */
    TCP_ROW_LONG = 4,
    TCP_LINKS_MANY = 32, /* ranks: of more, each connects to those that it needs */
    TCP_BASE_MOST = 8,   /* steps of the base graph: 1, 2, 4, 16, 64 ... */
    TCP_DIALS = 128,     /* under way at once, where links are made when they are needed */
};

enum tcp_seal_choice { TCP_SEAL_AUTO, TCP_SEAL_YES, TCP_SEAL_NO };
enum tcp_links { TCP_LINKS_AUTO, TCP_LINKS_ALL, TCP_LINKS_NEEDED };

struct tcp_wire;
struct tcp_channel;
struct tcp_lane;

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Bytes that arrived and wait to be looked at; or bytes to be sent, and then perhaps bytes of the user's behind them. */
struct tcp_block {
    struct tcp_block *next;
    struct tcp_channel *channel; /* whose user's bytes these are; NULL: nobody's */
    struct tcp_hold *hold;
    const char *user;
    size_t user_bytes;
    uint32_t bytes; /* of data */
    uint32_t order;
    _Alignas(64) char data[];
};

/* An exposure or message whose bytes the user still lends. */
struct tcp_hold {
    struct tcp_hold *next;
    uint64_t cookie;
    uint32_t pieces; /* to be sent, over all peers */
    uint32_t peer;
};

/* What is known of one key of one peer: what came of it, and who asks for it. */
struct tcp_slot {
    struct tcp_slot *next;
    wire_key key;
    uint32_t peer, tag;
    uint64_t total;
    uint32_t rounds;                   /* as in the look at it */
    struct tcp_block *block;           /* NULL: nothing came, or it goes straight to where it is wanted */
    bool begun, whole, asked, differs; /* differs: its look waits for the peer's calls, to be told MISMATCH */
    struct wire_look look;
};

/* A message that was sent and is not granted, or has arrived and is not taken. */
struct tcp_message {
    struct tcp_message *next;
    wire_key key;
    uint32_t peer, tag;
    uint64_t bytes, take, begun; /* to move; of that received or being received */
    uint64_t cookie;
    struct tcp_block *block; /* an eager one's bytes */
    char *at;                /* the user's */
    bool granted, slot;      /* slot: an eager one's that counts */
};

/* ------------------------------------------------------------------------------------------------------------ channels */
struct tcp_note {
    wire_key key;
    uint32_t tag, bytes;
    uint32_t number; /* of what its rank has passed on: an older one may come later */
    unsigned char data[WIRE_NOTE_LONG_BYTES];
};

/* What this rank knows of a member. */
struct tcp_member {
    struct tcp_lane *lane;                                       /* its two; NULL: this rank itself, or another wire's */
    uint32_t channel;                                            /* its name of this channel */
    uint32_t retired;                                            /* by it */
    uint32_t retired_told;                                       /* of mine, to it */
    uint32_t sent, consumed, eager_sent, eager_taken;            /* messages to it */
    uint32_t arrived, seen, seen_told, slots, taken, taken_told; /* messages from it: announced here, handed over, of that told; eager
                                                                    ones that count: here, taken, of that told */
    uint32_t looks[TCP_LANES];                                   /* waiting for a frame, by lane */
    wire_key ack[TCP_ACKS];                                      /* of its exposures, not told yet */
    uint32_t acks;
    uint8_t fresh, unsent;                 /* a bit per sort of notes: arrived; to be sent */
    bool asking, calls_here;               /* for its published calls; they have come */
    bool asked;                            /* for mine; they have not been posted yet */
    bool lost;                             /* it is gone, and the engine knows that something of it is missed */
    struct tcp_note note[WIRE_NOTE_SORTS]; /* from it */
};

struct tcp_slots {
    struct tcp_slot *bucket[TCP_BUCKETS];
    uint64_t filled; /* buckets that may hold some, a bit each */
    struct tcp_slot *free;
    uint32_t live, live_most; /* in use; a bound on them that no honest team comes near */
};

struct tcp_messages {
    struct tcp_message *sent, *arrived, *free;
    struct tcp_message **sent_last, **arrived_last;
};

/* For the engine: a ring. */
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
    uint32_t areas, credits, once_places, lag; /* lag: how many retirements a peer may not know of yet */
    uint32_t rendezvous;
    uint16_t other;         /* of two */
    struct tcp_block *seen; /* what was last seen alone: it is there until its operation is retired. NULL: nothing yet */
    wire_key seen_key;
    bool connected, aborted;
    bool owes, retires; /* peers are owed a word; of retirements alone */
    uint32_t retired;
    struct tcp_member *member;
    uint64_t *acked; /* [member][area][edge][credit]: key last acknowledged */
    struct tcp_slots slots;
    struct tcp_messages messages;
    struct tcp_hold *free_hold;
    struct tcp_events events;
    struct tcp_note note[WIRE_NOTE_SORTS]; /* mine */
    uint32_t notes_fresh;                  /* of all members */
    unsigned char given[TCP_NOTES_PASS][WIRE_NOTE_LONG_BYTES];
    uint32_t calls_told, calls_shown; /* published calls that all members have heard of; that were shown to all for a difference */
    struct wire_call *mirror;
    const int32_t *world;
    size_t bytes; /* of this allocation */
};

/* ------------------------------------------------------------------------------------------------------------ connections */
struct tcp_lane {
    int fd;
    uint32_t socket; /* of the poller */
    struct tcp_port *port;
    struct tcp_link *link;
    uint32_t lane;
    bool ended, dirty, urgent;
    bool deaf; /* the other end takes nothing more, and what it had said before may still be here to be read */
    /* out */
    bool sending;
    uint32_t out_number, out_count;
    uint32_t delivered; /* segments that had arrived at the last look */
    struct tcp_block *out, **out_last;
    size_t sent;                  /* of the first block and what is behind it */
    struct record_layer *records; /* NULL: in plain, without records */
    struct iovec out_vector[TCP_VECTORS];
    struct tcp_lane *next_dirty;
    /* in */
    uint32_t in_number, begin, end, stage_bytes; /* of the stage */
    struct iovec in_vector[3];
    struct frame frame; /* whose payload is arriving */
    bool in_body;
    size_t left;
    uint32_t body_bytes; /* of the last frame that had a payload to land */
    bool kept;           /* that payload, in a block */
    struct tcp_block *ahead;
    uint32_t ahead_bytes, ahead_got; /* of it offered to the receive that is under way, and come; the latter is of the frame in the stage */
    uint32_t pad;                    /* behind the last frame, to be passed over */
    char *land;
    struct tcp_channel *channel; /* whose; NULL: nobody's any more */
    struct tcp_slot *slot;
    struct tcp_message *message;
    uint32_t looks, hot; /* waiting for a frame on it; 1 + its place in the wire's list of those */
    char *stage;
};

/* A peer, as one port sees it. */
struct tcp_link {
    struct tcp_lane lane[TCP_SOCKETS]; /* of the last one only its socket is used */
    int32_t peer;                      /* of the world */
    bool ours;                         /* this wire carries what goes to that rank: it is neither this rank itself nor another wire's */
    bool goodbye, down, warned, here;  /* here: connected */
    bool wanted, wants_base;           /* it is being made; as one of the base graph */
    bool neighbour;                    /* it is one of that graph */
    bool sure;                         /* its small connection stands for the other end, too, which will say goodbye there */
    bool nudge;                        /* the other end's monitor is to look, when what was said has left */
    int64_t wanted_ns, again_ns;       /* since when; when it is to be dialed again */
    struct wire_event told;            /* what others say of its end ... */
    int64_t told_ns;                   /* ... since when */
    struct wire_event gone;            /* once it is down: as it was told */
    int64_t ended_ns;                  /* since when one of them has ended */
    uint32_t beat, beat_seen;
    int64_t silent_ns, unheard_ns; /* without a byte from it; while nothing sent to it was acknowledged */
    char address[64];
};

/* A rank that lives in this process: one, or all of them. */
struct tcp_port {
    struct tcp_wire *wire;
    int32_t rank;
    struct tcp_link *link; /* by world rank */
};

/* Where links are made when they are needed (COMM_TCP_LINKS, net/mesh/links.c): which are, and the base graph of those that always stand.
 */
struct tcp_relay;
struct tcp_graph {
    struct tcp_relay *relay;
    uint32_t steps, wanting, bases;
    int32_t step[TCP_BASE_MOST]; /* neighbours are so many ranks further, and back */
    int32_t *want;               /* ranks to which a link is being made */
    struct tcp_link **base;      /* neighbours */
};

/* What leaves in a row, and waits for company (burst.c). */
struct tcp_burst {
    bool held;                 /* something waits for company, and the timer runs */
    bool messages;             /* some are in what is to leave */
    int timer;                 /* the monitor wakes when it ends */
    uint32_t row;              /* how often something left since the last pump, or gap */
    int64_t row_ns;            /* when something was last to leave */
    uint32_t rows_ended;       /* one soon after the other, by their caller */
    uint32_t rows_long, waits; /* those of them that were long; what waits in this one */
    int64_t guard_ns;          /* when a timer ends that is not set for each row */
};

/* What wakes the monitor (tcp/heed.c, tcp/watch.c). */
struct tcp_monitor {
    int deaths;        /* an epoll of its own: ends of connections */
    int heed;          /* an eventfd among `deaths`: what another thread has read */
    bool heeds, came;  /* it is to be woken by what comes; something has since it was up last */
    int64_t polled_ns; /* when it last looked */
};

struct tcp_times {
    int64_t timeout_ns, link_timeout_ns, warn_ns, tick_ns;
};

struct tcp_memory {
    struct tcp_block *free_block[TCP_ORDER_MOST + 1];
    unsigned char *alone; /* where an exposure is made that leaves alone (alone.c) */
    char *zeros, *sink;   /* FRAME_PAYLOAD_MAX each: sent, and written over, where a channel was left in the middle of a frame */
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
    uint8_t seal_choice; /* enum tcp_seal_choice: what this rank was told */
    bool aes;            /* would be sealed by AES */
    bool nudges;
    bool leaves; /* its process ends, and the monitor is still there */
    bool dry;    /* the last pump left nothing to be read */
    struct tcp_lane *dirty;
    uint32_t few[TCP_FEW], fews; /* all small lanes, where they are few: tried while nobody waits for a frame of his own */
    uint32_t *hot, hots;         /* sockets on which somebody waits for a frame */
    size_t pumped;               /* bytes received in the pump that is going on */
    uint32_t arrivals;           /* exposures that are here, but for pieces of long ones; counts on */
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
