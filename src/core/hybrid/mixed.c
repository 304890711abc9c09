/* Channels over two wires: each call goes to the wire of its peer. Nothing here allocates. The only search is among the
 * few exposures for which one side had room and the other had not. */
#include "hybrid/mixed.h"

enum { MIXED_FAR_EVENTS = 4 /* one part in this many of an advance's events is reserved for the far side */ };

/* ------------------------------------------------------------------------------------------------------------ exposures */
/* The same exposure, for the peers of one side. */
static struct wire_expose part_of(const struct wire_expose *e, const uint16_t *peers, uint32_t count)
{
    struct wire_expose part = *e;

    part.peers = peers;
    part.npeers = count;
    return part;
}

/* Splits the peers into near_peers and far_peers; returns how many are near. */
static uint32_t sort_peers(struct mixed_channel *c, const struct wire_expose *e)
{
    uint32_t near = 0;

    for (uint32_t i = 0; i < e->npeers; i++) {
        uint32_t peer = e->peers[i];
        if (c->is_near[peer])
            c->near_peers[near++] = c->to_near[peer];
        else
            c->far_peers[i - near] = (uint16_t)peer;
    }
    return near;
}

static uint64_t own_cookie(const struct mixed_channel *c, const struct mixed_half *h)
{
    return (uint64_t)WIRE_COOKIE_OWN << 32 | (uint32_t)(h - c->half);
}

static struct mixed_half *find_half(struct mixed_channel *c, wire_key key)
{
    for (uint32_t i = 0; c->unfinished && i < c->used; i++)
        if (c->half[i].key == key && c->half[i].issued != MIXED_BOTH)
            return &c->half[i];
    return NULL;
}

static struct mixed_half *take_half(struct mixed_channel *c, const struct wire_expose *e)
{
    uint32_t i = 0;

    while (i < c->used && c->half[i].key)
        i++;
    BASE_ASSERT(i < c->halves); /* more than the lanes of all operations and the places of all streams together */
    c->used += i == c->used;
    c->half[i] = (struct mixed_half){.key = e->key};
    c->unfinished++;
    return &c->half[i];
}

static void free_half(struct mixed_channel *c, struct mixed_half *h)
{
    c->unfinished -= h->issued != MIXED_BOTH;
    h->key = 0;
    while (c->used && !c->half[c->used - 1].key)
        c->used--;
}

/* DONE: this side has the exposure. */
static enum wire_result issue(struct mixed_channel *c, struct mixed_half *h, enum mixed_side side, const struct wire_expose *part)
{
    struct wire_channel *channel = side == MIXED_NEAR ? c->near : c->far;
    struct wire_expose e = *part;

    if (h->issued & side)
        return WIRE_DONE;
    e.cookie = own_cookie(c, h);
    if (side == MIXED_FAR)
        e.flags &= (uint16_t)~WIRE_BUILT; /* they were built in the near side's place */
    enum wire_result result = channel->class->expose(channel, &e);
    if (result != WIRE_DONE && result != WIRE_PENDING)
        return result;
    h->issued |= (uint8_t)side;
    h->pending |= (uint8_t)(result == WIRE_PENDING ? side : 0);
    c->unfinished -= h->issued == MIXED_BOTH;
    return WIRE_DONE;
}

static enum wire_result expose_both(struct mixed_channel *c, const struct wire_expose *e, uint32_t near)
{
    struct wire_expose parts[2] = {part_of(e, c->near_peers, near), part_of(e, c->far_peers, e->npeers - near)};
    struct mixed_half *h = find_half(c, e->key);

    if (!h)
        h = take_half(c, e);
    enum wire_result result = issue(c, h, MIXED_FAR, &parts[1]);
    if (result == WIRE_DONE)
        result = issue(c, h, MIXED_NEAR, &parts[0]);
    if (result != WIRE_DONE) {
        if (!h->issued)
            free_half(c, h);
        return result;
    }
    if (h->pending) {
        h->cookie = e->cookie; /* it may differ from that of the first attempt */
        h->owed = true;
        return WIRE_PENDING;
    }
    free_half(c, h);
    return WIRE_DONE;
}

