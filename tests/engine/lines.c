/*
 * The two lines of a communicator where they affect each other. All ranks are in one thread, so that the test reaches every state on
 * purpose: held messages and what they hold back, markers, callbacks, plans that find no room, creating calls that find no memory.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "engine/memory_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct scene {
    struct rig rig;
    struct comm_event *gate;
};

/* Everything that rank 0 issues from here on waits behind a gate. */
static void open_gated(struct scene *s, int32_t ranks, const char *options)
{
    rig_open_options(&s->rig, ranks, options);
    MUST(comm_event_create(s->rig.world[0], &s->gate));
    MUST(comm_event_reset(s->gate));
    MUST(comm_queue_wait_event(s->rig.world[0], s->gate));
}

static void close_scene(struct scene *s)
{
    comm_event_free(s->gate);
    rig_close(&s->rig);
    EQUAL(atomic_load(&memory_held), 0);
}

static void send_word(struct comm_communicator *c, const int32_t *value, int32_t peer, uint32_t tag, struct comm_request *q)
{
    MUST(comm_send(c, value, 1, COMM_I32, peer, tag, q));
}

static void recv_word(struct comm_communicator *c, int32_t *value, int32_t peer, uint32_t tag, struct comm_request *q)
{
    MUST(comm_recv(c, value, 1, COMM_I32, peer, tag, NULL, q));
}

/* A sum that only rank 0 has called. It holds back whatever conflicts with its buffers, and nothing else. */
static void half_a_sum(struct scene *s, int32_t *in, int32_t *out, struct comm_request *q)
{
    MUST(comm_allreduce(s->rig.world[0], in, out, 1, COMM_I32, COMM_SUM, q));
}

static void other_half(struct scene *s, int32_t ranks, int32_t *in, int32_t *out)
{
    for (int32_t r = 1; r < ranks; r++)
        MUST(comm_allreduce(s->rig.world[r], in, &out[r], 1, COMM_I32, COMM_SUM, NULL));
}

static void settle(struct scene *s)
{
    rig_progress_for(s->rig.world[0], 5 * RIG_MS);
}

/* ------------------------------------------------------------------------------------------------------------ held messages */
RIG_TEST(a_held_send_holds_its_pair_and_direction)
{
    struct scene s;
    struct comm_request sum, held, behind, free_pair, back, got[3];
    int32_t in = 4, out[3] = {0}, word = 9, x[4] = {0}, one = 1;
    rig_open(&s.rig, 3, NULL);
    MUST(comm_event_create(s.rig.world[0], &s.gate));
    recv_word(s.rig.world[1], &x[0], 0, COMM_ANY_TAG, &got[0]);
    recv_word(s.rig.world[1], &x[1], 0, COMM_ANY_TAG, &got[1]);
    recv_word(s.rig.world[2], &x[2], 0, COMM_ANY_TAG, &got[2]);
    half_a_sum(&s, &in, &out[0], &sum);
    send_word(s.rig.world[0], &out[0], 1, 5, &held);    /* sends the sum's result, so it is held */
    send_word(s.rig.world[0], &word, 1, 6, &behind);    /* conflicts with nothing, but is behind the held send */
    send_word(s.rig.world[0], &word, 2, 7, &free_pair); /* another pair of ranks */
    recv_word(s.rig.world[0], &x[3], 1, 8, &back);      /* another direction */
    send_word(s.rig.world[1], &one, 0, 8, NULL);
    MUST(comm_wait(got[2], RIG_PATIENCE));
    MUST(comm_wait(free_pair, RIG_PATIENCE));
    MUST(comm_wait(back, RIG_PATIENCE));
    settle(&s);
    IS(comm_test(held), COMM_PENDING);
    IS(comm_test(behind), COMM_PENDING);
    IS(comm_test(got[0]), COMM_PENDING);
    IS(comm_cancel(held), COMM_ERR_STATE); /* only receives can be cancelled */
    other_half(&s, 3, &one, out);
    rig_wait_all((struct comm_request[]){sum, held, behind, got[0], got[1]}, 5);
    EQUAL(x[0], 6);
    EQUAL(x[1], 9);
    EQUAL(x[2], 9);
    close_scene(&s);
}

