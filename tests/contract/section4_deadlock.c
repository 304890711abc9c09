/* Deadlocks: queue waits and operations of several communicators that wait for one another in a circle. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };

struct crossed {
    struct comm_communicator *x[RANKS], *y[RANKS];
    int64_t in, out[RANKS][2];
    struct comm_request sum[RANKS][2];
};

static void sum(struct comm_communicator *c, struct crossed *d, int32_t rank, int which)
{
    MUST(comm_allreduce(c, &d->in, &d->out[rank][which], 1, COMM_I64, COMM_SUM, &d->sum[rank][which]));
}

/* Of c: what comes next waits for the other communicator's sum. */
static void behind(struct comm_communicator *c, struct crossed *d, int32_t rank, int which)
{
    MUST(comm_queue_wait_request(c, d->sum[rank][which]));
}

static enum comm_result ends(struct crossed *d, int32_t rank, int which)
{
    return comm_wait(d->sum[rank][which], 10 * RIG_S);
}

static bool by_deadlock(enum comm_result r)
{
    return r == COMM_ERR_DEADLOCK || r == COMM_ERR_DEPENDENCY;
}

/* Rank 0 sums in y, then behind it in x; rank 1 in x, then behind it in y. Rank 2 sums in both, in any order. */
static void cross(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    int64_t since = rig_now();
    if (rank == 0) {
        sum(d->y[0], d, 0, 1);
        behind(d->x[0], d, 0, 1);
        sum(d->x[0], d, 0, 0);
    } else {
        sum(d->x[rank], d, rank, 0);
        if (rank == 1)
            behind(d->y[1], d, 1, 0);
        sum(d->y[rank], d, rank, 1);
    }
    enum comm_result x = ends(d, rank, 0), y = ends(d, rank, 1);
    CHECK(by_deadlock(x) && by_deadlock(y) && (x == COMM_ERR_DEADLOCK || y == COMM_ERR_DEADLOCK));
    CHECK(rig_now() - since < 6 * RIG_S); /* 2 s, and more for a machine under load */
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(x == COMM_ERR_DEADLOCK ? d->x[rank] : d->y[rank], &error));
    CHECK(strstr(error.text, "stands behind a queue wait for another communicator, whose call 1"));
}

RIG_TEST(contract_4_5_deadlock)
{
    struct crossed d = {.in = 1};
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_dup(rig.world, RANKS, d.x);
    rig_dup(rig.world, RANKS, d.y);
    rig_threads(RANKS, cross, &d);
    rig_proves_alive(rig.world, RANKS); /* the others go on */
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_close(d.x[r], RIG_PATIENCE));
        MUST(comm_close(d.y[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

static void cross_as_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct crossed d = {.in = 1};
    struct comm_request q;
    (void)proc;
    MUST(comm_dup(world, NULL, &d.x[rank], NULL));
    MUST(comm_dup(world, NULL, &d.y[rank], NULL));
    cross(&d, rank);
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_close(d.x[rank], RIG_PATIENCE));
    MUST(comm_close(d.y[rank], RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_4_5_deadlock_of_processes)
{
    struct proc proc = {0};
    proc_needs_shm();
    proc_start(&proc, RANKS, cross_as_process);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* A ring of pairs: rank r sums with the rank before it, and behind that with the rank after it. Nobody is a member of all three pairs. */
static void ring_as_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_communicator *before = NULL, *after = NULL;
    struct comm_request first, second, q;
    int64_t in = 1, out[2];
    (void)proc;
    for (int32_t r = 0; r < RANKS; r++) {
        const int32_t pair[] = {r, (r + 1) % RANKS};
        if (rank == pair[0] || rank == pair[1])
            MUST(comm_subset(world, pair, 2, (uint32_t)r, rank == r ? &after : &before, NULL));
    }
    int64_t since = rig_now();
    MUST(comm_allreduce(before, &in, &out[0], 1, COMM_I64, COMM_SUM, &first));
    MUST(comm_queue_wait_request(after, first));
    MUST(comm_allreduce(after, &in, &out[1], 1, COMM_I64, COMM_SUM, &second));
    enum comm_result b = comm_wait(first, 10 * RIG_S), a = comm_wait(second, 10 * RIG_S);
    CHECK(by_deadlock(b) && by_deadlock(a));
    CHECK(rig_now() - since < 6 * RIG_S);
    in = (b == COMM_ERR_DEADLOCK) + (a == COMM_ERR_DEADLOCK); /* none here where both heard of it as of a point that failed */
    MUST(comm_allreduce(world, &in, &out[0], 1, COMM_I64, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    CHECK(out[0] >= 2);
    MUST(comm_close(before, RIG_PATIENCE));
    MUST(comm_close(after, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_4_5_deadlock_of_pairs)
{
    struct proc proc = {0};
    proc_needs_shm();
    proc_start(&proc, RANKS, ring_as_process);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* The same waits without the circle: rank 1 comes late, or rank 2 does, and all is well. */
static void late(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    if (rank == 0) {
        sum(d->y[0], d, 0, 1);
        behind(d->x[0], d, 0, 1);
        sum(d->x[0], d, 0, 0);
    } else {
        if (rank == 2)
            rig_nap(3 * RIG_S); /* in application code, for longer than a deadlock takes to be found */
        sum(d->y[rank], d, rank, 1);
        if (rank == 1)
            behind(d->x[1], d, 1, 1);
        sum(d->x[rank], d, rank, 0);
    }
    MUST(ends(d, rank, 0));
    MUST(ends(d, rank, 1));
    EQUAL(d->out[rank][0], RANKS);
}

RIG_TEST(contract_4_5_late_is_no_deadlock)
{
    struct crossed d = {.in = 1};
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_dup(rig.world, RANKS, d.x);
    rig_dup(rig.world, RANKS, d.y);
    rig_threads(RANKS, late, &d);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_close(d.x[r], RIG_PATIENCE));
        MUST(comm_close(d.y[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contract_4_5_deadlock), cmocka_unit_test(contract_4_5_deadlock_of_processes),
                                       cmocka_unit_test(contract_4_5_deadlock_of_pairs),
                                       cmocka_unit_test(contract_4_5_late_is_no_deadlock)};

    return cmocka_run_group_tests_name("contract_4_deadlock", tests, NULL, NULL);
}
