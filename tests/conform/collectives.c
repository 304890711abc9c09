/*
 * Every built collective x types x operators x counts x roots x in place or not, on 1 to 17 ranks in this process,
 * compared bit for bit with the oracle. Driven by one thread, then by one thread per rank, with limits at their
 * minimum, and through every algorithm by name.
 */
#define _GNU_SOURCE
#include "conform/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 24, COUNTS = 7 };

/* A selection of shapes: one in `thin` of all, of one kind or all, and how they are driven. */
struct sweep {
    int32_t ranks;
    unsigned thin;
    int kind; /* -1: all */
    bool threads;
    bool large;
    bool forced; /* an algorithm chosen by name may refuse what it cannot do, on all ranks alike */
    struct comm_communicator **world;
    struct job job[BATCH];
    bool refused[BATCH][RIG_RANKS_MAX];
    size_t jobs, total;
    uint64_t chance;
};

/* ------------------------------------------------------------------------------------------------------------ running a batch */
static void issue_one(struct sweep *sweep, size_t i, int32_t rank)
{
    char text[160];
    enum comm_result result = job_issue(&sweep->job[i], rank, sweep->world[rank]);
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
    if (comm_error_detail(sweep->world[rank], &error) != COMM_OK)
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

static void flush_batch(struct sweep *sweep)
{
    if (sweep->threads)
        rig_threads(sweep->ranks, drive_rank, sweep);
    else
        drive_alone(sweep);
    for (size_t i = 0; i < sweep->jobs; i++) {
        for (int32_t r = 0; r < sweep->ranks; r++) {
            EQUAL(sweep->refused[i][r], sweep->refused[i][0]);
            if (!sweep->refused[i][r])
                job_verify(&sweep->job[i], r);
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

static size_t sweep_run(struct sweep *sweep)
{
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        if (sweep->kind < 0 || sweep->kind == kind)
            add_kind(sweep, (enum job_kind)kind);
    }
    flush_batch(sweep);
    return sweep->total;
}

struct sweep_plan {
    unsigned thin;
    int kind;
    bool threads, large;
    const char *options;
};

static size_t sweep_ranks(int32_t ranks, const struct sweep_plan *plan)
{
    struct rig rig;
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        rig_die(__FILE__, __LINE__, "no memory");
    rig_note("%d ranks, options \"%s\"%s", ranks, plan->options ? plan->options : "", plan->threads ? ", a thread each" : "");
    rig_open_options(&rig, ranks, plan->options);
    sweep->ranks = ranks;
    sweep->thin = plan->thin * rig_thin(1, 3, 25);
    sweep->kind = plan->kind;
    sweep->threads = plan->threads;
    sweep->large = plan->large;
    sweep->forced = plan->options && strncmp(plan->options, "algorithm", 9) == 0;
    sweep->world = rig.world;
    sweep->chance = (uint64_t)ranks * 1000 + plan->thin;
    size_t total = sweep_run(sweep);
    rig_close(&rig);
    free(sweep);
    return total;
}

static void sweep_all(const struct sweep_plan *plan)
{
    size_t total = 0;
    for (int32_t ranks = 1; ranks <= 9; ranks++)
        total += sweep_ranks(ranks, plan);
    fprintf(stderr, "    %zu calls compared\n", total);
}

/* ------------------------------------------------------------------------------------------------------------ tests */
RIG_TEST(collectives_one_thread)
{
    sweep_all(&(struct sweep_plan){.thin = 5, .kind = -1});
}
/* More ranks than a group of views. */
RIG_TEST(collectives_seventeen_ranks)
{
    size_t total = sweep_ranks(17, &(struct sweep_plan){.thin = 97, .kind = -1});
    total += sweep_ranks(17, &(struct sweep_plan){.thin = 397, .kind = -1, .large = true});
    fprintf(stderr, "    %zu calls compared\n", total);
}
/* Sizes between those of the tests above. */
RIG_TEST(collectives_ten_to_sixteen_ranks)
{
    size_t total = 0;
    for (int32_t ranks = 10; ranks <= 16; ranks++) {
        total += sweep_ranks(ranks, &(struct sweep_plan){.thin = 397, .kind = -1});
        total += sweep_ranks(ranks, &(struct sweep_plan){.thin = 1601, .kind = -1, .large = true});
    }
    fprintf(stderr, "    %zu calls compared\n", total);
}
/* The largest number of ranks for which small exchanges take the fast path, so that a scan's totals cover blocks of
 * every length. */
RIG_TEST(collectives_sixteen_ranks)
{
    size_t total = 0;
    for (int32_t threads = 0; threads < 2; threads++) {
        total +=
            sweep_ranks(16, &(struct sweep_plan){.thin = 29, .kind = JOB_SCAN, .threads = threads, .options = "algorithm=scan:blocks"});
        total +=
            sweep_ranks(16, &(struct sweep_plan){.thin = 29, .kind = JOB_EXSCAN, .threads = threads, .options = "algorithm=exscan:blocks"});
    }
    fprintf(stderr, "    %zu calls compared\n", total);
}
RIG_TEST(collectives_thread_each)
{
    sweep_all(&(struct sweep_plan){.thin = 61, .kind = -1, .threads = true});
}
RIG_TEST(collectives_large)
{
    sweep_all(&(struct sweep_plan){.thin = 127, .kind = -1, .large = true});
}
RIG_TEST(collectives_large_thread_each)
{
    sweep_all(&(struct sweep_plan){.thin = 499, .kind = -1, .large = true, .threads = true});
}
RIG_TEST(collectives_minimal)
{
    sweep_all(&(struct sweep_plan){.thin = 61, .kind = -1, .options = "minimal=1"});
}
RIG_TEST(collectives_minimal_large)
{
    sweep_all(&(struct sweep_plan){.thin = 499, .kind = -1, .large = true, .options = "minimal=1"});
}

RIG_TEST(collectives_window_4)
{
    const char *native = getenv("FAKE_NATIVE");
    if (native && strstr(native, "stream"))
        rig_skip("a stream takes no call behind programs that wait for a place of the window");
    setenv("COMM_WINDOW", "4", 1);
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    rig_open(&rig, 2, NULL);
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.window, 4);
    rig_close(&rig);
    sweep_all(&(struct sweep_plan){.thin = 67, .kind = -1});
    sweep_all(&(struct sweep_plan){.thin = 211, .kind = -1, .options = "minimal=1"});
}

/* Longer than the size from which results are stored past the cache. */
RIG_TEST(collectives_huge)
{
    struct job job;
    for (int32_t ranks = 2; ranks <= (rig_quick() ? 2 : 5); ranks++) {
        struct rig rig;
        rig_open(&rig, ranks, NULL);
        for (int kind = JOB_BROADCAST; kind < JOB_KINDS; kind++) {
            struct job_shape shape = {.kind = (enum job_kind)kind, .type = kind == JOB_REDUCE ? COMM_BF16 : COMM_F32, .op = COMM_SUM};
            shape.n = (kind >= JOB_ALLGATHER ? 200011 : 800011);
            shape.in_place = kind == JOB_ALLTOALL || kind == JOB_ALLTOALL_V || kind == JOB_SCAN;
            shape.seed = (uint64_t)kind;
            shape.root = ranks - 1;
            job_prepare(&job, &shape, ranks);
            for (int32_t r = 0; r < ranks; r++)
                MUST(job_issue(&job, r, rig.world[r]));
            rig_wait_all(job.request, (size_t)ranks);
            for (int32_t r = 0; r < ranks; r++)
                job_verify(&job, r);
            job_free(&job);
        }
        rig_close(&rig);
    }
}

/* T over blocks, by every collective that supports it; the others refuse it, on all ranks alike. */
RIG_TEST(collectives_order_block)
{
    static const int32_t blocks[] = {3, 5, 6, 7, 12};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        char options[64];
        snprintf(options, sizeof options, "algorithm=,order_block=%d", blocks[i]);
        oracle_block = blocks[i];
        for (int32_t ranks = 2; ranks <= 17; ranks += 3) {
            sweep_ranks(ranks, &(struct sweep_plan){.thin = 401, .kind = -1, .options = options});
            sweep_ranks(ranks, &(struct sweep_plan){.thin = 1999, .kind = -1, .large = true, .options = options});
        }
    }
}

struct algorithm {
    enum job_kind kind;
    const char *name;
};

/* Algorithms that a user may choose by name; option `algorithm` documents the list. */
static const struct algorithm algorithms[] = {
    {JOB_BARRIER, "read_all"},
    {JOB_BARRIER, "doubling"},
    {JOB_BROADCAST, "direct"},
    {JOB_BROADCAST, "pipeline"},
    {JOB_REDUCE, "read_all"},
    {JOB_REDUCE, "slices"},
    {JOB_ALLREDUCE, "read_all"},
    {JOB_ALLREDUCE, "doubling"},
    {JOB_ALLREDUCE, "slices"},
    {JOB_ALLGATHER, "direct"},
    {JOB_ALLGATHER, "pipeline"},
    {JOB_ALLGATHER_V, "direct"},
    {JOB_ALLGATHER_V, "pipeline"},
    {JOB_REDUCE_SCATTER, "direct"},
    {JOB_REDUCE_SCATTER, "read_all"},
    {JOB_REDUCE_SCATTER_V, "direct"},
    {JOB_REDUCE_SCATTER_V, "read_all"},
    {JOB_SCAN, "read_all"},
    {JOB_SCAN, "doubling"},
    {JOB_SCAN, "blocks"},
    {JOB_SCAN, "pipeline"},
    {JOB_SCAN, "slices"},
    {JOB_EXSCAN, "read_all"},
    {JOB_EXSCAN, "doubling"},
    {JOB_EXSCAN, "blocks"},
    {JOB_EXSCAN, "pipeline"},
    {JOB_EXSCAN, "slices"},
    {JOB_GATHER, "direct"},
    {JOB_GATHER, "throttled"},
    {JOB_GATHER_V, "throttled"},
    {JOB_SCATTER, "direct"},
    {JOB_SCATTER, "pairs"},
    {JOB_SCATTER, "throttled"},
    {JOB_SCATTER_V, "throttled"},
    {JOB_ALLTOALL, "direct"},
    {JOB_ALLTOALL, "pairs"},
    {JOB_ALLTOALL, "throttled"},
    {JOB_ALLTOALL_V, "throttled"},
};

static void sweep_algorithm(const struct algorithm *algorithm, const char *more, unsigned thin)
{
    char options[96];
    size_t total = 0;
    snprintf(options, sizeof options, "algorithm=%s:%s%s", job_kind_names[algorithm->kind], algorithm->name, more);
    for (int32_t ranks = 1; ranks <= 9; ranks++) {
        if (job_kind_reduces(algorithm->kind))
            total += sweep_ranks(ranks, &(struct sweep_plan){.thin = thin, .kind = (int)algorithm->kind, .options = options});
        else
            total += sweep_ranks(ranks, &(struct sweep_plan){.thin = 1 + thin / 20, .kind = (int)algorithm->kind, .options = options});
    }
    if (total == 0 && !rig_quick())
        rig_die(__FILE__, __LINE__, "%s: nothing was served", options);
}

RIG_TEST(collectives_forced_algorithms)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        sweep_algorithm(&algorithms[i], "", 97);
}

