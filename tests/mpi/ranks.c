/*
 * One rank of a world over MPI, started by MPI's own launcher (run.sh); what it finds wrong it prints, and ends with 1. The program knows
 * nothing of MPI: the library's module brings it.
 *
 *   ranks suite | fixed | mismatch | killed | idle | leave
 */
#define _GNU_SOURCE
#include "conform/job.h"
#include "now.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

static int32_t rank, ranks;

/* Whoever asks what is here must not thereby choose another MPI than the launcher's. */
static void ask_backends(void)
{
    struct comm_backend_info b;
    for (size_t i = 0; b = (struct comm_backend_info){.size = sizeof b}, comm_describe_backend(i, &b) == COMM_OK; i++)
        if (strcmp(b.name, "mpi") == 0)
            CHECK(b.available && strstr(b.version, "MPI"));
}

static struct comm_communicator *open_world(const char *options)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct comm_info info = {.size = sizeof info};
    ask_backends();
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "mpi", .options = options, .operation_timeout_ns = 20 * RIG_S, .error_text = text,
                                               .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        exit(3);
    }
    rank = comm_rank(world);
    ranks = comm_size(world);
    MUST(comm_describe(world, &info));
    CHECK(strcmp(info.backend, "mpi") == 0);
    return world;
}

static void served_by(struct comm_request q, const char *want)
{
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    if (strcmp(info.algorithm, want) != 0)
        rig_die(__FILE__, __LINE__, "served by %s, expected %s", info.algorithm, want);
}

/* ------------------------------------------------------------------------------------------------------------ the suite */
enum { BATCH = 12 };

/* What MPI sums in an order of its own is compared where there is only one order: two ranks, or no floats. */
static bool exact(const struct job_shape *s, bool fixed)
{
    bool floats = s->type >= COMM_F8E4M3;
    return fixed || ranks <= 2 || !job_kind_reduces(s->kind) || !floats;
}

static struct job_shape random_shape(uint64_t *chance, bool fixed)
{
    static const size_t lengths[] = {0, 1, 2, 7, 97, 1000, 5000, 70001};
    for (;;) {
        struct job_shape s = {.kind = (enum job_kind)(oracle_random(chance) % JOB_KINDS),
                              .type = oracle_types[oracle_random(chance) % ORACLE_TYPES],
                              .op = oracle_ops[oracle_random(chance) % ORACLE_OPS],
                              .root = (int32_t)(oracle_random(chance) % (uint64_t)ranks),
                              .n = lengths[oracle_random(chance) % (sizeof lengths / sizeof *lengths)],
                              .in_place = oracle_random(chance) % 3 == 0,
                              .seed = oracle_random(chance)};
        s.in_place &= s.kind != JOB_BROADCAST && s.kind != JOB_BARRIER;
        if (s.kind == JOB_BARRIER)
            s.type = COMM_BYTE;
        bool averages = s.op != COMM_AVG || (s.kind != JOB_SCAN && s.kind != JOB_EXSCAN); /* of part of the ranks there is none */
        if ((!job_kind_reduces(s.kind) || (oracle_pair(s.type, s.op) && averages)) && exact(&s, fixed))
            return s;
    }
}

static void sweep(struct comm_communicator *c, uint64_t seed, int batches, bool fixed)
{
    static struct job job[BATCH];
    uint64_t chance = seed;
    int32_t me = comm_rank(c);
    char text[160];
    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < BATCH; i++) {
            struct job_shape shape = random_shape(&chance, fixed);
            job_prepare(&job[i], &shape, ranks);
            enum comm_result r = job_issue(&job[i], me, c);
            if (r != COMM_OK)
                rig_die(__FILE__, __LINE__, "rank %d: %s: %s", me, job_text(&job[i], text), comm_result_name(r));
        }
        for (int i = BATCH; i-- > 0;) {
            enum comm_result r = comm_wait(job[i].request[me], RIG_PATIENCE);
            struct comm_error error = {.size = sizeof error};
            if (r == COMM_OK)
                continue;
            (void)!comm_error_detail(c, &error);
            rig_die(__FILE__, __LINE__, "rank %d: %s: %s: %s", me, job_text(&job[i], text), comm_result_name(r), error.text);
        }
        for (int i = 0; i < BATCH; i++) {
            job_verify(&job[i], me);
            job_free(&job[i]);
        }
    }
}

