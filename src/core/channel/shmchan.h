/*
 * lines: the protocol of the memory wires (local, shm), on memory that it is given. It knows channels, members and offsets, but neither who
 * maps the memory nor how a sleeper is woken: that is the host's.
 *
 * Every shared word has one writer or is one atomic, and no lock lives in shared memory. Where an exposure lies follows from its key, so
 * that nothing is allocated, searched or held by a younger operation: a ONCE edge   line [seq % lines][edge]; over 48 bytes also place [seq
 * % brief_places][edge], over 2 KiB [seq % once_places][edge]; the ONCE edge that is private   line [seq % lines][reader]; over 48 bytes
 * also place [seq % places][reader]; a stream      place [seq % areas][edge][reader, or 0 when TO_ALL][round % credits], which begins with
 * a line of its own. A line is written again when all members retired the operation that wrote it before; a stream's place within one
 * operation when its readers acknowledged the key that stood there. Payload first, then the key with release; a reader compares the key
 * (acquire), then the fingerprint and the length, and only then touches a byte.
 *
 * Between two members a reader that waits for bytes of a stream which are to land in memory that its peer reaches tells it the place, in a
 * slot of its own for the edge and credit (shmchan_landing). The exposer that finds its key there, with the call and length that it has
 * itself, stores the bytes there and not into a place of its own. The slot is the next landing's when the line of this one was seen.
 */
#ifndef CHANNEL_LINES_H
#define CHANNEL_LINES_H

#include "base/check.h"
#include "base/lock.h"
#include "wire/wire.h"

enum {
    SHMCHAN_INLINE = 48,
    SHMCHAN_ONCE_PLACES = 8,
    SHMCHAN_WINDOWS = 2,        /* of lines that an edge has .. */
    SHMCHAN_BRIEF_PLACES = 64,  /* .. and places for few bytes */
    SHMCHAN_AHEAD_WINDOWS = 8,  /* the same of the first edge where ranks share CPUs: a rank goes ahead of others that have none yet, .. */
    SHMCHAN_AHEAD_PLACES = 256, /* .. and each of its waits for room is a turn of theirs */
    SHMCHAN_BRIEF_BYTES = 2048,
    SHMCHAN_EACH_LINES_BYTES =
        1 << 19,                  /* what an exposer has for lines of single readers, and for their places: the more of them there .. */
    SHMCHAN_EACH_BYTES = 1 << 21, /* .. are, the fewer operations has it room for */
    SHMCHAN_EACH_LEAST = 2,
    SHMCHAN_AREAS = 2,
    SHMCHAN_CREDITS = 16,      /* chunks of a stream that its readers may be behind, where there is room for so many; .. */
    SHMCHAN_CREDITS_LEAST = 4, /* .. many readers with chunks of their own have fewer */
    SHMCHAN_EDGE_BYTES = 1 << 20,
    SHMCHAN_PLACE_BYTES = 65536,
    SHMCHAN_PLACE_SKEW = 8192 + 64, /* places a power of two apart would share the same few sets of every cache */
    SHMCHAN_CHUNK_PRIVATE_MIN = 8192,
    SHMCHAN_WINDOW = 64,
    SHMCHAN_WINDOW_MIN = 4,
    SHMCHAN_WINDOW_MAX = 1024,
    SHMCHAN_MESSAGE_INLINE = 40,
    SHMCHAN_EAGER_SLOTS = 8,
    SHMCHAN_EAGER_BYTES = 4096,
    SHMCHAN_CHUNKS = 4,            /* of the stream that carries a pair's large messages */
    SHMCHAN_GRANTS = 8,            /* granted and not yet served messages of a pair */
    SHMCHAN_LANDINGS = 16,         /* served ones may still stand in SHMCHAN_CHUNKS chunks */
    SHMCHAN_NOTES_PASS = 16,       /* notes handed over by one advance */
    SHMCHAN_PASS_BYTES = 1 << 20,  /* copied by one advance, more or less */
    SHMCHAN_POINTER_BYTES = 16384, /* shorter ones are copied: that costs no more than lines that come and go between two caches */
    SHMCHAN_LANDING_PAGE = 4096,   /* what can be put in another's place: landings that are told of are made of these */
    SHMCHAN_SHOWN = 64,            /* exposures of the caller's memory that are not given back; any more are copied */
};
_Static_assert((int)SHMCHAN_LANDINGS >= (int)SHMCHAN_GRANTS + (int)SHMCHAN_CHUNKS, "every granted message has its landing entry");

