/* Long messages in device memory that end early: truncated, cancelled, refused, failed, aborted, and overdue. */
#include "staged_messages.h"

#include <string.h>

static uint32_t flags(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    return info.flags;
}

static void until(struct comm_request q, enum comm_result want)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; comm_test(q) == COMM_PENDING;)
        turn_before(end);
    IS(comm_test(q), want);
}

static void until_it_stands_at(bool to_device)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_stands_at(to_device);)
        turn_before(end);
}

/* The receive is too short, so the sender need not go on. Its copies that have begun still read the buffer, so the send ends with them. */
RIG_CASE(a_message_that_is_not_taken)
{
    struct message m = {.bytes = 20 * MIB, .room = MIB, .to = 1, .from_device = true, .to_device = true};
    unsigned copies = 0;

    messages_open(NULL);
    mock_stand(true);
    message_post(&m);
    until(m.got, COMM_ERR_TRUNCATED);
    for (int i = 0; i < 100; i++)
        turn_before(rig_now() + RIG_PATIENCE);
    IS(comm_test(m.sent), COMM_PENDING);
    for (; mock_stands_at(false); copies++) {
        IS(comm_test(m.sent), COMM_PENDING);
        CHECK(mock_step(false));
        turn_before(rig_now() + RIG_PATIENCE);
    }
    CHECK(copies > 1 && copies < 20);
    until(m.sent, COMM_OK);
    CHECK(!mock_stands_at(true));
    mock_stand(false);
    message_ends_well(&m);
    rig_proves_alive(messages_rig.world, MESSAGE_RANKS);
    messages_close();
}

RIG_CASE(a_receive_that_is_cancelled)
{
    struct message m = {.bytes = 4 * MIB, .room = 4 * MIB, .to = 1, .from_device = true, .to_device = true, .recv_first = true};
    struct message alone = m;

    messages_open(NULL);
    message_take(&alone);
    MUST(comm_recv(messages_rig.world[1], alone.in, alone.room, COMM_BYTE, 0, 7, NULL, &alone.got));
    MUST(comm_cancel(alone.got));
    IS(comm_wait(alone.got, RIG_PATIENCE), COMM_ERR_CANCELLED);
    message_give(&alone);
    mock_stand(true);
    message_post(&m);
    step_when_there(false);
    until_it_stands_at(true);
    IS(comm_cancel(m.got), COMM_ERR_STATE);
    mock_stand(false);
    message_ends_well(&m);
    messages_close();
}

/* A call that is refused has begun no copy. What it was refused for goes on. */
RIG_CASE(a_full_queue)
{
    enum { MOST = 80 };
    struct message m[MOST];
    int accepted = 0;

    messages_open("queue=16");
    mock_stand(true);
    for (bool full = false; !full; accepted += !full) {
        struct message *one = &m[accepted];
        *one = (struct message){.bytes = 2 * MIB + 1, .room = 2 * MIB + 1, .to = 1, .from_device = true, .tag = (uint32_t)accepted};
        message_take(one);
        message_fill(one);
        enum comm_result r = comm_send(messages_rig.world[0], one->out, one->bytes, COMM_BYTE, 1, one->tag, &one->sent);
        full = r != COMM_OK;
        CHECK(accepted < MOST - 1);
        if (full)
            IS(r, COMM_ERR_FULL);
    }
    message_give(&m[accepted]); /* a copy of it would end the test */
    mock_stand(false);
    CHECK(accepted >= 16);
    for (int i = 0; i < accepted; i++) {
        MUST(comm_recv(messages_rig.world[1], m[i].in, m[i].room, COMM_BYTE, 0, m[i].tag, &m[i].status, &m[i].got));
        MUST(comm_wait(m[i].got, RIG_PATIENCE));
    }
    for (int i = 0; i < accepted; i++)
        message_ends_well(&m[i]);
    messages_close();
}

/* ------------------------------------------------------------------------------------------------------------ faults */
/* One call fails. A call of this library that fails alone, for want of memory, is made again. Then both requests end; with OK only if the
 * bytes are right. Returns true if no call was left to fail. */
