/*
 * Leaves a channel and reuses its memory for the next one: memory that another member may still read is not touched.
 * Rank 0 leaves and makes a second channel, which takes the first one's memory if both members have left. Rank 1 reads
 * rank 0's last line until it leaves itself.
 */
#include "model/cases.h"
#include "model/members.h"

enum { ONCE = WIRE_ONCE | WIRE_TO_ALL };
static const int32_t world[2] = {0, 1};

/* One exchange is complete; rank 0's line has not been read. */
static void setup(void)
{
    members_make((struct wire_limits){.window = 4, .minimal = 1, .chunk = 64});
    MODEL_CHECK(member_expose(0, wire_key_of(1, 0, 0), ONCE, 8) == WIRE_DONE);
}

static void make_another(uint32_t rank)
{
    struct wire_limits limits = {.window = 4, .minimal = 1, .chunk = 64};
    struct wire_team team = {.id = 78, .rank = (int32_t)rank, .size = 2, .world = world};
    char offer[WIRE_OFFER_BYTES];
    struct wire_channel *channel;
    MODEL_CHECK(shmchan_join(&members->host[rank]->wire, &team, &limits, NULL, offer, &channel) == COMM_OK);
}

static void leave_and_make(uint32_t t)
{
    if (t == 0) {
        shmchan_leave(members->channel[0], WIRE_CLOSE);
        make_another(0);
        return;
    }
    MODEL_CHECK(member_view(1, wire_key_of(1, 0, 0), ONCE, WIRE_WORK | WIRE_GLANCE, 8, &members->view[1]) == WIRE_DONE);
    MODEL_CHECK(*(const unsigned char *)members->view[1].at == 1);
    shmchan_leave(members->channel[1], WIRE_CLOSE);
}

/* Both make another channel: each sweeps while the other leaves, sweeps, or has already reused its memory. */
static void both_make(uint32_t t)
{
    shmchan_leave(members->channel[t], WIRE_CLOSE);
    make_another(t);
}

static const struct model_fault leave_faults[] = {
    {.what = "that one left is told without release", .kind = MODEL_STORE, .name = "left", .thread = 1},
    {.what = "that one left is heard without acquire", .kind = MODEL_LOAD, .name = "left", .thread = 0},
    {.what = NULL},
};
const struct model_case case_leave = {
    .name = "leave, and another channel", .threads = 2, .setup = setup, .run = leave_and_make, .faults = leave_faults};
const struct model_case case_leave_both = {.name = "leave, both, and another each", .threads = 2, .setup = setup, .run = both_make};
