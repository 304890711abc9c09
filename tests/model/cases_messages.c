/*
 * Messages: the ring of announcements, the eager slots, grants and chunks, in each place where one thing is written
 * over another. Rank 0 sends to rank 1. Earlier messages are sent in the set-up.
 */
#include "model/cases.h"
#include "model/members.h"

#include <string.h>

enum { WINDOW = 4, SHORT = 16, EAGER = 200, LARGE = SHMCHAN_EAGER_BYTES + 4 };

static enum wire_result send(uint32_t seq, size_t bytes)
{
    const uint16_t other = 1;
    struct wire_span span = {members->sent, bytes};
    struct wire_expose e = {.key = wire_key_of(seq, 0, 0),
                            .fingerprint = 9,
                            .flags = WIRE_MESSAGE,
                            .peers = &other,
                            .npeers = 1,
                            .nspans = 1,
                            .spans = &span,
                            .cookie = seq};
    return shmchan_expose(members->channel[0], &e);
}

/* The first and last byte identify the message. */
static void write_message(uint32_t seq, size_t bytes)
{
    members->sent[0] = members->sent[bytes - 1] = (unsigned char)seq;
}

static enum wire_result take_message(uint32_t seq, size_t bytes)
{
    struct wire_look look = {.key = wire_key_of(seq, 0, 0),
                             .fingerprint = 9,
                             .flags = WIRE_MESSAGE,
                             .peer = 0,
                             .land = members->landed,
                             .bytes = bytes,
                             .cookie = seq};
    return shmchan_view(members->channel[1], &look);
}

static void check_message(uint32_t seq, size_t bytes)
{
    MODEL_CHECK(members->landed[0] == (unsigned char)seq && members->landed[bytes - 1] == (unsigned char)seq);
}

/* Makes passes of one rank until `want` events of this kind have come; otherwise waits. */
static void pass_until(uint32_t rank, uint32_t kind, uint32_t want)
{
    while (want) {
        struct wire_event event[WINDOW];
        uint32_t n = shmchan_advance(members->channel[rank], event, WINDOW);
        for (uint32_t i = 0; i < n; i++) {
            MODEL_CHECK(event[i].kind == kind);
            want--;
        }
        if (!n)
            model_env.relax(&model_env, false);
    }
}

static void receive(uint32_t seq, size_t bytes)
{
    pass_until(1, WIRE_EVENT_ANNOUNCED, 1);
    enum wire_result result = take_message(seq, bytes);
    if (result == WIRE_PENDING)
        pass_until(1, WIRE_EVENT_DONE, 1);
    else
        MODEL_CHECK(result == WIRE_DONE);
    check_message(seq, bytes);
}

/* The same without an event. */
static void accept(uint32_t seq, size_t bytes)
{
    struct wire_event message;
    while (!shmchan_next(members->channel[1], 0, &message))
        model_env.relax(&model_env, false);
    MODEL_CHECK(wire_key_seq(message.key) == seq && message.bytes == bytes && message.tag == 9 && message.peer == 0);
    shmchan_accept(members->channel[1], 0, members->landed);
    check_message(seq, bytes);
}

static void setup_channel(void)
{
    members_make((struct wire_limits){.window = WINDOW, .minimal = 1, .chunk = 64});
}

/* Makes the pair's region (and with chunks the chunks' region) and the tables for messages under way. */
static void make_pair(size_t bytes)
{
    write_message(1, bytes);
    enum wire_result result = send(1, bytes);
    if (result != WIRE_PENDING) {
        receive(1, bytes);
    } else {
        struct wire_event event[2];
        MODEL_CHECK(shmchan_advance(members->channel[1], event, 2) == 1 && take_message(1, bytes) == WIRE_PENDING);
        MODEL_CHECK(shmchan_advance(members->channel[0], event, 2) == 1 && shmchan_advance(members->channel[1], event, 2) == 1);
        shmchan_advance(members->channel[0], event, 2);
    }
    struct shmchan_channel *c = shmchan_of(members->channel[0]);
    char *pair = (char *)c->peer[1].out_pair;
    model_name(&c->peer[1].out_pair->served, sizeof(uint32_t), "served");
    model_name(pair + sizeof(struct shmchan_pair), WINDOW * sizeof(struct shmchan_line), "announcement");
    model_name(pair + sizeof(struct shmchan_pair) + WINDOW * sizeof(struct shmchan_line), c->shape.eager_slots * SHMCHAN_EAGER_BYTES,
               "eager slot");
    if (c->peer[1].out_chunks)
        model_name(c->peer[1].out_chunks, c->shape.chunk_bytes, "chunk");
}

