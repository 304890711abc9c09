/*
 * The lines of the memory wires: exposing, viewing and writing again, for each form in which bytes travel; notes;
 * messages. There are two members, the smallest window and one credit. Everything outside the case's subject is done in
 * the set-up, by one thread.
 */
#include "model/cases.h"
#include "model/members.h"

#include <string.h>

static void check_bytes(const void *at, size_t bytes, uint32_t seq)
{
    const unsigned char *c = at;
    uint64_t word = 0;
    memcpy(&word, at, bytes < 8 ? bytes : 8); /* for the race detector; the rest is compared below */
    MODEL_CHECK(c[0] == (unsigned char)seq && c[bytes - 1] == (unsigned char)seq);
}

static void wait_for(uint32_t thread)
{
    (void)thread;
    model_env.relax(&model_env, false);
}

/* Views until the bytes are there, then checks them. */
static void view_until(uint32_t rank, wire_key key, uint16_t edge, uint16_t flags, size_t bytes)
{
    struct wire_view *view = &members->view[rank];
    enum wire_result result;
    while ((result = member_view(rank, key, edge, flags, bytes, view)) == WIRE_AGAIN)
        wait_for(rank);
    MODEL_CHECK(result == WIRE_DONE);
    check_bytes(view->at, bytes, wire_key_seq(key) + wire_key_round(key));
}

static void expose_until(uint32_t rank, wire_key key, uint16_t edge, size_t bytes)
{
    enum wire_result result;
    while ((result = member_expose(rank, key, edge, bytes)) == WIRE_AGAIN)
        wait_for(rank);
    MODEL_CHECK(result == WIRE_DONE);
}

/* Advances until as many pending views as requested have completed. */
static void advance_until(uint32_t rank, uint32_t want)
{
    while (want) {
        struct wire_event event[4];
        uint32_t n = shmchan_advance(members->channel[rank], event, want < 4 ? want : 4);
        for (uint32_t i = 0; i < n; i++)
            MODEL_CHECK(event[i].kind == WIRE_EVENT_DONE && event[i].result == WIRE_DONE);
        want -= n;
        if (!n)
            wait_for(rank);
    }
}

enum { ONCE = WIRE_ONCE | WIRE_TO_ALL, WORD = 8, LONG = 100 };
static wire_key first_of(uint32_t seq)
{
    return wire_key_of(seq, 0, 0);
}

/* ------------------------------------------------------------------------------------------------------------ a line */
static void shmchan_setup(void)
{
    members_make((struct wire_limits){.window = 4, .minimal = 1, .chunk = 64});
}

static void line_once(uint32_t t)
{
    if (t == 0)
        expose_until(0, first_of(1), ONCE, WORD);
    else
        view_until(1, first_of(1), ONCE, WIRE_WORK | WIRE_GLANCE, WORD);
}

static void line_pending(uint32_t t)
{
    if (t == 0) {
        expose_until(0, first_of(1), ONCE, WORD);
        return;
    }
    if (member_view(1, first_of(1), ONCE, WIRE_WORK, WORD, &members->view[1]) == WIRE_PENDING)
        advance_until(1, 1);
    check_bytes(members->view[1].at, WORD, 1);
}

/* Eight operations are done; the reader is at the first one, and the writer needs its line for the ninth. */
static void again_setup(void)
{
    shmchan_setup();
    for (uint32_t seq = 1; seq <= 8; seq++) {
        expose_until(0, first_of(seq), ONCE, WORD);
        shmchan_release(members->channel[0], seq, NULL);
    }
}

static void line_again(uint32_t t)
{
    if (t == 0) {
        expose_until(0, first_of(9), ONCE, WORD);
        return;
    }
    view_until(1, first_of(1), ONCE, WIRE_WORK | WIRE_GLANCE, WORD);
    shmchan_release(members->channel[1], 1, NULL);
    view_until(1, first_of(9), ONCE, WIRE_WORK | WIRE_GLANCE, WORD);
}

/* Both directions, as in an allreduce: each rank exposes, views the other's, and retires, twice over the same two
 * lines. */
static void exchange_setup(void)
{
    shmchan_setup();
    for (uint32_t seq = 1; seq <= 7; seq++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            expose_until(rank, first_of(seq), ONCE, WORD);
        for (uint32_t rank = 0; rank < 2; rank++)
            shmchan_release(members->channel[rank], seq, NULL);
    }
}

static void exchange(uint32_t t)
{
    for (uint32_t seq = 8; seq <= 9; seq++) {
        expose_until(t, first_of(seq), ONCE, WORD);
        view_until(t, first_of(seq), ONCE, WIRE_WORK | WIRE_GLANCE, WORD);
        shmchan_release(members->channel[t], seq, NULL);
    }
}

