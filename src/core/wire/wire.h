/*
 * wire: what carries bytes between ranks. Not send and receive: a rank EXPOSEs a chunk to one peer or to several, a peer VIEWs it. Through
 * shared memory a view is a pointer; over a network it is bytes that landed.
 *
 * A wire belongs to an engine; a channel to one communicator on that wire. Calls on a channel are serialised by its communicator's lock;
 * `poll` runs under the engine's lock and only hands over events. No call blocks (but `open` and `close`), allocates (but open, join), or
 * recurses.
 *
 * A backend fills one `struct wire_class` completely: no slot is optional, and the conformance suite runs on every row of wire/table.c.
 */
#ifndef WIRE_WIRE_H
#define WIRE_WIRE_H

#include <commstream/result.h>

#include "base/env.h"
#include "base/log.h"

/* ------------------------------------------------------------------------------------------------------------ keys and edges */
/* Operation, iteration and edge in one word: a line's flag is the key itself, so "is it there, and is it this one" is one compare. The seq
 * of collectives starts at 1, so no key is 0. For a message seq is its number in its ordered pair, from 1. */
typedef uint64_t wire_key; /* seq 32, round 24, edge 8 */
static inline wire_key wire_key_of(uint32_t seq, uint32_t round, uint32_t edge)
{
    return (uint64_t)seq << 32 | (uint64_t)(round & 0xffffff) << 8 | (edge & 255);
}
static inline uint32_t wire_key_seq(wire_key key)
{
    return (uint32_t)(key >> 32);
}
static inline uint32_t wire_key_round(wire_key key)
{
    return (uint32_t)key >> 8;
}
static inline uint32_t wire_key_edge(wire_key key)
{
    return (uint32_t)key & 255;
}

/* The kind of an edge, equal on every rank, decides where its exposures lie. Both bits clear: a private stream. */
enum wire_edge { WIRE_ONCE = 1 /* one round */, WIRE_TO_ALL = 2 /* one place that every peer of the exposure reads */ };
/* ONCE | TO_ALL is a line. ONCE alone (private, one round) is a line for each reader, for WIRE_EACH_BYTES at most. An operation has one
 * such edge, whichever its number, so that wires keep places for one alone: levels have a ONCE | TO_ALL edge each. */
enum { WIRE_STREAM_EDGES = 4 /* edge numbers 0..3 may be streams */, WIRE_ONCE_EDGES_MAX = 16, WIRE_EACH_BYTES = 4096 };

enum wire_flag {
    WIRE_WORK = 0,    /* the kind: an exposure of a collective's program ... */
    WIRE_MESSAGE = 1, /* ... or of a message: `tag` and a key of its pair; peers is one peer ... */
    WIRE_NOTE = 2,    /* ... or a note: sort = edge of the key; never waits for room; to all members, also after an abort */
    WIRE_KIND = 3,
    WIRE_BUILT = 4,       /* the bytes already stand where reserve() said */
    WIRE_NONTEMPORAL = 8, /* view with land: write past the cache */
    WIRE_DISCARD = 16,    /* view of a message: take no byte of it, let the sender go (a truncated receive) */
    WIRE_GLANCE = 32,   /* view: not there yet is AGAIN, and nothing is remembered. DONE: as always, but the struct wire_view is not kept */
    WIRE_DEPOSIT = 128, /* expose, with BUILT: in the place that reserve() gave with LANDING */
    WIRE_LAST = 256,    /* expose: the caller has nothing more to expose before the flush, so there is nothing to wait for */
};
/* Of each sort the newest counts; of the last sort a note may be long, in whole words of 8 bytes. */
enum { WIRE_NOTE_BYTES = 48, WIRE_NOTE_SORTS = 5, WIRE_NOTE_LONG = WIRE_NOTE_SORTS - 1, WIRE_NOTE_LONG_BYTES = 512 };
static inline size_t wire_note_bytes(uint32_t sort)
{
    return sort == WIRE_NOTE_LONG ? WIRE_NOTE_LONG_BYTES : WIRE_NOTE_BYTES;
}

