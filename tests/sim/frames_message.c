/* Messages over frames: small ones are sent at once, large ones when their receiver has granted them. */
#include "sim/frames.h"

#include "base/check.h"

#include <string.h>

static struct message *find(struct frames_channel *c, bool sent, uint32_t peer, uint32_t number, struct message ***link)
{
    struct message **at = &c->messages;

    while (*at && ((*at)->sent != sent || (*at)->peer != peer || wire_key_seq((*at)->key) != number))
        at = &(*at)->next;
    if (link)
        *link = at;
    return *at;
}

static struct message *add(struct frames_channel *c, const struct message *how)
{
    struct message *m = sim_memory_take(sizeof *m, 64);

    BASE_ASSERT(m);
    *m = *how;
    m->next = c->messages;
    return c->messages = m;
}

static void drop(struct frames_channel *c, struct message **link)
{
    struct message *m = *link;

    (void)c;
    *link = m->next;
    if (!m->sent && m->data)
        sim_memory_give(m->data, m->bytes + 1, true);
    sim_memory_give(m, sizeof *m, true);
}

void frames_message_forget(struct frames_channel *c)
{
    while (c->messages)
        drop(c, &c->messages);
}

enum wire_result frames_message_expose(struct frames_channel *c, const struct wire_expose *e)
{
    uint32_t peer = e->peers[0], number = wire_key_seq(e->key);
    struct frames_peer *p = &c->peer[peer];
    struct wire_span span = e->nspans ? e->spans[0] : (struct wire_span){NULL, 0};
    bool eager = span.bytes <= FRAMES_INLINE || (span.bytes <= FRAMES_EAGER && sim_below(&sim.network, 4));

    BASE_ASSERT(!c->aborted && number == p->sent + 1);
    if (number - p->consumed > c->handle.caps.window)
        return WIRE_AGAIN;
    p->sent = number;
    struct frame *f = frame_make(c, peer, eager ? FRAME_EAGER : FRAME_ANNOUNCE, e->key, span.at, eager ? span.bytes : 0);
    f->tag = e->fingerprint;
    f->total = span.bytes;
    frame_post(c, f);
    if (eager)
        return WIRE_DONE;
    add(c, &(struct message){
               .peer = peer, .sent = true, .key = e->key, .bytes = span.bytes, .cookie = e->cookie, .data = (char *)(uintptr_t)span.at});
    return WIRE_PENDING;
}

enum wire_result frames_message_view(struct frames_channel *c, const struct wire_look *l)
{
    struct message **link, *m = find(c, false, l->peer, wire_key_seq(l->key), &link);
    uint64_t take = l->flags & WIRE_DISCARD ? 0 : l->bytes;

    BASE_ASSERT(!c->aborted && m && !m->granted && take <= m->bytes);
    if (m->data || m->bytes == 0) {
        if (take)
            memcpy(l->land, m->data, take);
        drop(c, link);
        return WIRE_DONE;
    }
    struct frame *f = frame_make(c, l->peer, FRAME_GRANT, l->key, NULL, 0);
    f->total = take;
    frame_post(c, f);
    m->granted = true;
    m->take = take;
    m->land = l->land;
    m->cookie = l->cookie;
    if (take)
        return WIRE_PENDING;
    drop(c, link);
    return WIRE_DONE;
}

static void announced(struct frames_channel *c, uint32_t peer, struct frame *f)
{
    struct message how = {.peer = peer, .tag = f->tag, .key = f->key, .bytes = f->total};

    BASE_ASSERT(wire_key_seq(f->key) == c->peer[peer].arrived + 1);
    c->peer[peer].arrived++;
    if (f->kind == FRAME_EAGER) {
        how.data = sim_memory_take(f->total + 1, 64);
        BASE_ASSERT(how.data);
        memcpy(how.data, f->data, f->total);
    }
    add(c, &how);
    frames_event(
        c,
        &(struct wire_event){
            .kind = WIRE_EVENT_ANNOUNCED, .result = WIRE_MESSAGE, .key = f->key, .peer = (int32_t)peer, .tag = f->tag, .bytes = f->total});
}

static void granted(struct frames_channel *c, uint32_t peer, const struct frame *grant)
{
    struct message **link, *m = find(c, true, peer, wire_key_seq(grant->key), &link);

    BASE_ASSERT(m && grant->total <= m->bytes);
    if (grant->total) {
        struct frame *f = frame_make(c, peer, FRAME_DATA, grant->key, m->data, grant->total);
        frame_post(c, f);
        frames_send(c);
    }
    frames_event(c, &(struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = m->cookie, .peer = (int32_t)peer});
    drop(c, link);
}

static void landed(struct frames_channel *c, uint32_t peer, const struct frame *f)
{
    struct message **link, *m = find(c, false, peer, wire_key_seq(f->key), &link);

    BASE_ASSERT(m && m->granted && m->take == f->total);
    memcpy(m->land, f->data, f->total);
    frames_event(c, &(struct wire_event){
                        .kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = m->cookie, .peer = (int32_t)peer, .bytes = f->total});
    drop(c, link);
}

void frames_message_arrive(struct frames_channel *c, uint32_t peer, struct frame *f)
{
    if (c->aborted)
        return;
    switch (f->kind) {
    case FRAME_EAGER:
    case FRAME_ANNOUNCE:
        announced(c, peer, f);
        break;
    case FRAME_GRANT:
        granted(c, peer, f);
        break;
    case FRAME_DATA:
        landed(c, peer, f);
        break;
    default:
        c->peer[peer].consumed = (uint32_t)f->key;
        break;
    }
}