RIG_TEST(a_held_wildcard_holds_all_later_receives)
{
    struct scene s;
    struct comm_request sum, any, later[2];
    int32_t in = 4, out[3] = {0}, x[2] = {0, 0}, one = 1, words[3] = {0, 11, 22};
    rig_open(&s.rig, 3, NULL);
    MUST(comm_event_create(s.rig.world[0], &s.gate));
    half_a_sum(&s, &in, &out[0], &sum);
    recv_word(s.rig.world[0], &in, COMM_ANY_PEER, COMM_ANY_TAG, &any); /* writes the input of the sum */
    recv_word(s.rig.world[0], &x[0], 1, COMM_ANY_TAG, &later[0]);
    recv_word(s.rig.world[0], &x[1], 2, COMM_ANY_TAG, &later[1]);
    send_word(s.rig.world[1], &words[1], 0, 1, NULL);
    settle(&s);
    send_word(s.rig.world[2], &words[2], 0, 1, NULL);
    settle(&s);
    IS(comm_test(later[0]), COMM_PENDING);
    IS(comm_test(later[1]), COMM_PENDING);
    send_word(s.rig.world[1], &words[2], 0, 2, NULL);
    other_half(&s, 3, &one, out);
    rig_wait_all((struct comm_request[]){sum, any, later[0], later[1]}, 4);
    EQUAL(out[0], 6);
    EQUAL(in, 11); /* the oldest arrival matches the oldest receive */
    EQUAL(x[0], 22);
    EQUAL(x[1], 22);
    close_scene(&s);
}

RIG_TEST(a_held_receive_is_cancelled_and_lets_others_by)
{
    struct scene s;
    struct comm_request sum, held, later;
    int32_t in = 4, out[2] = {0}, x = 0, one = 1;
    rig_open(&s.rig, 2, NULL);
    MUST(comm_event_create(s.rig.world[0], &s.gate));
    half_a_sum(&s, &in, &out[0], &sum);
    recv_word(s.rig.world[0], &in, 1, 1, &held);
    recv_word(s.rig.world[0], &x, 1, 1, &later);
    send_word(s.rig.world[1], &one, 0, 1, NULL);
    settle(&s);
    IS(comm_test(later), COMM_PENDING);
    MUST(comm_cancel(held));
    IS(comm_wait(held, RIG_PATIENCE), COMM_ERR_CANCELLED);
    IS(comm_cancel(held), COMM_ERR_STATE);
    MUST(comm_wait(later, RIG_PATIENCE));
    EQUAL(x, 1);
    other_half(&s, 2, &one, out);
    MUST(comm_wait(sum, RIG_PATIENCE));
    close_scene(&s);
}

RIG_TEST(close_cancels_what_is_held)
{
    struct rig rig;
    struct comm_request sum, held;
    int32_t in = 4, out = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I32, COMM_SUM, &sum));
    MUST(comm_recv(rig.world[0], &in, 1, COMM_I32, 1, 1, NULL, &held));
    IS(comm_close(rig.world[0], 20 * RIG_MS), COMM_ERR_TIMEOUT);
    CHECK(comm_test(held) == COMM_ERR_CANCELLED || comm_test(held) == COMM_ERR_CLOSED);
    CHECK(comm_test(sum) == COMM_ERR_CLOSED);
    rig.world[0] = NULL;
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ markers */
/* A marker is complete when everything issued before it is complete, in whatever order that ends and whatever is issued later. */
RIG_TEST(markers_in_any_order_of_ends)
{
    enum { MANY = 200 };
    struct rig rig;
    static struct comm_request receive[MANY], mark[MANY];
    static int32_t got[MANY], word[MANY];
    rig_open(&rig, 2, NULL);
    for (int i = 0; i < MANY; i++) {
        word[i] = i;
        recv_word(rig.world[0], &got[i], 1, (uint32_t)i, &receive[i]);
        mark[i] = comm_last(rig.world[0]);
        CHECK(mark[i].comm == rig.world[0]);
    }
    for (int i = MANY - 1; i > 0; i--) { /* the newest first: no marker may be complete */
        send_word(rig.world[1], &word[i], 0, (uint32_t)i, NULL);
        if (i % 50 == 0)
            settle(&(struct scene){.rig = rig});
        IS(comm_test(mark[i]), COMM_PENDING);
    }
    rig_wait_all(receive + 1, MANY - 1);
    for (int i = 0; i < MANY; i++)
        IS(comm_test(mark[i]), COMM_PENDING);
    send_word(rig.world[1], &word[0], 0, 0, NULL);
    rig_wait_all(mark, MANY);
    MUST(comm_wait(comm_last(rig.world[0]), RIG_PATIENCE));
    for (int i = 0; i < MANY; i++)
        EQUAL(got[i], i);
    rig_close(&rig);
    EQUAL(atomic_load(&memory_held), 0);
}

