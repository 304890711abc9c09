/*
 * Messages between two ranks. A short message is sent at once while the receiver has room for it. A longer one is announced, and its
 * bytes go from the sender's buffer to the receiver's after the receiver has granted them. The number of announcements is bounded by how
 * many the receiver's engine has processed.
 */
#include "net/lane/lane.h"

static struct tcp_message *find(struct tcp_channel *c, bool sent, uint32_t peer, uint32_t number)
{
    struct tcp_message *m = sent ? c->messages.sent : c->messages.arrived;

    while (m && (m->peer != peer || wire_key_seq(m->key) != number))
        m = m->next;
    return m;
}

static void drop_sent(struct tcp_channel *c, struct tcp_message *m)
{
    if (m->hold)
        c->messages.growing--;
    if (m->hold && !--m->hold->pieces)
        tcp_hold_drop(c, m->hold); /* none of its frames is in a queue: its connection has ended */
    tcp_message_drop(c, true, m);
}

void tcp_messages_forget(struct tcp_channel *c)
{
    while (c->messages.sent)
        drop_sent(c, c->messages.sent);
    while (c->messages.arrived) {
        if (c->messages.arrived->granted)
            tcp_await(c, c->messages.arrived->peer, TCP_LANE_BULK, false);
        tcp_message_drop(c, false, c->messages.arrived);
    }
}

/* A message up to TCP_INLINE needs none: the number of announcements bounds those. */
static uint32_t room_of(uint64_t bytes)
{
    return bytes > TCP_INLINE ? (uint32_t)bytes : 0;
}

static void tell_done(struct tcp_channel *c, const struct tcp_message *m)
{
    tcp_tell(c, &(struct wire_event){
                    .kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = m->cookie, .peer = (int32_t)m->peer, .bytes = m->take});
}

/* ------------------------------------------------------------------------------------------------------------ sending */
enum wire_result tcp_message_expose(struct tcp_channel *c, const struct wire_expose *e)
{
    uint32_t peer = e->peers[0], number = wire_key_seq(e->key);
    struct tcp_member *m = &c->member[peer];
    struct wire_span span = e->nspans ? e->spans[0] : (struct wire_span){NULL, 0};
    uint32_t room = room_of(span.bytes);
    bool may = span.bytes <= TCP_EAGER_BYTES && !c->rendezvous && !e->there;
    unsigned char length[8];

    BASE_ASSERT(!c->aborted);
    if (number - m->consumed > c->handle.caps.window) {
        tcp_hear(c, peer);
        if (number - m->consumed > c->handle.caps.window)
            return WIRE_AGAIN;
    }
    if (may && m->room_sent - m->room_taken + room <= TCP_EAGER_ROOM) {
        m->sent = number;
        m->room_sent += room;
        tcp_post(c, peer, FRAME_EAGER, e->key, e->fingerprint, span.at, span.bytes);
        c->wire->burst.messages = true;
        return WIRE_DONE;
    }
    struct tcp_message *message = tcp_message_make(c, true);
    if (!message)
        return WIRE_AGAIN;
    m->sent = number;
    message->key = e->key;
    message->peer = peer;
    message->bytes = span.bytes;
    message->cookie = e->cookie;
    message->there = e->there;
    message->at = (char *)(uintptr_t)span.at;
    base_put64(length, span.bytes);
    tcp_post(c, peer, FRAME_ANNOUNCE, e->key, e->fingerprint, length, sizeof length);
    return WIRE_PENDING;
}

/* Queues those bytes of a granted message that are there. Its hold counts the frames in the queue, and one more while some are missing. */
static void queue_frames(struct tcp_channel *c, struct tcp_message *m)
{
    uint64_t there = m->there ? atomic_load_explicit(m->there, memory_order_acquire) : m->take, end = there < m->take ? there : m->take;
    struct frame f = {.kind = FRAME_DATA, .key = m->key};

    for (; m->begun < end; m->begun += f.bytes) {
        f.bytes = (uint32_t)(end - m->begun < TCP_DATA_BYTES ? end - m->begun : TCP_DATA_BYTES);
        m->hold->pieces += tcp_post_user(c, m->peer, &f, m->at + m->begun, m->hold);
    }
    if (m->begun == m->take)
        drop_sent(c, m);
}

void tcp_messages_grow(struct tcp_channel *c)
{
    for (struct tcp_message *m = c->messages.sent, *next; m; m = next) {
        next = m->next;
        if (m->hold)
            queue_frames(c, m);
    }
}

