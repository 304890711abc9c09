/* Scenarios of the data path: ONCE edges, lines for single readers, and streams. */
#define _GNU_SOURCE
#include "wire/scenarios.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void others(const struct rank *r, uint16_t *peers)
{
    for (int32_t i = 0, n = 0; i < r->size; i++)
        if (i != r->rank)
            peers[n++] = (uint16_t)i;
}

/* A pattern that depends on rank, key and position: 13 * i + i / 256 + x. 13 has an inverse (197) modulo 256, so each 256 bytes are a piece
 * of one table: copied and compared as ranges, which a sanitizer checks at once and not byte by byte. */
enum { ROW = 256, SLOPE = 13, SLOPE_INVERSE = 197 };
static unsigned char slope[2 * ROW];

__attribute__((constructor)) static void make_slope(void)
{
    for (unsigned i = 0; i < sizeof slope; i++)
        slope[i] = (unsigned char)(i * SLOPE);
}

static const unsigned char *row_at(size_t i, int32_t rank, wire_key key)
{
    uint32_t x = (uint32_t)(key >> 32) * 31 + (uint32_t)key * 7 + (uint32_t)rank * 101 + (uint32_t)(i / ROW);
    return &slope[x * SLOPE_INVERSE % ROW];
}

static void fill(unsigned char *to, size_t bytes, int32_t rank, wire_key key)
{
    for (size_t i = 0; i < bytes; i += ROW)
        memcpy(to + i, row_at(i, rank, key), bytes - i < ROW ? bytes - i : ROW);
}

