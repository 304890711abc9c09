/*
 * Exposures and views. The key of an exposure determines whether there is room for it: on a ONCE edge by what the peers have retired, on a
 * stream by that and by their acknowledgements. So the memory of a receiver is bounded per communicator, and no operation waits for space
 * that a younger one holds.
 *
 * A mismatch is reported when the peer's published calls have arrived, so that the report names both calls. They are requested when the
 * mismatch is found.
 */
#include "net/lane/lane.h"

#include "data/data.h"

/* ------------------------------------------------------------------------------------------------------------ room */
static bool has_places(const struct tcp_channel *c, uint32_t peer, wire_key key, enum tcp_room kind)
{
    uint32_t behind = wire_key_seq(key) - c->places[kind];

    return tcp_reached(c->member[peer].retired, behind ? behind : UINT32_MAX);
}

bool tcp_has_once_room(const struct tcp_channel *c, uint32_t peer, wire_key key, size_t bytes)
{
    return has_places(c, peer, key, tcp_room_of(WIRE_ONCE, bytes));
}

static bool has_room(struct tcp_channel *c, uint32_t peer, const struct wire_expose *e, enum tcp_room kind)
{
    const struct tcp_member *m = &c->member[peer];

    if (m->lane[TCP_LANE_SMALL].ended)
        return true;
    if (BASE_UNLIKELY(m->lane[TCP_LANE_SMALL].fd < 0)) /* the peer sends its retirements when there is a link */
        tcp_want(m->lane->link, false);
    if (!has_places(c, peer, e->key, kind)) {
        tcp_want_room(c, peer, wire_key_seq(e->key), kind);
        return false;
    }
    wire_key before = e->key - ((uint64_t)c->credits << 8);
    return (e->edge & WIRE_ONCE) || wire_key_round(e->key) < c->credits || *tcp_ack_of(c, peer, before) == before;
}

/* A root may make many ONCE exposures and never look, so the peer's words are read here. The sender of a stream waits for incoming data
 * anyway. */
static bool makes_room(struct tcp_channel *c, uint32_t peer, const struct wire_expose *e, enum tcp_room kind)
{
    if (has_room(c, peer, e, kind))
        return true;
    if (!(e->edge & WIRE_ONCE))
        return false;
    tcp_hear(c, peer);
    return has_room(c, peer, e, kind);
}

static size_t bytes_of(const struct wire_expose *e)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < e->nspans; i++)
        bytes += e->spans[i].bytes;
    return bytes;
}

/* Exposures are never built in the wire's memory: a large one is sent from the user's buffer, and a small one is copied once anyway. */
enum wire_result tcp_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    (void)channel;
    (void)e;
    (void)bytes;
    (void)pad;
    return WIRE_NONE;
}

/* ------------------------------------------------------------------------------------------------------------ exposing */
static enum wire_result expose_lent(struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    struct tcp_hold *hold = tcp_hold_make(c);
    struct frame f = {.kind = FRAME_EXPOSE, .edge = (uint8_t)(e->edge & 3), .key = e->key, .tag = e->fingerprint, .bytes = (uint32_t)bytes};

    if (!hold)
        return WIRE_FAILED;
    *hold = (struct tcp_hold){.pieces = 1, .cookie = e->cookie, .peer = e->peers[0]};
    for (uint32_t i = 0; i < e->npeers; i++)
        hold->pieces += tcp_post_user(c, e->peers[i], &f, e->spans[0].at, hold);
    if (--hold->pieces)
        return WIRE_PENDING;
    tcp_hold_drop(c, hold); /* all pieces are already sent or lost */
    return WIRE_DONE;
}

/*
 * Whether to send without a copy. For a long exposure, the copy costs more than a system call. A single exposure has nothing to wait for.
 */
static bool leaves_straight(struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    bool straight = bytes > TCP_SMALL_BYTES && e->nspans == 1 && (bytes > TCP_AHEAD_BYTES || !c->wire->burst.row);

    c->wire->burst.row += straight;
    return straight;
}

static enum wire_result expose_work(struct tcp_channel *c, const struct wire_expose *e)
{
    size_t bytes = bytes_of(e);
    enum tcp_room kind = tcp_room_of(e->edge, bytes);