static void plans(struct comm_communicator *c)
{
    struct comm_communicator *recorder;
    struct comm_plan *plan;
    struct comm_request q;
    int64_t in = rank + 1, sum = 0, all = 0;
    MUST(comm_plan_begin(c, &recorder));
    MUST(comm_allreduce(recorder, &in, &sum, 1, COMM_I64, COMM_SUM, NULL));
    MUST(comm_allreduce(recorder, &sum, &all, 1, COMM_I64, COMM_MAX, NULL));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &plan));
    for (int i = 0; i < 50; i++) {
        in = rank + i;
        MUST(comm_plan_start(plan, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(all, ranks * (ranks - 1) / 2 + i * ranks);
    }
    comm_plan_free(plan);
}

/* Messages, and creating calls: over the wire that stands beside MPI. */
static void the_rest(struct comm_communicator *c)
{
    struct comm_communicator *half = NULL, *copy = NULL;
    struct comm_request q[2];
    int32_t out = 100 + rank, in = -1;
    MUST(comm_send(c, &out, 1, COMM_I32, (rank + 1) % ranks, 7, &q[0]));
    MUST(comm_recv(c, &in, 1, COMM_I32, COMM_ANY_PEER, 7, NULL, &q[1]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    EQUAL(in, 100 + (rank + ranks - 1) % ranks);
    MUST(NOW(comm_split, c, rank % 2, rank, &half));
    MUST(NOW(comm_dup, c, NULL, &copy));
    for (int i = 0; i < 20; i++) {
        int32_t mine = rank, sum = -1, want = 0;
        for (int32_t r = rank % 2; r < ranks; r += 2)
            want += r;
        MUST(comm_allreduce(half, &mine, &sum, 1, COMM_I32, COMM_SUM, &q[0]));
        MUST(comm_barrier(copy, &q[1]));
        MUST(comm_wait_all(q, 2, RIG_PATIENCE));
        EQUAL(sum, want);
    }
    const char *threads = getenv("COMM_MPI_THREADS");
    if (comm_size(half) > 1)
        served_by(q[1], !threads ? "mpi" : ranks > 16 ? "doubling" : "read_all");
    sweep(copy, 99, 4, false);
    MUST(comm_close(half, RIG_PATIENCE));
    MUST(comm_close(copy, RIG_PATIENCE));
}

static void suite(const char *options, bool fixed)
{
    struct comm_communicator *world = open_world(options);
    struct comm_request q;
    float in = 1, out = 0;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    served_by(q, fixed ? "read_all" : "mpi");
    sweep(world, 1, rig_quick() ? 10 : 60, fixed);
    plans(world);
    the_rest(world);
    MUST(comm_sync(world, COMM_FOREVER));
    MUST(comm_close(world, RIG_PATIENCE));
    world = open_world(options); /* MPI is there already: its second world */
    sweep(world, 2, 3, fixed);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ what goes wrong */
static void print_cause(struct comm_communicator *world, enum comm_result r, int64_t since)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    printf("rank %d: %s after %lld ms: %s\n", rank, comm_result_name(r), (long long)((rig_now() - since) / RIG_MS), error.text);
    fflush(stdout);
}

static void differ(size_t n)
{
    struct comm_communicator *world = open_world(NULL);
    static int32_t in[100000], out[100000];
    struct comm_request q;
    MUST(comm_barrier(world, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE); /* others may have left it, and differed, already */
    int64_t start = rig_now();
    if (r == COMM_OK)
        r = comm_allreduce(world, in, out, rank == 1 ? n : n + 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    if (r == COMM_OK) /* MPI let it pass on this rank: the comparison of published calls does not */
        r = comm_wait(comm_last(world), RIG_PATIENCE);
    for (int64_t end = rig_now() + 3 * RIG_S; r == COMM_OK && rig_now() < end; rig_nap(RIG_MS)) {
        struct comm_error error = {.size = sizeof error};
        (void)!comm_progress(world);
        MUST(comm_error_detail(world, &error));
        r = error.result;
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_MISMATCH && rig_now() - start < 3 * RIG_S);
    r = comm_close(world, RIG_S / 5); /* what MPI has taken it keeps */
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

static void killed(void)
{
    struct comm_communicator *world = open_world(NULL);
    int64_t in = 1, out = 0, start = 0;
    enum comm_result r = COMM_OK;
    struct comm_request q;
    for (int i = 0; r == COMM_OK; i++) {
        start = rig_now(); /* another may fail in the call before the one that the victim does not come to */
        if (i == 200 && rank == 1)
            kill(getpid(), SIGKILL);
        r = comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, &q);
        if (r == COMM_OK)
            r = comm_wait(q, RIG_PATIENCE);
    }
    print_cause(world, r, start);
    CHECK(r == COMM_ERR_PEER && rig_now() - start < RIG_S);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(q, &info));
    enum comm_result closed = comm_close(world, RIG_S / 5);
    CHECK(closed == ((info.flags & COMM_INFO_BUFFERS_HELD) ? COMM_ERR_TIMEOUT : COMM_OK));
    fflush(NULL);
}

/* Nothing pending: nothing is looked at. */
static void idle(void)
{
    struct comm_communicator *world = open_world("spin=0us,yield=0us");
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
    printf("rank %d: %ld us of CPU in an idle second\n", rank, us);
    comm_event_destroy(gate);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Ends with its world open: nobody waits for it in MPI_Finalize, and the launcher sees its status. */
static void leave(void)
{
    struct comm_communicator *world = open_world(NULL);
    int32_t in = 1, out;
    struct comm_request q;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &q));
    enum comm_result r = comm_wait(q, RIG_PATIENCE);
    CHECK(r == COMM_OK || r == COMM_ERR_PEER); /* another may have left before this one has looked */
    exit(9);
}

int main(int count, char **argument)
{
    const char *what = count > 1 ? argument[1] : "suite", *file = getenv("SAY_TO");
    alarm(100);
    if (file && !freopen(file, "a", stdout))
        return 3;
    if (strcmp(what, "suite") == 0)
        suite(NULL, false);
    else if (strcmp(what, "fixed") == 0)
        suite("order=fixed", true);
    else if (strcmp(what, "short") == 0)
        differ(2);
    else if (strcmp(what, "long") == 0)
        differ(99990);
    else if (strcmp(what, "killed") == 0)
        killed();
    else if (strcmp(what, "idle") == 0)
        idle();
    else if (strcmp(what, "leave") == 0)
        leave();
    else
        return 2;
    return 0;
}
