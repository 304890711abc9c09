/*
 * A memory wire's channels: their shape, how members meet through offers, and how memory is given back. Memory that others may still read
 * is never touched: a channel that was left stays on its host's list until every member has left it too, or the host ends.
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

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t once_edges_of(const struct wire_limits *limits, uint32_t size)
{
    /* At least one per level of a doubling, which any team may be told to use; in small teams one for each other rank, behind streams'. */
    uint32_t edges = size == 3 ? 5 : size == 4 ? 6 : 2;
    if (limits->once_edges)
        return limits->once_edges < WIRE_ONCE_EDGES_MAX ? limits->once_edges : WIRE_ONCE_EDGES_MAX;
    while ((UINT32_C(1) << edges) < size)
        edges++;
    return edges < WIRE_ONCE_EDGES_MAX ? edges : WIRE_ONCE_EDGES_MAX;
}

static size_t private_chunk(uint32_t size)
{
    size_t share = size > 1 ? ((size_t)4 * SHMCHAN_PLACE_BYTES / (size - 1)) & ~(size_t)4095 : SHMCHAN_PLACE_BYTES;
    share = share < SHMCHAN_CHUNK_PRIVATE_MIN ? SHMCHAN_CHUNK_PRIVATE_MIN : share;
    return share < SHMCHAN_PLACE_BYTES ? share : SHMCHAN_PLACE_BYTES;
}

/* In the order of operations: edges side by side, but the first one by itself where it has more. */
static void shape_lines(struct shmchan_shape *s, const struct wire_limits *limits, size_t *at)
{
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;
    size_t line = sizeof(struct shmchan_line), first = carve(at, apart * SHMCHAN_AHEAD_WINDOWS * s->window * line);
    size_t others = carve(at, SHMCHAN_WINDOWS * (size_t)s->window * together * line);

    for (uint32_t i = 0; i < s->once_edges; i++) {
        bool alone = i < apart;
        s->edge[i].line_mask = (alone ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS) * s->window - 1;
        s->edge[i].line = alone ? first : others + (i - apart) * line;
        s->edge[i].line_step = (alone ? 1 : together) * line;
    }
}

/* The same, behind the other once places. */
static void shape_briefs(struct shmchan_shape *s, const struct wire_limits *limits)
{
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;
    size_t place = SHMCHAN_BRIEF_BYTES + sizeof(struct shmchan_line); /* no power of two either */
    size_t at = s->once_bytes;

    for (uint32_t i = 0; i < s->once_edges; i++) {
        struct shmchan_edge *e = &s->edge[i];
        bool alone = i < apart;
        e->brief_mask = limits->minimal ? 0 : lesser(e->line_mask, (alone ? SHMCHAN_AHEAD_PLACES : SHMCHAN_BRIEF_PLACES) - 1);
        e->brief_step = (alone ? 1 : together) * place;
        e->brief = at;
        at += alone ? (e->brief_mask + 1) * place : place; /* of those together the first row, here */
        s->once_bytes += (e->brief_mask + 1) * place;
    }
}

/* How many rows, of so many at the most, are within the bytes. */
static uint32_t rows_within(uint32_t most, size_t row, size_t bytes)
{
    while (most > SHMCHAN_EACH_LEAST && most * row > bytes)
        most /= 2;
    return most;
}

static void shape_each(struct shmchan_shape *s, const struct wire_limits *limits)
{
    size_t readers = s->size - 1, line = sizeof(struct shmchan_line), place = WIRE_EACH_BYTES + line; /* no power of two */
    uint32_t windows = limits->ahead ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS;
    uint32_t lines = rows_within(windows * s->window, readers * line, SHMCHAN_EACH_LINES_BYTES);
    uint32_t places = limits->minimal ? 1 : rows_within(lesser(lines, SHMCHAN_BRIEF_PLACES), readers * place, SHMCHAN_EACH_BYTES);

    s->each = (struct shmchan_each){.line_mask = lines - 1,
                                    .place_mask = places - 1,
                                    .line_step = readers * line,
                                    .place = lines * readers * line,
                                    .place_step = readers * place,
                                    .bytes = lines * readers * line + places * readers * place};
}

