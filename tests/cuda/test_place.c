/* Places on streams, waits and parks on the mock driver. The test steps it by hand, in orders chosen by seeds. */
#include "bench.h"
#include "cuda/nccl/nccl.h"
#include "mock.h"
#include "selection.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STREAMS = 4 };
struct bed {
    struct device *device;
    struct bench bench;
    struct CUstream_st *stream[STREAMS];
};

static void step(void)
{
    mock_step();
}

static enum comm_result open_device(struct device **device, char why[200])
{
    struct device_config config = {.env = wire_default_env(), .device = "cuda:0", .error_text = why, .error_text_bytes = 200};

    config.env->start(config.env);
    return device_cuda.open(&config, device);
}

static void make_bed(struct bed *bed, const struct mock_options *options)
{
    char why[200] = "";

    bench_step = step;
    mock_reset(options);
    assert_int_equal(open_device(&bed->device, why), COMM_OK);
    bench_open(&bed->bench, 0);
    for (int i = 0; i < STREAMS; i++)
        bed->stream[i] = bench_stream(&bed->bench);
}

static void drop_bed(struct bed *bed)
{
    mock_drain();
    assert_true(mock_idle());
    for (int i = 0; i < STREAMS; i++)
        bench_drop_stream(&bed->bench, bed->stream[i]);
    bench_close(&bed->bench);
    device_cuda.close(bed->device);
    if (mock_live())
        mock_list_live();
    assert_int_equal(mock_live(), 0);
}

static bool reached(const struct device_place *place)
{
    return atomic_load(place->word) >= place->value;
}

static void set_flag(void *arg)
{
    *(int *)arg = 1;
}

/* ------------------------------------------------------------------------------------------------------------ one thing at a time */
static void a_place_is_reached_behind_the_work_before_it(void **state)
{
    struct bed bed;
    struct device_place place;
    int flag = 0;

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 1});
    mock_kernel(bed.stream[0], set_flag, &flag);
    assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &place), COMM_OK);
    assert_false(reached(&place));
    while (!reached(&place)) {
        assert_true(mock_step());
        device_cuda.poll(bed.device);
    }
    assert_int_equal(flag, 1);
    drop_bed(&bed);
}

/* A copy of a reached place stays reached, even if its slot holds a later place. */
static void a_place_stays_reached(void **state)
{
    struct bed bed;
    struct device_place first, more;

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 1});
    assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &first), COMM_OK);
    mock_drain();
    for (int i = 0; i < 3 * CUDA_SLOTS; i++) {
        assert_int_equal(device_cuda.record(bed.device, bed.stream[i % STREAMS], &more), COMM_OK);
        assert_true(reached(&first));
        mock_drain();
        assert_true(reached(&more));
    }
    drop_bed(&bed);
}

static void too_many_places_are_full(void **state)
{
    struct bed bed;
    struct device_place place;

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 1});
    for (int i = 0; i < CUDA_SLOTS; i++)
        assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &place), COMM_OK);
    assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &place), COMM_ERR_FULL);
    mock_drain();
    assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &place), COMM_OK);
    drop_bed(&bed);
}

static void a_parked_stream_goes_on_by_one_store(void **state)
{
    struct bed bed;

    (void)state;
    for (uint64_t seed = 1; seed < 50; seed++) {
        struct device_place gate;
        int flag = 0, other = 0;
        make_bed(&bed, &(struct mock_options){.seed = seed, .queues = 8});
        mock_kernel(bed.stream[1], set_flag, &other);
        assert_int_equal(device_cuda.park(bed.device, bed.stream[0], &gate), COMM_OK);
        mock_kernel(bed.stream[0], set_flag, &flag);
        mock_drain();
        assert_int_equal(flag, 0);
        assert_int_equal(other, 1);
        uint64_t calls = mock_calls();
        atomic_store(gate.word, gate.value);
        mock_drain();
        assert_int_equal(flag, 1);
        assert_true(mock_calls() == calls);
        drop_bed(&bed);
    }
}

static void parks_are_bounded_and_come_back(void **state)
{
    struct bed bed;
    struct device_place gate[CUDA_PARKS], more;

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 3, .queues = 1});
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CUDA_PARKS; i++)
            assert_int_equal(device_cuda.park(bed.device, bed.stream[i % STREAMS], &gate[i]), COMM_OK);
        assert_int_equal(device_cuda.park(bed.device, bed.stream[0], &more), COMM_ERR_FULL);
        for (int i = CUDA_PARKS; i-- > 0;) /* with one hardware queue the last park is queued after the first */
            atomic_store(gate[i].word, gate[i].value);
        mock_drain();
        assert_true(mock_idle());
    }
    drop_bed(&bed);
}

