/*
 * Messages. A short one is sent at once if its receiver has room for one more unreceived message. For a longer one only the length is sent,
 * and its bytes follow in pieces when the receiver has granted them. The pieces are copied on both sides, with a few in flight at a time,
 * so that after a failure MPI holds no memory of the user.
 */
#include "net/mpiwire/mpiwire.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

static struct mpiwire_message *find(struct mpiwire_message *list, uint32_t peer, uint32_t number)
{
    while (list && (list->peer != peer || wire_key_seq(list->key) != number))
        list = list->next;
    return list;
}

static struct mpiwire_message *make(struct mpiwire_channel *c, struct mpiwire_message **list)
{
    struct mpiwire *w = c->wire;
    struct mpiwire_message *m = w->spare_messages;

    if (m)
        w->spare_messages = m->next;
    else
        m = malloc(sizeof *m);
    if (!m)
        return NULL;
    *m = (struct mpiwire_message){.next = *list, .channel = c};
    *list = m;
    return m;
}

static void give(struct mpiwire *w, struct mpiwire_message *m)
{
    if (m->block)
        mpiwire_block_give(w, m->block);
    m->next = w->spare_messages;
    w->spare_messages = m;
}

static void drop(struct mpiwire_channel *c, struct mpiwire_message **list, struct mpiwire_message *m)
{
    while (*list != m)
        list = &(*list)->next;
    *list = m->next;
    m->channel = NULL;
    if (!m->ahead) /* otherwise the last piece that has left frees it */
        give(c->wire, m);
}

void mpiwire_messages_forget(struct mpiwire_channel *c)
{
    while (c->sent)
        drop(c, &c->sent, c->sent);
    while (c->arrived)
        drop(c, &c->arrived, c->arrived);
}

static uint32_t room_of(uint64_t bytes)
{
    return bytes > MPIWIRE_INLINE ? (uint32_t)bytes : 0;
}

static void tell_done(struct mpiwire_channel *c, const struct mpiwire_message *m)
{
    mpiwire_tell(c, &(struct wire_event){
                        .kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = m->cookie, .peer = (int32_t)m->peer, .bytes = m->take});
}

/* ------------------------------------------------------------------------------------------------------------ sending */
enum wire_result mpiwire_expose_message(struct mpiwire_channel *c, const struct wire_expose *e)
{
    uint32_t peer = e->peers[0], number = wire_key_seq(e->key);
    struct mpiwire_member *m = &c->member[peer];
    struct wire_span span = e->nspans ? e->spans[0] : (struct wire_span){NULL, 0};
    uint64_t bytes = span.bytes;
    uint32_t room = room_of(bytes);

    if (number - m->consumed > c->handle.caps.window) {
        mpiwire_look(c);
        if (number - m->consumed > c->handle.caps.window)
            return WIRE_AGAIN;
    }
    if (bytes <= MPIWIRE_EAGER && !c->rendezvous && !e->there && m->room_sent - m->room_taken + room <= MPIWIRE_EAGER_ROOM) {
        if (!mpiwire_post(c, peer, MPIWIRE_SHORT, e->key, e->fingerprint, span.at, bytes))
            return WIRE_AGAIN;
        m->room_sent += room;
        return WIRE_DONE;
    }
    struct mpiwire_message *message = make(c, &c->sent);
    if (!message)
        return WIRE_AGAIN;
    if (!mpiwire_post(c, peer, MPIWIRE_ANNOUNCE, e->key, e->fingerprint, &bytes, sizeof bytes)) {
        drop(c, &c->sent, message);
        return WIRE_AGAIN;
    }
    message->key = e->key;
    message->peer = peer;
    message->bytes = bytes;
    message->cookie = e->cookie;
    message->there = e->there;
    message->at = (char *)(uintptr_t)span.at;
    return WIRE_PENDING;
}

/* The length of the next piece; 0: its bytes are not there yet. */
static uint64_t next_piece(const struct mpiwire *w, const struct mpiwire_message *m)
{
    uint64_t there = m->there ? atomic_load_explicit(m->there, memory_order_acquire) : m->take;
    uint64_t left = (there < m->take ? there : m->take) - m->done;

    return left < w->piece ? left : w->piece;
}

/* Sends as many pieces as may be in flight. The user may reuse the buffer when the last piece has been copied. */
static void send_pieces(struct mpiwire_channel *c, struct mpiwire_message *m)
{
    uint32_t ahead = mpiwire_is_near(c->wire) ? MPIWIRE_DATA_AHEAD_NEAR : MPIWIRE_DATA_AHEAD;

    m->lacks = false;
    while (m->done < m->take && m->ahead < ahead) {
        uint64_t bytes = next_piece(c->wire, m);
        if (!bytes) {
            m->lacks = c->lacks = c->wire->lacks = true;
            return;
        }
        struct mpiwire_block *b = mpiwire_block_take(c->wire, bytes);
        if (!b && m->ahead)
            return; /* memory is free again when a piece has left */
        if (!b) {   /* each pass asks for memory again */
            m->lacks = c->lacks = c->wire->lacks = true;
            return;
        }
        memcpy(mpiwire_payload(b), m->at + m->done, bytes);
        m->done += bytes;
        m->ahead++;
        c->wire->pieces++;
        b->piece_of = m;
        *mpiwire_head_of(b) = (struct mpiwire_head){.key = m->key, .kind = MPIWIRE_PIECE, .bytes = bytes};
        mpiwire_send(c, m->peer, b);
    }
    if (m->done < m->take)
        return;
    tell_done(c, m);
    drop(c, &c->sent, m);
}

void mpiwire_piece_left(struct mpiwire *w, struct mpiwire_message *m)
{
    m->ahead--;
    w->pieces--;
    if (m->channel)
        send_pieces(m->channel, m);
    else if (!m->ahead)
        give(w, m);
}

