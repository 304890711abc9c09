/* The simulated network wire: exposures and views over frames. frames_slots.c has what has arrived, frames_join.c how channels come and go.
 * The rules for room are those of wire.h, enforced by acknowledgements. */
#include "sim/frames.h"

#include "base/check.h"
#include "base/format.h"
#include "net/frame/stale.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ room */
static uint64_t *ack_of(struct frames_channel *c, struct frames_peer *p, wire_key key)
{
    if (!p->acked)
        p->acked = sim_memory_take(FRAMES_AREAS * sizeof *p->acked, 64);
    BASE_ASSERT(p->acked);
    return &p->acked[wire_key_seq(key) % c->areas][wire_key_edge(key)][wire_key_round(key) % c->credits];
}

/* One place for each (edge, sequence modulo places) and peer, and for each (edge, round modulo credits) of a stream. */
static bool has_room(struct frames_channel *c, uint32_t peer, const struct wire_expose *e, size_t bytes)
{
    struct frames_peer *p = &c->peer[peer];
    uint32_t seq = wire_key_seq(e->key), round = wire_key_round(e->key);

    if (e->edge & WIRE_ONCE)
        return frames_reached(p->retired, seq - (bytes <= FRAMES_INLINE ? 2 * c->handle.caps.window : c->once_places));
    if (!frames_reached(p->retired, seq - c->areas))
        return false;
    wire_key before = e->key - ((uint64_t)c->credits << 8);
    return round < c->credits || *ack_of(c, p, before) == before;
}

static size_t bytes_of(const struct wire_expose *e)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < e->nspans; i++)
        bytes += e->spans[i].bytes;
    return bytes;
}

static bool all_have_room(struct frames_channel *c, const struct wire_expose *e, size_t bytes)
{
    if (sim_denied_room())
        return false;
    if (sim.mood.refuse && sim_below(&sim.network, sim.mood.refuse) == 0) {
        sim_again_later();
        return false;
    }
    for (uint32_t i = 0; i < e->npeers; i++)
        if (!has_room(c, e->peers[i], e, bytes))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ exposing */
static enum wire_result frames_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    struct frames_channel *c = frames_of(channel);

    sim_point();
    if ((e->flags & WIRE_KIND) != WIRE_WORK || e->key % 3 == 0)
        return WIRE_NONE;
    if (!all_have_room(c, e, bytes))
        return WIRE_AGAIN;
    struct slot *s = c->pads;
    while (s && s->key != e->key)
        s = s->next;
    if (!s) {
        s = sim_memory_take(sizeof *s, 64);
        BASE_ASSERT(s);
        *s = (struct slot){.next = c->pads, .key = e->key, .memory = bytes + 1};
        s->data = sim_memory_take(s->memory, 64);
        BASE_ASSERT(s->data);
        c->pads = s;
    }
    *pad = s->data;
    return WIRE_DONE;
}

static void send_note(struct frames_channel *c, const struct wire_expose *e)
{
    for (uint32_t r = 0; r < c->size; r++) {
        struct frame *f;
        if (r == c->rank || c->peer[r].elsewhere)
            continue;
        f = frame_make(c, r, FRAME_NOTE, e->key, e->nspans ? e->spans[0].at : NULL, e->nspans ? e->spans[0].bytes : 0);
        f->tag = e->fingerprint;
        frame_post(c, f);
    }
}

/* The bytes stay in user memory until the last piece of them is sent. */
static enum wire_result expose_held(struct frames_channel *c, const struct wire_expose *e, size_t bytes)
{
    struct held *hold = sim_memory_take(sizeof *hold, 64);

    BASE_ASSERT(hold);
    *hold = (struct held){.pieces = e->npeers, .cookie = e->cookie};
    for (uint32_t i = 0; i < e->npeers; i++) {
        struct frame *f = frame_make(c, e->peers[i], FRAME_BYTES, e->key, NULL, bytes);
        f->tag = e->fingerprint;
        f->edge = e->edge;
        f->held = e->spans[0].at;
        f->hold = hold;
        frame_post(c, f);
    }
    return WIRE_PENDING;
}

