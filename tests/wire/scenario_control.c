/* Scenarios of the control path: notes, boards, mismatches, and channels that are made again. */
#define _GNU_SOURCE
#include "wire/scenarios.h"

#include <string.h>

static uint16_t all_peers(const struct rank *r, uint16_t *peers)
{
    uint16_t n = 0;
    for (int32_t i = 0; i < r->size; i++)
        if (i != r->rank)
            peers[n++] = (uint16_t)i;
    return n;
}

static size_t note_length(uint32_t i)
{
    return i % WIRE_NOTE_SORTS == WIRE_NOTE_LONG ? 8 * (i % (WIRE_NOTE_LONG_BYTES / 8 + 1)) : 4 + i % 45;
}

/* The last note of each sort arrives from every rank. A note is never torn, and a newer one replaces an older one. */
void scenario_notes(struct rank *r)
{
    enum { NOTES = 300 };
    const struct comm_env *env = wire_default_env();
    uint16_t peers[RANKS_MAX], n = all_peers(r, peers);
    uint32_t last[RANKS_MAX][WIRE_NOTE_SORTS] = {{0}}, finished = 0;
    int64_t end = env->now(env) + INT64_C(20000000000);
    for (uint32_t i = 1; i <= NOTES || finished < (uint32_t)n * WIRE_NOTE_SORTS; i++) {
        uint32_t word[WIRE_NOTE_LONG_BYTES / 4], sort = i % WIRE_NOTE_SORTS;
        for (uint32_t k = 0; k < WIRE_NOTE_LONG_BYTES / 4; k++)
            word[k] = i * 128 + k;
        struct wire_span span = {word, note_length(i)};
        struct wire_expose e = {
            .key = wire_key_of(i, 7, sort), .fingerprint = i, .flags = WIRE_NOTE, .peers = peers, .npeers = n, .nspans = 1, .spans = &span};
        if (i <= NOTES)
            CHECK(r->ch->class->expose(r->ch, &e) == WIRE_DONE);
        struct wire_event event[8];
        uint32_t got = r->ch->class->advance(r->ch, event, 8);
        r->ch->class->flush(r->ch);
        for (uint32_t k = 0; k < got; k++) {
            uint32_t number = wire_key_seq(event[k].key), said[WIRE_NOTE_LONG_BYTES / 4];
            CHECK(event[k].kind == WIRE_EVENT_ANNOUNCED && event[k].result == WIRE_NOTE && event[k].tag == number);
            CHECK(wire_key_edge(event[k].key) == number % WIRE_NOTE_SORTS && wire_key_round(event[k].key) == 7);
            CHECK(event[k].bytes == note_length(number) && number > last[event[k].peer][number % WIRE_NOTE_SORTS]);
            memcpy(said, event[k].note, event[k].bytes);
            for (uint32_t m = 0; m < event[k].bytes / 4; m++)
                CHECK(said[m] == number * 128 + m);
            last[event[k].peer][number % WIRE_NOTE_SORTS] = number;
            finished += number + WIRE_NOTE_SORTS > NOTES;
        }
        CHECK(env->now(env) < end);
        if (!got && i > NOTES)
            env->relax(env, true);
    }
    rank_meet(r);
}

static uint32_t calls_of(const struct wire_channel *ch)
{
    return ch->caps.calls ? ch->caps.calls : 2 * ch->caps.window;
}

/* A compare-and-swap has one winner, and every rank reads the same value; every rank can read published calls. */
void scenario_board(struct rank *r)
{
    uint64_t none = 0, mine = 1 + (uint64_t)r->rank;
    if (!r->ch->board) { /* the members share no memory */
        CHECK(r->ch->calls && r->ch->peer_calls[r->rank] == r->ch->calls);
        return;
    }
    CHECK(r->ch->board && r->ch->calls && r->ch->peer_calls[r->rank] == r->ch->calls);
    struct wire_call *call = &r->ch->calls[5 % calls_of(r->ch)];
    call->root = 40 + r->rank;
    call->n = 1000;
    atomic_store_explicit(&call->seq, 5, memory_order_release);
    rank_meet(r);
    if (atomic_compare_exchange_strong(&r->ch->board->cause, &none, mine))
        atomic_fetch_add(&r->shared->word[0], 1);
    rank_meet(r);
    uint64_t cause = atomic_load(&r->ch->board->cause);
    CHECK(atomic_load(&r->shared->word[0]) == 1 && cause >= 1 && cause <= (uint64_t)r->size);
    uint64_t seen = 0;
    if (r->rank == 0)
        atomic_store(&r->shared->word[1], cause);
    rank_meet(r);
    seen = atomic_load(&r->shared->word[1]);
    CHECK(seen == cause);
    for (int32_t i = 0; i < r->size; i++) {
        const struct wire_call *theirs = &r->ch->peer_calls[i][5 % calls_of(r->ch)];
        CHECK(atomic_load_explicit(&theirs->seq, memory_order_acquire) == 5 && theirs->root == 40 + i && theirs->n == 1000);
    }
    rank_meet(r);
}

