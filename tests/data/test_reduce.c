/* All types, operators, numbers of inputs, lengths, alignments and instruction sets against the oracle, with guard
 * bytes around everything written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "selection.h"
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_MAX = 339, SLOT = ELEMENTS_MAX * 8 + 256, GUARD = 0xa5 };

static const enum comm_type types[] = {COMM_F32, COMM_F64, COMM_F16, COMM_BF16, COMM_I8,  COMM_I16, COMM_I32,
                                       COMM_I64, COMM_U8,  COMM_U16, COMM_U32,  COMM_U64, COMM_BYTE};
static const uint32_t all_ways[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 64};
static const size_t counts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 257, 339};
enum {
    TYPES = sizeof(types) / sizeof(types[0]),
    WAYS = sizeof(all_ways) / sizeof(all_ways[0]),
    COUNTS = sizeof(counts) / sizeof(counts[0])
};

/* Room for 64 inputs, the output, its copy and the oracle's result; each aligned to a line and moved by the case's
 * offset. */
struct arena {
    _Alignas(64) char input[DATA_WAYS_MAX][SLOT], saved[SLOT], to[SLOT], also[SLOT], expected[SLOT];
    const void *from[DATA_WAYS_MAX];
    uint64_t seed;
};
static struct arena arena;

struct trial {
    enum comm_type type;
    comm_op op;
    enum data_isa isa;
    uint32_t ways, divisor;
    size_t elements;
    uint64_t partial;
    bool final, also, nontemporal;
    int in_place;  /* -1: no; otherwise the input that is also the output */
    int answers;   /* the same for the second output */
    size_t offset; /* in elements, of inputs and outputs in different ways */
};

static _Noreturn void wrong(const struct trial *t, const char *what, size_t at)
{
    fail_msg("%s: %s %s on %s, %u ways, %zu elements, element %zu, partial %#llx, final %d also %d stream %d in place %d offset %zu", what,
             data_type_name(t->type), data_op_name(t->op), data_isa_name(t->isa), t->ways, t->elements, at, (unsigned long long)t->partial,
             t->final, t->also, t->nontemporal, t->in_place, t->offset);
    abort();
}

static void check_output(const struct trial *t, const char *slot, const char *out, const char *what)
{
    const size_t bytes = t->elements * (t->final ? data_type_bytes(t->type) : data_partial_bytes(t->type));
    for (size_t at = 0; at < t->elements; at++) {
        if (!oracle_same(t->type, !t->final, out, arena.expected, at))
            wrong(t, what, at);
    }
    for (const char *byte = slot; byte < slot + SLOT; byte++) {
        if ((byte < out || byte >= out + bytes) && *byte != (char)GUARD)
            wrong(t, "a byte outside was written", (size_t)(byte - out));
    }
}

/* Fills the inputs anew if requested; otherwise they are as the last trial left them. */
static void run_trial(const struct trial *t)
{
    const size_t out_bytes = t->final ? data_type_bytes(t->type) : data_partial_bytes(t->type);
    char *to = arena.to + t->offset % 8 * out_bytes, *also = arena.also + t->offset % 5 * out_bytes;
    for (uint32_t i = 0; i < t->ways; i++) {
        const bool partial = t->partial >> i & 1;
        const size_t bytes = partial ? data_partial_bytes(t->type) : data_type_bytes(t->type);
        char *from = arena.input[i] + (t->offset + i) % 9 * bytes;
        oracle_fill(t->type, partial, from, t->elements, &arena.seed);
        arena.from[i] = from;
    }
    memset(arena.to, GUARD, SLOT);
    memset(arena.also, GUARD, SLOT);
    struct data_reduce reduce = {.from = arena.from,
                                 .partial = t->partial,
                                 .ways = t->ways,
                                 .divisor = t->divisor,
                                 .to = to,
                                 .also = t->also ? also : NULL,
                                 .elements = t->elements,
                                 .final = t->final,
                                 .nontemporal = t->nontemporal};
    oracle_reduce(t->type, t->op, &reduce, arena.expected);
    if (t->in_place >= 0) { /* move the input to the output's place */
        memcpy(to, arena.from[t->in_place], t->elements * out_bytes);
        arena.from[t->in_place] = to;
    }
    if (t->also && t->answers >= 0 && t->answers != t->in_place) {
        memcpy(also, arena.from[t->answers], t->elements * out_bytes);
        arena.from[t->answers] = also;
    }
    data_reducer(t->type, t->op, t->isa)(&reduce);
    check_output(t, arena.to, to, "the result is wrong");
    if (t->also)
        check_output(t, arena.also, also, "the second result is wrong");
    else if (arena.also[0] != (char)GUARD || memcmp(arena.also, arena.also + 1, SLOT - 1) != 0)
        wrong(t, "the second place was written", 0);
}

