/*
 * Small exchanges on the fast path: calls of one form again and again with different buffers. Some ranks must use the
 * program instead, because an unmatched receive is pending on them; and a rank that only sends runs ahead until the
 * others have no room.
 */
#define _GNU_SOURCE
#include "conform/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ALIKE = 3, TAG = 77, AHEAD = 150 };

struct stage {
    struct rig rig;
    struct comm_request stands[RIG_RANKS_MAX];
    struct job job[ALIKE];
    int32_t word[RIG_RANKS_MAX];
    uint64_t chance;
};

/* Keeps these ranks off the fast path until the receive is cancelled. */
static void make_stand(struct stage *s, uint64_t ranks)
{
    for (int32_t r = 0; r < s->rig.ranks; r++) {
        s->stands[r] = COMM_REQUEST_NONE;
        if (ranks >> r & 1)
            MUST(comm_recv(s->rig.world[r], &s->word[r], 1, COMM_I32, (r + 1) % s->rig.ranks, TAG, NULL, &s->stands[r]));
    }
}

static void let_go(struct stage *s)
{
    for (int32_t r = 0; r < s->rig.ranks; r++) {
        if (!s->stands[r].comm)
            continue;
        MUST(comm_cancel(s->stands[r]));
        IS(comm_wait(s->stands[r], RIG_PATIENCE), COMM_ERR_CANCELLED);
    }
}

static void wait_and_verify(struct stage *s, size_t i)
{
    char text[160];

    rig_note("%s", job_text(&s->job[i], text));
    for (int32_t r = 0; r < s->rig.ranks; r++)
        MUST(comm_wait(s->job[i].request[r], RIG_PATIENCE));
    for (int32_t r = 0; r < s->rig.ranks; r++)
        job_verify(&s->job[i], r);
    job_free(&s->job[i]);
}

/* Several calls of one form: all in flight, rank by rank, or each waited for. */
static void calls_alike(struct stage *s, struct job_shape shape)
{
    bool by_rank = oracle_random(&s->chance) % 2;

    for (size_t i = 0; i < ALIKE; i++) {
        shape.seed = oracle_random(&s->chance);
        job_prepare(&s->job[i], &shape, s->rig.ranks);
    }
    make_stand(s, oracle_random(&s->chance));
    for (int32_t r = 0; by_rank && r < s->rig.ranks; r++)
        for (size_t i = 0; i < ALIKE; i++)
            MUST(job_issue(&s->job[i], r, s->rig.world[r]));
    for (size_t i = 0; i < ALIKE; i++) {
        for (int32_t r = 0; !by_rank && r < s->rig.ranks; r++)
            MUST(job_issue(&s->job[i], r, s->rig.world[r]));
        if (!by_rank)
            wait_and_verify(s, i);
        if (!by_rank && i == 0)
            let_go(s);
    }
    for (size_t i = 0; by_rank && i < ALIKE; i++)
        wait_and_verify(s, i);
    if (by_rank)
        let_go(s);
}

static void calls_of_kind(struct stage *s, enum job_kind kind)
{
    const size_t counts[] = {0, 1, 7, 300};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int32_t root = 0; root < (job_kind_has_root(kind) ? s->rig.ranks : 1); root++) {
            struct job_shape shape = {.kind = kind, .type = i % 2 ? COMM_F32 : COMM_I64, .op = COMM_SUM, .root = root, .n = counts[i]};
            calls_alike(s, shape);
            shape.in_place = job_kind_in_place(kind);
            calls_alike(s, shape);
        }
    }
}

static void ways_meet(const char *options)
{
    struct stage s = {.chance = 20};

    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        rig_open_options(&s.rig, ranks, options);
        for (int kind = 0; kind < JOB_KINDS; kind++)
            calls_of_kind(&s, (enum job_kind)kind);
        rig_close(&s.rig);
    }
}

RIG_TEST(exchanges_meet_programs)
{
    ways_meet(NULL);
}

RIG_TEST(exchanges_meet_programs_minimal)
{
    ways_meet("minimal=1");
}

/* The same without the fast path: a check of the caller's sends changes nothing else. */
RIG_TEST(programs_alone)
{
    ways_meet("check=rendezvous");
}

