/* The workloads of `sim`, one row each. */
#include "sim/collectives.h"
#include "sim/dependency.h"
#include "sim/inside.h"
#include "sim/recovery.h"
#include "sim/threads.h"
#include "sim/timing.h"
#include "sim/windows.h"
#include "sim/owners.h"
#include "sim/workload.h"

static const char *const algorithms[] = {
    "COMM_ALGORITHM=allreduce:doubling,barrier:doubling",
    "COMM_ALGORITHM=allreduce:doubling,reduce:read_all,allgather:pipeline",
    "COMM_ALGORITHM=allreduce:slices,reduce:slices,broadcast:pipeline",
};

static bool collectives(uint64_t seed, const struct sim_options *options, struct sim_result *result, enum deed_kind kinds)
{
    static struct deeds deeds;
    uint64_t s = seed ^ UINT64_C(0xd6e8feb86659fd93);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 1 + (int32_t)sim_below(&s, 9)};

    if (options->faults)
        config.swarm = SIM_FAULTS_HARMLESS & ~SIM_FAULT_BIT(SIM_PAUSE);
    if (sim_below(&s, 4) == 0) /* near where 32-bit numbers wrap, signed or unsigned */
        config.first_number = (sim_below(&s, 2) ? UINT32_MAX : INT32_MAX) - (uint32_t)sim_below(&s, 40);
    deeds_sample(&deeds, seed, config.ranks, 10 + (uint32_t)sim_below(&s, 40), 60000, kinds);
    if (sim_below(&s, 4) == 0) { /* algorithms that would not be selected for so few ranks */
        config.options = algorithms[sim_below(&s, sizeof algorithms / sizeof *algorithms)];
        deeds.may_refuse = true;
    }
    return sim_run(&config, deeds_main, &deeds, result) && sim_judge_time(result);
}

/* Long operations at the same time, with every limit at its minimum, and ranks that run different ones together: no
 * other operation may hold what the oldest one needs. */
static bool run_gates(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    static struct deeds deeds;
    uint64_t s = seed ^ UINT64_C(0x589965cc75374cc3);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 3 + (int32_t)sim_below(&s, 4), .minimal = true};

    config.options = algorithms[sim_below(&s, sizeof algorithms / sizeof *algorithms)];
    deeds_sample(&deeds, seed, config.ranks, 3 + (uint32_t)sim_below(&s, 8), 20000, DEED_FIRST_KINDS);
    deeds.may_refuse = deeds.gates = true;
    deeds.depth = 16;
    for (uint32_t i = 0; i < deeds.count; i++)
        deeds.deed[i].n += deeds.deed[i].kind == DEED_ALLREDUCE || deeds.deed[i].kind == DEED_REDUCE ? 3000 * sim_below(&s, 6) : 0;
    return sim_run(&config, deeds_main, &deeds, result) && sim_judge_time(result);
}

/* The same over hosts: lines inside, streams between them. Ranks are placed in blocks (of different sizes if they do
 * not divide evenly) or in turns. */
static void spread(struct sim_config *config, uint64_t *s)
{
    config->wire = SIM_WIRE_MIXED;
    config->hosts = 1 + (int32_t)sim_below(s, (uint64_t)config->ranks);
    config->turns = sim_below(s, 3) == 0;
}

static bool run_hosts(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    static struct deeds deeds;
    uint64_t s = seed ^ UINT64_C(0x2545f4914f6cdd1d);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 1 + (int32_t)sim_below(&s, 9)};

    spread(&config, &s);
    config.minimal = sim_below(&s, 3) == 0;
    if (options->faults)
        config.swarm = SIM_FAULTS_HARMLESS & ~SIM_FAULT_BIT(SIM_PAUSE);
    if (sim_below(&s, 4) == 0)
        config.first_number = (sim_below(&s, 2) ? UINT32_MAX : INT32_MAX) - (uint32_t)sim_below(&s, 40);
    deeds_sample(&deeds, seed, config.ranks, 10 + (uint32_t)sim_below(&s, 30), 30000, DEED_KINDS);
    return sim_run(&config, deeds_main, &deeds, result) && sim_judge_time(result);
}

/* Deaths, long pauses, no memory: whatever happens, survivors learn the same cause in time. */
static bool failures(uint64_t seed, const struct sim_options *options, struct sim_result *result, enum deed_kind kinds)
{
    static struct deeds deeds;
    uint64_t s = seed ^ UINT64_C(0xa0761d6478bd642f);
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 2 + (int32_t)sim_below(&s, 8)};

    config.swarm = SIM_FAULTS_ALL;
    config.swarm_events = 100 << sim_below(&s, 10);
    if (sim_below(&s, 4) == 0) { /* refusals are not reported across hosts yet */
        config.wire = SIM_WIRE_FRAMES;
        config.hosts = 2 + (int32_t)sim_below(&s, (uint64_t)config.ranks - 1);
        config.swarm &= ~SIM_FAULT_BIT(SIM_MEMORY);
    }
    deeds_sample(&deeds, seed, config.ranks, 5 + (uint32_t)sim_below(&s, 30), 20000, kinds);
    deeds.hosts = config.hosts;
    deeds.faults = true;
    return sim_run(&config, deeds_main, &deeds, result) && deeds_judge(&deeds, result);
}

static bool run_collectives(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    return collectives(seed, options, result, DEED_FIRST_KINDS);
}

static bool run_failures(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    return failures(seed, options, result, DEED_FIRST_KINDS);
}

/* All collectives; half of the seeds have faults that may kill. */
static bool run_forms(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    bool calm = !options->faults || seed % 2;

    return calm ? collectives(seed, options, result, DEED_KINDS) : failures(seed, options, result, DEED_KINDS);
}

const struct sim_workload sim_workloads[] = {
    {"collectives", "all collectives on the world, many in flight", run_collectives},
    {"forms", "the same with scans, gathers, exchanges and all v forms; while ranks die, every other seed", run_forms},
    {"gates", "long collectives, minimal limits, queue waits that differ by rank", run_gates},
    {"hosts", "all collectives, with ranks on several hosts", run_hosts},
    {"hosts_random", "correct random programs, with ranks on several hosts", workload_hosts},
    {"failures", "collectives while ranks die, stop, and lack memory", run_failures},
    {"threads", "several threads on each rank, a communicator each", run_threads},
    {"dependency", "a queue waits for what fails", run_dependency},
    {"windows", "memory that ranks share, and windows", run_windows},
    {"owners", "windows whose owners compute, poll memory, or sleep", run_owners},
    {"timing", "what a call takes in virtual time, beside what the cost model says", run_timing},
    {"recovery", "agree and shrink while ranks die, stop, are cut off, or revoke", run_recovery},
    {"random", "correct random programs, under what may delay them", workload_correct},
    {"wrong", "random programs in which one rank does one thing wrong", workload_wrong},
    {"faulty", "random programs whose ranks are killed, paused and slowed down", workload_faulty},
};
const size_t sim_workload_count = sizeof sim_workloads / sizeof *sim_workloads;
