/* One engine per rank, shared by ranks of one process and by worlds that request it; locks that block nobody else. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = 100000 };

/* ------------------------------------------------------------------------------------------------------------ 6.1 */
static float *floats(float value)
{
    float *at = malloc(WORDS * sizeof *at);
    CHECK(at != NULL);
    for (size_t i = 0; i < WORDS; i++)
        at[i] = value;
    return at;
}

static void join_worlds(struct rig *first, struct rig *second)
{
    int one = -1, other = -2;
    rig_open(first, 2, NULL);
    rig_open(second, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .engine_of = first->world[1], .operation_timeout_ns = 30 * RIG_S));
    for (int32_t r = 0; r < 2; r++) {
        MUST(comm_fd(first->world[r], &one));
        MUST(comm_fd(second->world[r], &other));
        EQUAL(one, other);
    }
}

/* A wait on one world that has nothing to do completes the work of the other. */
RIG_TEST(contract_6_1_any_wait_moves_all)
{
    struct rig first, second;
    struct comm_request idle, work[2];
    float *in = floats(1), *out[2] = {floats(0), floats(0)};
    join_worlds(&first, &second);
    MUST(comm_barrier(first.world[0], &idle)); /* its peer does not come yet */
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(second.world[r], in, out[r], WORDS, COMM_F32, COMM_SUM, &work[r]));
    IS(comm_wait(idle, 300 * RIG_MS), COMM_PENDING);
    for (int32_t r = 0; r < 2; r++)
        CHECK(out[r][0] == 2 && out[r][WORDS - 1] == 2);
    MUST(comm_barrier(first.world[1], NULL));
    rig_wait_all((struct comm_request[]){idle, work[0], work[1]}, 3);
    rig_close(&first); /* the engine lives as long as one of its worlds */
    rig_proves_alive(second.world, 2);
    rig_close(&second);
    free(in);
    free(out[0]);
    free(out[1]);
}

/* Queues of joined worlds wait for each other's points, in both directions. */
RIG_TEST(contract_6_1_points_join_worlds)
{
    struct rig first, second;
    struct comm_request early, late[2], sum[2];
    struct comm_event *event;
    int32_t in[2] = {1, 2}, a[2] = {0, 0}, b[2] = {0, 0};
    join_worlds(&first, &second);
    MUST(comm_event_create(first.world[0], &event));
    MUST(comm_allreduce(first.world[0], &in[0], &a[0], 1, COMM_I32, COMM_SUM, &early));
    MUST(comm_queue_wait_request(second.world[0], early));
    MUST(comm_allreduce(second.world[0], &a[0], &b[0], 1, COMM_I32, COMM_SUM, &late[0]));
    MUST(comm_allreduce(second.world[1], &in[1], &b[1], 1, COMM_I32, COMM_SUM, &late[1]));
    MUST(comm_event_record(event, second.world[0]));
    MUST(comm_queue_wait_event(first.world[0], event));
    MUST(comm_allreduce(first.world[0], &b[0], &a[0], 1, COMM_I32, COMM_SUM, &sum[0]));
    rig_progress_for(second.world[0], 20 * RIG_MS);
    IS(comm_test(late[0]), COMM_PENDING);
    MUST(comm_allreduce(first.world[1], &in[1], &a[1], 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_allreduce(first.world[1], &in[1], &a[1], 1, COMM_I32, COMM_SUM, &sum[1]));
    rig_wait_all((struct comm_request[]){early, late[0], late[1], sum[0], sum[1]}, 5);
    EQUAL(b[0], 5); /* 1 + 2, and rank 1's 2 */
    EQUAL(a[0], 7);
    EQUAL(a[1], 7);
    comm_event_free(event);
    rig_close(&second);
    rig_close(&first);
}

/* ------------------------------------------------------------------------------------------------------------ 6.2 */
static _Atomic int inside_sum, let_go;

/* Holds its communicator as long as a user-defined reduction may. */
static void slow_sum(void *inout, const void *in, size_t elements, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < elements; i++)
        ((int64_t *)inout)[i] += ((const int64_t *)in)[i];
    if (atomic_exchange(&inside_sum, 1))
        return;
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&let_go) && rig_now() < end;)
        rig_nap(RIG_MS);
}

