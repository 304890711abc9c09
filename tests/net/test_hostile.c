/*
 * An authenticated peer that breaks the protocol: with broken headers, and with valid headers that mean something not allowed. Random from
 * a seed, so that failures are reproducible. Whatever it sends, this rank continues, stays within its memory bounds, and ends the
 * connection at the first impossible frame.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/pair.h"

#include "wire/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { WINDOW = 8, LAND = 4096 };

static char said[256];
static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(said, sizeof said, "%s", line);
}

struct rig {
    struct pair pair;
    uint64_t seed;
    size_t sent; /* bytes of frames, whether or not they went into the socket */
    uint32_t messages, exposures;
    unsigned char land[LAND];
};

static uint64_t next(struct rig *r)
{
    r->seed ^= r->seed << 13;
    r->seed ^= r->seed >> 7;
    r->seed ^= r->seed << 17;
    return r->seed;
}

static void up(struct rig *r, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
    pair_open(&r->pair, WINDOW, hear);
}

static void down(struct rig *r)
{
    pair_close(&r->pair);
}

/* Rank 1 makes progress while rank 0's connection sends anything. */
static void step(struct rig *r)
{
    struct wire_event event[16];

    for (int turn = 0; turn < 4; turn++) {
        r->pair.class->advance(r->pair.channel[1], event, 16);
        r->pair.class->flush(r->pair.channel[1]);
    }
}

