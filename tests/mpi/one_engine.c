/*
 * One process and one engine that drives every carrier at once: a world over tcp on io_uring, one over tcp on epoll, one over shared
 * memory, one that MPI serves, one on the wire over MPI, and two ranks of NCCL (mock). The queues are joined by events into one chain, and
 * each has one comm_sync a round. A different rank is late in each round.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "cuda/bench.h"
#include "cuda/mock.h"

#include <commstream/cuda.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { URING, EPOLL, SHM, NATIVE, WIRE, HOSTS, NCCL = HOSTS, CARRIERS = HOSTS + 2, DEVICES = 2, WORDS = 16, ROUNDS = 300 };
#define SYNC_MOST_NS (2 * RIG_S)
#define IDLE_MOST_US 10000 /* of a second */

struct device_rank {
    struct bench bench;
    struct CUstream_st *stream;
    uint32_t *in, *out;
};

static const char *const names[] = {"tcp on io_uring", "tcp on epoll", "shm", "mpi", "shm+mpi", "nccl 0", "nccl 1"};
static struct comm_communicator *carrier[CARRIERS];
static struct device_rank device[DEVICES];
static int32_t rank, ranks;
static int64_t sync_longest;
static int sync_of;

/* ------------------------------------------------------------------------------------------------------------ opening */
/* An option of the environment for one opening alone. */
static void open_one(int k, const char *backend, const char *name, const char *value)
{
    char text[512] = "";

    if (name)
        setenv(name, value, 1);
    enum comm_result r = comm_open(COMM_CONFIG(.backend = backend, .engine_of = carrier[0], .operation_timeout_ns = 20 * RIG_S,
                                               .error_text = text, .error_text_bytes = sizeof text),
                                   &carrier[k]);
    if (name)
        unsetenv(name);
    if (r == COMM_ERR_UNSUPPORTED && k == URING) { /* a container may refuse it */
        printf("skipped: %s\n", text);
        exit(77);
    }
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s: %s", names[k], comm_result_name(r), text);
}

static void open_devices(void)
{
    char why[256] = "";

    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    CHECK(bench_load(why, sizeof why));
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .engine_of = carrier[0], .operation_timeout_ns = 20 * RIG_S), DEVICES, NULL,
                         &carrier[NCCL]));
    for (int d = 0; d < DEVICES; d++) {
        bench_open(&device[d].bench, d);
        device[d].stream = bench_stream(&device[d].bench);
        device[d].in = bench_memory(&device[d].bench, WORDS);
        device[d].out = bench_memory(&device[d].bench, WORDS);
    }
}

static void open_all(void)
{
    static const char *const backends[] = {"tcp", "tcp", "shm", "mpi", "shm+mpi", "nccl", "nccl"};
    struct comm_info info = {.size = sizeof info};
    int first = -1, other = -1;

    open_one(URING, "tcp", "COMM_TCP_POLLER", "io_uring");
    rank = comm_rank(carrier[0]);
    ranks = comm_size(carrier[0]);
    open_one(EPOLL, "tcp", "COMM_TCP_POLLER", "epoll");
    open_one(SHM, "shm", NULL, NULL);
    open_one(NATIVE, "mpi", NULL, NULL);
    open_one(WIRE, "shm+mpi", "COMM_HOST", "a,b"); /* a host for each rank: nothing but MPI is between them */
    open_devices();
    MUST(comm_fd(carrier[0], &first));
    for (int k = 0; k < CARRIERS; k++) {
        MUST(comm_fd(carrier[k], &other));
        EQUAL(first, other);
        MUST(comm_describe(carrier[k], &info));
        if (strcmp(info.backend, backends[k]) != 0)
            rig_die(__FILE__, __LINE__, "%s is on backend %s", names[k], info.backend);
    }
}

static void close_all(void)
{
    for (int k = CARRIERS; k-- > 0;)
        MUST(comm_close(carrier[k], RIG_PATIENCE));
    for (int d = 0; d < DEVICES; d++) {
        bench_free(&device[d].bench, device[d].in);
        bench_free(&device[d].bench, device[d].out);
        bench_drop_stream(&device[d].bench, device[d].stream);
        bench_close(&device[d].bench);
    }
    mock_run(false);
}