/* POINTER: as PLACE, but the bytes lie in memory of the exposer's caller. LANDED: they lie where the reader said. */
enum shmchan_kind {
    SHMCHAN_KIND_INLINE = 0,
    SHMCHAN_KIND_PLACE = 1,
    SHMCHAN_KIND_EAGER = 2,
    SHMCHAN_KIND_ANNOUNCED = 3,
    SHMCHAN_KIND_POINTER = 4,
    SHMCHAN_KIND_LANDED = 5,
};

/* Writer: the exposer. The rest is published by the key. */
struct shmchan_line {
    _Alignas(64) _Atomic uint64_t key;
    uint32_t fingerprint; /* of a message: its tag */
    uint16_t bytes;       /* inline ones */
    uint8_t kind, slot;
    union {
        uint8_t data[SHMCHAN_INLINE];
        struct {
            uint64_t offset, bytes;
        } place;
        struct {
            uint64_t bytes;
            uint8_t data[SHMCHAN_MESSAGE_INLINE];
        } message;
    } of;
};
_Static_assert(sizeof(struct shmchan_line) == 64, "one cache line");

/* A seqlock whose words are atomics: version odd while it is being written. sort_key: the key with the length in place of its edge; of the
 * long one, whose words stand apart, the length in words. */
struct shmchan_note {
    _Alignas(64) _Atomic uint32_t version;
    _Atomic uint32_t tag;
    _Atomic uint64_t sort_key;
    _Atomic uint64_t word[WIRE_NOTE_BYTES / 8];
};
_Static_assert(sizeof(struct shmchan_note) == 64, "one cache line");

/* The receiver's side of an ordered pair, in the receiver's memory, written by it alone. */
struct shmchan_inlet {
    _Alignas(64) _Atomic uint32_t consumed;           /* announcements read */
    _Atomic uint32_t granted;                         /* grants published */
    _Atomic uint64_t taken;                           /* chunks copied out */
    _Atomic uint32_t eager_done[SHMCHAN_EAGER_SLOTS]; /* number of the message that was last taken out of the slot */
    _Alignas(64) struct {
        uint32_t seq, reserved;
        uint64_t bytes;
    } grant[SHMCHAN_GRANTS];
};

/* The sender's side: this, `window` lines, the eager slots. Its own region, made when the pair first talks. */
struct shmchan_pair {
    _Alignas(64) _Atomic uint32_t served; /* grants whose last byte stands in a chunk */
};

/* Acknowledgements of one reader for one source and area: the key that was released. */
struct shmchan_acks {
    _Alignas(128) _Atomic uint64_t key[WIRE_STREAM_EDGES][SHMCHAN_CREDITS];
};

/* How many chunks of a stream edge are there: a power of two. */
struct shmchan_credits {
    uint32_t mask, shift;
};

/* Where a reader wants the bytes of this key. Writer: the reader; the rest is published by the key. */
struct shmchan_landing {
    _Alignas(32) _Atomic uint64_t key;
    uint64_t where, bytes;
    uint32_t fingerprint, reserved;
};

