/*
 * Sealed lanes: what one end sends arrives at the other, in whatever pieces, copied or received in place. Nothing can be read in transit. A
 * changed, repeated, lost or exchanged byte ends the connection before its record is used. With each cipher, over a change of keys, and for
 * heartbeats.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/auth/handshake.h"
#include "net/lane/lane.h"
#include "wire/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 100000, WAY = 2 * BYTES, RECORD_HEAD = FRAME_LINE, BEAT_RECORD = 2 * FRAME_LINE };

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
static enum crypto_kind kind; /* or CRYPTO_NONE: only checked */
static uint32_t lane_number = TCP_LANE_BULK;

static void end_up(struct end *e, bool other)
{
    struct seal keys = {.key = {{1, 2, 3}, {4, 5, 6}}};

    memset(e, 0, sizeof *e);
    e->wire.env = wire_default_env();
    e->wire.log = &quiet;
    e->port.wire = &e->wire;
    e->lane = (struct tcp_lane){
        .fd = -1, .lane = lane_number, .port = &e->port, .link = &e->link, .stage = e->stage, .stage_bytes = sizeof e->stage};
    if (other) {
        unsigned char key[CRYPTO_KEY];
        memcpy(key, keys.key[0], sizeof key);
        memcpy(keys.key[0], keys.key[1], sizeof key);
        memcpy(keys.key[1], key, sizeof key);
    }
    assert_true(tcp_lane_seal(&e->lane, &keys, kind));
}

/* Seals all of `sent`, in pieces of odd lengths, into `way`. */
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
        size_t taken = record_take(e->lane.records, vector, n);
        assert_true(taken > 0 && record_pending(e->lane.records));
        while (record_pending(e->lane.records)) { /* a socket accepts less than it is given */
            struct iovec leaving = record_leaving(e->lane.records);
            size_t some = leaving.iov_len > 1000 ? leaving.iov_len / 2 : leaving.iov_len;
            memcpy(way + on_the_way, leaving.iov_base, some);
            on_the_way += some;
            record_sent(e->lane.records, some);
        }
        done += taken;
    }
}

/* Opens everything as the payload of one frame. */
static const char *open_all(struct end *e, size_t count, size_t piece)
{
    const char *why = NULL;

    e->lane.in_body = true;
    e->lane.left = BYTES;
    e->lane.land = (char *)landed;
    memset(landed, 0, sizeof landed);
    for (size_t at = 0; at < count && !why && e->lane.in_body;) {
        struct iovec room = record_room(e->lane.records);
        size_t n = piece < room.iov_len ? piece : room.iov_len;
        n = n < count - at ? n : count - at;
        assert_true(n > 0);
        memcpy(room.iov_base, way + at, n);
        why = tcp_open_records(&e->lane, n);
        at += n;
    }
    return why;
}

static int prepare(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + i / 251);
    return 0;
}

static void arrives(void **state)
{
    static const size_t pieces[] = {1, 3, 1000, 16447, 16448, 16449, 60000, WAY};
    struct end from, to;

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        end_up(&from, false);
        end_up(&to, true);
        seal_all(&from);
        assert_true(on_the_way > BYTES);
        assert_null(open_all(&to, on_the_way, pieces[i]));
        assert_false(to.lane.in_body); /* all of it has arrived */
        assert_memory_equal(sent, landed, BYTES);
        for (size_t at = 0; kind && at + 16 <= on_the_way; at += 997) /* no sixteen bytes of it were in plain */
            assert_null(memmem(way, on_the_way, sent + at % (BYTES - 16), 16));
        record_end(from.lane.records);
        record_end(to.lane.records);
    }
}