static const struct model_fault line_faults[] = {
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "line key", .thread = 0},
    {.what = "the key is read without acquire", .kind = MODEL_LOAD, .name = "line key", .thread = 1},
    {.what = NULL},
};
static const struct model_fault again_faults[] = {
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "line key", .thread = 0},
    {.what = "a retirement is published without release", .kind = MODEL_STORE, .name = "retired", .thread = 1},
    {.what = "a retirement is read without acquire", .kind = MODEL_LOAD, .name = "retired", .thread = 0},
    {.what = NULL},
};
const struct model_case case_line = {.name = "line, glance", .threads = 2, .setup = shmchan_setup, .run = line_once, .faults = line_faults};
const struct model_case case_line_pending = {
    .name = "line, pending view", .threads = 2, .setup = shmchan_setup, .run = line_pending, .faults = line_faults};
const struct model_case case_line_again = {
    .name = "line, written again", .threads = 2, .setup = again_setup, .run = line_again, .faults = again_faults};
const struct model_case case_exchange = {
    .name = "line, two exchanges", .threads = 2, .setup = exchange_setup, .run = exchange, .faults = line_faults};

/* ------------------------------------------------------------------------------------------------------------ a place */
/* One operation had more bytes than a line holds, so the places exist. */
static void place_setup(void)
{
    shmchan_setup();
    expose_until(0, first_of(1), ONCE, LONG);
    shmchan_release(members->channel[0], 1, NULL);
}

static void place_again(uint32_t t)
{
    if (t == 0) {
        expose_until(0, first_of(2), ONCE, LONG);
        return;
    }
    view_until(1, first_of(1), ONCE, WIRE_WORK | WIRE_GLANCE, LONG);
    shmchan_release(members->channel[1], 1, NULL);
    view_until(1, first_of(2), ONCE, WIRE_WORK | WIRE_GLANCE, LONG);
}

static void place_first(uint32_t t)
{
    if (t == 0)
        expose_until(0, first_of(1), ONCE, LONG);
    else
        view_until(1, first_of(1), ONCE, WIRE_WORK | WIRE_GLANCE, LONG);
}
const struct model_case case_place = {
    .name = "place, written again", .threads = 2, .setup = place_setup, .run = place_again, .faults = again_faults};
const struct model_case case_place_first = {
    .name = "place, made at the first use", .threads = 2, .setup = shmchan_setup, .run = place_first, .faults = line_faults};

/* ------------------------------------------------------------------------------------------------------------ a line per reader */
static void each_setup(void)
{
    shmchan_setup();
    expose_until(0, first_of(1), WIRE_ONCE, LONG);
    shmchan_release(members->channel[0], 1, NULL);
    struct shmchan_channel *c = shmchan_of(members->channel[0]);
    model_name(c->own.each, c->shape.each.place, "line key");
}

static void each_again(uint32_t t)
{
    if (t == 0) {
        expose_until(0, first_of(2), WIRE_ONCE, LONG);
        return;
    }
    view_until(1, first_of(1), WIRE_ONCE, WIRE_WORK | WIRE_GLANCE, LONG);
    shmchan_release(members->channel[1], 1, NULL);
    view_until(1, first_of(2), WIRE_ONCE, WIRE_WORK | WIRE_GLANCE, LONG);
}

/* The reader looks before the exposer has a place. */
static void each_first(uint32_t t)
{
    if (t == 0) {
        expose_until(0, first_of(1), WIRE_ONCE, WORD);
        return;
    }
    if (member_view(1, first_of(1), WIRE_ONCE, WIRE_WORK, WORD, &members->view[1]) == WIRE_PENDING)
        advance_until(1, 1);
    check_bytes(members->view[1].at, WORD, 1);
}
const struct model_case case_each = {
    .name = "a reader's own place, written again", .threads = 2, .setup = each_setup, .run = each_again, .faults = again_faults};
const struct model_case case_each_first = {
    .name = "a reader's own line, made at the first use", .threads = 2, .setup = shmchan_setup, .run = each_first};

/* ------------------------------------------------------------------------------------------------------------ a stream */
enum { CHUNK = 60 };
static void stream_setup(void)
{
    shmchan_setup();
    expose_until(0, wire_key_of(1, 0, 0), 0, CHUNK);
    struct shmchan_channel *c = shmchan_of(members->channel[0]);
    model_name(c->own.stream, c->shape.stream_bytes, "stream key");
}

/* The reader has one of two rounds left to view; the writer writes the second over the first, with one credit. */
static void stream(uint32_t t)
{
    if (t == 0) {
        expose_until(0, wire_key_of(1, 1, 0), 0, CHUNK);
        return;
    }
    for (uint32_t round = 0; round < 2; round++) {
        struct wire_view *view = &members->view[1];
        if (member_view(1, wire_key_of(1, round, 0), 0, WIRE_WORK, CHUNK, view) == WIRE_PENDING)
            advance_until(1, 1);
        check_bytes(view->at, CHUNK, 1 + round);
        shmchan_release(members->channel[1], 1, view);
    }
}

