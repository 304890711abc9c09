/*
 * Ranks in an event loop of the program: ten thousand requests that all end by callbacks; an idle loop that the library
 * does not wake; messages that leave though no further call is made; and a progress thread that moves work while the
 * program computes and makes no calls.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { REQUESTS = 10000, IN_FLIGHT = 24, LONGEST = 70000 };
#if defined(__SANITIZE_THREAD__)
enum { THREADS_OF_OTHERS = 2 }; /* the sanitizer's */
#else
enum { THREADS_OF_OTHERS = 0 };
#endif

/* ------------------------------------------------------------------------------------------------------------ the loop */
struct loop {
    struct comm_communicator *world;
    int epoll;
    int64_t wakes; /* through the descriptor */
    int64_t ended, issued;
};

static void loop_open(struct loop *l, struct proc *proc, int32_t rank)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = -1;
    *l = (struct loop){.world = proc_open(proc, rank), .epoll = epoll_create1(EPOLL_CLOEXEC)};
    MUST(comm_fd(l->world, &fd));
    EQUAL(epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static void loop_close(struct loop *l)
{
    MUST(comm_close(l->world, RIG_PATIENCE));
    close(l->epoll);
}

/* Progress until idle, arm, check once more, sleep. False: it slept for the whole patience. */
static bool loop_turn(struct loop *l, int64_t wanted, int64_t patience)
{
    struct epoll_event event;
    enum comm_result result;
    do
        result = comm_progress(l->world);
    while (result == COMM_PENDING);
    MUST(result);
    result = comm_arm(l->world);
    CHECK(result == COMM_OK || result == COMM_PENDING);
    if (result == COMM_PENDING || l->ended >= wanted)
        return true;
    int n = epoll_wait(l->epoll, &event, 1, (int)(patience / RIG_MS));
    CHECK(n >= 0 || errno == EINTR); /* a ring may interrupt */
    l->wakes += n != 0;
    return n != 0;
}

static int threads_here(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - THREADS_OF_OTHERS;
}

/* ------------------------------------------------------------------------------------------------------------ ten thousand requests */
struct chain {
    struct loop *loop;
    int64_t number, many;
    int due; /* callbacks expected for this number */
    int32_t sum[2];
    char sent[LONGEST], got[LONGEST];
    size_t bytes;
};

static void issue_next(struct chain *c);

static void chain_ended(struct comm_request request, enum comm_result result, void *arg)
{
    struct chain *c = arg;
    (void)request;
    MUST(result);
    if (--c->due)
        return;
    c->loop->ended++;
    if (c->number % 3 == 0)
        EQUAL(c->sum[1], c->sum[0] * comm_size(c->loop->world));
    else if (c->number % 3 == 1)
        CHECK(c->got[0] == (char)c->number && c->got[c->bytes - 1] == (char)(c->number / 7));
    if (c->loop->issued < c->many)
        issue_next(c);
}

/* Sums, and messages to the next rank and from the one before, small and large. All ranks issue the same in the same
 * order, because work ends in order and each receive is issued with its send. */
static void issue_next(struct chain *c)
{
    struct comm_communicator *world = c->loop->world;
    int32_t ranks = comm_size(world), rank = comm_rank(world);
    struct comm_request request;
    c->number = c->loop->issued++;
    c->due = c->number % 3 == 1 ? 2 : 1;
    if (c->number % 3 == 0) {
        c->sum[0] = (int32_t)c->number;
        MUST(comm_allreduce(world, &c->sum[0], &c->sum[1], 1, COMM_I32, COMM_SUM, &request));
    } else if (c->number % 3 == 1) {
        c->bytes = c->number % 50 == 1 ? LONGEST : 9 + (size_t)c->number % 500;
        c->sent[0] = (char)c->number;
        c->sent[c->bytes - 1] = (char)(c->number / 7);
        MUST(comm_send(world, c->sent, c->bytes, COMM_U8, (rank + 1) % ranks, (uint32_t)c->number, &request));
        MUST(comm_notify(request, chain_ended, c));
        MUST(comm_recv(world, c->got, c->bytes, COMM_U8, (rank + ranks - 1) % ranks, (uint32_t)c->number, NULL, &request));
    } else {
        MUST(comm_barrier(world, &request));
    }
    MUST(comm_notify(request, chain_ended, c));
}

static void run_chains(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static struct chain chain[IN_FLIGHT];
    struct loop loop;
    int64_t turns = 0, many = rig_quick() ? REQUESTS / 10 : REQUESTS;
    (void)world;
    loop_open(&loop, proc, rank);
    EQUAL(threads_here(), 3); /* this one, the monitor, and the thread that writes the log */
    for (int i = 0; i < IN_FLIGHT; i++) {
        chain[i].loop = &loop;
        chain[i].many = many;
        issue_next(&chain[i]);
    }
    for (; loop.ended < many; turns++)
        if (!loop_turn(&loop, many, 5 * RIG_S))
            rig_die(__FILE__, __LINE__, "rank %d: %lld of %lld ended, and nobody wakes the loop", rank, (long long)loop.ended,
                    (long long)loop.issued);
    CHECK(turns < 20 * many); /* it slept instead of polling */
    loop_close(&loop);
}

RIG_TEST(contract_6_5_ten_thousand_requests_in_a_loop)
{
    struct proc proc = {.options = "progress=caller", .raw = true};
    proc_needs_shm();
    proc_start(&proc, 3, run_chains);
    proc_finish(&proc, -1, 120 * RIG_S);
}

/* ------------------------------------------------------------------------------------------------------------ nothing to do */
enum { QUIET_S = 3 };

static int64_t slept_of(const struct rusage *before)
{
    struct rusage now;
    EQUAL(getrusage(RUSAGE_THREAD, &now), 0);
    return now.ru_nvcsw - before->ru_nvcsw;
}

static void leave_alone(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    struct rusage before;
    struct loop loop;
    int32_t word = 7, got = 0;
    (void)world;
    loop_open(&loop, proc, rank);
    MUST(comm_barrier(loop.world, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    if (rank == 0)
        MUST(comm_recv(loop.world, &got, 1, COMM_I32, 1, 4, NULL, &request));
    while (loop_turn(&loop, INT64_MAX, 2 * RIG_S)) /* the rest of the barrier: calls are published at a tick */
        ;
    loop.wakes = 0;
    EQUAL(getrusage(RUSAGE_THREAD, &before), 0);
    int64_t end = rig_now() + QUIET_S * RIG_S;
    if (rank == 1) {
        CHECK(!loop_turn(&loop, INT64_MAX, QUIET_S * RIG_S));
        CHECK(slept_of(&before) <= 2);
        MUST(comm_send(loop.world, &word, 1, COMM_I32, 0, 4, NULL));
    } else {
        while (comm_test(request) == COMM_PENDING)
            CHECK(loop_turn(&loop, INT64_MAX, RIG_PATIENCE));
        CHECK(rig_now() > end - RIG_S);
        EQUAL(got, 7);
        CHECK(loop.wakes <= 2); /* for the message, and perhaps for what follows it */
        CHECK(slept_of(&before) <= 4);
    }
    loop_close(&loop);
}

/* Neither with a pending receive nor with nothing at all; heartbeats are the monitor's task. */
RIG_TEST(contract_6_5_a_loop_is_left_alone)
{
    struct proc proc = {.options = "progress=caller", .raw = true};
    proc_needs_shm();
    proc_start(&proc, 2, leave_alone);
    proc_finish(&proc, -1, 60 * RIG_S);
}

/* ------------------------------------------------------------------------------------------------------------ the progress thread */
static _Atomic int ends;

static void count_end(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    (void)arg;
    MUST(result);
    atomic_fetch_add(&ends, 1);
}

/* Issues work, then makes no call of the library until all of it has ended. */
static void compute_meanwhile(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    enum { LENGTH = 200000, MANY = 4 };
    static float in[MANY][LENGTH], out[MANY][LENGTH];
    struct comm_request request;
    for (int round = 0; round < 5; round++) {
        atomic_store(&ends, 0);
        for (int i = 0; i < MANY; i++) {
            for (size_t k = 0; k < LENGTH; k++)
                in[i][k] = (float)(rank + i + round);
            if (i % 2 == 0)
                MUST(comm_allreduce(world, in[i], out[i], LENGTH, COMM_F32, COMM_SUM, &request));
            else
                MUST(comm_allgather(world, in[i], out[i], LENGTH / (size_t)proc->ranks, COMM_F32, &request));
            MUST(comm_notify(request, count_end, NULL));
        }
        for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&ends) < MANY;) {
            for (volatile int k = 0; k < 100000; k++)
                ;
            CHECK(rig_now() < end);
        }
        int32_t ranks = proc->ranks;
        for (int i = 0; i < MANY; i += 2)
            CHECK(out[i][LENGTH - 1] == (float)(ranks * (ranks - 1) / 2 + ranks * (i + round)));
        CHECK(out[1][LENGTH / (size_t)ranks] == (float)(1 + 1 + round));
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_6_3_a_thread_moves_work_without_a_call)
{
    struct proc proc = {.options = "progress=thread"};
    proc_needs_shm();
    proc_start(&proc, 2, compute_meanwhile);
    proc_finish(&proc, -1, 120 * RIG_S);
}

/* ------------------------------------------------------------------------------------------------------------ in a row */
enum { IN_A_ROW = 5, AWAY_S = 2 };

/* A rank sends several messages and then makes no call: none of them waits for its next call. */
static void send_and_leave(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request[IN_A_ROW];
    int32_t word[IN_A_ROW] = {0};
    for (int round = 0; round < 3; round++) {
        MUST(comm_barrier(world, &request[0]));
        MUST(comm_wait(request[0], RIG_PATIENCE));
        int64_t start = rig_now();
        for (int i = 0; i < IN_A_ROW; i++) {
            if (rank == 0)
                MUST(comm_send(world, &(int32_t){i}, 1, COMM_I32, 1, 5, NULL));
            else
                MUST(comm_recv(world, &word[i], 1, COMM_I32, 0, 5, NULL, &request[i]));
        }
        if (rank == 0)
            rig_nap(AWAY_S * RIG_S / 2);
        for (int i = 0; rank == 1 && i < IN_A_ROW; i++) {
            MUST(comm_wait(request[i], RIG_PATIENCE));
            EQUAL(word[i], i);
        }
        int64_t took = rig_now() - start;
        if (rank == 1 && took > AWAY_S * RIG_S / 4)
            rig_die(__FILE__, __LINE__, "they came after %lld ms", (long long)(took / RIG_MS));
    }
    (void)proc;
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(contract_1_2_messages_in_a_row_leave_by_themselves)
{
    struct proc proc = {.options = "progress=caller"};
    proc_needs_shm();
    proc_start(&proc, 2, send_and_leave);
    proc_finish(&proc, -1, 60 * RIG_S);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_5_ten_thousand_requests_in_a_loop),
        cmocka_unit_test(contract_6_5_a_loop_is_left_alone),
        cmocka_unit_test(contract_1_2_messages_in_a_row_leave_by_themselves),
        cmocka_unit_test(contract_6_3_a_thread_moves_work_without_a_call),
    };
    return cmocka_run_group_tests_name("contract_6_loop", tests, NULL, NULL);
}
