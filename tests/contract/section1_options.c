/* Options of a dup: its priority and its algorithms. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, BYTES = 8 << 20 };

static void dup_as(struct rig *rig, int32_t priority, const char *options, struct comm_communicator **out)
{
    struct comm_request request[RANKS];
    struct comm_options how = {.size = sizeof how, .priority = priority, .options = options};
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_dup(rig->world[r], &how, &out[r], &request[r]));
    rig_wait_all(request, RANKS);
}

/* Two long reductions, issued one after the other on two communicators; true: the later one was complete first. Only
 * comm_progress makes passes. */
static bool later_wins(struct comm_communicator **first, struct comm_communicator **later, unsigned char *memory)
{
    struct comm_request request[2][RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(first[r], COMM_IN_PLACE, memory + (size_t)r * BYTES, BYTES, COMM_U8, COMM_BOR, &request[0][r]));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(later[r], COMM_IN_PLACE, memory + (size_t)(RANKS + r) * BYTES, BYTES, COMM_U8, COMM_BOR, &request[1][r]));
    for (;;) {
        bool one = comm_test(request[0][0]) == COMM_OK && comm_test(request[0][1]) == COMM_OK;
        bool two = comm_test(request[1][0]) == COMM_OK && comm_test(request[1][1]) == COMM_OK;
        if (one || two) {
            rig_wait_all(request[0], 2 * RANKS);
            return two && !one;
        }
        enum comm_result moved = comm_progress(first[0]);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
    }
}

/* A later operation may complete first: urgent before normal, normal before yielding. With equal priorities the first
 * is first. */
RIG_TEST(contract_1_10_priorities_decide_who_is_moved)
{
    rig_not_over("tcp", "a socket keeps the order in which bytes were given to it");
    struct rig rig;
    struct comm_communicator *urgent[RANKS], *normal[RANKS], *plain[RANKS], *yielding[RANKS];
    unsigned char *memory = calloc(2 * RANKS, BYTES);
    CHECK(memory);
    rig_open(&rig, RANKS, NULL);
    dup_as(&rig, -1, NULL, yielding);
    dup_as(&rig, 0, NULL, normal);
    dup_as(&rig, 0, NULL, plain);
    dup_as(&rig, 1, NULL, urgent);
    CHECK(!later_wins(normal, plain, memory));
    CHECK(later_wins(normal, urgent, memory));
    CHECK(later_wins(yielding, normal, memory));
    CHECK(later_wins(yielding, urgent, memory));
    CHECK(!later_wins(urgent, normal, memory));
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_close(urgent[r], RIG_PATIENCE));
        MUST(comm_close(yielding[r], RIG_PATIENCE));
    }
    CHECK(!later_wins(normal, plain, memory));
    free(memory);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_close(normal[r], RIG_PATIENCE));
        MUST(comm_close(plain[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

/* A yielding communicator makes progress next to others that never rest. */
RIG_TEST(contract_1_10_who_yields_is_not_forgotten)
{
    struct rig rig;
    struct comm_communicator *yielding[RANKS];
    struct comm_request slow[RANKS], request[RANKS];
    int32_t in = 1, out[RANKS];
    unsigned char *memory = calloc(RANKS, BYTES);
    CHECK(memory);
    rig_open(&rig, RANKS, NULL);
    dup_as(&rig, -1, NULL, yielding);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(yielding[r], COMM_IN_PLACE, memory + (size_t)r * BYTES, BYTES, COMM_U8, COMM_BOR, &slow[r]));
    for (int i = 0; comm_test(slow[0]) == COMM_PENDING || comm_test(slow[1]) == COMM_PENDING; i++) {
        CHECK(i < 1000000);
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_allreduce(rig.world[r], &in, &out[r], 1, COMM_I32, COMM_SUM, &request[r]));
        enum comm_result moved = comm_progress(rig.world[0]);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
        rig_wait_all(request, RANKS);
    }
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(yielding[r], RIG_PATIENCE));
    free(memory);
    rig_close(&rig);
}

static const char *algorithm_of(struct comm_communicator **c)
{
    static struct comm_request_info info;
    struct comm_request request[RANKS];
    static int32_t in[100], out[RANKS][100];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(c[r], in, out[r], 100, COMM_I32, COMM_SUM, &request[r]));
    rig_wait_all(request, RANKS);
    info = (struct comm_request_info){.size = sizeof info};
    MUST(comm_describe_request(request[0], &info));
    return info.algorithm;
}

