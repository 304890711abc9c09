/*
 * shmchan: the protocol of the memory wires (local, shm), on memory that it is given. It knows channels, members and
 * offsets. It does not know who maps the memory or how a sleeper is woken: that is the host's task (struct
 * shmchan_host).
 *
 * Every shared word has one writer or is a single atomic, and there is no lock in shared memory. The key of an exposure
 * determines where it lies, so nothing is allocated or searched, and no younger operation can hold it up:
 *   - ONCE edge, to all    line [seq % lines][edge]; over 48 bytes also place [seq % places][edge], of one of three
 *                          lengths: there are more short ones
 *   - ONCE edge, private   line [seq % lines][reader]; over 48 bytes also place [seq % places][reader]
 *   - stream               place [seq % areas][edge][reader, or 0 when TO_ALL][round % credits], which begins with
 *                          a line of its own
 * A line is written again when all members have retired the operation that wrote it before. A stream's place is written
 * again within one operation when its readers have acknowledged the key that was there. The payload is written first,
 * then the key with release. A reader compares the key (acquire), then the fingerprint and the length, and only then
 * reads a byte.
 *
 * With two members, a reader may tell its peer where a stream's bytes shall go, if they go to memory that the peer can
 * access. It does so in a slot of its own for the edge and credit (shmchan_landing). If the exposer finds its key
 * there, with the call and length that it has itself, it stores the bytes there instead of in its own place. The slot
 * is free for the next landing when the reader has seen the line of this one.
 *
 * With two members, a result may be stored over the bytes that it was made of, in the place of the rank that exposed
 * them and alone reads the result. They are not acknowledged then: the place is free when its owner has taken the answer
 * from it.
 */
#ifndef CHANNEL_SHMCHAN_H
#define CHANNEL_SHMCHAN_H

#include "base/check.h"
#include "base/lock.h"
#include "wire/wire.h"

enum {
    SHMCHAN_INLINE = 48,
    SHMCHAN_WINDOWS = 2,       /* windows of lines per edge, .. */
    SHMCHAN_BRIEF_PLACES = 64, /* .. places for few bytes, .. */
    SHMCHAN_LONG_PLACES = 8,   /* .. for many, .. */
    SHMCHAN_SPARE_PLACES = 32, /* .. and for fewer than that, of a rank that is further ahead of its readers */
    SHMCHAN_AHEAD_WINDOWS = 8, /* the same for the first edge where ranks share CPUs: a rank runs ahead of ranks that have no CPU yet, .. */
    SHMCHAN_AHEAD_PLACES = 256, /* .. and each of its waits for room costs a turn of theirs */
    SHMCHAN_BRIEF_BYTES = 2048,
    SHMCHAN_SPARE_BYTES = 16384,
    SHMCHAN_EACH_LINES_BYTES = 1 << 19, /* an exposer's memory for lines of single readers, and for their places: the more .. */
    SHMCHAN_EACH_BYTES = 1 << 21,       /* .. readers there are, the fewer operations fit */
    SHMCHAN_EACH_LEAST = 2,
    SHMCHAN_AREAS = 2,
    SHMCHAN_CREDITS = 16,      /* chunks of a stream that its readers may be behind, if there is room; .. */
    SHMCHAN_CREDITS_LEAST = 4, /* .. fewer if there are many readers with chunks of their own */
    SHMCHAN_EDGE_BYTES = 1 << 20,
    SHMCHAN_PLACE_BYTES = 65536,
    SHMCHAN_PLACE_SKEW = 8192 + 64, /* places a power of two apart would share few sets of every cache */
    SHMCHAN_CHUNK_PRIVATE_MIN = 8192,
    SHMCHAN_WINDOW = 64,
    SHMCHAN_WINDOW_MIN = 4,
    SHMCHAN_WINDOW_MAX = 1024,
    SHMCHAN_MESSAGE_INLINE = 40,
    SHMCHAN_SHORTCUTS = 16,   /* one look in so many goes to all peers, even if the newest sender goes on sending */
    SHMCHAN_EAGER_SLOTS = 16, /* of a pair; fewer in a large team, .. */
    SHMCHAN_EAGER_LEAST = 4,
    SHMCHAN_EAGER_ALL = 1 << 22, /* .. so that those of one sender for all its peers are at most this many bytes, if there is no less */
    SHMCHAN_EAGER_BYTES = 16384,
    SHMCHAN_CHUNKS = 4,            /* chunks of the stream that carries a pair's large messages .. */
    SHMCHAN_CHUNK_BYTES = 32768,   /* .. and their lengths: a quarter of the message, but not more than this .. */
    SHMCHAN_CHUNK_LEAST = 8192,    /* .. and not less than this */
    SHMCHAN_CHUNKS_LOOK = 2,       /* chunks filled before this rank looks at what it receives */
    SHMCHAN_GRANTS = 8,            /* messages of a pair that are granted and not yet served */
    SHMCHAN_LANDINGS = 16,         /* served messages may still be in SHMCHAN_CHUNKS chunks */
    SHMCHAN_NOTES_PASS = 16,       /* notes returned by one advance */
    SHMCHAN_PASS_BYTES = 1 << 20,  /* bytes copied by one advance, roughly */
    SHMCHAN_POINTER_BYTES = 16384, /* shorter exposures are copied: that costs no more than moving cache lines back and forth */
    SHMCHAN_LANDING_PAGE = 4096,   /* landing places consist of whole pages, which can be replaced */
    SHMCHAN_SHOWN = 64,            /* unreleased exposures of the caller's memory; any more are copied */
};
_Static_assert((int)SHMCHAN_LANDINGS >= (int)SHMCHAN_GRANTS + (int)SHMCHAN_CHUNKS, "every granted message has its landing entry");

