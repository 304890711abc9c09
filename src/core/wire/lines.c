/*
 * The hot half of the memory wires: exposures and views of collectives, their release, and the pass over what is pending. Nothing here
 * divides, locks, allocates (but the first use of places) or calls through a pointer.
 */
#include "wire/lines.h"

#include "base/fetch.h"

#include "data/data.h"

#include <string.h>

enum { FETCH_BYTES = 512 /* more come one behind the other anyway, and too many at once are late */ };

/* No operation has the number 0: after 2^32 - 1 comes 1, and what stands before that is retired by no other. */
static inline bool known_retired(const struct lines_channel *c, uint32_t seq)
{
    return lines_reached(c->oldest, seq - (seq == 0));
}

static bool all_retired(struct lines_channel *c, uint32_t seq)
{
    if (BASE_LIKELY(known_retired(c, seq)))
        return true;
    uint32_t min = c->retired;
    for (uint32_t i = 0; i < c->size; i++) {
        if (i == c->rank)
            continue;
        uint32_t there = atomic_load_explicit(&c->peer[i].head->retired, memory_order_acquire);
        if (!lines_reached(there, min))
            min = there;
    }
    c->oldest = min;
    return known_retired(c, seq);
}

static inline const struct lines_edge *edge_of(const struct lines_shape *shape, wire_key key)
{
    BASE_DEBUG_ASSERT(wire_key_edge(key) < shape->once_edges);
    return &shape->edge[wire_key_edge(key)];
}

static inline struct lines_line *line_of(char *block, const struct lines_edge *edge, uint32_t seq)
{
    return (struct lines_line *)(void *)(block + edge->line + (seq & edge->line_mask) * edge->line_step);
}

static inline struct lines_line *once_line(char *block, const struct lines_shape *shape, wire_key key)
{
    return line_of(block, edge_of(shape, key), wire_key_seq(key));
}

/* Among an exposer's lines for single readers. */
static inline size_t index_of(uint32_t reader, uint32_t owner)
{
    return reader - (reader > owner);
}

static inline struct lines_line *each_line(char *each, const struct lines_shape *shape, wire_key key, uint32_t reader, uint32_t owner)
{
    size_t row = (wire_key_seq(key) & shape->each.line_mask) * shape->each.line_step;
    return (struct lines_line *)(void *)(each + row) + index_of(reader, owner);
}

static inline size_t stream_offset(const struct lines_shape *shape, wire_key key, uint32_t edge, uint32_t reader, uint32_t owner)
{
    BASE_ASSERT(wire_key_edge(key) < WIRE_STREAM_EDGES);
    size_t area = (size_t)(wire_key_seq(key) & shape->area_mask) * WIRE_STREAM_EDGES + wire_key_edge(key);
    size_t at = area * shape->edge_stride, credit = wire_key_round(key) & shape->credit_mask;
    if (edge & WIRE_TO_ALL)
        return at + credit * shape->all_stride;
    return at + ((index_of(reader, owner) << shape->credit_shift) + credit) * shape->private_stride;
}

static inline _Atomic uint64_t *ack_of(char *block, const struct lines_shape *shape, wire_key key, uint32_t source)
{
    struct lines_acks *acks = (struct lines_acks *)(void *)(block + shape->acks);
    size_t area = wire_key_seq(key) & shape->area_mask;
    return &acks[area * shape->size + source].key[wire_key_edge(key)][wire_key_round(key) & shape->credit_mask];
}

/* Where among a rank's once places few bytes stand. */
static inline size_t brief_offset(const struct lines_shape *shape, wire_key key)
{
    const struct lines_edge *edge = &shape->edge[wire_key_edge(key)];
    return edge->brief + (wire_key_seq(key) & edge->brief_mask) * edge->brief_step;
}

/* Places of one kind, which begin at *at and *where, as peers are told by *told. */
static bool make_region(struct lines_channel *c, uint32_t index, size_t bytes, char **at, uint64_t *where, _Atomic uint64_t *told)
{
    if (!lines_region(c, index, bytes))
        return false;
    *at = c->region[index].at;
    *where = c->region[index].where;
    atomic_store_explicit(told, *where, memory_order_release);
    return true;
}