static void without_memory_operations(void **state)
{
    struct bed bed;
    struct device_place place, gate;
    int flag = 0;

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 1, .no_memops = 1});
    mock_kernel(bed.stream[0], set_flag, &flag);
    assert_int_equal(device_cuda.record(bed.device, bed.stream[0], &place), COMM_OK);
    assert_int_equal(device_cuda.wait(bed.device, bed.stream[1], &place), COMM_OK);
    assert_true(device_cuda.poll(bed.device));
    assert_false(reached(&place));
    mock_drain();
    assert_false(device_cuda.poll(bed.device));
    assert_true(reached(&place));
    assert_int_equal(device_cuda.park(bed.device, bed.stream[0], &gate), COMM_ERR_UNSUPPORTED);
    drop_bed(&bed);
}

static void memory_is_told_apart(void **state)
{
    struct bed bed;
    int mine[64] = {0};

    (void)state;
    make_bed(&bed, &(struct mock_options){.seed = 1});
    uint32_t *there = bench_memory(&bed.bench, 64);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(device_cuda.kind(bed.device, there), DEVICE_CUDA);
        assert_int_equal(device_cuda.kind(bed.device, there + 63), DEVICE_CUDA);
        assert_int_equal(device_cuda.kind(bed.device, mine), DEVICE_HOST);
        assert_int_equal(device_cuda.kind(bed.device, NULL), DEVICE_HOST);
    }
    assert_int_equal(device_cuda.pin(bed.device, mine, sizeof mine), COMM_OK);
    assert_int_equal(device_cuda.kind(bed.device, mine), DEVICE_HOST);
    mine[3] = 77;
    struct device_piece to = {there, mine, sizeof mine}, back = {mine, there, sizeof mine};
    struct device_place place;
    assert_int_equal(device_cuda.move(bed.device, DEVICE_OUT, &to, 1, &place), COMM_OK);
    assert_false(*place.word >= place.value);
    mock_drain();
    assert_true(*place.word >= place.value);
    mine[3] = 0;
    assert_int_equal(device_cuda.move(bed.device, DEVICE_IN, &back, 1, &place), COMM_OK);
    mock_drain();
    assert_true(*place.word >= place.value);
    assert_int_equal(mine[3], 77);
    size_t has;
    assert_int_equal(device_cuda.extent(bed.device, there, 64 * sizeof *there, &has), DEVICE_CUDA);
    assert_int_equal(has, 64 * sizeof *there);
    assert_int_equal(device_cuda.extent(bed.device, there + 60, 5 * sizeof *there, &has), DEVICE_CUDA);
    assert_int_equal(has, 4 * sizeof *there);
    assert_int_equal(device_cuda.extent(bed.device, mine, sizeof mine, &has), DEVICE_HOST);
    assert_int_equal(has, 0);
    device_cuda.unpin(bed.device, mine);
    bench_free(&bed.bench, there);
    drop_bed(&bed);
}

static void devices_have_names(void **state)
{
    struct device *device;
    char why[200] = "";
    struct device_config config = {.env = wire_default_env(), .error_text = why, .error_text_bytes = sizeof why};
    static const char *const wrong[] = {"cuda:8", "cuda:", "cuda:x", "hip:0", "cuda:-1"};

    (void)state;
    mock_reset(&(struct mock_options){.seed = 1});
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        config.device = wrong[i];
        assert_int_equal(device_cuda.open(&config, &device), COMM_ERR_CONFIG);
        assert_non_null(strstr(why, wrong[i]));
        assert_non_null(strstr(why, "expected cuda:0 to cuda:7"));
    }
    config.device = NULL;
    config.local_rank = 11;
    assert_int_equal(device_cuda.open(&config, &device), COMM_OK);
    assert_int_equal(((struct cuda_device *)(void *)device)->ordinal, 3);
    device_cuda.close(device);
    assert_int_equal(mock_live(), 0);
}

/* ------------------------------------------------------------------------------------------------------------ at random */
enum { NOTES = 400 };
struct note {
    int *clock, at;
};
struct story {
    int clock, notes;
    struct note note[NOTES];
};

static void tick(void *arg)
{
    struct note *note = arg;

    note->at = ++*note->clock;
}

