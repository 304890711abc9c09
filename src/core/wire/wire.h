/*
 * wire: what carries bytes between ranks. There is no send and receive: a rank EXPOSEs a chunk to one or several peers,
 * and a peer VIEWs it. Through shared memory a view is a pointer; over a network it is bytes that have arrived.
 *
 * A wire belongs to an engine; a channel belongs to one communicator on that wire. Calls on a channel are serialised by
 * its communicator's lock. `poll` runs under the engine's lock and only returns events. No call blocks (except open and
 * close), allocates (except open and join), or recurses.
 *
 * A backend fills one `struct wire_class` completely, except for slots that are marked optional. The conformance suite
 * runs on every row of wire/table.c.
 */
#ifndef WIRE_WIRE_H
#define WIRE_WIRE_H

#include <commstream/result.h>

#include "base/env.h"
#include "base/log.h"

/* ------------------------------------------------------------------------------------------------------------ keys and edges */
/* Operation, iteration and edge in one word. A line's flag is the key itself, so one compare answers both "has it
 * arrived" and "is it the right one". The seq of collectives starts at 1, so no key is 0. For a message, seq is its
 * number in its ordered pair of ranks, from 1. */
typedef uint64_t wire_key; /* seq 32, round 24, edge 8 */
static inline wire_key wire_key_of(uint32_t seq, uint32_t round, uint32_t edge)
{
    return (uint64_t)seq << 32 | (uint64_t)(round & 0xffffff) << 8 | (edge & 255);
}
static inline uint32_t wire_key_seq(wire_key key)
{
    return (uint32_t)(key >> 32);
}
/* The number of the next message of a pair: 0 is left out, also after 2^32 messages. */
static inline uint32_t wire_message_after(uint32_t number)
{
    return number + 1 ? number + 1 : 1;
}
static inline uint32_t wire_key_round(wire_key key)
{
    return (uint32_t)key >> 8;
}
static inline uint32_t wire_key_edge(wire_key key)
{
    return (uint32_t)key & 255;
}

/* The kind of an edge. It is equal on every rank and decides where exposures lie. Both bits clear: a private stream. */
enum wire_edge { WIRE_ONCE = 1 /* one round */, WIRE_TO_ALL = 2 /* all peers of the exposure read the same place */ };
/* ONCE | TO_ALL is a line. ONCE alone (private, one round) is one line for each reader, for at most WIRE_EACH_BYTES. An
 * operation has only one such private edge, whatever its number, so wires keep places for one alone; each level of an
 * algorithm has a ONCE | TO_ALL edge. */
enum { WIRE_STREAM_EDGES = 4 /* edge numbers 0..3 may be streams */, WIRE_ONCE_EDGES_MAX = 16, WIRE_EACH_BYTES = 4096 };

enum wire_flag {
    WIRE_WORK = 0,    /* the kind: an exposure of a collective's program ... */
    WIRE_MESSAGE = 1, /* ... or of a message: `fingerprint` is its tag, the key is that of its pair, and peers is one peer ... */
    WIRE_NOTE = 2,    /* ... or a note: its sort is the edge of the key. It never waits for room, goes to all members, and is sent even
                       * after an abort */
    WIRE_KIND = 3,
    WIRE_BUILT = 4,       /* the bytes already are where reserve() said */
    WIRE_NONTEMPORAL = 8, /* view with land: write with non-temporal stores */
    WIRE_DISCARD = 16,    /* view of a message: take none of its bytes and release the sender (a truncated receive) */
    WIRE_GLANCE = 32,     /* view: AGAIN if it has not arrived, and nothing is remembered. DONE as always, but the wire does not keep the
                           * struct wire_view */
    WIRE_DEPOSIT = 128,   /* expose, with BUILT: the bytes are in the place that reserve() returned with LANDING */
    WIRE_ANSWER = 512,    /* expose, with BUILT: the bytes are in the place that reserve() returned with ANSWERS */
    WIRE_LAST = 256,      /* expose: the caller exposes nothing more before the flush, so the wire need not wait for more */
};
/* Only the newest note of each sort counts. A note of the last sort may be long, in whole 8-byte words. */
enum { WIRE_NOTE_BYTES = 48, WIRE_NOTE_SORTS = 5, WIRE_NOTE_LONG = WIRE_NOTE_SORTS - 1, WIRE_NOTE_LONG_BYTES = 512 };
static inline size_t wire_note_bytes(uint32_t sort)
{
    return sort == WIRE_NOTE_LONG ? WIRE_NOTE_LONG_BYTES : WIRE_NOTE_BYTES;
}

