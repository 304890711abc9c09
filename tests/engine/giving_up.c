/*
 * Two ranks give up at once, and one of them is the chosen one. The other has returned from its call before the choice reaches it. A
 * message that it sends meanwhile must not be mistaken for one that it skipped.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "comm/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RANKS = 3, CHOSEN = 2, WAITS = 1 };

static void choose(struct rig *rig, int32_t rank)
{
    enum comm_result why;
    struct comm_state *b = state_lock(rig->world[rank], &why);
    MUST(why);
    atomic_store(&b->channel->board->cause, (uint64_t)rank + 1);
    state_unlock(b);
}

static void sends_no_more(enum comm_result (*gives_up)(struct comm_communicator *c), enum comm_result cause)
{
    struct rig rig;
    struct comm_error error = {.size = sizeof error};
    struct comm_request received, sent = COMM_REQUEST_NONE;
    int32_t in = -1, longer[2] = {1, 2};

    rig_open(&rig, RANKS, NULL);
    MUST(comm_recv(rig.world[WAITS], &in, 1, COMM_I32, 0, 5, NULL, &received));
    choose(&rig, CHOSEN);
    MUST(gives_up(rig.world[0]));
    enum comm_result r = comm_send(rig.world[0], longer, 2, COMM_I32, WAITS, 5, &sent);
    CHECK(r == COMM_OK || r == cause);
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    enum comm_result early = comm_test(received); /* within a process, other threads spread an abort too */
    CHECK(early == COMM_PENDING || early == cause);
    MUST(gives_up(rig.world[CHOSEN]));
    for (int32_t i = 0; i < RANKS; i++)
        rig_fails_within(rig.world[i], cause, RIG_S, &error);
    IS(comm_wait(received, RIG_S), cause);
    if (r == COMM_OK)
        IS(comm_wait(sent, RIG_S), cause);
    CHECK(in == -1);
}

static enum comm_result aborts(struct comm_communicator *c)
{
    return comm_abort(c, 7);
}

RIG_TEST(who_revoked_sends_no_more)
{
    sends_no_more(comm_revoke, COMM_ERR_REVOKED);
}

RIG_TEST(who_aborted_sends_no_more)
{
    sends_no_more(aborts, COMM_ERR_ABORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_revoked_sends_no_more), cmocka_unit_test(who_aborted_sends_no_more)};

    return cmocka_run_group_tests_name("engine_giving_up", tests, NULL, NULL);
}
