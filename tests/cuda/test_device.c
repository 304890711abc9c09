/* One device on the mock driver: whose memory an address is, its stream numbers, its kernels, and its life while several threads use it. */
#define _GNU_SOURCE
#include "bench.h"
#include "cuda/kernels.h"
#include "mock.h"
#include "wire/table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

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

static bool comes(const _Atomic int *flag, int ms)
{
    for (int i = 0; i < ms && !atomic_load(flag); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return atomic_load(flag);
}

static void set(void *flag)
{
    atomic_store((_Atomic int *)flag, 1);
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

/* This thread has no context. */
static void numbers_of_default_streams_need_no_context(void **state)
{
    struct bed bed;
    struct device_place place;

    (void)state;
    make_bed(&bed);
    for (uintptr_t number = 0; number <= CUDA_STREAM_PER_THREAD; number++)
        assert_int_equal(device_cuda.record(bed.device, (struct CUstream_st *)number, &place), COMM_OK);
    drop_bed(&bed);
}

/* ------------------------------------------------------------------------------------------------------------ threads */
struct helper {
    struct device *device;
    int *memory;
    struct device_place place;
    enum comm_result result;
    bool has_kernels;
    _Atomic int begun, over, go;
    pthread_t thread;
};

static void begin(struct helper *h, void *(*what)(void *arg))
{
    assert_int_equal(pthread_create(&h->thread, NULL, what, h), 0);
}

static void *unpin(void *arg)
{
    struct helper *h = arg;

    device_cuda.unpin(h->device, h->memory);
    return NULL;
}

static void *place(void *arg)
{
    struct helper *h = arg;

    h->result = device_cuda.record(h->device, NULL, &h->place);
    set(&h->over);
    return NULL;
}

/* CUDA waits for all work of the device when it unpins. Here that needs this thread. */
static void others_go_on_while_memory_is_unpinned(void **state)
{
    struct bed bed;
    int mine[64] = {0};
    struct device_place gate;

    (void)state;
    make_bed(&bed);
    struct helper unpinner = {.device = bed.device, .memory = mine}, placer = {.device = bed.device};
    assert_int_equal(device_cuda.pin(bed.device, mine, sizeof mine), COMM_OK);
    mock_run(true);
    assert_int_equal(device_cuda.park(bed.device, bed.stream, &gate), COMM_OK);
    mock_at("cuMemHostUnregister", set, &unpinner.begun);
    begin(&unpinner, unpin);
    assert_true(comes(&unpinner.begun, 20000));
    begin(&placer, place);
    bool placed = comes(&placer.over, 20000);
    atomic_store(gate.word, gate.value);
    pthread_join(unpinner.thread, NULL);
    pthread_join(placer.thread, NULL);
    mock_at(NULL, NULL, NULL);
    assert_true(placed);
    assert_int_equal(placer.result, COMM_OK);
    drop_bed(&bed);
}

static void wait_in_load(void *arg)
{
    struct helper *h = arg;

    set(&h->begun);
    (void)comes(&h->go, 20000);
}

static void *load(void *arg)
{
    struct helper *h = arg;
    struct cuda_device *d = (struct cuda_device *)(void *)h->device;
    struct cuda_inside inside;

    assert_true(cuda_enter(d, &inside));
    cuda_load_kernels(d);
    h->has_kernels = cuda_can_try(d);
    cuda_leave(d, &inside);
    set(&h->over);
    return NULL;
}

/* The driver may compile them, which takes seconds. */
static void a_second_thread_waits_for_the_kernels(void **state)
{
    struct bed bed;

    (void)state;
    make_bed(&bed);
    struct helper first = {.device = bed.device}, second = {.device = bed.device};
    mock_at("cuModuleLoadData", wait_in_load, &first);
    begin(&first, load);
    if (cuda_kernels_bytes)
        assert_true(comes(&first.begun, 20000));
    begin(&second, load);
    (void)comes(&second.over, 100);
    set(&first.go);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    mock_at(NULL, NULL, NULL);
    assert_int_equal(first.has_kernels, cuda_kernels_bytes != 0);
    assert_int_equal(second.has_kernels, first.has_kernels);
    drop_bed(&bed);
}

static void *close_device(void *arg)
{
    struct helper *h = arg;

    set(&h->begun);
    device_cuda.close(h->device);
    set(&h->over);
    return NULL;
}

/* Opens and closes the device while another thread, which closed it, waits for its streams. Only one of them may free it. False: that
 * thread has waited for too long. */
static bool close_twice(struct bed *bed)
{
    struct helper other = {.device = bed->device};
    struct device_place pending;

    assert_int_equal(device_cuda.record(bed->device, bed->stream, &pending), COMM_OK);
    begin(&other, close_device);
    assert_true(comes(&other.begun, 20000));
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    device_cuda.close(open_device());
    bool was_waiting = !atomic_load(&other.over);
    mock_drain();
    pthread_join(other.thread, NULL);
    bed->device = open_device();
    return was_waiting;
}

static void one_thread_frees_a_device(void **state)
{
    struct bed bed;
    bool seen = false;

    (void)state;
    make_bed(&bed);
    for (int i = 0; i < 20 && !seen; i++)
        seen = close_twice(&bed);
    assert_true(seen);
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
