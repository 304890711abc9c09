/*
 * A close, or an event that is set, beside a thread that is about to use what changes. That thread stands still at the worst place, in a
 * call that the linker puts in front of the engine's, until the other one is ready, or has waited for it for long enough.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "event/event.h"
#include "timeline/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

enum { RANKS = 2, NAPS = 100 };

static _Atomic int stops, stands, over;
static _Thread_local bool stoppable;

static void until(const _Atomic int *word)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(word); rig_nap(RIG_MS))
        CHECK(rig_now() < end);
}

/* ------------------------------------------------------------------------------------------------------------ waits of threads */
/* A result that is pending, in a wait: by the time that it is used, all work has ended. */
enum comm_result __real_timeline_test_slow(struct comm_request request, bool told);
enum comm_result __wrap_timeline_test_slow(struct comm_request request, bool told);
enum comm_result __wrap_timeline_test_slow(struct comm_request request, bool told)
{
    enum comm_result r = __real_timeline_test_slow(request, told);

    if (r == COMM_PENDING && stoppable && atomic_load(&request.comm->inside) && atomic_exchange(&stops, 0)) {
        atomic_store(&stands, 1);
        for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&request.comm->closing); rig_nap(RIG_MS))
            CHECK(rig_now() < end);
    }
    return r;
}

struct wait {
    struct comm_request request;
    struct comm_event *event;
    enum comm_result result;
};

static void *wait_for_it(void *arg)
{
    struct wait *w = arg;
    stoppable = true;
    w->result = comm_wait(w->request, RIG_PATIENCE);
    return NULL;
}

static void *wait_for_all(void *arg)
{
    struct wait *w = arg;
    stoppable = true;
    w->result = comm_wait_all(&w->request, 1, RIG_PATIENCE);
    return NULL;
}

static void *wait_for_any(void *arg)
{
    struct wait *w = arg;
    size_t index;
    stoppable = true;
    w->result = comm_wait_any(&w->request, 1, RIG_PATIENCE, &index);
    return NULL;
}

static void *wait_for_event(void *arg)
{
    struct wait *w = arg;
    stoppable = true;
    w->result = comm_event_sync(w->event, RIG_PATIENCE);
    return NULL;
}

static void wait_beside_a_close(void *(*wait)(void *))
{
    struct rig rig;
    struct comm_communicator *c[RANKS];
    struct comm_request other;
    struct wait w = {.result = COMM_PENDING};
    pthread_t thread;
    rig_open_options(&rig, RANKS, "cpus=8");
    rig_dup(rig.world, RANKS, c);
    MUST(comm_event_create(c[0], &w.event));
    MUST(comm_barrier(c[0], &w.request));
    MUST(comm_event_record(w.event, c[0]));
    atomic_store(&stands, 0);
    atomic_store(&stops, 1);
    EQUAL(pthread_create(&thread, NULL, wait, &w), 0);
    until(&stands);
    MUST(comm_barrier(c[1], &other));
    MUST(comm_close(c[0], RIG_PATIENCE));
    pthread_join(thread, NULL);
    IS(w.result, COMM_OK);
    comm_event_free(w.event);
    rig_wait_all(&other, 1);
    MUST(comm_close(c[1], RIG_PATIENCE));
    rig_close(&rig);
}

RIG_TEST(a_wait_beside_a_close)
{
    wait_beside_a_close(wait_for_it);
    wait_beside_a_close(wait_for_all);
    wait_beside_a_close(wait_for_any);
    wait_beside_a_close(wait_for_event);
}

/* ------------------------------------------------------------------------------------------------------------ waits of queues */
/* Between taking a point and waiting for it; in a plan, with the lock held. A close may wait for this thread. */
static void stand(void)
{
    if (!stoppable || !atomic_exchange(&stops, 0))
        return;
    atomic_store(&stands, 1);
    for (int i = 0; i < NAPS && !atomic_load(&over); i++)
        rig_nap(2 * RIG_MS);
}

enum comm_result __real_queue_wait_issue(struct comm_state *b, const struct timeline_point *point, struct comm_request *req);
enum comm_result __wrap_queue_wait_issue(struct comm_state *b, const struct timeline_point *point, struct comm_request *req);
enum comm_result __wrap_queue_wait_issue(struct comm_state *b, const struct timeline_point *point, struct comm_request *req)
{
    stand();
    return __real_queue_wait_issue(b, point, req);
}

enum comm_result __real_queue_wait_call(struct comm_communicator *c, const struct timeline_point *point);
enum comm_result __wrap_queue_wait_call(struct comm_communicator *c, const struct timeline_point *point);
enum comm_result __wrap_queue_wait_call(struct comm_communicator *c, const struct timeline_point *point)
{
    stand();
    return __real_queue_wait_call(c, point);
}

struct start {
    struct comm_communicator *c;
    struct comm_plan *plan;
    struct comm_request point;
    enum comm_result result;
};

