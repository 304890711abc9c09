/* When frames leave: frames in a row wait for each other, frames with time between them do not. A rank that only sends still learns what
 * its peers have taken. Two ranks of one process, without an engine: only the test looks. The clock is mocked. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/pair.h"
#include "wire/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { RANKS = PAIR_RANKS, WINDOW = 8, WIDE = TCP_WINDOW_MAX, PAUSE_NS = 200000, PATIENCE_MS = 5000, BYTES = FRAME_LINE };

struct rig {
    struct pair pair;
    uint32_t sent;
};

static int64_t moment;
static int64_t tell_moment(const struct comm_env *env)
{
    (void)env;
    return moment;
}

static int up_with(void **state, uint32_t window)
{
    static struct comm_env mock;
    static struct rig rig;
    const struct comm_env *env = wire_default_env();

    rig.sent = 0;
    pair_open(&rig.pair, window, NULL);
    mock = *env;
    mock.now = tell_moment;
    rig.pair.wire->env = &mock;
    moment = env->now(env);
    *state = &rig;
    return 0;
}

static int up(void **state)
{
    return up_with(state, WINDOW);
}

static int up_wide(void **state)
{
    return up_with(state, WIDE);
}

static int down(void **state)
{
    struct rig *r = *state;

    r->pair.wire->env = wire_default_env();
    pair_close(&r->pair);
    return 0;
}

/* Rank 0 sends eight bytes to rank 1. */
static enum wire_result give(struct rig *r, uint16_t edge, uint16_t flags)
{
    static const uint64_t bytes = 7;
    static const uint16_t peer = 1;
    struct wire_span span = {&bytes, sizeof bytes};
    struct wire_expose e = {.key = wire_key_of(r->sent + 1, 0, 0),
                            .fingerprint = 1,
                            .edge = edge,
                            .flags = flags,
                            .peers = &peer,
                            .npeers = 1,
                            .nspans = 1,
                            .spans = &span};
    enum wire_result result = r->pair.class->expose(r->pair.channel[0], &e);
    r->sent += result == WIRE_DONE;
    r->pair.class->flush(r->pair.channel[0]);
    return result;
}

/* Bytes that have arrived at a rank and were not read; on a busy machine they may arrive late. */
static int unread(const struct rig *r, int32_t rank)
{
    int bytes = -1;

    assert_int_equal(ioctl(r->pair.wire->port[rank].link[1 - rank].lane[TCP_LANE_SMALL].fd, FIONREAD, &bytes), 0);
    return bytes;
}

static void await_bytes(const struct rig *r, int32_t rank, int bytes)
{
    for (int i = 0; i < PATIENCE_MS && unread(r, rank) < bytes; i++)
        usleep(1000);
    assert_true(unread(r, rank) >= bytes);
}

/* Rank 1 looks and processes what it found. What it then owes leaves with the next flush. */
static void look(struct rig *r)
{
    struct wire_event events[2 * WINDOW];

    r->pair.class->advance(r->pair.channel[1], events, 2 * WINDOW);
    r->pair.class->flush(r->pair.channel[1]);
}

/* Waits, since bytes may arrive late. */
static void await_seen(struct rig *r)
{
    for (int late = 0; late < PATIENCE_MS && tcp_of(r->pair.channel[1])->member[0].seen < r->sent; late++, usleep(1000))
        look(r);
    assert_true(tcp_of(r->pair.channel[1])->member[0].seen == r->sent);
}

static void rows(void **state)
{
    struct rig *r = *state;

    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_false(r->pair.wire->burst.held);
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_true(r->pair.wire->burst.held);
    look(r); /* ends the row */
    assert_false(r->pair.wire->burst.held);
    await_seen(r);
}

/* The remaining time of the monitor's timer; 0: it is not set. */
static int64_t timer_of(const struct rig *r)
{
    struct itimerspec left;

    assert_int_equal(timerfd_gettime(r->pair.wire->burst.timer, &left), 0);
    return left.it_value.tv_sec * INT64_C(1000000000) + left.it_value.tv_nsec;
}

/* Two messages, of which the second is held back, and a look that ends the row. */
static void one_row(struct rig *r)
{
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_true(r->pair.wire->burst.held);
    await_seen(r);
    assert_false(r->pair.wire->burst.held);
}

