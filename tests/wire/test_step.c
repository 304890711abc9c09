/* One thread moves all ranks of a wire by hand: in random order, and into every situation without room. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/scenarios.h"

#include <string.h>
#include <sys/mman.h>

typedef void step_fn(struct rank *ranks, int32_t count);

enum which { ANY_WIRE, MEMORY_WIRES /* wires whose stores a peer sees at once, and whose limits are those of lines */ };
static void on_each(int32_t count, const struct wire_limits *limits, enum which which, step_fn *fn)
{
    for (uint32_t i = 0; i < wire_backend_count; i++) {
        if (!wire_backends[i].wire || wire_backends[i].far_wire || (which == MEMORY_WIRES && wire_backends[i].network))
            continue;
        print_message("  %s\n", wire_backends[i].name);
        struct shared *shared = world_shared();
        struct rank *ranks = calloc((size_t)count, sizeof *ranks);
        world_open(ranks, wire_backends[i].name, count, limits, shared);
        for (int32_t r = 0; r < count; r++)
            ranks[r].by_hand = true;
        fn(ranks, count);
        world_close(ranks, count);
        munmap(shared, sizeof *shared);
        free(ranks);
    }
}

static void random_order_on(struct rank *ranks, int32_t count)
{
    struct stream_run *run[RANKS_MAX];
    bool done[RANKS_MAX] = {false};
    int32_t left = count;
    for (int32_t i = 0; i < count; i++)
        run[i] = stream_start(&ranks[i], rank_count(&ranks[i], 40));
    for (uint64_t steps = 0; left; steps++) {
        uint64_t x = rank_random(&ranks[0]);
        int32_t i = (int32_t)(x % (uint64_t)count);
        for (uint64_t k = x >> 60; k && !done[i]; k--) { /* up to 15 steps of one rank while the others do nothing */
            done[i] = stream_run_step(run[i]);
            left -= done[i];
        }
        assert_true(steps < 2000000);
    }
    for (int32_t i = 0; i < count; i++)
        stream_end(run[i]);
}
static void random_order(void **state)
{
    (void)state;
    on_each(4, NULL, ANY_WIRE, random_order_on);
}
static void random_order_minimal(void **state)
{
    (void)state;
    on_each(3, &(struct wire_limits){.window = 4, .minimal = 1, .chunk = 192}, ANY_WIRE, random_order_on);
}

static enum wire_result expose_to(struct rank *r, uint16_t peer, wire_key key, uint16_t edge, uint16_t flags, size_t bytes)
{
    static unsigned char data[65536];
    struct wire_span span = {data, bytes};
    struct wire_expose e = {.key = key,
                            .fingerprint = 1,
                            .edge = edge,
                            .flags = flags,
                            .peers = &peer,
                            .npeers = 1,
                            .nspans = 1,
                            .spans = &span,
                            .cookie = key};
    return r->ch->class->expose(r->ch, &e);
}

static void retire(struct rank *ranks, int32_t count, uint32_t seq)
{
    for (int32_t i = 0; i < count; i++)
        ranks[i].wire_class->release(ranks[i].ch, seq, NULL);
}

/* This many operations after seq have a place for more bytes than a line holds. */
static uint32_t no_places_on(struct rank *ranks, uint32_t seq, uint16_t edge, uint32_t places, size_t bytes)
{
    struct rank *a = &ranks[0];
    for (uint32_t i = 1; i <= places; i++)
        assert_int_equal(expose_to(a, 1, wire_key_of(seq + i, 0, 1), edge, 0, bytes), WIRE_DONE);
    seq += places + 1;
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 1), edge, 0, bytes), WIRE_AGAIN);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 1), edge, 0, 48), WIRE_DONE); /* there is a line */
    retire(ranks, 2, seq);
    return seq;
}

/* A stream has room for this many chunks in each of two areas. */
static void no_credit_on(struct rank *ranks, int32_t count, uint32_t seq, uint8_t edge, uint32_t credits, size_t bytes)
{
    struct rank *a = &ranks[0], *b = &ranks[1];
    struct wire_view view;
    struct wire_look l = {.key = wire_key_of(seq, 0, 0), .edge = edge, .fingerprint = 1, .peer = 0, .bytes = bytes, .view = &view};

    for (uint32_t round = 0; round < credits; round++)
        assert_int_equal(expose_to(a, 1, wire_key_of(seq, round, 0), edge, 0, bytes), WIRE_DONE);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, credits, 0), edge, 0, bytes), WIRE_AGAIN);
    assert_int_equal(b->ch->class->view(b->ch, &l), WIRE_DONE);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, credits, 0), edge, 0, bytes), WIRE_AGAIN); /* viewed, but not released */
    b->ch->class->release(b->ch, seq, &view);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, credits, 0), edge, 0, bytes), WIRE_DONE);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq + 1, 0, 0), edge, 0, bytes), WIRE_DONE); /* uses the second area */
    assert_int_equal(expose_to(a, 1, wire_key_of(seq + 2, 0, 0), edge, 0, bytes), WIRE_AGAIN);
    retire(ranks, count, seq);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq + 2, 0, 0), edge, 0, bytes), WIRE_DONE);
}