/* ------------------------------------------------------------------------------------------------------------ a chain */
static void sync_one(int k)
{
    int64_t start = rig_now();

    MUST(comm_sync(carrier[k], RIG_PATIENCE));
    int64_t took = rig_now() - start;
    if (took > sync_longest) {
        sync_longest = took;
        sync_of = k;
    }
    if (took > SYNC_MOST_NS)
        rig_die(__FILE__, __LINE__, "comm_sync of %s took %lld ms", names[k], (long long)(took / RIG_MS));
}

/* Puts a sum of the round's number on both devices, behind what the event is for. */
static void on_devices(int round, struct comm_event *event, struct comm_request *q)
{
    for (int d = 0; d < DEVICES; d++) {
        bench_fill(&device[d].bench, device[d].stream, device[d].in, (uint32_t)round, WORDS);
        MUST(comm_queue_wait_stream(carrier[NCCL + d], device[d].stream));
        MUST(comm_queue_wait_event(carrier[NCCL + d], event));
        MUST(comm_allreduce(carrier[NCCL + d], device[d].in, device[d].out, WORDS, COMM_U32, COMM_SUM, &q[d]));
    }
}

static void in_a_chain(int round, struct comm_event *event)
{
    int64_t value[HOSTS + 1] = {rank + round}, last = 0, want = (int64_t)ranks * (ranks - 1) / 2 + (int64_t)round * ranks;
    struct comm_request q[CARRIERS];

    if (round % ranks == rank)
        rig_nap(RIG_MS);
    for (int k = 0; k < HOSTS; k++) {
        if (k)
            MUST(comm_queue_wait_event(carrier[k], event));
        MUST(comm_allreduce(carrier[k], &value[k], &value[k + 1], 1, COMM_I64, k ? COMM_MAX : COMM_SUM, &q[k]));
        MUST(comm_event_record(event, carrier[k]));
    }
    on_devices(round, event, &q[NCCL]);
    MUST(comm_queue_wait_request(carrier[URING], q[NCCL + 1]));
    MUST(comm_allreduce(carrier[URING], &value[HOSTS], &last, 1, COMM_I64, COMM_SUM, NULL));
    for (int i = 0; i < CARRIERS; i++) {
        int k = (round + i) % CARRIERS;
        sync_one(k);
        for (int before = 0; k != URING && before <= k && before < HOSTS; before++)
            IS(comm_test(q[before]), COMM_OK); /* what the chain puts before it has ended */
    }
    for (int k = 0; k < HOSTS; k++)
        EQUAL(value[k + 1], want);
    EQUAL(last, want * ranks);
    for (int d = 0; d < DEVICES; d++) {
        uint32_t got[WORDS];
        bench_read(&device[d].bench, device[d].stream, got, device[d].out, WORDS);
        EQUAL(got[WORDS - 1], DEVICES * (uint32_t)round);
    }
}

/* Many calls are pending on each carrier, not joined. A wait for one of them lets all of them end. */
static void nothing_starves(int round)
{
    enum { MANY = 10 };
    static int64_t in[MANY], out[HOSTS][MANY];
    struct comm_request q[CARRIERS];

    for (int i = 0; i < MANY; i++) {
        in[i] = rank + i;
        for (int k = 0; k < HOSTS; k++)
            MUST(comm_allreduce(carrier[k], &in[i], &out[k][i], 1, COMM_I64, COMM_SUM, &q[k]));
        for (int d = 0; d < DEVICES; d++)
            MUST(comm_allreduce(carrier[NCCL + d], device[d].in, device[d].out, WORDS, COMM_U32, COMM_SUM, &q[NCCL + d]));
    }
    MUST(comm_wait(q[round % CARRIERS], RIG_PATIENCE));
    for (int64_t end = rig_now() + 5 * RIG_S;;) {
        int pending = -1;
        for (int k = 0; k < CARRIERS; k++)
            pending = comm_test(q[k]) == COMM_PENDING ? k : pending;
        if (pending < 0)
            break;
        if (rig_now() > end)
            rig_die(__FILE__, __LINE__, "%s starves", names[pending]);
    }
    for (int k = 0; k < HOSTS; k++)
        for (int i = 0; i < MANY; i++)
            EQUAL(out[k][i], (int64_t)ranks * (ranks - 1) / 2 + (int64_t)i * ranks);
}

