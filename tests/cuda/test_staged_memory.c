/*
 * Operations on device buffers for which there is no memory: each allocation in turn fails, from the first call of a new world on. Long
 * ones with counts go in parts, whose vectors need memory of their own. No rank waits for ever, a result is right or an error, and nothing
 * is leaked. All ranks are in this process, on one mock device.
 */
#include "conform/rig.h"
#include "engine/memory_env.h"

#include "mock_everywhere.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, ALL = 1 << 20, MOST = 400 };
static const size_t counts[RANKS] = {ALL / 2, ALL / 4, ALL / 4};
static int32_t *all[RANKS], *own[RANKS]; /* in device memory */

enum what { GATHER_V, SCATTER_V };

static enum comm_result issue(struct comm_communicator *c, enum what what, int r, struct comm_request *q)
{
    return what == GATHER_V ? comm_allgather_v(c, own[r], all[r], counts, NULL, COMM_I32, q)
                            : comm_reduce_scatter_v(c, all[r], own[r], counts, COMM_I32, COMM_SUM, q);
}

static void fill(enum what what)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < ALL; i++) {
            ((int32_t *)mock_peek(all[r]))[i] = what == GATHER_V ? -1 : (int32_t)i;
            if (i < counts[r])
                ((int32_t *)mock_peek(own[r]))[i] = what == GATHER_V ? (int32_t)i : -1;
        }
}

static void verify(enum what what, int r)
{
    size_t at = 0;

    for (int k = 0; k < RANKS; at += counts[k++])
        for (size_t i = 0; i < counts[k]; i++)
            if (what == GATHER_V)
                EQUAL(((int32_t *)mock_peek(all[r]))[at + i], (int32_t)i);
            else if (k == r)
                EQUAL(((int32_t *)mock_peek(own[r]))[i], RANKS * (int32_t)(at + i));
}

static bool may_be(enum comm_result r)
{
    return r == COMM_OK || r == COMM_ERR_MEMORY || r == COMM_ERR_REFUSED;
}

/* True: there was no n-th allocation. */
static bool without(struct rig *rig, enum what what, uint64_t n)
{
    struct comm_request q[RANKS];
    enum comm_result said[RANKS];
    bool well = true;

    rig_open(rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    fill(what);
    uint64_t failed = atomic_load(&memory_failed);
    atomic_store(&memory_fail_at, atomic_load(&memory_takes) + n);
    for (int r = 0; r < RANKS; r++)
        said[r] = issue(rig->world[r], what, r, &q[r]);
    for (int r = 0; r < RANKS; r++) {
        enum comm_result ended = comm_wait(q[r], RIG_PATIENCE);
        CHECK(may_be(said[r]) && may_be(ended));
        well &= ended == COMM_OK;
        if (ended == COMM_OK)
            verify(what, r);
    }
    atomic_store(&memory_fail_at, 0);
    for (int r = 0; r < RANKS; r++)
        (void)!comm_close(rig->world[r], RIG_PATIENCE);
    bool over = atomic_load(&memory_failed) == failed;
    CHECK(well || !over);
    return over;
}

static void each_allocation_fails(enum what what)
{
    struct rig rig;
    uint64_t n = 1;

    for (int r = 0; r < RANKS; r++) {
        all[r] = mock_take(ALL * sizeof **all);
        own[r] = mock_take(ALL / 2 * sizeof **own);
    }
    (void)without(&rig, what, UINT64_MAX / 2); /* what the process keeps */
    int64_t held = atomic_load(&memory_held);
    while (!without(&rig, what, n))
        CHECK(++n < MOST);
    CHECK(n > RANKS); /* each rank asks for memory */
    if (atomic_load(&memory_held) != held)
        memory_tell();
    EQUAL(atomic_load(&memory_held), held);
    for (int r = 0; r < RANKS; r++) {
        mock_give(all[r]);
        mock_give(own[r]);
    }
}

RIG_TEST(an_allgather_v_in_parts)
{
    each_allocation_fails(GATHER_V);
}

RIG_TEST(a_reduce_scatter_v_in_parts)
{
    each_allocation_fails(SCATTER_V);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allgather_v_in_parts),
        cmocka_unit_test(a_reduce_scatter_v_in_parts),
    };

    return cmocka_run_group_tests_name("cuda_staged_memory", tests, NULL, NULL);
}
