/* Facts that only two ranks share: lengths that differ at one edge, and a length that comes together with its bytes. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, MANY = 6 /* with this many ranks brief blocks go another way */, ROOT = 1, MOST = 400000 };

struct stage {
    struct rig rig;
    int32_t ranks;
    unsigned char *in[MANY], *out[MANY];
    struct comm_request request[MANY];
};

static void open_stage_of(struct stage *stage, int32_t ranks)
{
    rig_open(&stage->rig, ranks, NULL);
    stage->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++) {
        stage->in[r] = malloc((size_t)ranks * MOST);
        stage->out[r] = malloc((size_t)ranks * MOST);
        CHECK(stage->in[r] && stage->out[r]);
        memset(stage->in[r], 1 + r, (size_t)ranks * MOST);
        memset(stage->out[r], 0x77, (size_t)ranks * MOST);
    }
}

static void open_stage(struct stage *stage)
{
    open_stage_of(stage, RANKS);
}

static void close_stage(struct stage *stage)
{
    rig_close(&stage->rig);
    for (int32_t r = 0; r < stage->ranks; r++) {
        free(stage->in[r]);
        free(stage->out[r]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ one edge differs */
enum edge { EDGE_GATHER, EDGE_SCATTER, EDGE_ALLTOALL, EDGES };

/* Rank 2 sends or receives `theirs` elements where the other end says `ours`. */
static enum comm_result call_edge(struct stage *stage, enum edge edge, int32_t r, size_t ours, size_t theirs)
{
    struct comm_communicator *c = stage->rig.world[r];
    size_t counts[MANY] = {7, 7, 7, 7, 7, 7}, in_counts[MANY] = {7, 7, 7, 7, 7, 7}, mine = r == 2 ? theirs : 7;
    counts[2] = r == ROOT ? ours : 7;
    in_counts[ROOT] = r == 2 ? theirs : 7;
    switch (edge) {
    case EDGE_GATHER:
        return comm_gather_v(c, stage->in[r], mine, stage->out[r], counts, NULL, COMM_BYTE, ROOT, &stage->request[r]);
    case EDGE_SCATTER:
        return comm_scatter_v(c, stage->in[r], counts, NULL, stage->out[r], mine, COMM_BYTE, ROOT, &stage->request[r]);
    default:
        return comm_alltoall_v(c, stage->in[r], in_counts, NULL, stage->out[r], counts, NULL, COMM_BYTE, &stage->request[r]);
    }
}

static void differ(int32_t ranks, enum edge edge, size_t ours, size_t theirs)
{
    struct stage stage;
    struct comm_error error = {.size = sizeof error};
    int32_t taker = edge == EDGE_SCATTER ? 2 : ROOT;
    rig_note("%d ranks, edge %d, %zu and %zu", (int)ranks, (int)edge, ours, theirs);
    open_stage_of(&stage, ranks);
    for (int32_t r = 0; r < ranks; r++) {
        enum comm_result result = call_edge(&stage, edge, r, ours, theirs);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int32_t r = 0; r < ranks; r++) {
        enum comm_result result = comm_wait(stage.request[r], RIG_PATIENCE);
        CHECK(result == COMM_ERR_MISMATCH || (result == COMM_OK && r != taker));
        rig_fails_within(stage.rig.world[r], COMM_ERR_MISMATCH, 2 * RIG_S, &error);
        CHECK(strstr(error.text, "another length"));
    }
    size_t block = edge == EDGE_SCATTER ? 0 : 14;
    CHECK(stage.out[taker][block] == 0x77); /* none of its bytes was written */
    close_stage(&stage);
}

RIG_TEST(contract_4_5_mismatch_at_one_edge)
{
    static const size_t pairs[][2] = {{5, 6}, {0, 1}, {1, 0}, {65536, 131072}, {131072, 65536}, {65536, 0}, {MOST, MOST - 1}};
    for (int edge = 0; edge < EDGES; edge++) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            differ(RANKS, (enum edge)edge, pairs[i][0], pairs[i][1]);
    }
}

RIG_TEST(contract_4_5_mismatch_at_one_edge_of_many)
{
    static const size_t pairs[][2] = {{5, 6}, {0, 1}, {1, 0}, {4096, 4097}, {4097, 4096}, {4096, 0}, {0, 5000}, {5000, 5001}};
    for (int edge = 0; edge < EDGES; edge++) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            differ(MANY, (enum edge)edge, pairs[i][0], pairs[i][1]);
    }
}

/* Two ranks: rank 0 gives `given` elements where rank 1 takes `taken`; about what comes back they agree. Long blocks are swapped, in which
 * case both lengths say how they are cut. */
static void differ_of_two(size_t given, size_t taken, size_t back)
{
    struct stage stage;
    struct comm_error error = {.size = sizeof error};
    const size_t in_counts[2][2] = {{9, given}, {back, 9}}, counts[2][2] = {{9, back}, {taken, 9}};
    rig_note("%zu and %zu, back %zu", given, taken, back);
    open_stage_of(&stage, 2);
    for (int32_t r = 0; r < 2; r++) {
        enum comm_result result = comm_alltoall_v(stage.rig.world[r], stage.in[r], in_counts[r], NULL, stage.out[r], counts[r], NULL,
                                                  COMM_BYTE, &stage.request[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    IS(comm_wait(stage.request[1], RIG_PATIENCE), COMM_ERR_MISMATCH);
    enum comm_result other = comm_wait(stage.request[0], RIG_PATIENCE);
    CHECK(other == COMM_ERR_MISMATCH || other == COMM_OK);
    for (int32_t r = 0; r < 2; r++) {
        rig_fails_within(stage.rig.world[r], COMM_ERR_MISMATCH, 2 * RIG_S, &error);
        CHECK(strstr(error.text, "another length"));
    }
    for (size_t i = 0; i < taken; i++)
        CHECK(stage.out[1][i] == 0x77);
    for (size_t i = 9; other == COMM_OK && i < 9 + back; i++)
        CHECK(stage.out[0][i] == 2);
    close_stage(&stage);
}

RIG_TEST(contract_4_5_mismatch_of_two)
{
    static const size_t triples[][3] = {{20000, 20001, 20000},   {20001, 20000, 20000},   {16384, 16385, 20000}, {16385, 16384, 20000},
                                        {20000, 0, 20000},       {0, 20000, 20000},       {20000, 10000, 0},     {5, 6, 20000},
                                        {70000, 140000, 20000},  {70000, 20000, 70000},   {20000, 70000, 70000}, {MOST, MOST - 1, MOST},
                                        {MOST, MOST - 64, MOST}, {MOST, MOST - 1, 70000}, {40000, 20000, 0}};
    for (size_t i = 0; i < sizeof triples / sizeof *triples; i++)
        differ_of_two(triples[i][0], triples[i][1], triples[i][2]);
}

/* The root's own count and its n must agree. */
RIG_TEST(contract_4_5_a_root_that_contradicts_itself)
{
    struct stage stage;
    size_t counts[RANKS] = {1, 2, 3};
    open_stage(&stage);
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_gather_v(stage.rig.world[r], stage.in[r], r == ROOT ? 1 : 2, stage.out[r], counts, NULL, r == ROOT ? COMM_BYTE : 0, ROOT,
                         &stage.request[r]),
           COMM_ERR_ARGUMENT);
    rig_proves_alive(stage.rig.world, RANKS);
    close_stage(&stage);
}

/* ------------------------------------------------------------------------------------------------------------ length and bytes */
static void bytes_once(struct stage *stage, size_t length, size_t capacity, struct comm_request *request, size_t *bytes)
{
    for (int32_t r = 0; r < RANKS; r++) {
        bytes[r] = r == ROOT ? length : capacity;
        memset(stage->out[r], 0x77, length + 1 < RANKS * MOST ? length + 1 : 1);
        MUST(comm_broadcast_bytes(stage->rig.world[r], r == ROOT ? stage->in[r] : stage->out[r], &bytes[r], ROOT, &request[r]));
    }
}

RIG_TEST(contract_1_1_length_and_bytes_in_one)
{
    static const size_t lengths[] = {0, 1, 8, 47, 48, 49, 5000, 65536, 65537, MOST};
    struct stage stage;
    size_t bytes[RANKS];
    open_stage(&stage);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bytes_once(&stage, lengths[i], MOST, stage.request, bytes);
        rig_wait_all(stage.request, RANKS);
        for (int32_t r = 0; r < RANKS; r++) {
            EQUAL(bytes[r], lengths[i]);
            CHECK(r == ROOT || (memcmp(stage.out[r], stage.in[ROOT], lengths[i]) == 0 && stage.out[r][lengths[i]] == 0x77));
        }
    }
    close_stage(&stage);
}

/* A buffer that is too short, or a root that gave up, ends one request on each rank concerned, and nothing else. */
RIG_TEST(contract_4_4_length_and_bytes_that_fail_alone)
{
    static const size_t lengths[] = {9, 5000, 65537, MOST};
    struct stage stage;
    size_t bytes[RANKS];
    open_stage(&stage);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bytes_once(&stage, lengths[i], lengths[i] - 1, stage.request, bytes);
        for (int32_t r = 0; r < RANKS; r++) {
            IS(comm_wait(stage.request[r], RIG_PATIENCE), r == ROOT ? COMM_OK : COMM_ERR_TRUNCATED);
            EQUAL(bytes[r], lengths[i]);
            CHECK(r == ROOT || stage.out[r][0] == 0x77);
        }
        rig_proves_alive(stage.rig.world, RANKS);
    }
    bytes_once(&stage, COMM_ROOT_FAILED, 10, stage.request, bytes);
    for (int32_t r = 0; r < RANKS; r++) {
        IS(comm_wait(stage.request[r], RIG_PATIENCE), COMM_ERR_ABORTED);
        EQUAL(bytes[r], r == ROOT ? COMM_ROOT_FAILED : 10);
    }
    rig_proves_alive(stage.rig.world, RANKS);
    close_stage(&stage);
}

/* Many in flight, among other work, and in a plan and a group, which returns the error. */
RIG_TEST(contract_1_1_length_and_bytes_in_line)
{
    enum { FLIGHT = 20 };
    struct stage stage;
    struct comm_plan *plan[RANKS];
    struct comm_request request[FLIGHT][RANKS];
    static size_t bytes[FLIGHT][RANKS];
    static unsigned char got[FLIGHT][RANKS][300];
    open_stage(&stage);
    for (int i = 0; i < FLIGHT; i++) {
        for (int32_t r = 0; r < RANKS; r++) {
            bytes[i][r] = r == ROOT ? (size_t)(i * 13) : 300;
            MUST(comm_broadcast_bytes(stage.rig.world[r], r == ROOT ? stage.in[r] : got[i][r], &bytes[i][r], ROOT, &request[i][r]));
            MUST(comm_barrier(stage.rig.world[r], NULL));
        }
    }
    rig_wait_all(request[0], FLIGHT * RANKS);
    for (int i = 0; i < FLIGHT; i++)
        EQUAL(bytes[i][0], i * 13);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *recorder;
        MUST(comm_plan_begin(stage.rig.world[r], &recorder));
        MUST(comm_broadcast_bytes(recorder, r == ROOT ? stage.in[r] : got[0][r], &bytes[0][r], ROOT, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (size_t round = 1; round < 10; round++) {
        for (int32_t r = 0; r < RANKS; r++) {
            bytes[0][r] = r == ROOT ? round : 300;
            MUST(comm_plan_start(plan[r], &request[0][r]));
        }
        rig_wait_all(request[0], RANKS);
        EQUAL(bytes[0][2], round);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *recorder;
        comm_plan_free(plan[r]);
        bytes[0][r] = r == 2 ? 3 : 9;
        MUST(comm_group_begin(stage.rig.world[r], &recorder));
        MUST(comm_broadcast_bytes(recorder, r == ROOT ? stage.in[r] : got[0][r], &bytes[0][r], ROOT, NULL));
        MUST(comm_barrier(recorder, NULL));
        MUST(comm_group_end(recorder, &request[0][r]));
    }
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(request[0][r], RIG_PATIENCE), r == 2 ? COMM_ERR_TRUNCATED : COMM_OK);
    rig_proves_alive(stage.rig.world, RANKS);
    close_stage(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_5_mismatch_at_one_edge),     cmocka_unit_test(contract_4_5_mismatch_at_one_edge_of_many),
        cmocka_unit_test(contract_4_5_mismatch_of_two),          cmocka_unit_test(contract_4_5_a_root_that_contradicts_itself),
        cmocka_unit_test(contract_1_1_length_and_bytes_in_one),  cmocka_unit_test(contract_4_4_length_and_bytes_that_fail_alone),
        cmocka_unit_test(contract_1_1_length_and_bytes_in_line),
    };
    return cmocka_run_group_tests_name("contract_pairs", tests, NULL, NULL);
}