/* The upper half of the wire's own cookies. Callers' cookies never have this value. */
#define WIRE_COOKIE_OWN UINT32_C(0x7fffffff)

enum wire_result {
    WIRE_DONE = 0,      /* expose: the buffer may be reused; view: the bytes have arrived */
    WIRE_PENDING = 1,   /* an event with the cookie follows */
    WIRE_AGAIN = 2,     /* no room: nothing happened; try again in a later pass */
    WIRE_NONE = 3,      /* reserve: build the bytes anywhere and expose them as usual */
    WIRE_LANDING = 4,   /* reserve: *pad is the only reader's own memory, where it wants the bytes; nobody reads them anywhere else */
    WIRE_ANSWERS = 5,   /* reserve: *pad is the view `answers`, whose bytes may be replaced; releasing that view does nothing more */
    WIRE_MISMATCH = -1, /* view: the peer's call or length differs; nothing was written */
    WIRE_FAILED = -2,   /* expose: no memory for the places that it needs, and trying again will not help; nothing happened */
};

struct wire_span {
    const void *at;
    size_t bytes;
};

/* Filled before its view's event (or before the call returns DONE). The struct is the caller's memory and stays in
 * place until released; its contents are the wire's. */
struct wire_channel;
struct wire_view {
    const void *at;
    size_t bytes;
    void *ack;
    uint64_t word;
    struct wire_channel *from; /* the channel by which it came: a channel made of several wires releases it there */
    bool exclusive; /* no other reader: an answer may be stored over the bytes, and `release` gives them back, even on a ONCE edge.
                     * The caller clears this before the view */
};

/* ------------------------------------------------------------------------------------------------------------ one exposure, one view */
struct wire_expose {
    wire_key key;
    uint32_t fingerprint;  /* fingerprint of the call; both ends compare it. For a message: its tag */
    uint16_t edge;         /* enum wire_edge */
    uint16_t flags;        /* enum wire_flag: the kind, BUILT, DEPOSIT, ANSWER */
    const uint16_t *peers; /* ranks of the channel's team, without this rank */
    uint32_t npeers;
    uint32_t nspans;
    const struct wire_span
        *spans; /* the bytes, in order; copied, or kept until DONE or the cookie. With BUILT, and for a message: one span */
    uint64_t cookie;
    /* A message, where caps.takes_growing: NULL, or how many bytes are there, from the first on. Who exposes it increases the word
     * (release), and the wire looks at it in each pass (advance, flush). It stays valid until DONE, the cookie, or leave with ABORT */
    const _Atomic uint64_t *there;
    struct wire_view *answers; /* reserve: NULL, or a view of what the only reader exposed in the same round on the edge before, a private
                                * stream. Nobody reads its bytes again, so the result may be built there. The reader lands it */
};

struct wire_look {
    wire_key key;
    uint32_t fingerprint;
    uint16_t edge;
    uint16_t flags;
    uint32_t peer;
    uint32_t rounds; /* for a stream: the number of rounds of its edge that are not over, including this one; 0: unknown. The exposer need
                      * not learn that the last rounds, as many as there are credits, were taken */
    void *land;      /* where the bytes must go, or NULL: wherever the wire has them, until released. A view with land is released by
                      * itself. While it is pending, the wire may write there, and so may a peer that knows the place */
    size_t bytes;    /* expected length. For a message: how many bytes to take, at most the announced length */
    _Atomic uint64_t *came; /* a message: NULL, or where the wire may store (release) how many bytes are at `land`, from the first on. It
                             * need not do so for all of them */
    uint64_t cookie;
    struct wire_view *view; /* NULL with land */
};

