/*
 * Ranks that are late, stopped, or wait for each other in a circle. A world over MPI tells them apart as any other does (rule 4.5 of the
 * contract). Rank 1 is the one that is late or stopped.
 */
#define _GNU_SOURCE
#include "mpi/rank.h"
#include "now.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE (RIG_S + RIG_S / 2)
#define LATE (8 * RIG_S) /* the first warning is at 5 s, and the monitor's next tick */
#define PEER_TIMEOUT (2 * RIG_S)
#define STOPPED_SHORT RIG_S /* a sixth of the timeout causes a warning */
#define STOPPED_LONG (3 * PEER_TIMEOUT)
#define FOUND_WITHIN (RIG_PATIENCE / 2) /* a deadlock: in two seconds, if ranks have their CPUs, and before the deadline of 20 s */

static struct comm_error detail_of(struct comm_communicator *c)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error;
}

static void print_end(struct comm_communicator *c, enum comm_result r)
{
    printf("rank %d: %s: %s\n", me.rank, comm_result_name(r), detail_of(c).text);
    fflush(stdout);
}

/* After a failure MPI may keep the buffers of calls until the process ends. */
static void close_failed(struct comm_communicator *c)
{
    enum comm_result r = comm_close(c, RIG_S / 5);
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

static void sum_in(struct comm_communicator *c, const int64_t *in, int64_t *out, struct comm_request *q)
{
    MUST(comm_allreduce(c, in, out, 1, COMM_I64, COMM_SUM, q));
}

static void barrier(struct comm_communicator *c)
{
    struct comm_request q;
    MUST(comm_barrier(c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
}

static bool by_deadlock(enum comm_result r)
{
    return r == COMM_ERR_DEADLOCK || r == COMM_ERR_DEPENDENCY;
}

/* Rank 0 sums in y, and behind that in x. Rank 1 sums in x, and behind that in y. The others sum in both. */
static void deadlock(struct comm_communicator *world)
{
    static int64_t in = 1, out[2]; /* MPI may keep them */
    struct comm_communicator *pair[2] = {NULL, NULL};
    struct comm_request sum[2];
    int first = me.rank == 0;
    MUST(NOW(comm_dup, world, NULL, &pair[0]));
    MUST(NOW(comm_dup, world, NULL, &pair[1]));
    int64_t since = rig_now();
    sum_in(pair[first], &in, &out[first], &sum[first]);
    if (me.rank < 2)
        MUST(comm_queue_wait_request(pair[!first], sum[first]));
    sum_in(pair[!first], &in, &out[!first], &sum[!first]);
    enum comm_result x = comm_wait(sum[0], RIG_PATIENCE), y = comm_wait(sum[1], RIG_PATIENCE);
    CHECK(by_deadlock(x) && by_deadlock(y) && (x == COMM_ERR_DEADLOCK || y == COMM_ERR_DEADLOCK));
    CHECK(rig_now() - since < FOUND_WITHIN);
    CHECK(strstr(detail_of(pair[x != COMM_ERR_DEADLOCK]).text, "is blocked by a queue wait for another communicator"));
    close_failed(pair[0]);
    close_failed(pair[1]);
}

/* The deadline of an agree names who has not called, and fails nothing. */
static void agree_without_rank_1(struct comm_communicator *c)
{
    uint64_t flags = 1;
    IS(NOW(comm_agree, c, &flags), COMM_ERR_TIMEOUT);
    CHECK(strstr(detail_of(c).text, "agree: the deadline of 1500 ms passed on rank") && strstr(detail_of(c).text, "ranks: 1"));
}

/* Two calls that rank 1 has not made: one that may take 20 s, which it makes in time, and one that may not. */
static void late_and_too_late(struct comm_communicator *world, struct comm_communicator *hasty, struct comm_communicator *agrees)
{
    static int64_t in = 1, out[2];
    struct comm_request patient, q = COMM_REQUEST_NONE;
    if (me.rank == 1)
        rig_nap(LATE);
    sum_in(world, &in, &out[0], &patient);
    if (me.rank != 1)
        agree_without_rank_1(agrees);
    int64_t since = rig_now();
    enum comm_result r = comm_allreduce(hasty, &in, &out[1], 1, COMM_I64, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    print_end(hasty, r);
    IS(r, COMM_ERR_TIMEOUT);
    CHECK(me.rank == 1 || (rig_now() - since > DEADLINE / 2 && rig_now() - since < 2 * DEADLINE)); /* another rank may have begun before */
    MUST(comm_wait(patient, RIG_PATIENCE));
    EQUAL(out[0], me.ranks);
}

void rank_late(void)
{
    struct comm_communicator *world = rank_open(NULL), *hasty = NULL, *agrees = NULL;
    struct comm_options options = {.size = sizeof options, .operation_timeout_ns = DEADLINE};
    MUST(NOW(comm_dup, world, &options, &hasty));
    MUST(NOW(comm_dup, world, &options, &agrees));
    deadlock(world);
    barrier(world);
    late_and_too_late(world, hasty, agrees);
    barrier(world);
    close_failed(hasty);
    MUST(comm_close(agrees, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ stopped */
/* Starts a process that continues this one after the time whose bytes come through the pipe. It must exist before MPI does. */
static int start_waker(void)
{
    int pipes[2];
    pid_t self = getpid();
    CHECK(pipe(pipes) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int64_t ns;
        close(pipes[1]);
        while (read(pipes[0], &ns, sizeof ns) == (ssize_t)sizeof ns) {
            rig_nap(ns);
            kill(self, SIGCONT);
        }
        _exit(0);
    }
    close(pipes[0]);
    return pipes[1];
}

static void stop_for(int waker, int64_t ns)
{
    CHECK(write(waker, &ns, sizeof ns) == (ssize_t)sizeof ns);
    raise(SIGSTOP);
}

/* Sums until one fails, or all of them were made. */
static enum comm_result sums(struct comm_communicator *c, int n)
{
    static int64_t in = 1, out;
    struct comm_request q;
    enum comm_result r = COMM_OK;
    for (int i = 0; i < n && r == COMM_OK; i++) {
        r = comm_allreduce(c, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
        CHECK(r != COMM_OK || out == me.ranks);
    }
    return r;
}

/* Rank 1 is stopped for a short time, and goes on. The second time it is given up, and learns that when it continues. The others wait for
 * that. */
void rank_stopped(void)
{
    int waker = start_waker();
    struct comm_communicator *world = rank_open("peer_timeout=2s");
    MUST(sums(world, 50));
    if (me.rank == 1)
        stop_for(waker, STOPPED_SHORT);
    MUST(sums(world, 50));
    int64_t since = rig_now();
    if (me.rank == 1)
        stop_for(waker, STOPPED_LONG);
    enum comm_result r = sums(world, 50);
    print_end(world, r);
    IS(r, COMM_ERR_PEER);
    EQUAL(detail_of(world).rank, 1);
    CHECK(me.rank == 1 || (rig_now() - since >= PEER_TIMEOUT * 9 / 10 && rig_now() - since <= 2 * PEER_TIMEOUT));
    rank_await(1, "COMM_ERR_PEER");
    close_failed(world);
}