/* The mocked clock differs from the kernel's, so only check whether a timer is set. */
static void many_rows(void **state)
{
    struct rig *r = *state;
    struct wire_event events[8];

    for (int i = 0; i < TCP_ROWS_ENDED; i++) {
        one_row(r);
        assert_int_equal(timer_of(r), 0); /* cancelled */
        assert_int_equal(r->pair.wire->burst.guard_ns, 0);
    }
    one_row(r);
    int64_t guard = r->pair.wire->burst.guard_ns;
    assert_int_equal(guard, moment + TCP_GUARD_NS);
    one_row(r);
    assert_int_equal(r->pair.wire->burst.guard_ns, guard); /* not set again */
    for (int i = 0; i < TCP_GUARD_NS / PAUSE_NS; i++) {
        one_row(r);
        assert_true(r->pair.wire->burst.guard_ns - moment >= TCP_GUARD_NS / 2); /* it stays ahead */
    }
    assert_true(r->pair.wire->burst.guard_ns > guard);
    moment += TCP_ROWS_GAP_NS; /* after a gap, each row sets its timer again */
    one_row(r);
    assert_int_equal(r->pair.wire->burst.guard_ns, 0);

    for (int i = 0; i < TCP_ROWS_ENDED; i++)
        one_row(r);
    assert_true(r->pair.wire->burst.guard_ns > 0);
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_true(r->pair.wire->burst.held);
    r->pair.class->poll(&r->pair.wire->wire, events, 8); /* the monitor ended the row, so the caller is not relied on */
    assert_false(r->pair.wire->burst.held);
    await_seen(r);
    one_row(r);
    assert_int_equal(r->pair.wire->burst.guard_ns, 0);
}

/* The receiver shares the poller here. It only looks and sends nothing, so no row of its own is counted. */
static void end_row(struct rig *r)
{
    struct wire_event events[2 * WINDOW];

    for (int late = 0; late < PATIENCE_MS && tcp_of(r->pair.channel[1])->member[0].seen < r->sent; late++, usleep(late ? 1000 : 0))
        r->pair.class->advance(r->pair.channel[1], events, 2 * WINDOW);
    assert_true(tcp_of(r->pair.channel[1])->member[0].seen == r->sent);
    assert_false(r->pair.wire->burst.held);
}

static void a_row_of(struct rig *r, int messages, bool first_waits)
{
    moment += PAUSE_NS;
    for (int i = 0; i < messages; i++) {
        assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
        assert_int_equal(r->pair.wire->burst.held, i || first_waits);
    }
    end_row(r);
}

static void long_rows(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 2 * TCP_ROWS_ENDED; i++)
        a_row_of(r, TCP_ROW_LONG, false); /* too few are held back, so the first is not held */
    for (int i = 0; i < TCP_ROWS_ENDED; i++)
        a_row_of(r, TCP_ROW_LONG + 1, false);
    for (int i = 0; i < TCP_ROWS_ENDED; i++)
        a_row_of(r, TCP_ROW_LONG, true);
    a_row_of(r, 1, true); /* after one short row, the caller's first send is no longer held */
    a_row_of(r, 1, false);
    for (int i = 0; i < TCP_ROWS_ENDED; i++)
        a_row_of(r, TCP_ROW_LONG + 1, false);
    moment += TCP_ROWS_GAP_NS; /* a pause before it */
    a_row_of(r, TCP_ROW_LONG + 1, false);
    for (int i = 1; i < TCP_ROWS_ENDED; i++)
        a_row_of(r, TCP_ROW_LONG + 1, false);
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_true(r->pair.wire->burst.held);
    moment += PAUSE_NS; /* one held frame; it leaves with the next send */
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_null(r->pair.wire->port[0].link[1].lane[TCP_LANE_SMALL].out);
    end_row(r);
}

static const struct poller_class *quick;
static void submit_slowly(struct poller *poller)
{
    quick->submit(poller);
    moment += PAUSE_NS;
}

static int64_t start_slowly(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *pieces, uint32_t count)
{
    moment += PAUSE_NS;
    return quick->start(poller, socket, way, pieces, count);
}

static void slow_sends_of(struct rig *r, bool collects)
{
    static struct poller_class slow;
    struct poller *p = r->pair.wire->poller;
    bool collected = p->collects;

    quick = p->class;
    slow = *quick;
    if (collects)
        slow.submit = submit_slowly;
    else
        slow.start = start_slowly;
    p->class = &slow;
    p->collects = collects;
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_false(r->pair.wire->burst.held);
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    assert_true(r->pair.wire->burst.held);
    p->class = quick;
    end_row(r);
    p->collects = collected;
}