static __attribute__((noinline)) bool make_places(struct lines_channel *c, uint32_t index)
{
    if (index == LINES_REGION_ONCE)
        return make_region(c, index, c->shape.once_bytes, &c->once, &c->once_where, &c->head->once);
    if (index == LINES_REGION_STREAM)
        return make_region(c, index, c->shape.stream_bytes, &c->stream, &c->stream_where, &c->head->stream);
    return make_region(c, index, c->shape.each.bytes, &c->each, &c->each_where, &c->head->each);
}

/* The room rules. DONE: the line, and the place of the bytes if they are more than a line carries. */
static enum wire_result room_once(struct lines_channel *c, wire_key key, size_t bytes, struct lines_line **line, char **place)
{
    const struct lines_shape *shape = &c->shape;
    const struct lines_edge *edge = &shape->edge[wire_key_edge(key)];
    bool brief = bytes <= LINES_BRIEF_BYTES;
    uint32_t mask = bytes <= LINES_INLINE ? edge->line_mask : brief ? edge->brief_mask : shape->once_mask;
    if (!all_retired(c, wire_key_seq(key) - (mask + 1)))
        return WIRE_AGAIN;
    *line = once_line(c->block.at, &c->shape, key);
    if (bytes <= LINES_INLINE) {
        *place = NULL;
        return WIRE_DONE;
    }
    BASE_ASSERT(bytes <= c->face.caps.once_max);
    if (!c->once && !make_places(c, LINES_REGION_ONCE))
        return WIRE_FAILED;
    size_t index = (size_t)(wire_key_seq(key) & mask) * shape->once_edges + wire_key_edge(key);
    *place = c->once + (brief ? brief_offset(shape, key) : index * shape->once_stride);
    return WIRE_DONE;
}

/* The same of an edge that has a line for each reader. */
static enum wire_result room_each(struct lines_channel *c, const struct wire_expose *e, size_t bytes, struct lines_line **line,
                                  char **place)
{
    const struct lines_each *each = &c->shape.each;
    uint32_t mask = bytes <= LINES_INLINE ? each->line_mask : each->place_mask;
    if (!all_retired(c, wire_key_seq(e->key) - (mask + 1)))
        return WIRE_AGAIN;
    BASE_ASSERT(bytes <= WIRE_EACH_BYTES && e->npeers == 1);
    if (BASE_UNLIKELY(!c->each) && !make_places(c, LINES_REGION_EACH))
        return WIRE_FAILED;
    uint32_t reader = e->peers[0];
    size_t stride = WIRE_EACH_BYTES + sizeof **line, row = (wire_key_seq(e->key) & mask) * each->place_step;
    *line = each_line(c->each, &c->shape, e->key, reader, c->rank);
    *place = bytes <= LINES_INLINE ? NULL : c->each + each->place + row + index_of(reader, c->rank) * stride;
    return WIRE_DONE;
}

static enum wire_result room_stream(struct lines_channel *c, const struct wire_expose *e, size_t bytes)
{
    if (!all_retired(c, wire_key_seq(e->key) - (c->shape.area_mask + 1)))
        return WIRE_AGAIN;
    BASE_ASSERT(bytes <= (e->edge & WIRE_TO_ALL ? c->face.caps.chunk_all : c->face.caps.chunk_private));
    if (!c->stream && !make_places(c, LINES_REGION_STREAM))
        return WIRE_FAILED;
    uint32_t credits = c->shape.credit_mask + 1;
    if (wire_key_round(e->key) < credits)
        return WIRE_DONE;
    wire_key before = e->key - ((uint64_t)credits << 8);
    for (uint32_t i = 0; i < e->npeers; i++) {
        const _Atomic uint64_t *ack = ack_of(c->peer[e->peers[i]].block, &c->shape, before, c->rank);
        if (atomic_load_explicit(ack, memory_order_acquire) != before)
            return WIRE_AGAIN;
    }
    return WIRE_DONE;
}

