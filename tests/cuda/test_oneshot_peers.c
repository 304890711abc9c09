/*
 * Backend cuda where devices can access each other: the slots of a communicator lie in their memory if that takes less time, on all ranks
 * or on none. Groups of devices that reach each other, devices that read wrong data, driver calls that fail, and more communicators than
 * there are slots. A kernel that is given memory which its device cannot access, and memory that is unmapped while a kernel reads it, are
 * misuses, for which the mock driver looks.
 */
#define _GNU_SOURCE
#include "oneshot.h"

#include "../conform/oracle.h"
#include "clean.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static _Atomic int told, warned;
static char last_told[512], last_warned[512];

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    if (!strstr(line, "kernels exchange through"))
        return;
    if (level == COMM_LOG_WARNING) {
        snprintf(last_warned, sizeof last_warned, "%s", line);
        atomic_fetch_add(&warned, 1);
    } else if (level == COMM_LOG_INFO) {
        snprintf(last_told, sizeof last_told, "%s", line);
        atomic_fetch_add(&told, 1);
    }
}

static struct comm_config config_of(void)
{
    return (struct comm_config){
        .size = sizeof(struct comm_config), .backend = "cuda", .operation_timeout_ns = 20 * RIG_S, .log = hear, .log_level = COMM_LOG_INFO};
}

static void open_peers(int32_t n, const struct mock_options *options)
{
    struct comm_config config = config_of();

    atomic_store(&told, 0);
    atomic_store(&warned, 0);
    mock_reset(options);
    mock_run(true);
    rig_open(&device, n, &config);
    rig_open(&host, n, COMM_CONFIG(.engine_of = device.world[0], .backend = "local", .operation_timeout_ns = 20 * RIG_S));
    open_sides(n, NULL);
}

/* A line of the log is written by a thread. */
static void expect_line(const _Atomic int *count, const char *last, const char *text)
{
    int64_t until = rig_now() + RIG_PATIENCE;

    while (!atomic_load(count) && rig_now() < until)
        rig_nap(RIG_MS);
    EQUAL(atomic_load(count), 1);
    if (!strstr(last, text))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", last, text);
}

static const struct sum short_sum = {.type = COMM_F32, .op = COMM_SUM, .n = 3000};

/* Sums on a communicator of `ranks` ranks; returns by which way. */
static bool sums_go_by_devices(struct comm_communicator *const *c, uint64_t seed)
{
    struct mock_launches before = mock_launched(), after;
    struct comm_request q[RANKS], h[RANKS];

    for (uint64_t turn = 0; turn < 3; turn++) {
        put_inputs(&short_sum, seed + turn);
        issue(&short_sum, c, q);
        rig_wait_all(q, (size_t)ranks);
        check_way(q[0], false);
        if (c != device.world)
            continue;
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_allreduce(host.world[r], sides[r].host_in, sides[r].host_out, short_sum.n, short_sum.type, short_sum.op, &h[r]));
        rig_wait_all(h, (size_t)ranks);
        compare(&short_sum);
    }
    after = mock_launched();
    uint64_t all = after.all - before.all, by_devices = after.by_devices - before.by_devices;
    EQUAL(all, 3 * (uint64_t)ranks);
    CHECK(by_devices == 0 || by_devices == all);
    return by_devices != 0;
}

/* ------------------------------------------------------------------------------------------------------------ the choice */
static void check_explained(const char *through)
{
    struct comm_call call = {.size = sizeof call, .collective = "allreduce", .n = 3000, .type = COMM_F32, .op = COMM_SUM};
    char text[2048];

    MUST(comm_explain(device.world[ranks - 1], &call, text, sizeof text));
    if (!strstr(text, through))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", text, through);
}

