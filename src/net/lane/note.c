/* Notes and published calls. Neither waits for space. A note that could not be sent yet is replaced by the next one of its kind. Calls are
 * sent at the monitor's tick, or when a peer requests them because its own calls differ. */
#include "net/lane/lane.h"

#include "wire/collective.h"

enum { CALL_BYTES = 32, CALLS_A_FRAME = 128, TO_ALL = INT32_MAX /* as a rank: forward to all */ };
_Static_assert(CALL_BYTES *CALLS_A_FRAME + FRAME_PASS_HEAD <= FRAME_CONTROL_MAX, "a frame of calls is a control frame");

/* ------------------------------------------------------------------------------------------------------------ notes */
static void send_notes(struct tcp_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        struct tcp_member *m = &c->member[i];
        for (uint32_t sort = 0; m->unsent && sort < WIRE_NOTE_SORTS; sort++) {
            const struct tcp_note *n = &c->note[sort];
            if (!(m->unsent >> sort & 1) || tcp_backed_up(&m->lane[TCP_LANE_SMALL]))
                continue;
            m->unsent &= (uint8_t) ~(1u << sort);
            tcp_post(c, i, FRAME_NOTE, n->key, n->tag, n->data, n->bytes);
        }
    }
}

static void tell_calls(struct tcp_channel *c);

void tcp_note_expose(struct tcp_channel *c, const struct wire_expose *e)
{
    uint32_t sort = wire_key_edge(e->key);
    struct tcp_note *n = &c->note[sort];

    BASE_ASSERT(sort < WIRE_NOTE_SORTS && e->nspans <= 1);
    n->key = e->key;
    n->tag = e->fingerprint;
    n->bytes = e->nspans ? (uint32_t)e->spans[0].bytes : 0;
    BASE_ASSERT(n->bytes <= wire_note_bytes(sort));
    if (n->bytes)
        memcpy(n->data, e->spans[0].at, n->bytes);
    for (uint32_t i = 0; i < c->size && !c->wire->graph; i++)
        if (c->member[i].lane)
            c->member[i].unsent |= (uint8_t)(1u << sort);
    tell_calls(c); /* first, because a failure's text is made from the calls */
    if (c->wire->graph)
        tcp_relay_note(c, n);
    else
        send_notes(c);
}

const char *tcp_note_fault(const struct frame *f)
{
    uint32_t sort = wire_key_edge(f->key);

    if (sort >= WIRE_NOTE_SORTS)
        return "a note of no sort";
    return f->bytes > wire_note_bytes(sort) ? "a note longer than its sort's" : NULL;
}

/* number: of a forwarded note, which may arrive out of order; otherwise 0. */
const char *tcp_note_took(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload, uint32_t number)
{
    uint32_t sort = wire_key_edge(f->key);
    const char *why = tcp_note_fault(f);

    if (why)
        return why;
    struct tcp_member *m = &c->member[peer];
    struct tcp_note *n = &m->note[sort];
    if (number && n->number && tcp_reached(n->number, number))
        return NULL;
    n->number = number;
    n->key = f->key;
    n->tag = f->tag;
    n->bytes = f->bytes;
    memset(n->data, 0, sizeof n->data);
    memcpy(n->data, payload, f->bytes);
    c->notes_fresh += !(m->fresh >> sort & 1);
    m->fresh |= (uint8_t)(1u << sort);
    c->wire->env->bell_ring(c->wire->env, c->wire->watch); /* the note may be for a communicator on which no thread waits */
    return NULL;
}

