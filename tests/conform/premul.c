/*
 * Pre-multiplied sums: every type x collective x length, in place or not, on 1 to 9 ranks with a factor each, compared
 * bit for bit with the oracle: its product of each element, rounded to the type, and its sum of the products. Also in
 * groups and plans, freed in flight, beside other operators, and what is refused.
 */
#define _GNU_SOURCE
#include "conform/oracle.h"
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALLREDUCE, REDUCE, SCAN, EXSCAN, REDUCE_SCATTER, REDUCE_SCATTER_V, KINDS };
enum { GUARD = 0x5a };

struct stage {
    struct rig rig;
    enum comm_type type;
    size_t element;
    comm_op op[RIG_RANKS_MAX];
    unsigned char factor[RIG_RANKS_MAX][16];
    unsigned char *in[RIG_RANKS_MAX], *kept[RIG_RANKS_MAX], *out[RIG_RANKS_MAX], *product[RIG_RANKS_MAX], *want;
};

static bool served(enum comm_type type)
{
    return oracle_pair(type, COMM_PROD) && oracle_pair(type, COMM_SUM);
}

/* A mock driver that takes all memory for a device's (tests/cuda/mock_everywhere.c) is told that the factor is in the host's. */
static enum comm_result create(struct comm_communicator *c, enum comm_type type, const void *factor, comm_op *op)
{
    static _Alignas(16) unsigned char here[16];
    static bool registered;
    void *found = dlsym(RTLD_DEFAULT, "cuMemHostRegister_v2");
    unsigned (*enlist)(void *, size_t, unsigned);
    memcpy(&enlist, &found, sizeof found);
    if (found && !registered)
        CHECK(enlist(here, sizeof here, 0) == 0);
    registered = true;
    if (factor)
        memcpy(here, factor, oracle_type_bytes(type));
    return comm_op_create_premul_sum(c, type, factor ? here : NULL, op);
}

static void make_operators(struct stage *stage, uint64_t seed)
{
    for (int32_t r = 0; r < stage->rig.ranks; r++) {
        oracle_fill(stage->factor[r], 1, stage->type, COMM_PROD, seed, r);
        MUST(create(stage->rig.world[r], stage->type, stage->factor[r], &stage->op[r]));
    }
}

static void free_operators(struct stage *stage)
{
    for (int32_t r = 0; r < stage->rig.ranks; r++)
        comm_op_free(stage->rig.world[r], stage->op[r]);
}

/* Counts of reduce_scatter_v: uneven, and one rank gets nothing. */
static size_t count_of(enum kind kind, int32_t r, size_t n)
{
    return kind != REDUCE_SCATTER_V ? n : r == 1 ? 0 : n + (size_t)r;
}

static size_t start_of(enum kind kind, int32_t rank, size_t n)
{
    size_t at = 0;
    for (int32_t r = 0; r < rank; r++)
        at += count_of(kind, r, n);
    return at;
}

static enum comm_result issue(struct stage *stage, struct comm_communicator *c, enum kind kind, int32_t r, size_t n, bool in_place,
                              struct comm_request *request)
{
    const void *in = in_place ? COMM_IN_PLACE : stage->in[r];
    size_t counts[RIG_RANKS_MAX];
    for (int32_t k = 0; k < stage->rig.ranks; k++)
        counts[k] = count_of(kind, k, n);
    switch (kind) {
    case ALLREDUCE:
        return comm_allreduce(c, in, stage->out[r], n, stage->type, stage->op[r], request);
    case REDUCE:
        return comm_reduce(c, r ? stage->in[r] : in, stage->out[r], n, stage->type, stage->op[r], 0, request);
    case SCAN:
        return comm_scan(c, in, stage->out[r], n, stage->type, stage->op[r], request);
    case EXSCAN:
        return comm_exscan(c, in, stage->out[r], n, stage->type, stage->op[r], request);
    case REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, stage->out[r], n, stage->type, stage->op[r], request);
    default:
        return comm_reduce_scatter_v(c, in, stage->out[r], counts, stage->type, stage->op[r], request);
    }
}

