/*
 * Windows as users see them. Each case is the work of one rank, run by threads over the in-process wire and by processes over shared
 * memory. The tests also run (COMM_BACKEND) over connections, between hosts, and with memory of the caller that peers cannot address; then
 * the same calls go to the owner of a part. Parts that a rank cannot read directly it then reads by comm_get.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "window/cases.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };

_Thread_local void *window_copy;

/* ------------------------------------------------------------------------------------------------------------ threads and processes */
static window_case *const cases[] = {window_all_populated, window_leader_populated,
                                     window_puts_and_gets, window_sums,
                                     window_tickets,       window_ring,
                                     window_rings,         window_held,
                                     window_behind_work,   window_swap_around,
                                     window_swap_behind,   window_own_memory,
                                     window_heap_memory,   window_crowds,
                                     window_refusals,      window_closed_first};
enum { CASES = sizeof cases / sizeof *cases };

static void all_cases(struct comm_communicator *c)
{
    for (int i = 0; i < CASES; i++) {
        if (comm_rank(c) == 0)
            rig_note("case %d\n", i);
        cases[i](c, comm_rank(c), comm_size(c));
    }
    free(window_copy);
    window_copy = NULL;
}

static void thread_of(void *arg, int32_t rank)
{
    all_cases(((struct rig *)arg)->world[rank]);
}

static void in_threads(int32_t ranks, const char *options)
{
    struct rig rig;
    rig_open_options(&rig, ranks, options);
    rig_threads(ranks, thread_of, &rig);
    rig_close(&rig);
}

RIG_TEST(windows_of_threads)
{
    in_threads(RANKS, "");
}

RIG_TEST(windows_of_two_with_the_least_of_everything)
{
    in_threads(2, "minimal=1,window=4,progress=thread");
}

