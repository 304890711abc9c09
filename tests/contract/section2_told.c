/* Errors that the library has looked at and the program has not seen; requests that were made up, or are of an earlier communicator. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { PEERS = 2, TRIES = 64 };

/* ------------------------------------------------------------------------------------------------------------ 2.4 */
static int32_t longer[2] = {1, 2}, got[4];

/* A receive of rank 0 that ends alone with TRUNCATED. */
static struct comm_request truncated(struct comm_communicator *const *c, uint32_t tag)
{
    struct comm_request received, sent;
    MUST(comm_recv(c[0], &got[tag % 4], 1, COMM_I32, 1, tag, NULL, &received));
    MUST(comm_send(c[1], longer, 2, COMM_I32, 0, tag, &sent));
    MUST(comm_wait(sent, RIG_PATIENCE));
    return received;
}

/* Moves the engine until the receive has ended, and asks nothing about it. */
static void let_end(struct comm_communicator *const *c, uint32_t tag)
{
    struct comm_request received, sent;
    MUST(comm_recv(c[0], &got[tag % 4], 1, COMM_I32, 1, tag, NULL, &received));
    MUST(comm_send(c[1], longer, 1, COMM_I32, 0, tag, &sent));
    MUST(comm_wait(received, RIG_PATIENCE)); /* behind it, in the order of the pair */
    MUST(comm_wait(sent, RIG_PATIENCE));
}

