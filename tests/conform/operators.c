/*
 * User-defined operators: an associative one that is not commutative, over elements of odd and of large sizes, in every
 * collective that reduces, compared with a simple left-to-right combination. Also many operators at once, freed in
 * flight, and different on one rank.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An element is a function x -> a x + b over bytes, in its first two bytes; the rest follows from them. Composition is
 * not commutative. */
static void compose(unsigned char *inout, const unsigned char *in, size_t element)
{
    unsigned char a = (unsigned char)(in[0] * inout[0]), b = (unsigned char)(in[0] * inout[element > 1] + in[element > 1]);
    if (element == 1) { /* only this fits in one byte: keep the left operand */
        inout[0] = in[0];
        return;
    }
    inout[0] = a;
    inout[1] = b;
    for (size_t i = 2; i < element; i++)
        inout[i] = (unsigned char)(a * 3 + b * 5 + (unsigned char)i);
}

struct shape {
    size_t element;
    size_t calls;
};

static void compose_all(void *inout, const void *in, size_t elements, void *arg)
{
    const struct shape *shape = arg;
    for (size_t e = 0; e < elements; e++)
        compose((unsigned char *)inout + e * shape->element, (const unsigned char *)in + e * shape->element, shape->element);
}

static void fill(unsigned char *to, size_t elements, size_t element, int32_t rank)
{
    for (size_t e = 0; e < elements; e++) {
        unsigned char a = (unsigned char)(2 * ((size_t)rank * 7 + e) + 1), b = (unsigned char)(e * 13 + (size_t)rank * 31);
        for (size_t i = 0; i < element; i++)
            to[e * element + i] = i == 0 ? a : i == 1 ? b : (unsigned char)(a * 3 + b * 5 + (unsigned char)i);
    }
}

enum kind { ALLREDUCE, REDUCE, SCAN, EXSCAN, REDUCE_SCATTER, REDUCE_SCATTER_V, KINDS };

struct stage {
    struct rig rig;
    comm_op op[RIG_RANKS_MAX];
    struct shape shape;
    unsigned char *in[RIG_RANKS_MAX], *out[RIG_RANKS_MAX], *want;
};

/* The expected result of ranks first .. end - 1, elements from `at` on. */
static void expect(struct stage *stage, int32_t end, size_t at, size_t elements)
{
    size_t element = stage->shape.element;
    memcpy(stage->want, stage->in[0] + at * element, elements * element);
    for (int32_t r = 1; r < end; r++) {
        for (size_t e = 0; e < elements; e++) {
            unsigned char right[4096];
            memcpy(right, stage->in[r] + (at + e) * element, element);
            compose(right, stage->want + e * element, element);
            memcpy(stage->want + e * element, right, element);
        }
    }
}

static enum comm_result issue(struct stage *stage, enum kind kind, int32_t r, size_t n, bool in_place, struct comm_request *request)
{
    struct comm_communicator *c = stage->rig.world[r];
    const void *in = in_place ? COMM_IN_PLACE : stage->in[r];
    size_t counts[RIG_RANKS_MAX];
    for (int32_t k = 0; k < stage->rig.ranks; k++)
        counts[k] = n;
    switch (kind) {
    case ALLREDUCE:
        return comm_allreduce(c, in, stage->out[r], n, COMM_BYTE, stage->op[r], request);
    case REDUCE:
        return comm_reduce(c, r ? stage->in[r] : in, stage->out[r], n, COMM_BYTE, stage->op[r], 0, request);
    case SCAN:
        return comm_scan(c, in, stage->out[r], n, COMM_BYTE, stage->op[r], request);
    case EXSCAN:
        return comm_exscan(c, in, stage->out[r], n, COMM_BYTE, stage->op[r], request);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, stage->out[r], n, COMM_BYTE, stage->op[r], request);
    default:
        return comm_reduce_scatter_v(c, in, stage->out[r], counts, COMM_BYTE, stage->op[r], request);
    }
}

