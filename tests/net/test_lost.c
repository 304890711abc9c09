/* If something is missing from a peer that closed, this is reported after everything that the peer sent before, which may contain the
 * cause. Two ranks of one process over the tcp wire, without an engine. */
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
#include <unistd.h>

enum { WINDOW = 8, PATIENCE_MS = 5000, EVENTS = 4, SORT = 1 };

static void say(struct pair *pair)
{
    static const unsigned char why[WIRE_NOTE_BYTES] = "why";
    struct wire_span span = {why, sizeof why};
    struct wire_expose note = {.key = wire_key_of(1, 0, SORT), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};

    assert_int_equal(pair->class->expose(pair->channel[0], &note), WIRE_DONE);
    pair->class->flush(pair->channel[0]);
}

static void a_note_is_told_first(void **state)
{
    static const char *const pollers[] = {"epoll", "io_uring"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        static struct pair pair;
        struct wire_event event[EVENTS];
        if (!group_poller(pollers[i]))
            continue;
        pair_open(&pair, WINDOW, NULL);
        struct tcp_channel *c = tcp_of(pair.channel[1]);
        say(&pair);
        base_lock(&pair.wire->lock, pair.wire->env);
        for (int late = 0; late < PATIENCE_MS && !c->notes_fresh; late++, usleep(1000))
            tcp_pump(pair.wire, NULL, 0);
        tcp_miss(c, 0, wire_key_of(1, 0, 0));
        base_unlock(&pair.wire->lock, pair.wire->env);
        assert_int_equal(pair.class->advance(pair.channel[1], event, EVENTS), 1);
        assert_int_equal(event[0].kind, WIRE_EVENT_ANNOUNCED);
        assert_int_equal(event[0].result, WIRE_NOTE);
        assert_int_equal(pair.class->advance(pair.channel[1], event, EVENTS), 1);
        assert_int_equal(event[0].kind, WIRE_EVENT_LOST);
        pair_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_note_is_told_first)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
