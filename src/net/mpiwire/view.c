/*
 * Exposures and views. The frame of an exposure stays in its block until the view is released, or until its operation is over on this rank.
 * Frames for an operation that is over are dropped.
 *
 * A mismatch is reported only when the guard has brought the calls that the peer published, so that the error can name both sides.
 */
#include "net/mpiwire/mpiwire.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

#define CALLS_NS INT64_C(2000000000) /* how long to wait for a peer's published calls */

/* ------------------------------------------------------------------------------------------------------------ slots */
static struct mpiwire_slot **bucket_of(struct mpiwire_channel *c, uint32_t peer, wire_key key, uint32_t *number)
{
    *number = (uint32_t)((key >> 32) + (key & 255) * 7 + (key >> 8 & 0xffffff) * 3 + peer) % MPIWIRE_BUCKETS;
    return &c->bucket[*number];
}

static struct mpiwire_slot *find(struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    uint32_t number;
    struct mpiwire_slot *s = *bucket_of(c, peer, key, &number);

    while (s && (s->key != key || s->peer != peer))
        s = s->next;
    return s;
}

static struct mpiwire_slot *make(struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    struct mpiwire *w = c->wire;
    uint32_t number;
    struct mpiwire_slot **bucket = bucket_of(c, peer, key, &number), *s = w->spare_slots;

    if (s)
        w->spare_slots = s->next;
    else
        s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (struct mpiwire_slot){.next = *bucket, .key = key, .peer = peer};
    *bucket = s;
    c->filled |= UINT64_C(1) << number;
    return s;
}

/* The caller has removed the slot from its bucket. */
static void give_slot(struct mpiwire_channel *c, struct mpiwire_slot *s)
{
    c->differing -= s->differs;
    if (s->block)
        mpiwire_block_give(c->wire, s->block);
    s->next = c->wire->spare_slots;
    c->wire->spare_slots = s;
}

static void drop(struct mpiwire_channel *c, struct mpiwire_slot *s)
{
    uint32_t number;
    struct mpiwire_slot **bucket = bucket_of(c, s->peer, s->key, &number), **at = bucket;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (!*bucket)
        c->filled &= ~(UINT64_C(1) << number);
    give_slot(c, s);
}

/* Drops the slots of operations up to seq, or all slots if `all` is set. */
static void drop_until(struct mpiwire_channel *c, uint32_t seq, bool all)
{
    for (uint64_t filled = c->filled; filled; filled &= filled - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(filled);
        struct mpiwire_slot **at = &c->bucket[i], *s;
        while ((s = *at)) {
            if (!all && !mpiwire_reached(seq, wire_key_seq(s->key))) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            give_slot(c, s);
        }
        if (!c->bucket[i])
            c->filled &= ~(UINT64_C(1) << i);
    }
}

void mpiwire_slots_forget(struct mpiwire_channel *c)
{
    drop_until(c, 0, true);
}

/* ------------------------------------------------------------------------------------------------------------ exposing */
static enum mpiwire_room kind_of(const struct wire_expose *e, size_t bytes)
{
    if (!(e->edge & WIRE_ONCE))
        return MPIWIRE_ROOM_AREAS;
    if (bytes <= MPIWIRE_FRAME)
        return bytes <= MPIWIRE_INLINE ? MPIWIRE_ROOM_INLINE : MPIWIRE_ROOM_FRAME;
    return bytes <= MPIWIRE_PAGES ? MPIWIRE_ROOM_PAGES : MPIWIRE_ROOM_LONG;
}

/* For how many operations there is room for such exposures. */
static uint32_t room_of(const struct mpiwire_channel *c, const struct wire_expose *e, size_t bytes)
{
    return c->places[kind_of(e, bytes)];
}

static bool has_room(struct mpiwire_channel *c, uint32_t peer, const struct wire_expose *e, size_t bytes)
{
    const struct mpiwire_member *m = &c->member[peer];
    uint32_t behind = wire_key_seq(e->key) - room_of(c, e, bytes);

    if (c->wire->gone[c->world[peer]].kind)
        return true;
    if (!mpiwire_reached(m->retired, behind ? behind : UINT32_MAX))
        return false;
    wire_key before = e->key - ((uint64_t)c->credits << 8);
    return e->edge & WIRE_ONCE || wire_key_round(e->key) < c->credits || *mpiwire_ack_of(c, peer, before) == before;
}