/* POINTER: as PLACE, but the bytes lie in memory of the exposer's caller. LANDED: they lie where the reader wanted
 * them. ANSWER: they lie where the reader's own exposure of the same round on the edge before was. */
enum shmchan_kind {
    SHMCHAN_KIND_INLINE = 0,
    SHMCHAN_KIND_PLACE = 1,
    SHMCHAN_KIND_EAGER = 2,
    SHMCHAN_KIND_ANNOUNCED = 3,
    SHMCHAN_KIND_POINTER = 4,
    SHMCHAN_KIND_LANDED = 5,
    SHMCHAN_KIND_ANSWER = 6,
};

/* Writer: the exposer. The key publishes the rest. */
struct shmchan_line {
    _Alignas(64) _Atomic uint64_t key;
    uint32_t fingerprint; /* for a message: its tag */
    uint16_t bytes;       /* bytes inside the line */
    uint8_t kind, reserved;
    union {
        uint8_t data[SHMCHAN_INLINE];
        struct {
            uint64_t offset, bytes;
        } place;
        struct {
            uint64_t bytes;
            union {
                uint8_t data[SHMCHAN_MESSAGE_INLINE];
                uint32_t eager; /* where its bytes begin in the pair's eager slots */
            };
        } message;
    } of;
};
_Static_assert(sizeof(struct shmchan_line) == 64, "one cache line");

/* A seqlock whose words are atomics: version is odd while it is being written. sort_key: the key, with the length in
 * place of its edge. For the long note, whose words are elsewhere, the length in words. */
struct shmchan_note {
    _Alignas(64) _Atomic uint32_t version;
    _Atomic uint32_t tag;
    _Atomic uint64_t sort_key;
    _Atomic uint64_t word[WIRE_NOTE_BYTES / 8];
};
_Static_assert(sizeof(struct shmchan_note) == 64, "one cache line");

/* The receiver's side of an ordered pair, in the receiver's memory; only the receiver writes it. */
struct shmchan_inlet {
    _Alignas(64) _Atomic uint32_t consumed;           /* announcements read */
    _Atomic uint32_t granted;                         /* grants published */
    _Atomic uint64_t taken;                           /* chunks copied out */
    _Atomic uint16_t eager_done[SHMCHAN_EAGER_SLOTS]; /* messages taken out of the slot, with wrapping: it holds 256 at most */
    _Alignas(64) struct {
        uint32_t seq, reserved;
        uint64_t bytes;
    } grant[SHMCHAN_GRANTS];
};

/* What a peer has for this rank, in this rank's block; only that peer writes it. Later numbers are greater, with wrapping. */
struct shmchan_inbox {
    _Atomic uint32_t announced; /* number of its newest message */
    _Atomic uint32_t knocks;    /* counts its grants, chunks and chunks taken */
};
struct shmchan_heard {
    uint32_t announced, knocks;
};