/* Chunks of each reader that has its own; shown to all, they are all readers'. */
static struct shmchan_credits credits(const struct wire_limits *limits, size_t readers, size_t chunk)
{
    uint32_t credits = limits->minimal ? 1 : SHMCHAN_CREDITS;

    while (credits > SHMCHAN_CREDITS_LEAST && credits * readers * chunk > SHMCHAN_EDGE_BYTES)
        credits /= 2;
    while (limits->credits && credits > limits->credits)
        credits /= 2;
    return (struct shmchan_credits){credits - 1, (uint32_t)__builtin_ctz(credits)};
}

static void shape_places(struct shmchan_shape *s, const struct wire_limits *limits, struct wire_caps *caps)
{
    s->area_mask = limits->minimal ? 0 : SHMCHAN_AREAS - 1;
    s->once_mask = limits->minimal ? 0 : SHMCHAN_ONCE_PLACES - 1;
    caps->chunk_all = limits->chunk ? limits->chunk : SHMCHAN_PLACE_BYTES;
    caps->chunk_private = limits->chunk ? limits->chunk : limits->chunk_private ? limits->chunk_private : private_chunk(s->size);
    s->all = credits(limits, 1, caps->chunk_all);
    s->private = credits(limits, s->size - 1, caps->chunk_private);
    caps->once_max = SHMCHAN_PLACE_BYTES;
    s->once_stride = SHMCHAN_PLACE_BYTES + SHMCHAN_PLACE_SKEW;
    s->once_bytes = (size_t)(s->once_mask + 1) * s->once_edges * s->once_stride;
    shape_briefs(s, limits);
    shape_each(s, limits);
    s->all_stride = sizeof(struct shmchan_line) + ((caps->chunk_all + 63) & ~(uint64_t)63);
    s->private_stride = sizeof(struct shmchan_line) + ((caps->chunk_private + 63) & ~(uint64_t)63);
    /* One edge's memory, laid out either way. */
    size_t all = (s->all.mask + 1) * s->all_stride, each = (size_t)(s->size - 1) * (s->private.mask + 1) * s->private_stride;
    s->edge_stride = all > each ? all : each;
    s->stream_bytes = (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES * s->edge_stride;
    s->pair_bytes = sizeof(struct shmchan_pair) + s->window * sizeof(struct shmchan_line) + SHMCHAN_EAGER_SLOTS * SHMCHAN_EAGER_BYTES;
    s->chunk_stride = sizeof(struct shmchan_line) + SHMCHAN_PLACE_BYTES;
    s->chunk_bytes = SHMCHAN_CHUNKS * s->chunk_stride;
}

static bool shape_of(struct shmchan_shape *s, uint32_t size, const struct wire_limits *limits, struct wire_caps *caps)
{
    uint32_t window = limits->window ? limits->window : SHMCHAN_WINDOW;
    if (window < SHMCHAN_WINDOW_MIN || window > SHMCHAN_WINDOW_MAX || (window & (window - 1)) || limits->chunk > SHMCHAN_PLACE_BYTES ||
        limits->chunk_private > SHMCHAN_PLACE_BYTES)
        return false;
    *s = (struct shmchan_shape){.size = size,
                                .window = window,
                                .once_edges = once_edges_of(limits, size),
                                .rendezvous = limits->rendezvous,
                                .copies = limits->copies};
    uint32_t windows = limits->ahead ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS;
    *caps = (struct wire_caps){.inline_max = SHMCHAN_INLINE, .window = window, .calls = 2 * windows * window, .dirties = size == 2};
    size_t at = 0;
    carve(&at, sizeof(struct shmchan_head));
    s->inbox = carve(&at, (size + 63) / 64 * sizeof(uint64_t));
    s->calls = carve(&at, caps->calls * sizeof(struct wire_call));
    shape_lines(s, limits, &at);
    shape_places(s, limits, caps);
    s->acks = carve(&at, (size_t)SHMCHAN_AREAS * size * sizeof(struct shmchan_acks));
    s->pairs = carve(&at, size * sizeof(uint64_t));
    s->chunks = carve(&at, size * sizeof(uint64_t));
    s->inlets = carve(&at, size * sizeof(struct shmchan_inlet));
    BASE_ASSERT(size != 2 || s->all.mask == s->private.mask); /* a landing's slot is found without the edge's kind */
    if (size == 2)
        s->landings = carve(&at, shmchan_landing_slots(s) * sizeof(struct shmchan_landing));
    s->bytes = at;
    return true;
}

static uint64_t shape_hash(const struct shmchan_shape *s, uint64_t team)
{
    uint64_t hash = base_hash(base_hash(team, s->size), s->window);
    hash = base_hash(base_hash(hash, s->once_edges), s->bytes);
    return base_hash(base_hash(base_hash(hash, s->stream_bytes), s->once_bytes), s->each.bytes);
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
    if (spare) { /* another identity first: who still asks finds that its channel is gone */
        struct shmchan_head *h = (struct shmchan_head *)(void *)block->at;
        atomic_store_explicit(&h->id, 0, memory_order_release);
        atomic_store_explicit(&h->left, 0, memory_order_release);
        memset(block->at + kept, 0, bytes - kept);
    }
    return true;
}

/* What an earlier channel left where this one looks for keys, at the beginning of each place. The bytes behind it are looked at only when
 * their key stands, so they need not be cleared: most of a region is these. */
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
        memset(at, 0, s->each.place); /* its lines are in front */
    } else if (index == SHMCHAN_REGION_STREAM) {
        for (size_t edge = 0; edge < (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES; edge++) { /* laid out either way */
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
    size_t at = 0, size = (size_t)team->size, waits = 256 + 8 * size, words = (size + 63) / 64;
    carve(&at, sizeof(struct shmchan_channel));
    size_t peer = carve(&at, size * sizeof(struct shmchan_peer)), calls = carve(&at, size * sizeof(struct wire_call *));
    size_t watch = carve(&at, waits * sizeof(struct shmchan_watch)), wait = carve(&at, waits * sizeof(struct shmchan_wait));
    size_t todo = carve(&at, words * sizeof(uint64_t)), world = carve(&at, size * sizeof(int32_t));
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
    c->todo = (uint64_t *)(void *)(memory + todo);
    c->todo_words = (uint32_t)words;
    c->region = (struct shmchan_block *)(void *)(memory + region);
    c->regions = (uint32_t)regions;
    c->world = (int32_t *)(void *)(memory + world);
    memcpy(c->world, team->world, size * sizeof(int32_t));
    return c;
}

/* Nobody reads it any more: its memory is for the next channel. Under the host's lock. */
static void recycle(struct shmchan_host *host, struct shmchan_channel *c)
{
    for (uint32_t i = 0; i < c->regions; i++)
        if (c->region[i].at)
            put_spare(host, &c->region[i], false);
    if (c->block.at)
        put_spare(host, &c->block, true);
    host->env->give(host->env, c, c->bytes);
}

/* The host ends, but other members may still read our last bytes: not one of them is written. */
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
            return false; /* it never met them: they may have met it */
        if (atomic_load_explicit(&p->head->id, memory_order_acquire) == p->id &&
            !atomic_load_explicit(&p->head->left, memory_order_acquire))
            return false;
    }
    return true;
}

/* Under the host's lock. What nobody reads any more goes back. A head is asked before it can be reused: that needs this rank's leave too.
 */
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
    if (!shape_of(&shape, (uint32_t)team->size, limits, &caps))
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
    c->inbox = (_Atomic uint64_t *)(void *)(c->block.at + shape.inbox);
    struct shmchan_offer mine = {SHMCHAN_MAGIC, base_hash(base_hash(team->id, (uint32_t)team->rank), number) | 1, c->block.where,
                                 shape_hash(&shape, team->id)};
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
    /* But for places that peers were told of only this rank's own calls write its users' memory: forgetting is enough. */
    for (uint32_t i = 0; i < c->waiting; i++)
        if (c->wait[i].told)
            shmchan_replace(c->host, c->wait[i].land, c->wait[i].bytes);
    c->waiting = c->unresolved = c->showing = 0;
    memset(c->told, 0, sizeof c->told);
    c->aborted = true;
    shmchan_message_forget(c);
}
