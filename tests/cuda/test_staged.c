/*
 * Device buffers on a host backend. An access of the CPU to the device's memory ends the test. All ranks are in this process, on one
 * device. Tests descriptions, long operations in parts, bounds, and that the steady state allocates nothing; test_staged_faults.c has what
 * fails.
 */
#include "staged.h"

#include "conform/counted.h"
#include "mock_everywhere.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------------------------------ results */
static void sums_are_the_hosts(size_t n)
{
    struct comm_request q[RANKS];

    staged_open(n);
    float *want = staged_host_sum(n);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], n, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request(q[r], &info));
        EQUAL(info.flags, COMM_INFO_STAGED);
        EQUAL(info.bytes, n * sizeof(float));
        staged_same(staged_out[r], want, n * sizeof(float));
    }
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(staged_rig.world[r], COMM_IN_PLACE, staged_in[r], n, COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        staged_same(staged_in[r], want, n * sizeof(float));
    free(want);
    staged_close();
}

RIG_TEST(a_sum_of_device_buffers_is_the_hosts)
{
    sums_are_the_hosts(1);
    sums_are_the_hosts(N);
}

RIG_TEST(a_long_sum_in_parts_is_the_hosts)
{
    sums_are_the_hosts(staged_long());
}

RIG_TEST(a_long_sum_in_parts_on_a_device_that_is_late)
{
    mock_late(5);
    sums_are_the_hosts(staged_long());
}

/* However long an operation is, its parts fit in an empty queue. */
RIG_TEST(a_long_sum_in_the_shortest_queue)
{
    struct comm_request q[RANKS];
    size_t n = (20 << 20) / sizeof(float) + 3;

    if (rig_quick()) /* one thread adds 60 MiB: no sanitizer sees more than in the shorter sums */
        return;
    staged_take(n);
    staged_fill(n);
    rig_open_options(&staged_rig, RANKS, "queue=16");
    float *want = staged_host_sum(n);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], n, COMM_F32, COMM_SUM, &q[r]));
    /* A full queue takes none of its parts. */
    IS(comm_allreduce(staged_rig.world[0], staged_in[0], staged_out[0], n, COMM_F32, COMM_SUM, NULL), COMM_ERR_FULL);
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        staged_same(staged_out[r], want, n * sizeof(float));
    free(want);
    staged_close();
}

RIG_TEST(others_that_are_long)
{
    struct comm_request q[RANKS];
    size_t bytes = staged_long() * sizeof(float);

    staged_open(staged_long());
    float *want = staged_host_sum(staged_long());
    for (int r = 0; r < RANKS; r++)
        MUST(comm_reduce(staged_rig.world[r], staged_in[r], r == 1 ? staged_out[r] : NULL, staged_long(), COMM_F32, COMM_SUM, 1, &q[r]));
    rig_wait_all(q, RANKS);
    staged_same(staged_out[1], want, bytes);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_scan(staged_rig.world[r], staged_in[r], staged_out[r], staged_long(), COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    staged_same(staged_out[RANKS - 1], want, bytes);
    staged_same(staged_out[0], mock_peek(staged_in[0]), bytes);
    memset(mock_peek(staged_out[0]), 7, bytes);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_exscan(staged_rig.world[r], staged_in[r], staged_out[r], staged_long(), COMM_F32, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    staged_same(staged_out[1], mock_peek(staged_in[0]), bytes);
    CHECK(*(char *)mock_peek(staged_out[0]) == 7); /* rank 0 gets no result */
    for (int r = 0; r < RANKS; r++)
        MUST(comm_broadcast(staged_rig.world[r], staged_in[r], staged_long(), COMM_F32, 2, &q[r]));
    rig_wait_all(q, RANKS);
    staged_same(staged_in[0], mock_peek(staged_in[2]), bytes);
    free(want);
    staged_close();
}

/* In parts, as a sum is, each of which keeps the operator. */
RIG_TEST(a_pre_multiplied_sum_that_is_long)
{
    struct comm_request q[RANKS];
    const float half = 0.5f; /* it rounds nothing */
    size_t n = staged_long();

    staged_open(n);
    float *want = staged_host_sum(n);
    for (size_t i = 0; i < n; i++)
        want[i] *= half;
    for (int r = 0; r < RANKS; r++) {
        comm_op op;
        MUST(comm_op_create_premul_sum(staged_rig.world[r], COMM_F32, &half, &op));
        MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], n, COMM_F32, op, &q[r]));
        comm_op_free(staged_rig.world[r], op);
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        staged_same(staged_out[r], want, n * sizeof(float));
    CHECK(staged_flags(q[0]) & COMM_INFO_STAGED);
    free(want);
    staged_close();
}