/* The sender's side: this, `window` lines, and the eager slots. A region of its own, made at the pair's first message. */
struct shmchan_pair {
    _Alignas(64) _Atomic uint32_t served; /* grants whose last byte is in a chunk */
};

/* Acknowledgements of one reader for one source and area: the released key. */
struct shmchan_acks {
    _Alignas(128) _Atomic uint64_t key[WIRE_STREAM_EDGES][SHMCHAN_CREDITS];
};

/* Number of chunks of a stream edge, a power of two. */
struct shmchan_credits {
    uint32_t mask, shift;
};

/* Where a reader wants the bytes of this key. Writer: the reader; the key publishes the rest. */
struct shmchan_landing {
    _Alignas(32) _Atomic uint64_t key;
    uint64_t where, bytes;
    uint32_t fingerprint, reserved;
};

/* The beginning of a rank's block of a channel. Its owner writes it, except for the atomics of `board`, `epoch` and
 * `inbox`. */
struct shmchan_head {
    _Alignas(64) _Atomic uint64_t id; /* identity of this use of the block; if it differs, its owner and all others have left */
    _Atomic uint32_t left;
    _Alignas(64) _Atomic uint32_t retired;
    _Alignas(64) _Atomic uint64_t once; /* offsets of the places that are made at first use; 0: not yet */
    _Atomic uint64_t stream, each;
    struct wire_board board;             /* the channel uses the lowest member's */
    _Alignas(64) _Atomic uint32_t epoch; /* counts notes; the channel uses the lowest member's */
    struct shmchan_note note[WIRE_NOTE_SORTS];
    _Atomic uint64_t long_word[WIRE_NOTE_LONG_BYTES / 8];
};

/* The kinds of a ONCE edge's places. An operation's place of each kind is free when all have retired the operation that had it before. */
enum shmchan_places_kind { SHMCHAN_BRIEF, SHMCHAN_LONG, SHMCHAN_SPARE, SHMCHAN_PLACES_KINDS };

/* The places of one kind, `step` apart from one operation to the next. */
struct shmchan_row {
    uint32_t mask;
    size_t at, step;
};

/* A ONCE edge's lines, in the block, and its places, among the once places. The step leads from one operation to the next. */
struct shmchan_edge {
    _Alignas(64) uint32_t line_mask;
    size_t line, line_step;
    struct shmchan_row places[SHMCHAN_PLACES_KINDS];
};

/* An exposer's memory for single readers: per operation a row of lines and a row of places. */
struct shmchan_each {
    uint32_t line_mask, place_mask;
    size_t line_step, place, place_step, bytes; /* place: where the first row of places is */
};

/* Offsets within a block, and the layout of the places: equal on all members. */
struct shmchan_shape {
    struct shmchan_edge edge[WIRE_ONCE_EDGES_MAX];
    struct shmchan_each each;
    uint32_t size, window, once_edges;
    uint32_t area_mask;
    struct shmchan_credits all, private;
    uint32_t rendezvous, copies, only_reads, reuses;
    size_t inbox, calls, acks, pairs, chunks, inlets, bytes;      /* of the block */
    size_t landings;                                              /* only with two members; 0: none */
    size_t once_bytes;                                            /* of the once places */
    size_t private_stride, all_stride, edge_stride, stream_bytes; /* of the stream places */
    size_t pair_bytes, chunk_stride, chunk_bytes;                 /* of a pair's regions */
    uint32_t eager_slots;
};

/* One bit each in shmchan_channel.reported. Only with two members, where a stream to all and a private one have the same
 * credits. */
enum { SHMCHAN_LANDING_SLOTS = SHMCHAN_AREAS * WIRE_STREAM_EDGES * SHMCHAN_CREDITS };
static inline size_t shmchan_landing_slots(const struct shmchan_shape *shape)
{
    return (size_t)(shape->area_mask + 1) * WIRE_STREAM_EDGES * (shape->all.mask + 1);
}

struct shmchan_block {
    char *at;
    uint64_t where; /* its offset, as members compute it */
    size_t bytes;
};

