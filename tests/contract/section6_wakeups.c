/*
 * No wake-up is lost. Every wait here sleeps at once (no spinning, no yielding), so each round is a race between a
 * thread that publishes and then looks for sleepers, and a thread that announces its sleep and then looks once more. If
 * a wake-up is lost, the sleeper continues only a second later: the test looks for that.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 2000 };
#else
enum { ROUNDS = 8000 };
#endif
static const char sleepy[] = "spin=0,yield=0,progress=caller,cpus=64";
static const int64_t lost = 950 * RIG_MS;

static int rounds(int divide)
{
    return (rig_quick() ? ROUNDS / 10 : ROUNDS) / divide;
}

/* For this process: a thread that sleeps for 5 ms again and again detects when the whole machine stood still. */
static struct {
    _Atomic pid_t pid;
    _Atomic int64_t stood; /* total ns by which it slept too long */
} canary;

static void *sleep_and_look(void *arg)
{
    (void)arg;
    for (;;) {
        int64_t before = rig_now();
        rig_nap(5 * RIG_MS);
        int64_t late = rig_now() - before - 5 * RIG_MS;
        if (late > 50 * RIG_MS)
            atomic_fetch_add(&canary.stood, late);
    }
    return NULL;
}

static int64_t begin(void)
{
    pthread_t thread;
    if (atomic_exchange(&canary.pid, getpid()) != getpid()) { /* a child process has none yet; any of its threads may be the first */
        EQUAL(pthread_create(&thread, NULL, sleep_and_look, NULL), 0);
        pthread_detach(thread);
    }
    return rig_now() - atomic_load(&canary.stood);
}

/* A sleeper whose wake-up is lost sleeps until the next tick. */
static void in_time(int64_t start, int i)
{
    int64_t now = rig_now(), took = now - atomic_load(&canary.stood) - start;
    if (took > lost) { /* the canary may not have been given a CPU yet */
        rig_nap(100 * RIG_MS);
        took = now - atomic_load(&canary.stood) - start;
    }
    if (took > lost)
        rig_die(__FILE__, __LINE__, "round %d took %lld ms: nobody was woken", i, (long long)(took / RIG_MS));
}

static void ping_pong(struct comm_communicator *c, int32_t rank, int count)
{
    for (int i = 0; i < count; i++) {
        struct comm_request q;
        int32_t word = i, got = -1;
        int64_t start = begin();
        if (i % 2 == rank) {
            MUST(comm_send(c, &word, 1, COMM_I32, 1 - rank, 0, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
        } else {
            MUST(comm_recv(c, &got, 1, COMM_I32, 1 - rank, 0, NULL, &q));
            MUST(comm_wait(q, RIG_PATIENCE));
            EQUAL(got, i);
        }
        in_time(start, i);
    }
}

static void sums(struct comm_communicator *c, int32_t ranks, int count)
{
    for (int i = 0; i < count; i++) {
        struct comm_request q;
        int32_t one = 1, sum = 0;
        int64_t start = begin();
        MUST(comm_allreduce(c, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, ranks);
        in_time(start, i);
    }
}

/* ------------------------------------------------------------------------------------------------------------ threads of one engine */
static void thread_ping(void *arg, int32_t rank)
{
    ping_pong(((struct rig *)arg)->world[rank], rank, rounds(1));
}

RIG_TEST(contract_6_4_threads_ping_pong)
{
    struct rig rig;
    rig_open_options(&rig, 2, sleepy);
    rig_threads(2, thread_ping, &rig);
    rig_close(&rig);
}

static void thread_sum(void *arg, int32_t rank)
{
    sums(((struct rig *)arg)->world[rank], 3, rounds(2));
}

/* One sleeps on the bell, the others park behind it; the one that finishes first must leave a thread that polls. */
RIG_TEST(contract_6_4_three_threads)
{
    struct rig rig;
    rig_open_options(&rig, 3, sleepy);
    rig_threads(3, thread_sum, &rig);
    rig_close(&rig);
}

struct couples {
    struct rig rig;
    struct comm_communicator *second[2];
};

static void couple(void *arg, int32_t thread)
{
    struct couples *c = arg;
    int32_t rank = thread % 2;
    ping_pong(thread < 2 ? c->rig.world[rank] : c->second[rank], rank, rounds(4));
}

RIG_TEST(contract_6_4_two_couples)
{
    static struct couples c;
    rig_open_options(&c.rig, 2, sleepy);
    rig_dup(c.rig.world, 2, c.second);
    rig_threads(4, couple, &c);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_close(c.second[r], RIG_PATIENCE));
    rig_close(&c.rig);
}

/* Points that are set by hand: the setting thread is never inside a wait of the library. */
struct gates {
    struct comm_communicator *c;
    struct comm_event *event[2];
    _Atomic int reset, passed;
};

static void *set_them(void *arg)
{
    struct gates *g = arg;
    for (int i = 0; i < rounds(4); i++) {
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&g->reset) <= i;)
            CHECK(rig_now() < end);
        MUST(comm_event_set(g->event[i % 2]));
    }
    return NULL;
}