/* What a rank's block of a channel begins with. Written by its owner, but for the atomics of `shared`, `epoch` and `inbox`. */
struct shmchan_head {
    _Alignas(64) _Atomic uint64_t id; /* of this use of the block; another value: its owner left, and all others too */
    _Atomic uint32_t left;
    _Alignas(64) _Atomic uint32_t retired;
    _Alignas(64) _Atomic uint64_t once; /* offsets of the lazily taken places; 0: not yet */
    _Atomic uint64_t stream, each;
    struct wire_board board;             /* the lowest member's is the channel's */
    _Alignas(64) _Atomic uint32_t epoch; /* of notes; the lowest member's counts */
    struct shmchan_note note[WIRE_NOTE_SORTS];
    _Atomic uint64_t long_word[WIRE_NOTE_LONG_BYTES / 8];
};

/* A ONCE edge's lines, in the block, and its places for few bytes, among the once places: from one operation to the next. */
struct shmchan_edge {
    _Alignas(64) uint32_t line_mask;
    uint32_t brief_mask;
    size_t line, line_step, brief, brief_step;
};

/* What an exposer has for single readers: a row of lines, and one of places, for an operation. */
struct shmchan_each {
    uint32_t line_mask, place_mask;
    size_t line_step, place, place_step, bytes; /* place: where the first row of them is */
};

/* Offsets within a block, and the shape of the places: equal on all members. */
struct shmchan_shape {
    struct shmchan_edge edge[WIRE_ONCE_EDGES_MAX];
    struct shmchan_each each;
    uint32_t size, window, once_edges;
    uint32_t once_mask, area_mask;
    struct shmchan_credits all, private;
    uint32_t rendezvous, copies;
    size_t inbox, calls, acks, pairs, chunks, inlets, bytes;      /* of the block */
    size_t landings;                                              /* of two members alone; 0: there are none */
    size_t once_stride, once_bytes;                               /* of the once places */
    size_t private_stride, all_stride, edge_stride, stream_bytes; /* of the stream places */
    size_t pair_bytes, chunk_stride, chunk_bytes;                 /* of a pair's regions */
};

/* A bit each: shmchan_channel.told. Of two members alone, where a stream has the same credits either way. */
enum { SHMCHAN_LANDING_SLOTS = SHMCHAN_AREAS * WIRE_STREAM_EDGES * SHMCHAN_CREDITS };
static inline size_t shmchan_landing_slots(const struct shmchan_shape *shape)
{
    return (size_t)(shape->area_mask + 1) * WIRE_STREAM_EDGES * (shape->all.mask + 1);
}

struct shmchan_block {
    char *at;
    uint64_t where; /* its offset, as members compute with it */
    size_t bytes;
};

/* Checked in every pass: 16 bytes an entry. The rest of a pending view stands beside. */
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
    uint16_t edge, told; /* told: the peer knows where it lands */
    uint16_t reserved[2];
};

/* A message that its pair's ring no longer shows: sent and not granted, or arrived and not taken. Found by (side, peer, number). */
struct shmchan_item {
    uint64_t name;
    uint32_t next;
    uint8_t kind, slot;
    uint64_t bytes, done; /* to move, moved */
    uint64_t cookie;
    char *at; /* the user's */
    uint8_t data[SHMCHAN_MESSAGE_INLINE];
};

/* What this rank knows of a member. */
struct shmchan_peer {
    struct shmchan_head *head;
    char *block;
    uintptr_t base;
    char *once, *stream, *each;   /* its places, once seen */
    struct shmchan_pair *in_pair; /* its messages to me, once seen */
    char *in_chunks;
    struct shmchan_pair *out_pair; /* my messages to it, once made */
    char *out_chunks;
    uint64_t id;
    uint32_t seen[WIRE_NOTE_SORTS];
    uint32_t out_last, out_served, out_item; /* last number announced; grants served; message being pumped, 0: none */
    uint32_t in_consumed, in_granted, in_landed, in_landings;
    uint32_t eager[SHMCHAN_EAGER_SLOTS]; /* number of the message that I last put into the slot */
    uint64_t out_chunk, in_chunk;        /* chunks filled, chunks taken */
    uint32_t landing[SHMCHAN_LANDINGS];  /* items in the order of their grants */
};

