/*
 * The wire of shared memory, simulated: the production lines (src/core/channel) on segments of the simulated memory,
 * one per rank. Only the parts around them are simulated: bells, sleepers, deaths. Each atomic operation in the lines
 * is a point of the scheduler, so a rank can end or be overtaken between any two of its stores.
 *
 * Pages that are replaced after a failure stay where they are here, because all ranks see the same ones. Instead they
 * are recorded, and a rank that knew them before is redirected when it finally stores there. That may be some time
 * later, because a rank may be delayed between learning of a place and storing there. The stores themselves have no
 * points, so they are all before or all after the replacement.
 */
#include "sim/inside.h"

#include "base/format.h"
#include "channel/shmchan.h"

#include <string.h>

enum { REPLACED_MOST = 512, PAGE = 4096, STORES_A_HALT = 32, HALT_NS = 1000000 };
#define SEGMENT_BYTES (UINT64_C(1) << 40) /* far apart: a rank's offsets are not valid in another rank's segment */

struct sim_lines {
    struct shmchan_host host;
    struct sim_port *port;
    _Atomic uint32_t *sleepers; /* the channel uses rank 0's */
    uintptr_t *base;
    struct sim_lines **all;
    _Atomic uint32_t count, asks;
    bool armed;
    uint32_t replaced;
    struct wire_span gone[REPLACED_MOST]; /* pages that peers no longer see */
    size_t bytes;
};

extern const struct wire_class wire_sim_lines;

static bool take_aligned(struct shmchan_host *host, size_t bytes, size_t align, struct shmchan_block *block)
{
    struct sim_lines *w = (struct sim_lines *)host;

    if (sim_denied_memory(sim_self())) {
        SIM_PROBE("lines: no memory for a segment");
        return false;
    }
    char *at = sim_memory_take(bytes, align);
    if (at)
        *block = (struct shmchan_block){at, (uint64_t)((uintptr_t)at - w->base[w->port->rank]), bytes};
    return at != NULL;
}

static bool sim_lines_take(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    return take_aligned(host, bytes, 128, block);
}

static void sim_lines_give(struct shmchan_host *host, const struct shmchan_block *block)
{
    (void)host; /* others may still read it: it is freed with the run */
    (void)block;
}

static bool sim_lines_lend(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block)
{
    (void)placement;
    return take_aligned(host, bytes, PAGE, block);
}

static bool sim_lines_replace(struct shmchan_host *host, char *at, size_t bytes)
{
    struct sim_lines *w = (struct sim_lines *)host;

    if (w->replaced == REPLACED_MOST)
        return false;
    w->gone[w->replaced++] = (struct wire_span){at, bytes};
    return true;
}

/* Where a store to `at` goes. */
static void *where_stored(const struct sim_lines *owner, char *at)
{
    static _Alignas(64) char nowhere[SHMCHAN_PLACE_BYTES];

    for (uint32_t i = 0; i < owner->replaced; i++)
        if ((uintptr_t)at - (uintptr_t)owner->gone[i].at < owner->gone[i].bytes) {
            SIM_PROBE("lines: a late store");
            return nowhere;
        }
    return at;
}

static void sim_lines_ring(struct shmchan_host *host, struct shmchan_channel *channel)
{
    struct sim_lines *w = (struct sim_lines *)host;

    for (uint32_t i = 0; i < channel->size; i++) {
        sim_point();
        if (i != channel->rank)
            sim_port_ring(w->port->all[channel->world[i]]);
    }
}

static void sim_lines_ask(struct shmchan_host *host, int32_t rank)
{
    struct sim_lines *there = ((struct sim_lines *)host)->all[rank];

    sim_point();
    if (!shmchan_asks(&there->asks))
        return;
    sim_point(); /* it may have woken for another reason */
    if (!there->port->closed)
        sim_ring(there->port->watch);
}

static bool sim_lines_heed(struct wire *wire, bool on)
{
    sim_point();
    return shmchan_heed(wire->asks, on);
}

static enum comm_result sim_lines_open(const struct wire_config *config, struct wire **wire)
{
    const struct comm_env *env = config->env;
    size_t bytes = sizeof(struct sim_lines) + (size_t)config->ranks * (sizeof(uintptr_t) + sizeof(struct sim_lines *));
    struct sim_lines *w = config->boot ? sim_memory_take(bytes, 128) : NULL;

    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the simulated lines");
        return COMM_ERR_MEMORY;
    }
    shmchan_host_start(&w->host, config);
    w->host.wire.class = &wire_sim_lines;
    w->base = (uintptr_t *)(void *)(w + 1);
    w->all = (struct sim_lines **)(void *)(w->base + config->ranks);
    for (int32_t r = 0; r < config->ranks; r++)
        w->base[r] = (uintptr_t)(SEGMENT_BYTES * (uint64_t)(r + 1));
    w->host.base = w->base;
    w->host.take = sim_lines_take;
    w->host.give = sim_lines_give;
    w->host.ring = sim_lines_ring;
    w->host.ask = sim_lines_ask;
    w->host.wire.asks = &w->asks;
    w->host.lend = sim_lines_lend;
    w->host.take_back = sim_lines_give;
    w->host.replace = sim_lines_replace;
    w->host.light = !config->oversubscribed && env->barrier(env);
    w->bytes = bytes;
    enum comm_result r = sim_port_open(config, &w->port);
    if (r == COMM_OK)
        r = config->boot->class->allgather(config->boot, &w, sizeof w, w->all);
    if (r == COMM_OK) {
        w->host.sleepers = &w->all[0]->count;
        for (int32_t i = 0; i < config->ranks; i++)
            w->host.light &= w->all[i]->host.light;
        *wire = &w->host.wire;
    }
    return r;
}

