/* Rare paths, by name, counted over all runs of the process. */
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

static struct sim_probe *probes;
enum { EXPECTED_MAX = 256 };
static const char *expected[EXPECTED_MAX];
static size_t expected_count;

void sim_probe_hit(struct sim_probe *probe)
{
    if (!probe->listed) {
        probe->listed = true;
        probe->next = probes;
        probes = probe;
    }
    probe->hits++;
}

void sim_probe_expect(const char *const *names, size_t count)
{
    for (size_t i = 0; i < count && expected_count < EXPECTED_MAX; i++)
        expected[expected_count++] = names[i];
}

/* Several places may use one name. */
static uint64_t hits_of(const char *name)
{
    uint64_t hits = 0;

    for (const struct sim_probe *p = probes; p; p = p->next)
        hits += strcmp(p->name, name) ? 0 : p->hits;
    return hits;
}

size_t sim_probe_report(bool all)
{
    size_t never = 0;

    for (size_t i = 0; i < expected_count; i++) {
        uint64_t hits = hits_of(expected[i]);
        never += hits == 0;
        if (all || !hits)
            printf("probe %s: %llu\n", expected[i], (unsigned long long)hits);
    }
    for (const struct sim_probe *p = probes; p && all; p = p->next)
        printf("probe %s: %llu\n", p->name, (unsigned long long)p->hits);
    return never;
}
