/*
 * Messages of the memory wires. For each ordered pair the sender has a ring of announcement lines, a few eager slots
 * and, after the first large message, a stream of chunks. The receiver has counters and a ring of grants. An
 * announcement leaves the ring as soon as it is read, and its contents are kept here privately, so unmatched messages
 * never block others. The first bytes of a large message go to an eager slot if there is room, so that the receiver has
 * something to copy at once; the rest waits at its sender until the receiver grants it. The granted messages of a pair
 * are served one after another, in the order of their grants, in the passes of either side. Neither side waits for
 * anything except the other's next pass.
 *
 * `inbox` has two numbers for each peer: its newest announcement, and how often it has published anything else. The peer
 * alone writes them, so neither side needs an atomic read-modify-write. This rank looks when one is ahead of what it has
 * heard. First it looks at the next announcement of the peer that sent the newest one: that needs one cache line, not two.
 */
#include "channel/shmchan.h"

#include "data/data.h"

#include <string.h>

enum { NONTEMPORAL_BYTES = 1 << 19 };
enum { SIDE_SENT = 1, SIDE_ARRIVED = 2 };

/* For memory that its writer can change at any time: read it once into a local variable, then check and use only that. */
#define READ_ONCE(field) (*(const volatile __typeof__(field) *)&(field))

static inline uint64_t name_of(uint32_t side, uint32_t peer, uint32_t seq)
{
    return (uint64_t)seq << 32 | side << 16 | peer;
}

/* ------------------------------------------------------------------------------------------------------------ places of a pair */
static inline struct shmchan_inlet *inlet_of(const struct shmchan_channel *c, char *block, uint32_t sender)
{
    return (struct shmchan_inlet *)(void *)(block + c->shape.inlets) + sender;
}
static inline char *pair_eager(const struct shmchan_channel *c, struct shmchan_pair *pair, uint32_t at)
{
    return (char *)((struct shmchan_line *)(void *)(pair + 1) + c->shape.window) + at;
}
static inline struct shmchan_line *chunk_line(const struct shmchan_channel *c, char *chunks, uint64_t number)
{
    return (struct shmchan_line *)(void *)(chunks + (size_t)(number & (SHMCHAN_CHUNKS - 1)) * c->shape.chunk_stride);
}
static inline _Atomic uint64_t *published(char *block, size_t table, uint32_t index)
{
    return (_Atomic uint64_t *)(void *)(block + table) + index;
}

/* This rank's numbers in the peer's inbox. */
static inline struct shmchan_inbox *inbox_at(const struct shmchan_channel *c, uint32_t peer)
{
    return (struct shmchan_inbox *)(void *)(c->peer[peer].block + c->shape.inbox) + c->rank;
}

static inline void publish(struct shmchan_channel *c, uint32_t peer, _Atomic uint32_t *number, uint32_t value)
{
    atomic_store_explicit(number, value, memory_order_release);
    c->dirty = true;
    if (BASE_UNLIKELY(c->urges))
        c->host->ask(c->host, c->world[peer]);
}

static void knock(struct shmchan_channel *c, uint32_t peer)
{
    publish(c, peer, &inbox_at(c, peer)->knocks, ++c->peer[peer].knocks);
}

