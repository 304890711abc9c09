/* Deadlocks: queue waits and operations of several communicators that wait for one another in a cycle. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };
/* A deadlock is found within 2 s if ranks have their CPUs. Here several looks of several processes follow each other,
 * each of which may wait for a CPU. The limit only excludes that the operation's deadline, which is later, ends it. */
#define FOUND_NS (RIG_PATIENCE * 3 / 4)

struct crossed {
    struct comm_communicator *x[RANKS], *y[RANKS];
    int64_t in, out[RANKS][2];
    struct comm_request sum[RANKS][2];
};

static void sum(struct comm_communicator *c, struct crossed *d, int32_t rank, int which)
{
    MUST(comm_allreduce(c, &d->in, &d->out[rank][which], 1, COMM_I64, COMM_SUM, &d->sum[rank][which]));
}

/* The next operation of c waits for the other communicator's sum. */
static void behind(struct comm_communicator *c, struct crossed *d, int32_t rank, int which)
{
    MUST(comm_queue_wait_request(c, d->sum[rank][which]));
}

static enum comm_result ends(struct crossed *d, int32_t rank, int which)
{
    return comm_wait(d->sum[rank][which], RIG_PATIENCE);
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
    CHECK(rig_now() - since < FOUND_NS);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(x == COMM_ERR_DEADLOCK ? d->x[rank] : d->y[rank], &error));
    CHECK(strstr(error.text, "is blocked by a queue wait for another communicator, whose call 1"));
}

/* Runs the body on each rank, with two communicators; the world continues afterwards. */
static void with_two(void (*body)(void *arg, int32_t rank))
{
    struct crossed d = {.in = 1};
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_dup(rig.world, RANKS, d.x);
    rig_dup(rig.world, RANKS, d.y);
    rig_threads(RANKS, body, &d);
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_close(d.x[r], RIG_PATIENCE));
        MUST(comm_close(d.y[r], RIG_PATIENCE));
    }
    rig_close(&rig);
}

RIG_TEST(contract_4_5_deadlock)
{
    with_two(cross);
}

static void cross_as_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct crossed d = {.in = 1};
    struct comm_request q;
    (void)proc;
    MUST(NOW(comm_dup, world, NULL, &d.x[rank]));
    MUST(NOW(comm_dup, world, NULL, &d.y[rank]));
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

/* A ring of pairs: rank r sums with the rank before it, and behind that with the rank after it. No rank is a member of
 * all pairs. */
static void ring_as_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_communicator *before = NULL, *after = NULL;
    struct comm_request first, second, q;
    int64_t in = 1, out[2];
    (void)proc;
    for (int32_t r = 0; r < RANKS; r++) {
        const int32_t pair[] = {r, (r + 1) % RANKS};
        if (rank == pair[0] || rank == pair[1])
            MUST(NOW(comm_subset, world, pair, 2, (uint32_t)r, rank == r ? &after : &before));
    }
    int64_t since = rig_now();
    MUST(comm_allreduce(before, &in, &out[0], 1, COMM_I64, COMM_SUM, &first));
    MUST(comm_queue_wait_request(after, first));
    MUST(comm_allreduce(after, &in, &out[1], 1, COMM_I64, COMM_SUM, &second));
    enum comm_result b = comm_wait(first, RIG_PATIENCE), a = comm_wait(second, RIG_PATIENCE);
    CHECK(by_deadlock(b) && by_deadlock(a));
    CHECK(rig_now() - since < FOUND_NS);
    in = (b == COMM_ERR_DEADLOCK) + (a == COMM_ERR_DEADLOCK); /* none here if both report it as a failed point */
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

/* ------------------------------------------------------------------------------------------------------------ messages */
/* Ranks 0 and 1 receive from each other, and what they send in return comes after that; rank 2 waits for both. One
 * communicator. */
static void answer_first(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    struct comm_communicator *x = d->x[rank];
    struct comm_request received = COMM_REQUEST_NONE, sent = COMM_REQUEST_NONE;
    int64_t since = rig_now(), came = 0;
    if (rank < 2) {
        MUST(comm_recv(x, &came, 1, COMM_I64, 1 - rank, 7, NULL, &received));
        MUST(comm_queue_wait_request(x, received));
        MUST(comm_send(x, &d->in, 1, COMM_I64, 1 - rank, 7, &sent));
    }
    sum(x, d, rank, 0);
    CHECK(ends(d, rank, 0) == COMM_ERR_DEADLOCK);
    CHECK(rig_now() - since < FOUND_NS);
    CHECK(rank == 2 || (by_deadlock(comm_wait(received, RIG_S)) && by_deadlock(comm_wait(sent, RIG_S))));
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(x, &error));
    CHECK(strstr(error.text, "waits in its queue for a message from or to rank"));
}

/* Each rank receives in y from the rank before it, sums in x behind that, and sends in y behind the sum: the same over
 * two communicators. With `grouped` the wait is for a group, one half of which is done. */