static void refused(const char *what)
{
    struct end to;

    end_up(&to, true);
    const char *why = open_all(&to, on_the_way, 5000);
    if (!why && !to.lane.in_body)
        fail_msg("%s: passed", what);
    record_end(to.lane.records);
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
    size_t record = RECORD_HEAD + (size_t)way[0] + 256 * (size_t)way[1];
    memmove(way, way + record, on_the_way - record); /* omit the first record */
    on_the_way -= record;
    refused("a record left out");
    record_end(from.lane.records);
    end_up(&from, false);
    seal_all(&from);
    assert_true(on_the_way > 2 * record);
    memcpy(way + record, way,
           record); /* repeat the first record in place of the second; their lengths may differ, but it must be refused */
    refused("a record repeated");
    record_end(from.lane.records);
    end_up(&from, false);
    seal_all(&from);
    size_t second = RECORD_HEAD + (size_t)way[record] + 256 * (size_t)way[record + 1];
    unsigned char *moved = malloc(record);
    memcpy(moved, way, record);
    memmove(way, way + record, second);
    memcpy(way + second, moved, record);
    free(moved);
    refused("two records exchanged");
    record_end(from.lane.records);
    end_up(&from, false);
    seal_all(&from);
    for (size_t cut = 1; cut < 300; cut += 37) { /* truncated: nothing of the last record is used, and the payload is never complete */
        struct end to;
        end_up(&to, true);
        assert_null(open_all(&to, on_the_way - cut, 5000));
        assert_true(to.lane.in_body);
        record_end(to.lane.records);
    }
    record_end(from.lane.records);
    if (!kind) /* a checksum is the same in both directions */
        return;
    end_up(&from, true); /* our own bytes reflected to us */
    seal_all(&from);
    refused("bytes of the other direction");
    record_end(from.lane.records);
}

/* The frame of a chunk, followed by a word, leaves at once and in whole lines, so that the kernel copies from line to line. Its payload has
 * its own records, which are opened directly in place. */
static void whole_lines(void **state)
{
    enum { CHUNK = 131072 };
    static unsigned char chunk[CHUNK], land[CHUNK], line[FRAME_LINE];
    const struct iovec vector[] = {{line, sizeof line}, {chunk, sizeof chunk}, {line, sizeof line}};
    struct end from, to;

    (void)state;
    memset(chunk, 7, sizeof chunk);
    end_up(&from, false);
    end_up(&to, true);
    assert_int_equal(record_take(from.lane.records, vector, 3), CHUNK + 2 * FRAME_LINE);
    struct iovec leaving = record_leaving(from.lane.records), room = record_room(to.lane.records);
    assert_int_equal((uintptr_t)leaving.iov_base % FRAME_LINE, 0);
    assert_int_equal((uintptr_t)room.iov_base % FRAME_LINE, 0);
    assert_int_equal(leaving.iov_len % FRAME_LINE, 0);
    size_t header = RECORD_HEAD + FRAME_LINE;
    memcpy(room.iov_base, leaving.iov_base, header);
    to.lane.in_body = true; /* of another frame, which ends with the first record */
    to.lane.left = 2 * FRAME_LINE;
    assert_null(tcp_open_records(&to.lane, header));
    to.lane.left = sizeof land;
    to.lane.land = (char *)land;
    memcpy(room.iov_base, (char *)leaving.iov_base + header, leaving.iov_len - 2 * header);
    assert_null(tcp_open_records(&to.lane, leaving.iov_len - 2 * header));
    assert_false(to.lane.in_body);
    assert_int_equal(to.lane.end, 0);
    assert_memory_equal(land, chunk, sizeof land);
    record_end(from.lane.records);
    record_end(to.lane.records);
}

static void need_ciphers(void)
{
    if (crypto_missing())
        group_skip("%s", crypto_missing());
}

static void by_each(void **state, void (*test)(void **state))
{
    need_ciphers();
    for (kind = CRYPTO_CHACHA; kind <= CRYPTO_AES; kind++)
        test(state);
    kind = CRYPTO_NONE;
}

static void sealed_arrives(void **state)
{
    by_each(state, arrives);
}

static void sealed_changed(void **state)
{
    by_each(state, changed);
}

static void sealed_whole_lines(void **state)
{
    by_each(state, whole_lines);
}

static void only_checked(void **state)
{
    kind = CRYPTO_NONE;
    arrives(state);
    changed(state);
}

/* Opens a record of one byte. */
static bool opens(struct end *to, const unsigned char *record, size_t bytes)
{
    unsigned char out[64];
    struct iovec room = record_room(to->lane.records);

    to->lane.in_body = true;
    to->lane.left = sizeof out;
    to->lane.land = (char *)out;
    memcpy(room.iov_base, record, bytes);
    return !tcp_open_records(&to->lane, bytes) && to->lane.left == sizeof out - 1;
}

