/*
 * Words owed to peers: acknowledgements of exposures, retirements of operations, credits for messages. They can wait until another frame
 * leaves, since a sender has several slots.
 *
 * Most ranks send to few others. If each told each other of every second retirement, a broadcast of n ranks would cost n * n frames. So how
 * soon a peer hears of retirements follows from what it has sent in the last TCP_HEARS operations: exposures with few places need it soon,
 * and a peer that sends nothing hears only so often that it can begin with a line. A frame that leaves anyway takes the news with it when
 * half as many are untold. A sender that lacks room and has not sent that much in half as many operations says so (WANT). From then until
 * the other half is over the receiver tells by itself.
 */
#include "net/lane/lane.h"

/* Skips exposures of retired operations: the retirement is sent too, and replaces their acknowledgement. */
static void tell_acks(struct tcp_channel *c, uint32_t peer, uint32_t which)
{
    struct tcp_member *m = &c->member[peer];

    for (uint32_t i = 0; i < m->acks; i++)
        if (!tcp_reached(c->retired, wire_key_seq(m->ack[i])))
            tcp_post_word(c, peer, which, FRAME_ACK, m->ack[i]);
    m->acks = 0;
}

static void tell_retired(struct tcp_channel *c, uint32_t peer, uint32_t which)
{
    struct tcp_member *m = &c->member[peer];

    if (m->retired_told == c->retired)
        return;
    m->retired_told = c->retired;
    tcp_post_word(c, peer, which, FRAME_RETIRED, wire_key_of(c->retired, 0, 0));
}

/* How many retirements this peer may not have been told of. */
static uint32_t lag_of(const struct tcp_channel *c, const struct tcp_member *m)
{
    for (uint32_t kind = TCP_ROOMS; kind--;)
        if (tcp_reached(m->came[kind] + TCP_HEARS, c->retired))
            return c->lag[kind];
    return c->lag_silent;
}

bool tcp_hears_now(const struct tcp_channel *c, const struct tcp_member *m)
{
    uint32_t untold = c->retired - m->retired_told;

    return untold >= c->lag[TCP_ROOMS - 1] && untold >= lag_of(c, m);
}

void tcp_want_room(struct tcp_channel *c, uint32_t peer, uint32_t seq, enum tcp_room kind)
{
    uint32_t *went = c->member[peer].went;
    bool tells = kind == TCP_ROOM_LINES; /* the peer, unasked */

    for (uint32_t i = kind; i < TCP_ROOMS; i++)
        tells |= tcp_reached(went[i] + TCP_HEARS / 2, seq);
    if (tells)
        return;
    tcp_room_used(&went[kind], seq);
    tcp_post_word(c, peer, TCP_LANE_SMALL, FRAME_WANT, wire_key_of(seq, 0, kind));
}

const char *tcp_room_wanted(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    if (wire_key_edge(key) >= TCP_ROOMS)
        return "room of no kind";
    tcp_room_used(&c->member[peer].came[wire_key_edge(key)], wire_key_seq(key));
    tell_retired(c, peer, TCP_LANE_SMALL);
    return NULL;
}

/* Whether this chunk follows all that were acknowledged. Short chunks overtake long ones of their stream, which use the other lane. */
static bool is_newest(struct tcp_member *m, wire_key key)
{
    bool newest = (int64_t)(key - m->acknowledged) > 0;

    m->acknowledged = newest ? key : m->acknowledged;
    return newest;
}

/* Acknowledges a chunk of a stream. A sender needs acknowledgements only if it has more chunks than credits. Chunks shorter than the
 * longest are seldom so many. An acknowledgement waits for the one of a later chunk and leaves with it. It leaves at once if perhaps no
 * later one follows: this chunk is the last for which the sender waits, or a later chunk has overtaken it. */
void tcp_acknowledge(struct tcp_channel *c, const struct tcp_slot *s)
{
    struct tcp_member *m = &c->member[s->peer];
    uint32_t half = c->credits > 1 ? c->credits / 2 : 1, round = wire_key_round(s->key) + 1;
    bool alone = s->rounds == c->credits + 1;

    if (s->rounds && s->rounds <= c->credits)
        return;
    alone |= !is_newest(m, s->key);
    m->ack[m->acks++] = s->key;
    c->owes = true;
    if (m->acks == TCP_ACKS || alone || (round % half == 0 && (round >= c->credits || s->total == c->handle.caps.chunk_all)))
        tell_acks(c, s->peer, TCP_LANE_SMALL);
}

/* The lane on which a frame is about to leave for this peer; TCP_LANES: none. */
static uint32_t piggyback_of(const struct tcp_member *m)
{
    uint32_t which = TCP_LANE_SMALL;

    while (which < TCP_LANES && (!m->lane[which].dirty || m->lane[which].sending))
        which++;
    return which;
}

/* Sends what peers are owed if it is much, or if another frame goes to the peer anyway; then it follows in the same packet. */
void tcp_owed(struct tcp_channel *c)
{
    bool owes = false, retires = false;

    for (uint32_t i = 0; i < c->size; i++) {
        struct tcp_member *m = &c->member[i];
        if (!m->lane || m->lane[TCP_LANE_SMALL].fd < 0) /* a peer without a link needs to know nothing */
            continue;
        uint32_t with = piggyback_of(m);
        bool piggyback = m->lane[TCP_LANE_SMALL].dirty;
        uint32_t retired = c->retired - m->retired_told, seen = m->seen - m->seen_told, taken = m->taken - m->taken_told;
        if (with < TCP_LANES ? retired >= (lag_of(c, m) + 1) / 2 : tcp_hears_now(c, m)) {
            tell_retired(c, i, with < TCP_LANES ? with : TCP_LANE_SMALL);
            retired = 0;
        }
        bool listens = !tcp_backed_up(&m->lane[TCP_LANE_SMALL]); /* a peer that does not read what it is sent gets no more credits */
        if ((seen || taken) && listens && (piggyback || seen >= c->handle.caps.window / 2 || taken >= TCP_EAGER_ROOM / 2)) {
            m->seen_told = m->seen;
            m->taken_told = m->taken;
            seen = taken = 0;
            tcp_post(c, i, FRAME_CONSUMED, wire_key_of(m->seen, 0, 0), m->taken, NULL, 0);
        }
        if (with < TCP_LANES)
            tell_acks(c, i, with);
        owes |= seen || taken || m->acks;
        retires |= retired != 0;
    }
    c->owes = owes;
    c->retires = retires;
}

/* A thread of this rank goes to sleep, so nothing moves here. Perhaps a peer cannot send because it lacks these acknowledgements. */
void tcp_tell_acks(struct tcp_channel *c)
{
    for (uint32_t i = 0; i < c->size && c->owes; i++)
        if (c->member[i].acks)
            tell_acks(c, i, TCP_LANE_SMALL);
}

void tcp_tell_new(struct tcp_channel *c, const struct tcp_link *link)
{
    uint32_t peer = 0;

    while (peer < c->size && c->member[peer].lane != link->lane)
        peer++;
    if (peer < c->size && c->connected)
        tell_retired(c, peer, TCP_LANE_SMALL);
}

void tcp_tell_with(struct tcp_channel *c, uint32_t peer, uint32_t which)
{
    if (!c->owes && !c->retires)
        return;
    tell_retired(c, peer, which);
    tell_acks(c, peer, which);
}
