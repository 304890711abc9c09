/*
 * What goes alone: a short exposure, before which nothing waits to leave and behind which its caller has nothing to say for now. It is made
 * in one place of the wire's and given to the kernel in one call, without a block, a queue and a flush; and who waits for it takes it out
 * of its lane's stage, where nothing else stands before it. The common ways (tcp_send.c, tcp_receive.c) know all that may be otherwise and
 * cost the more for it: most of what a small exchange costs besides the kernel's part is how much code it runs through.
 */
#include "net/tcp.h"

#include <errno.h>

/* ------------------------------------------------------------------------------------------------------------ leaving */
static bool is_free(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->out && !lane->sending && !lane->seal && !lane->ended && !lane->deaf;
}

/* What peers are owed but for retirements goes behind other frames, by the flush. */
bool tcp_may_go_alone(const struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    const struct tcp_wire *w = c->wire;
    bool alone = (e->flags & WIRE_LAST) && bytes <= TCP_SMALL_BYTES && e->nspans == 1;

    alone = alone && !c->owes && !w->dirty && !w->row && !w->held && w->rows_long < TCP_ROWS_ENDED;
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

    if (sent < 0 && sent != -EAGAIN && sent != -EWOULDBLOCK) {
        tcp_sent(lane, sent);
        return;
    }
    b = tcp_block_take(lane->port->wire, bytes);
    if (!b) {
        tcp_lane_end(lane, "no memory for what is to be sent");
        return;
    }
    memcpy(b->data, from, bytes);
    b->bytes = bytes;
    lane->out = b;
    lane->out_last = &b->next;
    lane->sent = sent > 0 ? (size_t)sent : 0;
    tcp_send_waiting(lane);
}

static void send_frame(struct tcp_channel *c, uint32_t peer, struct tcp_lane *lane, const struct wire_expose *e, size_t bytes)
{
    struct tcp_member *m = &c->member[peer];
    unsigned char *const at = c->wire->alone;
    struct frame f = {.kind = FRAME_EXPOSE,
                      .edge = (uint8_t)(e->edge & 3),
                      .channel = m->channel,
                      .key = e->key,
                      .tag = e->fingerprint,
                      .bytes = (uint32_t)bytes};
    uint32_t all = frame_span(f.bytes);
    unsigned char *payload = make_frame(c, lane, &f, at);

    if (bytes)
        memcpy(payload, e->spans->at, bytes);
    if (c->retired - m->retired_told >= c->lag) {
        m->retired_told = c->retired;
        f = (struct frame){.kind = FRAME_RETIRED, .channel = m->channel, .key = wire_key_of(c->retired, 0, 0)};
        make_frame(c, lane, &f, at + all);
        all += frame_span(0);
    }
    int64_t sent = poller_transfer(lane->fd, POLLER_SEND, &(struct iovec){at, all}, 1);
    if (BASE_UNLIKELY(sent != all))
        keep_rest(lane, at, all, sent);
}

void tcp_send_alone(struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    tcp_row_goes_on(c->wire);
    c->wire->row++;
    if (e->npeers + 1 == c->size) /* all are told what they are owed; else the flush looks at the others */
        c->retires = false;
    for (uint32_t i = 0; i < e->npeers; i++)
        send_frame(c, e->peers[i], &c->member[e->peers[i]].lane[TCP_LANE_SMALL], e, bytes);
}

/* ------------------------------------------------------------------------------------------------------------ coming */
/* Between two frames, with nothing of them in the stage: so the next bytes are a header at its beginning. */
static bool is_between(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->ended && !lane->in_body && !lane->end && !lane->pad && !lane->ahead_bytes && !lane->seal;
}

/* It is what this look is for, and all of it is here. */
static bool is_it(const struct tcp_channel *c, const struct wire_look *l, const struct frame *f, size_t here)
{
    bool same = f->kind == FRAME_EXPOSE && f->key == l->key && f->from == l->peer && f->channel == c->name && (f->edge & WIRE_ONCE);

    return same && f->tag == l->fingerprint && f->bytes == l->bytes && frame_span(f->bytes) <= here;
}

/* What comes first in the stage, in which there are `here` bytes; what is behind it is left there. False: there is no place for it. */
static bool take_it(struct tcp_channel *c, const struct wire_look *l, struct tcp_lane *lane, const struct frame *f, uint32_t here)
{
    struct tcp_block *block = c->live < c->live_most ? tcp_block_take(c->wire, f->bytes) : NULL;
    struct tcp_slot *s = block ? tcp_slot_make(c, l->peer, l->key) : NULL;

    if (!s) {
        if (block)
            tcp_block_give(c->wire, block);
        return false;
    }
    s->begun = s->whole = true;
    s->total = f->bytes;
    s->tag = f->tag;
    s->edge = f->edge;
    s->block = block;
    memcpy(block->data, lane->stage + frame_payload_at(f->bytes), f->bytes);
    lane->begin = frame_span(f->bytes);
    lane->end = here;
    tcp_count(&c->traffic.in, f);
    lane->in_number++;
    lane->body_bytes = f->bytes;
    lane->kept = true;
    *l->view = (struct wire_view){block->data, f->bytes, NULL, l->key, &c->face};
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

enum wire_result tcp_look_alone(struct tcp_channel *c, const struct wire_look *l)
{
    struct tcp_wire *w = c->wire;
    struct tcp_lane *lane = &c->member[l->peer].lane[TCP_LANE_SMALL];

    if (l->bytes > TCP_SMALL_BYTES || l->land || w->held || w->armed || !is_between(lane))
        return WIRE_NONE;
    int64_t n = w->poller->class->attempt(w->poller, lane->socket);
    if (n == -EBUSY)
        return WIRE_NONE;
    w->row = 0; /* as any look, it ends a row */
    w->messages = false;
    if (n == -EAGAIN)
        return WIRE_AGAIN;
    if (n > 0)
        return take_alone(c, l, lane, (uint32_t)n) ? WIRE_DONE : WIRE_NONE;
    tcp_received(lane, n);
    return WIRE_NONE;
}