/* At the 2^20th record both ends switch to the next key. */
static void rekeyed(void **state)
{
    enum { RECORDS = (1 << 20) + 3 };
    static struct end from, to;
    const struct iovec byte = {(char[]){7}, 1};

    (void)state;
    end_up(&from, false);
    end_up(&to, true);
    for (uint32_t i = 0; i < RECORDS; i++) {
        assert_int_equal(record_take(from.lane.records, &byte, 1), 1);
        struct iovec leaving = record_leaving(from.lane.records);
        if (!opens(&to, leaving.iov_base, leaving.iov_len))
            fail_msg("record %u was not opened", i);
        record_sent(from.lane.records, leaving.iov_len);
    }
    record_end(from.lane.records);
    record_end(to.lane.records);
}

static void sealed_rekeyed(void **state)
{
    by_each(state, rekeyed);
}

/* After a rekey, a cipher opens nothing that was sealed before, and a cipher without the rekey opens nothing that was sealed after. */
static void keys_change(void **state)
{
    const unsigned char key[CRYPTO_KEY] = {1};
    unsigned char text[40] = {2}, sealed[2][40], tag[2][CRYPTO_TAG], back[40];

    (void)state;
    struct crypto_cipher *a = crypto_cipher_make(kind, key), *b = crypto_cipher_make(kind, key);
    assert_true(a && b && crypto_seal(a, 5, NULL, 0, text, sizeof text, sealed[0], tag[0]));
    assert_true(crypto_cipher_rekey(a) && crypto_seal(a, 5, NULL, 0, text, sizeof text, sealed[1], tag[1]));
    assert_memory_not_equal(sealed[0], sealed[1], sizeof text);
    assert_false(crypto_open(b, 5, NULL, 0, sealed[1], sizeof text, back, tag[1]));
    assert_true(crypto_open(b, 5, NULL, 0, sealed[0], sizeof text, back, tag[0]));
    assert_true(crypto_cipher_rekey(b) && crypto_open(b, 5, NULL, 0, sealed[1], sizeof text, back, tag[1]));
    assert_memory_equal(back, text, sizeof text);
    assert_false(crypto_open(b, 5, NULL, 0, sealed[0], sizeof text, back, tag[0]));
    crypto_cipher_end(a);
    crypto_cipher_end(b);
}

static void sealed_keys_change(void **state)
{
    by_each(state, keys_change);
}

/* AES-256-GCM: an example of the specification (McGrew and Viega, "The Galois/Counter Mode of Operation", test case 14, with a key and a
 * nonce of zeros). */
