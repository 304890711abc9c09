/*
 * Memory that a rank's peers can access: what is lent to callers and to windows, where it lies, and when it is
 * returned. Not on the path of small operations; a large exposure looks here once per chunk.
 */
#include "channel/shmchan.h"

#include "base/edge.h"

enum { MEMORY_PAGE = 4096 };

static void insert(struct shmchan_host *host, struct shmchan_memory *memory)
{
    struct shmchan_memory **at = &host->memories;

    while (*at && (*at)->block.where > memory->block.where)
        at = &(*at)->next;
    memory->next = *at;
    *at = memory;
    atomic_fetch_add_explicit(&host->lent, 1, memory_order_relaxed);
}

static void *take(struct wire *wire, size_t bytes, enum wire_placement placement)
{
    struct shmchan_host *host = (struct shmchan_host *)wire;
    const struct comm_env *env = host->env;
    size_t most = SIZE_MAX - MEMORY_PAGE - EDGE_PAGE_BYTES;
    size_t whole = bytes > most ? 0 : ((bytes + MEMORY_PAGE - 1) & ~(size_t)(MEMORY_PAGE - 1)) + EDGE_PAGE_BYTES;
    struct shmchan_memory *memory = whole ? env->take(env, sizeof *memory, 64) : NULL;

    if (!memory)
        return NULL;
    *memory = (struct shmchan_memory){.next = NULL};
    base_lock(&host->lock, env);
    bool lent = host->lend(host, whole, placement, &memory->block);
    if (lent) {
        insert(host, memory);
        edge_set(memory->block.at, bytes, whole);
    }
    base_unlock(&host->lock, env);
    if (lent)
        return memory->block.at;
    env->give(env, memory, sizeof *memory);
    return NULL;
}

static void take_back(struct shmchan_host *host, const struct shmchan_block *block)
{
    edge_open(block->at, block->bytes);
    host->take_back(host, block);
}

static void give(struct wire *wire, void *at, bool keep)
{
    struct shmchan_host *host = (struct shmchan_host *)wire;
    struct shmchan_memory **link = &host->memories, *memory;

    base_lock(&host->lock, host->env);
    while ((memory = *link) && memory->block.at != at)
        link = &memory->next;
    BASE_ASSERT(memory && !memory->kept);
    memory->kept = keep || host->torn;
    if (!memory->kept) {
        *link = memory->next;
        atomic_fetch_sub_explicit(&host->lent, 1, memory_order_relaxed);
        take_back(host, &memory->block);
    }
    bool kept = memory->kept;
    base_unlock(&host->lock, host->env);
    if (!kept)
        host->env->give(host->env, memory, sizeof *memory);
}

/* Under the lock. Finds the piece that contains all of these bytes. */
static struct shmchan_memory *find(const struct shmchan_host *host, const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at;

    for (struct shmchan_memory *m = host->memories; m; m = m->next) {
        uintptr_t start = (uintptr_t)m->block.at;
        if (!m->kept && from >= start && from - start <= m->block.bytes && bytes <= m->block.bytes - (from - start))
            return m;
    }
    return NULL;
}

static uint64_t place_in(const struct shmchan_memory *memory, const void *at)
{
    return memory->block.where + ((uintptr_t)at - (uintptr_t)memory->block.at);
}

bool shmchan_where(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where)
{
    base_lock(&host->lock, host->env);
    const struct shmchan_memory *m = find(host, at, bytes);
    bool reached = m && !m->apart;
    if (reached)
        *where = place_in(m, at);
    base_unlock(&host->lock, host->env);
    return reached;
}

bool shmchan_where_to_land(struct shmchan_host *host, const void *at, size_t bytes, uint64_t *where)
{
    if (((uintptr_t)at | bytes) % SHMCHAN_LANDING_PAGE || !bytes)
        return false;
    base_lock(&host->lock, host->env);
    const struct shmchan_memory *m = find(host, at, bytes);
    bool may = m && !m->apart && !m->named;
    if (may)
        *where = place_in(m, at);
    base_unlock(&host->lock, host->env);
    return may;
}

/* Memory whose place was named since then stays where peers find it: a window's owner is told that a write may still be
 * under way there after a failure. */
void shmchan_replace(struct shmchan_host *host, void *at, size_t bytes)
{
    base_lock(&host->lock, host->env);
    struct shmchan_memory *m = find(host, at, bytes);
    bool replaced = !m || m->named || host->replace(host, at, bytes);
    if (m && !m->named)
        m->apart = true;
    base_unlock(&host->lock, host->env);
    if (!replaced)
        base_log(host->log, LOG_ERROR, "no memory for %zu bytes that a peer may still write: after this failure they are not to be trusted",
                 bytes);
}

static bool where_of(struct wire *wire, const void *at, size_t bytes, uint64_t *where)
{
    struct shmchan_host *host = (struct shmchan_host *)wire;

    base_lock(&host->lock, host->env);
    struct shmchan_memory *m = find(host, at, bytes);
    bool reached = m && !m->apart;
    if (reached) {
        m->named = true;
        *where = place_in(m, at);
    }
    base_unlock(&host->lock, host->env);
    return reached;
}

static void *reach(struct wire_channel *channel, int32_t peer, uint64_t where)
{
    return (void *)(shmchan_of(channel)->peer[peer].base + (uintptr_t)where);
}

static void wrote(struct wire_channel *channel)
{
    shmchan_of(channel)->dirty = true;
}

/* Peers may still read what was kept. So a host that shares it with other processes does not empty it, and the last of them frees it. */
void shmchan_memory_end(struct shmchan_host *host)
{
    host->torn = true;
    for (struct shmchan_memory *m = host->memories; m; m = host->memories) {
        host->memories = m->next; /* removed first: the host may look at what is still lent */
        take_back(host, &m->block);
        host->env->give(host->env, m, sizeof *m);
    }
}

const struct wire_memory_class shmchan_memory_class = {.take = take, .give = give, .where = where_of, .reach = reach, .wrote = wrote};
