/*
 * No memory, at each allocation in turn. A world of three ranks uses every feature once, and the n-th allocation fails, for n = 1, 2, 3 ...
 * until a run needs fewer. Every run must end in time, return results that fit, have correct data wherever a result is OK, and leak
 * nothing. Each run is a process of its own.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "engine/memory_env.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, LARGE = 70000, BURST = 100, STEPS = 12, RUN_SECONDS = 120, MOST_TAKES = 4000 };
/* A correct run stays far below these limits on any machine. */
#define DEADLINE (30 * RIG_S)
#define PATIENCE (60 * RIG_S)

struct party {
    struct comm_communicator *world[RANKS];
    _Atomic int called;
};

/* ------------------------------------------------------------------------------------------------------------ accepted results */
/* True for the cause itself, the results that announce it, and the abort with which the application here reacts. Any other result is an
 * error. */
static bool follows(enum comm_result r)
{
    return r == COMM_OK || r == COMM_ERR_MEMORY || r == COMM_ERR_REFUSED || r == COMM_ERR_ABORTED || r == COMM_ERR_FULL ||
           r == COMM_ERR_CANCELLED || r == COMM_ERR_CLOSED || r == COMM_ERR_DEPENDENCY || r == COMM_ERR_ABANDONED;
}

static void expect(enum comm_result r, const char *what, int line)
{
    if (!follows(r))
        rig_die(__FILE__, line, "%s: %s", what, comm_result_name(r));
}
#define EXPECT(call) expect((call), #call, __LINE__)

/* Waits for the request; it must end in time. Returns true only if it ended with OK. */
static bool well(struct comm_request request, const char *what, int line)
{
    enum comm_result r = comm_wait(request, PATIENCE);

    if (!follows(r) && request.comm) {
        struct comm_error error = {.size = sizeof error};
        (void)!comm_error_detail(request.comm, &error);
        rig_die(__FILE__, line, "%s: %s: %s", what, comm_result_name(r), error.text);
    }
    expect(r, what, line);
    return r == COMM_OK;
}
#define WELL(request) well(request, #request, __LINE__)

/* ------------------------------------------------------------------------------------------------------------ the steps */
static void collectives(struct comm_communicator *c, int32_t rank, size_t n)
{
    int32_t *in = calloc(n * RANKS, sizeof *in), *out = calloc(n * RANKS, sizeof *out);
    size_t counts[RANKS] = {n, n / 2, n}, displs[RANKS] = {0, n, 2 * n};
    struct comm_request q;
    for (size_t i = 0; i < n * RANKS; i++)
        in[i] = (int32_t)i % 1000 + rank;
    EXPECT(comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &q));
    if (WELL(q))
        CHECK(out[0] == 3 && out[n - 1] == 3 * ((int32_t)(n - 1) % 1000) + 3);
    EXPECT(comm_broadcast(c, rank == 1 ? in : out, n, COMM_I32, 1, &q));
    if (WELL(q))
        CHECK(rank == 1 || out[n - 1] == (int32_t)(n - 1) % 1000 + 1);
    EXPECT(comm_reduce(c, in, out, n, COMM_I32, COMM_MAX, 2, &q));
    if (WELL(q))
        CHECK(rank != 2 || out[n - 1] == (int32_t)(n - 1) % 1000 + 2);
    EXPECT(comm_reduce_scatter(c, in, out, n, COMM_I32, COMM_SUM, &q));
    if (WELL(q))
        CHECK(out[0] == 3 * ((int32_t)(n * (size_t)rank) % 1000) + 3);
    EXPECT(comm_allgather(c, in, out, n, COMM_I32, &q));
    if (WELL(q))
        CHECK(out[0] == 0 && out[n] == 1 && out[2 * n] == 2);
    EXPECT(comm_allgather_v(c, in, out, counts, displs, COMM_I32, &q));
    if (WELL(q))
        CHECK(out[0] == 0 && out[n] == 1 && out[2 * n] == 2);
    EXPECT(comm_barrier(c, &q));
    (void)WELL(q);
    free(in);
    free(out);
}

/* A rank that aborted may still receive messages meant for receives that it never posted, until it learns the cause of the failure. */
static _Thread_local bool gave_up;

static void give_up(struct comm_communicator *c, int32_t code)
{
    gave_up = true;
    EXPECT(comm_abort(c, code));
}

/* If a send fails, the application aborts, because the peer would wait for ever. */
static bool sent(struct comm_communicator *c, enum comm_result r, const char *what, int line)
{
    expect(r, what, line);
    if (r != COMM_OK)
        give_up(c, 7);
    return r == COMM_OK;
}
#define SENT(call) sent(c, (call), #call, __LINE__)