static int write_note(struct story *story, struct CUstream_st *stream)
{
    struct note *note = &story->note[story->notes];

    *note = (struct note){.clock = &story->clock};
    mock_kernel(stream, tick, note);
    return story->notes++;
}

static unsigned draw_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

/* Puts work, places and waits for places on streams. Returns true if the work ran in an order that the waits allow. Wait number `drop` is
 * dropped. */
static bool tell_story(uint64_t seed, int queues, bool memops, uint64_t drop)
{
    static struct story story;
    struct bed bed;
    struct {
        struct device_place place;
        int before; /* the note before it */
    } placed[64];
    struct {
        int before, after;
    } edge[64];
    int places = 0, edges = 0, last[STREAMS] = {-1, -1, -1, -1};
    bool good = true;

    make_bed(&bed, &(struct mock_options){.seed = seed, .queues = queues, .no_memops = !memops});
    story.clock = story.notes = 0;
    mock_drop_wait(drop);
    uint64_t draw = seed;
    for (int i = 0; i < 100; i++) {
        int s = (int)(draw_next(&draw) % STREAMS);
        int what = (int)(draw_next(&draw) % 6);
        if (what < 2) {
            last[s] = write_note(&story, bed.stream[s]);
        } else if (what == 2 && places < 64 && last[s] >= 0) {
            assert_int_equal(device_cuda.record(bed.device, bed.stream[s], &placed[places].place), COMM_OK);
            placed[places++].before = last[s];
        } else if (what == 3 && places && edges < 64) {
            int p = (int)(draw_next(&draw) % (unsigned)places);
            assert_int_equal(device_cuda.wait(bed.device, bed.stream[s], &placed[p].place), COMM_OK);
            last[s] = write_note(&story, bed.stream[s]);
            edge[edges].before = placed[p].before;
            edge[edges++].after = last[s];
        } else {
            mock_step();
            device_cuda.poll(bed.device);
        }
        for (int p = 0; p < places; p++)
            good &= !reached(&placed[p].place) || story.note[placed[p].before].at != 0;
    }
    mock_drain();
    device_cuda.poll(bed.device);
    for (int p = 0; p < places; p++)
        good &= reached(&placed[p].place);
    for (int i = 0; i < edges; i++)
        good &= story.note[edge[i].before].at < story.note[edge[i].after].at;
    drop_bed(&bed);
    return good;
}

static void waits_order_streams(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= selected(2000, 2000, 400); seed++) {
        int queues = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 3 : 8;
        if (!tell_story(seed, queues, seed % 2 == 0, 0))
            fail_msg("seed %llu: an order that the waits forbid", (unsigned long long)seed);
    }
}

/* Tests the test: if a wait is dropped, tell_story must detect it. */
static void a_lost_wait_is_seen(void **state)
{
    int seen = 0, seeds = (int)selected(1000, 1000, 200);

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++)
        seen += !tell_story(seed, 8, true, 1 + seed % 4);
    printf("a lost wait was seen with %d of %d seeds\n", seen, seeds);
    assert_true(seen > 0);
}

/* ------------------------------------------------------------------------------------------------------------ faults */
/* One driver call fails. Each of our calls returns an error or succeeds, no stream blocks for ever, and nothing leaks. */
static void a_fault_at_every_call(void **state)
{
    struct bed bed;
    struct device_place place, gate;
    uint64_t tried = 0;
    int mine = 0;
    char why[200];

    (void)state;
    for (uint64_t n = 1; n < 1000; n++, tried++) {
        int before = mock_live();
        make_bed(&bed, &(struct mock_options){.seed = n, .queues = 2});
        device_cuda.close(bed.device);
        mock_fail(n, false);
        enum comm_result r = open_device(&bed.device, why);
        if (r == COMM_OK) {
            if (device_cuda.record(bed.device, bed.stream[0], &place) == COMM_OK)
                (void)!device_cuda.wait(bed.device, bed.stream[1], &place);
            if (device_cuda.park(bed.device, bed.stream[2], &gate) == COMM_OK)
                atomic_store(gate.word, gate.value);
            (void)device_cuda.kind(bed.device, &mine);
            mock_drain();
            assert_true(mock_idle());
            mock_run(true); /* the close may put the failed operation on a stream again */
            device_cuda.close(bed.device);
            mock_run(false);
        } else {
            assert_true(r == COMM_ERR_BACKEND || r == COMM_ERR_MEMORY);
        }
        const char *failed = mock_failed();
        mock_fail(0, false);
        for (int i = 0; i < STREAMS; i++)
            bench_drop_stream(&bed.bench, bed.stream[i]);
        bench_close(&bed.bench);
        if (!failed)
            break;
        if (!strstr(failed, "Destroy") && !strstr(failed, "Free") && !strstr(failed, "Release") && !strstr(failed, "PushCurrent") &&
            mock_live() > before) {
            mock_list_live();
            fail_msg("call %llu, %s, failed: %d things are left", (unsigned long long)n, failed, mock_live() - before);
        }
    }
    printf("%llu calls failed, one at a time\n", (unsigned long long)tried);
    assert_true(tried > 20);
}

