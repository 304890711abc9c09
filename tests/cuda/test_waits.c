/* Streams wait for the host, and the host waits for streams. Tests gates, sleeping threads, and waits for failed operations. */
#include "waits.h"

#include "now.h"

#include <dirent.h>

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Threads that joined NCCL may still be about to end. */
static int threads_at_rest(void)
{
    int count = threads();

    for (int same = 0; same < 5; same++) {
        rig_nap(10 * RIG_MS);
        int now = threads();
        same = now == count ? same : -1;
        count = now;
    }
    return count;
}

/* ------------------------------------------------------------------------------------------------------------ streams wait for the host */
RIG_TEST(contract_6_7_a_stream_stands_until_the_host_goes_on)
{
    struct bed bed;
    for (int k = 0; k < SETTINGS; k++) {
        _Atomic int ran = 0;
        make_bed(&bed, &settings[k]);
        int before = threads_at_rest();
        MUST(comm_event_reset(bed.event));
        MUST(comm_stream_wait_event(bed.compute, bed.event));
        EQUAL(threads(), before + 1); /* the thread that makes progress for the stream */
        mock_kernel(bed.compute, set_flag, &ran);
        rig_nap(10 * RIG_MS);
        EQUAL(atomic_load(&ran), 0);
        uint64_t calls = mock_calls();
        MUST(comm_event_set(bed.event));
        CHECK(comes(&ran));
        EQUAL(mock_calls(), calls); /* one store, no CUDA call */
        drop_bed(&bed);
    }
}

/* The caller does not enter the library again. The progress thread completes the operation, which releases the stream. */
RIG_TEST(a_stream_waits_for_an_operation_of_the_host)
{
    struct bed bed;
    int32_t in[2] = {3, 4}, out[2] = {0, 0};
    struct comm_request q[2];
    for (int k = 0; k < SETTINGS; k++) {
        _Atomic int ran = 0;
        make_bed(&bed, &settings[k]);
        MUST(comm_allreduce(bed.host[0], &in[0], &out[0], 1, COMM_I32, COMM_SUM, &q[0]));
        MUST(comm_stream_wait_request(bed.compute, q[0]));
        mock_kernel(bed.compute, set_flag, &ran);
        rig_nap(5 * RIG_MS);
        EQUAL(atomic_load(&ran), 0);
        MUST(comm_allreduce(bed.host[1], &in[1], &out[1], 1, COMM_I32, COMM_SUM, &q[1]));
        CHECK(comes(&ran));
        EQUAL(out[0], 7);
        MUST(comm_stream_wait_request(bed.compute, q[0])); /* done: nothing to wait for */
        MUST(comm_wait(q[1], RIG_PATIENCE));
        drop_bed(&bed);
    }
}

/* More calls than a window holds are on a stream, and all end between two polls. */
RIG_TEST(many_calls_in_a_stream_end_at_once)
{
    enum { CALLS = 400 };
    struct bed bed;
    for (int k = 0; k < SETTINGS; k++) {
        struct comm_request last;
        make_bed(&bed, &settings[k]);
        mock_run(false);
        for (int i = 0; i < CALLS; i++) {
            MUST(comm_queue_wait_event(bed.nccl, bed.event)); /* the event is set: the wait ends at once, before the calls around it */
            MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &last));
        }
        IS(comm_test(last), COMM_PENDING);
        mock_drain();
        MUST(comm_wait(last, RIG_PATIENCE));
        mock_run(true);
        drop_bed(&bed);
    }
}

