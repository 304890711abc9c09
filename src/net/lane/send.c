/*
 * Sending. Each lane has one queue of blocks. A block has its own bytes (headers, copied payloads), perhaps followed by bytes of the user's
 * buffer. A frame gets its number when it enters the queue, and leaves the queue only by being sent. If its channel is left in the
 * meantime, zeros are sent in place of the user's bytes.
 *
 * Most frames make their lane dirty, and the flush sends it. Acknowledgements and retirements may wait for other frames: a sender has
 * several slots, so peers can do without the newest few.
 */
#include "net/lane/lane.h"

#include <errno.h>
#include <sys/socket.h>

enum { COLLECT_BYTES = 32768, SEND_TURNS = 16 };

static void make_dirty(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->dirty)
        return;
    lane->dirty = true;
    lane->next_dirty = w->dirty;
    w->dirty = lane;
}

/* Reserves `bytes` bytes at the end of the queue, in one block. */
static unsigned char *place_at_end(struct tcp_lane *lane, size_t bytes)
{
    struct tcp_wire *w = lane->port->wire;
    struct tcp_block *last = lane->out ? (struct tcp_block *)(void *)((char *)lane->out_last - offsetof(struct tcp_block, next)) : NULL;

    if (!last || last->user_bytes || last->bytes + bytes > tcp_block_room(last)) {
        last = tcp_block_take(w, bytes > COLLECT_BYTES ? bytes : COLLECT_BYTES);
        if (!last)
            return NULL;
        *lane->out_last = last;
        lane->out_last = &last->next;
    }
    unsigned char *at = (unsigned char *)last->data + last->bytes;
    last->bytes += (uint32_t)bytes;
    tcp_block_bound(last, last->bytes);
    return at;
}

static struct tcp_block *last_block(struct tcp_lane *lane)
{
    return (struct tcp_block *)(void *)((char *)lane->out_last - offsetof(struct tcp_block, next));
}

/* Writes the header and zeros the padding. lent: the payload stays in the user's buffer, and the padding after it goes elsewhere. */
static unsigned char *begin_frame(struct tcp_lane *lane, struct frame *f, bool lent)
{
    uint32_t at_payload = frame_payload_at(f->bytes), end = lent ? at_payload : frame_span(f->bytes);
    unsigned char *at = place_at_end(lane, end);

    if (!at)
        return NULL;
    f->number = lane->out_number++;
    if (lent) {
        memset(at + FRAME_HEAD, 0, at_payload - FRAME_HEAD);
    } else { /* whole lines, since a length that is known needs no call */
        memset(at + end - FRAME_LINE, 0, FRAME_LINE);
        memset(at + FRAME_HEAD, 0, FRAME_LINE - FRAME_HEAD);
    }
    frame_encode(f, at);
    return at + at_payload;
}

static struct frame frame_for(const struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, size_t bytes)
{
    return (struct frame){.kind = (uint8_t)kind,
                          .from = (uint16_t)c->rank,
                          .channel = c->member[peer].channel,
                          .key = key,
                          .tag = tag,
                          .bytes = (uint32_t)bytes};
}

static bool post_on(struct tcp_channel *c, uint32_t peer, uint32_t which, enum frame_kind kind, wire_key key, uint32_t tag,
                    const void *bytes, size_t count)
{
    struct tcp_lane *lane = &c->member[peer].lane[which];
    struct frame f = frame_for(c, peer, kind, key, tag, count);

    if (lane->ended || lane->deaf)
        return true;
    unsigned char *at = begin_frame(lane, &f, false);
    if (!at) {
        tcp_lane_end(lane, "no memory for the data to send");
        return false;
    }
    tcp_count(&c->traffic.out, &f);
    if (count)
        memcpy(at, bytes, count);
    make_dirty(lane);
    return true;
}

bool tcp_post(struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, const void *bytes, size_t count)
{
    return post_on(c, peer, TCP_LANE_SMALL, kind, key, tag, bytes, count);
}

void tcp_post_word(struct tcp_channel *c, uint32_t peer, uint32_t which, enum frame_kind kind, wire_key key)
{
    (void)post_on(c, peer, which, kind, key, 0, NULL, 0);
}

