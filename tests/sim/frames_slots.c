/* The simulated network wire: what has arrived and was not requested yet, or is requested and has not arrived; and the events to return. */
#include "sim/frames.h"

#include "base/check.h"

static struct slot **bucket_of(struct frames_channel *c, uint32_t peer, wire_key key)
{
    uint64_t h = (key ^ (uint64_t)peer << 20) * UINT64_C(0x9e3779b97f4a7c15);

    return &c->slot[h >> 56];
}

struct slot *slot_find(struct frames_channel *c, uint32_t peer, wire_key key, bool make)
{
    struct slot **list = bucket_of(c, peer, key), *s = *list;

    while (s && (s->peer != peer || s->key != key))
        s = s->next;
    if (s || !make)
        return s;
    s = sim_memory_take(sizeof *s, 64);
    BASE_ASSERT(s);
    *s = (struct slot){.next = *list, .peer = peer, .key = key};
    return *list = s;
}

/* Poisoned, so that a read after the release is detected. */
static void slot_free(struct slot *s)
{
    if (s->data)
        sim_memory_give(s->data, s->memory, true);
    sim_memory_give(s, sizeof *s, true);
}

void slot_drop(struct frames_channel *c, struct slot *slot)
{
    struct slot **at = bucket_of(c, slot->peer, slot->key);

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    slot_free(slot);
}

void slot_drop_until(struct slot **at, uint32_t seq)
{
    while (*at) {
        struct slot *s = *at;
        if (!frames_reached(seq, wire_key_seq(s->key))) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        slot_free(s);
    }
}

void frames_event(struct frames_channel *c, const struct wire_event *event)
{
    if (c->events == c->events_room) {
        uint32_t room = c->events_room ? 2 * c->events_room : 64;
        struct wire_event *more = sim_memory_take(room * sizeof *more, 64);
        BASE_ASSERT(more);
        for (uint32_t i = 0; i < c->events; i++)
            more[i] = c->event[(c->events_first + i) % c->events_room];
        if (c->event)
            sim_memory_give(c->event, c->events_room * sizeof *more, true);
        c->event = more;
        c->events_first = 0;
        c->events_room = room;
    }
    c->event[(c->events_first + c->events++) % c->events_room] = *event;
}