static void *start_plan(void *arg)
{
    struct start *s = arg;
    struct comm_request request;
    stoppable = true;
    MUST(comm_plan_start(s->plan, &request));
    s->result = comm_wait(request, RIG_PATIENCE);
    return NULL;
}

static void *wait_for_request(void *arg)
{
    struct start *s = arg;
    struct comm_request request;
    stoppable = true;
    MUST(comm_queue_wait_request(s->c, s->point));
    MUST(comm_barrier(s->c, &request));
    s->result = comm_wait(request, RIG_PATIENCE);
    return NULL;
}

/* The thread stands amid its start while `second` is closed. gate: is set before that, so that what `second` has can end; NULL: nothing is.
 */
static void close_beside(void *(*start)(void *), struct start *s, struct comm_communicator *second, struct comm_event *gate)
{
    pthread_t thread;
    atomic_store(&stands, 0);
    atomic_store(&over, 0);
    atomic_store(&stops, 1);
    EQUAL(pthread_create(&thread, NULL, start, s), 0);
    until(&stands);
    if (gate)
        MUST(comm_event_set(gate));
    MUST(comm_close(second, RIG_PATIENCE));
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
    IS(s->result, COMM_OK);
}

/* A queue waits for a point that is reached, of a communicator that is closed meanwhile. */
static void queue_wait_beside_a_close(void *(*start)(void *))
{
    struct rig rig;
    struct comm_communicator *second, *recorder;
    struct comm_event *event;
    struct start s = {.result = COMM_PENDING};
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, &second);
    MUST(comm_event_create(second, &event));
    MUST(comm_barrier(second, &s.point));
    MUST(comm_wait(s.point, RIG_PATIENCE));
    MUST(comm_event_record(event, second));
    s.c = rig.world[0];
    MUST(comm_plan_begin(s.c, &recorder));
    MUST(comm_queue_wait_event(recorder, event));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &s.plan));
    close_beside(start, &s, second, NULL);
    comm_plan_free(s.plan);
    comm_event_free(event);
    rig_close(&rig);
}

RIG_TEST(a_queue_wait_beside_a_close)
{
    queue_wait_beside_a_close(wait_for_request);
}

RIG_TEST(a_plan_beside_a_close)
{
    queue_wait_beside_a_close(start_plan);
}

/* The request that a plan waits for is pending when a start begins, ends well, and its communicator is closed before the start is over. */
RIG_TEST(a_plan_of_a_request_beside_a_close)
{
    struct rig rig;
    struct comm_communicator *second, *recorder;
    struct comm_event *gate;
    struct start s = {.result = COMM_PENDING};
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, &second);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(second, gate));
    MUST(comm_barrier(second, &s.point));
    MUST(comm_plan_begin(rig.world[0], &recorder));
    MUST(comm_queue_wait_request(recorder, s.point));
    MUST(comm_barrier(recorder, NULL));
    MUST(comm_plan_end(recorder, &s.plan));
    close_beside(start_plan, &s, second, gate);
    comm_plan_free(s.plan);
    comm_event_free(gate);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ events */
static void *start_alone(void *arg)
{
    struct start *s = arg;
    stoppable = true;
    s->result = comm_plan_start(s->plan, NULL);
    return NULL;
}

/* Another thread has the communicator when its event is set, and so starts the work that waited for it. Nobody calls the library then. */
RIG_TEST(an_event_that_is_set_beside_a_call)
{
    struct rig rig;
    struct comm_communicator *recorder;
    struct comm_event *gate, *reached;
    struct comm_request barrier;
    struct comm_request_info info = {.size = sizeof info};
    struct start s = {.result = COMM_PENDING};
    pthread_t thread;
    rig_open(&rig, 1, NULL);
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_create(rig.world[0], &reached));
    MUST(comm_plan_begin(rig.world[0], &recorder));
    MUST(comm_queue_wait_event(recorder, reached));
    MUST(comm_plan_end(recorder, &s.plan));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_barrier(rig.world[0], &barrier));
    atomic_store(&stops, 1);
    EQUAL(pthread_create(&thread, NULL, start_alone, &s), 0);
    until(&stands);
    MUST(comm_event_set(gate));
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
    IS(s.result, COMM_OK);
    MUST(comm_describe_request(barrier, &info));
    CHECK(info.started_ns != 0);
    MUST(comm_wait(barrier, RIG_PATIENCE));
    comm_plan_free(s.plan);
    comm_event_free(gate);
    comm_event_free(reached);
    rig_close(&rig);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_beside_a_close),
        cmocka_unit_test(a_queue_wait_beside_a_close),
        cmocka_unit_test(a_plan_beside_a_close),
        cmocka_unit_test(a_plan_of_a_request_beside_a_close),
        cmocka_unit_test(an_event_that_is_set_beside_a_call),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("engine_beside", tests, NULL, NULL);
}