void tcp_post_plain(struct tcp_lane *lane, struct frame *f, const void *bytes)
{
    unsigned char *at = lane->ended || lane->deaf ? NULL : begin_frame(lane, f, false);

    if (!at)
        return;
    if (f->bytes)
        memcpy(at, bytes, f->bytes);
    make_dirty(lane);
}

void tcp_post_goodbye(struct tcp_lane *lane)
{
    tcp_post_plain(lane, &(struct frame){.kind = FRAME_GOODBYE}, "");
}

/* ------------------------------------------------------------------------------------------------------------ payloads */
static bool copy_spans(struct tcp_channel *c, struct tcp_lane *lane, struct frame *f, const struct wire_expose *e)
{
    unsigned char *at = begin_frame(lane, f, false);

    if (!at)
        return false;
    tcp_count(&c->traffic.out, f);
    for (uint32_t i = 0; i < e->nspans; at += e->spans[i].bytes, i++)
        if (e->spans[i].bytes)
            memcpy(at, e->spans[i].at, e->spans[i].bytes);
    make_dirty(lane);
    return true;
}

/* Queues a frame with a payload that stays in the user's buffer. NULL: the lane has ended. */
static struct tcp_block *lend(struct tcp_channel *c, struct tcp_lane *lane, struct frame *f, const void *user)
{
    struct tcp_block *b = begin_frame(lane, f, true) ? last_block(lane) : NULL;
    uint32_t pad = frame_span(f->bytes) - frame_payload_at(f->bytes) - f->bytes;
    unsigned char *behind = NULL;

    if (b) {
        b->user = user;
        b->user_bytes = f->bytes;
        behind = pad ? place_at_end(lane, pad) : NULL;
    }
    if (!b || (pad && !behind)) {
        tcp_lane_end(lane, "no memory for the data to send");
        return NULL;
    }
    if (pad)
        memset(behind, 0, pad);
    tcp_count(&c->traffic.out, f);
    make_dirty(lane);
    return b;
}

/* Queues a frame with a payload that must stay in the user's buffer until it is sent. */
bool tcp_post_user(struct tcp_channel *c, uint32_t peer, const struct frame *frame, const void *user, struct tcp_hold *hold)
{
    struct tcp_lane *lane = &c->member[peer].lane[TCP_LANE_BULK];
    struct frame f = *frame;

    if (lane->ended || lane->deaf)
        return false;
    f.from = (uint16_t)c->rank;
    f.channel = c->member[peer].channel;
    struct tcp_block *b = lend(c, lane, &f, user);
    if (!b)
        return false;
    b->channel = c;
    b->hold = hold;
    return true;
}

void tcp_drop_out(struct tcp_lane *lane)
{
    for (struct tcp_block *b = lane->out, *next; b; b = next) {
        next = b->next;
        tcp_piece_lost(b);
        tcp_block_give(lane->port->wire, b);
    }
    lane->out = NULL;
    lane->sent = 0;
    lane->out_last = &lane->out;
}

/* ------------------------------------------------------------------------------------------------------------ sending */
static uint32_t fill_vector(struct tcp_lane *lane)
{
    uint32_t n = 0;
    size_t skip = lane->sent;

    for (struct tcp_block *b = lane->out; b && n + 2 <= TCP_VECTORS; b = b->next) {
        size_t own = skip < b->bytes ? skip : b->bytes, theirs = skip - own;
        if (own < b->bytes)
            lane->out_vector[n++] = (struct iovec){b->data + own, b->bytes - own};
        if (theirs < b->user_bytes)
            lane->out_vector[n++] = (struct iovec){(char *)(uintptr_t)b->user + theirs, b->user_bytes - theirs};
        skip = 0;
    }
    return n;
}

static void piece_sent(struct tcp_channel *c, struct tcp_hold *hold)
{
    if (--hold->pieces)
        return;
    tcp_tell(c, &(struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = hold->cookie, .peer = (int32_t)hold->peer});
    tcp_hold_drop(c, hold);
}

