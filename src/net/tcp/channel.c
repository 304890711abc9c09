/* The channels of the tcp wire: join and leave. */
#include "net/tcp/tcp.h"

#define OFFER_MAGIC UINT64_C(0x3170637463636f6d)
#define NOTE_LEAD_NS INT64_C(2000000000)

struct offer {
    uint64_t magic;
    uint32_t name, window, chunk, areas, credits, once_places;
};

static struct tcp_port *port_of(struct tcp_wire *w, const struct wire_team *team)
{
    return w->ports == 1 ? w->port : &w->port[team->world[team->rank]];
}

static bool enter(struct tcp_wire *w, struct tcp_channel *c)
{
    uint32_t at = 0;

    while (at < w->channels && w->channel[at])
        at++;
    if (at >= TCP_CHANNELS_MAX)
        return false;
    if (at == w->channels_room) {
        uint32_t room = w->channels_room ? 2 * w->channels_room : 64;
        struct tcp_channel **more = w->env->take(w->env, room * sizeof *more, 64);
        if (!more)
            return false;
        if (w->channel) {
            memcpy(more, w->channel, w->channels * sizeof *more);
            w->env->give(w->env, w->channel, w->channels_room * sizeof *more);
        }
        w->channel = more;
        w->channels_room = room;
    }
    w->channels += at == w->channels;
    w->channel[at] = c;
    c->name = stale_name(++w->generation, at);
    return true;
}

static uint32_t window_of(const struct wire_limits *limits)
{
    uint32_t wanted = limits->window ? limits->window : TCP_WINDOW, window = TCP_WINDOW_MIN;

    while (window < wanted && window < TCP_WINDOW_MAX)
        window *= 2;
    return window;
}

/* A peer that sends hears of retirements when half of its places may be free; one that sends nothing, shortly before it could lack one. */
static void make_rooms(struct tcp_channel *c, uint32_t window, bool minimal)
{
    uint32_t pages = TCP_PAGES_SHOWN / (c->size > 1 ? c->size - 1 : 1);

    pages = pages > window ? window : pages < TCP_ONCE_PLACES ? TCP_ONCE_PLACES : pages;
    const uint32_t places[TCP_ROOMS] = {2 * window, window, pages, TCP_ONCE_PLACES, TCP_AREAS};

    for (uint32_t i = 0; i < TCP_ROOMS; i++) {
        c->places[i] = minimal && i ? 1 : places[i];
        c->lag[i] = minimal ? 1 : places[i] / 2;
    }
    c->lag_silent = minimal ? 1 : window + 3 * window / 4;
}

static struct tcp_channel *make(struct tcp_wire *w, const struct wire_team *team, const struct wire_limits *limits)
{
    const struct comm_env *env = w->env;
    size_t size = (size_t)team->size, window = window_of(limits), areas = limits->minimal ? 1 : TCP_AREAS;
    size_t calls_each = 4 * window;
    size_t credits = limits->minimal ? 1 : limits->credits ? limits->credits : TCP_CREDITS;
    size_t head = (sizeof(struct tcp_channel) + 63) & ~(size_t)63, acks = size * areas * WIRE_STREAM_EDGES * credits;
    size_t bytes = head + size * sizeof(struct tcp_member) + acks * sizeof(uint64_t) + (size + 1) * calls_each * sizeof(struct wire_call) +
                   size * sizeof(struct wire_call *) + 4 * EDGE_BYTES;
    char *memory = env->take(env, bytes, 64);