/* Fills the inputs, and multiplies each as the oracle does. in_place: the outputs begin with the inputs. */
static void set_up(struct stage *stage, size_t all, bool in_place, uint64_t seed)
{
    unsigned char *factors = malloc(all * stage->element + 1);
    CHECK(factors);
    for (int32_t r = 0; r < stage->rig.ranks; r++) {
        stage->in[r] = malloc(all * stage->element + 1);
        stage->kept[r] = malloc(all * stage->element + 1);
        stage->out[r] = malloc(all * stage->element + 1);
        stage->product[r] = malloc(all * stage->element + 1);
        CHECK(stage->in[r] && stage->kept[r] && stage->out[r] && stage->product[r]);
        oracle_fill(stage->in[r], all, stage->type, COMM_SUM, seed, r);
        memcpy(stage->kept[r], stage->in[r], all * stage->element);
        memset(stage->out[r], GUARD, all * stage->element + 1);
        if (in_place)
            memcpy(stage->out[r], stage->in[r], all * stage->element);
        for (size_t i = 0; i < all; i++)
            memcpy(factors + i * stage->element, stage->factor[r], stage->element);
        oracle_reduce((const void *[]){factors, stage->in[r]}, 2, all, stage->type, COMM_PROD, stage->product[r]);
    }
    free(factors);
    stage->want = malloc(all * stage->element + 1);
    CHECK(stage->want);
}

static void tear_down(struct stage *stage)
{
    for (int32_t r = 0; r < stage->rig.ranks; r++) {
        free(stage->in[r]);
        free(stage->kept[r]);
        free(stage->out[r]);
        free(stage->product[r]);
    }
    free(stage->want);
}

static size_t all_of(const struct stage *stage, enum kind kind, size_t n)
{
    return kind < REDUCE_SCATTER ? n : start_of(kind, stage->rig.ranks, n);
}

/* The outputs are the oracle's; outside of them nothing is written, and inputs are as they were. */
static void check(struct stage *stage, enum kind kind, size_t n, bool in_place)
{
    size_t all = all_of(stage, kind, n);
    for (int32_t r = 0; r < stage->rig.ranks; r++) {
        const void *from[RIG_RANKS_MAX];
        int32_t end = kind == SCAN ? r + 1 : kind == EXSCAN ? r : stage->rig.ranks;
        size_t at = kind < REDUCE_SCATTER ? 0 : start_of(kind, r, n), count = count_of(kind, r, n);
        bool writes = end && (kind != REDUCE || r == 0);
        for (int32_t k = 0; k < end; k++)
            from[k] = stage->product[k] + at * stage->element;
        if (writes && (kind != ALLREDUCE || r == 0))
            oracle_reduce(from, end, count, stage->type, COMM_SUM, stage->want);
        else if (!writes && (!in_place || kind == REDUCE))
            count = 0;
        else if (!writes)
            memcpy(stage->want, stage->in[r], count * stage->element); /* rank 0 of an exscan in place */
        size_t place = in_place && kind >= REDUCE_SCATTER ? at : 0;
        EQUAL(oracle_differ(stage->out[r] + place * stage->element, stage->want, count, stage->type), count);
        EQUAL(stage->out[r][all * stage->element], GUARD);
        if (!in_place && count < all)
            EQUAL(stage->out[r][count * stage->element], GUARD);
        if (!in_place)
            CHECK(memcmp(stage->in[r], stage->kept[r], all * stage->element) == 0);
    }
}

static void one(struct stage *stage, enum kind kind, size_t n, bool in_place, uint64_t seed)
{
    struct comm_request request[RIG_RANKS_MAX];
    rig_note("%d ranks, kind %d, %zu of %s%s, seed %llu", stage->rig.ranks, (int)kind, n, oracle_type_name(stage->type),
             in_place ? ", in place" : "", (unsigned long long)seed);
    set_up(stage, all_of(stage, kind, n), in_place, seed);
    for (int32_t r = 0; r < stage->rig.ranks; r++)
        MUST(issue(stage, stage->rig.world[r], kind, r, n, in_place, &request[r]));
    rig_wait_all(request, (size_t)stage->rig.ranks);
    check(stage, kind, n, in_place);
    tear_down(stage);
}