static inline struct lines_line *stream_line(struct lines_channel *c, const struct wire_expose *e, uint32_t reader)
{
    return (struct lines_line *)(void *)(c->stream + stream_offset(&c->shape, e->key, e->edge, reader, c->rank));
}

/* Where peers find an exposure's bytes if they need not be copied: only the exposer decides, and its line says so. */
static bool points(struct lines_channel *c, const struct wire_expose *e, size_t bytes, uint64_t *where)
{
    if (BASE_LIKELY(!atomic_load_explicit(&c->host->lent, memory_order_relaxed)) || bytes < LINES_POINTER_BYTES || e->nspans != 1)
        return false;
    return !c->shape.copies && c->showing < LINES_SHOWN && lines_where(c->host, e->spans->at, bytes, where);
}

/* Of one edge and credit; shared by operations that share an area. */
static inline uint32_t landing_slot(const struct lines_shape *shape, wire_key key)
{
    uint32_t area = wire_key_seq(key) & shape->area_mask, credit = wire_key_round(key) & shape->credit_mask;
    return ((area * WIRE_STREAM_EDGES + wire_key_edge(key)) << shape->credit_shift) + credit;
}

static inline struct lines_landing *landing_of(char *block, const struct lines_shape *shape, wire_key key)
{
    return (struct lines_landing *)(void *)(block + shape->landings) + landing_slot(shape, key);
}

/* Where the only reader of an exposure wants its bytes. A call or length that is not its own is the reader's to find out, as ever. */
static void *landing_for(struct lines_channel *c, const struct wire_expose *e, size_t bytes)
{
    if (!c->shape.landings || e->npeers != 1)
        return NULL;
    const struct lines_peer *p = &c->peer[e->peers[0]];
    const struct lines_landing *l = landing_of(p->block, &c->shape, e->key);
    if (atomic_load_explicit(&l->key, memory_order_acquire) != e->key || l->bytes != bytes || l->fingerprint != e->fingerprint)
        return NULL;
    return (void *)(p->base + (uintptr_t)l->where);
}

enum wire_result lines_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    struct lines_channel *c = lines_of(channel);
    if ((e->flags & WIRE_KIND) != WIRE_WORK)
        return WIRE_NONE;
    struct lines_line *line;
    char *place = NULL;
    if (e->edge & WIRE_ONCE) {
        bool all = e->edge & WIRE_TO_ALL;
        enum wire_result result = all ? room_once(c, e->key, bytes, &line, &place) : room_each(c, e, bytes, &line, &place);
        if (result != WIRE_DONE)
            return result == WIRE_FAILED ? WIRE_NONE : result;
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
        line = stream_line(c, e, e->peers[0]);
        place = (char *)(line + 1);
    }
    *pad = bytes <= LINES_INLINE ? (char *)line->of.data : place;
    return WIRE_DONE;
}

static void gather(char *to, const struct wire_expose *e)
{
    for (uint32_t i = 0; i < e->nspans; i++) {
        if (e->spans[i].bytes != 0) /* an empty span need not point anywhere */
            memcpy(to, e->spans[i].at, e->spans[i].bytes);
        to += e->spans[i].bytes;
    }
}

static inline void publish(struct lines_line *line, const struct wire_expose *e, char *place, uint64_t where, size_t bytes)
{
    line->fingerprint = e->fingerprint;
    if (BASE_LIKELY(bytes <= LINES_INLINE)) {
        if (!(e->flags & WIRE_BUILT))
            gather((char *)line->of.data, e);
        line->bytes = (uint16_t)bytes;
        line->kind = LINES_KIND_INLINE;
    } else {
        BASE_ASSERT(place);
        if (!(e->flags & WIRE_BUILT))
            gather(place, e);
        line->kind = LINES_KIND_PLACE;
        line->of.place.offset = where;
        line->of.place.bytes = bytes;
    }
    atomic_store_explicit(&line->key, e->key, memory_order_release);
}

