/* The scenario of messages: all sizes, from all ranks to all, taken out of order. The bytes of some become there while they are sent, where
 * the wire can do that, and of some the receiver follows how many have come. */
#define _GNU_SOURCE
#include "wire/scenarios.h"

#include <string.h>

enum { GROWING_MOST = 8 };

/* Every rank sends `count` messages to every other rank, and takes arrivals in an order of its own. */
struct arrived {
    uint32_t peer, state; /* 1 announced, 2 requested, 3 done */
    wire_key key;
    uint64_t bytes, take;
    unsigned char *land;
    _Atomic uint64_t came;
};
struct sent {
    unsigned char *at;
    uint64_t bytes;
    _Atomic uint64_t there;
    bool grows;
};
struct box {
    struct rank *r;
    uint32_t count, taken, sent[RANKS_MAX], seen[RANKS_MAX], sends_done, sends_all, held;
    struct arrived *list; /* [peer * count + number - 1] */
    struct sent *out;
    uint32_t growing[GROWING_MOST], grow; /* indexes of those of `out` whose bytes are not all there, and how many they are */
};

static uint64_t message_bytes(uint32_t from, uint32_t to, uint32_t number)
{
    static const uint64_t sizes[] = {0, 8, 40, 41, 1000, 4096, 4097, 20000, 65536, 65537, 300000};
    return sizes[(from * 5 + to * 3 + number * 7) % 11];
}
static unsigned char message_byte(uint32_t from, uint32_t number, uint64_t i)
{
    return (unsigned char)(from * 17 + number * 5 + i * 3 + (i >> 10));
}

/* More bytes are there: up to `end`. */
static void add_bytes(struct box *b, uint32_t index, uint64_t end)
{
    struct sent *s = &b->out[index];
    for (uint64_t i = s->there; i < end; i++)
        s->at[i] = message_byte((uint32_t)b->r->rank, index % b->count + 1, i);
    atomic_store_explicit(&s->there, end, memory_order_release);
}

static struct sent *make(struct box *b, uint32_t index, uint64_t bytes)
{
    struct sent *s = &b->out[index];
    if (s->at)
        return s;
    s->at = malloc(bytes + 1);
    s->bytes = bytes;
    s->grows = b->r->ch->caps.takes_growing && b->grow < GROWING_MOST && rank_random(b->r) % 4 == 0;
    if (s->grows)
        b->growing[b->grow++] = index;
    else
        add_bytes(b, index, bytes);
    return s;
}

static void stop_growing(struct box *b, uint32_t index)
{
    for (uint32_t i = 0; i < b->grow; i++)
        if (b->growing[i] == index)
            b->growing[i--] = b->growing[--b->grow];
}

static void grow_some(struct box *b)
{
    for (uint32_t i = 0; i < b->grow; i++) {
        struct sent *s = &b->out[b->growing[i]];
        uint64_t left = s->bytes - s->there, more = left ? rank_random(b->r) % (left + 1) : 0;
        add_bytes(b, b->growing[i], s->there + (left < 100 ? left : more));
    }
}

static bool send_one(struct box *b, uint32_t to)
{
    struct rank *r = b->r;
    if (b->sent[to] == b->count)
        return false;
    uint32_t number = b->sent[to] + 1;
    uint64_t bytes = message_bytes((uint32_t)r->rank, to, number);
    struct sent *out = make(b, to * b->count + number - 1, bytes);
    uint16_t peer = (uint16_t)to;
    struct wire_span span = {out->at, bytes};
    struct wire_expose e = {.key = wire_key_of(number, number % 3, 0),
                            .fingerprint = number * 3,
                            .flags = WIRE_MESSAGE,
                            .peers = &peer,
                            .npeers = 1,
                            .nspans = 1,
                            .spans = &span,
                            .there = out->grows ? &out->there : NULL,
                            .cookie = UINT64_C(1) << 40 | (to * b->count + number - 1)};
    int32_t result = r->ch->class->expose(r->ch, &e);
    CHECK(result >= 0);
    if (result == WIRE_AGAIN)
        return false;
    b->sent[to]++;
    CHECK(result == WIRE_DONE || bytes > 40 || out->grows);
    CHECK(result == WIRE_PENDING || out->there == bytes);
    if (result == WIRE_DONE) { /* the buffer may be reused */
        memset(out->at, 0xee, bytes);
        stop_growing(b, to * b->count + number - 1);
        b->sends_done++;
    }
    return true;
}

static void check_bytes(const struct arrived *a, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++)
        CHECK(a->land[i] == message_byte(a->peer, wire_key_seq(a->key), i));
}

/* What the wire says has come must be there. */
static void check_came(const struct box *b)
{
    const struct arrived *a = &b->list[rank_random(b->r) % (b->count * (uint32_t)b->r->size)];
    uint64_t came = a->state == 2 ? atomic_load_explicit(&a->came, memory_order_acquire) : 0;
    CHECK(came <= a->take);
    check_bytes(a, came < 100 ? 0 : came - 100, came);
}

static void arrived_done(struct box *b, struct arrived *a)
{
    CHECK(a->state == 2 || a->state == 1);
    check_bytes(a, 0, a->take);
    for (uint64_t i = a->take; i < a->bytes; i++)
        CHECK(a->land[i] == 0xaa);
    free(a->land);
    a->state = 3;
    b->taken++;
}