static void verify(const void *at, size_t bytes, int32_t rank, wire_key key)
{
    const unsigned char *p = at;
    for (size_t i = 0; i < bytes; i += ROW)
        CHECK(memcmp(p + i, row_at(i, rank, key), bytes - i < ROW ? bytes - i : ROW) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ once */
static size_t once_bytes(uint32_t seq)
{
    static const size_t sizes[] = {8, 0, 48, 1, 49, 200, 8, 4096, 40, 65536, 16384, 2048, 16385};
    return sizes[seq % (sizeof sizes / sizeof *sizes)];
}

static void expose_once(struct rank *r, uint32_t seq, uint32_t edge, unsigned char *buffer)
{
    uint16_t peers[RANKS_MAX];
    others(r, peers);
    struct wire_expose e = {.key = wire_key_of(seq, 0, edge),
                            .fingerprint = seq ^ 77,
                            .edge = WIRE_ONCE | WIRE_TO_ALL,
                            .peers = peers,
                            .npeers = (uint32_t)r->size - 1,
                            .nspans = 1,
                            .cookie = 999};
    size_t bytes = once_bytes(seq + edge);
    struct wire_span span = {buffer, bytes}, two[2];
    void *pad;
    if (seq % 3 == 0) { /* build in place */
        int32_t result;
        while ((result = r->ch->class->reserve(r->ch, &e, bytes, &pad)) == WIRE_AGAIN)
            rank_pass(r);
        CHECK(result == WIRE_DONE || result == WIRE_NONE);
        if (result == WIRE_NONE)
            pad = buffer;
        fill(pad, bytes, r->rank, e.key);
        e.flags = result == WIRE_DONE ? WIRE_BUILT : 0;
        span.at = pad;
    } else {
        fill(buffer, bytes, r->rank, e.key);
    }
    e.spans = &span;
    if (seq % 3 == 1) { /* expose in two spans */
        two[0] = (struct wire_span){buffer, bytes / 3};
        two[1] = (struct wire_span){buffer + bytes / 3, bytes - bytes / 3};
        e.spans = two;
        e.nspans = 2;
    }
    CHECK(rank_expose(r, &e) == WIRE_DONE);
}

static void look_once(struct rank *r, uint32_t seq, uint32_t edge, int32_t peer, unsigned char *buffer)
{
    struct wire_view view;
    size_t bytes = once_bytes(seq + edge);
    bool land = (seq + (uint32_t)peer) % 2;
    struct wire_look l = {.key = wire_key_of(seq, 0, edge),
                          .fingerprint = seq ^ 77,
                          .edge = WIRE_ONCE | WIRE_TO_ALL,
                          .peer = (uint32_t)peer,
                          .bytes = bytes,
                          .cookie = 1000 + (uint64_t)peer,
                          .land = land ? buffer : NULL,
                          .view = land ? NULL : &view,
                          .flags = seq % 4 == 3 ? WIRE_NONTEMPORAL : 0};
    CHECK(rank_look(r, &l) == WIRE_DONE);
    CHECK(land || view.bytes == bytes);
    verify(land ? buffer : view.at, bytes, peer, l.key);
    if (!land)
        r->ch->class->release(r->ch, seq, &view);
}

static void look_at_all(struct rank *r, uint32_t seq, uint32_t edge, unsigned char *buffer)
{
    for (int32_t i = 0; i < r->size; i++)
        if (i != r->rank)
            look_once(r, seq, edge, i, buffer);
}

void scenario_once(struct rank *r)
{
    uint32_t operations = rank_count(r, 2000), window = r->ch->caps.window, ahead = 0;
    unsigned char *buffer = malloc(2 * 65536);
    for (uint32_t seq = 1; seq <= operations; seq++) {
        uint32_t goal = seq + (uint32_t)(rank_random(r) % (window < 8 ? window : 8));
        /* Runs ahead only as far as small lines allow without help of other ranks; the operation itself is always
         * exposed. */
        for (; ahead < (goal < operations ? goal : operations); ahead++) {
            if (ahead >= seq && once_bytes(ahead + 1) > 48)
                break;
            expose_once(r, ahead + 1, 0, buffer);
        }
        expose_once(r, seq, 1, buffer);
        look_at_all(r, seq, 0, buffer);
        look_at_all(r, seq, 1, buffer + 65536);
        r->ch->class->release(r->ch, seq, NULL);
        r->ch->class->flush(r->ch);
    }
    rank_meet(r);
    free(buffer);
}

/* Only a root exposes. When the others are late, it takes all the room there is. */
void scenario_ahead(struct rank *r)
{
    uint32_t operations = rank_count(r, 3000);
    unsigned char *buffer = malloc(65536);
    for (uint32_t seq = 1; seq <= operations; seq++) {
        int32_t root = (int32_t)(seq / 256 % (uint32_t)r->size);
        if (root != r->rank && rank_random(r) % 64 == 0)
            usleep(200);
        if (root == r->rank)
            expose_once(r, seq, 0, buffer);
        else
            look_once(r, seq, 0, root, buffer);
        r->ch->class->release(r->ch, seq, NULL);
        r->ch->class->flush(r->ch);
    }
    rank_meet(r);
    free(buffer);
}

/* ------------------------------------------------------------------------------------------------------------ one line per reader */
static size_t each_bytes(uint32_t seq, int32_t from, int32_t to)
{
    static const size_t sizes[] = {8, 0, 48, 1, 49, 200, WIRE_EACH_BYTES, 40};
    return sizes[(seq + 3 * (uint32_t)from + (uint32_t)to) % 8];
}

static int32_t each_mark(int32_t from, int32_t to)
{
    return 100 * from + to;
}

/* The number of the edge does not matter: there is only one of this kind. */
static wire_key each_key(uint32_t seq)
{
    return wire_key_of(seq, 0, seq % 2 ? 0 : 7);
}

static void expose_each(struct rank *r, uint32_t seq, uint16_t peer, unsigned char *buffer)
{
    size_t bytes = each_bytes(seq, r->rank, peer);
    struct wire_span span = {buffer, bytes};
    struct wire_expose e = {.key = each_key(seq),
                            .fingerprint = seq ^ 78,
                            .edge = WIRE_ONCE,
                            .peers = &peer,
                            .npeers = 1,
                            .nspans = 1,
                            .spans = &span,
                            .cookie = 998};
    int32_t result = WIRE_NONE;
    void *pad = buffer;
    while (seq % 3 == 0 && (result = r->ch->class->reserve(r->ch, &e, bytes, &pad)) == WIRE_AGAIN)
        rank_pass(r);
    CHECK(result == WIRE_DONE || result == WIRE_NONE);
    e.flags = result == WIRE_DONE ? WIRE_BUILT : 0;
    span.at = result == WIRE_DONE ? pad : buffer;
    fill(result == WIRE_DONE ? pad : buffer, bytes, each_mark(r->rank, peer), e.key);
    CHECK(rank_expose(r, &e) == WIRE_DONE);
}

static void look_each(struct rank *r, uint32_t seq, uint32_t peer, unsigned char *buffer)
{
    struct wire_view view;
    size_t bytes = each_bytes(seq, (int32_t)peer, r->rank);
    bool land = (seq + peer) % 2;
    struct wire_look l = {.key = each_key(seq),
                          .fingerprint = seq ^ 78,
                          .edge = WIRE_ONCE,
                          .peer = peer,
                          .bytes = bytes,
                          .cookie = 1000 + (uint64_t)peer,
                          .land = land ? buffer : NULL,
                          .view = land ? NULL : &view};
    CHECK(rank_look(r, &l) == WIRE_DONE);
    verify(land ? buffer : view.at, bytes, each_mark((int32_t)peer, r->rank), l.key);
    if (!land)
        r->ch->class->release(r->ch, seq, &view);
}

/* In some operations only one rank exposes, as the root of a scatter does, and may be far ahead. */
void scenario_each(struct rank *r)
{
    uint32_t operations = rank_count(r, 1000);
    unsigned char *buffer = malloc(WIRE_EACH_BYTES);
    uint16_t peers[RANKS_MAX];
    others(r, peers);
    for (uint32_t seq = 1; seq <= operations; seq++) {
        int32_t root = seq / 16 % 3 == 0 ? -1 : (int32_t)(seq / 64 % (uint32_t)r->size);
        for (int32_t i = 0; i < r->size - 1 && (root < 0 || root == r->rank); i++)
            expose_each(r, seq, peers[i], buffer);
        for (int32_t i = 0; i < r->size - 1; i++)
            if (root < 0 || root == peers[i])
                look_each(r, seq, peers[i], buffer);
        r->ch->class->release(r->ch, seq, NULL);
        r->ch->class->flush(r->ch);
    }
    rank_meet(r);
    free(buffer);
}

/* ------------------------------------------------------------------------------------------------------------ streams */
struct stream {
    struct rank *r;
    uint32_t seq, edge, kind, rounds, exposed, peer; /* peer: the reader of a private stream */
    uint32_t looked[RANKS_MAX];
    bool pending[RANKS_MAX];
    struct wire_view view[RANKS_MAX];
    unsigned char *land[RANKS_MAX], *out;
    bool lent; /* the wire still reads the last exposure from out */
};
#define STREAM_SENT (UINT64_C(1) << 62) /* in a cookie: it belongs to an exposure */

static size_t stream_bytes(const struct stream *s, uint32_t round)
{
    size_t chunk = s->kind & WIRE_TO_ALL ? s->r->ch->caps.chunk_all : s->r->ch->caps.chunk_private;
    static const size_t parts[] = {1, 7, 4, 2};
    return round % 5 == 4 ? 30 : chunk / parts[round % 4];
}

static bool stream_expose(struct stream *s)
{
    struct rank *r = s->r;
    unsigned char *buffer = s->out;
    uint16_t peers[RANKS_MAX], one = (uint16_t)s->peer;
    if (s->lent)
        return false;
    if (s->exposed == s->rounds)
        return true;
    others(r, peers);
    bool all = s->kind & WIRE_TO_ALL;
    wire_key key = wire_key_of(s->seq, s->exposed, s->edge);
    size_t bytes = stream_bytes(s, s->exposed);
    struct wire_span span = {buffer, bytes};
    struct wire_expose e = {.key = key,
                            .fingerprint = 5,
                            .edge = (uint16_t)s->kind,
                            .peers = all ? peers : &one,
                            .npeers = all ? (uint32_t)r->size - 1 : 1,
                            .nspans = 1,
                            .spans = &span,
                            .cookie = STREAM_SENT | s->edge};
    void *pad = buffer;
    if (s->exposed % 2) {
        int32_t got = r->ch->class->reserve(r->ch, &e, bytes, &pad);
        CHECK(got == WIRE_DONE || got == WIRE_AGAIN || got == WIRE_NONE);
        if (got == WIRE_AGAIN)
            return false;
        fill(pad, bytes, r->rank, key);
        if (pad != buffer) /* a wire made of two sends from here what was built in the other wire's place */
            fill(buffer, bytes, r->rank, key);
        e.flags = got == WIRE_DONE ? WIRE_BUILT : 0;
    } else {
        fill(buffer, bytes, r->rank, key);
    }
    int32_t result = r->ch->class->expose(r->ch, &e);
    CHECK(result == WIRE_DONE || result == WIRE_AGAIN || result == WIRE_PENDING);
    s->exposed += result != WIRE_AGAIN;
    s->lent = result == WIRE_PENDING;
    return s->exposed == s->rounds && !s->lent;
}

static void stream_arrived(struct stream *s, uint32_t from)
{
    uint32_t round = s->looked[from]++;
    wire_key key = wire_key_of(s->seq, round, s->edge);
    size_t bytes = stream_bytes(s, round);
    bool land = round % 3 == 1;
    verify(land ? s->land[from] : s->view[from].at, bytes, (int32_t)from, key);
    if (!land)
        s->r->wire_class->release(s->r->ch, s->seq, &s->view[from]);
    s->pending[from] = false;
}

static bool stream_look(struct stream *s, uint32_t from)
{
    struct rank *r = s->r;
    if (s->looked[from] == s->rounds)
        return true;
    if (s->pending[from])
        return false;
    uint32_t round = s->looked[from];
    bool land = round % 3 == 1;
    struct wire_look l = {.key = wire_key_of(s->seq, round, s->edge),
                          .fingerprint = 5,
                          .edge = (uint16_t)s->kind,
                          .peer = from,
                          .bytes = stream_bytes(s, round),
                          .cookie = (uint64_t)s->edge << 32 | from,
                          .land = land ? s->land[from] : NULL,
                          .view = land ? NULL : &s->view[from]};
    int32_t result = r->ch->class->view(r->ch, &l);
    CHECK(result >= 0);
    s->pending[from] = result == WIRE_PENDING;
    if (result == WIRE_DONE)
        stream_arrived(s, from);
    return s->looked[from] == s->rounds;
}

static bool stream_step(struct stream *s)
{
    bool done = stream_expose(s);
    for (uint32_t i = 0; i < (uint32_t)s->r->size; i++) {
        bool mine = s->kind & WIRE_TO_ALL ? i != (uint32_t)s->r->rank : (i + 1) % (uint32_t)s->r->size == (uint32_t)s->r->rank; /* a ring of
                                                                                                                                 * ranks */
        if (mine)
            done &= stream_look(s, i);
    }
    return done;
}

struct stream_run {
    struct rank *r;
    struct stream stream[2];
    uint32_t seq, operations;
};

static void stream_begin(struct stream_run *run)
{
    struct rank *r = run->r;
    for (uint32_t i = 0; i < 2; i++) {
        struct stream *s = &run->stream[i];
        s->r = r;
        s->seq = run->seq;
        s->edge = 2 * i;
        s->kind = (run->seq + i) % 2 ? WIRE_TO_ALL : 0; /* both kinds use the same memory, alternating between operations */
        s->peer = (uint32_t)(r->rank + 1) % (uint32_t)r->size;
        s->rounds = 1 + (run->seq * 7 + i) % 23;
        s->exposed = 0;
        memset(s->looked, 0, sizeof s->looked);
    }
}

struct stream_run *stream_start(struct rank *r, uint32_t operations)
{
    struct stream_run *run = calloc(1, sizeof *run);
    run->r = r;
    run->operations = operations;
    size_t room = r->ch->caps.chunk_all > r->ch->caps.chunk_private ? r->ch->caps.chunk_all : r->ch->caps.chunk_private;
    for (int32_t i = 0; i < 2 * r->size; i++)
        run->stream[i & 1].land[i / 2] = malloc(room);
    for (int32_t i = 0; i < 2; i++)
        run->stream[i].out = malloc(room);
    run->seq = 1;
    stream_begin(run);
    return run;
}

bool stream_run_step(struct stream_run *run)
{
    struct rank *r = run->r;
    if (run->seq > run->operations)
        return true;
    rank_pass(r);
    for (uint32_t i = 0; i < r->events; i++) {
        CHECK(r->event[i].result == WIRE_DONE);
        if (r->event[i].cookie & STREAM_SENT) {
            run->stream[(r->event[i].cookie & 3) / 2].lent = false;
            continue;
        }
        stream_arrived(&run->stream[r->event[i].cookie >> 33], (uint32_t)r->event[i].cookie);
    }
    r->events = 0;
    bool done = stream_step(&run->stream[0]);
    done &= stream_step(&run->stream[1]);
    if (!done)
        return false;
    r->ch->class->release(r->ch, run->seq, NULL);
    r->ch->class->flush(r->ch);
    if (++run->seq > run->operations)
        return true;
    stream_begin(run);
    return false;
}

void stream_end(struct stream_run *run)
{
    for (int32_t i = 0; i < 2 * run->r->size; i++)
        free(run->stream[i & 1].land[i / 2]);
    for (int32_t i = 0; i < 2; i++)
        free(run->stream[i].out);
    free(run);
}

void scenario_streams(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    int64_t end = env->now(env) + INT64_C(60000000000);
    struct stream_run *run = stream_start(r, rank_count(r, 60));
    while (!stream_run_step(run))
        CHECK(env->now(env) < end);
    rank_meet(r);
    stream_end(run);
}