static bool accepted(enum comm_type type, comm_op op)
{
    return data_check(type, op, NULL) == COMM_OK;
}

/* The last (or first) input whose element has the output's size, or -1. */
static int in_place_input(const struct trial *t, bool last)
{
    const bool half = data_type_bytes(t->type) != data_partial_bytes(t->type);
    for (uint32_t i = 0; i < t->ways; i++) {
        const uint32_t input = last ? t->ways - 1 - i : i;
        if (!half || (t->partial >> input & 1) != t->final)
            return (int)input;
    }
    return -1;
}

/* Takes the case's switches from one word, so that every loop below covers all of them. */
static void draw_switches(struct trial *t, uint64_t bits)
{
    const uint64_t masks[] = {0, UINT64_MAX, bits, UINT64_C(0xaaaaaaaaaaaaaaaa)};
    t->final = bits & 1;
    t->also = bits >> 1 & 1;
    t->nontemporal = bits >> 2 & 1;
    t->partial = masks[bits >> 3 & 3];
    t->offset = bits >> 5 & 7;
    t->divisor = 1 + (uint32_t)(bits >> 8 & 63);
    t->in_place = bits >> 16 & 1 ? in_place_input(t, bits >> 17 & 1) : -1;
    t->answers = bits >> 18 & 1 ? in_place_input(t, bits >> 19 & 1) : -1;
}

static void one_type(enum comm_type type)
{
    for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
        for (size_t i = 0; accepted(type, op) && i < WAYS * COUNTS; i++) {
            struct trial t = {.type = type, .op = op, .ways = all_ways[i / COUNTS], .elements = counts[i % COUNTS]};
            const uint32_t rounds = t.ways <= 4 ? selected(8, 8, 3) : selected(2, 2, 1);
            for (uint32_t round = 0; round < rounds; round++) {
                draw_switches(&t, oracle_random(&arena.seed));
                for (t.isa = DATA_SCALAR; t.isa <= data_isa_best(); t.isa++)
                    run_trial(&t);
            }
        }
    }
}

static void everything_against_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < TYPES; i++)
        one_type(types[i]);
}

/* Every combination of switches, at lengths with a head, four of the widest vectors, single ones and a tail. */
static void every_switch_of_the_hot_ones(void **state)
{
    (void)state;
    static const enum comm_type hot[] = {COMM_F32, COMM_F64, COMM_BF16, COMM_F16, COMM_U8, COMM_I32};
    static const uint32_t ways[] = {2, 3, 4, 8, 11};
    for (size_t type = 0; type < sizeof(hot) / sizeof(hot[0]); type++) {
        for (uint32_t w = 0; w < 5; w++) {
            for (uint64_t switches = 0; switches < 1 << 8; switches++) {
                if (selection_few() && switches % 5 != w) /* each combination with one number of ways */
                    continue;
                struct trial t = {.type = hot[type], .op = COMM_SUM, .ways = ways[w], .elements = switches & 128 ? 339 : 97};
                draw_switches(&t, (switches & 127) | (oracle_random(&arena.seed) << 32) | (switches * 5 % 4) << 16);
                if (oracle_is_float(t.type) && switches % 3 == 0)
                    t.op = COMM_AVG;
                for (t.isa = DATA_SCALAR; t.isa <= data_isa_best(); t.isa++)
                    run_trial(&t);
            }
        }
    }
}

