/*
 * A workload, for invariant I15: without a fault, a call takes as long in virtual time as the cost model says, to the
 * nanosecond. Only the network takes time here, exactly as in the model, and ranks begin each call together. Then both
 * clocks follow the same longest path of messages. An additional exchange, a chunk that waits though a place is free, a
 * late acknowledgement, or a message that leaves a pass too late shows in the time, though every result is right.
 */
#include "sim/timing.h"

#include "algo/algorithms.h"
#include "select/select.h"
#include "base/env.h"
#include "data/data.h"
#include "model/cost.h"
#include "sim/collectives.h"
#include "sim/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 4, RANKS_MOST = 17, CHUNK = 4096 };
#define APART INT64_C(100000000) /* between the beginnings of two calls */

static struct timing {
    struct deeds deeds;
    const struct algo_row *row;
    struct sim_meter meter;
    bool overhosts; /* the algorithm is one over hosts */
    int32_t host[SIM_RANKS_MAX];
    struct program_hosts hosts;
    int64_t end[SIM_RANKS_MAX][CALLS];
    uint32_t refused[CALLS]; /* ranks that refused: an algorithm over hosts does not support all placements */
} run;

static int64_t begin_of(uint32_t call)
{
    return (int64_t)(call + 1) * APART;
}

static void timing_main(int32_t rank, void *arg)
{
    struct deeds *d = &run.deeds;
    struct comm_communicator *c = NULL;

    (void)arg;
    sim_doing("open", 0);
    SIM_CHECK(sim_open(NULL, &c) == COMM_OK, "open failed");
    for (uint32_t i = 0; i < d->count; i++) {
        struct deed_part part = {.number = i + 1};
        deed_prepare(&part, &d->deed[i], rank, d->ranks);
        sim_doing(deed_names[d->deed[i].kind], part.number);
        SIM_CHECK(sim_now() < begin_of(i), "it has taken longer than calls are apart");
        sim_spend(begin_of(i) - sim_now());
        enum comm_result r = deed_issue(&part, c, rank);
        if (r == COMM_ERR_UNSUPPORTED && run.overhosts) {
            run.refused[i]++;
            continue;
        }
        SIM_CHECK(r == COMM_OK, "the call said %s", comm_result_name(r));
        r = comm_wait(part.request, COMM_FOREVER);
        SIM_CHECK(r == COMM_OK, "the wait said %s", comm_result_name(r));
        run.end[rank][i] = sim_now() - begin_of(i);
        deed_verify(d, &part, rank);
    }
    sim_doing("close", 0);
    SIM_CHECK(comm_close(c, COMM_DEFAULT_TIMEOUT) == COMM_OK, "close failed");
}