static void sweep(int32_t ranks, const char *options, bool scans)
{
    struct stage stage;
    uint64_t seed = (uint64_t)ranks; /* also chooses the cases of a thin selection */
    rig_open_options(&stage.rig, ranks, options);
    for (int t = 0; t < ORACLE_TYPES; t++) {
        stage.type = oracle_types[t];
        stage.element = oracle_type_bytes(stage.type);
        if (!served(stage.type))
            continue;
        make_operators(&stage, ++seed);
        size_t counts[] = {0, 1, 5, 3001 / stage.element, selected(150000, 40000, 40000) / stage.element};
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t i = 0; (scans || (kind != SCAN && kind != EXSCAN)) && i < 2 * sizeof counts / sizeof *counts; i++)
                if (++seed % rig_thin(1, 1, 3) == 0)
                    one(&stage, (enum kind)kind, counts[i / 2], i % 2, seed);
        free_operators(&stage);
    }
    rig_close(&stage.rig);
}

RIG_TEST(premul_of_every_type_everywhere)
{
    for (int32_t ranks = 1; ranks <= 5; ranks++)
        sweep(ranks, NULL, true);
    sweep(4, "minimal=1", true);
    sweep(3, "chunk=4096", true);
    sweep(2, "check=buffers", true);
    oracle_block = 2;
    sweep(5, "order_block=2", false);
    oracle_block = 1;
    if (!rig_quick())
        sweep(9, NULL, true);
}

/* As long as the longest program that keeps its scratch memory, and longer. */
RIG_TEST(premul_of_long_vectors)
{
    struct stage stage = {.type = COMM_BF16, .element = 2};
    rig_open(&stage.rig, 3, NULL);
    make_operators(&stage, 7);
    for (int kind = 0; kind < KINDS; kind++)
        one(&stage, (enum kind)kind, 600000, kind % 2, 70 + (uint64_t)kind);
    free_operators(&stage);
    rig_close(&stage.rig);
}

/* In a group with each other, and in a plan that is started twice. The second start finds the first result in place. */
RIG_TEST(premul_in_groups_and_plans)
{
    enum { RANKS = 3, N = 33 };
    struct stage stage = {.type = COMM_F16, .element = 2};
    struct comm_request request[RANKS];
    struct comm_communicator *recorder;
    struct comm_plan *plan[RANKS];
    double more[RANKS] = {1, 2, 4}, sum[RANKS];
    rig_open(&stage.rig, RANKS, NULL);
    make_operators(&stage, 3);
    set_up(&stage, N, false, 30);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_group_begin(stage.rig.world[r], &recorder));
        MUST(issue(&stage, recorder, ALLREDUCE, r, N, false, NULL));
        MUST(comm_allreduce(recorder, &more[r], &sum[r], 1, COMM_F64, COMM_SUM, NULL));
        MUST(comm_group_end(recorder, &request[r]));
    }
    rig_wait_all(request, RANKS);
    check(&stage, ALLREDUCE, N, false);
    for (int32_t r = 0; r < RANKS; r++) {
        CHECK(sum[r] == 7);
        MUST(comm_plan_begin(stage.rig.world[r], &recorder));
        MUST(issue(&stage, recorder, SCAN, r, N, false, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t r = 0; r < RANKS; r++) {
            memset(stage.out[r], GUARD, N * stage.element);
            MUST(comm_plan_start(plan[r], &request[r]));
        }
        rig_wait_all(request, RANKS);
        check(&stage, SCAN, N, false);
    }
    for (int32_t r = 0; r < RANKS; r++)
        comm_plan_free(plan[r]);
    tear_down(&stage);
    free_operators(&stage);
    rig_close(&stage.rig);
}

/* The factor is copied, an operation in flight keeps its operator, and a freed number is refused, also after its place is used again. */
RIG_TEST(premul_freed_while_it_runs)
{
    struct rig rig;
    struct comm_request request[2];
    float in[2] = {3, 5}, out[2], factor;
    comm_op op[2], before = 0;
    rig_open(&rig, 2, NULL);
    for (int round = 0; round < 2000; round++) {
        for (int r = 0; r < 2; r++) {
            factor = r ? 2 : (float)round;
            MUST(create(rig.world[r], COMM_F32, &factor, &op[r]));
            factor = 99;
            MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_F32, op[r], &request[r]));
            comm_op_free(rig.world[r], op[r]);
        }
        CHECK(op[0] != before);
        before = op[0];
        rig_wait_all(request, 2);
        CHECK(out[0] == 3 * (float)round + 10 && out[1] == out[0]);
    }
    for (int r = 0; r < 2; r++)
        IS(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_F32, op[r], NULL), COMM_ERR_ARGUMENT);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