/* The block will not be sent, or no rank will read it. There is no event. */
void tcp_piece_lost(struct tcp_block *b)
{
    if (b->hold && !--b->hold->pieces)
        tcp_hold_drop(b->channel, b->hold);
    b->channel = NULL;
    b->hold = NULL;
}

static void consume(struct tcp_lane *lane, size_t bytes)
{
    struct tcp_wire *w = lane->port->wire;

    lane->sent += bytes;
    while (lane->out && lane->sent >= lane->out->bytes + lane->out->user_bytes) {
        struct tcp_block *b = lane->out;
        lane->sent -= b->bytes + b->user_bytes;
        lane->out = b->next;
        if (!lane->out)
            lane->out_last = &lane->out;
        if (b->hold)
            piece_sent(b->channel, b->hold);
        tcp_block_give(w, b);
    }
}

static bool has_out(const struct tcp_lane *lane)
{
    return lane->out || record_pending(lane->records);
}

/* Sealing copies the bytes, so their blocks are released at once; the vector then has the sealed bytes. */
static uint32_t fill_sealed(struct tcp_lane *lane)
{
    if (!record_pending(lane->records))
        consume(lane, record_take(lane->records, lane->out_vector, fill_vector(lane)));
    lane->out_vector[0] = record_leaving(lane->records);
    return lane->out_vector[0].iov_len ? 1 : 0;
}

static void send_lane(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->fd < 0 && !lane->ended) { /* the queue waits until there is a link */
        tcp_want(lane->link, false);
        return;
    }
    for (int turn = 0; has_out(lane) && !lane->sending && !lane->ended && !lane->deaf && turn < SEND_TURNS; turn++) {
        uint32_t count = lane->records ? fill_sealed(lane) : fill_vector(lane);
        if (!count) {
            tcp_lane_end(lane, "the data to send cannot be encrypted");
            return;
        }
        lane->sending = true;
        int64_t result = w->poller->class->start(w->poller, lane->socket, POLLER_SEND, lane->out_vector, count);
        if (result != -EINPROGRESS)
            tcp_sent(lane, result);
    }
    if (has_out(lane) && !lane->sending && !lane->ended && !lane->deaf)
        make_dirty(lane);
}

/* Whether the connection has ended, so that it can be read to its end. Other errors are this side's: no memory in the kernel, or the memory
 * to send from cannot be read. */
static bool is_over(int64_t error)
{
    switch (-error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
        return true;
    default:
        return false;
    }
}

static void send_failed(struct tcp_lane *lane, int64_t error)
{
    if (is_over(error)) { /* the peer may have closed after its last words. They are read first, then the end is noticed */
        lane->deaf = true;
        tcp_drop_out(lane);
        return;
    }
    base_log(lane->port->wire->log, LOG_ERROR,
             "tcp: peer=%d lane=%u: the kernel does not take what is to be sent: %s; the connection is given up", lane->link->peer,
             lane->lane, strerror((int)-error));
    tcp_lane_end(lane, NULL);
}

void tcp_sent(struct tcp_lane *lane, int64_t result)
{
    lane->sending = false;
    if (result < 0) {
        send_failed(lane, result);
        return;
    }
    if (lane->records)
        record_sent(lane->records, (size_t)result);
    else
        consume(lane, (size_t)result);
    if (has_out(lane))
        make_dirty(lane);
}

void tcp_send_waiting(struct tcp_lane *lane)
{
    if (has_out(lane))
        make_dirty(lane);
}

/* Copies what the kernel had no room for, and keeps it first in its lane's queue. */
static void keep_rest(struct tcp_lane *lane, struct tcp_block *lent)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->sending && !lane->records) { /* the kernel may be reading the bytes */
        int64_t result = w->poller->class->cancel(w->poller, lane->socket, POLLER_SEND);
        if (result == -ECANCELED)
            lane->sending = false;
        else
            tcp_sent(lane, result);
    }
    if (lane->out != lent)
        return;
    struct tcp_block *b = tcp_block_take(w, lent->bytes + lent->user_bytes);
    if (!b) {
        tcp_lane_end(lane, "no memory for the data to send");
        return;
    }
    memcpy(b->data, lent->data, lent->bytes);
    memcpy(b->data + lent->bytes, lent->user, lent->user_bytes);
    b->bytes = lent->bytes + (uint32_t)lent->user_bytes;
    b->next = lent->next;
    lane->out = b;
    if (lane->out_last == &lent->next)
        lane->out_last = &b->next;
    tcp_block_give(w, lent);
    make_dirty(lane);
}