/* A rank that only sends makes far more calls than there is room for before any other receives: its calls wait in
 * order. */
static void run_ahead(const char *options, enum job_kind kind, size_t n)
{
    static struct job jobs[AHEAD];
    struct rig rig;
    uint64_t chance = 5;

    rig_open_options(&rig, 3, options);
    for (size_t i = 0; i < AHEAD; i++) {
        struct job_shape shape = {.kind = kind, .type = COMM_F32, .op = COMM_SUM, .root = 1, .n = n, .seed = oracle_random(&chance)};
        job_prepare(&jobs[i], &shape, rig.ranks);
    }
    for (int32_t turn = 0; turn < rig.ranks; turn++)
        for (size_t i = 0; i < AHEAD; i++)
            MUST(job_issue(&jobs[i], (turn + 1) % rig.ranks, rig.world[(turn + 1) % rig.ranks]));
    for (size_t i = 0; i < AHEAD; i++) {
        for (int32_t r = 0; r < rig.ranks; r++)
            MUST(comm_wait(jobs[i].request[r], RIG_PATIENCE));
        for (int32_t r = 0; r < rig.ranks; r++)
            job_verify(&jobs[i], r);
        job_free(&jobs[i]);
    }
    rig_close(&rig);
}

RIG_TEST(exchanges_run_ahead)
{
    const enum job_kind kinds[] = {JOB_BROADCAST, JOB_REDUCE, JOB_SCAN, JOB_SCATTER, JOB_GATHER_V, JOB_SCATTER_V, JOB_ALLTOALL};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run_ahead(NULL, kinds[i], 2);
        run_ahead(NULL, kinds[i], 60);
        run_ahead("minimal=1", kinds[i], 60);
    }
}

/* The same v form again: with other counts or displacements in the same vectors, without displacements, and with others
 * again. */
RIG_TEST(exchanges_follow_their_vectors)
{
    enum { RANKS = 2, ROOM = 8, TURNS = 12 };
    static const size_t counts[][RANKS] = {{2, 1}, {1, 2}, {2, 1}, {0, 2}}, displs[][RANKS] = {{0, 2}, {3, 0}, {4, 1}};
    struct rig rig;

    rig_open_options(&rig, RANKS, NULL);
    for (size_t turn = 0; turn < TURNS * 2; turn++) {
        size_t used[RANKS], places[RANKS];
        int32_t in[RANKS][RANKS], out[RANKS][ROOM];
        struct comm_request request[RANKS];
        bool dense = turn % 5 == 4;
        for (size_t r = 0; r < RANKS; r++) {
            used[r] = counts[turn / 2 % 4][r];
            places[r] = dense ? (r ? used[0] : 0) : displs[turn / 3 % 3][r];
            for (size_t i = 0; i < RANKS; i++)
                in[r][i] = (int32_t)(100 * turn + 10 * r + i);
            for (size_t i = 0; i < ROOM; i++)
                out[r][i] = -1;
        }
        for (int32_t r = 0; r < RANKS; r++) {
            const size_t *at = dense ? NULL : places;
            MUST(turn < TURNS ? comm_allgather_v(rig.world[r], in[r], out[r], used, at, COMM_I32, &request[r])
                              : comm_gather_v(rig.world[r], in[r], used[r], out[r], used, at, COMM_I32, 0, &request[r]));
        }
        for (int32_t r = 0; r < RANKS; r++)
            MUST(comm_wait(request[r], RIG_PATIENCE));
        for (size_t r = 0; r < RANKS; r++)
            for (size_t i = 0; i < ROOM; i++) {
                int32_t expected = -1;
                for (size_t k = 0; k < RANKS && (turn < TURNS || r == 0); k++)
                    if (i >= places[k] && i < places[k] + used[k])
                        expected = in[k][i - places[k]];
                assert_int_equal(out[r][i], expected);
            }
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_meet_programs), cmocka_unit_test(exchanges_meet_programs_minimal), cmocka_unit_test(programs_alone),
        cmocka_unit_test(exchanges_run_ahead),     cmocka_unit_test(exchanges_follow_their_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
