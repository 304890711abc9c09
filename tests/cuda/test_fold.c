/*
 * Reductions on device buffers of backend nccl that NCCL lacks: operators of the program's own, a fixed order, long vectors in rounds. The
 * result must have the bits of the same call on host buffers. test_moves.c has all collectives with short vectors.
 */
#define _GNU_SOURCE
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

/* Words. LONG: several rounds, also of the blocks of an allreduce, which leave something. BLOCKS: an allreduce has blocks of one round. */
enum { RANKS = 3, LONG = 800008, SHORT = 48, BLOCKS = 50003 };
struct side {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
    uint32_t *host_in, *host_out, *got;
};
static struct side sides[RANKS];
static struct rig device, host;
static size_t words;

static void open_all(size_t room, enum comm_order order, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    words = room;
    rig_open(&device, RANKS, COMM_CONFIG(.backend = "nccl", .order = order, .operation_timeout_ns = 20 * RIG_S));
    rig_open(&host, RANKS, COMM_CONFIG(.engine_of = device.world[0], .backend = "local"));
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, room);
        s->out = bench_memory(&s->bench, room);
        s->host_in = malloc(room * 4);
        s->host_out = malloc(room * 4);
        s->got = malloc(room * 4);
        memset(s->host_out, 0, room * 4);
        bench_copy(&s->bench, s->stream, s->out, s->host_out, room * 4);
    }
}

static void close_all(void)
{
    rig_close(&host);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(device.world[r], COMM_DEFAULT_TIMEOUT);
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

/* Fractions whose sum depends on the order. */
static void fill_floats(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        for (size_t i = 0; i < words; i++) {
            float f = (float)((i * 2654435761u + (uint32_t)r * 40503u) % 1000003) / (r == 1 ? 7e4f : 3.0f);
            memcpy(&s->host_in[i], &f, 4);
        }
        bench_copy(&s->bench, s->stream, s->in, s->host_in, words * 4);
        MUST(comm_queue_wait_stream(device.world[r], s->stream));
    }
}

static void compare(int rank, size_t count)
{
    struct side *s = &sides[rank];
    size_t part = BENCH_READ_BYTES / 4;

    for (size_t at = 0; at < count; at += part) {
        size_t some = count - at < part ? count - at : part;
        bench_read(&s->bench, s->stream, s->got + at, s->out + at, some);
    }
    for (size_t i = 0; i < count; i++)
        if (s->got[i] != s->host_out[i])
            rig_die(__FILE__, __LINE__, "rank %d, word %zu: %08x on the device, %08x on the host", rank, i, s->got[i], s->host_out[i]);
}

/* ------------------------------------------------------------------------------------------------------------ own operators */
/* Products of 2x2 matrices modulo 2^32, which are associative and not commutative. */
static void multiply(void *inout, const void *in, size_t elements, void *arg)
{
    uint32_t *b = inout;
    const uint32_t *a = in;

    ++*(_Atomic int *)arg;
    for (size_t i = 0; i < elements; i++, a += 4, b += 4) {
        uint32_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

static const struct comm_op_options matrix = {.size = sizeof matrix, .name = "matrix", .element_bytes = 16, .ordered = 1};

enum { OWN_ALLREDUCE, OWN_REDUCE, OWN_SCATTER, OWN_SCAN, OWN_EXSCAN, OWN_KINDS };
static enum comm_result call_own(struct comm_communicator *c, int kind, const void *in, void *out, size_t bytes, comm_op op,
                                 struct comm_request *q)
{
    switch (kind) {
    case OWN_ALLREDUCE:
        return comm_allreduce(c, in, out, bytes, COMM_BYTE, op, q);
    case OWN_REDUCE:
        return comm_reduce(c, in, out, bytes, COMM_BYTE, op, 1, q);
    case OWN_SCATTER:
        return comm_reduce_scatter(c, in, out, bytes / RANKS / 16 * 16, COMM_BYTE, op, q);
    case OWN_SCAN:
        return comm_scan(c, in, out, bytes, COMM_BYTE, op, q);
    default:
        return comm_exscan(c, in, out, bytes, COMM_BYTE, op, q);
    }
}

static void own_operators(size_t room, const struct mock_options *options)
{
    static _Atomic int used[RANKS], on_host;
    struct comm_request q[RANKS], h[RANKS];
    comm_op op[RANKS], host_op[RANKS];

    open_all(room, COMM_ORDER_DEFAULT, options);
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_op_create(device.world[r], multiply, &used[r], &matrix, &op[r]));
        MUST(comm_op_create(host.world[r], multiply, &on_host, &matrix, &host_op[r]));
    }
    for (int kind = 0; kind < OWN_KINDS; kind++) {
        rig_note("own operator, kind %d, %zu words", kind, room);
        fill_floats();
        for (int r = 0; r < RANKS; r++) {
            struct side *s = &sides[r];
            MUST(call_own(device.world[r], kind, s->in, s->out, room * 4, op[r], &q[r]));
            MUST(call_own(host.world[r], kind, s->host_in, s->host_out, room * 4, host_op[r], &h[r]));
        }
        rig_wait_all(h, RANKS);
        rig_wait_all(q, RANKS);
        for (int r = 0; r < RANKS; r++)
            compare(r, room);
    }
    CHECK(used[0] > 0 && used[2] > 0);
    close_all();
}

