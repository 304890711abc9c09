/* One call of one collective on all ranks: its buffers, the call, and the comparison with the expected memory. */
#define _GNU_SOURCE
#include "conform/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_CANARY = 64 };

const char *const job_kind_names[JOB_KINDS] = {"barrier",        "broadcast", "reduce",     "allreduce",       "allgather", "allgather_v",
                                               "reduce_scatter", "scan",      "exscan",     "gather",          "gather_v",  "scatter",
                                               "scatter_v",      "alltoall",  "alltoall_v", "reduce_scatter_v"};

bool job_kind_reduces(enum job_kind kind)
{
    return kind == JOB_REDUCE || kind == JOB_ALLREDUCE || kind == JOB_REDUCE_SCATTER || kind == JOB_SCAN || kind == JOB_EXSCAN ||
           kind == JOB_REDUCE_SCATTER_V;
}

bool job_kind_has_root(enum job_kind kind)
{
    return kind == JOB_BROADCAST || kind == JOB_REDUCE || kind == JOB_GATHER || kind == JOB_GATHER_V || kind == JOB_SCATTER ||
           kind == JOB_SCATTER_V;
}

bool job_kind_in_place(enum job_kind kind)
{
    return kind != JOB_BROADCAST && kind != JOB_BARRIER;
}

static bool is_vector(enum job_kind kind)
{
    return kind == JOB_ALLGATHER_V || kind == JOB_GATHER_V || kind == JOB_SCATTER_V || kind == JOB_ALLTOALL_V ||
           kind == JOB_REDUCE_SCATTER_V;
}

static bool scatters(enum job_kind kind)
{
    return kind == JOB_REDUCE_SCATTER || kind == JOB_REDUCE_SCATTER_V;
}

/* Whether a rank's input, or output, has a block for every rank. */
static bool in_has_blocks(enum job_kind kind)
{
    return kind == JOB_SCATTER || kind == JOB_SCATTER_V || kind == JOB_ALLTOALL || kind == JOB_ALLTOALL_V || scatters(kind);
}

