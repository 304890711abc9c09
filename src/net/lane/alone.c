/*
 * The fast path for a short exposure, when no other frame waits to be sent and the caller has nothing to send after it for now. The frame
 * is made in one fixed buffer of the wire and passed to the kernel in one call, without a block, a queue or a flush. The receiver takes it
 * directly from its lane's stage if it is first there. The general paths (send.c, receive.c) handle all other cases and cost more: apart
 * from the kernel's part, the cost of a small exchange is mostly the amount of code it runs.
 */
#include "net/lane/lane.h"

#include <errno.h>

/* ------------------------------------------------------------------------------------------------------------ sending */
static bool is_free(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->out && !lane->sending && !lane->records && !lane->ended && !lane->deaf;
}

/* Owed words (except retirements) and dirty lanes must go through the flush, after other frames. */
static bool may_begin(const struct tcp_channel *c)
{
    const struct tcp_wire *w = c->wire;

    return !c->owes && !w->dirty && !w->poller->collects && !w->burst.row && !w->burst.held && w->burst.rows_long < TCP_ROWS_ENDED;
}

bool tcp_may_go_alone(const struct tcp_channel *c, const struct wire_expose *e, size_t bytes)
{
    bool alone = (e->flags & WIRE_LAST) && !(c->wire->poller->batch_least && e->npeers >= c->wire->poller->batch_least) &&
                 bytes <= TCP_SMALL_BYTES && e->nspans == 1 && may_begin(c);

    for (uint32_t i = 0; alone && i < e->npeers; i++)
        alone = is_free(&c->member[e->peers[i]].lane[TCP_LANE_SMALL]);
    return alone;
}

/* Fills the frame's header, and zeros its first and last lines elsewhere. Returns where the payload must be put. */
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

/* Queues the rest of the frame. The lane's queue is empty, so the rest becomes its first block. */
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
    if (tcp_hears_now(c, m)) {
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
    if (e->npeers + 1 == c->size) /* every peer is told of the retirements here; otherwise the flush must look at the others */
        c->retires = false;
    for (uint32_t i = 0; i < e->npeers; i++)
        send_frame(c, e->peers[i], &c->member[e->peers[i]].lane[TCP_LANE_SMALL], f, e->spans->at);
    if (e->npeers > 1)
        tcp_burst_sent(c->wire);
}

/* The same for the other rank of two, if it has room. At most TCP_SMALL_BYTES. */
static bool show_alone(struct tcp_channel *c, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    const uint32_t peer = c->other;
    struct tcp_lane *lane = &c->member[peer].lane[TCP_LANE_SMALL];

    if (!may_begin(c) || !is_free(lane) || !tcp_has_once_room(c, peer, key, bytes))
        return false;
    tcp_burst_goes_on(c->wire);
    c->wire->burst.row++;
    c->retires = false;
    tcp_room_used(&c->member[peer].went[tcp_room_of(WIRE_ONCE, bytes)], wire_key_seq(key));
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

/* ------------------------------------------------------------------------------------------------------------ receiving */
/* Whether the lane is between two frames and its stage is empty. The next bytes are then a header, at the beginning of the stage. */
static bool is_between(const struct tcp_lane *lane)
{
    return lane->fd >= 0 && !lane->ended && !lane->in_body && !lane->end && !lane->pad && !lane->ahead_bytes && !lane->records;
}

/* Whether this frame is the one looked for, and has arrived completely. */
static bool is_it(const struct tcp_channel *c, const struct wire_look *l, const struct frame *f, size_t here)
{
    bool same =
        f->kind == FRAME_EXPOSE && f->key == l->key && f->from == l->peer && f->channel == c->name && (f->edge & l->edge & WIRE_ONCE);

    return same && f->tag == l->fingerprint && f->bytes == l->bytes && frame_span(f->bytes) <= here;
}

/* The accounts of a frame that was taken from the stage whole. */
static void note_exposure(struct tcp_channel *c, struct tcp_lane *lane, const struct frame *f)
{
    tcp_count(&c->traffic.in, f);
    lane->in_number++;
    lane->body_bytes = f->bytes;
    lane->kept = true;
    tcp_room_used(&c->member[f->from].came[tcp_room_of(WIRE_ONCE, f->bytes)], wire_key_seq(f->key));
}

/* Takes the first frame of the stage, which has `here` bytes, and leaves the rest in it. False: no space for a block or slot. */
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
    note_exposure(c, lane, f);
    *l->view = (struct wire_view){block->data, f->bytes, NULL, l->key, &c->handle, false};
    return true;
}

/* Handles the rest of the stage, which may have any frames. */
static void go_on(struct tcp_wire *w, struct tcp_lane *lane)
{
    tcp_wake_monitor(w);
    tcp_digest(lane);
    if (!lane->ended)
        tcp_receive_start(lane);
    if (w->dirty)
        tcp_send_dirty(w);
    tcp_submit(w);
}

/* Handles `bytes` bytes that were received into the stage. */
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

/* Tries to receive. Returns the number of bytes; -EAGAIN: nothing yet; any other value: use the general path. */
static int64_t attempt(struct tcp_wire *w, struct tcp_lane *lane)
{
    int64_t n = w->poller->class->attempt(w->poller, lane->socket);

    if (n == -EBUSY)
        return n;
    w->burst.row = 0; /* a look ends a row of sends, like any other look */
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

/* ------------------------------------------------------------------------------------------------------------ polling inline */
/* Handles `here` bytes that were received. The header that is expected is encoded and compared as bytes, so no header needs to be decoded.
 * The payload replaces the last one, whose operation is over. */
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
    note_exposure(c, lane, f);
    return true;
}

/* Takes the RETIRED frame that follows every second exposure. */
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

/* Like tcp_look_alone, if no other exposure has arrived. At most TCP_SMALL_BYTES. */
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

/* Nothing to prefetch: the bytes are still in the kernel. */
void tcp_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes)
{
    (void)channel;
    (void)key;
    (void)peer;
    (void)bytes;
}