/* The last message to end releases work that ends at once. The marker behind both must complete, although nothing is left to do. */
RIG_TEST(a_marker_behind_work_that_a_message_lets_go)
{
    for (int i = 0; i < 50; i++) {
        struct rig rig;
        struct comm_request mark[2];
        int32_t slot = 0, sum[2] = {0, 0}, word = 40, two = 2;
        rig_open(&rig, 2, NULL);
        MUST(comm_allreduce(rig.world[1], &two, &sum[1], 1, COMM_I32, COMM_SUM, NULL));
        recv_word(rig.world[0], &slot, 1, 0, NULL);
        MUST(comm_allreduce(rig.world[0], &slot, &sum[0], 1, COMM_I32, COMM_SUM, NULL));
        mark[0] = comm_last(rig.world[0]);
        send_word(rig.world[1], &word, 0, 0, NULL);
        mark[1] = comm_last(rig.world[1]);
        rig_wait_all(mark, 2);
        EQUAL(sum[0], 42);
        rig_close(&rig);
    }
}

/* ------------------------------------------------------------------------------------------------------------ callbacks */
static int order[64], calls;
static void note_order(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    (void)result;
    order[calls++ % 64] = (int)(intptr_t)arg;
}

RIG_TEST(callbacks_come_in_the_order_of_tickets)
{
    enum { MANY = 12 };
    struct scene s;
    struct comm_request q[MANY], message;
    int32_t got = 0, word = 5;
    open_gated(&s, 2, NULL);
    recv_word(s.rig.world[0], &got, 1, 0, &message);
    MUST(comm_notify(message, note_order, (void *)100));
    for (int i = 0; i < MANY; i++)
        MUST(comm_barrier(s.rig.world[0], &q[i]));
    for (int i = 0; i < MANY; i++) { /* registered in another order */
        int k = i * 5 % MANY;
        MUST(comm_notify(q[k], note_order, (void *)(intptr_t)k));
    }
    for (int i = 0; i < MANY; i++)
        MUST(comm_barrier(s.rig.world[1], NULL));
    EQUAL(calls, 0);
    MUST(comm_event_set(s.gate));
    EQUAL(calls, 0);
    MUST(comm_wait(q[MANY - 1], RIG_PATIENCE));
    settle(&s);
    EQUAL(calls, MANY);
    for (int i = 0; i < MANY; i++)
        EQUAL(order[i], i);
    send_word(s.rig.world[1], &word, 0, 0, NULL);
    settle(&s);
    EQUAL(calls, MANY + 1);
    EQUAL(order[MANY], 100);
    MUST(comm_notify(q[0], note_order, (void *)7)); /* after completion, twice: each callback runs */
    MUST(comm_notify(q[0], note_order, (void *)8));
    settle(&s);
    EQUAL(calls, MANY + 3);
    EQUAL(order[MANY + 1], 7);
    EQUAL(order[MANY + 2], 8);
    close_scene(&s);
}

/* ------------------------------------------------------------------------------------------------------------ plans */
enum { PLAN_STEPS = 10 };

