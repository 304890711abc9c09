/*
 * Device buffers on a host backend. An access of the CPU to the device's memory ends the test. All ranks are in this process, on one
 * device. Tests descriptions, long operations in parts, bounds, a fault at every call, a device that stops while the communicator fails,
 * and that the steady state allocates nothing.
 */
#include "conform/rig.h"
#include "mock_everywhere.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>

enum { RANKS = 3, N = 1000, LONG = (9 << 20) / sizeof(float) + 77 };

static struct rig rig;
static float *in[RANKS], *out[RANKS];

static void take(size_t n)
{
    for (int r = 0; r < RANKS; r++) {
        in[r] = mock_take(n * sizeof(float));
        out[r] = mock_take(n * sizeof(float));
    }
}

/* Values whose sum depends on the order. */
static float value(int r, size_t i)
{
    return (float)((i * 2654435761u + (unsigned)r * 40503u) % 1000003) * 1e-3f;
}

static void fill(size_t n)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < n; i++)
            ((float *)mock_peek(in[r]))[i] = value(r, i);
}

static void give(void)
{
    for (int r = 0; r < RANKS; r++) {
        mock_give(in[r]);
        mock_give(out[r]);
    }
}

static uint32_t flags_of(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    return info.flags;
}

static void open_all(size_t n)
{
    take(n);
    fill(n);
    rig_open(&rig, RANKS, NULL);
}

static void close_all(void)
{
    rig_close(&rig);
    give();
}

static void same(const void *device, const void *host, size_t bytes)
{
    CHECK(memcmp(mock_peek(device), host, bytes) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ results */
/* The same sum in host memory. Its bits must be equal. */
static float *host_sum(size_t n)
{
    float *mine = malloc(RANKS * n * sizeof *mine), *sum = malloc(RANKS * n * sizeof *sum);
    struct comm_request q[RANKS];

    CHECK(mine && sum);
    for (int r = 0; r < RANKS; r++) {
        memcpy(mine + (size_t)r * n, mock_peek(in[r]), n * sizeof *mine);
        MUST(comm_allreduce(rig.world[r], mine + (size_t)r * n, sum + (size_t)r * n, n, COMM_F32, COMM_SUM, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        CHECK(!(flags_of(q[r]) & COMM_INFO_STAGED));
    free(mine);
    return sum;
}

static void sums_are_the_hosts(size_t n)
{
    struct comm_request q[RANKS];

    open_all(n);
    float *want = host_sum(n);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], in[r], out[r], n, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request(q[r], &info));
        EQUAL(info.flags, COMM_INFO_STAGED);
        EQUAL(info.bytes, n * sizeof(float));
        same(out[r], want, n * sizeof(float));
    }
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], COMM_IN_PLACE, in[r], n, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        same(in[r], want, n * sizeof(float));
    free(want);
    close_all();
}

RIG_TEST(a_sum_of_device_buffers_is_the_hosts)
{
    sums_are_the_hosts(1);
    sums_are_the_hosts(N);
}

RIG_TEST(a_long_sum_in_parts_is_the_hosts)
{
    sums_are_the_hosts(LONG);
}

RIG_TEST(a_long_sum_in_parts_on_a_device_that_is_late)
{
    mock_late(5);
    sums_are_the_hosts(LONG);
}

/* However long an operation is, its parts fit in an empty queue. */
RIG_TEST(a_long_sum_in_the_shortest_queue)
{
    struct comm_request q[RANKS];
    size_t n = (20 << 20) / sizeof(float) + 3;

    take(n);
    fill(n);
    rig_open_options(&rig, RANKS, "queue=16");
    float *want = host_sum(n);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], in[r], out[r], n, COMM_F32, COMM_SUM, &q[r]));
    IS(comm_allreduce(rig.world[0], in[0], out[0], n, COMM_F32, COMM_SUM, NULL), COMM_ERR_FULL); /* a full queue takes none of its parts */
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        same(out[r], want, n * sizeof(float));
    free(want);
    close_all();
}

