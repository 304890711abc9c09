/*
 * Words to all ranks if not all are connected: notes, published calls, ends of ranks. The sender numbers each one and sends it to its
 * neighbours in the base graph. Each rank takes those that it has not seen, and forwards them to all its neighbours except the one from
 * which they came. So every rank gets them while the graph of living ranks is connected, on the fastest path. Words of one rank arrive in
 * order, because a rank that forwards the second has forwarded the first before, over the same connections. Only a new connection may break
 * the order; then the number shows which note is older.
 *
 *   0 identity of the communicator   8 rank of the world   12 number   16 that rank's name of the channel   20 kind   24 rank of the team
 *
 * The frame's key and tag are those of the forwarded word. Ranks that are no members forward it too.
 */
#include "net/lane/lane.h"

enum { PASS_NOTE = 1, PASS_CALLS, PASS_DOWN, PASS_GOODBYE };
enum { DOWN_BYTES = 24, SEEN = 64 };
#define SILENCE_MOST_NS (UINT64_C(1000000) * INT32_MAX) /* a cause gives the silence in milliseconds, in 31 bits */

/* For one sender: its newest number, and a bit for each of the 64 numbers before it that has arrived. */
struct origin {
    uint32_t newest;
    uint64_t seen;
};
struct tcp_relay {
    uint32_t number; /* last number that this rank used */
    uint32_t ranks;
    bool goodbye; /* this rank has said goodbye */
    struct origin origin[];
};

struct item {
    uint64_t id;
    uint32_t origin, number, name, kind, from;
};

static size_t bytes_for(uint32_t ranks)
{
    return sizeof(struct tcp_relay) + ranks * sizeof(struct origin);
}

struct tcp_relay *tcp_relay_make(const struct tcp_wire *w)
{
    struct tcp_relay *p = w->env->take(w->env, bytes_for((uint32_t)w->ranks), 64);

    if (p)
        p->ranks = (uint32_t)w->ranks;
    return p;
}

void tcp_relay_give(struct tcp_wire *w, struct tcp_relay *p)
{
    w->env->give(w->env, p, bytes_for(p->ranks));
}

/* ------------------------------------------------------------------------------------------------------------ sending */
/* A rank that was given up reads nothing, perhaps never again, so what waits for it is bounded. */
static void pass_on(struct tcp_wire *w, const struct tcp_link *but, struct frame f, const unsigned char *bytes, bool nudge)
{
    uint32_t count = 0;
    struct tcp_link *const *base = tcp_base_links(w, &count);

    for (uint32_t i = 0; i < count; i++) {
        if (base[i] == but || (base[i]->down && tcp_backed_up(&base[i]->lane[TCP_LANE_SMALL])))
            continue;
        tcp_post_plain(&base[i]->lane[TCP_LANE_SMALL], &f, bytes);
        base[i]->nudge |= nudge;
        w->nudges |= nudge;
    }
}

static void say(struct tcp_wire *w, struct item item, wire_key key, uint32_t tag, const void *bytes, size_t count)
{
    unsigned char all[FRAME_CONTROL_MAX];
    struct tcp_relay *p = tcp_relay_of(w);
    struct frame f = {.kind = FRAME_PASS, .key = key, .tag = tag, .bytes = (uint32_t)(FRAME_PASS_HEAD + count)};

    BASE_ASSERT(f.bytes <= sizeof all);
    base_put64(all, item.id);
    base_put32(all + 8, (uint32_t)w->rank);
    base_put32(all + 12, ++p->number);
    base_put32(all + 16, item.name);
    base_put32(all + 20, item.kind);
    base_put32(all + 24, item.from);
    base_put32(all + 28, 0);
    if (count)
        memcpy(all + FRAME_PASS_HEAD, bytes, count);
    pass_on(w, NULL, f, all, item.kind != PASS_CALLS);
}

void tcp_relay_note(struct tcp_channel *c, const struct tcp_note *n)
{
    say(c->wire, (struct item){.id = c->id, .name = c->name, .kind = PASS_NOTE, .from = c->rank}, n->key, n->tag, n->data, n->bytes);
}

void tcp_relay_calls(struct tcp_channel *c, const void *calls, size_t bytes)
{
    say(c->wire, (struct item){.id = c->id, .name = c->name, .kind = PASS_CALLS, .from = c->rank}, 0, 0, calls, bytes);
}

void tcp_relay_down(struct tcp_wire *w, const struct wire_event *gone)
{
    unsigned char bytes[DOWN_BYTES];

    base_put32(bytes, (uint32_t)gone->peer);
    base_put32(bytes + 4, (uint32_t)gone->result);
    base_put32(bytes + 8, gone->tag);
    base_put32(bytes + 12, 0);
    base_put64(bytes + 16, gone->bytes);
    say(w, (struct item){.kind = PASS_DOWN}, 0, 0, bytes, sizeof bytes);
}

void tcp_relay_goodbye(struct tcp_wire *w)
{
    tcp_relay_of(w)->goodbye = true;
    say(w, (struct item){.kind = PASS_GOODBYE}, 0, 0, NULL, 0);
}

