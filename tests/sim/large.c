/*
 * A world far larger than others in the simulator: thousands of ranks of the production core over simulated connections. It shows that the
 * core has no table or number that ends below that, and what a rank costs in memory, threads and frames.
 *
 *   sim_large [--ranks N] [--no-death] [--no-allgather]     512 ranks unless said
 *
 * All ranks call barrier, allreduce, broadcast, allgather and barrier, and check the results. Then one rank dies while the others wait for
 * it, and each of them must get an error that names it. Ranks do not close: that sends each rank a note of each other one. Prints a line
 * for each part: seconds of CPU time until rank 0 has it, virtual time, and events.
 */
#define _GNU_SOURCE
#include "sim/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define LATER_NS INT64_C(20000000)
#define FOREVER_NS INT64_C(1000000000000)

static struct large {
    int32_t ranks, victim;
    bool death, allgather;
    int32_t arrived;
    double began;
    uint64_t events;
    int64_t ns;
} run;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const char *what)
{
    double now = seconds();

    if (sim_rank() != 0)
        return;
    printf("large: %-10s ranks=%d cpu_s=%.2f virtual_us=%.1f events=%llu held_bytes=%lld\n", what, run.ranks, now - run.began,
           (double)(sim_now() - run.ns) / 1000, (unsigned long long)(sim_event() - run.events), (long long)sim_memory_held(0));
    fflush(stdout);
    run.began = now;
    run.events = sim_event();
    run.ns = sim_now();
}

static void must(enum comm_result r, struct comm_communicator *c, const char *what)
{
    struct comm_error error = {.size = sizeof error};

    if (r == COMM_OK)
        return;
    if (c && comm_error_detail(c, &error) != COMM_OK)
        error.text[0] = 0;
    sim_fail("%s: %s: %s", what, comm_result_name(r), error.text);
}

static void finish_call(enum comm_result issued, struct comm_request q, struct comm_communicator *c, const char *what)
{
    must(issued, c, what);
    must(comm_wait(q, COMM_FOREVER), c, what);
    report(what);
}

static void gather_all(struct comm_communicator *c, int32_t rank)
{
    int32_t *all = sim_take((size_t)run.ranks * sizeof *all);
    struct comm_request q;
    enum comm_result r = comm_allgather(c, &rank, all, 1, COMM_I32, &q);

    finish_call(r, q, c, "allgather");
    for (int32_t i = 0; i < run.ranks; i++)
        SIM_CHECK(all[i] == i, "the allgather brought %d of rank %d", all[i], i);
}

static void calls(struct comm_communicator *c, int32_t rank)
{
    int64_t mine = rank, sum = -1, told = rank == 3 ? 4711 : 0;
    struct comm_request q;
    enum comm_result r = comm_barrier(c, &q);

    finish_call(r, q, c, "barrier");
    r = comm_allreduce(c, &mine, &sum, 1, COMM_I64, COMM_SUM, &q);
    finish_call(r, q, c, "allreduce");
    SIM_CHECK(sum == (int64_t)run.ranks * (run.ranks - 1) / 2, "the sum is %lld", (long long)sum);
    r = comm_broadcast(c, &told, 1, COMM_I64, 3, &q);
    finish_call(r, q, c, "broadcast");
    SIM_CHECK(told == 4711, "the broadcast brought %lld", (long long)told);
    if (run.allgather)
        gather_all(c, rank);
    r = comm_barrier(c, &q);
    finish_call(r, q, c, "barrier");
}

static void wait_for_the_dead(struct comm_communicator *c)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request q;

    enum comm_result r = comm_barrier(c, &q);
    if (r == COMM_OK)
        r = comm_wait(q, COMM_FOREVER);
    SIM_CHECK(r == COMM_ERR_PEER, "a barrier with a dead rank: %s", comm_result_name(r));
    must(comm_error_detail(c, &error), NULL, "comm_error_detail");
    SIM_CHECK(error.rank == run.victim, "the error names rank %d: %s", error.rank, error.text);
    report("death");
}

static void rank_main(int32_t rank, void *arg)
{
    struct comm_communicator *c = NULL;

    (void)arg;
    must(sim_open(NULL, &c), NULL, "open");
    report("open");
    calls(c, rank);
    if (run.death && rank == run.victim) {
        sim_spend(LATER_NS); /* the others have left the barrier then */
        sim_kill(rank);
        sim_leave();
    }
    if (run.death)
        wait_for_the_dead(c);
    if (++run.arrived == run.ranks - run.death)
        sim_finish();
    sim_spend(FOREVER_NS);
}

int main(int count, char **argument)
{
    static struct sim_result result;
    struct rusage used;

    run = (struct large){.ranks = 512, .death = true, .allgather = true};
    for (int i = 1; i < count; i++) {
        if (strcmp(argument[i], "--ranks") == 0 && i + 1 < count)
            run.ranks = (int32_t)strtol(argument[++i], NULL, 10);
        else if (strcmp(argument[i], "--no-death") == 0)
            run.death = false;
        else if (strcmp(argument[i], "--no-allgather") == 0)
            run.allgather = false;
        else
            return 2;
    }
    run.victim = run.ranks / 2;
    run.began = seconds();
    double begin = run.began;
    struct sim_config config = {.seed = 1,
                                .ranks = run.ranks,
                                .hosts = run.ranks,
                                .wire = SIM_WIRE_FRAMES,
                                .order = SIM_ORDER_UNIFORM,
                                .calm = true,
                                .limit_events = UINT64_C(2000000000),
                                .options = "COMM_PROGRESS=caller COMM_WINDOW=4"};
    bool passed = sim_run(&config, rank_main, NULL, &result);
    getrusage(RUSAGE_SELF, &used);
    printf("large: %s ranks=%d cpu_s=%.1f events=%llu peak_MiB=%ld\n", passed ? "passed" : result.text, run.ranks, seconds() - begin,
           (unsigned long long)result.events, used.ru_maxrss / 1024);
    return passed ? 0 : 1;
}
