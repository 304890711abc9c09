/* The simulated network wire: how a channel is made, named, connected to those of the other members, and left. */
#include "sim/frames.h"

#include "base/check.h"
#include "net/frame/stale.h"

#include <string.h>

#define OFFER_MAGIC UINT64_C(0x73696d6672616d65)

struct offer {
    uint64_t magic;
    uint32_t name, window;
    uint64_t chunk;
    struct frames_channel *channel;
};

/* Chooses names as tcp does: a late frame finds another name where its channel was. */
static void enter(struct frames_wire *w, struct frames_channel *c)
{
    uint32_t place = 0;

    while (place < FRAMES_CHANNELS && w->channel[place])
        place++;
    BASE_ASSERT(place < FRAMES_CHANNELS);
    w->channel[place] = c;
    c->name = stale_name(++w->count, place);
    c->before = w->newest;
    w->newest = c;
}

struct frames_channel *frames_find(struct frames_wire *w, uint32_t name, uint32_t from, int32_t peer)
{
    uint32_t place = stale_place(name);
    struct frames_channel *c = place < FRAMES_CHANNELS ? w->channel[place] : NULL;

    return c && stale_is_for(name, c->name) && stale_is_member(from, c->size, c->world, peer) ? c : NULL;
}

static enum comm_result make(struct frames_wire *w, const struct wire_team *team, const struct wire_limits *limits, void *offer,
                             struct wire_channel **channel)
{
    size_t size = (size_t)team->size;
    struct frames_channel *c = sim_denied_memory(sim_self()) ? NULL : sim_memory_take(sizeof *c, 64);

    if (!c)
        return COMM_ERR_MEMORY;
    c->handle.class = &wire_sim_frames;
    c->handle.caps = (struct wire_caps){.inline_max = FRAMES_INLINE,
                                        .window = limits->window ? limits->window : FRAMES_WINDOW,
                                        .calls = 4 * (limits->window ? limits->window : FRAMES_WINDOW),
                                        .once_max = FRAMES_ONCE_MAX,
                                        .chunk_all = limits->chunk ? limits->chunk : FRAMES_CHUNK,
                                        .chunk_private = limits->chunk ? limits->chunk : FRAMES_CHUNK};
    c->wire = w;
    c->id = team->id;
    c->rank = (uint32_t)team->rank;
    c->size = (uint32_t)team->size;
    c->areas = limits->minimal ? 1 : FRAMES_AREAS;
    c->credits = limits->minimal ? 1 : FRAMES_CREDITS;
    c->once_places = limits->minimal ? 1 : FRAMES_ONCE_PLACES;
    c->peer = sim_memory_take(size * sizeof *c->peer, 64);
    c->handle.peer_calls = sim_memory_take(size * sizeof *c->handle.peer_calls, 64);
    c->handle.calls = sim_memory_take(c->handle.caps.calls * sizeof *c->handle.calls, 64);
    BASE_ASSERT(c->peer && c->handle.peer_calls && c->handle.calls);
    c->out_last = &c->out;
    for (size_t i = 0; i < size && sim.config.first_number; i++)
        c->peer[i].retired = c->retired = sim.config.first_number - 1;
    c->world = team->world;
    enter(w, c);
    struct offer mine = {OFFER_MAGIC, c->name, c->handle.caps.window, c->handle.caps.chunk_all, c};
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    *channel = &c->handle;
    return COMM_OK;
}

static enum comm_result connect(struct frames_channel *c, const struct wire_team *team, const char *offers)
{
    struct wire_call **calls = (struct wire_call **)(uintptr_t)c->handle.peer_calls;
    struct frames_channel *first = NULL;
    bool one_host = true;

    for (uint32_t i = 0; i < c->size; i++) {
        struct offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        if (o.magic != OFFER_MAGIC || o.window != c->handle.caps.window || o.chunk != c->handle.caps.chunk_all)
            return COMM_ERR_CONFIG;
        c->peer[i].channel = o.channel;
        c->peer[i].name = o.name;
        first = i ? first : o.channel;
        bool near = sim_host_of(team->world[i]) == sim_host_of(team->world[c->rank]);
        calls[i] = near ? o.channel->handle.calls : NULL;
        one_host &= near;
        c->peer[i].elsewhere = c->wire->across && near;
    }
    c->world = team->world;
    c->handle.board = one_host ? &first->board : NULL;
    return COMM_OK;
}

static void forget(struct frames_channel *c)
{
    for (uint32_t i = 0; i < FRAMES_BUCKETS; i++)
        while (c->slot[i])
            slot_drop(c, c->slot[i]);
    frames_message_forget(c);
    c->events = 0;
}

void frames_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct frames_channel *c = frames_of(channel);

    sim_point();
    if (c->out)
        frames_send(c);
    c->aborted = true;
    forget(c);
    if (how == WIRE_CLOSE && !c->closed)
        c->wire->channel[stale_place(c->name)] = NULL;
    c->closed = c->closed || how == WIRE_CLOSE;
}

enum comm_result frames_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                             void *offer, struct wire_channel **channel)
{
    if (!offers)
        return make((struct frames_wire *)wire, team, limits, offer, channel);
    enum comm_result r = connect(frames_of(*channel), team, offers);
    if (r != COMM_OK) {
        frames_leave(*channel, WIRE_CLOSE);
        *channel = NULL;
    }
    return r;
}
