/* The random wire of the interpreter tests; test_wire.h describes what it may do. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "program/test_wire.h"

#include <stdlib.h>
#include <string.h>

uint64_t test_random(struct test_wire *wire)
{
    wire->random ^= wire->random << 13;
    wire->random ^= wire->random >> 7;
    wire->random ^= wire->random << 17;
    return wire->random >> 11;
}

static bool one_in(struct test_wire *wire, uint32_t chance)
{
    return !wire->calm && test_random(wire) % chance == 0;
}

/* Counts the unread exposures of this edge to this reader, or to all; a round beyond the credits waits for them. */
static uint32_t unread(const struct test_channel *channel, const struct wire_expose *expose)
{
    uint32_t count = 0;
    for (const struct test_exposure *e = channel->exposed; e; e = e->next) {
        bool same = wire_key_seq(e->key) == wire_key_seq(expose->key) && wire_key_edge(e->key) == wire_key_edge(expose->key);
        if (same && (expose->edge & WIRE_TO_ALL || e->reader[expose->peers[0]])) {
            assert_true(e->key != expose->key);
            assert_false(e->edge & WIRE_ONCE);
            count++;
        }
    }
    return count;
}

static enum wire_result expose_one(struct wire_channel *base, const struct wire_expose *expose)
{
    struct test_channel *channel = (struct test_channel *)base;
    struct test_wire *wire = channel->wire;
    if (unread(channel, expose) >= TEST_CREDITS || one_in(wire, 6)) {
        wire->agains++;
        return WIRE_AGAIN;
    }
    struct test_exposure *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->next = channel->exposed;
    channel->exposed = e;
    e->key = expose->key;
    e->fingerprint = expose->fingerprint;
    e->edge = expose->edge;
    e->left = expose->npeers;
    e->cookie = expose->cookie;
    e->count = expose->spans->bytes;
    assert_true(e->count <= (e->edge & WIRE_ONCE ? base->caps.once_max : base->caps.chunk_all));
    for (uint32_t j = 0; j < expose->npeers; j++) {
        assert_true(expose->peers[j] < wire->size && expose->peers[j] != channel->rank && !e->reader[expose->peers[j]]);
        e->reader[expose->peers[j]] = 1;
    }
    if (expose->flags & WIRE_BUILT) {
        assert_non_null(channel->pad);
        assert_memory_equal(channel->pad, expose->spans->at, e->count);
        e->bytes = channel->pad;
        channel->pad = NULL;
        return WIRE_DONE;
    }
    e->bytes = malloc(e->count + 1);
    assert_non_null(e->bytes);
    if (e->count)
        memcpy(e->bytes, expose->spans->at, e->count);
    e->pending = one_in(wire, 2);
    e->kept = e->pending ? expose->spans->at : NULL;
    wire->pendings += e->pending;
    return e->pending ? WIRE_PENDING : WIRE_DONE;
}

static enum wire_result reserve_one(struct wire_channel *base, const struct wire_expose *expose, size_t bytes, void **pad)
{
    struct test_channel *channel = (struct test_channel *)base;
    struct test_wire *wire = channel->wire;
    if (unread(channel, expose) >= TEST_CREDITS || one_in(wire, 6))
        return WIRE_AGAIN;
    if (channel->pad || one_in(wire, 2))
        return WIRE_NONE;
    *pad = channel->pad = malloc(bytes + 1);
    assert_non_null(*pad);
    wire->pads++;
    return WIRE_DONE;
}

static void free_exposure(struct test_channel *channel, struct test_exposure *gone)
{
    struct test_exposure **at = &channel->exposed;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    free(gone->bytes);
    free(gone);
}

static void give_back(struct test_wire *wire, struct test_exposure *e, int32_t reader)
{
    assert_int_not_equal(e->reader[reader], 3);
    e->reader[reader] = 3;
    e->left--;
    if (!e->left && e->pending && e->count && !(e->edge & WIRE_ONCE))
        assert_memory_equal(e->kept, e->bytes, e->count); /* readers could read there until now */
    for (uint32_t r = 0; !e->left && !(e->edge & WIRE_ONCE) && !e->pending && r < wire->size; r++) {
        for (struct test_exposure *at = wire->channel[r].exposed; at; at = at->next) {
            if (at == e) {
                free_exposure(&wire->channel[r], e);
                return;
            }
        }
    }
}

