/*
 * The channels of a memory wire: their layout, how members meet through offers, and how memory is returned. Memory that
 * others may still read is never touched: a channel that this rank has left stays on the host's list until every member
 * has left it too, or the host ends.
 */
#include "channel/shmchan.h"

#include "base/hash.h"
#include "base/log.h"

#include <string.h>

#define SHMCHAN_MAGIC UINT64_C(0x636f6d6d6c696e31)

struct shmchan_offer {
    uint64_t magic, id, where, shape;
};
_Static_assert(sizeof(struct shmchan_offer) <= WIRE_OFFER_BYTES, "an offer is small");

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + 127) & ~(size_t)127;
    return here;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static void put_spare(struct shmchan_host *host, const struct shmchan_block *block, bool head)
{
    struct shmchan_spare **list = head ? &host->spare_heads : &host->spare_regions;
    struct shmchan_spare *spare = (struct shmchan_spare *)(void *)(block->at + SHMCHAN_SPARE_AT);
    *spare = (struct shmchan_spare){*block, *list};
    *list = spare;
}

static bool take_spare(struct shmchan_host *host, size_t bytes, bool head, struct shmchan_block *block)
{
    for (struct shmchan_spare **at = head ? &host->spare_heads : &host->spare_regions; *at; at = &(*at)->next) {
        if ((*at)->block.bytes < bytes || (*at)->block.bytes / 2 > bytes)
            continue;
        *block = (*at)->block;
        *at = (*at)->next;
        return true;
    }
    return false;
}

static bool take_memory(struct shmchan_host *host, size_t bytes, bool head, struct shmchan_block *block, bool *spare)
{
    base_lock(&host->lock, host->env);
    *spare = take_spare(host, bytes, head, block);
    bool taken = *spare || host->take(host, bytes, block);
    base_unlock(&host->lock, host->env);
    return taken;
}

static bool take_head(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    const size_t kept = offsetof(struct shmchan_head, retired);
    bool spare;

    if (!take_memory(host, bytes, true, block, &spare))
        return false;
    if (spare) { /* set another identity first: a peer that still checks the old channel then finds that it is gone */
        struct shmchan_head *h = (struct shmchan_head *)(void *)block->at;
        atomic_store_explicit(&h->id, 0, memory_order_release);
        atomic_store_explicit(&h->left, 0, memory_order_release);
        memset(block->at + kept, 0, bytes - kept);
    }
    return true;
}

/* Clears what an earlier channel left where this one looks for keys: the line at the beginning of each place. The bytes
 * behind a line are read only when its key matches, so they need not be cleared, and they are most of a region. */
static void clear_lines(char *at, size_t stride, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memset(at + i * stride, 0, sizeof(struct shmchan_line));
}