/* Algorithms of one communicator and of those split from it; they are part of what ranks compare. */
RIG_TEST(contract_5_4_a_dup_has_algorithms_of_its_own)
{
    struct rig rig;
    struct comm_communicator *own[RANKS], *child[RANKS], *none;
    struct comm_request request[RANKS];
    rig_open(&rig, RANKS, NULL);
    dup_as(&rig, 0, "algorithm=broadcast:pipeline,allreduce:slices", own);
    CHECK(!strcmp(algorithm_of(own), "slices"));
    CHECK(!strcmp(algorithm_of(rig.world), "read_all"));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_split(own[r], 0, 0, &child[r], &request[r]));
    rig_wait_all(request, RANKS);
    CHECK(!strcmp(algorithm_of(child), "slices"));
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_options wrong = {.size = sizeof wrong, .options = "window=8"}, far = {.size = sizeof far, .priority = 2};
        IS(comm_dup(rig.world[r], &wrong, &none, &request[r]), COMM_ERR_UNSUPPORTED);
        IS(comm_dup(rig.world[r], &far, &none, &request[r]), COMM_ERR_ARGUMENT);
        MUST(comm_close(child[r], RIG_PATIENCE));
        MUST(comm_close(own[r], RIG_PATIENCE));
    }
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_options how = {.size = sizeof how, .options = r ? "algorithm=allreduce:doubling" : "algorithm=allreduce:slices"};
        enum comm_result result = comm_dup(rig.world[r], &how, &none, &request[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    rig_close(&rig);
}

static enum comm_result dup_in_order(struct comm_communicator *c, enum comm_order order, struct comm_communicator **out,
                                     struct comm_request *req)
{
    struct comm_options how = {.size = sizeof how, .order = order};
    return comm_dup(c, &how, out, req);
}

/* The order of operands is one of enum comm_order, and it decides the bits of results: ranks compare it. */
RIG_TEST(contract_5_4_a_dup_has_one_order_on_all_ranks)
{
    static const enum comm_order differ[][RANKS] = {
        {COMM_ORDER_FIXED, COMM_ORDER_FREE}, {COMM_ORDER_FREE, COMM_ORDER_DEFAULT}, {COMM_ORDER_DEFAULT, COMM_ORDER_FIXED}};
    struct rig rig;
    struct comm_communicator *made[RANKS], *none;
    struct comm_request request[RANKS];
    struct comm_error error = {.size = sizeof error};
    struct comm_info info = {.size = sizeof info};
    rig_open(&rig, RANKS, NULL);
    for (int k = 0; k < 2; k++)
        for (int32_t r = 0; r < RANKS; r++) {
            IS(dup_in_order(rig.world[r], (enum comm_order)(k ? 3 : -1), &none, &request[r]), COMM_ERR_ARGUMENT);
            IS(comm_test(request[r]), COMM_ERR_ARGUMENT);
            MUST(comm_error_detail(rig.world[r], &error));
            CHECK(strstr(error.text, k ? "options.order=3" : "options.order=-1") && strstr(error.text, "expected"));
        }
    for (int32_t order = COMM_ORDER_DEFAULT; order <= COMM_ORDER_FREE; order++) {
        for (int32_t r = 0; r < RANKS; r++)
            MUST(dup_in_order(rig.world[r], (enum comm_order)order, &made[r], &request[r]));
        rig_wait_all(request, RANKS);
        rig_proves_alive(made, RANKS);
        MUST(comm_describe(made[0], &info));
        EQUAL(info.fixed_order, order != COMM_ORDER_FREE);
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_close(made[r], RIG_PATIENCE));
    }
    rig_close(&rig);
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        rig_open(&rig, RANKS, NULL);
        for (int32_t r = 0; r < RANKS; r++) {
            enum comm_result result = dup_in_order(rig.world[r], differ[i][r], &none, &request[r]);
            CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
        }
        for (int32_t r = 0; r < RANKS; r++) {
            IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
            MUST(comm_error_detail(rig.world[r], &error));
            CHECK(strstr(error.text, "options.order") && strstr(error.text, "the same on all ranks"));
        }
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_10_priorities_decide_who_is_moved),
        cmocka_unit_test(contract_1_10_who_yields_is_not_forgotten),
        cmocka_unit_test(contract_5_4_a_dup_has_algorithms_of_its_own),
        cmocka_unit_test(contract_5_4_a_dup_has_one_order_on_all_ranks),
    };
    return cmocka_run_group_tests_name("contract_1_options", tests, NULL, NULL);
}
