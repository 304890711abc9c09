/*
 * Single faults, every one there is: each algorithm x 2 to 9 ranks x wire x victim x event x kind, one fault a run. A run without a fault
 * comes first and says which events there are, and how often each rank asks for memory and for room. Then, for each victim:
 *   kill, pause          at each event at which the scheduler chooses who goes on
 *   cut, reset, corrupt, replay  there too, where ranks are on two hosts; the peer is one of the other host's, in turn
 *   stale                there too, on frames alone: something that it said to the peer and that has had its time
 *   no memory            for its n-th allocation alone, and for the n-th and all later ones: n = 1, 2, ... all
 *   no room              when it asks for the n-th time
 * No memory "at an event" would be the same as at its next allocation, so these are all of them too.
 *
 * On lines ranks mostly give way where they wait. So they have a second run there, in which they also do after some ten atomic operations,
 * and each is killed wherever it did: between two stores of one exposure, too.
 */
#include "sim/sweep.h"

#include "select/select.h"
#include "sim/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 1 << 14, FINE_BUDGET = 10 };
#define SECOND INT64_C(1000000000)

/* One row, on this many ranks and one wire, with what its run without a fault showed. */
struct subject {
    const struct algo_row *row;
    int32_t ranks;
    struct sim_config config;
    char options[128];
    uint32_t points;
    bool fine;
    uint64_t point[POINTS_MAX];
    int32_t ran[POINTS_MAX];                                     /* the thread that yielded there */
    uint32_t memory[SWEEP_FAULT_RANKS], room[SWEEP_FAULT_RANKS]; /* how often each rank asked for them */
};
struct sweep {
    struct sweep_tally tally;
    uint64_t stride, first, turn;
    struct subject subject;
};

/* Short and long blocks, both in flight at once, and one behind them. */
static void prepare(struct deeds *d, const struct subject *s)
{
    static const size_t lengths[] = {5, 520, 1};

    memset(d, 0, sizeof *d);
    *d = (struct deeds){.seed = 1, .ranks = s->ranks, .hosts = s->config.hosts, .count = 3, .depth = 2};
    d->plain = d->faults = d->may_refuse = true;
    for (uint32_t i = 0; i < d->count; i++)
        d->deed[i] = (struct deed){deed_of(s->row->collective), COMM_F64, COMM_SUM, s->ranks / 2, lengths[i], i + 1};
}

static const char *kind_name(const struct sim_fault *f)
{
    static const char *const names[SIM_FAULT_KINDS] = {"kill", "pause", "slow",    "memory", "room",  "clog",
                                                       "cut",  "reset", "corrupt", "jump",   "stale", "replay"};

    return f->kind == SIM_MEMORY && f->amount == UINT32_MAX ? "memory, all later too" : names[f->kind];
}

/* A rank that finds no room tries again, and late frames have no effect: these must not cause a failure. */
static bool judge(const struct deeds *d, const struct sim_fault *f, struct sim_result *result)
{
    bool harmless = f->kind == SIM_AGAIN || f->kind == SIM_STALE;

    for (int32_t r = 0; harmless && r < d->ranks && !result->failed; r++)
        if (d->result[r] != COMM_OK)
            sim_failed("rank %d says %s, because of %s", r, comm_result_name(d->result[r]), kind_name(f));
    return deeds_judge(d, result);
}

/* A case that failed once is always run, whatever the stride: no memory for the longer blocks of an exchange whose
 * short ones had been exposed. */
static bool is_known(const struct subject *s, const struct sim_fault *f)
{
    return f->kind == SIM_MEMORY && f->amount == UINT32_MAX && s->config.wire != SIM_WIRE_FRAMES && s->ranks == 3 &&
           s->row->collective == COLLECTIVE_ALLTOALL_V;
}

static void run_case(struct sweep *sweep, const struct sim_fault *fault)
{
    static struct deeds deeds;
    static struct sim_result result;
    struct sim_config config = sweep->subject.config;

    if (sweep->turn++ % sweep->stride != sweep->first && !is_known(&sweep->subject, fault))
        return;
    prepare(&deeds, &sweep->subject);
    config.faults = fault;
    config.fault_count = 1;
    bool ok = sim_run(&config, deeds_main, &deeds, &result) && judge(&deeds, fault, &result);
    sweep->tally.cases++;
    sweep->tally.events += result.events;
    if (ok)
        return;
    sweep->tally.failures++;
    printf("faults: %s, %d ranks, wire %d: %s of rank %d (peer %d) at event %llu after %u: %s\n", sweep->subject.options, config.ranks,
           config.wire, kind_name(fault), fault->victim, fault->peer, (unsigned long long)fault->event, fault->after, result.text);
}

/* ------------------------------------------------------------------------------------------------------------ listing cases */
static void watch(void *arg)
{
    struct subject *s = arg;

    if (s->points < POINTS_MAX) {
        s->point[s->points] = sim_event();
        s->ran[s->points] = sim_rank();
    }
    s->points++;
    for (int32_t r = 0; r < s->ranks; r++) {
        s->memory[r] = sim_calls_of(r, SIM_MEMORY);
        s->room[r] = sim_calls_of(r, SIM_AGAIN);
    }
}