/* Of bytes that are where they stay: `where` says it of a POINTER. */
static void publish_lying(struct lines_line *line, const struct wire_expose *e, enum lines_kind kind, uint64_t where, size_t bytes)
{
    line->fingerprint = e->fingerprint;
    line->kind = (uint8_t)kind;
    line->of.place.offset = where;
    line->of.place.bytes = bytes;
    atomic_store_explicit(&line->key, e->key, memory_order_release);
}

static enum wire_result expose_stream(struct lines_channel *c, const struct wire_expose *e, size_t bytes)
{
    enum wire_result result = room_stream(c, e, bytes);
    if (result != WIRE_DONE)
        return result;
    uint32_t copies = e->edge & WIRE_TO_ALL ? 1 : e->npeers;
    uint64_t where;
    bool pointer = !(e->flags & WIRE_BUILT) && points(c, e, bytes, &where);
    for (uint32_t i = 0; i < copies; i++) {
        struct lines_line *line = stream_line(c, e, e->peers[i]);
        char *place = (char *)(line + 1);
        if (pointer)
            publish_lying(line, e, LINES_KIND_POINTER, where, bytes);
        else if (e->flags & WIRE_DEPOSIT)
            publish_lying(line, e, LINES_KIND_LANDED, 0, bytes);
        else
            publish(line, e, place, c->stream_where + (uint64_t)(place - c->stream), bytes);
    }
    c->dirty = true;
    if (!pointer)
        return WIRE_DONE;
    c->shown[c->showing++] = (struct lines_shown){.key = e->key, .cookie = e->cookie, .peers = e->peers, .npeers = e->npeers};
    return WIRE_PENDING;
}

static enum wire_result expose_each(struct lines_channel *c, const struct wire_expose *e, size_t bytes)
{
    struct lines_line *line;
    char *place;
    enum wire_result result = room_each(c, e, bytes, &line, &place);
    if (result != WIRE_DONE)
        return result;
    publish(line, e, place, place ? c->each_where + (uint64_t)(place - c->each) : 0, bytes);
    c->dirty = true;
    return WIRE_DONE;
}

/* Where the next operation will write, if it is like this one: its peers still hold what stood there a window ago. */
static inline void fetch_to_write(struct lines_channel *c, wire_key key, size_t bytes)
{
    wire_key next = wire_key_of(wire_key_seq(key) + 1, 0, wire_key_edge(key));

    base_fetch_to_write(once_line(c->block.at, &c->shape, next));
    if (bytes <= LINES_INLINE || bytes > LINES_BRIEF_BYTES)
        return;
    const char *place = c->once + brief_offset(&c->shape, next);
    for (size_t at = 0; at < bytes; at += sizeof(struct lines_line))
        base_fetch_to_write(place + at);
}