RIG_TEST(contract_6_4_events_set_by_hand)
{
    struct rig rig;
    struct gates g = {0};
    pthread_t thread;
    rig_open_options(&rig, 1, sleepy);
    g.c = rig.world[0];
    for (int i = 0; i < 2; i++)
        MUST(comm_event_create(g.c, &g.event[i]));
    EQUAL(pthread_create(&thread, NULL, set_them, &g), 0);
    for (int i = 0; i < rounds(4); i++) {
        struct comm_request q;
        int64_t start = begin();
        MUST(comm_event_reset(g.event[i % 2]));
        MUST(comm_queue_wait_event(g.c, g.event[i % 2]));
        MUST(comm_barrier(g.c, &q));
        atomic_store(&g.reset, i + 1);
        if (i % 2)
            MUST(comm_event_sync(g.event[i % 2], RIG_PATIENCE));
        MUST(comm_wait(q, RIG_PATIENCE));
        in_time(start, i);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        comm_event_free(g.event[i]);
    rig_close(&rig);
}

/* A loop that sleeps only on the descriptor, while another thread issues. */
static void *issue_rounds(void *arg)
{
    struct gates *g = arg;
    for (int i = 0; i < rounds(4); i++) {
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&g->passed) < i;)
            CHECK(rig_now() < end);
        MUST(comm_barrier(g->c, NULL));
    }
    return NULL;
}

static void sleep_until(struct comm_communicator *c, struct comm_request q, struct pollfd *ready)
{
    while (comm_test(q) == COMM_PENDING) {
        while (comm_progress(c) == COMM_PENDING)
            continue;
        enum comm_result armed = comm_arm(c);
        if (comm_test(q) == COMM_PENDING && armed == COMM_OK)
            EQUAL(poll(ready, 1, 5000), 1);
    }
}

RIG_TEST(contract_6_4_a_loop_on_the_descriptor)
{
    struct rig rig;
    struct gates g = {0};
    pthread_t thread;
    struct pollfd ready = {.events = POLLIN};
    rig_open_options(&rig, 2, sleepy);
    g.c = rig.world[1];
    MUST(comm_fd(rig.world[0], &ready.fd));
    EQUAL(pthread_create(&thread, NULL, issue_rounds, &g), 0);
    for (int i = 0; i < rounds(4); i++) {
        struct comm_request q;
        int64_t start = begin();
        MUST(comm_barrier(rig.world[0], &q));
        atomic_store(&g.passed, i);
        sleep_until(rig.world[0], q, &ready);
        in_time(start, i);
    }
    pthread_join(thread, NULL);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ processes */
static void process_ping(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    ping_pong(world, rank, rounds(1));
    sums(world, 2, rounds(2));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_6_4_processes_ping_pong)
{
    struct proc proc = {.options = sleepy};
    proc_needs_shm();
    proc_start(&proc, 2, process_ping);
    proc_finish(&proc, -1, 60 * RIG_S);
}

static void process_sum(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)rank;
    sums(world, proc->ranks, rounds(4));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_6_4_four_processes)
{
    struct proc proc = {.options = sleepy};
    proc_needs_shm();
    proc_start(&proc, 4, process_sum);
    proc_finish(&proc, -1, 60 * RIG_S);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_4_threads_ping_pong),
        cmocka_unit_test(contract_6_4_three_threads),
        cmocka_unit_test(contract_6_4_two_couples),
        cmocka_unit_test(contract_6_4_events_set_by_hand),
        cmocka_unit_test(contract_6_4_a_loop_on_the_descriptor),
        cmocka_unit_test(contract_6_4_processes_ping_pong),
        cmocka_unit_test(contract_6_4_four_processes),
    };
    return cmocka_run_group_tests_name("contract_6_wakeups", tests, NULL, NULL);
}
