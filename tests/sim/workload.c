/* Random programs in the simulator: a run, and its verdict. */
#include "sim/workload.h"

#include "sim/oracle_check.h"
#include "sim/oracle_machine.h"
#include "sim/threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ the stage */
static const uint32_t fatal = SIM_FAULT_BIT(SIM_KILL) | SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_CUT) | SIM_FAULT_BIT(SIM_RESET) |
                              SIM_FAULT_BIT(SIM_CORRUPT) | SIM_FAULT_BIT(SIM_REPLAY) | SIM_FAULT_BIT(SIM_MEMORY);

static enum comm_result stage_open(struct random_run *run, int32_t rank, struct comm_communicator **world)
{
    (void)rank;
    return sim_open(COMM_CONFIG(.progress = (enum comm_progress_mode)run->p->progress, .notify = (enum comm_notify_mode)run->p->notify,
                                .operation_timeout_ns = run->p->timeout_ms * RANDOM_MS),
                    world);
}

static void stage_fail(const char *text)
{
    sim_fail("%s", text);
}

static bool stage_dead(int32_t rank)
{
    return sim_is_dead(rank);
}

static bool stage_suspect(int32_t rank)
{
    return sim_is_dead(rank) || sim_stood_still_ns(rank) > 15 * RANDOM_S;
}

static const struct random_stage stage = {stage_open, sim_now, sim_spend, sim_poll, stage_fail, stage_dead, stage_suspect, sim_doing};

static void rank_main(int32_t rank, void *arg)
{
    struct random_run *run = arg;
    random_rank(run, rank);
    for (int32_t i = 0; i < run->p->actions; i++) {
        if (run->p->action[i].rank == rank)
            sim_note((uint64_t)run->outcome[i] ^ run->seen[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ one run */
static void configure(const struct random_program *p, struct sim_config *sim, char *options, size_t bytes, struct sim_fault *faults)
{
    *sim = (struct sim_config){.seed = p->schedule, .ranks = p->ranks, .hosts = p->hosts, .wire = (enum sim_wire)p->wire};
    sim->minimal = p->minimal != 0;
    const char *wire = getenv("COMM_SIM_WIRE"); /* lines or frames, to look at one of them alone */
    if (wire)
        sim->wire = *wire == 'l' ? SIM_WIRE_LINES : SIM_WIRE_FRAMES;
    sim->swarm = (uint32_t)p->swarm;
    sim->limit_events = getenv("COMM_SIM_EVENTS") ? strtoull(getenv("COMM_SIM_EVENTS"), NULL, 10) : 30000000;
    for (int32_t i = 0; i < p->faults; i++) {
        const struct random_fault *f = &p->fault[i];
        faults[i] = (struct sim_fault){f->event, f->victim, f->peer, (uint32_t)f->kind, (uint32_t)f->amount, f->ns, 0};
    }
    sim->faults = faults;
    sim->fault_count = (size_t)p->faults;
    snprintf(options, bytes, "COMM_WINDOW=%d COMM_QUEUE=%d", p->minimal ? 4 : p->window, p->queue);
    sim->options = options;
}

static void judge(const struct random_run *run, struct sim_result *result)
{
    static struct oracle_verdict v;
    v.failed = false;
    oracle_check(run, &v);
    invariant_check(run, &v);
    for (int32_t r = 0; r < run->p->ranks && run->strict; r++) {
        if (sim_memory_held(r) != 0)
            oracle_say(&v, run, -1, "I10: rank %d still holds %" PRId64 " bytes", r, sim_memory_held(r));
    }
    if (!v.failed)
        return;
    result->failed = true;
    snprintf(result->text, sizeof result->text, "%s", v.text);
}

bool workload_run(const struct random_program *p, struct sim_result *result)
{
    static struct random_run run;
    struct sim_config sim;
    struct sim_fault faults[RANDOM_FAULTS];
    char options[96];
    if (!random_run_make(&run, p, &stage)) {
        random_run_free(&run);
        abort();
    }
    configure(p, &sim, options, sizeof options, faults);
    bool may_fail = ((uint32_t)p->swarm & fatal) != 0;
    for (int32_t i = 0; i < p->faults; i++)
        may_fail = may_fail || (SIM_FAULT_BIT(p->fault[i].kind) & fatal);
    run.strict = run.misused < 0 && !may_fail;
    run.faults = may_fail;
    if (sim_run(&sim, rank_main, &run, result)) {
        run.fault_ns = sim_last_fault_ns();
        run.prompt = !sim_faults_of(~(SIM_FAULT_BIT(SIM_KILL) | SIM_FAULT_BIT(SIM_STALE)));
        random_run_end(&run);
        for (int32_t r = 0; r < p->ranks; r++)
            run.stuck = run.stuck || run.longest_ns[r] > p->timeout_ms * RANDOM_MS / 2;
        judge(&run, result);
        sim_judge_end(result);
        workload_probe(&run);
    }
    random_run_free(&run);
    return !result->failed;
}

/* ------------------------------------------------------------------------------------------------------------ rows */
enum { SHRINKS = 3, SHRINK_SECONDS = 30 };

/* Shrinks the failing program and writes it to a file that can join the corpus. */
static void keep(const char *row, uint64_t seed, struct random_program *p, struct sim_result *result)
{
    static int shrunk;
    char name[64];
    if (getenv("COMM_SIM_SHRINK") && *getenv("COMM_SIM_SHRINK") == '0')
        return;
    if (shrunk++ >= SHRINKS)
        return;
    workload_shrink(p, result, SHRINK_SECONDS);
    snprintf(name, sizeof name, "failed-%s-%" PRIu64 ".txt", row, seed);
    FILE *file = fopen(name, "w");
    if (!file)
        return;
    fprintf(file, "# %.*s\n", (int)strcspn(result->text, "\n"), result->text);
    random_print(file, p);
    fclose(file);
    printf("shortened to %d actions in %s; run it again: build/bin/sim_corpus %s; keep it in tests/sim/corpus\n", p->actions, name, name);
}

static bool run_sort(const char *row, uint64_t seed, enum random_sort sort, uint32_t swarm, struct sim_result *result)
{
    static struct random_program program;
    random_make(&program, seed, sort);
    program.swarm = (int32_t)swarm;
    if (workload_run(&program, result))
        return true;
    keep(row, seed, &program, result);
    return false;
}

bool workload_correct(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    return run_sort("random", seed, RANDOM_SORT_CORRECT, options->faults ? SIM_FAULTS_HARMLESS & ~SIM_FAULT_BIT(SIM_PAUSE) : 0, result);
}

bool workload_hosts(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    static struct random_program program;
    random_make(&program, seed, RANDOM_SORT_CORRECT);
    program.wire = SIM_WIRE_MIXED;
    program.hosts = 1 + (int32_t)(seed % (uint64_t)program.ranks);
    program.swarm = (int32_t)(options->faults ? SIM_FAULTS_HARMLESS & ~SIM_FAULT_BIT(SIM_PAUSE) : 0);
    if (workload_run(&program, result))
        return true;
    keep("hosts_random", seed, &program, result);
    return false;
}

bool workload_wrong(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    (void)options;
    return run_sort("wrong", seed, RANDOM_SORT_WRONG, 0, result);
}

bool workload_faulty(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    (void)options;
    return run_sort("faulty", seed, RANDOM_SORT_FAULTS,
                    SIM_FAULT_BIT(SIM_KILL) | SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_SLOW) | SIM_FAULT_BIT(SIM_STALE), result);
}