enum wire_event_kind {
    WIRE_EVENT_DONE = 1,      /* cookie; result is DONE or MISMATCH (with peer) */
    WIRE_EVENT_ANNOUNCED = 2, /* a message or a note: kind from `enum wire_flag` in `result`, peer, key, tag, bytes; a note's bytes at
                               * `note`, until the next advance */
    WIRE_EVENT_DOWN = 3, /* only from poll: a peer of the wire is dead or unreachable. peer: its WORLD rank; result: a comm_result, PEER, or
                          * CLOSED if it closed its wire regularly; tag: `enum wire_end`; bytes: 0, or the silence in nanoseconds */
    WIRE_EVENT_LOST = 4, /* of a channel, after DOWN: something requested from the peer will never arrive, though everything that the peer
                          * sent may have been delivered. result, tag and bytes as in DOWN; key: what is lost, 0: a message. Once per peer
                          */
};
/* Of whose silence a peer's end is the consequence: of its own while its process lived, of its host, or of this rank: the peer gave this
 * rank up. */
enum wire_end { WIRE_SILENT = 0, WIRE_CUT = 1, WIRE_GAVE_UP = 2 };
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
/* The published calls of a rank, caps.calls of them, in memory that the members on its host can read. They serve to
 * write the text of a mismatch and to find a call that some rank has not made. seq is stored last, with release, and a
 * reader checks it before and after. The writer may be that many calls ahead and overwrite what is being read, so every
 * field is atomic. */
struct wire_call {
    _Atomic uint32_t seq;
    _Atomic uint32_t fingerprint;
    _Atomic uint8_t collective, type, flags;
    _Atomic int8_t refused; /* 0, or the comm_result with which this rank refused the call */
    _Atomic uint32_t op;
    _Atomic int32_t root;
    _Atomic uint32_t chain; /* hash of this call and all calls before it. Lines and frames carry it, so that any divergence is found at the
                             * next exchange */
    _Atomic uint64_t n;
};
_Static_assert(sizeof(struct wire_call) == 32, "two to a cache line");

/* 64 bytes that the members of a channel on one host share. New memory is zero. The engine uses them; the wire only
 * provides them. */
struct wire_board {
    _Alignas(64) _Atomic uint64_t cause; /* 0, or 1 + the rank whose proposal was adopted (by one compare-and-swap) */
    _Atomic uint64_t word[7];
};
_Static_assert(sizeof(struct wire_board) == 64, "one cache line");

struct wire_caps {
    uint32_t inline_max;    /* bytes that fit in a line */
    uint32_t window;        /* operations in flight at once */
    uint32_t calls;         /* length of calls[], a power of two; 0: 2 * window. With 4 * window a rank's oldest unfinished call is still
                             * there however far others have continued: they are at most three windows ahead, or nine with limits.ahead */
    uint64_t once_max;      /* longest exposure of a ONCE edge */
    uint64_t chunk_all;     /* longest exposure of a TO_ALL stream */
    uint64_t chunk_private; /* longest exposure of a private stream */
    uint64_t chunk_least;   /* a stream in shorter pieces costs more than their overlap gains; 0: PROGRAM_CHUNK_MIN_BYTES. Equal on all
                             * members */
    uint32_t whole_max;     /* longest message that `send` and `next` can carry */
    bool dirties;         /* with two members: the reader of a ONCE edge's bytes that do not fit in a line marks them dirty (data_dirty) */
    bool takes_growing;   /* it knows wire_expose.there */
    bool keeps_long;      /* caches are large: longer results than elsewhere stay in them */
    int64_t note_lead_ns; /* a note may arrive this much earlier than a message that was sent before it; 0: never earlier */
};