/* The member may have retired more than this rank knows: it says so only in the heads of the frames that it sends to this rank. */
static void ask_for_room(struct mpiwire_channel *c, uint32_t peer)
{
    if (!c->member[peer].wanted)
        c->member[peer].wanted = mpiwire_post(c, peer, MPIWIRE_WANT, 0, 0, NULL, 0);
}

static bool send_spans(struct mpiwire_channel *c, uint32_t peer, const struct wire_expose *e, size_t bytes)
{
    struct mpiwire_block *b = mpiwire_block_take(c->wire, bytes);
    size_t at = 0;

    if (!b)
        return false;
    for (uint32_t i = 0; i < e->nspans; at += e->spans[i++].bytes)
        if (e->spans[i].bytes)
            memcpy(mpiwire_payload(b) + at, e->spans[i].at, e->spans[i].bytes);
    *mpiwire_head_of(b) =
        (struct mpiwire_head){.key = e->key, .tag = e->fingerprint, .kind = MPIWIRE_EXPOSE, .bytes = bytes, .room = room_of(c, e, bytes)};
    mpiwire_send(c, peer, b);
    return true;
}

enum wire_result mpiwire_expose_work(struct mpiwire_channel *c, const struct wire_expose *e)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < e->nspans; i++)
        bytes += e->spans[i].bytes;
    for (uint32_t i = 0; i < e->npeers; i++) {
        if (has_room(c, e->peers[i], e, bytes))
            continue;
        mpiwire_look(c);
        if (has_room(c, e->peers[i], e, bytes))
            continue;
        ask_for_room(c, e->peers[i]);
        return WIRE_AGAIN;
    }
    for (uint32_t i = 0; i < e->npeers; i++)
        if (!c->wire->gone[c->world[e->peers[i]]].kind && !send_spans(c, e->peers[i], e, bytes))
            return WIRE_FAILED;
    return WIRE_DONE;
}

/* ------------------------------------------------------------------------------------------------------------ viewing */
/* Whether the peer has published that call or a later one, or has died or left. */
static bool calls_known(const struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    const struct wire_call *ring = c->handle.peer_calls[peer];
    uint32_t seq = wire_key_seq(key);
    uint32_t there = ring ? atomic_load_explicit(&ring[seq & (c->handle.caps.calls - 1)].seq, memory_order_acquire) : seq;

    return c->wire->gone[c->world[peer]].kind || (there && mpiwire_reached(there, seq));
}

/* The caller drops the slot. Its sender may wait for this frame, so without memory the block that came is used for it. */
static void acknowledge(struct mpiwire_channel *c, struct mpiwire_slot *s, uint32_t rounds)
{
    if (rounds && rounds <= c->credits) /* the last exposures need no acknowledgement: no thread waits for it */
        return;
    if (mpiwire_post(c, s->peer, MPIWIRE_ACK, s->key, 0, NULL, 0))
        return;
    struct mpiwire_block *b = s->block;
    s->block = NULL;
    *b = (struct mpiwire_block){.class = b->class};
    *mpiwire_head_of(b) = (struct mpiwire_head){.key = s->key, .kind = MPIWIRE_ACK};
    mpiwire_send(c, s->peer, b);
}

/* Gives an exposure that has arrived to the view that asks for it. PENDING: it does not match the view, and a mismatch will be reported. */
static enum wire_result take(struct mpiwire_channel *c, struct mpiwire_slot *s, const struct wire_look *l)
{
    const struct mpiwire_head *head = mpiwire_head_of(s->block);

    if (BASE_UNLIKELY(head->bytes != l->bytes || head->tag != l->fingerprint))
        return calls_known(c, s->peer, s->key) ? WIRE_MISMATCH : WIRE_PENDING;
    if (!l->land) {
        s->look.rounds = l->rounds;
        *l->view =
            (struct wire_view){mpiwire_payload(s->block), head->bytes, l->edge & WIRE_ONCE ? NULL : (void *)s, s->key, &c->handle, false};
        return WIRE_DONE;
    }
    if (head->bytes)
        memcpy(l->land, mpiwire_payload(s->block), head->bytes);
    if (!(l->edge & WIRE_ONCE)) {
        acknowledge(c, s, l->rounds);
        drop(c, s);
    }
    return WIRE_DONE;
}

