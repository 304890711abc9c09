/*
 * A creating call ends in the same way on all ranks, or with the parent's failure. If one rank has the child and another has not, the first
 * one learns so in time. The test makes the passes of each rank itself, so that each rank is in a chosen state when the parent fails.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "comm/state.h"
#include "engine/memory_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, STEPS_MOST = 60 };

static bool step(struct rig *rig, int32_t rank)
{
    enum comm_result why;
    struct comm_state *b = state_lock(rig->world[rank], &why);
    MUST(why);
    bool moved = state_step(b);
    state_unlock(b);
    return moved;
}

struct making {
    struct comm_communicator *child[RANKS];
    struct comm_request request[RANKS];
};

enum how { SPLIT, DUP, SUBSET, HOWS };
static const char *const names[] = {"split", "dup", "subset"};

static void make(struct rig *rig, enum how how, int32_t r, struct making *m)
{
    static const int32_t all[RANKS] = {2, 1, 0};
    if (how == DUP)
        MUST(comm_dup(rig->world[r], NULL, &m->child[r], &m->request[r]));
    else if (how == SPLIT)
        MUST(comm_split(rig->world[r], 3, -r, &m->child[r], &m->request[r]));
    else
        MUST(comm_subset(rig->world[r], all, RANKS, 3, &m->child[r], &m->request[r]));
}

/* The parent failed. A rank with a child finds it failed with the parent's cause, at the latest after two seconds. The other ranks have no
 * child. */
static void expect_end(struct rig *rig, struct making *m, int *with, int *without)
{
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_error error = {.size = sizeof error};
        rig_fails_within(rig->world[r], COMM_ERR_REVOKED, RIG_S, &error);
        enum comm_result made = comm_wait(m->request[r], RIG_S);
        CHECK((made == COMM_OK) == (m->child[r] != NULL));
        if (made != COMM_OK)
            IS(made, COMM_ERR_REVOKED);
        *(made == COMM_OK ? with : without) += 1;
    }
    if (m->child[0] && m->child[1] && m->child[2])
        rig_proves_alive(m->child, RANKS); /* if all have the child, the parent's failure does not affect it */
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_request sum = COMM_REQUEST_NONE;
        struct comm_error error = {.size = sizeof error};
        int64_t in = 1, out = 0;
        if (!m->child[r] || (m->child[0] && m->child[1] && m->child[2]))
            continue;
        enum comm_result issued = comm_allreduce(m->child[r], &in, &out, 1, COMM_I64, COMM_SUM, &sum);
        IS(issued == COMM_OK ? comm_wait(sum, 2 * RIG_S) : issued, COMM_ERR_REVOKED);
        MUST(comm_error_detail(m->child[r], &error));
        EQUAL(error.result, COMM_ERR_REVOKED);
        CHECK(error.rank >= 0 && error.rank < RANKS);
    }
    for (int32_t r = 0; r < RANKS; r++)
        if (m->child[r])
            MUST(comm_close(m->child[r], RIG_PATIENCE));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(rig->world[r], RIG_PATIENCE));
    EQUAL(atomic_load(&memory_held), 0);
}

/* Fails the parent after `steps` passes of each rank in turn. Rank 0 makes `fewer` passes less than the others. For a subset, ranks above
 * `fewer` do not make the last pass. */
static void fail_after(enum how how, int steps, int fewer, int *with, int *without)
{
    struct making m = {{NULL}, {{NULL, 0}}};
    struct rig rig;
    rig_note("%s, rank 0 fails after %d passes of the others, %d fewer of its own", names[how], steps, fewer);
    rig_open(&rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++)
        make(&rig, how, r, &m);
    for (int i = 0; i < steps; i++)
        for (int32_t r = 0; r < RANKS; r++)
            if (how == SUBSET ? i + 1 < steps || r <= fewer : r || i + fewer < steps)
                step(&rig, r);
    MUST(comm_revoke(rig.world[0]));
    expect_end(&rig, &m, with, without);
}

