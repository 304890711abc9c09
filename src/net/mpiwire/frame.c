/* The memory of frames, and how they are sent and received. Frames of one rank are processed in the order in which it sent them, because
 * messages are numbered. Frames of different ranks are processed in any order. */
#include "net/mpiwire/mpiwire.h"

#include <stdlib.h>
#include <string.h>

enum { FRAMES_A_TURN = 64, EVENTS_FIRST = 64 };

/* How long after a member's end its last frames may still be in flight in MPI. */
#define LAST_FRAMES_NS INT64_C(500000000)

/* ------------------------------------------------------------------------------------------------------------ blocks */
struct mpiwire_block *mpiwire_block_take(struct mpiwire *w, size_t payload)
{
    uint32_t class = 8;

    while ((UINT64_C(1) << class) < payload + MPIWIRE_HEAD + sizeof(struct mpiwire_block))
        class ++;
    struct mpiwire_block *b = class < MPIWIRE_CLASSES ? w->spare[class] : NULL;
    if (b)
        w->spare[class] = b->next;
    else if (class < MPIWIRE_CLASSES)
        b = aligned_alloc(64, (size_t)1 << class);
    if (b)
        *b = (struct mpiwire_block){.class = class};
    return b;
}

void mpiwire_block_give(struct mpiwire *w, struct mpiwire_block *b)
{
    b->next = w->spare[b->class];
    w->spare[b->class] = b;
}

/* ------------------------------------------------------------------------------------------------------------ leaving */
void mpiwire_send(struct mpiwire_channel *c, uint32_t peer, struct mpiwire_block *b, struct mpiwire_head head)
{
    struct mpiwire *w = c->wire;
    struct mpiwire_member *m = &c->member[peer];

    head.id = c->id;
    head.from = (uint16_t)c->rank;
    head.retired = c->retired;
    if (m->retired_told != c->retired) /* the frame tells it something new, which answers what it asked */
        m->sends = m->wants = false;
    m->retired_told = c->retired;
    *mpiwire_head_of(b) = head;
    atomic_fetch_add_explicit(&c->traffic.out, MPIWIRE_HEAD + head.bytes, memory_order_relaxed);
    if (MPI_Isend(b->frame, (int)(MPIWIRE_HEAD + head.bytes), MPI_BYTE, c->world[peer], MPIWIRE_TAG, w->world->base, &b->request) !=
        MPI_SUCCESS) { /* the rank is dead: the guard reports it */
        mpiwire_block_give(w, b);
        return;
    }
    b->next = NULL;
    *w->sending_last = b;
    w->sending_last = &b->next;
}

bool mpiwire_post(struct mpiwire_channel *c, uint32_t peer, enum mpiwire_kind kind, wire_key key, uint32_t tag, const void *payload,
                  size_t bytes)
{
    struct mpiwire_block *b = mpiwire_block_take(c->wire, bytes);

    if (!b)
        return false;
    if (bytes)
        memcpy(mpiwire_payload(b), payload, bytes);
    mpiwire_send(c, peer, b, (struct mpiwire_head){.key = key, .tag = tag, .kind = (uint16_t)kind, .bytes = bytes});
    return true;
}

/* Sends complete in any order, so a rank that receives nothing does not delay the others. */
static void reap_sends(struct mpiwire *w)
{
    struct mpiwire_block **at = &w->sending, *b;

    for (int turns = 0; (b = *at) && turns < FRAMES_A_TURN; turns++) {
        int left = 0;
        if (MPI_Test(&b->request, &left, MPI_STATUS_IGNORE) == MPI_SUCCESS && !left) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        if (!*at)
            w->sending_last = at;
        struct mpiwire_message *m = b->piece_of;
        mpiwire_block_give(w, b);
        w->moved = true;
        if (m)
            mpiwire_piece_left(w, m);
    }
}

/* ------------------------------------------------------------------------------------------------------------ coming */
static struct mpiwire_channel *channel_of(struct mpiwire *w, uint64_t id)
{
    struct mpiwire_channel *c = w->channels;

    while (c && c->id != id)
        c = c->next;
    return c;
}

