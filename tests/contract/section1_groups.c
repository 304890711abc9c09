/* Groups: members without an order, small ones in one exchange, one request for all. */
#define _GNU_SOURCE
#include "conform/oracle.h"
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 6, MOST = 24 };

/* What the small members reduce: lengths that are no multiple of any vector, one of them zero. */
static const struct part {
    enum comm_type type;
    comm_op op;
    size_t n;
    bool in_place;
} parts[PARTS] = {
    {COMM_F64, COMM_MIN, 1, false}, {COMM_F64, COMM_SUM, 3, true},  {COMM_BF16, COMM_AVG, 7, false},
    {COMM_I16, COMM_BXOR, 5, true}, {COMM_F32, COMM_SUM, 0, false}, {COMM_F16, COMM_SUM, MOST, true},
};

struct small {
    unsigned char in[PARTS][MOST * 8], out[PARTS][MOST * 8], want[PARTS][MOST * 8];
};

static void fill_small(struct small *small, int32_t rank, uint64_t seed)
{
    for (int i = 0; i < PARTS; i++) {
        oracle_fill(small->in[i], parts[i].n, parts[i].type, parts[i].op, seed + (uint64_t)i, rank);
        memset(small->out[i], 0x77, sizeof small->out[i]);
        if (parts[i].in_place)
            memcpy(small->out[i], small->in[i], sizeof small->in[i]);
    }
}

static void record_small(struct small *small, struct comm_communicator *recorder)
{
    for (int i = 0; i < PARTS; i++)
        MUST(comm_allreduce(recorder, parts[i].in_place ? COMM_IN_PLACE : small->in[i], small->out[i], parts[i].n, parts[i].type,
                            parts[i].op, NULL));
}

static void verify_small(struct small *small, int32_t ranks)
{
    const void *in[RIG_RANKS_MAX + 1];
    for (int i = 0; i < PARTS; i++) {
        for (int32_t r = 0; r < ranks; r++)
            in[r] = small[r].in[i];
        memset(small[0].want[i], 0x77, sizeof small[0].want[i]);
        oracle_reduce(in, ranks, parts[i].n, parts[i].type, parts[i].op, small[0].want[i]);
        for (int32_t r = 0; r < ranks; r++) {
            CHECK(oracle_differ(small[r].out[i], small[0].want[i], parts[i].n, parts[i].type) == parts[i].n);
            size_t end = parts[i].n * oracle_type_bytes(parts[i].type);
            CHECK(parts[i].in_place || small[r].out[i][end] == 0x77);
        }
    }
}

/* One number, one exchange, and the same bits as separate calls. */
RIG_TEST(contract_1_1_a_groups_small_reductions_are_one_exchange)
{
    static struct small small[RIG_RANKS_MAX];
    for (int32_t ranks = 1; ranks <= RIG_RANKS_MAX; ranks += ranks < 6 ? 1 : 5) {
        struct rig rig;
        struct comm_request request[RIG_RANKS_MAX], before, after;
        struct comm_request_info first = {.size = sizeof first}, last = {.size = sizeof last}, group = {.size = sizeof group};
        rig_open(&rig, ranks, NULL);
        for (int round = 0; round < 40; round++) {
            for (int32_t r = 0; r < ranks; r++) {
                struct comm_communicator *recorder;
                fill_small(&small[r], r, (uint64_t)(round * 100));
                MUST(comm_barrier(rig.world[r], r == 0 ? &before : NULL));
                MUST(comm_group_begin(rig.world[r], &recorder));
                record_small(&small[r], recorder);
                MUST(comm_group_end(recorder, &request[r]));
                MUST(comm_barrier(rig.world[r], r == 0 ? &after : NULL));
            }
            rig_wait_all(request, (size_t)ranks);
            MUST(comm_wait(after, RIG_PATIENCE));
            verify_small(small, ranks);
            MUST(comm_describe_request(before, &first));
            MUST(comm_describe_request(request[0], &group));
            MUST(comm_describe_request(after, &last));
            EQUAL(group.sequence, first.sequence + 1);
            EQUAL(last.sequence, first.sequence + 2);
        }
        rig_close(&rig);
    }
}

/* ------------------------------------------------------------------------------------------------------------ all in one group */
struct mixed {
    struct small small;
    int32_t *large_in, *large_out;
    int64_t gathered[RIG_RANKS_MAX], mine, sent, got;
};
enum { LARGE = 50000 };