static void one(struct stage *stage, enum kind kind, size_t elements, bool in_place)
{
    struct comm_request request[RIG_RANKS_MAX];
    int32_t ranks = stage->rig.ranks;
    bool scattered = kind >= REDUCE_SCATTER;
    size_t element = stage->shape.element, n = elements * element, all = scattered ? elements * (size_t)ranks : elements;
    rig_note("%d ranks, kind %d, %zu elements of %zu%s", ranks, (int)kind, elements, element, in_place ? ", in place" : "");
    for (int32_t r = 0; r < ranks; r++) {
        stage->in[r] = malloc(all * element + 1);
        stage->out[r] = malloc(all * element + 1);
        CHECK(stage->in[r] && stage->out[r]);
        fill(stage->in[r], all, element, r);
        memcpy(stage->out[r], stage->in[r], all * element);
    }
    stage->want = malloc(n + 1);
    CHECK(stage->want);
    for (int32_t r = 0; r < ranks; r++)
        MUST(issue(stage, kind, r, n, in_place, &request[r]));
    rig_wait_all(request, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        int32_t end = kind == SCAN ? r + 1 : kind == EXSCAN ? r : ranks;
        size_t at = scattered ? elements * (size_t)r : 0;
        if (!end || (kind == REDUCE && r > 0))
            continue;
        expect(stage, end, at, elements);
        CHECK(memcmp(stage->out[r] + (in_place && scattered ? at * element : 0), stage->want, n) == 0);
    }
    for (int32_t r = 0; r < ranks; r++) {
        free(stage->in[r]);
        free(stage->out[r]);
    }
    free(stage->want);
}

static void sweep(int32_t ranks, size_t element, const char *options)
{
    struct stage stage = {.shape = {.element = element}};
    rig_open_options(&stage.rig, ranks, options);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_op_create(
            stage.rig.world[r], compose_all, &stage.shape,
            &(struct comm_op_options){.size = sizeof(struct comm_op_options), .name = "lines", .element_bytes = element, .ordered = 1},
            &stage.op[r]));
    for (int kind = 0; kind < KINDS; kind++) {
        size_t counts[] = {0, 1, 5, 3000 / element + 1, selected(400000, 150000, 150000) / element};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            one(&stage, (enum kind)kind, counts[i], false);
            one(&stage, (enum kind)kind, counts[i], true);
        }
    }
    for (int32_t r = 0; r < ranks; r++)
        comm_op_free(stage.rig.world[r], stage.op[r]);
    rig_close(&stage.rig);
}

RIG_TEST(operators_of_the_caller_everywhere)
{
    static const size_t elements[] = {1, 2, 3, 32, 48, 1000, 4096};
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        for (int32_t ranks = 1; ranks <= (rig_quick() ? 3 : 5); ranks++)
            sweep(ranks, elements[i], NULL);
        sweep(4, elements[i], "minimal=1");
        sweep(3, elements[i], "chunk=4096");
    }
    sweep(9, 32, NULL);
    sweep(17, 3, NULL);
}

static comm_op make(struct comm_communicator *c, const char *name, size_t element, int32_t ordered, struct shape *shape)
{
    comm_op op = 0;
    MUST(comm_op_create(
        c, compose_all, shape,
        &(struct comm_op_options){.size = sizeof(struct comm_op_options), .name = name, .element_bytes = element, .ordered = ordered},
        &op));
    CHECK(op != 0);
    return op;
}

/* Forty operators exist, each different; their numbers are reused without confusion. A freed one is refused, and
 * finishes what it began. */
