/* Waits for what only the host reaches: the streams of the library that stand for them, of which there are few, and plans of many waits. */
#include "waits.h"

static void make_gates(struct comm_communicator *c, struct comm_event **gate, int count)
{
    for (int i = 0; i < count; i++) {
        MUST(comm_event_create(c, &gate[i]));
        MUST(comm_event_reset(gate[i]));
    }
}

/* A plan with a sum, and a wait for each gate. */
static struct comm_plan *plan_of_waits(const struct bed *bed, struct comm_event *const *gate, int count)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    MUST(comm_plan_begin(bed->nccl, &recorder));
    MUST(comm_allreduce(recorder, bed->in, bed->out, WORDS, COMM_U32, COMM_SUM, NULL));
    for (int i = 0; i < count; i++)
        MUST(comm_queue_wait_event(recorder, gate[i]));
    MUST(comm_plan_end(recorder, &plan));
    return plan;
}

RIG_TEST(too_many_parks_are_full)
{
    enum { PARKS = 4 };
    struct bed bed;
    struct comm_event *gate[PARKS + 1];
    make_bed(&bed, &settings[1]);
    make_gates(bed.nccl, gate, PARKS + 1);
    struct comm_plan *plan = plan_of_waits(&bed, gate, 2);
    for (int i = 0; i < PARKS; i++)
        MUST(comm_stream_wait_event(bed.compute, gate[i]));
    IS(comm_stream_wait_event(bed.compute, gate[PARKS]), COMM_ERR_FULL);
    IS(comm_queue_wait_event(bed.nccl, gate[PARKS]), COMM_ERR_FULL);
    struct comm_stats before = {.size = sizeof before}, after = before;
    MUST(comm_statistics(bed.nccl, &before));
    IS(comm_plan_start(plan, NULL), COMM_ERR_FULL);
    MUST(comm_statistics(bed.nccl, &after));
    EQUAL(after.operations, before.operations);
    comm_plan_free(plan);
    for (int i = 0; i <= PARKS; i++) {
        MUST(comm_event_set(gate[i]));
        comm_event_free(gate[i]);
    }
    drop_bed(&bed);
}

/* Waits of one queue follow one another, so they stand on one of the library's streams, however many they are. The points are reached in
 * any order. Other streams have the rest of the parks. */
RIG_TEST(waits_of_a_queue_are_one_park)
{
    enum { GATES = 128, OTHERS = 3, LAST = 70 }; /* NCCL_WAITS_MOST */
    static struct comm_event *gate[GATES], *other[OTHERS];
    struct bed bed;
    struct comm_request q;
    for (int k = 0; k < SETTINGS; k++) {
        make_bed(&bed, &settings[k]);
        make_gates(bed.nccl, gate, GATES);
        make_gates(bed.nccl, other, OTHERS);
        for (int i = 0; i < OTHERS && k == 1; i++) /* with fewer hardware queues these would block the ones that follow */
            MUST(comm_stream_wait_event(bed.compute, other[i]));
        for (int i = 0; i < GATES; i++)
            MUST(comm_queue_wait_event(bed.nccl, gate[i]));
        IS(comm_queue_wait_event(bed.nccl, gate[0]), COMM_ERR_FULL);
        MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
        for (int i = 0; i < GATES; i++)
            if (i != LAST)
                MUST(comm_event_set(gate[(i * 7) % GATES]));
        IS(comm_wait(q, 20 * RIG_MS), COMM_PENDING);
        MUST(comm_event_set(gate[(LAST * 7) % GATES]));
        MUST(comm_wait(q, RIG_PATIENCE));
        for (int i = 0; i < OTHERS; i++)
            MUST(comm_event_set(other[i]));
        for (int i = 0; i < OTHERS; i++)
            comm_event_free(other[i]);
        for (int i = 0; i < GATES; i++)
            comm_event_free(gate[i]);
        drop_bed(&bed);
    }
}

/* It could never start. */
RIG_TEST(a_plan_of_too_many_waits_is_refused)
{
    enum { GATES = 129 };
    static struct comm_event *gate[GATES];
    struct bed bed;
    make_bed(&bed, &settings[1]);
    make_gates(bed.nccl, gate, GATES);
    struct comm_plan *plan = plan_of_waits(&bed, gate, GATES);
    IS(comm_plan_start(plan, NULL), COMM_ERR_UNSUPPORTED);
    comm_plan_free(plan);
    for (int i = 0; i < GATES; i++)
        comm_event_free(gate[i]);
    drop_bed(&bed);
}

