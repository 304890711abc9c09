/*
 * The cost of waiting and idling, whatever makes progress. A rank that waits for a late peer sleeps. An idle library wakes up for its
 * monitor's tick once a second, and for nothing else. The kernel counts, so other load on the machine does not matter.
 */
#define _GNU_SOURCE
#include "proc/proc.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { IDLE_S = 1, WAKES_MOST = 8, SETTLES = 10, QUIET = 3 };
static const char *const modes[] = {"progress=caller", "progress=thread", "progress=auto"};
enum { MODES = sizeof modes / sizeof *modes };

/* Prints the numbers; they are also part of a failure's message. */
static void tell(const char *mode, int32_t rank, const char *what, int64_t cpu_ns, int64_t wakes)
{
    rig_note("%s, rank %d, %s: %lld us of a CPU, %lld wake-ups of other threads", mode, rank, what, (long long)cpu_ns / 1000,
             (long long)wakes);
    printf("%s, rank %d, %s: %lld us of a CPU, %lld wake-ups of other threads\n", mode, rank, what, (long long)cpu_ns / 1000,
           (long long)wakes);
}

static int64_t processor_ns(void)
{
    struct rusage use;

    EQUAL(getrusage(RUSAGE_SELF, &use), 0);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * RIG_S + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

/* How often the threads of this process, except the first, have slept and woken up. */
static int64_t wakes_of_others(void)
{
    char path[300], line[128];
    int64_t sum = 0;
    DIR *tasks = opendir("/proc/self/task");

    CHECK(tasks != NULL);
    for (struct dirent *t; (t = readdir(tasks));) {
        if (t->d_name[0] == '.' || strtol(t->d_name, NULL, 10) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", t->d_name);
        FILE *file = fopen(path, "r");
        CHECK(file != NULL);
        while (fgets(line, sizeof line, file)) {
            const char *at = strstr(line, "voluntary_ctxt_switches:");
            sum += at == line ? strtol(line + strlen("voluntary_ctxt_switches:"), NULL, 10) : 0;
        }
        fclose(file);
    }
    closedir(tasks);
    return sum;
}

static void meet(struct comm_communicator *world)
{
    float in = 1, out;
    struct comm_request request;

    for (int i = 0; i < 100; i++) {
        MUST(comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
    }
}

/* number[3]: threads besides the monitor that have a tick of their own. */
static bool is_quiet(const struct proc_page *page)
{
    int64_t most = (1 + page->number[3]) * (page->number[2] / RIG_S + 1); /* one may be near each end of the interval */

    return page->number[0] < IDLE_S * RIG_S / 200 && page->number[1] <= most;
}

static void idle_second(struct proc_page *page)
{
    int64_t from = rig_now(), used = processor_ns(), woken = wakes_of_others();

    rig_nap(IDLE_S * RIG_S);
    page->number[0] = processor_ns() - used;
    page->number[1] = wakes_of_others() - woken;
    page->number[2] = rig_now() - from; /* longer than requested if CPUs are busy */
}

/* On busy CPUs, threads come to rest later. But once at rest they stay so: each second after the first quiet one is quiet. */
static void count_idle(struct proc_page *page)
{
    bool quiet = false;

    for (int i = 0; i < SETTLES && !quiet; i++) {
        rig_nap(RIG_S / 10);
        idle_second(page);
        quiet = is_quiet(page);
    }
    for (int i = 0; i < QUIET && quiet; i++) {
        idle_second(page);
        quiet = is_quiet(page);
    }
}

static void idle(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    meet(world);
    count_idle(&proc->page[rank]);
    MUST(comm_barrier(world, NULL));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* A window part for which others may send requests at any time, and did. Without requests it costs nothing, except the tick of a progress
 * thread, which then sleeps on the bell. */
static void idle_owner(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static int64_t part;
    struct comm_window_options options = {.size = sizeof options, .base = &part};
    struct comm_window *w;
    struct comm_request request;

    meet(world);
    MUST(NOW(comm_window_create, world, sizeof part, &options, &w));
    for (int64_t i = 0; i < 100 && rank == 1; i++) {
        MUST(comm_put(w, &i, 1, COMM_I64, 0, 0, &request));
        MUST(comm_wait(request, RIG_PATIENCE));
    }
    meet(world);
    proc->page[rank].number[3] = 1;
    count_idle(&proc->page[rank]);
    MUST(comm_window_free(w));
    MUST(comm_close(world, RIG_PATIENCE));
}

/* All modes at the same time, since none of them uses a CPU meanwhile. */
static void quiet_in_all_modes(proc_main *main)
{
    struct proc proc[MODES] = {0};

    proc_needs_shm();
    for (int m = 0; m < MODES; m++) {
        proc[m].options = modes[m];
        proc_start(&proc[m], 2, main);
    }
    for (int m = 0; m < MODES; m++) {
        proc_finish(&proc[m], -1, 2 * RIG_PATIENCE);
        for (int32_t r = 0; r < 2; r++) {
            const struct proc_page *page = &proc[m].page[r];
            tell(modes[m], r, "the last second without a call", page->number[0], page->number[1]);
            CHECK(is_quiet(page));
        }
    }
}

RIG_TEST(idle_library)
{
    quiet_in_all_modes(idle);
}

RIG_TEST(idle_owner_of_a_window)
{
    quiet_in_all_modes(idle_owner);
}

static void wait_long(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    float in = 1, out;
    struct comm_request request;

    meet(world);
    if (rank == 1)
        rig_nap(IDLE_S * RIG_S);
    int64_t used = processor_ns(), from = rig_now(), woken = wakes_of_others();
    MUST(comm_allreduce(world, &in, &out, 1, COMM_F32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    proc->page[rank].number[0] = processor_ns() - used;
    proc->page[rank].number[1] = rig_now() - from;
    proc->page[rank].number[2] = wakes_of_others() - woken;
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(idle_waiter)
{
    struct proc proc[MODES] = {0};

    proc_needs_shm();
    for (int m = 0; m < MODES; m++) {
        proc[m].options = modes[m];
        proc_start(&proc[m], 2, wait_long);
    }
    for (int m = 0; m < MODES; m++) {
        proc_finish(&proc[m], -1, RIG_PATIENCE);
        int64_t used = proc[m].page[0].number[0], took = proc[m].page[0].number[1];
        tell(modes[m], 0, "a second of waiting", used, proc[m].page[0].number[2]);
        CHECK(took > RIG_S / 2);
        CHECK(used < took / 100);
        CHECK(proc[m].page[0].number[2] <= WAKES_MOST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(idle_library), cmocka_unit_test(idle_owner_of_a_window),
                                       cmocka_unit_test(idle_waiter)};

    return cmocka_run_group_tests_name("proc_idle", tests, NULL, NULL);
}
