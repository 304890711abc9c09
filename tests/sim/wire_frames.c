/* The simulated network wire: exposures and views over frames. The rules for room are those of wire.h, enforced by
 * acknowledgements. */
#include "sim/frames.h"

#include "base/check.h"
#include "base/format.h"
#include "net/frame/stale.h"

#include <string.h>

extern const struct wire_class wire_sim_frames;
#define OFFER_MAGIC UINT64_C(0x73696d6672616d65)

static struct frames_channel *channel_of(struct wire_channel *channel)
{
    return (struct frames_channel *)channel;
}

static bool reached(uint32_t at, uint32_t wanted)
{
    wanted -= wanted == 0; /* there is no number 0 */
    return (int32_t)(at - wanted) >= 0;
}

/* ------------------------------------------------------------------------------------------------------------ slots */
static struct slot **bucket_of(struct frames_channel *c, uint32_t peer, wire_key key)
{
    uint64_t h = (key ^ (uint64_t)peer << 20) * UINT64_C(0x9e3779b97f4a7c15);

    return &c->slot[h >> 56];
}

struct slot *slot_find(struct frames_channel *c, uint32_t peer, wire_key key, bool make)
{
    struct slot **list = bucket_of(c, peer, key), *s = *list;

    while (s && (s->peer != peer || s->key != key))
        s = s->next;
    if (s || !make)
        return s;
    s = sim_memory_take(sizeof *s, 64);
    BASE_ASSERT(s);
    *s = (struct slot){.next = *list, .peer = peer, .key = key};
    return *list = s;
}

/* Poisoned, so that a read after the release is detected. */
static void slot_free(struct slot *s)
{
    if (s->data)
        sim_memory_give(s->data, s->memory, true);
    sim_memory_give(s, sizeof *s, true);
}

void slot_drop(struct frames_channel *c, struct slot *slot)
{
    struct slot **at = bucket_of(c, slot->peer, slot->key);

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    slot_free(slot);
}

static void drop_until(struct slot **at, uint32_t seq)
{
    while (*at) {
        struct slot *s = *at;
        if (!reached(seq, wire_key_seq(s->key))) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        slot_free(s);
    }
}

void frames_event(struct frames_channel *c, const struct wire_event *event)
{
    if (c->events == c->events_room) {
        uint32_t room = c->events_room ? 2 * c->events_room : 64;
        struct wire_event *more = sim_memory_take(room * sizeof *more, 64);
        BASE_ASSERT(more);
        for (uint32_t i = 0; i < c->events; i++)
            more[i] = c->event[(c->events_first + i) % c->events_room];
        if (c->event)
            sim_memory_give(c->event, c->events_room * sizeof *more, true);
        c->event = more;
        c->events_first = 0;
        c->events_room = room;
    }
    c->event[(c->events_first + c->events++) % c->events_room] = *event;
}

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
        return reached(p->retired, seq - (bytes <= FRAMES_INLINE ? 2 * c->handle.caps.window : c->once_places));
    if (!reached(p->retired, seq - c->areas))
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
    struct frames_channel *c = channel_of(channel);

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
    struct frames_channel *c = channel_of(channel);
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
    struct frames_channel *c = channel_of(channel);

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
    struct frames_channel *c = channel_of(channel);

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
        drop_until(&c->slot[i], seq);
    drop_until(&c->pads, seq);
}