RIG_TEST(operators_many_and_freed)
{
    enum { ALIVE = 40 };
    struct rig rig;
    struct shape shape[ALIVE];
    comm_op op[2][ALIVE];
    struct comm_request request[2];
    unsigned char in[2][256], out[2][256];
    rig_open(&rig, 2, NULL);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < ALIVE; i++) {
            char name[16];
            shape[i].element = (size_t)i + 1;
            snprintf(name, sizeof name, "op %d", i);
            for (int r = 0; r < 2; r++) /* created in another order on each rank */
                op[r][i] = make(rig.world[r], name, shape[i].element, i % 2, &shape[i]);
        }
        for (int i = ALIVE - 1; i >= 0; i--) {
            size_t n = 3 * shape[i].element;
            for (int r = 0; r < 2; r++) {
                fill(in[r], 3, shape[i].element, r);
                MUST(comm_allreduce(rig.world[r], in[r], out[r], n, COMM_BYTE, op[r][i], &request[r]));
                comm_op_free(rig.world[r], op[r][i]);
            }
            rig_wait_all(request, 2);
            CHECK(memcmp(out[0], out[1], n) == 0);
            for (int r = 0; r < 2; r++)
                IS(comm_allreduce(rig.world[r], in[r], out[r], n, COMM_BYTE, op[r][i], &request[r]), COMM_ERR_ARGUMENT);
        }
        rig_proves_alive(rig.world, 2);
    }
    comm_op_free(rig.world[0], COMM_SUM);
    comm_op_free(rig.world[0], 0xffffffff);
    rig_close(&rig);
}

RIG_TEST(operators_of_a_wrong_kind)
{
    struct rig rig;
    struct shape shape = {.element = 8};
    struct comm_op_options options = {.size = sizeof options, .name = "x", .element_bytes = 8};
    unsigned char in[64] = {0}, out[64];
    struct comm_request request;
    comm_op op = 0;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    IS(comm_op_create(c, NULL, NULL, &options, &op), COMM_ERR_ARGUMENT);
    IS(comm_op_create(c, compose_all, NULL, &options, NULL), COMM_ERR_ARGUMENT);
    IS(comm_op_create(c, compose_all, NULL, NULL, &op), COMM_ERR_ARGUMENT);
    options.element_bytes = 0;
    IS(comm_op_create(c, compose_all, NULL, &options, &op), COMM_ERR_ARGUMENT);
    options.element_bytes = 4097;
    IS(comm_op_create(c, compose_all, NULL, &options, &op), COMM_ERR_ARGUMENT);
    options = (struct comm_op_options){.size = sizeof options, .element_bytes = 8};
    IS(comm_op_create(c, compose_all, NULL, &options, &op), COMM_ERR_ARGUMENT);
    op = make(c, "x", 8, 0, &shape);
    IS(comm_allreduce(c, in, out, 9, COMM_BYTE, op, NULL), COMM_ERR_ARGUMENT);
    IS(comm_allreduce(c, in, out, 8, COMM_U64, op, NULL), COMM_ERR_ARGUMENT);
    MUST(comm_allreduce(c, in, out, 16, COMM_BYTE, op, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    rig_close(&rig);
}

/* Name, size and order are part of what ranks compare. */
static void unlike(const char *name, size_t element, int32_t ordered)
{
    struct rig rig;
    struct shape shape = {.element = 2};
    struct comm_request request[2];
    unsigned char in[2][8] = {{0}}, out[2][8];
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        comm_op op = r ? make(rig.world[r], name, element, ordered, &shape) : make(rig.world[r], "lines", 2, 1, &shape);
        enum comm_result result = comm_allreduce(rig.world[r], in[r], out[r], 8, COMM_BYTE, op, &request[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    rig_close(&rig);
}

RIG_TEST(operators_that_are_unlike)
{
    unlike("line", 2, 1);
    unlike("lines", 4, 1);
    unlike("lines", 2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_of_the_caller_everywhere),
        cmocka_unit_test(operators_many_and_freed),
        cmocka_unit_test(operators_of_a_wrong_kind),
        cmocka_unit_test(operators_that_are_unlike),
    };
    return cmocka_run_group_tests_name("conform_operators", tests, NULL, NULL);
}