static enum wire_result expose_note(struct mixed_channel *c, const struct wire_expose *e)
{
    (void)c->near->class->expose(c->near, e);
    return c->far->class->expose(c->far, e);
}

enum wire_result mixed_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct mixed_channel *c = mixed_of(channel);

    if ((e->flags & WIRE_KIND) == WIRE_NOTE)
        return expose_note(c, e);
    uint32_t near = sort_peers(c, e);
    if (near && near < e->npeers)
        return expose_both(c, e, near);
    if (!near)
        return c->far->class->expose(c->far, e);
    struct wire_expose part = part_of(e, c->near_peers, near);
    return c->near->class->expose(c->near, &part);
}

/* For both sides: the bytes are built in the near side's place, and sent to the far side from their other place. */
enum wire_result mixed_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    struct mixed_channel *c = mixed_of(channel);
    uint32_t near = sort_peers(c, e);

    if (!near)
        return c->far->class->reserve(c->far, e, bytes, pad);
    struct wire_expose part = part_of(e, c->near_peers, near);
    return c->near->class->reserve(c->near, &part, bytes, pad);
}

/* ------------------------------------------------------------------------------------------------------------ views */
enum wire_result mixed_view(struct wire_channel *channel, const struct wire_look *l)
{
    struct mixed_channel *c = mixed_of(channel);

    if (!c->is_near[l->peer])
        return c->far->class->view(c->far, l);
    struct wire_look look = *l;
    look.peer = c->to_near[l->peer];
    return c->near->class->view(c->near, &look);
}

void mixed_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct mixed_channel *c = mixed_of(channel);

    if (view) {
        view->from->class->release(view->from, seq, view);
        return;
    }
    c->near->class->release(c->near, seq, NULL);
    c->far->class->release(c->far, seq, NULL);
}

/* ------------------------------------------------------------------------------------------------------------ events */
/* False: the other side has not finished yet. */
static bool half_done(struct mixed_channel *c, struct wire_event *event, enum mixed_side side)
{
    struct mixed_half *h = &c->half[(uint32_t)event->cookie];

    h->pending &= (uint8_t)~side;
    if (!h->owed || h->pending)
        return false;
    event->cookie = h->cookie;
    event->peer = -1;
    free_half(c, h);
    return true;
}

static uint32_t take_events(struct mixed_channel *c, enum mixed_side side, struct wire_event *events, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct wire_event event = events[i];
        if (side == MIXED_NEAR && event.peer >= 0)
            event.peer = c->near_member[event.peer];
        if (event.kind == WIRE_EVENT_DONE && event.cookie >> 32 == WIRE_COOKIE_OWN && !half_done(c, &event, side))
            continue;
        events[kept++] = event;
    }
    return kept;
}

uint32_t mixed_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct mixed_channel *c = mixed_of(channel);
    uint32_t first = max - max / MIXED_FAR_EVENTS;
    uint32_t n = take_events(c, MIXED_NEAR, events, c->near->class->advance(c->near, events, first));

    channel->moved |= c->near->moved;
    c->near->moved = false;
    return n + take_events(c, MIXED_FAR, events + n, c->far->class->advance(c->far, events + n, max - n));
}

void mixed_flush(struct wire_channel *channel)
{
    struct mixed_channel *c = mixed_of(channel);

    c->near->class->flush(c->near);
    c->far->class->flush(c->far);
}

void mixed_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    struct mixed_channel *c = mixed_of(channel);

    if (c->is_near[peer])
        c->near->class->describe(c->near, c->to_near[peer], address, bytes);
    else
        c->far->class->describe(c->far, peer, address, bytes);
}