/* A different fingerprint or length is reported to the reader before a byte of its buffer is written: both when the
 * exposure is there and when it comes later, inside a line and outside. */
void scenario_mismatch(struct rank *r)
{
    uint16_t peers[RANKS_MAX], n = all_peers(r, peers);
    unsigned char data[1000], land[1000];
    memset(data, 1, sizeof data);
    for (uint32_t seq = 1; seq <= 16; seq++) {
        size_t bytes = seq & 1 ? 24 : 1000;
        bool once = seq & 2, late = seq & 4, length = seq & 8;
        uint16_t edge = once ? WIRE_ONCE | WIRE_TO_ALL : WIRE_TO_ALL;
        struct wire_span span = {data, bytes};
        struct wire_expose e = {
            .key = wire_key_of(seq, 0, 1), .fingerprint = 100, .edge = edge, .peers = peers, .npeers = n, .nspans = 1, .spans = &span};
        struct wire_look l = {
            .key = e.key, .fingerprint = length ? 100 : 99, .edge = edge, .land = land, .bytes = bytes - (length ? 8 : 0), .cookie = seq};
        if (r->rank == 0 && !late)
            CHECK(rank_expose(r, &e) == WIRE_DONE);
        rank_meet(r);
        if (r->rank) {
            memset(land, 0x55, sizeof land);
            int32_t result = r->ch->class->view(r->ch, &l);
            bool pending = late || (!r->ch->board && result == WIRE_PENDING); /* a network may need more time */
            CHECK(result == (pending ? WIRE_PENDING : WIRE_MISMATCH));
            rank_meet(r);
            CHECK(!pending || rank_await(r, seq) == WIRE_MISMATCH);
            for (size_t i = 0; i < sizeof land; i++)
                CHECK(land[i] == 0x55);
        } else {
            rank_meet(r);
            CHECK(!late || rank_expose(r, &e) == WIRE_DONE);
        }
        r->ch->class->release(r->ch, seq, NULL);
        r->ch->class->flush(r->ch);
        rank_meet(r);
    }
}

/* Channels are made and left again. The memory of those that all members left is reused, and stale keys are never taken
 * for new ones. */
void scenario_reuse(struct rank *r)
{
    struct wire_channel *first = r->ch;
    uint16_t peers[RANKS_MAX], n = all_peers(r, peers);
    unsigned char data[5000], land[5000];
    for (uint32_t turn = 0; turn < 40; turn++) {
        r->ch = rank_join(r, 100 + turn, &r->limits);
        for (uint32_t seq = 1; seq <= 3; seq++) {
            size_t bytes = seq == 3 ? sizeof data : 16;
            memset(data, (int)(turn + seq + (uint32_t)r->rank), sizeof data);
            struct wire_span span = {data, bytes};
            struct wire_expose e = {.key = wire_key_of(seq, 0, 0),
                                    .fingerprint = 3,
                                    .edge = seq == 2 ? WIRE_TO_ALL : WIRE_ONCE | WIRE_TO_ALL,
                                    .peers = peers,
                                    .npeers = n,
                                    .nspans = 1,
                                    .spans = &span};
            CHECK(rank_expose(r, &e) == WIRE_DONE);
            for (uint16_t i = 0; i < n; i++) {
                struct wire_look l = {
                    .key = e.key, .fingerprint = 3, .edge = e.edge, .peer = peers[i], .land = land, .bytes = bytes, .cookie = i};
                CHECK(rank_look(r, &l) == WIRE_DONE);
                for (size_t k = 0; k < bytes; k++)
                    CHECK(land[k] == (unsigned char)(turn + seq + peers[i]));
            }
            r->ch->class->release(r->ch, seq, NULL);
            r->ch->class->flush(r->ch);
        }
        if (turn % 3 == 1)
            r->ch->class->leave(r->ch, WIRE_ABORT);
        r->ch->class->leave(r->ch, WIRE_CLOSE);
    }
    r->ch = first;
    rank_meet(r);
}
