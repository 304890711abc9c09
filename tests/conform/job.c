#define _GNU_SOURCE
#include "conform/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_CANARY = 64 };

const char *const job_kind_names[JOB_KINDS] = {"barrier", "broadcast", "reduce", "allreduce", "allgather", "allgather_v", "reduce_scatter"};

bool job_kind_reduces(enum job_kind kind)
{
    return kind == JOB_REDUCE || kind == JOB_ALLREDUCE || kind == JOB_REDUCE_SCATTER;
}
bool job_kind_has_root(enum job_kind kind)
{
    return kind == JOB_BROADCAST || kind == JOB_REDUCE;
}

const char *job_text(const struct job *job, char text[160])
{
    const struct job_shape *s = &job->shape;
    snprintf(text, 160, "%s %s %s n=%zu root=%d%s, %d ranks, seed %llu", job_kind_names[s->kind], oracle_type_name(s->type),
             job_kind_reduces(s->kind) ? oracle_op_name(s->op) : "-", s->n, s->root, s->in_place ? " in place" : "", job->ranks,
             (unsigned long long)s->seed);
    return text;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Starts an odd number of elements behind an aligned place, so that kernels meet every alignment that a caller may have. */
static void region_make(struct job_region *region, size_t elements, const struct job_shape *shape, uint64_t chance)
{
    size_t unit = oracle_type_bytes(shape->type);
    region->bytes = elements * unit;
    region->lead = JOB_CANARY + chance % 9 * unit;
    region->total = region->lead + region->bytes + JOB_CANARY;
    region->at = malloc(region->total);
    region->want = malloc(region->total);
    if (!region->at || !region->want)
        rig_die(__FILE__, __LINE__, "no memory for %zu bytes", region->total);
    memset(region->at, (int)(0xa0 + chance % 61), region->total);
}

static void region_settle(struct job_region *region)
{
    if (region->at)
        memcpy(region->want, region->at, region->total);
}

static void region_free(struct job_region *region)
{
    free(region->at);
    free(region->want);
}

static unsigned char *payload(const struct job_region *region)
{
    return region->at ? region->at + region->lead : NULL;
}
static unsigned char *wanted(const struct job_region *region)
{
    return region->want + region->lead;
}

/* ------------------------------------------------------------------------------------------------------------ layout */
static size_t block_elements(const struct job *job, int32_t rank)
{
    return job->shape.kind == JOB_ALLGATHER_V ? job->counts[rank] : job->shape.n;
}

/* Zero blocks, blocks of different length, gaps, and now and then blocks that lie in another order than their ranks. */
static void layout_make(struct job *job, uint64_t *chance)
{
    bool backwards = oracle_random(chance) % 4 == 0;
    size_t at = 0;
    job->dense = oracle_random(chance) % 3 == 0;
    for (int32_t r = 0; r < job->ranks; r++) {
        uint64_t bits = oracle_random(chance);
        job->counts[r] = bits % 4 == 0 ? 0 : bits % 4 == 1 ? job->shape.n : (bits >> 8) % (job->shape.n + 1);
    }
    for (int32_t i = 0; i < job->ranks; i++) {
        int32_t r = backwards && !job->dense ? job->ranks - 1 - i : i;
        at += job->dense ? 0 : oracle_random(chance) % 7;
        job->displs[r] = at;
        at += job->counts[r];
    }
}

static size_t gathered_elements(const struct job *job)
{
    size_t end = 0;
    if (job->shape.kind != JOB_ALLGATHER_V)
        return job->shape.n * (size_t)job->ranks;
    for (int32_t r = 0; r < job->ranks; r++)
        end = job->displs[r] + job->counts[r] > end ? job->displs[r] + job->counts[r] : end;
    return end + (job->dense ? 0 : 3);
}

static size_t block_start(const struct job *job, int32_t rank)
{
    return job->shape.kind == JOB_ALLGATHER_V ? job->displs[rank] : job->shape.n * (size_t)rank;
}

static bool reduces_in_place(const struct job *job, int32_t rank)
{
    return job->shape.in_place && (job->shape.kind != JOB_REDUCE || rank == job->shape.root);
}

/* ------------------------------------------------------------------------------------------------------------ the image afterwards */
static void expect_reduction(struct job *job)
{
    const struct job_shape *s = &job->shape;
    size_t n = s->kind == JOB_REDUCE_SCATTER ? s->n * (size_t)job->ranks : s->n, unit = oracle_type_bytes(s->type);
    const void *from[RIG_RANKS_MAX];
    unsigned char *result = malloc(n * unit + 1);
    if (!result)
        rig_die(__FILE__, __LINE__, "no memory");
    for (int32_t r = 0; r < job->ranks; r++)
        from[r] = payload(reduces_in_place(job, r) ? &job->out[r] : &job->in[r]);
    oracle_reduce(from, job->ranks, n, s->type, s->op, result);
    for (int32_t r = 0; r < job->ranks; r++) {
        if (!job->out[r].at || (s->kind == JOB_REDUCE && r != s->root))
            continue;
        if (s->kind != JOB_REDUCE_SCATTER)
            memcpy(wanted(&job->out[r]), result, n * unit);
        else
            memcpy(wanted(&job->out[r]) + (s->in_place ? s->n * unit * (size_t)r : 0), result + s->n * unit * (size_t)r, s->n * unit);
    }
    free(result);
}

static void expect_moves(struct job *job)
{
    const struct job_shape *s = &job->shape;
    size_t unit = oracle_type_bytes(s->type);
    for (int32_t r = 0; r < job->ranks; r++) {
        for (int32_t from = 0; from < job->ranks; from++) {
            size_t start = block_start(job, from) * unit, bytes = block_elements(job, from) * unit;
            if (s->kind == JOB_BROADCAST && from == s->root)
                memcpy(wanted(&job->out[r]), payload(&job->out[from]), bytes);
            else if (s->kind != JOB_BROADCAST && s->in_place)
                memcpy(wanted(&job->out[r]) + start, payload(&job->out[from]) + start, bytes);
            else if (s->kind != JOB_BROADCAST)
                memcpy(wanted(&job->out[r]) + start, payload(&job->in[from]), bytes);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ prepare */
static void prepare_reduction(struct job *job, int32_t r, uint64_t *chance)
{
    const struct job_shape *s = &job->shape;
    size_t all = s->kind == JOB_REDUCE_SCATTER ? s->n * (size_t)job->ranks : s->n;
    bool here = reduces_in_place(job, r);
    bool idle = s->kind == JOB_REDUCE && r != s->root && oracle_random(chance) % 2; /* its out stays NULL */
    if (!here)
        region_make(&job->in[r], all, s, oracle_random(chance));
    if (!idle)
        region_make(&job->out[r], here ? all : s->n, s, oracle_random(chance));
    oracle_fill(payload(here ? &job->out[r] : &job->in[r]), all, s->type, s->op, s->seed, r);
}

static void prepare_move(struct job *job, int32_t r, uint64_t *chance)
{
    const struct job_shape *s = &job->shape;
    size_t unit = oracle_type_bytes(s->type);
    if (s->kind == JOB_BROADCAST) {
        region_make(&job->out[r], s->n, s, oracle_random(chance));
        if (r == s->root)
            oracle_fill(payload(&job->out[r]), s->n, s->type, COMM_SUM, s->seed, r);
        return;
    }
    region_make(&job->out[r], gathered_elements(job), s, oracle_random(chance));
    if (s->in_place) {
        oracle_fill(payload(&job->out[r]) + block_start(job, r) * unit, block_elements(job, r), s->type, COMM_SUM, s->seed, r);
        return;
    }
    region_make(&job->in[r], block_elements(job, r), s, oracle_random(chance));
    oracle_fill(payload(&job->in[r]), block_elements(job, r), s->type, COMM_SUM, s->seed, r);
}

void job_prepare(struct job *job, const struct job_shape *shape, int32_t ranks)
{
    uint64_t chance = shape->seed;
    memset(job, 0, sizeof *job);
    job->shape = *shape;
    job->ranks = ranks;
    if (shape->kind == JOB_BARRIER)
        return;
    if (shape->kind == JOB_ALLGATHER_V)
        layout_make(job, &chance);
    for (int32_t r = 0; r < ranks; r++) {
        if (job_kind_reduces(shape->kind))
            prepare_reduction(job, r, &chance);
        else
            prepare_move(job, r, &chance);
        region_settle(&job->in[r]);
        region_settle(&job->out[r]);
    }
    if (job_kind_reduces(shape->kind))
        expect_reduction(job);
    else
        expect_moves(job);
}

/* ------------------------------------------------------------------------------------------------------------ issue, verify */
enum comm_result job_issue(struct job *job, int32_t rank, struct comm_communicator *c)
{
    const struct job_shape *s = &job->shape;
    struct comm_request *request = &job->request[rank];
    const void *in = s->in_place && s->kind != JOB_BROADCAST && !job->in[rank].at ? COMM_IN_PLACE : payload(&job->in[rank]);
    void *out = payload(&job->out[rank]);
    switch (s->kind) {
    case JOB_BARRIER:
        return comm_barrier(c, request);
    case JOB_BROADCAST:
        return comm_broadcast(c, out, s->n, s->type, s->root, request);
    case JOB_REDUCE:
        return comm_reduce(c, in, out, s->n, s->type, s->op, s->root, request);
    case JOB_ALLREDUCE:
        return comm_allreduce(c, in, out, s->n, s->type, s->op, request);
    case JOB_ALLGATHER:
        return comm_allgather(c, in, out, s->n, s->type, request);
    case JOB_ALLGATHER_V:
        return comm_allgather_v(c, in, out, job->counts, job->dense ? NULL : job->displs, s->type, request);
    default:
        return comm_reduce_scatter(c, in, out, s->n, s->type, s->op, request);
    }
}

static void region_verify(const struct job *job, const struct job_region *region, const char *name, int32_t rank)
{
    size_t unit = oracle_type_bytes(job->shape.type), n = region->bytes / unit;
    char text[160], got[64], want[64];
    if (!region->at)
        return;
    size_t bad = oracle_differ(payload(region), wanted(region), n, job->shape.type);
    if (bad < n)
        rig_die(__FILE__, __LINE__, "%s: rank %d, %s[%zu] is %s, must be %s", job_text(job, text), rank, name, bad,
                oracle_text(payload(region), bad, job->shape.type, got), oracle_text(wanted(region), bad, job->shape.type, want));
    size_t tail = region->lead + region->bytes;
    if (memcmp(region->at, region->want, region->lead) || memcmp(region->at + tail, region->want + tail, region->total - tail))
        rig_die(__FILE__, __LINE__, "%s: rank %d, memory beside %s was written", job_text(job, text), rank, name);
}

void job_verify(const struct job *job, int32_t rank)
{
    region_verify(job, &job->in[rank], "in", rank);
    region_verify(job, &job->out[rank], "out", rank);
}

void job_free(struct job *job)
{
    for (int32_t r = 0; r < job->ranks; r++) {
        region_free(&job->in[r]);
        region_free(&job->out[r]);
    }
}
