/*
 * The reading half of the memory wires' hot path: looking for what peers exposed, releasing it, and the pass over
 * pending views. Nothing here divides, locks, allocates or calls through a pointer.
 */
#include "channel/shmchan_at.h"

#include "data/data.h"

#include <string.h>

enum { FETCH_BYTES = 512 };

/* Tells the peer where these bytes shall go, if the slot is free. */
static void tell_landing(struct shmchan_channel *c, struct shmchan_wait *w, wire_key key)
{
    uint32_t slot = landing_slot(&c->shape, key);
    uint64_t where, bit = UINT64_C(1) << slot % 64, *reported = &c->reported[slot / 64];

    if (*reported & bit || !shmchan_where_to_land(c->host, w->land, w->bytes, &where))
        return;
    struct shmchan_landing *l = landing_of(c->block.at, &c->shape, key);
    l->where = where;
    l->bytes = w->bytes;
    l->fingerprint = w->fingerprint;
    atomic_store_explicit(&l->key, key, memory_order_release);
    *reported |= bit;
    w->reported = 1;
}

/* The bytes have arrived, in either way. The slot goes to the oldest view that waits for it, before the acknowledgement
 * makes the peer look. */
static __attribute__((noinline)) void tell_next(struct shmchan_channel *c, wire_key key)
{
    uint32_t slot = landing_slot(&c->shape, key), next = c->waiting;

    c->reported[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    for (uint32_t i = 0; i < c->waiting; i++) {
        const struct shmchan_wait *w = &c->wait[i];
        if (!w->land || !w->ack || w->reported || landing_slot(&c->shape, c->watch[i].key) != slot)
            continue;
        if (next == c->waiting || c->watch[i].key < c->watch[next].key)
            next = i;
    }
    if (next < c->waiting)
        tell_landing(c, &c->wait[next], c->watch[next].key);
}

/* Only this rank reads the bytes, and their owner will write there again. */
static inline bool is_exclusive(const struct shmchan_channel *c, const struct shmchan_line *line, uint32_t edge)
{
    return line->kind == SHMCHAN_KIND_PLACE && (c->size == 2 || !(edge & WIRE_TO_ALL));
}

/* Takes the answer to an exposure of this rank. Then the place is this rank's again. */
static __attribute__((noinline)) void take_answer(struct shmchan_channel *c, const struct shmchan_wait *w, wire_key key)
{
    wire_key asked = shmchan_asked(key);
    const char *line = c->own.stream + stream_offset(&c->shape, asked, 0, w->peer, c->rank);

    data_copy(w->land, line + sizeof(struct shmchan_line), w->bytes, w->flags & WIRE_NONTEMPORAL);
    c->answered[landing_slot(&c->shape, asked)] = asked;
}

/* The line has the requested key. */
static inline enum wire_result take(struct shmchan_channel *c, const struct shmchan_wait *w, wire_key key)
{
    const struct shmchan_line *line = w->line;
    bool in_line = line->kind == SHMCHAN_KIND_INLINE;
    size_t bytes = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(bytes != w->bytes || line->fingerprint != w->fingerprint))
        return WIRE_MISMATCH;
    const char *at = in_line ? (const char *)line->of.data : (const char *)(c->peer[w->peer].base + line->of.place.offset);
    if (line->kind == SHMCHAN_KIND_POINTER)
        c->handle.borrows = true;
    if (!w->land) {
        *w->view = (struct wire_view){at, bytes, (void *)w->ack, key, &c->handle, is_exclusive(c, line, w->edge)};
        return WIRE_DONE;
    }
    if (BASE_UNLIKELY(w->reported))
        tell_next(c, key);
    if (line->kind == SHMCHAN_KIND_LANDED)
        BASE_ASSERT(w->reported);
    else if (line->kind == SHMCHAN_KIND_ANSWER)
        take_answer(c, w, key);
    else if (is_exclusive(c, line, w->edge))
        take_bytes(c, w->land, at, bytes, w->flags & WIRE_NONTEMPORAL);
    else if ((w->flags & WIRE_NONTEMPORAL) && line->kind != SHMCHAN_KIND_POINTER) /* a POINTER has only half the traffic anyway, and its
                                                                                   * copy may stay in the cache */
        data_copy(w->land, at, bytes, true);
    else
        memcpy(w->land, at, bytes);
    if (w->ack) {
        atomic_store_explicit(w->ack, key, memory_order_release);
        c->dirty = true;
    }
    return WIRE_DONE;
}

/* Finds where a peer's places begin; false if the peer has not published that yet. */
static inline bool find_places(const struct shmchan_peer *p, char **places, const _Atomic uint64_t *reported)
{
    if (BASE_LIKELY(*places != NULL))
        return true;
    uint64_t where = atomic_load_explicit(reported, memory_order_acquire);
    if (where)
        *places = (char *)(p->base + where);
    return where != 0;
}