RIG_TEST(collectives_forced_algorithms_minimal)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        sweep_algorithm(&algorithms[i], ",minimal=1", 239);
}

/* ------------------------------------------------------------------------------------------------------------ refusals */
static void refuse_pair(struct rig *rig, enum job_kind kind, enum comm_type type, comm_op op)
{
    uint64_t in[RIG_RANKS_MAX * 4] = {0}, out[RIG_RANKS_MAX * 4] = {0};
    for (int32_t r = 0; r < rig->ranks; r++) {
        struct comm_request request = COMM_REQUEST_NONE;
        struct comm_communicator *c = rig->world[r];
        size_t counts[RIG_RANKS_MAX] = {2, 2, 2};
        enum comm_result result = kind == JOB_REDUCE             ? comm_reduce(c, in, out, 2, type, op, 0, &request)
                                  : kind == JOB_ALLREDUCE        ? comm_allreduce(c, in, out, 2, type, op, &request)
                                  : kind == JOB_SCAN             ? comm_scan(c, in, out, 2, type, op, &request)
                                  : kind == JOB_EXSCAN           ? comm_exscan(c, in, out, 2, type, op, &request)
                                  : kind == JOB_REDUCE_SCATTER_V ? comm_reduce_scatter_v(c, in, out, counts, type, op, &request)
                                                                 : comm_reduce_scatter(c, in, out, 2, type, op, &request);
        if (result != COMM_ERR_UNSUPPORTED && result != COMM_ERR_ARGUMENT)
            rig_die(__FILE__, __LINE__, "%s of %s %s: %s, expected a refusal", job_kind_names[kind], oracle_type_name(type),
                    oracle_op_name(op), comm_result_name(result));
        IS(comm_test(request), result);
        IS(comm_wait(request, RIG_S), result);
    }
}