static bool out_has_blocks(enum job_kind kind)
{
    return kind == JOB_ALLGATHER || kind == JOB_ALLGATHER_V || kind == JOB_GATHER || kind == JOB_GATHER_V || kind == JOB_ALLTOALL ||
           kind == JOB_ALLTOALL_V;
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
/* Starts an odd number of elements behind an aligned address, so that kernels meet every alignment that a caller may
 * have. */
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
static bool gives(const struct job *job, int32_t from)
{
    enum job_kind kind = job->shape.kind;
    return (kind != JOB_BROADCAST && kind != JOB_SCATTER && kind != JOB_SCATTER_V) || from == job->shape.root;
}

static bool receives(const struct job *job, int32_t to)
{
    enum job_kind kind = job->shape.kind;
    return (kind != JOB_REDUCE && kind != JOB_GATHER && kind != JOB_GATHER_V) || to == job->shape.root;
}

static bool is_in_place(const struct job *job, int32_t rank)
{
    enum job_kind kind = job->shape.kind;
    bool root_alone = kind != JOB_BROADCAST && job_kind_has_root(kind);
    return job->shape.in_place && job_kind_in_place(kind) && (!root_alone || rank == job->shape.root);
}

/* How much each rank sends to each: empty blocks and blocks of different lengths. A length that depends on only one of
 * the two ranks is taken from rank 0's pair. */
static void pairs_make(struct job *job, uint64_t *chance)
{
    enum job_kind kind = job->shape.kind;
    bool by_from = kind == JOB_ALLGATHER_V || kind == JOB_GATHER_V, by_to = kind == JOB_SCATTER_V || kind == JOB_REDUCE_SCATTER_V;
    for (int32_t from = 0; from < job->ranks; from++) {
        for (int32_t to = 0; to < job->ranks; to++) {
            uint64_t bits = oracle_random(chance);
            size_t n = bits % 4 == 0 ? 0 : bits % 4 == 1 ? job->shape.n : (bits >> 8) % (job->shape.n + 1);
            if (job->shape.counts)
                n = job->shape.counts[by_from ? from : to];
            else if (by_from && to > 0)
                n = job->pair[from][0];
            else if (by_to && from > 0)
                n = job->pair[0][to];
            else if (job->shape.in_place && from > to) /* where input lies in output, both have one length */
                n = job->pair[to][from];
            job->pair[from][to] = is_vector(kind) ? n : job->shape.n;
        }
    }
}

/* Where a buffer's blocks lie: with gaps, and sometimes not in rank order. Returns the buffer's length. */
static size_t layout_make(struct job *job, int32_t rank, bool in, struct job_layout *layout, uint64_t *chance)
{
    bool vector = is_vector(job->shape.kind), backwards = vector && oracle_random(chance) % 4 == 0;
    size_t at = 0;
    layout->dense = !vector || job->shape.kind == JOB_REDUCE_SCATTER_V || oracle_random(chance) % 3 == 0;
    for (int32_t i = 0; i < job->ranks; i++) {
        int32_t r = backwards && !layout->dense ? job->ranks - 1 - i : i;
        at += layout->dense ? 0 : oracle_random(chance) % 7;
        layout->counts[r] = in ? job->pair[rank][r] : job->pair[r][rank];
        layout->displs[r] = at;
        at += layout->counts[r];
    }
    return at + (layout->dense ? 0 : 3);
}

/* ------------------------------------------------------------------------------------------------------------ expected memory */
static void expect_reduction(struct job *job)
{
    const struct job_shape *s = &job->shape;
    size_t all = 0, unit = oracle_type_bytes(s->type);
    for (int32_t r = 0; r < job->ranks; r++)
        all += scatters(s->kind) ? job->pair[0][r] : 0;
    size_t n = scatters(s->kind) ? all : s->n, at = 0;
    const void *from[RIG_RANKS_MAX];
    unsigned char *result = malloc(n * unit + 1);
    if (!result)
        rig_die(__FILE__, __LINE__, "no memory");
    for (int32_t r = 0; r < job->ranks; r++)
        from[r] = payload(is_in_place(job, r) ? &job->out[r] : &job->in[r]);
    for (int32_t r = 0; r < job->ranks; r++) {
        int32_t ranks = s->kind == JOB_SCAN ? r + 1 : s->kind == JOB_EXSCAN ? r : job->ranks;
        if (r == 0 || s->kind == JOB_SCAN || s->kind == JOB_EXSCAN)
            oracle_reduce(from, ranks, ranks ? n : 0, s->type, s->op, result);
        size_t count = scatters(s->kind) ? job->pair[0][r] : s->n;
        if (job->out[r].at && receives(job, r) && ranks)
            memcpy(wanted(&job->out[r]) + (scatters(s->kind) && s->in_place ? at * unit : 0), result + at * unit, count * unit);
        at += scatters(s->kind) ? count : 0;
    }
    free(result);
}

/* Where the elements lie that `from` sends to `to`. */
static const unsigned char *given(const struct job *job, int32_t from, int32_t to)
{
    enum job_kind kind = job->shape.kind;
    size_t unit = oracle_type_bytes(job->shape.type);
    if (kind == JOB_BROADCAST)
        return payload(&job->out[from]);
    if (in_has_blocks(kind))
        return is_in_place(job, from) && out_has_blocks(kind) ? payload(&job->out[from]) + job->to[from].displs[to] * unit
                                                              : payload(&job->in[from]) + job->from[from].displs[to] * unit;
    return is_in_place(job, from) ? payload(&job->out[from]) + job->to[from].displs[from] * unit : payload(&job->in[from]);
}

static void expect_moves(struct job *job)
{
    const struct job_shape *s = &job->shape;
    size_t unit = oracle_type_bytes(s->type);
    for (int32_t r = 0; r < job->ranks; r++) {
        for (int32_t from = 0; from < job->ranks; from++) {
            if (!gives(job, from) || !receives(job, r) || !job->out[r].at)
                continue;
            size_t start = out_has_blocks(s->kind) ? job->to[r].displs[from] * unit : 0;
            memcpy(wanted(&job->out[r]) + start, given(job, from, r), job->pair[from][r] * unit);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ prepare */
static void prepare_reduction(struct job *job, int32_t r, uint64_t *chance)
{
    const struct job_shape *s = &job->shape;
    size_t all = layout_make(job, r, true, &job->from[r], chance);
    bool here = is_in_place(job, r), idle = !receives(job, r) && oracle_random(chance) % 2; /* its out stays NULL */
    if (!scatters(s->kind))
        all = s->n;
    if (!here)
        region_make(&job->in[r], all, s, oracle_random(chance));
    if (!idle)
        region_make(&job->out[r], here ? all : scatters(s->kind) ? job->pair[0][r] : s->n, s, oracle_random(chance));
    unsigned char *to = payload(here ? &job->out[r] : &job->in[r]);
    if (s->exact)
        oracle_fill_exact(to, all, s->type, s->op, s->seed, r, job->ranks);
    else
        oracle_fill(to, all, s->type, s->op, s->seed, r);
}

/* A sender fills all of its input buffer, holes too. */
static void prepare_move(struct job *job, int32_t r, uint64_t *chance)
{
    const struct job_shape *s = &job->shape;
    size_t in = layout_make(job, r, true, &job->from[r], chance), out = layout_make(job, r, false, &job->to[r], chance);
    bool here = is_in_place(job, r), rooted = s->kind == JOB_SCATTER || s->kind == JOB_SCATTER_V;
    struct job_region *source = &job->in[r];
    if (s->kind == JOB_BROADCAST) {
        region_make(&job->out[r], s->n, s, oracle_random(chance));
        source = &job->out[r];
    } else {
        in = in_has_blocks(s->kind) ? in : job->pair[r][receives(job, r) ? r : s->root];
        out = out_has_blocks(s->kind) ? out : job->pair[s->root][r];
        if (gives(job, r) && (!here || rooted))
            region_make(&job->in[r], in, s, oracle_random(chance));
        if (receives(job, r) && (!here || !rooted))
            region_make(&job->out[r], out, s, oracle_random(chance));
        if (here && !rooted)
            source = &job->out[r];
    }
    if (gives(job, r))
        oracle_fill(payload(source), source->bytes / oracle_type_bytes(s->type), s->type, COMM_SUM, s->seed, r);
}

void job_prepare(struct job *job, const struct job_shape *shape, int32_t ranks)
{
    uint64_t chance = shape->seed;
    if (ranks > RIG_RANKS_MAX)
        rig_die(__FILE__, __LINE__, "%d ranks; expected at most %d, for which a job has room", ranks, RIG_RANKS_MAX);
    memset(job, 0, sizeof *job);
    job->shape = *shape;
    job->ranks = ranks;
    if (shape->kind == JOB_BARRIER)
        return;
    pairs_make(job, &chance);
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
static const size_t *displs_of(const struct job_layout *layout)
{
    return layout->dense ? NULL : layout->displs;
}

static enum comm_result issue_vector(struct job *job, int32_t rank, struct comm_communicator *c, const void *in, void *out)
{
    const struct job_shape *s = &job->shape;
    struct comm_request *request = &job->request[rank];
    const struct job_layout *from = &job->from[rank], *to = &job->to[rank];
    bool root = rank == s->root;
    switch (s->kind) {
    case JOB_ALLGATHER_V:
        return comm_allgather_v(c, in, out, to->counts, displs_of(to), s->type, request);
    case JOB_GATHER_V:
        return comm_gather_v(c, in, job->pair[rank][s->root], out, root ? to->counts : NULL, root ? displs_of(to) : NULL, s->type, s->root,
                             request);
    case JOB_SCATTER_V:
        return comm_scatter_v(c, in, root ? from->counts : NULL, root ? displs_of(from) : NULL, out, job->pair[s->root][rank], s->type,
                              s->root, request);
    case JOB_ALLTOALL_V:
        return comm_alltoall_v(c, in, s->in_place ? NULL : from->counts, s->in_place ? NULL : displs_of(from), out, to->counts,
                               displs_of(to), s->type, request);
    default:
        return comm_reduce_scatter_v(c, in, out, from->counts, s->type, s->op, request);
    }
}

enum comm_result job_issue(struct job *job, int32_t rank, struct comm_communicator *c)
{
    const struct job_shape *s = &job->shape;
    struct comm_request *request = &job->request[rank];
    bool here = is_in_place(job, rank), rooted = s->kind == JOB_SCATTER || s->kind == JOB_SCATTER_V;
    const void *in = here && !rooted ? COMM_IN_PLACE : payload(&job->in[rank]);
    void *out = here && rooted ? COMM_IN_PLACE : payload(&job->out[rank]);
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
    case JOB_REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, out, s->n, s->type, s->op, request);
    case JOB_SCAN:
        return comm_scan(c, in, out, s->n, s->type, s->op, request);
    case JOB_EXSCAN:
        return comm_exscan(c, in, out, s->n, s->type, s->op, request);
    case JOB_GATHER:
        return comm_gather(c, in, out, s->n, s->type, s->root, request);
    case JOB_SCATTER:
        return comm_scatter(c, in, out, s->n, s->type, s->root, request);
    case JOB_ALLTOALL:
        return comm_alltoall(c, in, out, s->n, s->type, request);
    default:
        return issue_vector(job, rank, c, in, out);
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
