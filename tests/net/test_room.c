/*
 * How soon a sender hears what its receiver has retired. A peer that sends nothing hears seldom; one that sends hears soon enough for its
 * kind of exposures; one that begins to send after a silence asks. Two ranks of one process, without an engine.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/pair.h"
#include "wire/table.h"

#include <stdlib.h>
#include <unistd.h>

enum { WINDOW = 16, TURNS = 5000, FEW_TURNS = 100, EVENTS = 16, ROW = 2 * TCP_HEARS, GAP_STEP = 7, STREAM = 0, ONCE = 4 };

/* An exposure of each kind of room, and how many operations may have one. */
static const struct {
    uint32_t edge, places;
    size_t bytes;
} kind[TCP_ROOMS] = {
    [TCP_ROOM_LINES] = {ONCE, 2 * WINDOW, TCP_INLINE},
    [TCP_ROOM_FRAMES] = {ONCE, WINDOW, TCP_FRAME_BYTES},
    [TCP_ROOM_PAGES] = {ONCE, WINDOW, TCP_SMALL_BYTES}, /* to one peer */
    [TCP_ROOM_LONG] = {ONCE, TCP_ONCE_PLACES, TCP_SMALL_BYTES + 1},
    [TCP_ROOM_AREAS] = {STREAM, TCP_AREAS, 8},
};

struct rig {
    struct pair pair;
    uint32_t seq; /* the next operation */
};

static int up(void **state)
{
    static struct rig rig;

    rig.seq = 1;
    pair_open(&rig.pair, WINDOW, NULL);
    *state = &rig;
    return 0;
}

static int down(void **state)
{
    struct rig *r = *state;

    pair_close(&r->pair);
    return 0;
}

/* Rank 0 exposes in operation `seq`. */
static enum wire_result give(struct rig *r, uint32_t seq, enum tcp_room what)
{
    static unsigned char bytes[TCP_SMALL_BYTES + 1];
    static const uint16_t peer = 1;
    const struct wire_span span = {bytes, kind[what].bytes};

    return r->pair.class->expose(r->pair.channel[0], &(struct wire_expose){.key = wire_key_of(seq, 0, kind[what].edge),
                                                                           .fingerprint = 1,
                                                                           .edge = kind[what].edge == ONCE ? WIRE_ONCE : 0,
                                                                           .flags = WIRE_WORK,
                                                                           .peers = &peer,
                                                                           .npeers = 1,
                                                                           .nspans = 1,
                                                                           .spans = &span});
}

static void move(struct rig *r, int32_t rank)
{
    struct wire_event events[EVENTS];

    r->pair.class->flush(r->pair.channel[rank]);
    r->pair.class->advance(r->pair.channel[rank], events, EVENTS);
    r->pair.class->flush(r->pair.channel[rank]);
}

static void retire(struct rig *r, int32_t rank, uint32_t seq)
{
    r->pair.class->release(r->pair.channel[rank], seq, NULL);
    move(r, rank);
}

/* The frame is whole at rank 1. */
static void await_arrival(struct rig *r, uint32_t seq, enum tcp_room what)
{
    const struct tcp_slot *s = NULL;

    for (int turn = 0; turn < TURNS && !(s && s->whole); turn++) {
        move(r, 0);
        move(r, 1);
        s = tcp_slot_find(tcp_of(r->pair.channel[1]), 0, wire_key_of(seq, 0, kind[what].edge));
    }
    assert_true(s && s->whole);
}

/* One operation of both ranks: rank 0 exposes, once it has room, and rank 1 retires. Returns how often it had none. */
static uint32_t operation(struct rig *r, enum tcp_room what)
{
    uint32_t refused = 0;

    while (give(r, r->seq, what) != WIRE_DONE) {
        assert_true(++refused < TURNS);
        move(r, 0);
        move(r, 1);
    }
    await_arrival(r, r->seq, what);
    retire(r, 1, r->seq);
    retire(r, 0, r->seq++);
    return refused;
}

/* Operations in which rank 0 sends nothing. */
static void silence(struct rig *r, uint32_t operations)
{
    for (; operations; operations--, r->seq++) {
        retire(r, 1, r->seq);
        retire(r, 0, r->seq);
    }
}

static uint64_t frames_out(const struct rig *r, int32_t rank)
{
    return tcp_of(r->pair.channel[rank])->traffic.out / FRAME_LINE;
}

