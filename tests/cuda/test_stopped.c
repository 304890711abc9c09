/*
 * A kernel of the program's fails, and the device stops for good. What waits for it ends with an error at once, not at its deadline: sums
 * and messages that are being copied, queues and the host that wait for a stream.
 */
#include "../conform/rig.h"
#include "bench.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS = 2, WORDS = 1 << 12, LONG_WORDS = 1 << 20 };
static const struct mock_options settings[] = {{.seed = 1, .queues = 8}, {.seed = 2, .queues = 8, .no_memops = true}};
enum { WITH_WORDS, WITHOUT_WORDS }; /* settings */

static struct stopped {
    struct comm_communicator *world[RANKS];
    struct bench bench;
    struct CUstream_st *compute;
    uint32_t *in[RANKS], *out[RANKS];
} rig;

static void open_rig(int setting, size_t words)
{
    mock_reset(&settings[setting]);
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.operation_timeout_ns = 100 * RIG_S), RANKS, NULL, rig.world));
    bench_open(&rig.bench, 0);
    rig.compute = bench_stream(&rig.bench);
    for (int r = 0; r < RANKS; r++) {
        rig.in[r] = bench_memory(&rig.bench, words);
        rig.out[r] = bench_memory(&rig.bench, words);
    }
}

/* The device is whole again, so that the test can give back what it has. */
static void close_rig(void)
{
    for (int r = 0; r < RANKS; r++) {
        int64_t began = rig_now();
        (void)!comm_close(rig.world[r], 30 * RIG_S);
        CHECK(rig_now() - began < 20 * RIG_S); /* a close does not wait for copies that will never end */
    }
    mock_fault(0, false);
    mock_run(true);
    while (!mock_idle())
        rig_nap(RIG_MS);
    for (int r = 0; r < RANKS; r++) {
        bench_free(&rig.bench, rig.in[r]);
        bench_free(&rig.bench, rig.out[r]);
    }
    bench_drop_stream(&rig.bench, rig.compute);
    bench_close(&rig.bench);
    mock_run(false);
}

static void stop_device(void)
{
    mock_fault(0, true);
}

static void a_sum(int setting)
{
    struct comm_request q[RANKS];
    open_rig(setting, WORDS);
    mock_run(false);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], rig.in[r], rig.out[r], WORDS, COMM_U32, COMM_SUM, &q[r]));
    IS(comm_wait(q[0], RIG_MS), COMM_PENDING);
    stop_device();
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_BACKEND);
    close_rig();
}

/* A short message is copied whole, a long one in pieces. */
static void a_message(int setting, size_t words)
{
    struct comm_request sent, received;
    open_rig(setting, words);
    mock_run(false);
    MUST(comm_send(rig.world[0], rig.in[0], words, COMM_U32, 1, 5, &sent));
    MUST(comm_recv(rig.world[1], rig.out[1], words, COMM_U32, 0, 5, NULL, &received));
    IS(comm_wait(sent, RIG_MS), COMM_PENDING);
    stop_device();
    IS(comm_wait(sent, RIG_PATIENCE), COMM_ERR_BACKEND);
    IS(comm_wait(received, RIG_PATIENCE), COMM_ERR_BACKEND);
    close_rig();
}

static void a_queue(int setting)
{
    struct comm_request q[RANKS];
    uint32_t in[RANKS] = {1, 2}, out[RANKS];
    open_rig(setting, WORDS);
    mock_run(false);
    bench_fill(&rig.bench, rig.compute, rig.in[0], 7, WORDS);
    MUST(comm_queue_wait_stream(rig.world[0], rig.compute));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_U32, COMM_SUM, &q[r]));
    IS(comm_wait(q[0], RIG_MS), COMM_PENDING);
    stop_device();
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    close_rig();
}

static void ask_until_it_has_stopped(struct comm_event *event)
{
    enum comm_result r = COMM_PENDING;

    for (int64_t end = rig_now() + RIG_PATIENCE; r == COMM_PENDING && rig_now() < end; rig_nap(RIG_MS))
        r = comm_event_query(event);
    IS(r, COMM_ERR_BACKEND);
}

static void the_host(int setting)
{
    struct comm_event *event;
    open_rig(setting, WORDS);
    MUST(comm_event_create(rig.world[0], &event));
    mock_run(false);
    bench_fill(&rig.bench, rig.compute, rig.in[0], 7, WORDS);
    MUST(comm_event_record_stream(event, rig.compute));
    IS(comm_event_sync(event, RIG_MS), COMM_PENDING);
    stop_device();
    IS(comm_event_sync(event, COMM_FOREVER), COMM_ERR_BACKEND);
    ask_until_it_has_stopped(event);
    comm_event_free(event);
    close_rig();
}

RIG_TEST(a_sum_that_is_copied)
{
    a_sum(WITH_WORDS);
}
RIG_TEST(a_short_message_that_is_copied)
{
    a_message(WITH_WORDS, WORDS);
}
RIG_TEST(a_long_message_that_is_copied)
{
    a_message(WITH_WORDS, LONG_WORDS);
}
RIG_TEST(a_queue_that_waits_for_a_stream)
{
    a_queue(WITH_WORDS);
}
RIG_TEST(the_host_that_waits_for_a_stream)
{
    the_host(WITH_WORDS);
}

/* The same where streams write no words, so that the host queries events. */
RIG_TEST(a_sum_whose_device_writes_no_words)
{
    a_sum(WITHOUT_WORDS);
}
RIG_TEST(a_message_whose_device_writes_no_words)
{
    a_message(WITHOUT_WORDS, LONG_WORDS);
}
RIG_TEST(a_queue_whose_stream_writes_no_words)
{
    a_queue(WITHOUT_WORDS);
}
RIG_TEST(the_host_whose_stream_writes_no_words)
{
    the_host(WITHOUT_WORDS);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_that_is_copied),
        cmocka_unit_test(a_short_message_that_is_copied),
        cmocka_unit_test(a_long_message_that_is_copied),
        cmocka_unit_test(a_queue_that_waits_for_a_stream),
        cmocka_unit_test(the_host_that_waits_for_a_stream),
        cmocka_unit_test(a_sum_whose_device_writes_no_words),
        cmocka_unit_test(a_message_whose_device_writes_no_words),
        cmocka_unit_test(a_queue_whose_stream_writes_no_words),
        cmocka_unit_test(the_host_whose_stream_writes_no_words),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_stopped", tests, NULL, NULL);
}
