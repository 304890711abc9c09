/*
 * The hot path of the memory wires: exposing bytes and publishing them. Nothing here divides, locks, allocates (except
 * at the first use of places) or calls through a pointer. The reading side is shmchan_view.c.
 */
#include "channel/shmchan_at.h"

#include "base/fetch.h"

#include <string.h>

/* No operation has the number 0: 1 follows 2^32 - 1. So seq 0 counts as retired when 2^32 - 1 is. */
static inline bool known_retired(const struct shmchan_channel *c, uint32_t seq)
{
    return shmchan_reached(c->oldest, seq - (seq == 0));
}

static bool all_retired(struct shmchan_channel *c, uint32_t seq)
{
    if (BASE_LIKELY(known_retired(c, seq)))
        return true;
    uint32_t min = c->retired;
    for (uint32_t i = 0; i < c->size; i++) {
        if (i == c->rank)
            continue;
        uint32_t there = atomic_load_explicit(&c->peer[i].head->retired, memory_order_acquire);
        if (!shmchan_reached(there, min))
            min = there;
    }
    c->oldest = min;
    return known_retired(c, seq);
}

/* Makes the places of one kind, sets where they begin in *at and *where, and publishes that to peers in *reported. */
static bool make_region(struct shmchan_channel *c, uint32_t index, size_t bytes, char **at, uint64_t *where, _Atomic uint64_t *reported)
{
    if (!shmchan_region(c, index, bytes))
        return false;
    *at = c->region[index].at;
    *where = c->region[index].where;
    atomic_store_explicit(reported, *where, memory_order_release);
    return true;
}

static __attribute__((noinline)) bool make_places(struct shmchan_channel *c, uint32_t index)
{
    if (index == SHMCHAN_REGION_ONCE)
        return make_region(c, index, c->shape.once_bytes, &c->own.once, &c->own.once_where, &c->head->once);
    if (index == SHMCHAN_REGION_STREAM)
        return make_region(c, index, c->shape.stream_bytes, &c->own.stream, &c->own.stream_where, &c->head->stream);
    return make_region(c, index, c->shape.each.bytes, &c->own.each, &c->own.each_where, &c->head->each);
}

/* Where lines are better written again soon, a rank uses few places as long as its readers keep up. It looks at them once in a turn. */
static enum shmchan_places_kind kind_of(struct shmchan_channel *c, const struct shmchan_edge *edge, uint32_t seq, size_t bytes)
{
    const uint32_t mask = edge->places[SHMCHAN_LONG].mask, before = seq - (mask + 1);

    if (bytes <= SHMCHAN_BRIEF_BYTES)
        return SHMCHAN_BRIEF;
    if (bytes > SHMCHAN_SPARE_BYTES)
        return SHMCHAN_LONG;
    return c->shape.reuses && (seq & mask ? known_retired(c, before) : all_retired(c, before)) ? SHMCHAN_LONG : SHMCHAN_SPARE;
}

/* The rules for room. DONE: returns the line, and the place of the bytes if they do not fit in a line. */
static enum wire_result room_once(struct shmchan_channel *c, wire_key key, size_t bytes, struct shmchan_line **line, char **place)
{
    const struct shmchan_shape *shape = &c->shape;
    const struct shmchan_edge *edge = &shape->edge[wire_key_edge(key)];
    const enum shmchan_places_kind kind = kind_of(c, edge, wire_key_seq(key), bytes);
    uint32_t mask = bytes <= SHMCHAN_INLINE ? edge->line_mask : edge->places[kind].mask;
    if (!all_retired(c, wire_key_seq(key) - (mask + 1)))
        return WIRE_AGAIN;
    *line = once_line(c->block.at, &c->shape, key);
    if (bytes <= SHMCHAN_INLINE) {
        *place = NULL;
        return WIRE_DONE;
    }
    BASE_ASSERT(bytes <= c->handle.caps.once_max);
    if (!c->own.once && !make_places(c, SHMCHAN_REGION_ONCE))
        return WIRE_FAILED;
    *place = c->own.once + once_offset(shape, key, kind);
    return WIRE_DONE;
}

