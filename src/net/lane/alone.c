/*
 * What goes alone: a short exposure, before which nothing waits to leave and behind which its caller has nothing to say for now. It is made
 * in one place of the wire's and given to the kernel in one call, without a block, a queue and a flush; and who waits for it takes it out
 * of its lane's stage, where nothing else stands before it. The common ways (send.c, receive.c) know all that may be otherwise and
 * cost the more for it: most of what a small exchange costs besides the kernel's part is how much code it runs through.
 */
#include "net/lane/lane.h"

#include <errno.h>

/* ------------------------------------------------------------------------------------------------------------ leaving */
static bool is_free(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->out && !lane->sending && !lane->records && !lane->ended && !lane->deaf;
}

/* What peers are owed but for retirements goes behind other frames, by the flush. */
static bool may_begin(const struct tcp_channel *c)
{
    const struct tcp_wire *w = c->wire;

    return !c->owes && !w->dirty && !w->poller->collects && !w->burst.row && !w->burst.held && w->burst.rows_long < TCP_ROWS_ENDED;
}

bool tcp_may_go_alone(const struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    bool alone = (e->flags & WIRE_LAST) && bytes <= TCP_SMALL_BYTES && e->nspans == 1 && may_begin(c);

    for (uint32_t i = 0; alone && i < e->npeers; i++)
        alone = is_free(&c->member[e->peers[i]].lane[TCP_LANE_SMALL]);
    return alone;
}

/* Its first and last lines are zeros, but for the header, until the payload is put where this says. */
static unsigned char *make_frame(struct tcp_channel *c, struct tcp_lane *lane, struct frame *f, unsigned char *at)
{
    uint32_t end = frame_span(f->bytes);

    f->from = (uint16_t)c->rank;
    f->number = lane->out_number++;
    memset(at + end - FRAME_LINE, 0, FRAME_LINE);
    memset(at + FRAME_HEAD, 0, FRAME_LINE - FRAME_HEAD);
    frame_encode(f, at);
    tcp_count(&c->traffic.out, f);
    return at + frame_payload_at(f->bytes);
}

/* The lane's queue is empty: it begins with the rest of this. */
static void keep_rest(struct tcp_lane *lane, const unsigned char *from, uint32_t bytes, int64_t sent)
{
    struct tcp_block *b;

    if (sent < 0 && sent != -EAGAIN && sent != -EWOULDBLOCK && sent != -EINTR) {
        tcp_sent(lane, sent);
        return;
    }
    b = tcp_block_take(lane->port->wire, bytes);
    if (!b) {
        tcp_lane_end(lane, "no memory for the data to send");
        return;
    }
    memcpy(b->data, from, bytes);
    b->bytes = bytes;
    lane->out = b;
    lane->out_last = &b->next;
    lane->sent = sent > 0 ? (size_t)sent : 0;
    tcp_send_waiting(lane);
}

static void send_frame(struct tcp_channel *c, uint32_t peer, struct tcp_lane *lane, struct frame f, const void *from)
{
    struct tcp_member *m = &c->member[peer];
    unsigned char *const at = c->wire->memory.alone;
    uint32_t all = frame_span(f.bytes);

    f.kind = FRAME_EXPOSE;
    f.channel = m->channel;
    unsigned char *payload = make_frame(c, lane, &f, at);
    if (f.bytes)
        memcpy(payload, from, f.bytes);
    if (c->retired - m->retired_told >= c->lag) {
        m->retired_told = c->retired;
        f = (struct frame){.kind = FRAME_RETIRED, .channel = m->channel, .key = wire_key_of(c->retired, 0, 0)};
        make_frame(c, lane, &f, at + all);
        all += frame_span(0);
    }
    int64_t sent = poller_transfer_piece(lane->fd, POLLER_SEND, at, all);
    if (BASE_UNLIKELY(sent != all))
        keep_rest(lane, at, all, sent);
}

void tcp_send_alone(struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    const struct frame f = {.edge = (uint8_t)(e->edge & 3), .key = e->key, .tag = e->fingerprint, .bytes = (uint32_t)bytes};

    tcp_burst_goes_on(c->wire);
    c->wire->burst.row++;
    if (e->npeers + 1 == c->size) /* all are told what they are owed; else the flush looks at the others */
        c->retires = false;
    for (uint32_t i = 0; i < e->npeers; i++)
        send_frame(c, e->peers[i], &c->member[e->peers[i]].lane[TCP_LANE_SMALL], f, e->spans->at);
}

