/* What one pump does. Two ranks of one process, without an engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/pair.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, BYTES = 131072, MESSAGES = 50, TURNS = 1000000, EVENTS = 16 };

static unsigned char given[BYTES], taken[BYTES];
static uint32_t looks_at_all;
static const struct poller_class *real;

/* With no socket that is waited for, the poller asks the kernel about all sockets. */
static uint32_t count_looks(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    looks_at_all += !hots;
    return real->reap(poller, events, max, hot, hots);
}

static uint32_t hear(struct pair *p, int32_t rank, enum wire_event_kind kind)
{
    struct wire_event events[EVENTS];
    uint32_t found = 0, n = p->class->advance(p->channel[rank], events, EVENTS);

    for (uint32_t i = 0; i < n; i++)
        found += events[i].kind == kind;
    p->class->flush(p->channel[rank]);
    return found;
}

/* Rank 0 announces a message, and rank 1 wants it. */
static void begin_message(struct pair *p, uint32_t number)
{
    static const uint16_t peer = 1;
    struct wire_span span = {given, BYTES};
    uint32_t announced = 0;

    pair_fill(given, number, 0, BYTES);
    assert_int_equal(
        p->class->expose(
            p->channel[0],
            &(struct wire_expose){
                .key = wire_key_of(number, 0, 0), .flags = WIRE_MESSAGE, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span}),
        WIRE_PENDING);
    p->class->flush(p->channel[0]);
    for (int turn = 0; turn < TURNS && !announced; turn++)
        announced = hear(p, 1, WIRE_EVENT_ANNOUNCED);
    assert_int_equal(announced, 1);
    assert_int_equal(
        p->class->view(p->channel[1],
                       &(struct wire_look){.key = wire_key_of(number, 0, 0), .flags = WIRE_MESSAGE, .land = (char *)taken, .bytes = BYTES}),
        WIRE_PENDING);
    p->class->flush(p->channel[1]);
}

/* A pump for the threads that wait ends when none waits any more. Another look, at all sockets, would be a system call for each message
 * that only delays it. */
static void ends_with_its_waiters(void **state)
{
    struct pair p;
    struct poller_class counting;

    (void)state;
    pair_open(&p, WINDOW, NULL);
    real = p.wire->poller->class;
    counting = *real;
    counting.reap = count_looks;
    for (uint32_t number = 1; number <= MESSAGES; number++) {
        uint32_t done = 0;
        begin_message(&p, number);
        assert_true(p.wire->hots > 0);
        looks_at_all = 0;
        p.wire->poller->class = &counting;
        base_lock(&p.wire->lock, p.wire->env);
        for (int turn = 0; turn < TURNS && p.wire->hots; turn++) {
            tcp_pump(p.wire, p.wire->hot, p.wire->hots);
            /* rank 0's small lane is not waited for, and has the grant */
            tcp_pump(p.wire, &p.wire->port[0].link[1].lane[TCP_LANE_SMALL].socket, 1);
        }
        base_unlock(&p.wire->lock, p.wire->env);
        p.wire->poller->class = real;
        assert_int_equal(p.wire->hots, 0);
        assert_int_equal(looks_at_all, 0);
        for (int turn = 0; turn < TURNS && !done; turn++)
            done = hear(&p, 1, WIRE_EVENT_DONE);
        assert_int_equal(done, 1);
        assert_memory_equal(taken, given, BYTES);
    }
    pair_close(&p);
}

/* A message for a channel that urges asks the rank to serve, whoever read it: its next call looks at that word. Other messages do not. */
static void messages_of_urging_channels_ask(void **state)
{
    _Atomic uint32_t asks = 0;
    struct pair p;

    (void)state;
    pair_open(&p, WINDOW, NULL);
    p.wire->wire.asks = &asks;
    begin_message(&p, 1);
    assert_int_equal(atomic_load(&asks), 0);
    p.class->urge(p.channel[1], true);
    begin_message(&p, 2);
    assert_int_equal(atomic_load(&asks), WIRE_ASKED);
    atomic_store(&asks, 0);
    p.class->urge(p.channel[1], false);
    begin_message(&p, 3);
    assert_int_equal(atomic_load(&asks), 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_with_its_waiters),
        cmocka_unit_test(messages_of_urging_channels_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