static void sim_lines_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct sim_lines *w = (struct sim_lines *)wire;

    (void)deadline;
    if (on != w->armed)
        atomic_fetch_add(w->host.sleepers, on ? 1 : UINT32_MAX);
    w->armed = on;
    sim_port_arm(w->port, on);
}

static void sim_lines_close(struct wire *wire)
{
    struct sim_lines *w = (struct sim_lines *)wire;

    sim_lines_arm(wire, false, NULL);
    sim_port_close(w->port);
    shmchan_host_end(&w->host);
}

static enum wire_result sim_lines_reserve(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad)
{
    struct shmchan_channel *c = shmchan_of(channel);
    enum wire_result r = sim_denied_room() ? WIRE_AGAIN : shmchan_reserve(channel, expose, bytes, pad);

    if (r == WIRE_LANDING) {
        SIM_PROBE("lines: a result stored where it lands");
        sim_point();
        if (sim_random() % STORES_A_HALT == 0)
            sim_spend((int64_t)(sim_random() % HALT_NS));
        *pad = where_stored(((struct sim_lines *)c->host)->all[c->world[expose->peers[0]]], *pad);
    }
    if (r == WIRE_ANSWERS)
        SIM_PROBE("lines: a result in place of what it answers");
    return r;
}

static enum wire_result sim_lines_expose(struct wire_channel *channel, const struct wire_expose *expose)
{
    bool note = (expose->flags & WIRE_KIND) == WIRE_NOTE;

    return !note && sim_denied_room() ? WIRE_AGAIN : shmchan_expose(channel, expose);
}

static enum wire_result sim_lines_view(struct wire_channel *channel, const struct wire_look *look)
{
    return sim_denied_room() ? WIRE_AGAIN : shmchan_view(channel, look);
}

static enum wire_result sim_lines_show(struct wire_channel *channel, wire_key key, uint32_t fingerprint, const void *from, size_t bytes)
{
    return sim_denied_room() ? WIRE_AGAIN : shmchan_publish_inline(channel, key, fingerprint, from, bytes);
}

static enum wire_result sim_lines_see(struct wire_channel *channel, wire_key key, uint32_t fingerprint, uint32_t peer, size_t bytes,
                                      const void **at)
{
    return sim_denied_room() ? WIRE_AGAIN : shmchan_poll_inline(channel, key, fingerprint, peer, bytes, at);
}

static bool sim_lines_send(struct wire_channel *channel, wire_key key, uint32_t tag, uint32_t peer, const void *at, size_t bytes)
{
    return !sim_denied_room() && shmchan_send(channel, key, tag, peer, at, bytes);
}

static bool sim_lines_next(struct wire_channel *channel, uint32_t peer, struct wire_event *message)
{
    bool there = !sim_denied_room() && shmchan_next(channel, peer, message);

    if (there)
        SIM_PROBE("lines: a message without an event");
    return there;
}

/* Makes the channel as old as its communicator. */
static enum comm_result sim_lines_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits,
                                       const void *offers, void *offer, struct wire_channel **channel)
{
    enum comm_result r = shmchan_join(wire, team, limits, offers, offer, channel);

    if (r == COMM_OK && !offers && sim.config.first_number) {
        struct shmchan_channel *c = shmchan_of(*channel);
        c->retired = c->oldest = sim.config.first_number - 1;
        atomic_store(&c->head->retired, c->retired);
    }
    return r;
}

static uint32_t sim_lines_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    return sim_port_poll(((struct sim_lines *)wire)->port, events, max);
}

static void sim_lines_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    (void)channel;
    base_format(address, bytes, "simulated rank %d", peer);
}

const struct wire_class wire_sim_lines = {
    .name = "shm",
    .open = sim_lines_open,
    .close = sim_lines_close,
    .join = sim_lines_join,
    .leave = shmchan_leave,
    .reserve = sim_lines_reserve,
    .expose = sim_lines_expose,
    .view = sim_lines_view,
    .show = sim_lines_show,
    .see = sim_lines_see,
    .fetch = shmchan_fetch,
    .release = shmchan_release,
    .advance = shmchan_advance,
    .send = sim_lines_send,
    .next = sim_lines_next,
    .accept = shmchan_accept,
    .flush = shmchan_flush,
    .poll = sim_lines_poll,
    .arm = sim_lines_arm,
    .describe = sim_lines_describe,
    .urge = shmchan_urge,
    .heed = sim_lines_heed,
    .memory = &shmchan_memory_class,
};
