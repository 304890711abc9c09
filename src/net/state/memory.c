/* Memory of the tcp wire: pools of blocks by size, and small records. It only grows until a channel or the wire ends, so nothing is
 * allocated after the first operations. */
#include "net/state/memory.h"

#include "base/check.h"
#include "net/state/await.h"

/* ------------------------------------------------------------------------------------------------------------ blocks */
static size_t block_bytes(uint32_t order)
{
    return sizeof(struct tcp_block) + ((size_t)1 << order);
}

struct tcp_block *tcp_block_take(struct tcp_wire *w, size_t bytes)
{
    uint32_t order = TCP_ORDER_LEAST;

    while (((size_t)1 << order) < bytes)
        order++;
    BASE_ASSERT(order <= TCP_ORDER_MOST);
    struct tcp_block *b = w->memory.free_block[order];
    if (b)
        w->memory.free_block[order] = b->next;
    else
        b = w->env->take(w->env, block_bytes(order), 64);
    if (!b)
        return NULL;
    b->next = NULL;
    b->channel = NULL;
    b->hold = NULL;
    b->user = NULL;
    b->user_bytes = 0;
    b->bytes = 0;
    b->order = order;
    tcp_block_bound(b, bytes);
    return b;
}

void tcp_block_give(struct tcp_wire *w, struct tcp_block *block)
{
    tcp_block_bound(block, 0);
    block->next = w->memory.free_block[block->order];
    w->memory.free_block[block->order] = block;
}

/* ------------------------------------------------------------------------------------------------------------ slots */
static struct tcp_slot **bucket_of(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    uint64_t h = (key ^ (uint64_t)peer << 20) * UINT64_C(0x9e3779b97f4a7c15);

    return &c->slots.bucket[h >> 58];
}
_Static_assert(TCP_BUCKETS == 1 << (64 - 58), "the hash names a bucket, and a word has a bit for each");

struct tcp_slot *tcp_slot_find(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    struct tcp_slot *s = *bucket_of(c, peer, key);

    while (s && (s->key != key || s->peer != peer))
        s = s->next;
    return s;
}

struct tcp_slot *tcp_slot_make(struct tcp_channel *c, uint32_t peer, wire_key key)
{
    const struct comm_env *env = c->wire->env;
    struct tcp_slot **bucket = bucket_of(c, peer, key), *s = c->slots.free;

    if (s)
        c->slots.free = s->next;
    else
        s = env->take(env, sizeof *s, 64);
    if (!s)
        return NULL;
    s->next = *bucket;
    s->key = key;
    s->peer = peer;
    s->tag = 0;
    s->total = 0;
    s->block = NULL;
    s->begun = s->whole = s->asked = s->differs = false;
    *bucket = s;
    c->slots.filled |= UINT64_C(1) << (bucket - c->slots.bucket);
    c->slots.live++;
    return s;
}

static void give_slot(struct tcp_channel *c, struct tcp_slot *s)
{
    if (s->asked)
        tcp_await(c, s->peer, tcp_lane_for(s->look.bytes), false);
    if (s->block)
        tcp_block_give(c->wire, s->block);
    s->next = c->slots.free;
    c->slots.free = s;
    c->slots.live--;
}

void tcp_slot_drop(struct tcp_channel *c, struct tcp_slot *slot)
{
    struct tcp_slot **at = bucket_of(c, slot->peer, slot->key);

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    give_slot(c, slot);
}

void tcp_slots_retire(struct tcp_channel *c, uint32_t seq)
{
    for (uint64_t filled = c->slots.filled; filled; filled &= filled - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(filled);
        struct tcp_slot **at = &c->slots.bucket[i];
        while (*at) {
            struct tcp_slot *s = *at;
            if (!tcp_reached(seq, wire_key_seq(s->key)) || (s->begun && !s->whole)) { /* it has arrived in part: retire it later */
                at = &s->next;
                continue;
            }
            *at = s->next;
            give_slot(c, s);
        }
        if (!c->slots.bucket[i])
            c->slots.filled &= ~(UINT64_C(1) << i);
    }
}

/* ------------------------------------------------------------------------------------------------------------ messages and holds */
struct tcp_message *tcp_message_make(struct tcp_channel *c, bool sent)
{
    const struct comm_env *env = c->wire->env;
    struct tcp_message *m = c->messages.free, ***last = sent ? &c->messages.sent_last : &c->messages.arrived_last;

    if (m)
        c->messages.free = m->next;
    else
        m = env->take(env, sizeof *m, 64);
    if (!m)
        return NULL;
    *m = (struct tcp_message){.next = NULL};
    **last = m;
    *last = &m->next;
    return m;
}

void tcp_message_drop(struct tcp_channel *c, bool sent, struct tcp_message *m)
{
    struct tcp_message **at = sent ? &c->messages.sent : &c->messages.arrived,
                       ***last = sent ? &c->messages.sent_last : &c->messages.arrived_last;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    if (*last == &m->next)
        *last = at;
    if (m->block)
        tcp_block_give(c->wire, m->block);
    m->next = c->messages.free;
    c->messages.free = m;
}

struct tcp_hold *tcp_hold_make(struct tcp_channel *c)
{
    const struct comm_env *env = c->wire->env;
    struct tcp_hold *h = c->free_hold;

    if (h)
        c->free_hold = h->next;
    else
        h = env->take(env, sizeof *h, 64);
    return h;
}

void tcp_hold_drop(struct tcp_channel *c, struct tcp_hold *hold)
{
    hold->next = c->free_hold;
    c->free_hold = hold;
}

/* ------------------------------------------------------------------------------------------------------------ events */
/* Doubles the list of events. Without memory, events would be lost, so the process ends (tcp_tell). */
static bool grow(struct tcp_channel *c)
{
    const struct comm_env *env = c->wire->env;
    uint32_t room = c->events.room ? 2 * c->events.room : 64;
    struct wire_event *more = env->take(env, room * sizeof *more, 64);

    if (!more)
        return false;
    for (uint32_t i = 0; i < c->events.count; i++)
        more[i] = c->events.at[(c->events.first + i) % c->events.room];
    env_give_back(env, c->events.at, c->events.room * sizeof *more);
    c->events.at = more;
    c->events.first = 0;
    c->events.room = room;
    return true;
}

void tcp_tell(struct tcp_channel *c, const struct wire_event *event)
{
    struct tcp_wire *w = c->wire;

    if (c->events.count == c->events.room && !grow(c)) {
        base_log(w->log, LOG_ERROR, "no memory for %u events of the network", 2 * c->events.room);
        w->env->panic(w->env, "tcp: an event is lost");
    }
    c->events.at[(c->events.first + c->events.count++) % c->events.room] = *event;
    if (c->urges && w->wire.asks)
        atomic_fetch_or_explicit(w->wire.asks, WIRE_ASKED, memory_order_release);
}

void tcp_memory_end(struct tcp_channel *c)
{
    const struct comm_env *env = c->wire->env;

    for (struct tcp_slot *s = c->slots.free, *next; s; s = next) {
        next = s->next;
        env->give(env, s, sizeof *s);
    }
    for (struct tcp_message *m = c->messages.free, *next; m; m = next) {
        next = m->next;
        env->give(env, m, sizeof *m);
    }
    for (struct tcp_hold *h = c->free_hold, *next; h; h = next) {
        next = h->next;
        env->give(env, h, sizeof *h);
    }
    env_give_back(env, c->events.at, c->events.room * sizeof *c->events.at);
}