bool tcp_relay_said_goodbye(const struct tcp_wire *w)
{
    return tcp_relay_of(w)->goodbye;
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
static bool is_new(struct origin *o, uint32_t number)
{
    uint32_t ahead = number - o->newest, behind = o->newest - number;

    if ((int32_t)ahead > 0) {
        o->seen = ahead > SEEN ? 0 : (ahead == SEEN ? 0 : o->seen << ahead) | UINT64_C(1) << (ahead - 1);
        o->newest = number;
        return true;
    }
    if (!behind || behind > SEEN || o->seen >> (behind - 1) & 1)
        return false;
    o->seen |= UINT64_C(1) << (behind - 1);
    return true;
}

/* Whether all words of a rank before its newest have arrived. Over a new connection a goodbye may arrive before an earlier note. */
bool tcp_relay_is_whole(const struct tcp_wire *w, int32_t rank)
{
    const struct origin *o = &tcp_relay_of(w)->origin[rank];
    uint64_t all = o->newest > SEEN ? UINT64_MAX : o->newest ? (UINT64_C(1) << (o->newest - 1)) - 1 : 0;

    return (o->seen & all) == all;
}

/* NULL: this rank is not a member, or has left. */
static struct tcp_channel *channel_for(const struct tcp_lane *lane, const struct item *item)
{
    const struct tcp_wire *w = lane->port->wire;

    for (uint32_t i = 0; i < w->channels; i++) {
        struct tcp_channel *c = w->channel[i];
        if (c && c->id == item->id && item->from < c->size && c->world[item->from] == (int32_t)item->origin && c->member[item->from].lane &&
            (!c->connected || c->member[item->from].channel == item->name))
            return c;
    }
    return NULL;
}

/* Of two reports of a rank's end, the first is believed. */
static void told(struct tcp_wire *w, uint32_t rank, int32_t result, uint32_t tag, uint64_t bytes)
{
    struct tcp_link *link = &w->links[rank];

    if (rank == (uint32_t)w->rank || link->down || link->told.kind)
        return;
    link->told = (struct wire_event){.kind = WIRE_EVENT_DOWN, .result = result, .peer = (int32_t)rank, .tag = tag, .bytes = bytes};
    link->told_ns = w->env->now(w->env);
    w->env->bell_ring(w->env, w->watch);
}

/* Checks a word before it is forwarded. Otherwise an invalid word would end the connections of every neighbour in turn, not only the one of
 * its sender. */
static const char *why_unsound(const struct tcp_wire *w, const struct item *item, const struct frame *f, const unsigned char *bytes)
{
    switch (item->kind) {
    case PASS_NOTE:
        return tcp_note_fault(f);
    case PASS_CALLS:
        return tcp_calls_fault(f, bytes);
    case PASS_DOWN: {
        if (f->bytes != DOWN_BYTES || base_get32(bytes) >= (uint32_t)w->ranks)
            return "the end of no rank";
        int32_t result = (int32_t)base_get32(bytes + 4);
        if (base_get32(bytes + 8) > WIRE_CUT || base_get64(bytes + 16) > SILENCE_MOST_NS)
            return "an end after a silence longer than any";
        return result == COMM_ERR_PEER || result == COMM_ERR_CLOSED ? NULL : "an end of no kind";
    }
    case PASS_GOODBYE:
        return f->bytes ? "a goodbye that says more" : NULL;
    default:
        return "something of no kind was passed on";
    }
}

static const char *take(struct tcp_lane *lane, const struct item *item, struct frame *f, const unsigned char *bytes)
{
    struct tcp_wire *w = lane->port->wire;

    if (item->kind == PASS_DOWN)
        told(w, base_get32(bytes), (int32_t)base_get32(bytes + 4), base_get32(bytes + 8), base_get64(bytes + 16));
    if (item->kind == PASS_GOODBYE)
        told(w, item->origin, COMM_ERR_CLOSED, 0, 0);
    struct tcp_channel *c = item->kind == PASS_NOTE || item->kind == PASS_CALLS ? channel_for(lane, item) : NULL;
    if (!c)
        return NULL;
    tcp_count(&c->traffic.in, f);
    return item->kind == PASS_NOTE ? tcp_note_took(c, item->from, f, bytes, item->number) : tcp_calls_took(c, item->from, f, bytes);
}

const char *tcp_relay_came(struct tcp_lane *lane, const struct frame *frame, const unsigned char *payload)
{
    struct tcp_wire *w = lane->port->wire;
    struct tcp_relay *p = tcp_relay_of(w);
    struct item item = {.id = base_get64(payload),
                        .origin = base_get32(payload + 8),
                        .number = base_get32(payload + 12),
                        .name = base_get32(payload + 16),
                        .kind = base_get32(payload + 20),
                        .from = base_get32(payload + 24)};
    struct frame f = *frame;

    if (!p || item.origin >= p->ranks)
        return "something was passed on of a rank that is none";
    if (item.origin == (uint32_t)w->rank)
        return NULL;
    f.bytes -= FRAME_PASS_HEAD;
    const char *why = why_unsound(w, &item, &f, payload + FRAME_PASS_HEAD);
    if (why || !is_new(&p->origin[item.origin], item.number))
        return why;
    pass_on(w, lane->link, *frame, payload, item.kind != PASS_CALLS);
    return take(lane, &item, &f, payload + FRAME_PASS_HEAD);
}
