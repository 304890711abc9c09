/*
 * Sweeps, where every case is run instead of sampled:
 *   sizes   every algorithm x ranks 1..67 (some of the larger ones, or `all`) x counts {0, 1, p-1, p, p+1, a prime, large}, without faults
 *   faults  every algorithm x ranks 2..9 x wire x victim x event x kind of fault, one fault a run; of these every STRIDE-th, or up to
 *           RANKS ranks: `faults 1` is all of them, most of an hour
 *   orders  every order in which the frames of a small world can arrive, up to three ranks
 * A failing case is printed with its numbers; what makes it is all in the config, so it fails again.
 */
#define _GNU_SOURCE
#include "select/select.h"
#include "selection.h"
#include "sim/inside.h"
#include "sim/orders.h"
#include "sim/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_SWEPT = 67, COUNTS = 7 };

/* ------------------------------------------------------------------------------------------------------------ sizes */
/* One world runs all counts, so that only one world is opened for each algorithm and size. */
static void size_case(struct sweep_tally *t, const struct algo_row *row, int32_t ranks, enum sim_wire wire)
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

/* Of the larger sizes those near powers of two, one in five up to 40, and one in ten from there: the rest is like its neighbours, and takes
 * minutes. Usually an algorithm has a third of them, each another third than the next in the table. */
static bool is_worth(int32_t ranks, uint32_t algorithm)
{
    bool near = (ranks >= 31 && ranks <= 33) || ranks >= 63;
    if (ranks <= 17)
        return true;
    return (near || ranks % (ranks < 40 ? 5 : 10) == 3) && (selection_all() || ((uint32_t)ranks + algorithm) % 3 == 0);
}

static struct sweep_tally sweep_sizes(int32_t most, bool all)
{
    struct sweep_tally t = {0, 0, 0};

    for (uint32_t i = 0; i < algo_count; i++)
        for (int32_t ranks = algo_table[i].ranks_min; ranks <= most && ranks <= algo_table[i].ranks_max; ranks++)
            if (deed_of(algo_table[i].collective) != DEED_KINDS && (all || is_worth(ranks, i)))
                size_case(&t, &algo_table[i], ranks, ranks % 2 ? SIM_WIRE_LINES : SIM_WIRE_FRAMES);
    return t;
}

/* ------------------------------------------------------------------------------------------------------------ */
static bool tell(const char *what, struct sweep_tally t)
{
    printf("sweep %s: cases=%llu failures=%llu events=%llu\n", what, (unsigned long long)t.cases, (unsigned long long)t.failures,
           (unsigned long long)t.events);
    return t.failures == 0 && t.cases > 0;
}

static struct sweep_tally sweep_orders(void)
{
    struct orders_tally o = orders_explore(selected(60000, 250, 80));

    return (struct sweep_tally){o.runs, o.failures, o.events};
}

int main(int count, char **text)
{
    const char *what = count > 1 ? text[1] : "";
    bool good = true, all = count > 2 && !strcmp(text[2], "all");
    uint64_t stride = count > 2 ? strtoull(text[2], NULL, 10) : selected(647, 1949, 1949);
    uint64_t ranks = count > 3 ? strtoull(text[3], NULL, 10) : SWEEP_FAULT_RANKS;
    uint64_t first = count > 4 ? strtoull(text[4], NULL, 10) : 0;

    if (!strcmp(what, "sizes"))
        return !tell(what, sweep_sizes(selection_few() ? 17 : RANKS_SWEPT, all));
    if (!strcmp(what, "faults") && stride && ranks >= 2 && ranks <= SWEEP_FAULT_RANKS && first < stride)
        return !tell(what, sweep_faults((int32_t)ranks, stride, first, count > 2));
    if (!strcmp(what, "orders"))
        return !tell(what, sweep_orders());
    fprintf(stderr, "usage: sim_sweep sizes [all] | faults [STRIDE [RANKS [FIRST]]] | orders\n");
    return good ? 2 : 1;
}
