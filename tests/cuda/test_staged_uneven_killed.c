/*
 * A rank dies in the middle of an allgather_v or reduce_scatter_v of device buffers, which goes in parts: the first part has been copied to
 * a device again, the second one from it, and the others have not begun. Each rank is a process with a mock device that stands. All other
 * ranks get COMM_ERR_PEER, also one without a block, although their copies have not ended, and they can close.
 */
#define _GNU_SOURCE
#include "../proc/proc.h"

#include "staged_killed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, ALL = 3 << 20 };
static const size_t counts[RANKS] = {2 << 20, 1 << 20, 0};
static bool scatters;

/* Copies of a part: one for each block that this rank has in that buffer. */
static int copies(int32_t rank, bool to_device)
{
    return scatters != to_device ? 2 : counts[rank] != 0;
}

static void run(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request_info info = {.size = sizeof info};
    float *all = mock_take(ALL * sizeof *all), *own = mock_take(counts[0] * sizeof *own);
    struct comm_request q;

    memset(mock_peek(all), 0, ALL * sizeof *all);
    memset(mock_peek(own), 0, counts[0] * sizeof *own);
    mock_stand(true);
    if (scatters)
        MUST(comm_reduce_scatter_v(world, all, own, counts, COMM_F32, COMM_SUM, &q));
    else
        MUST(comm_allgather_v(world, own, all, counts, NULL, COMM_F32, &q));
    for (int i = 0; i < 2 * copies(rank, false); i++)
        step_when_there(world, false);
    for (int i = 0; i < copies(rank, true); i++)
        step_when_there(world, true);
    IS(comm_test(q), COMM_PENDING);
    atomic_store(&proc->page[rank].stage, 1);
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_PEER);
    MUST(comm_describe_request(q, &info));
    CHECK(info.flags & COMM_INFO_STAGED);
    mock_stand(false);
    (void)!comm_close(world, RIG_PATIENCE);
    mock_give(all);
    mock_give(own);
}

static void every_rank_is_killed(void)
{
    proc_needs_shm();
    for (int32_t victim = 0; victim < RANKS; victim++) {
        struct proc proc = {0};
        proc_start(&proc, RANKS, run);
        for (int32_t r = 0; r < RANKS; r++)
            proc_await(&proc, r, 1);
        kill(proc.pid[victim], SIGKILL);
        proc_finish(&proc, victim, RIG_PATIENCE);
    }
}

RIG_TEST(killed_in_an_allgather_v)
{
    scatters = false;
    every_rank_is_killed();
}

RIG_TEST(killed_in_a_reduce_scatter_v)
{
    scatters = true;
    every_rank_is_killed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_an_allgather_v),
        cmocka_unit_test(killed_in_a_reduce_scatter_v),
    };

    return cmocka_run_group_tests_name("cuda_staged_uneven_killed", tests, NULL, NULL);
}