/* Checked in every pass: 16 bytes per entry. The rest of a pending view is in struct shmchan_wait. */
struct shmchan_watch {
    const _Atomic uint64_t *flag;
    uint64_t key;
};
struct shmchan_wait {
    const struct shmchan_line *line; /* NULL: the peer has not published its places yet */
    void *land;
    struct wire_view *view;
    _Atomic uint64_t *ack;
    size_t bytes;
    uint64_t cookie;
    uint32_t fingerprint;
    uint16_t peer, flags;
    uint16_t edge, reported; /* reported: the peer knows the landing place */
    uint16_t reserved[2];
};

/* A message that is no longer in its pair's ring: sent and not granted, or arrived and not taken. Found by (side, peer,
 * number). */
struct shmchan_item {
    uint64_t name;
    uint32_t next;
    uint32_t eager; /* where its bytes begin in the eager slots */
    uint8_t kind;
    uint64_t bytes, done; /* bytes to move, bytes moved */
    uint64_t cookie;
    char *at;                      /* user memory */
    const _Atomic uint64_t *there; /* sent: how many of its bytes can be read; NULL: all */
    _Atomic uint64_t *came;        /* arrived: where to store `done`; NULL: nowhere */
    uint8_t data[SHMCHAN_MESSAGE_INLINE];
};

/* What this rank knows of a member. */
struct shmchan_peer {
    struct shmchan_head *head;
    char *block;
    uintptr_t base;
    char *once, *stream, *each;   /* its places, once known */
    struct shmchan_pair *in_pair; /* its messages to this rank, once known */
    char *in_chunks;
    struct shmchan_pair *out_pair; /* this rank's messages to it, once made */
    char *out_chunks;
    uint64_t id;
    uint32_t seen[WIRE_NOTE_SORTS];
    uint32_t out_last, out_served, out_item; /* last number announced; grants served; message being sent, 0: none */
    uint32_t out_consumed, knocks;           /* announcements that it has read, as last seen; knocks of this rank */
    uint32_t in_granted, in_landed, in_landings;
    uint16_t eager[SHMCHAN_EAGER_SLOTS]; /* messages that this rank has put into the slot */
    uint32_t filling, filled;            /* the eager slot that is being filled, and how far */
    uint64_t out_chunk, in_chunk;        /* chunks filled, chunks taken */
    uint32_t landing[SHMCHAN_LANDINGS];  /* items in the order of their grants */
};

/* The caller's bytes that peers read in place, until each peer's acknowledgement has this key. */
struct shmchan_shown {
    wire_key key;
    uint64_t cookie;
    const uint16_t *peers; /* of the exposure, valid until its cookie */
    uint32_t npeers, acked;
};

/* Memory that peers can access. In a list by descending `where`. */
struct shmchan_memory {
    struct shmchan_block block;
    struct shmchan_memory *next;
    bool kept;  /* given back after a failure: not reused until the host ends */
    bool apart; /* some of its pages were replaced by private ones, which peers do not see */
    bool named; /* peers know where it lies, for as long as it exists */
};

struct shmchan_channel;

/* This rank's memory that nobody reads any more, for the next channel. The struct lies in that very memory, behind the
 * head's first line, which other members that sweep late may still read. A former head is reused only as a head. */
struct shmchan_spare {
    struct shmchan_block block;
    struct shmchan_spare *next;
};
enum { SHMCHAN_SPARE_AT = 128 };

/* What a memory wire provides; its own struct begins with this. take and ring are never called on the hot path. */
struct shmchan_host {
    struct wire wire;
    const struct comm_env *env;
    const struct base_log *log;
    const uintptr_t *base;      /* where each world rank's memory is mapped here; NULL: offsets are addresses */
    _Atomic uint32_t *sleepers; /* number of engines that sleep or are about to */
    bool (*take)(struct shmchan_host *host, size_t bytes, struct shmchan_block *block); /* zeroed, whole cache lines */
    void (*give)(struct shmchan_host *host, const struct shmchan_block *block);         /* when the host ends */
    void (*ring)(struct shmchan_host *host, struct shmchan_channel *channel);           /* wakes the channel's members that sleep */
    void (*ask)(struct shmchan_host *host, int32_t rank); /* rank of the world: sets its ASKED. NULL: no channel urges */
    /* Lends memory that can be taken back, page-aligned, and takes it back. Under `lock`, which also protects the list
     * of lent memory. */
    bool (*lend)(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block);
    void (*take_back)(struct shmchan_host *host, const struct shmchan_block *block);
    /* Replaces these pages by fresh ones with the same bytes, under `lock`; nobody sees what peers write there
     * afterwards. NULL: not possible, so no landing place is announced to peers. False: no memory. */
    bool (*replace)(struct shmchan_host *host, char *at, size_t bytes);
    struct base_lock lock; /* protects everything below */
    uint32_t count;
    bool light; /* every member's env has the barrier: the thread that goes to sleep executes it, and publishers need no fence */
    struct shmchan_spare *spare_heads, *spare_regions;
    struct shmchan_channel *graves;   /* left, but others may still read them */
    struct shmchan_channel *channels; /* joined and not left */
    struct shmchan_memory *memories;
    _Atomic uint32_t lent; /* number of entries in `memories` */
    bool torn;             /* a channel failed, and some peer may not know yet; or the wire closes */
};