static void no_room_on(struct rank *ranks, int32_t count)
{
    struct rank *a = &ranks[0], *b = &ranks[1];
    uint32_t window = a->ch->caps.window, seq;
    assert_int_equal(count, 2);
    for (seq = 1; seq <= 2 * window; seq++) /* every line is used once */
        assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 0), WIRE_ONCE | WIRE_TO_ALL, 0, 8), WIRE_DONE);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 0), WIRE_ONCE | WIRE_TO_ALL, 0, 8), WIRE_AGAIN);
    a->ch->class->release(a->ch, 1, NULL);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 0), WIRE_ONCE | WIRE_TO_ALL, 0, 8), WIRE_AGAIN); /* not retired by the reader */
    b->ch->class->release(b->ch, 1, NULL);
    assert_int_equal(expose_to(a, 1, wire_key_of(seq, 0, 0), WIRE_ONCE | WIRE_TO_ALL, 0, 8), WIRE_DONE);
    retire(ranks, 2, seq);
    seq = no_places_on(ranks, seq, WIRE_ONCE | WIRE_TO_ALL, 64, 100);
    seq = no_places_on(ranks, seq, WIRE_ONCE | WIRE_TO_ALL, 64, 2048);
    seq = no_places_on(ranks, seq, WIRE_ONCE | WIRE_TO_ALL, 32, 2049);
    seq = no_places_on(ranks, seq, WIRE_ONCE | WIRE_TO_ALL, 32, 16384);
    seq = no_places_on(ranks, seq, WIRE_ONCE | WIRE_TO_ALL, 8, 16385);
    seq = no_places_on(ranks, seq, WIRE_ONCE, 64, WIRE_EACH_BYTES);
    no_credit_on(ranks, count, seq + 1, 0, 16, 1000);
}

/* With three members a stream to all has as many credits as with two, and a private stream has half as many. */
static void no_room_of_three_on(struct rank *ranks, int32_t count)
{
    assert_int_equal(count, 3);
    no_credit_on(ranks, count, 1, 0, 8, 1000);
    retire(ranks, count, 3);
    no_credit_on(ranks, count, 4, WIRE_TO_ALL, 16, 1000);
}

static void no_room(void **state)
{
    (void)state;
    on_each(2, NULL, MEMORY_WIRES, no_room_on);
    on_each(3, NULL, MEMORY_WIRES, no_room_of_three_on);
}