/* Few bytes into one line: what small operations wait for. */
static inline void copy_inline(unsigned char *to, const unsigned char *from, size_t bytes)
{
    enum { HALF = 16, WORD = 8, FEW = 4 };

    if (bytes == WORD) {
        memcpy(to, from, WORD);
    } else if (bytes >= HALF) { /* ends overlap: no loop, no call */
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

/* There is room. */
static inline enum wire_result put_inline(struct lines_channel *c, const struct lines_edge *edge, wire_key key, uint32_t fingerprint,
                                          const void *from, size_t bytes)
{
    struct lines_line *line = line_of(c->block.at, edge, wire_key_seq(key));
    copy_inline((unsigned char *)line->of.data, from, bytes);
    line->fingerprint = fingerprint;
    line->bytes = (uint16_t)bytes;
    line->kind = LINES_KIND_INLINE;
    atomic_store_explicit(&line->key, key, memory_order_release);
    base_fetch_to_write(line_of(c->block.at, edge, wire_key_seq(key) + 1));
    c->dirty = true;
    return WIRE_DONE;
}

static enum wire_result show_inline(struct lines_channel *c, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    const struct lines_edge *edge = edge_of(&c->shape, key);
    if (BASE_UNLIKELY(!all_retired(c, wire_key_seq(key) - (edge->line_mask + 1))))
        return WIRE_AGAIN;
    return put_inline(c, edge, key, fingerprint, from, bytes);
}

/* Apart from what small operations take, so that they save no registers for it. */
static __attribute__((noinline)) enum wire_result expose_any(struct lines_channel *c, const struct wire_expose *e)
{
    uint32_t kind = e->flags & WIRE_KIND;
    if (BASE_UNLIKELY(kind != WIRE_WORK))
        return kind == WIRE_NOTE ? lines_note_expose(c, e) : lines_message_expose(c, e);
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
    struct lines_line *line;
    char *place;
    enum wire_result result = room_once(c, e->key, bytes, &line, &place);
    if (BASE_UNLIKELY(result != WIRE_DONE))
        return result;
    publish(line, e, place, place ? c->once_where + (uint64_t)(place - c->once) : 0, bytes);
    fetch_to_write(c, e->key, bytes);
    c->dirty = true;
    return WIRE_DONE;
}

static __attribute__((noinline)) enum wire_result show_any(struct lines_channel *c, wire_key key, uint32_t fingerprint, const void *from,
                                                           size_t bytes)
{
    if (bytes <= LINES_INLINE)
        return show_inline(c, key, fingerprint, from, bytes);
    const struct wire_span span = {from, bytes};
    return expose_any(c, &(struct wire_expose){.key = key,
                                               .fingerprint = fingerprint,
                                               .edge = WIRE_ONCE | WIRE_TO_ALL,
                                               .flags = WIRE_WORK,
                                               .npeers = 1, /* or more: who looks is no matter */
                                               .nspans = 1,
                                               .spans = &span});
}

/* Calls nothing on its way, so it saves no registers. */
enum wire_result lines_show(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    struct lines_channel *c = lines_of(channel);
    const struct lines_edge *edge = edge_of(&c->shape, key);
    if (BASE_LIKELY(bytes <= LINES_INLINE && known_retired(c, wire_key_seq(key) - (edge->line_mask + 1))))
        return put_inline(c, edge, key, fingerprint, from, bytes);
    return show_any(c, key, fingerprint, from, bytes);
}

enum wire_result lines_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct lines_channel *c = lines_of(channel);
    bool work = (e->flags | WIRE_LAST) == (WIRE_WORK | WIRE_LAST) && e->edge == (WIRE_ONCE | WIRE_TO_ALL);
    bool plain = work && e->nspans == 1 && e->npeers && !c->aborted;
    if (BASE_LIKELY(plain && e->spans->bytes <= LINES_INLINE))
        return show_inline(c, e->key, e->fingerprint, e->spans->at, e->spans->bytes);
    return expose_any(c, e);
}

/* ------------------------------------------------------------------------------------------------------------ views */
/* Tells the peer where these bytes shall land, when the slot is free. */
static void tell_landing(struct lines_channel *c, struct lines_wait *w, wire_key key)
{
    uint32_t bit = UINT32_C(1) << landing_slot(&c->shape, key);
    uint64_t where;

    if (c->told & bit || !lines_where_to_land(c->host, w->land, w->bytes, &where))
        return;
    struct lines_landing *l = landing_of(c->block.at, &c->shape, key);
    l->where = where;
    l->bytes = w->bytes;
    l->fingerprint = w->fingerprint;
    atomic_store_explicit(&l->key, key, memory_order_release);
    c->told |= bit;
    w->told = 1;
}

/* The bytes have come, by whichever way; the slot is for the oldest that waits for it, before the acknowledgement makes the peer look. */
static __attribute__((noinline)) void tell_next(struct lines_channel *c, wire_key key)
{
    uint32_t slot = landing_slot(&c->shape, key), next = c->waiting;

    c->told &= ~(UINT32_C(1) << slot);
    for (uint32_t i = 0; i < c->waiting; i++) {
        const struct lines_wait *w = &c->wait[i];
        if (!w->land || !w->ack || w->told || landing_slot(&c->shape, c->watch[i].key) != slot)
            continue;
        if (next == c->waiting || c->watch[i].key < c->watch[next].key)
            next = i;
    }
    if (next < c->waiting)
        tell_landing(c, &c->wait[next], c->watch[next].key);
}

/* The line carries the key that was looked for. */
static inline enum wire_result take(struct lines_channel *c, const struct lines_wait *w, wire_key key)
{
    const struct lines_line *line = w->line;
    bool in_line = line->kind == LINES_KIND_INLINE;
    size_t bytes = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(bytes != w->bytes || line->fingerprint != w->fingerprint))
        return WIRE_MISMATCH;
    const char *at = in_line ? (const char *)line->of.data : (const char *)(c->peer[w->peer].base + line->of.place.offset);
    if (line->kind == LINES_KIND_POINTER)
        c->face.borrows = true;
    if (!w->land) {
        *w->view = (struct wire_view){at, bytes, (void *)w->ack, key, &c->face};
        return WIRE_DONE;
    }
    if (BASE_UNLIKELY(w->told))
        tell_next(c, key);
    if (line->kind == LINES_KIND_LANDED)
        BASE_ASSERT(w->told);
    else if ((w->flags & WIRE_NONTEMPORAL) && line->kind != LINES_KIND_POINTER) /* half the traffic as it is: what lands may stay near */
        data_copy(w->land, at, bytes, true);
    else
        memcpy(w->land, at, bytes);
    if (w->ack) {
        atomic_store_explicit(w->ack, key, memory_order_release);
        c->dirty = true;
    }
    return WIRE_DONE;
}

