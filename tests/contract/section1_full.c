/* A plan that finds no place for all of its calls starts none, whatever else has places. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* With queue=16, so many messages may be posted; and so many have places, together with points behind messages. */
enum { POSTED = 16, PLACES = 64, RECEIVES = 3 };

struct full {
    struct rig rig;
    struct comm_plan *plan;
    struct comm_request posted[PLACES];
    char got[PLACES];
    int32_t word, sum, received[RECEIVES];
    int count;
};

/* A plan of rank 0: a sum, messages to this rank, and receives from the other one. */
static void open_full(struct full *f, int sends, int receives)
{
    struct comm_communicator *recorder;
    *f = (struct full){.word = 3};
    rig_open_options(&f->rig, 2, "queue=16");
    MUST(comm_plan_begin(f->rig.world[0], &recorder));
    MUST(comm_allreduce(recorder, &f->word, &f->sum, 1, COMM_I32, COMM_SUM, NULL));
    for (int i = 0; i < sends; i++)
        MUST(comm_send(recorder, &f->word, 1, COMM_I32, 0, 100 + (uint32_t)i, NULL));
    for (int i = 0; i < receives; i++)
        MUST(comm_recv(recorder, &f->received[i], 1, COMM_I32, 1, 200 + (uint32_t)i, NULL, NULL));
    MUST(comm_plan_end(recorder, &f->plan));
}

static uint64_t operations(const struct full *f)
{
    struct comm_stats stats = {.size = sizeof stats};
    MUST(comm_statistics(f->rig.world[0], &stats));
    return stats.operations + stats.messages;
}

static void post(struct full *f, void *buf, size_t bytes, int32_t peer, uint32_t tag)
{
    MUST(comm_recv(f->rig.world[0], buf, bytes, COMM_BYTE, peer, tag, NULL, &f->posted[f->count++]));
}

/* FULL, and nothing has happened. */
static void starts_nothing(const struct full *f)
{
    struct comm_request request;
    uint64_t before = operations(f);
    IS(comm_plan_start(f->plan, &request), COMM_ERR_FULL);
    IS(comm_test(request), COMM_ERR_FULL);
    EQUAL(operations(f), before);
}

/* With the places given back, it starts, and meets a plan of the other rank. */
static void starts_all(struct full *f, int sends, int receives)
{
    struct comm_communicator *recorder;
    struct comm_plan *theirs;
    struct comm_request request, other[2 * RECEIVES + 1];
    int32_t word = 4, sum = 0, got[RECEIVES] = {0};
    int count = 0;
    MUST(comm_plan_begin(f->rig.world[1], &recorder));
    MUST(comm_allreduce(recorder, &word, &sum, 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_plan_end(recorder, &theirs));
    for (int i = 0; i < f->count; i++)
        MUST(comm_cancel(f->posted[i]));
    for (int i = 0; i < f->count; i++)
        IS(comm_wait(f->posted[i], RIG_PATIENCE), COMM_ERR_CANCELLED);
    MUST(comm_plan_start(f->plan, &request));
    MUST(comm_plan_start(theirs, &other[count++]));
    for (int i = 0; i < receives; i++)
        MUST(comm_send(f->rig.world[1], &word, 1, COMM_I32, 0, 200 + (uint32_t)i, &other[count++]));
    for (int i = 0; i < sends; i++)
        MUST(comm_recv(f->rig.world[0], &got[i], 1, COMM_I32, 0, 100 + (uint32_t)i, NULL, &other[count++]));
    rig_wait_all(other, (size_t)count);
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(f->sum, 7);
    EQUAL(f->received[receives - 1], 4);
    comm_plan_free(f->plan);
    comm_plan_free(theirs);
}

/* An agree has a place among the messages and points. */
RIG_TEST(contract_1_9_a_plan_beside_an_agree)
{
    struct full f;
    struct comm_request agreed[2], brief;
    uint64_t flags[2] = {3, 5};
    char byte;
    open_full(&f, 0, 1);
    MUST(comm_agree(f.rig.world[0], &flags[0], &agreed[0]));
    post(&f, &f.got[0], 1, 1, 0);          /* what all points are behind */
    for (int i = 0; i < PLACES - 3; i++) { /* then one place is left */
        MUST(comm_recv(f.rig.world[0], &byte, 1, COMM_BYTE, 1, 1, NULL, &brief));
        CHECK(comm_last(f.rig.world[0]).comm != NULL);
        MUST(comm_cancel(brief));
        IS(comm_wait(brief, RIG_PATIENCE), COMM_ERR_CANCELLED);
    }
    starts_nothing(&f);
    MUST(comm_agree(f.rig.world[1], &flags[1], &agreed[1]));
    rig_wait_all(agreed, 2);
    EQUAL(flags[0], 1);
    starts_all(&f, 0, 1);
    rig_close(&f.rig);
}

/* Receives that wait for the memory of an earlier one take its place while the plan starts: it ends with the plan's first message, and they
 * start with its second. */
RIG_TEST(contract_1_9_a_plan_beside_held_messages)
{
    enum { SENDS = 2, HELD = 6, OF_PLAN = SENDS + RECEIVES };
    struct full f;
    open_full(&f, SENDS, RECEIVES);
    post(&f, f.got, 2 * HELD, 0, 100);
    post(&f, f.got + 2 * HELD, 4, 0, 101);
    for (int i = 0; i < HELD; i++)
        post(&f, f.got + 2 * i, 2, 0, 300);
    while (f.count < POSTED - OF_PLAN + HELD)
        post(&f, f.got + PLACES / 2 + f.count, 1, 1, 400);
    starts_nothing(&f);
    starts_all(&f, SENDS, RECEIVES);
    rig_close(&f.rig);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_9_a_plan_beside_an_agree),
        cmocka_unit_test(contract_1_9_a_plan_beside_held_messages),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("contract_1_full", tests, NULL, NULL);
}
