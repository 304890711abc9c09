/*
 * The fast path for short exposures: the call itself gives the bytes to the kernel, without the flush, and the receiver takes them from its
 * lane's stage. If anything is in the way, they take the general path, in the same order and with the same bytes. The caller may change the
 * bytes when the call returns. Two ranks of one process, without an engine.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/pair.h"
#include "wire/table.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WINDOW = 16,
    MOST = TCP_SMALL_BYTES,
    TURNS = 2000,
    FEW = 30 /* each takes time in the kernel */,
    PATIENCE_MS = 10000,
    EVENTS = 16,
    LITTLE = 6000,
    LINE = 4,
    LINES = 3
};
enum { SHOWN = TCP_ONCE_PLACES - TCP_AREAS / 2 }; /* fewer than there are places */
static const char *const pollers[] = {"epoll", "io_uring"};

struct rig {
    struct pair pair;
    uint32_t seq;
};
static unsigned char given[MOST], wanted[MOST];

/* False: rings are not available here. */
static bool up(struct rig *r, const char *poller)
{
    if (!group_poller(poller))
        return false;
    *r = (struct rig){.seq = 1};
    pair_open(&r->pair, WINDOW, NULL);
    return true;
}

static struct tcp_lane *small(const struct rig *r, int32_t rank)
{
    return &r->pair.wire->port[rank].link[1 - rank].lane[TCP_LANE_SMALL];
}

/* Bytes that have arrived at rank 1 and were not read. */
static int unread(const struct rig *r)
{
    int bytes = -1;

    assert_int_equal(ioctl(small(r, 1)->fd, FIONREAD, &bytes), 0);
    return bytes;
}

static void await_unread(const struct rig *r, uint32_t bytes)
{
    for (int late = 0; late < PATIENCE_MS && unread(r) < (int)bytes; late++)
        usleep(1000);
    assert_int_equal(unread(r), bytes);
}

/* ------------------------------------------------------------------------------------------------------------ one operation */
/* Rank 0 exposes, then overwrites its bytes. */
static enum wire_result show(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, bool last)
{
    static const uint16_t peer = 1;
    struct wire_span span = {given, bytes};

    pair_fill(given, seq, edge, bytes);
    enum wire_result result =
        r->pair.class->expose(r->pair.channel[0], &(struct wire_expose){.key = wire_key_of(seq, 0, edge),
                                                                        .fingerprint = seq,
                                                                        .edge = edge >= LINE ? WIRE_ONCE | WIRE_TO_ALL : 0,
                                                                        .flags = last ? WIRE_WORK | WIRE_LAST : WIRE_WORK,
                                                                        .peers = &peer,
                                                                        .npeers = 1,
                                                                        .nspans = 1,
                                                                        .spans = &span});
    memset(given, 0xee, bytes);
    return result;
}

static void turn(struct rig *r)
{
    struct wire_event events[EVENTS];

    for (int32_t i = 0; i < PAIR_RANKS; i++) {
        r->pair.class->advance(r->pair.channel[i], events, EVENTS);
        r->pair.class->flush(r->pair.channel[i]);
    }
}

/* The same with the inline call, if the edge permits it; waits for room. */
static void show_simply(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes)
{
    struct wire_channel *channel = r->pair.channel[0];
    enum wire_result result = WIRE_AGAIN;

    pair_fill(given, seq, edge, bytes);
    for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++) {
        result = channel->class->show(channel, wire_key_of(seq, 0, edge), seq, given, bytes);
        if (result == WIRE_AGAIN)
            turn(r);
    }
    assert_int_equal(result, WIRE_DONE);
    memset(given, 0xee, bytes);
}

/* Rank 1 polls inline. */
static enum wire_result see_as(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, uint32_t fingerprint, const void **at)
{
    struct wire_channel *channel = r->pair.channel[1];

    return channel->class->see(channel, wire_key_of(seq, 0, edge), fingerprint, 0, bytes, at);
}

static enum wire_result look_as(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, uint32_t fingerprint, struct wire_view *view)
{
    return r->pair.class->view(r->pair.channel[1], &(struct wire_look){.key = wire_key_of(seq, 0, edge),
                                                                       .fingerprint = fingerprint,
                                                                       .edge = edge >= LINE ? WIRE_ONCE | WIRE_TO_ALL : 0,
                                                                       .flags = WIRE_GLANCE,
                                                                       .bytes = bytes,
                                                                       .view = view});
}

/* Looks repeatedly, and lets both ranks make progress only now and then. simply: use the inline call. */
static void await(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, bool simply, struct wire_view *view)
{
    enum wire_result result = WIRE_AGAIN;
    const void *at = NULL;

    for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++) {
        result = simply ? see_as(r, seq, edge, bytes, seq, &at) : look_as(r, seq, edge, bytes, seq, view);
        if (result == WIRE_AGAIN && late % 4 == 3)
            turn(r);
        if (result == WIRE_AGAIN && late > 100)
            usleep(1000);
    }
    if (simply)
        *view = (struct wire_view){.at = at, .bytes = bytes};
    assert_int_equal(result, WIRE_DONE);
    assert_int_equal(view->bytes, bytes);
    pair_fill(wanted, seq, edge, bytes);
    assert_memory_equal(view->at, wanted, bytes);
}

