/* Shared memory: bytes that the exposer stores where they land or where it read what they answer, and reads and stores by a peer that does
 * not know of a failure yet. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/pair.h"
#include "wire/test_shm.h"

#include <sched.h>
#include <string.h>

enum { LANDED = 8192, LANDINGS = 11 /* more than a stream has credits */ };

static struct wire_expose landing_expose(uint32_t seq, uint32_t round, const uint16_t *peer, const struct wire_span *span)
{
    return (struct wire_expose){
        .key = wire_key_of(seq, round, 0), .fingerprint = 5, .peers = peer, .npeers = 1, .nspans = 1, .spans = span, .cookie = 7};
}

static enum wire_result landing_view(struct rank *r, uint32_t seq, uint32_t round, char *land)
{
    struct wire_look l = {
        .key = wire_key_of(seq, round, 0), .fingerprint = 5, .peer = 0, .land = land, .bytes = LANDED, .cookie = 100 + round};
    return r->ch->class->view(r->ch, &l);
}

/* Waits until the place is announced; it will be, because the reader has already requested the bytes. */
static char *await_landing(struct rank *r, const struct wire_expose *e)
{
    void *pad = NULL;
    enum wire_result result;
    while ((result = r->ch->class->reserve(r->ch, e, LANDED, &pad)) == WIRE_AGAIN)
        rank_pass(r);
    CHECK(result == WIRE_LANDING);
    return pad;
}

static void store_rounds(struct rank *r)
{
    const uint16_t peer = 1;
    struct wire_span span = {NULL, LANDED};
    for (uint32_t round = 0; round < LANDINGS; round++) {
        struct wire_expose e = landing_expose(1, round, &peer, &span);
        char *pad = await_landing(r, &e);
        memset(pad, (int)round + 1, LANDED);
        span.at = pad;
        e.flags = WIRE_BUILT | WIRE_DEPOSIT;
        CHECK(r->ch->class->expose(r->ch, &e) == WIRE_DONE);
    }
}

static bool all_are(const char *at, char value)
{
    for (size_t i = 0; i < LANDED; i++)
        if (at[i] != value)
            return false;
    return true;
}

/* A different length or call has no landing place; the reader finds out which differed. The same holds for bytes that
 * are not whole pages, and for memory of a window. */
static void not_told(struct rank *r, char *memory)
{
    const uint16_t peer = 1;
    uint64_t where;
    void *pad;
    struct wire_span span = {memory, LANDED};
    for (uint32_t round = 0; round < 3; round++) {
        struct wire_expose e = landing_expose(2, round, &peer, &span);
        e.fingerprint += round == 0;
        if (r->rank == 1)
            CHECK(round != 2 || r->wire_class->memory->where(r->wire, memory, LANDED, &where));
        if (r->rank == 1)
            CHECK(landing_view(r, 2, round, memory + (round == 1 ? 64 : 0)) == WIRE_PENDING);
        rank_meet(r);
        if (r->rank == 0)
            CHECK(r->ch->class->reserve(r->ch, &e, LANDED, &pad) == WIRE_DONE);
        rank_meet(r);
    }
}

static void lands_by_itself(struct rank *r)
{
    char *memory = r->wire_class->memory->take(r->wire, LANDINGS * LANDED, WIRE_PLACE_DEFAULT);
    CHECK(memory);
    for (uint32_t round = 0; r->rank == 1 && round < LANDINGS; round++)
        CHECK(landing_view(r, 1, round, memory + round * LANDED) == WIRE_PENDING);
    rank_meet(r);
    if (r->rank == 0)
        store_rounds(r);
    for (uint32_t round = 0; r->rank == 1 && round < LANDINGS; round++) {
        CHECK(rank_await(r, 100 + round) == WIRE_DONE);
        CHECK(all_are(memory + round * LANDED, (char)(round + 1)));
    }
    rank_meet(r);
    r->ch->class->release(r->ch, 1, NULL);
    rank_meet(r);
    not_told(r, memory);
    r->ch->class->leave(r->ch, WIRE_ABORT);
}

void results_land_by_themselves(void **state)
{
    (void)state;
    shm_processes(2, 0, lands_by_itself, -1);
}

/* Contract 4.3: the reader has left with an error and reuses its buffer when the exposer, which does not know of the
 * failure yet, stores there. */