static void record_mixed(struct mixed *m, struct comm_communicator *recorder, int32_t rank, int32_t ranks)
{
    MUST(comm_recv(recorder, &m->got, 1, COMM_I64, (rank + ranks - 1) % ranks, 4, NULL, NULL));
    MUST(comm_send(recorder, &m->sent, 1, COMM_I64, (rank + 1) % ranks, 4, NULL));
    MUST(comm_allreduce(recorder, m->large_in, m->large_out, LARGE, COMM_I32, COMM_SUM, NULL));
    record_small(&m->small, recorder);
    MUST(comm_allgather(recorder, &m->mine, m->gathered, 1, COMM_I64, NULL));
}

static void fill_mixed(struct mixed *m, int32_t rank, int64_t round)
{
    fill_small(&m->small, rank, (uint64_t)round);
    m->mine = round * 100 + rank;
    m->sent = -m->mine;
    m->got = 0;
    memset(m->gathered, 0, sizeof m->gathered);
    for (int32_t i = 0; i < LARGE; i++) {
        m->large_in[i] = i + rank * 7 + (int32_t)round;
        m->large_out[i] = -1;
    }
}

static void verify_mixed(struct mixed *m, int32_t ranks, int64_t round)
{
    static struct small small[RIG_RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++) {
        small[r] = m[r].small;
        EQUAL(m[r].got, -(round * 100 + (r + ranks - 1) % ranks));
        for (int32_t k = 0; k < ranks; k++)
            EQUAL(m[r].gathered[k], round * 100 + k);
        for (int32_t i = 0; i < LARGE; i++)
            CHECK(m[r].large_out[i] == ranks * (i + (int32_t)round) + 7 * ranks * (ranks - 1) / 2);
    }
    verify_small(small, ranks);
}

static struct mixed *make_mixed(int32_t ranks)
{
    struct mixed *m = calloc((size_t)ranks, sizeof *m);
    CHECK(m);
    for (int32_t r = 0; r < ranks; r++) {
        m[r].large_in = calloc(LARGE, sizeof(int32_t));
        m[r].large_out = calloc(LARGE, sizeof(int32_t));
        CHECK(m[r].large_in && m[r].large_out);
    }
    return m;
}

static void free_mixed(struct mixed *m, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++) {
        free(m[r].large_in);
        free(m[r].large_out);
    }
    free(m);
}

RIG_TEST(contract_1_1_a_group_of_work_and_messages)
{
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        struct rig rig;
        struct comm_request request[RIG_RANKS_MAX];
        struct mixed *m = make_mixed(ranks);
        rig_open(&rig, ranks, NULL);
        for (int64_t round = 1; round < 6; round++) {
            for (int32_t r = 0; r < ranks; r++) {
                struct comm_communicator *recorder;
                fill_mixed(&m[r], r, round);
                MUST(comm_group_begin(rig.world[r], &recorder));
                record_mixed(&m[r], recorder, r, ranks);
                MUST(comm_group_end(recorder, &request[r]));
            }
            rig_wait_all(request, (size_t)ranks);
            verify_mixed(m, ranks, round);
        }
        rig_close(&rig);
        free_mixed(m, ranks);
    }
}

/* A plan may contain groups next to plain calls; the plan's recorder continues after the group's end. */
RIG_TEST(contract_1_1_a_plan_of_groups)
{
    enum { RANKS = 3, STARTS = 20 };
    struct rig rig;
    struct comm_request request[RANKS];
    struct comm_plan *plan[RANKS];
    static int64_t in[RANKS], out[RANKS];
    struct mixed *m = make_mixed(RANKS);
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *recorder, *group, *none;
        MUST(comm_plan_begin(rig.world[r], &recorder));
        MUST(comm_group_begin(recorder, &group));
        IS(comm_group_begin(group, &none), COMM_ERR_STATE);
        IS(comm_plan_begin(group, &none), COMM_ERR_STATE);
        record_mixed(&m[r], group, r, RANKS);
        MUST(comm_group_end(group, NULL));
        MUST(comm_allreduce(recorder, &in[r], &out[r], 1, COMM_I64, COMM_SUM, NULL));
        MUST(comm_plan_end(recorder, &plan[r]));
    }
    for (int64_t round = 1; round <= STARTS; round++) {
        for (int32_t r = 0; r < RANKS; r++) {
            fill_mixed(&m[r], r, round);
            in[r] = round + r;
            MUST(comm_plan_start(plan[r], &request[r]));
        }
        rig_wait_all(request, RANKS);
        verify_mixed(m, RANKS, round);
        for (int32_t r = 0; r < RANKS; r++)
            EQUAL(out[r], 3 * round + 3);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_plan_start(plan[r], &request[r]));
        comm_plan_free(plan[r]); /* the start continues without it */
    }
    rig_wait_all(request, RANKS);
    free_mixed(m, RANKS);
    rig_close(&rig);
}