static void say(struct rig *r, uint32_t lane, const struct frame *f, const void *payload, size_t bytes)
{
    struct tcp_lane *l = &r->pair.wire->port[0].link[1].lane[lane];
    static unsigned char all[FRAME_LINE + FRAME_PAYLOAD_MAX + FRAME_LINE];
    struct frame numbered = *f;

    if (l->ended)
        return;
    numbered.number = l->out_number++;
    frame_encode(&numbered, all);
    memset(all + FRAME_HEAD, 0, FRAME_LINE - FRAME_HEAD);
    if (bytes)
        memcpy(all + frame_payload_at(f->bytes), payload, bytes);
    size_t end = frame_payload_at(f->bytes) + bytes;
    r->sent += end;
    (void)!send(l->fd, all, (end + FRAME_LINE - 1) / FRAME_LINE * FRAME_LINE, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool has_ended(const struct rig *r, uint32_t lane)
{
    return r->pair.wire->port[1].link[0].lane[lane].ended;
}

static struct frame frame_of(const struct rig *r, enum frame_kind kind, wire_key key, uint32_t bytes)
{
    return (struct frame){.kind = (uint8_t)kind, .from = 0, .channel = tcp_of(r->pair.channel[1])->name, .key = key, .bytes = bytes};
}

/* Sends one frame. The connection must end with a reason that contains `why`; NULL: it must stay. */
static void one(enum frame_kind kind, uint8_t edge, wire_key key, uint32_t bytes, uint64_t word, const char *why)
{
    static unsigned char payload[FRAME_PAYLOAD_MAX];
    struct rig r;

    up(&r, 1);
    said[0] = 0;
    struct frame f = frame_of(&r, kind, key, bytes);
    f.edge = edge;
    base_put64(payload, word);
    uint32_t lane = kind == FRAME_DATA ? TCP_LANE_BULK : kind == FRAME_EXPOSE ? tcp_lane_for(bytes) : TCP_LANE_SMALL;
    say(&r, lane, &f, payload, bytes < 8192 ? bytes : 8192);
    step(&r);
    if (has_ended(&r, lane) != (why != NULL) || (why && !strstr(said, why)))
        fail_msg("kind %d: ended %d, said \"%s\"; expected \"%s\"", (int)kind, has_ended(&r, lane), said, why ? why : "nothing");
    down(&r);
}

static void meanings(void **state)
{
    (void)state;
    one(FRAME_EXPOSE, WIRE_ONCE | WIRE_TO_ALL, wire_key_of(1, 0, 0), 100, 0, NULL);
    one(FRAME_EXPOSE, WIRE_ONCE | WIRE_TO_ALL, wire_key_of(1, 0, 0), TCP_ONCE_MAX + 1, 0, "never allowed");
    one(FRAME_EXPOSE, 0, wire_key_of(1, 0, 0), TCP_CHUNK + 1, 0, "never allowed");
    one(FRAME_EXPOSE, 0, wire_key_of(1, 0, WIRE_STREAM_EDGES), 100, 0, "never allowed");
    one(FRAME_EXPOSE, WIRE_ONCE | WIRE_TO_ALL, wire_key_of(1000, 0, 0), 100, 0, "never allowed"); /* far beyond two windows */
    one(FRAME_GRANT, 0, wire_key_of(1, 0, 0), 8, 5, "never announced");
    one(FRAME_DATA, 0, wire_key_of(1, 0, 0), 100, 0, "was not granted");
    one(FRAME_EAGER, 0, wire_key_of(2, 0, 0), 100, 0, "out of turn");
    one(FRAME_ANNOUNCE, 0, wire_key_of(1, 0, 0), 8, UINT64_MAX, NULL); /* a length alone takes no memory */
    one(FRAME_CONSUMED, 0, wire_key_of(7, 0, 0), 0, 0, "more messages taken than were sent");
    one(FRAME_NOTE, 0, wire_key_of(1, 0, WIRE_NOTE_SORTS), 8, 0, "a note of no sort");
    one(FRAME_WANT, 0, wire_key_of(1, 0, TCP_ROOMS), 0, 0, "room of no kind");
    one(FRAME_CALLS, 0, 0, 33, 0, "cut in pieces");
    one(FRAME_EAGER, 0, wire_key_of(1, 0, 0), FRAME_CONTROL_MAX + 1, 0, "its length");
}

static bool may_come_by(enum frame_kind kind, uint32_t bytes, uint32_t lane)
{
    if (kind == FRAME_ACK || kind == FRAME_RETIRED || kind == FRAME_GOODBYE)
        return true;
    return lane == (kind == FRAME_DATA || (kind == FRAME_EXPOSE && bytes > TCP_SMALL_BYTES) ? TCP_LANE_BULK : TCP_LANE_SMALL);
}

/* Each kind, short and long, over each connection. */
static void by_the_wrong_connection(void **state)
{
    static unsigned char payload[FRAME_PAYLOAD_MAX];

    (void)state;
    for (int kind = 1; kind < FRAME_KINDS; kind++)
        for (uint32_t lane = 0; lane < TCP_LANES; lane++)
            for (uint32_t bytes = 8; bytes <= 65536; bytes *= 8) {
                struct rig r;
                up(&r, 1);
                said[0] = 0;
                struct frame f = frame_of(&r, (enum frame_kind)kind, wire_key_of(1, 0, 0), bytes);
                f.edge = WIRE_ONCE;
                say(&r, lane, &f, payload, bytes);
                step(&r);
                bool wrong = strstr(said, "wrong connection") != NULL, no_length = strstr(said, "its length") != NULL;
                if (wrong == may_come_by((enum frame_kind)kind, bytes, lane) && !no_length)
                    fail_msg("kind %d, %u bytes, lane %u: \"%s\"", kind, bytes, lane, said);
                down(&r);
            }
}

static void twice(void **state)
{
    struct rig r;

    (void)state;
    up(&r, 1);
    struct frame f = frame_of(&r, FRAME_EXPOSE, wire_key_of(1, 0, 0), 8);
    f.edge = WIRE_ONCE | WIRE_TO_ALL;
    say(&r, 0, &f, "12345678", 8);
    say(&r, 0, &f, "12345678", 8);
    step(&r);
    assert_true(has_ended(&r, 0) && strstr(said, "here before"));
    down(&r);
}

/* The edge in a frame may differ from the one that the reader expects. A view that is returned after its operation was retired must have no
 * effect: another may use its place by then. */
static void a_view_given_back_after_its_operation(void **state)
{
    (void)state;
    for (int told = 0; told <= WIRE_ONCE; told += WIRE_ONCE)
        for (int asked = 0; asked <= WIRE_ONCE; asked += WIRE_ONCE) {
            struct rig r;
            struct wire_view view, next;
            up(&r, 1);
            struct tcp_channel *c = tcp_of(r.pair.channel[1]);
            struct wire_look look = {.key = wire_key_of(1, 0, 0), .edge = (uint16_t)asked, .bytes = 8, .cookie = 1, .view = &view};
            struct frame f = frame_of(&r, FRAME_EXPOSE, look.key, 8);
            f.edge = (uint8_t)told;
            say(&r, 0, &f, "12345678", 8);
            step(&r);
            assert_int_equal(r.pair.class->view(r.pair.channel[1], &look), WIRE_DONE);
            assert_memory_equal(view.at, "12345678", 8);
            r.pair.class->release(r.pair.channel[1], 1, NULL);
            assert_int_equal(c->slots.live, 0);
            look.key = f.key = wire_key_of(2, 0, 0);
            look.view = &next;
            say(&r, 0, &f, "abcdefgh", 8); /* it reuses the first one's place */
            step(&r);
            assert_int_equal(r.pair.class->view(r.pair.channel[1], &look), WIRE_DONE);
            r.pair.class->release(r.pair.channel[1], 1, &view);
            assert_int_equal(c->slots.live, 1);
            assert_memory_equal(next.at, "abcdefgh", 8);
            down(&r);
        }
}

/* A changed bit anywhere in a header is detected at once, and nothing of the frame is used. */
static void a_bit_of_a_header(void **state)
{
    (void)state;
    for (int bit = 0; bit < 8 * FRAME_HEAD; bit += 7) {
        unsigned char head[FRAME_HEAD];
        struct rig r;
        up(&r, 1);
        struct tcp_lane *l = &r.pair.wire->port[0].link[1].lane[0];
        struct frame f = frame_of(&r, FRAME_RETIRED, wire_key_of(5, 0, 0), 0);
        frame_encode(&f, head);
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
        (void)!send(l->fd, head, sizeof head, MSG_NOSIGNAL);
        step(&r);
        assert_true(has_ended(&r, 0) && strstr(said, "checksum"));
        assert_int_equal(tcp_of(r.pair.channel[1])->member[0].retired, 0);
        down(&r);
    }
}

static void ask_for_something(struct rig *r)
{
    static struct wire_view view[64];
    struct tcp_channel *c = tcp_of(r->pair.channel[1]);
    wire_key key = wire_key_of(1 + (uint32_t)(next(r) % 10), (uint32_t)(next(r) % 3), (uint32_t)(next(r) % 3));
    bool land = next(r) & 1;

    if (c->aborted || tcp_slot_find(c, 0, key))
        return;
    struct wire_look l = {.key = key,
                          .fingerprint = (uint32_t)(next(r) % 3),
                          .edge = (uint16_t)(next(r) & 3),
                          .peer = 0,
                          .land = land ? r->land : NULL,
                          .bytes = next(r) % LAND,
                          .cookie = 1,
                          .view = land ? NULL : &view[next(r) % 64]};
    (void)r->pair.class->view(r->pair.channel[1], &l);
}

/* A frame that a peer may send now: a new exposure, or the next message. */
static void something_possible(struct rig *r)
{
    static unsigned char payload[FRAME_PAYLOAD_MAX];
    static const enum frame_kind kinds[] = {FRAME_EXPOSE, FRAME_EXPOSE, FRAME_EXPOSE, FRAME_EAGER, FRAME_ANNOUNCE, FRAME_ACK, FRAME_ASK};
    enum frame_kind kind = kinds[next(r) % (sizeof kinds / sizeof *kinds)];
    bool is_message = kind == FRAME_EAGER || kind == FRAME_ANNOUNCE;

    if (is_message ? r->messages == WINDOW : r->exposures == WINDOW)
        return;
    uint32_t bytes = kind == FRAME_ANNOUNCE ? 8 : kind == FRAME_EXPOSE || kind == FRAME_EAGER ? 8 + (uint32_t)(next(r) % 1000) : 0;
    uint32_t seq = is_message ? ++r->messages : kind == FRAME_EXPOSE ? ++r->exposures : 1;
    struct frame f = frame_of(r, kind, wire_key_of(seq, 0, 0), bytes);
    f.edge = kind == FRAME_EXPOSE ? WIRE_ONCE | WIRE_TO_ALL : 0;
    base_put64(payload, next(r) % 100000); /* the length that is announced */
    say(r, TCP_LANE_SMALL, &f, payload, bytes);
}

static void anything(struct rig *r)
{
    static unsigned char payload[FRAME_PAYLOAD_MAX];
    static const uint32_t sizes[] = {0, 1, 8, 32, 47, 48, 49, 240, 241, 4096, 4160, 4161, 16384, 65536, 65537, 262144, 262145, 1 << 20};
    struct frame f = frame_of(r, (enum frame_kind)(1 + next(r) % (FRAME_KINDS - 1)), 0, 0);
    uint32_t lane = next(r) % 4 == 0;

    f.edge = (uint8_t)(next(r) & 3);
    f.tag = (uint32_t)(next(r) % 3);
    f.key = wire_key_of((uint32_t)(next(r) % 12), (uint32_t)(next(r) % 3), (uint32_t)(next(r) % 4));
    f.bytes = next(r) % 3 ? (uint32_t)(next(r) % 64) : sizes[next(r) % (sizeof sizes / sizeof *sizes)];
    if (next(r) % 16 == 0)
        f.from = (uint16_t)next(r);
    if (next(r) % 16 == 0)
        f.channel = (uint32_t)next(r);
    if (f.kind == FRAME_ANNOUNCE || f.kind == FRAME_GRANT)
        f.bytes = 8;
    base_put64(payload, next(r) % 5 ? next(r) % 100 : next(r));
    say(r, lane, &f, payload, f.bytes);
}

/* What the wire has taken of the system since `count_memory`, for blocks and records of both ranks. */
static int64_t taken;
static struct comm_env counting;

static void *take_counted(const struct comm_env *env, size_t bytes, size_t align)
{
    (void)env;
    taken += (int64_t)bytes;
    return wire_default_env()->take(wire_default_env(), bytes, align);
}

static void give_counted(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    taken -= (int64_t)bytes;
    wire_default_env()->give(wire_default_env(), memory, bytes);
}

static void count_memory(struct rig *r)
{
    counting = *r->pair.wire->env;
    counting.take = take_counted;
    counting.give = give_counted;
    r->pair.wire->env = &counting;
    taken = 0;
}

/* Headers are sound, and most frames are possible, so that the impossible ones meet slots and messages in all states. */
static void anything_once(struct rig *r)
{
    uint64_t what = next(r) % 8;

    if (what < 2)
        ask_for_something(r);
    else if (what == 2 && next(r) % 8 == 0)
        r->pair.class->leave(r->pair.channel[1], WIRE_ABORT);
    else if (what == 3 && !tcp_of(r->pair.channel[1])->aborted)
        r->pair.class->release(r->pair.channel[1], 1 + (uint32_t)(next(r) % 2), NULL);
    else if (next(r) % 16)
        something_possible(r);
    else
        anything(r);
    step(r);
}

/* The wire takes at most twice what has arrived, since blocks have powers of two as lengths, and some records. No more slots are in use
 * than an honest team has. A connection ends only for a reason that the log has. */
static bool is_within_bounds(struct rig *r)
{
    enum { RECORDS = 64 << 10 };
    const struct tcp_channel *c = tcp_of(r->pair.channel[1]);
    bool ended = has_ended(r, TCP_LANE_SMALL) || has_ended(r, TCP_LANE_BULK);

    if (taken > (int64_t)(2 * r->sent + RECORDS))
        fail_msg("%lld bytes taken after %zu were sent", (long long)taken, r->sent);
    assert_true(c->slots.live <= c->slots.live_most);
    if (ended != (strstr(said, "the connection is given up") != NULL))
        fail_msg("ended %d, said \"%s\"", ended, said);
    return ended;
}

static void sound_but_senseless(void **state)
{
    enum { SEEDS = 300, TURNS = 40 };
    int ends = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig r;
        bool ended = false;
        up(&r, seed);
        count_memory(&r);
        said[0] = 0;
        for (int i = 0; i < TURNS; i++) {
            anything_once(&r);
            bool now = is_within_bounds(&r);
            assert_true(now || !ended); /* what is given up stays so */
            ended = now;
        }
        ends += ended;
        down(&r);
    }
    assert_true(ends > SEEDS / 2 && ends < SEEDS); /* most say something impossible, and some do not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meanings),
        cmocka_unit_test(by_the_wrong_connection),
        cmocka_unit_test(twice),
        cmocka_unit_test(a_view_given_back_after_its_operation),
        cmocka_unit_test(a_bit_of_a_header),
        cmocka_unit_test(sound_but_senseless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
