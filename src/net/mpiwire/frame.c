/* The memory of frames, how they are sent, and events. A long frame is two messages of MPI, so that no receiver must ask how long the next
 * one is. */
#include "net/mpiwire/mpiwire.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS_FIRST = 64 };

/* How long after a member's end its last frames may still be in flight in MPI. */
#define LAST_FRAMES_NS INT64_C(500000000)
/* MPI may refuse frames of a dead rank, or one that cannot be reached, so much earlier than the guard reports it. */
#define GUARD_SAYS_NS INT64_C(10000000000)

/* ------------------------------------------------------------------------------------------------------------ blocks */
struct mpiwire_block *mpiwire_block_take(struct mpiwire *w, size_t payload)
{
    uint32_t class = 7;

    while ((UINT64_C(1) << class) < payload)
        class ++;
    struct mpiwire_block *b = class < MPIWIRE_CLASSES ? w->spare[class] : NULL;
    if (b)
        w->spare[class] = b->next;
    else if (class < MPIWIRE_CLASSES)
        b = aligned_alloc(64, ((size_t)1 << class) + MPIWIRE_HEAD + sizeof(struct mpiwire_block));
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
static bool start(struct mpiwire *w, const void *at, size_t bytes, int32_t to, int tag, MPI_Request *request)
{
    return !mpi_is_over() && MPI_Isend(at, (int)bytes, MPI_BYTE, to, tag, w->world->base, request) == MPI_SUCCESS;
}

/* Whether a payload is a message of its own. */
static bool is_apart(size_t payload)
{
#ifdef MPICH_VERSION
    if (mpiwire_is_just_at_once(payload))
        return true;
#endif
    return payload > MPIWIRE_WHOLE;
}

/* False: MPI refused a part. The block is freed with those of ended sends. */
static bool start_sends(struct mpiwire *w, struct mpiwire_block *b, size_t payload, int32_t to)
{
    bool is_long = is_apart(payload);

    if (!start(w, b->frame, MPIWIRE_HEAD + (is_long ? 0 : payload), to, MPIWIRE_TAG, is_long ? &b->head : &b->request))
        return false;
    b->open = is_long ? MPIWIRE_OPEN_HEAD : MPIWIRE_OPEN_REQUEST;
    if (!is_long)
        return true;
    if (!start(w, mpiwire_payload(b), payload, to, MPIWIRE_TAG_LONG, &b->request))
        return false;
    b->open |= MPIWIRE_OPEN_REQUEST;
    return true;
}

void mpiwire_sends(struct mpiwire *w, struct mpiwire_block *b)
{
    b->next = NULL;
    *w->sending_last = b;
    w->sending_last = &b->next;
}

void mpiwire_start(struct mpiwire *w, int32_t to, struct mpiwire_block *b, size_t payload)
{
    b->peer = to;
    if (!start_sends(w, b, payload, to))
        mpiwire_refused(w, b);
    mpiwire_sends(w, b);
    w->unasked++;
}

/* Whether an operation needs the frame; the others only make room, or hurry. */
static bool is_needed(const struct mpiwire_head *head)
{
    return head->kind != MPIWIRE_ACK && head->kind != MPIWIRE_RETIRED && head->kind != MPIWIRE_CONSUMED && head->kind != MPIWIRE_NOTED;
}

void mpiwire_send(struct mpiwire_channel *c, uint32_t peer, struct mpiwire_block *b)
{
    struct mpiwire *w = c->wire;
    struct mpiwire_member *m = &c->member[peer];
    struct mpiwire_head *head = mpiwire_head_of(b);

    head->id = c->id;
    head->from = (uint16_t)c->rank;
    head->retired = c->retired;
    if (m->retired_told != c->retired) { /* the frame tells it something new, which answers what it asked */
        m->room = 0;
        m->wants = false;
    }
    m->retired_told = c->retired;
    m->unsent |= mpi_is_over() && is_needed(head);
    atomic_store_explicit(&c->traffic.out, atomic_load_explicit(&c->traffic.out, memory_order_relaxed) + MPIWIRE_HEAD + head->bytes,
                          memory_order_relaxed); /* written under the lock */
    mpiwire_start(w, c->world[peer], b, head->bytes);
}

bool mpiwire_post(struct mpiwire_channel *c, uint32_t peer, enum mpiwire_kind kind, wire_key key, uint32_t tag, const void *payload,
                  size_t bytes)
{
    struct mpiwire_block *b = mpiwire_block_take(c->wire, bytes);

    if (!b)
        return false;
    if (bytes)
        memcpy(mpiwire_payload(b), payload, bytes);
    *mpiwire_head_of(b) = (struct mpiwire_head){.key = key, .tag = tag, .kind = (uint16_t)kind, .bytes = bytes};
    mpiwire_send(c, peer, b);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ lost frames */
void mpiwire_break(struct mpiwire_channel *c, uint32_t peer, enum comm_result result, bool deaf)
{
    struct mpiwire_member *m = &c->member[peer];

    m->deaf |= deaf;
    if (m->broken && (m->broken != COMM_ERR_BACKEND || result == COMM_ERR_BACKEND)) /* the others are reported at once */
        return;
    m->broken = (int32_t)result;
    m->broken_ns = result == COMM_ERR_BACKEND ? c->wire->env->now(c->wire->env) + GUARD_SAYS_NS : 0;
    c->wire->goners++; /* so that each pass looks for it */
}

void mpiwire_stray(struct mpiwire *w, int32_t rank, enum comm_result result)
{
    for (struct mpiwire_channel *c = w->channels; c; c = c->next)
        for (uint32_t i = 0; i < c->size && !c->aborted && !c->by_guard; i++)
            if (rank < 0 ? w->joined[c->world[i]] : c->world[i] == rank)
                mpiwire_break(c, i, result, rank >= 0);
}

void mpiwire_refused(struct mpiwire *w, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    struct mpiwire_channel *c = mpiwire_find(w, head->id);

    for (uint32_t i = 0; c && i < c->size && head->kind != MPIWIRE_NOTED && !mpi_is_over(); i++)
        if (c->world[i] == b->peer)
            mpiwire_break(c, i, COMM_ERR_BACKEND, false);
}

/* ------------------------------------------------------------------------------------------------------------ events */
/* False: no memory. */
static bool tell(struct mpiwire_channel *c, const struct wire_event *event)
{
    if (c->events == c->events_room) {
        uint32_t room = c->events_room ? 2 * c->events_room : EVENTS_FIRST;
        struct wire_event *more = malloc(room * sizeof *more);
        if (!more)
            return false;
        for (uint32_t i = 0; i < c->events; i++)
            more[i] = c->event[(c->events_first + i) % c->events_room];
        free(c->event);
        c->event = more;
        c->events_first = 0;
        c->events_room = room;
    }
    c->event[(c->events_first + c->events++) % c->events_room] = *event;
    return true;
}

void mpiwire_tell(struct mpiwire_channel *c, const struct wire_event *event)
{
    if (!tell(c, event))
        mpiwire_break(c, (uint32_t)event->peer, COMM_ERR_MEMORY, true);
}

/* Without memory the next pass, which has taken events, tells it. */
static void lose(struct mpiwire_channel *c, uint32_t peer, wire_key key)
{
    struct wire_event event = c->wire->gone[c->world[peer]];

    if (c->member[peer].lost)
        return;
    if (!event.kind) { /* it is this rank's: it has no memory, or the program has called MPI_Finalize; but wrong frames are the peer's */
        event.result = c->member[peer].broken ? c->member[peer].broken : COMM_ERR_STATE;
        event.tag = event.result == COMM_ERR_CORRUPT ? WIRE_SILENT : WIRE_GAVE_UP;
    }
    event.kind = WIRE_EVENT_LOST;
    event.peer = (int32_t)peer;
    event.key = key;
    c->member[peer].lost = tell(c, &event);
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
    if (c->member[peer].unsent)
        lose(c, peer, 0);
}

void mpiwire_lose(struct mpiwire_channel *c)
{
    int64_t now = c->wire->env->now(c->wire->env);

    for (uint32_t i = 0; i < c->size; i++) {
        int32_t world = c->world[i];
        bool gone = c->wire->gone[world].kind && now - c->wire->gone_ns[world] > LAST_FRAMES_NS;
        if (c->member[i].broken && now >= c->member[i].broken_ns)
            lose(c, i, 0);
        else if (!c->member[i].lost && (gone || mpi_is_over()))
            lose_peer(c, i);
    }
}