uint32_t tcp_notes_take(struct tcp_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t i = 0; c->notes_fresh && i < c->size * WIRE_NOTE_SORTS && n < max && n < TCP_NOTES_PASS; i++) {
        uint32_t peer = i / WIRE_NOTE_SORTS, sort = i % WIRE_NOTE_SORTS;
        struct tcp_member *m = &c->member[peer];
        const struct tcp_note *note = &m->note[sort];
        if (!(m->fresh >> sort & 1))
            continue;
        m->fresh &= (uint8_t) ~(1u << sort);
        c->notes_fresh--;
        memcpy(c->given[n], note->data, wire_note_bytes(sort));
        events[n] = (struct wire_event){.kind = WIRE_EVENT_ANNOUNCED,
                                        .result = WIRE_NOTE,
                                        .peer = (int32_t)peer,
                                        .tag = note->tag,
                                        .key = note->key,
                                        .bytes = note->bytes,
                                        .note = c->given[n]};
        n++;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------------------ calls */
/* False: there is no call, or it was overwritten while it was read. */
static bool pack_call(const struct wire_call *call, unsigned char *at)
{
    uint32_t seq = atomic_load_explicit(&call->seq, memory_order_acquire);

    if (!seq)
        return false;
    base_put32(at, seq);
    base_put32(at + 4, atomic_load_explicit(&call->fingerprint, memory_order_relaxed));
    at[8] = atomic_load_explicit(&call->collective, memory_order_relaxed);
    at[9] = atomic_load_explicit(&call->type, memory_order_relaxed);
    at[10] = atomic_load_explicit(&call->flags, memory_order_relaxed);
    at[11] = (unsigned char)atomic_load_explicit(&call->refused, memory_order_relaxed);
    base_put32(at + 12, atomic_load_explicit(&call->op, memory_order_relaxed));
    base_put32(at + 16, (uint32_t)atomic_load_explicit(&call->root, memory_order_relaxed));
    base_put32(at + 20, atomic_load_explicit(&call->chain, memory_order_relaxed));
    base_put64(at + 24, atomic_load_explicit(&call->n, memory_order_relaxed));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&call->seq, memory_order_relaxed) == seq;
}

static void unpack_call(struct wire_call *call, const unsigned char *at)
{
    atomic_store_explicit(&call->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&call->fingerprint, base_get32(at + 4), memory_order_relaxed);
    atomic_store_explicit(&call->collective, at[8], memory_order_relaxed);
    atomic_store_explicit(&call->type, at[9], memory_order_relaxed);
    atomic_store_explicit(&call->flags, at[10], memory_order_relaxed);
    atomic_store_explicit(&call->refused, (int8_t)at[11], memory_order_relaxed);
    atomic_store_explicit(&call->op, base_get32(at + 12), memory_order_relaxed);
    atomic_store_explicit(&call->root, (int32_t)base_get32(at + 16), memory_order_relaxed);
    atomic_store_explicit(&call->chain, base_get32(at + 20), memory_order_relaxed);
    atomic_store_explicit(&call->n, base_get64(at + 24), memory_order_relaxed);
    atomic_store_explicit(&call->seq, base_get32(at), memory_order_release);
}

static void say_calls(struct tcp_channel *c, uint32_t peer, bool all, const void *calls, size_t bytes)
{
    if (peer == TO_ALL)
        tcp_relay_calls(c, calls, bytes);
    else
        tcp_post(c, peer, FRAME_CALLS, 0, all, calls, bytes);
}

/* asked: sends all calls, and the last frame says so. Otherwise sends those that were not sent at an earlier tick. */
void tcp_calls_send(struct tcp_channel *c, uint32_t peer, bool asked)
{
    unsigned char calls[CALLS_A_FRAME * CALL_BYTES];
    uint32_t all = c->handle.caps.calls, count = 0;

    for (uint32_t i = 0; i < all; i++) {
        const struct wire_call *call = &c->handle.calls[i];
        uint32_t seq = atomic_load_explicit(&call->seq, memory_order_relaxed);
        if (!asked && (!seq || tcp_reached(c->calls_told, seq)))
            continue;
        count += pack_call(call, calls + count * CALL_BYTES);
        if (count == CALLS_A_FRAME) {
            say_calls(c, peer, false, calls, count * CALL_BYTES);
            count = 0;
        }
    }
    if (count || asked)
        say_calls(c, peer, asked, calls, count * CALL_BYTES);
}

/* Sends all calls to each peer that requested them and is reading what it is sent; to others at the tick. So at most one answer per peer
 * waits, however often the peer asks. */