/* Where a peer's places begin, which it has told or not yet. */
static inline bool find_places(const struct lines_peer *p, char **places, const _Atomic uint64_t *told)
{
    if (BASE_LIKELY(*places != NULL))
        return true;
    uint64_t where = atomic_load_explicit(told, memory_order_acquire);
    if (where)
        *places = (char *)(p->base + where);
    return where != 0;
}

static const struct lines_line *find_line(struct lines_channel *c, uint32_t peer, wire_key key, uint32_t edge)
{
    struct lines_peer *p = &c->peer[peer];
    if ((edge & WIRE_ONCE) && (edge & WIRE_TO_ALL))
        return once_line(p->block, &c->shape, key);
    if (edge & WIRE_ONCE)
        return find_places(p, &p->each, &p->head->each) ? each_line(p->each, &c->shape, key, c->rank, peer) : NULL;
    if (!find_places(p, &p->stream, &p->head->stream))
        return NULL;
    return (const struct lines_line *)(const void *)(p->stream + stream_offset(&c->shape, key, edge, c->rank, peer));
}

static inline bool may_tell_landings(const struct lines_channel *c)
{
    return c->shape.landings && c->host->replace && !c->shape.copies && atomic_load_explicit(&c->host->lent, memory_order_relaxed);
}

/* The last quarter of the table is for the oldest unfinished operation: a younger one never takes what it waits for. */
static bool may_wait(const struct lines_channel *c, wire_key key)
{
    if (c->waiting < c->waiting_max - c->waiting_max / 4)
        return true;
    return c->waiting < c->waiting_max && lines_reached(c->retired + 1, wire_key_seq(key));
}

/* What its line will point to, so that the bytes travel beside it and not after it. */
static __attribute__((noinline)) void fetch_place(struct lines_channel *c, wire_key key, uint32_t peer, size_t bytes)
{
    struct lines_peer *p = &c->peer[peer];

    if (!find_places(p, &p->once, &p->head->once))
        return;
    const char *place = p->once + brief_offset(&c->shape, key);
    for (size_t at = 0; at < bytes; at += sizeof(struct lines_line))
        __builtin_prefetch(place + at);
}

void lines_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes)
{
    struct lines_channel *c = lines_of(channel);

    __builtin_prefetch(once_line(c->peer[peer].block, &c->shape, key));
    if (BASE_UNLIKELY(bytes > LINES_INLINE && bytes <= FETCH_BYTES))
        fetch_place(c, key, peer, bytes);
}