static const struct shmchan_line *find_line(struct shmchan_channel *c, uint32_t peer, wire_key key, uint32_t edge)
{
    struct shmchan_peer *p = &c->peer[peer];
    if ((edge & WIRE_ONCE) && (edge & WIRE_TO_ALL))
        return once_line(p->block, &c->shape, key);
    if (edge & WIRE_ONCE)
        return find_places(p, &p->each, &p->head->each) ? each_line(p->each, &c->shape, key, c->rank, peer) : NULL;
    if (!find_places(p, &p->stream, &p->head->stream))
        return NULL;
    return (const struct shmchan_line *)(const void *)(p->stream + stream_offset(&c->shape, key, edge, c->rank, peer));
}

static inline bool may_tell_landings(const struct shmchan_channel *c)
{
    return c->shape.landings && c->host->replace && !c->shape.copies && atomic_load_explicit(&c->host->lent, memory_order_relaxed);
}

/* The last quarter of the table is reserved for the oldest unfinished operation, so younger ones never take what it
 * needs. */
static bool may_wait(const struct shmchan_channel *c, wire_key key)
{
    if (c->waiting < c->waiting_max - c->waiting_max / 4)
        return true;
    return c->waiting < c->waiting_max && shmchan_reached(c->retired + 1, wire_key_seq(key));
}

/* Prefetches the place that the line will point to, so that line and place are fetched at the same time. Of more bytes than FETCH_BYTES the
 * first half, because the CPU fetches the rest by itself. */
static __attribute__((noinline)) void fetch_place(struct shmchan_channel *c, wire_key key, uint32_t peer, size_t bytes)
{
    struct shmchan_peer *p = &c->peer[peer];

    if (!find_places(p, &p->once, &p->head->once))
        return;
    const char *place = p->once + once_offset(&c->shape, key, SHMCHAN_BRIEF);
    const size_t some = bytes <= FETCH_BYTES ? bytes : bytes / 2;
    for (size_t at = 0; at < some; at += sizeof(struct shmchan_line))
        __builtin_prefetch(place + at);
}

void shmchan_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes)
{
    struct shmchan_channel *c = shmchan_of(channel);

    __builtin_prefetch(once_line(c->peer[peer].block, &c->shape, key));
    if (BASE_UNLIKELY(bytes > SHMCHAN_INLINE && bytes <= SHMCHAN_BRIEF_BYTES))
        fetch_place(c, key, peer, bytes);
}

static inline enum wire_result glance(struct shmchan_channel *c, const struct wire_look *l)
{
    const struct shmchan_peer *p = &c->peer[l->peer];
    const struct shmchan_line *line = once_line(p->block, &c->shape, l->key);

    if (atomic_load_explicit(&line->key, memory_order_acquire) != l->key)
        return WIRE_AGAIN;
    bool in_line = line->kind == SHMCHAN_KIND_INLINE;
    size_t bytes = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(bytes != l->bytes || line->fingerprint != l->fingerprint))
        return WIRE_MISMATCH;
    l->view->at = in_line ? (const char *)line->of.data : (const char *)(p->base + line->of.place.offset);
    l->view->bytes = bytes;
    l->view->ack = NULL;
    l->view->from = &c->handle;
    l->view->exclusive = c->handle.caps.dirties && !in_line;
    return WIRE_DONE;
}

enum wire_result shmchan_poll_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes,
                                     const void **at)
{
    struct shmchan_channel *c = shmchan_of(channel);
    const struct shmchan_peer *p = &c->peer[peer];
    const struct shmchan_line *line = once_line(p->block, &c->shape, key);

    if (atomic_load_explicit(&line->key, memory_order_acquire) != key)
        return WIRE_AGAIN;
    bool in_line = line->kind == SHMCHAN_KIND_INLINE;
    size_t there = in_line ? line->bytes : line->of.place.bytes;
    if (BASE_UNLIKELY(there != bytes || line->fingerprint != fingerprint))
        return WIRE_MISMATCH;
    *at = in_line ? (const char *)line->of.data : (const char *)(p->base + line->of.place.offset);
    return WIRE_DONE;
}