/* Fills all points of the device's streams, and stops the device: there is no room for another one. */
static void take_all_points(const struct bed *bed, struct comm_event *event)
{
    enum comm_result r = COMM_OK;
    mock_run(false);
    for (int i = 0; i < 5000 && r == COMM_OK; i++)
        r = comm_event_record_stream(event, bed->other);
    IS(r, COMM_ERR_FULL);
}

/* More waits than there are parks, and no point of a stream is left: the plan starts as a whole all the same. */
RIG_TEST(a_plan_of_many_waits_starts)
{
    enum { GATES = 9 };
    struct bed bed;
    struct comm_event *gate[GATES], *filler;
    struct comm_request q;
    make_bed(&bed, &settings[1]);
    make_gates(bed.nccl, gate, GATES);
    MUST(comm_event_create(bed.nccl, &filler));
    struct comm_plan *plan = plan_of_waits(&bed, gate, GATES);
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            take_all_points(&bed, filler);
        MUST(comm_plan_start(plan, &q));
        mock_run(true);
        for (int i = GATES; i-- > 0;) {
            IS(comm_test(q), COMM_PENDING);
            MUST(comm_event_set(gate[i]));
        }
        MUST(comm_wait(q, RIG_PATIENCE));
        for (int i = 0; i < GATES; i++)
            MUST(comm_event_reset(gate[i]));
    }
    comm_plan_free(plan);
    for (int i = 0; i < GATES; i++)
        comm_event_free(gate[i]);
    comm_event_free(filler);
    drop_bed(&bed);
}

/* Each call of CUDA in a queue wait fails in turn. The wait returns the error, the stream does not stand, and no park is lost. */
RIG_TEST(a_wait_that_fails_parks_nothing)
{
    enum { PARKS = 4 };
    struct bed bed;
    struct comm_request q;
    uint64_t failed = 0;
    make_bed(&bed, &settings[1]);
    MUST(comm_event_reset(bed.event));
    for (uint64_t n = 1; n < 20; n++) {
        mock_fail(n, false);
        enum comm_result r = comm_queue_wait_event(bed.nccl, bed.event);
        bool fails = mock_failed_at() == n;
        mock_fail(0, false);
        MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
        if (r == COMM_OK) {
            IS(comm_wait(q, 10 * RIG_MS), COMM_PENDING);
            MUST(comm_event_set(bed.event));
        }
        failed += r != COMM_OK;
        CHECK(r == COMM_OK || (r == COMM_ERR_BACKEND && fails));
        MUST(comm_wait(q, RIG_PATIENCE));
        if (r == COMM_OK)
            MUST(comm_event_reset(bed.event));
    }
    CHECK(failed > PARKS);
    int64_t end = rig_now() + RIG_PATIENCE;
    for (int i = 0; i < PARKS; i++) { /* all come back, when the park streams have passed */
        enum comm_result r;
        while ((r = comm_stream_wait_event(bed.compute, bed.event)) == COMM_ERR_FULL && rig_now() < end)
            CHECK(comm_progress(bed.nccl) >= COMM_OK);
        MUST(r);
    }
    IS(comm_queue_wait_event(bed.nccl, bed.event), COMM_ERR_FULL);
    MUST(comm_event_set(bed.event));
    drop_bed(&bed);
}

RIG_TEST(without_memory_operations_nothing_parks)
{
    struct bed bed;
    _Atomic int ran = 0;
    make_bed(&bed, &(struct mock_options){.seed = 1, .no_memops = 1});
    MUST(comm_event_reset(bed.event));
    IS(comm_stream_wait_event(bed.compute, bed.event), COMM_ERR_UNSUPPORTED);
    IS(comm_queue_wait_event(bed.nccl, bed.event), COMM_ERR_UNSUPPORTED);
    struct comm_plan *plan = plan_of_waits(&bed, &bed.event, 1);
    IS(comm_plan_start(plan, NULL), COMM_ERR_UNSUPPORTED);
    comm_plan_free(plan);
    mock_kernel(bed.compute, set_flag, &ran);
    CHECK(comes(&ran));
    MUST(comm_event_set(bed.event));
    drop_bed(&bed);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_parks_are_full),         cmocka_unit_test(waits_of_a_queue_are_one_park),
        cmocka_unit_test(a_plan_of_many_waits_starts),     cmocka_unit_test(a_plan_of_too_many_waits_is_refused),
        cmocka_unit_test(a_wait_that_fails_parks_nothing), cmocka_unit_test(without_memory_operations_nothing_parks),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_parks", tests, NULL, NULL);
}