/* Drops frames of channels that were left, and frames that no rank of this library would send. */
static void took(struct mpiwire *w, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    struct mpiwire_channel *c = b->length >= MPIWIRE_HEAD ? channel_of(w, head->id) : NULL;
    bool sound = c && !c->aborted && head->from < c->size && head->from != c->rank && c->world[head->from] == b->source &&
                 head->bytes == b->length - MPIWIRE_HEAD;

    w->moved = true;
    w->came = true;
    if (!sound) {
        mpiwire_block_give(w, b);
        return;
    }
    struct mpiwire_member *m = &c->member[head->from];
    atomic_fetch_add_explicit(&c->traffic.in, b->length, memory_order_relaxed);
    if (head->retired != m->retired && mpiwire_reached(head->retired, m->retired)) {
        m->retired = head->retired;
        m->wanted = false; /* this is the answer; the next lack of room asks again */
    }
    switch (head->kind) {
    case MPIWIRE_EXPOSE:
        m->sends = true;
        mpiwire_exposed(c, b);
        return;
    case MPIWIRE_ACK:
        if (head->key)
            *mpiwire_ack_of(c, head->from, head->key) = head->key;
        break;
    case MPIWIRE_RETIRED:
        break;
    case MPIWIRE_WANT:
        m->wants = true;
        if (c->retired != m->retired_told)
            (void)mpiwire_post(c, head->from, MPIWIRE_RETIRED, 0, 0, NULL, 0);
        break;
    default:
        mpiwire_message_came(c, b);
        return;
    }
    mpiwire_block_give(w, b);
}

static void take_received(struct mpiwire *w)
{
    struct mpiwire_block **at = &w->receiving, *b;

    w->turn++;
    while ((b = *at)) {
        int here = 0, code = MPI_SUCCESS;
        if (w->behind[b->source] != w->turn)
            code = MPI_Test(&b->request, &here, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !here) {
            w->behind[b->source] = w->turn;
            at = &b->next;
            continue;
        }
        *at = b->next;
        if (!*at)
            w->receiving_last = at;
        if (code == MPI_SUCCESS)
            took(w, b);
        else
            mpiwire_block_give(w, b); /* lost because its rank died; the guard reports that */
    }
}

/* No other receive uses this tag, so the receive gets the message that the probe found. */
static bool begin_receive(struct mpiwire *w)
{
    MPI_Status status;
    int found = 0, bytes = 0;

    if (MPI_Iprobe(MPI_ANY_SOURCE, MPIWIRE_TAG, w->world->base, &found, &status) != MPI_SUCCESS || !found)
        return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    struct mpiwire_block *b = bytes >= 0 ? mpiwire_block_take(w, (size_t)bytes) : NULL;
    if (!b)
        return false; /* it waits in MPI until there is memory */
    b->source = status.MPI_SOURCE;
    b->length = (uint64_t)bytes;
    if (MPI_Irecv(b->frame, bytes, MPI_BYTE, b->source, MPIWIRE_TAG, w->world->base, &b->request) != MPI_SUCCESS) {
        mpiwire_block_give(w, b);
        return false;
    }
    *w->receiving_last = b;
    w->receiving_last = &b->next;
    return true;
}

void mpiwire_progress(struct mpiwire *w)
{
    if (mpi_is_over())
        return;
    for (int i = 0; i < FRAMES_A_TURN && begin_receive(w); i++)
        continue;
    if (w->receiving)
        take_received(w);
    if (w->sending)
        reap_sends(w);
}

/* ------------------------------------------------------------------------------------------------------------ events */
void mpiwire_tell(struct mpiwire_channel *c, const struct wire_event *event)
{
    if (c->events == c->events_room) {
        uint32_t room = c->events_room ? 2 * c->events_room : EVENTS_FIRST;
        struct wire_event *more = malloc(room * sizeof *more);
        if (!more)
            abort(); /* without this event a rank would wait for ever */
        for (uint32_t i = 0; i < c->events; i++)
            more[i] = c->event[(c->events_first + i) % c->events_room];
        free(c->event);
        c->event = more;
        c->events_first = 0;
        c->events_room = room;
    }
    c->event[(c->events_first + c->events++) % c->events_room] = *event;
}

static void lose(struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    struct wire_event event = c->wire->gone[c->world[peer]];

    if (c->member[peer].lost)
        return;
    c->member[peer].lost = true;
    event.kind = WIRE_EVENT_LOST;
    event.peer = (int32_t)peer;
    event.key = key;
    mpiwire_tell(c, &event);
}

static void lose_peer(struct mpiwire_channel *c, uint32_t peer)
{
    const struct mpiwire_slot *oldest = NULL;

    for (uint32_t i = 0; i < MPIWIRE_BUCKETS; i++)
        for (const struct mpiwire_slot *s = c->bucket[i]; s; s = s->next)
            if (s->peer == peer && s->asked && !s->block && (!oldest || mpiwire_reached(wire_key_seq(oldest->key), wire_key_seq(s->key))))
                oldest = s;
    if (oldest)
        lose(c, peer, oldest->key);
    for (const struct mpiwire_message *m = c->arrived; m; m = m->next)
        if (m->granted && m->peer == peer)
            lose(c, peer, 0);
}

void mpiwire_lose(struct mpiwire_channel *c)
{
    int64_t now = c->wire->env->now(c->wire->env);

    for (uint32_t i = 0; i < c->size; i++) {
        int32_t world = c->world[i];
        if (c->wire->gone[world].kind && !c->member[i].lost && now - c->wire->gone_ns[world] > LAST_FRAMES_NS)
            lose_peer(c, i);
    }
}