static void pass_on(struct crossed *d, int32_t rank, bool grouped)
{
    struct comm_communicator *x = d->x[rank], *y = d->y[rank];
    int32_t before = (rank + RANKS - 1) % RANKS, after = (rank + 1) % RANKS;
    struct comm_request received, sent;
    int64_t since = rig_now(), came[2];
    struct comm_communicator *to = y;
    if (grouped) {
        MUST(comm_group_begin(y, &to));
        MUST(comm_send(to, &d->in, 1, COMM_I64, after, 8, NULL));
        MUST(comm_recv(to, &came[1], 1, COMM_I64, before, 8, NULL, NULL));
    }
    MUST(comm_recv(to, &came[0], 1, COMM_I64, before, 7, NULL, grouped ? NULL : &received));
    if (grouped)
        MUST(comm_group_end(to, &received));
    MUST(comm_queue_wait_request(x, received));
    sum(x, d, rank, 0);
    MUST(comm_queue_wait_request(y, d->sum[rank][0]));
    MUST(comm_send(y, &d->in, 1, COMM_I64, after, 7, &sent));
    enum comm_result s = ends(d, rank, 0), r = comm_wait(received, RIG_PATIENCE);
    CHECK(by_deadlock(s) && by_deadlock(r) && (s == COMM_ERR_DEADLOCK || r == COMM_ERR_DEADLOCK));
    CHECK(rig_now() - since < FOUND_NS);
    CHECK(by_deadlock(comm_wait(sent, RIG_S)));
}

/* Two ranks answer each other behind groups whose first member waits for a third rank, which is not part of the cycle:
 * it does something else, or waits in another communicator's queue, and continues in both cases. */
static void beside_a_third(struct crossed *d, int32_t rank, bool third_waits)
{
    struct comm_communicator *x = d->x[rank], *y = d->y[rank], *to;
    struct comm_request group = COMM_REQUEST_NONE, sent = COMM_REQUEST_NONE;
    int64_t since = rig_now(), came[3] = {0};
    if (rank < 2) {
        MUST(comm_group_begin(y, &to));
        MUST(comm_recv(to, &came[0], 1, COMM_I64, 2, 9, NULL, NULL));
        MUST(comm_recv(to, &came[1], 1, COMM_I64, 1 - rank, 7, NULL, NULL));
        MUST(comm_group_end(to, &group));
        MUST(comm_queue_wait_request(y, group));
        MUST(comm_send(y, &d->in, 1, COMM_I64, 1 - rank, 7, &sent));
    } else if (third_waits) {
        MUST(comm_recv(x, &came[2], 1, COMM_I64, 0, 5, NULL, &group)); /* never sent: a wait, but not part of a cycle */
        MUST(comm_queue_wait_request(y, group));
    }
    sum(y, d, rank, 1);
    CHECK(ends(d, rank, 1) == COMM_ERR_DEADLOCK);
    CHECK(rig_now() - since < FOUND_NS);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(y, &error));
    CHECK(strstr(error.text, "waits in its queue for a message from or to rank 1") ||
          strstr(error.text, "waits in its queue for a message from or to rank 0"));
    CHECK(comm_wait(sent, RIG_S) != COMM_PENDING);
    if (rank == 2 && third_waits)
        MUST(comm_cancel(group));
}

static void beside_a_busy_third(void *arg, int32_t rank)
{
    beside_a_third(arg, rank, false);
}

static void beside_a_waiting_third(void *arg, int32_t rank)
{
    beside_a_third(arg, rank, true);
}

static void pass_on_messages(void *arg, int32_t rank)
{
    pass_on(arg, rank, false);
}

static void pass_on_groups(void *arg, int32_t rank)
{
    pass_on(arg, rank, true);
}

/* Sends that wait for their receivers, each of which would receive behind its own send. */
static void send_first(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    enum { LONG = 4 << 20 };
    struct comm_request sent, received;
    char *out = calloc(1, LONG), *in = calloc(1, LONG);
    CHECK(out && in);
    MUST(comm_send(d->x[rank], out, LONG, COMM_U8, (rank + 1) % RANKS, 7, &sent));
    MUST(comm_queue_wait_request(d->x[rank], sent));
    MUST(comm_recv(d->x[rank], in, LONG, COMM_U8, (rank + RANKS - 1) % RANKS, 7, NULL, &received));
    CHECK(by_deadlock(comm_wait(sent, RIG_PATIENCE)) && by_deadlock(comm_wait(received, RIG_PATIENCE)));
    free(out);
    free(in);
}

