/*
 * lane: the data path of the tcp wire. Each pair of ranks has two lanes (net/state). This module has their queues, reads their input, and
 * implements on them exposures and views, messages, notes, and the forwarding of notes if not all ranks are connected. It does not connect
 * or listen.
 */
#ifndef NET_LANE_LANE_H
#define NET_LANE_LANE_H

#include "base/check.h"
#include "net/frame/stale.h"
#include "net/state/await.h"
#include "net/state/graph.h"
#include "net/state/memory.h"

#include <string.h>

static inline struct tcp_wire *tcp_wire_of(struct wire *wire)
{
    return (struct tcp_wire *)wire;
}
static inline struct tcp_channel *tcp_of(struct wire_channel *channel)
{
    return (struct tcp_channel *)channel;
}
static inline void tcp_count(_Atomic uint64_t *traffic, const struct frame *f)
{
    uint64_t before = atomic_load_explicit(traffic, memory_order_relaxed);

    atomic_store_explicit(traffic, before + frame_span(f->bytes), memory_order_relaxed);
}
/* More is queued than one send takes, so frames that can wait should wait. */
static inline bool tcp_backed_up(const struct tcp_lane *lane)
{
    return lane->out && lane->out->next;
}
static inline uint64_t *tcp_ack_of(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    size_t place = (size_t)peer * c->areas + wire_key_seq(key) % c->areas;

    return &c->acked[(place * WIRE_STREAM_EDGES + wire_key_edge(key) % WIRE_STREAM_EDGES) * c->credits + wire_key_round(key) % c->credits];
}

static inline enum tcp_room tcp_room_of(uint32_t edge, size_t bytes)
{
    if (!(edge & WIRE_ONCE))
        return TCP_ROOM_AREAS;
    if (bytes <= TCP_FRAME_BYTES)
        return bytes <= TCP_INLINE ? TCP_ROOM_LINES : TCP_ROOM_FRAMES;
    return bytes <= TCP_SMALL_BYTES ? TCP_ROOM_PAGES : TCP_ROOM_LONG;
}
/* last: the last operation that used a kind of room, or was to use it. */
static inline void tcp_room_used(uint32_t *last, uint32_t seq)
{
    *last = tcp_reached(*last, seq) ? *last : seq;
}

/* lane.c: the life of a connection */
int tcp_lane_start(struct tcp_lane *lane);   /* the socket is connected and now belongs to the poller. Returns 0 or an errno */
void tcp_lane_opened(struct tcp_lane *lane); /* continues what waited for the connection */
void tcp_lane_end(struct tcp_lane *lane, const char *why);
void tcp_lane_down(struct tcp_lane *lane); /* like tcp_lane_end, without a log message */
/* keys: of the connection's handshake. kind CRYPTO_NONE: records have checksums only, without keys. False: no memory. */
static inline bool tcp_lane_seal(struct tcp_lane *lane, const struct seal *keys, enum crypto_kind kind)
{
    lane->records = record_start(lane->port->wire->env, keys, kind, lane->lane == TCP_BEAT);
    return lane->records != NULL;
}

/* send.c */
bool tcp_post(struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, const void *bytes, size_t count);
void tcp_post_goodbye(struct tcp_lane *lane);
bool tcp_post_spans(struct tcp_channel *c, uint32_t peer, const struct wire_expose *e, size_t bytes, bool straight);
bool tcp_post_user(struct tcp_channel *c, uint32_t peer, const struct frame *frame, const void *user, struct tcp_hold *hold);
void tcp_send_dirty(struct tcp_wire *w);
void tcp_sent(struct tcp_lane *lane, int64_t result);
void tcp_piece_lost(struct tcp_block *block);
void tcp_forget_sends(struct tcp_channel *c);
void tcp_drop_out(struct tcp_lane *lane);                                       /* discards the queue */
void tcp_send_waiting(struct tcp_lane *lane);                                   /* sends the queue with the next flush */
void tcp_post_plain(struct tcp_lane *lane, struct frame *f, const void *bytes); /* for the process, without a channel */
void tcp_post_word(struct tcp_channel *c, uint32_t peer, uint32_t which, enum frame_kind kind, wire_key key); /* without a payload */

/* owed.c: words owed to peers: acknowledgements, retirements, credits */
void tcp_acknowledge(struct tcp_channel *c, const struct tcp_slot *s);
void tcp_owed(struct tcp_channel *c);
void tcp_tell_acks(struct tcp_channel *c);
void tcp_tell_with(struct tcp_channel *c, uint32_t peer, uint32_t which);    /* after a frame that leaves on that lane anyway */
bool tcp_hears_now(const struct tcp_channel *c, const struct tcp_member *m); /* whether the member must be told of the retirements */
void tcp_want_room(struct tcp_channel *c, uint32_t peer, uint32_t seq, enum tcp_room kind); /* says it once */
const char *tcp_room_wanted(struct tcp_channel *c, uint32_t peer, wire_key key);
void tcp_tell_new(struct tcp_channel *c, const struct tcp_link *link); /* after a new link: the retirements that its peer has missed */