/* A wait recorded anywhere in a group comes before all of it. */
RIG_TEST(contract_1_1_a_groups_waits_stand_before_it)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_communicator *recorder;
    struct comm_request request[2];
    int32_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    rig_open(&rig, 2, NULL);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    for (int r = 0; r < 2; r++) {
        MUST(comm_group_begin(rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, &in[2 * r], &out[2 * r], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_allreduce(recorder, &in[2 * r + 1], &out[2 * r + 1], 1, COMM_I32, COMM_MAX, NULL));
        if (r == 0)
            MUST(comm_queue_wait_event(recorder, gate));
        MUST(comm_group_end(recorder, &request[r]));
    }
    rig_progress_for(rig.world[0], RIG_MS);
    IS(comm_test(request[0]), COMM_PENDING);
    EQUAL(out[0], 0);
    in[0] = 11; /* read when the wait is over */
    MUST(comm_event_set(gate));
    rig_wait_all(request, 2);
    EQUAL(out[0], 14);
    EQUAL(out[3], 4);
    comm_event_free(gate);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ refusals and errors */
static enum comm_result group_of_two(struct comm_communicator *c, int32_t *memory, bool conflict, struct comm_request *request)
{
    struct comm_communicator *recorder;
    MUST(comm_group_begin(c, &recorder));
    MUST(comm_allreduce(recorder, &memory[0], &memory[2], 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_allreduce(recorder, &memory[conflict ? 2 : 1], &memory[3], 1, COMM_I32, COMM_SUM, NULL));
    return comm_group_end(recorder, request);
}

/* If all ranks refuse it, the communicator continues; if one does, the communicator fails with that rank's name. */
RIG_TEST(contract_1_8_a_group_whose_members_conflict)
{
    struct rig rig;
    struct comm_request request[3];
    struct comm_error error = {.size = sizeof error};
    int32_t memory[3][4] = {{1, 2, 0, 0}, {3, 4, 0, 0}, {5, 6, 0, 0}};
    rig_open(&rig, 3, NULL);
    for (int32_t r = 0; r < 3; r++) {
        IS(group_of_two(rig.world[r], memory[r], true, &request[r]), COMM_ERR_ARGUMENT);
        IS(comm_test(request[r]), COMM_ERR_ARGUMENT);
    }
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "same memory"));
    rig_proves_alive(rig.world, 3);
    for (int32_t r = 0; r < 3; r++) { /* rank 2 may learn of it inside the call */
        enum comm_result result = group_of_two(rig.world[r], memory[r], r == 1, &request[r]);
        CHECK(r == 1 ? result == COMM_ERR_ARGUMENT : result == COMM_OK || (r == 2 && result == COMM_ERR_REFUSED));
    }
    for (int32_t r = 0; r < 3; r += 2) {
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_REFUSED);
        MUST(comm_error_detail(rig.world[r], &error));
        EQUAL(error.rank, 1);
    }
    rig_close(&rig);
}