/* The same for an edge that has a line for each reader. */
static enum wire_result room_each(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes, struct shmchan_line **line,
                                  char **place)
{
    const struct shmchan_each *each = &c->shape.each;
    uint32_t mask = bytes <= SHMCHAN_INLINE ? each->line_mask : each->place_mask;
    if (!all_retired(c, wire_key_seq(e->key) - (mask + 1)))
        return WIRE_AGAIN;
    BASE_ASSERT(bytes <= WIRE_EACH_BYTES && e->npeers == 1);
    if (BASE_UNLIKELY(!c->own.each) && !make_places(c, SHMCHAN_REGION_EACH))
        return WIRE_FAILED;
    uint32_t reader = e->peers[0];
    size_t stride = WIRE_EACH_BYTES + sizeof **line, row = (wire_key_seq(e->key) & mask) * each->place_step;
    *line = each_line(c->own.each, &c->shape, e->key, reader, c->rank);
    *place = bytes <= SHMCHAN_INLINE ? NULL : c->own.each + each->place + row + index_of(reader, c->rank) * stride;
    return WIRE_DONE;
}

/* Whether the answer to this exposure was taken from its place, which then is free though its reader did not give it back. */
static bool was_answered(const struct shmchan_channel *c, wire_key key)
{
    return c->size == 2 && c->answered[landing_slot(&c->shape, key)] == key;
}

static enum wire_result room_stream(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes)
{
    if (!all_retired(c, wire_key_seq(e->key) - (c->shape.area_mask + 1)))
        return WIRE_AGAIN;
    BASE_ASSERT(bytes <= (e->edge & WIRE_TO_ALL ? c->handle.caps.chunk_all : c->handle.caps.chunk_private));
    if (!c->own.stream && !make_places(c, SHMCHAN_REGION_STREAM))
        return WIRE_FAILED;
    uint32_t credits = credits_of(&c->shape, e->edge)->mask + 1;
    if (wire_key_round(e->key) < credits)
        return WIRE_DONE;
    wire_key before = e->key - ((uint64_t)credits << 8);
    for (uint32_t i = 0; i < e->npeers; i++) {
        const _Atomic uint64_t *ack = ack_of(c->peer[e->peers[i]].block, &c->shape, before, c->rank);
        if (atomic_load_explicit(ack, memory_order_acquire) != before && !was_answered(c, before))
            return WIRE_AGAIN;
    }
    return WIRE_DONE;
}

static inline struct shmchan_line *stream_line(struct shmchan_channel *c, const struct wire_expose *e, uint32_t reader)
{
    return (struct shmchan_line *)(void *)(c->own.stream + stream_offset(&c->shape, e->key, e->edge, reader, c->rank));
}

/* In the line, because `reserve` and `expose` may find room in places of different kinds. */
static void note_place(const struct shmchan_channel *c, struct shmchan_line *line, const char *place)
{
    line->of.place.offset = c->own.once_where + (uint64_t)(place - c->own.once);
}

/* Whether peers can read an exposure's bytes in place, without a copy, and where. The exposer alone decides this, and
 * its line says so. */
static bool points(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes, uint64_t *where)
{
    if (BASE_LIKELY(!atomic_load_explicit(&c->host->lent, memory_order_relaxed)) || bytes < SHMCHAN_POINTER_BYTES || e->nspans != 1)
        return false;
    return !c->shape.copies && c->showing < SHMCHAN_SHOWN && shmchan_where(c->host, e->spans->at, bytes, where);
}

/* Where the only reader of an exposure wants its bytes. If its call or length is another than the exposer's, the bytes
 * are not put there; the reader finds the mismatch as usual. */
static void *landing_for(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes)
{
    if (!c->shape.landings || e->npeers != 1)
        return NULL;
    const struct shmchan_peer *p = &c->peer[e->peers[0]];
    const struct shmchan_landing *l = landing_of(p->block, &c->shape, e->key);
    if (atomic_load_explicit(&l->key, memory_order_acquire) != e->key || l->bytes != bytes || l->fingerprint != e->fingerprint)
        return NULL;
    return (void *)(p->base + (uintptr_t)l->where);
}