static enum wire_result frames_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct frames_channel *c = frames_of(channel);
    size_t bytes = bytes_of(e);

    sim_point();
    if ((e->flags & WIRE_KIND) == WIRE_NOTE) {
        send_note(c, e);
        return WIRE_DONE;
    }
    if ((e->flags & WIRE_KIND) == WIRE_MESSAGE)
        return sim_denied_room() ? WIRE_AGAIN : frames_message_expose(c, e);
    BASE_ASSERT(!c->aborted);
    if (!e->npeers)
        return WIRE_DONE;
    if (!all_have_room(c, e, bytes))
        return WIRE_AGAIN;
    bool hold = sim.mood.hold && e->nspans == 1 && bytes && !(e->flags & WIRE_BUILT) && sim_below(&sim.network, sim.mood.hold) == 0;
    if (hold)
        return expose_held(c, e, bytes);
    for (uint32_t i = 0; i < e->npeers; i++) {
        struct frame *f = frame_make(c, e->peers[i], FRAME_BYTES, e->key, NULL, bytes);
        char *to = f->data;
        for (uint32_t k = 0; k < e->nspans; to += e->spans[k].bytes, k++)
            if (e->spans[k].bytes)
                memcpy(to, e->spans[k].at, e->spans[k].bytes);
        f->tag = e->fingerprint;
        f->edge = e->edge;
        frame_post(c, f);
    }
    return WIRE_DONE;
}

/* ------------------------------------------------------------------------------------------------------------ viewing */
static void acknowledge(struct frames_channel *c, uint32_t peer, wire_key key)
{
    frame_post(c, frame_make(c, peer, FRAME_ACK, key, NULL, 0));
}

/* All of it has arrived and is requested. */
static enum wire_result take(struct frames_channel *c, struct slot *s, const struct wire_look *l)
{
    if (s->total != l->bytes || s->tag != l->fingerprint)
        return WIRE_MISMATCH;
    if (!l->land) {
        *l->view = (struct wire_view){s->data, s->total, l->edge & WIRE_ONCE ? NULL : (void *)s, s->key, &c->handle, false};
        s->viewed = true;
        return WIRE_DONE;
    }
    if (s->total)
        memcpy(l->land, s->data, s->total);
    if (!(l->edge & WIRE_ONCE)) {
        acknowledge(c, s->peer, s->key);
        slot_drop(c, s);
    }
    return WIRE_DONE;
}

static bool is_whole(const struct slot *s)
{
    return s->data && s->arrived == s->total;
}

static enum wire_result frames_view(struct wire_channel *channel, const struct wire_look *l)
{
    struct frames_channel *c = frames_of(channel);

    sim_point();
    if ((l->flags & WIRE_KIND) == WIRE_MESSAGE)
        return sim_denied_room() ? WIRE_AGAIN : frames_message_view(c, l);
    BASE_ASSERT(!c->aborted && l->peer < c->size && l->peer != c->rank);
    struct slot *s = slot_find(c, l->peer, l->key, false);
    if (s && is_whole(s))
        return take(c, s, l);
    if ((l->flags & WIRE_GLANCE) || sim_denied_room())
        return WIRE_AGAIN;
    s = slot_find(c, l->peer, l->key, true);
    BASE_ASSERT(!s->asked);
    s->asked = true;
    s->look = *l;
    return WIRE_PENDING;
}

static void frames_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct frames_channel *c = frames_of(channel);

    sim_point();
    if (view) {
        struct slot *s = view->ack;
        if (s) {
            view->ack = NULL;
            acknowledge(c, s->peer, s->key);
            slot_drop(c, s);
        }
        return;
    }
    c->retired = seq;
    c->retire = true;
    for (uint32_t i = 0; i < FRAMES_BUCKETS; i++)
        slot_drop_until(&c->slot[i], seq);
    slot_drop_until(&c->pads, seq);
}

static void frames_flush(struct wire_channel *channel)
{
    struct frames_channel *c = frames_of(channel);

    for (uint32_t r = 0; c->retire && r < c->size; r++) {
        if (r == c->rank || c->peer[r].elsewhere || (c->size > FRAMES_TOLD_ALL && !c->peer[r].sends))
            continue;
        c->peer[r].sends = false;
        frame_post(c, frame_make(c, r, FRAME_RETIRED, c->retired, NULL, 0));
    }
    c->retire = false;
    if (c->out)
        frames_send(c);
    sim_point();
}