static void stream_landing(uint32_t t)
{
    if (t == 0) {
        expose_until(0, wire_key_of(1, 1, 0), 0, CHUNK);
        return;
    }
    for (uint32_t round = 0; round < 2; round++) {
        if (member_land(1, wire_key_of(1, round, 0), 0, CHUNK, members->landed) == WIRE_PENDING)
            advance_until(1, 1);
        check_bytes(members->landed, CHUNK, 1 + round);
    }
}

/* The next operation over the same place, ordered by retirement. */
static void stream_next(uint32_t t)
{
    if (t == 0) {
        shmchan_release(members->channel[0], 1, NULL);
        expose_until(0, wire_key_of(2, 0, 0), 0, CHUNK);
        return;
    }
    for (uint32_t seq = 1; seq <= 2; seq++) {
        struct wire_view *view = &members->view[1];
        if (member_view(1, wire_key_of(seq, 0, 0), 0, WIRE_WORK, CHUNK, view) == WIRE_PENDING)
            advance_until(1, 1);
        check_bytes(view->at, CHUNK, seq);
        shmchan_release(members->channel[1], seq, view);
        shmchan_release(members->channel[1], seq, NULL);
    }
}

static const struct model_fault stream_faults[] = {
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "stream key", .thread = 0},
    {.what = "an acknowledgement is published without release", .kind = MODEL_STORE, .name = "ack", .thread = 1},
    {.what = "an acknowledgement is read without acquire", .kind = MODEL_LOAD, .name = "ack", .thread = 0},
    {.what = NULL},
};
static const struct model_fault next_faults[] = {
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "stream key", .thread = 0},
    {.what = "a retirement is published without release", .kind = MODEL_STORE, .name = "retired", .thread = 1},
    {.what = "a retirement is read without acquire", .kind = MODEL_LOAD, .name = "retired", .thread = 0},
    {.what = NULL},
};
const struct model_case case_stream = {
    .name = "stream, one credit", .threads = 2, .setup = stream_setup, .run = stream, .faults = stream_faults};
const struct model_case case_stream_landing = {
    .name = "stream, landing views", .threads = 2, .setup = stream_setup, .run = stream_landing, .faults = stream_faults};
const struct model_case case_stream_next = {
    .name = "stream, the next operation", .threads = 2, .setup = stream_setup, .run = stream_next, .faults = next_faults};

/* ------------------------------------------------------------------------------------------------------------ answers in place */
static void land_until(uint32_t rank, wire_key key, size_t bytes)
{
    if (member_land(rank, key, 0, bytes, members->landed) == WIRE_PENDING)
        advance_until(rank, 1);
    check_bytes(members->landed, bytes, wire_key_seq(key) + wire_key_round(key) + wire_key_edge(key));
}

static void answers_setup(void)
{
    shmchan_setup();
    for (uint32_t rank = 0; rank < 2; rank++) { /* makes the places */
        expose_until(rank, wire_key_of(1, 0, 0), 0, CHUNK);
        struct shmchan_channel *c = shmchan_of(members->channel[rank]);
        model_name(c->own.stream, c->shape.stream_bytes, "stream key");
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        land_until(rank, wire_key_of(1, 0, 0), CHUNK);
    for (uint32_t rank = 0; rank < 2; rank++)
        shmchan_release(members->channel[rank], 1, NULL);
}

/* Two rounds with one credit: the second writes where the first was asked and answered. The next question orders the answer's line, too:
 * its acknowledgement needs no order of its own. */
static void answers(uint32_t t)
{
    struct wire_view *view = &members->view[1];

    for (uint32_t round = 0; round < 2; round++) {
        wire_key asked = wire_key_of(2, round, 0), answer = wire_key_of(2, round, 1);
        if (t == 0) {
            expose_until(0, asked, 0, CHUNK);
            land_until(0, answer, CHUNK);
            continue;
        }
        if (member_view(1, asked, 0, WIRE_WORK, CHUNK, view) == WIRE_PENDING)
            advance_until(1, 1);
        check_bytes(view->at, CHUNK, 2 + round);
        while (member_answer(1, answer, CHUNK, view) == WIRE_AGAIN)
            wait_for(1);
        shmchan_release(members->channel[1], 2, view);
    }
}

static const struct model_fault answers_faults[] = {
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "stream key", .thread = 0},
    {.what = "the key is read without acquire", .kind = MODEL_LOAD, .name = "stream key", .thread = 1},
    {.what = "the answer's key is published without release", .kind = MODEL_STORE, .name = "stream key", .thread = 1},
    {.what = "the answer's key is read without acquire", .kind = MODEL_LOAD, .name = "stream key", .thread = 0},
    {.what = NULL},
};
const struct model_case case_answers = {
    .name = "stream, answered in place", .threads = 2, .setup = answers_setup, .run = answers, .faults = answers_faults};