/* Two ranks have the same device, which all ranks detect before they join. NCCL already listens at the id, so the next communicator uses
 * it. */
static void a_join_that_fails_leaves_no_listener(void **state)
{
    enum { RANKS = 2 };
    const struct comm_env *env = wire_default_env();
    char why[200] = "";
    uint64_t before;
    int live;

    (void)state;
    mock_reset(&(struct mock_options){.seed = 1});
    before = mock_listeners();
    live = mock_live();
    env->start(env);
    struct native_config config = {
        .env = env, .device = "cuda:1", .rank = -1, .ranks = RANKS, .error_text = why, .error_text_bytes = sizeof why};
    struct native *native = NULL;
    assert_int_equal(native_nccl.open(&config, &native), COMM_OK);
    for (int i = 0; i < 5; i++) {
        struct native_channel *channel[RANKS];
        unsigned char offers[RANKS][NATIVE_OFFER_BYTES];
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(native_nccl.join(native, &(struct wire_team){.rank = r, .size = RANKS}, NULL, offers[r], &channel[r]),
                             COMM_OK);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(native_nccl.join(native, &(struct wire_team){.rank = r, .size = RANKS}, offers, NULL, &channel[r]),
                             COMM_ERR_CONFIG);
    }
    assert_int_equal(mock_listeners() - before, 1);
    native_nccl.close(native);
    assert_int_equal(mock_live(), live);
}

static void never_end_the_split(void *begun)
{
    mock_slow(-1);
    atomic_store((_Atomic int *)begun, 1);
}

/* NCCL gives the child when the split has ended, also if the abort of its parent ended it. */
static void an_abort_while_nccl_splits_leaves_no_communicator(void **state)
{
    const struct comm_env *env = wire_default_env();
    struct native_config config = {.env = env, .rank = -1, .ranks = 1, .deadline = env->now(env) + INT64_C(60000000000)};
    unsigned char offer[NATIVE_OFFER_BYTES] = {0};
    struct wire_team alone = {.rank = 0, .size = 1};
    struct native_channel *channel = NULL;
    struct native *native = NULL;
    _Atomic int begun = 0;

    (void)state;
    mock_reset(&(struct mock_options){.seed = 1});
    env->start(env);
    int live = mock_live();
    assert_int_equal(native_nccl.open(&config, &native), COMM_OK);
    mock_at("ncclCommSplit", never_end_the_split, &begun);
    assert_int_equal(native_nccl.join(native, &alone, NULL, offer, &channel), COMM_OK);
    assert_int_equal(native_nccl.join(native, &alone, offer, NULL, &channel), COMM_OK);
    while (!atomic_load(&begun))
        bench_turn();
    native_nccl.leave(channel, NATIVE_LEAVE_FAILED);
    native_nccl.leave(channel, NATIVE_LEAVE_CLOSE);
    native_nccl.close(native);
    mock_at(NULL, NULL, NULL);
    assert_int_equal(mock_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_is_reached_behind_the_work_before_it),
        cmocka_unit_test(a_place_stays_reached),
        cmocka_unit_test(too_many_places_are_full),
        cmocka_unit_test(a_parked_stream_goes_on_by_one_store),
        cmocka_unit_test(parks_are_bounded_and_come_back),
        cmocka_unit_test(without_memory_operations),
        cmocka_unit_test(memory_is_told_apart),
        cmocka_unit_test(devices_have_names),
        cmocka_unit_test(waits_order_streams),
        cmocka_unit_test(a_lost_wait_is_seen),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(a_join_that_fails_leaves_no_listener),
        cmocka_unit_test(an_abort_while_nccl_splits_leaves_no_communicator),
    };
    return cmocka_run_group_tests_name("cuda_place", tests, NULL, NULL);
}
