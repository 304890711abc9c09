/*
 * Pre-multiplied sums on device buffers of backend nccl: by NCCL's own operators, and where NCCL has none, folded with the factors of all
 * ranks. The result must be that of the same call on host buffers.
 */
#define _GNU_SOURCE
#include "../conform/oracle.h"
#include "../conform/rig.h"
#include "bench.h"
#include "clean.h"
#include "mock.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, SHORT = 37, LONG = 300000 /* of f32: three rounds */, ROOM = RANKS * (SHORT + RANKS) * 16 / 4 };
enum kind { ALLREDUCE, REDUCE, SCAN, EXSCAN, REDUCE_SCATTER, REDUCE_SCATTER_V, KINDS };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
    unsigned char *host_in, *host_out, *got;
    comm_op op, host_op;
};
static struct side sides[RANKS];
static struct rig device, host;
static size_t words;
static int made; /* operators of NCCL */

static void count(void *arg)
{
    ++*(int *)arg;
}

static void open_all(size_t room, enum comm_order order, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    words = room;
    made = 0;
    mock_at("ncclRedOpCreatePreMulSum", count, &made);
    rig_open(&device, RANKS, COMM_CONFIG(.backend = "nccl", .order = order, .operation_timeout_ns = 20 * RIG_S));
    rig_open(&host, RANKS, COMM_CONFIG(.engine_of = device.world[0], .backend = "local"));
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, room);
        s->out = bench_memory(&s->bench, room);
        s->host_in = calloc(room, 4);
        s->host_out = calloc(room, 4);
        s->got = calloc(room, 4);
        CHECK(s->host_in && s->host_out && s->got);
    }
}

static void close_all(bool failed)
{
    rig_close(&host);
    for (int r = 0; r < RANKS; r++)
        CHECK(comm_close(device.world[r], COMM_DEFAULT_TIMEOUT) == COMM_OK || failed);
    mock_at("ncclRedOpCreatePreMulSum", NULL, NULL);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
        free(s->host_in);
        free(s->host_out);
        free(s->got);
    }
    clean_reap();
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ data */
/* Types that NCCL has, with 1, 2 and infinity. */
static const struct {
    enum comm_type type;
    uint64_t one, two, infinity;
} served[] = {
    {COMM_I8, 1, 2, 0},
    {COMM_U8, 1, 2, 0},
    {COMM_I32, 1, 2, 0},
    {COMM_U32, 1, 2, 0},
    {COMM_I64, 1, 2, 0},
    {COMM_U64, 1, 2, 0},
    {COMM_F8E4M3, 0x38, 0x40, 0},
    {COMM_F8E5M2, 0x3c, 0x40, 0},
    {COMM_F16, 0x3c00, 0x4000, 0x7c00},
    {COMM_BF16, 0x3f80, 0x4000, 0x7f80},
    {COMM_F32, 0x3f800000, 0x40000000, 0x7f800000},
    {COMM_F64, 0x3ff0000000000000, 0x4000000000000000, 0x7ff0000000000000},
};
enum { SERVED = sizeof served / sizeof *served };

static int served_at(enum comm_type type)
{
    int i = 0;
    while (i < SERVED && served[i].type != type)
        i++;
    return i < SERVED ? i : -1;
}

/* Values whose sums are exact in each type, since NCCL adds in an order of its own. */
static void fill_exact(unsigned char *to, size_t n, int type, uint64_t seed)
{
    size_t bytes = oracle_type_bytes(served[type].type);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * bytes, oracle_random(&seed) % 2 ? &served[type].one : &served[type].two, bytes);
}

/* exact: -1, or the type's row in `served`. Rank 1 multiplies by `by`. */
static void make(enum comm_type type, int exact, uint64_t seed, const void *by)
{
    unsigned char factor[16];
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        size_t n = words * 4 / oracle_type_bytes(type);
        if (exact >= 0) {
            memcpy(factor, r == 1 ? by : (const void *)&served[exact].one, oracle_type_bytes(type));
            fill_exact(s->host_in, n, exact, seed + (uint64_t)r);
        } else {
            oracle_fill(factor, 1, type, COMM_PROD, seed, r);
            oracle_fill(s->host_in, n, type, COMM_SUM, seed, r);
        }
        MUST(comm_op_create_premul_sum(device.world[r], type, factor, &s->op));
        MUST(comm_op_create_premul_sum(host.world[r], type, factor, &s->host_op));
    }
}

static void forget(void)
{
    for (int r = 0; r < RANKS; r++) {
        comm_op_free(device.world[r], sides[r].op);
        comm_op_free(host.world[r], sides[r].host_op);
    }
}