struct held {
    struct comm_communicator **c;
    comm_op op[2];
    int64_t out[2];
};

static void *sum_slowly(void *arg)
{
    struct held *held = arg;
    struct comm_request q[2];
    int64_t in = 4;

    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(held->c[r], &in, &held->out[r], sizeof in, COMM_BYTE, held->op[r], &q[r]));
    MUST(comm_wait_all(q, 2, RIG_PATIENCE));
    return NULL;
}

RIG_TEST(contract_6_2_a_held_communicator_stops_no_other)
{
    struct rig rig;
    struct comm_communicator *second[2];
    struct held held = {.c = second};
    struct comm_request unanswered[2];
    int64_t nothing[2];
    pthread_t thread;
    struct pollfd ready;
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER));
    rig_dup(rig.world, 2, second);
    for (int32_t r = 0; r < 2; r++) {
        struct comm_op_options options = {.size = sizeof options, .name = "slow_sum", .element_bytes = sizeof(int64_t)};
        MUST(comm_op_create(second[r], slow_sum, NULL, &options, &held.op[r]));
    }
    for (int32_t r = 0; r < 2; r++) /* something unfinished, so that every pass visits it */
        MUST(comm_recv(second[r], &nothing[r], 1, COMM_I64, 1 - r, 1, NULL, &unanswered[r]));
    EQUAL(pthread_create(&thread, NULL, sum_slowly, &held), 0);
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&inside_sum);)
        CHECK(rig_now() < end);
    int64_t start = rig_now();
    for (int i = 0; i < 100; i++)
        rig_proves_alive(rig.world, 2);
    IS(comm_progress(rig.world[0]), COMM_PENDING); /* one is busy: not idle */
    IS(comm_arm(rig.world[0]), COMM_PENDING);
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    CHECK(rig_now() - start < 5 * RIG_S);
    CHECK(atomic_load(&let_go) == 0);
    atomic_store(&let_go, 1);
    pthread_join(thread, NULL);
    MUST(comm_fd(rig.world[0], &ready.fd));
    for (int32_t r = 0; r < 2; r++) {
        EQUAL(held.out[r], 8);
        MUST(comm_close(second[r], RIG_PATIENCE));
        IS(comm_wait(unanswered[r], RIG_PATIENCE), COMM_ERR_CANCELLED);
    }
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* A callback that waits for another thread, which uses the same communicator. */
struct meeting {
    struct comm_communicator *const *c;
    _Atomic int inside, other_done;
};

static void meet_inside(struct comm_request request, enum comm_result result, void *arg)
{
    struct meeting *m = arg;
    (void)request;
    MUST(result);
    atomic_store(&m->inside, 1);
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&m->other_done); rig_nap(RIG_MS))
        CHECK(rig_now() < end);
}

static void *use_it(void *arg)
{
    struct meeting *m = arg;
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&m->inside); rig_nap(RIG_MS))
        CHECK(rig_now() < end);
    for (int i = 0; i < 20; i++)
        rig_proves_alive(m->c, 2);
    atomic_store(&m->other_done, 1);
    return NULL;
}

RIG_TEST(contract_6_2_callbacks_run_without_a_lock)
{
    struct rig rig;
    struct comm_request request;
    pthread_t thread;
    rig_open(&rig, 2, NULL);
    struct meeting m = {.c = rig.world};
    MUST(comm_barrier(rig.world[0], &request));
    MUST(comm_notify(request, meet_inside, &m));
    EQUAL(pthread_create(&thread, NULL, use_it, &m), 0);
    MUST(comm_barrier(rig.world[1], NULL));
    for (int64_t end = rig_now() + RIG_PATIENCE; !atomic_load(&m.other_done);) {
        rig_progress_for(rig.world[0], RIG_MS);
        CHECK(rig_now() < end);
    }
    pthread_join(thread, NULL);
    rig_close(&rig);
}

/* Any call from any thread: four threads on the same two communicators, each with messages and waits of its own tags. */
struct shared {
    struct rig rig;
};