/* A call that is refused while a group is recorded refuses the group, under one number. */
RIG_TEST(contract_1_8_a_refused_member_refuses_its_group)
{
    struct rig rig;
    struct comm_request request[2];
    int32_t in = 1, out = 0;
    rig_open(&rig, 2, NULL);
    for (int32_t r = 0; r < 2; r++) {
        struct comm_communicator *recorder;
        MUST(comm_group_begin(rig.world[r], &recorder));
        if (r == 0)
            MUST(comm_allreduce(recorder, &in, &out, 1, COMM_I32, COMM_SUM, NULL));
        IS(comm_broadcast(recorder, &in, 1, COMM_I32, 2, NULL), COMM_ERR_ARGUMENT);
        IS(comm_group_end(recorder, &request[r]), COMM_ERR_ARGUMENT);
    }
    EQUAL(out, 0);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* The first error of its members is the group's error, reported once: by its request or, without one, by sync. */
RIG_TEST(contract_1_1_a_groups_request_carries_the_first_error)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_request request;
    int32_t words[4] = {1, 2, 3, 4}, got = 0, in[2] = {5, 6}, out[2] = {0};
    rig_open(&rig, 2, NULL);
    for (int kept = 1; kept >= 0; kept--) {
        MUST(comm_group_begin(rig.world[0], &recorder));
        MUST(comm_recv(recorder, &got, 1, COMM_I32, 1, 0, NULL, NULL));
        MUST(comm_allreduce(recorder, &in[0], &out[0], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_group_end(recorder, kept ? &request : NULL));
        MUST(comm_group_begin(rig.world[1], &recorder));
        MUST(comm_send(recorder, words, 4, COMM_I32, 0, 0, NULL));
        MUST(comm_allreduce(recorder, &in[1], &out[1], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_group_end(recorder, NULL));
        if (kept)
            IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_TRUNCATED);
        else
            IS(comm_sync(rig.world[0], COMM_FOREVER), COMM_ERR_TRUNCATED);
        EQUAL(out[0], 11);
        out[0] = 0;
        MUST(comm_sync(rig.world[0], COMM_FOREVER));
        MUST(comm_sync(rig.world[1], COMM_FOREVER));
    }
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

static void mismatched(comm_op second, bool plain)
{
    struct rig rig;
    struct comm_request request[2];
    int32_t in[4] = {1, 2, 3, 4}, out[4];
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++) {
        struct comm_communicator *recorder;
        if (r == 1 && plain) {
            enum comm_result result = comm_allreduce(rig.world[1], in, out, 1, COMM_I32, COMM_SUM, &request[1]);
            CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
            break;
        }
        MUST(comm_group_begin(rig.world[r], &recorder));
        MUST(comm_allreduce(recorder, &in[r], &out[r], 1, COMM_I32, COMM_SUM, NULL));
        MUST(comm_allreduce(recorder, &in[r + 2], &out[r + 2], 1, COMM_I32, r ? second : COMM_SUM, NULL));
        enum comm_result result = comm_group_end(recorder, &request[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    rig_close(&rig);
}

RIG_TEST(contract_1_1_groups_match_groups_of_the_same_members)
{
    mismatched(COMM_MAX, false);
    mismatched(COMM_SUM, true);
}

/* Recordings that are discarded, and empty ones. */
RIG_TEST(contract_1_1_empty_and_wrong_groups)
{
    struct rig rig;
    struct comm_communicator *recorder, *other;
    struct comm_plan *plan;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    MUST(comm_group_begin(rig.world[0], &recorder));
    MUST(comm_group_end(recorder, &request));
    MUST(comm_test(request));
    IS(comm_group_end(rig.world[0], &request), COMM_ERR_STATE);
    IS(comm_group_begin(rig.world[0], NULL), COMM_ERR_ARGUMENT);
    MUST(comm_group_begin(rig.world[0], &recorder));
    IS(comm_plan_end(recorder, &plan), COMM_ERR_STATE);
    IS(comm_close(recorder, 0), COMM_ERR_STATE);
    IS(NOW(comm_split, recorder, 0, 0, &other), COMM_ERR_STATE);
    MUST(comm_group_end(recorder, NULL));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_1_a_groups_small_reductions_are_one_exchange),
        cmocka_unit_test(contract_1_1_a_group_of_work_and_messages),
        cmocka_unit_test(contract_1_1_a_plan_of_groups),
        cmocka_unit_test(contract_1_1_a_groups_waits_stand_before_it),
        cmocka_unit_test(contract_1_8_a_group_whose_members_conflict),
        cmocka_unit_test(contract_1_8_a_refused_member_refuses_its_group),
        cmocka_unit_test(contract_1_1_a_groups_request_carries_the_first_error),
        cmocka_unit_test(contract_1_1_groups_match_groups_of_the_same_members),
        cmocka_unit_test(contract_1_1_empty_and_wrong_groups),
    };
    return cmocka_run_group_tests_name("contract_1_groups", tests, NULL, NULL);
}