static enum comm_result call(struct comm_communicator *c, enum kind kind, const void *in, void *out, size_t n, enum comm_type type,
                             comm_op op, struct comm_request *q)
{
    const size_t counts[RANKS] = {n, 0, n + 2};
    switch (kind) {
    case ALLREDUCE:
        return comm_allreduce(c, in, out, n, type, op, q);
    case REDUCE:
        return comm_reduce(c, in, out, n, type, op, 1, q);
    case SCAN:
        return comm_scan(c, in, out, n, type, op, q);
    case EXSCAN:
        return comm_exscan(c, in, out, n, type, op, q);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, out, n, type, op, q);
    default:
        return comm_reduce_scatter_v(c, in, out, counts, type, op, q);
    }
}

static void one(enum kind kind, size_t n, enum comm_type type, bool in_place)
{
    struct comm_request q[RANKS], h[RANKS];
    size_t element = oracle_type_bytes(type), bytes = words * 4;
    rig_note("kind %d, %zu of %s%s", (int)kind, n, oracle_type_name(type), in_place ? ", in place" : "");
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        memset(s->host_out, 0x11, bytes);
        if (in_place)
            memcpy(s->host_out, s->host_in, bytes);
        bench_copy(&s->bench, s->stream, s->in, s->host_in, bytes);
        bench_copy(&s->bench, s->stream, s->out, s->host_out, bytes);
        bench_wait(&s->bench, s->stream); /* the call on host buffers writes what is copied */
    }
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bool own = in_place && (kind != REDUCE || r == 1);
        MUST(call(device.world[r], kind, own ? COMM_IN_PLACE : (void *)s->in, s->out, n, type, s->op, &q[r]));
        MUST(call(host.world[r], kind, own ? COMM_IN_PLACE : (void *)s->host_in, s->host_out, n, type, s->host_op, &h[r]));
    }
    rig_wait_all(h, RANKS);
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        size_t part = BENCH_READ_BYTES / 4, count = kind != REDUCE_SCATTER_V ? n : r == 0 ? n : r == 1 ? 0 : n + 2;
        size_t from = !in_place || kind < REDUCE_SCATTER ? 0 : kind == REDUCE_SCATTER ? (size_t)r * n : r ? n : 0;
        for (size_t at = 0; at < words; at += part)
            bench_read(&s->bench, s->stream, (uint32_t *)(void *)s->got + at, s->out + at, words - at < part ? words - at : part);
        EQUAL(oracle_differ(s->got + from * element, s->host_out + from * element, count, type), count);
    }
}

static void all_kinds(size_t n, enum comm_type type)
{
    for (int kind = 0; kind < KINDS; kind++) {
        one((enum kind)kind, n, type, false);
        one((enum kind)kind, n, type, true);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the tests */
static void every_type(enum comm_order order, const struct mock_options *options)
{
    uint64_t seed = options->seed;
    open_all(ROOM, order, options);
    for (int t = 0; t < ORACLE_TYPES; t++) {
        enum comm_type type = oracle_types[t];
        int exact = order == COMM_ORDER_FIXED ? -1 : served_at(type), before = made;
        if (!oracle_pair(type, COMM_PROD) || !oracle_pair(type, COMM_SUM))
            continue;
        make(type, exact, ++seed, exact >= 0 ? &served[exact].two : NULL);
        all_kinds(SHORT, type);
        bool is_integer = type <= COMM_U64 && served_at(type) >= 0; /* NCCL may add these in any order */
        EQUAL(made > before, exact >= 0 || is_integer);
        forget();
    }
    close_all(false);
}

RIG_TEST(premul_by_nccl)
{
    every_type(COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 1, .queues = 1});
    every_type(COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 2, .no_memops = 1});
}

RIG_TEST(premul_in_a_fixed_order)
{
    every_type(COMM_ORDER_FIXED, &(struct mock_options){.seed = 3});
    every_type(COMM_ORDER_FIXED, &(struct mock_options){.seed = 4, .no_kernels = 1, .queues = 1});
    open_all(LONG, COMM_ORDER_FIXED, &(struct mock_options){.seed = 5});
    make(COMM_F32, -1, 6, NULL);
    one(ALLREDUCE, LONG, COMM_F32, true);
    one(SCAN, LONG, COMM_F32, false);
    forget();
    close_all(false);
}