static void main_of(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    (void)rank;
    all_cases(world);
    MUST(comm_close(world, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(windows_of_processes)
{
    struct proc proc = {.options = ""};
    proc_needs_shm();
    proc_start(&proc, RANKS, main_of);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* A put has no memory to go through, so the communicator fails in the same pass in which two messages end. */
static void fails_amid_messages(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static int32_t word = 1, got;
    static char part[200000];
    struct comm_window_options options = {.size = sizeof options, .base = part};
    struct comm_request req[3];
    struct comm_window *w;
    void *at;
    (void)proc;
    MUST(NOW(comm_window_create, world, sizeof part, &options, &w));
    barrier(world);
    if (rank == 0) {
        for (size_t bytes = (size_t)64 << 20; bytes >= 4096; bytes /= 2)
            while (comm_mem_alloc(world, bytes, &at) == COMM_OK)
                ;
        MUST(comm_recv(world, &got, 1, COMM_I32, 0, 1, NULL, &req[0]));
        MUST(comm_put(w, part, sizeof part, COMM_BYTE, 1, 0, &req[1]));
        MUST(comm_send(world, &word, 1, COMM_I32, 0, 1, &req[2]));
        for (int i = 0; i < 3; i++)
            IS(comm_wait(req[i], RIG_PATIENCE), COMM_ERR_MEMORY);
    }
    for (int i = 0; i < 3; i++) { /* they take places in the same list */
        uint64_t flags = 1;
        MUST(comm_agree(world, &flags, &req[0]));
        MUST(comm_wait(req[0], RIG_PATIENCE));
    }
    (void)comm_close(world, RIG_PATIENCE);
    (void)comm_window_free(w);
}

RIG_TEST(windows_without_memory_end_messages_once)
{
    struct proc proc = {.options = ""};
    proc_needs_shm();
    setenv("COMM_BACKEND", "shm", 1); /* each test is a process of its own */
    setenv("COMM_SHM_SEGMENT_BYTES", "67108864", 1);
    proc_start(&proc, 3, fails_amid_messages); /* of 3 ranks: what comm_mem_alloc leaves of a segment is too little for chunks */
    proc_finish(&proc, -1, RIG_PATIENCE);
}

static void free_inside(struct comm_request req, enum comm_result result, void *arg)
{
    (void)req;
    (void)result;
    struct comm_window **w = arg;
    IS(comm_window_free(w[0]), COMM_ERR_STATE);
    w[1] = w[0];
}

RIG_TEST(windows_end_outside_callbacks)
{
    struct rig rig;
    struct comm_window *w[2] = {NULL, NULL};
    struct comm_request req;
    rig_open(&rig, 1, NULL);
    w[0] = make(rig.world[0], 8, 0);
    MUST(comm_barrier(rig.world[0], &req));
    MUST(comm_notify(req, free_inside, w));
    rig_progress_for(rig.world[0], 5 * RIG_MS);
    CHECK(w[1] == w[0]);
    MUST(comm_window_free(w[0]));
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ ends */
static void free_in_close(struct comm_request req, enum comm_result result, void *arg)
{
    (void)req;
    (void)result;
    struct comm_window **w = arg;
    IS(comm_window_free(w[0]), COMM_ERR_STATE);
    w[1] = w[0];
}

/* The callback runs where the communicator is already closing. */
RIG_TEST(windows_are_not_freed_in_callbacks_of_a_close)
{
    struct rig rig;
    struct comm_window *w[2] = {NULL, NULL};
    struct comm_request req;
    rig_open(&rig, 1, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .notify = COMM_NOTIFY_PROGRESS));
    w[0] = make(rig.world[0], 8, 0);
    MUST(comm_barrier(rig.world[0], &req));
    MUST(comm_notify(req, free_in_close, w));
    CHECK(!w[1]);
    MUST(comm_close(rig.world[0], RIG_PATIENCE));
    CHECK(w[1] == w[0]);
    IS(comm_window_free(w[0]), COMM_ERR_CLOSED);
}

struct ending {
    struct comm_communicator *c;
    struct comm_window *w;
    enum comm_result closed, freed;
    _Atomic bool is_freed;
};

static void *close_it(void *arg)
{
    struct ending *ending = arg;
    ending->closed = comm_close(ending->c, RIG_PATIENCE);
    return NULL;
}

static void *free_it(void *arg)
{
    struct ending *ending = arg;
    ending->freed = comm_window_free(ending->w);
    atomic_store(&ending->is_freed, true);
    return NULL;
}

/* The close waits for a barrier, and the free for the end of the close. */
RIG_TEST(windows_are_freed_beside_a_close)
{
    struct rig rig;
    struct comm_window *w[2];
    struct comm_request req[2];
    struct comm_info info = {.size = sizeof info};
    pthread_t closes, frees;
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++)
        MUST(comm_window_create(rig.world[r], 64, NULL, &w[r], &req[r]));
    MUST(comm_wait_all(req, 2, RIG_PATIENCE));
    MUST(comm_barrier(rig.world[0], NULL));
    struct ending ending = {.c = rig.world[0], .w = w[0]};
    EQUAL(pthread_create(&closes, NULL, close_it, &ending), 0);
    while (comm_describe(rig.world[0], &info) != COMM_ERR_CLOSED)
        rig_nap(RIG_MS / 10);
    EQUAL(pthread_create(&frees, NULL, free_it, &ending), 0);
    rig_nap(20 * RIG_MS);
    CHECK(!atomic_load(&ending.is_freed));
    MUST(NOW(comm_barrier, rig.world[1]));
    pthread_join(closes, NULL);
    pthread_join(frees, NULL);
    IS(ending.closed, COMM_OK);
    IS(ending.freed, COMM_ERR_CLOSED);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
    IS(comm_window_free(w[1]), COMM_ERR_CLOSED);
}

/* At every moment of a close that has nothing to wait for. */
RIG_TEST(windows_are_freed_at_any_moment_of_a_close)
{
    enum { CLOSES = 200 };
    struct rig rig;
    rig_open(&rig, 1, NULL);
    for (int i = 0; i < CLOSES; i++) {
        struct ending ending = {.closed = COMM_PENDING};
        pthread_t closes;
        MUST(NOW(comm_dup, rig.world[0], NULL, &ending.c));
        ending.w = make(ending.c, 64, 0);
        EQUAL(pthread_create(&closes, NULL, close_it, &ending), 0);
        rig_nap(i * 1000);
        (void)free_it(&ending);
        pthread_join(closes, NULL);
        IS(ending.closed, COMM_OK);
        CHECK(ending.freed == COMM_OK || ending.freed == COMM_ERR_CLOSED);
    }
    rig_close(&rig);
}

/* A wait that a queue wait holds back has not looked at its counter yet: it does not end because the ranks that signalled have closed. */
RIG_TEST(windows_held_waits_outlive_their_peers)
{
    struct rig rig;
    struct comm_window *w[2];
    struct comm_window_options options = {.size = sizeof options, .signals = 1};
    struct comm_request req[2], wait;
    struct comm_event *gate;
    rig_open(&rig, 2, NULL);
    for (int r = 0; r < 2; r++)
        MUST(comm_window_create(rig.world[r], 64, &options, &w[r], &req[r]));
    MUST(comm_wait_all(req, 2, RIG_PATIENCE));
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_window_signal(w[1], 0, 0, 1, NULL));
    MUST(comm_window_wait_signal(w[0], 0, 1, &wait));
    IS(comm_close(rig.world[1], RIG_PATIENCE), COMM_OK);
    rig.world[1] = NULL;
    (void)comm_window_free(w[1]);
    IS(comm_wait(wait, RIG_S), COMM_PENDING);
    MUST(comm_event_set(gate));
    done(wait);
    comm_event_free(gate);
    (void)comm_close(rig.world[0], RIG_PATIENCE);
    (void)comm_window_free(w[0]);
}

/* Two windows are fenced in different order, which is detected, and reported equally on all ranks. No rank fences before all have created
 * theirs, because the failure would end that. */
static _Atomic int made;

static void crossed(void *arg, int32_t rank)
{
    struct comm_communicator *c = ((struct rig *)arg)->world[rank];
    struct comm_window *w[2] = {make(c, 8, 0), make(c, 8, 0)};
    struct comm_request req[2];
    enum comm_result r = COMM_OK;
    for (atomic_fetch_add(&made, 1); atomic_load(&made) < RANKS;)
        rig_nap(RIG_MS / 10);
    for (int i = 0; i < 2 && r == COMM_OK; i++)
        r = comm_window_fence(w[rank == 1 ? 1 - i : i], &req[i]);
    r = r == COMM_OK ? comm_wait(req[1], RIG_PATIENCE) : r;
    EQUAL(r, COMM_ERR_MISMATCH);
    for (int i = 0; i < 2; i++)
        IS(comm_window_free(w[i]), COMM_ERR_MISMATCH);
    (void)!comm_close(c, COMM_DEFAULT_TIMEOUT);
}

RIG_TEST(windows_of_different_order_mismatch)
{
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_threads(RANKS, crossed, &rig);
}

/* Over sockets, memory from comm_mem_alloc is ordinary memory, and a world of one rank has windows too. */
static void apart_of(void *arg, int32_t rank)
{
    struct comm_communicator *c = ((struct rig *)arg)->world[rank], *alone;
    struct comm_request req;
    void *memory;
    window_left_alone(c, rank, comm_size(c));
    MUST(comm_mem_alloc(c, 100000, &memory));
    memset(memory, rank, 100000);
    MUST(comm_allreduce(c, COMM_IN_PLACE, memory, 100000, COMM_U8, COMM_MAX, &req));
    done(req);
    EQUAL(((unsigned char *)memory)[99999], comm_size(c) - 1);
    comm_mem_free(c, memory);
    MUST(NOW(comm_split, c, rank, 0, &alone));
    window_refusals(alone, 0, 1);
    window_tickets(alone, 0, 1);
    MUST(comm_close(alone, COMM_DEFAULT_TIMEOUT));
}

RIG_TEST(windows_where_nothing_is_shared)
{
    struct comm_backend_info info = {.size = sizeof info};
    struct rig rig;
    for (size_t i = 0; strcmp(info.name, "tcp") != 0; i++)
        if (comm_describe_backend(i, &info) != COMM_OK)
            rig_skip("this library has no backend called tcp");
    if (info.missing[0])
        rig_skip(info.missing);
    setenv("COMM_BACKEND", "tcp", 1);
    rig_open_options(&rig, 2, "progress=thread");
    rig_threads(2, apart_of, &rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_threads),
        cmocka_unit_test(windows_of_two_with_the_least_of_everything),
        cmocka_unit_test(windows_of_processes),
        cmocka_unit_test(windows_without_memory_end_messages_once),
        cmocka_unit_test(windows_end_outside_callbacks),
        cmocka_unit_test(windows_are_not_freed_in_callbacks_of_a_close),
        cmocka_unit_test(windows_are_freed_beside_a_close),
        cmocka_unit_test(windows_are_freed_at_any_moment_of_a_close),
        cmocka_unit_test(windows_held_waits_outlive_their_peers),
        cmocka_unit_test(windows_where_nothing_is_shared),
        cmocka_unit_test(windows_of_different_order_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