RIG_TEST(others_that_are_long)
{
    struct comm_request q[RANKS];
    size_t bytes = LONG * sizeof(float);

    open_all(LONG);
    float *want = host_sum(LONG);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_reduce(rig.world[r], in[r], r == 1 ? out[r] : NULL, LONG, COMM_F32, COMM_SUM, 1, &q[r]));
    rig_wait_all(q, RANKS);
    same(out[1], want, bytes);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_scan(rig.world[r], in[r], out[r], LONG, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    same(out[RANKS - 1], want, bytes);
    same(out[0], mock_peek(in[0]), bytes);
    memset(mock_peek(out[0]), 7, bytes);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_exscan(rig.world[r], in[r], out[r], LONG, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    same(out[1], mock_peek(in[0]), bytes);
    CHECK(*(char *)mock_peek(out[0]) == 7); /* rank 0 gets no result */
    for (int r = 0; r < RANKS; r++)
        MUST(comm_broadcast(rig.world[r], in[r], LONG, COMM_F32, 2, &q[r]));
    rig_wait_all(q, RANKS);
    same(in[0], mock_peek(in[2]), bytes);
    free(want);
    close_all();
}

static void exchange(int from, int to, size_t n, size_t room, enum comm_result want)
{
    struct comm_request send, recv;
    struct comm_status status;

    rig_note("%zu elements into %zu, from %d to %d", n, room, from, to);
    memset(mock_peek(out[to]), 0, LONG * sizeof(float));
    MUST(comm_recv(rig.world[to], out[to], room, COMM_F32, from, 5, &status, &recv));
    MUST(comm_send(rig.world[from], in[from], n, COMM_F32, to, 5, &send));
    MUST(comm_wait(send, RIG_PATIENCE));
    IS(comm_wait(recv, RIG_PATIENCE), want);
    EQUAL(status.bytes, n * sizeof(float));
    size_t came = want == COMM_OK ? n : 0;
    same(out[to], mock_peek(in[from]), came * sizeof(float));
    EQUAL(((float *)mock_peek(out[to]))[came], 0);
    CHECK(flags_of(send) & flags_of(recv) & COMM_INFO_STAGED);
}

static void messages(void)
{
    open_all(LONG);
    exchange(0, 1, 10, 10, COMM_OK);
    exchange(0, 1, 10, 20, COMM_OK);
    exchange(1, 1, 10, 10, COMM_OK);
    exchange(2, 0, LONG - 1, LONG - 1, COMM_OK);
    exchange(2, 0, N, N / 2, COMM_ERR_TRUNCATED);
    rig_proves_alive(rig.world, RANKS);
    close_all();
}

RIG_TEST(messages_of_device_buffers)
{
    messages();
}

RIG_TEST(messages_on_a_device_that_is_late)
{
    mock_late(3);
    messages();
}

/* The second send of a pair must not overtake the first, whose copy is late. */
RIG_TEST(messages_keep_their_order)
{
    struct comm_request q[4];

    mock_late(20);
    open_all(N);
    static float host[2];
    float sent = 5;
    MUST(comm_send(rig.world[0], in[0], 1, COMM_F32, 1, 1, &q[0]));
    MUST(comm_send(rig.world[0], &sent, 1, COMM_F32, 1, 1, &q[1]));
    MUST(comm_recv(rig.world[1], &host[0], 1, COMM_F32, 0, 1, NULL, &q[2]));
    MUST(comm_recv(rig.world[1], &host[1], 1, COMM_F32, 0, 1, NULL, &q[3]));
    rig_wait_all(q, 4);
    CHECK(host[0] == value(0, 0) && host[1] == sent);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ plans, groups */
static void plan_of(struct comm_communicator *recorder, int r)
{
    MUST(comm_allreduce(recorder, in[r], out[r], N, COMM_F32, COMM_SUM, NULL));
    if (r == 0)
        MUST(comm_send(recorder, in[0], N, COMM_F32, 1, 9, NULL));
    if (r == 1)
        MUST(comm_recv(recorder, in[1], N, COMM_F32, 0, 9, NULL, NULL));
}

RIG_TEST(plans_of_device_buffers)
{
    struct comm_plan *plan[RANKS];
    struct comm_communicator *recorder;
    struct comm_request q[RANKS];

    open_all(N);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(rig.world[r], &recorder));
        plan_of(recorder, r);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int round = 0; round < 3; round++) {
        fill(N);
        float *want = host_sum(N);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, RANKS);
        for (int r = 0; r < RANKS; r++)
            same(out[r], want, N * sizeof(float));
        same(in[1], mock_peek(in[0]), N * sizeof(float));
        free(want);
    }
    for (int r = 0; r < RANKS; r++)
        comm_plan_free(plan[r]);
    close_all();
}