static void every_number_of_ways(void **state)
{
    (void)state;
    static const enum comm_type some[] = {COMM_F32, COMM_F64, COMM_F16, COMM_I16};
    for (size_t type = 0; type < 4; type++) {
        for (uint32_t ways = 1; ways <= DATA_WAYS_MAX; ways++) {
            struct trial t = {.type = some[type], .op = COMM_SUM, .ways = ways, .elements = 41};
            draw_switches(&t, oracle_random(&arena.seed));
            for (t.isa = DATA_SCALAR; t.isa <= data_isa_best(); t.isa++)
                run_trial(&t);
        }
    }
}

/* A vector cut anywhere gives the same bytes, part by part, as the whole, NaN included; for one instruction set. */
static void cuts_do_not_matter(void **state)
{
    (void)state;
    enum { N = 150 };
    static const enum comm_type some[] = {COMM_F32, COMM_F64, COMM_F16, COMM_BF16, COMM_U8};
    for (size_t i = 0; i < 5 * 3; i++) {
        const enum comm_type type = some[i / 3];
        const uint32_t ways = i % 3 == 0 ? 2 : i % 3 == 1 ? 5 : 13;
        const size_t bytes = data_type_bytes(type);
        const void *parts[DATA_WAYS_MAX];
        for (uint32_t w = 0; w < ways; w++) {
            arena.from[w] = arena.input[w];
            oracle_fill(type, false, arena.input[w], N, &arena.seed);
        }
        struct data_reduce whole = {.from = arena.from, .ways = ways, .to = arena.expected, .elements = N, .final = true};
        for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++) {
            data_reduce_fn *const reducer = data_reducer(type, COMM_SUM, isa);
            reducer(&whole);
            for (size_t cut = 0; cut <= N; cut++) {
                struct data_reduce part = whole;
                part.to = arena.to;
                part.elements = cut;
                part.nontemporal = cut & 1;
                reducer(&part);
                for (uint32_t w = 0; w < ways; w++)
                    parts[w] = arena.input[w] + cut * bytes;
                part.from = parts;
                part.to = arena.to + cut * bytes;
                part.elements = N - cut;
                reducer(&part);
                for (size_t at = 0; at < N; at++)
                    assert_true(oracle_same(type, false, arena.to, arena.expected, at));
            }
        }
    }
}

/* min and max of special values, each pair in both orders, written down instead of computed. */
static void zeros_and_nans(void **state)
{
    (void)state;
    static const struct {
        double a, b, least, most;
    } rows[] = {{0.0, -0.0, -0.0, 0.0}, {-0.0, -0.0, -0.0, -0.0}, {0.0, 0.0, 0.0, 0.0}, {-1.0, 0.0, -1.0, 0.0}, {5e-324, 0.0, 0.0, 5e-324}};
    for (enum data_isa isa = DATA_SCALAR; isa <= data_isa_best(); isa++) {
        for (unsigned i = 0; i < 4 * sizeof(rows) / sizeof(rows[0]); i++) {
            const double left = i & 1 ? rows[i / 4].a : rows[i / 4].b, right = i & 1 ? rows[i / 4].b : rows[i / 4].a;
            const double wanted = i & 2 ? rows[i / 4].most : rows[i / 4].least, nan = __builtin_nan("");
            double a[9], b[9], out[9];
            for (int at = 0; at < 9; at++) {
                a[at] = left;
                b[at] = right;
            }
            a[3] = nan;
            b[8] = nan;
            const void *from[2] = {a, b};
            struct data_reduce reduce = {.from = from, .ways = 2, .to = out, .elements = 9, .final = true};
            data_reducer(COMM_F64, i & 2 ? COMM_MAX : COMM_MIN, isa)(&reduce);
            for (int at = 0; at < 9; at++) {
                if (at == 3 || at == 8)
                    assert_true(out[at] != out[at]);
                else
                    assert_memory_equal(&out[at], &wanted, 8);
            }
        }
    }
}

int main(void)
{
    arena.seed = 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_against_the_oracle), cmocka_unit_test(every_switch_of_the_hot_ones),
                                       cmocka_unit_test(every_number_of_ways), cmocka_unit_test(cuts_do_not_matter),
                                       cmocka_unit_test(zeros_and_nans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