RIG_TEST(an_operator_of_the_programs)
{
    own_operators(SHORT, &(struct mock_options){.seed = 1, .queues = 1});
    own_operators(SHORT, &(struct mock_options){.seed = 2, .no_memops = 1, .no_kernels = 1});
    own_operators(rig_quick() ? LONG / 2 : LONG, &(struct mock_options){.seed = 3, .queues = 8});
}

/* ------------------------------------------------------------------------------------------------------------ fixed order */
/* By the kernel on the device, where nvcc was there when the module was built; and by the host's. */
RIG_TEST(a_fixed_order_has_the_hosts_bits)
{
    struct comm_request q[RANKS], h[RANKS];

    for (int no_kernels = 0; no_kernels < 2; no_kernels++) {
        struct comm_info info = {.size = sizeof info};
        open_all(LONG, COMM_ORDER_FIXED, &(struct mock_options){.seed = 4, .no_kernels = no_kernels});
        MUST(comm_describe(device.world[0], &info));
        EQUAL(info.fixed_order, 1);
        fill_floats();
        for (int r = 0; r < RANKS; r++) {
            struct side *s = &sides[r];
            MUST(comm_allreduce(device.world[r], s->in, s->out, LONG, COMM_F32, COMM_SUM, &q[r]));
            MUST(comm_allreduce(host.world[r], s->host_in, s->host_out, LONG, COMM_F32, COMM_SUM, &h[r]));
        }
        rig_wait_all(h, RANKS);
        rig_wait_all(q, RANKS);
        for (int r = 0; r < RANKS; r++)
            compare(r, LONG);
        close_all();
    }
}

/* ------------------------------------------------------------------------------------------------------------ who reduced */
/* The request says what did the call, and comm_explain says it before. name NULL: NCCL. */
static void says(enum comm_type type, comm_op op, const char *name)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q[RANKS];
    char text[2048], predicted[64];
    struct comm_call call = {.size = sizeof call, .collective = "allreduce", .n = SHORT, .type = type, .op = op};

    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(device.world[r], sides[r].in, sides[r].out, SHORT, type, op, &q[r]));
    rig_wait_all(q, RANKS);
    MUST(comm_describe_request(q[0], &info));
    MUST(comm_explain(device.world[0], &call, text, sizeof text));
    snprintf(predicted, sizeof predicted, "%s%s%s", name ? "device buffers: " : ": nccl itself", name ? name : "",
             name ? ", moved by NCCL" : "");
    if (strcmp(info.algorithm, name ? name : "nccl") != 0 || !strstr(text, predicted))
        rig_die(__FILE__, __LINE__, "expected %s; the request says \"%s\", comm_explain: %s", name ? name : "nccl", info.algorithm, text);
}

static void who_reduced(enum comm_order order, int no_kernels)
{
    static _Atomic int used;
    const char *devices = HAS_KERNELS && !no_kernels ? "nccl+kernel" : "nccl+host";
    comm_op own[RANKS];

    rig_note("order %d, no_kernels %d", (int)order, no_kernels);
    open_all(SHORT, order, &(struct mock_options){.seed = 7, .queues = 32, .no_kernels = no_kernels});
    for (int r = 0; r < RANKS; r++)
        MUST(comm_op_create(device.world[r], multiply, &used, &matrix, &own[r]));
    says(COMM_U32, COMM_SUM, NULL);
    says(COMM_F32, COMM_SUM, order == COMM_ORDER_FIXED ? devices : NULL);
    says(COMM_U32, COMM_BXOR, devices);
    says(COMM_F32, COMM_MIN, devices);
    says(COMM_BOOL, COMM_LOR, "nccl+host");
    says(COMM_BYTE, own[0], "nccl+host");
    for (int r = 0; r < RANKS; r++)
        comm_op_free(device.world[r], own[r]);
    close_all();
}

RIG_TEST(a_request_says_who_reduced)
{
    for (int no_kernels = 0; no_kernels < 2; no_kernels++) {
        who_reduced(COMM_ORDER_DEFAULT, no_kernels);
        who_reduced(COMM_ORDER_FIXED, no_kernels);
    }
}

