/* Continuing after a failure: agree and shrink, on communicators that work, were revoked, or lost ranks that closed. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5 };

/* ------------------------------------------------------------------------------------------------------------ agree */
struct agreeing {
    struct rig *rig;
    uint64_t given[RIG_RANKS_MAX], got[RIG_RANKS_MAX];
    enum comm_result result[RIG_RANKS_MAX];
    int32_t rounds, late;
};

static void agree(void *arg, int32_t rank)
{
    struct agreeing *a = arg;
    if (rank == a->late)
        rig_nap(50 * RIG_MS);
    for (int32_t i = 0; i < a->rounds; i++) {
        a->got[rank] = a->given[rank] ^ (uint64_t)i << 32;
        a->result[rank] = NOW(comm_agree, a->rig->world[rank], &a->got[rank]);
        if (a->result[rank] == COMM_OK)
            CHECK((a->got[rank] & 1) == 1);
    }
}

static void all_agree(struct rig *rig, int32_t rounds)
{
    struct agreeing a = {.rig = rig, .rounds = rounds, .late = rig->ranks / 2};
    uint64_t want = UINT64_MAX;
    for (int32_t r = 0; r < rig->ranks; r++) {
        a.given[r] = (~(UINT64_C(1) << (r + 1)) & UINT64_C(0xffffffff)) | UINT64_C(1) << 40;
        want &= a.given[r] ^ (uint64_t)(rounds - 1) << 32;
    }
    rig_threads(rig->ranks, agree, &a);
    for (int32_t r = 0; r < rig->ranks; r++) {
        IS(a.result[r], COMM_OK);
        EQUAL(a.got[r], want);
    }
}

RIG_TEST(contract_4_6_agree_where_nothing_has_failed)
{
    struct rig rig;
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) {
        rig_open(&rig, ranks, NULL);
        all_agree(&rig, 20);
        rig_proves_alive(rig.world, ranks);
        rig_close(&rig);
    }
}

RIG_TEST(contract_4_6_agree_after_a_revoke)
{
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_revoke(rig.world[1]));
    all_agree(&rig, 7);
    all_agree(&rig, 1);
    rig_close(&rig);
}

/* Messages that the failure ended keep their result, even when later messages use their places. */
RIG_TEST(contract_4_6_what_failed_stays_failed_after_an_agreement)
{
    enum { MESSAGES = 3 };
    int32_t memory[MESSAGES] = {0};
    struct comm_request request[MESSAGES];
    struct comm_communicator *next = NULL;
    struct rig rig;
    rig_open(&rig, 1, NULL);
    for (int32_t i = 0; i < MESSAGES; i++)
        MUST(comm_recv(rig.world[0], &memory[i], 1, COMM_I32, 0, (uint32_t)i, NULL, &request[i]));
    MUST(comm_revoke(rig.world[0]));
    for (int32_t i = 0; i < MESSAGES; i++)
        IS(comm_wait(request[i], RIG_PATIENCE), COMM_ERR_REVOKED);
    for (int32_t rounds = 0; rounds < 2 * MESSAGES; rounds++) {
        uint64_t flags = 1;
        MUST(NOW(comm_agree, rig.world[0], &flags));
        MUST(NOW(comm_shrink, rig.world[0], &next));
        MUST(comm_close(next, RIG_PATIENCE));
        for (int32_t i = 0; i < MESSAGES; i++)
            IS(comm_test(request[i]), COMM_ERR_REVOKED);
    }
    rig_close(&rig);
}

