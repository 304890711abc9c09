/* The interpreter with real numbers, over a wire that behaves at random: several operations in flight, every algorithm,
 * compared with T computed separately. */
#define _GNU_SOURCE
#include "program/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "select/select.h"
#include "program/build.h"
#include "program/row.h"
#include "program/test_env.h"
#include "program/test_wire.h"
#include "selection.h"

#include <stdio.h>
#include <string.h>

enum { RUNS_MAX = 3, ELEMENT_BYTES_MAX = 8 };

/* ------------------------------------------------------------------------------------------------------------ numbers */
static const struct {
    enum comm_type type;
    comm_op op;
} kinds[] = {
    {COMM_F32, COMM_SUM}, {COMM_F64, COMM_AVG}, {COMM_I32, COMM_SUM}, {COMM_U64, COMM_BXOR}, {COMM_BF16, COMM_SUM}, {COMM_I8, COMM_MAX},
};

static float float_of_bf16(uint16_t half)
{
    uint32_t word = (uint32_t)half << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static uint16_t bf16_of_float(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* Large enough for any accumulator. */
union number {
    float f32;
    double f64;
    int32_t i32;
    uint64_t u64;
    int8_t i8;
};

static union number load(enum comm_type type, const char *at)
{
    union number x = {.u64 = 0};
    uint16_t half;
    memcpy(&half, at, sizeof half);
    if (type == COMM_BF16)
        x.f32 = float_of_bf16(half);
    else
        memcpy(&x, at, data_type_bytes(type));
    return x;
}

static void store(enum comm_type type, char *at, union number x)
{
    uint16_t half = bf16_of_float(x.f32);
    if (type == COMM_BF16)
        memcpy(at, &half, sizeof half);
    else
        memcpy(at, &x, data_type_bytes(type));
}

static union number combine(enum comm_type type, union number a, union number b)
{
    switch (type) {
    case COMM_F32:
    case COMM_BF16:
        return (union number){.f32 = a.f32 + b.f32};
    case COMM_F64:
        return (union number){.f64 = a.f64 + b.f64};
    case COMM_I32:
        return (union number){.i32 = (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32)};
    case COMM_I8:
        return a.i8 > b.i8 ? a : b;
    default:
        return (union number){.u64 = a.u64 ^ b.u64};
    }
}

/* Pairs along bit 0, then bit 1, ..: combines neighbours again and again; an odd one moves up. */
static union number tree(enum comm_type type, union number *x, uint32_t count)
{
    for (; count > 1; count = (count + 1) / 2) {
        for (uint32_t j = 0; 2 * j < count; j++)
            x[j] = 2 * j + 1 < count ? combine(type, x[2 * j], x[2 * j + 1]) : x[2 * j];
    }
    return x[0];
}

static void fill(struct test_wire *wire, enum comm_type type, char *at, size_t elements)
{
    for (size_t e = 0; e < elements; e++) {
        union number x = {.u64 = test_random(wire)};
        if (type == COMM_F64)
            x.f64 = (double)(x.u64 % 2000003) * 1e-3 - 900.0;
        else if (type == COMM_F32 || type == COMM_BF16)
            x.f32 = (float)(x.u64 % 200003) * 1e-2f - 900.0f;
        store(type, at + e * data_type_bytes(type), x);
    }
}

/* ------------------------------------------------------------------------------------------------------------ one operation */
struct op {
    const struct algo_row *row;
    int32_t size, root;
    size_t n, *counts, *displs, bytes; /* bytes: of an element */
    enum comm_type type;
    comm_op op;
    bool in_place;
    uint32_t seq;
    char *in[TEST_RANKS_MAX], *out[TEST_RANKS_MAX], *wanted[TEST_RANKS_MAX], *memory[TEST_RANKS_MAX][3];
    size_t out_bytes[TEST_RANKS_MAX];
    struct comm_program *program[TEST_RANKS_MAX];
    struct run run[TEST_RANKS_MAX];
    struct wire_view view[TEST_RANKS_MAX][PROGRAM_VIEWS_MAX];
    enum run_result result[TEST_RANKS_MAX];
};

static size_t block_at(const struct op *op, int32_t r)
{
    return op->displs ? op->displs[r] : (size_t)r * op->n;
}

static size_t block_count(const struct op *op, int32_t r)
{
    return op->counts ? op->counts[r] : op->n;
}

static size_t all_blocks(const struct op *op)
{
    return block_at(op, op->size - 1) + block_count(op, op->size - 1);
}

static bool gathers(const struct op *op)
{
    return op->row->collective == COLLECTIVE_ALLGATHER || op->row->collective == COLLECTIVE_ALLGATHER_V ||
           op->row->collective == COLLECTIVE_SPLIT || op->row->collective == COLLECTIVE_DUP || op->row->collective == COLLECTIVE_WINDOW ||
           op->row->collective == COLLECTIVE_MEMORY;
}

static void want_reduced(struct op *op, char *to, size_t first)
{
    for (size_t e = 0; e < op->n; e++) {
        union number x[TEST_RANKS_MAX], sum;
        for (int32_t r = 0; r < op->size; r++)
            x[r] = load(op->type, op->in[r] + (first + e) * op->bytes);
        sum = tree(op->type, x, (uint32_t)op->size);
        if (op->op == COMM_AVG)
            sum.f64 /= (double)op->size;
        store(op->type, to + e * op->bytes, sum);
    }
}

static void want(struct op *op, int32_t r)
{
    char *to = op->wanted[r];
    switch (op->row->collective) {
    case COLLECTIVE_BARRIER:
        break;
    case COLLECTIVE_BROADCAST:
        memcpy(to, op->in[op->root], op->n * op->bytes);
        break;
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_GROUP:
        if (op->row->collective != COLLECTIVE_REDUCE || r == op->root)
            want_reduced(op, to, 0);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        want_reduced(op, to, (size_t)r * op->n);
        break;
    default:
        for (int32_t s = 0; s < op->size; s++)
            memcpy(to + block_at(op, s) * op->bytes, op->in[s], block_count(op, s) * op->bytes);
    }
}

/* Offset by one element, so that nothing is aligned by chance. */
static char *take(struct op *op, int32_t r, int which, size_t elements)
{
    op->memory[r][which] = calloc(elements + 2, ELEMENT_BYTES_MAX);
    assert_non_null(op->memory[r][which]);
    return op->memory[r][which] + op->bytes;
}

static void open_buffers(struct op *op, struct test_wire *wire, int32_t r)
{
    uint32_t collective = op->row->collective;
    size_t in = gathers(op) ? block_count(op, r) : collective == COLLECTIVE_REDUCE_SCATTER ? all_blocks(op) : op->n;
    size_t out = gathers(op) ? all_blocks(op) : op->n;
    op->in[r] = take(op, r, 0, in);
    op->out[r] = take(op, r, 1, out);
    op->wanted[r] = take(op, r, 2, out);
    op->out_bytes[r] = out * op->bytes;
    if (collective == COLLECTIVE_BROADCAST) {
        op->out[r] = op->in[r];
    } else if (op->in_place && gathers(op)) {
        op->in[r] = op->out[r] + block_at(op, r) * op->bytes;
    } else if (op->in_place && collective == COLLECTIVE_REDUCE_SCATTER) {
        op->out[r] = op->in[r] + (size_t)r * op->n * op->bytes;
    } else if (op->in_place && (collective != COLLECTIVE_REDUCE || r == op->root)) {
        op->out[r] = op->in[r];
    }
    if (collective != COLLECTIVE_BROADCAST || r == op->root)
        fill(wire, op->type, op->in[r], in);
}

static void start_rank(struct op *op, struct test_wire *wire, int32_t r)
{
    struct run *run = &op->run[r];
    struct program_spec spec = {.collective = op->row->collective, .rank = r, .size = op->size, .root = op->root};
    op->program[r] = op->row->build(&test_env, &spec);
    assert_non_null(op->program[r]);
    memset(run, 0xee, sizeof *run); /* run_start must not depend on earlier contents */
    run->channel = &wire->channel[r].channel;
    run->call = (struct run_call){
        .in = op->in[r], .out = op->out[r], .n = op->n, .type = op->type, .op = op->op, .counts = op->counts, .displs = op->displs};
    if (op->row->collective == COLLECTIVE_BARRIER || (op->row->collective == COLLECTIVE_REDUCE && r != op->root))
        run->call.out = NULL;
    run->isa = data_isa_best();
    run->oversubscribed = r & 1;
    run->store_policy = NULL;
    run->scratch = malloc(run_scratch_bytes(op->program[r], &run->call, run->channel, op->size) + 1);
    run->view = op->view[r];
    run->seq = op->seq;
    run->fingerprint = 77 + op->seq;
    run->index = op->seq;
    run->rank = r;
    run->size = op->size;
    run_start(run, op->program[r]);
}

static void open_op(struct op *op, struct test_wire *wire, const struct algo_row *row, uint32_t seq)
{
    uint64_t dice = test_random(wire);
    *op = (struct op){.row = row, .size = (int32_t)wire->size, .root = (int32_t)(dice % wire->size), .in_place = dice >> 8 & 1, .seq = seq};
    op->type = kinds[seq % (sizeof kinds / sizeof *kinds)].type;
    op->op = kinds[seq % (sizeof kinds / sizeof *kinds)].op;
    op->bytes = data_type_bytes(op->type);
    op->n = row->collective == COLLECTIVE_BARRIER || dice >> 16 & 1 ? dice >> 20 & 7 : (dice >> 20) % 4000;
    if (row->collective == COLLECTIVE_BARRIER)
        op->n = 0;
    if (row->collective == COLLECTIVE_ALLGATHER_V) {
        op->counts = calloc(wire->size, sizeof *op->counts);
        op->displs = calloc(wire->size, sizeof *op->displs);
        for (uint32_t r = 0, at = 0; r < wire->size; at += (uint32_t)op->counts[r++] + 1) {
            op->counts[r] = test_random(wire) % (op->n + 1);
            op->displs[r] = at;
        }
    }
    for (int32_t r = 0; r < op->size; r++)
        open_buffers(op, wire, r);
    for (int32_t r = 0; r < op->size; r++)
        want(op, r);
    for (int32_t r = 0; r < op->size; r++)
        start_rank(op, wire, r);
}

static void close_op(struct op *op)
{
    for (int32_t r = 0; r < op->size; r++) {
        bool reads = op->row->collective != COLLECTIVE_BARRIER && (op->row->collective != COLLECTIVE_REDUCE || r == op->root);
        if (reads && op->out_bytes[r] && memcmp(op->out[r], op->wanted[r], op->out_bytes[r]))
            fail_msg("%s/%s: %d ranks, root %d, rank %d, n %zu, %s %s%s: wrong result", collective_name(op->row->collective), op->row->name,
                     op->size, op->root, r, op->n, data_type_name(op->type), data_op_name(op->op), op->in_place ? ", in place" : "");
        program_free(&test_env, op->program[r]);
        free(op->run[r].scratch);
        for (int m = 0; m < 3; m++)
            free(op->memory[r][m]);
    }
    free(op->counts);
    free(op->displs);
}

/* A random rank handles its events and steps a random operation, until all have ended. */
static void run_ops(struct test_wire *wire, struct op *ops, uint32_t count)
{
    uint32_t left = count * wire->size;
    for (uint64_t turn = 0; left; turn++) {
        uint64_t dice = test_random(wire);
        uint32_t r = (uint32_t)(dice % wire->size), o = (uint32_t)((dice >> 32) % count);
        struct wire_event event;
        assert_true(turn < UINT64_C(200000000));
        while (test_wire_event(&wire->channel[r], &event)) {
            struct op *op = &ops[(event.cookie >> 32) - ops[0].seq];
            assert_int_equal(event.result, WIRE_DONE);
            run_event(&op->run[r], &event);
        }
        if (ops[o].result[r] == RUN_ENDED || !ops[o].run[r].again)
            continue;
        ops[o].result[r] = run_step(&ops[o].run[r]);
        assert_int_not_equal(ops[o].result[r], RUN_MISMATCH);
        left -= ops[o].result[r] == RUN_ENDED;
    }
}

/* Whether this test computes its result. The verifier proves the others, and the conformance tests compare them. */
static bool modelled(const struct algo_row *row)
{
    return row->collective <= COLLECTIVE_GROUP;
}

static bool has_ranks(const struct algo_row *row, uint32_t ranks)
{
    return (int32_t)ranks >= row->ranks_min && (int32_t)ranks <= row->ranks_max && modelled(row);
}

static void every_algorithm_gives_t(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 19, 32};
    static struct op ops[RUNS_MAX];
    static struct test_wire wire;
    uint32_t seq = 1;
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t i = 0; i < algo_count * (sizes[s] < 10 ? selected(4, 4, 2) : 1); i++) {
            const struct algo_row *row = &algo_table[i % algo_count], *next = &algo_table[(i + 5) % algo_count];
            test_wire_open(&wire, sizes[s], seq, (size_t)256 << (i % 5));
            for (uint32_t o = 0; o < RUNS_MAX; o++, seq++) {
                const struct algo_row *chosen = o == 1 && has_ranks(next, sizes[s]) ? next : row;
                open_op(&ops[o], &wire, has_ranks(chosen, sizes[s]) ? chosen : &algo_table[1], seq);
            }
            run_ops(&wire, ops, RUNS_MAX);
            for (uint32_t o = 0; o < RUNS_MAX; o++)
                close_op(&ops[o]);
            test_wire_close(&wire);
        }
    }
    assert_int_equal(test_env_taken, 0);
}