static void record(struct comm_communicator *c, int32_t *in, int32_t *out, struct comm_plan **plan)
{
    struct comm_communicator *recorder;
    MUST(comm_plan_begin(c, &recorder));
    for (int i = 0; i < PLAN_STEPS; i++)
        MUST(comm_allreduce(recorder, in, &out[i], 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_plan_end(recorder, plan));
}

/* After a refused start, the next call gets the next ticket, and the ranks are still in step. */
static void starts_whole_or_not_at_all(struct scene *s, int already, bool no_memory)
{
    struct comm_plan *plan[2];
    struct comm_request q[2], before, after;
    int32_t in = 2, out[2][PLAN_STEPS] = {{0}};
    for (int32_t r = 0; r < 2; r++)
        record(s->rig.world[r], &in, out[r], &plan[r]);
    for (int i = 0; i < already; i++)
        MUST(comm_barrier(s->rig.world[0], &before));
    if (no_memory) {
        atomic_store(&memory_fail_more, 1000);
        atomic_store(&memory_fail_at, atomic_load(&memory_takes) + 1);
    }
    IS(comm_plan_start(plan[0], &q[0]), COMM_ERR_FULL);
    IS(comm_test(q[0]), COMM_ERR_FULL);
    atomic_store(&memory_fail_at, 0);
    MUST(comm_barrier(s->rig.world[0], &after));
    EQUAL(after.ticket, before.ticket + 1);
    MUST(comm_event_set(s->gate));
    for (int i = 0; i < already + 1; i++)
        MUST(comm_barrier(s->rig.world[1], NULL));
    MUST(comm_wait(after, RIG_PATIENCE));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_plan_start(plan[r], &q[r]));
    rig_wait_all(q, 2);
    EQUAL(out[0][PLAN_STEPS - 1], 4);
    for (int32_t r = 0; r < 2; r++)
        comm_plan_free(plan[r]);
}

RIG_TEST(a_plan_that_finds_no_memory_to_queue)
{
    struct scene s;
    open_gated(&s, 2, NULL);
    starts_whole_or_not_at_all(&s, 58, true); /* with the gate, 59 of the first 64 places */
    close_scene(&s);
}

/* Records a plan in which the allocation number `at` of a group's end fails. Its end has the same result as the group's. */
static enum comm_result plan_with_a_group(struct comm_communicator *c, uint64_t at)
{
    struct comm_communicator *recorder, *group;
    struct comm_plan *plan = NULL;
    int32_t word = 1;
    MUST(comm_plan_begin(c, &recorder));
    for (int i = 0; i < 6; i++) /* two less than it has room for at first */
        MUST(comm_send(recorder, &word, 1, COMM_I32, 0, 0, NULL));
    MUST(comm_group_begin(recorder, &group));
    for (int i = 0; i < 4; i++)
        MUST(comm_send(group, &word, 1, COMM_I32, 0, 0, NULL));
    atomic_store(&memory_fail_at, atomic_load(&memory_takes) + at);
    enum comm_result r = comm_group_end(group, NULL);
    atomic_store(&memory_fail_at, 0);
    IS(comm_plan_end(recorder, &plan), r);
    CHECK((r == COMM_OK) == (plan != NULL));
    comm_plan_free(plan);
    return r;
}

RIG_TEST(a_plan_that_finds_no_memory_for_its_group)
{
    struct scene s;
    uint64_t at = 1;
    open_gated(&s, 1, NULL);
    while (plan_with_a_group(s.rig.world[0], at) != COMM_OK)
        at++;
    EQUAL(at, 3);
    MUST(comm_event_set(s.gate));
    close_scene(&s);
}

/* The same for a call that finds none; one that is recorded after it does not make up for it. */
RIG_TEST(a_plan_that_finds_no_memory_to_record)
{
    struct scene s;
    struct comm_communicator *recorder;
    struct comm_plan *plan = NULL;
    int32_t word = 1;
    open_gated(&s, 1, NULL);
    MUST(comm_plan_begin(s.rig.world[0], &recorder));
    atomic_store(&memory_fail_at, atomic_load(&memory_takes) + 1);
    IS(comm_send(recorder, &word, 1, COMM_I32, 0, 0, NULL), COMM_ERR_MEMORY);
    MUST(comm_send(recorder, &word, 1, COMM_I32, 0, 0, NULL));
    IS(comm_plan_end(recorder, &plan), COMM_ERR_MEMORY);
    CHECK(!plan);
    MUST(comm_event_set(s.gate));
    close_scene(&s);
}