    if (!memory)
        return NULL;
    struct tcp_channel *c = (struct tcp_channel *)(void *)memory;
    *c = (struct tcp_channel){.wire = w, .port = port_of(w, team), .id = team->id, .rank = (uint32_t)team->rank, .bytes = bytes};
    c->size = (uint32_t)team->size;
    c->areas = (uint32_t)areas;
    c->credits = (uint32_t)credits;
    make_rooms(c, (uint32_t)window, limits->minimal);
    c->rendezvous = limits->rendezvous;
    c->slots.live_most = (uint32_t)(size * (2 * window * WIRE_ONCE_EDGES_MAX + areas * WIRE_STREAM_EDGES * credits * 2));
    c->world = team->world;
    c->messages.sent_last = &c->messages.sent;
    c->messages.arrived_last = &c->messages.arrived;
    c->member = (struct tcp_member *)(void *)(memory + head);
    c->handle.calls = (struct wire_call *)tcp_behind(c->member + size);
    c->mirror = (struct wire_call *)tcp_behind(c->handle.calls + calls_each);
    c->acked = (uint64_t *)tcp_behind(c->mirror + size * calls_each);
    struct wire_call **calls = (struct wire_call **)tcp_behind(c->acked + acks);
    for (size_t i = 0; i < size; i++)
        calls[i] = (int32_t)i == team->rank ? c->handle.calls : c->mirror + i * calls_each;
    c->handle.peer_calls = calls;
    c->other = c->rank == 0;
    c->handle.class = size == 2 ? &tcp_of_two : &wire_tcp;
    c->handle.wire = &w->wire;
    c->handle.traffic = &c->traffic;
    uint64_t chunk = limits->chunk ? limits->chunk : TCP_CHUNK;
    c->handle.caps = (struct wire_caps){.inline_max = TCP_INLINE,
                                        .note_lead_ns = w->graph ? NOTE_LEAD_NS : 0,
                                        .window = (uint32_t)window,
                                        .calls = (uint32_t)calls_each,
                                        .once_max = TCP_ONCE_MAX,
                                        .chunk_all = chunk,
                                        .chunk_private = chunk,
                                        .chunk_least = chunk < TCP_CHUNK_LEAST ? chunk : TCP_CHUNK_LEAST,
                                        .takes_growing = true};
    return c;
}

static void forget(struct tcp_channel *c)
{
    tcp_forget_sends(c);
    tcp_forget_receives(c);
    tcp_messages_forget(c);
    for (uint32_t i = 0; i < TCP_BUCKETS; i++)
        while (c->slots.bucket[i])
            tcp_slot_drop(c, c->slots.bucket[i]);
    c->events.count = 0;
}

void tcp_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    const struct comm_env *env = w->env;

    base_lock(&w->lock, env);
    c->aborted = true; /* first, because reading continues below and must not begin anything for this channel */
    forget(c);
    tcp_send_dirty(w);
    tcp_submit(w);
    if (how == WIRE_CLOSE) {
        w->channel[stale_place(c->name)] = NULL;
        if (c->seen)
            tcp_block_give(w, c->seen);
    }
    base_unlock(&w->lock, env);
    if (how != WIRE_CLOSE)
        return;
    tcp_memory_end(c);
    edge_open(c, c->bytes);
    env->give(env, c, c->bytes);
}

static enum comm_result connect_channel(struct tcp_channel *c, const struct wire_team *team, const char *offers)
{
    for (uint32_t i = 0; i < c->size; i++) {
        struct offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        if (o.magic != OFFER_MAGIC || o.window != c->handle.caps.window || o.chunk != c->handle.caps.chunk_all || o.areas != c->areas ||
            o.credits != c->credits || o.once_places != c->places[TCP_ROOM_LONG])
            return COMM_ERR_CONFIG;
        c->member[i].channel = o.name;
    }
    c->world = team->world;
    c->connected = true;
    return COMM_OK;
}

enum comm_result tcp_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                          void *offer, struct wire_channel **channel)
{
    struct tcp_wire *w = tcp_wire_of(wire);
    const struct comm_env *env = w->env;

    if (offers) {
        base_lock(&w->lock, env);
        enum comm_result result = connect_channel(tcp_of(*channel), team, offers);
        base_unlock(&w->lock, env);
        if (result != COMM_OK) {
            tcp_leave(*channel, WIRE_CLOSE);
            *channel = NULL;
        }
        return result;
    }
    struct tcp_channel *c = make(w, team, limits);
    if (!c)
        return COMM_ERR_MEMORY;
    for (uint32_t i = 0; i < c->size; i++) {
        for (uint32_t kind = 0; kind < TCP_ROOMS; kind++) /* nothing came or went for a long time */
            c->member[i].came[kind] = c->member[i].went[kind] = (uint32_t)(-2 * TCP_HEARS);
        c->member[i].lane = c->port->link[c->world[i]].ours ? c->port->link[c->world[i]].lane : NULL;
    }
    base_lock(&w->lock, env);
    bool entered = enter(w, c);
    base_unlock(&w->lock, env);
    if (!entered) {
        edge_open(c, c->bytes);
        env->give(env, c, c->bytes);
        return COMM_ERR_MEMORY;
    }
    struct offer mine = {OFFER_MAGIC, c->name,    c->handle.caps.window,   (uint32_t)c->handle.caps.chunk_all,
                         c->areas,    c->credits, c->places[TCP_ROOM_LONG]};
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    *channel = &c->handle;
    return COMM_OK;
}