/* This rank's places, once made. */
struct shmchan_places {
    char *once, *stream, *each;
    uint64_t once_where, stream_where, each_where;
};

/* Messages between announcement and delivery, by name (pair.c). */
struct shmchan_items {
    uint32_t room, free;       /* free: first of the free list */
    struct shmchan_item *item; /* [0] is not used */
    uint32_t *bucket;
};

struct shmchan_channel {
    struct wire_channel handle;
    struct shmchan_host *host;
    struct shmchan_shape shape;
    uint32_t rank, size;
    uint32_t oldest;  /* cached: all members have retired this one */
    uint32_t retired; /* retired by this rank */
    bool dirty;       /* something was published since the last flush */
    bool aborted;
    bool urges; /* members are asked to look at what is sent to them */
    uint32_t waiting, waiting_max, unresolved, epoch;
    uint32_t showing;
    uint64_t reported[SHMCHAN_LANDING_SLOTS / 64]; /* one bit for each landing slot whose bytes have not arrived */
    uint64_t answered[SHMCHAN_LANDING_SLOTS];      /* by landing slot: the newest exposure there whose answer was taken */
    struct shmchan_shown shown[SHMCHAN_SHOWN];
    struct shmchan_places own;
    struct shmchan_head *head;
    _Atomic uint32_t *shared_epoch;
    struct shmchan_inbox *inbox; /* per peer */
    struct shmchan_heard *heard; /* per peer: how far this rank has looked */
    uint32_t newest;             /* the peer of the newest announcement that was read */
    uint32_t shortcuts;          /* announcements read without a look at the other peers */
    struct shmchan_acks *acks;
    struct shmchan_peer *peer;
    struct shmchan_watch *watch;
    struct shmchan_wait *wait;
    struct shmchan_items items;
    struct shmchan_item next_message; /* what shmchan_next has found */
    struct shmchan_block block;       /* the head and everything behind it */
    struct shmchan_block *region;     /* once, stream, each, and per member pair and chunks */
    uint32_t regions;
    uint64_t note[SHMCHAN_NOTES_PASS][WIRE_NOTE_LONG_BYTES / 8];
    struct shmchan_channel *next;
    struct shmchan_channel **previous;
    size_t bytes; /* size of this allocation */
    int32_t *world;
};

/* ------------------------------------------------------------------------------------------------------------ channel.c */
void shmchan_host_start(struct shmchan_host *host, const struct wire_config *config);
/* Returns all memory. Members must no longer access this rank's memory, unless the host keeps it alive in another way. */
void shmchan_host_end(struct shmchan_host *host);
enum comm_result shmchan_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                              void *offer, struct wire_channel **channel);
void shmchan_leave(struct wire_channel *channel, enum wire_leave how);
/* Makes a zeroed region of this channel as entry `index` of channel->region, which must be empty. The caller publishes
 * it. */
bool shmchan_region(struct shmchan_channel *c, uint32_t index, size_t bytes);
/* shmchan_shape.c */
bool shmchan_shape_of(struct shmchan_shape *s, uint32_t size, const struct wire_limits *limits, struct wire_caps *caps);
uint64_t shmchan_shape_hash(const struct shmchan_shape *s, uint64_t team);
enum { SHMCHAN_REGION_ONCE = 0, SHMCHAN_REGION_STREAM = 1, SHMCHAN_REGION_EACH = 2, SHMCHAN_REGION_PAIRS = 3 };