RIG_TEST(groups_of_device_buffers)
{
    struct comm_communicator *recorder;
    struct comm_request q[RANKS];

    open_all(2 * N);
    float *want = host_sum(2 * N);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_group_begin(rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, in[r], out[r], 10, COMM_F32, COMM_SUM, NULL));
        MUST(comm_allreduce(recorder, in[r] + 10, out[r] + 10, 2 * N - 10, COMM_F32, COMM_SUM, NULL));
        MUST(comm_group_end(recorder, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        same(out[r], want, 2 * N * sizeof(float));
    free(want);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ whose memory */
RIG_TEST(one_rank_on_the_device)
{
    static float host_in[N], host_out[RANKS][N];
    struct comm_request q[RANKS];

    open_all(N);
    float *want = host_sum(N);
    memcpy(host_in, mock_peek(in[1]), sizeof host_in);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], r == 1 ? host_in : in[r], r == 2 ? out[r] : host_out[r], N, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    CHECK(!memcmp(host_out[0], want, sizeof host_in) && !memcmp(host_out[1], want, sizeof host_in));
    same(out[2], want, sizeof host_in);
    CHECK(flags_of(q[0]) & COMM_INFO_STAGED && !(flags_of(q[1]) & COMM_INFO_STAGED));
    free(want);
    close_all();
}

/* A long operation on device buffers is split into parts, but not on a rank with a host buffer. All ranks get MISMATCH; nothing hangs. */
RIG_TEST(a_long_one_with_one_rank_on_the_host)
{
    float *host = calloc(LONG, sizeof *host);
    struct comm_request q[RANKS];
    struct comm_error error = {.size = sizeof error};

    open_all(LONG);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_broadcast(rig.world[r], r == 1 ? host : in[r], LONG, COMM_F32, 0, &q[r]); /* a later rank may get the error here */
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "broadcast"));
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(rig.world[r], RIG_PATIENCE);
    free(host);
    give();
}

static void names(struct comm_communicator *c, const char *first, const char *second)
{
    struct comm_error error = {.size = sizeof error};

    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, first) || !strstr(error.text, second))
        rig_die(__FILE__, __LINE__, "it says: %s", error.text);
}

RIG_TEST(a_buffer_that_ends_too_early)
{
    struct comm_window *w;
    struct comm_window_options options = {.size = sizeof options};

    open_all(N);
    size_t room = N;
    while (mock_peek(in[0] + room) != in[0] + room) /* whole pages were mapped */
        room++;
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < RANKS; r++) {
            IS(comm_allreduce(rig.world[r], in[r], out[r], room + 1, COMM_F32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
            names(rig.world[r], "in=0x", "ends before");
        }
        rig_proves_alive(rig.world, RANKS);
    }
    IS(comm_recv(rig.world[0], out[0] + 1, room, COMM_F32, 1, 1, NULL, NULL), COMM_ERR_ARGUMENT);
    names(rig.world[0], "buf=0x", "ends before");
    options.base = in[0];
    for (int r = 0; r < RANKS; r++)
        IS(NOW(comm_window_create, rig.world[r], 100, &options, &w), COMM_ERR_ARGUMENT);
    names(rig.world[0], "options.base=", "memory of the host");
    rig_proves_alive(rig.world, RANKS);
    close_all();
}

static void largest(void *inout, const void *from, size_t elements, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < elements; i++)
        if (((const float *)from)[i] > ((float *)inout)[i])
            ((float *)inout)[i] = ((const float *)from)[i];
}

RIG_TEST(an_operator_of_the_programs_own)
{
    const struct comm_op_options options = {.size = sizeof options, .name = "largest", .element_bytes = sizeof(float)};
    struct comm_request q[RANKS];
    comm_op op[RANKS];

    open_all(LONG);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_op_create(rig.world[r], largest, NULL, &options, &op[r]));
        MUST(comm_allreduce(rig.world[r], in[r], out[r], LONG * sizeof(float), COMM_BYTE, op[r], &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (size_t i = 0; i < LONG; i++) {
        float most = value(0, i);
        for (int r = 1; r < RANKS; r++)
            most = value(r, i) > most ? value(r, i) : most;
        EQUAL(((float *)mock_peek(out[2]))[i] == most, 1);
    }
    for (int r = 0; r < RANKS; r++)
        comm_op_free(rig.world[r], op[r]);
    close_all();
}

/* ------------------------------------------------------------------------------------------------------------ failures */
/* Every driver call fails once. Either all ranks get an error, or all results are right. */
static bool with_fault(uint64_t n, const float *want)
{
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];
    uint64_t before;
    bool well = true;

    rig_open(&rig, RANKS, NULL);
    before = mock_calls();
    mock_fail(n);
    for (int i = 0; i < RANKS; i++)
        r[i] = comm_allreduce(rig.world[i], in[i], out[i], N, COMM_F32, COMM_SUM, &q[i]);
    for (int i = 0; i < RANKS; i++) {
        r[i] = r[i] == COMM_OK ? comm_wait(q[i], RIG_PATIENCE) : r[i];
        CHECK(r[i] != COMM_PENDING);
        well &= r[i] == COMM_OK;
        if (r[i] == COMM_OK)
            same(out[i], want, N * sizeof(float));
    }
    bool over = mock_calls() - before < n;
    mock_fail(0);
    for (int i = 0; i < RANKS; i++)
        (void)!comm_close(rig.world[i], RIG_PATIENCE);
    CHECK(!over || well);
    return over;
}

