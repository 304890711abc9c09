/* Buffers from comm_mem_alloc are shown in place. No result tells that, so the test looks at a flag of the channel. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "comm/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

enum { RANKS = 2, LONG = 1 << 19, SHORT = 1 << 12 };

struct setting {
    struct rig rig;
    bool memory[RANKS]; /* ranks whose buffers are from comm_mem_alloc */
    size_t n;
};

static void reduce_of(void *arg, int32_t rank)
{
    struct setting *s = arg;
    struct comm_communicator *c = s->rig.world[rank];
    void *at = NULL;
    struct comm_request req;
    if (s->memory[rank])
        MUST(comm_mem_alloc(c, s->n * 2 * sizeof(float), &at));
    else
        at = calloc(s->n * 2, sizeof(float));
    float *in = at, *out = in + s->n;
    for (size_t i = 0; i < s->n; i++)
        in[i] = (float)(i % 100) + (float)rank;
    MUST(comm_allreduce(c, in, out, s->n, COMM_F32, COMM_SUM, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
    for (size_t i = 0; i < s->n; i++)
        CHECK(out[i] == 2 * (float)(i % 100) + 1);
    if (s->memory[rank])
        comm_mem_free(c, at);
    else
        free(at);
}

static bool borrows(const struct rig *rig, int32_t rank)
{
    struct comm_state *b = atomic_load(&rig->world[rank]->state);
    return b->channel->borrows;
}

/* A rank shows if its memory is from comm_mem_alloc; then the other rank has borrowed memory. */
RIG_TEST(exposures_out_of_comm_memory_are_shown)
{
    for (int who = 0; who < 4; who++) {
        struct setting s = {.memory = {who & 1, who & 2}, .n = LONG};
        rig_open(&s.rig, RANKS, NULL);
        rig_threads(RANKS, reduce_of, &s);
        EQUAL(borrows(&s.rig, 1), s.memory[0]);
        EQUAL(borrows(&s.rig, 0), s.memory[1]);
        rig_close(&s.rig);
    }
}

RIG_TEST(short_exposures_are_copied)
{
    struct setting s = {.memory = {true, true}, .n = SHORT};
    rig_open(&s.rig, RANKS, NULL);
    rig_threads(RANKS, reduce_of, &s);
    CHECK(!borrows(&s.rig, 0) && !borrows(&s.rig, 1));
    rig_close(&s.rig);
}

/* The failure is on the board while an operation that was shown bytes is about to end: it must not succeed. */
RIG_TEST(contract_4_2_what_was_shown_does_not_end_well_beside_a_failure)
{
    struct setting s = {.memory = {true, true}, .n = LONG};
    struct comm_request req[RANKS];
    float *in[RANKS], *out[RANKS];
    rig_open(&s.rig, RANKS, NULL);
    rig_threads(RANKS, reduce_of, &s);
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = calloc(LONG, sizeof(float));
        out[r] = calloc(LONG, sizeof(float));
        MUST(comm_allreduce(s.rig.world[r], in[r], out[r], LONG, COMM_F32, COMM_SUM, &req[r]));
    }
    struct comm_state *b = atomic_load(&s.rig.world[0]->state);
    atomic_store(&b->channel->board->cause, 2); /* rank 1's choice; its note is not written yet */
    rig_progress_for(s.rig.world[0], 50 * RIG_MS);
    EQUAL(comm_test(req[0]), COMM_PENDING);
    EQUAL(comm_test(req[1]), COMM_PENDING);
    atomic_store(&b->channel->board->cause, 0);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_revoke(s.rig.world[r]));
    for (int32_t r = 0; r < RANKS; r++) {
        EQUAL(comm_wait(req[r], RIG_PATIENCE), COMM_ERR_REVOKED);
        (void)!comm_close(s.rig.world[r], COMM_DEFAULT_TIMEOUT);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        free(in[r]);
        free(out[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exposures_out_of_comm_memory_are_shown),
        cmocka_unit_test(short_exposures_are_copied),
        cmocka_unit_test(contract_4_2_what_was_shown_does_not_end_well_beside_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
