/*
 * One rank of a world over MPI, started by MPI's own launcher (run.sh). It prints what it finds wrong, and exits with 1. The program does
 * not use MPI itself: the library's module loads it.
 *
 *   ranks suite | fixed | cells | large | in_place | ahead | many | short | long | edge | killed | cut | late | stopped |
 *         calls | idle | leave | dies_last | dies_beside | dies_meanwhile
 */
#define _GNU_SOURCE
#include "mpi/rank.h"
#include "now.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void served_by(struct comm_request q, const char *want)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, want) != 0)
        rig_die(__FILE__, __LINE__, "served by %s, expected %s", info.algorithm, want);
}

/* ------------------------------------------------------------------------------------------------------------ the suite */
enum { BATCH = 12, BATCHES = 60 };

static struct job_shape random_shape(uint64_t *chance, bool fixed)
{
    static const size_t lengths[] = {0, 1, 2, 7, 97, 1000, 5000, 70001};
    for (;;) {
        struct job_shape s = {.kind = (enum job_kind)(oracle_random(chance) % JOB_KINDS),
                              .type = oracle_types[oracle_random(chance) % ORACLE_TYPES],
                              .op = oracle_ops[oracle_random(chance) % ORACLE_OPS],
                              .root = (int32_t)(oracle_random(chance) % (uint64_t)me.ranks),
                              .n = lengths[oracle_random(chance) % (sizeof lengths / sizeof *lengths)],
                              .in_place = oracle_random(chance) % 3 == 0,
                              .seed = oracle_random(chance)};
        s.in_place &= s.kind != JOB_BROADCAST && s.kind != JOB_BARRIER;
        if (s.kind == JOB_BARRIER)
            s.type = COMM_BYTE;
        bool averages = s.op != COMM_AVG || (s.kind != JOB_SCAN && s.kind != JOB_EXSCAN); /* a scan has no average */
        if ((!job_kind_reduces(s.kind) || (oracle_pair(s.type, s.op) && averages)) && rank_exact(&s, fixed))
            return s;
    }
}

static void sweep(struct comm_communicator *c, uint64_t seed, int batches, bool fixed)
{
    static struct job job[BATCH];
    uint64_t chance = seed;
    int32_t mine = comm_rank(c);
    char text[160];
    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < BATCH; i++) {
            struct job_shape shape = random_shape(&chance, fixed);
            job_prepare(&job[i], &shape, me.ranks);
            enum comm_result r = job_issue(&job[i], mine, c);
            if (r != COMM_OK)
                rig_die(__FILE__, __LINE__, "rank %d: %s: %s", mine, job_text(&job[i], text), comm_result_name(r));
        }
        for (int i = BATCH; i-- > 0;) {
            enum comm_result r = comm_wait(job[i].request[mine], RIG_PATIENCE);
            struct comm_error error = {.size = sizeof error};
            if (r == COMM_OK)
                continue;
            (void)!comm_error_detail(c, &error);
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s: %s", mine, job_text(&job[i], text), comm_result_name(r), error.text);
        }
        for (int i = 0; i < BATCH; i++) {
            job_verify(&job[i], mine);
            job_free(&job[i]);
        }
    }
}

/* What a rank's part of a job has in its memory before the job. */
struct before {
    unsigned char *in, *out;
};

static unsigned char *copy_of(const struct job_region *region)
{
    unsigned char *copy = malloc(region->total + 1);
    CHECK(copy != NULL);
    memcpy(copy, region->at, region->total);
    return copy;
}

static void restore(const struct job *job, const struct before *before, int32_t mine)
{
    memcpy(job->in[mine].at, before->in, job->in[mine].total);
    memcpy(job->out[mine].at, before->out, job->out[mine].total);
}