static void exchange(int from, int to, size_t n, size_t room, enum comm_result want)
{
    struct comm_request send, recv;
    struct comm_status status;

    rig_note("%zu elements into %zu, from %d to %d", n, room, from, to);
    memset(mock_peek(staged_out[to]), 0, staged_long() * sizeof(float));
    MUST(comm_recv(staged_rig.world[to], staged_out[to], room, COMM_F32, from, 5, &status, &recv));
    MUST(comm_send(staged_rig.world[from], staged_in[from], n, COMM_F32, to, 5, &send));
    MUST(comm_wait(send, RIG_PATIENCE));
    IS(comm_wait(recv, RIG_PATIENCE), want);
    EQUAL(status.bytes, n * sizeof(float));
    size_t came = want == COMM_OK ? n : 0;
    staged_same(staged_out[to], mock_peek(staged_in[from]), came * sizeof(float));
    EQUAL(((float *)mock_peek(staged_out[to]))[came], 0);
    CHECK(staged_flags(send) & staged_flags(recv) & COMM_INFO_STAGED);
}

static void messages(void)
{
    staged_open(staged_long());
    exchange(0, 1, 10, 10, COMM_OK);
    exchange(0, 1, 10, 20, COMM_OK);
    exchange(1, 1, 10, 10, COMM_OK);
    exchange(2, 0, staged_long() - 1, staged_long() - 1, COMM_OK);
    exchange(2, 0, N, N / 2, COMM_ERR_TRUNCATED);
    rig_proves_alive(staged_rig.world, RANKS);
    staged_close();
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
    staged_open(N);
    static float host[2];
    float sent = 5;
    MUST(comm_send(staged_rig.world[0], staged_in[0], 1, COMM_F32, 1, 1, &q[0]));
    MUST(comm_send(staged_rig.world[0], &sent, 1, COMM_F32, 1, 1, &q[1]));
    MUST(comm_recv(staged_rig.world[1], &host[0], 1, COMM_F32, 0, 1, NULL, &q[2]));
    MUST(comm_recv(staged_rig.world[1], &host[1], 1, COMM_F32, 0, 1, NULL, &q[3]));
    rig_wait_all(q, 4);
    CHECK(host[0] == staged_value(0, 0) && host[1] == sent);
    staged_close();
}

/* ------------------------------------------------------------------------------------------------------------ plans, groups */
static void plan_of(struct comm_communicator *recorder, int r)
{
    MUST(comm_allreduce(recorder, staged_in[r], staged_out[r], N, COMM_F32, COMM_SUM, NULL));
    if (r == 0)
        MUST(comm_send(recorder, staged_in[0], N, COMM_F32, 1, 9, NULL));
    if (r == 1)
        MUST(comm_recv(recorder, staged_in[1], N, COMM_F32, 0, 9, NULL, NULL));
}

RIG_TEST(plans_of_device_buffers)
{
    struct comm_plan *plan[RANKS];
    struct comm_communicator *recorder;
    struct comm_request q[RANKS];

    staged_open(N);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_plan_begin(staged_rig.world[r], &recorder));
        plan_of(recorder, r);
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int round = 0; round < 3; round++) {
        staged_fill(N);
        float *want = staged_host_sum(N);
        for (int r = 0; r < RANKS; r++)
            MUST(comm_plan_start(plan[r], &q[r]));
        rig_wait_all(q, RANKS);
        for (int r = 0; r < RANKS; r++)
            staged_same(staged_out[r], want, N * sizeof(float));
        staged_same(staged_in[1], mock_peek(staged_in[0]), N * sizeof(float));
        free(want);
    }
    for (int r = 0; r < RANKS; r++)
        comm_plan_free(plan[r]);
    staged_close();
}

RIG_TEST(groups_of_device_buffers)
{
    struct comm_communicator *recorder;
    struct comm_request q[RANKS];

    staged_open(2 * N);
    float *want = staged_host_sum(2 * N);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_group_begin(staged_rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, staged_in[r], staged_out[r], 10, COMM_F32, COMM_SUM, NULL));
        MUST(comm_allreduce(recorder, staged_in[r] + 10, staged_out[r] + 10, 2 * N - 10, COMM_F32, COMM_SUM, NULL));
        MUST(comm_group_end(recorder, &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++)
        staged_same(staged_out[r], want, 2 * N * sizeof(float));
    free(want);
    staged_close();
}