RIG_TEST(the_faster_way_is_taken)
{
    for (int32_t n = 2; n <= RANKS; n += rig_quick() ? 3 : 1) {
        rig_note("%d ranks", n);
        open_peers(n, &(struct mock_options){.seed = (uint64_t)n, .queues = n % 2 ? 32 : 3});
        CHECK(sums_go_by_devices(device.world, 1));
        expect_line(&told, last_told, "through the devices' memory: an exchange took 400 ns");
        check_explained("cuda itself, one kernel on the device of each rank, through the devices' memory");
        EQUAL(atomic_load(&warned), 0);
        close_all();
        open_peers(n, &(struct mock_options){.seed = (uint64_t)n, .queues = 8, .host_ns = 700, .peer_ns = 701});
        CHECK(!sums_go_by_devices(device.world, 2));
        expect_line(&told, last_told, "through the host's pages: an exchange took 701 ns");
        check_explained("cuda itself, one kernel on the device of each rank, through the host's pages");
        close_all();
    }
}

RIG_TEST(every_pair_has_the_hosts_bits)
{
    unsigned thin = rig_thin(3, 9, 30), pair = 0;

    open_peers(5, &(struct mock_options){.seed = 7, .queues = 5});
    for (int type = 0; type < 64; type++) {
        for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
            if (!fold_has((enum comm_type)type, op) || ++pair % thin)
                continue;
            size_t part = ONESHOT_PART_BYTES / fold_bytes((uint32_t)type), lengths[] = {1, part - 1, part, part + 1, 2 * part + 5};
            struct sum s = {.type = (enum comm_type)type, .op = op, .n = lengths[pair % 5], .in_place = pair % 2 == 0};
            sum_and_compare(&s, pair, false);
        }
    }
    struct mock_launches launched = mock_launched();
    CHECK(launched.all > 10 && launched.all == launched.by_devices);
    close_all();
}

/* Devices 0 and 1, 2 and 3 reach each other. */
RIG_TEST(groups_of_devices)
{
    struct comm_communicator *pair[RANKS];
    struct comm_request q[RANKS];

    open_peers(4, &(struct mock_options){.seed = 4, .queues = 32, .island = 2});
    CHECK(!sums_go_by_devices(device.world, 1));
    expect_line(&told, last_told, "cannot access another one");
    for (int32_t r = 0; r < 4; r++)
        MUST(comm_split(device.world[r], r / 2, r, &pair[r], &q[r]));
    rig_wait_all(q, 4);
    ranks = 2; /* the first pair's */
    CHECK(sums_go_by_devices(pair, 2));
    ranks = 4;
    for (int32_t r = 0; r < 4; r++)
        MUST(comm_close(pair[r], COMM_DEFAULT_TIMEOUT));
    EQUAL(atomic_load(&warned), 0);
    close_all();
}

/* Neither is a warning: nothing else could be expected of these devices. */
RIG_TEST(devices_without_such_memory)
{
    open_peers(3, &(struct mock_options){.seed = 2, .queues = 8, .no_share = 1});
    CHECK(!sums_go_by_devices(device.world, 1));
    EQUAL(atomic_load(&warned), 0);
    close_all();
    open_peers(1, &(struct mock_options){.seed = 2, .queues = 8});
    CHECK(!sums_go_by_devices(device.world, 1));
    EQUAL(atomic_load(&warned), 0);
    close_all();
}

RIG_TEST(a_device_that_reads_wrong_data)
{
    open_peers(3, &(struct mock_options){.seed = 2, .queues = 8, .deaf = 1});
    CHECK(!sums_go_by_devices(device.world, 1));
    expect_line(&warned, last_warned, "a device read wrong data");
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ many communicators */
RIG_TEST(slots_are_used_again)
{
    struct comm_communicator *made[RANKS];
    _Atomic int mapped = 0;

    open_peers(3, &(struct mock_options){.seed = 9, .queues = 8});
    mock_at("cuMemMap", count_one, &mapped);
    for (int turn = 0; turn < 20; turn++) {
        rig_dup(device.world, 3, made);
        CHECK(sums_go_by_devices(made, (uint64_t)turn));
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_close(made[r], COMM_DEFAULT_TIMEOUT));
    }
    mock_at(NULL, NULL, NULL);
    EQUAL(atomic_load(&mapped), 0); /* each rank has mapped each peer's memory when the world opened */
    close_all();
}