/* Longer than the size from which results are stored past the cache. */
enum { LARGE_RANKS = 3 };
static void large_ones_are_right_too(void **state)
{
    static struct op op;
    static struct test_wire wire;
    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        const int32_t ranks = algo_table[i].ranks_max < LARGE_RANKS ? algo_table[i].ranks_max : LARGE_RANKS;
        if (algo_table[i].once_bytes || !modelled(&algo_table[i]))
            continue;
        test_wire_open(&wire, (uint32_t)ranks, i + 1, 65536);
        open_op(&op, &wire, &algo_table[1], 1);
        run_ops(&wire, &op, 1);
        close_op(&op);
        test_wire_close(&wire);
        test_wire_open(&wire, (uint32_t)ranks, i + 9, 65536);
        memset(&op, 0, sizeof op);
        op = (struct op){
            .row = &algo_table[i], .size = ranks, .root = 1, .n = 700001, .type = COMM_F32, .op = COMM_SUM, .bytes = 4, .seq = 6};
        size_t counts[LARGE_RANKS] = {700001, 0, 650003}, displs[LARGE_RANKS] = {3, 700010, 700011};
        bool v = algo_table[i].collective == COLLECTIVE_ALLGATHER_V;
        op.counts = v ? counts : NULL;
        op.displs = v ? displs : NULL;
        for (int32_t r = 0; r < ranks; r++)
            open_buffers(&op, &wire, r);
        for (int32_t r = 0; r < ranks; r++)
            want(&op, r);
        for (int32_t r = 0; r < ranks; r++)
            start_rank(&op, &wire, r);
        run_ops(&wire, &op, 1);
        op.counts = op.displs = NULL;
        close_op(&op);
        test_wire_close(&wire);
    }
}