/* ------------------------------------------------------------------------------------------------------------ whose memory */
RIG_TEST(one_rank_on_the_device)
{
    static float host_in[N], host_out[RANKS][N];
    struct comm_request q[RANKS];

    staged_open(N);
    float *want = staged_host_sum(N);
    memcpy(host_in, mock_peek(staged_in[1]), sizeof host_in);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(staged_rig.world[r], r == 1 ? host_in : staged_in[r], r == 2 ? staged_out[r] : host_out[r], N, COMM_F32,
                            COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    CHECK(!memcmp(host_out[0], want, sizeof host_in) && !memcmp(host_out[1], want, sizeof host_in));
    staged_same(staged_out[2], want, sizeof host_in);
    CHECK(staged_flags(q[0]) & COMM_INFO_STAGED && !(staged_flags(q[1]) & COMM_INFO_STAGED));
    free(want);
    staged_close();
}

/* A long operation on device buffers is split into parts, but not on a rank with a host buffer. All ranks get MISMATCH; nothing hangs. */
static void long_with_one_on_the_host(const char *name)
{
    float *host = calloc(2 * staged_long(), sizeof *host);
    struct comm_request q[RANKS];
    struct comm_error error = {.size = sizeof error};
    size_t block = staged_long() / RANKS;

    staged_open(staged_long());
    for (int r = 0; r < RANKS; r++) { /* a later rank may get the error here */
        float *in = r == 1 ? host : staged_in[r], *out = r == 1 ? host + staged_long() : staged_out[r];
        if (!strcmp(name, "broadcast"))
            (void)!comm_broadcast(staged_rig.world[r], in, staged_long(), COMM_F32, 0, &q[r]);
        else if (!strcmp(name, "allgather"))
            (void)!comm_allgather(staged_rig.world[r], in, out, block, COMM_F32, &q[r]);
        else
            (void)!comm_reduce_scatter(staged_rig.world[r], in, out, block, COMM_F32, COMM_SUM, &q[r]);
    }
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(staged_rig.world[0], &error));
    CHECK(strstr(error.text, name));
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(staged_rig.world[r], RIG_PATIENCE);
    free(host);
    staged_give();
}

RIG_TEST(a_long_one_with_one_rank_on_the_host)
{
    long_with_one_on_the_host("broadcast");
    long_with_one_on_the_host("allgather");
    long_with_one_on_the_host("reduce_scatter");
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

    staged_open(N);
    size_t room = N;
    while (mock_peek(staged_in[0] + room) != staged_in[0] + room) /* whole pages were mapped */
        room++;
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < RANKS; r++) {
            IS(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], room + 1, COMM_F32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
            names(staged_rig.world[r], "in=0x", "ends before");
        }
        rig_proves_alive(staged_rig.world, RANKS);
    }
    IS(comm_recv(staged_rig.world[0], staged_out[0] + 1, room, COMM_F32, 1, 1, NULL, NULL), COMM_ERR_ARGUMENT);
    names(staged_rig.world[0], "buf=0x", "ends before");
    options.base = staged_in[0];
    for (int r = 0; r < RANKS; r++)
        IS(NOW(comm_window_create, staged_rig.world[r], 100, &options, &w), COMM_ERR_ARGUMENT);
    names(staged_rig.world[0], "options.base=", "memory of the host");
    rig_proves_alive(staged_rig.world, RANKS);
    staged_close();
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
    size_t n = staged_long();

    staged_open(n);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_op_create(staged_rig.world[r], largest, NULL, &options, &op[r]));
        MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], n * sizeof(float), COMM_BYTE, op[r], &q[r]));
    }
    rig_wait_all(q, RANKS);
    for (size_t i = 0; i < n; i++) {
        float most = staged_value(0, i);
        for (int r = 1; r < RANKS; r++)
            most = staged_value(r, i) > most ? staged_value(r, i) : most;
        EQUAL(((float *)mock_peek(staged_out[2]))[i] == most, 1);
    }
    for (int r = 0; r < RANKS; r++)
        comm_op_free(staged_rig.world[r], op[r]);
    staged_close();
}

