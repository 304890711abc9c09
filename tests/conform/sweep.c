/* Batches of collective calls, compared with the oracle. */
#define _GNU_SOURCE
#include "conform/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 24, COUNTS = 7 };

struct sweep {
    int32_t ranks;
    unsigned thin;
    int kind; /* -1: all */
    bool threads;
    bool large;
    bool forced; /* an algorithm chosen by name may refuse what it cannot do, on all ranks alike */
    const char *algorithm;
    struct comm_communicator *const *c;
    struct job job[BATCH];
    bool refused[BATCH][RIG_RANKS_MAX];
    size_t jobs, total;
    uint64_t chance;
};

/* ------------------------------------------------------------------------------------------------------------ running a batch */
static void issue_one(struct sweep *sweep, size_t i, int32_t rank)
{
    char text[160];
    enum comm_result result = job_issue(&sweep->job[i], rank, sweep->c[rank]);
    sweep->refused[i][rank] = sweep->forced && result == COMM_ERR_UNSUPPORTED;
    if (result != COMM_OK && !sweep->refused[i][rank])
        rig_die(__FILE__, __LINE__, "%s: rank %d: the call said %s", job_text(&sweep->job[i], text), rank, comm_result_name(result));
}

static void wait_one(struct sweep *sweep, size_t i, int32_t rank)
{
    char text[160];
    enum comm_result result = comm_wait(sweep->job[i].request[rank], RIG_PATIENCE);
    struct comm_error error = {.size = sizeof error};
    if (result == (sweep->refused[i][rank] ? COMM_ERR_UNSUPPORTED : COMM_OK))
        return;
    if (comm_error_detail(sweep->c[rank], &error) != COMM_OK)
        error.text[0] = 0;
    rig_die(__FILE__, __LINE__, "%s: rank %d: wait said %s: %s", job_text(&sweep->job[i], text), rank, comm_result_name(result),
            error.text);
}

static void drive_rank(void *arg, int32_t rank)
{
    struct sweep *sweep = arg;
    for (size_t i = 0; i < sweep->jobs; i++)
        issue_one(sweep, i, rank);
    for (size_t i = sweep->jobs; i-- > 0;)
        wait_one(sweep, i, rank);
}

/* One thread for all ranks: sometimes rank by rank, sometimes operation by operation, so that all lengths occur with
 * early and late arrivals. */
static void drive_alone(struct sweep *sweep)
{
    bool by_rank = oracle_random(&sweep->chance) % 2;
    size_t outer = by_rank ? (size_t)sweep->ranks : sweep->jobs, inner = by_rank ? sweep->jobs : (size_t)sweep->ranks;
    for (size_t a = 0; a < outer; a++) {
        for (size_t b = 0; b < inner; b++)
            issue_one(sweep, by_rank ? b : a, (int32_t)(by_rank ? a : b));
    }
    for (size_t i = 0; i < sweep->jobs; i++) {
        for (int32_t r = 0; r < sweep->ranks; r++)
            wait_one(sweep, i, r);
    }
}

/* What is forced did the call, and nothing beside it. */
static void check_algorithm(const struct sweep *sweep, const struct job *job, int32_t rank)
{
    char text[160];
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(job->request[rank], &info));
    if (strcmp(info.algorithm, sweep->algorithm) != 0)
        rig_die(__FILE__, __LINE__, "%s: rank %d: done by \"%s\", but \"%s\" was forced", job_text(job, text), rank, info.algorithm,
                sweep->algorithm);
}

static void flush_batch(struct sweep *sweep)
{
    if (sweep->threads)
        rig_threads(sweep->ranks, drive_rank, sweep);
    else
        drive_alone(sweep);
    for (size_t i = 0; i < sweep->jobs; i++) {
        for (int32_t r = 0; r < sweep->ranks; r++) {
            EQUAL(sweep->refused[i][r], sweep->refused[i][0]);
            if (sweep->refused[i][r])
                continue;
            job_verify(&sweep->job[i], r);
            if (sweep->algorithm)
                check_algorithm(sweep, &sweep->job[i], r);
        }
        sweep->total += !sweep->refused[i][0];
        job_free(&sweep->job[i]);
    }
    sweep->jobs = 0;
}

static void add_shape(struct sweep *sweep, struct job_shape shape)
{
    if (sweep->thin > 1 && oracle_random(&sweep->chance) % sweep->thin)
        return;
    shape.seed = oracle_random(&sweep->chance);
    job_prepare(&sweep->job[sweep->jobs++], &shape, sweep->ranks);
    if (sweep->jobs == BATCH)
        flush_batch(sweep);
}

