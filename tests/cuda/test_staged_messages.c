/*
 * Long messages in device memory, whose copies are made in pieces while others travel. A test steps the device's copies one by one, so it
 * sees what has arrived before the last bytes have left the sender's device. All ranks are in this process, on one mock device.
 * COMM_BACKEND chooses the wire. test_staged_messages_end.c has what ends early.
 */
#include "staged_messages.h"

#include "conform/counted.h"
#include "conform/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------------------------------ overlap */
/* The message is half on the receiver's device while the sender's last copies have not run. */
RIG_TEST(bytes_arrive_before_the_last_ones_are_copied)
{
    struct message m = {.bytes = 8 * MIB + 100, .room = 8 * MIB + 100, .to = 1, .from_device = true, .to_device = true};

    messages_open(NULL);
    mock_stand(true);
    message_post(&m);
    for (size_t copied = 1; copied <= 6; copied++) {
        rig_note("%zu pieces copied", copied);
        step_when_there(false);
        store_until(&m, copied * MIB);
        IS(comm_test(m.sent), COMM_PENDING);
        IS(comm_test(m.got), COMM_PENDING);
    }
    mock_stand(false);
    message_ends_well(&m);
    messages_close();
}

RIG_TEST(bytes_arrive_in_memory_of_the_host_before_the_last_ones_are_copied)
{
    struct message m = {.bytes = 5 * MIB, .room = 6 * MIB, .to = 1, .from_device = true};

    messages_open(NULL);
    mock_stand(true);
    message_post(&m);
    for (size_t copied = 1; copied <= 4; copied++) {
        step_when_there(false);
        for (int64_t end = rig_now() + RIG_PATIENCE; !message_has(&m, copied * MIB);)
            turn_before(end);
        IS(comm_test(m.got), COMM_PENDING);
    }
    mock_stand(false);
    message_ends_well(&m);
    messages_close();
}

/* A host's message moves at once. The receiver copies it in several pieces all the same. */
RIG_TEST(bytes_of_the_host_are_copied_as_they_arrive)
{
    struct message m = {.bytes = 16 * MIB, .room = 16 * MIB, .to = 1, .to_device = true};
    unsigned copies = 0;

    messages_open(NULL);
    mock_stand(true);
    message_post(&m);
    for (int64_t end = rig_now() + RIG_PATIENCE; !message_has(&m, m.bytes); copies += mock_step(true))
        turn_before(end);
    CHECK(copies > 1);
    mock_stand(false);
    message_ends_well(&m);
    messages_close();
}

/* A short message is one copy on each side, and none of it travels before. */
RIG_TEST(a_short_message_is_copied_whole)
{
    struct message m = {.bytes = 2 * MIB, .room = 2 * MIB, .to = 1, .from_device = true, .to_device = true};

    messages_open(NULL);
    mock_stand(true);
    message_post(&m);
    step_when_there(false);
    CHECK(!mock_step(false));
    step_when_there(true);
    CHECK(!mock_step(true) && message_has(&m, m.bytes));
    mock_stand(false);
    message_ends_well(&m);
    messages_close();
}

/* ------------------------------------------------------------------------------------------------------------ every length */
static size_t draw_bytes(uint64_t *chance)
{
    static const size_t edges[] = {1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 3 * MIB + 1, 4 * MIB - 1, 9 * MIB, 10 * MIB + 7};
    uint64_t bits = oracle_random(chance);

    return bits & 1 ? edges[(bits >> 1) % (sizeof edges / sizeof *edges)] : 1 + (bits >> 8) % (6 * MIB);
}

static struct message draw_message(uint64_t *chance)
{
    struct message m = {.bytes = draw_bytes(chance)};
    uint64_t bits = oracle_random(chance);

    m.from = (int)(bits & 1);
    m.to = (bits >> 1 & 7) == 0 ? m.from : !m.from; /* now and then to itself */
    m.from_device = bits >> 4 & 3;
    m.to_device = bits >> 6 & 3;
    m.room = m.bytes;
    if ((bits >> 8 & 3) == 0)
        m.room = 1 + oracle_random(chance) % (2 * m.bytes);
    m.any = bits >> 10 & 1;
    m.recv_first = bits >> 11 & 1;
    return m;
}

static void random_messages(const char *options, long late, uint64_t seeds)
{
    enum { AT_ONCE = 3 };
    struct message m[AT_ONCE];

    mock_late(late);
    messages_open(options);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t chance = seed + 1000 * (uint64_t)late;
        for (int i = 0; i < AT_ONCE; i++) {
            m[i] = draw_message(&chance);
            m[i].tag = (uint32_t)i;
            rig_note("seed %llu, message %d: %zu bytes into %zu", (unsigned long long)seed, i, m[i].bytes, m[i].room);
            message_post(&m[i]);
        }
        for (int i = AT_ONCE; i-- > 0;)
            message_ends_well(&m[i]);
    }
    rig_proves_alive(messages_rig.world, MESSAGE_RANKS);
    messages_close();
}

RIG_TEST(random_messages_at_once)
{
    random_messages(NULL, 0, rig_thin(60, 20, 5));
}

RIG_TEST(random_messages_on_a_device_that_is_late)
{
    random_messages(NULL, 3, rig_thin(60, 20, 5));
}

RIG_TEST(random_messages_with_checked_buffers)
{
    random_messages("check=buffers", 2, rig_thin(30, 10, 3));
}