/* Bytes of the caller's that peers read where they lie, until the acknowledgement of each has this key. */
struct shmchan_shown {
    wire_key key;
    uint64_t cookie;
    const uint16_t *peers; /* the exposure's, kept until its cookie */
    uint32_t npeers, acked;
};

/* Memory that peers reach. In a list by descending `where`. */
struct shmchan_memory {
    struct shmchan_block block;
    struct shmchan_memory *next;
    bool kept;  /* given back after a failure: nobody's until the host ends */
    bool apart; /* some pages are this rank's alone, put in the place of those that peers reach */
    bool named; /* peers were told where it lies, for as long as it is there */
};

struct shmchan_channel;

/* Memory of ours that nobody reads any more, for the next channel. Stands in that very memory, behind the head's first line, which late
   sweepers of other members may still ask. A former head becomes a head again and nothing else. */
struct shmchan_spare {
    struct shmchan_block block;
    struct shmchan_spare *next;
};
enum { SHMCHAN_SPARE_AT = 128 };

/* What a memory wire gives: it begins with this. take and ring are never called on the hot path. */
struct shmchan_host {
    struct wire wire;
    const struct comm_env *env;
    const struct base_log *log;
    const uintptr_t *base;      /* where each world rank's memory is mapped here; NULL: offsets are addresses */
    _Atomic uint32_t *sleepers; /* how many engines sleep or are about to */
    bool (*take)(struct shmchan_host *host, size_t bytes, struct shmchan_block *block); /* zeroed, whole cache lines */
    void (*give)(struct shmchan_host *host, const struct shmchan_block *block);         /* when the host ends */
    void (*ring)(struct shmchan_host *host, struct shmchan_channel *channel);           /* wake those of its members that sleep */
    void (*ask)(struct shmchan_host *host, int32_t rank); /* of the world: sets its ASKED. NULL: nobody urges */
    /* Memory that can be taken back, page-aligned, and its taking back; under `lock`, in which the list of what is lent does not change. */
    bool (*lend)(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block);
    void (*take_back)(struct shmchan_host *host, const struct shmchan_block *block);
    /* Puts fresh pages with the same bytes in the place of these, under `lock`: what peers write there then is seen by nobody. NULL: it
       cannot, and nobody is told of a landing place. False: no memory. */
    bool (*replace)(struct shmchan_host *host, char *at, size_t bytes);
    struct base_lock lock; /* of all below */
    uint32_t count;
    bool light; /* every member's env has the barrier: who goes to sleep makes it, who publishes needs no fence */
    struct shmchan_spare *spare_heads, *spare_regions;
    struct shmchan_channel *graves;   /* left, but perhaps still read by others */
    struct shmchan_channel *channels; /* joined and not left */
    struct shmchan_memory *memories;
    _Atomic uint32_t lent; /* how many stand in `memories` */
    bool torn;             /* a channel failed: somebody may not have heard */
};

/* This rank's places, when they are taken. */
struct shmchan_places {
    char *once, *stream, *each;
    uint64_t once_where, stream_where, each_where;
};

/* Views that have come, by key (shmchan_view.c). */
struct shmchan_items {
    uint32_t room, free;       /* free: first of a list */
    struct shmchan_item *item; /* [0] is none */
    uint32_t *bucket;
};