/* burst.c: frames that are sent in a row leave together */
void tcp_hold_or_send(struct tcp_wire *w);  /* sends dirty lanes now or soon */
void tcp_unhold(struct tcp_wire *w);        /* a pump begins: sends all dirty lanes */
void tcp_burst_goes_on(struct tcp_wire *w); /* something leaves: continues a row, or begins one */
void tcp_burst_sent(struct tcp_wire *w);    /* the time that the kernel took for several sends is no gap in the row */

/* alone.c: the fast path for one short exposure */
bool tcp_may_go_alone(const struct tcp_channel *c, const struct wire_expose *e, size_t bytes);
void tcp_send_alone(struct tcp_channel *c, const struct wire_expose *e, size_t bytes); /* only after tcp_may_go_alone */
/* Looks for an exposure that has not arrived yet. DONE; AGAIN; NONE: use the general path, which handles whatever has arrived. */
enum wire_result tcp_look_alone(struct tcp_channel *c, const struct wire_look *l);
/* For a channel of two ranks. */
enum wire_result tcp_publish_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes);
enum wire_result tcp_poll_inline(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes,
                                 const void **at);
void tcp_fetch(struct wire_channel *channel, wire_key key, uint32_t peer, size_t bytes);

/* receive.c */
void tcp_receive_start(struct tcp_lane *lane);
void tcp_digest(struct tcp_lane *lane); /* handles the bytes in the stage */
void tcp_received(struct tcp_lane *lane, int64_t result);
const char *tcp_open_records(struct tcp_lane *lane,
                             size_t bytes); /* so many bytes of records have come. NULL, or why the connection must end */
void tcp_forget_receives(struct tcp_channel *c);

/* pump.c */
void tcp_submit(struct tcp_wire *w);                                       /* executes the sends that the poller has collected */
void tcp_wake_monitor(struct tcp_wire *w);                                 /* if it asked to be woken by arrivals (tcp/heed.c) */
uint32_t tcp_pump(struct tcp_wire *w, const uint32_t *hot, uint32_t hots); /* returns how many transfers ended */
void tcp_pump_few(struct tcp_wire *w);                                     /* while no thread waits for a frame of a particular peer */
void tcp_hear(struct tcp_channel *c, uint32_t peer);                       /* reads what a peer has sent, in case it is a credit */

/* view.c: exposures and views */
enum wire_result tcp_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad);
enum wire_result tcp_expose(struct wire_channel *channel, const struct wire_expose *e);
bool tcp_has_once_room(const struct tcp_channel *c, uint32_t peer, wire_key key, size_t bytes); /* for an exposure on a once-edge */
enum wire_result tcp_view(struct wire_channel *channel, const struct wire_look *look);
void tcp_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view);
void tcp_slot_whole(struct tcp_channel *c, struct tcp_slot *slot);
void tcp_calls_came(struct tcp_channel *c, uint32_t peer);
void tcp_miss(struct tcp_channel *c, uint32_t peer, wire_key key); /* it was requested and the peer is down, so it will never arrive */
void tcp_missed(struct tcp_channel *c, const struct tcp_link *link);

/* message.c */
enum wire_result tcp_message_expose(struct tcp_channel *c, const struct wire_expose *e);
enum wire_result tcp_message_view(struct tcp_channel *c, const struct wire_look *look);
const char *tcp_message_came(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload);
struct tcp_message *tcp_message_granted(struct tcp_channel *c, uint32_t peer, uint32_t number);
void tcp_message_took(struct tcp_channel *c, struct tcp_message *m); /* a frame of it has arrived */
void tcp_messages_grow(struct tcp_channel *c);                       /* queues what more is there of granted messages */
void tcp_messages_forget(struct tcp_channel *c);

/* note.c: notes and published calls */
void tcp_note_expose(struct tcp_channel *c, const struct wire_expose *e);
uint32_t tcp_notes_take(struct tcp_channel *c, struct wire_event *events, uint32_t max);
void tcp_calls_send(struct tcp_channel *c, uint32_t peer, bool asked);
void tcp_calls_show(struct tcp_channel *c);
void tcp_calls_asked(struct tcp_channel *c, uint32_t peer);
void tcp_calls_tell(struct tcp_channel *c);
const char *tcp_note_took(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload, uint32_t number);
const char *tcp_note_fault(const struct frame *f); /* checks the format; NULL: valid */
const char *tcp_calls_fault(const struct frame *f, const unsigned char *payload);
const char *tcp_calls_took(struct tcp_channel *c, uint32_t peer, const struct frame *f, const unsigned char *payload);

/* relay.c: notes to all ranks, forwarded along the base graph */
struct tcp_relay *tcp_relay_make(const struct tcp_wire *w);
void tcp_relay_give(struct tcp_wire *w, struct tcp_relay *p);
void tcp_relay_note(struct tcp_channel *c, const struct tcp_note *n);
void tcp_relay_calls(struct tcp_channel *c, const void *calls, size_t bytes);
void tcp_relay_down(struct tcp_wire *w, const struct wire_event *gone);
void tcp_relay_goodbye(struct tcp_wire *w);
bool tcp_relay_said_goodbye(const struct tcp_wire *w);
bool tcp_relay_is_whole(const struct tcp_wire *w, int32_t rank);
const char *tcp_relay_came(struct tcp_lane *lane, const struct frame *f, const unsigned char *payload);

#endif