/* The upper half of a cookie that a wire puts in place of its caller's, whose never has it. */
#define WIRE_COOKIE_OWN UINT32_C(0x7fffffff)

enum wire_result {
    WIRE_DONE = 0,      /* expose: the bytes are free again; view: they are there */
    WIRE_PENDING = 1,   /* the cookie comes with an event */
    WIRE_AGAIN = 2,     /* no room: nothing happened; ask again in a later pass */
    WIRE_NONE = 3,      /* reserve: build it wherever you like and expose it as usual */
    WIRE_LANDING = 4,   /* reserve: *pad is where the only reader wants them, in its own memory; nobody reads them anywhere else */
    WIRE_MISMATCH = -1, /* view: the peer's call or length is another; nothing was written */
    WIRE_FAILED = -2,   /* expose: no memory for the places that it needs, and asking again will not help; nothing happened */
};

struct wire_span {
    const void *at;
    size_t bytes;
};

/* Filled before its view's event (or the call's DONE). Memory of the caller, in place until released; the rest is the wire's. */
struct wire_channel;
struct wire_view {
    const void *at;
    size_t bytes;
    void *ack;
    uint64_t word;
    struct wire_channel *from; /* by which it came: a channel of several wires gives it back there */
    bool exclusive; /* nobody else reads these bytes: `release` gives them back, also of a ONCE edge. The asker clears it before it asks */
};

/* ------------------------------------------------------------------------------------------------------------ one exposure, one view */
struct wire_expose {
    wire_key key;
    uint32_t fingerprint;  /* of the call; both ends compare. A message: its tag instead */
    uint16_t edge;         /* enum wire_edge */
    uint16_t flags;        /* enum wire_flag: the kind, BUILT, DEPOSIT */
    const uint16_t *peers; /* ranks of the channel's team, this rank not among them */
    uint32_t npeers;
    uint32_t nspans;
    const struct wire_span
        *spans; /* the bytes, in order; copied or kept until DONE or the cookie. With BUILT, and for a message: one span */
    uint64_t cookie;
};

struct wire_look {
    wire_key key;
    uint32_t fingerprint;
    uint16_t edge;
    uint16_t flags;
    uint32_t peer;
    uint32_t rounds; /* of a stream: those of its edge that are not over, with this one; 0: not known. Of the last few, as many as there are
                        credits, nobody waits to hear that they were taken */
    void *land;      /* where the bytes must end, or NULL: wherever the wire has them, until released. A landed view is released by itself.
                        While it is pending the wire, and a peer that it told of the place, may write there */
    size_t bytes;    /* expected length. A message: how many to take, at most the announced */
    uint64_t cookie;
    struct wire_view *view; /* NULL when landing */
};

enum wire_event_kind {
    WIRE_EVENT_DONE = 1, /* cookie; result DONE or MISMATCH (with peer) */
    WIRE_EVENT_ANNOUNCED =
        2, /* a message or a note: flags' kind in `result`, peer, key, tag, bytes; a note's bytes at `note` until the next advance */
    WIRE_EVENT_DOWN = 3, /* from poll alone: the wire's peer is dead or cannot be reached; peer is the WORLD rank of the wire, result a
                            comm_result: PEER, or CLOSED if it closed its wire in good order; bytes: 0, or for how many nanoseconds it was
                            silent while its process lived, or, with tag set, while its host acknowledged nothing either */
    WIRE_EVENT_LOST = 4, /* of a channel, after DOWN: something of peer's that is asked for will never be here, though all that it sent may
                            have left; result, tag and bytes as in DOWN; key: of what, 0: of a message. Once for each peer */
};
struct wire_event {
    uint32_t kind;
    int32_t result;
    uint64_t cookie;
    wire_key key;
    int32_t peer;
    uint32_t tag;
    uint64_t bytes;
    const void *note;
};

