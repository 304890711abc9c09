/*
 * The in-process wire: all ranks are in this process, their lines are on the heap, and offsets are addresses. It runs
 * exactly the protocol of the shared memory wire, so that what a race detector proves for threads here also holds
 * there. All ranks share one engine and its bell.
 */
#include "channel/shmchan.h"

#include "base/format.h"

struct local_wire {
    struct shmchan_host host;
    struct env_bell *bell;
    _Alignas(64) _Atomic uint32_t sleepers;
};

static bool local_take(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    void *at = host->env->take(host->env, bytes, 128);
    if (at)
        *block = (struct shmchan_block){at, (uint64_t)(uintptr_t)at, bytes};
    return at != NULL;
}

static void local_give(struct shmchan_host *host, const struct shmchan_block *block)
{
    host->env->give(host->env, block->at, block->bytes);
}

static void local_ring(struct shmchan_host *host, struct shmchan_channel *channel)
{
    (void)channel;
    struct local_wire *w = (struct local_wire *)host;
    host->env->bell_ring(host->env, w->bell);
}

static bool local_lend(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block)
{
    void *at = host->env->take(host->env, bytes, 4096);
    (void)placement; /* the thread that first touches a page decides */
    if (at)
        *block = (struct shmchan_block){at, (uint64_t)(uintptr_t)at, bytes};
    return at != NULL;
}

extern const struct wire_class wire_local;

static enum comm_result local_open(const struct wire_config *config, struct wire **wire)
{
    if (config->rank != -1 || config->ranks < 1) {
        base_format(config->error_text, config->error_text_bytes, "the local wire takes all ranks in one process, not rank %d of %d",
                    config->rank, config->ranks);
        return COMM_ERR_CONFIG;
    }
    struct local_wire *w = config->env->take(config->env, sizeof *w, 64);
    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the local wire");
        return COMM_ERR_MEMORY;
    }
    shmchan_host_start(&w->host, config);
    w->host.wire.class = &wire_local;
    w->host.take = local_take;
    w->host.light = !config->oversubscribed && config->env->barrier(config->env);
    w->host.give = local_give;
    w->host.ring = local_ring;
    w->host.lend = local_lend;
    w->host.take_back = local_give;
    w->host.sleepers = &w->sleepers;
    w->bell = config->bell;
    *wire = &w->host.wire;
    return COMM_OK;
}

static void local_close(struct wire *wire)
{
    struct local_wire *w = (struct local_wire *)wire;
    const struct comm_env *env = w->host.env;
    shmchan_host_end(&w->host);
    env->give(env, w, sizeof *w);
}

static uint32_t local_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    (void)wire;
    (void)events;
    (void)max;
    return 0; /* no rank of this process can die alone */
}

static void local_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct local_wire *w = (struct local_wire *)wire;
    (void)deadline;
    atomic_store_explicit(&w->sleepers, on, memory_order_relaxed);
    if (on)
        shmchan_sleep_fence(&w->host);
}

static void local_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    (void)channel;
    base_format(address, bytes, "rank %d of this process", peer);
}

const struct wire_class wire_local = {
    .name = "local",
    .open = local_open,
    .close = local_close,
    .join = shmchan_join,
    .leave = shmchan_leave,
    .reserve = shmchan_reserve,
    .expose = shmchan_expose,
    .view = shmchan_view,
    .show = shmchan_publish_inline,
    .see = shmchan_poll_inline,
    .fetch = shmchan_fetch,
    .release = shmchan_release,
    .advance = shmchan_advance,
    .send = shmchan_send,
    .next = shmchan_next,
    .accept = shmchan_accept,
    .flush = shmchan_flush,
    .poll = local_poll,
    .arm = local_arm,
    .describe = local_describe,
    .memory = &shmchan_memory_class,
};