static void await_view(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, struct wire_view *view)
{
    await(r, seq, edge, bytes, false, view);
}

static void retire(struct rig *r, int32_t rank)
{
    r->pair.class->release(r->pair.channel[rank], r->seq, NULL);
}

static void retire_both(struct rig *r)
{
    retire(r, 0);
    retire(r, 1);
    r->seq++;
}

/* ------------------------------------------------------------------------------------------------------------ sending */
/* Rank 1's receive must not be in a ring, which reads by itself. */
static void up_unread(struct rig *r)
{
    assert_true(up(r, "epoll"));
}

static void leaves_in_its_call(void **state)
{
    static struct rig r;
    struct wire_view view;

    (void)state;
    up_unread(&r);
    for (size_t bytes = 0; bytes <= MOST; bytes = bytes ? 2 * bytes : 1) {
        r.pair.wire->burst.row = 0; /* both ranks share it in this test */
        assert_int_equal(show(&r, r.seq, LINE, bytes, true), WIRE_DONE);
        await_unread(&r, frame_span((uint32_t)bytes));
        assert_true(!r.pair.wire->dirty && !small(&r, 0)->out);
        await_view(&r, r.seq, LINE, bytes, &view);
        retire(&r, 1);
        r.seq++;
        turn(&r);
    }
    assert_int_equal(show(&r, r.seq, LINE, 8, false), WIRE_DONE); /* more may follow, so it waits for the flush */
    assert_true(r.pair.wire->dirty != NULL);
    assert_int_equal(unread(&r), 0);
    r.pair.class->flush(r.pair.channel[0]);
    await_unread(&r, frame_span(8));
    pair_close(&r.pair);
}

/* The same with inline calls. What was polled can be polled again, and the RETIRED frames that follow are processed. */
static void shown_and_seen(void **state)
{
    static struct rig r;
    struct wire_view view, again;
    uint32_t alone = 0, i = 0;

    (void)state;
    up_unread(&r);
    tcp_of(r.pair.channel[0])->member[1].came[TCP_ROOM_AREAS] = r.seq; /* so it must hear of every second retirement */
    for (size_t bytes = 0; bytes <= MOST; bytes = bytes ? 2 * bytes : 1, i++) {
        r.pair.wire->burst.row = 0;
        uint32_t told = tcp_of(r.pair.channel[0])->member[1].retired_told;
        show_simply(&r, r.seq, LINE, bytes);
        bool tells = tcp_of(r.pair.channel[0])->member[1].retired_told != told;
        assert_true(tells == (i % 2 == 0 && i > 0));
        await_unread(&r, frame_span((uint32_t)bytes) + (tells ? frame_span(0) : 0));
        assert_true(!r.pair.wire->dirty && !small(&r, 0)->out);
        await(&r, r.seq, LINE, bytes, true, &view);
        await(&r, r.seq, LINE, bytes, true, &again);
        assert_ptr_equal(view.at, again.at);
        assert_int_equal(tcp_of(r.pair.channel[1])->member[0].retired, tcp_of(r.pair.channel[0])->member[1].retired_told);
        alone += !tcp_of(r.pair.channel[1])->slots.live; /* sometimes it is read together with all lanes */
        retire(&r, 1);
        r.pair.class->flush(r.pair.channel[1]);
        struct wire_event event;
        r.pair.class->advance(r.pair.channel[0], &event, 1);
        retire(&r, 0);
        r.seq++;
    }
    assert_true(alone > i / 2);
    pair_close(&r.pair);
}

/* In a row only the first takes the fast path, and nothing overtakes queued frames. */
static void not_in_a_row(void **state)
{
    static struct rig r;
    struct wire_view view;

    (void)state;
    up_unread(&r);
    assert_int_equal(show(&r, 1, LINE, 100, true), WIRE_DONE);
    assert_int_equal(show(&r, 2, LINE, 100, true), WIRE_DONE);
    assert_true(r.pair.wire->dirty != NULL);
    await_unread(&r, frame_span(100));
    r.pair.wire->burst.row = 0;
    assert_int_equal(show(&r, 3, LINE, 100, true), WIRE_DONE);
    assert_int_equal(unread(&r), frame_span(100));
    r.pair.class->flush(r.pair.channel[0]);
    await_unread(&r, 3 * frame_span(100));
    for (uint32_t seq = 1; seq <= 3; seq++)
        await_view(&r, seq, LINE, 100, &view);
    pair_close(&r.pair);
}

