/*
 * Pre-multiplied sums in the kernel of backend cuda: the results must have the bits of the same call on host buffers. Short ones of device
 * buffers go there; in a stream of the program's, all of allreduce and reduce_scatter.
 */
#define _GNU_SOURCE
#include "oneshot.h"

#include "../conform/oracle.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAUNCHES = 5 };

/* The calls of one test: the same on `of` (device memory) and on the world of host buffers. */
static struct {
    enum comm_type type;
    size_t n; /* elements of the result of a rank */
    bool scatters, in_place;
    struct comm_communicator *of[RANKS];
    comm_op op[RANKS], host_op[RANKS];
} sum;

static size_t inputs(void)
{
    return sum.n * (sum.scatters ? (size_t)ranks : 1);
}

static void make(enum comm_type type, uint64_t seed)
{
    unsigned char factor[16];

    sum.type = type;
    for (int32_t r = 0; r < ranks; r++) {
        oracle_fill(factor, 1, type, COMM_PROD, seed, r);
        MUST(comm_op_create_premul_sum(sum.of[r], type, factor, &sum.op[r]));
        MUST(comm_op_create_premul_sum(host.world[r], type, factor, &sum.host_op[r]));
    }
}

static void forget(void)
{
    for (int32_t r = 0; r < ranks; r++)
        comm_op_free(host.world[r], sum.host_op[r]);
}

static void forget_device_ops(void)
{
    for (int32_t r = 0; r < ranks; r++)
        comm_op_free(sum.of[r], sum.op[r]);
}

static void put(uint64_t seed)
{
    for (int32_t r = 0; r < ranks; r++) {
        oracle_fill(sides[r].host_in, inputs(), sum.type, COMM_SUM, seed, r);
        bench_copy(&sides[r].bench, sides[r].stream, sides[r].in, sides[r].host_in, inputs() * fold_bytes((uint32_t)sum.type));
    }
}

static void call(struct comm_communicator *c, const void *in, void *out, comm_op op, struct comm_request *q)
{
    if (sum.scatters)
        MUST(comm_reduce_scatter(c, in, out, sum.n, sum.type, op, q));
    else
        MUST(comm_allreduce(c, in, out, sum.n, sum.type, op, q));
}

static void call_on_devices(struct comm_request *q)
{
    for (int32_t r = 0; r < ranks; r++)
        call(sum.of[r], sum.in_place ? COMM_IN_PLACE : (void *)sides[r].in, sum.in_place ? sides[r].in : sides[r].out, sum.op[r],
             q ? &q[r] : NULL);
}

static void compare_with_host(void)
{
    struct comm_request h[RANKS];
    struct sum result = {.type = sum.type, .op = COMM_SUM, .n = sum.n, .in_place = sum.in_place};

    for (int32_t r = 0; r < ranks; r++)
        call(host.world[r], sides[r].host_in, sides[r].host_out, sum.host_op[r], &h[r]);
    rig_wait_all(h, (size_t)ranks);
    compare(&result);
}

/* ------------------------------------------------------------------------------------------------------------ on any communicator */
RIG_TEST(every_type_has_the_hosts_bits)
{
    unsigned thin = rig_thin(1, 3, 9), pair = 0;
    struct comm_request q[RANKS];

    for (int32_t n = 2; n <= RANKS; n++) {
        open_all(n, &(struct mock_options){.seed = (uint64_t)n, .queues = n % 2 ? 32 : 2, .island = n % 3 != 0});
        memcpy(sum.of, device.world, sizeof sum.of);
        for (int type = 0; type < 64; type++) {
            if (!fold_has((enum comm_type)type, COMM_SUM) || ++pair % thin)
                continue;
            size_t part = ONESHOT_PART_BYTES / fold_bytes((uint32_t)type), lengths[] = {1, part - 1, part, part + 1, 2 * part + 5};
            sum.n = lengths[pair % 5];
            sum.in_place = pair % 3 == 0;
            make((enum comm_type)type, pair);
            put(pair);
            for (int32_t r = 0; r < ranks; r++)
                MUST(comm_queue_wait_stream(sum.of[r], sides[r].stream));
            call_on_devices(q);
            forget_device_ops(); /* a call keeps its factor */
            rig_wait_all(q, (size_t)ranks);
            check_way(q[0], false);
            compare_with_host();
            forget();
        }
        close_all();
    }
}

