/*
 * Sealed lanes: what leaves one end arrives at the other whatever pieces it comes in, small or landing in place; nothing of it can be read
 * on the way; and a changed, repeated, lost or exchanged byte ends the connection before anybody is told of what it was part of.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/handshake.h"
#include "net/tcp.h"
#include "wire/table.h"

#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 100000, WAY = 2 * BYTES };

struct end {
    struct tcp_wire wire;
    struct tcp_port port;
    struct tcp_link link;
    struct tcp_lane lane;
    char stage[TCP_STAGE_BULK];
};

static const struct base_log quiet = {.level = 0, .rank = -1};
static unsigned char sent[BYTES], landed[BYTES], way[WAY];
static size_t on_the_way;
static bool keyed; /* or only checked */

static void end_up(struct end *e, bool other)
{
    struct seal keys = {.key = {{1, 2, 3}, {4, 5, 6}}, .number = {1, 0}};

    memset(e, 0, sizeof *e);
    e->wire.env = wire_default_env();
    e->wire.log = &quiet;
    e->port.wire = &e->wire;
    e->lane = (struct tcp_lane){.fd = -1, .port = &e->port, .link = &e->link, .stage = e->stage, .stage_bytes = sizeof e->stage};
    if (other) {
        unsigned char key[CRYPTO_KEY];
        memcpy(key, keys.key[0], sizeof key);
        memcpy(keys.key[0], keys.key[1], sizeof key);
        memcpy(keys.key[1], key, sizeof key);
        keys.number[0] = 0, keys.number[1] = 1;
    }
    assert_true(tcp_seal_start(&e->lane, keyed ? &keys : NULL));
}

/* Everything of `sent`, from pieces of odd lengths, into `way`. */
static void seal_all(struct end *e)
{
    struct iovec vector[40];
    size_t done = 0;

    on_the_way = 0;
    while (done < BYTES) {
        uint32_t n = 0;
        for (size_t at = done, piece = 1; at < BYTES && n < 40; at += piece, piece = piece * 3 % 20011 + 1) {
            piece = piece < BYTES - at ? piece : BYTES - at;
            vector[n++] = (struct iovec){sent + at, piece};
        }
        size_t taken = tcp_seal_take(&e->lane, vector, n);
        assert_true(taken > 0 && tcp_seal_pending(&e->lane));
        while (tcp_seal_pending(&e->lane)) { /* a socket takes less than it is given */
            struct iovec leaving = tcp_seal_leaving(&e->lane);
            size_t some = leaving.iov_len > 1000 ? leaving.iov_len / 2 : leaving.iov_len;
            memcpy(way + on_the_way, leaving.iov_base, some);
            on_the_way += some;
            tcp_seal_sent(&e->lane, some);
        }
        done += taken;
    }
}

/* The whole of it as the body of one frame. */
static const char *open_all(struct end *e, size_t count, size_t piece)
{
    const char *why = NULL;

    e->lane.in_body = true;
    e->lane.left = BYTES;
    e->lane.land = (char *)landed;
    memset(landed, 0, sizeof landed);
    for (size_t at = 0; at < count && !why && e->lane.in_body;) {
        struct iovec room = tcp_seal_room(&e->lane);
        size_t n = piece < room.iov_len ? piece : room.iov_len;
        n = n < count - at ? n : count - at;
        assert_true(n > 0);
        memcpy(room.iov_base, way + at, n);
        why = tcp_seal_came(&e->lane, n);
        at += n;
    }
    return why;
}

static int prepare(void **state)
{
    (void)state;
    keyed = !crypto_missing();
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + i / 251);
    return 0;
}

static void arrives(void **state)
{
    static const size_t pieces[] = {1, 3, 1000, 16403, 16404, 16405, 60000, WAY};
    struct end from, to;

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        end_up(&from, false);
        end_up(&to, true);
        seal_all(&from);
        assert_true(on_the_way > BYTES);
        assert_null(open_all(&to, on_the_way, pieces[i]));
        assert_false(to.lane.in_body); /* all of it is here */
        assert_memory_equal(sent, landed, BYTES);
        for (size_t at = 0; keyed && at + 16 <= on_the_way; at += 997) /* no sixteen bytes of it were in plain */
            assert_null(memmem(way, on_the_way, sent + at % (BYTES - 16), 16));
        tcp_seal_end(&from.lane);
        tcp_seal_end(&to.lane);
    }
}

static void refused(const char *what)
{
    struct end to;

    end_up(&to, true);
    const char *why = open_all(&to, on_the_way, 5000);
    if (!why && !to.lane.in_body)
        fail_msg("%s: passed", what);
    tcp_seal_end(&to.lane);
}

static void changed(void **state)
{
    struct end from;

    (void)state;
    end_up(&from, false);
    seal_all(&from);
    for (size_t at = 0; at < on_the_way; at += at < 64 ? 1 : 2377) {
        way[at] ^= (unsigned char)(1 << at % 8);
        refused("a changed bit");
        way[at] ^= (unsigned char)(1 << at % 8);
    }
    size_t record = 4 + (size_t)way[0] + 256 * (size_t)way[1] + (keyed ? CRYPTO_TAG : 4);
    memmove(way, way + record, on_the_way - record); /* the first one is left out */
    on_the_way -= record;
    refused("a record left out");
    tcp_seal_end(&from.lane);
    end_up(&from, false);
    seal_all(&from);
    assert_true(on_the_way > 2 * record);
    memcpy(way + record, way, record); /* the first one again in the second's place: they may differ in length, never in being refused */
    refused("a record repeated");
    tcp_seal_end(&from.lane);
    if (!keyed) /* a checksum is the same in both directions */
        return;
    end_up(&from, true); /* our own bytes sent back to us */
    seal_all(&from);
    refused("bytes of the other direction");
    tcp_seal_end(&from.lane);
}

static void only_checked(void **state)
{
    keyed = false;
    arrives(state);
    changed(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrives), cmocka_unit_test(changed), cmocka_unit_test(only_checked)};

    return cmocka_run_group_tests(tests, prepare, NULL);
}