/* To a peer with few places, every second frame is followed by a RETIRED frame, which is soon enough. */
static void tells_what_is_retired(void **state)
{
    static struct rig r;
    struct wire_view view;
    const struct tcp_channel *c;

    (void)state;
    up_unread(&r);
    c = tcp_of(r.pair.channel[1]);
    for (int32_t i = 0; i < PAIR_RANKS; i++) /* as if it had sent something with few places */
        tcp_of(r.pair.channel[i])->member[1 - i].came[TCP_ROOM_AREAS] = r.seq;
    for (int i = 0; i < 6 * WINDOW; i++) {
        r.pair.wire->burst.row = 0;
        assert_int_equal(show(&r, r.seq, LINE, 1000, true), WIRE_DONE);
        await_view(&r, r.seq, LINE, 1000, &view);
        assert_true(c->member[0].retired + TCP_AREAS / 2 >= r.seq - 1);
        retire(&r, 1); /* rank 1 sends nothing else, so it sends RETIRED by itself when enough operations are retired */
        r.pair.class->flush(r.pair.channel[1]);
        turn(&r);
        retire(&r, 0);
        r.seq++;
    }
    pair_close(&r.pair);
}

/* Nobody reads in the meantime, so the kernel's buffer becomes full in the middle of a frame. */
static void the_bytes_are_the_owners_again(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static struct rig r;
        struct wire_view view;
        int room = LITTLE;
        size_t bytes = i % 2 ? MOST : MOST - 640;
        bool kept = false;
        if (!up(&r, pollers[i / 2]))
            continue;
        assert_int_equal(setsockopt(small(&r, 0)->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        assert_int_equal(setsockopt(small(&r, 1)->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
        for (uint32_t seq = 1; seq <= SHOWN; seq++) {
            r.pair.wire->burst.row = 0;
            assert_int_equal(show(&r, seq, LINE, bytes, true), WIRE_DONE);
            kept |= small(&r, 0)->out != NULL;
        }
        assert_true(kept);
        for (uint32_t seq = 1; seq <= SHOWN; seq++)
            await_view(&r, seq, LINE, bytes, &view);
        pair_close(&r.pair);
    }
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
static void another_call_is_no_answer(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        static struct rig r;
        struct wire_view view = {0};
        const void *at = NULL;
        size_t other = i % 2 ? 64 : 72;
        bool simply = i & 4;
        enum wire_result result = WIRE_AGAIN;
        if (!up(&r, pollers[i / 2 % 2]))
            continue;
        assert_int_equal(show(&r, 1, LINE, 64, true), WIRE_DONE);
        for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++, usleep(late < 100 ? 0 : 1000)) {
            result = simply ? see_as(&r, 1, LINE, other, i % 2 ? 7 : 1, &at) : look_as(&r, 1, LINE, other, i % 2 ? 7 : 1, &view);
            turn(&r);
        }
        assert_int_equal(result, WIRE_MISMATCH);
        assert_null(view.at);
        pair_close(&r.pair);
    }
}

/* One to three exposures of an operation, by different paths, viewed in any order. A view stays valid until the operation is retired. */
static void one_of_any(struct rig *r)
{
    static const size_t lengths[] = {0, 8, 24, 32, 33, 64, 240, 2048, 8192, MOST};
    struct wire_view view[LINES];
    size_t bytes[LINES];
    uint32_t count = 1 + pair_dice(LINES), first = pair_dice(LINES);

    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = lengths[pair_dice(10)];
        if (pair_dice(2))
            r->pair.wire->burst.row = 0;
        if (pair_dice(2)) {
            show_simply(r, r->seq, LINE + i, bytes[i]);
            continue;
        }
        enum wire_result result = show(r, r->seq, LINE + i, bytes[i], pair_dice(4) != 0);
        for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++) {
            turn(r);
            result = show(r, r->seq, LINE + i, bytes[i], true);
        }
        assert_int_equal(result, WIRE_DONE);
        if (pair_dice(3) == 0)
            turn(r);
    }
    if (pair_dice(2))
        r->pair.class->flush(r->pair.channel[0]);
    for (uint32_t i = 0; i < count; i++)
        await(r, r->seq, LINE + (first + i) % count, bytes[(first + i) % count], pair_dice(2), &view[(first + i) % count]);
    for (uint32_t i = 0; i < count; i++) {
        pair_fill(wanted, r->seq, LINE + i, bytes[i]);
        assert_memory_equal(view[i].at, wanted, bytes[i]);
    }
    retire_both(r);
    if (pair_dice(4) == 0)
        turn(r);
}

static void whatever_comes(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static struct rig r;
        int room = LITTLE;
        if (!up(&r, pollers[i / 2]))
            continue;
        if (i % 2) {
            assert_int_equal(setsockopt(small(&r, 0)->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
            assert_int_equal(setsockopt(small(&r, 1)->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
        }
        for (int k = 0; k < (i % 2 ? FEW : TURNS); k++)
            one_of_any(&r);
        assert_true(!small(&r, 0)->ended && !small(&r, 1)->ended);
        assert_true(tcp_of(r.pair.channel[1])->slots.live == 0);
        pair_close(&r.pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_in_its_call),
        cmocka_unit_test(shown_and_seen),
        cmocka_unit_test(not_in_a_row),
        cmocka_unit_test(tells_what_is_retired),
        cmocka_unit_test(the_bytes_are_the_owners_again),
        cmocka_unit_test(another_call_is_no_answer),
        cmocka_unit_test(whatever_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