/* ------------------------------------------------------------------------------------------------------------ errors */
static void mismatch_names_the_peer(void **state)
{
    static struct op op;
    static struct test_wire wire;
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct wire_event event;
        bool told[3] = {false, false, false};
        test_wire_open(&wire, 3, seed, 1024);
        open_op(&op, &wire, &algo_table[0], 1);
        assert_int_equal(op.row->collective, COLLECTIVE_BARRIER);
        op.run[2].fingerprint++;
        for (uint32_t turn = 0; turn < 3000; turn++) {
            uint32_t r = turn % 3;
            if (told[r])
                continue;
            while (test_wire_event(&wire.channel[r], &event))
                run_event(&op.run[r], &event);
            enum run_result result = run_step(&op.run[r]);
            assert_int_not_equal(result, RUN_ENDED);
            told[r] = result == RUN_MISMATCH;
        }
        for (int32_t r = 0; r < 3; r++)
            assert_true(told[r]);
        assert_int_equal(op.run[0].mismatch_peer, 2);
        assert_int_equal(op.run[1].mismatch_peer, 2);
        assert_true(op.run[2].mismatch_peer == 0 || op.run[2].mismatch_peer == 1);
        for (uint32_t r = 0; r < 3; r++) {
            wire.calm = true;
            for (struct test_look *look = wire.channel[r].looks, *next; look; look = next) {
                next = look->next;
                free(look);
            }
            wire.channel[r].looks = NULL;
        }
        close_op(&op);
        test_wire_close(&wire);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_gives_t), cmocka_unit_test(large_ones_are_right_too),
        cmocka_unit_test(mismatch_names_the_peer), cmocka_unit_test(no_memory_for_places_ends_the_run),
        cmocka_unit_test(a_step_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
