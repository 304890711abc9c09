/* Agree and shrink as requests: waited for with a timeout, started in callbacks, and which memory they write. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ memory ownership */
enum { MINE = 0x5a };

/* Rank 0 of three waits for an agreement or a shrink while its world is closed. The others call while the close still drains, or only when
 * rank 0's wait has ended. */
struct withdrawn {
    struct rig rig;
    struct comm_request request;
    uint64_t flags;
    struct comm_communicator *survivors, *other[2];
    bool shrinks, in_time;
    _Atomic bool waits, ended;
};

static enum comm_result start(struct withdrawn *w, int32_t rank, void *out, struct comm_request *req)
{
    return w->shrinks ? comm_shrink(w->rig.world[rank], out, req) : comm_agree(w->rig.world[rank], out, req);
}

static void *mine_of(struct withdrawn *w)
{
    return w->shrinks ? (void *)&w->survivors : (void *)&w->flags;
}

static void withdraw(void *arg, int32_t rank)
{
    struct withdrawn *w = arg;
    struct comm_request request[2];
    uint64_t others[2] = {UINT64_MAX, UINT64_MAX};
    if (rank == 0) {
        atomic_store(&w->waits, true);
        IS(comm_wait(w->request, RIG_PATIENCE), w->in_time ? COMM_OK : COMM_ERR_CLOSED);
        if (!w->in_time) /* the wait has ended: the caller owns the memory */
            memset(mine_of(w), MINE, sizeof w->flags);
        atomic_store(&w->ended, true);
    } else if (rank == 1) {
        while (!atomic_load(&w->waits))
            rig_nap(RIG_MS);
        IS(comm_close(w->rig.world[0], w->in_time ? RIG_PATIENCE : 50 * RIG_MS), w->in_time ? COMM_OK : COMM_ERR_TIMEOUT);
    } else {
        while (!atomic_load(w->in_time ? &w->waits : &w->ended))
            rig_nap(RIG_MS);
        if (w->in_time)
            rig_nap(50 * RIG_MS); /* the close has begun */
        for (int32_t i = 0; i < 2; i++)
            MUST(start(w, i + 1, w->shrinks ? (void *)&w->other[i] : (void *)&others[i], &request[i]));
        rig_wait_all(request, 2);
        CHECK(w->shrinks || others[0] == others[1]);
    }
}

static bool is_all_mine(const void *memory)
{
    unsigned char mine[sizeof(uint64_t)];
    memset(mine, MINE, sizeof mine);
    return memcmp(memory, mine, sizeof mine) == 0;
}

static void is_withdrawn(bool shrinks, bool in_time)
{
    struct withdrawn w = {.shrinks = shrinks, .in_time = in_time, .flags = 6};
    _Static_assert(sizeof w.flags == sizeof w.survivors, "both are filled alike");
    rig_open(&w.rig, 3, NULL);
    MUST(start(&w, 0, mine_of(&w), &w.request));
    rig_threads(3, withdraw, &w);
    CHECK(is_all_mine(mine_of(&w)) == !in_time);
    if (in_time && shrinks)
        MUST(comm_close(w.survivors, RIG_PATIENCE));
    for (int32_t i = 0; i < 2; i++) {
        MUST(comm_close(w.rig.world[i + 1], RIG_PATIENCE));
        (void)comm_close(w.other[i], RIG_PATIENCE);
    }
}

RIG_TEST(contract_4_6_a_close_that_times_out_takes_back_the_flags)
{
    is_withdrawn(false, false);
}

RIG_TEST(contract_4_6_a_close_that_times_out_takes_back_the_survivors)
{
    is_withdrawn(true, false);
}

RIG_TEST(contract_4_6_a_close_that_drains_waits_for_the_flags)
{
    is_withdrawn(false, true);
}

RIG_TEST(contract_4_6_a_close_that_drains_waits_for_the_survivors)
{
    is_withdrawn(true, true);
}