/* ------------------------------------------------------------------------------------------------------------ direct landings */
enum { PAGE = SHMCHAN_LANDING_PAGE };
static void stored_setup(void)
{
    members_make((struct wire_limits){.window = 4, .minimal = 1, .chunk = PAGE});
    expose_until(0, wire_key_of(1, 0, 0), 0, CHUNK); /* makes the places */
    struct shmchan_channel *c = shmchan_of(members->channel[0]);
    model_name(c->own.stream, c->shape.stream_bytes, "stream key");
    MODEL_CHECK(member_land(1, wire_key_of(1, 0, 0), 0, CHUNK, members->landed) == WIRE_DONE);
    for (uint32_t rank = 0; rank < 2; rank++)
        shmchan_release(members->channel[rank], 1, NULL);
    members->lent = shmchan_memory_class.take(&members->host[1]->wire, 2 * PAGE, WIRE_PLACE_DEFAULT);
    MODEL_CHECK(members->lent);
}

/* Two rounds, one after the other in one slot. The exposer may find each place announced or not. */
static void stored(uint32_t t)
{
    if (t == 0) {
        for (uint32_t round = 0; round < 2; round++)
            while (member_store(0, wire_key_of(2, round, 0), PAGE) == WIRE_AGAIN)
                wait_for(0);
        return;
    }
    for (uint32_t round = 0; round < 2; round++) {
        char *land = members->lent + (size_t)round * PAGE;
        if (member_land(1, wire_key_of(2, round, 0), 0, PAGE, land) == WIRE_PENDING)
            advance_until(1, 1);
        check_bytes(land, PAGE, 2 + round);
    }
}

static const struct model_fault stored_faults[] = {
    {.what = "a place is told without release", .kind = MODEL_STORE, .name = "landing key", .thread = 1},
    {.what = "a place is read without acquire", .kind = MODEL_LOAD, .name = "landing key", .thread = 0},
    {.what = "the key is published without release", .kind = MODEL_STORE, .name = "stream key", .thread = 0},
    {.what = "the key is read without acquire", .kind = MODEL_LOAD, .name = "stream key", .thread = 1},
    {.what = NULL},
};
const struct model_case case_stored = {
    .name = "stream, stored where it lands", .threads = 2, .setup = stored_setup, .run = stored, .faults = stored_faults};

/* ------------------------------------------------------------------------------------------------------------ notes */
static void note_of(uint32_t rank, uint32_t seq, uint64_t value)
{
    uint64_t words[WIRE_NOTE_BYTES / 8];
    for (size_t i = 0; i < WIRE_NOTE_BYTES / 8; i++)
        words[i] = value;
    struct wire_span span = {words, sizeof words};
    struct wire_expose e = {.key = wire_key_of(seq, 0, 1), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};
    MODEL_CHECK(shmchan_expose(members->channel[rank], &e) == WIRE_DONE);
}

static void notes_setup(void)
{
    shmchan_setup();
    note_of(0, 1, 11);
}

/* A note is read whole, the old one or the new one, and in the end the new one. */
static void notes(uint32_t t)
{
    if (t == 0) {
        note_of(0, 2, 22);
        return;
    }
    for (uint64_t last = 0; last != 22;) {
        struct wire_event event[2];
        uint32_t n = shmchan_advance(members->channel[1], event, 2);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t words[WIRE_NOTE_BYTES / 8];
            memcpy(words, event[i].note, sizeof words);
            for (size_t k = 0; k < WIRE_NOTE_BYTES / 8; k++)
                MODEL_CHECK(words[k] == words[0]);
            MODEL_CHECK(words[0] == (wire_key_seq(event[i].key) == 1 ? 11 : 22) && words[0] >= last);
            last = words[0];
        }
        if (!n)
            wait_for(1);
    }
}

static const struct model_fault note_faults[] = {
    {.what = "words are written without release", .kind = MODEL_STORE, .name = "note word", .thread = 0},
    {.what = "words are read without acquire", .kind = MODEL_LOAD, .name = "note word", .thread = 1},
    {.what = "the version is read without acquire", .kind = MODEL_LOAD, .name = "note version", .thread = 1},
    {.what = "the version is written without release", .kind = MODEL_STORE, .name = "note version", .thread = 0},
    {.what = "the counter of notes is written without release", .kind = MODEL_CHANGE, .name = "note epoch", .thread = 0},
    {.what = NULL},
};
const struct model_case case_notes = {
    .name = "note, written again", .threads = 2, .setup = notes_setup, .run = notes, .faults = note_faults};