/* Where a result may be stored in place of the bytes that it answers: if they lie in a place that only this rank reads. The owner of the
 * place finds the result there, and by taking it frees the place. */
static void *answer_for(const struct shmchan_channel *c, const struct wire_expose *e, size_t bytes)
{
    struct wire_view *asked = e->answers;

    if (!asked || !asked->exclusive || asked->bytes != bytes || asked->from != &c->handle)
        return NULL;
    BASE_ASSERT(asked->word == shmchan_asked(e->key));
    asked->exclusive = false;
    asked->ack = NULL;
    return (void *)(uintptr_t)asked->at;
}

enum wire_result shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    struct shmchan_channel *c = shmchan_of(channel);
    if ((e->flags & WIRE_KIND) != WIRE_WORK)
        return WIRE_NONE;
    struct shmchan_line *line;
    char *place = NULL;
    if (e->edge & WIRE_ONCE) {
        bool all = e->edge & WIRE_TO_ALL;
        enum wire_result result = all ? room_once(c, e->key, bytes, &line, &place) : room_each(c, e, bytes, &line, &place);
        if (result != WIRE_DONE)
            return result == WIRE_FAILED ? WIRE_NONE : result;
        if (all && place)
            note_place(c, line, place);
    } else {
        if (e->npeers != 1 && !(e->edge & WIRE_TO_ALL))
            return WIRE_NONE;
        enum wire_result result = room_stream(c, e, bytes);
        uint64_t where;
        if (result != WIRE_DONE)
            return result == WIRE_FAILED ? WIRE_NONE : result;
        if ((*pad = landing_for(c, e, bytes)))
            return WIRE_LANDING;
        if (points(c, e, bytes, &where))
            return WIRE_NONE;
        if ((*pad = answer_for(c, e, bytes)))
            return WIRE_ANSWERS;
        line = stream_line(c, e, e->peers[0]);
        place = (char *)(line + 1);
    }
    *pad = bytes <= SHMCHAN_INLINE ? (char *)line->of.data : place;
    return WIRE_DONE;
}

static void gather(char *to, const struct wire_expose *e)
{
    for (uint32_t i = 0; i < e->nspans; i++) {
        if (e->spans[i].bytes != 0) /* an empty span may have no address */
            memcpy(to, e->spans[i].at, e->spans[i].bytes);
        to += e->spans[i].bytes;
    }
}

static inline void publish(struct shmchan_line *line, const struct wire_expose *e, char *place, uint64_t where, size_t bytes)
{
    line->fingerprint = e->fingerprint;
    if (BASE_LIKELY(bytes <= SHMCHAN_INLINE)) {
        if (!(e->flags & WIRE_BUILT))
            gather((char *)line->of.data, e);
        line->bytes = (uint16_t)bytes;
        line->kind = SHMCHAN_KIND_INLINE;
    } else {
        BASE_ASSERT(place);
        if (!(e->flags & WIRE_BUILT))
            gather(place, e);
        line->kind = SHMCHAN_KIND_PLACE;
        line->of.place.offset = where;
        line->of.place.bytes = bytes;
    }
    atomic_store_explicit(&line->key, e->key, memory_order_release);
}

/* For bytes that stay where they are; a POINTER line says where. */
static void publish_lying(struct shmchan_line *line, const struct wire_expose *e, enum shmchan_kind kind, uint64_t where, size_t bytes)
{
    line->fingerprint = e->fingerprint;
    line->kind = (uint8_t)kind;
    line->of.place.offset = where;
    line->of.place.bytes = bytes;
    atomic_store_explicit(&line->key, e->key, memory_order_release);
}