/* The memory of a rank has slots for 15; the world has one of them. */
RIG_TEST(more_communicators_than_slots)
{
    enum { MANY = 18, SLOTS = 15 };
    struct comm_communicator *made[MANY][RANKS];

    open_peers(2, &(struct mock_options){.seed = 3, .queues = 8});
    for (int i = 0; i < MANY; i++) {
        rig_dup(device.world, 2, made[i]);
        EQUAL(sums_go_by_devices(made[i], (uint64_t)i), i + 1 < SLOTS);
    }
    EQUAL(atomic_load(&warned), 0);
    for (int i = 0; i < MANY; i++)
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_close(made[i][r], COMM_DEFAULT_TIMEOUT));
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ failures */
static bool is_of_choice(const char *call)
{
    static const char *const calls[] = {"cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cuDeviceCanAccessPeer", "cuMemCreate"};

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (call && strcmp(call + strlen("mock_"), calls[i]) == 0)
            return true;
    return false;
}

/* The n-th call of the driver fails while the world opens. It opens and is right, or not; a call that only the devices' memory needs does
 * not keep it from opening. Returns false if there are fewer calls. */
static bool fault_at(uint64_t n, int *choices)
{
    struct comm_config config = config_of();
    struct comm_request q[RANKS];

    rig_note("call %llu fails", (unsigned long long)n);
    atomic_store(&warned, 0);
    mock_reset(&(struct mock_options){.seed = n, .queues = 32});
    mock_run(true);
    open_sides(3, NULL);
    mock_fail(n, false);
    enum comm_result opened = comm_open_local(&config, 3, NULL, device.world);
    const char *call = mock_failed();
    mock_fail(0, false);
    *choices += is_of_choice(call);
    CHECK(opened == COMM_OK || !is_of_choice(call));
    CHECK(opened != COMM_ERR_TIMEOUT);
    if (opened == COMM_OK) {
        for (int32_t r = 0; r < 3; r++)
            bench_fill(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].in, 5, 2000);
        for (int32_t r = 0; r < 3; r++)
            MUST(comm_queue_wait_stream(device.world[r], sides[r].stream));
        for (int32_t r = 0; r < 3; r++)
            MUST(comm_allreduce(device.world[r], sides[r].in, sides[r].out, 2000, COMM_U32, COMM_SUM, &q[r]));
        rig_wait_all(q, 3);
        for (int32_t r = 0; r < 3; r++) {
            uint32_t got;
            bench_read(&sides[r].bench, sides[r].stream, &got, (const uint32_t *)(const void *)sides[r].out, 1);
            EQUAL(got, 15);
            MUST(comm_close(device.world[r], COMM_DEFAULT_TIMEOUT));
        }
    }
    CHECK(atomic_load(&warned) <= 1);
    close_sides();
    return call != NULL;
}

RIG_TEST(a_fault_at_every_call_of_an_open)
{
    uint64_t n = 1, step = rig_thin(1, 3, 9);
    int choices = 0;

    while (fault_at(n, &choices))
        n += step;
    CHECK(n > 60 && choices >= (step == 1 ? 9 : 1));
}

RIG_TEST(devices_that_reach_no_other_say_it_once)
{
    struct comm_communicator *made[RANKS];

    open_peers(3, &(struct mock_options){.seed = 2, .queues = 32, .island = 1});
    for (int i = 0; i < 3; i++) {
        rig_dup(device.world, 3, made);
        CHECK(!sums_go_by_devices(made, 1));
        for (int32_t r = 0; r < 3; r++)
            MUST(comm_close(made[r], COMM_DEFAULT_TIMEOUT));
    }
    expect_line(&told, last_told, "cannot access another one");
    close_all();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_way_is_taken),
        cmocka_unit_test(every_pair_has_the_hosts_bits),
        cmocka_unit_test(groups_of_devices),
        cmocka_unit_test(devices_without_such_memory),
        cmocka_unit_test(a_device_that_reads_wrong_data),
        cmocka_unit_test(slots_are_used_again),
        cmocka_unit_test(more_communicators_than_slots),
        cmocka_unit_test(a_fault_at_every_call_of_an_open),
        cmocka_unit_test(devices_that_reach_no_other_say_it_once),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_oneshot_peers", tests, NULL, NULL);
}