static void frames_flush(struct wire_channel *channel)
{
    struct frames_channel *c = channel_of(channel);

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
    struct frames_channel *c = channel_of(channel);
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

/* ------------------------------------------------------------------------------------------------------------ join, leave */
struct offer {
    uint64_t magic;
    uint32_t name, window;
    uint64_t chunk;
    struct frames_channel *channel;
};

/* Chooses names as tcp does: a late frame finds another name where its channel was. */
static void enter(struct frames_wire *w, struct frames_channel *c)
{
    uint32_t place = 0;

    while (place < FRAMES_CHANNELS && w->channel[place])
        place++;
    BASE_ASSERT(place < FRAMES_CHANNELS);
    w->channel[place] = c;
    c->name = stale_name(++w->count, place);
    c->before = w->newest;
    w->newest = c;
}

struct frames_channel *frames_find(struct frames_wire *w, uint32_t name, uint32_t from, int32_t peer)
{
    uint32_t place = stale_place(name);
    struct frames_channel *c = place < FRAMES_CHANNELS ? w->channel[place] : NULL;

    return c && stale_is_for(name, c->name) && stale_is_member(from, c->size, c->world, peer) ? c : NULL;
}

static enum comm_result make(struct frames_wire *w, const struct wire_team *team, const struct wire_limits *limits, void *offer,
                             struct wire_channel **channel)
{
    size_t size = (size_t)team->size;
    struct frames_channel *c = sim_denied_memory(sim_self()) ? NULL : sim_memory_take(sizeof *c, 64);

    if (!c)
        return COMM_ERR_MEMORY;
    c->handle.class = &wire_sim_frames;
    c->handle.caps = (struct wire_caps){.inline_max = FRAMES_INLINE,
                                        .window = limits->window ? limits->window : FRAMES_WINDOW,
                                        .calls = 4 * (limits->window ? limits->window : FRAMES_WINDOW),
                                        .once_max = FRAMES_ONCE_MAX,
                                        .chunk_all = limits->chunk ? limits->chunk : FRAMES_CHUNK,
                                        .chunk_private = limits->chunk ? limits->chunk : FRAMES_CHUNK};
    c->wire = w;
    c->id = team->id;
    c->rank = (uint32_t)team->rank;
    c->size = (uint32_t)team->size;
    c->areas = limits->minimal ? 1 : FRAMES_AREAS;
    c->credits = limits->minimal ? 1 : FRAMES_CREDITS;
    c->once_places = limits->minimal ? 1 : FRAMES_ONCE_PLACES;
    c->peer = sim_memory_take(size * sizeof *c->peer, 64);
    c->handle.peer_calls = sim_memory_take(size * sizeof *c->handle.peer_calls, 64);
    c->handle.calls = sim_memory_take(c->handle.caps.calls * sizeof *c->handle.calls, 64);
    BASE_ASSERT(c->peer && c->handle.peer_calls && c->handle.calls);
    c->out_last = &c->out;
    for (size_t i = 0; i < size && sim.config.first_number; i++)
        c->peer[i].retired = c->retired = sim.config.first_number - 1;
    c->world = team->world;
    enter(w, c);
    struct offer mine = {OFFER_MAGIC, c->name, c->handle.caps.window, c->handle.caps.chunk_all, c};
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    *channel = &c->handle;
    return COMM_OK;
}

static enum comm_result connect(struct frames_channel *c, const struct wire_team *team, const char *offers)
{
    struct wire_call **calls = (struct wire_call **)(uintptr_t)c->handle.peer_calls;
    struct frames_channel *first = NULL;
    bool one_host = true;

    for (uint32_t i = 0; i < c->size; i++) {
        struct offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        if (o.magic != OFFER_MAGIC || o.window != c->handle.caps.window || o.chunk != c->handle.caps.chunk_all)
            return COMM_ERR_CONFIG;
        c->peer[i].channel = o.channel;
        c->peer[i].name = o.name;
        first = i ? first : o.channel;
        bool near = sim_host_of(team->world[i]) == sim_host_of(team->world[c->rank]);
        calls[i] = near ? o.channel->handle.calls : NULL;
        one_host &= near;
        c->peer[i].elsewhere = c->wire->across && near;
    }
    c->world = team->world;
    c->handle.board = one_host ? &first->board : NULL;
    return COMM_OK;
}

static void forget(struct frames_channel *c)
{
    for (uint32_t i = 0; i < FRAMES_BUCKETS; i++)
        while (c->slot[i])
            slot_drop(c, c->slot[i]);
    frames_message_forget(c);
    c->events = 0;
}

static void frames_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct frames_channel *c = channel_of(channel);

    sim_point();
    if (c->out)
        frames_send(c);
    c->aborted = true;
    forget(c);
    if (how == WIRE_CLOSE && !c->closed)
        c->wire->channel[stale_place(c->name)] = NULL;
    c->closed = c->closed || how == WIRE_CLOSE;
}

static enum comm_result frames_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                                    void *offer, struct wire_channel **channel)
{
    if (!offers)
        return make((struct frames_wire *)wire, team, limits, offer, channel);
    enum comm_result r = connect(channel_of(*channel), team, offers);
    if (r != COMM_OK) {
        frames_leave(*channel, WIRE_CLOSE);
        *channel = NULL;
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ the wire */
static enum comm_result frames_open(const struct wire_config *config, struct wire **wire)
{
    struct frames_wire *w = config->boot ? sim_memory_take(sizeof *w, 64) : NULL;

    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the simulated network");
        return COMM_ERR_MEMORY;
    }
    *w = (struct frames_wire){.wire = {&wire_sim_frames}, .env = config->env, .across = config->across};
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
