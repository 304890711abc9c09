/*
 * What the members of a world share apart from data: which sleep, which send heartbeats, which have closed; and how a
 * death is reported. Both simulated wires use it. It simulates shm and its kernel: the end of a rank is reported to
 * each of the others some time later; a rank that stands still is detected by its missing heartbeats.
 */
#include "sim/inside.h"

#include "base/format.h"
#include "base/log.h"

#include <string.h>

#define PEER_TIMEOUT_NS INT64_C(30000000000)

enum comm_result sim_port_open(const struct wire_config *config, struct sim_port **port)
{
    const struct comm_env *env = config->env;
    size_t ranks = (size_t)config->ranks, bytes = sizeof(struct sim_port) + ranks * (sizeof(struct sim_port *) + sizeof(struct sim_peer));
    struct sim_member *m = &sim.member[sim.current->rank];
    uint32_t place = 0;

    while (place < SIM_PORTS_MAX && m->port[place])
        place++;
    /* Not from the rank's memory: like a segment it outlives the rank. */
    struct sim_port *p = place < SIM_PORTS_MAX ? sim_memory_take(bytes, 64) : NULL;
    if (!p) {
        base_format(config->error_text, config->error_text_bytes, "no memory for a port");
        return COMM_ERR_MEMORY;
    }
    *p = (struct sim_port){.env = env, .log = config->log, .self = sim.current->rank, .rank = config->rank, .ranks = config->ranks};
    p->across = config->across;
    p->bell = (uint32_t)config->bell->ring_fd;
    p->watch = (uint32_t)config->watch->ring_fd;
    p->timeout_ns = config->peer_timeout_ns ? config->peer_timeout_ns : PEER_TIMEOUT_NS;
    p->all = (struct sim_port **)(p + 1);
    p->peer = (struct sim_peer *)(void *)(p->all + ranks);
    m->port[place] = *port = p;
    enum comm_result r = config->boot->class->allgather(config->boot, &p, sizeof p, p->all);
    for (int32_t i = 0; r == COMM_OK && i < p->ranks; i++) {
        int32_t self = p->all[i]->self;
        if (sim.member[self].dead || sim.member[self].ended) /* before this rank could be notified */
            sim_port_notice(p->self, self, COMM_ERR_PEER, sim.clock + sim_between(&sim.chance, 1, sim.mood.death_ns));
    }
    return r;
}

void sim_port_close(struct sim_port *port)
{
    struct sim_member *m = &sim.member[sim.current->rank];

    port->closed = true;
    port->sleeping = false;
    for (uint32_t i = 0; i < SIM_PORTS_MAX; i++)
        if (m->port[i] == port)
            m->port[i] = NULL;
}

void sim_port_arm(struct sim_port *port, bool on)
{
    sim_point();
    port->sleeping = on;
    sim_point();
}

bool sim_port_heed(struct sim_port *port, bool on)
{
    bool came = port->came;

    port->came = false;
    port->heeding = on;
    sim_point();
    return came;
}

void sim_port_ring(struct sim_port *port)
{
    port->came = true;
    if (port->heeding) {
        port->heeding = false;
        sim_ring(port->watch);
    }
    if (!port->sleeping)
        return;
    port->sleeping = false;
    sim_ring(port->bell);
}

/* ------------------------------------------------------------------------------------------------------------ notices */
/* Whether another wire serves rank `r`. */
static bool leaves_out(const struct sim_port *p, int32_t r)
{
    return p->across && sim_host_of(p->all[r]->self) == sim_host_of(p->self);
}

static void tell_now(void *arg, uint64_t what)
{
    struct sim_port *p = arg;
    struct sim_peer *peer = &p->peer[what & 0xffff];

    if (p->closed || peer->down || peer->notice)
        return;
    peer->notice = (int32_t)(int16_t)(what >> 16);
    sim_ring(p->watch);
}

void sim_port_notice(int32_t rank, int32_t about, enum comm_result result, int64_t ns)
{
    for (uint32_t i = 0; i < SIM_PORTS_MAX; i++) {
        struct sim_port *p = sim.member[rank].port[i];
        for (int32_t r = 0; p && r < p->ranks; r++)
            if (r != p->rank && p->all[r] && p->all[r]->self == about && !leaves_out(p, r))
                sim_at(ns, tell_now, p, (uint64_t)(uint32_t)r | (uint64_t)(uint16_t)(int16_t)result << 16);
    }
}

/* Notifies each of the others at a time of its own. Whether the rank closed regularly is decided when they are
 * notified. */
void sim_port_rank_gone(int32_t rank)
{
    for (int32_t r = 0; r < sim.config.ranks; r++) {
        int64_t ns = sim.clock + sim_between(&sim.chance, 1, sim.mood.death_ns);
        if (r == rank || sim.member[r].dead || sim.member[r].ended)
            continue;
        if (!sim.member[rank].dead && ns <= frames_net_last(rank, r))
            ns = frames_net_last(rank, r) + 1; /* the stream of a rank that closes regularly is read to its end first */
        sim_port_notice(r, rank, COMM_ERR_PEER, ns);
    }
}

/* ------------------------------------------------------------------------------------------------------------ polling */
/* True: silent for too long. As in shm, the time in which this rank did not look itself does not count. */
static bool listen_to(struct sim_port *p, int32_t rank, int64_t looked)
{
    struct sim_peer *peer = &p->peer[rank];
    const struct sim_port *there = p->all[rank];

    if (there->beat != peer->beat && !frames_net_broken(there->self, p->self)) {
        peer->beat = there->beat;
        peer->silent_ns = 0;
        peer->warned = false;
        return false;
    }
    peer->silent_ns += there->beat ? looked : 0;
    if (peer->silent_ns < p->timeout_ns / 6 || there->closed)
        return false;
    if (!peer->warned)
        base_log(p->log, LOG_WARNING, "rank %d is stopped or starved", rank);
    peer->warned = true;
    return peer->silent_ns >= p->timeout_ns;
}

uint32_t sim_port_poll(struct sim_port *p, struct wire_event *events, uint32_t max)
{
    int64_t now = p->env->now(p->env), looked = p->polled_ns ? now - p->polled_ns : 0, tick = p->timeout_ns / WIRE_TICKS;
    uint32_t told = 0;

    tick = tick < WIRE_TICK_NS ? tick : WIRE_TICK_NS;
    looked = looked < tick ? looked : tick;
    p->polled_ns = now;
    p->beat++;
    for (int32_t r = 0; r < p->ranks && told < max; r++) {
        struct sim_peer *peer = &p->peer[r];
        if (r == p->rank || peer->down || leaves_out(p, r))
            continue;
        int32_t result = peer->notice == COMM_ERR_PEER && p->all[r]->closed ? COMM_ERR_CLOSED : peer->notice;
        int64_t silent = 0;
        if (!result && listen_to(p, r, looked)) {
            result = COMM_ERR_PEER;
            silent = peer->silent_ns;
        }
        if (!result)
            continue;
        peer->down = true;
        events[told++] = (struct wire_event){.kind = WIRE_EVENT_DOWN, .result = result, .peer = r, .bytes = (uint64_t)silent};
    }
    return told;
}
