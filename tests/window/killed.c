/*
 * A rank is killed while others are in calls on a window. All of those calls end with the same error within the time for reporting a death,
 * and none of them hangs, not even on a lock that the dead rank holds.
 */
#define _GNU_SOURCE
#include "rma/window.h"
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 1, BLOCK = 1 << 18 };
enum moment { IN_FENCE, IN_WAIT_SIGNAL, IN_PUTS, WITH_THE_LOCK, IN_CREATE, IN_FREE, MOMENTS };
static enum moment now_killed; /* set before the ranks are forked */

static void die(void)
{
    raise(SIGKILL);
}

static enum comm_result ends(struct comm_request req)
{
    return comm_wait(req, RIG_PATIENCE);
}

/* The work of each survivor until it fails. Returns the result of the call or request that failed. */
static enum comm_result survive(struct comm_communicator *c, struct comm_window *w, enum moment moment)
{
    static char block[BLOCK];
    double two[2] = {1, 1};
    struct comm_request req;
    struct comm_window *other;
    enum comm_result r = COMM_OK;
    switch (moment) {
    case IN_FENCE:
    case IN_FREE:
        r = comm_window_fence(w, &req);
        break;
    case IN_WAIT_SIGNAL:
        r = comm_window_wait_signal(w, 0, 1, &req);
        break;
    case WITH_THE_LOCK:
        r = comm_accumulate(w, two, 1, COMM_C128, COMM_SUM, VICTIM, 0, &req);
        if (r == COMM_OK && comm_test(req) != COMM_PENDING) /* otherwise a busy machine let the victim die first */
            IS(comm_test(req), COMM_ERR_PEER);
        break;
    case IN_CREATE:
        return NOW(comm_window_create, c, 64, NULL, &other);
    default:
        while (r == COMM_OK) { /* also into the dead rank's memory, which exists as long as this rank maps it */
            r = comm_put(w, block, BLOCK, COMM_BYTE, VICTIM, 0, &req);
            r = r == COMM_OK ? comm_get(w, block, BLOCK, COMM_BYTE, VICTIM, 0, &req) : r;
            (void)!comm_progress(c);
        }
        return r;
    }
    return r == COMM_OK ? ends(req) : r;
}

static void killed_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    enum moment moment = now_killed;
    struct comm_window *w = NULL;
    struct comm_request req;
    MUST(
        NOW(comm_window_create, world, BLOCK, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .signals = 1}, &w));
    MUST(comm_window_fence(w, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
    if (rank == VICTIM) {
        if (moment == WITH_THE_LOCK)
            atomic_store(&w->part[VICTIM].control->lock, VICTIM + 1);
        atomic_store(proc->go, rig_now() + 30 * RIG_MS);
        rig_nap(30 * RIG_MS);
        if (moment == IN_FREE) {
            MUST(comm_window_fence(w, &req));
            MUST(comm_wait(req, RIG_PATIENCE));
        }
        die();
    }
    if (moment == WITH_THE_LOCK)
        while (!atomic_load(proc->go))
            rig_nap(RIG_MS);
    enum comm_result r = survive(world, w, moment);
    if (moment != IN_FREE || r != COMM_OK) { /* the last fence may have succeeded, if the victim had done its part of it */
        EQUAL(r, COMM_ERR_PEER);
        CHECK(rig_now() - atomic_load(proc->go) < RIG_S);
    }
    IS(comm_window_free(w), COMM_ERR_PEER);
    CHECK(rig_now() - atomic_load(proc->go) < RIG_S);
    (void)!comm_close(world, RIG_PATIENCE);
}

RIG_TEST(windows_of_killed_ranks)
{
    proc_needs_shm();
    for (int moment = 0; moment < MOMENTS; moment++) {
        struct proc proc = {.options = ""};
        rig_note("moment %d\n", moment);
        now_killed = (enum moment)moment;
        proc_start(&proc, RANKS, killed_main);
        proc_finish(&proc, VICTIM, RIG_PATIENCE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_of_killed_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