/* ------------------------------------------------------------------------------------------------------------ channels */
/* A rank's published calls, caps.calls of them, in memory that the members on its host read: from these the text of a mismatch is written,
 * and a call that somebody lacks is found. seq is stored last, with release; a reader checks it before and after, for the writer
 * may be that many ahead and write over what is being read: therefore every field is atomic. */
struct wire_call {
    _Atomic uint32_t seq;
    _Atomic uint32_t fingerprint;
    _Atomic uint8_t collective, type, flags;
    _Atomic int8_t refused; /* 0, or the comm_result for which this rank refused it */
    _Atomic uint32_t op;
    _Atomic int32_t root;
    _Atomic uint32_t chain; /* of this call and all before it: what lines and frames carry, so that a divergence shows at the next
                               exchange, whatever it was */
    _Atomic uint64_t n;
};
_Static_assert(sizeof(struct wire_call) == 32, "two to a cache line");

/* 64 bytes shared by a channel's members on one host, in new memory: zero. The engine's to use; the wire only provides it. */
struct wire_board {
    _Alignas(64) _Atomic uint64_t cause; /* 0, or 1 + the rank whose proposal was adopted (one compare-and-swap) */
    _Atomic uint64_t word[7];
};
_Static_assert(sizeof(struct wire_board) == 64, "one cache line");

struct wire_caps {
    uint32_t inline_max;    /* bytes that travel inside a line */
    uint32_t window;        /* operations in flight at once */
    uint32_t calls;         /* length of calls[], a power of two; 0: 2 * window. With 4 * window a rank's oldest unfinished call is there
                               however far others went on without it: they are at most three windows ahead, or with limits.ahead nine */
    uint64_t once_max;      /* longest exposure of a ONCE edge */
    uint64_t chunk_all;     /* longest exposure of a TO_ALL stream */
    uint64_t chunk_private; /* longest exposure of a private stream */
    uint64_t chunk_least;   /* shorter pieces of a stream cost more than they overlap; 0: PROGRAM_CHUNK_MIN_BYTES. Equal on all members */
    bool dirties;           /* of two members: who read the bytes of a ONCE edge, more than a line has, dirties them (data_dirty) */
    int64_t note_lead_ns;   /* a note may come so much earlier than a message that left before it; 0: never earlier */
};

/* What went over a network for a channel, frames and all: of this rank, to and from whom. Read by anybody. */
struct wire_traffic {
    _Atomic uint64_t out, in;
};

/* Every wire's channel begins with this. */
struct wire_channel {
    const struct wire_class *class;
    struct wire *wire;                      /* of that class: not the world's own where that is made of several */
    const struct wire_memory_class *memory; /* that all members reach; NULL: they share none */
    const struct wire_traffic *traffic;     /* NULL: there is no network */
    bool borrows;                           /* peers have shown bytes where they lie, in memory of wire_memory: see there */
    struct wire_caps caps;
    struct wire_board *board;            /* NULL across hosts */
    struct wire_call *calls;             /* this rank's own, call seq at [seq % caps.calls] */
    struct wire_call *const *peer_calls; /* by rank of the team; NULL where it cannot be read */
};

struct wire_team {
    uint64_t id; /* equal on all members, different for every communicator of a world */
    int32_t rank, size;
    const int32_t *world; /* world rank of each member; the caller's, kept until leave */
};

/* Agreed at creation, equal on all members. Zero: the wire's default. minimal: one place per edge, one credit, for the simulator. */
struct wire_limits {
    uint32_t window;
    uint32_t once_edges;
    uint32_t credits;
    uint32_t minimal;
    uint64_t chunk;
    uint32_t rendezvous;    /* a message is sent when its receive was posted, however short it is */
    uint32_t chunk_private; /* of private streams, where chunk is 0 */
    uint32_t copies;        /* nobody is shown bytes in their owner's memory: there is no board that all members share */
    uint32_t ahead;         /* members share CPUs: who needs nothing of the others goes far on while it has one, in shared memory */
};
enum { WIRE_OFFER_BYTES = 64 };
enum wire_leave {
    WIRE_ABORT = 1, /* the communicator failed: forget all pending views and exposures. On return the wire touches no user memory of this
                       channel; board, notes and calls stay readable */
    WIRE_CLOSE = 2, /* the last call on a channel: its memory goes back once all members have left */
};

