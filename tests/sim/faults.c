/* Faults: sampled from the seed or given as a list, sorted by the event at which they occur. */
#include "sim/frames.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS_DEFAULT = 20000 };
#define MS INT64_C(1000000)

static int by_event(const void *a, const void *b)
{
    const struct sim_fault *x = a, *y = b;

    return x->event < y->event ? -1 : x->event > y->event ? 1 : 0;
}

static struct sim_fault sample(uint64_t *s, uint32_t kind)
{
    static const int64_t pauses[] = {MS, 20 * MS, 500 * MS, 3000 * MS, 12000 * MS, 60000 * MS};
    struct sim_fault f = {.kind = kind};

    f.event = 1 + sim_below(s, sim.config.swarm_events ? sim.config.swarm_events : EVENTS_DEFAULT);
    if (sim_below(s, 2) && kind != SIM_STALE)
        f.event = 1 + sim_below(s, f.event); /* early ones more often */
    f.victim = (int32_t)sim_below(s, (uint64_t)sim.config.ranks);
    f.peer = (int32_t)sim_below(s, (uint64_t)sim.config.ranks);
    f.amount = 1 + (uint32_t)sim_below(s, kind == SIM_SLOW || kind >= SIM_STALE ? 1000 : 3);
    if (kind == SIM_AGAIN)
        f.amount = 1 + (uint32_t)sim_below(s, 200);
    f.ns = pauses[sim_below(s, kind == SIM_PAUSE ? 6 : 4)];
    f.ns = sim_between(s, 1, f.ns);
    return f;
}

/* Each kind that may be sampled is off in half of the seeds; the others occur one to four times. Frames that come again
 * occur more often, because they must have no effect. They have a random stream of their own, so that older seeds are
 * otherwise unchanged. */
void sim_faults_plan(void)
{
    struct sim_result *r = sim.result;
    uint64_t late = sim.config.seed ^ UINT64_C(0x6c62272e07bb0142);

    r->fault_count = 0;
    for (size_t i = 0; i < sim.config.fault_count && r->fault_count < SIM_FAULTS_MAX; i++)
        r->fault[r->fault_count++] = sim.config.faults[i];
    for (uint32_t kind = 0; kind < SIM_FAULT_KINDS; kind++) {
        uint64_t *s = kind >= SIM_STALE ? &late : &sim.chance;
        uint64_t count = sim_below(s, 2) ? 0 : 1 + sim_below(s, kind == SIM_KILL ? 2 : kind == SIM_STALE ? 12 : 4);
        if (!(sim.config.swarm & SIM_FAULT_BIT(kind)))
            continue;
        for (; count && r->fault_count < SIM_FAULTS_MAX; count--)
            r->fault[r->fault_count++] = sample(s, kind);
    }
    for (size_t i = 0; i < r->fault_count; i++)
        sim.keeps |= r->fault[i].kind >= SIM_STALE;
    qsort(r->fault, r->fault_count, sizeof *r->fault, by_event);
    sim.fault_next = 0;
    sim.fault_event = r->fault_count ? r->fault[0].event : UINT64_MAX;
}

void sim_kill(int32_t rank)
{
    struct sim_member *m = &sim.member[rank];

    m->dead = true;
    m->died_ns = sim.clock;
    sim_stop_rank(rank);
    sim_port_rank_gone(rank);
    if (--sim.running == 0)
        sim_finish();
}

static void deny(struct sim_denial *d, const struct sim_fault *f)
{
    d->after = f->after;
    d->count = f->amount;
}

static bool strike(const struct sim_fault *f)
{
    struct sim_member *m = f->victim >= 0 && f->victim < sim.config.ranks ? &sim.member[f->victim] : NULL;
    int64_t until = sim.clock + f->ns;

    if (!m || m->dead || m->ended || sim.clock >= sim.heal_ns)
        return false;
    until = until < sim.heal_ns ? until : sim.heal_ns;
    switch (f->kind) {
    case SIM_KILL:
        sim_kill(f->victim);
        return true;
    case SIM_PAUSE:
        m->paused_until = until > m->paused_until ? until : m->paused_until;
        m->paused_most = until - sim.clock > m->paused_most ? until - sim.clock : m->paused_most;
        return true;
    case SIM_SLOW:
        m->slow = f->amount;
        m->slow_until = until;
        return true;
    case SIM_MEMORY:
        deny(&m->memory, f);
        return true;
    case SIM_AGAIN:
        deny(&m->room, f);
        return true;
    case SIM_JUMP:
        m->clock_ahead += f->ns;
        return true;
    default:
        return frames_fault(f);
    }
}

void sim_faults_due(void)
{
    struct sim_result *r = sim.result;

    while (sim.fault_next < r->fault_count && r->fault[sim.fault_next].event <= sim.events) {
        const struct sim_fault *f = &r->fault[sim.fault_next++];
        if (!strike(f))
            continue;
        sim_mix(f->kind << 8 | (uint32_t)f->victim);
        sim.fault_count[f->kind]++;
        sim.last_fault_ns = sim.clock;
        r->faults++;
    }
    sim.fault_event = sim.fault_next < r->fault_count ? r->fault[sim.fault_next].event : UINT64_MAX;
}

static void ring_later(void *arg, uint64_t what)
{
    struct sim_port *port = arg;

    (void)what;
    port->told_again = false;
    sim_port_ring(port);
}

/* A rank that found no room is told when there is some: once, however often it tried. */
void sim_again_later(void)
{
    struct sim_member *m = sim_self();

    for (uint32_t i = 0; i < SIM_PORTS_MAX; i++) {
        struct sim_port *p = m->port[i];
        if (!p || p->told_again)
            continue;
        p->told_again = true;
        sim_at(sim.clock + sim_between(&sim.chance, 1, 100000), ring_later, p, 0);
    }
}

static bool is_denied(struct sim_denial *d)
{
    d->calls++;
    if (!d->count)
        return false;
    if (d->after) {
        d->after--;
        return false;
    }
    d->count -= d->count != UINT32_MAX;
    return true;
}

bool sim_denied_memory(struct sim_member *m)
{
    if (!is_denied(&m->memory))
        return false;
    SIM_PROBE("env: no memory");
    return true;
}

bool sim_denied_room(void)
{
    if (!is_denied(&sim_self()->room))
        return false;
    sim_again_later();
    SIM_PROBE("wire: no room when asked");
    return true;
}