static const char *granted(struct tcp_channel *c, uint32_t peer, const struct frame *grant, uint64_t take)
{
    struct tcp_message *m = find(c, true, peer, wire_key_seq(grant->key));

    if (!m || m->hold || take > m->bytes)
        return "a grant of what was never announced";
    m->take = take;
    if (!take) {
        tell_done(c, m);
        tcp_message_drop(c, true, m);
        return NULL;
    }
    m->hold = tcp_hold_make(c);
    if (!m->hold)
        return "no memory for a message";
    *m->hold = (struct tcp_hold){.pieces = 1, .cookie = m->cookie, .peer = peer};
    c->messages.growing++;
    queue_frames(c, m);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
static const char *announced(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload)
{
    struct tcp_member *member = &c->member[peer];
    uint32_t next = member->arrived + 1 ? member->arrived + 1 : 1;
    bool eager = f->kind == FRAME_EAGER;
    uint32_t room = eager ? room_of(f->bytes) : 0;

    if (wire_key_seq(f->key) != next)
        return "a message out of turn";
    if (eager && f->bytes > TCP_EAGER_BYTES)
        return "a message of a length that must be asked for";
    if (next - member->seen_told > c->handle.caps.window || member->filled - member->taken_told + room > TCP_EAGER_ROOM)
        return "a message without a credit";
    struct tcp_message *m = tcp_message_make(c, false);
    if (!m)
        return "no memory for a message";
    m->key = f->key;
    m->peer = peer;
    m->tag = f->tag;
    m->bytes = eager ? f->bytes : base_get64(payload);
    m->room = room;
    if (eager) {
        m->block = tcp_block_take(c->wire, f->bytes ? f->bytes : 1);
        if (!m->block) {
            tcp_message_drop(c, false, m);
            return "no memory for a message";
        }
        memcpy(m->block->data, payload, f->bytes);
    }
    member->arrived = next;
    member->filled += room;
    tcp_tell(
        c,
        &(struct wire_event){
            .kind = WIRE_EVENT_ANNOUNCED, .result = WIRE_MESSAGE, .key = f->key, .peer = (int32_t)peer, .tag = f->tag, .bytes = m->bytes});
    return NULL;
}

const char *tcp_message_came(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload)
{
    struct tcp_member *m = &c->member[peer];

    switch (f->kind) {
    case FRAME_EAGER:
    case FRAME_ANNOUNCE:
        return announced(c, peer, f, payload);
    case FRAME_GRANT:
        return granted(c, peer, f, base_get64(payload));
    default:
        if (wire_key_seq(f->key) - m->consumed > m->sent - m->consumed || f->tag - m->room_taken > m->room_sent - m->room_taken)
            return "more messages taken than were sent";
        m->consumed = wire_key_seq(f->key);
        m->room_taken = f->tag;
        return NULL;
    }
}

static enum wire_result take_eager(struct tcp_channel *c, struct tcp_message *m, const struct wire_look *l, uint64_t take)
{
    struct tcp_member *member = &c->member[m->peer];

    if (take)
        memcpy(l->land, m->block->data, take);
    member->taken += m->room;
    c->owes |= m->room != 0;
    tcp_message_drop(c, false, m);
    return WIRE_DONE;
}

enum wire_result tcp_message_view(struct tcp_channel *c, const struct wire_look *l)
{
    struct tcp_message *m = find(c, false, l->peer, wire_key_seq(l->key));
    uint64_t take = l->flags & WIRE_DISCARD ? 0 : l->bytes;
    unsigned char length[8];

    BASE_ASSERT(!c->aborted && m && !m->granted && take <= m->bytes);
    if (m->block)
        return take_eager(c, m, l, take);
    base_put64(length, take);
    tcp_post(c, l->peer, FRAME_GRANT, l->key, 0, length, sizeof length);
    m->granted = true;
    m->take = take;
    m->at = l->land;
    m->came = l->came;
    m->cookie = l->cookie;
    if (!take) {
        tcp_message_drop(c, false, m);
        return WIRE_DONE;
    }
    tcp_await(c, l->peer, TCP_LANE_BULK, true);
    if (BASE_UNLIKELY(c->port->link[c->world[l->peer]].down))
        tcp_miss(c, l->peer, 0);
    return WIRE_PENDING;
}

/* The granted message with this number; NULL: there is none. */
struct tcp_message *tcp_message_granted(struct tcp_channel *c, uint32_t peer, uint32_t number)
{
    struct tcp_message *m = find(c, false, peer, number);

    return m && m->granted ? m : NULL;
}

void tcp_message_took(struct tcp_channel *c, struct tcp_message *m)
{
    if (m->came) /* all earlier frames have ended, because they use the same connection */
        atomic_store_explicit(m->came, m->begun, memory_order_release);
    if (m->begun < m->take)
        return;
    tcp_await(c, m->peer, TCP_LANE_BULK, false);
    tell_done(c, m);
    tcp_message_drop(c, false, m);
}
