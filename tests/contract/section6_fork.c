/* Rule 6.8: in a forked child every call is refused, and nothing is freed or moved. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

#include <sys/wait.h>
#include <unistd.h>

/* Forks. In the child false; in the parent true, after the child has ended with status 0. */
static bool child_has_ended(const char *what)
{
    int status = -1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(10);
        return false;
    }
    EQUAL(waitpid(child, &status, 0), child);
    if (status)
        rig_die(__FILE__, __LINE__, "the child that %s ended with status %d, exit %d", what, status, WEXITSTATUS(status));
    return true;
}

static int forked_child(struct comm_communicator *c, struct comm_request request, struct comm_event *event)
{
    int32_t x = 0;
    struct comm_request mine;
    struct comm_communicator *other = NULL;
    struct comm_info info = {.size = sizeof info};
    enum comm_result results[] = {
        comm_test(request),
        comm_wait(request, RIG_S),
        comm_barrier(c, &mine),
        comm_sync(c, COMM_FOREVER),
        comm_progress(c),
        comm_event_query(event),
        comm_queue_wait_event(c, event),
        comm_dup(c, NULL, &other, NULL),
        comm_describe(c, &info),
        comm_close(c, RIG_S),
        comm_recv(c, &x, 1, COMM_I32, 0, 0, NULL, &mine),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i] != COMM_ERR_FORKED)
            return (int)i + 1;
    }
    return 0;
}

RIG_CASE(contract_6_8_fork)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request request;
    rig_open(&rig, 2, NULL);
    rig_proves_alive(rig.world, 2);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_barrier(rig.world[0], &request));
    if (!child_has_ended("makes calls")) /* exit: 1 + the number of the first call that did not return it */
        _exit(forked_child(rig.world[0], request, event));
    MUST(comm_barrier(rig.world[1], NULL));
    MUST(comm_wait(request, RIG_PATIENCE));
    rig_proves_alive(rig.world, 2);
    comm_event_free(event);
    rig_close(&rig);
}

/* Abandons the point of an event, for whose waiters it would make progress. */
static int free_event_in_child(struct comm_event *event, struct comm_request request)
{
    enum comm_result before = comm_test(request);
    comm_event_free(event);
    return comm_test(request) == before ? 0 : 1;
}

RIG_CASE(contract_6_8_a_child_that_frees_moves_nothing)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request request;
    rig_open(&rig, 2, NULL);
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_event_reset(event));
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_barrier(rig.world[1], NULL)); /* the next pass ends both */
    if (!child_has_ended("frees an event"))
        _exit(free_event_in_child(event, request));
    MUST(comm_wait(request, RIG_PATIENCE));
    MUST(comm_event_set(event));
    comm_event_free(event);
    rig_close(&rig);
}

/* A callback in which a wait is refused does not go on in the child. */
static void wait_in_child(struct comm_request request, enum comm_result result, void *arg)
{
    struct comm_request *pending = arg;
    (void)request;
    (void)result;
    if (!child_has_ended("waits"))
        _exit(comm_wait(*pending, RIG_S) != COMM_ERR_FORKED || comm_wait_all(pending, 1, RIG_S) != COMM_ERR_FORKED);
    IS(comm_wait(*pending, RIG_S), COMM_ERR_STATE);
    *pending = COMM_REQUEST_NONE;
}

RIG_CASE(contract_6_8_a_fork_in_a_callback)
{
    struct rig rig;
    struct comm_request barrier, pending, wanted;
    int32_t x = 0;
    rig_open(&rig, 1, NULL);
    MUST(comm_recv(rig.world[0], &x, 1, COMM_I32, 0, 0, NULL, &wanted));
    pending = wanted;
    MUST(comm_barrier(rig.world[0], &barrier));
    MUST(comm_notify(barrier, wait_in_child, &pending));
    rig_progress_for(rig.world[0], 5 * RIG_MS);
    CHECK(!pending.comm);
    MUST(comm_cancel(wanted));
    rig_close(&rig);
}

/* What is left of a world that was closed. Its last free ends the engine, whose threads a child does not have. */
struct left {
    struct comm_plan *plan;
    struct comm_event *event;
    struct comm_buckets *buckets;
};

static struct left leave(int which)
{
    static float gradient;
    struct rig rig;
    struct left left = {NULL, NULL, NULL};
    struct comm_communicator *recorder;
    rig_open(&rig, 1, NULL);
    if (which == 0) {
        MUST(comm_plan_begin(rig.world[0], &recorder));
        MUST(comm_barrier(recorder, NULL));
        MUST(comm_plan_end(recorder, &left.plan));
    } else if (which == 1) {
        MUST(comm_event_create(rig.world[0], &left.event));
    } else {
        MUST(comm_buckets_create(rig.world[0], &(struct comm_gradient){.data = &gradient, .count = 1, .type = COMM_F32}, 1, NULL,
                                 &left.buckets));
    }
    rig_close(&rig);
    return left;
}

static void free_left(const struct left *left)
{
    comm_plan_free(left->plan);
    comm_event_free(left->event);
    comm_buckets_free(left->buckets);
}

RIG_CASE(contract_6_8_the_last_free_in_a_child)
{
    for (int which = 0; which < 3; which++) {
        struct left left = leave(which);
        rig_note("%s", (const char *const[]){"a plan", "an event", "buckets"}[which]);
        if (!child_has_ended("frees what is left")) {
            free_left(&left);
            _exit(0);
        }
        free_left(&left);
    }
}

RIG_CASE(contract_6_8_a_window_in_a_child)
{
    struct rig rig;
    struct comm_window *w;
    struct comm_request made, fence;
    rig_open(&rig, 1, NULL);
    MUST(comm_window_create(rig.world[0], 64, NULL, &w, &made));
    MUST(comm_wait(made, RIG_PATIENCE));
    if (!child_has_ended("frees a window")) {
        bool refused = comm_window_free(w) == COMM_ERR_FORKED;
        _exit(refused && comm_window_free(w) == COMM_ERR_FORKED ? 0 : 1); /* it is still there */
    }
    MUST(comm_window_fence(w, &fence));
    MUST(comm_wait(fence, RIG_PATIENCE));
    MUST(comm_window_free(w));
    rig_close(&rig);
}
