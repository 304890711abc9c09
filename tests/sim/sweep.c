/*
 * Sweeps, where every case is run instead of sampled:
 *   sizes   every algorithm x ranks 1..67 (some of the larger ones, or `all`) x counts {0, 1, p-1, p, p+1, a prime, large}, without faults
 *   faults  every collective x ranks 2..9 x victim x event x kind of fault, one fault a run; every STRIDE-th event, up to RANKS ranks
 *   orders  every order in which the frames of a small world can arrive, up to three ranks
 * A failing case is printed with its numbers; what makes it is all in the config, so it fails again.
 */
#define _GNU_SOURCE
#include "algo/algo.h"
#include "sim/collectives.h"
#include "sim/inside.h"
#include "sim/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_SWEPT = 67, COUNTS = 7, FAULT_RANKS = 9 };

struct tally {
    uint64_t cases, failures, events;
};

/* ------------------------------------------------------------------------------------------------------------ sizes */
static enum deed_kind deed_of(uint32_t collective)
{
    uint32_t kind = 0;

    while (kind < DEED_KINDS && strcmp(deed_names[kind], collective_name(collective)) != 0)
        kind++;
    return (enum deed_kind)kind;
}

/* One world runs all counts, so that a world is opened once for each algorithm and size. */
static void size_case(struct tally *t, const struct algo_row *row, int32_t ranks, enum sim_wire wire)
{
    static struct deeds deeds;
    static struct sim_result result;
    char options[96];
    size_t p = (size_t)ranks;
    const size_t counts[COUNTS] = {0, 1, p - 1, p, p + 1, 97, 1500};
    struct sim_config config = {.seed = 1, .ranks = ranks, .wire = wire, .calm = true, .options = options};

    memset(&deeds, 0, sizeof deeds);
    deeds = (struct deeds){.seed = 1, .ranks = ranks, .count = COUNTS, .depth = 3, .may_refuse = true};
    for (uint32_t i = 0; i < COUNTS; i++)
        deeds.deed[i] = (struct deed){deed_of(row->collective), i % 2 ? COMM_BF16 : COMM_I32, COMM_SUM, (int32_t)(i % p), counts[i], i + 7};
    snprintf(options, sizeof options, "COMM_ALGORITHM=%s:%s COMM_CHUNK=4096 COMM_SPIN=0 COMM_YIELD=0 COMM_WINDOW=4",
             collective_name(row->collective), row->name);
    t->cases += COUNTS;
    bool ok = sim_run(&config, deeds_main, &deeds, &result);
    t->events += result.events;
    if (!ok) {
        t->failures++;
        printf("sizes: %s, %d ranks: %s\n", options, ranks, result.text);
    }
}

/* Between the small ones and those around powers of two, one in five: the rest is like its neighbours, and takes minutes. */
static bool is_worth(int32_t ranks)
{
    return ranks <= 17 || ranks % 5 == 3 || (ranks >= 31 && ranks <= 33) || ranks >= 63;
}

static struct tally sweep_sizes(int32_t most, bool all)
{
    struct tally t = {0, 0, 0};

    for (uint32_t i = 0; i < algo_count; i++)
        for (int32_t ranks = algo_table[i].ranks_min; ranks <= most && ranks <= algo_table[i].ranks_max; ranks++)
            if (deed_of(algo_table[i].collective) != DEED_KINDS && (all || is_worth(ranks)))
                size_case(&t, &algo_table[i], ranks, ranks % 2 ? SIM_WIRE_LINES : SIM_WIRE_FRAMES);
    return t;
}

/* ------------------------------------------------------------------------------------------------------------ faults */
static void one_deed(struct deeds *d, enum deed_kind kind, int32_t ranks)
{
    memset(d, 0, sizeof *d);
    *d = (struct deeds){.seed = 1, .ranks = ranks, .count = 3, .depth = 2, .faults = true};
    for (uint32_t i = 0; i < d->count; i++)
        d->deed[i] = (struct deed){kind, COMM_I32, COMM_SUM, ranks / 2, i == 1 ? 3000 : 5, i + 1};
}