/* ------------------------------------------------------------------------------------------------------------ memory.c */
extern const struct wire_memory_class shmchan_memory_class;
bool shmchan_where(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where);
/* The same for bytes that a peer shall write; also false if they are not whole pages that could be replaced. */
bool shmchan_where_to_land(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where);
/* After a failure: a late write by a peer that knows this landing place has no effect. */
void shmchan_replace(struct shmchan_host *host, void *at, size_t bytes);
void shmchan_memory_end(struct shmchan_host *host);

/* ------------------------------------------------------------------------------------------------------------ shmchan.c */
enum wire_result shmchan_reserve(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad);
enum wire_result shmchan_expose(struct wire_channel *channel, const struct wire_expose *expose);
enum wire_result shmchan_view(struct wire_channel *channel, const struct wire_look *look);
enum wire_result shmchan_publish_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes);
enum wire_result shmchan_poll_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes,
                                     const void **at);
void shmchan_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes);
void shmchan_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
uint32_t shmchan_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max);
void shmchan_flush(struct wire_channel *channel);
void shmchan_urge(struct wire_channel *channel, bool on);
bool shmchan_send(struct wire_channel *channel, wire_key key, uint32_t tag, uint32_t peer, const void *at, size_t bytes);
bool shmchan_next(struct wire_channel *channel, uint32_t peer, struct wire_event *message);
void shmchan_accept(struct wire_channel *channel, uint32_t peer, void *land);
/* Sets ASKED after everything that this thread did before. True: the monitor of that rank must be rung. */
static inline bool shmchan_asks(_Atomic uint32_t *asks)
{
    return atomic_exchange_explicit(asks, WIRE_ASKED, memory_order_acq_rel) & WIRE_RESTS;
}
/* What heed does with this rank's own word. */
static inline bool shmchan_heed(_Atomic uint32_t *asks, bool on)
{
    return atomic_exchange_explicit(asks, on ? WIRE_RESTS : 0, memory_order_acq_rel) & WIRE_ASKED;
}
/* Comes between publishing that this rank sleeps and its last look: the counterpart of shmchan_flush. */
static inline void shmchan_sleep_fence(const struct shmchan_host *host)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (host->light)
        (void)host->env->barrier(host->env);
}

/* ------------------------------------------------------------------------------------------------------------ note.c, pair.c */
enum wire_result shmchan_note_expose(struct shmchan_channel *c, const struct wire_expose *expose);
uint32_t shmchan_note_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max);
/* items.c */
struct shmchan_item *shmchan_item_new(struct shmchan_channel *c, uint64_t name); /* NULL: no memory */
uint32_t shmchan_item_find(const struct shmchan_channel *c, uint64_t name);      /* it is there */
void shmchan_item_drop(struct shmchan_channel *c, uint32_t index);
void shmchan_items_forget(struct shmchan_channel *c);
/* pair.c */
enum wire_result shmchan_message_expose(struct shmchan_channel *c, const struct wire_expose *expose);
enum wire_result shmchan_message_view(struct shmchan_channel *c, const struct wire_look *look);
uint32_t shmchan_message_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max);
void shmchan_message_forget(struct shmchan_channel *c);

static inline struct shmchan_channel *shmchan_of(struct wire_channel *channel)
{
    return (struct shmchan_channel *)channel;
}
/* Numbers wrap around: compare their difference. */
static inline bool shmchan_reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}
/* The place of a pair's announcement with this number. */
static inline struct shmchan_line *shmchan_announcement(const struct shmchan_channel *c, struct shmchan_pair *pair, uint32_t seq)
{
    return (struct shmchan_line *)(void *)(pair + 1) + (seq & (c->shape.window - 1));
}
/* True if the peer that sent the newest announcement has sent another one. */
static inline bool shmchan_newest_continues(const struct shmchan_channel *c)
{
    const struct shmchan_peer *p = &c->peer[c->newest];
    uint32_t next = wire_message_after(c->heard[c->newest].announced);

    return p->in_pair && wire_key_seq(atomic_load_explicit(&shmchan_announcement(c, p->in_pair, next)->key, memory_order_relaxed)) == next;
}

#endif
