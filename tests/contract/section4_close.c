/* A close beside a thread that waits: for a point, for a message, or in a loop that sleeps. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { PEERS = 2, TRIES = 64 };

/* ------------------------------------------------------------------------------------------------------------ a thread that stands */
/* A thread in a wait on c stands in a callback of another communicator, as if it had no CPU. The callback ends when it is let go, or after
 * some naps, since what it stands for may itself wait for this thread. */
struct stand {
    struct rig rig;
    struct comm_communicator *c[PEERS], *second[PEERS];
    struct comm_event *event;
    struct comm_request barrier, waited[2];
    size_t closed;           /* which of them is of the closed communicator */
    enum comm_result result; /* of the wait */
    _Atomic int stands, let_go;
};

static void stand(struct comm_request request, enum comm_result result, void *arg)
{
    struct stand *s = arg;
    (void)request;
    MUST(result);
    atomic_store(&s->stands, 1);
    for (int i = 0; i < 100 && !atomic_load(&s->let_go); i++)
        rig_nap(2 * RIG_MS);
}

static void until(const _Atomic int *word)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(word); rig_nap(RIG_MS))
        CHECK(rig_now() < end);
}

static void open_stand(struct stand *s)
{
    *s = (struct stand){.result = COMM_PENDING};
    rig_open(&s->rig, PEERS, NULL);
    rig_dup(s->rig.world, PEERS, s->c);
    rig_dup(s->rig.world, PEERS, s->second);
    MUST(comm_barrier(s->rig.world[0], &s->barrier));
    MUST(comm_notify(s->barrier, stand, s));
}

static void close_both(struct comm_communicator *const *c)
{
    for (int32_t r = 0; r < PEERS; r++)
        MUST(comm_close(c[r], RIG_PATIENCE));
}

/* Returns while the thread stands in its wait. */
static void start_standing(struct stand *s, pthread_t *thread, void *(*wait)(void *))
{
    EQUAL(pthread_create(thread, NULL, wait, s), 0);
    MUST(comm_barrier(s->rig.world[1], NULL));
    until(&s->stands);
}