static enum wire_result expose_stream(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes)
{
    enum wire_result result = room_stream(c, e, bytes);
    if (result != WIRE_DONE)
        return result;
    uint32_t copies = e->edge & WIRE_TO_ALL ? 1 : e->npeers;
    uint64_t where;
    bool pointer = !(e->flags & WIRE_BUILT) && points(c, e, bytes, &where);
    for (uint32_t i = 0; i < copies; i++) {
        struct shmchan_line *line = stream_line(c, e, e->peers[i]);
        char *place = (char *)(line + 1);
        if (pointer)
            publish_lying(line, e, SHMCHAN_KIND_POINTER, where, bytes);
        else if (e->flags & WIRE_DEPOSIT)
            publish_lying(line, e, SHMCHAN_KIND_LANDED, 0, bytes);
        else if (e->flags & WIRE_ANSWER)
            publish_lying(line, e, SHMCHAN_KIND_ANSWER, 0, bytes);
        else
            publish(line, e, place, c->own.stream_where + (uint64_t)(place - c->own.stream), bytes);
    }
    c->dirty = true;
    if (!pointer)
        return WIRE_DONE;
    c->shown[c->showing++] = (struct shmchan_shown){.key = e->key, .cookie = e->cookie, .peers = e->peers, .npeers = e->npeers};
    return WIRE_PENDING;
}

static enum wire_result expose_each(struct shmchan_channel *c, const struct wire_expose *e, size_t bytes)
{
    struct shmchan_line *line;
    char *place;
    enum wire_result result = room_each(c, e, bytes, &line, &place);
    if (result != WIRE_DONE)
        return result;
    publish(line, e, place, place ? c->own.each_where + (uint64_t)(place - c->own.each) : 0, bytes);
    c->dirty = true;
    return WIRE_DONE;
}

/* Prefetches what the next operation will write if it is like this one: peers' caches still hold the lines from a
 * window ago. */
static inline void fetch_to_write(struct shmchan_channel *c, wire_key key, size_t bytes)
{
    wire_key next = wire_key_of(wire_key_seq(key) + 1, 0, wire_key_edge(key));

    base_fetch_to_write(once_line(c->block.at, &c->shape, next));
    if (bytes <= SHMCHAN_INLINE || bytes > SHMCHAN_BRIEF_BYTES)
        return;
    const char *place = c->own.once + once_offset(&c->shape, next, SHMCHAN_BRIEF);
    for (size_t at = 0; at < bytes; at += sizeof(struct shmchan_line))
        base_fetch_to_write(place + at);
}

/* Copies a few bytes into one line: small operations wait for this. */
static inline void copy_inline(unsigned char *to, const unsigned char *from, size_t bytes)
{
    enum { HALF = 16, WORD = 8, FEW = 4 };

    if (bytes == WORD) {
        memcpy(to, from, WORD);
    } else if (bytes >= HALF) { /* the two copies may overlap: no loop, no call */
        memcpy(to, from, HALF);
        if (bytes > 2 * HALF)
            memcpy(to + HALF, from + HALF, HALF);
        memcpy(to + bytes - HALF, from + bytes - HALF, HALF);
    } else if (bytes >= WORD) {
        memcpy(to, from, WORD);
        memcpy(to + bytes - WORD, from + bytes - WORD, WORD);
    } else if (bytes >= FEW) {
        memcpy(to, from, FEW);
        memcpy(to + bytes - FEW, from + bytes - FEW, FEW);
    } else if (bytes != 0) {
        to[0] = from[0];
        to[bytes / 2] = from[bytes / 2];
        to[bytes - 1] = from[bytes - 1];
    }
}

/* The caller has checked that there is room. */
static inline enum wire_result put_inline(struct shmchan_channel *c, const struct shmchan_edge *edge, wire_key key, uint32_t fingerprint,
                                          const void *from, size_t bytes)
{
    struct shmchan_line *line = line_of(c->block.at, edge, wire_key_seq(key));
    copy_inline((unsigned char *)line->of.data, from, bytes);
    line->fingerprint = fingerprint;
    line->bytes = (uint16_t)bytes;
    line->kind = SHMCHAN_KIND_INLINE;
    atomic_store_explicit(&line->key, key, memory_order_release);
    base_fetch_to_write(line_of(c->block.at, edge, wire_key_seq(key) + 1));
    c->dirty = true;
    return WIRE_DONE;
}