/* Messages of one pair and tag are received in the order of their sends, whose copies end in that order, and the last one has none. */
RIG_TEST(messages_of_a_pair_keep_their_order)
{
    struct message m[4];

    mock_late(5);
    messages_open(NULL);
    for (int i = 0; i < 4; i++)
        m[i] = (struct message){.bytes = (size_t)(5 - i) * MIB + 1, .room = 6 * MIB, .to = 1, .from_device = i < 3, .to_device = i != 1};
    for (int i = 0; i < 4; i++)
        message_post(&m[i]);
    for (int i = 0; i < 4; i++)
        message_ends_well(&m[i]);
    messages_close();
}

/* ------------------------------------------------------------------------------------------------------------ plans, groups */
static void record(struct comm_communicator *c, int r, const struct message *m)
{
    if (r == m->from)
        MUST(comm_send(c, m->out, m->bytes, COMM_BYTE, m->to, m->tag, NULL));
    if (r == m->to)
        MUST(comm_recv(c, m->in, m->room, COMM_BYTE, m->from, m->tag, NULL, NULL));
}

RIG_TEST(plans_and_groups_of_long_messages)
{
    struct message m[2] = {{.bytes = 3 * MIB + 5, .room = 4 * MIB, .to = 1, .from_device = true, .to_device = true},
                           {.bytes = 4 * MIB, .room = 4 * MIB, .from = 1, .to_device = true, .from_device = true, .tag = 1}};
    struct comm_plan *plan[MESSAGE_RANKS];
    struct comm_communicator *recorder;
    struct comm_request q[MESSAGE_RANKS];

    mock_late(2);
    messages_open(NULL);
    for (int i = 0; i < 2; i++)
        message_take(&m[i]);
    for (int r = 0; r < MESSAGE_RANKS; r++) {
        MUST(comm_plan_begin(messages_rig.world[r], &recorder));
        for (int i = 0; i < 2; i++)
            record(recorder, r, &m[i]);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 2; i++)
            message_fill(&m[i]);
        for (int r = 0; r < MESSAGE_RANKS && round < 3; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        for (int r = 0; r < MESSAGE_RANKS && round == 3; r++) {
            MUST(comm_group_begin(messages_rig.world[r], &recorder));
            for (int i = 0; i < 2; i++)
                record(recorder, r, &m[i]);
            MUST(comm_group_end(recorder, &q[r]));
        }
        rig_wait_all(q, MESSAGE_RANKS);
        for (int i = 0; i < 2; i++)
            CHECK(message_has(&m[i], m[i].bytes));
    }
    for (int r = 0; r < MESSAGE_RANKS; r++)
        comm_plan_free(plan[r]);
    for (int i = 0; i < 2; i++)
        message_give(&m[i]);
    messages_close();
}

/* ------------------------------------------------------------------------------------------------------------ steady */
static void rounds(struct message *m, int count)
{
    for (int i = 0; i < count; i++) {
        MUST(comm_recv(messages_rig.world[m->to], m->in, m->room, COMM_BYTE, m->from, m->tag, &m->status, &m->got));
        MUST(comm_send(messages_rig.world[m->from], m->out, m->bytes, COMM_BYTE, m->to, m->tag, &m->sent));
        MUST(comm_wait(m->sent, RIG_PATIENCE));
        MUST(comm_wait(m->got, RIG_PATIENCE));
    }
}

RIG_TEST(nothing_is_made_once_all_is_there)
{
    struct message m = {.bytes = 3 * MIB, .room = 3 * MIB, .to = 1, .from_device = true, .to_device = true};
    struct message brief = {.bytes = 8, .room = 8, .to = 1};
    bool counted = counted_can() && !getenv("COMM_BACKEND"); /* tcp has buffers of the kernel's pace */

    messages_open(NULL);
    message_take(&m);
    message_take(&brief);
    rounds(&m, 10);
    rounds(&brief, counted ? 2100 : 10); /* fills the history of descriptions */
    uint64_t before = counted_calls(), objects = mock_objects();
    rounds(&m, 20);
    EQUAL(mock_objects() - objects, 0);
    if (counted)
        EQUAL(counted_calls() - before, 0);
    message_give(&m);
    message_give(&brief);
    messages_close();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_before_the_last_ones_are_copied),
        cmocka_unit_test(bytes_arrive_in_memory_of_the_host_before_the_last_ones_are_copied),
        cmocka_unit_test(bytes_of_the_host_are_copied_as_they_arrive),
        cmocka_unit_test(a_short_message_is_copied_whole),
        cmocka_unit_test(random_messages_at_once),
        cmocka_unit_test(random_messages_on_a_device_that_is_late),
        cmocka_unit_test(random_messages_with_checked_buffers),
        cmocka_unit_test(messages_of_a_pair_keep_their_order),
        cmocka_unit_test(plans_and_groups_of_long_messages),
        cmocka_unit_test(nothing_is_made_once_all_is_there),
        cmocka_unit_test(a_message_that_is_not_taken),
        cmocka_unit_test(a_receive_that_is_cancelled),
        cmocka_unit_test(a_full_queue),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(faults_on_a_device_that_is_late),
        cmocka_unit_test(an_abort_in_the_middle),
        cmocka_unit_test(a_deadline_in_the_middle),
        cmocka_unit_test(a_device_of_the_receiver_that_stands),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged_messages", tests, NULL, NULL);
}
