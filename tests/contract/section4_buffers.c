/*
 * A request that has ended, even with an error, no longer accesses its buffers. Each rank's buffers are separate
 * mappings that are unmapped as soon as its requests have ended, while the other ranks still run: any later access is a
 * fault.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, WORK = 5, MESSAGES = 4, REQUESTS = WORK + MESSAGES, WORDS = 60000, BLOCK = 20000 };
enum how { BY_REVOKE, BY_ABORT, BY_MISMATCH, BY_DEADLINE, BY_CLOSE, HOWS };

struct side {
    struct comm_communicator *c;
    float *in, *out[WORK], *message[MESSAGES];
    struct comm_request request[REQUESTS];
    bool done;
};

static float *map_words(void)
{
    float *at = mmap(NULL, WORDS * sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    at[0] = at[WORDS - 1] = 1;
    return at;
}

static void unmap_words(float *at)
{
    EQUAL(munmap(at, WORDS * sizeof *at), 0);
}

/* Some of every kind, large and small; the receives stay unmatched or half done. The last rank makes one call less. */
static void issue(struct side *s, int32_t rank)
{
    size_t few = 3;
    s->in = map_words();
    for (int i = 0; i < WORK; i++)
        s->out[i] = map_words();
    for (int i = 0; i < MESSAGES; i++)
        s->message[i] = map_words();
    for (int i = 0; i < REQUESTS; i++)
        s->request[i] = COMM_REQUEST_NONE;
    (void)!comm_send(s->c, s->message[0], WORDS, COMM_F32, (rank + 1) % RANKS, 1, &s->request[WORK]);
    (void)!comm_recv(s->c, s->message[1], WORDS, COMM_F32, (rank + RANKS - 1) % RANKS, 1, NULL, &s->request[WORK + 1]);
    (void)!comm_recv(s->c, s->message[2], few, COMM_F32, COMM_ANY_PEER, 2, NULL, &s->request[WORK + 2]);
    (void)!comm_send(s->c, s->message[3], WORDS, COMM_F32, (rank + 1) % RANKS, 77, &s->request[WORK + 3]); /* no rank receives it */
    (void)!comm_allreduce(s->c, s->in, s->out[0], WORDS, COMM_F32, COMM_SUM, &s->request[0]);
    (void)!comm_broadcast(s->c, s->out[1], WORDS, COMM_F32, 1, &s->request[1]);
    (void)!comm_allgather(s->c, s->in, s->out[2], BLOCK, COMM_F32, &s->request[2]);
    (void)!comm_reduce_scatter(s->c, s->in, s->out[3], BLOCK, COMM_F32, COMM_SUM, &s->request[3]);
    if (rank != RANKS - 1)
        (void)!comm_allreduce(s->c, s->in, s->out[4], few, COMM_F32, COMM_MAX, &s->request[4]);
}

static bool ended(const struct side *s)
{
    for (int i = 0; i < REQUESTS; i++)
        if (comm_test(s->request[i]) == COMM_PENDING)
            return false;
    return true;
}

static void take_away(struct side *s)
{
    unmap_words(s->in);
    for (int i = 0; i < WORK; i++)
        unmap_words(s->out[i]);
    for (int i = 0; i < MESSAGES; i++)
        unmap_words(s->message[i]);
    s->done = true;
}

static void break_it(struct side *s, enum how how)
{
    float x = 1;
    switch (how) {
    case BY_REVOKE:
        MUST(comm_revoke(s->c));
        return;
    case BY_ABORT:
        MUST(comm_abort(s->c, 3));
        return;
    case BY_MISMATCH:
        (void)!comm_broadcast(s->c, &x, 1, COMM_F32, 0, NULL); /* the others called allreduce */
        return;
    default:
        return; /* the last rank's missing call, or its close, causes it */
    }
}

