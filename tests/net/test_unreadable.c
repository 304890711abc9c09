/* A send that the kernel refuses while the connection stands, here because the memory of the caller cannot be read. The connection ends, so
 * that both ranks learn of it. Two ranks of one process, without an engine. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/pair.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WINDOW = 16, BYTES = 131072, PATIENCE_MS = 10000, EVENTS = 16 };

static char heard[512];

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    strncpy(heard, line, sizeof heard - 1);
}

static void send_it(struct pair *p, const void *at)
{
    static const uint16_t peer = 1;
    struct wire_span span = {at, BYTES};

    assert_int_equal(
        p->class->expose(p->channel[0],
                         &(struct wire_expose){
                             .key = wire_key_of(1, 0, 0), .flags = WIRE_WORK, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span}),
        WIRE_PENDING);
    p->class->flush(p->channel[0]);
}

static void ends_the_connection(void **state)
{
    static const char *const pollers[] = {"epoll", "io_uring"};
    void *at = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(at != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        struct pair p;
        if (!group_poller(pollers[i]))
            continue;
        heard[0] = 0;
        pair_open(&p, WINDOW, hear);
        send_it(&p, at);
        const struct tcp_lane *here = &p.wire->port[0].link[1].lane[TCP_LANE_BULK], *there = &p.wire->port[1].link[0].lane[TCP_LANE_BULK];
        for (int late = 0; late < PATIENCE_MS && !(here->ended && there->ended); late++, usleep(1000)) {
            struct wire_event events[EVENTS];
            for (int32_t rank = 0; rank < PAIR_RANKS; rank++)
                p.class->advance(p.channel[rank], events, EVENTS);
        }
        assert_true(here->ended && there->ended);
        assert_non_null(strstr(heard, strerror(EFAULT)));
        pair_close(&p);
    }
    munmap(at, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_the_connection)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