/* ------------------------------------------------------------------------------------------------------------ cases */
static void a_silent_peer_hears_seldom(void **state)
{
    struct rig *r = *state;
    const struct tcp_channel *c = tcp_of(r->pair.channel[1]);
    const uint64_t before = frames_out(r, 1);

    for (uint32_t i = 0; i < ROW; i++) {
        silence(r, 1);
        assert_true(c->retired - c->member[0].retired_told < c->lag_silent);
    }
    assert_int_equal(frames_out(r, 1) - before, ROW / c->lag_silent);
    assert_true(c->lag_silent > WINDOW && c->lag_silent < 2 * WINDOW); /* so it can begin with a line */
    assert_int_equal(operation(r, TCP_ROOM_LINES), 0);
}

/* No more operations than there are places, and no fewer. */
static void as_many_as_places(void **state)
{
    struct rig *r = *state;

    for (enum tcp_room what = 0; what < TCP_ROOMS; what++) {
        operation(r, what);
        uint32_t given = 0, known = tcp_of(r->pair.channel[0])->member[1].retired;
        while (given <= 2 * WINDOW && give(r, r->seq + given, what) == WIRE_DONE)
            await_arrival(r, r->seq + given++, what);
        assert_int_equal(r->seq + given - 1, known + kind[what].places);
        assert_int_equal(tcp_of(r->pair.channel[0])->places[what], kind[what].places);
        for (; given; given--, r->seq++) {
            retire(r, 1, r->seq);
            retire(r, 0, r->seq);
        }
    }
}

/* Who goes on sending hears without asking, and never waits for a receiver that is done. */
static void a_sender_hears_soon(void **state)
{
    struct rig *r = *state;

    for (enum tcp_room what = 0; what < TCP_ROOMS; what++) {
        silence(r, ROW);
        operation(r, what);
        const uint64_t before = frames_out(r, 1);
        uint32_t refused = 0;
        for (uint32_t i = 0; i < ROW; i++)
            refused += operation(r, what);
        uint64_t lag = tcp_of(r->pair.channel[1])->lag[what], told = frames_out(r, 1) - before;
        assert_int_equal(refused, 0);
        assert_true(told >= ROW / lag - 1 && told <= ROW / lag + 1);
    }
}

/* However long a rank has sent something else, or nothing, it gets room for each kind, and asks at most once. */
static void after_each_silence(void **state)
{
    struct rig *r = *state;

    for (enum tcp_room last = 0; last < TCP_ROOMS; last++)
        for (enum tcp_room what = 0; what < TCP_ROOMS; what++)
            for (uint32_t gap = 0; gap < ROW + WINDOW; gap += GAP_STEP) {
                operation(r, last);
                silence(r, gap);
                uint32_t went = tcp_of(r->pair.channel[0])->member[1].went[what];
                uint32_t refused = operation(r, what);
                assert_true(!refused || what != TCP_ROOM_LINES);
                assert_true(tcp_of(r->pair.channel[0])->member[1].went[what] != went);
            }
}

/* A receiver that has nothing new to tell does so later, unasked. */
static void asked_too_early(void **state)
{
    struct rig *r = *state;

    silence(r, ROW);
    uint32_t seq = r->seq + TCP_AREAS;
    assert_int_equal(give(r, seq, TCP_ROOM_AREAS), WIRE_AGAIN);
    for (int turn = 0; turn < TURNS && tcp_of(r->pair.channel[1])->member[0].came[TCP_ROOM_AREAS] != seq; turn++) {
        move(r, 0);
        move(r, 1);
    }
    uint32_t more = 0;
    while (give(r, seq, TCP_ROOM_AREAS) == WIRE_AGAIN) {
        assert_true(more++ < tcp_of(r->pair.channel[1])->lag[TCP_ROOM_AREAS]);
        silence(r, 1);
        for (int turn = 0; turn < FEW_TURNS; turn++)
            move(r, 0);
    }
    assert_true(more > 0);
    await_arrival(r, seq, TCP_ROOM_AREAS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_silent_peer_hears_seldom, up, down),
        cmocka_unit_test_setup_teardown(as_many_as_places, up, down),
        cmocka_unit_test_setup_teardown(a_sender_hears_soon, up, down),
        cmocka_unit_test_setup_teardown(after_each_silence, up, down),
        cmocka_unit_test_setup_teardown(asked_too_early, up, down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