/* One thread moves all ranks, so that the work between two looks is the same every time. */
static void one_case(enum how how, int turns)
{
    struct rig rig;
    struct side side[RANKS] = {{0}};
    int left = RANKS;
    rig_note("how %d, broken after %d turns", how, turns);
    rig_open(&rig, RANKS,
             COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = how == BY_DEADLINE ? 30 * RIG_MS : 30 * RIG_S));
    for (int32_t r = 0; r < RANKS; r++) {
        side[r].c = rig.world[r];
        issue(&side[r], r);
    }
    for (int i = 0; i < turns; i++)
        (void)!comm_progress(rig.world[0]);
    break_it(&side[RANKS - 1], how);
    if (how == BY_CLOSE) { /* its unfinished sends end with it, when its time is over */
        enum comm_result closed = comm_close(rig.world[RANKS - 1], 20 * RIG_MS);
        CHECK(closed == COMM_OK || closed == COMM_ERR_TIMEOUT);
        rig.world[RANKS - 1] = NULL;
        CHECK(ended(&side[RANKS - 1]));
        take_away(&side[RANKS - 1]);
        left--;
    }
    for (int64_t end = rig_now() + RIG_PATIENCE; left > 0;) {
        CHECK(rig_now() < end);
        for (int32_t r = RANKS - 1; r >= 0; r--) {
            if (!side[r].done && ended(&side[r])) {
                take_away(&side[r]);
                left--;
            } else if (!side[r].done && how == BY_CLOSE) {
                MUST(comm_revoke(side[r].c)); /* messages to a closed rank have no other end before their deadline */
            }
        }
    }
    rig_close(&rig);
}

static void cases(enum how how)
{
    static const int turns[] = {0, 1, 2, 3, 5, 8, 13, 21, 34};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        one_case(how, turns[i]);
}

RIG_TEST(contract_4_3_revoked)
{
    cases(BY_REVOKE);
}
RIG_TEST(contract_4_3_aborted)
{
    cases(BY_ABORT);
}
RIG_TEST(contract_4_3_mismatched)
{
    cases(BY_MISMATCH);
}
RIG_TEST(contract_4_3_past_its_deadline)
{
    cases(BY_DEADLINE);
}
RIG_TEST(contract_4_3_closed)
{
    cases(BY_CLOSE);
}

/* The same with a thread per rank: each unmaps its buffers the moment its own requests end. */
static void threaded_rank(void *arg, int32_t rank)
{
    struct rig *rig = arg;
    struct side s = {.c = rig->world[rank]};
    issue(&s, rank);
    if (rank == RANKS - 1)
        MUST(comm_revoke(s.c));
    for (int64_t end = rig_now() + RIG_PATIENCE; !ended(&s);)
        CHECK(rig_now() < end);
    take_away(&s);
}

RIG_TEST(contract_4_3_in_threads)
{
    for (int i = 0; i < 40; i++) {
        struct rig rig;
        rig_open(&rig, RANKS, NULL);
        rig_threads(RANKS, threaded_rank, &rig);
        rig_close(&rig);
    }
}

/* A receive that was cancelled, is too short, or is past its deadline ends alone; a later message for it is not written
 * there. */
RIG_TEST(contract_4_3_requests_that_end_alone)
{
    struct rig rig;
    struct comm_request cancelled, shorter, send[2], second;
    float *in = map_words(), *gone = map_words(), *small = map_words(), *other = map_words();
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[1], gone, WORDS, COMM_F32, 0, 1, NULL, &cancelled));
    MUST(comm_cancel(cancelled));
    IS(comm_wait(cancelled, RIG_PATIENCE), COMM_ERR_CANCELLED);
    unmap_words(gone);
    MUST(comm_send(rig.world[0], in, WORDS, COMM_F32, 1, 1, &send[0]));
    MUST(comm_send(rig.world[0], in, WORDS, COMM_F32, 1, 2, &send[1]));
    MUST(comm_recv(rig.world[1], small, 10, COMM_F32, 0, 2, NULL, &shorter));
    IS(comm_wait(shorter, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    unmap_words(small);
    MUST(comm_recv(rig.world[1], other, WORDS, COMM_F32, 0, 1, NULL, &second));
    rig_wait_all((struct comm_request[]){send[0], send[1], second}, 3);
    CHECK(other[0] == 1 && other[WORDS - 1] == 1);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
    unmap_words(in);
    unmap_words(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_3_revoked),
        cmocka_unit_test(contract_4_3_aborted),
        cmocka_unit_test(contract_4_3_mismatched),
        cmocka_unit_test(contract_4_3_past_its_deadline),
        cmocka_unit_test(contract_4_3_closed),
        cmocka_unit_test(contract_4_3_in_threads),
        cmocka_unit_test(contract_4_3_requests_that_end_alone),
    };
    return cmocka_run_group_tests_name("contract_4_buffers", tests, NULL, NULL);
}