static void clear_region(const struct shmchan_channel *c, uint32_t index)
{
    const struct shmchan_shape *s = &c->shape;
    char *at = c->region[index].at;

    if (index == SHMCHAN_REGION_ONCE)
        return; /* its lines are in the head's block */
    if (index == SHMCHAN_REGION_EACH) {
        memset(at, 0, s->each.place); /* its lines come first */
    } else if (index == SHMCHAN_REGION_STREAM) {
        for (size_t edge = 0; edge < (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES; edge++) { /* for both layouts */
            clear_lines(at + edge * s->edge_stride, s->all_stride, s->all.mask + 1);
            clear_lines(at + edge * s->edge_stride, s->private_stride, (size_t)(s->size - 1) * (s->private.mask + 1));
        }
    } else if ((index - SHMCHAN_REGION_PAIRS) % 2) {
        clear_lines(at, s->chunk_stride, SHMCHAN_CHUNKS);
    } else {
        memset(at, 0, sizeof(struct shmchan_pair) + s->window * sizeof(struct shmchan_line));
    }
}

bool shmchan_region(struct shmchan_channel *c, uint32_t index, size_t bytes)
{
    bool spare;

    BASE_ASSERT(index < c->regions && !c->region[index].at && bytes >= SHMCHAN_SPARE_AT + sizeof(struct shmchan_spare));
    if (!take_memory(c->host, bytes, false, &c->region[index], &spare))
        return false;
    if (spare)
        clear_region(c, index);
    return true;
}

static struct shmchan_channel *make_private(const struct comm_env *env, const struct wire_team *team, const struct shmchan_shape *shape)
{
    size_t at = 0, size = (size_t)team->size, waits = 256 + 8 * size;
    carve(&at, sizeof(struct shmchan_channel));
    size_t peer = carve(&at, size * sizeof(struct shmchan_peer)), calls = carve(&at, size * sizeof(struct wire_call *));
    size_t watch = carve(&at, waits * sizeof(struct shmchan_watch)), wait = carve(&at, waits * sizeof(struct shmchan_wait));
    size_t heard = carve(&at, size * sizeof(struct shmchan_heard)), world = carve(&at, size * sizeof(int32_t));
    size_t regions = SHMCHAN_REGION_PAIRS + 2 * size, region = carve(&at, regions * sizeof(struct shmchan_block));
    char *memory = env->take(env, at, 128);
    if (!memory)
        return NULL;
    struct shmchan_channel *c = (struct shmchan_channel *)(void *)memory;
    *c = (struct shmchan_channel){.shape = *shape, .rank = (uint32_t)team->rank, .size = (uint32_t)team->size, .bytes = at};
    c->peer = (struct shmchan_peer *)(void *)(memory + peer);
    c->handle.peer_calls = (struct wire_call *const *)(void *)(memory + calls);
    c->watch = (struct shmchan_watch *)(void *)(memory + watch);
    c->wait = (struct shmchan_wait *)(void *)(memory + wait);
    c->waiting_max = (uint32_t)waits;
    c->heard = (struct shmchan_heard *)(void *)(memory + heard);
    c->region = (struct shmchan_block *)(void *)(memory + region);
    c->regions = (uint32_t)regions;
    c->world = (int32_t *)(void *)(memory + world);
    memcpy(c->world, team->world, size * sizeof(int32_t));
    return c;
}

/* Nobody reads the channel any more: the next channel may use its memory. Under the host's lock. */
static void recycle(struct shmchan_host *host, struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->regions; i++)
        if (c->region[i].at)
            put_spare(host, &c->region[i], false);
    if (c->block.at)
        put_spare(host, &c->block, true);
    host->env->give(host->env, c, c->bytes);
}

/* The host ends, but other members may still read this rank's last bytes, so none of them is overwritten. */
static void give_back(struct shmchan_host *host, struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->regions; i++)
        if (c->region[i].at)
            host->give(host, &c->region[i]);
    if (c->block.at)
        host->give(host, &c->block);
    host->env->give(host->env, c, c->bytes);
}

static void give_spares(struct shmchan_host *host, struct shmchan_spare *spare)
{
    while (spare) {
        struct shmchan_block block = spare->block;
        spare = spare->next;
        host->give(host, &block);
    }
}

static void link_into(struct shmchan_channel **list, struct shmchan_channel *c)
{
    c->next = *list;
    c->previous = list;
    if (c->next)
        c->next->previous = &c->next;
    *list = c;
}

static void unlink_from(struct shmchan_channel *c)
{
    *c->previous = c->next;
    if (c->next)
        c->next->previous = c->previous;
}

static bool all_left(const struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        const struct shmchan_peer *p = &c->peer[i];
        if (!p->head)
            return false; /* this rank never connected to that member, but that member may have connected to this rank */
        if (atomic_load_explicit(&p->head->id, memory_order_acquire) == p->id &&
            !atomic_load_explicit(&p->head->left, memory_order_acquire))
            return false;
    }
    return true;
}

/* Under the host's lock. Recycles the channels that nobody reads any more. A member's head is still valid when it is
 * checked here: it can be reused only after this rank has left its channel too. */
static void sweep(struct shmchan_host *host)
{
    struct shmchan_channel *c = host->graves;
    while (c) {
        struct shmchan_channel *next = c->next;
        if (all_left(c)) {
            unlink_from(c);
            recycle(host, c);
        }
        c = next;
    }
}

void shmchan_host_start(struct shmchan_host *host, const struct wire_config *config)
{
    host->env = config->env;
    host->log = config->log;
}

void shmchan_host_end(struct shmchan_host *host)
{
    struct shmchan_channel *c, *next;
    for (c = host->channels; c; c = next) {
        next = c->next;
        shmchan_message_forget(c);
        give_back(host, c);
    }
    for (c = host->graves; c; c = next) {
        next = c->next;
        give_back(host, c);
    }
    host->channels = host->graves = NULL;
    shmchan_memory_end(host);
    give_spares(host, host->spare_heads);
    give_spares(host, host->spare_regions);
}