static enum wire_result look_now(struct test_channel *channel, const struct wire_look *look)
{
    struct test_wire *wire = channel->wire;
    assert_true(look->peer < wire->size && (int32_t)look->peer != channel->rank);
    for (struct test_exposure *e = wire->channel[look->peer].exposed; e; e = e->next) {
        if (e->key != look->key || !e->reader[channel->rank])
            continue;
        assert_int_equal(e->reader[channel->rank], 1);
        if (e->fingerprint != look->fingerprint || e->count != look->bytes)
            return WIRE_MISMATCH;
        e->reader[channel->rank] = 2;
        if (look->view) {
            *look->view = (struct wire_view){.at = e->bytes, .bytes = e->count, .ack = e};
        } else {
            if (e->count)
                memcpy(look->land, e->bytes, e->count);
            give_back(wire, e, channel->rank);
        }
        return WIRE_DONE;
    }
    return WIRE_PENDING;
}

static enum wire_result view_one(struct wire_channel *base, const struct wire_look *look)
{
    struct test_channel *channel = (struct test_channel *)base;
    if (one_in(channel->wire, 6))
        return WIRE_AGAIN;
    enum wire_result result = one_in(channel->wire, 3) ? WIRE_PENDING : look_now(channel, look);
    if (result != WIRE_PENDING)
        return result;
    struct test_look *pending = calloc(1, sizeof *pending);
    assert_non_null(pending);
    pending->look = *look;
    pending->next = channel->looks;
    channel->looks = pending;
    return WIRE_PENDING;
}

static void release_one(struct wire_channel *base, uint32_t seq, struct wire_view *view)
{
    struct test_channel *channel = (struct test_channel *)base;
    struct test_exposure *e = view->ack;
    assert_int_equal(wire_key_seq(e->key), seq);
    give_back(channel->wire, e, channel->rank);
    view->ack = NULL;
}

bool test_wire_event(struct test_channel *channel, struct wire_event *event)
{
    struct test_wire *wire = channel->wire;
    for (struct test_look **at = &channel->looks; *at; at = &(*at)->next) {
        struct test_look *pending = *at;
        enum wire_result result = one_in(wire, 2) ? WIRE_PENDING : look_now(channel, &pending->look);
        if (result == WIRE_PENDING)
            continue;
        *event = (struct wire_event){
            .kind = WIRE_EVENT_DONE, .result = (int32_t)result, .cookie = pending->look.cookie, .peer = (int32_t)pending->look.peer};
        *at = pending->next;
        free(pending);
        return true;
    }
    for (struct test_exposure *e = channel->exposed; e; e = e->next) {
        if (!e->pending || (e->left && !(e->edge & WIRE_ONCE)) || one_in(wire, 2))
            continue;
        /* A line's bytes belong to the wire until now; a stream's could be read until the last reader released them. */
        if (e->count && e->edge & WIRE_ONCE)
            assert_memory_equal(e->kept, e->bytes, e->count);
        e->pending = false;
        *event = (struct wire_event){.kind = WIRE_EVENT_DONE, .cookie = e->cookie};
        if (!e->left && !(e->edge & WIRE_ONCE))
            free_exposure(channel, e);
        return true;
    }
    return false;
}

static const struct wire_class test_class = {
    .name = "test", .reserve = reserve_one, .expose = expose_one, .view = view_one, .release = release_one};

void test_wire_open(struct test_wire *wire, uint32_t size, uint64_t seed, size_t chunk)
{
    memset(wire, 0, sizeof *wire);
    wire->size = size;
    wire->random = seed * 2654435761u + 88172645463325252u;
    for (uint32_t r = 0; r < size; r++) {
        wire->channel[r].wire = wire;
        wire->channel[r].rank = (int32_t)r;
        wire->channel[r].channel.class = &test_class;
        wire->channel[r].channel.caps = (struct wire_caps){.once_max = 1 << 26, .chunk_all = 2 * chunk, .chunk_private = chunk};
    }
}

void test_wire_close(struct test_wire *wire)
{
    for (uint32_t r = 0; r < wire->size; r++) {
        struct test_channel *channel = &wire->channel[r];
        while (channel->exposed) {
            assert_true(channel->exposed->edge & WIRE_ONCE);
            free_exposure(channel, channel->exposed);
        }
        assert_null(channel->looks);
        assert_null(channel->pad);
    }
}