    BASE_ASSERT(!c->aborted);
    for (uint32_t i = 0; i < e->npeers; i++)
        if (!makes_room(c, e->peers[i], e, kind))
            return WIRE_AGAIN;
    for (uint32_t i = 0; i < e->npeers; i++)
        tcp_room_used(&c->member[e->peers[i]].went[kind], wire_key_seq(e->key));
    if (bytes > TCP_SMALL_BYTES && e->nspans == 1 && !(e->edge & WIRE_ONCE))
        return expose_lent(c, e, bytes);
    if (tcp_may_go_alone(c, e, bytes)) {
        tcp_send_alone(c, e, bytes);
        return WIRE_DONE;
    }
    bool straight = leaves_straight(c, e, bytes);
    for (uint32_t i = 0; i < e->npeers; i++)
        if (!tcp_post_spans(c, e->peers[i], e, bytes, straight))
            return WIRE_FAILED;
    return WIRE_DONE;
}

enum wire_result tcp_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    enum wire_result result = WIRE_DONE;

    base_lock(&w->lock, w->env);
    if ((e->flags & WIRE_KIND) == WIRE_NOTE)
        tcp_note_expose(c, e);
    else if ((e->flags & WIRE_KIND) == WIRE_MESSAGE)
        result = tcp_message_expose(c, e);
    else
        result = expose_work(c, e);
    base_unlock(&w->lock, w->env);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ viewing */
/* Whether the peer's calls have arrived, or never will. */
static bool calls_known(struct tcp_channel *c, uint32_t peer)
{
    struct tcp_member *m = &c->member[peer];

    if (m->calls_here || m->lane[TCP_LANE_SMALL].ended)
        return true;
    if (!m->asking) {
        tcp_calls_show(c);
        tcp_post(c, peer, FRAME_ASK, 0, 0, NULL, 0);
    }
    m->asking = true;
    return false;
}

/* Gives a complete exposure to a look. PENDING: it is not what the look expects; MISMATCH will be reported. */
static enum wire_result take(struct tcp_channel *c, struct tcp_slot *s, const struct wire_look *l)
{
    bool once = l->edge & WIRE_ONCE; /* the look decides, not the edge that the frame names */

    if (BASE_UNLIKELY(s->total != l->bytes || s->tag != l->fingerprint))
        return calls_known(c, s->peer) ? WIRE_MISMATCH : WIRE_PENDING;
    if (!l->land) {
        s->rounds = l->rounds;
        *l->view = (struct wire_view){s->block->data, s->total, once ? NULL : (void *)s, s->key, &c->handle, false};
        return WIRE_DONE;
    }
    if (s->block && s->total)
        data_copy(l->land, s->block->data, s->total, l->flags & WIRE_NONTEMPORAL);
    if (!once) {
        s->rounds = l->rounds;
        tcp_acknowledge(c, s);
        tcp_slot_drop(c, s);
    }
    return WIRE_DONE;
}

static void tell_look(struct tcp_channel *c, const struct tcp_slot *s, const struct wire_look *look, enum wire_result result)
{
    tcp_tell(c, &(struct wire_event){.kind = WIRE_EVENT_DONE,
                                     .result = result,
                                     .cookie = look->cookie,
                                     .key = look->key,
                                     .peer = (int32_t)look->peer,
                                     .bytes = s->total});
}

void tcp_slot_whole(struct tcp_channel *c, struct tcp_slot *s)
{
    struct wire_look look = s->look;

    s->asked = false;
    tcp_await(c, s->peer, tcp_lane_for(look.bytes), false);
    uint64_t total = s->total;
    enum wire_result result = take(c, s, &look);
    if (result == WIRE_PENDING)
        s->differs = true;
    else
        tell_look(c, &(struct tcp_slot){.total = total}, &look, result);
}

void tcp_calls_came(struct tcp_channel *c, uint32_t peer)
{
    c->member[peer].calls_here = true;
    for (uint32_t i = 0; i < TCP_BUCKETS; i++)
        for (struct tcp_slot *s = c->slots.bucket[i]; s; s = s->next)
            if (s->differs && s->peer == peer) {
                s->differs = false;
                tell_look(c, s, &s->look, WIRE_MISMATCH);
            }
}

void tcp_miss(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    struct tcp_member *m = &c->member[peer];
    struct wire_event event = c->port->link[c->world[peer]].gone;

    if (m->lost)
        return;
    m->lost = true;
    event.kind = WIRE_EVENT_LOST;
    event.peer = (int32_t)peer;
    event.key = key;
    tcp_tell(c, &event);
}