/* Sends before the flush, so that the bytes need not be copied. */
static void send_straight(struct tcp_channel *c, uint32_t peer, struct tcp_lane *lane, struct frame *f, const void *user)
{
    struct tcp_wire *w = lane->port->wire;
    struct tcp_block *lent = lend(c, lane, f, user);

    if (!lent)
        return;
    tcp_tell_with(c, peer, lane->lane);
    if (w->dirty == lane) { /* the flush has nothing left to do here */
        w->dirty = lane->next_dirty;
        lane->dirty = false;
    }
    send_lane(lane);
    if (lane->sending)
        w->poller->class->submit(w->poller); /* alone, because the bytes are lent for this call only */
    if (lane->out)
        keep_rest(lane, lent);
}

/* On return the user may change the bytes. straight: they are one span, and may be sent before the flush. */
bool tcp_post_spans(struct tcp_channel *c, uint32_t peer, const struct wire_expose *e, size_t bytes, bool straight)
{
    struct tcp_lane *lane = &c->member[peer].lane[tcp_lane_for(bytes)];
    struct frame f = frame_for(c, peer, FRAME_EXPOSE, e->key, e->fingerprint, bytes);

    if (lane->ended || lane->deaf)
        return true;
    f.edge = (uint8_t)(e->edge & 3);
    if (!straight || has_out(lane) || lane->sending || lane->fd < 0)
        return copy_spans(c, lane, &f, e);
    send_straight(c, peer, lane, &f, e->spans->at);
    return true;
}

/* Wakes the monitors of the peers by one byte on the heartbeat connection, because the peers' callers may be computing. If the byte arrives
 * before the word that it announces, the word is only delayed until the next tick. */
static void nudge(struct tcp_wire *w)
{
    uint32_t count = 0;
    struct tcp_link *const *base = tcp_base_links(w, &count);

    w->nudges = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!base[i]->nudge)
            continue;
        const struct tcp_lane *lane = &base[i]->lane[TCP_LANE_SMALL];
        w->nudges |= base[i]->nudge = has_out(lane) && !lane->ended && !lane->deaf;
        if (!base[i]->nudge && record_beat(base[i]->lane[TCP_BEAT].records, base[i]->lane[TCP_BEAT].fd, 0) < 0)
            continue; /* full: the peer will look anyway; broken: the monitor notices */
    }
}

void tcp_send_dirty(struct tcp_wire *w)
{
    struct tcp_lane *lane = w->dirty;

    w->dirty = NULL;
    while (lane) {
        struct tcp_lane *next = lane->next_dirty;
        lane->dirty = false;
        send_lane(lane);
        lane = next;
    }
    if (BASE_UNLIKELY(w->nudges))
        nudge(w);
}

/* ------------------------------------------------------------------------------------------------------------ forgetting */
static void forget_lane(struct tcp_lane *lane, const struct tcp_channel *c)
{
    struct tcp_wire *w = lane->port->wire;
    bool here = false;

    for (struct tcp_block *b = lane->out; b; b = b->next)
        here |= b->channel == c;
    if (!here)
        return;
    if (lane->sending && !lane->records) { /* the kernel may be reading the bytes */
        int64_t result = w->poller->class->cancel(w->poller, lane->socket, POLLER_SEND);
        lane->sending = false;
        if (result > 0)
            consume(lane, (size_t)result);
    }
    for (struct tcp_block *b = lane->out; b; b = b->next)
        if (b->channel == c) {
            tcp_piece_lost(b);
            b->user = w->memory.zeros;
        }
    make_dirty(lane);
}

void tcp_forget_sends(struct tcp_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++)
        for (uint32_t lane = 0; c->member[i].lane && lane < TCP_LANES; lane++)
            forget_lane(&c->member[i].lane[lane], c);
}