/* Neither line delays it: not an open queue wait, nor a collective that lacks a rank, nor a receive. */
RIG_TEST(contract_4_6_agree_is_outside_of_the_queue)
{
    struct rig rig;
    struct comm_event *gate[RANKS];
    struct comm_request request[RANKS], unmatched;
    int32_t got;
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_event_create(rig.world[r], &gate[r]));
        MUST(comm_event_reset(gate[r]));
        MUST(comm_queue_wait_event(rig.world[r], gate[r]));
        MUST(comm_barrier(rig.world[r], &request[r]));
    }
    MUST(comm_recv(rig.world[2], &got, 1, COMM_I32, 1, 3, NULL, &unmatched));
    all_agree(&rig, 3);
    for (int32_t r = 0; r < RANKS; r++) {
        IS(comm_test(request[r]), COMM_PENDING);
        MUST(comm_event_set(gate[r]));
    }
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        comm_event_free(gate[r]);
    IS(comm_test(unmatched), COMM_PENDING);
    MUST(comm_cancel(unmatched));
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ shrink */
/* Shrinks on the ranks in `members` (one bit each); the others have closed or never call. */
static void shrink(struct comm_communicator *const *c, uint32_t members, int32_t ranks, struct comm_communicator **out)
{
    struct comm_request request[RIG_RANKS_MAX] = {COMM_REQUEST_NONE};
    int32_t count = 0;
    for (int32_t r = 0; r < ranks; r++)
        if (members >> r & 1)
            MUST(comm_shrink(c[r], &out[count], &request[count])), count++;
    rig_wait_all(request, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        EQUAL(comm_rank(out[i]), i);
        EQUAL(comm_size(out[i]), count);
    }
    rig_proves_alive(out, count);
}

static void close_all(struct comm_communicator *const *c, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_close(c[r], RIG_PATIENCE));
}

RIG_TEST(contract_4_6_shrink_after_a_revoke_again_and_again)
{
    enum { ROUNDS = 30 };
    struct comm_communicator *now[RIG_RANKS_MAX], *next[RIG_RANKS_MAX];
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    memcpy(now, rig.world, sizeof now);
    for (int i = 0; i < (rig_quick() ? 10 : ROUNDS); i++) {
        if (i % 3 != 2)
            MUST(comm_revoke(now[i % RANKS]));
        shrink(now, UINT32_MAX, RANKS, next);
        if (i % 3 == 2)
            rig_proves_alive(now, RANKS); /* a communicator that has not failed continues next to it */
        if (i)
            close_all(now, RANKS);
        memcpy(now, next, sizeof now);
    }
    close_all(now, RANKS);
    rig_close(&rig);
}

/* Ranks leave one after the other: the lowest, the highest, one in the middle. The survivors' communicator is complete
 * and can be split. */
RIG_TEST(contract_4_6_shrink_leaves_out_who_closed)
{
    static const int32_t leaves[] = {0, 3, 1, 0};
    struct comm_communicator *now[RIG_RANKS_MAX], *next[RIG_RANKS_MAX];
    struct rig rig;
    for (int failed = 0; failed < 2; failed++) {
        int32_t ranks = RANKS;
        rig_open(&rig, RANKS, NULL);
        memcpy(now, rig.world, sizeof now);
        for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++, ranks--) {
            uint32_t members = UINT32_MAX & ~(UINT32_C(1) << leaves[i]);
            if (failed)
                MUST(comm_revoke(now[ranks - 1]));
            MUST(comm_close(now[leaves[i]], RIG_PATIENCE));
            shrink(now, members, ranks, next);
            for (int32_t r = 0; r < ranks; r++)
                if (r != leaves[i])
                    MUST(comm_close(now[r], RIG_PATIENCE));
            memcpy(now, next, sizeof now);
            struct comm_communicator *half[RIG_RANKS_MAX];
            struct comm_request request[RIG_RANKS_MAX];
            for (int32_t r = 0; r < ranks - 1; r++)
                MUST(comm_split(now[r], r % 2, 0, &half[r], &request[r]));
            rig_wait_all(request, (size_t)ranks - 1);
            close_all(half, ranks - 1);
        }
        close_all(now, ranks);
    }
}

RIG_TEST(contract_4_6_messages_and_memory_of_a_shrunk_communicator)
{
    struct comm_communicator *now[RANKS];
    struct rig rig;
    int32_t sent = 42, got = 0;
    struct comm_request request[2];
    void *memory;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_revoke(rig.world[0]));
    shrink(rig.world, UINT32_MAX, RANKS, now);
    rig_close(&rig); /* the child continues without its parent */
    MUST(comm_recv(now[4], &got, 1, COMM_I32, 0, 7, NULL, &request[1]));
    MUST(comm_send(now[0], &sent, 1, COMM_I32, 4, 7, &request[0]));
    rig_wait_all(request, 2);
    EQUAL(got, 42);
    MUST(comm_mem_alloc(now[1], 8192, &memory));
    comm_mem_free(now[1], memory);
    close_all(now, RANKS);
}