/* All ranks refuse a meaningless pair alike, and the communicator continues with its ranks in step. */
RIG_TEST(collectives_refused_pairs)
{
    struct rig rig;
    rig_open(&rig, 3, NULL);
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        if (!job_kind_reduces((enum job_kind)kind))
            continue;
        for (int t = 0; t < ORACLE_TYPES; t++) {
            for (comm_op op = 0; op <= 99; op++) {
                if (!oracle_pair(oracle_types[t], op))
                    refuse_pair(&rig, (enum job_kind)kind, oracle_types[t], op);
            }
            rig_proves_alive(rig.world, rig.ranks);
        }
        refuse_pair(&rig, (enum job_kind)kind, (enum comm_type)77, COMM_SUM);
        refuse_pair(&rig, (enum job_kind)kind, (enum comm_type)0, COMM_SUM);
        rig_proves_alive(rig.world, rig.ranks);
    }
    rig_close(&rig);
}

/* collectives [PATTERN]: runs only tests whose names match it. */
int main(int count, char **words)
{
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_one_thread),
        cmocka_unit_test(collectives_seventeen_ranks),
        cmocka_unit_test(collectives_ten_to_sixteen_ranks),
        cmocka_unit_test(collectives_sixteen_ranks),
        cmocka_unit_test(collectives_thread_each),
        cmocka_unit_test(collectives_large),
        cmocka_unit_test(collectives_large_thread_each),
        cmocka_unit_test(collectives_minimal),
        cmocka_unit_test(collectives_minimal_large),
        cmocka_unit_test(collectives_window_4),
        cmocka_unit_test(collectives_huge),
        cmocka_unit_test(collectives_order_block),
        cmocka_unit_test(collectives_forced_algorithms),
        cmocka_unit_test(collectives_forced_algorithms_minimal),
        cmocka_unit_test(collectives_refused_pairs),
    };
    return cmocka_run_group_tests_name("conform_collectives", tests, NULL, NULL);
}
