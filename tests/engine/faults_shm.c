/*
 * No memory in one of two processes, at each of its allocations in turn. The other process must not hang: it is notified, or its opening
 * ends in time. Data is correct wherever a result is OK, and the process without memory leaks nothing.
 */
#define _GNU_SOURCE
#include "engine/memory_env.h"
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 60000, MOST = 1000 };
static uint64_t fail_at;

static bool follows(enum comm_result r)
{
    return r == COMM_OK || r == COMM_ERR_MEMORY || r == COMM_ERR_REFUSED || r == COMM_ERR_ABORTED || r == COMM_ERR_FULL ||
           r == COMM_ERR_CLOSED || r == COMM_ERR_PEER || r == COMM_ERR_CANCELLED;
}

static bool well(enum comm_result r, struct comm_request q, const char *what)
{
    if (r == COMM_OK)
        r = comm_wait(q, 8 * RIG_S);
    if (!follows(r))
        rig_die(__FILE__, __LINE__, "%s: %s", what, comm_result_name(r));
    return r == COMM_OK;
}

static bool sums(struct comm_communicator *c, size_t n)
{
    int32_t *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    struct comm_request q;
    in[n - 1] = 3;
    bool ok = well(comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &q), q, "allreduce");
    if (ok)
        CHECK(out[n - 1] == 6);
    free(in);
    free(out);
    return ok;
}

static bool swap(struct comm_communicator *c, int32_t rank, size_t n)
{
    int32_t *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    struct comm_request q[2] = {{NULL, 0}, {NULL, 0}};
    out[n - 1] = rank + 5;
    enum comm_result sent = comm_send(c, out, n, COMM_I32, 1 - rank, 0, &q[0]);
    enum comm_result received = comm_recv(c, in, n, COMM_I32, 1 - rank, 0, NULL, &q[1]);
    if (sent != COMM_OK || received != COMM_OK)
        (void)!comm_abort(c, 1); /* the peer would wait for the message */
    bool ok = well(sent, q[0], "send");
    if (!ok)
        (void)!comm_abort(c, 1);
    ok &= well(received, q[1], "recv");
    if (ok)
        CHECK(in[n - 1] == 1 - rank + 5);
    free(in);
    free(out);
    return ok;
}

/* MEMORY means that both ranks got it, or that nothing happened. If the other rank gave up, the child has only this rank. */
static void recover(struct comm_communicator *c)
{
    struct comm_communicator *child = NULL;
    enum comm_result r = COMM_ERR_MEMORY;
    uint64_t flags = 6;
    for (int i = 0; i < 4 && r == COMM_ERR_MEMORY; i++)
        r = NOW(comm_agree, c, &flags);
    CHECK(r == COMM_OK || r == COMM_ERR_ABORTED);
    EQUAL(flags, 6);
    r = r == COMM_OK ? COMM_ERR_MEMORY : r;
    for (int i = 0; i < 4 && r == COMM_ERR_MEMORY; i++)
        r = NOW(comm_shrink, c, &child);
    CHECK(r == COMM_OK || r == COMM_ERR_ABORTED);
    CHECK((r == COMM_OK) == (child != NULL));
    if (child && comm_size(child) == 2)
        sums(child, 2);
    if (child)
        (void)comm_close(child, 4 * RIG_S);
}

static void work(struct comm_communicator *c, int32_t rank)
{
    struct comm_communicator *child = NULL;
    struct comm_request q;
    sums(c, 1);
    sums(c, LARGE);
    swap(c, rank, 1);
    swap(c, rank, 1000);
    swap(c, rank, LARGE);
    if (well(comm_dup(c, NULL, &child, &q), q, "dup")) {
        CHECK(child != NULL);
        sums(child, 2);
        (void)comm_close(child, 4 * RIG_S);
    }
    sums(c, 5);
    recover(c);
}

static void quiet(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static void rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    (void)none;
    if (rank == 1)
        atomic_store(&memory_fail_at, fail_at);
    int64_t start = rig_now();
    enum comm_result r =
        comm_open(COMM_CONFIG(.backend = "shm", .open_timeout_ns = RIG_S, .operation_timeout_ns = 6 * RIG_S, .log = quiet), &world);
    CHECK(rig_now() - start < 4 * RIG_S);
    CHECK((r == COMM_OK) == (world != NULL));
    if (world) {
        work(world, rank);
        enum comm_result closed = comm_close(world, 4 * RIG_S);
        CHECK(closed == COMM_OK || closed == COMM_ERR_TIMEOUT);
    } else {
        CHECK(r == COMM_ERR_MEMORY || (rank == 0 && r < 0));
    }
    if (atomic_load(&memory_held) != 0)
        memory_tell();
    EQUAL(atomic_load(&memory_held), 0);
    atomic_store(&proc->page[rank].number[0], (int64_t)atomic_load(&memory_failed));
}

RIG_TEST(no_memory_in_one_process)
{
    proc_needs_shm();
    for (fail_at = 1; fail_at < MOST; fail_at += rig_quick() ? 9 : 1) {
        struct proc proc = {.raw = true};
        rig_note("take %llu of rank 1 has no memory", (unsigned long long)fail_at);
        proc_start(&proc, 2, rank_main);
        proc_finish(&proc, -1, RIG_PATIENCE);
        if (proc.page[1].number[0] == 0)
            return;
    }
    rig_die(__FILE__, __LINE__, "no run without a fault");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory_in_one_process)};

    return cmocka_run_group_tests_name("engine_faults_shm", tests, NULL, NULL);
}
