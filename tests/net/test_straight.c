/*
 * Long exposures on the fast paths: sent directly from the owner's buffer, and received in a block before their header was read. The owner
 * may change the bytes when the call returns, however few of them the kernel accepted. A wrong prediction of the next frame costs only
 * time. In plain, and in records (checked ones; a cipher changes nothing of the path). Two ranks of one process, without an engine.
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

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WINDOW = 16,
    MOST = TCP_ONCE_MAX,
    TURNS = 600,
    FEW = 30 /* each takes time in the kernel */,
    PATIENCE_MS = 10000,
    LINE = 4 /* a ONCE edge */,
    EVENTS = 16,
    LITTLE = 30000
};
enum { SHOWN = TCP_ONCE_PLACES - TCP_AREAS / 2 }; /* the sender may not know yet that the other slots are free */
static const char *const pollers[] = {"epoll", "io_uring"};
static bool in_records;

struct rig {
    struct pair pair;
    uint32_t seq, sent, landed; /* the operation, and how many of its events have come */
};
static _Alignas(64) unsigned char given[2][MOST], taken[MOST], wanted[MOST];

static struct tcp_lane *bulk(const struct rig *r, int32_t rank)
{
    return &r->pair.wire->port[rank].link[1 - rank].lane[TCP_LANE_BULK];
}

/* Must be the first bytes of the lane. */
static void start_records(struct tcp_lane *lane)
{
    struct poller *p = lane->port->wire->poller;

    assert_int_equal(p->class->cancel(p, lane->socket, POLLER_RECEIVE), -ECANCELED);
    assert_true(tcp_lane_seal(lane, NULL, CRYPTO_NONE));
    tcp_receive_start(lane);
}

/* False: rings are not available here. */
static bool up(struct rig *r, const char *poller)
{
    if (!group_poller(poller))
        return false;
    *r = (struct rig){.seq = 1};
    pair_open(&r->pair, WINDOW, NULL);
    for (int32_t rank = 0; in_records && rank < PAIR_RANKS; rank++)
        start_records(bulk(r, rank));
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ one operation */
/* Rank 0 exposes. */
static enum wire_result show(struct rig *r, uint32_t edge, const void *from, size_t bytes)
{
    static const uint16_t peer = 1;
    struct wire_span span = {from, bytes};

    return r->pair.class->expose(r->pair.channel[0], &(struct wire_expose){.key = wire_key_of(r->seq, 0, edge),
                                                                           .fingerprint = r->seq,
                                                                           .edge = edge == LINE ? WIRE_ONCE | WIRE_TO_ALL : 0,
                                                                           .peers = &peer,
                                                                           .npeers = 1,
                                                                           .nspans = 1,
                                                                           .spans = &span});
}

/* Rank 1 looks. */
static enum wire_result look(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, void *land, struct wire_view *view)
{
    return r->pair.class->view(r->pair.channel[1], &(struct wire_look){.key = wire_key_of(seq, 0, edge),
                                                                       .fingerprint = seq,
                                                                       .edge = edge == LINE ? WIRE_ONCE | WIRE_TO_ALL : 0,
                                                                       .flags = land ? WIRE_WORK : WIRE_GLANCE,
                                                                       .land = land,
                                                                       .bytes = bytes,
                                                                       .view = land ? NULL : view});
}

static void turn(struct rig *r)
{
    struct wire_event events[EVENTS];

    r->sent += r->pair.class->advance(r->pair.channel[0], events, EVENTS);
    r->landed += r->pair.class->advance(r->pair.channel[1], events, EVENTS);
    for (int32_t i = 0; i < PAIR_RANKS; i++)
        r->pair.class->flush(r->pair.channel[i]);
}

static void await_view(struct rig *r, uint32_t seq, uint32_t edge, size_t bytes, struct wire_view *view)
{
    enum wire_result result = look(r, seq, edge, bytes, NULL, view);

    for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++) {
        turn(r);
        result = look(r, seq, edge, bytes, NULL, view);
        if (result == WIRE_AGAIN)
            usleep(late < 100 ? 0 : 1000);
    }
    assert_int_equal(result, WIRE_DONE);
    pair_fill(wanted, seq, edge, bytes);
    assert_memory_equal(view->at, wanted, bytes);
    if (view->ack)
        r->pair.class->release(r->pair.channel[1], seq, view);
}

static void retire(struct rig *r)
{
    for (int32_t i = 0; i < PAIR_RANKS; i++) {
        r->pair.class->release(r->pair.channel[i], r->seq, NULL);
        r->pair.class->flush(r->pair.channel[i]);
    }
    r->seq++;
    r->sent = r->landed = 0;
    turn(r);
}