RIG_TEST(a_plain_sum_on_one_rank)
{
    struct comm_request q[RANKS];
    float factor = 1;
    comm_op op;

    open_failing(2, 20 * RIG_S);
    MUST(comm_op_create_premul_sum(device.world[0], COMM_F32, &factor, &op));
    for (int32_t r = 0; r < 2; r++)
        (void)!comm_allreduce(device.world[r], sides[r].in, sides[r].out, 100, COMM_F32, r ? COMM_SUM : op, &q[r]);
    is_mismatch(q, "");
    close_failed();
}

/* ------------------------------------------------------------------------------------------------------------ in a stream */
static void open_in_streams(int32_t n, uint64_t seed)
{
    struct comm_request q[RANKS];

    open_all(n, &(struct mock_options){.seed = seed, .queues = 8, .island = seed % 2});
    for (int32_t r = 0; r < n; r++) {
        struct comm_options with = {.size = sizeof with, .stream = sides[r].stream};
        MUST(comm_dup(device.world[r], &with, &sum.of[r], &q[r]));
    }
    rig_wait_all(q, (size_t)n);
}

static void close_streams(void)
{
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_close(sum.of[r], 5 * RIG_S));
    close_all();
}

/* Lengths of less and more than a kernel's. In place, the result of a rank that scatters would be elsewhere. */
RIG_TEST(in_the_order_of_the_stream)
{
    static const enum comm_type types[] = {COMM_F32, COMM_BF16, COMM_I32, COMM_F64, COMM_U8, COMM_F16};
    static const size_t lengths[] = {1, 1023, 5461, 16385};

    for (size_t k = 0; k < 4 * sizeof types / sizeof *types; k++) {
        sum.n = lengths[k % 4];
        sum.scatters = k % 3 == 1;
        sum.in_place = k % 3 == 2;
        if (sum.scatters && sum.n * 3 * 8 > (size_t)ROOM)
            sum.n = 1000;
        open_in_streams(3, k + 1);
        make(types[k / 4], k);
        for (uint64_t turn = 0; turn < 2; turn++) {
            put(k + turn);
            call_on_devices(NULL);
            compare_with_host();
        }
        forget_device_ops();
        forget();
        close_streams();
    }
    sum.scatters = sum.in_place = false;
}

/* The graph has the factor: its operator is freed before the first launch. */
RIG_TEST(in_a_graph)
{
    struct bench_graph graph[RANKS];
    struct comm_request q[RANKS];

    sum.n = 20000;
    open_in_streams(3, 2);
    make(COMM_F32, 11);
    for (int32_t r = 0; r < ranks; r++) {
        bench_capture(&sides[r].bench, sides[r].stream);
        call(sum.of[r], sides[r].in, sides[r].out, sum.op[r], &q[r]);
        bench_end_capture(&sides[r].bench, sides[r].stream, &graph[r]);
    }
    forget_device_ops();
    for (uint64_t i = 0; i < LAUNCHES; i++) {
        put(100 + i);
        for (int32_t r = 0; r < ranks; r++)
            bench_launch(&sides[r].bench, &graph[r], sides[r].stream);
        compare_with_host();
    }
    for (int32_t r = 0; r < ranks; r++)
        bench_drop_graph(&sides[r].bench, &graph[r]);
    forget();
    close_streams();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_the_hosts_bits),
        cmocka_unit_test(a_plain_sum_on_one_rank),
        cmocka_unit_test(in_the_order_of_the_stream),
        cmocka_unit_test(in_a_graph),
    };
    return cmocka_run_group_tests_name("cuda_oneshot_premul", tests, NULL, NULL);
}