/* ------------------------------------------------------------------------------------------------------------ what goes wrong */
/* One rank has host buffers, so a program would do its part: the ranks would wait for each other for ever. */
RIG_TEST(a_rank_with_host_buffers_is_a_mismatch)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request q[RANKS];

    open_all(SHORT, COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 5, .queues = 32});
    for (int r = 0; r < RANKS; r++) {
        struct side *s = &sides[r];
        bool here = r == 2;
        MUST(comm_allreduce(device.world[r], here ? s->host_in : s->in, here ? s->host_out : s->out, SHORT, COMM_U32, COMM_BXOR, &q[r]));
    }
    for (int r = 0; r < RANKS; r++)
        IS(comm_wait(q[r], 10 * RIG_S), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(device.world[0], &error));
    if (!strstr(error.text, "on device memory with the host's operator"))
        rig_die(__FILE__, __LINE__, "\"%s\"", error.text);
    close_all();
}

/* The n-th call of CUDA or NCCL fails, or the next one that is not spared. Returns its number; 0: there are fewer. */
static uint64_t fault(uint64_t n, size_t room, int no_kernels)
{
    struct comm_request q[RANKS] = {COMM_REQUEST_NONE};
    bool made = true;

    rig_note("%zu words, call %llu fails", room, (unsigned long long)n);
    open_all(
        room, COMM_ORDER_DEFAULT,
        &(struct mock_options){.seed = n, .queues = 32, .no_kernels = no_kernels, .first = selected(0, 8, 1), .every = selected(0, 6, 24)});
    mock_fail(n, false);
    for (int r = 0; r < RANKS && made; r++)
        made = comm_allreduce(device.world[r], sides[r].in, sides[r].out, room, COMM_U32, COMM_BXOR, &q[r]) == COMM_OK;
    uint64_t failed = mock_failed_at();
    mock_fail(0, false);
    for (int r = 0; r < RANKS && !made; r++)
        (void)!comm_revoke(device.world[r]);
    for (int r = 0; r < RANKS; r++)
        CHECK(comm_wait(q[r], 10 * RIG_S) != COMM_PENDING);
    close_all();
    return failed;
}

static void faults(size_t room)
{
    for (int no_kernels = 0; no_kernels < 2; no_kernels++) {
        uint64_t n = 0, tried = 0;
        for (uint64_t at = 0; (at = fault(n + 1, room, no_kernels)); n = at)
            tried++;
        printf("%zu words: %llu of %llu calls failed, one at a time\n", room, (unsigned long long)tried, (unsigned long long)n);
        CHECK(tried > 5 && n > 20);
    }
}

RIG_TEST(a_fault_at_every_call)
{
    faults(SHORT);
}

RIG_TEST(a_fault_at_every_call_with_blocks)
{
    faults(BLOCKS);
}

/* The communicator fails while a stream stands before the kernel. The step runs later, without its operator. */
RIG_TEST(a_step_after_a_failure)
{
    static _Atomic int used;
    struct comm_request q[RANKS];
    comm_op op[RANKS];

    open_all(SHORT, COMM_ORDER_DEFAULT, &(struct mock_options){.seed = 6, .queues = 32});
    for (int r = 0; r < RANKS; r++) {
        MUST(comm_op_create(device.world[r], multiply, &used, &matrix, &op[r]));
        struct CUstream_st *stream;
        MUST(comm_stream_of(device.world[r], &stream));
        mock_hold(stream, true);
    }
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(device.world[r], sides[r].in, sides[r].out, SHORT * 4, COMM_BYTE, op[r], &q[r]));
    MUST(comm_revoke(device.world[0]));
    for (int r = 0; r < RANKS; r++) {
        struct CUstream_st *stream;
        CHECK(comm_wait(q[r], 10 * RIG_S) != COMM_OK);
        comm_op_free(device.world[r], op[r]);
        if (comm_stream_of(device.world[r], &stream) == COMM_OK)
            mock_hold(stream, false);
    }
    rig_progress_for(host.world[0], 50 * RIG_MS);
    EQUAL(used, 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operator_of_the_programs), cmocka_unit_test(a_fixed_order_has_the_hosts_bits),
        cmocka_unit_test(a_request_says_who_reduced),  cmocka_unit_test(a_rank_with_host_buffers_is_a_mismatch),
        cmocka_unit_test(a_fault_at_every_call),       cmocka_unit_test(a_fault_at_every_call_with_blocks),
        cmocka_unit_test(a_step_after_a_failure),
    };
    return cmocka_run_group_tests_name("cuda_fold", tests, NULL, NULL);
}