static void granted(struct mpiwire_channel *c, uint32_t peer, const struct mpiwire_head *head, const char *payload)
{
    struct mpiwire_message *m = find(c->sent, peer, wire_key_seq(head->key));
    uint64_t take;

    memcpy(&take, payload, sizeof take);
    bool wrong = m && (m->granted || take > m->bytes);
    if (wrong)
        mpiwire_break(c, peer, COMM_ERR_CORRUPT, true);
    if (!m || wrong)
        return;
    m->granted = true;
    m->take = take;
    c->due = c->wire->due = true;
}

static void send_due(struct mpiwire_channel *c)
{
    struct mpiwire_message *m, *next;

    c->due = c->lacks = false;
    for (m = c->sent; m; m = next) {
        next = m->next;
        if (m->granted && (!m->done || m->lacks))
            send_pieces(c, m);
    }
}

/* A grant is answered when the pass has made its calls, so the grants that it gives leave before the pieces that it sends. A receiver
 * handles a rank's frames in order, and MPI copies a piece when its receive begins: a grant behind pieces would wait for all of them. */
void mpiwire_send_due(struct mpiwire *w)
{
    w->due = w->lacks = false;
    for (struct mpiwire_channel *c = w->channels; c; c = c->next)
        if ((c->due || c->lacks) && !c->aborted)
            send_due(c);
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
/* False: the caller keeps the block. Messages are numbered: without this one no later message of that rank could be received. */
static bool announced(struct mpiwire_channel *c, uint32_t peer, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    bool whole = head->kind == MPIWIRE_SHORT;
    struct mpiwire_message *m = make(c, &c->arrived);

    if (!m) {
        mpiwire_break(c, peer, COMM_ERR_MEMORY, true);
        return false;
    }
    m->key = head->key;
    m->peer = peer;
    m->tag = head->tag;
    m->bytes = head->bytes;
    m->room = whole ? room_of(head->bytes) : 0;
    m->block = whole ? b : NULL;
    if (!whole)
        memcpy(&m->bytes, mpiwire_payload(b), sizeof m->bytes);
    mpiwire_tell(
        c,
        &(struct wire_event){
            .kind = WIRE_EVENT_ANNOUNCED, .result = WIRE_MESSAGE, .key = m->key, .peer = (int32_t)peer, .tag = m->tag, .bytes = m->bytes});
    return whole;
}

static void piece_came(struct mpiwire_channel *c, uint32_t peer, const struct mpiwire_head *head, const char *payload)
{
    struct mpiwire_message *m = find(c->arrived, peer, wire_key_seq(head->key));

    bool wrong = m && (!m->granted || head->bytes > m->take - m->done);

    if (wrong)
        mpiwire_break(c, peer, COMM_ERR_CORRUPT, true);
    if (!m || wrong)
        return;
    memcpy(m->at + m->done, payload, head->bytes);
    m->done += head->bytes;
    if (m->came)
        atomic_store_explicit(m->came, m->done, memory_order_release);
    if (m->done < m->take)
        return;
    tell_done(c, m);
    drop(c, &c->arrived, m);
}

void mpiwire_message_came(struct mpiwire_channel *c, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    struct mpiwire_member *m = &c->member[head->from];
    bool has_length = head->bytes == sizeof(uint64_t), kept = false;

    if (head->kind == MPIWIRE_SHORT || (head->kind == MPIWIRE_ANNOUNCE && has_length)) {
        kept = announced(c, head->from, b);
    } else if (head->kind == MPIWIRE_GRANT && has_length) {
        granted(c, head->from, head, mpiwire_payload(b));
    } else if (head->kind == MPIWIRE_PIECE) {
        piece_came(c, head->from, head, mpiwire_payload(b));
    } else if (head->kind == MPIWIRE_CONSUMED) {
        m->consumed = wire_key_seq(head->key);
        m->room_taken = head->tag;
    } else {
        mpiwire_break(c, head->from, COMM_ERR_CORRUPT, true);
    }
    if (!kept)
        mpiwire_block_give(c->wire, b);
}

enum wire_result mpiwire_view_message(struct mpiwire_channel *c, const struct wire_look *l)
{
    struct mpiwire_message *m = find(c->arrived, l->peer, wire_key_seq(l->key));
    uint64_t take = l->flags & WIRE_DISCARD ? 0 : l->bytes;

    BASE_ASSERT(m && !m->granted && take <= m->bytes);
    if (m->block) {
        if (take)
            memcpy(l->land, mpiwire_payload(m->block), take);
        c->member[l->peer].taken += m->room;
        c->owes |= mpiwire_owes(c, &c->member[l->peer]);
        drop(c, &c->arrived, m);
        return WIRE_DONE;
    }
    if (!mpiwire_post(c, l->peer, MPIWIRE_GRANT, l->key, 0, &take, sizeof take))
        return WIRE_AGAIN;
    if (!take) {
        drop(c, &c->arrived, m);
        return WIRE_DONE;
    }
    m->granted = true;
    m->take = take;
    m->at = l->land;
    m->came = l->came;
    m->cookie = l->cookie;
    return WIRE_PENDING;
}

void mpiwire_tell_consumed(struct mpiwire_channel *c)
{
    c->owes = false;
    for (uint32_t i = 0; i < c->size; i++) {
        struct mpiwire_member *m = &c->member[i];
        if (!mpiwire_owes(c, m))
            continue;
        if (!mpiwire_post(c, i, MPIWIRE_CONSUMED, wire_key_of(m->seen, 0, 0), m->taken, NULL, 0)) {
            c->owes = true;
            continue;
        }
        m->seen_told = m->seen;
        m->taken_told = m->taken;
    }
}