/* Peers are looked after in ticks: poll is called once in the shortest of WIRE_TICK_NS, peer_timeout_ns / WIRE_TICKS and link_timeout_ns /
 * WIRE_LINK_TICKS, or oftener. */
enum { WIRE_TICK_NS = 1000000000, WIRE_TICKS = 24, WIRE_LINK_TICKS = 4 };

struct wire_config {
    const struct comm_env *env;
    const struct base_log *log;
    struct env_bell *bell;        /* this engine's; peers' activity rings it while the wire is armed */
    struct env_bell *watch;       /* the monitor's: death notices (descriptors) are watched by this one alone */
    struct wire_boot *boot;       /* how the ranks meet; NULL for `local` */
    int32_t rank, ranks;          /* of the world; rank -1: all of them are in this process */
    int32_t oversubscribed;       /* more ranks than CPUs: they will sleep often, so sleeping must be cheap */
    uint64_t world;               /* equal on all ranks, unlike any other world's */
    const int32_t *host;          /* by rank: the number of its host, from 0 in the order of their lowest ranks; NULL: not asked */
    bool across;                  /* peers of this rank's own host are another wire's: this one need not reach them */
    const struct wire_class *far; /* of a wire made of two: the one across hosts; NULL: tcp */
    const char *launcher;         /* as team_launch_find names it */
    const char *library;          /* mpi: the file of a library that its module opens itself, or NULL */
    struct wire *guard;           /* mpi: a wire among the same ranks, open, which tells of deaths, notes and published calls; the new wire
                                     owns it once it is open */
    int64_t deadline;
    int64_t peer_timeout_ns; /* equal on all ranks: a live process that is silent for so long is told down; 0: 30 s */
    int64_t link_timeout_ns; /* the same of a host that acknowledges nothing; 0: 3 s */
    char *error_text;        /* where open says why it failed */
    size_t error_text_bytes;
};

static inline bool wire_joins(const struct wire_config *config, int32_t a, int32_t b)
{
    return a != b && (!config->across || config->host[a] != config->host[b]);
}

struct wire; /* begins with its class */

/*
 * Memory of one rank that its peers on this host reach too. What is exposed on a stream out of such memory need not be copied first:
 * readers are shown where it lies, and the exposure is PENDING until all of them gave it back. After a failure its owner may write it while
 * somebody still reads: therefore a reader that was shown such bytes (channel->borrows) looks at the board after its last read, and has
 * succeeded only if no cause stands there; the owner's requests end after the cause was put there.
 *
 * A landing place in such memory may be told to the exposer, who then stores there (reserve: LANDING). So that a late writer writes
 * nowhere, `leave` with ABORT puts other pages in the place of those that peers were told of and that have not come.
 */
enum wire_placement { WIRE_PLACE_DEFAULT = 0, WIRE_PLACE_FIRST_TOUCH = 1, WIRE_PLACE_INTERLEAVE = 2 };
struct wire_memory_class {
    /* Zeroed, page-aligned, and there: want of memory is NULL here and never a fault. Any thread. */
    void *(*take)(struct wire *wire, size_t bytes, enum wire_placement placement);
    /* keep, or after a failure of any channel of the wire: it is nobody's until the wire closes, so that who has not heard yet writes to
       nobody's memory. */
    void (*give)(struct wire *wire, void *at, bool keep);
    /* Whether all of it lies in one piece of this rank's such memory; *where names the place to peers, and stays true: no landing place is
       told of there any more. */
    bool (*where)(struct wire *wire, const void *at, size_t bytes, uint64_t *where);
    void *(*reach)(struct wire_channel *channel, int32_t peer, uint64_t where);
    /* Peers' memory was written by somebody of ours, which the next flush makes known to sleepers. Under the channel's lock. */
    void (*wrote)(struct wire_channel *channel);
};