static void use_shared(void *arg, int32_t thread)
{
    struct shared *s = arg;
    for (int i = 0; i < 300; i++) {
        struct comm_request q[4];
        int64_t out[2] = {thread * 1000 + i, -thread * 1000 - i}, in[2] = {0, 0};
        struct comm_request_info info = {.size = sizeof info};
        for (int32_t r = 0; r < 2; r++) {
            MUST(comm_recv(s->rig.world[r], &in[r], 1, COMM_I64, 1 - r, (uint32_t)thread, NULL, &q[r]));
            MUST(comm_send(s->rig.world[r], &out[r], 1, COMM_I64, 1 - r, (uint32_t)thread, &q[2 + r]));
        }
        if (i % 3 == 0)
            (void)!comm_describe_request(q[0], &info);
        rig_wait_all(q, 4);
        EQUAL(in[0], out[1]);
        EQUAL(in[1], out[0]);
    }
}

RIG_TEST(contract_6_2_any_call_from_any_thread)
{
    static struct shared s;
    rig_open(&s.rig, 2, NULL);
    rig_threads(4, use_shared, &s);
    rig_close(&s.rig);
}

/* ------------------------------------------------------------------------------------------------------------ 6.5 */
static int64_t computed(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return t.tv_sec * RIG_S + t.tv_nsec;
}

/* A loop armed the engine, found its request complete, and does not return to make progress: its descriptor stays
 * readable. Other waits still sleep. */
RIG_TEST(contract_6_5_a_wait_sleeps_though_a_loop_stays_armed)
{
    struct rig rig;
    struct comm_request never;
    struct pollfd ready = {.events = POLLIN};
    int32_t in = 1, out = 0, unused = 0;
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER));
    MUST(comm_fd(rig.world[0], &ready.fd));
    MUST(comm_recv(rig.world[0], &unused, 1, COMM_I32, 1, 7, NULL, &never));
    while (comm_progress(rig.world[0]) == COMM_PENDING || comm_arm(rig.world[0]) == COMM_PENDING)
        continue;
    MUST(comm_send(rig.world[1], &in, 1, COMM_I32, 1, 5, NULL));
    MUST(comm_recv(rig.world[1], &out, 1, COMM_I32, 1, 5, NULL, NULL));
    MUST(comm_wait(comm_last(rig.world[1]), RIG_PATIENCE));
    EQUAL(poll(&ready, 1, 5000), 1);
    int64_t before = computed();
    IS(comm_wait(never, 400 * RIG_MS), COMM_PENDING);
    int64_t took = computed() - before;
    rig_note("400 ms took %lld us of a CPU", (long long)(took / 1000));
    CHECK(took < 100 * RIG_MS);
    EQUAL(poll(&ready, 1, 0), 1); /* and the loop has lost nothing */
    MUST(comm_cancel(never));
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* Questions about a communicator while another thread closes it. They have its answer, or that of a closed one. */
enum { CLOSES = 300 };
struct asked {
    struct comm_communicator *world;
    _Atomic(struct comm_communicator *) copy;
    struct comm_window *window[CLOSES];
    _Atomic int windows;
    _Atomic bool over;
};

static void *close_and_close(void *arg)
{
    struct asked *a = arg;
    struct comm_communicator *copy;
    struct comm_window_options options = {.size = sizeof options, .signals = 1};
    for (int i = 0; i < CLOSES; i++) {
        MUST(NOW(comm_dup, a->world, NULL, &copy));
        MUST(NOW(comm_window_create, copy, 8, &options, &a->window[i]));
        atomic_store(&a->copy, copy);
        atomic_store(&a->windows, i + 1);
        rig_nap(RIG_MS / 10);
        MUST(comm_close(copy, RIG_PATIENCE));
    }
    atomic_store(&a->over, true);
    return NULL;
}

