/* Where messages that do not fit in their lines lie until their receiver takes them. */
#include "wire/test_shm.h"

#include "channel/pair.h"

#include <string.h>

enum { LONGEST = 4096 };

static void send_message(struct rank *r, uint32_t seq, size_t bytes)
{
    static char sent[LONGEST];
    const uint16_t peer = 1;
    struct wire_span span = {memset(sent, (int)seq, bytes), bytes};
    struct wire_expose e = {.key = wire_key_of(seq, 0, 0), .flags = WIRE_MESSAGE, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};

    CHECK(r->ch->class->expose(r->ch, &e) == WIRE_DONE);
}

static void take_message(struct rank *r, uint32_t seq, size_t bytes)
{
    static char land[LONGEST];
    struct wire_event event;
    struct wire_look look = {.key = wire_key_of(seq, 0, 0), .flags = WIRE_MESSAGE, .land = land, .bytes = bytes};

    CHECK(r->ch->class->advance(r->ch, &event, 1) == 1 && event.bytes == bytes);
    CHECK(r->ch->class->view(r->ch, &look) == WIRE_DONE);
    for (size_t i = 0; i < bytes; i++)
        CHECK(land[i] == (char)seq);
}

/* A window of messages leaves before the receiver looks: several of them share a slot. */
static void window_of_short_messages(struct rank *r)
{
    enum { LENGTH = 2048, COUNT = SHMCHAN_WINDOW };
    _Static_assert((int)COUNT <= (int)SHMCHAN_EAGER_SLOTS * (int)SHMCHAN_EAGER_BYTES / (int)LENGTH, "they fit");

    for (uint32_t seq = 1; r->rank == 0 && seq <= COUNT; seq++)
        send_message(r, seq, LENGTH);
    rank_meet(r);
    for (uint32_t seq = 1; r->rank == 1 && seq <= COUNT; seq++)
        take_message(r, seq, LENGTH);
    rank_meet(r);
}

void short_messages_share_slots(void **state)
{
    (void)state;
    shm_processes(2, 0, window_of_short_messages, -1);
}

/* Each message is taken before the next one is sent. That lies behind it all the same, so that the sender need not learn so; a full slot is
 * filled from its start again. */
static void one_after_the_other(struct rank *r)
{
    enum { LENGTH = 4000, LINES = (LENGTH + 63) / 64 * 64, FIT = SHMCHAN_EAGER_BYTES / LINES };

    for (uint32_t seq = 1; seq <= 2 * FIT + 1; seq++) {
        if (r->rank == 0) {
            send_message(r, seq, LENGTH);
            const struct shmchan_peer *p = &shmchan_of(r->ch)->peer[1];
            CHECK(p->filling == 0 && p->filled == ((seq - 1) % FIT + 1) * LINES);
        }
        rank_meet(r);
        if (r->rank == 1)
            take_message(r, seq, LENGTH);
        rank_meet(r);
    }
}

void a_slot_is_filled_to_its_end(void **state)
{
    (void)state;
    shm_processes(2, 0, one_after_the_other, -1);
}