/* Network traffic of a channel, with frame headers: of this rank, from and to any peer. Any thread may read it. */
struct wire_traffic {
    _Atomic uint64_t out, in;
};

/* Every wire's channel begins with this. */
struct wire_channel {
    const struct wire_class *class;
    struct wire *wire;                      /* of that class: in a world whose wire consists of several, the part, not the whole */
    const struct wire_memory_class *memory; /* memory that all members share; NULL: none */
    const struct wire_traffic *traffic;     /* NULL: not a network */
    const char *carrier;                    /* what carries it between hosts, if its class does not say it: a wire's name; or NULL */
    bool moved;                             /* an advance moved bytes that no event tells; who advances resets it */
    bool borrows;                           /* peers have exposed bytes in their own memory; see wire_memory_class */
    struct wire_caps caps;
    struct wire_board *board;            /* NULL across hosts */
    struct wire_call *calls;             /* this rank's own; call seq is at [seq % caps.calls] */
    struct wire_call *const *peer_calls; /* by rank of the team; NULL where it cannot be read */
};

struct wire_team {
    uint64_t id; /* equal on all members, different for every communicator of a world */
    int32_t rank, size;
    const int32_t *world;         /* world rank of each member; the caller's memory, valid until leave */
    struct wire_channel *channel; /* only for a native: the communicator's channel, connected at the second join; otherwise NULL */
};

/* Agreed at creation, equal on all members. Zero: the wire's default. minimal: one place per edge and one credit, for
 * the simulator. */
struct wire_limits {
    uint32_t window;
    uint32_t once_edges;
    uint32_t credits;
    uint32_t minimal;
    uint64_t chunk;
    uint32_t rendezvous;    /* a message is sent only when its receive is posted, however short it is */
    uint32_t chunk_private; /* chunk length of private streams, if chunk is 0 */
    uint32_t copies;        /* do not expose bytes in their owner's memory, because not all members share a board */
    uint32_t only_reads;    /* no member writes to a line that it has read (data_dirty): on this machine that gains nothing */
    uint32_t survivors;     /* a rank of the world has died: a wire over a library that may not survive this does without the library */
    uint32_t ahead;         /* members share CPUs: in shared memory a rank that waits for no other may run far ahead while it has a CPU */
};
enum { WIRE_OFFER_BYTES = 64 };
enum wire_leave {
    WIRE_ABORT = 1, /* the communicator failed: forget all pending views and exposures. On return the wire accesses no user memory of this
                     * channel; board, notes and calls stay readable */
    WIRE_CLOSE = 2, /* the last call on a channel: its memory is returned once all members have left */
};

/* Peers are checked in ticks: poll is called once in the shortest of WIRE_TICK_NS, peer_timeout_ns / WIRE_TICKS and
 * link_timeout_ns / WIRE_LINK_TICKS, or more often. */
enum { WIRE_TICK_NS = 1000000000, WIRE_TICKS = 24, WIRE_LINK_TICKS = 4 };