RIG_TEST(a_plan_that_finds_the_queue_full)
{
    struct scene s;
    struct comm_info info = {.size = sizeof info};
    open_gated(&s, 2, "queue=1024");
    MUST(comm_describe(s.rig.world[0], &info));
    starts_whole_or_not_at_all(&s, (int)info.queue_max - 6, false);
    close_scene(&s);
}

/* ------------------------------------------------------------------------------------------------------------ creating calls */
/* The n-th allocation of rank 1's call fails. All ranks learn of it. Either the parent continues (the offer carried the error), or it
 * failed with REFUSED. */
static bool child_without_memory(uint64_t n, bool split)
{
    enum { RANKS = 3 };
    struct rig rig;
    struct comm_communicator *child[RANKS] = {NULL};
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];
    bool told = false;
    uint64_t failed = atomic_load(&memory_failed);
    rig_note("take %llu of a %s", (unsigned long long)n, split ? "split" : "dup");
    rig_open(&rig, RANKS, NULL);
    for (int32_t i = 0; i < RANKS; i++) {
        if (i == 1) {
            atomic_store(&memory_fail_more, 0);
            atomic_store(&memory_fail_at, atomic_load(&memory_takes) + n);
        }
        (void)!(split ? comm_split(rig.world[i], 0, i, &child[i], &q[i]) : comm_dup(rig.world[i], NULL, &child[i], &q[i]));
        if (!split)
            atomic_store(&memory_fail_at, 0);
    }
    for (int32_t i = 0; i < RANKS; i++) {
        r[i] = comm_wait(q[i], RIG_PATIENCE);
        CHECK(r[i] == COMM_OK || r[i] == COMM_ERR_MEMORY || r[i] == COMM_ERR_REFUSED);
        CHECK((r[i] == COMM_OK) == (child[i] != NULL));
        EQUAL(r[i] == COMM_OK, r[0] == COMM_OK);
        told |= r[i] == COMM_ERR_REFUSED;
    }
    atomic_store(&memory_fail_at, 0);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(rig.world[0], &error));
    if (r[0] == COMM_OK)
        rig_proves_alive(child, RANKS);
    if (!told && comm_barrier(rig.world[0], NULL) == COMM_OK) { /* the exchange carried the error: the parent is intact */
        for (int32_t i = 1; i < RANKS; i++)
            MUST(comm_barrier(rig.world[i], NULL));
        rig_proves_alive(rig.world, RANKS);
    }
    for (int32_t i = 0; i < RANKS; i++)
        if (child[i])
            MUST(comm_close(child[i], RIG_PATIENCE));
    rig_close(&rig);
    EQUAL(atomic_load(&memory_held), 0);
    return atomic_load(&memory_failed) != failed;
}

RIG_TEST(a_dup_without_memory)
{
    uint64_t n = 1;
    while (child_without_memory(n, false))
        CHECK(++n < 200);
    CHECK(n > 5);
}

RIG_TEST(a_split_without_memory)
{
    uint64_t n = 1;
    while (child_without_memory(n, true))
        CHECK(++n < 300);
    CHECK(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_send_holds_its_pair_and_direction),
        cmocka_unit_test(a_held_wildcard_holds_all_later_receives),
        cmocka_unit_test(a_held_receive_is_cancelled_and_lets_others_by),
        cmocka_unit_test(close_cancels_what_is_held),
        cmocka_unit_test(markers_in_any_order_of_ends),
        cmocka_unit_test(a_marker_behind_work_that_a_message_lets_go),
        cmocka_unit_test(callbacks_come_in_the_order_of_tickets),
        cmocka_unit_test(a_plan_that_finds_no_memory_to_queue),
        cmocka_unit_test(a_plan_that_finds_no_memory_for_its_group),
        cmocka_unit_test(a_plan_that_finds_no_memory_to_record),
        cmocka_unit_test(a_plan_that_finds_the_queue_full),
        cmocka_unit_test(a_dup_without_memory),
        cmocka_unit_test(a_split_without_memory),
    };
    return cmocka_run_group_tests_name("engine_lines", tests, NULL, NULL);
}