/* ------------------------------------------------------------------------------------------------------------ sending */
/* Retries, since the sender may learn late that slots are free again. */
static void show_when_known(struct rig *r, size_t bytes)
{
    enum wire_result result = show(r, LINE, given[0], bytes);

    for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++, usleep(1000))
        result = show(r, LINE, given[0], bytes);
    assert_int_equal(result, WIRE_DONE);
}

/* Nobody reads in the meantime, so the kernel's buffer becomes full in the middle of a frame. */
static void the_bytes_are_the_senders_again(const char *poller)
{
    static struct rig r;
    struct wire_view view;
    int room = LITTLE;

    if (!up(&r, poller))
        return;
    assert_int_equal(setsockopt(bulk(&r, 0)->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (int round = 0; round < 4; round++) {
        uint32_t first = r.seq;
        size_t bytes = round % 2 ? MOST : TCP_AHEAD_BYTES + 8 * (size_t)round;
        for (; r.seq < first + SHOWN; r.seq++) {
            pair_fill(given[0], r.seq, LINE, bytes);
            show_when_known(&r, bytes);
            memset(given[0], 0xee, bytes);
        }
        assert_true(round % 2 == 0 || bulk(&r, 0)->out);
        for (uint32_t seq = first; seq < r.seq; seq++)
            await_view(&r, seq, LINE, bytes, &view);
        r.seq--;
        retire(&r);
    }
    pair_close(&r.pair);
}

static void sent_straight(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        the_bytes_are_the_senders_again(pollers[i]);
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
/* From the second exposure of the same length on, the view points into the block in which it was received. */
static void received_in_its_block(void **state)
{
    static struct rig r;
    struct wire_view view;

    (void)state;
    assert_true(up(&r, "epoll"));
    for (int i = 0; i < 5; i++) {
        const char *at = bulk(&r, 1)->ahead_bytes ? bulk(&r, 1)->ahead->data : NULL;
        pair_fill(given[0], r.seq, LINE, TCP_AHEAD_BYTES);
        assert_int_equal(show(&r, LINE, given[0], TCP_AHEAD_BYTES), WIRE_DONE);
        await_view(&r, r.seq, LINE, TCP_AHEAD_BYTES, &view);
        assert_true((i == 0) == (at == NULL));
        assert_true(!at || view.at == at);
        retire(&r);
    }
    pair_close(&r.pair);
}

/*
 * One exposure and perhaps a second, often as long as the last one, viewed in a block or received in place, at once or one after the other.
 */
static void one_of_any(struct rig *r)
{
    static const size_t lengths[] = {16448, 20000, 32768, 65536, 65536, 65536, 65600, 131072, 100, 17001};
    struct wire_view view = {0};
    size_t a = lengths[pair_dice(10)], b = lengths[pair_dice(10)];
    bool second = pair_dice(3) == 0, early = pair_dice(2);
    uint32_t edge = pair_dice(4) ? LINE : 0;

    pair_fill(given[0], r->seq, edge, a);
    pair_fill(given[1], r->seq, 1, b);
    enum wire_result shown = show(r, edge, given[0], a), lands = WIRE_DONE, also = WIRE_DONE;
    assert_true(shown == WIRE_DONE || (shown == WIRE_PENDING && edge != LINE));
    if (second && early)
        lands = look(r, r->seq, 1, b, taken, NULL);
    if (second)
        also = show(r, 1, given[1], b);
    assert_true(also == WIRE_DONE || also == WIRE_PENDING);
    for (uint32_t turns = pair_dice(3); turns; turns--)
        turn(r);
    await_view(r, r->seq, edge, a, &view);
    if (second && !early)
        lands = look(r, r->seq, 1, b, taken, NULL);
    uint32_t sent = (uint32_t)(shown == WIRE_PENDING) + (also == WIRE_PENDING), landed = lands == WIRE_PENDING;
    for (int late = 0; late < PATIENCE_MS && (r->sent < sent || r->landed < landed); late++, usleep(late < 100 ? 0 : 1000))
        turn(r);
    assert_true(r->sent == sent && r->landed == landed);
    pair_fill(wanted, r->seq, 1, b);
    assert_true(!second || !memcmp(taken, wanted, b));
    retire(r);
}

/* Also in pieces, if the sender's kernel has a small buffer. */
static void whatever_comes(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static struct rig r;
        int room = LITTLE;
        if (!up(&r, pollers[i / 2]))
            continue;
        if (i % 2)
            assert_int_equal(setsockopt(bulk(&r, 0)->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        for (int k = 0; k < (i % 2 ? FEW : TURNS); k++)
            one_of_any(&r);
        pair_close(&r.pair);
    }
}

static void in_plain(void **state)
{
    in_records = false;
    sent_straight(state);
    whatever_comes(state);
}

static void as_records(void **state)
{
    in_records = true;
    sent_straight(state);
    whatever_comes(state);
    in_records = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_plain),
        cmocka_unit_test(as_records),
        cmocka_unit_test(received_in_its_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
