/*
 * Communicators created and closed in long rows, ten at a time, each used a little. They use up nothing of the process: descriptors,
 * mappings and resident memory are counted after the first few hundred and again at the end. Page faults are counted too: memory is not
 * returned to the kernel and requested again for each communicator. No error occurs. COMM_TEST_MADE sets how many of each kind. With
 * COMM_BACKEND the test runs over another wire. It also runs in one process, where only memory can be used up.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    RANKS = 2,
    TOGETHER = 10,
    FIRST = 400,
    MOST = 20000,
    LONG = 100000,
    ROUNDS_A_USE = 50,
    PATIENCE_S = 240,
    EACH_S = 10,
    MORE_MAPPINGS = 4,
    MORE_KIB = 6144
};
enum kind { DUP, SPLIT, SUBSET, KINDS };
static const char *const names[] = {"dup", "split", "subset"};

struct counts {
    int64_t descriptors, mappings, resident_kib, faults;
};

static int64_t lines_of(const char *path)
{
    FILE *file = fopen(path, "re");
    int64_t lines = 0;

    CHECK(file != NULL);
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static struct counts count(void)
{
    struct counts counts = {.descriptors = proc_entries("/proc/self/fd", NULL), .mappings = lines_of("/proc/self/maps")};
    FILE *status = fopen("/proc/self/status", "re");
    char line[128];
    long long kib = 0;

    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) && sscanf(line, "VmRSS: %lld", &kib) != 1)
        ;
    fclose(status);
    counts.resident_kib = kib;
    struct rusage use;
    EQUAL(getrusage(RUSAGE_SELF, &use), 0);
    counts.faults = use.ru_minflt;
    return counts;
}

static void make(struct comm_communicator *world, enum kind kind, uint32_t tag, struct comm_communicator **out, struct comm_request *req)
{
    static const int32_t all[] = {0, 1};

    if (kind == DUP)
        MUST(comm_dup(world, NULL, out, req));
    else if (kind == SPLIT)
        MUST(comm_split(world, 7, 0, out, req));
    else
        MUST(comm_subset(world, all, RANKS, tag, out, req));
}

/* Uses lines, and now and then places and messages: all kinds of memory of a channel. */
static void use(struct comm_communicator *c, uint64_t round, bool with_all)
{
    static _Thread_local unsigned char bytes[LONG], came[LONG];
    struct comm_request req[2];
    uint64_t sum = round;
    int32_t other = 1 - comm_rank(c);

    MUST(comm_allreduce(c, COMM_IN_PLACE, &sum, 1, COMM_U64, COMM_SUM, &req[0]));
    MUST(comm_wait(req[0], RIG_PATIENCE));
    EQUAL(sum, RANKS * round);
    if (!with_all)
        return;
    memset(bytes, (int)(round % 120), sizeof bytes);
    MUST(comm_recv(c, came, LONG, COMM_BYTE, other, 3, NULL, &req[0]));
    MUST(comm_send(c, bytes, LONG, COMM_BYTE, other, 3, &req[1]));
    MUST(comm_wait_all(req, 2, RIG_PATIENCE));
    EQUAL(came[LONG - 1], round % 120);
    MUST(comm_allreduce(c, COMM_IN_PLACE, bytes, LONG, COMM_U8, COMM_SUM, &req[0]));
    MUST(comm_wait(req[0], RIG_PATIENCE));
    EQUAL(bytes[LONG - 1], RANKS * (round % 120));
}

/* Each kind has a time limit, because ranks wait for CPUs on a busy machine. All ranks stop at the same round. */
static bool time_is_up(struct comm_communicator *world, int64_t until)
{
    struct comm_request req;
    int32_t up = rig_now() > until;

    MUST(comm_allreduce(world, COMM_IN_PLACE, &up, 1, COMM_I32, COMM_MAX, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
    return up;
}

/* Returns how many were created. */
static int64_t rounds(struct comm_communicator *world, enum kind kind, int64_t many, int64_t until)
{
    struct comm_communicator *c[TOGETHER];
    struct comm_request req[TOGETHER];
    int64_t i = 0;

    for (; i < many / TOGETHER && (i % ROUNDS_A_USE || !time_is_up(world, until)); i++) {
        for (int k = 0; k < TOGETHER; k++)
            make(world, kind, (uint32_t)k, &c[k], &req[k]);
        MUST(comm_wait_all(req, TOGETHER, RIG_PATIENCE));
        use(c[i % TOGETHER], (uint64_t)i, i % ROUNDS_A_USE == 0);
        for (int k = 0; k < TOGETHER; k++)
            MUST(comm_close(c[k], RIG_PATIENCE));
        if (i % 100 == 0)
            rig_note("%lld of %lld by %s\n", (long long)i * TOGETHER, (long long)many, names[kind]);
    }
    return i * TOGETHER;
}

static int64_t how_many(void)
{
    const char *text = getenv("COMM_TEST_MADE");

    return text ? strtoll(text, NULL, 10) : (int64_t)selected(MOST, MOST / 2, MOST / 10);
}

static void barrier(struct comm_communicator *world)
{
    struct comm_request req;

    MUST(comm_barrier(world, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
}

/* Both ranks have closed the communicators when they count, because one may hold memory until the other has closed. Neither closes the
 * world before both have counted, because a rank closes the descriptor by which it watched a peer that has left. */
static struct counts count_together(struct comm_communicator *world)
{
    barrier(world);
    struct counts counts = count();
    barrier(world);
    return counts;
}

static void made_main(struct comm_communicator *world, bool alone)
{
    for (int kind = 0; kind < KINDS; kind++) {
        (void)rounds(world, (enum kind)kind, FIRST, INT64_MAX);
        struct counts before = count_together(world);
        int64_t from = rig_now(), until = getenv("COMM_TEST_MADE") ? INT64_MAX : from + EACH_S * RIG_S;
        int64_t made = rounds(world, (enum kind)kind, how_many(), until), took = rig_now() - from;
        struct counts after = count_together(world);
        printf("%s: %lld made, used and closed, %lld ns each; descriptors %lld to %lld, mappings %lld to %lld, resident KiB %lld to %lld, "
               "%lld page faults\n",
               names[kind], (long long)made, (long long)(took / made), (long long)before.descriptors, (long long)after.descriptors,
               (long long)before.mappings, (long long)after.mappings, (long long)before.resident_kib, (long long)after.resident_kib,
               (long long)(after.faults - before.faults));
        fflush(stdout);
        CHECK(!alone || after.descriptors == before.descriptors);
        CHECK(after.mappings <= before.mappings + MORE_MAPPINGS);
        CHECK(after.resident_kib <= before.resident_kib + MORE_KIB);
        CHECK(after.faults - before.faults < made / 2 + MORE_KIB / 4);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

static void process_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    (void)rank;
    made_main(world, true);
}

RIG_TEST(made_by_processes)
{
    struct proc proc = {.options = "progress=caller"};

    proc_needs_shm();
    proc_start(&proc, RANKS, process_main);
    proc_finish(&proc, -1, PATIENCE_S * RIG_S);
}

static void thread_main(void *arg, int32_t rank)
{
    made_main(((struct rig *)arg)->world[rank], false);
}

RIG_TEST(made_by_threads)
{
    struct rig rig;

    rig_not_over("tcp", "ranks of one process have a wire of their own");
    rig_open(&rig, RANKS, NULL);
    rig_threads(RANKS, thread_main, &rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(made_by_processes), cmocka_unit_test(made_by_threads)};

    return cmocka_run_group_tests_name("proc_made", tests, NULL, NULL);
}