/* After a close that timed out, and after an abort, the others call later, and nothing is written here. */
RIG_TEST(contract_4_6_flags_are_written_after_neither_close_nor_abort)
{
    struct comm_request request, late;
    uint64_t closed = 6, aborted = 6, other = 3;
    struct rig rig;
    rig_open(&rig, 2, NULL);
    MUST(comm_agree(rig.world[0], &closed, &request));
    IS(comm_close(rig.world[0], 20 * RIG_MS), COMM_ERR_TIMEOUT);
    IS(comm_test(request), COMM_ERR_CLOSED);
    MUST(NOW(comm_agree, rig.world[1], &other));
    EQUAL(closed, 6);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));

    rig_open(&rig, 2, NULL);
    MUST(comm_agree(rig.world[0], &aborted, &request));
    MUST(comm_abort(rig.world[0], 3));
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_ABORTED);
    if (comm_agree(rig.world[1], &other, &late) == COMM_OK)
        IS(comm_wait(late, RIG_PATIENCE), COMM_ERR_ABORTED);
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    EQUAL(aborted, 6);
    rig_close(&rig);
}

/* Its agreement was all that was unfinished: a rank that needs it later still learns that it has closed. */
RIG_TEST(contract_4_7_a_call_after_a_peer_closed_in_an_agreement)
{
    struct comm_request request;
    uint64_t flags = 1;
    struct rig rig;
    rig_open(&rig, 2, NULL);
    MUST(comm_agree(rig.world[0], &flags, &request));
    IS(comm_close(rig.world[0], RIG_MS), COMM_ERR_TIMEOUT);
    enum comm_result result = comm_barrier(rig.world[1], &request);
    IS(result == COMM_OK ? comm_wait(request, RIG_PATIENCE) : result, COMM_ERR_CLOSED);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ without blocking */
RIG_TEST(contract_4_6_agree_is_waited_for_with_a_timeout)
{
    struct comm_request request[2];
    uint64_t flags[2] = {6, 3};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    MUST(comm_agree(rig.world[0], &flags[0], &request[0]));
    IS(comm_test(request[0]), COMM_PENDING);
    IS(comm_wait(request[0], 10 * RIG_MS), COMM_PENDING);
    EQUAL(flags[0], 6);
    MUST(comm_agree(rig.world[1], &flags[1], &request[1]));
    rig_wait_all(request, 2);
    EQUAL(flags[0], 2);
    EQUAL(flags[1], 2);
    rig_close(&rig);
}

struct chain {
    struct comm_communicator *c;
    uint64_t flags;
    struct comm_request request;
    bool started;
};

static void agree_next(struct comm_request request, enum comm_result result, void *arg)
{
    struct chain *chain = arg;
    (void)request;
    IS(result, COMM_OK);
    chain->flags = 5;
    MUST(comm_agree(chain->c, &chain->flags, &chain->request));
    chain->started = true;
}

RIG_TEST(contract_4_6_agree_starts_in_a_callback)
{
    struct comm_request request[2];
    uint64_t flags[2] = {6, 3};
    struct chain chain = {0};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    chain.c = rig.world[0];
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_agree(rig.world[r], &flags[r], &request[r]));
    MUST(comm_notify(request[0], agree_next, &chain));
    rig_wait_all(request, 2);
    for (int64_t end = rig_now() + RIG_PATIENCE; !chain.started && rig_now() < end;)
        rig_progress_for(rig.world[0], RIG_MS);
    CHECK(chain.started);
    MUST(NOW(comm_agree, rig.world[1], &flags[1]));
    MUST(comm_wait(chain.request, RIG_PATIENCE));
    EQUAL(chain.flags, 0); /* 5 & 2 */
    EQUAL(flags[1], 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_4_6_a_close_that_times_out_takes_back_the_flags),
        cmocka_unit_test(contract_4_6_a_close_that_times_out_takes_back_the_survivors),
        cmocka_unit_test(contract_4_6_a_close_that_drains_waits_for_the_flags),
        cmocka_unit_test(contract_4_6_a_close_that_drains_waits_for_the_survivors),
        cmocka_unit_test(contract_4_6_flags_are_written_after_neither_close_nor_abort),
        cmocka_unit_test(contract_4_7_a_call_after_a_peer_closed_in_an_agreement),
        cmocka_unit_test(contract_4_6_agree_is_waited_for_with_a_timeout),
        cmocka_unit_test(contract_4_6_agree_starts_in_a_callback),
    };
    return cmocka_run_group_tests_name("contract_4_agree", tests, NULL, NULL);
}