static bool look_at(struct sweep *sweep)
{
    static struct deeds deeds;
    static struct sim_result result;
    struct subject *s = &sweep->subject;
    struct sim_config config = s->config;

    config.watch = watch;
    config.watch_arg = s;
    prepare(&deeds, s);
    bool ok = sim_run(&config, deeds_main, &deeds, &result);
    for (int32_t r = 0; r < s->ranks; r++)
        ok = ok && deeds.result[r] == COMM_OK;
    if (!ok || s->points > POINTS_MAX) {
        printf("faults: %s, %d ranks, wire %d, without a fault, %u events: %s\n", s->options, s->ranks, config.wire, s->points,
               result.text);
        sweep->tally.failures++;
        return false;
    }
    return true;
}

static void deny(struct sweep *sweep, int32_t victim, uint32_t kind, uint32_t amount, uint32_t calls)
{
    for (uint32_t n = 0; n < calls; n++)
        run_case(sweep, &(struct sim_fault){.event = 1, .victim = victim, .kind = kind, .amount = amount, .after = n});
}

/* A rank of the other half, which is the other host. */
static int32_t peer_of(const struct subject *s, int32_t victim, uint32_t turn)
{
    int32_t peer = (int32_t)(turn % (uint32_t)s->ranks);

    while (s->config.hosts > 1 && (peer < (s->ranks + 1) / 2) == (victim < (s->ranks + 1) / 2))
        peer = (peer + 1) % s->ranks;
    return peer;
}

static void strike_all(struct sweep *sweep)
{
    static const uint32_t lines[] = {SIM_KILL, SIM_PAUSE}, frames[] = {SIM_KILL, SIM_PAUSE, SIM_STALE};
    static const uint32_t hosts[] = {SIM_KILL, SIM_PAUSE, SIM_CUT, SIM_RESET, SIM_CORRUPT, SIM_REPLAY};
    const struct subject *s = &sweep->subject;
    const uint32_t *kinds = s->config.hosts > 1 ? hosts : s->config.wire == SIM_WIRE_FRAMES ? frames : lines;
    size_t count = s->fine ? 1 : kinds == hosts ? 6 : kinds == frames ? 3 : 2;

    for (int32_t victim = 0; victim < s->ranks; victim++) {
        for (uint32_t i = 0; i < s->points; i++)
            for (size_t k = 0; k < count && !(s->fine && s->ran[i] != victim); k++)
                run_case(sweep, &(struct sim_fault){.event = s->point[i],
                                                    .victim = victim,
                                                    .peer = peer_of(s, victim, i),
                                                    .kind = kinds[k],
                                                    .amount = 2 * i,
                                                    .ns = 40 * SECOND});
        if (s->fine)
            continue;
        deny(sweep, victim, SIM_MEMORY, 1, s->memory[victim]);
        deny(sweep, victim, SIM_MEMORY, UINT32_MAX, s->memory[victim]);
        deny(sweep, victim, SIM_AGAIN, 1, s->room[victim]);
    }
}

static void sweep_row(struct sweep *sweep, const struct algo_row *row, int32_t ranks, enum sim_wire wire, bool fine)
{
    struct subject *s = &sweep->subject;

    s->row = row;
    s->ranks = ranks;
    s->fine = fine;
    s->points = 0;
    snprintf(s->options, sizeof s->options, "COMM_ALGORITHM=%s:%s COMM_CHUNK=4096 COMM_SPIN=0 COMM_YIELD=0 COMM_PROGRESS=caller",
             collective_name(row->collective), row->name);
    s->config = (struct sim_config){.seed = 1, .ranks = ranks, .wire = wire, .calm = true, .options = s->options};
    s->config.hosts = wire == SIM_WIRE_MIXED ? 2 : 0;
    s->config.budget = fine ? FINE_BUDGET : 0;
    s->config.heal_ns = 100 * SECOND;
    if (look_at(sweep))
        strike_all(sweep);
}

static void sweep_ranks(struct sweep *sweep, int32_t ranks)
{
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_row *row = &algo_table[i];
        if (deed_of(row->collective) == DEED_KINDS || ranks < row->ranks_min || ranks > row->ranks_max)
            continue;
        sweep_row(sweep, row, ranks, SIM_WIRE_LINES, false);
        sweep_row(sweep, row, ranks, SIM_WIRE_LINES, true);
        sweep_row(sweep, row, ranks, SIM_WIRE_FRAMES, false);
        sweep_row(sweep, row, ranks, SIM_WIRE_MIXED, false);
    }
}

struct sweep_tally sweep_faults(int32_t most, uint64_t stride, uint64_t first, bool tells)
{
    static struct sweep sweep;

    sweep = (struct sweep){.stride = stride, .first = first};
    for (int32_t ranks = 2; ranks <= most; ranks++) {
        sweep_ranks(&sweep, ranks);
        if (tells)
            printf("faults: up to %d ranks %llu of %llu cases, %llu failures\n", ranks, (unsigned long long)sweep.tally.cases,
                   (unsigned long long)sweep.turn, (unsigned long long)sweep.tally.failures);
    }
    return sweep.tally;
}