static void told_once(struct comm_communicator *c)
{
    IS(comm_sync(c, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    MUST(comm_sync(c, RIG_PATIENCE));
}

RIG_TEST(contract_2_4_wait_all_tells_the_error_that_it_returns)
{
    struct rig rig;
    rig_open(&rig, PEERS, NULL);
    struct comm_request both[2] = {truncated(rig.world, 0), truncated(rig.world, 1)};
    IS(comm_wait_all(both, 2, RIG_PATIENCE), COMM_ERR_TRUNCATED);
    told_once(rig.world[0]);
    rig_close(&rig);
}

RIG_TEST(contract_2_4_a_wait_that_goes_on_tells_no_error)
{
    struct rig rig;
    struct comm_request last;
    int32_t word = 0;
    rig_open(&rig, PEERS, NULL);
    struct comm_request some[2] = {truncated(rig.world, 0)};
    let_end(rig.world, 1);
    MUST(comm_recv(rig.world[0], &word, 1, COMM_I32, 1, 3, NULL, &some[1]));
    IS(comm_wait_all(some, 2, 5 * RIG_MS), COMM_PENDING);
    MUST(comm_send(rig.world[1], longer, 1, COMM_I32, 0, 3, &last));
    MUST(comm_wait(last, RIG_PATIENCE));
    told_once(rig.world[0]);
    rig_close(&rig);
}

/* Several are complete, and the call takes one; of some it returns the first error alone. */
RIG_TEST(contract_2_4_an_error_that_no_call_returned)
{
    struct rig rig;
    size_t index, indices[2], done;
    rig_open(&rig, PEERS, NULL);
    struct comm_request some[2] = {truncated(rig.world, 0), truncated(rig.world, 1)};
    let_end(rig.world, 2);
    IS(comm_wait_any(some, 2, RIG_PATIENCE, &index), COMM_ERR_TRUNCATED);
    told_once(rig.world[0]);
    some[0] = truncated(rig.world, 0);
    some[1] = truncated(rig.world, 1);
    let_end(rig.world, 2);
    IS(comm_wait_some(some, 2, RIG_PATIENCE, indices, NULL, &done), COMM_ERR_TRUNCATED);
    told_once(rig.world[0]);
    rig_close(&rig);
}

/* A queue that waits for it fails with DEPENDENCY; the error itself is still untold. */
RIG_TEST(contract_2_4_a_queue_that_waits_for_an_error)
{
    struct rig rig;
    struct comm_communicator *second[PEERS];
    struct comm_request behind;
    rig_open(&rig, PEERS, NULL);
    rig_dup(rig.world, PEERS, second);
    struct comm_request received = truncated(rig.world, 0);
    MUST(comm_queue_wait_request(second[0], received));
    enum comm_result issued = comm_barrier(second[0], &behind); /* the wait may have failed it already */
    CHECK(issued == COMM_OK || issued == COMM_ERR_DEPENDENCY);
    IS(comm_wait(behind, RIG_PATIENCE), COMM_ERR_DEPENDENCY);
    told_once(rig.world[0]);
    for (int32_t r = 0; r < PEERS; r++)
        (void)!comm_close(second[r], RIG_S);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 2.2 */
static _Atomic int called;

static void is_called(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    (void)result;
    (void)arg;
    called++;
}

/* What the calls say of a request that no call returned. */
static void is_none(struct comm_communicator *c, struct comm_request request, struct comm_communicator *world)
{
    struct comm_request some[1] = {request};
    struct comm_request_info info = {.size = sizeof info};
    size_t index;
    rig_note("ticket %llx", (unsigned long long)request.ticket);
    IS(comm_test(request), COMM_ERR_ARGUMENT);
    IS(comm_wait(request, 0), COMM_ERR_ARGUMENT);
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_ARGUMENT);
    IS(comm_wait_all(some, 1, RIG_PATIENCE), COMM_ERR_ARGUMENT);
    IS(comm_wait_any(some, 1, RIG_PATIENCE, &index), COMM_ERR_ARGUMENT);
    IS(comm_describe_request(request, &info), COMM_ERR_ARGUMENT);
    IS(comm_notify(request, is_called, NULL), COMM_ERR_ARGUMENT);
    IS(comm_cancel(request), COMM_ERR_ARGUMENT);
    IS(comm_queue_wait_request(world, request), COMM_ERR_ARGUMENT);
    if (c != world)
        IS(comm_queue_wait_request(c, request), COMM_ERR_ARGUMENT);
}

static const uint64_t made_up[] = {
    0,
    1000000,
    UINT64_MAX >> 1,
    UINT64_C(1) << 63,
    UINT64_C(1) << 63 | 17,
    UINT64_C(1) << 63 | UINT64_C(99999) << 20,
    UINT64_C(1) << 63 | UINT64_C(99999) << 20 | 70,
    UINT64_C(1) << 63 | 1048575,
    UINT64_MAX,
};
enum { MADE_UP = sizeof made_up / sizeof *made_up };

RIG_TEST(contract_2_2_requests_that_were_made_up)
{
    struct rig rig;
    rig_open(&rig, PEERS, NULL);
    rig_proves_alive(rig.world, PEERS);
    for (size_t i = 0; i < MADE_UP; i++)
        is_none(rig.world[0], (struct comm_request){rig.world[0], made_up[i]}, rig.world[0]);
    (void)truncated(rig.world, 0);
    let_end(rig.world, 1);
    for (size_t i = 0; i < MADE_UP; i++) /* with slots in use, and an error */
        is_none(rig.world[0], (struct comm_request){rig.world[0], made_up[i]}, rig.world[0]);
    EQUAL(called, 0);
    rig_proves_alive(rig.world, PEERS);
    rig_close(&rig);
}

/* Calls on a recorder return no request, so any is made up. */
RIG_TEST(contract_2_2_requests_of_a_recorder)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_plan *plan = NULL;
    rig_open(&rig, PEERS, NULL);
    MUST(comm_plan_begin(rig.world[0], &recorder));
    is_none(recorder, (struct comm_request){recorder, 1}, rig.world[0]);
    for (size_t i = 0; i < MADE_UP; i++)
        is_none(recorder, (struct comm_request){recorder, made_up[i]}, rig.world[0]);
    EQUAL(called, 0);
    IS(comm_plan_end(recorder, &plan), COMM_ERR_ARGUMENT); /* it was asked to record a wait for one */
    rig_proves_alive(rig.world, PEERS);
    rig_close(&rig);
}

/* A communicator with the memory of `old`, which was closed. Those that have other memory stay open until the world ends. */
static bool has_memory_of(const struct comm_communicator *old, struct comm_communicator *const *made)
{
    return made[0] == old || made[1] == old;
}

RIG_TEST(contract_2_2_requests_of_an_earlier_communicator)
{
    struct rig rig;
    struct comm_communicator *second[PEERS], *later[TRIES][PEERS];
    struct comm_request work[PEERS], message[2];
    struct comm_request_info info = {.size = sizeof info};
    int made = 0;
    rig_open(&rig, PEERS, NULL);
    rig_dup(rig.world, PEERS, second);
    for (int32_t r = 0; r < PEERS; r++)
        MUST(comm_barrier(second[r], &work[r]));
    MUST(comm_recv(second[0], &got[0], 1, COMM_I32, 1, 0, NULL, &message[0]));
    MUST(comm_send(second[1], longer, 1, COMM_I32, 0, 0, &message[1]));
    rig_wait_all(work, PEERS);
    rig_wait_all(message, 2);
    for (int32_t r = 0; r < PEERS; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    do
        rig_dup(rig.world, PEERS, later[made]);
    while (!has_memory_of(second[0], later[made++]) && made < TRIES);
    CHECK(has_memory_of(second[0], later[made - 1]));
    const struct comm_request old[2] = {work[0], message[0]};
    for (int i = 0; i < 2; i++) {
        enum comm_result result = comm_test(old[i]);
        CHECK(result == COMM_OK || result == COMM_ERR_CLOSED);
        IS(comm_notify(old[i], is_called, NULL), COMM_ERR_CLOSED);
        IS(comm_cancel(old[i]), COMM_ERR_CLOSED);
        IS(comm_describe_request(old[i], &info), COMM_ERR_CLOSED);
    }
    for (int i = 0; i < made; i++)
        for (int32_t r = 0; r < PEERS; r++)
            MUST(comm_close(later[i][r], RIG_PATIENCE));
    EQUAL(called, 0);
    rig_close(&rig);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_2_4_wait_all_tells_the_error_that_it_returns),
        cmocka_unit_test(contract_2_4_a_wait_that_goes_on_tells_no_error),
        cmocka_unit_test(contract_2_4_an_error_that_no_call_returned),
        cmocka_unit_test(contract_2_4_a_queue_that_waits_for_an_error),
        cmocka_unit_test(contract_2_2_requests_that_were_made_up),
        cmocka_unit_test(contract_2_2_requests_of_a_recorder),
        cmocka_unit_test(contract_2_2_requests_of_an_earlier_communicator),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("contract_2_told", tests, NULL, NULL);
}