RIG_TEST(a_child_without_a_member_fails_for_the_parents_cause)
{
    int with = 0, without = 0, mixed[HOWS] = {0};
    for (enum how how = SPLIT; how < HOWS; how++) {
        for (int steps = 0; steps < (how == SUBSET ? 14 : 6); steps++) {
            for (int fewer = 0; fewer <= steps; fewer++) {
                int before = with, before_without = without;
                fail_after(how, steps, fewer, &with, &without);
                mixed[how] += with > before && without > before_without;
            }
        }
    }
    CHECK(with > 0 && without > 0);
    rig_note("%d splits, %d dups, %d subsets of which a part of the ranks had the child", mixed[SPLIT], mixed[DUP], mixed[SUBSET]);
    CHECK(mixed[DUP] > 0 && mixed[SUBSET] > 0); /* the case to be tested occurred */
}

/* An older operation keeps the creating call, which has ended, from retiring. Its end is reported once, whatever happens then. */
static void behind_a_long_one(bool dup, int steps)
{
    enum { LONG = 3000000 };
    static float in[RANKS][LONG], out[RANKS][LONG];
    struct making m = {{NULL}, {{NULL, 0}}};
    struct comm_request sum[RANKS];
    struct rig rig;
    rig_note("%s behind a long sum, failed after %d passes", dup ? "dup" : "split", steps);
    rig_open_options(&rig, RANKS, "chunk=4K"); /* a pass moves only a few such chunks */
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_allreduce(rig.world[r], in[r], out[r], LONG, COMM_F32, COMM_SUM, &sum[r]));
        make(&rig, dup, r, &m);
    }
    for (int i = 0; i < steps; i++)
        for (int32_t r = 0; r < RANKS; r++)
            step(&rig, r);
    for (int32_t r = 0; r < RANKS; r++) {
        IS(comm_test(sum[r]), COMM_PENDING);
        CHECK(m.child[r] == NULL); /* not before its request completes */
    }
    int with = 0, without = 0;
    MUST(comm_revoke(rig.world[0]));
    expect_end(&rig, &m, &with, &without);
    EQUAL(with, 0);
}

RIG_TEST(an_end_that_is_not_retired_is_told_once)
{
    for (int steps = 0; steps < 8; steps += 7) {
        behind_a_long_one(true, steps);
        behind_a_long_one(false, steps);
    }
}

/* The n-th allocation of rank 0's call fails. If the call returns an error, it sets none of its communicators, also later: their array may
 * be gone. False: there were fewer allocations. */
static bool mesh_without_memory(int32_t ranks, uint64_t n)
{
    struct comm_communicator *axis[RANKS][2] = {{NULL}};
    struct comm_request request[RANKS];
    struct rig rig;
    rig_note("a mesh of %d ranks, allocation %llu fails", ranks, (unsigned long long)n);
    rig_open(&rig, ranks, NULL);
    uint64_t failed = atomic_load(&memory_failed);
    atomic_store(&memory_fail_at, atomic_load(&memory_takes) + n);
    enum comm_result r = comm_split_mesh(rig.world[0], (int32_t[]){ranks, 1}, 2, axis[0], &request[0]);
    atomic_store(&memory_fail_at, 0);
    bool did_fail = atomic_load(&memory_failed) != failed;
    for (int32_t i = 1; i < ranks; i++) { /* what rank 0 could only queue may have failed the world already */
        enum comm_result other = comm_split_mesh(rig.world[i], (int32_t[]){ranks, 1}, 2, axis[i], &request[i]);
        CHECK(other == COMM_OK || did_fail);
    }
    for (int32_t i = 0; i < ranks; i++)
        (void)!comm_sync(rig.world[i], RIG_PATIENCE);
    CHECK(r == COMM_OK || r == COMM_ERR_MEMORY);
    CHECK(r == COMM_OK || (!axis[0][0] && !axis[0][1]));
    for (int32_t i = 0; i < ranks; i++) {
        for (int k = 0; k < 2; k++)
            (void)!comm_close(axis[i][k], RIG_PATIENCE);
        (void)!comm_close(rig.world[i], RIG_PATIENCE);
    }
    EQUAL(atomic_load(&memory_held), 0);
    return did_fail;
}

RIG_TEST(a_mesh_that_finds_no_memory)
{
    for (int32_t ranks = 1; ranks <= RANKS; ranks += 2) {
        uint64_t n = 1;
        while (mesh_without_memory(ranks, n))
            n++;
        CHECK(n > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_without_a_member_fails_for_the_parents_cause),
                                       cmocka_unit_test(an_end_that_is_not_retired_is_told_once),
                                       cmocka_unit_test(a_mesh_that_finds_no_memory)};

    return cmocka_run_group_tests_name("engine_creating", tests, NULL, NULL);
}