/* ------------------------------------------------------------------------------------------------------------ join, leave */
static enum comm_result make(struct shmchan_host *host, const struct wire_team *team, const struct wire_limits *limits, void *offer,
                             struct wire_channel **channel)
{
    struct shmchan_shape shape;
    struct wire_caps caps;
    if (team->size < 1 || team->size > UINT16_MAX || team->rank < 0 || team->rank >= team->size)
        return COMM_ERR_ARGUMENT;
    if (!shmchan_shape_of(&shape, (uint32_t)team->size, limits, &caps))
        return COMM_ERR_CONFIG;
    base_lock(&host->lock, host->env);
    sweep(host);
    uint64_t number = ++host->count;
    base_unlock(&host->lock, host->env);
    struct shmchan_channel *c = make_private(host->env, team, &shape);
    if (!c)
        return COMM_ERR_MEMORY;
    c->host = host;
    if (!take_head(host, shape.bytes, &c->block)) {
        base_log(host->log, LOG_ERROR, "a communicator of %d ranks needs %zu bytes of shared lines: no memory", team->size, shape.bytes);
        host->env->give(host->env, c, c->bytes);
        return COMM_ERR_MEMORY;
    }
    c->handle = (struct wire_channel){
        .class = host->wire.class, .wire = &host->wire, .memory = &shmchan_memory_class, .caps = caps, .peer_calls = c->handle.peer_calls};
    c->handle.calls = (struct wire_call *)(void *)(c->block.at + shape.calls);
    c->head = (struct shmchan_head *)(void *)c->block.at;
    c->acks = (struct shmchan_acks *)(void *)(c->block.at + shape.acks);
    c->inbox = (struct shmchan_inbox *)(void *)(c->block.at + shape.inbox);
    struct shmchan_offer mine = {SHMCHAN_MAGIC, base_hash(base_hash(team->id, (uint32_t)team->rank), number) | 1, c->block.where,
                                 shmchan_shape_hash(&shape, team->id)};
    atomic_store_explicit(&c->head->id, mine.id, memory_order_release);
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    base_lock(&host->lock, host->env);
    link_into(&host->channels, c);
    base_unlock(&host->lock, host->env);
    *channel = &c->handle;
    return COMM_OK;
}

static enum comm_result connect(struct shmchan_channel *c, const char *offers)
{
    struct shmchan_host *host = c->host;
    struct wire_call **calls = (struct wire_call **)(uintptr_t)c->handle.peer_calls;
    uint64_t shape = 0;
    for (uint32_t i = 0; i < c->size; i++) {
        struct shmchan_offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        shape = i ? shape : o.shape;
        if (o.magic != SHMCHAN_MAGIC || o.shape != shape) {
            base_log(host->log, LOG_ERROR, "rank %u of the new communicator was made with other limits than rank 0", i);
            return COMM_ERR_CONFIG;
        }
        struct shmchan_peer *p = &c->peer[i];
        p->base = host->base ? host->base[c->world[i]] : 0;
        p->id = o.id;
        p->block = (char *)(p->base + o.where);
        p->head = (struct shmchan_head *)(void *)p->block;
        calls[i] = (struct wire_call *)(void *)(p->block + c->shape.calls);
    }
    c->handle.board = &c->peer[0].head->board;
    c->shared_epoch = &c->peer[0].head->epoch;
    return COMM_OK;
}

static void bury(struct shmchan_channel *c)
{
    struct shmchan_host *host = c->host;
    shmchan_message_forget(c);
    atomic_store_explicit(&c->head->left, 1, memory_order_release);
    base_lock(&host->lock, host->env);
    unlink_from(c);
    link_into(&host->graves, c);
    base_unlock(&host->lock, host->env);
}

enum comm_result shmchan_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                              void *offer, struct wire_channel **channel)
{
    struct shmchan_host *host = (struct shmchan_host *)wire;
    if (!offers)
        return make(host, team, limits, offer, channel);
    struct shmchan_channel *c = shmchan_of(*channel);
    enum comm_result result = connect(c, offers);
    if (result != COMM_OK) {
        bury(c);
        *channel = NULL;
    }
    return result;
}

void shmchan_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct shmchan_channel *c = shmchan_of(channel);
    if (how == WIRE_CLOSE) {
        bury(c);
        return;
    }
    base_lock(&c->host->lock, c->host->env);
    c->host->torn = true;
    base_unlock(&c->host->lock, c->host->env);
    /* Only this rank's own calls, and peers that know a landing place, write to user memory. So it is enough to replace
     * those places and forget the rest. */
    for (uint32_t i = 0; i < c->waiting; i++)
        if (c->wait[i].reported)
            shmchan_replace(c->host, c->wait[i].land, c->wait[i].bytes);
    c->waiting = c->unresolved = c->showing = 0;
    memset(c->reported, 0, sizeof c->reported);
    c->aborted = true;
    shmchan_message_forget(c);
}
