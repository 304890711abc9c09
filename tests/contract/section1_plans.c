/* What becomes of plans and groups whose communicator was closed, and of those with a call that was refused. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TRIES = 8 };
static int32_t sent = 1, got;

static void record_message(struct comm_communicator *recorder)
{
    MUST(comm_send(recorder, &sent, 1, COMM_I32, 0, 3, NULL));
    MUST(comm_recv(recorder, &got, 1, COMM_I32, 0, 3, NULL, NULL));
}

static struct comm_plan *plan_of_messages(struct comm_communicator *c)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    MUST(comm_plan_begin(c, &recorder));
    record_message(recorder);
    MUST(comm_plan_end(recorder, &plan));
    return plan;
}

static void starts_closed(struct comm_plan *plan)
{
    struct comm_request request;
    IS(comm_plan_start(plan, &request), COMM_ERR_CLOSED);
    IS(comm_test(request), COMM_ERR_CLOSED);
}

/* The memory of a closed communicator becomes a new one, which the plan must not use. */
RIG_TEST(contract_2_2_a_plan_outlives_its_communicator)
{
    struct rig rig;
    struct comm_communicator *first, *later[TRIES];
    int again = 0;
    rig_open(&rig, 1, NULL);
    MUST(NOW(comm_dup, rig.world[0], NULL, &first));
    struct comm_plan *plan = plan_of_messages(first);
    MUST(comm_close(first, RIG_PATIENCE));
    starts_closed(plan);
    for (int i = 0; i < TRIES; i++) {
        MUST(NOW(comm_dup, rig.world[0], NULL, &later[i]));
        again += later[i] == first;
        starts_closed(plan);
        MUST(comm_sync(later[i], RIG_PATIENCE));
    }
    EQUAL(again, 1);
    EQUAL(got, 0);
    comm_plan_free(plan);
    for (int i = 0; i < TRIES; i++)
        MUST(comm_close(later[i], RIG_PATIENCE));
    rig_close(&rig);
}

RIG_TEST(contract_2_2_a_plan_beside_later_recorders)
{
    struct rig rig;
    struct comm_communicator *first, *recorder[TRIES];
    int again = 0;
    rig_open(&rig, 1, NULL);
    MUST(NOW(comm_dup, rig.world[0], NULL, &first));
    struct comm_plan *plan = plan_of_messages(first);
    MUST(comm_close(first, RIG_PATIENCE));
    for (int i = 0; i < TRIES; i++) {
        MUST(comm_group_begin(rig.world[0], &recorder[i]));
        again += recorder[i] == first;
        starts_closed(plan);
    }
    EQUAL(again, 1);
    for (int i = 0; i < TRIES; i++)
        MUST(comm_group_end(recorder[i], NULL));
    comm_plan_free(plan);
    rig_close(&rig);
}

RIG_TEST(contract_2_2_a_group_outlives_its_communicator)
{
    struct rig rig;
    struct comm_communicator *first, *later = NULL, *recorder;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    MUST(NOW(comm_dup, rig.world[0], NULL, &first));
    MUST(comm_group_begin(first, &recorder));
    record_message(recorder);
    MUST(comm_close(first, RIG_PATIENCE));
    for (int i = 0; i < TRIES && later != first; i++)
        MUST(NOW(comm_dup, rig.world[0], NULL, &later));
    CHECK(later == first);
    IS(comm_group_end(recorder, &request), COMM_ERR_CLOSED);
    IS(comm_test(request), COMM_ERR_CLOSED);
    MUST(comm_sync(later, RIG_PATIENCE));
    EQUAL(got, 0);
    rig_close(&rig);
}