/* ------------------------------------------------------------------------------------------------------------ announcements */
static void short_setup(void)
{
    setup_channel();
    make_pair(SHORT);
    write_message(2, SHORT);
}

static void short_message(uint32_t t)
{
    if (t == 0)
        MODEL_CHECK(send(2, SHORT) == WIRE_DONE);
    else
        receive(2, SHORT);
}

/* The ring is full: the next message overwrites the first as soon as that was read. */
static void full_setup(void)
{
    short_setup();
    for (uint32_t seq = 2; seq <= 5; seq++) {
        write_message(seq, SHORT);
        MODEL_CHECK(send(seq, SHORT) == WIRE_DONE);
    }
    write_message(6, SHORT);
}

static void full_ring(uint32_t t)
{
    if (t == 0) {
        while (send(6, SHORT) == WIRE_AGAIN)
            model_env.relax(&model_env, false);
        return;
    }
    pass_until(1, WIRE_EVENT_ANNOUNCED, 5);
    for (uint32_t seq = 2; seq <= 6; seq++) {
        MODEL_CHECK(take_message(seq, SHORT) == WIRE_DONE);
        check_message(seq, SHORT);
    }
}

static void full_ring_accepted(uint32_t t)
{
    if (t == 0)
        full_ring(t);
    for (uint32_t seq = 2; t == 1 && seq <= 6; seq++)
        accept(seq, SHORT);
}

/* The next announcement of the peer that sent the newest one is looked at without a knock. */
static const struct model_fault short_faults[] = {
    {.what = "an announcement is published without release", .kind = MODEL_STORE, .name = "announcement", .thread = 0},
    {.what = "an announcement is read without acquire", .kind = MODEL_LOAD, .name = "announcement", .thread = 1},
    {.what = NULL},
};
static const struct model_fault full_faults[] = {
    {.what = "an announcement is published without release", .kind = MODEL_STORE, .name = "announcement", .thread = 0},
    {.what = "an announcement is read without acquire", .kind = MODEL_LOAD, .name = "announcement", .thread = 1},
    {.what = "what was read is told without release", .kind = MODEL_STORE, .name = "inlet", .thread = 1},
    {.what = "what was read is heard without acquire", .kind = MODEL_LOAD, .name = "inlet", .thread = 0},
    {.what = NULL},
};
const struct model_case case_message = {
    .name = "message, short", .threads = 2, .setup = short_setup, .run = short_message, .faults = short_faults};
const struct model_case case_message_full = {
    .name = "message, over a full ring", .threads = 2, .setup = full_setup, .run = full_ring, .faults = full_faults};

const struct model_case case_message_accepted = {.name = "message, without an event, over a full ring",
                                                 .threads = 2,
                                                 .setup = full_setup,
                                                 .run = full_ring_accepted,
                                                 .faults = full_faults};

/* ------------------------------------------------------------------------------------------------------------ eager slots */
/* Messages share a slot, which is full, and two are being taken. The slot is filled from its start again when both were. */
static void shared_setup(void)
{
    setup_channel();
    make_pair(EAGER);
    struct shmchan_peer *peer = &shmchan_of(members->channel[0])->peer[1];
    peer->filled = 0;
    for (uint32_t seq = 2; seq <= 3; seq++) {
        write_message(seq, EAGER);
        MODEL_CHECK(send(seq, EAGER) == WIRE_DONE);
    }
    peer->filled = SHMCHAN_EAGER_BYTES;
    write_message(4, EAGER);
}

static void eager_setup(void)
{
    shared_setup();
    pass_until(1, WIRE_EVENT_ANNOUNCED, 2);
}

static void eager(uint32_t t)
{
    if (t == 0) {
        MODEL_CHECK(send(4, EAGER) == WIRE_DONE);
        return;
    }
    for (uint32_t seq = 2; seq <= 3; seq++) {
        MODEL_CHECK(take_message(seq, EAGER) == WIRE_DONE);
        check_message(seq, EAGER);
    }
    receive(4, EAGER);
}

static void eager_accepted(uint32_t t)
{
    if (t == 0)
        eager(t);
    for (uint32_t seq = 2; t == 1 && seq <= 4; seq++)
        accept(seq, EAGER);
}