static void take_some(struct box *b)
{
    struct rank *r = b->r;
    uint32_t all = b->count * (uint32_t)r->size, start = (uint32_t)(rank_random(r) % all);
    /* Holds many messages back, so that eager slots and grants run out; takes all once nothing more can come. */
    for (uint32_t i = 0; i < all && b->held > 20 + rank_random(r) % 20; i++) {
        struct arrived *a = &b->list[(start + i) % all];
        if (a->state != 1)
            continue;
        uint32_t way = wire_key_seq(a->key) % 5;
        a->take = way == 4 ? 0 : way == 3 ? a->bytes / 2 : a->bytes;
        if (!a->land) {
            a->land = malloc(a->bytes + 1);
            memset(a->land, 0xaa, a->bytes);
        }
        struct wire_look l = {.key = a->key,
                              .fingerprint = wire_key_seq(a->key) * 3,
                              .flags = (uint16_t)(WIRE_MESSAGE | (way == 4 ? WIRE_DISCARD : 0)),
                              .peer = a->peer,
                              .land = way == 4 ? NULL : a->land,
                              .bytes = a->take,
                              .came = way < 2 ? &a->came : NULL,
                              .cookie = (uint64_t)(a - b->list)};
        int32_t result = r->ch->class->view(r->ch, &l);
        CHECK(result >= 0);
        if (result == WIRE_AGAIN)
            continue;
        b->held--;
        if (result == WIRE_DONE)
            arrived_done(b, a);
        else
            a->state = 2;
    }
}

static void handle(struct box *b, const struct wire_event *e)
{
    if (e->kind == WIRE_EVENT_DONE && e->cookie >> 40) {
        uint32_t index = (uint32_t)e->cookie, to = index / b->count, number = index % b->count + 1;
        memset(b->out[index].at, 0xee, message_bytes((uint32_t)b->r->rank, to, number));
        stop_growing(b, index);
        b->sends_done++;
    } else if (e->kind == WIRE_EVENT_DONE) {
        CHECK(e->result == WIRE_DONE);
        arrived_done(b, &b->list[e->cookie]);
    } else {
        uint32_t from = (uint32_t)e->peer, number = ++b->seen[from];
        CHECK(e->result == WIRE_MESSAGE && wire_key_seq(e->key) == number && wire_key_round(e->key) == number % 3); /* in order for each
                                                                                                                     * pair */
        CHECK(e->tag == number * 3 && e->bytes == message_bytes(from, (uint32_t)b->r->rank, number));
        b->list[from * b->count + number - 1] = (struct arrived){.peer = from, .state = 1, .key = e->key, .bytes = e->bytes};
        b->held++;
    }
}

/* The next message of a peer, if it can be taken at once without an event. */
static bool accept_one(struct box *b, uint32_t from)
{
    struct rank *r = b->r;
    struct wire_event e;
    if (!r->ch->class->next || from == (uint32_t)r->rank || !r->ch->class->next(r->ch, from, &e) || rank_random(r) % 8 == 0)
        return false;
    uint32_t number = ++b->seen[from];
    CHECK(e.peer == (int32_t)from && wire_key_seq(e.key) == number && wire_key_round(e.key) == number % 3);
    CHECK(e.tag == number * 3 && e.bytes == message_bytes(from, (uint32_t)r->rank, number));
    struct arrived *a = &b->list[from * b->count + number - 1];
    *a = (struct arrived){.peer = from, .state = 1, .key = e.key, .bytes = e.bytes, .take = e.bytes, .land = malloc(e.bytes + 1)};
    a->land[e.bytes] = 0xaa;
    r->ch->class->accept(r->ch, from, a->land);
    CHECK(a->land[e.bytes] == 0xaa);
    arrived_done(b, a);
    return true;
}

void scenario_messages(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    uint32_t size = (uint32_t)r->size;
    struct box b = {.r = r, .count = rank_count(r, 400)};
    b.list = calloc(b.count * size, sizeof *b.list);
    b.out = calloc(b.count * size, sizeof *b.out);
    b.sends_all = b.count * (size - 1);
    int64_t end = env->now(env) + INT64_C(60000000000);
    while (b.sends_done < b.sends_all || b.taken < b.sends_all) {
        for (uint32_t i = 1; i < size; i++)
            for (uint64_t k = rank_random(r) % 8; k && send_one(&b, (uint32_t)(r->rank + (int32_t)i) % size); k--)
                ;
        grow_some(&b);
        bool any = false;
        for (uint32_t i = 0; i < size; i++)
            any |= accept_one(&b, i);
        if (!any)
            rank_pass(r);
        check_came(&b);
        for (uint32_t i = 0; i < r->events; i++)
            handle(&b, &r->event[i]);
        r->events = 0;
        uint32_t announced = 0;
        for (uint32_t i = 0; i < size; i++)
            announced += b.seen[i];
        if (announced == b.sends_all)
            b.held += 1000; /* nothing more comes: hold nothing back */
        take_some(&b);
        if (announced == b.sends_all)
            b.held -= 1000;
        CHECK(env->now(env) < end);
    }
    rank_meet(r);
    for (uint32_t i = 0; i < b.count * size; i++)
        free(b.out[i].at);
    free(b.out);
    free(b.list);
}
