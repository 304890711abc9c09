/*
 * Contract 4.5, the whole matrix: every algorithm that can be chosen x every way in which one rank can call differently
 * x each rank as the different one. The outcome is always the same: all ranks report the same failure, with the
 * different rank and the number of the call, and no request is complete unless its memory is as that call leaves it.
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

enum { CALLS = 5, SUBJECT = 1 /* the call that differs: number 2 */ };
enum misuse { OTHER_OP, OTHER_COUNT, OTHER_TYPE, OTHER_ROOT, OTHER_CALL, OTHER_ORDER, MISSING, EXTRA, REFUSED, MISUSES };
static const char *const misuse_names[MISUSES] = {
    "other operator", "other count", "other type", "other root", "other call", "other order", "missing", "extra", "refused",
};

/* One cell: what the ranks call, what the odd rank calls, and with which algorithm. */
struct cell {
    struct comm_communicator **world;
    int32_t ranks, odd;
    enum misuse misuse;
    struct job_shape subject;
    const char *algorithm;
    struct job job[RIG_RANKS_MAX][CALLS]; /* a row for each rank, because the odd rank's differs; the others are equal */
    int calls[RIG_RANKS_MAX];
    bool refused[RIG_RANKS_MAX][CALLS]; /* refused at the call: it has no request */
    struct comm_communicator *c[RIG_RANKS_MAX];
};

static bool is_ragged(enum job_kind kind)
{
    return strstr(job_kind_names[kind], "_v") != NULL;
}