/* ------------------------------------------------------------------------------------------------------------ arriving */
static void bytes_arrive(struct frames_channel *c, uint32_t peer, const struct frame *f)
{
    struct slot *s = slot_find(c, peer, f->key, true);

    if (!s->data) {
        s->total = f->total;
        s->tag = f->tag;
        s->edge = f->edge;
        s->memory = f->total + 1;
        s->data = sim_memory_take(s->memory, 64);
        BASE_ASSERT(s->data);
    }
    BASE_ASSERT(s->total == f->total && f->begin + f->bytes <= f->total);
    if (f->bytes)
        memcpy(s->data + f->begin, f->data, f->bytes);
    s->arrived += f->bytes;
    if (!is_whole(s) || !s->asked)
        return;
    struct wire_look look = s->look;
    s->asked = false;
    struct wire_event event = {.kind = WIRE_EVENT_DONE, .cookie = look.cookie, .key = f->key, .peer = (int32_t)peer, .bytes = f->total};
    event.result = take(c, s, &look);
    frames_event(c, &event);
    if (c->out)
        frames_send(c); /* sends the acknowledgement of a landing */
}

void frames_arrive(struct frames_channel *c, struct frame *f)
{
    uint32_t peer = f->from->rank;
    struct frames_peer *p = &c->peer[peer];

    switch (f->kind) {
    case FRAME_NOTE:
        frames_note_arrives(c, peer, f);
        break;
    case FRAME_BYTES:
        p->sends = true;
        if (!c->aborted && !stale_is_done(c->retired, f->key))
            bytes_arrive(c, peer, f);
        break;
    case FRAME_ACK:
        *ack_of(c, p, f->key) = stale_ack(*ack_of(c, p, f->key), p->retired, f->key);
        break;
    case FRAME_RETIRED:
        p->retired = stale_retired(p->retired, (uint32_t)f->key);
        break;
    default:
        frames_message_arrive(c, peer, f);
    }
}

static uint32_t frames_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct frames_channel *c = frames_of(channel);
    uint32_t n = 0;

    sim_point();
    for (; c->events && n < max; n++, c->events--) {
        events[n] = c->event[c->events_first];
        c->events_first = (c->events_first + 1) % c->events_room;
        if (events[n].kind != WIRE_EVENT_ANNOUNCED)
            continue;
        frame_post(c, frame_make(c, (uint32_t)events[n].peer, FRAME_CONSUMED, wire_key_seq(events[n].key), NULL, 0));
    }
    return n + frames_advance_notes(c, events + n, max - n);
}

/* ------------------------------------------------------------------------------------------------------------ the wire */
static enum comm_result frames_open(const struct wire_config *config, struct wire **wire)
{
    struct frames_wire *w = config->boot ? sim_memory_take(sizeof *w, 64) : NULL;

    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the simulated network");
        return COMM_ERR_MEMORY;
    }
    *w = (struct frames_wire){.wire = {.class = &wire_sim_frames}, .env = config->env, .across = config->across};
    *wire = &w->wire;
    enum comm_result r = sim_port_open(config, &w->port);
    if (r == COMM_OK)
        frames_stale_wire(w);
    return r;
}

static void frames_close(struct wire *wire)
{
    sim_port_close(((struct frames_wire *)wire)->port);
}

static uint32_t frames_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    return sim_port_poll(((struct frames_wire *)wire)->port, events, max);
}

static void frames_arm(struct wire *wire, bool on, int64_t *deadline)
{
    (void)deadline;
    sim_port_arm(((struct frames_wire *)wire)->port, on);
}

static bool frames_heed(struct wire *wire, bool on)
{
    return sim_port_heed(((struct frames_wire *)wire)->port, on);
}

static void frames_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    (void)channel;
    base_format(address, bytes, "simulated rank %d", peer);
}

const struct wire_class wire_sim_frames = {
    .name = "tcp",
    .open = frames_open,
    .close = frames_close,
    .join = frames_join,
    .leave = frames_leave,
    .reserve = frames_reserve,
    .expose = frames_expose,
    .view = frames_view,
    .release = frames_release,
    .advance = frames_advance,
    .flush = frames_flush,
    .poll = frames_poll,
    .arm = frames_arm,
    .describe = frames_describe,
    .heed = frames_heed,
};