static void messages(struct comm_communicator *c, int32_t rank, size_t n, int many)
{
    int32_t *out = calloc(n, sizeof *out), *in = calloc(n * (size_t)many, sizeof *in), to = (rank + 1) % RANKS, from = (rank + 2) % RANKS;
    struct comm_request q[2 * BURST];
    int count = 0;
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        out[i] = rank * 7 + (int32_t)i;
    for (int i = 0; i < many && ok; i++)
        ok = SENT(comm_send(c, out, n, COMM_I32, to, (uint32_t)i, &q[count])) && ++count;
    for (int i = 0; i < many && ok; i++) /* the last one first, so that all others must be kept */
        ok =
            SENT(comm_recv(c, in + n * (size_t)i, n, COMM_I32, i == 0 ? COMM_ANY_PEER : from, (uint32_t)(many - 1 - i), NULL, &q[count])) &&
            ++count;
    for (int i = 0; i < count; i++) {
        enum comm_result r = comm_wait(q[i], PATIENCE);
        expect(r, "a message", __LINE__);
        if (r != COMM_OK)
            give_up(c, 8);
        else if (i >= many && !gave_up)
            CHECK(in[n * (size_t)(i - many)] == from * 7 && in[n * (size_t)(i - many) + n - 1] == from * 7 + (int32_t)n - 1);
    }
    free(in);
    free(out);
}

static void to_itself(struct comm_communicator *c, int32_t rank)
{
    int64_t out = rank, in = -1;
    struct comm_request q[2] = {{NULL, 0}, {NULL, 0}};
    if (SENT(comm_send(c, &out, 1, COMM_I64, rank, 99, &q[0])) && SENT(comm_recv(c, &in, 1, COMM_I64, rank, 99, NULL, &q[1])) &&
        WELL(q[1]) && WELL(q[0]))
        CHECK(in == rank);
}