struct shmchan_channel {
    struct wire_channel handle;
    struct shmchan_host *host;
    struct shmchan_shape shape;
    uint32_t rank, size;
    uint32_t oldest;  /* cached: all members retired this one */
    uint32_t retired; /* by this rank */
    bool dirty;       /* published since the last flush */
    bool aborted;
    bool urges;         /* members are asked to look at what goes to them */
    bool messages_left; /* the last advance could not finish with them */
    uint32_t waiting, waiting_max, unresolved, epoch;
    uint32_t showing;
    uint64_t told[SHMCHAN_LANDING_SLOTS / 64]; /* slots of landings whose bytes have not come, a bit each */
    struct shmchan_shown shown[SHMCHAN_SHOWN];
    struct shmchan_places own;
    struct shmchan_head *head;
    _Atomic uint32_t *shared_epoch;
    _Atomic uint64_t *inbox;
    struct shmchan_acks *acks;
    struct shmchan_peer *peer;
    struct shmchan_watch *watch;
    struct shmchan_wait *wait;
    uint64_t *todo; /* peers whose messages want a look, a bit each */
    uint32_t todo_words;
    struct shmchan_items items;
    struct shmchan_block block;   /* the head and all behind it */
    struct shmchan_block *region; /* once, stream, each, and per member pair and chunks */
    uint32_t regions;
    uint64_t note[SHMCHAN_NOTES_PASS][WIRE_NOTE_LONG_BYTES / 8];
    struct shmchan_channel *next;
    struct shmchan_channel **previous;
    size_t bytes; /* of this allocation */
    int32_t *world;
};

/* ------------------------------------------------------------------------------------------------------------ channel.c */
void shmchan_host_start(struct shmchan_host *host, const struct wire_config *config);
/* Gives back everything. No member may touch this rank's memory any more, or the host keeps it alive in another way. */
void shmchan_host_end(struct shmchan_host *host);
enum comm_result shmchan_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                              void *offer, struct wire_channel **channel);
void shmchan_leave(struct wire_channel *channel, enum wire_leave how);
/* A zeroed region of this channel, published by the caller. Entry `index` of channel->region, which must be empty. */
bool shmchan_region(struct shmchan_channel *c, uint32_t index, size_t bytes);
/* shmchan_shape.c */
bool shmchan_shape_of(struct shmchan_shape *s, uint32_t size, const struct wire_limits *limits, struct wire_caps *caps);
uint64_t shmchan_shape_hash(const struct shmchan_shape *s, uint64_t team);
enum { SHMCHAN_REGION_ONCE = 0, SHMCHAN_REGION_STREAM = 1, SHMCHAN_REGION_EACH = 2, SHMCHAN_REGION_PAIRS = 3 };

/* ------------------------------------------------------------------------------------------------------------ memory.c */
extern const struct wire_memory_class shmchan_memory_class;
bool shmchan_where(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where);
/* The same for bytes that a peer shall write; false too where they are not whole pages that could be replaced. */
bool shmchan_where_to_land(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where);
/* After a failure: a peer that was told of them and writes them late writes nowhere. */
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
/* Sets ASKED behind all that this thread did before. True: the monitor of that rank must be rung. */
static inline bool shmchan_asks(_Atomic uint32_t *asks)
{
    return atomic_exchange_explicit(asks, WIRE_ASKED, memory_order_acq_rel) & WIRE_RESTS;
}
/* What heed does with this rank's own word. */
static inline bool shmchan_heed(_Atomic uint32_t *asks, bool on)
{
    return atomic_exchange_explicit(asks, on ? WIRE_RESTS : 0, memory_order_acq_rel) & WIRE_ASKED;
}
/* Between saying that this rank sleeps and its last look: the other half of shmchan_flush. */
static inline void shmchan_sleep_fence(const struct shmchan_host *host)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (host->light)
        (void)host->env->barrier(host->env);
}

/* ------------------------------------------------------------------------------------------------------------ note.c, pair.c */
enum wire_result shmchan_note_expose(struct shmchan_channel *c, const struct wire_expose *expose);
uint32_t shmchan_note_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max);
enum wire_result shmchan_message_expose(struct shmchan_channel *c, const struct wire_expose *expose);
enum wire_result shmchan_message_view(struct shmchan_channel *c, const struct wire_look *look);
uint32_t shmchan_message_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max);
void shmchan_message_forget(struct shmchan_channel *c);

static inline struct shmchan_channel *shmchan_of(struct wire_channel *channel)
{
    return (struct shmchan_channel *)channel;
}
/* Numbers wrap: their difference counts. */
static inline bool shmchan_reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}

#endif