/* In a scan the ranks above contribute neutral elements, which an infinite factor must not turn into NaNs. */
RIG_TEST(premul_by_infinity)
{
    open_all(ROOM, COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 7});
    for (int i = 0; i < SERVED; i++) {
        if (!served[i].infinity)
            continue;
        make(served[i].type, i, 8, &served[i].infinity);
        all_kinds(SHORT, served[i].type);
        one(SCAN, SHORT, served[i].type, false);
        CHECK(oracle_differ(sides[0].got, sides[0].host_in, SHORT, served[i].type) == SHORT);
        forget();
    }
    close_all(false);
}

/* NCCL keeps no operator of the program's: it is freed with calls before it on the stream, and a dup uses it too. */
RIG_TEST(premul_freed_before_the_stream_comes_to_it)
{
    struct comm_request q[RANKS];
    struct comm_communicator *dup[RANKS];
    struct CUstream_st *stream;
    open_all(ROOM, COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 9, .queues = 32});
    rig_dup(device.world, RANKS, dup);
    make(COMM_F32, served_at(COMM_F32), 10, &(float){5});
    for (int r = 0; r < RANKS; r++) {
        bench_copy(&sides[r].bench, sides[r].stream, sides[r].in, sides[r].host_in, words * 4);
        bench_wait(&sides[r].bench, sides[r].stream);
        MUST(comm_stream_of(dup[r], &stream));
        mock_hold(stream, true);
        MUST(comm_allreduce(dup[r], sides[r].in, sides[r].out, 1, COMM_F32, sides[r].op, &q[r]));
    }
    forget();
    for (int r = 0; r < RANKS; r++) {
        IS(comm_test(q[r]), COMM_PENDING);
        IS(comm_allreduce(dup[r], sides[r].in, sides[r].out, 1, COMM_F32, sides[r].op, NULL), COMM_ERR_ARGUMENT);
        MUST(comm_stream_of(dup[r], &stream));
        mock_hold(stream, false);
    }
    rig_wait_all(q, RANKS);
    float in[RANKS], sum;
    for (int r = 0; r < RANKS; r++)
        memcpy(&in[r], sides[r].host_in, 4);
    for (int r = 0; r < RANKS; r++) {
        bench_read(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].got, sides[r].out, 1);
        memcpy(&sum, sides[r].got, 4);
        CHECK(sum == in[0] + 5 * in[1] + in[2]);
        MUST(comm_close(dup[r], RIG_PATIENCE));
    }
    close_all(false);
}

/* The n-th call of CUDA or NCCL fails, or the next one that is not spared. Returns its number; 0: there are fewer. */
static uint64_t fault(uint64_t n, enum comm_order order)
{
    struct comm_request q[RANKS] = {COMM_REQUEST_NONE};
    bool issued = true;
    rig_note("call %llu fails", (unsigned long long)n);
    open_all(ROOM, order,
             &(struct mock_options){.seed = n, .queues = 32, .no_kernels = 1, .first = selected(0, 8, 1), .every = selected(0, 6, 24)});
    make(COMM_F32, -1, n, NULL);
    mock_fail(n, false);
    for (int r = 0; r < RANKS && issued; r++)
        issued = comm_allreduce(device.world[r], sides[r].in, sides[r].out, SHORT, COMM_F32, sides[r].op, &q[r]) == COMM_OK;
    uint64_t failed = mock_failed_at();
    mock_fail(0, false);
    for (int r = 0; r < RANKS && !issued; r++)
        (void)!comm_revoke(device.world[r]);
    for (int r = 0; r < RANKS; r++)
        CHECK(comm_wait(q[r], 10 * RIG_S) != COMM_PENDING);
    close_all(true);
    return failed;
}

RIG_TEST(premul_with_a_fault_at_every_call)
{
    static const enum comm_order orders[] = {COMM_ORDER_DEFAULT, COMM_ORDER_FIXED};
    for (int i = 0; i < 2; i++) {
        uint64_t n = 0, tried = 0;
        for (uint64_t at = 0; (at = fault(n + 1, orders[i])); n = at)
            tried++;
        printf("%llu of %llu calls failed, one at a time\n", (unsigned long long)tried, (unsigned long long)n);
        CHECK(tried > 3 && n > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(premul_by_nccl),
        cmocka_unit_test(premul_in_a_fixed_order),
        cmocka_unit_test(premul_by_infinity),
        cmocka_unit_test(premul_freed_before_the_stream_comes_to_it),
        cmocka_unit_test(premul_with_a_fault_at_every_call),
    };
    return cmocka_run_group_tests_name("cuda_premul", tests, NULL, NULL);
}