static void *wait_for_event(void *arg)
{
    struct stand *s = arg;
    s->result = comm_event_sync(s->event, RIG_PATIENCE);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ 3.3 */
/* The point is reached while the close drains, and the thread that waits for it looks only later. */
RIG_TEST(contract_3_3_a_sync_beside_a_close)
{
    struct stand s;
    struct comm_request work[PEERS];
    pthread_t thread;
    open_stand(&s);
    MUST(comm_event_create(s.c[0], &s.event));
    MUST(comm_barrier(s.c[0], &work[0]));
    MUST(comm_event_record(s.event, s.c[0]));
    start_standing(&s, &thread, wait_for_event);
    MUST(comm_barrier(s.c[1], &work[1]));
    MUST(comm_close(s.c[0], RIG_PATIENCE));
    atomic_store(&s.let_go, 1);
    pthread_join(thread, NULL);
    IS(s.result, COMM_OK);
    MUST(comm_event_query(s.event));
    comm_event_free(s.event);
    MUST(comm_close(s.c[1], RIG_PATIENCE));
    close_both(s.second);
    rig_close(&s.rig);
}

/* ------------------------------------------------------------------------------------------------------------ 4.7 */
static void *wait_for_message(void *arg)
{
    struct stand *s = arg;
    struct comm_status status;
    s->result = comm_probe(s->c[0], 1, 7, RIG_PATIENCE, &status);
    return NULL;
}

/* The memory of the closed communicator becomes a new one, where such a message comes. The thread asked for one of the old one. */
RIG_TEST(contract_4_7_a_probe_beside_a_close)
{
    struct stand s;
    struct comm_communicator *later[TRIES][PEERS];
    struct comm_request message[2];
    int32_t word = 5, got = 0, which = -1;
    int made = 0;
    pthread_t thread;
    open_stand(&s);
    start_standing(&s, &thread, wait_for_message);
    close_both(s.c);
    for (; which < 0 && made < TRIES; made++) {
        rig_dup(s.rig.world, PEERS, later[made]);
        for (int32_t r = 0; r < PEERS; r++)
            which = later[made][r] == s.c[0] ? r : which;
    }
    CHECK(which >= 0);
    MUST(comm_send(later[made - 1][1], &word, 1, COMM_I32, which, 7, &message[0]));
    atomic_store(&s.let_go, 1);
    pthread_join(thread, NULL);
    IS(s.result, COMM_ERR_CLOSED);
    MUST(comm_recv(later[made - 1][which], &got, 1, COMM_I32, 1, 7, NULL, &message[1]));
    rig_wait_all(message, 2);
    EQUAL(got, 5);
    for (int i = 0; i < made; i++)
        close_both(later[i]);
    close_both(s.second);
    rig_close(&s.rig);
}

static void *wait_for_both(void *arg)
{
    struct stand *s = arg;
    s->result = comm_wait_all(s->waited, 2, RIG_PATIENCE);
    return NULL;
}

static void *wait_for_one(void *arg)
{
    struct stand *s = arg;
    size_t index = 0;
    s->result = comm_wait_any(s->waited, 2, RIG_PATIENCE, &index);
    EQUAL(index, s->closed);
    return NULL;
}

static void *wait_for_some(void *arg)
{
    struct stand *s = arg;
    enum comm_result results[2];
    size_t indices[2], done = 0;
    s->result = comm_wait_some(s->waited, 2, RIG_PATIENCE, indices, results, &done);
    EQUAL(done, 1);
    EQUAL(indices[0], s->closed);
    IS(results[0], COMM_OK);
    return NULL;
}

/* A thread waits for requests of two communicators. What it waits for in the second one ends well; then that one is closed. The close does
 * not wait for the first one. */
static void several_beside_a_close(void *(*wait)(void *), size_t closed)
{
    struct stand s;
    struct comm_request other[2];
    pthread_t thread;
    open_stand(&s);
    s.closed = closed;
    MUST(comm_barrier(s.c[0], &s.waited[!closed]));
    MUST(comm_barrier(s.second[0], &s.waited[closed]));
    start_standing(&s, &thread, wait);
    MUST(comm_barrier(s.second[1], &other[0]));
    MUST(comm_close(s.second[0], RIG_PATIENCE));
    MUST(comm_barrier(s.c[1], &other[1]));
    atomic_store(&s.let_go, 1);
    pthread_join(thread, NULL);
    IS(s.result, COMM_OK);
    rig_wait_all(other, 2);
    MUST(comm_close(s.second[1], RIG_PATIENCE));
    close_both(s.c);
    rig_close(&s.rig);
}

RIG_TEST(contract_4_7_a_wait_for_all_beside_a_close)
{
    several_beside_a_close(wait_for_both, 1);
    several_beside_a_close(wait_for_both, 0);
}

RIG_TEST(contract_4_7_a_wait_for_any_beside_a_close)
{
    for (size_t closed = 0; closed < 2; closed++) {
        several_beside_a_close(wait_for_one, closed);
        several_beside_a_close(wait_for_some, closed);
    }
}

static void *sync_all(void *arg)
{
    struct stand *s = arg;
    s->result = comm_sync_all(s->c[0], RIG_PATIENCE);
    return NULL;
}

/* A thread that waits for everything is named one communicator, and waits for another. */
RIG_TEST(contract_4_7_a_sync_of_all_beside_a_close)
{
    struct stand s;
    pthread_t thread;
    open_stand(&s);
    MUST(comm_barrier(s.second[0], NULL));
    start_standing(&s, &thread, sync_all);
    MUST(comm_close(s.c[0], RIG_PATIENCE));
    MUST(comm_barrier(s.second[1], NULL));
    atomic_store(&s.let_go, 1);
    pthread_join(thread, NULL);
    CHECK(s.result == COMM_OK || s.result == COMM_ERR_CLOSED);
    MUST(comm_close(s.c[1], RIG_PATIENCE));
    close_both(s.second);
    rig_close(&s.rig);
}

/* ------------------------------------------------------------------------------------------------------------ 6.5 */
struct loop {
    struct comm_communicator *c;
    struct comm_request request;
    enum comm_result result;
    _Atomic int turns; /* how often it has gone to sleep */
};

/* An event loop that waits for one request. */
static void *loop(void *arg)
{
    struct loop *l = arg;
    struct pollfd descriptor = {.events = POLLIN};
    MUST(comm_fd(l->c, &descriptor.fd));
    while ((l->result = comm_test(l->request)) == COMM_PENDING) {
        while (comm_progress(l->c) == COMM_PENDING)
            continue;
        if (comm_arm(l->c) != COMM_OK || comm_test(l->request) != COMM_PENDING)
            continue;
        atomic_fetch_add(&l->turns, 1);
        if (poll(&descriptor, 1, (int)(RIG_PATIENCE / RIG_MS)) == 0)
            return NULL; /* nobody woke it */
    }
    return NULL;
}

/* A queue waits for a request of a communicator whose close gives up. It fails, and the loop that waits for it must hear of that. No other
 * rank is there, whose messages would wake the loop too. */
RIG_TEST(contract_6_5_a_close_that_gives_up_wakes_the_loop)
{
    struct rig rig;
    struct comm_communicator *second;
    struct comm_request never;
    struct comm_event *gate;
    struct loop l = {.result = COMM_PENDING};
    pthread_t thread;
    rig_open(&rig, 1, NULL);
    rig_dup(rig.world, 1, &second);
    MUST(comm_event_create(second, &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(second, gate));
    MUST(comm_barrier(second, &never));
    MUST(comm_queue_wait_request(rig.world[0], never));
    MUST(comm_barrier(rig.world[0], &l.request));
    l.c = rig.world[0];
    EQUAL(pthread_create(&thread, NULL, loop, &l), 0);
    until(&l.turns);
    IS(comm_close(second, 300 * RIG_MS), COMM_ERR_TIMEOUT);
    pthread_join(thread, NULL);
    IS(l.result, COMM_ERR_DEPENDENCY);
    comm_event_free(gate);
    (void)!comm_close(rig.world[0], RIG_S);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_3_3_a_sync_beside_a_close),         cmocka_unit_test(contract_4_7_a_probe_beside_a_close),
        cmocka_unit_test(contract_4_7_a_wait_for_all_beside_a_close), cmocka_unit_test(contract_4_7_a_wait_for_any_beside_a_close),
        cmocka_unit_test(contract_4_7_a_sync_of_all_beside_a_close),  cmocka_unit_test(contract_6_5_a_close_that_gives_up_wakes_the_loop),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("contract_4_close", tests, NULL, NULL);
}