/* ------------------------------------------------------------------------------------------------------------ steady */
/* In parts, of blocks with different lengths. */
static void uneven_round(void)
{
    const size_t counts[RANKS] = {staged_long() / 2, 0, staged_long() / 3}, displs[RANKS] = {staged_long() / 2, 0, 0};
    struct comm_request q[2 * RANKS];

    for (int r = 0; r < RANKS; r++)
        MUST(comm_allgather_v(staged_rig.world[r], staged_in[r], staged_out[r], counts, displs, COMM_F32, &q[r]));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_reduce_scatter_v(staged_rig.world[r], staged_out[r], staged_in[r], counts, COMM_F32, COMM_SUM, &q[RANKS + r]));
    rig_wait_all(q, 2 * RANKS);
}

/* `longs` of them are long: an allreduce, an allgather, an allgather_v and a reduce_scatter_v, all in parts. */
static void rounds(int count, int longs)
{
    struct comm_request q[RANKS], message[2];

    for (int i = 0; i < count; i++) {
        bool is_long = longs && i % (count / longs) == 0;
        for (int r = 0; r < RANKS; r++)
            MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], is_long ? staged_long() : N, COMM_F32, COMM_SUM, &q[r]));
        for (int r = 0; r < RANKS && is_long; r++)
            MUST(comm_allgather(staged_rig.world[r], staged_in[r], staged_out[r], staged_long() / RANKS, COMM_F32, &q[r]));
        if (is_long)
            uneven_round();
        MUST(comm_send(staged_rig.world[0], staged_in[0], N, COMM_F32, 1, 1, &message[0]));
        MUST(comm_recv(staged_rig.world[1], staged_in[1], N, COMM_F32, 0, 1, NULL, &message[1]));
        rig_wait_all(q, RANKS);
        rig_wait_all(message, 2);
    }
}

RIG_TEST(nothing_is_made_once_all_is_there)
{
    bool counted = counted_can();

    staged_open(staged_long());
    rounds(20, 4);
    rounds(counted ? 2100 : 40, 0); /* 2100: enough operations to fill the history of descriptions */
    rounds(20, 2);
    uint64_t before = counted_calls(), objects = mock_objects();
    rounds(counted ? 200 : 40, 4);
    EQUAL(mock_objects() - objects, 0);
    if (counted_calls() != before)
        counted_tell();
    EQUAL(counted_calls() - before, 0);
    staged_close();
}

/* Whole, it would need as much as it has input and output. */
RIG_TEST(a_long_allgather_needs_few_stages)
{
    enum { BYTES = 48 << 20 };
    struct comm_request q;
    void *in = mock_take(BYTES), *out = mock_take(BYTES);

    mock_late(5); /* so that as many parts as may run at once do */
    rig_open(&staged_rig, 1, NULL);
    MUST(comm_allgather(staged_rig.world[0], in, out, BYTES, COMM_BYTE, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    CHECK(mock_pinned() > BYTES / 4 && mock_pinned() < BYTES);
    rig_close(&staged_rig);
    mock_give(in);
    mock_give(out);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_device_buffers_is_the_hosts),
        cmocka_unit_test(a_long_sum_in_parts_is_the_hosts),
        cmocka_unit_test(a_long_sum_in_parts_on_a_device_that_is_late),
        cmocka_unit_test(a_long_sum_in_the_shortest_queue),
        cmocka_unit_test(others_that_are_long),
        cmocka_unit_test(a_pre_multiplied_sum_that_is_long),
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
        cmocka_unit_test(a_fault_at_every_call_of_a_message),
        cmocka_unit_test(faults_of_a_device_that_is_late),
        cmocka_unit_test(an_abort_while_the_device_stands),
        cmocka_unit_test(a_deadline_while_the_device_stands),
        cmocka_unit_test(faults_of_an_allgather_in_parts),
        cmocka_unit_test(faults_of_uneven_blocks_in_parts),
        cmocka_unit_test(an_abort_in_the_middle_of_a_sum),
        cmocka_unit_test(an_abort_in_the_middle_of_an_allgather),
        cmocka_unit_test(a_deadline_in_the_middle_of_an_allgather),
        cmocka_unit_test(an_abort_in_the_middle_of_uneven_blocks),
        cmocka_unit_test(nothing_is_made_once_all_is_there),
        cmocka_unit_test(a_long_allgather_needs_few_stages),
    };

    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_staged", tests, NULL, NULL);
}
