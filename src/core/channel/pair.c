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
#include "channel/pair.h"
#include "channel/shmchan_at.h"

#include <string.h>

enum { NONTEMPORAL_BYTES = 1 << 19, NONTEMPORAL_LARGE_CACHE_BYTES = 1 << 21 };

static bool is_in_slot(const struct shmchan_shape *shape, const struct shmchan_item *item)
{
    return item->eager < shape->eager_slots * SHMCHAN_EAGER_BYTES && item->eager % SHMCHAN_EAGER_BYTES + item->done <= SHMCHAN_EAGER_BYTES;
}

/* Checks what the sender said of a message, in our own copy. */
static bool is_sound(const struct shmchan_shape *shape, const struct shmchan_item *item)
{
    switch (item->kind) {
    case SHMCHAN_KIND_INLINE:
        return item->bytes <= SHMCHAN_MESSAGE_INLINE;
    case SHMCHAN_KIND_EAGER:
        return item->done == item->bytes && is_in_slot(shape, item);
    default:
        return item->kind == SHMCHAN_KIND_ANNOUNCED && item->done <= item->bytes && (!item->done || is_in_slot(shape, item));
    }
}

/* Reads once what the sender said of a message, and checks it. */
static inline void read_announcement(const struct shmchan_shape *shape, const struct shmchan_line *line, struct shmchan_item *item)
{
    item->kind = PAIR_READ_ONCE(line->kind);
    item->bytes = PAIR_READ_ONCE(line->of.message.bytes);
    item->done = PAIR_READ_ONCE(line->bytes);
    if (item->kind != SHMCHAN_KIND_INLINE)
        item->eager = PAIR_READ_ONCE(line->of.message.eager);
    BASE_ASSERT(is_sound(shape, item));
}

/* The message of this number was read: its line may be written again. */
static inline void heard_of(struct shmchan_channel *c, uint32_t peer, uint32_t seq)
{
    c->heard[peer].announced = seq;
    c->newest = peer;
    atomic_store_explicit(&pair_inlet(c, c->block.at, peer)->consumed, seq, memory_order_release);
    c->dirty = true;
}

static void arrivals(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n)
{
    struct shmchan_peer *p = &c->peer[peer];
    if (!p->in_pair) {
        uint64_t where = atomic_load_explicit(pair_published(p->block, c->shape.pairs, c->rank), memory_order_acquire);
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
        struct shmchan_item *item = *n < max ? shmchan_item_new(c, pair_name(PAIR_ARRIVED, peer, seq)) : NULL;
        if (!item)
            return;
        read_announcement(&c->shape, line, item);
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

/* From how many bytes on a message bypasses the receiver's cache. */
static uint64_t long_bytes(const struct shmchan_channel *c)
{
    return c->handle.caps.keeps_long ? NONTEMPORAL_LARGE_CACHE_BYTES : NONTEMPORAL_BYTES;
}

static bool landings(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n, size_t *copied)
{
    struct shmchan_peer *p = &c->peer[peer];
    while (p->in_landed != p->in_landings) {
        if (*n == max || *copied >= SHMCHAN_PASS_BYTES)
            return true;
        if (!p->in_chunks) {
            uint64_t where = atomic_load_explicit(pair_published(p->block, c->shape.chunks, c->rank), memory_order_acquire);
            if (!where)
                return false;
            p->in_chunks = (char *)(p->base + where);
        }
        const struct shmchan_line *line = pair_chunk(c, p->in_chunks, p->in_chunk);
        if (atomic_load_explicit(&line->key, memory_order_acquire) != p->in_chunk + 1)
            return false;
        uint32_t index = p->landing[p->in_landed & (SHMCHAN_LANDINGS - 1)];
        struct shmchan_item *item = &c->items.item[index];
        uint64_t bytes = PAIR_READ_ONCE(line->of.place.bytes);
        BASE_ASSERT(bytes <= item->bytes - item->done && bytes <= SHMCHAN_CHUNK_BYTES);
        take_bytes(c, item->at + item->done, line + 1, bytes, item->bytes >= long_bytes(c));
        item->done += bytes;
        c->handle.moved = true;
        *copied += bytes;
        if (item->came)
            atomic_store_explicit(item->came, item->done, memory_order_release);
        atomic_store_explicit(&pair_inlet(c, c->block.at, peer)->taken, ++p->in_chunk, memory_order_release);
        pair_knock(c, peer);
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
    struct shmchan_inlet *inlet = pair_inlet(c, c->block.at, peer);
    _Atomic uint16_t *taken = &inlet->eager_done[item->eager / SHMCHAN_EAGER_BYTES];

    if (bytes)
        take_bytes(c, land, pair_eager(c, c->peer[peer].in_pair, item->eager), bytes, false);
    atomic_store_explicit(taken, (uint16_t)(atomic_load_explicit(taken, memory_order_relaxed) + 1), memory_order_release);
    c->dirty = true;
}

/* Publishes a grant for an announced message: the sender then sends the rest of this many bytes. */
static enum wire_result grant(struct shmchan_channel *c, const struct wire_look *l, uint32_t index, uint64_t bytes)
{
    struct shmchan_peer *p = &c->peer[l->peer];
    if (p->in_granted - atomic_load_explicit(&p->in_pair->served, memory_order_acquire) >= SHMCHAN_GRANTS)
        return WIRE_AGAIN;
    struct shmchan_inlet *inlet = pair_inlet(c, c->block.at, l->peer);
    uint32_t at = p->in_granted & (SHMCHAN_GRANTS - 1);
    inlet->grant[at].seq = wire_key_seq(l->key);
    inlet->grant[at].bytes = bytes;
    atomic_store_explicit(&inlet->granted, ++p->in_granted, memory_order_release);
    pair_knock(c, l->peer);
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
    uint32_t index = shmchan_item_find(c, pair_name(PAIR_ARRIVED, l->peer, wire_key_seq(l->key)));
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
    read_announcement(&c->shape, line, &c->next_message);
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
        left |= pair_pump(c, peer, events, max, n);
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