/* ------------------------------------------------------------------------------------------------------------ the model */
static void *plain_take(const struct comm_env *env, size_t bytes, size_t align)
{
    (void)env;
    bytes = (bytes + 63) & ~(size_t)63;
    void *memory = aligned_alloc(align < 64 ? 64 : align, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static void plain_give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    (void)bytes;
    free(memory);
}

static bool predict(const struct sim_config *config, const struct deed *d, int64_t *ns)
{
    static const struct comm_env memory = {.take = plain_take, .give = plain_give};
    const struct wire_caps caps = {.inline_max = 48, .window = 64, .once_max = 65536, .chunk_all = CHUNK, .chunk_private = CHUNK};
    struct cost_machine machine = {.cpus = 1};
    struct cost_result result;

    machine.cpus = (uint64_t)(config->ranks / config->hosts);
    machine.shm_latency = machine.net_latency = (uint64_t)run.meter.latency_ns * 1000;
    machine.net_gap = (uint64_t)run.meter.gap_ns * 1000;
    machine.net_byte = (uint64_t)run.meter.byte_ns * 1000000;
    struct cost_case what = {.machine = &machine,
                             .caps = &caps,
                             .build = run.row->build,
                             .collective = run.row->collective,
                             .size = config->ranks,
                             .root = d->root,
                             .n = d->kind == DEED_BARRIER ? 0 : d->n,
                             .raw = data_type_bytes(d->type),
                             .partial = data_partial_bytes(d->type),
                             .host_ranks = config->ranks / config->hosts,
                             .hosts = run.overhosts ? &run.hosts : NULL,
                             .calls = 1};
    enum comm_result r = cost_run(&memory, &what, &result);
    *ns = (int64_t)(result.ps / 1000);
    if (r != COMM_OK)
        sim_failed("I15: %s: the model said %s", deed_names[d->kind], comm_result_name(r));
    return r == COMM_OK;
}

static bool judge(const struct sim_config *config, struct sim_result *result)
{
    for (uint32_t i = 0; i < run.deeds.count && !result->failed; i++) {
        const struct deed *d = &run.deeds.deed[i];
        int64_t ns;
        int32_t last = 0;
        if (run.refused[i] == (uint32_t)config->ranks)
            continue;
        for (int32_t r = 1; r < config->ranks; r++)
            last = run.end[r][i] > run.end[last][i] ? r : last;
        if (predict(config, d, &ns) && run.end[last][i] != ns)
            sim_failed("I15: rank %d, %s %u: it took %lld ns, by the model %lld (%s, %d ranks on %d hosts, %zu of %s, root %d; messages "
                       "take %lld ns, %lld a byte, %lld between)",
                       last, deed_names[d->kind], i + 1, (long long)run.end[last][i], (long long)ns, run.row->name, config->ranks,
                       config->hosts, d->n, data_type_name(d->type), d->root, (long long)run.meter.latency_ns, (long long)run.meter.byte_ns,
                       (long long)run.meter.gap_ns);
    }
    return !result->failed;
}

/* ------------------------------------------------------------------------------------------------------------ a seed */
/* Only rows whose blocks have one length, because the model knows no others. */
static const struct algo_row *draw_row(uint64_t *s, int32_t ranks)
{
    for (;;) {
        const struct algo_row *row = &algo_table[sim_below(s, algo_count)];
        const char *name = collective_name(row->collective);
        size_t length = strlen(name);
        bool alike = strcmp(name + length - 2, "_v") != 0 && strcmp(name, "broadcast_bytes") != 0;
        if (alike && deed_of(row->collective) != DEED_KINDS && ranks >= row->ranks_min && ranks <= row->ranks_max)
            return row;
    }
}

/* If a rank's card receives several messages at once, in another order than the rank requests them, the model is close
 * but not exact. */
static bool is_exact_with_bytes(const struct algo_row *row)
{
    static const char *const rows[] = {"barrier doubling", "broadcast direct", "broadcast pipeline", "broadcast tree", "reduce read_all",
                                       "scan doubling",    "exscan doubling",  "gather direct",      "scatter direct", "scatter throttled"};
    char name[64];

    snprintf(name, sizeof name, "%s %s", collective_name(row->collective), row->name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i], name))
            return true;
    return false;
}

static void draw_meter(uint64_t *s, struct sim_config *config)
{
    int32_t each = 1 + (int32_t)sim_below(s, 4);

    run.meter.latency_ns = 10 + (int64_t)sim_below(s, 300);
    config->hosts = config->ranks;
    if (is_exact_with_bytes(run.row) && sim_below(s, 3)) {
        run.meter.byte_ns = (int64_t)sim_below(s, 3);
        run.meter.gap_ns = (int64_t)sim_below(s, 50);
    } else if (config->ranks % each == 0 && config->ranks > each) {
        config->hosts = config->ranks / each;
    }
}

bool run_timing(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    static const enum comm_type types[] = {COMM_F64, COMM_I32, COMM_BF16, COMM_U8};
    uint64_t s = seed ^ UINT64_C(0x9b97f4a7c15f39cc);
    char text[128];
    struct sim_config config = {.seed = seed, .ranks = options->ranks ? options->ranks : 2 + (int32_t)sim_below(&s, RANKS_MOST - 1)};

    memset(&run, 0, sizeof run);
    run.row = draw_row(&s, config.ranks);
    draw_meter(&s, &config);
    run.overhosts = (run.row->flags & ALGO_OVER_HOSTS) != 0;
    run.hosts = (struct program_hosts){run.host, config.hosts, config.ranks / config.hosts, false, false};
    for (int32_t r = 0; r < config.ranks; r++)
        run.host[r] = r / run.hosts.longest;
    algo_hosts_survey(&run.hosts, config.ranks, 0);
    config.wire = SIM_WIRE_FRAMES;
    config.calm = true;
    config.meter = &run.meter;
    config.options = text;
    snprintf(text, sizeof text, "COMM_ALGORITHM=%s:%s COMM_CHUNK=%d COMM_SPIN=0 COMM_YIELD=0 COMM_PROGRESS=caller",
             collective_name(run.row->collective), run.row->name, CHUNK);
    run.deeds = (struct deeds){.seed = seed, .ranks = config.ranks, .count = CALLS};
    for (uint32_t i = 0; i < CALLS; i++) {
        struct deed *d = &run.deeds.deed[i];
        *d = (struct deed){.kind = deed_of(run.row->collective), .type = types[sim_below(&s, 4)], .op = COMM_SUM, .seed = seed + i};
        d->root = (int32_t)sim_below(&s, (uint64_t)config.ranks);
        d->n = sim_below(&s, i % 2 ? 40 : run.row->once_bytes ? 300 : 6000);
    }
    return sim_run(&config, timing_main, NULL, result) && judge(&config, result);
}