/* The same to the other one of two, where there is room; of TCP_SMALL_BYTES at most. */
static bool show_alone(struct tcp_channel *c, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    const uint32_t peer = c->other;
    struct tcp_lane *lane = &c->member[peer].lane[TCP_LANE_SMALL];

    if (!may_begin(c) || !is_free(lane) || !tcp_has_once_room(c, peer, key, bytes))
        return false;
    tcp_burst_goes_on(c->wire);
    c->wire->burst.row++;
    c->retires = false;
    send_frame(c, peer, lane, (struct frame){.edge = WIRE_ONCE | WIRE_TO_ALL, .key = key, .tag = fingerprint, .bytes = (uint32_t)bytes},
               from);
    return true;
}

enum wire_result tcp_publish_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;

    if (bytes <= TCP_SMALL_BYTES) {
        base_lock(&w->lock, w->env);
        bool shown = show_alone(c, key, fingerprint, from, bytes);
        base_unlock(&w->lock, w->env);
        if (BASE_LIKELY(shown))
            return WIRE_DONE;
    }
    const struct wire_span span = {from, bytes};
    return tcp_expose(channel, &(struct wire_expose){.key = key,
                                                     .fingerprint = fingerprint,
                                                     .edge = WIRE_ONCE | WIRE_TO_ALL,
                                                     .flags = WIRE_WORK | WIRE_LAST,
                                                     .peers = &c->other,
                                                     .npeers = 1,
                                                     .nspans = 1,
                                                     .spans = &span});
}

/* ------------------------------------------------------------------------------------------------------------ coming */
/* Between two frames, with nothing of them in the stage: so the next bytes are a header at its beginning. */
static bool is_between(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->ended && !lane->in_body && !lane->end && !lane->pad && !lane->ahead_bytes && !lane->records;
}

/* It is what this look is for, and all of it is here. */
static bool is_it(const struct tcp_channel *c, const struct wire_look *l, const struct frame *f, size_t here)
{
    bool same =
        f->kind == FRAME_EXPOSE && f->key == l->key && f->from == l->peer && f->channel == c->name && (f->edge & l->edge & WIRE_ONCE);

    return same && f->tag == l->fingerprint && f->bytes == l->bytes && frame_span(f->bytes) <= here;
}

/* What comes first in the stage, in which there are `here` bytes; what is behind it is left there. False: there is no place for it. */
static bool take_it(struct tcp_channel *c, const struct wire_look *l, struct tcp_lane *lane, const struct frame *f, uint32_t here)
{
    struct tcp_block *block = c->slots.live < c->slots.live_most ? tcp_block_take(c->wire, f->bytes) : NULL;
    struct tcp_slot *s = block ? tcp_slot_make(c, l->peer, l->key) : NULL;

    if (!s) {
        if (block)
            tcp_block_give(c->wire, block);
        return false;
    }
    s->begun = s->whole = true;
    s->total = f->bytes;
    s->tag = f->tag;
    s->block = block;
    memcpy(block->data, lane->stage + frame_payload_at(f->bytes), f->bytes);
    lane->begin = frame_span(f->bytes);
    lane->end = here;
    tcp_count(&c->traffic.in, f);
    lane->in_number++;
    lane->body_bytes = f->bytes;
    lane->kept = true;
    *l->view = (struct wire_view){block->data, f->bytes, NULL, l->key, &c->handle, false};
    return true;
}

static void go_on(struct tcp_wire *w, struct tcp_lane *lane)
{
    tcp_digest(lane);
    if (!lane->ended)
        tcp_receive_start(lane);
    if (w->dirty)
        tcp_send_dirty(w);
    w->poller->class->submit(w->poller);
}

/* So many bytes came. */
static bool take_alone(struct tcp_channel *c, const struct wire_look *l, struct tcp_lane *lane, uint32_t bytes)
{
    struct frame f;
    bool sound = bytes >= FRAME_HEAD && !frame_decode((const unsigned char *)lane->stage, lane->in_number, &f);
    bool taken = sound && is_it(c, l, &f, bytes) && take_it(c, l, lane, &f, bytes);

    lane->link->beat++;
    if (BASE_UNLIKELY(!taken)) {
        lane->begin = 0;
        lane->end = bytes;
    }
    if (lane->begin != lane->end)
        go_on(c->wire, lane);
    else
        lane->begin = lane->end = 0;
    return taken;
}

/* Bytes; -EAGAIN: nothing yet; else it must look the common way. */
static int64_t attempt(struct tcp_wire *w, struct tcp_lane *lane)
{
    int64_t n = w->poller->class->attempt(w->poller, lane->socket);

    if (n == -EBUSY)
        return n;
    w->burst.row = 0; /* as any look, it ends a row */
    w->burst.messages = false;
    if (n <= 0 && n != -EAGAIN)
        tcp_received(lane, n);
    return n;
}

enum wire_result tcp_look_alone(struct tcp_channel *c, const struct wire_look *l)
{
    struct tcp_wire *w = c->wire;
    struct tcp_lane *lane = &c->member[l->peer].lane[TCP_LANE_SMALL];