static void answer(struct tcp_channel *c)
{
    for (uint32_t i = 0; i < c->size && c->connected; i++) {
        struct tcp_member *m = &c->member[i];
        if (!m->asked || tcp_backed_up(&m->lane[TCP_LANE_SMALL]))
            continue;
        m->asked = false;
        tcp_calls_send(c, i, true);
    }
}

/* Two ranks' calls differ. All members will want to name them, and before they hear of the failure itself. */
void tcp_calls_show(struct tcp_channel *c)
{
    uint32_t newest = 0;

    for (uint32_t i = 0; i < c->handle.caps.calls; i++) {
        uint32_t seq = atomic_load_explicit(&c->handle.calls[i].seq, memory_order_relaxed);
        if (seq && (!newest || !tcp_reached(newest, seq)))
            newest = seq;
    }
    if (newest == c->calls_shown)
        return;
    c->calls_shown = newest;
    if (c->wire->graph)
        tcp_calls_send(c, TO_ALL, true);
    for (uint32_t i = 0; i < c->size && !c->wire->graph; i++)
        c->member[i].asked |= c->member[i].lane != NULL;
    answer(c);
}

void tcp_calls_asked(struct tcp_channel *c, uint32_t peer)
{
    tcp_calls_show(c);
    c->member[peer].asked = true;
    answer(c);
}

/* Sends this rank's calls that were not sent yet. */
static void tell_calls(struct tcp_channel *c)
{
    uint32_t newest = c->calls_told;

    if (c->aborted || !c->connected)
        return;
    for (uint32_t i = 0; i < c->handle.caps.calls; i++) {
        uint32_t seq = atomic_load_explicit(&c->handle.calls[i].seq, memory_order_relaxed);
        if (seq && !tcp_reached(newest, seq))
            newest = seq;
    }
    if (newest == c->calls_told)
        return;
    bool all = true; /* a peer that was skipped gets them at the next tick, and the others get them again */
    if (c->wire->graph)
        tcp_calls_send(c, TO_ALL, false);
    for (uint32_t i = 0; i < c->size && !c->wire->graph; i++) {
        const struct tcp_lane *lane = c->member[i].lane;
        if (lane && tcp_backed_up(&lane[TCP_LANE_SMALL]))
            all = false;
        else if (lane)
            tcp_calls_send(c, i, false);
    }
    if (all)
        c->calls_told = newest;
}

/* Runs at the monitor's tick. */
void tcp_calls_tell(struct tcp_channel *c)
{
    answer(c);
    send_notes(c);
    tell_calls(c);
}

const char *tcp_calls_fault(const struct frame *f, const unsigned char *payload)
{
    if (f->bytes % CALL_BYTES)
        return "calls cut in pieces";
    for (uint32_t i = 0; i < f->bytes; i += CALL_BYTES)
        if (payload[i + 8] >= COLLECTIVE_END || (int8_t)payload[i + 11] > 0)
            return "a call that no rank can have made";
    return NULL;
}

const char *tcp_calls_took(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload)
{
    uint32_t all = c->handle.caps.calls;
    const char *why = tcp_calls_fault(f, payload);

    if (why)
        return why;
    bool differs = false;
    for (uint32_t i = 0; i < f->bytes; i += CALL_BYTES) {
        uint32_t seq = base_get32(payload + i);
        const struct wire_call *mine = &c->handle.calls[seq & (all - 1)];
        unpack_call(&c->mirror[(size_t)peer * all + (seq & (all - 1))], payload + i);
        differs |= atomic_load_explicit(&mine->seq, memory_order_relaxed) == seq &&
                   atomic_load_explicit(&mine->chain, memory_order_relaxed) != base_get32(payload + i + 20);
    }
    if (f->tag)
        tcp_calls_came(c, peer);
    if (differs) /* no exchange may ever reveal it, so the monitor must compare */
        c->wire->env->bell_ring(c->wire->env, c->wire->watch);
    return NULL;
}