struct wire_class {
    const char *name;
    bool system_calls; /* a channel's calls may make system calls that are cancellation points (pthreads(7)) */
    /* May block until config->deadline. COMM_OK, or an error with its text in config->error_text and nothing left behind. */
    enum comm_result (*open)(const struct wire_config *config, struct wire **wire);
    void (*close)(struct wire *wire);
    /* Twice: with offers NULL it makes the channel and writes this rank's offer; then, with the offers of all members in rank order
       (size * WIRE_OFFER_BYTES), it connects. Never blocks. An error of either ends the channel. */
    enum comm_result (*join)(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                             void *offer, struct wire_channel **channel);
    void (*leave)(struct wire_channel *channel, enum wire_leave how);
    /* Where to build the bytes of a coming exposure (same key, edge, peers), so that no copy is needed: DONE or LANDING, and *pad; NONE, or
       AGAIN. The span says where they will lie in any case. */
    enum wire_result (*reserve)(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad);
    enum wire_result (*expose)(struct wire_channel *channel, const struct wire_expose *expose);
    enum wire_result (*view)(struct wire_channel *channel, const struct wire_look *look);
    /* What expose and a glance do with one span of caps.once_max bytes or less on a ONCE edge, without their structures, which take as
       long as the rest. Optional, all three or none. show: DONE, AGAIN or FAILED. see: DONE and *at, until this rank retires the operation;
       AGAIN; MISMATCH. fetch: so many bytes of a peer's will be looked for soon; they are brought near if they can be. */
    enum wire_result (*show)(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes);
    enum wire_result (*see)(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes, const void **at);
    void (*fetch)(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes);
    /* view: may be overwritten by its exposer. view NULL: operation seq and all before it are retired on this rank. */
    void (*release)(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
    /* This channel's pending views and exposures, messages and notes. Returns how many events it wrote. */
    uint32_t (*advance)(struct wire_channel *channel, struct wire_event *events, uint32_t max);
    /* What was exposed, released or retired since the last flush is made known to members that sleep: one fence for the lot. */
    void (*flush)(struct wire_channel *channel);
    /* Of the whole wire: peers that died or stand still; descriptors' readiness is taken away. May cost a system call, and its being called
       is what peers see of this rank's life: for the monitor, once in every tick, not for every pass. */
    uint32_t (*poll)(struct wire *wire, struct wire_event *events, uint32_t max);
    /* on: publish that this engine is about to sleep, with a full fence, so that whoever publishes after rings the bell; the caller looks
       once more before it sleeps. *deadline is lowered when the wire must be polled by then. off: awake again. */
    void (*arm)(struct wire *wire, bool on, int64_t *deadline);
    /* What this channel's wire knows of a member, for comm_describe_peer: host and address text. */
    void (*describe)(struct wire_channel *channel, int32_t peer, char *address, size_t bytes);
    const struct wire_memory_class *memory; /* optional too. NULL: ranks share no memory here */
    /*
     * For channels whose peers must be served though nobody here waits; both or none, and none where all ranks are in one process.
     * urge: so it is with this channel from now on, or no more. What then goes to a member sets WIRE_ASKED in its `asks`.
     * heed, on: the monitor is about to sleep: what comes for such a channel wakes it, once. off: it is up. Either says whether something
     * may have come that nobody took since, and takes WIRE_ASKED away. For the monitor alone, which calls off after each on.
     */
    void (*urge)(struct wire_channel *channel, bool on);
    bool (*heed)(struct wire *wire, bool on);
};

/* Bits of a wire's `asks`. ASKED: set by a peer after what it has for us, taken by who makes a pass then. RESTS: whoever sets ASKED takes
 * it and rings our monitor. */
enum { WIRE_ASKED = 1, WIRE_RESTS = 2 };

struct wire {
    const struct wire_class *class;
    _Atomic uint32_t *asks; /* this rank's; NULL: none can reach it */
    bool silent;            /* what comes rings nobody: sleepers look at it now and then, and so does the monitor while it serves */
};

#endif