static void fault_case(struct tally *t, enum deed_kind kind, const struct sim_config *config)
{
    static struct deeds deeds;
    static struct sim_result result;

    one_deed(&deeds, kind, config->ranks);
    deeds.hosts = config->hosts;
    bool ok = sim_run(config, deeds_main, &deeds, &result) && deeds_judge(&deeds, &result);
    t->cases++;
    t->events += result.events;
    if (!ok) {
        t->failures++;
        printf("faults: deed %d, %d ranks, wire %d, victim %d, event %llu, kind %u: %s\n", kind, config->ranks, config->wire,
               config->faults->victim, (unsigned long long)config->faults->event, config->faults->kind, result.text);
    }
}

/* Every event of the run without a fault, or every `stride`-th. */
static void sweep_events(struct tally *t, enum deed_kind kind, int32_t ranks, enum sim_wire wire, uint64_t stride)
{
    static const uint32_t kinds[] = {SIM_KILL, SIM_PAUSE, SIM_MEMORY, SIM_AGAIN};
    static struct deeds deeds;
    static struct sim_result result;
    struct sim_config config = {
        .seed = 1, .ranks = ranks, .wire = wire, .calm = true, .options = "COMM_SPIN=0 COMM_YIELD=0 COMM_PROGRESS=caller"};

    config.hosts = wire == SIM_WIRE_MIXED ? 2 : 0;
    one_deed(&deeds, kind, ranks);
    deeds.hosts = config.hosts;
    sim_run(&config, deeds_main, &deeds, &result);
    uint64_t events = result.events, offset = (uint64_t)((int)kind + ranks) % stride;
    for (uint64_t event = 1 + offset; event <= events; event += stride) {
        for (int32_t victim = 0; victim < ranks; victim++) {
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                struct sim_fault fault = {.event = event, .victim = victim, .kind = kinds[k], .amount = 2, .ns = INT64_C(40000000000)};
                config.heal_ns = INT64_C(100000000000);
                config.faults = &fault;
                config.fault_count = 1;
                fault_case(t, kind, &config);
            }
        }
    }
}

static struct tally sweep_faults(int32_t most, uint64_t stride)
{
    struct tally t = {0, 0, 0};

    for (int32_t ranks = 2; ranks <= most; ranks++)
        for (int kind = 0; kind < DEED_KINDS; kind++)
            for (int wire = SIM_WIRE_LINES; wire <= SIM_WIRE_MIXED; wire++)
                sweep_events(&t, (enum deed_kind)kind, ranks, (enum sim_wire)wire, stride);
    return t;
}

/* ------------------------------------------------------------------------------------------------------------ */
static bool tell(const char *what, struct tally t)
{
    printf("sweep %s: cases=%llu failures=%llu events=%llu\n", what, (unsigned long long)t.cases, (unsigned long long)t.failures,
           (unsigned long long)t.events);
    return t.failures == 0 && t.cases > 0;
}

static struct tally sweep_orders(bool quick)
{
    struct orders_tally o = orders_explore(quick);

    return (struct tally){o.runs, o.failures, o.events};
}

int main(int count, char **text)
{
    const char *quick_text = getenv("COMM_TEST_QUICK"), *what = count > 1 ? text[1] : "";
    bool quick = quick_text && *quick_text && strcmp(quick_text, "0") != 0, good = true;
    uint64_t stride = count > 2 ? strtoull(text[2], NULL, 10) : quick ? 1999 : 499;
    uint64_t ranks = count > 3 ? strtoull(text[3], NULL, 10) : quick ? 4 : FAULT_RANKS;

    if (!strcmp(what, "sizes"))
        return !tell(what, sweep_sizes(quick ? 17 : RANKS_SWEPT, count > 2 && !strcmp(text[2], "all")));
    if (!strcmp(what, "faults") && stride && ranks >= 2 && ranks <= FAULT_RANKS)
        return !tell(what, sweep_faults((int32_t)ranks, stride));
    if (!strcmp(what, "orders"))
        return !tell(what, sweep_orders(quick));
    fprintf(stderr, "usage: sim_sweep sizes [all] | faults [STRIDE [RANKS]] | orders\n");
    return good ? 2 : 1;
}