static void messages_as_process(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    void (*const body[])(void *, int32_t) = {answer_first, pass_on_messages};
    struct comm_request q;
    (void)proc;
    for (int i = 0; i < 2; i++) {
        struct crossed d = {.in = 1};
        MUST(NOW(comm_dup, world, NULL, &d.x[rank]));
        MUST(NOW(comm_dup, world, NULL, &d.y[rank]));
        body[i](&d, rank);
        MUST(comm_barrier(world, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        MUST(comm_close(d.x[rank], RIG_PATIENCE));
        MUST(comm_close(d.y[rank], RIG_PATIENCE));
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

/* No cycle: the ranks before and after do not wait, or not for ever; one sends late, one behind something late. */
static void pass_on_late(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    struct comm_communicator *x = d->x[rank], *y = d->y[rank];
    struct comm_request received, sent, late;
    int64_t came[2];
    if (rank == 0) {
        rig_nap(3 * RIG_S);
        MUST(comm_send(y, &d->in, 1, COMM_I64, 1, 7, &sent));
        MUST(comm_recv(y, &came[0], 1, COMM_I64, 2, 7, NULL, &received));
    } else {
        MUST(comm_recv(y, &came[0], 1, COMM_I64, rank - 1, 7, NULL, &received));
        MUST(comm_queue_wait_request(y, received));
        MUST(comm_send(y, &d->in, 1, COMM_I64, (rank + 1) % RANKS, 7, &sent));
    }
    MUST(comm_recv(x, &came[1], 1, COMM_I64, COMM_ANY_PEER, 9, NULL, &late));
    MUST(comm_queue_wait_request(y, late)); /* from any rank: the detection does not judge that */
    sum(y, d, rank, 1);
    rig_nap(rank == 2 ? RIG_S : RIG_MS);
    struct comm_request sent_late;
    MUST(comm_send(x, &d->in, 1, COMM_I64, (rank + 1) % RANKS, 9, &sent_late));
    MUST(comm_wait(received, RIG_PATIENCE));
    MUST(comm_wait(sent, RIG_PATIENCE));
    MUST(comm_wait(sent_late, RIG_PATIENCE));
    MUST(ends(d, rank, 1));
}

RIG_TEST(contract_4_5_deadlock_of_messages)
{
    with_two(answer_first);
    with_two(pass_on_messages);
    with_two(pass_on_groups);
    with_two(send_first);
}

RIG_TEST(contract_4_5_deadlock_of_any_member_of_a_group)
{
    with_two(beside_a_busy_third);
    with_two(beside_a_waiting_third);
}

RIG_TEST(contract_4_5_deadlock_of_messages_of_processes)
{
    struct proc proc = {0};
    proc_needs_shm();
    proc_start(&proc, RANKS, messages_as_process);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

RIG_TEST(contract_4_5_late_messages_are_no_deadlock)
{
    with_two(pass_on_late);
}

/* The same waits without the cycle: rank 1 comes late, or rank 2 does, and everything completes. */
static void late(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    if (rank == 0) {
        sum(d->y[0], d, 0, 1);
        behind(d->x[0], d, 0, 1);
        sum(d->x[0], d, 0, 0);
    } else {
        if (rank == 2)
            rig_nap(3 * RIG_S); /* in application code, for longer than the detection of a deadlock takes */
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
    with_two(late);
}

/* In one process all ranks' waits are known, so no rank reports what another one waits for. Such reports go over the
 * world of all ranks, and here that is also the communicator with the wait. */
static void late_behind_the_world(void *arg, int32_t rank)
{
    struct crossed *d = arg;
    if (rank == 2) {
        sum(d->y[2], d, 2, 1);
        behind(d->x[2], d, 2, 1);
        sum(d->x[2], d, 2, 0);
    } else {
        sum(d->x[rank], d, rank, 0);
        rig_nap(2 * RIG_S);
        sum(d->y[rank], d, rank, 1);
    }
    MUST(ends(d, rank, 0));
    MUST(ends(d, rank, 1));
    EQUAL(d->out[rank][0], RANKS);
}

RIG_TEST(contract_4_5_late_behind_the_world_is_no_deadlock)
{
    struct crossed d = {.in = 1};
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    memcpy(d.x, rig.world, sizeof d.x);
    rig_dup(rig.world, RANKS, d.y);
    rig_threads(RANKS, late_behind_the_world, &d);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(d.y[r], RIG_PATIENCE));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contract_4_5_deadlock),
                                       cmocka_unit_test(contract_4_5_late_behind_the_world_is_no_deadlock),
                                       cmocka_unit_test(contract_4_5_deadlock_of_processes),
                                       cmocka_unit_test(contract_4_5_deadlock_of_pairs),
                                       cmocka_unit_test(contract_4_5_late_is_no_deadlock),
                                       cmocka_unit_test(contract_4_5_deadlock_of_messages),
                                       cmocka_unit_test(contract_4_5_deadlock_of_any_member_of_a_group),
                                       cmocka_unit_test(contract_4_5_deadlock_of_messages_of_processes),
                                       cmocka_unit_test(contract_4_5_late_messages_are_no_deadlock)};

    return cmocka_run_group_tests_name("contract_4_deadlock", tests, NULL, NULL);
}