static void lands_late(struct rank *r)
{
    const uint16_t peer = 1;
    struct wire_span span = {NULL, LANDED};
    char *memory = r->wire_class->memory->take(r->wire, LANDED, WIRE_PLACE_DEFAULT), *pad = NULL;
    uint64_t where;
    memset(memory, 1, LANDED);
    if (r->rank == 1)
        CHECK(landing_view(r, 1, 0, memory) == WIRE_PENDING);
    rank_meet(r);
    if (r->rank == 0) {
        struct wire_expose e = landing_expose(1, 0, &peer, &span);
        pad = await_landing(r, &e);
        pad[0] = 2; /* not too late yet */
    }
    rank_meet(r);
    if (r->rank == 1) {
        r->ch->class->leave(r->ch, WIRE_ABORT);
        CHECK(memory[0] == 2 && memory[1] == 1);
        memset(memory, 3, LANDED);
        CHECK(!r->wire_class->memory->where(r->wire, memory, LANDED, &where)); /* no peer can see these pages */
    }
    rank_meet(r);
    if (r->rank == 0)
        memset(pad, 4, LANDED);
    rank_meet(r);
    CHECK(r->rank == 0 || all_are(memory, 3));
    if (r->rank == 0)
        r->ch->class->leave(r->ch, WIRE_ABORT);
}

void contract_4_3_a_late_store_lands_nowhere(void **state)
{
    (void)state;
    shm_processes(2, 0, lands_late, -1);
}

/* Contract 4.3: an owner that failed closes its wire while a peer that does not know of the failure yet still reads there. */
static void reads_late(struct rank *r)
{
    uint64_t where;
    int64_t *memory = r->wire_class->memory->take(r->wire, LANDED, WIRE_PLACE_DEFAULT);
    CHECK(memory && r->wire_class->memory->where(r->wire, memory, LANDED, &where)); /* both ranks have it at the same place */
    *memory = 10 + r->rank;
    rank_meet(r);
    if (r->rank == 0)
        shm_await_close(r);
    if (r->rank == 0)
        CHECK(*(int64_t *)r->wire_class->memory->reach(r->ch, 1, where) == 11);
    r->ch->class->leave(r->ch, WIRE_ABORT);
    r->wire_class->memory->give(r->wire, memory, true);
}

void contract_4_3_a_late_reader_reads_what_was_there(void **state)
{
    (void)state;
    shm_processes(2, 0, reads_late, -1);
}

/* Rank 1 reads a place of rank 0 and gives it back. Unless the machine's figures say that it gains nothing, it has written to its lines
 * then. */
static void read_and_give_back(struct rank *r)
{
    static char bytes[LANDED];
    const uint16_t peer = 1;
    const bool only_reads = r->limits.only_reads;
    if (r->rank == 0) {
        struct wire_span span = {bytes, LANDED};
        memset(bytes, 7, LANDED);
        struct wire_expose e = landing_expose(1, 0, &peer, &span);
        CHECK(rank_expose(r, &e) == WIRE_DONE);
    } else {
        struct wire_view view = {0};
        struct wire_look l = {.key = wire_key_of(1, 0, 0), .fingerprint = 5, .peer = 0, .view = &view, .bytes = LANDED, .cookie = 100};
        CHECK(rank_look(r, &l) == WIRE_DONE && all_are(view.at, 7));
        CHECK(view.exclusive && r->ch->caps.dirties == !only_reads && r->ch->caps.keeps_long == only_reads);
        const char *at = view.at;
        r->ch->class->release(r->ch, 1, &view);
        CHECK(all_are(at, 7) == only_reads);
    }
    rank_meet(r);
}

/* The same for a message's slot, which only its receiver reads. */
static void send_and_look_at_the_slot(struct rank *r)
{
    static char bytes[LANDED];
    const bool only_reads = r->limits.only_reads;
    const uint16_t peer = 1;
    if (r->rank == 0) {
        struct wire_span span = {bytes, LANDED};
        struct wire_expose e = landing_expose(1, 0, &peer, &span);
        e.flags = WIRE_MESSAGE;
        memset(bytes, 7, LANDED);
        CHECK(rank_expose(r, &e) == WIRE_DONE);
    } else {
        struct wire_event e;
        struct wire_look l = {.key = wire_key_of(1, 0, 0), .flags = WIRE_MESSAGE, .peer = 0, .land = bytes, .bytes = LANDED};
        while (!r->ch->class->advance(r->ch, &e, 1))
            sched_yield();
        CHECK(r->ch->class->view(r->ch, &l) == WIRE_DONE);
        CHECK(all_are(bytes, 7));
    }
    rank_meet(r);
    if (r->rank == 0) {
        struct shmchan_channel *c = shmchan_of(r->ch);
        struct shmchan_peer *p = &c->peer[1];
        CHECK(all_are(pair_eager(c, p->out_pair, p->filling * SHMCHAN_EAGER_BYTES), 7) == only_reads);
    }
    rank_meet(r);
}