static enum wire_result show_inline(struct shmchan_channel *c, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    const struct shmchan_edge *edge = edge_of(&c->shape, key);
    if (BASE_UNLIKELY(!all_retired(c, wire_key_seq(key) - (edge->line_mask + 1))))
        return WIRE_AGAIN;
    return put_inline(c, edge, key, fingerprint, from, bytes);
}

/* Not inlined, so that small operations need not save registers for it. */
static __attribute__((noinline)) enum wire_result expose_any(struct shmchan_channel *c, const struct wire_expose *e)
{
    uint32_t kind = e->flags & WIRE_KIND;
    if (BASE_UNLIKELY(kind != WIRE_WORK))
        return kind == WIRE_NOTE ? shmchan_note_expose(c, e) : shmchan_message_expose(c, e);
    BASE_ASSERT(!c->aborted);
    if (BASE_UNLIKELY(!e->npeers))
        return WIRE_DONE;
    size_t bytes = 0;
    for (uint32_t i = 0; i < e->nspans; i++)
        bytes += e->spans[i].bytes;
    if (!(e->edge & WIRE_ONCE))
        return expose_stream(c, e, bytes);
    if (!(e->edge & WIRE_TO_ALL))
        return expose_each(c, e, bytes);
    struct shmchan_line *line;
    char *place;
    enum wire_result result = room_once(c, e->key, bytes, &line, &place);
    if (BASE_UNLIKELY(result != WIRE_DONE))
        return result;
    if (place && !(e->flags & WIRE_BUILT))
        note_place(c, line, place);
    publish(line, e, place, place ? line->of.place.offset : 0, bytes);
    fetch_to_write(c, e->key, bytes);
    c->dirty = true;
    return WIRE_DONE;
}

static __attribute__((noinline)) enum wire_result show_any(struct shmchan_channel *c, wire_key key, uint32_t fingerprint, const void *from,
                                                           size_t bytes)
{
    if (bytes <= SHMCHAN_INLINE)
        return show_inline(c, key, fingerprint, from, bytes);
    const struct wire_span span = {from, bytes};
    return expose_any(c, &(struct wire_expose){.key = key,
                                               .fingerprint = fingerprint,
                                               .edge = WIRE_ONCE | WIRE_TO_ALL,
                                               .flags = WIRE_WORK,
                                               .npeers = 1, /* or more: it does not matter here which peers read */
                                               .nspans = 1,
                                               .spans = &span});
}

/* Calls no function on the fast path, so it saves no registers. */
enum wire_result shmchan_publish_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    struct shmchan_channel *c = shmchan_of(channel);
    const struct shmchan_edge *edge = edge_of(&c->shape, key);
    if (BASE_LIKELY(bytes <= SHMCHAN_INLINE && known_retired(c, wire_key_seq(key) - (edge->line_mask + 1))))
        return put_inline(c, edge, key, fingerprint, from, bytes);
    return show_any(c, key, fingerprint, from, bytes);
}

enum wire_result shmchan_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct shmchan_channel *c = shmchan_of(channel);
    bool work = (e->flags | WIRE_LAST) == (WIRE_WORK | WIRE_LAST) && e->edge == (WIRE_ONCE | WIRE_TO_ALL);
    bool plain = work && e->nspans == 1 && e->npeers && !c->aborted;
    if (BASE_LIKELY(plain && e->spans->bytes <= SHMCHAN_INLINE))
        return show_inline(c, e->key, e->fingerprint, e->spans->at, e->spans->bytes);
    return expose_any(c, e);
}

void shmchan_flush(struct wire_channel *channel)
{
    struct shmchan_channel *c = shmchan_of(channel);
    if (!c->dirty)
        return;
    c->dirty = false;
    /* Publish, fence, look for sleepers. A sleeper publishes that it sleeps, fences, and looks again. If the sleeper's
     * fence is a barrier for all threads, a compiler barrier is enough here. */
    if (BASE_LIKELY(c->host->light))
        atomic_signal_fence(memory_order_seq_cst);
    else
        atomic_thread_fence(memory_order_seq_cst);
    if (BASE_UNLIKELY(atomic_load_explicit(c->host->sleepers, memory_order_relaxed)))
        c->host->ring(c->host, c);
}