RIG_TEST(a_queue_on_a_device_waits_for_the_host)
{
    struct bed bed;
    struct comm_request q;
    uint32_t got[WORDS];
    for (int k = 0; k < SETTINGS; k++) {
        make_bed(&bed, &settings[k]);
        bench_fill(&bed.bench, bed.compute, bed.in, 5, WORDS);
        MUST(comm_queue_wait_stream(bed.nccl, bed.compute));
        MUST(comm_event_reset(bed.event));
        MUST(comm_queue_wait_event(bed.nccl, bed.event));
        MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
        IS(comm_wait(q, 10 * RIG_MS), COMM_PENDING);
        MUST(comm_event_set(bed.event));
        MUST(comm_wait(q, RIG_PATIENCE));
        bench_read(&bed.bench, bed.compute, got, bed.out, WORDS);
        EQUAL(got[3], 5);
        drop_bed(&bed);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the host waits for streams
 */
RIG_TEST(contract_3_5_events_hold_places_on_streams)
{
    struct bed bed;
    for (int memops = 0; memops < 2; memops++) {
        _Atomic int ran = 0;
        make_bed(&bed, &(struct mock_options){.seed = 1, .no_memops = !memops});
        mock_run(false);
        mock_kernel(bed.compute, set_flag, &ran);
        MUST(comm_event_record_stream(bed.event, bed.compute));
        IS(comm_event_query(bed.event), COMM_PENDING);
        IS(comm_event_sync(bed.event, 20 * RIG_MS), COMM_PENDING);
        mock_run(true);
        int64_t start = rig_now();
        MUST(comm_event_sync(bed.event, RIG_PATIENCE));
        CHECK(rig_now() - start < 500 * RIG_MS); /* a sleeping thread polls, since the device does not wake it */
        EQUAL(atomic_load(&ran), 1);
        drop_bed(&bed);
    }
}

/* With and without memory operations, and beside communicators that have a priority. */
RIG_TEST(a_queue_of_the_host_waits_for_a_stream)
{
    struct bed bed;
    const struct comm_options options = {.size = sizeof options, .priority = 1};
    int32_t in[2] = {3, 4}, out[2] = {0, 0};
    struct comm_request q[2];
    for (int how = 0; how < 4; how++) {
        _Atomic int ran = 0;
        struct comm_communicator *urgent[2] = {NULL};
        make_bed(&bed, &(struct mock_options){.seed = 1, .no_memops = how % 2});
        for (int r = 0; r < 2 && how / 2; r++)
            MUST(comm_dup(bed.host[r], &options, &urgent[r], &q[r]));
        if (how / 2)
            rig_wait_all(q, 2);
        mock_run(false);
        mock_kernel(bed.compute, set_flag, &ran);
        for (int r = 0; r < 2; r++) {
            MUST(comm_queue_wait_stream(bed.host[r], bed.compute));
            MUST(comm_allreduce(bed.host[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &q[r]));
        }
        IS(comm_wait(q[0], 20 * RIG_MS), COMM_PENDING);
        mock_run(true);
        int64_t start = rig_now();
        rig_wait_all(q, 2);
        CHECK(rig_now() - start < 500 * RIG_MS);
        EQUAL(atomic_load(&ran), 1);
        for (int r = 0; r < 2; r++)
            MUST(comm_close(urgent[r], COMM_DEFAULT_TIMEOUT));
        drop_bed(&bed);
    }
}

/* The request is complete before its communicator is gone, though the queue that waits for it is looked at later. */
RIG_TEST(a_queue_on_a_device_waits_for_a_communicator_that_closes)
{
    struct bed bed;
    const struct comm_options urgent = {.size = sizeof urgent, .priority = 1}, yields = {.size = sizeof yields, .priority = -1};
    struct comm_communicator *closes[2], *waits;
    int32_t in[2] = {3, 4}, out[2] = {0, 0};
    struct comm_request q[3];
    make_bed(&bed, &(struct mock_options){.seed = 1});
    for (int r = 0; r < 2; r++)
        MUST(comm_dup(bed.host[r], &urgent, &closes[r], &q[r]));
    MUST(comm_dup(bed.nccl, &yields, &waits, &q[2]));
    rig_wait_all(q, 3);
    MUST(comm_allreduce(closes[0], &in[0], &out[0], 1, COMM_I32, COMM_SUM, &q[0]));
    MUST(comm_queue_wait_request(waits, q[0]));
    MUST(comm_allreduce(closes[1], &in[1], &out[1], 1, COMM_I32, COMM_SUM, &q[1]));
    for (int r = 0; r < 2; r++)
        MUST(comm_close(closes[r], COMM_DEFAULT_TIMEOUT));
    MUST(comm_sync(waits, RIG_PATIENCE));
    MUST(comm_close(waits, COMM_DEFAULT_TIMEOUT));
    drop_bed(&bed);
}

RIG_TEST(a_communicators_stream_is_told_and_waited_for)
{
    struct bed bed;
    struct CUstream_st *stream = NULL;
    struct comm_communicator *c;
    make_bed(&bed, &settings[1]);
    MUST(comm_stream_of(bed.nccl, &stream));
    CHECK(stream && stream != bed.compute);
    IS(comm_stream_of(bed.host[0], &stream), COMM_ERR_UNSUPPORTED);
    MUST(NOW(comm_dup, bed.nccl, &(struct comm_options){.size = sizeof(struct comm_options), .stream = bed.compute}, &c));
    MUST(comm_stream_of(c, &stream));
    CHECK(stream == bed.compute);
    IS(NOW(comm_dup, bed.host[0], &(struct comm_options){.size = sizeof(struct comm_options), .stream = bed.compute}, &c),
       COMM_ERR_UNSUPPORTED);
    (void)!comm_sync(bed.host[0], COMM_FOREVER);
    mock_run(false);
    MUST(comm_allreduce(c, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, NULL));
    IS(comm_stream_sync(c, 10 * RIG_MS), COMM_PENDING);
    mock_run(true);
    MUST(comm_stream_sync(c, RIG_PATIENCE));
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    for (int r = 0; r < 2; r++)
        (void)!comm_close(bed.host[r], COMM_DEFAULT_TIMEOUT);
    bed.host[0] = bed.host[1] = NULL;
    drop_bed(&bed);
}

/* ------------------------------------------------------------------------------------------------------------ points that fail */
RIG_TEST(contract_3_3_a_device_that_waits_for_a_failed_point)
{
    struct bed bed;
    int32_t in = 1, out;
    struct comm_request host, q;
    struct comm_error error = {.size = sizeof error};
    _Atomic int ran = 0;
    make_bed(&bed, &settings[1]);
    MUST(comm_allreduce(bed.host[0], &in, &out, 1, COMM_I32, COMM_SUM, &host)); /* its peer never calls */
    MUST(comm_queue_wait_request(bed.nccl, host));
    MUST(comm_stream_wait_request(bed.compute, host));
    mock_kernel(bed.compute, set_flag, &ran);
    MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
    IS(comm_wait(q, 10 * RIG_MS), COMM_PENDING);
    MUST(comm_revoke(bed.host[0]));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    MUST(comm_error_detail(bed.nccl, &error));
    CHECK(strstr(error.text, "revoked"));
    CHECK(comes(&ran)); /* the program's stream must not block for ever */
    IS(comm_stream_wait_request(bed.compute, q), COMM_ERR_DEPENDENCY);
    drop_bed(&bed);
}

RIG_TEST(contract_3_1_an_abandoned_gate_frees_the_streams)
{
    struct bed bed;
    struct comm_request q;
    _Atomic int ran = 0;
    make_bed(&bed, &settings[0]);
    MUST(comm_event_reset(bed.event));
    MUST(comm_queue_wait_event(bed.nccl, bed.event));
    MUST(comm_stream_wait_event(bed.compute, bed.event));
    MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
    mock_kernel(bed.compute, set_flag, &ran);
    MUST(comm_event_record(bed.event, bed.host[0]));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ABANDONED);
    CHECK(comes(&ran));
    drop_bed(&bed);
}

/* The peers never make the call. Closing ends the operation within its bound, and no stream stays blocked. */
RIG_TEST(closing_frees_what_stands)
{
    struct bed bed;
    struct comm_request q;
    make_bed(&bed, &settings[0]);
    MUST(comm_event_reset(bed.event));
    MUST(comm_queue_wait_event(bed.nccl, bed.event));
    MUST(comm_allreduce(bed.nccl, bed.in, bed.out, WORDS, COMM_U32, COMM_SUM, &q));
    int64_t start = rig_now();
    for (int r = 0; r < 2; r++)
        MUST(comm_close(bed.host[r], COMM_DEFAULT_TIMEOUT));
    bed.host[0] = bed.host[1] = NULL;
    IS(comm_close(bed.nccl, 100 * RIG_MS), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - start < 5 * RIG_S);
    bed.nccl = NULL;
    drop_bed(&bed);
}

/* ------------------------------------------------------------------------------------------------------------ no CUDA */
RIG_TEST(without_a_device_streams_are_unsupported)
{
    struct comm_communicator *c;
    struct comm_event *event;
    struct comm_error error = {.size = sizeof error};
    mock_reset(&(struct mock_options){.init_result = 100});
    MUST(comm_open_local(NULL, 1, NULL, &c));
    MUST(comm_event_create(c, &event));
    IS(comm_event_record_stream(event, NULL), COMM_ERR_UNSUPPORTED);
    IS(comm_queue_wait_stream(c, NULL), COMM_ERR_UNSUPPORTED);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "no NVIDIA device"));
    MUST(comm_stream_wait_event(NULL, event)); /* reached: nothing to wait for */
    MUST(comm_event_reset(event));
    IS(comm_stream_wait_event(NULL, event), COMM_ERR_UNSUPPORTED);
    comm_event_free(event);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_7_a_stream_stands_until_the_host_goes_on),
        cmocka_unit_test(a_stream_waits_for_an_operation_of_the_host),
        cmocka_unit_test(many_calls_in_a_stream_end_at_once),
        cmocka_unit_test(a_queue_on_a_device_waits_for_the_host),
        cmocka_unit_test(contract_3_5_events_hold_places_on_streams),
        cmocka_unit_test(a_queue_of_the_host_waits_for_a_stream),
        cmocka_unit_test(a_queue_on_a_device_waits_for_a_communicator_that_closes),
        cmocka_unit_test(a_communicators_stream_is_told_and_waited_for),
        cmocka_unit_test(contract_3_3_a_device_that_waits_for_a_failed_point),
        cmocka_unit_test(contract_3_1_an_abandoned_gate_frees_the_streams),
        cmocka_unit_test(closing_frees_what_stands),
        cmocka_unit_test(without_a_device_streams_are_unsupported),
    };
    return cmocka_run_group_tests_name("cuda_waits", tests, NULL, NULL);
}