static void tell_look(struct mpiwire_channel *c, const struct wire_look *look, enum wire_result result)
{
    mpiwire_tell(c, &(struct wire_event){.kind = WIRE_EVENT_DONE,
                                         .result = result,
                                         .cookie = look->cookie,
                                         .key = look->key,
                                         .peer = (int32_t)look->peer,
                                         .bytes = look->bytes});
}

static void set_differing(struct mpiwire_channel *c, struct mpiwire_slot *s, const struct wire_look *l)
{
    s->look = *l;
    s->differs = true;
    s->until_ns = c->wire->env->now(c->wire->env) + CALLS_NS;
    c->differing++;
}

void mpiwire_look_at_differing(struct mpiwire_channel *c)
{
    int64_t now = c->wire->env->now(c->wire->env);

    for (uint64_t filled = c->filled; filled; filled &= filled - 1)
        for (struct mpiwire_slot *s = c->bucket[__builtin_ctzll(filled)]; s; s = s->next)
            if (s->differs && (calls_known(c, s->peer, s->key) || now > s->until_ns)) {
                s->differs = false;
                c->differing--;
                tell_look(c, &s->look, WIRE_MISMATCH);
            }
}

void mpiwire_exposed(struct mpiwire_channel *c, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    bool over = mpiwire_reached(c->retired, wire_key_seq(head->key));
    struct mpiwire_slot *s = over ? NULL : find(c, head->from, head->key);

    if (!s && !over) {
        s = make(c, head->from, head->key);
        if (!s)
            mpiwire_break(c, head->from, COMM_ERR_MEMORY, true);
    }
    if (!s || s->block) {
        mpiwire_block_give(c->wire, b);
        return;
    }
    s->block = b;
    if (!s->asked)
        return;
    struct wire_look look = s->look;
    s->asked = false;
    enum wire_result result = take(c, s, &look); /* this may free the slot */
    if (result == WIRE_PENDING)
        set_differing(c, s, &look);
    else
        tell_look(c, &look, result);
}

enum wire_result mpiwire_view_work(struct mpiwire_channel *c, const struct wire_look *l)
{
    struct mpiwire_slot *s = find(c, l->peer, l->key);
    bool glance = l->flags & WIRE_GLANCE;

    if (!s || !s->block) { /* a caller that glances does so again and again, without a pass */
        c->looked &= !glance;
        mpiwire_look(c);
        s = find(c, l->peer, l->key);
    }
    if (s && s->block) {
        enum wire_result result = take(c, s, l);
        if (result != WIRE_PENDING || glance)
            return result == WIRE_PENDING ? WIRE_AGAIN : result;
        set_differing(c, s, l);
        return WIRE_PENDING;
    }
    if (glance)
        return WIRE_AGAIN;
    s = s ? s : make(c, l->peer, l->key);
    if (!s)
        return WIRE_AGAIN;
    s->asked = true;
    s->look = *l;
    return WIRE_PENDING;
}

/* ------------------------------------------------------------------------------------------------------------ giving back */
void mpiwire_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard) {
        c->guard->class->release(c->guard, seq, view);
        return;
    }
    if (view && !view->ack)
        return;
    pthread_mutex_lock(&c->wire->lock);
    if (!view) {
        c->retired = seq;
        c->retires = true;
        drop_until(c, seq, false);
    } else {
        struct mpiwire_slot *s = view->ack;
        view->ack = NULL;
        if (!mpiwire_reached(c->retired, wire_key_seq(view->word))) { /* otherwise the slot was dropped with its operation */
            acknowledge(c, s, s->look.rounds);
            drop(c, s);
        }
    }
    pthread_mutex_unlock(&c->wire->lock);
}

/* Every head says this too. This frame is for members that send to this rank and otherwise receive nothing from it. Half of a member's room
 * would be late: it may need the rest before this frame arrives. */
void mpiwire_tell_retired(struct mpiwire_channel *c)
{
    c->retires = false;
    for (uint32_t i = 0; i < c->size; i++) {
        const struct mpiwire_member *m = &c->member[i];
        uint32_t untold = c->retired - m->retired_told;
        if (untold && (m->wants || (m->room && untold >= m->room / MPIWIRE_TELLS)))
            c->retires |= !mpiwire_post(c, i, MPIWIRE_RETIRED, 0, 0, NULL, 0);
    }
}
