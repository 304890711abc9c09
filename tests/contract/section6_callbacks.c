/* Rule 6.6: when callbacks run, on which calls, in which order, and what they may do. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

struct told {
    struct comm_communicator *c;
    struct comm_event *event;
    int calls, order[8];
    enum comm_result result, waited, progressed, closed, synced;
};
static struct told told;

static void count_call(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    told.result = result;
    told.order[told.calls % 8] = (int)(intptr_t)arg;
    told.calls++;
}

static void try_forbidden(struct comm_request request, enum comm_result result, void *arg)
{
    count_call(request, result, arg);
    MUST(comm_test(request)); /* only a load */
    told.waited = comm_wait(request, 0);
    told.progressed = comm_progress(told.c);
    told.closed = comm_close(told.c, 0);
    told.synced = comm_sync(told.c, COMM_FOREVER);
}

/* Never inside a call that issues, notifies or sets; inside progress, in the order of the tickets, each once. */
RIG_CASE(contract_6_6_when_callbacks_run)
{
    struct rig rig;
    struct comm_request request[3];
    struct comm_event *gate;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    MUST(comm_event_create(c, &gate));
    MUST(comm_barrier(c, &request[0]));
    MUST(comm_wait(request[0], RIG_PATIENCE));
    MUST(comm_notify(request[0], count_call, (void *)1)); /* already complete */
    EQUAL(told.calls, 0);
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(c, gate));
    MUST(comm_barrier(c, &request[1]));
    MUST(comm_barrier(c, &request[2]));
    EQUAL(told.calls, 0);
    MUST(comm_notify(request[2], count_call, (void *)3));
    MUST(comm_notify(request[1], count_call, (void *)2));
    MUST(comm_event_set(gate));
    EQUAL(told.calls, 0);
    rig_progress_for(c, 20 * RIG_MS);
    EQUAL(told.calls, 3);
    EQUAL(told.order[0], 1);
    EQUAL(told.order[1], 2);
    EQUAL(told.order[2], 3);
    rig_progress_for(c, 20 * RIG_MS);
    EQUAL(told.calls, 3);
    comm_event_free(gate);
    rig_close(&rig);
}

RIG_CASE(contract_6_6_what_a_callback_may_not_do)
{
    struct rig rig;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    told.c = rig.world[0];
    MUST(comm_barrier(told.c, &request));
    MUST(comm_notify(request, try_forbidden, NULL));
    for (int64_t end = rig_now() + RIG_PATIENCE; told.calls == 0 && rig_now() < end;)
        rig_progress_for(told.c, RIG_MS);
    EQUAL(told.calls, 1);
    EQUAL(told.waited, COMM_ERR_STATE);
    EQUAL(told.progressed, COMM_PENDING);
    EQUAL(told.closed, COMM_ERR_STATE);
    EQUAL(told.synced, COMM_ERR_STATE);
    rig_proves_alive(rig.world, 1);
    rig_close(&rig);
}

static void issue_another(struct comm_request request, enum comm_result result, void *arg)
{
    count_call(request, result, arg);
    if (told.calls < 5) {
        struct comm_request next;
        MUST(comm_barrier(told.c, &next));
        MUST(comm_notify(next, issue_another, arg));
    }
}

RIG_CASE(contract_6_6_a_callback_may_issue)
{
    struct rig rig;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    told.c = rig.world[0];
    MUST(comm_barrier(told.c, &request));
    MUST(comm_notify(request, issue_another, NULL));
    for (int64_t end = rig_now() + RIG_PATIENCE; told.calls < 5 && rig_now() < end;)
        rig_progress_for(told.c, RIG_MS);
    EQUAL(told.calls, 5);
    rig_close(&rig);
}

/* For event loops: never in a wait or test, only in progress. */
RIG_CASE(contract_6_6_notify_progress)
{
    struct rig rig;
    struct comm_request request;
    rig_open(&rig, 1, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .notify = COMM_NOTIFY_PROGRESS));
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_notify(request, count_call, NULL));
    MUST(comm_wait(request, RIG_PATIENCE));
    MUST(comm_test(request));
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    EQUAL(told.calls, 0);
    rig_progress_for(rig.world[0], 10 * RIG_MS);
    EQUAL(told.calls, 1);
    rig_close(&rig);
}

/* A callback also runs when the communicator fails. */
RIG_CASE(contract_6_6_callbacks_of_a_failed_communicator)
{
    struct rig rig;
    struct comm_request request;
    rig_open(&rig, 2, NULL);
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_notify(request, count_call, NULL));
    MUST(comm_revoke(rig.world[1]));
    for (int64_t end = rig_now() + RIG_PATIENCE; told.calls == 0 && rig_now() < end;)
        rig_progress_for(rig.world[0], RIG_MS);
    EQUAL(told.calls, 1);
    EQUAL(told.result, COMM_ERR_REVOKED);
    rig_close(&rig);
}