static bool fits(enum misuse misuse, const struct job_shape *s)
{
    bool data = s->kind != JOB_BARRIER;

    switch (misuse) {
    case OTHER_OP:
        return job_kind_reduces(s->kind);
    case OTHER_COUNT: /* for v forms each edge checks its own length: contract_4_5_mismatch_of_counts */
        return data && !is_ragged(s->kind);
    case OTHER_TYPE:
        return data;
    case OTHER_ROOT:
        return job_kind_has_root(s->kind);
    default:
        return true;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the calls */
static const struct job_shape before = {.kind = JOB_ALLREDUCE, .type = COMM_I16, .op = COMM_MAX, .n = 2, .seed = 11};
static const struct job_shape after = {.kind = JOB_SCAN, .type = COMM_I64, .op = COMM_MIN, .n = 4, .seed = 12};
static const struct job_shape last = {.kind = JOB_ALLTOALL, .type = COMM_U8, .op = COMM_SUM, .n = 3, .seed = 13};
static const struct job_shape stray = {.kind = JOB_ALLGATHER, .type = COMM_F64, .op = COMM_SUM, .n = 5, .seed = 14};

static struct job_shape odd_shape(const struct cell *cell)
{
    struct job_shape s = cell->subject;

    s.op = cell->misuse == OTHER_OP ? COMM_MAX : s.op;
    s.n += cell->misuse == OTHER_COUNT;
    s.type = cell->misuse == OTHER_TYPE ? COMM_U32 : s.type;
    s.root = cell->misuse == OTHER_ROOT ? (s.root + 1) % cell->ranks : s.root;
    return cell->misuse == OTHER_CALL ? stray : s;
}

static void add_call(struct cell *cell, int32_t rank, const struct job_shape *shape)
{
    job_prepare(&cell->job[rank][cell->calls[rank]++], shape, cell->ranks);
}

static void prepare(struct cell *cell, int32_t rank)
{
    struct job_shape own = rank == cell->odd ? odd_shape(cell) : cell->subject;
    bool odd = rank == cell->odd, swapped = odd && cell->misuse == OTHER_ORDER;

    cell->calls[rank] = 0;
    memset(cell->refused[rank], 0, sizeof cell->refused[rank]);
    add_call(cell, rank, &before);
    if (odd && cell->misuse == EXTRA)
        add_call(cell, rank, &stray);
    if (!(odd && cell->misuse == MISSING))
        add_call(cell, rank, swapped ? &after : &own);
    add_call(cell, rank, swapped ? &own : &after);
    add_call(cell, rank, &last);
}

/* False: no rank can do it with this algorithm. */
static bool issue(struct cell *cell, int32_t rank)
{
    bool able = true;

    for (int i = 0; i < cell->calls[rank]; i++) {
        struct job *job = &cell->job[rank][i];
        enum comm_result r;
        if (i == SUBJECT && rank == cell->odd && cell->misuse == REFUSED)
            r = comm_allreduce(cell->c[rank], NULL, NULL, 4, COMM_I32, COMM_SUM, &job->request[rank]);
        else
            r = job_issue(job, rank, cell->c[rank]);
        cell->refused[rank][i] = r != COMM_OK;
        able = able && r != COMM_ERR_UNSUPPORTED;
    }
    return able;
}

/* ------------------------------------------------------------------------------------------------------------ outcomes */
static void wait_rank(struct cell *cell, int32_t rank)
{
    for (int i = 0; i < cell->calls[rank]; i++) {
        struct job *job = &cell->job[rank][i];
        if (cell->refused[rank][i])
            continue;
        enum comm_result r = comm_wait(job->request[rank], RIG_PATIENCE);
        CHECK(r != COMM_PENDING);
        if (r == COMM_OK)
            job_verify(job, rank);
    }
}

/* Over connections ranks learn each other's calls one by one: they agree on the cause, but each describes it with what
 * it knows. */
static bool same_text(const struct comm_error *a, const struct comm_error *b)
{
    const char *backend = getenv("COMM_BACKEND");

    return (backend && strstr(backend, "tcp")) || strcmp(strstr(a->text, "seq="), strstr(b->text, "seq=")) == 0;
}

static void check_cause(const struct cell *cell)
{
    struct comm_error first = {.size = sizeof first};

    for (int32_t r = 0; r < cell->ranks; r++) {
        struct comm_error error;
        rig_fails_within(cell->c[r], cell->misuse == REFUSED ? COMM_ERR_REFUSED : COMM_ERR_MISMATCH, 2 * RIG_S, &error);
        if (r == 0)
            first = error;
        CHECK(error.rank == cell->odd || (error.peer == cell->odd && cell->misuse != REFUSED));
        EQUAL(error.sequence, SUBJECT + 1);
        if (error.rank != first.rank || error.peer != first.peer || !same_text(&error, &first))
            rig_die(__FILE__, __LINE__, "rank 0 was told \"%s\", rank %d \"%s\"", first.text, r, error.text);
        CHECK(strlen(error.text) > 40);
    }
}

/* False: the algorithm cannot do this here. */
static bool run_cell(struct cell *cell)
{
    char options[128];
    struct comm_request request[RIG_RANKS_MAX];
    bool able = true, backwards = (cell->odd + (int)cell->misuse) % 2;

    rig_note("%s by %s, n=%zu, %s on rank %d of %d", job_kind_names[cell->subject.kind], cell->algorithm, cell->subject.n,
             misuse_names[cell->misuse], cell->odd, cell->ranks);
    snprintf(options, sizeof options, "algorithm=%s:%s", job_kind_names[cell->subject.kind], cell->algorithm);
    for (int32_t r = 0; r < cell->ranks; r++)
        MUST(comm_dup(cell->world[r], &(struct comm_options){.size = sizeof(struct comm_options), .options = options}, &cell->c[r],
                      &request[r]));
    rig_wait_all(request, (size_t)cell->ranks);
    for (int32_t r = 0; r < cell->ranks; r++)
        prepare(cell, r);
    for (int32_t i = 0; i < cell->ranks; i++)
        able &= issue(cell, backwards ? cell->ranks - 1 - i : i);
    for (int32_t r = 0; r < cell->ranks && able; r++)
        wait_rank(cell, backwards ? r : cell->ranks - 1 - r);
    if (able)
        check_cause(cell);
    for (int32_t r = 0; r < cell->ranks; r++) {
        (void)!comm_close(cell->c[r], able ? RIG_PATIENCE : 0);
        for (int i = 0; i < cell->calls[r]; i++)
            job_free(&cell->job[r][i]);
    }
    return able;
}

/* ------------------------------------------------------------------------------------------------------------ the matrix */
static int kind_of(const char *collective)
{
    for (int k = 0; k < JOB_KINDS; k++)
        if (strcmp(job_kind_names[k], collective) == 0)
            return k;
    return -1;
}

static unsigned cells; /* so far */

static unsigned sparser = 1, usually = 1; /* one cell in so many, if all are selected, and usually */

static unsigned thin(void)
{
    return rig_thin(sparser, usually, sparser);
}

static int run_row(struct cell *cell, const struct comm_algorithm_info *row)
{
    int kind = kind_of(row->collective), run = 0;

    if (kind < 0 || cell->ranks < row->ranks_min || cell->ranks > row->ranks_max)
        return 0;
    cell->algorithm = row->name;
    for (int large = 0; large < (row->bounded || kind == JOB_BARRIER ? 1 : 2); large++) {
        cell->subject =
            (struct job_shape){.kind = (enum job_kind)kind, .type = COMM_I32, .op = COMM_SUM, .n = large ? 20000 : 3, .seed = 7};
        for (int m = 0; m < MISUSES; m++) {
            cell->misuse = (enum misuse)m;
            if (!fits(cell->misuse, &cell->subject))
                continue;
            for (cell->odd = 0; cell->odd < cell->ranks; cell->odd++)
                run += cells++ % thin() == 0 && run_cell(cell);
        }
    }
    return run;
}

static void run_matrix(int32_t ranks)
{
    static struct cell cell;
    struct comm_algorithm_info row = {.size = sizeof row};
    struct rig rig;
    int run = 0;

    rig_open_options(&rig, ranks, "log=off");
    cell = (struct cell){.world = rig.world, .ranks = ranks};
    for (size_t i = 0; comm_describe_algorithm(i, &row) == COMM_OK; i++)
        run += run_row(&cell, &row);
    rig_note("%d ranks", ranks);
    CHECK(run > (int)(200 / thin()));
    rig_close(&rig);
}

RIG_TEST(contract_4_5_the_matrix_on_3_ranks)
{
    run_matrix(3);
}

RIG_TEST(contract_4_5_the_matrix_on_2_ranks)
{
    if (rig_quick())
        rig_skip("the long selection alone");
    run_matrix(2);
}

RIG_TEST(contract_4_5_the_matrix_on_5_ranks)
{
    if (rig_quick())
        rig_skip("the long selection alone");
    sparser = getenv("COMM_BACKEND") ? 3 : 1; /* complete in this process; with 3 and 2 ranks complete on every backend */
    usually = getenv("COMM_BACKEND") ? 9 : 4; /* its cells are dear, being of more ranks */
    run_matrix(5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_5_the_matrix_on_3_ranks),
        cmocka_unit_test(contract_4_5_the_matrix_on_2_ranks),
        cmocka_unit_test(contract_4_5_the_matrix_on_5_ranks),
    };

    return cmocka_run_group_tests_name("contract_4_matrix", tests, NULL, NULL);
}
