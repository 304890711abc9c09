/* Sending messages through memory: announcements, eager slots, and the chunks of granted messages. See pair.c. */
#include "channel/pair.h"

#include "base/fetch.h"

#include <string.h>

void pair_publish(struct shmchan_channel *c, uint32_t peer, _Atomic uint32_t *number, uint32_t value)
{
    atomic_store_explicit(number, value, memory_order_release);
    c->dirty = true;
    if (BASE_UNLIKELY(c->urges))
        c->host->ask(c->host, c->world[peer]);
}

void pair_knock(struct shmchan_channel *c, uint32_t peer)
{
    pair_publish(c, peer, &pair_inbox(c, peer)->knocks, ++c->peer[peer].knocks);
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
    atomic_store_explicit(pair_published(c->block.at, chunks ? c->shape.chunks : c->shape.pairs, peer), made->where, memory_order_release);
    return true;
}

/* Finds room for a message in the eager slots, and returns where. Negative: there is none now. Messages share a slot while there is room in
 * it. When all of them were taken, it is filled from its start again. Only then what was taken is looked up, because the receiver writes to
 * that line for each message. */
static int32_t take_eager(struct shmchan_channel *c, uint32_t peer, size_t bytes)
{
    struct shmchan_peer *p = &c->peer[peer];
    const struct shmchan_inlet *inlet = pair_inlet(c, p->block, c->rank);
    uint32_t filled = p->filled, slots = c->shape.eager_slots;

    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = (p->filling + i) & (slots - 1);
        bool full = filled + bytes > SHMCHAN_EAGER_BYTES;
        if (full && atomic_load_explicit(&inlet->eager_done[slot], memory_order_acquire) == p->eager[slot])
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

/* Copies these first bytes of a message to an eager slot. False: there is no room. */
static bool put_early(struct shmchan_channel *c, uint32_t peer, struct shmchan_line *line, const void *from, size_t bytes)
{
    int32_t at = take_eager(c, peer, bytes);

    if (at < 0)
        return false;
    memcpy(pair_eager(c, c->peer[peer].out_pair, (uint32_t)at), from, bytes);
    line->bytes = (uint16_t)bytes;
    line->of.message.eager = (uint32_t)at;
    return true;
}

/* Puts all bytes of a message into the line or an eager slot. False: they do not fit. */
static inline bool put_whole(struct shmchan_channel *c, uint32_t peer, struct shmchan_line *line, const void *from, size_t bytes)
{
    if (bytes > SHMCHAN_MESSAGE_INLINE) {
        line->kind = SHMCHAN_KIND_EAGER;
        return bytes <= SHMCHAN_EAGER_BYTES && put_early(c, peer, line, from, bytes);
    }
    line->kind = SHMCHAN_KIND_INLINE;
    line->bytes = (uint16_t)bytes;
    if (bytes)
        memcpy(line->of.message.data, from, bytes);
    return true;
}

/* For a message whose bytes do not fit, or are not all there: the first ones go to an eager slot, the rest when it is granted. */
static enum wire_result put_first(struct shmchan_channel *c, const struct wire_expose *e, struct shmchan_line *line,
                                  const struct wire_span *span)
{
    uint32_t peer = e->peers[0];
    bool made = c->peer[peer].out_chunks || make_pair(c, peer, true);
    struct shmchan_item *item = made ? shmchan_item_new(c, pair_name(PAIR_SENT, peer, wire_key_seq(e->key))) : NULL;

    if (!item)
        return WIRE_FAILED;
    bool early = !c->shape.rendezvous && !e->there && span->bytes > SHMCHAN_EAGER_BYTES;
    item->at = (char *)(uintptr_t)span->at;
    item->bytes = span->bytes;
    item->done = early && put_early(c, peer, line, span->at, SHMCHAN_EAGER_BYTES) ? SHMCHAN_EAGER_BYTES : 0;
    item->cookie = e->cookie;
    item->there = e->there;
    line->bytes = (uint16_t)item->done;
    line->kind = SHMCHAN_KIND_ANNOUNCED;
    return WIRE_PENDING;
}

/* The line of the next message to this peer. NULL: the peer has not read the message that is there. */
static inline struct shmchan_line *next_line(struct shmchan_channel *c, uint32_t peer, uint32_t seq)
{
    struct shmchan_peer *p = &c->peer[peer];
    BASE_ASSERT(!c->aborted && peer < c->size && peer != c->rank && seq == wire_message_after(p->out_last));
    if (seq - p->out_consumed > c->shape.window) /* as last seen: it is read again only if that is not enough */
        p->out_consumed = atomic_load_explicit(&pair_inlet(c, p->block, c->rank)->consumed, memory_order_acquire);
    return seq - p->out_consumed > c->shape.window ? NULL : shmchan_announcement(c, p->out_pair, seq);
}

static inline void announce(struct shmchan_channel *c, uint32_t peer, struct shmchan_line *line, wire_key key, uint32_t tag, size_t bytes)
{
    line->fingerprint = tag;
    line->of.message.bytes = bytes;
    atomic_store_explicit(&line->key, key, memory_order_release);
    c->peer[peer].out_last = wire_key_seq(key);
    pair_publish(c, peer, &pair_inbox(c, peer)->announced, wire_key_seq(key));
}

bool shmchan_send(struct wire_channel *channel, wire_key key, uint32_t tag, uint32_t peer, const void *at, size_t bytes)
{
    struct shmchan_channel *c = shmchan_of(channel);
    if (BASE_UNLIKELY(!c->peer[peer].out_pair || c->shape.rendezvous))
        return false;
    struct shmchan_line *line = next_line(c, peer, wire_key_seq(key));
    if (!line || !put_whole(c, peer, line, at, bytes))
        return false;
    announce(c, peer, line, key, tag, bytes);
    /* for the next one: the peer's cache still holds the message of a window ago */
    base_fetch_to_write(shmchan_announcement(c, c->peer[peer].out_pair, wire_message_after(wire_key_seq(key))));
    return true;
}

enum wire_result shmchan_message_expose(struct shmchan_channel *c, const struct wire_expose *e)
{
    BASE_ASSERT(e->npeers == 1 && e->nspans <= 1);
    uint32_t peer = e->peers[0];
    if (!c->peer[peer].out_pair && !make_pair(c, peer, false))
        return WIRE_FAILED;
    struct shmchan_line *line = next_line(c, peer, wire_key_seq(e->key));
    if (!line)
        return WIRE_AGAIN;
    struct wire_span span = e->nspans ? e->spans[0] : (struct wire_span){NULL, 0};
    bool whole = !c->shape.rendezvous && !e->there && put_whole(c, peer, line, span.at, span.bytes);
    enum wire_result result = whole ? WIRE_DONE : put_first(c, e, line, &span);
    if (result != WIRE_FAILED)
        announce(c, peer, line, e->key, e->fingerprint, span.bytes);
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

bool pair_pump(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n)
{
    struct shmchan_peer *p = &c->peer[peer];
    struct shmchan_inlet *inlet = pair_inlet(c, p->block, c->rank);
    for (int filled = 0;;) {
        if (!p->out_item && p->out_served == atomic_load_explicit(&inlet->granted, memory_order_acquire))
            return false;
        if (*n == max)
            return true;
        uint32_t grant = p->out_served & (SHMCHAN_GRANTS - 1);
        if (!p->out_item) {
            uint64_t wanted = PAIR_READ_ONCE(inlet->grant[grant].bytes);
            p->out_item = shmchan_item_find(c, pair_name(PAIR_SENT, peer, PAIR_READ_ONCE(inlet->grant[grant].seq)));
            BASE_ASSERT(wanted <= c->items.item[p->out_item].bytes);
            c->items.item[p->out_item].bytes = wanted;
        }
        struct shmchan_item *item = &c->items.item[p->out_item];
        while (item->done < item->bytes) {
            if (p->out_chunk - atomic_load_explicit(&inlet->taken, memory_order_acquire) >= SHMCHAN_CHUNKS)
                return false; /* the peer sets its bit when it has taken a chunk */
            if (filled++ == SHMCHAN_CHUNKS_LOOK)
                return true;
            struct shmchan_line *line = pair_chunk(c, p->out_chunks, p->out_chunk);
            uint64_t bytes = sendable(item);
            if (!bytes)
                return true;
            memcpy(line + 1, item->at + item->done, bytes);
            line->of.place.bytes = bytes;
            item->done += bytes;
            c->handle.moved = true;
            atomic_store_explicit(&line->key, ++p->out_chunk, memory_order_release);
            pair_knock(c, peer);
        }
        events[(*n)++] = (struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = item->cookie, .peer = (int32_t)peer};
        shmchan_item_drop(c, p->out_item);
        p->out_item = 0;
        atomic_store_explicit(&p->out_pair->served, ++p->out_served, memory_order_release);
        c->dirty = true; /* the peer may wait for room to grant, also where no bytes moved */
    }
}