/* Messages to several peers form a row however long the kernel takes for the first of them: only the caller's own time is a gap. */
static void slow_sends(void **state)
{
    slow_sends_of(*state, true);
    slow_sends_of(*state, false);
}

static void pauses(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < WINDOW; i++) {
        moment += PAUSE_NS;
        assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
        assert_false(r->pair.wire->burst.held);
        await_bytes(r, 1, (i + 1) * BYTES);
    }
}

/* The ranks share a poller, so rank 1's look also reads rank 0's end, but before rank 1 answers. */
static void messages_alone(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 4 * WINDOW; i++) {
        if (i && i % WINDOW == 0) {
            await_bytes(r, 1, WINDOW * BYTES);
            look(r);
            await_bytes(r, 0, FRAME_LINE);
        }
        moment += PAUSE_NS;
        assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_DONE);
    }
    assert_int_equal(give(r, 0, WIRE_MESSAGE), WIRE_AGAIN); /* until the receiver takes them */
}

static void retire(struct rig *r, uint32_t seq)
{
    for (int i = 0; i < RANKS; i++)
        r->pair.class->release(r->pair.channel[i], seq, NULL);
    r->pair.class->flush(r->pair.channel[1]);
}

static void exposures_alone(void **state)
{
    struct rig *r = *state;

    for (uint32_t i = 0; i < 6 * WINDOW; i++) {
        if (i && i % (2 * WINDOW) == 0) {
            await_bytes(r, 1, 2 * WINDOW * BYTES);
            look(r);
            retire(r, i);
            await_bytes(r, 0, FRAME_LINE);
        }
        moment += PAUSE_NS;
        assert_int_equal(give(r, WIRE_ONCE | WIRE_TO_ALL, WIRE_WORK), WIRE_DONE);
    }
    assert_int_equal(give(r, WIRE_ONCE | WIRE_TO_ALL, WIRE_WORK), WIRE_AGAIN);
}

/* Rank 1 takes the first chunk of the last operation's stream, which has `rounds` chunks. Returns whether the acknowledgement waits for
 * another frame. */
static bool owes_for(struct rig *r, uint32_t rounds)
{
    struct wire_view seen;
    struct wire_look l = {
        .key = wire_key_of(r->sent, 0, 0), .fingerprint = 1, .flags = WIRE_GLANCE, .rounds = rounds, .bytes = 8, .view = &seen};
    enum wire_result result = WIRE_AGAIN;
    struct tcp_member *m = &tcp_of(r->pair.channel[1])->member[0];

    for (int late = 0; late < PATIENCE_MS && result == WIRE_AGAIN; late++, usleep(1000))
        result = r->pair.class->view(r->pair.channel[1], &l);
    assert_int_equal(result, WIRE_DONE);
    r->pair.class->release(r->pair.channel[1], r->sent, &seen);
    uint32_t acks = m->acks;
    m->acks = 0;
    return acks;
}

/* A sender waits for acknowledgements only if it has more chunks than credits. The last one for which it waits is sent at once. */
static void acknowledgements(void **state)
{
    struct rig *r = *state;

    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_WORK), WIRE_DONE);
    assert_true(owes_for(r, 0)); /* the number of chunks is unknown */
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_WORK), WIRE_DONE);
    assert_true(owes_for(r, TCP_CREDITS + 2));
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_WORK), WIRE_DONE);
    int before = unread(r, 0);
    assert_false(owes_for(r, TCP_CREDITS + 1));
    r->pair.class->flush(r->pair.channel[1]);
    await_bytes(r, 0, before + FRAME_LINE);
    moment += PAUSE_NS;
    assert_int_equal(give(r, 0, WIRE_WORK), WIRE_DONE);
    assert_false(owes_for(r, TCP_CREDITS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows, up, down),
        cmocka_unit_test_setup_teardown(many_rows, up, down),
        cmocka_unit_test_setup_teardown(long_rows, up_wide, down),
        cmocka_unit_test_setup_teardown(slow_sends, up, down),
        cmocka_unit_test_setup_teardown(pauses, up, down),
        cmocka_unit_test_setup_teardown(messages_alone, up, down),
        cmocka_unit_test_setup_teardown(exposures_alone, up, down),
        cmocka_unit_test_setup_teardown(acknowledgements, up, down),
    };
    const char *poller = getenv("COMM_TCP_POLLER");

    if (poller && !strcmp(poller, "io_uring") && group_ring_missing()) {
        printf("skipped: %s\n", group_ring_missing());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
