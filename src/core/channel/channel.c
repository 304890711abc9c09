/*
 * A memory wire's channels: their shape, how members meet through offers, and how memory is given back. Memory that others may still read
 * is never touched: a channel that was left stays on its host's list until every member has left it too, or the host ends.
 */
#include "channel/lines.h"

#include "base/hash.h"
#include "base/log.h"

#include <string.h>

#define LINES_MAGIC UINT64_C(0x636f6d6d6c696e31)

struct lines_offer {
    uint64_t magic, id, where, shape;
};
_Static_assert(sizeof(struct lines_offer) <= WIRE_OFFER_BYTES, "an offer is small");

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
    size_t share = size > 1 ? ((size_t)4 * LINES_PLACE_BYTES / (size - 1)) & ~(size_t)4095 : LINES_PLACE_BYTES;
    share = share < LINES_CHUNK_PRIVATE_MIN ? LINES_CHUNK_PRIVATE_MIN : share;
    return share < LINES_PLACE_BYTES ? share : LINES_PLACE_BYTES;
}

/* In the order of operations: edges side by side, but the first one by itself where it has more. */
static void shape_lines(struct lines_shape *s, const struct wire_limits *limits, size_t *at)
{
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;
    size_t line = sizeof(struct lines_line), first = carve(at, apart * LINES_AHEAD_WINDOWS * s->window * line);
    size_t others = carve(at, LINES_WINDOWS * (size_t)s->window * together * line);

    for (uint32_t i = 0; i < s->once_edges; i++) {
        bool alone = i < apart;
        s->edge[i].line_mask = (alone ? LINES_AHEAD_WINDOWS : LINES_WINDOWS) * s->window - 1;
        s->edge[i].line = alone ? first : others + (i - apart) * line;
        s->edge[i].line_step = (alone ? 1 : together) * line;
    }
}

/* The same, behind the other once places. */
static void shape_briefs(struct lines_shape *s, const struct wire_limits *limits)
{
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;
    size_t place = LINES_BRIEF_BYTES + sizeof(struct lines_line); /* no power of two either */
    size_t at = s->once_bytes;

    for (uint32_t i = 0; i < s->once_edges; i++) {
        struct lines_edge *e = &s->edge[i];
        bool alone = i < apart;
        e->brief_mask = limits->minimal ? 0 : lesser(e->line_mask, (alone ? LINES_AHEAD_PLACES : LINES_BRIEF_PLACES) - 1);
        e->brief_step = (alone ? 1 : together) * place;
        e->brief = at;
        at += alone ? (e->brief_mask + 1) * place : place; /* of those together the first row, here */
        s->once_bytes += (e->brief_mask + 1) * place;
    }
}

/* How many rows, of so many at the most, are within the bytes. */
static uint32_t rows_within(uint32_t most, size_t row, size_t bytes)
{
    while (most > LINES_EACH_LEAST && most * row > bytes)
        most /= 2;
    return most;
}

static void shape_each(struct lines_shape *s, const struct wire_limits *limits)
{
    size_t readers = s->size - 1, line = sizeof(struct lines_line), place = WIRE_EACH_BYTES + line; /* no power of two */
    uint32_t windows = limits->ahead ? LINES_AHEAD_WINDOWS : LINES_WINDOWS;
    uint32_t lines = rows_within(windows * s->window, readers * line, LINES_EACH_LINES_BYTES);
    uint32_t places = limits->minimal ? 1 : rows_within(lesser(lines, LINES_BRIEF_PLACES), readers * place, LINES_EACH_BYTES);

    s->each = (struct lines_each){.line_mask = lines - 1,
                                  .place_mask = places - 1,
                                  .line_step = readers * line,
                                  .place = lines * readers * line,
                                  .place_step = readers * place,
                                  .bytes = lines * readers * line + places * readers * place};
}

/* Chunks of each reader that has its own; shown to all, they are all readers'. */
static struct lines_credits credits(const struct wire_limits *limits, size_t readers, size_t chunk)
{
    uint32_t credits = limits->minimal ? 1 : LINES_CREDITS;