static const struct model_fault eager_faults[] = {
    {.what = "what was taken is told without release", .kind = MODEL_STORE, .name = "inlet", .thread = 1},
    {.what = "what was taken is heard without acquire", .kind = MODEL_LOAD, .name = "inlet", .thread = 0},
    {.what = NULL},
};
const struct model_case case_message_eager = {
    .name = "message, over an eager slot", .threads = 2, .setup = eager_setup, .run = eager, .faults = eager_faults};

const struct model_case case_message_eager_accepted = {.name = "message, without an event, over an eager slot",
                                                       .threads = 2,
                                                       .setup = shared_setup,
                                                       .run = eager_accepted,
                                                       .faults = eager_faults};

/* ------------------------------------------------------------------------------------------------------------ large ones */
static void large_setup(void)
{
    setup_channel();
    make_pair(LARGE);
    write_message(2, LARGE);
    MODEL_CHECK(send(2, LARGE) == WIRE_PENDING);
    pass_until(1, WIRE_EVENT_ANNOUNCED, 1);
}

/* Granted, sent through one chunk, and landed; then the sender may overwrite its buffer. */
static void large(uint32_t t)
{
    if (t == 0) {
        pass_until(0, WIRE_EVENT_DONE, 1);
        write_message(3, LARGE);
        return;
    }
    MODEL_CHECK(take_message(2, LARGE) == WIRE_PENDING);
    pass_until(1, WIRE_EVENT_DONE, 1);
    check_message(2, LARGE);
}

/* More chunks than fit: the first bytes and four chunks are there, and the receiver makes room for the fifth. */
enum { FIVE = SHMCHAN_EAGER_BYTES + SHMCHAN_CHUNKS * SHMCHAN_CHUNK_BYTES + 8 };
static void chunks_setup(size_t bytes)
{
    setup_channel();
    make_pair(LARGE);
    write_message(2, bytes);
    MODEL_CHECK(send(2, bytes) == WIRE_PENDING);
    pass_until(1, WIRE_EVENT_ANNOUNCED, 1);
    MODEL_CHECK(take_message(2, bytes) == WIRE_PENDING);
    struct wire_event event[2];
    for (int filled = 0; filled < SHMCHAN_CHUNKS; filled += SHMCHAN_CHUNKS_LOOK)
        MODEL_CHECK(shmchan_advance(members->channel[0], event, 2) == 0);
}

static void five_setup(void)
{
    chunks_setup(FIVE);
}

/* The sender had more to do than one pass does, so it looks again without a knock. */
static void room_setup(void)
{
    chunks_setup(FIVE);
    shmchan_of(members->channel[0])->heard[1].knocks--;
}

static void room(uint32_t t)
{
    struct wire_event event[2];
    if (t == 0)
        pass_until(0, WIRE_EVENT_DONE, 1);
    else
        (void)shmchan_advance(members->channel[1], event, 2);
}

static void chunks(uint32_t t)
{
    if (t == 0) {
        pass_until(0, WIRE_EVENT_DONE, 1);
        return;
    }
    pass_until(1, WIRE_EVENT_DONE, 1);
}

static void check_five(void)
{
    check_message(2, FIVE);
}

static const struct model_fault large_faults[] = {
    {.what = "a knock is made without release", .kind = MODEL_STORE, .name = "inbox", .thread = 1},
    {.what = "a knock is heard without acquire", .kind = MODEL_LOAD, .name = "inbox", .thread = 0},
    {.what = NULL},
};
static const struct model_fault chunk_faults[] = {
    {.what = "a chunk is published without release", .kind = MODEL_STORE, .name = "chunk", .thread = 0},
    {.what = "a chunk is read without acquire", .kind = MODEL_LOAD, .name = "chunk", .thread = 1},
    {.what = NULL},
};
static const struct model_fault room_faults[] = {
    {.what = "room for a chunk is told without release", .kind = MODEL_STORE, .name = "inlet", .thread = 1},
    {.what = "room for a chunk is heard without acquire", .kind = MODEL_LOAD, .name = "inlet", .thread = 0},
    {.what = NULL},
};
const struct model_case case_message_large = {
    .name = "message, large", .threads = 2, .setup = large_setup, .run = large, .faults = large_faults};
const struct model_case case_message_chunks = {
    .name = "message, over its own chunks", .threads = 2, .setup = five_setup, .run = chunks, .finish = check_five, .faults = chunk_faults};
const struct model_case case_message_room = {
    .name = "message, room for a chunk", .threads = 2, .setup = room_setup, .run = room, .faults = room_faults};