/* ------------------------------------------------------------------------------------------------------------ at rest */
static void *let_go(void *stream)
{
    rig_nap(20 * RIG_MS);
    mock_hold(stream, false);
    return NULL;
}

/* Sleeps on the descriptor until the request has ended. What ends it comes 20 ms later, from the late rank or from the device. Returns how
 * often the descriptor woke it. */
static int sleep_until(int k, struct comm_request q)
{
    struct pollfd p = {.events = POLLIN};
    int woken = 0;

    MUST(comm_fd(carrier[k], &p.fd));
    for (int64_t start = rig_now();;) {
        enum comm_result r;
        do
            r = comm_progress(carrier[k]);
        while (r == COMM_PENDING);
        MUST(r);
        if (comm_test(q) != COMM_PENDING)
            return woken;
        r = comm_arm(carrier[k]);
        if (r == COMM_PENDING)
            continue;
        MUST(r);
        if (poll(&p, 1, 5000) != 1 || rig_now() - start > 5 * RIG_S)
            rig_die(__FILE__, __LINE__, "comm_fd slept through what %s waited for", names[k]);
        woken++;
    }
}

static int wakes_for_host(int k)
{
    int64_t in = 1, out = 0;
    struct comm_request q;

    if (rank == ranks - 1)
        rig_nap(20 * RIG_MS);
    MUST(comm_allreduce(carrier[k], &in, &out, 1, COMM_I64, COMM_SUM, &q));
    int woken = sleep_until(k, q);
    EQUAL(out, ranks);
    return woken;
}

static int wakes_for_devices(void)
{
    struct comm_request q[DEVICES];
    pthread_t thread;

    mock_hold(device[0].stream, true);
    CHECK(pthread_create(&thread, NULL, let_go, device[0].stream) == 0);
    for (int d = 0; d < DEVICES; d++) {
        bench_fill(&device[d].bench, device[d].stream, device[d].in, 7, WORDS);
        MUST(comm_queue_wait_stream(carrier[NCCL + d], device[d].stream));
        MUST(comm_allreduce(carrier[NCCL + d], device[d].in, device[d].out, WORDS, COMM_U32, COMM_SUM, &q[d]));
    }
    int woken = sleep_until(NCCL, q[0]);
    (void)sleep_until(NCCL + 1, q[1]);
    pthread_join(thread, NULL);
    return woken;
}

/* Nothing is lost in any turn. In at least one turn the loop slept: on a busy machine a poll of MPI or NCCL takes long, and then looks like
 * copying, during which no loop sleeps. */
static void wakes_for_each(void)
{
    int woken[HOSTS + 1] = {0};

    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < HOSTS; k++)
            woken[k] += wakes_for_host(k);
        woken[NCCL] += wakes_for_devices();
    }
    for (int k = 0; k <= HOSTS; k++)
        if (!woken[k] && (k == NCCL || rank != ranks - 1))
            rig_die(__FILE__, __LINE__, "the loop never slept while %s was pending", names[k]);
}

static long cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000L + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* The least of three seconds counts, since a busy machine makes each wake-up dearer. */
static void costs_nothing_at_rest(struct comm_event *gate)
{
    long least = -1;

    mock_run(false); /* its thread is the mock's own cost */
    MUST(comm_event_reset(gate));
    for (int i = 0; i < 3; i++) {
        long before = cpu_us();
        IS(comm_event_sync(gate, RIG_S), COMM_PENDING);
        long took = cpu_us() - before;
        least = least < 0 || took < least ? took : least;
    }
    mock_run(true);
    printf("rank %d: %ld us of CPU in an idle second; the longest comm_sync, of %s, took %lld us\n", rank, least, names[sync_of],
           (long long)(sync_longest / 1000));
    if (least > IDLE_MOST_US)
        rig_die(__FILE__, __LINE__, "%ld us of CPU in an idle second, expected at most %d", least, IDLE_MOST_US);
}

int main(void)
{
    struct comm_event *event;

    rig_end_after(110);
    open_all();
    MUST(comm_event_create(carrier[0], &event));
    for (int round = 0; round < ROUNDS / (int)rig_thin(1, 3, 5); round++) {
        rig_note("round %d", round);
        in_a_chain(round, event);
        nothing_starves(round);
    }
    wakes_for_each();
    costs_nothing_at_rest(event);
    comm_event_free(event);
    close_all();
    return 0;
}