    if (l->bytes > TCP_SMALL_BYTES || l->land || w->burst.held || w->armed || w->poller->collects || !is_between(lane))
        return WIRE_NONE;
    int64_t n = attempt(w, lane);
    if (n == -EAGAIN)
        return WIRE_AGAIN;
    return n > 0 && take_alone(c, l, lane, (uint32_t)n) ? WIRE_DONE : WIRE_NONE;
}

/* ------------------------------------------------------------------------------------------------------------ seeing */
/* So many bytes came. What is looked for can be told by its header, which is made for that: then no header needs to be read, and the
 * payload is put where the last one was, whose operation is over. */
static bool take_seen(struct tcp_channel *c, struct tcp_lane *lane, struct frame *f, uint32_t here)
{
    unsigned char head[FRAME_HEAD];
    uint32_t span = frame_span(f->bytes);

    f->kind = FRAME_EXPOSE;
    f->edge = WIRE_ONCE | WIRE_TO_ALL;
    f->channel = c->name;
    f->number = lane->in_number;
    frame_encode(f, head);
    if (here < span || memcmp(lane->stage, head, sizeof head))
        return false;
    memcpy(c->seen->data, lane->stage + frame_payload_at(f->bytes), f->bytes);
    c->seen_key = f->key;
    tcp_count(&c->traffic.in, f);
    lane->in_number++;
    lane->body_bytes = f->bytes;
    lane->kept = true;
    return true;
}

/* The word that rides behind every second one. */
static bool take_retired(struct tcp_channel *c, struct tcp_lane *lane, uint32_t at, uint32_t here)
{
    struct frame f;

    if (here - at != frame_span(0) || frame_decode((const unsigned char *)lane->stage + at, lane->in_number, &f) ||
        f.kind != FRAME_RETIRED || f.channel != c->name || f.from != c->other)
        return false;
    lane->in_number++;
    tcp_count(&c->traffic.in, &f);
    c->member[c->other].retired = stale_retired(c->member[c->other].retired, wire_key_seq(f.key));
    return true;
}

static bool came_alone(struct tcp_channel *c, struct tcp_lane *lane, struct frame *f, uint32_t here)
{
    bool seen = take_seen(c, lane, f, here);
    uint32_t at = seen ? frame_span(f->bytes) : 0;

    lane->link->beat++;
    if (at == here || (seen && take_retired(c, lane, at, here)))
        return seen;
    lane->begin = at;
    lane->end = here;
    go_on(c->wire, lane);
    return seen;
}

/* As tcp_look_alone, where no other exposure is here; of TCP_SMALL_BYTES at most. */
static enum wire_result see_alone(struct tcp_channel *c, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes)
{
    struct tcp_wire *w = c->wire;
    struct tcp_lane *lane = &c->member[peer].lane[TCP_LANE_SMALL];
    struct frame f = {.from = (uint16_t)peer, .key = key, .tag = fingerprint, .bytes = (uint32_t)bytes};

    if (BASE_UNLIKELY(!tcp_reached(c->retired, wire_key_seq(c->seen_key))))
        return key == c->seen_key ? WIRE_DONE : WIRE_NONE;
    if (c->slots.live || w->burst.held || w->armed || !is_between(lane))
        return WIRE_NONE;
    if (!c->seen && !(c->seen = tcp_block_take(w, TCP_SMALL_BYTES)))
        return WIRE_NONE;
    int64_t n = attempt(w, lane);
    if (n == -EAGAIN)
        return WIRE_AGAIN;
    return n > 0 && came_alone(c, lane, &f, (uint32_t)n) ? WIRE_DONE : WIRE_NONE;
}

enum wire_result tcp_poll_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes,
                                 const void **at)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    enum wire_result result = WIRE_NONE;
    struct wire_view view;

    if (bytes <= TCP_SMALL_BYTES) {
        base_lock(&w->lock, w->env);
        result = see_alone(c, key, fingerprint, peer, bytes);
        base_unlock(&w->lock, w->env);
    }
    if (BASE_LIKELY(result == WIRE_DONE))
        *at = c->seen->data;
    if (BASE_LIKELY(result != WIRE_NONE))
        return result;
    struct wire_look look = {.key = key,
                             .fingerprint = fingerprint,
                             .edge = WIRE_ONCE | WIRE_TO_ALL,
                             .flags = WIRE_WORK | WIRE_GLANCE,
                             .peer = peer,
                             .bytes = bytes,
                             .view = &view};
    result = tcp_view(channel, &look);
    if (result == WIRE_DONE)
        *at = view.at;
    return result;
}

/* What will be looked for is in the kernel. */
void tcp_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes)
{
    (void)channel;
    (void)key;
    (void)peer;
    (void)bytes;
}
