/*
 * Processes that lose ranks and continue. Ranks are killed between operations, inside them, inside agree and shrink, and one after another
 * until one is left; or they are stopped until the others give them up. All ranks that return from an agreement return the same value. All
 * ranks with the shrunk communicator are all of its members.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 3000, POINTS = 24 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KILLS = 21 };
#else
enum { KILLS = 100 }; /* also in the quick selection */
#endif

/* ------------------------------------------------------------------------------------------------------------ the parent */
/* Checks that every rank of the mask was killed and that all others exit with status 0. */
static void finish(struct proc *proc, uint32_t killed)
{
    int32_t left = proc->ranks;
    for (int64_t end = rig_now() + 2 * RIG_PATIENCE; left; rig_nap(RIG_MS)) {
        for (int32_t r = 0; r < proc->ranks; r++) {
            int status;
            if (proc->pid[r] <= 0 || waitpid(proc->pid[r], &status, WNOHANG) != proc->pid[r])
                continue;
            proc->pid[r] = 0;
            left--;
            bool well = killed >> r & 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && !WEXITSTATUS(status);
            if (!well)
                end = 0;
        }
        if (rig_now() < end)
            continue;
        for (int32_t r = 0; r < proc->ranks; r++)
            if (proc->pid[r] > 0)
                kill(proc->pid[r], SIGKILL);
        rig_die(__FILE__, __LINE__, "%d ranks are left, or one ended otherwise than it should", left);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the rank */
static enum comm_result sums(struct comm_communicator *c, int64_t count, struct proc_page *page)
{
    static int32_t in[LONG], out[LONG];
    enum comm_result result = COMM_OK;
    for (int64_t i = 0; i < count && result == COMM_OK; i++) {
        struct comm_request request;
        size_t n = i % 3 ? 1 : LONG;
        for (size_t k = 0; k < n; k++)
            in[k] = comm_rank(c) + 1;
        result = comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &request);
        if (result == COMM_OK)
            result = comm_wait(request, RIG_PATIENCE);
        int32_t size = comm_size(c);
        if (result == COMM_OK)
            CHECK(out[0] == size * (size + 1) / 2 && out[n - 1] == out[0]);
        atomic_fetch_add(&page->stage, 1);
    }
    return result;
}

/* Checks by an exchange that all members of c have the same list of members. A member is identified by its first rank. false: the exchange
 * failed. */
static bool same_members(struct proc *proc, struct comm_communicator *c, int32_t first)
{
    int32_t all[PROC_RANKS_MAX], size = comm_size(c);
    struct comm_request request;
    enum comm_result result = comm_allgather(c, &first, all, 1, COMM_I32, &request);
    if (result == COMM_OK)
        result = comm_wait(request, RIG_PATIENCE);
    if (result != COMM_OK)
        return false;
    for (int32_t r = 0; r < size; r++)
        CHECK(all[r] >= 0 && all[r] < proc->ranks && (r == 0 || all[r] > all[r - 1]));
    EQUAL(all[comm_rank(c)], first);
    return true;
}

/* Shrinks until the resulting communicator is complete; a rank that dies meanwhile is left out by the next shrink. Closes c. */
static struct comm_communicator *recover(struct proc *proc, struct comm_communicator *c, int32_t first)
{
    for (;;) {
        struct comm_communicator *next = NULL;
        MUST(NOW(comm_shrink, c, &next));
        CHECK(next != NULL);
        MUST(comm_close(c, RIG_PATIENCE));
        c = next;
        if (same_members(proc, c, first))
            return c;
    }
}

static int64_t passes; /* uses the results of comm_progress */

/* ------------------------------------------------------------------------------------------------------------ one after another */
/* number[0]: the generation in which this rank dies (0: never). number[1] and number[2]: the point: after this many sums, then after this
 * many passes inside its shrink. */
static void die_in_turn(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_communicator *c = world, *next = NULL;
    struct comm_request request;
    while (comm_size(c) > 1) { /* one recovery may remove two generations */
        bool mine = page->number[0] == proc->ranks - comm_size(c) + 1;
        enum comm_result result = sums(c, mine ? page->number[1] : INT64_MAX, page);
        if (mine && page->number[2] < 0)
            kill(getpid(), SIGKILL);
        if (mine) { /* this rank revokes the communicator, and dies while the others agree */
            MUST(comm_revoke(c));
            MUST(comm_shrink(c, &next, &request));
            for (int64_t i = 0; i < page->number[2]; i++)
                passes += comm_progress(c) == COMM_OK;
            kill(getpid(), SIGKILL);
        }
        CHECK(result == COMM_ERR_PEER || result == COMM_ERR_REVOKED);
        c = recover(proc, c, rank);
    }
    MUST(comm_close(c, RIG_PATIENCE));
}

static void await_numbers(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    while (!atomic_load(proc->go))
        rig_nap(RIG_MS);
    die_in_turn(proc, rank, world);
}

RIG_TEST(recover_one_after_the_other_until_one_is_left)
{
    uint64_t random = 12345;
    int32_t kills = 0;
    proc_needs_shm();
    for (int world = 0; kills < KILLS; world++) {
        struct proc proc = {0};
        int32_t ranks = 2 + (world * 5 + 6) % 7, order[PROC_RANKS_MAX];
        uint32_t killed = 0;
        proc_start(&proc, ranks, await_numbers);
        for (int32_t r = 0; r < ranks; r++)
            order[r] = r;
        for (int32_t generation = 1; generation < ranks; generation++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            int32_t pick = (int32_t)(random >> 33) % (ranks - generation + 1), victim = order[pick];
            order[pick] = order[ranks - generation];
            killed |= UINT32_C(1) << victim;
            proc.page[victim].number[0] = generation;
            proc.page[victim].number[1] = (int64_t)(random >> 40) % 30;
            proc.page[victim].number[2] = (int64_t)(random >> 50) % 40 - 20;
        }
        rig_note("world %d of %d ranks, %d killed before", world, ranks, kills);
        atomic_store(proc.go, 1);
        finish(&proc, killed);
        kills += ranks - 1;
    }
}

/* ------------------------------------------------------------------------------------------------------------ at every point of a shrink
 */
/* number[0]: this rank dies after this many passes inside its shrink; -1: never. */
static void die_inside(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_communicator *next = NULL;
    struct comm_request request;
    while (!atomic_load(proc->go))
        rig_nap(RIG_MS / 10);
    enum comm_result result = sums(world, 3, page);
    CHECK(result == COMM_OK || result == COMM_ERR_REVOKED || result == COMM_ERR_PEER); /* other ranks are further */
    if (proc->page[0].number[2])
        MUST(comm_revoke(world));
    if (page->number[0] < 0) {
        struct comm_communicator *c = recover(proc, world, rank);
        EQUAL(comm_size(c), proc->ranks - 1);
        MUST(sums(c, 3, page));
        MUST(comm_close(c, RIG_PATIENCE));
        return;
    }
    MUST(comm_shrink(world, &next, &request));
    for (int64_t i = 0; i < page->number[0]; i++)
        passes += comm_progress(world) == COMM_OK;
    kill(getpid(), SIGKILL);
}

RIG_TEST(recover_killed_at_every_point_of_a_shrink)
{
    proc_needs_shm();
    for (int32_t victim = 0; victim < 3; victim++) {
        for (int64_t point = 0; point < POINTS; point += rig_quick() ? 5 : 1) {
            struct proc proc = {0};
            rig_note("rank %d killed after %lld passes", victim, (long long)point);
            proc_start(&proc, 3 + victim % 2, die_inside);
            for (int32_t r = 0; r < proc.ranks; r++)
                proc.page[r].number[0] = r == victim ? point * point / 2 : -1;
            proc.page[0].number[2] = point % 2;
            atomic_store(proc.go, 1);
            finish(&proc, UINT32_C(1) << victim);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ during agreements */
static uint64_t flags_of(int32_t rank, int64_t round)
{
    uint64_t x = (uint64_t)round * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(rank + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29 ^ x << 17;
}

/* hash[]: the last PROC_HASHES values that were agreed on. */
static void agree_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    int64_t most;
    for (int64_t i = 0; (most = atomic_load(proc->go)) == 0 || i < most; i++) {
        uint64_t flags = flags_of(rank, i);
        MUST(NOW(comm_agree, world, &flags));
        page->hash[i % PROC_HASHES] = flags;
        atomic_store(&page->stage, i + 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(recover_killed_in_agreements)
{
    enum { RANKS = 4 };
    proc_needs_shm();
    for (int round = 0; round < (rig_quick() ? 8 : 40); round++) {
        struct proc proc = {0};
        int32_t victim = round % RANKS;
        rig_note("round %d, rank %d", round, victim);
        proc_start(&proc, RANKS, agree_on);
        proc_await(&proc, victim, 3 + round % 5);
        rig_nap(round * 37 * 1000 % RIG_MS);
        kill(proc.pid[victim], SIGKILL);
        int64_t at = proc.page[victim].stage, most = 0;
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&proc.page[(victim + 1) % RANKS].stage) < at + 20; rig_nap(RIG_MS / 10))
            CHECK(rig_now() < end);
        for (int32_t r = 0; r < RANKS; r++)
            most = proc.page[r].stage > most ? proc.page[r].stage : most;
        atomic_store(proc.go, most + 30);
        finish(&proc, UINT32_C(1) << victim);
        for (int64_t i = at > 100 ? at - 100 : 0; i < most; i++) {
            uint64_t with = UINT64_MAX, without = UINT64_MAX, got = proc.page[(victim + 1) % RANKS].hash[i % PROC_HASHES];
            if (most + 30 - i > PROC_HASHES)
                continue;
            for (int32_t r = 0; r < RANKS; r++) {
                with &= flags_of(r, i);
                without &= r == victim ? UINT64_MAX : flags_of(r, i);
                CHECK(r == victim || proc.page[r].hash[i % PROC_HASHES] == got);
            }
            CHECK(got == with || (i >= at && got == without));
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ stopped */
static void stand_still(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct proc_page *page = &proc->page[rank];
    struct comm_communicator *next = NULL;
    bool victim = page->number[0] != 0;
    enum comm_result result = sums(world, INT64_MAX, page);
    if (!victim) {
        IS(result, COMM_ERR_PEER);
        next = recover(proc, world, rank);
        EQUAL(comm_size(next), proc->ranks - 1);
        atomic_store(&page->number[1], 1);
        for (result = COMM_OK; result == COMM_OK && !atomic_load(proc->go);)
            result = sums(next, 5, page);
        CHECK(result == COMM_OK || (result == COMM_ERR_CLOSED && atomic_load(proc->go))); /* the other rank closed first */
        MUST(comm_close(next, RIG_PATIENCE));
        return;
    }
    /* The victim continues, and the world has gone on without it. */
    IS(result, COMM_ERR_PEER);
    result = NOW(comm_shrink, world, &next);
    IS(result, COMM_ERR_PEER);
    CHECK(!next);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    CHECK(strstr(error.text, "given up"));
    MUST(comm_close(world, RIG_PATIENCE));
    atomic_store(&page->number[1], 1);
}

static void await_told(struct proc *proc, int32_t rank)
{
    int64_t end = rig_now() + RIG_PATIENCE;
    while (!atomic_load(&proc->page[rank].number[1]) && rig_now() < end)
        rig_nap(RIG_MS);
    CHECK(atomic_load(&proc->page[rank].number[1]));
}

RIG_TEST(recover_from_a_stopped_rank_that_comes_back)
{
    proc_needs_shm();
    for (int32_t victim = 0; victim < 3; victim += 2) {
        struct proc proc = {.options = "peer_timeout=2s"};
        rig_note("rank %d stopped", victim);
        unsetenv("COMM_PEER_TIMEOUT");
        proc_start(&proc, 3, stand_still);
        proc.page[victim].number[0] = 1;
        proc_await(&proc, victim, 20);
        kill(proc.pid[victim], SIGSTOP);
        for (int32_t r = 0; r < 3; r++)
            if (r != victim)
                await_told(&proc, r);
        kill(proc.pid[victim], SIGCONT);
        await_told(&proc, victim);
        atomic_store(proc.go, 1);
        finish(&proc, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recover_one_after_the_other_until_one_is_left),
        cmocka_unit_test(recover_killed_at_every_point_of_a_shrink),
        cmocka_unit_test(recover_killed_in_agreements),
        cmocka_unit_test(recover_from_a_stopped_rank_that_comes_back),
    };
    return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