/* Each batch as a plan, which is started several times, with other calls in between. MPI's persistent collectives serve what MPI has. */
static void planned_sweep(struct comm_communicator *c, uint64_t seed, int batches, bool fixed)
{
    enum { STARTS = 3 };
    static struct job job[BATCH];
    struct before before[BATCH];
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    struct comm_request q;
    uint64_t chance = seed;
    int32_t mine = comm_rank(c);
    for (int b = 0; b < batches; b++) {
        MUST(comm_plan_begin(c, &recorder));
        for (int i = 0; i < BATCH; i++) {
            struct job_shape shape = random_shape(&chance, fixed);
            job_prepare(&job[i], &shape, me.ranks);
            before[i] = (struct before){copy_of(&job[i].in[mine]), copy_of(&job[i].out[mine])};
            MUST(job_issue(&job[i], mine, recorder));
        }
        MUST(comm_plan_end(recorder, &plan));
        for (int start = 0; start < STARTS; start++) {
            for (int i = 0; i < BATCH; i++)
                restore(&job[i], &before[i], mine);
            MUST(comm_plan_start(plan, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            for (int i = 0; i < BATCH; i++)
                job_verify(&job[i], mine);
            sweep(c, seed + (uint64_t)start, 1, fixed);
        }
        comm_plan_free(plan);
        for (int i = 0; i < BATCH; i++) {
            job_free(&job[i]);
            free(before[i].in);
            free(before[i].out);
        }
    }
}

/* The others have no persistent collectives, or wrong ones (quirks.c). */
static const char *planned_by(void)
{
    bool persistent = strncmp(me.library, "Open MPI v5", 11) == 0 || strncmp(me.library, "MPICH Version: 5", 16) == 0;

    return persistent ? "mpi_persistent" : "mpi";
}

static void plans(struct comm_communicator *c, bool fixed)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    struct comm_request q;
    int64_t in = me.rank + 1, sum = 0, all = 0;
    MUST(comm_plan_begin(c, &recorder));
    MUST(comm_allreduce(recorder, &in, &sum, 1, COMM_I64, COMM_SUM, NULL));
    MUST(comm_allreduce(recorder, &sum, &all, 1, COMM_I64, COMM_MAX, NULL));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &plan));
    for (int i = 0; i < 50; i++) {
        in = me.rank + i;
        MUST(comm_plan_start(plan, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(all, me.ranks * (me.ranks - 1) / 2 + i * me.ranks);
        if (!me.programs)
            served_by(q, planned_by()); /* the barrier, the last call */
    }
    comm_plan_free(plan);
    planned_sweep(c, 3, (int)(12 / rig_thin(1, 2, 4)), fixed);
}

/* Messages, and calls that create communicators. They use the wire that runs beside MPI. */
static void the_rest(struct comm_communicator *c)
{
    struct comm_communicator *half = NULL, *copy = NULL;
    struct comm_request q[2];
    int32_t out = 100 + me.rank, in = -1;
    MUST(comm_send(c, &out, 1, COMM_I32, (me.rank + 1) % me.ranks, 7, &q[0]));
    MUST(comm_recv(c, &in, 1, COMM_I32, COMM_ANY_PEER, 7, NULL, &q[1]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    EQUAL(in, 100 + (me.rank + me.ranks - 1) % me.ranks);
    MUST(NOW(comm_split, c, me.rank % 2, me.rank, &half));
    MUST(NOW(comm_dup, c, NULL, &copy));
    for (int i = 0; i < 20; i++) {
        int32_t mine = me.rank, sum = -1, want = 0;
        for (int32_t r = me.rank % 2; r < me.ranks; r += 2)
            want += r;
        MUST(comm_allreduce(half, &mine, &sum, 1, COMM_I32, COMM_SUM, &q[0]));
        MUST(comm_barrier(copy, &q[1]));
        MUST(comm_wait_all(q, 2, RIG_PATIENCE));
        EQUAL(sum, want);
    }
    const char *threads = getenv("COMM_MPI_THREADS");
    if (comm_size(half) > 1 && !me.programs)
        served_by(q[1], !threads ? "mpi" : me.ranks > 16 ? "doubling" : "read_all");
    sweep(copy, 99, 4, me.programs);
    MUST(comm_close(half, RIG_PATIENCE));
    MUST(comm_close(copy, RIG_PATIENCE));
}

/* More calls than a window holds, each with counts. The last ones are published when the first have completed. */
static void long_queue(struct comm_communicator *c)
{
    enum { CALLS = 200 };
    static int32_t in[CALLS][RIG_RANKS_MAX], out[CALLS][RIG_RANKS_MAX];
    struct comm_request q[CALLS];
    size_t ones[RIG_RANKS_MAX];
    for (int32_t r = 0; r < me.ranks; r++)
        ones[r] = 1;
    if (me.rank == 0)
        rig_nap(50 * RIG_MS); /* no call can complete before this rank takes part */
    for (int i = 0; i < CALLS; i++) {
        for (int32_t r = 0; r < me.ranks; r++)
            in[i][r] = i * 100 + me.rank * 10 + r;
        MUST(comm_alltoall_v(c, in[i], ones, NULL, out[i], ones, NULL, COMM_I32, &q[i]));
    }
    MUST(comm_wait_all(q, CALLS, RIG_PATIENCE));
    for (int i = 0; i < CALLS; i++)
        for (int32_t r = 0; r < me.ranks; r++)
            EQUAL(out[i][r], i * 100 + r * 10 + me.rank);
}

/* SIGPIPE must not kill a rank when MPI writes to one that died. */
static void broken_pipe(void)
{
    int pipes[2];
    CHECK(pipe(pipes) == 0 && close(pipes[0]) == 0);
    CHECK(write(pipes[1], "", 1) < 0 && errno == EPIPE);
    close(pipes[1]);
}

static void suite(const char *options, bool fixed)
{
    struct comm_communicator *world = rank_open(options);
    struct comm_request q;
    float in = 1, out = 0;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    broken_pipe();
    fixed |= me.programs;
    if (!me.programs)
        served_by(q, fixed ? "read_all" : "mpi");
    sweep(world, 1, (int)(BATCHES / rig_thin(1, 3, 6)), fixed);
    plans(world, fixed);
    long_queue(world);
    the_rest(world);
    MUST(comm_sync(world, COMM_FOREVER));
    MUST(comm_close(world, RIG_PATIENCE));
    world = rank_open(options); /* the second world while MPI is running */
    sweep(world, 2, 3, fixed);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* With nothing pending, MPI is not polled. */
static void idle(void)
{
    struct comm_communicator *world = rank_open("spin=0us,yield=0us");
    struct comm_event *gate;
    struct rusage before, after;
    sweep(world, 5, 1, false);
    MUST(comm_event_create(world, &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_sync(world, COMM_FOREVER));
    getrusage(RUSAGE_SELF, &before);
    IS(comm_event_sync(gate, RIG_S), COMM_PENDING);
    getrusage(RUSAGE_SELF, &after);
    long us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
              after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    if (us > 20000)
        rig_die(__FILE__, __LINE__, "%ld us of CPU in an idle second", us);
    printf("rank %d: %ld us of CPU in an idle second\n", me.rank, us);
    comm_event_free(gate);
    MUST(comm_close(world, RIG_PATIENCE));
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "suite", *file = getenv("SAY_TO");
    bool is_long = selection_all() || strcmp(what, "large") == 0, is_short = strcmp(what, "killed") == 0;
    rig_end_after(is_short ? 20 : is_long ? 100 : 60);
    if (file && !freopen(file, "a", stdout))
        return 3;
    if (strcmp(what, "suite") == 0)
        suite(NULL, false);
    else if (strcmp(what, "fixed") == 0)
        suite("order=fixed", true);
    else if (strcmp(what, "cells") == 0)
        rank_cells();
    else if (strcmp(what, "large") == 0)
        rank_large();
    else if (strcmp(what, "in_place") == 0)
        rank_apart(true);
    else if (strcmp(what, "ahead") == 0)
        rank_apart(false);
    else if (strcmp(what, "many") == 0)
        rank_many();
    else if (strcmp(what, "short") == 0)
        rank_differ(2);
    else if (strcmp(what, "long") == 0)
        rank_differ(99990);
    else if (strcmp(what, "edge") == 0)
        rank_edge();
    else if (strcmp(what, "killed") == 0)
        rank_killed();
    else if (strcmp(what, "cut") == 0)
        rank_cut();
    else if (strcmp(what, "calls") == 0)
        rank_calls();
    else if (strcmp(what, "late") == 0)
        rank_late();
    else if (strcmp(what, "stopped") == 0)
        rank_stopped();
    else if (strcmp(what, "idle") == 0)
        idle();
    else if (strcmp(what, "leave") == 0)
        rank_leave();
    else if (strcmp(what, "dies_last") == 0)
        rank_dies_last();
    else if (strcmp(what, "dies_beside") == 0)
        rank_dies_beside();
    else if (strcmp(what, "dies_meanwhile") == 0)
        rank_dies_meanwhile();
    else
        return 2;
    return 0;
}