static void ask(const struct asked *a, struct comm_communicator *copy, struct comm_window *window, struct comm_request pending)
{
    struct comm_request both[2] = {pending};
    enum comm_result r = comm_window_wait_signal(window, 0, 0, &both[1]);
    CHECK(r == COMM_OK || r == COMM_ERR_CLOSED);
    IS(comm_wait_all((struct comm_request[]){pending, comm_last(copy)}, 2, 1000), COMM_PENDING);
    for (int i = 0; i < 100; i++) {
        int32_t to = comm_translate(copy, 0, a->world), from = comm_translate(a->world, 0, copy);
        CHECK((to == 0 || to == -1) && (from == 0 || from == -1));
    }
    r = comm_split_place(copy, COMM_PLACE_NODE, NULL, &both[1]); /* refused, after it asked for the host */
    CHECK(r == COMM_ERR_ARGUMENT || r == COMM_ERR_CLOSED);
}

RIG_TEST(contract_6_2_questions_while_another_thread_closes)
{
    struct rig rig;
    struct asked a = {0};
    struct comm_request pending;
    pthread_t thread;
    int32_t word;
    rig_open(&rig, 1, NULL);
    a.world = rig.world[0];
    MUST(comm_recv(a.world, &word, 1, COMM_I32, 0, 5, NULL, &pending));
    EQUAL(pthread_create(&thread, NULL, close_and_close, &a), 0);
    while (!atomic_load(&a.over)) {
        struct comm_communicator *copy = atomic_load(&a.copy);
        int windows = atomic_load(&a.windows);
        if (windows)
            ask(&a, copy, a.window[windows - 1], pending);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < CLOSES; i++)
        IS(comm_window_free(a.window[i]), COMM_ERR_CLOSED);
    MUST(comm_cancel(pending));
    rig_close(&rig);
}

/* A loop next to the progress thread: a signal for something that is already handled wakes the loop once or a few
 * times, not for as long as the progress thread rests or takes to wake up. */
enum { RINGS = 20 };

static void *ring_now_and_then(void *arg)
{
    struct rig *rig = arg;
    for (int i = 0; i < RINGS; i++) {
        int32_t out = 1, in = 0;
        struct comm_request q[2];
        rig_nap(5 * RIG_MS);
        MUST(comm_recv(rig->world[1], &in, 1, COMM_I32, 1, 5, NULL, &q[0]));
        MUST(comm_send(rig->world[1], &out, 1, COMM_I32, 1, 5, &q[1]));
        rig_wait_all(q, 2);
    }
    MUST(comm_send(rig->world[1], &(int32_t){7}, 1, COMM_I32, 0, 7, NULL));
    return NULL;
}

RIG_TEST(contract_6_5_a_loop_rests_beside_the_progress_thread)
{
    struct rig rig;
    struct comm_request last;
    struct pollfd ready = {.events = POLLIN};
    pthread_t thread;
    int32_t got = 0, wakes = 0;
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_THREAD));
    MUST(comm_fd(rig.world[0], &ready.fd));
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 7, NULL, &last));
    EQUAL(pthread_create(&thread, NULL, ring_now_and_then, &rig), 0);
    while (comm_test(last) == COMM_PENDING) {
        if (comm_progress(rig.world[0]) == COMM_PENDING || comm_arm(rig.world[0]) == COMM_PENDING || comm_test(last) != COMM_PENDING)
            continue;
        EQUAL(poll(&ready, 1, 5000), 1);
        wakes++;
    }
    pthread_join(thread, NULL);
    EQUAL(got, 7);
    rig_note("rung for %d times, it woke %d times", RINGS + 1, wakes);
    CHECK(wakes < 40 * RINGS);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_1_any_wait_moves_all),
        cmocka_unit_test(contract_6_1_points_join_worlds),
        cmocka_unit_test(contract_6_2_a_held_communicator_stops_no_other),
        cmocka_unit_test(contract_6_2_callbacks_run_without_a_lock),
        cmocka_unit_test(contract_6_2_any_call_from_any_thread),
        cmocka_unit_test(contract_6_2_questions_while_another_thread_closes),
        cmocka_unit_test(contract_6_5_a_wait_sleeps_though_a_loop_stays_armed),
        cmocka_unit_test(contract_6_5_a_loop_rests_beside_the_progress_thread),
    };
    return cmocka_run_group_tests_name("contract_6_engine", tests, NULL, NULL);
}