/* ------------------------------------------------------------------------------------------------------------ the shapes */
static void add_roots(struct sweep *sweep, struct job_shape shape)
{
    int32_t roots[3] = {0, sweep->ranks / 2, sweep->ranks - 1};
    int32_t last = -1;
    for (int i = 0; i < (job_kind_has_root(shape.kind) ? 3 : 1); i++) {
        shape.root = roots[i];
        if (shape.root == last)
            continue;
        last = shape.root;
        add_shape(sweep, shape);
        if (!job_kind_in_place(shape.kind))
            continue;
        shape.in_place = true;
        add_shape(sweep, shape);
        shape.in_place = false;
    }
}

static void add_counts(struct sweep *sweep, struct job_shape shape)
{
    size_t p = (size_t)sweep->ranks, counts[COUNTS] = {0, 1, p - 1, p, p + 1, 97, 5000};
    if (sweep->large) {
        shape.n = (300 * 1024 + 136) / oracle_type_bytes(shape.type) + 1;
        add_roots(sweep, shape);
        return;
    }
    for (int i = 0; i < COUNTS; i++) {
        shape.n = counts[i];
        add_roots(sweep, shape);
    }
}

static void add_kind(struct sweep *sweep, enum job_kind kind)
{
    if (kind == JOB_BARRIER) {
        uint32_t thin = sweep->thin;
        sweep->thin = sweep->forced ? 1 : thin; /* of few shapes a part may be none */
        for (int i = 0; i < 3; i++)
            add_shape(sweep, (struct job_shape){.kind = kind, .type = COMM_BYTE});
        sweep->thin = thin;
        return;
    }
    for (int t = 0; t < ORACLE_TYPES; t++) {
        struct job_shape shape = {.kind = kind, .type = oracle_types[t], .op = COMM_SUM};
        if (!job_kind_reduces(kind)) {
            add_counts(sweep, shape);
            continue;
        }
        for (int o = 0; o < ORACLE_OPS; o++) {
            shape.op = oracle_ops[o];
            bool means = shape.op != COMM_AVG || (kind != JOB_SCAN && kind != JOB_EXSCAN);
            if (oracle_pair(shape.type, shape.op) && means)
                add_counts(sweep, shape);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ sweeps */
static struct sweep *sweep_make(struct comm_communicator *const *c, int32_t ranks)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        rig_die(__FILE__, __LINE__, "no memory");
    sweep->c = c;
    sweep->ranks = ranks;
    return sweep;
}

static size_t sweep_end(struct sweep *sweep)
{
    flush_batch(sweep);
    size_t total = sweep->total;
    free(sweep);
    return total;
}

size_t sweep_over(struct comm_communicator *const *c, int32_t ranks, const struct sweep_plan *plan)
{
    struct sweep *sweep = sweep_make(c, ranks);
    sweep->thin = plan->thin * rig_thin(1, 3, 25);
    sweep->kind = plan->kind;
    sweep->threads = plan->threads;
    sweep->large = plan->large;
    sweep->algorithm = plan->algorithm;
    sweep->forced = plan->algorithm || (plan->options && strncmp(plan->options, "algorithm", 9) == 0);
    sweep->chance = (uint64_t)ranks * 1000 + plan->thin;
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        if (sweep->kind < 0 || sweep->kind == kind)
            add_kind(sweep, (enum job_kind)kind);
    }
    return sweep_end(sweep);
}

size_t sweep_one(struct comm_communicator *const *c, int32_t ranks, const struct job_shape *shape, const char *algorithm)
{
    struct sweep *sweep = sweep_make(c, ranks);
    sweep->algorithm = algorithm;
    sweep->chance = shape->seed;
    add_shape(sweep, *shape);
    return sweep_end(sweep);
}

size_t sweep_ranks(int32_t ranks, const struct sweep_plan *plan)
{
    struct rig rig;
    rig_note("%d ranks, options \"%s\"%s", ranks, plan->options ? plan->options : "", plan->threads ? ", a thread each" : "");
    rig_open_options(&rig, ranks, plan->options);
    size_t total = sweep_over(rig.world, ranks, plan);
    rig_close(&rig);
    return total;
}

void sweep_all(const struct sweep_plan *plan)
{
    size_t total = 0;
    for (int32_t ranks = 1; ranks <= SWEEP_RANKS; ranks++)
        total += sweep_ranks(ranks, plan);
    fprintf(stderr, "    %zu calls compared\n", total);
}
