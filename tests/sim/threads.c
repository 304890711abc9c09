/* A workload: several application threads on each rank, each with a communicator of its own, all on one engine. Each
 * waiting thread moves all communicators; a thread that sleeps for all must hand that over when it leaves. */
#include "sim/threads.h"

#include "sim/inside.h"
#include "now.h"

#include <stdio.h>

enum { SHMCHAN_MOST = 4, CALLS = 12 };
#define MINUTE INT64_C(60000000000)
/* A rank that stood still continues within 20 s (heal_ns). After that the longest limit of a call is that of opening
 * and of the close here: a minute. */
#define END_NS (MINUTE + INT64_C(30000000000))

struct line {
    struct comm_communicator *c;
    int32_t rank, number;
    uint32_t calls;
    uint64_t seed;
};

static void check(enum comm_result r, const char *what)
{
    SIM_CHECK(r == COMM_OK, "%s said %s", what, comm_result_name(r));
}

/* The seed is the same on all ranks; what each spends between calls is not. */
static void run_line(void *arg)
{
    struct line *l = arg;
    int32_t ranks = sim_ranks();

    for (uint32_t i = 0; i < l->calls; i++) {
        struct comm_request request;
        int64_t in = l->rank + 1, out = 0;
        sim_doing("allreduce", i + 1);
        if (sim_random() % 4 == 0)
            sim_spend((int64_t)(sim_random() % 300000));
        if (sim_draw(&l->seed) % 4 == 0) {
            check(comm_barrier(l->c, &request), "barrier");
            check(comm_wait(request, MINUTE), "wait");
            continue;
        }
        check(comm_allreduce(l->c, &in, &out, 1, COMM_I64, COMM_SUM, &request), "allreduce");
        check(comm_wait(request, MINUTE), "wait");
        SIM_CHECK(out == (int64_t)ranks * (ranks + 1) / 2, "line %d: the sum is %lld", l->number, (long long)out);
    }
}

static void threads_main(int32_t rank, void *arg)
{
    const uint64_t *seed = arg;
    uint64_t s = *seed;
    struct comm_communicator *world = NULL;
    struct line line[SHMCHAN_MOST];
    struct sim_thread *thread[SHMCHAN_MOST];
    int32_t lines = 2 + (int32_t)sim_below(&s, SHMCHAN_MOST - 1);

    sim_doing("open", 0);
    check(sim_open(NULL, &world), "open");
    for (int32_t i = 0; i < lines; i++) {
        line[i] = (struct line){.rank = rank, .number = i, .calls = 1 + (uint32_t)sim_below(&s, CALLS), .seed = sim_draw(&s)};
        check(NOW(comm_dup, world, &(struct comm_options){.size = sizeof(struct comm_options)}, &line[i].c), "dup");
    }
    for (int32_t i = 1; i < lines; i++)
        thread[i] = sim_spawn(run_line, &line[i]);
    run_line(&line[0]);
    for (int32_t i = 1; i < lines; i++)
        sim_join(thread[i]);
    sim_doing("close", 0);
    for (int32_t i = 0; i < lines; i++)
        check(comm_close(line[i].c, MINUTE), "close");
    check(comm_close(world, MINUTE), "close");
    SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

/* If nothing is slow by itself, sleepers are woken by events and not by the clock: half a second beyond the time of the
 * steps is never needed. */
bool sim_judge_time(struct sim_result *result)
{
    int64_t steps = (int64_t)result->events * sim.mood.step_ns;

    if (!result->failed && result->wire == SIM_WIRE_LINES && result->faults == 0 && result->ns - steps > INT64_C(500000000))
        sim_failed("the run took %lld ms: somebody slept until a clock woke it", (long long)(result->ns / 1000000));
    return !result->failed;
}

bool sim_judge_end(struct sim_result *result)
{
    if (!result->failed && sim_faults_of(UINT32_MAX) && result->ns - sim_last_fault_ns() > END_NS)
        sim_failed("the run took %lld ms from the last fault on", (long long)((result->ns - sim_last_fault_ns()) / 1000000));
    return !result->failed;
}

bool run_threads(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    uint64_t s = seed ^ UINT64_C(0xe7037ed1a0b428db);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 1 + (int32_t)sim_below(&s, 4)};

    return sim_run(&config, threads_main, &s, result) && sim_judge_time(result);
}