static bool with_fault(uint64_t n, struct message *m)
{
    struct comm_communicator *const *world;
    uint64_t before;

    messages_open(NULL);
    world = messages_rig.world;
    before = mock_calls();
    message_fill(m);
    mock_fail(n);
    enum comm_result r = comm_recv(world[1], m->in, m->room, COMM_BYTE, 0, 0, NULL, &m->got), s;
    if (r != COMM_OK)
        r = comm_recv(world[1], m->in, m->room, COMM_BYTE, 0, 0, NULL, &m->got);
    s = comm_send(world[0], m->out, m->bytes, COMM_BYTE, 1, 0, &m->sent);
    if (s != COMM_OK)
        s = comm_send(world[0], m->out, m->bytes, COMM_BYTE, 1, 0, &m->sent);
    r = r == COMM_OK ? comm_wait(m->got, RIG_PATIENCE) : r;
    s = s == COMM_OK ? comm_wait(m->sent, RIG_PATIENCE) : s;
    CHECK(r != COMM_PENDING && s != COMM_PENDING);
    if (r == COMM_OK)
        CHECK(message_has(m, m->bytes));
    bool over = mock_calls() - before < n;
    mock_fail(0);
    for (int i = 0; i < MESSAGE_RANKS; i++)
        (void)!comm_close(world[i], RIG_PATIENCE);
    CHECK(!over || (r == COMM_OK && s == COMM_OK));
    return over;
}

static void faults(uint64_t apart, bool from_device, bool to_device)
{
    struct message m = {.bytes = 5 * MIB, .room = 5 * MIB, .to = 1, .from_device = from_device, .to_device = to_device};
    uint64_t n = 1;

    message_take(&m);
    while (!with_fault(n, &m))
        rig_note("a fault at call %llu", (unsigned long long)(n += 1 + n / apart));
    CHECK(n > (from_device ? 15 : 5)); /* how many copies a receiver makes depends on how fast the bytes come */
    message_give(&m);
}

RIG_CASE(a_fault_at_every_call)
{
    uint64_t apart = rig_quick() ? 4 : UINT64_MAX;

    faults(apart, true, true);
    faults(apart, true, false);
    faults(apart, false, true);
}

RIG_CASE(faults_on_a_device_that_is_late)
{
    mock_late(2);
    faults(8, true, true);
}

/* ------------------------------------------------------------------------------------------------------------ failures */
/* Both ranks have copies that have begun and do not end. So both requests say that their buffers are held. */
static void ends_in_the_middle(enum comm_result want, const struct comm_config *config)
{
    struct message m = {.bytes = 12 * MIB, .room = 12 * MIB, .to = 1, .from_device = true, .to_device = true};
    struct comm_error error;

    rig_open(&messages_rig, MESSAGE_RANKS, config);
    mock_stand(true);
    message_post(&m);
    step_when_there(false);
    store_until(&m, MIB);
    step_when_there(false);
    until_it_stands_at(true);
    if (want == COMM_ERR_ABORTED)
        MUST(comm_abort(messages_rig.world[1], 3));
    for (int r = 0; r < MESSAGE_RANKS; r++)
        rig_fails_within(messages_rig.world[r], want, 10 * RIG_S, &error);
    IS(comm_wait(m.sent, RIG_PATIENCE), want);
    IS(comm_wait(m.got, RIG_PATIENCE), want);
    EQUAL(flags(m.sent), COMM_INFO_STAGED | COMM_INFO_BUFFERS_HELD);
    EQUAL(flags(m.got), COMM_INFO_STAGED | COMM_INFO_BUFFERS_HELD);
    IS(comm_close(messages_rig.world[0], 50 * RIG_MS), COMM_ERR_TIMEOUT);
    mock_stand(false);
    MUST(comm_close(messages_rig.world[1], RIG_PATIENCE));
    message_give(&m);
}

RIG_CASE(an_abort_in_the_middle)
{
    ends_in_the_middle(COMM_ERR_ABORTED, NULL);
}

RIG_CASE(a_deadline_in_the_middle)
{
    ends_in_the_middle(COMM_ERR_TIMEOUT, COMM_CONFIG(.operation_timeout_ns = 400 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
}

/* The sender is done. What the receiver's device does not copy makes only the receiver late. */
RIG_CASE(a_device_of_the_receiver_that_stands)
{
    struct message m = {.bytes = 4 * MIB, .room = 4 * MIB, .to = 1, .from_device = true, .to_device = true};
    struct comm_error error;

    rig_open(&messages_rig, MESSAGE_RANKS, COMM_CONFIG(.operation_timeout_ns = 400 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
    mock_stand(true);
    message_post(&m);
    for (int64_t end = rig_now() + RIG_PATIENCE; comm_test(m.sent) == COMM_PENDING; mock_step(false))
        turn_before(end);
    MUST(comm_test(m.sent));
    rig_fails_within(messages_rig.world[1], COMM_ERR_TIMEOUT, 10 * RIG_S, &error);
    IS(comm_wait(m.got, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    EQUAL(flags(m.got), COMM_INFO_STAGED | COMM_INFO_BUFFERS_HELD);
    mock_stand(false);
    for (int r = 0; r < MESSAGE_RANKS; r++)
        MUST(comm_close(messages_rig.world[r], RIG_PATIENCE));
    message_give(&m);
}