static void known_answer(void **state)
{
    static const unsigned char text[16] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
    static const unsigned char mark[16] = {0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    const unsigned char zeros[CRYPTO_KEY] = {0};
    unsigned char out[16], tag[CRYPTO_TAG];

    (void)state;
    need_ciphers();
    struct crypto_cipher *c = crypto_cipher_make(CRYPTO_AES, zeros);
    assert_true(c && crypto_seal(c, 0, NULL, 0, zeros, sizeof out, out, tag));
    assert_memory_equal(out, text, sizeof out);
    assert_memory_equal(tag, mark, sizeof tag);
    crypto_cipher_end(c);
}

/* ------------------------------------------------------------------------------------------------------------ heartbeats */
static void beats_up(struct end e[2], int fd[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    for (int i = 0; i < 2; i++) {
        memset(&e[i], 0, sizeof e[i]);
        lane_number = TCP_BEAT;
        end_up(&e[i], i);
        lane_number = TCP_LANE_BULK;
        e[i].lane.fd = fd[i];
    }
}

static void beats_down(struct end e[2], const int fd[2])
{
    for (int i = 0; i < 2; i++) {
        record_end(e[i].lane.records);
        close(fd[i]);
    }
}

/* As many beats arrive as were sent, whatever a socket accepts at once. Anything else, and any repetition, is refused. */
static void beats(void **state)
{
    static struct end e[2];
    unsigned char record[2 * BEAT_RECORD];
    const char *why = NULL;
    uint32_t words = 0;
    int64_t came = 0, n = 0;
    int fd[2];

    (void)state;
    beats_up(e, fd);
    for (int i = 0; i < 100; i++)
        assert_true(record_beat(e[0].lane.records, e[0].lane.fd, 0) > 0);
    while ((n = record_heard(e[1].lane.records, e[1].lane.fd, &words, &why)) > 0)
        came += n;
    assert_true(n == -EAGAIN && came == 100 && !why);
    for (int fault = 0; fault < 4; fault++) { /* forged, changed, repeated, truncated */
        assert_true(record_beat(e[0].lane.records, e[0].lane.fd, 0) > 0);
        ssize_t bytes = recv(fd[1], record, sizeof record, 0);
        assert_int_equal(bytes, BEAT_RECORD);
        if (fault == 0)
            memset(record + 4, 0, (size_t)bytes - 4);
        record[bytes - 1] ^= fault == 1;
        assert_int_equal(send(fd[0], record, (size_t)bytes - (fault == 3), 0), bytes - (fault == 3));
        if (fault == 2) {
            assert_int_equal(record_heard(e[1].lane.records, e[1].lane.fd, &words, &why), 1);
            assert_int_equal(send(fd[0], record, (size_t)bytes, 0), bytes);
        }
        assert_int_equal(record_heard(e[1].lane.records, e[1].lane.fd, &words, &why), fault == 3 ? -EAGAIN : -EBADMSG);
        assert_true((fault == 3) == !why);
        beats_down(e, fd);
        beats_up(e, fd);
        why = NULL;
    }
    assert_int_equal(send(fd[0], "", 1, 0), 1); /* a plain byte is not a beat */
    assert_int_equal(record_heard(e[1].lane.records, e[1].lane.fd, &words, &why), -EAGAIN);
    assert_int_equal(shutdown(fd[0], SHUT_WR), 0);
    assert_int_equal(record_heard(e[1].lane.records, e[1].lane.fd, &words, &why), 0);
    beats_down(e, fd);
}

static void sealed_beats(void **state)
{
    by_each(state, beats);
}

/* A socket accepts only part of a beat: the rest is sent first. */
static void beats_in_parts(void **state)
{
    static struct end e[2];
    char rest[4096];
    const char *why = NULL;
    uint32_t words = 0;
    int64_t gone = 0, came = 0, n;
    int fd[2], small = 1;

    (void)state;
    beats_up(e, fd);
    assert_int_equal(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    for (int full = 0; full < 3; full++) {
        while ((n = record_beat(e[0].lane.records, e[0].lane.fd, 0)) > 0)
            gone += n;
        assert_int_equal(n, -EAGAIN);
        while ((n = record_heard(e[1].lane.records, e[1].lane.fd, &words, &why)) > 0)
            came += n;
        assert_true(n == -EAGAIN && !why);
    }
    assert_int_equal(words, 1);
    while (record_beat(e[0].lane.records, e[0].lane.fd, 0) > 0)
        ;
    assert_int_equal(record_beat(e[0].lane.records, e[0].lane.fd, RECORD_GOODBYE), -EAGAIN); /* queued after what already waits */
    while ((n = record_heard(e[1].lane.records, e[1].lane.fd, &words, &why)) > 0)
        assert_int_equal(words, 1);
    assert_true(record_beat(e[0].lane.records, e[0].lane.fd, 0) > 0);
    while ((n = record_heard(e[1].lane.records, e[1].lane.fd, &words, &why)) > 0)
        ;
    assert_true(n == -EAGAIN && !why && words == (1 | 1 << RECORD_GOODBYE));
    assert_int_equal(recv(fd[1], rest, sizeof rest, MSG_DONTWAIT), -1);
    assert_in_range(came, gone / BEAT_RECORD, gone / BEAT_RECORD + 1);
    beats_down(e, fd);
}

static void sealed_beats_in_parts(void **state)
{
    by_each(state, beats_in_parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_arrives),        cmocka_unit_test(sealed_whole_lines), cmocka_unit_test(sealed_changed),
        cmocka_unit_test(only_checked),          cmocka_unit_test(sealed_rekeyed),     cmocka_unit_test(sealed_beats),
        cmocka_unit_test(sealed_beats_in_parts), cmocka_unit_test(sealed_keys_change), cmocka_unit_test(known_answer),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