struct wire_config {
    const struct comm_env *env;
    const struct base_log *log;
    struct env_bell *bell;  /* of this engine; activity of peers rings it while the wire is armed */
    struct env_bell *watch; /* of the monitor; only this bell watches the descriptors that report deaths */
    struct wire_boot *boot; /* how the ranks meet; NULL for `local` */
    int32_t rank, ranks;    /* of the world; rank -1: all ranks are in this process */
    int32_t oversubscribed; /* more ranks than CPUs: ranks sleep often, so sleeping must be cheap */
    uint64_t world;         /* equal on all ranks, different from any other world's */
    const int32_t *host;    /* by rank: the number of its host, from 0 in the order of the hosts' lowest ranks; NULL: unknown */
    bool across;            /* another wire serves the peers on this rank's own host; this one need not reach them */
    const struct wire_class *near, *far;  /* of a wire made of two: for the ranks of a host, and for ranks of different hosts */
    const struct boot_class *near_boot;   /* how the ranks of a host meet; NULL: all ranks are in this process */
    const struct wire_class *guard_class; /* mpi: the class of its guard */
    const char *launcher;                 /* as team_launch_find names it */
    const char *library;                  /* mpi: the file of a library that its module opens itself, or NULL */
    bool or_guard;                        /* mpi: where this MPI does not allow it, the guard is the wire */
    struct wire *guard; /* mpi: an open wire among the same ranks that reports deaths and carries notes and published calls. The
                         * new wire owns it once it is open */
    int64_t deadline;
    int64_t peer_timeout_ns; /* equal on all ranks: a live process that is silent for this long is reported as down; 0: 30 s */
    int64_t link_timeout_ns; /* the same for a host that acknowledges nothing; 0: 3 s */
    char *error_text;        /* open writes here why it failed */
    size_t error_text_bytes;
};

static inline bool wire_joins(const struct wire_config *config, int32_t a, int32_t b)
{
    return a != b && (!config->across || config->host[a] != config->host[b]);
}

struct wire; /* begins with its class */

/*
 * Memory of one rank that its peers on this host can access. A stream exposure out of such memory need not be copied:
 * readers access it in place, and the exposure is PENDING until all of them have released it. After a failure the owner
 * may write the memory while a peer still reads it. Therefore a reader of such bytes (channel->borrows) loads the board
 * after its last read, and has succeeded only if there is no cause on it. The owner's requests end after the cause was
 * put there.
 *
 * The exposer may learn a landing place in such memory and store there directly (reserve: LANDING). After a failure a
 * late writer must not corrupt memory. So `leave` with ABORT replaces the pages of places that peers know and whose
 * bytes have not arrived.
 */
enum wire_placement { WIRE_PLACE_DEFAULT = 0, WIRE_PLACE_FIRST_TOUCH = 1, WIRE_PLACE_INTERLEAVE = 2 };
struct wire_memory_class {
    /* Zeroed, page-aligned and committed: if memory is short the result is NULL, never a later fault. Any thread. */
    void *(*take)(struct wire *wire, size_t bytes, enum wire_placement placement);
    /* With keep, or after a failure of any channel of the wire, the memory is not reused until the wire closes, because
     * a peer that does not know of the failure yet may still write to it. */
    void (*give)(struct wire *wire, void *at, bool keep);
    /* Whether all of these bytes lie in one piece of this rank's shared memory. *where is their place as peers know it.
     * It stays valid: from now on no landing place in this memory is announced to peers. */
    bool (*where)(struct wire *wire, const void *at, size_t bytes, uint64_t *where);
    void *(*reach)(struct wire_channel *channel, int32_t peer, uint64_t where);
    /* This rank has written to peers' memory; the next flush wakes the sleepers that wait for it. Under the channel's
     * lock. */
    void (*wrote)(struct wire_channel *channel);
};