static void read_and_receive(struct rank *r)
{
    read_and_give_back(r);
    send_and_look_at_the_slot(r);
}

void readers_write_where_it_gains(void **state)
{
    (void)state;
    for (uint32_t only_reads = 0; only_reads < 2; only_reads++) {
        struct wire_limits limits = {.only_reads = only_reads};
        int status[RANKS_MAX] = {0};
        world_processes("shm", 2, &limits, 0, read_and_receive, status);
        assert_true(status[0] == 0 && status[1] == 0);
    }
}

enum { ASKED = 0, ANSWERED = 1 /* edges */, ANSWERS = 40 /* more than a stream has credits */ };

static struct wire_expose ask(uint32_t round, uint32_t edge, const uint16_t *peer, const struct wire_span *span)
{
    struct wire_expose e = landing_expose(1, round, peer, span);

    e.key = wire_key_of(1, round, edge);
    return e;
}

static void take_the_answer(struct rank *r, uint32_t round)
{
    static char bytes[LANDED];
    const uint16_t peer = 1;
    struct wire_span span = {bytes, LANDED};
    struct wire_expose e = ask(round, ASKED, &peer, &span);
    struct wire_look l = {
        .key = wire_key_of(1, round, ANSWERED), .fingerprint = 5, .peer = 1, .land = bytes, .bytes = LANDED, .cookie = 100 + round};

    memset(bytes, (int)round, LANDED);
    CHECK(rank_expose(r, &e) == WIRE_DONE);
    memset(bytes, 0, LANDED);
    CHECK(rank_look(r, &l) == WIRE_DONE && all_are(bytes, (char)(round + 100)));
}

/* For bytes of another length the answer has a place of its own. */
static void answer(struct rank *r, uint32_t round)
{
    static char built[LANDED];
    const uint16_t peer = 0;
    struct wire_view view = {0};
    struct wire_span span = {built, LANDED};
    struct wire_expose e = ask(round, ANSWERED, &peer, &span);
    struct wire_look l = {.key = wire_key_of(1, round, ASKED), .fingerprint = 5, .view = &view, .bytes = LANDED, .cookie = 100 + round};
    enum wire_result result;
    void *pad = NULL;

    CHECK(rank_look(r, &l) == WIRE_DONE && all_are(view.at, (char)round));
    memset(built, (int)round + 100, LANDED);
    e.answers = &view;
    CHECK(r->ch->class->reserve(r->ch, &e, LANDED - 64, &pad) != WIRE_ANSWERS);
    while ((result = r->ch->class->reserve(r->ch, &e, LANDED, &pad)) == WIRE_AGAIN)
        rank_pass(r);
    CHECK(result == WIRE_ANSWERS && pad == view.at);
    memcpy(pad, built, LANDED);
    e.flags |= WIRE_BUILT | WIRE_ANSWER;
    CHECK(rank_expose(r, &e) == WIRE_DONE);
    r->ch->class->release(r->ch, 1, &view);
}

static void ask_and_answer(struct rank *r)
{
    for (uint32_t round = 0; round < ANSWERS; round++)
        r->rank == 0 ? take_the_answer(r, round) : answer(r, round);
    r->ch->class->release(r->ch, 1, NULL);
    rank_meet(r);
}

void results_answer_in_place(void **state)
{
    (void)state;
    for (uint32_t only_reads = 0; only_reads < 2; only_reads++) {
        struct wire_limits limits = {.only_reads = only_reads};
        int status[RANKS_MAX] = {0};
        world_processes("shm", 2, &limits, 0, ask_and_answer, status);
        assert_true(status[0] == 0 && status[1] == 0);
    }
}