    while (credits > LINES_CREDITS_LEAST && credits * readers * chunk > LINES_EDGE_BYTES)
        credits /= 2;
    while (limits->credits && credits > limits->credits)
        credits /= 2;
    return (struct lines_credits){credits - 1, (uint32_t)__builtin_ctz(credits)};
}

static void shape_places(struct lines_shape *s, const struct wire_limits *limits, struct wire_caps *caps)
{
    s->area_mask = limits->minimal ? 0 : LINES_AREAS - 1;
    s->once_mask = limits->minimal ? 0 : LINES_ONCE_PLACES - 1;
    caps->chunk_all = limits->chunk ? limits->chunk : LINES_PLACE_BYTES;
    caps->chunk_private = limits->chunk ? limits->chunk : limits->chunk_private ? limits->chunk_private : private_chunk(s->size);
    s->all = credits(limits, 1, caps->chunk_all);
    s->private = credits(limits, s->size - 1, caps->chunk_private);
    caps->once_max = LINES_PLACE_BYTES;
    s->once_stride = LINES_PLACE_BYTES + LINES_PLACE_SKEW;
    s->once_bytes = (size_t)(s->once_mask + 1) * s->once_edges * s->once_stride;
    shape_briefs(s, limits);
    shape_each(s, limits);
    s->all_stride = sizeof(struct lines_line) + ((caps->chunk_all + 63) & ~(uint64_t)63);
    s->private_stride = sizeof(struct lines_line) + ((caps->chunk_private + 63) & ~(uint64_t)63);
    /* One edge's memory, laid out either way. */
    size_t all = (s->all.mask + 1) * s->all_stride, each = (size_t)(s->size - 1) * (s->private.mask + 1) * s->private_stride;
    s->edge_stride = all > each ? all : each;
    s->stream_bytes = (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES * s->edge_stride;
    s->pair_bytes = sizeof(struct lines_pair) + s->window * sizeof(struct lines_line) + LINES_EAGER_SLOTS * LINES_EAGER_BYTES;
    s->chunk_stride = sizeof(struct lines_line) + LINES_PLACE_BYTES;
    s->chunk_bytes = LINES_CHUNKS * s->chunk_stride;
}

static bool shape_of(struct lines_shape *s, uint32_t size, const struct wire_limits *limits, struct wire_caps *caps)
{
    uint32_t window = limits->window ? limits->window : LINES_WINDOW;
    if (window < LINES_WINDOW_MIN || window > LINES_WINDOW_MAX || (window & (window - 1)) || limits->chunk > LINES_PLACE_BYTES ||
        limits->chunk_private > LINES_PLACE_BYTES)
        return false;
    *s = (struct lines_shape){.size = size,
                              .window = window,
                              .once_edges = once_edges_of(limits, size),
                              .rendezvous = limits->rendezvous,
                              .copies = limits->copies};
    uint32_t windows = limits->ahead ? LINES_AHEAD_WINDOWS : LINES_WINDOWS;
    *caps = (struct wire_caps){.inline_max = LINES_INLINE, .window = window, .calls = 2 * windows * window};
    size_t at = 0;
    carve(&at, sizeof(struct lines_head));
    s->inbox = carve(&at, (size + 63) / 64 * sizeof(uint64_t));
    s->calls = carve(&at, caps->calls * sizeof(struct wire_call));
    shape_lines(s, limits, &at);
    shape_places(s, limits, caps);
    s->acks = carve(&at, (size_t)LINES_AREAS * size * sizeof(struct lines_acks));
    s->pairs = carve(&at, size * sizeof(uint64_t));
    s->chunks = carve(&at, size * sizeof(uint64_t));
    s->inlets = carve(&at, size * sizeof(struct lines_inlet));
    BASE_ASSERT(size != 2 || s->all.mask == s->private.mask); /* a landing's slot is found without the edge's kind */
    if (size == 2)
        s->landings = carve(&at, lines_landing_slots(s) * sizeof(struct lines_landing));
    s->bytes = at;
    return true;
}

static uint64_t shape_hash(const struct lines_shape *s, uint64_t team)
{
    uint64_t hash = base_hash(base_hash(team, s->size), s->window);
    hash = base_hash(base_hash(hash, s->once_edges), s->bytes);
    return base_hash(base_hash(base_hash(hash, s->stream_bytes), s->once_bytes), s->each.bytes);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static void put_spare(struct lines_host *host, const struct lines_block *block, bool head)
{
    struct lines_spare **list = head ? &host->spare_heads : &host->spare_regions;
    struct lines_spare *spare = (struct lines_spare *)(void *)(block->at + LINES_SPARE_AT);
    *spare = (struct lines_spare){*block, *list};
    *list = spare;
}

static bool take_spare(struct lines_host *host, size_t bytes, bool head, struct lines_block *block)
{
    for (struct lines_spare **at = head ? &host->spare_heads : &host->spare_regions; *at; at = &(*at)->next) {
        if ((*at)->block.bytes < bytes || (*at)->block.bytes / 2 > bytes)
            continue;
        *block = (*at)->block;
        *at = (*at)->next;
        return true;
    }
    return false;
}

static bool take_memory(struct lines_host *host, size_t bytes, bool head, struct lines_block *block, bool *spare)
{
    base_lock(&host->lock, host->env);
    *spare = take_spare(host, bytes, head, block);
    bool taken = *spare || host->take(host, bytes, block);
    base_unlock(&host->lock, host->env);
    return taken;
}

static bool take_head(struct lines_host *host, size_t bytes, struct lines_block *block)
{
    const size_t kept = offsetof(struct lines_head, retired);
    bool spare;

    if (!take_memory(host, bytes, true, block, &spare))
        return false;
    if (spare) { /* another identity first: who still asks finds that its channel is gone */
        struct lines_head *h = (struct lines_head *)(void *)block->at;
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
        memset(at + i * stride, 0, sizeof(struct lines_line));
}

static void clear_region(const struct lines_channel *c, uint32_t index)
{
    const struct lines_shape *s = &c->shape;
    char *at = c->region[index].at;

    if (index == LINES_REGION_ONCE)
        return; /* its lines are in the head's block */
    if (index == LINES_REGION_EACH) {
        memset(at, 0, s->each.place); /* its lines are in front */
    } else if (index == LINES_REGION_STREAM) {
        for (size_t edge = 0; edge < (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES; edge++) { /* laid out either way */
            clear_lines(at + edge * s->edge_stride, s->all_stride, s->all.mask + 1);
            clear_lines(at + edge * s->edge_stride, s->private_stride, (size_t)(s->size - 1) * (s->private.mask + 1));
        }
    } else if ((index - LINES_REGION_PAIRS) % 2) {
        clear_lines(at, s->chunk_stride, LINES_CHUNKS);
    } else {
        memset(at, 0, sizeof(struct lines_pair) + s->window * sizeof(struct lines_line));
    }
}

bool lines_region(struct lines_channel *c, uint32_t index, size_t bytes)
{
    bool spare;

    BASE_ASSERT(index < c->regions && !c->region[index].at && bytes >= LINES_SPARE_AT + sizeof(struct lines_spare));
    if (!take_memory(c->host, bytes, false, &c->region[index], &spare))
        return false;
    if (spare)
        clear_region(c, index);
    return true;
}

static struct lines_channel *make_private(const struct comm_env *env, const struct wire_team *team, const struct lines_shape *shape)
{
    size_t at = 0, size = (size_t)team->size, waits = 256 + 8 * size, words = (size + 63) / 64;
    carve(&at, sizeof(struct lines_channel));
    size_t peer = carve(&at, size * sizeof(struct lines_peer)), calls = carve(&at, size * sizeof(struct wire_call *));
    size_t watch = carve(&at, waits * sizeof(struct lines_watch)), wait = carve(&at, waits * sizeof(struct lines_wait));
    size_t todo = carve(&at, words * sizeof(uint64_t)), world = carve(&at, size * sizeof(int32_t));
    size_t regions = LINES_REGION_PAIRS + 2 * size, region = carve(&at, regions * sizeof(struct lines_block));
    char *memory = env->take(env, at, 128);
    if (!memory)
        return NULL;
    struct lines_channel *c = (struct lines_channel *)(void *)memory;
    *c = (struct lines_channel){.shape = *shape, .rank = (uint32_t)team->rank, .size = (uint32_t)team->size, .bytes = at};
    c->peer = (struct lines_peer *)(void *)(memory + peer);
    c->face.peer_calls = (struct wire_call *const *)(void *)(memory + calls);
    c->watch = (struct lines_watch *)(void *)(memory + watch);
    c->wait = (struct lines_wait *)(void *)(memory + wait);
    c->waiting_max = (uint32_t)waits;
    c->todo = (uint64_t *)(void *)(memory + todo);
    c->todo_words = (uint32_t)words;
    c->region = (struct lines_block *)(void *)(memory + region);
    c->regions = (uint32_t)regions;
    c->world = (int32_t *)(void *)(memory + world);
    memcpy(c->world, team->world, size * sizeof(int32_t));
    return c;
}

/* Nobody reads it any more: its memory is for the next channel. Under the host's lock. */
static void recycle(struct lines_host *host, struct lines_channel *c)
{
    for (uint32_t i = 0; i < c->regions; i++)
        if (c->region[i].at)
            put_spare(host, &c->region[i], false);
    if (c->block.at)
        put_spare(host, &c->block, true);
    host->env->give(host->env, c, c->bytes);
}

/* The host ends, but other members may still read our last bytes: not one of them is written. */
static void give_back(struct lines_host *host, struct lines_channel *c)
{
    for (uint32_t i = 0; i < c->regions; i++)
        if (c->region[i].at)
            host->give(host, &c->region[i]);
    if (c->block.at)
        host->give(host, &c->block);
    host->env->give(host->env, c, c->bytes);
}

static void give_spares(struct lines_host *host, struct lines_spare *spare)
{
    while (spare) {
        struct lines_block block = spare->block;
        spare = spare->next;
        host->give(host, &block);
    }
}

static void link_into(struct lines_channel **list, struct lines_channel *c)
{
    c->next = *list;
    c->previous = list;
    if (c->next)
        c->next->previous = &c->next;
    *list = c;
}

static void unlink_from(struct lines_channel *c)
{
    *c->previous = c->next;
    if (c->next)
        c->next->previous = c->previous;
}

static bool all_left(const struct lines_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        const struct lines_peer *p = &c->peer[i];
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
static void sweep(struct lines_host *host)
{
    struct lines_channel *c = host->graves;
    while (c) {
        struct lines_channel *next = c->next;
        if (all_left(c)) {
            unlink_from(c);
            recycle(host, c);
        }
        c = next;
    }
}

void lines_host_start(struct lines_host *host, const struct wire_config *config)
{
    host->env = config->env;
    host->log = config->log;
}

void lines_host_end(struct lines_host *host)
{
    struct lines_channel *c, *next;
    for (c = host->channels; c; c = next) {
        next = c->next;
        lines_message_forget(c);
        give_back(host, c);
    }
    for (c = host->graves; c; c = next) {
        next = c->next;
        give_back(host, c);
    }
    host->channels = host->graves = NULL;
    lines_memory_end(host);
    give_spares(host, host->spare_heads);
    give_spares(host, host->spare_regions);
}

/* ------------------------------------------------------------------------------------------------------------ join, leave */
static enum comm_result make(struct lines_host *host, const struct wire_team *team, const struct wire_limits *limits, void *offer,
                             struct wire_channel **channel)
{
    struct lines_shape shape;
    struct wire_caps caps;
    if (team->size < 1 || team->size > UINT16_MAX || team->rank < 0 || team->rank >= team->size)
        return COMM_ERR_ARGUMENT;
    if (!shape_of(&shape, (uint32_t)team->size, limits, &caps))
        return COMM_ERR_CONFIG;
    base_lock(&host->lock, host->env);
    sweep(host);
    uint64_t number = ++host->count;
    base_unlock(&host->lock, host->env);
    struct lines_channel *c = make_private(host->env, team, &shape);
    if (!c)
        return COMM_ERR_MEMORY;
    c->host = host;
    if (!take_head(host, shape.bytes, &c->block)) {
        base_log(host->log, LOG_ERROR, "a communicator of %d ranks needs %zu bytes of shared lines: no memory", team->size, shape.bytes);
        host->env->give(host->env, c, c->bytes);
        return COMM_ERR_MEMORY;
    }
    c->face = (struct wire_channel){
        .class = host->wire.class, .wire = &host->wire, .memory = &lines_memory_class, .caps = caps, .peer_calls = c->face.peer_calls};
    c->face.calls = (struct wire_call *)(void *)(c->block.at + shape.calls);
    c->head = (struct lines_head *)(void *)c->block.at;
    c->acks = (struct lines_acks *)(void *)(c->block.at + shape.acks);
    c->inbox = (_Atomic uint64_t *)(void *)(c->block.at + shape.inbox);
    struct lines_offer mine = {LINES_MAGIC, base_hash(base_hash(team->id, (uint32_t)team->rank), number) | 1, c->block.where,
                               shape_hash(&shape, team->id)};
    atomic_store_explicit(&c->head->id, mine.id, memory_order_release);
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    base_lock(&host->lock, host->env);
    link_into(&host->channels, c);
    base_unlock(&host->lock, host->env);
    *channel = &c->face;
    return COMM_OK;
}

static enum comm_result connect(struct lines_channel *c, const char *offers)
{
    struct lines_host *host = c->host;
    struct wire_call **calls = (struct wire_call **)(uintptr_t)c->face.peer_calls;
    uint64_t shape = 0;
    for (uint32_t i = 0; i < c->size; i++) {
        struct lines_offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        shape = i ? shape : o.shape;
        if (o.magic != LINES_MAGIC || o.shape != shape) {
            base_log(host->log, LOG_ERROR, "rank %u of the new communicator was made with other limits than rank 0", i);
            return COMM_ERR_CONFIG;
        }
        struct lines_peer *p = &c->peer[i];
        p->base = host->base ? host->base[c->world[i]] : 0;
        p->id = o.id;
        p->block = (char *)(p->base + o.where);
        p->head = (struct lines_head *)(void *)p->block;
        calls[i] = (struct wire_call *)(void *)(p->block + c->shape.calls);
    }
    c->face.board = &c->peer[0].head->board;
    c->shared_epoch = &c->peer[0].head->epoch;
    return COMM_OK;
}

static void bury(struct lines_channel *c)
{
    struct lines_host *host = c->host;
    lines_message_forget(c);
    atomic_store_explicit(&c->head->left, 1, memory_order_release);
    base_lock(&host->lock, host->env);
    unlink_from(c);
    link_into(&host->graves, c);
    base_unlock(&host->lock, host->env);
}

enum comm_result lines_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                            void *offer, struct wire_channel **channel)
{
    struct lines_host *host = (struct lines_host *)wire;
    if (!offers)
        return make(host, team, limits, offer, channel);
    struct lines_channel *c = lines_of(*channel);
    enum comm_result result = connect(c, offers);
    if (result != COMM_OK) {
        bury(c);
        *channel = NULL;
    }
    return result;
}

void lines_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct lines_channel *c = lines_of(channel);
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
            lines_replace(c->host, c->wait[i].land, c->wait[i].bytes);
    c->waiting = c->unresolved = c->showing = 0;
    memset(c->told, 0, sizeof c->told);
    c->aborted = true;
    lines_message_forget(c);
}