struct wire_class {
    const char *name;
    bool system_calls; /* a channel's calls may make system calls that are cancellation points (pthreads(7)) */
    /* May block until config->deadline. COMM_OK, or an error with its text in config->error_text and nothing left
     * behind. */
    enum comm_result (*open)(const struct wire_config *config, struct wire **wire);
    void (*close)(struct wire *wire);
    /* Called twice. With offers NULL it makes the channel and writes this rank's offer. Then, with the offers of all
     * members in rank order (size * WIRE_OFFER_BYTES), it connects. Never blocks. An error of either call ends the
     * channel. */
    enum comm_result (*join)(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                             void *offer, struct wire_channel **channel);
    void (*leave)(struct wire_channel *channel, enum wire_leave how);
    /* Where to build the bytes of a coming exposure (same key, edge, peers), so that no copy is needed. DONE, LANDING or
     * ANSWERS: *pad is the place; or NONE, or AGAIN. The exposure's span must name the bytes' place in any case. */
    enum wire_result (*reserve)(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad);
    enum wire_result (*expose)(struct wire_channel *channel, const struct wire_expose *expose);
    enum wire_result (*view)(struct wire_channel *channel, const struct wire_look *look);
    /* Fast forms of expose and of a glance, for one span of at most caps.once_max bytes on a ONCE edge, without the
     * structures, which would take as long as the rest. Optional: all three or none. show: DONE, AGAIN or FAILED. see:
     * DONE with *at valid until this rank retires the operation; AGAIN; MISMATCH. fetch: this many bytes of a peer will
     * be read soon; prefetches them if possible. */
    enum wire_result (*show)(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes);
    enum wire_result (*see)(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes, const void **at);
    void (*fetch)(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes);
    /* The exposer may overwrite the view's bytes. view NULL: operation seq and all before it are retired on this rank. */
    void (*release)(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
    /* Moves this channel's pending views and exposures, messages and notes. Returns the number of events that it wrote. */
    uint32_t (*advance)(struct wire_channel *channel, struct wire_event *events, uint32_t max);
    /* Messages without structures and events. Optional: all three or none. send: true: as expose with DONE; false: nothing
     * happened, and expose may find another way. next: the next message of a peer that advance has not announced, if all of its
     * bytes can be taken at once: its key, peer, tag and bytes. accept: takes the message that next has just found; its bytes
     * are stored at `land`, and it is never announced. */
    bool (*send)(struct wire_channel *channel, wire_key key, uint32_t tag, uint32_t peer, const void *at, size_t bytes);
    bool (*next)(struct wire_channel *channel, uint32_t peer, struct wire_event *message);
    void (*accept)(struct wire_channel *channel, uint32_t peer, void *land);
    /* Makes everything exposed, released or retired since the last flush known to sleeping members, with one fence in
     * all. */
    void (*flush)(struct wire_channel *channel);
    /* For the whole wire: reports peers that have died or are silent; clears the readiness of descriptors. May cost a
     * system call. Peers take these calls as this rank's sign of life: the monitor makes one in every tick, not in
     * every pass. */
    uint32_t (*poll)(struct wire *wire, struct wire_event *events, uint32_t max);
    /* on: publishes that this engine is about to sleep, with a full fence, so that anyone who publishes later rings the
     * bell; the caller checks once more before it sleeps. *deadline is lowered if the wire must be polled by then. off:
     * awake again. */
    void (*arm)(struct wire *wire, bool on, int64_t *deadline);
    /* What this channel's wire knows of a member, for comm_describe_peer: host and address as text. */
    void (*describe)(struct wire_channel *channel, int32_t peer, char *address, size_t bytes);
    const struct wire_memory_class *memory; /* optional; NULL: ranks share no memory on this wire */
    /*
     * For channels whose peers must be served though no thread here waits. Both or none; none where all ranks are in
     * one process. urge switches this for a channel. While it is on, anything sent to a member sets WIRE_ASKED in that
     * member's `asks`; over a network, when a thread of that member has read it. heed with on: the monitor is about to
     * sleep, and the next arrival for such a channel wakes it once. heed with off: the monitor is awake. Both return
     * whether something may have arrived that nobody has handled, and clear WIRE_ASKED. Only the monitor calls heed,
     * and calls off after each on.
     */
    void (*urge)(struct wire_channel *channel, bool on);
    bool (*heed)(struct wire *wire, bool on);
};

/* Bits of a wire's `asks`. ASKED: a peer sets it after it has published something for this rank; the thread that then
 * makes a pass clears it. RESTS: the monitor sleeps; the peer that sets ASKED clears RESTS and rings the monitor. */
enum { WIRE_ASKED = 1, WIRE_RESTS = 2 };

struct wire {
    const struct wire_class *class;
    _Atomic uint32_t *asks; /* this rank's word; NULL: no peer can reach it */
    bool silent;            /* arrivals ring no bell: sleepers check from time to time, and so does the monitor while it serves */
};

#endif