static void says(struct comm_communicator *c, const char *text)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" is not in: %s", text, error.text);
}

RIG_TEST(premul_of_a_wrong_kind)
{
    static const enum comm_type without[] = {COMM_BYTE, COMM_BOOL, COMM_F32_INDEX, COMM_F64_INDEX, COMM_I32_INDEX, COMM_I64_INDEX};
    struct rig rig;
    double factor[2] = {2, 0}, in = 3, out = 0;
    comm_op op = 77;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    IS(create(c, COMM_F64, NULL, &op), COMM_ERR_ARGUMENT);
    says(c, "op_create_premul_sum: type=29 factor=NULL op=set; expected");
    IS(create(c, COMM_F64, factor, NULL), COMM_ERR_ARGUMENT);
    says(c, "op=NULL");
    IS(comm_op_create_premul_sum(c, (enum comm_type)12345, factor, &op), COMM_ERR_ARGUMENT);
    says(c, "type=12345");
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        IS(create(c, without[i], factor, &op), COMM_ERR_UNSUPPORTED);
        says(c, "expected an integer, floating or complex type");
    }
    EQUAL(op, 77);
    MUST(create(c, COMM_F64, factor, &op));
    IS(comm_allreduce(c, &in, &out, 1, COMM_F32, op, NULL), COMM_ERR_ARGUMENT);
    says(c, "expected the type that the pre-multiplied sum was made for");
    IS(comm_allreduce(c, &in, &out, 8, COMM_BYTE, op, NULL), COMM_ERR_ARGUMENT);
    IS(comm_allreduce(c, &in, &out, 1, COMM_F64, op ^ UINT32_C(0x40000000), NULL), COMM_ERR_ARGUMENT);
    struct comm_request request;
    MUST(comm_allreduce(c, &in, &out, 1, COMM_F64, op, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    CHECK(out == 6);
    rig_close(&rig);
}

static void nothing_of_its_own(void *inout, const void *in, size_t elements, void *arg)
{
    (void)inout, (void)in, (void)elements, (void)arg;
}

/* Rank 0 passes a pre-multiplied sum of f32, rank 1 this. */
static void unlike(enum comm_type type, comm_op other, size_t n, const char *text)
{
    struct rig rig;
    struct comm_request request[2];
    float in[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, out[2][4], one = 1;
    struct comm_error error = {.size = sizeof error};
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        comm_op op = r ? other : 0;
        if (r && !other && type == COMM_BYTE) {
            struct comm_op_options own = {.size = sizeof own, .name = "premul_sum", .element_bytes = 4};
            MUST(comm_op_create(rig.world[r], nothing_of_its_own, NULL, &own, &op));
        } else if (!op) {
            MUST(create(rig.world[r], r ? type : COMM_F32, &one, &op));
        }
        enum comm_result result = comm_allreduce(rig.world[r], in[r], out[r], r ? n : 4, r ? type : COMM_F32, op, &request[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    rig_fails_within(rig.world[0], COMM_ERR_MISMATCH, RIG_S, &error);
    CHECK(strstr(error.text, "op=premul_sum") && strstr(error.text, text));
    rig_close(&rig);
}

RIG_TEST(premul_beside_another_operator)
{
    unlike(COMM_F32, COMM_SUM, 4, "op=sum");
    unlike(COMM_F32, COMM_AVG, 4, "op=avg");
    unlike(COMM_I32, 0, 4, "type=i32");
    unlike(COMM_BYTE, 0, 16, "op=of its own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(premul_of_every_type_everywhere), cmocka_unit_test(premul_of_long_vectors),
        cmocka_unit_test(premul_in_groups_and_plans),      cmocka_unit_test(premul_freed_while_it_runs),
        cmocka_unit_test(premul_of_a_wrong_kind),          cmocka_unit_test(premul_beside_another_operator),
    };
    return cmocka_run_group_tests_name("conform_premul", tests, NULL, NULL);
}