static inline enum wire_result glance(struct lines_channel *c, const struct wire_look *l)
{
    const struct lines_peer *p = &c->peer[l->peer];
    const struct lines_line *line = once_line(p->block, &c->shape, l->key);

    if (atomic_load_explicit(&line->key, memory_order_acquire) != l->key)
        return WIRE_AGAIN;
    bool in_line = line->kind == LINES_KIND_INLINE;
    size_t bytes = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(bytes != l->bytes || line->fingerprint != l->fingerprint))
        return WIRE_MISMATCH;
    l->view->at = in_line ? (const char *)line->of.data : (const char *)(p->base + line->of.place.offset);
    l->view->bytes = bytes;
    l->view->ack = NULL;
    return WIRE_DONE;
}

enum wire_result lines_see(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes, const void **at)
{
    struct lines_channel *c = lines_of(channel);
    const struct lines_peer *p = &c->peer[peer];
    const struct lines_line *line = once_line(p->block, &c->shape, key);

    if (atomic_load_explicit(&line->key, memory_order_acquire) != key)
        return WIRE_AGAIN;
    bool in_line = line->kind == LINES_KIND_INLINE;
    size_t there = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(there != bytes || line->fingerprint != fingerprint))
        return WIRE_MISMATCH;
    *at = in_line ? (const char *)line->of.data : (const char *)(p->base + line->of.place.offset);
    return WIRE_DONE;
}

static __attribute__((noinline)) enum wire_result view_any(struct lines_channel *c, const struct wire_look *l)
{
    if (BASE_UNLIKELY((l->flags & WIRE_KIND) == WIRE_MESSAGE))
        return lines_message_view(c, l);
    BASE_ASSERT(!c->aborted && l->peer < c->size && l->peer != c->rank);
    const struct lines_line *line = find_line(c, l->peer, l->key, l->edge);
    if ((l->flags & WIRE_GLANCE) && (!line || atomic_load_explicit(&line->key, memory_order_acquire) != l->key))
        return WIRE_AGAIN;
    _Atomic uint64_t *ack = l->edge & WIRE_ONCE ? NULL : ack_of(c->block.at, &c->shape, l->key, l->peer);
    struct lines_wait w = {.line = line,
                           .land = l->land,
                           .view = l->view,
                           .ack = ack,
                           .bytes = l->bytes,
                           .cookie = l->cookie,
                           .fingerprint = l->fingerprint,
                           .peer = (uint16_t)l->peer,
                           .flags = l->flags,
                           .edge = l->edge};
    if (line && atomic_load_explicit(&line->key, memory_order_acquire) == l->key)
        return take(c, &w, l->key);
    if (BASE_UNLIKELY(!may_wait(c, l->key)))
        return WIRE_AGAIN;
    /* A peer without places is looked up anew by advance; till then the flag is one that never shows this edge's key. */
    c->watch[c->waiting] = (struct lines_watch){line ? &line->key : &c->head->id, l->key};
    c->unresolved += !line;
    c->wait[c->waiting] = w;
    if (w.land && ack && may_tell_landings(c))
        tell_landing(c, &c->wait[c->waiting], l->key);
    c->waiting++;
    return WIRE_PENDING;
}

enum wire_result lines_view(struct wire_channel *channel, const struct wire_look *l)
{
    struct lines_channel *c = lines_of(channel);
    bool light = (l->flags & WIRE_GLANCE) && l->edge == (WIRE_ONCE | WIRE_TO_ALL) && !l->land && !c->aborted;
    return BASE_LIKELY(light) ? glance(c, l) : view_any(c, l);
}

void lines_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct lines_channel *c = lines_of(channel);
    if (!view) {
        c->retired = seq;
        atomic_store_explicit(&c->head->retired, seq, memory_order_release);
        c->dirty = true;
    } else if (view->ack) {
        atomic_store_explicit((_Atomic uint64_t *)view->ack, view->word, memory_order_release);
        view->ack = NULL;
        c->dirty = true;
    }
}

