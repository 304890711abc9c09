/* comm_subset: communicators that their members create among themselves. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { RANKS = 6 };

static void close_all(struct comm_communicator **c, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MUST(comm_close(c[i], RIG_PATIENCE));
}

static const char *detail(struct comm_communicator *c)
{
    static struct comm_error error;
    error = (struct comm_error){.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error.text;
}

RIG_TEST(contract_1_7_a_subset_is_made_by_its_members_alone)
{
    static const int32_t list[] = {4, 1, 3};
    struct rig rig;
    struct comm_communicator *made[3];
    struct comm_request q[3];
    rig_open(&rig, RANKS, NULL);
    for (int32_t i = 0; i < 3; i++)
        MUST(comm_subset(rig.world[list[i]], list, 3, 7, &made[i], &q[i]));
    rig_wait_all(q, 3);
    for (int32_t i = 0; i < 3; i++) {
        EQUAL(comm_size(made[i]), 3);
        EQUAL(comm_rank(made[i]), i);
        for (int32_t k = 0; k < 3; k++)
            EQUAL(comm_translate(made[i], k, rig.world[list[i]]), list[k]);
    }
    rig_proves_alive(made, 3);
    rig_proves_alive(rig.world, RANKS); /* no number was used */
    close_all(made, 3);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *alone;
        MUST(NOW(comm_subset, rig.world[r], &r, 1, 0, &alone));
        EQUAL(comm_size(alone), 1);
        rig_proves_alive(&alone, 1);
        MUST(comm_close(alone, RIG_PATIENCE));
    }
    rig_close(&rig);
}

/* Each rank begins them in another order, some with equal lists and tags, next to collectives, general receives and a
 * split. */
RIG_TEST(contract_1_7_subsets_that_are_made_at_once)
{
    enum { SETS = 4 };
    static const int32_t list[SETS][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 5}, {0, 1, 2}};
    static const uint32_t tag[SETS] = {1, 1, 1, 2};
    struct rig rig;
    struct comm_communicator *made[SETS][3], *twin[3], *half[RANKS];
    struct comm_request q[SETS][3], again[3], split[RANKS], any, sent;
    int32_t got = 0, word = 42, in[RANKS], out[RANKS];
    rig_open(&rig, RANKS, NULL);
    MUST(comm_recv(rig.world[1], &got, 1, COMM_I32, COMM_ANY_PEER, COMM_ANY_TAG, NULL, &any));
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = r;
        MUST(comm_allreduce(rig.world[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, NULL));
        for (int i = 0; i < SETS; i++) {
            int set = r % 2 ? SETS - 1 - i : i;
            for (int k = 0; k < 3; k++)
                if (list[set][k] == r)
                    MUST(comm_subset(rig.world[r], list[set], 3, tag[set], &made[set][k], &q[set][k]));
        }
        if (r < 3)
            MUST(comm_subset(rig.world[r], list[0], 3, tag[0], &twin[r], &again[r]));
        MUST(comm_split(rig.world[r], r % 2, 0, &half[r], &split[r]));
    }
    rig_wait_all(&q[0][0], (size_t)SETS * 3);
    rig_wait_all(again, 3);
    rig_wait_all(split, RANKS);
    IS(comm_test(any), COMM_PENDING); /* the members' own exchange is not visible as messages */
    for (int set = 0; set < SETS; set++)
        rig_proves_alive(made[set], 3);
    rig_proves_alive(twin, 3);
    rig_proves_alive((struct comm_communicator *[]){half[0], half[2], half[4]}, 3);
    rig_proves_alive((struct comm_communicator *[]){half[1], half[3], half[5]}, 3);
    MUST(comm_send(rig.world[0], &word, 1, COMM_I32, 1, 3, &sent));
    MUST(comm_wait(any, RIG_PATIENCE));
    EQUAL(got, 42);
    close_all(&made[0][0], (size_t)SETS * 3);
    close_all(twin, 3);
    close_all(half, RANKS);
    rig_close(&rig);
}

RIG_TEST(contract_1_7_sync_and_last_stand_behind_a_subset)
{
    static const int32_t list[] = {0, 1};
    struct rig rig;
    struct comm_communicator *made[2];
    struct comm_request q[2];
    rig_open(&rig, 2, NULL);
    MUST(comm_subset(rig.world[0], list, 2, 0, &made[0], &q[0]));
    struct comm_request last = comm_last(rig.world[0]);
    IS(comm_test(last), COMM_PENDING);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q[0], &info));
    CHECK(strcmp(info.algorithm, "subset") == 0);
    IS(comm_cancel(q[0]), COMM_ERR_STATE);
    MUST(comm_subset(rig.world[1], list, 2, 0, &made[1], &q[1]));
    MUST(comm_wait(last, RIG_PATIENCE));
    MUST(comm_test(q[0]));
    MUST(comm_sync(rig.world[1], COMM_FOREVER));
    MUST(comm_test(q[1]));
    close_all(made, 2);
    rig_close(&rig);
}

