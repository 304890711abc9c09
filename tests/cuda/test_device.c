/* One device on the mock driver: whose memory an address is. */
#include "bench.h"
#include "cuda/device.h"
#include "mock.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct bed {
    struct device *device;
    struct bench bench;
    struct CUstream_st *stream;
};

static struct device *open_device(void)
{
    char why[200] = "";
    struct device_config config = {.env = wire_default_env(), .device = "cuda:0", .error_text = why, .error_text_bytes = sizeof why};
    struct device *device = NULL;

    config.env->start(config.env);
    assert_int_equal(device_cuda.open(&config, &device), COMM_OK);
    return device;
}

static void make_bed(struct bed *bed)
{
    bench_step = mock_drain;
    mock_reset(&(struct mock_options){.seed = 1, .queues = 32});
    bed->device = open_device();
    bench_open(&bed->bench, 0);
    bed->stream = bench_stream(&bed->bench);
}

static void drop_bed(struct bed *bed)
{
    mock_run(false);
    mock_drain();
    bench_drop_stream(&bed->bench, bed->stream);
    bench_close(&bed->bench);
    device_cuda.close(bed->device);
    if (mock_live())
        mock_list_live();
    assert_int_equal(mock_live(), 0);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
/* The address of memory that was freed may be the host's next. */
static void an_address_is_asked_for_each_time(void **state)
{
    struct bed bed;

    (void)state;
    make_bed(&bed);
    uint32_t *there = bench_memory(&bed.bench, 64);
    assert_int_equal(device_cuda.kind(bed.device, there), DEVICE_CUDA);
    bench_free(&bed.bench, there);
    assert_int_equal(device_cuda.kind(bed.device, there), DEVICE_HOST);
    drop_bed(&bed);
}

static void managed_memory_is_the_hosts(void **state)
{
    struct bed bed;

    (void)state;
    make_bed(&bed);
    uint32_t *there = bench_memory(&bed.bench, 64);
    mock_manage(there);
    assert_int_equal(device_cuda.kind(bed.device, there + 63), DEVICE_HOST);
    bench_free(&bed.bench, there);
    drop_bed(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_asked_for_each_time),          cmocka_unit_test(managed_memory_is_the_hosts),
        cmocka_unit_test(numbers_of_default_streams_need_no_context), cmocka_unit_test(others_go_on_while_memory_is_unpinned),
        cmocka_unit_test(a_second_thread_waits_for_the_kernels),      cmocka_unit_test(one_thread_frees_a_device),
    };
    return cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
}