static void resolve(struct lines_channel *c)
{
    for (uint32_t i = 0; i < c->waiting && c->unresolved; i++) {
        struct lines_wait *w = &c->wait[i];
        if (w->line)
            continue;
        w->line = find_line(c, w->peer, c->watch[i].key, w->edge);
        if (!w->line)
            continue;
        c->watch[i].flag = &w->line->key;
        c->unresolved--;
    }
}

static uint32_t advance_views(struct lines_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;
    size_t copied = 0;
    if (BASE_UNLIKELY(c->unresolved))
        resolve(c);
    for (uint32_t i = 0; i < c->waiting && n < max;) {
        const struct lines_watch watch = c->watch[i];
        if (atomic_load_explicit(watch.flag, memory_order_acquire) != watch.key || !c->wait[i].line) {
            i++;
            continue;
        }
        const struct lines_wait *w = &c->wait[i];
        events[n++] = (struct wire_event){.kind = WIRE_EVENT_DONE,
                                          .result = take(c, w, watch.key),
                                          .cookie = w->cookie,
                                          .key = watch.key,
                                          .peer = w->peer,
                                          .bytes = w->bytes};
        copied += w->land ? w->bytes : 0;
        c->waiting--;
        if (i != c->waiting) { /* the order of waiting says nothing: the last one fills the hole */
            c->watch[i] = c->watch[c->waiting];
            c->wait[i] = c->wait[c->waiting];
        }
        if (copied >= LINES_PASS_BYTES)
            break;
    }
    return n;
}

/* Its word holds acknowledgements of this operation's rounds one after the other; a later round's came after this one's. */
static inline bool gave_back(const _Atomic uint64_t *ack, wire_key key)
{
    uint64_t there = atomic_load_explicit(ack, memory_order_acquire);
    return wire_key_seq(there) == wire_key_seq(key) && there >= key;
}

static uint32_t advance_shown(struct lines_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->showing && n < max;) {
        struct lines_shown *s = &c->shown[i];
        while (s->acked < s->npeers && gave_back(ack_of(c->peer[s->peers[s->acked]].block, &c->shape, s->key, c->rank), s->key))
            s->acked++;
        if (s->acked < s->npeers) {
            i++;
            continue;
        }
        events[n++] = (struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = s->cookie, .key = s->key, .peer = -1};
        c->shown[i] = c->shown[--c->showing];
    }
    return n;
}

static inline bool has_mail(struct lines_channel *c)
{
    bool any = c->messages_left;
    for (uint32_t i = 0; i < c->todo_words && !any; i++)
        any = atomic_load_explicit(&c->inbox[i], memory_order_relaxed) != 0;
    return any;
}

uint32_t lines_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct lines_channel *c = lines_of(channel);
    uint32_t n = advance_views(c, events, max);
    if (BASE_UNLIKELY(c->showing))
        n += advance_shown(c, events + n, max - n);
    if (BASE_UNLIKELY(has_mail(c)) && !c->aborted)
        n += lines_message_advance(c, events + n, max - n);
    if (BASE_UNLIKELY(atomic_load_explicit(c->shared_epoch, memory_order_relaxed) != c->epoch))
        n += lines_note_advance(c, events + n, max - n);
    return n;
}

void lines_flush(struct wire_channel *channel)
{
    struct lines_channel *c = lines_of(channel);
    if (!c->dirty)
        return;
    c->dirty = false;
    /* Publish, fence, look for sleepers; they publish that they sleep, fence, and look again. Where a sleeper's fence is a barrier for all
       of us, ours is the compiler's alone. */
    if (BASE_LIKELY(c->host->light))
        atomic_signal_fence(memory_order_seq_cst);
    else
        atomic_thread_fence(memory_order_seq_cst);
    if (BASE_UNLIKELY(atomic_load_explicit(c->host->sleepers, memory_order_relaxed)))
        c->host->ring(c->host, c);
}