RIG_TEST(contract_1_8_lists_that_are_none)
{
    static const struct {
        int32_t list[3];
        size_t count;
        const char *text;
    } wrong[] = {{{0, 1, 9}, 3, "ranks[2]=9; expected 0 to 5"},
                 {{0, -1, 2}, 3, "ranks[1]=-1; expected 0 to 5"},
                 {{0, 2, 0}, 3, "ranks[2]=0; expected each rank once, it is ranks[0] too"},
                 {{1, 2, 3}, 3, "do not name rank 0"},
                 {{0}, 0, "count=0; expected a list of 1 to 6"},
                 {{0}, 7, "count=7; expected a list of 1 to 6"}};
    struct rig rig;
    struct comm_communicator *made, *recorder;
    struct comm_plan *plan;
    struct comm_request q;
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        IS(comm_subset(rig.world[0], wrong[i].list, wrong[i].count, 0, &made, &q), COMM_ERR_ARGUMENT);
        IS(comm_test(q), COMM_ERR_ARGUMENT);
        CHECK(strstr(detail(rig.world[0]), wrong[i].text));
    }
    IS(comm_subset(rig.world[0], NULL, 1, 0, &made, &q), COMM_ERR_ARGUMENT);
    IS(comm_subset(rig.world[0], wrong[0].list, 1, 0, NULL, &q), COMM_ERR_ARGUMENT);
    MUST(comm_plan_begin(rig.world[0], &recorder));
    IS(comm_subset(recorder, wrong[0].list, 1, 0, &made, &q), COMM_ERR_STATE);
    MUST(comm_plan_end(recorder, &plan));
    comm_plan_free(plan);
    rig_proves_alive(rig.world, RANKS);
    rig_close(&rig);
}

/* It is not known which members have continued already. So all of c fails, as when a member does not call split. */
RIG_TEST(contract_4_5_a_member_that_does_not_come)
{
    static const int32_t list[] = {0, 1, 2};
    struct rig rig;
    struct comm_communicator *made[2];
    struct comm_request q[2];
    struct comm_error error = {.size = sizeof error};
    rig_open(&rig, 3, COMM_CONFIG(.operation_timeout_ns = 300 * RIG_MS));
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_subset(rig.world[r], list, 3, 0, &made[r], &q[r]));
    rig_fails_within(rig.world[0], COMM_ERR_TIMEOUT, 3 * RIG_S, &error);
    EQUAL(error.peer, 2);
    for (int32_t r = 0; r < 2; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    rig_close(&rig);
}

RIG_TEST(contract_4_5_a_member_that_has_closed)
{
    static const int32_t list[] = {0, 1, 2};
    struct rig rig;
    struct comm_communicator *made[2];
    struct comm_request q[2];
    struct comm_error error = {.size = sizeof error};
    rig_open(&rig, 3, NULL);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_subset(rig.world[r], list, 3, 0, &made[r], &q[r]));
    MUST(comm_close(rig.world[2], RIG_PATIENCE));
    rig.world[2] = NULL;
    rig_fails_within(rig.world[0], COMM_ERR_CLOSED, 3 * RIG_S, &error);
    EQUAL(error.rank, 2);
    for (int32_t r = 0; r < 2; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_CLOSED);
    rig_close(&rig);
}

RIG_TEST(contract_4_7_closing_with_a_subset_in_the_making)
{
    static const int32_t list[] = {0, 1};
    struct rig rig;
    struct comm_communicator *made;
    struct comm_request q;
    rig_open(&rig, 2, NULL);
    MUST(comm_subset(rig.world[0], list, 2, 0, &made, &q));
    IS(comm_close(rig.world[0], 50 * RIG_MS), COMM_ERR_TIMEOUT);
    IS(comm_test(q), COMM_ERR_CLOSED);
    rig.world[0] = NULL;
    (void)!comm_close(rig.world[1], RIG_PATIENCE);
    rig.world[1] = NULL;
    rig_close(&rig);
}

/* With its whole parent's name, if there is room. */
RIG_TEST(contract_1_7_children_are_named_after_their_parent)
{
    struct rig rig;
    struct comm_communicator *subset = NULL, *dup = NULL, *deep = NULL;
    struct comm_info info = {.size = sizeof info};
    int32_t own = 0;
    rig_open(&rig, 1, NULL);
    MUST(NOW(comm_subset, rig.world[0], &own, 1, 1000000001, &subset));
    MUST(comm_describe(subset, &info));
    CHECK(strcmp(info.name, "world.0/subset.1000000001") == 0);
    MUST(NOW(comm_dup, subset, NULL, &dup));
    MUST(comm_describe(dup, &info));
    CHECK(strcmp(info.name, "world.0/subset.1000000001/1") == 0);
    MUST(NOW(comm_subset, dup, &own, 1, 4294967295, &deep));
    MUST(comm_describe(deep, &info));
    CHECK(strcmp(info.name, "world.0/subse/subset.4294967295") == 0);
    MUST(comm_close(deep, RIG_PATIENCE));
    MUST(comm_close(dup, RIG_PATIENCE));
    MUST(comm_close(subset, RIG_PATIENCE));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_7_a_subset_is_made_by_its_members_alone),
        cmocka_unit_test(contract_1_7_subsets_that_are_made_at_once),
        cmocka_unit_test(contract_1_7_sync_and_last_stand_behind_a_subset),
        cmocka_unit_test(contract_1_8_lists_that_are_none),
        cmocka_unit_test(contract_4_5_a_member_that_does_not_come),
        cmocka_unit_test(contract_4_5_a_member_that_has_closed),
        cmocka_unit_test(contract_4_7_closing_with_a_subset_in_the_making),
        cmocka_unit_test(contract_1_7_children_are_named_after_their_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