static void count_call(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    if (result != COMM_ERR_TIMEOUT)
        expect(result, "a callback's result", __LINE__);
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void children(struct party *p, struct comm_communicator *c, int32_t rank)
{
    struct comm_communicator *child = NULL;
    struct comm_request q;
    int64_t one = 1, sum = 0;
    enum comm_result r = comm_dup(c, NULL, &child, &q);
    expect(r, "dup", __LINE__);
    r = comm_wait(q, PATIENCE);
    expect(r, "dup's request", __LINE__);
    CHECK((r == COMM_OK) == (child != NULL));
    if (child) {
        EXPECT(comm_allreduce(child, &one, &sum, 1, COMM_I64, COMM_SUM, &q));
        if (q.comm)
            EXPECT(comm_notify(q, count_call, &p->called));
        if (WELL(q))
            CHECK(sum == 3);
        EXPECT(comm_close(child, PATIENCE));
    }
    child = NULL;
    if (rank != 1) { /* if one member cannot begin, the other waits for it in vain */
        static const int32_t pair[] = {2, 0};
        r = NOW(comm_subset, c, pair, 2, 11, &child);
        expect(r, "subset", __LINE__);
        CHECK((r == COMM_OK) == (child != NULL));
        if (r != COMM_OK && comm_test(comm_last(c)) != r)
            EXPECT(comm_abort(c, 9));
        if (child) {
            CHECK(comm_size(child) == 2 && comm_rank(child) == (rank == 0));
            EXPECT(comm_close(child, PATIENCE));
        }
    }
    child = NULL;
    r = NOW(comm_split, c, rank == 2 ? COMM_NO_COLOR : 4, -rank, &child);
    expect(r, "split", __LINE__);
    CHECK((r == COMM_OK && rank != 2) == (child != NULL));
    if (child) {
        CHECK(comm_size(child) == 2 && comm_rank(child) == 1 - rank);
        EXPECT(comm_allreduce(child, &one, &sum, 1, COMM_I64, COMM_SUM, &q));
        if (WELL(q))
            CHECK(sum == 2);
        EXPECT(comm_close(child, PATIENCE));
    }
}

/* A call that returns an error sets none of the communicators, also later: the array may be gone by then. */
static void mesh(struct comm_communicator *c)
{
    static const int32_t shape[2] = {1, RANKS};
    struct comm_communicator *axis[2] = {NULL, NULL};
    struct comm_request q;
    enum comm_result r = comm_split_mesh(c, shape, 2, axis, &q);
    expect(r, "split_mesh", __LINE__);
    if (r == COMM_OK)
        expect(comm_wait(q, PATIENCE), "split_mesh's request", __LINE__);
    else
        expect(comm_sync(c, PATIENCE), "comm_sync", __LINE__);
    CHECK(r == COMM_OK || (!axis[0] && !axis[1]));
    for (int i = 0; i < 2; i++)
        EXPECT(comm_close(axis[i], PATIENCE));
}

static void plans(struct comm_communicator *c, int32_t rank)
{
    struct comm_communicator *record = NULL;
    struct comm_plan *plan = NULL;
    struct comm_request q;
    int64_t in[STEPS], out[STEPS][RANKS] = {{0}};
    size_t counts[RANKS] = {1, 1, 1};
    enum comm_result r = comm_plan_begin(c, &record), bad = COMM_OK;
    expect(r, "plan_begin", __LINE__);
    if (r == COMM_OK) {
        for (int i = 0; i < STEPS; i++) {
            in[i] = rank + i;
            r = i % 2 ? comm_allgather_v(record, &in[i], out[i], counts, NULL, COMM_I64, NULL)
                      : comm_allreduce(record, &in[i], &out[i][0], 1, COMM_I64, COMM_SUM, NULL);
            expect(r, "a recorded call", __LINE__);
            bad = bad == COMM_OK ? r : bad;
        }
        EXPECT(comm_plan_end(record, &plan));
    }
    if (!plan || bad != COMM_OK)
        EXPECT(comm_abort(c, 9));
    for (int k = 0; k < 2 && plan && bad == COMM_OK; k++) {
        EXPECT(comm_plan_start(plan, &q));
        if (WELL(q))
            CHECK(out[0][0] == 3 && out[1][2] == 3 && out[STEPS - 2][0] == 3 * (STEPS - 2) + 3 && out[STEPS - 1][1] == STEPS);
    }
    comm_plan_free(plan);
}

/* Queues more operations behind a gate than the queue has room for at first. */
static void events(struct comm_communicator *c)
{
    struct comm_event *gate = NULL;
    static _Thread_local int64_t in[BURST], out[BURST];
    struct comm_request q[BURST];
    int count = 0;
    EXPECT(comm_event_create(c, &gate));
    enum comm_result reset = gate ? comm_event_reset(gate) : COMM_ERR_STATE;
    if (gate) { /* without an event the rest runs ungated, because the other ranks make these calls too */
        expect(reset, "event_reset", __LINE__);
        EXPECT(comm_queue_wait_event(c, gate));
    }
    for (int i = 0; i < BURST; i++) {
        in[i] = i;
        enum comm_result r = comm_allreduce(c, &in[i], &out[i], 1, COMM_I64, COMM_SUM, &q[count]);
        expect(r, "gated allreduce", __LINE__);
        if (r == COMM_ERR_FULL) { /* nothing was queued: the earlier operations must make progress first */
            if (reset == COMM_OK && comm_event_query(gate) == COMM_PENDING)
                EXPECT(comm_event_set(gate));
            reset = COMM_ERR_STATE;
            if (count)
                (void)WELL(q[count - 1]);
            i--;
        } else {
            count++;
        }
    }
    if (reset == COMM_OK)
        EXPECT(comm_event_set(gate));
    for (int i = 0; i < count; i++)
        if (WELL(q[i]))
            CHECK(out[i] == 3 * i);
    if (gate) {
        EXPECT(comm_event_record(gate, c));
        EXPECT(comm_event_sync(gate, PATIENCE));
        comm_event_free(gate);
    }
}

static void gradients(struct comm_communicator *c)
{
    static _Thread_local float data[4][300];
    struct comm_gradient list[4];
    struct comm_buckets *b = NULL;
    for (size_t i = 0; i < 4; i++) {
        list[i] = (struct comm_gradient){.data = data[i], .count = 300, .type = COMM_F32};
        for (size_t k = 0; k < 300; k++)
            data[i][k] = (float)i;
    }
    enum comm_result r = comm_buckets_create(c, list, 4, NULL, &b);
    expect(r, "buckets_create", __LINE__);
    if (r != COMM_OK) {
        EXPECT(comm_abort(c, 10));
        return;
    }
    for (size_t i = 4; i-- > 0;)
        EXPECT(comm_buckets_ready(b, i));
    r = comm_buckets_wait(b, PATIENCE);
    expect(r, "buckets_wait", __LINE__);
    if (r == COMM_OK)
        CHECK(data[3][299] == 3 && data[1][0] == 1);
    comm_buckets_free(b);
}

/* One window in memory from comm_mem_alloc, and one in memory of the library. */
static void windows(struct comm_communicator *c, int32_t rank)
{
    void *base = NULL;
    EXPECT(comm_mem_alloc(c, 8192, &base));
    for (int i = 0; i < 2; i++) {
        struct comm_window_options options = {.size = sizeof options, .signals = 1, .base = i ? base : NULL};
        struct comm_window *w = NULL;
        struct comm_request q = COMM_REQUEST_NONE;
        int64_t value = rank, old = -1;
        enum comm_result r = NOW(comm_window_create, c, 8192, &options, &w);
        expect(r, "window_create", __LINE__);
        CHECK((r == COMM_OK) == (w != NULL));
        if (!w)
            continue;
        if (SENT(comm_put(w, &value, 1, COMM_I64, (rank + 1) % RANKS, 8, &q)) &&
            SENT(comm_window_signal(w, (rank + 1) % RANKS, 0, 1, &q)) && SENT(comm_window_wait_signal(w, 0, 1, &q)) && WELL(q) &&
            SENT(comm_fetch_op(w, &value, &old, 1, COMM_I64, COMM_SUM, rank, 8, &q)) && WELL(q))
            CHECK(old == (rank + 2) % RANKS);
        EXPECT(comm_window_fence(w, &q));
        (void)WELL(q);
        EXPECT(comm_window_free(w));
    }
    comm_mem_free(c, base);
}

static void everything(void *arg, int32_t rank)
{
    struct party *p = arg;
    struct comm_communicator *c = p->world[rank];
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request last;
    collectives(c, rank, 2);
    collectives(c, rank, 5000);
    collectives(c, rank, LARGE);
    messages(c, rank, 1, BURST);
    messages(c, rank, 700, 20);
    messages(c, rank, LARGE, 2);
    to_itself(c, rank);
    children(p, c, rank);
    mesh(c);
    plans(c, rank);
    events(c);
    gradients(c);
    windows(c, rank);
    last = comm_last(c);
    (void)WELL(last);
    (void)!comm_describe_request(last, &info);
    EXPECT(comm_sync(c, COMM_FOREVER));
    EXPECT(comm_close(c, PATIENCE));
}

/* ------------------------------------------------------------------------------------------------------------ one run */
static void hung(int number)
{
    static const char text[] = "hung\n";
    (void)number;
    ssize_t told = write(2, text, sizeof text - 1);
    _exit(told > 0 ? 1 : 2);
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* Exit status 0: the fault occurred and all checks passed; 3: the run had fewer allocations. */
static _Noreturn void run(uint64_t fail_at, uint64_t more)
{
    struct party p = {{NULL}, 0};
    static const int fatal[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL); /* affects only this process */
    signal(SIGALRM, hung);
    alarm(RUN_SECONDS);
    rig_note("take %llu and %llu more have no memory", (unsigned long long)fail_at, (unsigned long long)more);
    atomic_store(&memory_fail_more, more);
    atomic_store(&memory_fail_at, fail_at);
    enum comm_result r = comm_open_local(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = DEADLINE, .log = quiet),
                                         RANKS, NULL, p.world);
    if (r == COMM_OK)
        rig_threads(RANKS, everything, &p);
    else
        IS(r, COMM_ERR_MEMORY);
    if (atomic_load(&memory_failed) == 0) {
        CHECK(atomic_load(&p.called) == RANKS);
        CHECK(r == COMM_OK);
    }
    if (atomic_load(&memory_held) != 0)
        memory_tell();
    EQUAL(atomic_load(&memory_held), 0);
    EQUAL(atomic_load(&memory_held_bytes), 0);
    _exit(atomic_load(&memory_failed) ? 0 : 3);
}

static bool sweep(uint64_t from, uint64_t step, uint64_t more)
{
    int bad = 0;
    for (uint64_t n = from; n < MOST_TAKES; n += step) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            run(n, more);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
            print_message("%llu runs\n", (unsigned long long)((n - from) / step));
            return bad == 0;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            print_message("take %llu: %s %d\n", (unsigned long long)n, WIFSIGNALED(status) ? "signal" : "exit",
                          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            if (++bad == 10)
                return false;
        }
    }
    return false; /* no run was without a fault */
}

#if defined(__SANITIZE_THREAD__)
enum { SPARSER = 3 }; /* under TSan fewer runs, because the threads repeat the same work in each */
#else
enum { SPARSER = 1 };
#endif

static void every_take(void **state)
{
    (void)state;
    assert_true(sweep(1, selected(1, 3, 7 * SPARSER), 0));
}

/* Several allocations in a row fail, so that retries fail too. */
static void stretches(void **state)
{
    (void)state;
    assert_true(sweep(1, selected(5, 13, 31 * SPARSER), 6));
}

/* With a number as argument: only that run, in this process. */
int main(int argc, char **argv)
{
    if (argc > 1)
        run((uint64_t)strtoull(argv[1], NULL, 10), argc > 2 ? (uint64_t)strtoull(argv[2], NULL, 10) : 0);

    const struct CMUnitTest tests[] = {cmocka_unit_test(every_take), cmocka_unit_test(stretches)};

    return cmocka_run_group_tests_name("engine_faults", tests, NULL, NULL);
}