static bool make_pair(struct shmchan_channel *c, uint32_t peer, bool chunks)
{
    struct shmchan_peer *p = &c->peer[peer];
    uint32_t index = SHMCHAN_REGION_PAIRS + 2 * peer + chunks;
    if (!shmchan_region(c, index, chunks ? c->shape.chunk_bytes : c->shape.pair_bytes))
        return false;
    const struct shmchan_block *made = &c->region[index];
    if (chunks)
        p->out_chunks = made->at;
    else
        p->out_pair = (struct shmchan_pair *)(void *)made->at;
    atomic_store_explicit(published(c->block.at, chunks ? c->shape.chunks : c->shape.pairs, peer), made->where, memory_order_release);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ sending */
/* Finds room for a message in the eager slots, and returns where. Negative: there is none now. Messages share a slot while there is room in
 * it. When all of them were taken, it is filled from its start again. */
static int32_t take_eager(struct shmchan_channel *c, uint32_t peer, size_t bytes)
{
    struct shmchan_peer *p = &c->peer[peer];
    const struct shmchan_inlet *inlet = inlet_of(c, p->block, c->rank);
    uint32_t filled = p->filled;

    for (uint32_t i = 0; i < SHMCHAN_EAGER_SLOTS; i++) {
        uint32_t slot = (p->filling + i) & (SHMCHAN_EAGER_SLOTS - 1);
        if (atomic_load_explicit(&inlet->eager_done[slot], memory_order_acquire) == p->eager[slot])
            filled = 0;
        if (filled + bytes <= SHMCHAN_EAGER_BYTES) {
            p->eager[slot]++;
            p->filling = slot;
            p->filled = filled + (uint32_t)(bytes + 63) / 64 * 64;
            return (int32_t)(slot * SHMCHAN_EAGER_BYTES + filled);
        }
        filled = SHMCHAN_EAGER_BYTES; /* of a slot that is not being filled */
    }
    return -1;
}

/* Copies the first bytes of a message to an eager slot. Returns how many; 0: there is no room. */
static size_t put_early(struct shmchan_channel *c, uint32_t peer, struct shmchan_line *line, const struct wire_span *span)
{
    size_t bytes = span->bytes < SHMCHAN_EAGER_BYTES ? span->bytes : SHMCHAN_EAGER_BYTES;
    int32_t at = take_eager(c, peer, bytes);

    if (at < 0)
        return 0;
    memcpy(pair_eager(c, c->peer[peer].out_pair, (uint32_t)at), span->at, bytes);
    line->of.message.eager = (uint32_t)at;
    return bytes;
}

/* Decides where the bytes go: the line, an eager slot, or there only the first ones, and the rest when it is granted. */
static enum wire_result fill_line(struct shmchan_channel *c, const struct wire_expose *e, struct shmchan_line *line,
                                  const struct wire_span *span)
{
    uint32_t peer = e->peers[0], seq = wire_key_seq(e->key);
    bool early = !c->shape.rendezvous && !e->there;

    if (early && span->bytes <= SHMCHAN_MESSAGE_INLINE) {
        if (span->bytes)
            memcpy(line->of.message.data, span->at, span->bytes);
        line->bytes = (uint16_t)span->bytes;
        line->kind = SHMCHAN_KIND_INLINE;
        return WIRE_DONE;
    }
    if (early && span->bytes <= SHMCHAN_EAGER_BYTES && put_early(c, peer, line, span)) {
        line->bytes = (uint16_t)span->bytes;
        line->kind = SHMCHAN_KIND_EAGER;
        return WIRE_DONE;
    }
    if (e->flags & WIRE_WHOLE)
        return WIRE_AGAIN;
    bool made = c->peer[peer].out_chunks || make_pair(c, peer, true);
    struct shmchan_item *item = made ? shmchan_item_new(c, name_of(SIDE_SENT, peer, seq)) : NULL;
    if (!item)
        return WIRE_FAILED;
    item->at = (char *)(uintptr_t)span->at;
    item->bytes = span->bytes;
    item->done = early ? put_early(c, peer, line, span) : 0;
    item->cookie = e->cookie;
    line->bytes = (uint16_t)item->done;
    item->there = e->there;
    line->kind = SHMCHAN_KIND_ANNOUNCED;
    return WIRE_PENDING;
}

enum wire_result shmchan_message_expose(struct shmchan_channel *c, const struct wire_expose *e)
{
    BASE_ASSERT(!c->aborted && e->npeers == 1 && e->nspans <= 1 && e->peers[0] < c->size && e->peers[0] != c->rank);
    uint32_t peer = e->peers[0], seq = wire_key_seq(e->key);
    struct shmchan_peer *p = &c->peer[peer];
    BASE_ASSERT(seq == wire_message_after(p->out_last));
    if (BASE_UNLIKELY(!p->out_pair && !make_pair(c, peer, false)))
        return WIRE_FAILED;
    if (seq - p->out_consumed > c->shape.window) /* as last seen: it is read again only if that is not enough */
        p->out_consumed = atomic_load_explicit(&inlet_of(c, p->block, c->rank)->consumed, memory_order_acquire);
    if (seq - p->out_consumed > c->shape.window)
        return WIRE_AGAIN;
    struct wire_span span = e->nspans ? e->spans[0] : (struct wire_span){NULL, 0};
    struct shmchan_line *line = shmchan_announcement(c, p->out_pair, seq);
    enum wire_result result = fill_line(c, e, line, &span);
    if (result == WIRE_FAILED || result == WIRE_AGAIN)
        return result;
    line->fingerprint = e->fingerprint;
    line->of.message.bytes = span.bytes;
    atomic_store_explicit(&line->key, e->key, memory_order_release);
    p->out_last = seq;
    publish(c, peer, &inbox_at(c, peer)->announced, seq);
    return result;
}

static inline uint64_t piece_of(uint64_t bytes)
{
    uint64_t piece = bytes / SHMCHAN_CHUNKS / 64 * 64;

    return piece < SHMCHAN_CHUNK_LEAST ? SHMCHAN_CHUNK_LEAST : piece < SHMCHAN_CHUNK_BYTES ? piece : SHMCHAN_CHUNK_BYTES;
}

/* How many bytes of a message can be put into a chunk now. */
static uint64_t sendable(const struct shmchan_item *item)
{
    uint64_t there = item->there ? atomic_load_explicit(item->there, memory_order_acquire) : item->bytes;
    uint64_t left = (there < item->bytes ? there : item->bytes) - item->done, piece = piece_of(item->bytes);

    return left < piece ? left : piece;
}

/* Serves the grants of one receiver as far as chunks are free and bytes are there. Returns whether it must be called again without a signal
 * from the peer. */
static bool pump(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n)
{
    struct shmchan_peer *p = &c->peer[peer];
    struct shmchan_inlet *inlet = inlet_of(c, p->block, c->rank);
    for (int filled = 0;;) {
        if (!p->out_item && p->out_served == atomic_load_explicit(&inlet->granted, memory_order_acquire))
            return false;
        if (*n == max)
            return true;
        uint32_t grant = p->out_served & (SHMCHAN_GRANTS - 1);
        if (!p->out_item) {
            uint64_t wanted = READ_ONCE(inlet->grant[grant].bytes);
            p->out_item = shmchan_item_find(c, name_of(SIDE_SENT, peer, READ_ONCE(inlet->grant[grant].seq)));
            BASE_ASSERT(wanted <= c->items.item[p->out_item].bytes);
            c->items.item[p->out_item].bytes = wanted;
        }
        struct shmchan_item *item = &c->items.item[p->out_item];
        while (item->done < item->bytes) {
            if (p->out_chunk - atomic_load_explicit(&inlet->taken, memory_order_acquire) >= SHMCHAN_CHUNKS)
                return false; /* the peer sets its bit when it has taken a chunk */
            if (filled++ == SHMCHAN_CHUNKS_LOOK)
                return true;
            struct shmchan_line *line = chunk_line(c, p->out_chunks, p->out_chunk);
            uint64_t bytes = sendable(item);
            if (!bytes)
                return true;
            memcpy(line + 1, item->at + item->done, bytes);
            line->of.place.bytes = bytes;
            item->done += bytes;
            c->handle.moved = true;
            atomic_store_explicit(&line->key, ++p->out_chunk, memory_order_release);
            knock(c, peer);
        }
        events[(*n)++] = (struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = item->cookie, .peer = (int32_t)peer};
        shmchan_item_drop(c, p->out_item);
        p->out_item = 0;
        atomic_store_explicit(&p->out_pair->served, ++p->out_served, memory_order_release);
        c->dirty = true; /* the peer may wait for room to grant, also where no bytes moved */
    }
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
static bool is_in_slot(const struct shmchan_item *item)
{
    return item->eager < SHMCHAN_EAGER_SLOTS * SHMCHAN_EAGER_BYTES && item->eager % SHMCHAN_EAGER_BYTES + item->done <= SHMCHAN_EAGER_BYTES;
}

/* Checks what the sender said of a message, in our own copy. */
static bool is_sound(const struct shmchan_item *item)
{
    switch (item->kind) {
    case SHMCHAN_KIND_INLINE:
        return item->bytes <= SHMCHAN_MESSAGE_INLINE;
    case SHMCHAN_KIND_EAGER:
        return item->done == item->bytes && is_in_slot(item);
    default:
        return item->kind == SHMCHAN_KIND_ANNOUNCED && item->done <= item->bytes && (!item->done || is_in_slot(item));
    }
}

/* Reads once what the sender said of a message, and checks it. */
static inline void read_announcement(const struct shmchan_line *line, struct shmchan_item *item)
{
    item->kind = READ_ONCE(line->kind);
    item->bytes = READ_ONCE(line->of.message.bytes);
    item->done = READ_ONCE(line->bytes);
    if (item->kind != SHMCHAN_KIND_INLINE)
        item->eager = READ_ONCE(line->of.message.eager);
    BASE_ASSERT(is_sound(item));
}

/* The message of this number was read: its line may be written again. */
static inline void heard_of(struct shmchan_channel *c, uint32_t peer, uint32_t seq)
{
    c->heard[peer].announced = seq;
    c->newest = peer;
    atomic_store_explicit(&inlet_of(c, c->block.at, peer)->consumed, seq, memory_order_release);
    c->dirty = true;
}

static void arrivals(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n)
{
    struct shmchan_peer *p = &c->peer[peer];
    if (!p->in_pair) {
        uint64_t where = atomic_load_explicit(published(p->block, c->shape.pairs, c->rank), memory_order_acquire);
        if (!where)
            return;
        p->in_pair = (struct shmchan_pair *)(p->base + where);
    }
    for (;;) {
        uint32_t seq = wire_message_after(c->heard[peer].announced);
        struct shmchan_line *line = shmchan_announcement(c, p->in_pair, seq);
        wire_key key = atomic_load_explicit(&line->key, memory_order_acquire);
        if (wire_key_seq(key) != seq)
            return;
        struct shmchan_item *item = *n < max ? shmchan_item_new(c, name_of(SIDE_ARRIVED, peer, seq)) : NULL;
        if (!item)
            return;
        read_announcement(line, item);
        if (item->kind == SHMCHAN_KIND_INLINE)
            memcpy(item->data, line->of.message.data, SHMCHAN_MESSAGE_INLINE);
        events[(*n)++] = (struct wire_event){.kind = WIRE_EVENT_ANNOUNCED,
                                             .result = WIRE_MESSAGE,
                                             .key = key,
                                             .peer = (int32_t)peer,
                                             .tag = line->fingerprint,
                                             .bytes = item->bytes};
        heard_of(c, peer, seq);
    }
}

static bool landings(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n, size_t *copied)
{
    struct shmchan_peer *p = &c->peer[peer];
    while (p->in_landed != p->in_landings) {
        if (*n == max || *copied >= SHMCHAN_PASS_BYTES)
            return true;
        if (!p->in_chunks) {
            uint64_t where = atomic_load_explicit(published(p->block, c->shape.chunks, c->rank), memory_order_acquire);
            if (!where)
                return false;
            p->in_chunks = (char *)(p->base + where);
        }
        const struct shmchan_line *line = chunk_line(c, p->in_chunks, p->in_chunk);
        if (atomic_load_explicit(&line->key, memory_order_acquire) != p->in_chunk + 1)
            return false;
        uint32_t index = p->landing[p->in_landed & (SHMCHAN_LANDINGS - 1)];
        struct shmchan_item *item = &c->items.item[index];
        uint64_t bytes = READ_ONCE(line->of.place.bytes);
        BASE_ASSERT(bytes <= item->bytes - item->done && bytes <= SHMCHAN_CHUNK_BYTES);
        data_take(item->at + item->done, (void *)(uintptr_t)(line + 1), bytes, item->bytes >= NONTEMPORAL_BYTES);
        item->done += bytes;
        c->handle.moved = true;
        *copied += bytes;
        if (item->came)
            atomic_store_explicit(item->came, item->done, memory_order_release);
        atomic_store_explicit(&inlet_of(c, c->block.at, peer)->taken, ++p->in_chunk, memory_order_release);
        knock(c, peer);
        if (item->done == item->bytes) {
            events[(*n)++] = (struct wire_event){
                .kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = item->cookie, .peer = (int32_t)peer, .bytes = item->bytes};
            shmchan_item_drop(c, index);
            p->in_landed++;
        }
    }
    return false;
}

/* Takes the first bytes of a message from an eager slot, and gives back its place there. */
static void take_early(struct shmchan_channel *c, uint32_t peer, const struct shmchan_item *item, char *land, uint64_t bytes)
{
    struct shmchan_inlet *inlet = inlet_of(c, c->block.at, peer);
    _Atomic uint32_t *taken = &inlet->eager_done[item->eager / SHMCHAN_EAGER_BYTES];

    if (bytes)
        data_take(land, pair_eager(c, c->peer[peer].in_pair, item->eager), bytes, false);
    atomic_store_explicit(taken, atomic_load_explicit(taken, memory_order_relaxed) + 1, memory_order_release);
    c->dirty = true;
}

/* Publishes a grant for an announced message: the sender then sends the rest of this many bytes. */
static enum wire_result grant(struct shmchan_channel *c, const struct wire_look *l, uint32_t index, uint64_t bytes)
{
    struct shmchan_peer *p = &c->peer[l->peer];
    if (p->in_granted - atomic_load_explicit(&p->in_pair->served, memory_order_acquire) >= SHMCHAN_GRANTS)
        return WIRE_AGAIN;
    struct shmchan_inlet *inlet = inlet_of(c, c->block.at, l->peer);
    uint32_t at = p->in_granted & (SHMCHAN_GRANTS - 1);
    inlet->grant[at].seq = wire_key_seq(l->key);
    inlet->grant[at].bytes = bytes;
    atomic_store_explicit(&inlet->granted, ++p->in_granted, memory_order_release);
    knock(c, l->peer);
    struct shmchan_item *item = &c->items.item[index];
    uint64_t early = item->done < bytes ? item->done : bytes;
    if (item->done)
        take_early(c, l->peer, item, l->land, early);
    if (early == bytes) {
        shmchan_item_drop(c, index);
        return WIRE_DONE;
    }
    item->at = l->land;
    item->done = early;
    item->bytes = bytes;
    item->cookie = l->cookie;
    item->came = l->came;
    if (item->came && early)
        atomic_store_explicit(item->came, early, memory_order_release);
    p->landing[p->in_landings++ & (SHMCHAN_LANDINGS - 1)] = index;
    BASE_ASSERT(p->in_landings - p->in_landed <= SHMCHAN_LANDINGS);
    return WIRE_PENDING;
}

enum wire_result shmchan_message_view(struct shmchan_channel *c, const struct wire_look *l)
{
    BASE_ASSERT(!c->aborted && l->peer < c->size && l->peer != c->rank);
    uint32_t index = shmchan_item_find(c, name_of(SIDE_ARRIVED, l->peer, wire_key_seq(l->key)));
    struct shmchan_item *item = &c->items.item[index];
    uint64_t bytes = l->flags & WIRE_DISCARD ? 0 : l->bytes;
    BASE_ASSERT(bytes <= item->bytes && (l->land || !bytes));
    if (item->kind == SHMCHAN_KIND_ANNOUNCED)
        return grant(c, l, index, bytes);
    if (item->kind == SHMCHAN_KIND_INLINE && bytes)
        memcpy(l->land, item->data, bytes);
    if (item->kind == SHMCHAN_KIND_EAGER)
        take_early(c, l->peer, item, l->land, bytes);
    shmchan_item_drop(c, index);
    return WIRE_DONE;
}

/* ------------------------------------------------------------------------------------------------------------ without an event */
bool shmchan_next(struct wire_channel *channel, uint32_t peer, struct wire_event *message)
{
    struct shmchan_channel *c = shmchan_of(channel);
    struct shmchan_peer *p = &c->peer[peer];
    if (BASE_UNLIKELY(!p->in_pair || c->aborted))
        return false;
    uint32_t seq = wire_message_after(c->heard[peer].announced);
    const struct shmchan_line *line = shmchan_announcement(c, p->in_pair, seq);
    wire_key key = atomic_load_explicit(&line->key, memory_order_acquire);
    if (wire_key_seq(key) != seq)
        return false;
    read_announcement(line, &c->next_message);
    *message = (struct wire_event){.key = key, .peer = (int32_t)peer, .tag = line->fingerprint, .bytes = c->next_message.bytes};
    return c->next_message.kind != SHMCHAN_KIND_ANNOUNCED;
}

void shmchan_accept(struct wire_channel *channel, uint32_t peer, void *land)
{
    struct shmchan_channel *c = shmchan_of(channel);
    const struct shmchan_item *item = &c->next_message;
    uint32_t seq = wire_message_after(c->heard[peer].announced);
    if (item->kind == SHMCHAN_KIND_EAGER)
        take_early(c, peer, item, land, item->bytes);
    else if (item->bytes)
        memcpy(land, shmchan_announcement(c, c->peer[peer].in_pair, seq)->of.message.data, item->bytes);
    heard_of(c, peer, seq);
}

/* ------------------------------------------------------------------------------------------------------------ passes */
static void look_at(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n, size_t *copied)
{
    uint32_t knocks = atomic_load_explicit(&c->inbox[peer].knocks, memory_order_acquire);
    if (knocks != c->heard[peer].knocks) {
        bool left = landings(c, peer, events, max, n, copied);
        left |= pump(c, peer, events, max, n);
        c->heard[peer].knocks = knocks - left; /* if something is left, look again without a knock */
    }
    if (!shmchan_reached(c->heard[peer].announced, atomic_load_explicit(&c->inbox[peer].announced, memory_order_acquire)))
        arrivals(c, peer, events, max, n);
}

uint32_t shmchan_message_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;
    size_t copied = 0;
    if (shmchan_newest_continues(c))
        arrivals(c, c->newest, events, max, &n);
    if (n && ++c->shortcuts % SHMCHAN_SHORTCUTS) /* not every time, for the sake of the others */
        return n;
    for (uint32_t peer = 0; peer < c->size; peer++)
        look_at(c, peer, events, max, &n, &copied);
    return n;
}

void shmchan_urge(struct wire_channel *channel, bool on)
{
    shmchan_of(channel)->urges = on;
}

void shmchan_message_forget(struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        c->peer[i].out_item = 0;
        c->peer[i].in_landed = c->peer[i].in_landings;
    }
    shmchan_items_forget(c);
}