/* A group in a plan that ended first does not become part of another plan. */
RIG_TEST(contract_2_2_a_group_outlives_its_plan)
{
    struct rig rig;
    struct comm_communicator *recorder, *group, *later[TRIES];
    struct comm_plan *plan, *empty;
    struct comm_request request;
    int last = -1;
    rig_open(&rig, 1, NULL);
    MUST(comm_plan_begin(rig.world[0], &recorder));
    MUST(comm_group_begin(recorder, &group));
    record_message(group);
    MUST(comm_plan_end(recorder, &plan));
    do
        MUST(comm_plan_begin(rig.world[0], &later[++last]));
    while (later[last] != recorder && last + 1 < TRIES);
    CHECK(later[last] == recorder);
    IS(comm_group_end(group, NULL), COMM_ERR_CLOSED);
    for (int i = 0; i <= last; i++) {
        MUST(comm_plan_end(later[i], &empty));
        MUST(comm_plan_start(empty, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
        comm_plan_free(empty);
    }
    EQUAL(got, 0);
    comm_plan_free(plan);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
enum wrong { WRONG_TYPE, WRONG_SEND, WRONG_RECV, WRONG_EVENT, NO_EVENT, WRONG_KINDS };

static enum comm_result refused(struct comm_communicator *recorder, enum wrong wrong, struct comm_event *of_others)
{
    static int32_t in, out;
    switch (wrong) {
    case WRONG_TYPE:
        return comm_allreduce(recorder, &in, &out, 1, (enum comm_type)99, COMM_SUM, NULL);
    case WRONG_SEND:
        return comm_send(recorder, &in, 1, COMM_I32, 5, 0, NULL);
    case WRONG_RECV:
        return comm_recv(recorder, &out, 1, (enum comm_type)99, 0, 0, NULL, NULL);
    case WRONG_EVENT:
        return comm_queue_wait_event(recorder, of_others);
    case NO_EVENT:
        return comm_queue_wait_event(recorder, NULL);
    case WRONG_KINDS:
        break;
    }
    return COMM_OK;
}

/* A plan or a group never lacks the call that was refused. */
RIG_TEST(contract_1_8_a_refused_call_refuses_its_plan)
{
    struct rig rig, others;
    struct comm_communicator *recorder, *group;
    struct comm_event *event;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    rig_open(&others, 1, NULL);
    MUST(comm_event_create(others.world[0], &event));
    for (enum wrong wrong = 0; wrong < WRONG_KINDS; wrong++) {
        struct comm_plan *plan = NULL;
        enum comm_result told = wrong == WRONG_EVENT ? COMM_ERR_UNSUPPORTED : COMM_ERR_ARGUMENT;
        rig_note("wrong call %d", wrong);
        MUST(comm_plan_begin(rig.world[0], &recorder));
        record_message(recorder);
        IS(refused(recorder, wrong, event), told);
        IS(comm_plan_end(recorder, &plan), told);
        MUST(comm_group_begin(rig.world[0], &recorder));
        record_message(recorder);
        IS(refused(recorder, wrong, event), told);
        IS(comm_group_end(recorder, &request), told);
        IS(comm_test(request), told);
        MUST(comm_plan_begin(rig.world[0], &recorder));
        MUST(comm_group_begin(recorder, &group));
        IS(refused(group, wrong, event), told);
        IS(comm_group_end(group, NULL), told);
        IS(comm_plan_end(recorder, &plan), told);
        CHECK(!plan);
    }
    rig_proves_alive(rig.world, 1);
    EQUAL(got, 0);
    comm_event_free(event);
    rig_close(&others);
    rig_close(&rig);
}

/* What a recorder never takes is no part of the plan. */
RIG_TEST(contract_1_8_what_is_not_recorded_refuses_no_plan)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    struct comm_request request;
    struct comm_call call = {.size = sizeof call, .collective = "barrier"};
    struct comm_event *event;
    int64_t ns;
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_reset(event));
    MUST(comm_plan_begin(rig.world[0], &recorder));
    record_message(recorder);
    IS(comm_sync(recorder, RIG_PATIENCE), COMM_ERR_STATE);
    IS(comm_predict(recorder, &call, NULL, NULL, &ns), COMM_ERR_STATE);
    IS(comm_trace_dump(recorder, "/nowhere/at/all"), COMM_ERR_STATE);
    IS(comm_event_record(event, recorder), COMM_ERR_STATE);
    MUST(comm_event_set(event)); /* its point is the one of before */
    comm_event_free(event);
    MUST(comm_plan_end(recorder, &plan));
    MUST(comm_plan_start(plan, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(got, 1);
    comm_plan_free(plan);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ bytes in a group */
static enum comm_result bytes_beside(struct comm_communicator *c, int32_t *words, size_t *bytes, int32_t *other, struct comm_request *req)
{
    struct comm_communicator *recorder;
    size_t length = *bytes;
    MUST(comm_group_begin(c, &recorder));
    *bytes = 0;
    MUST(comm_broadcast_bytes(recorder, words, bytes, 0, NULL));
    MUST(comm_allreduce(recorder, COMM_IN_PLACE, other, 1, COMM_I32, COMM_SUM, NULL));
    *bytes = length; /* the group's end reads it */
    return comm_group_end(recorder, req);
}

/* The buffer is as long as the length says at the group's end. */
RIG_TEST(contract_1_8_a_group_whose_bytes_conflict)
{
    struct rig rig;
    struct comm_request request[2];
    int32_t words[2][4] = {{1, 2, 3, 4}, {0}};
    size_t bytes[2];
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        bytes[r] = 3 * sizeof words[r][0];
        IS(bytes_beside(rig.world[r], words[r], &bytes[r], &words[r][2], &request[r]), COMM_ERR_ARGUMENT);
    }
    rig_proves_alive(rig.world, 2);
    for (int r = 0; r < 2; r++)
        MUST(bytes_beside(rig.world[r], words[r], &bytes[r], &words[r][3], &request[r]));
    rig_wait_all(request, 2);
    EQUAL(words[1][2], 3);
    EQUAL(words[1][3], 4);
    bytes[0] = COMM_ROOT_FAILED; /* no bytes at the root */
    for (int r = 0; r < 2; r++)
        MUST(bytes_beside(rig.world[r], words[r], &bytes[r], &words[r][r == 0 ? 0 : 3], &request[r]));
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_ABORTED);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_2_2_a_plan_outlives_its_communicator),
        cmocka_unit_test(contract_2_2_a_plan_beside_later_recorders),
        cmocka_unit_test(contract_2_2_a_group_outlives_its_communicator),
        cmocka_unit_test(contract_2_2_a_group_outlives_its_plan),
        cmocka_unit_test(contract_1_8_a_refused_call_refuses_its_plan),
        cmocka_unit_test(contract_1_8_what_is_not_recorded_refuses_no_plan),
        cmocka_unit_test(contract_1_8_a_group_whose_bytes_conflict),
    };
    return cmocka_run_group_tests_name("contract_1_plans", tests, NULL, NULL);
}