/* ------------------------------------------------------------------------------------------------------------ failures */
RIG_TEST(contract_4_6_who_does_not_call_ends_it_with_the_deadline)
{
    struct comm_communicator *out[3] = {0};
    struct comm_request request[3];
    struct comm_error error = {.size = sizeof error};
    struct rig rig;
    rig_open(&rig, 3, COMM_CONFIG(.operation_timeout_ns = RIG_S));
    int64_t since = rig_now();
    MUST(comm_shrink(rig.world[0], &out[0], &request[0]));
    MUST(comm_shrink(rig.world[2], &out[2], &request[2]));
    IS(comm_wait(request[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    IS(comm_wait(request[2], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(rig_now() - since >= RIG_S && rig_now() - since < 4 * RIG_S);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "shrink") && strstr(error.text, "ranks: 1"));
    CHECK(!out[0] && !out[2]);
    /* A late rank is alone: the others have left. */
    shrink(rig.world, 2, 3, out);
    MUST(comm_close(out[0], RIG_PATIENCE));
    rig_proves_alive(rig.world, 3);
    IS(NOW(comm_shrink, rig.world[0], &out[0]), COMM_ERR_TIMEOUT);
    rig_close(&rig);
}

static void differ(void *arg, int32_t rank)
{
    struct agreeing *a = arg;
    struct comm_communicator *out = NULL;
    if (rank == 1)
        a->result[rank] = NOW(comm_shrink, a->rig->world[rank], &out);
    else
        a->result[rank] = NOW(comm_agree, a->rig->world[rank], &a->got[rank]);
    CHECK(!out);
}

RIG_TEST(contract_4_6_agree_here_and_shrink_there)
{
    struct rig rig;
    struct agreeing a = {.rig = &rig};
    rig_open(&rig, 3, NULL);
    rig_threads(3, differ, &a);
    for (int32_t r = 0; r < 3; r++)
        IS(a.result[r], COMM_ERR_MISMATCH);
    rig_proves_alive(rig.world, 3);
    rig_close(&rig);
}

RIG_TEST(contract_4_6_one_at_a_time_and_arguments)
{
    struct comm_communicator *out[2] = {0}, *more = NULL;
    struct comm_request request[2];
    struct rig rig;
    uint64_t flags = 1;
    rig_open(&rig, 2, NULL);
    IS(NOW(comm_agree, rig.world[0], NULL), COMM_ERR_ARGUMENT);
    IS(comm_agree(rig.world[0], &flags, NULL), COMM_ERR_ARGUMENT);
    IS(NOW(comm_shrink, rig.world[0], NULL), COMM_ERR_ARGUMENT);
    IS(comm_shrink(rig.world[0], &out[0], NULL), COMM_ERR_ARGUMENT);
    IS(comm_agree(NULL, &flags, &request[0]), COMM_ERR_ARGUMENT);
    IS(comm_test(request[0]), COMM_ERR_ARGUMENT);
    MUST(comm_shrink(rig.world[0], &out[0], &request[0]));
    struct comm_error refusal = {.size = sizeof refusal};
    IS(NOW(comm_agree, rig.world[0], &flags), COMM_ERR_STATE);
    MUST(comm_error_detail(rig.world[0], &refusal));
    CHECK(strcmp(refusal.operation, "agree") == 0);
    IS(NOW(comm_shrink, rig.world[0], &more), COMM_ERR_STATE);
    MUST(comm_error_detail(rig.world[0], &refusal));
    CHECK(strcmp(refusal.operation, "shrink") == 0);
    MUST(comm_shrink(rig.world[1], &out[1], &request[1]));
    rig_wait_all(request, 2);
    close_all(out, 2);
    rig_close(&rig);
}

RIG_TEST(contract_4_6_abort_and_close_end_a_shrink)
{
    struct comm_communicator *out[3] = {0};
    struct comm_request request;
    struct rig rig;
    struct comm_error error = {.size = sizeof error};
    uint64_t flags = 1;
    rig_open(&rig, 3, NULL);
    MUST(comm_shrink(rig.world[0], &out[0], &request));
    IS(comm_close(rig.world[0], 20 * RIG_MS), COMM_ERR_TIMEOUT);
    IS(comm_test(request), COMM_ERR_CLOSED);
    CHECK(!out[0]);
    MUST(comm_shrink(rig.world[1], &out[1], &request));
    (void)comm_abort(rig.world[1], 3);
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_ABORTED);
    IS(NOW(comm_agree, rig.world[1], &flags), COMM_ERR_ABORTED);
    MUST(comm_error_detail(rig.world[1], &error)); /* of the abort, not of later refusals */
    IS(error.result, COMM_ERR_ABORTED);
    EQUAL(error.rank, 1);
    CHECK(strstr(error.text, "code 3"));
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
    (void)comm_close(rig.world[2], RIG_PATIENCE);
}

/* Also on a communicator that had failed before for another reason: rank 0 waits in a shrink of it, and no new one is
 * made. */
RIG_TEST(contract_4_6_nothing_is_made_in_an_aborted_world)
{
    struct comm_communicator *second[2], *out[2] = {0};
    struct comm_request request;
    struct comm_error error = {.size = sizeof error};
    struct rig rig;
    uint64_t flags = 1;
    rig_open(&rig, 2, NULL);
    rig_dup(rig.world, 2, second);
    MUST(comm_revoke(second[0]));
    rig_fails_within(second[1], COMM_ERR_REVOKED, RIG_S, &error);
    MUST(comm_shrink(second[0], &out[0], &request));
    IS(comm_test(request), COMM_PENDING);
    (void)comm_abort(rig.world[1], 3);
    IS(comm_wait(request, 2 * RIG_S), COMM_ERR_ABORTED);
    for (int32_t r = 0; r < 2; r++) {
        IS(NOW(comm_shrink, second[r], &out[r]), COMM_ERR_ABORTED);
        IS(NOW(comm_agree, second[r], &flags), COMM_ERR_ABORTED);
        CHECK(!out[r]);
        MUST(comm_close(second[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

/* The same if no working communicator is left to abort. */
RIG_TEST(contract_4_6_abort_of_what_was_revoked)
{
    struct comm_communicator *out[2] = {0};
    struct comm_request request;
    struct comm_error error = {.size = sizeof error};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    MUST(comm_revoke(rig.world[0]));
    rig_fails_within(rig.world[1], COMM_ERR_REVOKED, RIG_S, &error);
    MUST(comm_shrink(rig.world[0], &out[0], &request));
    (void)comm_abort(rig.world[0], 3);
    IS(comm_wait(request, 2 * RIG_S), COMM_ERR_ABORTED);
    IS(NOW(comm_shrink, rig.world[0], &out[0]), COMM_ERR_ABORTED);
    CHECK(!out[0]);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_6_agree_where_nothing_has_failed),
        cmocka_unit_test(contract_4_6_agree_after_a_revoke),
        cmocka_unit_test(contract_4_6_what_failed_stays_failed_after_an_agreement),
        cmocka_unit_test(contract_4_6_agree_is_outside_of_the_queue),
        cmocka_unit_test(contract_4_6_shrink_after_a_revoke_again_and_again),
        cmocka_unit_test(contract_4_6_shrink_leaves_out_who_closed),
        cmocka_unit_test(contract_4_6_messages_and_memory_of_a_shrunk_communicator),
        cmocka_unit_test(contract_4_6_who_does_not_call_ends_it_with_the_deadline),
        cmocka_unit_test(contract_4_6_agree_here_and_shrink_there),
        cmocka_unit_test(contract_4_6_one_at_a_time_and_arguments),
        cmocka_unit_test(contract_4_6_abort_and_close_end_a_shrink),
        cmocka_unit_test(contract_4_6_nothing_is_made_in_an_aborted_world),
        cmocka_unit_test(contract_4_6_abort_of_what_was_revoked),
    };
    return cmocka_run_group_tests_name("contract_4_recover", tests, NULL, NULL);
}