static void faults(uint64_t apart)
{
    uint64_t n = 1;

    take(N);
    fill(N);
    rig_open(&rig, RANKS, NULL);
    float *want = host_sum(N);
    rig_close(&rig);
    while (!with_fault(n, want))
        rig_note("a fault at call %llu", (unsigned long long)(n += 1 + n / apart));
    CHECK(n > 15);
    free(want);
    give();
}

RIG_TEST(a_fault_at_every_call)
{
    faults(UINT64_MAX);
}

/* Most calls of a late device are event queries. So the distance between the calls that fail grows. */
RIG_TEST(faults_of_a_device_that_is_late)
{
    mock_late(2);
    faults(4);
}

/* The device stops, so no copy ends. The requests end nevertheless, and report that the buffers are held. */
static void stands(enum comm_result want, const struct comm_config *config)
{
    struct comm_request q[RANKS], message;
    struct comm_error error;

    take(N);
    fill(N);
    rig_open(&rig, RANKS, config);
    mock_stand(true);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], in[r], out[r], N, COMM_F32, COMM_SUM, &q[r]));
    MUST(comm_send(rig.world[0], in[0], N, COMM_F32, 1, 1, &message));
    IS(comm_wait(q[0], 20 * RIG_MS), COMM_PENDING);
    if (want == COMM_ERR_ABORTED)
        MUST(comm_abort(rig.world[1], 3));
    for (int r = 0; r < RANKS; r++) {
        rig_fails_within(rig.world[r], want, 10 * RIG_S, &error);
        IS(comm_wait(q[r], RIG_PATIENCE), want);
        EQUAL(flags_of(q[r]), COMM_INFO_STAGED | COMM_INFO_BUFFERS_HELD);
    }
    IS(comm_wait(message, RIG_PATIENCE), want);
    CHECK(flags_of(message) & COMM_INFO_BUFFERS_HELD);
    IS(comm_close(rig.world[2], 50 * RIG_MS), COMM_ERR_TIMEOUT);
    mock_stand(false);
    for (int r = 0; r < RANKS - 1; r++)
        IS(comm_close(rig.world[r], RIG_PATIENCE), COMM_OK);
    give();
}

RIG_TEST(an_abort_while_the_device_stands)
{
    stands(COMM_ERR_ABORTED, NULL);
}

RIG_TEST(a_deadline_while_the_device_stands)
{
    stands(COMM_ERR_TIMEOUT, COMM_CONFIG(.operation_timeout_ns = 300 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
}

/* ------------------------------------------------------------------------------------------------------------ steady */
/* The bytes that the C library has allocated. */
static uint64_t given(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void rounds(int count)
{
    struct comm_request q[RANKS], message[2];

    for (int i = 0; i < count; i++) {
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(rig.world[r], in[r], out[r], i % 50 ? N : LONG, COMM_F32, COMM_SUM, &q[r]));
        MUST(comm_send(rig.world[0], in[0], N, COMM_F32, 1, 1, &message[0]));
        MUST(comm_recv(rig.world[1], in[1], N, COMM_F32, 0, 1, NULL, &message[1]));
        rig_wait_all(q, RANKS);
        rig_wait_all(message, 2);
    }
}

RIG_TEST(nothing_is_made_once_all_is_there)
{
    open_all(LONG);
    rounds(2100); /* enough operations to fill the history of descriptions */
    uint64_t before = given(), objects = mock_objects();
    rounds(200);
    EQUAL(mock_objects() - objects, 0);
    EQUAL(given() - before, 0);
    close_all();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_device_buffers_is_the_hosts),
        cmocka_unit_test(a_long_sum_in_parts_is_the_hosts),
        cmocka_unit_test(a_long_sum_in_parts_on_a_device_that_is_late),
        cmocka_unit_test(a_long_sum_in_the_shortest_queue),
        cmocka_unit_test(others_that_are_long),
        cmocka_unit_test(messages_of_device_buffers),
        cmocka_unit_test(messages_on_a_device_that_is_late),
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(plans_of_device_buffers),
        cmocka_unit_test(groups_of_device_buffers),
        cmocka_unit_test(one_rank_on_the_device),
        cmocka_unit_test(a_long_one_with_one_rank_on_the_host),
        cmocka_unit_test(a_buffer_that_ends_too_early),
        cmocka_unit_test(an_operator_of_the_programs_own),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(faults_of_a_device_that_is_late),
        cmocka_unit_test(an_abort_while_the_device_stands),
        cmocka_unit_test(a_deadline_while_the_device_stands),
        cmocka_unit_test(nothing_is_made_once_all_is_there),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged", tests, NULL, NULL);
}