/* Younger operations never take the last places of the table of pending views. */
static void pending_table_on(struct rank *ranks, int32_t count)
{
    struct rank *r = &ranks[1];
    static struct wire_view view[1024];
    uint32_t young = 0, old = 0;
    for (enum wire_result result = WIRE_PENDING; result == WIRE_PENDING; young += result == WIRE_PENDING) {
        struct wire_look l = {.key = wire_key_of(2 + young % 50, 0, 0),
                              .edge = WIRE_ONCE | WIRE_TO_ALL,
                              .peer = 0,
                              .bytes = 8,
                              .cookie = 7,
                              .view = &view[young]};
        result = r->ch->class->view(r->ch, &l);
    }
    for (enum wire_result result = WIRE_PENDING; result == WIRE_PENDING; old += result == WIRE_PENDING) {
        struct wire_look l = {
            .key = wire_key_of(1, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peer = 0, .bytes = 8, .cookie = 8, .view = &view[young + old]};
        result = r->ch->class->view(r->ch, &l);
    }
    assert_int_equal(young + old, 256 + 8 * count);
    assert_int_equal(old, (256 + 8 * count) / 4);
    r->ch->class->leave(r->ch, WIRE_ABORT); /* forgets all of them: the views may go out of scope */
    struct wire_event event[4];
    struct wire_span span = {"8 bytes.", 8};
    uint16_t peer = 1;
    struct wire_expose e = {
        .key = wire_key_of(1, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
    assert_int_equal(ranks[0].wire_class->expose(ranks[0].ch, &e), WIRE_DONE);
    assert_int_equal(r->ch->class->advance(r->ch, event, 4), 0);
    e.flags = WIRE_NOTE; /* and still receives notes */
    assert_int_equal(ranks[0].wire_class->expose(ranks[0].ch, &e), WIRE_DONE);
    assert_int_equal(r->ch->class->advance(r->ch, event, 4), 1);
    assert_memory_equal(event[0].note, "8 bytes.", 8);
}
static void pending_table(void **state)
{
    (void)state;
    on_each(2, NULL, MEMORY_WIRES, pending_table_on);
}

/* Unmatched messages fill only the ring: once their announcements are read, the next ones can be sent. */
static void ring_full_on(struct rank *ranks, int32_t count)
{
    struct rank *a = &ranks[0], *b = &ranks[1];
    uint32_t window = a->ch->caps.window, number = 0, got = 0;
    struct wire_event event[16];
    (void)count;
    for (uint32_t turn = 0; turn < 20; turn++) {
        enum wire_result result = WIRE_DONE;
        for (uint32_t sent = 0; result != WIRE_AGAIN; sent++) {
            size_t bytes = number % 3 == 0 ? 8 : number % 3 == 1 ? 3000 : 10000;
            result = expose_to(a, 1, wire_key_of(number + 1, 0, 0), 0, WIRE_MESSAGE, bytes);
            assert_true(result >= 0 && sent <= window);
            number += result != WIRE_AGAIN;
        }
        for (uint32_t n; (n = b->ch->class->advance(b->ch, event, 16));)
            got += n;
        assert_int_equal(got, number);
    }
    assert_int_equal(number, 20 * window);
    static unsigned char land[65536];
    for (uint32_t i = number; i >= 1; i--) { /* the last first; grants run out and come back */
        size_t bytes = (i - 1) % 3 == 0 ? 8 : (i - 1) % 3 == 1 ? 3000 : 10000;
        struct wire_look l = {.key = wire_key_of(i, 0, 0), .flags = WIRE_MESSAGE, .peer = 0, .land = land, .bytes = bytes, .cookie = i};
        enum wire_result result;
        while ((result = b->ch->class->view(b->ch, &l)) == WIRE_AGAIN) {
            a->ch->class->advance(a->ch, event, 16);
            b->ch->class->advance(b->ch, event, 16);
        }
        assert_true(result >= 0);
    }
}
static void ring_full(void **state)
{
    (void)state;
    on_each(2, NULL, MEMORY_WIRES, ring_full_on);
}

static unsigned char sent[65536];
static bool sent_whole(struct rank *r, uint32_t number, size_t bytes)
{
    return r->ch->class->send(r->ch, wire_key_of(number, 0, 0), 1, 1, sent, bytes);
}

/* A short message is sent whole as long as the wire has a place for its bytes. When it has none, nothing happens, and the message is
 * announced when it is exposed. */
static void taken_whole_on(struct rank *ranks, int32_t count)
{
    struct rank *a = &ranks[0];
    uint32_t number = 1;
    (void)count;
    assert_false(sent_whole(a, number, 8)); /* the first one makes the place of the pair's messages */
    assert_int_equal(expose_to(a, 1, wire_key_of(number, 0, 0), 0, WIRE_MESSAGE, 8), WIRE_DONE);
    while (sent_whole(a, ++number, 8192))
        ;
    assert_in_range(number, 3, a->ch->caps.window);
    assert_false(sent_whole(a, number, 8192));
    assert_false(sent_whole(a, number, sizeof sent));
    assert_true(sent_whole(a, number, 8));
    assert_int_equal(expose_to(a, 1, wire_key_of(number + 1, 0, 0), 0, WIRE_MESSAGE, 8192), WIRE_PENDING);
}
static void taken_whole(void **state)
{
    (void)state;
    on_each(2, NULL, MEMORY_WIRES, taken_whole_on);
}

/* Messages that are there whole are taken one by one without an event. One that is longer is announced. */
static void accepted_on(struct rank *ranks, int32_t count)
{
    static const size_t bytes[] = {8, 0, 40, 41, 16384, 16385};
    enum { MESSAGES = sizeof bytes / sizeof *bytes };
    struct wire_channel *to = ranks[1].ch;
    struct wire_event e, events[4];
    static unsigned char land[16384];
    (void)count;
    assert_false(to->class->next(to, 0, &e)); /* nothing was sent yet */
    assert_int_equal(expose_to(&ranks[0], 1, wire_key_of(1, 0, 0), 0, WIRE_MESSAGE, 8), WIRE_DONE);
    assert_int_equal(to->class->advance(to, events, 4), 1); /* the first one also tells where the pair's messages are */
    for (uint32_t i = 0; i < MESSAGES; i++)
        assert_int_equal(expose_to(&ranks[0], 1, wire_key_of(i + 2, 0, 0), 0, WIRE_MESSAGE, bytes[i]),
                         bytes[i] > 16384 ? WIRE_PENDING : WIRE_DONE);
    for (uint32_t i = 0; i < MESSAGES - 1; i++) {
        assert_true(to->class->next(to, 0, &e) && to->class->next(to, 0, &e)); /* looking takes nothing */
        assert_true(e.key == wire_key_of(i + 2, 0, 0) && e.peer == 0 && e.tag == 1 && e.bytes == bytes[i]);
        memset(land, 0xaa, sizeof land);
        to->class->accept(to, 0, bytes[i] ? land : NULL);
        for (size_t k = 0; k < sizeof land; k++)
            assert_int_equal(land[k], k < bytes[i] ? 0 : 0xaa);
    }
    assert_false(to->class->next(to, 0, &e));
    assert_int_equal(to->class->advance(to, events, 4), 1);
    assert_true(events[0].key == wire_key_of(MESSAGES + 1, 0, 0) && events[0].bytes == 16385);
}
static void accepted(void **state)
{
    (void)state;
    on_each(2, NULL, MEMORY_WIRES, accepted_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_order), cmocka_unit_test(random_order_minimal), cmocka_unit_test(no_room),  cmocka_unit_test(pending_table),
        cmocka_unit_test(ring_full),    cmocka_unit_test(taken_whole),          cmocka_unit_test(accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