static __attribute__((noinline)) enum wire_result view_any(struct shmchan_channel *c, const struct wire_look *l)
{
    if (BASE_UNLIKELY((l->flags & WIRE_KIND) == WIRE_MESSAGE))
        return shmchan_message_view(c, l);
    BASE_ASSERT(!c->aborted && l->peer < c->size && l->peer != c->rank);
    const struct shmchan_line *line = find_line(c, l->peer, l->key, l->edge);
    if ((l->flags & WIRE_GLANCE) && (!line || atomic_load_explicit(&line->key, memory_order_acquire) != l->key))
        return WIRE_AGAIN;
    _Atomic uint64_t *ack = l->edge & WIRE_ONCE ? NULL : ack_of(c->block.at, &c->shape, l->key, l->peer);
    struct shmchan_wait w = {.line = line,
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
    /* advance looks up a peer without places again. Until then the flag is a word that never has this edge's key. */
    c->watch[c->waiting] = (struct shmchan_watch){line ? &line->key : &c->head->id, l->key};
    c->unresolved += !line;
    c->wait[c->waiting] = w;
    if (w.land && ack && may_tell_landings(c))
        tell_landing(c, &c->wait[c->waiting], l->key);
    c->waiting++;
    return WIRE_PENDING;
}

enum wire_result shmchan_view(struct wire_channel *channel, const struct wire_look *l)
{
    struct shmchan_channel *c = shmchan_of(channel);
    bool light = (l->flags & WIRE_GLANCE) && l->edge == (WIRE_ONCE | WIRE_TO_ALL) && !l->land && !c->aborted;
    return BASE_LIKELY(light) ? glance(c, l) : view_any(c, l);
}

/* A separate function, so that the release of a whole operation saves no registers for it. */
static __attribute__((noinline)) void release_view(struct shmchan_channel *c, struct wire_view *view)
{
    if (view->exclusive && !c->shape.only_reads)
        data_dirty((void *)(uintptr_t)view->at, view->bytes);
    view->exclusive = false;
    if (view->ack) {
        atomic_store_explicit((_Atomic uint64_t *)view->ack, view->word, memory_order_release);
        view->ack = NULL;
        c->dirty = true;
    }
}

void shmchan_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct shmchan_channel *c = shmchan_of(channel);

    if (view) {
        release_view(c, view);
        return;
    }
    c->retired = seq;
    atomic_store_explicit(&c->head->retired, seq, memory_order_release);
    c->dirty = true;
}

static void resolve(struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->waiting && c->unresolved; i++) {
        struct shmchan_wait *w = &c->wait[i];
        if (w->line)
            continue;
        w->line = find_line(c, w->peer, c->watch[i].key, w->edge);
        if (!w->line)
            continue;
        c->watch[i].flag = &w->line->key;
        c->unresolved--;
    }
}

static uint32_t advance_views(struct shmchan_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;
    size_t copied = 0;
    if (BASE_UNLIKELY(c->unresolved))
        resolve(c);
    for (uint32_t i = 0; i < c->waiting && n < max;) {
        const struct shmchan_watch watch = c->watch[i];
        if (atomic_load_explicit(watch.flag, memory_order_acquire) != watch.key || !c->wait[i].line) {
            i++;
            continue;
        }
        const struct shmchan_wait *w = &c->wait[i];
        events[n++] = (struct wire_event){.kind = WIRE_EVENT_DONE,
                                          .result = take(c, w, watch.key),
                                          .cookie = w->cookie,
                                          .key = watch.key,
                                          .peer = w->peer,
                                          .bytes = w->bytes};
        copied += w->land ? w->bytes : 0;
        c->waiting--;
        if (i != c->waiting) { /* the order of the table does not matter: the last entry fills the hole */
            c->watch[i] = c->watch[c->waiting];
            c->wait[i] = c->wait[c->waiting];
        }
        if (copied >= SHMCHAN_PASS_BYTES)
            break;
    }
    return n;
}

/* The word holds the acknowledgements of this operation's rounds one after the other. A later round's acknowledgement
 * comes after this one's. */
static inline bool gave_back(const _Atomic uint64_t *ack, wire_key key)
{
    uint64_t there = atomic_load_explicit(ack, memory_order_acquire);
    return wire_key_seq(there) == wire_key_seq(key) && there >= key;
}

static uint32_t advance_shown(struct shmchan_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->showing && n < max;) {
        struct shmchan_shown *s = &c->shown[i];
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

static inline bool has_mail(struct shmchan_channel *c)
{
    bool any = shmchan_newest_continues(c);
    for (uint32_t i = 0; i < c->size && !any; i++)
        any = atomic_load_explicit(&c->inbox[i].knocks, memory_order_relaxed) != c->heard[i].knocks ||
              !shmchan_reached(c->heard[i].announced, atomic_load_explicit(&c->inbox[i].announced, memory_order_relaxed));
    return any;
}

uint32_t shmchan_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct shmchan_channel *c = shmchan_of(channel);
    uint32_t n = advance_views(c, events, max);
    if (BASE_UNLIKELY(c->showing))
        n += advance_shown(c, events + n, max - n);
    if (BASE_UNLIKELY(has_mail(c)) && !c->aborted)
        n += shmchan_message_advance(c, events + n, max - n);
    if (BASE_UNLIKELY(atomic_load_explicit(c->shared_epoch, memory_order_relaxed) != c->epoch))
        n += shmchan_note_advance(c, events + n, max - n);
    return n;
}