/* Reports the oldest missing exposure that is waited for. */
void tcp_missed(struct tcp_channel *c, const struct tcp_link *link)
{
    const struct tcp_slot *oldest = NULL;
    uint32_t peer = 0;

    while (peer < c->size && c->member[peer].lane != link->lane)
        peer++;
    if (peer == c->size || c->aborted || !c->connected)
        return;
    for (uint32_t i = 0; i < TCP_BUCKETS; i++)
        for (const struct tcp_slot *s = c->slots.bucket[i]; s; s = s->next)
            if (s->peer == peer && s->asked && !s->whole && (!oldest || tcp_reached(wire_key_seq(oldest->key), wire_key_seq(s->key))))
                oldest = s;
    if (oldest)
        tcp_miss(c, peer, oldest->key);
    for (const struct tcp_message *m = c->messages.arrived; m; m = m->next)
        if (m->granted && m->peer == peer)
            tcp_miss(c, peer, 0);
}

static enum wire_result look_now(struct tcp_channel *c, struct tcp_slot *s, const struct wire_look *l)
{
    enum wire_result result = take(c, s, l);

    if (result != WIRE_PENDING)
        return result;
    if (l->flags & WIRE_GLANCE) {
        tcp_send_dirty(c->wire);
        return WIRE_AGAIN;
    }
    s->look = *l;
    s->differs = true;
    return WIRE_PENDING;
}

static bool is_down(const struct tcp_channel *c, uint32_t peer)
{
    return c->port->link[c->world[peer]].down;
}

/* A thread that waits for one peer waits for the others next. If it costs no more, all of them are read. */
static void pump_for(struct tcp_channel *c, const struct wire_look *l)
{
    const struct tcp_lane *lane = c->member[l->peer].lane;
    const uint32_t which = tcp_lane_for(l->bytes), sockets[] = {lane[which].socket, lane[TCP_LANE_SMALL].socket};

    if (c->wire->poller->collects && which == TCP_LANE_SMALL)
        tcp_pump_few(c->wire);
    else
        tcp_pump(c->wire, sockets, 1 + which);
}

static enum wire_result view_work(struct tcp_channel *c, const struct wire_look *l)
{
    struct tcp_slot *s = tcp_slot_find(c, l->peer, l->key);

    BASE_ASSERT(!c->aborted && l->peer < c->size && l->peer != c->rank);
    if (s && s->whole)
        return look_now(c, s, l);
    if (l->flags & WIRE_GLANCE) {
        enum wire_result alone = tcp_look_alone(c, l);
        if (BASE_LIKELY(alone != WIRE_NONE))
            return alone;
        pump_for(c, l);
        s = tcp_slot_find(c, l->peer, l->key);
        if (s && s->whole)
            return look_now(c, s, l);
        if (BASE_UNLIKELY(is_down(c, l->peer)))
            tcp_miss(c, l->peer, l->key);
        return WIRE_AGAIN;
    }
    s = s ? s : tcp_slot_make(c, l->peer, l->key);
    if (!s)
        return WIRE_AGAIN;
    BASE_ASSERT(!s->asked);
    s->asked = true;
    s->look = *l;
    tcp_await(c, l->peer, tcp_lane_for(l->bytes), true);
    if (BASE_UNLIKELY(is_down(c, l->peer)))
        tcp_miss(c, l->peer, l->key);
    return WIRE_PENDING;
}

enum wire_result tcp_view(struct wire_channel *channel, const struct wire_look *look)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    enum wire_result result;

    base_lock(&w->lock, w->env);
    result = (look->flags & WIRE_KIND) == WIRE_MESSAGE ? tcp_message_view(c, look) : view_work(c, look);
    base_unlock(&w->lock, w->env);
    return result;
}

void tcp_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;

    if (view && !view->ack)
        return;
    base_lock(&w->lock, w->env);
    if (view) {
        struct tcp_slot *s = view->ack;
        view->ack = NULL;
        if (!tcp_reached(c->retired, wire_key_seq(view->word))) { /* otherwise retiring the operation has dropped the slot */
            tcp_acknowledge(c, s);
            tcp_slot_drop(c, s);
        }
    } else {
        c->retired = seq;
        c->retires = true;
        tcp_slots_retire(c, seq);
    }
    base_unlock(&w->lock, w->env);
}
