/*
 * One process and one engine with three carriers at once: a world over MPI, one over shared memory, and two ranks of a native that is a
 * stream, like a device's (mock). Calls are pending on all of them and are joined by events. A wait on any one makes all of them progress.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/native_fake.h"
#include "wire/native.h"

enum { PLAYED = 2, ROUNDS = 300 };

static struct comm_communicator *mpi, *shm, *mock[PLAYED];
static int32_t rank, ranks;

static struct comm_communicator *open_one(const char *backend, struct comm_communicator *engine_of)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.backend = backend, .engine_of = engine_of, .operation_timeout_ns = 20 * RIG_S,
                                               .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s: %s", backend, comm_result_name(r), text);
    return world;
}

static void open_all(void)
{
    struct comm_info info = {.size = sizeof info};
    int fd[3];
    mpi = open_one("mpi", NULL);
    shm = open_one("shm", mpi);
    fake.flags = NATIVE_STREAM;
    fake.delay = 5;
    MUST(comm_open_local(COMM_CONFIG(.engine_of = mpi, .operation_timeout_ns = 20 * RIG_S), PLAYED, NULL, mock));
    MUST(comm_fd(mpi, &fd[0]));
    MUST(comm_fd(shm, &fd[1]));
    MUST(comm_fd(mock[0], &fd[2]));
    EQUAL(fd[0], fd[1]);
    EQUAL(fd[0], fd[2]);
    MUST(comm_describe(mock[0], &info));
    EQUAL(info.device_order, 1);
    rank = comm_rank(mpi);
    ranks = comm_size(mpi);
}

/* A stream can wait for the host's work only if a thread on another CPU than the caller's progresses that work. Below MPI_THREAD_MULTIPLE
 * no thread of this library may call MPI, so there the host waits. */
static void stream_waits(struct comm_communicator *stream, struct comm_request q)
{
    const char *threads = getenv("COMM_MPI_THREADS");

    if (threads && strcmp(threads, "multiple") != 0 && comm_test(q) == COMM_PENDING) {
        enum comm_result r = comm_queue_wait_request(stream, q);
        CHECK(r == COMM_OK || r == COMM_ERR_UNSUPPORTED); /* OK: the call was already complete */
        MUST(comm_wait(q, RIG_PATIENCE));
    } else {
        MUST(comm_queue_wait_request(stream, q));
    }
}

/* mpi -> shm -> mock -> mpi, joined by events and requests, with one comm_sync each. */
static void in_a_ring(int round, struct comm_event *event)
{
    int64_t a = rank + round, b = 0, c = 0, d[PLAYED] = {0}, e = 0, want = (int64_t)ranks * (ranks - 1) / 2 + (int64_t)round * ranks;
    struct comm_request q[3];
    if (round % ranks == rank)
        rig_nap(RIG_MS / 4); /* a different rank is late each time */
    MUST(comm_allreduce(mpi, &a, &b, 1, COMM_I64, COMM_SUM, &q[0]));
    MUST(comm_event_record(event, mpi));
    MUST(comm_queue_wait_event(shm, event));
    MUST(comm_allreduce(shm, &b, &c, 1, COMM_I64, COMM_MAX, &q[1]));
    for (int i = 0; i < PLAYED; i++) {
        stream_waits(mock[i], q[1]);
        MUST(comm_allreduce(mock[i], &c, &d[i], 1, COMM_I64, COMM_SUM, &q[2]));
    }
    MUST(comm_queue_wait_request(mpi, q[2]));
    MUST(comm_allreduce(mpi, &d[PLAYED - 1], &e, 1, COMM_I64, COMM_SUM, NULL));
    switch (round % 3) {
    case 0:
        MUST(comm_sync(mpi, COMM_FOREVER));
        break;
    case 1:
        MUST(comm_sync(shm, COMM_FOREVER));
        break;
    default:
        MUST(comm_sync(mock[1], COMM_FOREVER));
    }
    MUST(comm_sync(mock[0], COMM_FOREVER));
    MUST(comm_sync(mock[1], COMM_FOREVER));
    MUST(comm_sync(shm, COMM_FOREVER));
    MUST(comm_sync(mpi, COMM_FOREVER));
    EQUAL(b, want);
    EQUAL(c, want);
    EQUAL(d[0], PLAYED * want);
    EQUAL(e, PLAYED * want * ranks);
}

/* Many calls are pending on each carrier, not joined. A wait for any one of them lets all of them complete. */
static void nothing_starves(int round)
{
    enum { MANY = 20 };
    static int64_t in[3][MANY], out[3][MANY], other[MANY];
    static struct comm_request q[4][MANY];
    for (int i = 0; i < MANY; i++) {
        in[0][i] = in[1][i] = in[2][i] = rank + i;
        MUST(comm_allreduce(mpi, &in[0][i], &out[0][i], 1, COMM_I64, COMM_SUM, &q[0][i]));
        MUST(comm_allreduce(shm, &in[1][i], &out[1][i], 1, COMM_I64, COMM_SUM, &q[1][i]));
        MUST(comm_allreduce(mock[0], &in[2][i], &out[2][i], 1, COMM_I64, COMM_SUM, &q[2][i]));
        MUST(comm_allreduce(mock[1], &in[2][i], &other[i], 1, COMM_I64, COMM_SUM, &q[3][i]));
    }
    MUST(comm_wait(q[round % 4][MANY - 1], RIG_PATIENCE));
    for (int64_t end = rig_now() + 5 * RIG_S;;) { /* progress on any one of them must complete the rest */
        int pending = 0;
        for (int k = 0; k < 4; k++)
            pending += comm_test(q[k][MANY - 1]) == COMM_PENDING;
        if (!pending)
            break;
        CHECK(rig_now() < end);
    }
    for (int i = 0; i < MANY; i++) {
        EQUAL(out[0][i], out[1][i]);
        EQUAL(out[2][i], 2 * (rank + i));
    }
}

int main(void)
{
    struct comm_event *event;
    rig_end_after(100);
    open_all();
    MUST(comm_event_create(mpi, &event));
    for (int round = 0; round < ROUNDS / (int)rig_thin(1, 3, 5); round++) {
        in_a_ring(round, event);
        nothing_starves(round);
    }
    comm_event_free(event);
    for (int i = 0; i < PLAYED; i++)
        MUST(comm_close(mock[i], RIG_PATIENCE));
    MUST(comm_close(shm, RIG_PATIENCE));
    MUST(comm_close(mpi, RIG_PATIENCE));
    return 0;
}
