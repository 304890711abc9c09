/*
 * Opens and closes the mixed wire and its channels. The near wire is opened among the ranks of each host, which meet
 * under a name that no other world has. The far wire is opened among all ranks, and told to leave out pairs on one
 * host. Between the two, all ranks learn the result of every near wire.
 *
 * The shape of a channel must be equal on all members, however many of them share a host. So the near wire is told the
 * limits that follow from the largest host, instead of deriving them from its own number of members.
 */
#include "hybrid/mixed.h"

#include "base/format.h"
#include "base/result.h"

#include <string.h>

#define TELL_NS INT64_C(1000000000)

enum {
    OFFER_PART = WIRE_OFFER_BYTES / 2,
    WINDOW = 64,          /* the default of both wires */
    ONCE_EDGES_LEAST = 6, /* for programs across hosts, and for doubling up to 64 ranks */
    PRIVATE_LEAST = 8192,
    PRIVATE_MOST = 65536,
    PRIVATE_TOGETHER = 4 * PRIVATE_MOST, /* of one exposure to each peer of a host */
    NEAR_TEXT = 200,
    HALVES_LANES = 8,     /* lanes of an operation, each with one current exposure */
    HALVES_STREAMS = 128, /* exposures to all that both sides still read: areas x edges x credits of either */
};

/* ------------------------------------------------------------------------------------------------------------ open, close */
static void destroy(struct mixed_wire *w)
{
    if (w->far)
        w->far->class->close(w->far);
    if (w->near)
        w->near->class->close(w->near);
    if (w->boot)
        w->boot->class->close(w->boot);
    w->env->give(w->env, w, w->bytes);
}

static struct mixed_wire *create(const struct wire_config *config)
{
    size_t ranks = (size_t)config->ranks, head = (sizeof(struct mixed_wire) + 63) & ~(size_t)63;
    size_t bytes = head + 3 * ranks * sizeof(int32_t);
    char *memory = config->env->take(config->env, bytes, 64);

    if (!memory)
        return NULL;
    struct mixed_wire *w = (struct mixed_wire *)(void *)memory;
    *w = (struct mixed_wire){
        .wire = {.class = &wire_mixed}, .env = config->env, .rank = config->rank, .ranks = config->ranks, .bytes = bytes};
    w->host = (int32_t *)(void *)(memory + head);
    w->index = w->host + ranks;
    w->local = w->index + ranks;
    int32_t mine = 0;
    memcpy(w->host, config->host, ranks * sizeof *w->host);
    for (int32_t r = 0; r < w->ranks; r++) {
        for (int32_t lower = 0; lower < r; lower++)
            w->index[r] += w->host[lower] == w->host[r];
        if (w->rank >= 0 && w->host[r] == w->host[w->rank])
            w->local[mine++] = r;
    }
    return w;
}

static int32_t ranks_of_host(const struct mixed_wire *w, int32_t host)
{
    int32_t count = 0;

    for (int32_t r = 0; r < w->ranks; r++)
        count += w->host[r] == host;
    return count;
}

/* Some time before the deadline of the world's own meeting, where all ranks learn which rank did not come. */
static int64_t near_deadline(const struct wire_config *config)
{
    int64_t left = config->deadline - config->env->now(config->env);

    return config->deadline - (left / 8 < TELL_NS ? left / 8 : TELL_NS);
}

/* The ranks of one host meet among themselves, unless a rank of the world is found to be gone. */
static enum comm_result open_near(struct mixed_wire *w, const struct wire_config *config)
{
    struct wire_config near = *config;
    char job[64];

    near.host = NULL;
    near.boot = NULL;
    if (w->rank < 0)
        return config->near->open(&near, &w->near);
    near.rank = w->index[w->rank];
    near.ranks = ranks_of_host(w, w->host[w->rank]);
    base_format(job, sizeof job, "near.%016llx.%d", (unsigned long long)config->world, w->host[w->rank]);
    struct boot_config boot = {.env = config->env,
                               .log = config->log,
                               .rank = near.rank,
                               .ranks = near.ranks,
                               .job = job,
                               .deadline = near_deadline(config),
                               .outer = config->boot,
                               .error_text = config->error_text,
                               .error_text_bytes = config->error_text_bytes};
    enum comm_result result = config->near_boot->open(&boot, &w->boot);
    if (result != COMM_OK)
        return result;
    near.boot = w->boot;
    result = config->near->open(&near, &w->near);
    w->boot->class->close(w->boot);
    w->boot = NULL;
    return result;
}

/* The result of one rank's near wire. */
struct near_card {
    int32_t result;
    char text[NEAR_TEXT];
};

/* Prefers a rank with an error of its own to one that only lost another rank. */
static int32_t rank_that_failed(const struct mixed_wire *w, const struct near_card *cards)
{
    int32_t who = -1, lost = -1;

    for (int32_t r = w->ranks - 1; r >= 0; r--) {
        if (cards[r].result == COMM_ERR_PEER || cards[r].result == COMM_ERR_TIMEOUT)
            lost = r;
        else if (cards[r].result != COMM_OK)
            who = r;
    }
    return who < 0 ? lost : who;
}

/* The far wire opens only when all near wires have. The world's own meeting reports a dead rank, because it knows that
 * rank by its world number. */
static enum comm_result near_of_all(const struct mixed_wire *w, const struct wire_config *config, enum comm_result result)
{
    size_t bytes = (size_t)w->ranks * sizeof(struct near_card);
    struct near_card mine = {.result = result}, *cards = w->env->take(w->env, bytes, 64);

    if (!cards) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the wires of %d ranks", w->ranks);
        return COMM_ERR_MEMORY;
    }
    if (result != COMM_OK)
        base_copy_text(mine.text, sizeof mine.text, config->error_text);
    result = config->boot->class->allgather(config->boot, &mine, sizeof mine, cards);
    int32_t who = result == COMM_OK ? rank_that_failed(w, cards) : -1;
    if (who >= 0) {
        result = base_result_told(cards[who].result);
        base_format(config->error_text, config->error_text_bytes, "rank %d, of its host's ranks, which count from 0: %.*s", who, NEAR_TEXT,
                    cards[who].text);
    }
    w->env->give(w->env, cards, bytes);
    return result;
}

enum comm_result mixed_open(const struct wire_config *config, struct wire **wire)
{
    struct wire_config across = *config;

    if (!config->host) {
        base_format(config->error_text, config->error_text_bytes, "the wire over several hosts was not told which rank is where");
        return COMM_ERR_CONFIG;
    }
    struct mixed_wire *w = create(config);
    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the wires of %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    across.across = true;
    enum comm_result result = open_near(w, config);
    if (w->rank >= 0)
        result = near_of_all(w, config, result);
    if (result == COMM_OK)
        result = config->far->open(&across, &w->far);
    if (result != COMM_OK) {
        destroy(w);
        return result;
    }
    w->wire.asks = w->far->asks = w->near->asks;
    w->wire.silent = w->near->silent || w->far->silent;
    *wire = &w->wire;
    return COMM_OK;
}

void mixed_close(struct wire *wire)
{
    destroy((struct mixed_wire *)wire);
}

/* ------------------------------------------------------------------------------------------------------------ join */
static bool shares_host(const struct mixed_wire *w, const struct wire_team *team, int32_t member)
{
    return w->host[team->world[member]] == w->host[team->world[team->rank]];
}

static int32_t near_members(const struct mixed_wire *w, const struct wire_team *team)
{
    int32_t count = 0;

    for (int32_t i = 0; i < team->size; i++)
        count += shares_host(w, team, i);
    return count;
}

/* The near wire's name of a rank. */
static int32_t near_name(const struct mixed_wire *w, int32_t world)
{
    return w->rank < 0 ? world : w->index[world];
}

/* The largest number of members on one host: equal on all members. */
static uint32_t largest_host(const struct mixed_wire *w, const struct wire_team *team)
{
    uint32_t most = 0;

    for (int32_t i = 0; i < team->size; i++) {
        uint32_t count = 0;
        for (int32_t j = 0; j < team->size; j++)
            count += w->host[team->world[j]] == w->host[team->world[i]];
        most = count > most ? count : most;
    }
    return most;
}

static struct wire_limits near_limits(const struct mixed_wire *w, const struct wire_team *team, const struct wire_limits *limits)
{
    struct wire_limits near = *limits;
    uint32_t most = largest_host(w, team), edges = ONCE_EDGES_LEAST;
    uint32_t each = most > 1 ? (PRIVATE_TOGETHER / (most - 1)) & ~UINT32_C(4095) : PRIVATE_MOST;

    while ((UINT32_C(1) << edges) < (uint32_t)team->size)
        edges++;
    near.once_edges = near.once_edges > edges ? near.once_edges : edges;
    near.chunk_private = each < PRIVATE_LEAST ? PRIVATE_LEAST : each < PRIVATE_MOST ? each : PRIVATE_MOST;
    near.copies = 1;
    near.ahead = 0; /* so that both wires have the same number of calls */
    return near;
}

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += (bytes + 63) & ~(size_t)63;
    return here;
}

static struct mixed_channel *make(struct mixed_wire *w, const struct wire_team *team, uint32_t window)
{
    size_t size = (size_t)team->size, at = 0, halves = (size_t)window * HALVES_LANES + HALVES_STREAMS;
    carve(&at, sizeof(struct mixed_channel));
    size_t names = carve(&at, 2 * size * sizeof(int32_t)), peers = carve(&at, 3 * size * sizeof(uint16_t));
    size_t near = carve(&at, size * sizeof(bool)), calls = carve(&at, size * sizeof(struct wire_call *));
    size_t half = carve(&at, halves * sizeof(struct mixed_half));
    char *memory = w->env->take(w->env, at, 64);

    if (!memory)
        return NULL;
    struct mixed_channel *c = (struct mixed_channel *)(void *)memory;
    *c = (struct mixed_channel){.w = w, .rank = (uint32_t)team->rank, .size = (uint32_t)size, .halves = (uint32_t)halves, .bytes = at};
    c->handle.class = &wire_mixed;
    c->handle.wire = &w->wire;
    c->near_world = (int32_t *)(void *)(memory + names);
    c->near_member = c->near_world + size;
    c->to_near = (uint16_t *)(void *)(memory + peers);
    c->near_peers = c->to_near + size;
    c->far_peers = c->near_peers + size;
    c->is_near = (bool *)(void *)(memory + near);
    c->calls = (struct wire_call **)(void *)(memory + calls);
    c->half = (struct mixed_half *)(void *)(memory + half);
    for (int32_t i = 0; i < team->size; i++) {
        c->is_near[i] = shares_host(w, team, i);
        if (!c->is_near[i])
            continue;
        c->to_near[i] = (uint16_t)c->nears;
        c->near_world[c->nears] = near_name(w, team->world[i]);
        c->near_member[c->nears++] = i;
    }
    return c;
}

static struct wire_team near_team(const struct mixed_channel *c, const struct wire_team *team)
{
    return (struct wire_team){team->id, c->to_near[c->rank], (int32_t)c->nears, c->near_world, NULL};
}

/* Both wires use only half of an offer. */
static void pack(const unsigned char *near, const unsigned char *far, unsigned char *offer)
{
    for (int i = OFFER_PART; i < WIRE_OFFER_BYTES; i++)
        BASE_ASSERT(!near[i] && !far[i]);
    memcpy(offer, near, OFFER_PART);
    memcpy(offer + OFFER_PART, far, OFFER_PART);
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static enum comm_result offer_both(struct mixed_channel *c, const struct wire_team *team, const struct wire_limits *limits, void *offer)
{
    unsigned char near_offer[WIRE_OFFER_BYTES], far_offer[WIRE_OFFER_BYTES];
    struct mixed_wire *w = c->w;
    struct wire_team near = near_team(c, team);
    struct wire_limits near_limit = near_limits(w, team, limits);

    enum comm_result result = w->near->class->join(w->near, &near, &near_limit, NULL, near_offer, &c->near);
    if (result == COMM_OK)
        result = w->far->class->join(w->far, team, limits, NULL, far_offer, &c->far);
    if (result != COMM_OK)
        return result;
    const struct wire_caps *a = &c->near->caps, *b = &c->far->caps;
    if (a->calls != b->calls || a->window != b->window)
        return COMM_ERR_CONFIG;
    c->handle.caps = (struct wire_caps){.inline_max = (uint32_t)lesser(a->inline_max, b->inline_max),
                                        .window = a->window,
                                        .calls = a->calls,
                                        .once_max = lesser(a->once_max, b->once_max),
                                        .chunk_all = lesser(a->chunk_all, b->chunk_all),
                                        .chunk_private = lesser(a->chunk_private, b->chunk_private),
                                        .chunk_least = b->chunk_least,
                                        .takes_growing = a->takes_growing && b->takes_growing,
                                        .keeps_long = a->keeps_long,
                                        .note_lead_ns = b->note_lead_ns};
    c->handle.traffic = c->far->traffic;
    c->handle.carrier = c->far->carrier ? c->far->carrier : c->far->class->name;
    c->handle.calls = c->far->calls = c->near->calls;
    pack(near_offer, far_offer, offer);
    return COMM_OK;
}

/* Frees what exists of the channel. */
static void drop(struct mixed_channel *c)
{
    const struct comm_env *env = c->w->env;

    if (c->far)
        c->far->class->leave(c->far, WIRE_CLOSE); /* first, because it reads the near channel's calls */
    if (c->near)
        c->near->class->leave(c->near, WIRE_CLOSE);
    env->give(env, c, c->bytes);
}

static enum comm_result connect_both(struct mixed_channel *c, const struct wire_team *team, const unsigned char *offers)
{
    struct mixed_wire *w = c->w;
    size_t bytes = (size_t)team->size * WIRE_OFFER_BYTES;
    unsigned char *near = w->env->take(w->env, 2 * bytes, 64), *far = near + bytes;
    struct wire_team members = near_team(c, team);

    if (!near)
        return COMM_ERR_MEMORY;
    for (uint32_t i = 0; i < c->size; i++) {
        const unsigned char *offer = offers + (size_t)i * WIRE_OFFER_BYTES;
        memcpy(far + (size_t)i * WIRE_OFFER_BYTES, offer + OFFER_PART, OFFER_PART);
        if (c->is_near[i])
            memcpy(near + (size_t)c->to_near[i] * WIRE_OFFER_BYTES, offer, OFFER_PART);
    }
    enum comm_result result = w->near->class->join(w->near, &members, NULL, near, NULL, &c->near);
    if (result == COMM_OK)
        result = w->far->class->join(w->far, team, NULL, far, NULL, &c->far);
    w->env->give(w->env, near, 2 * bytes);
    if (result != COMM_OK)
        return result;
    for (uint32_t i = 0; i < c->size; i++)
        c->calls[i] = c->is_near[i] ? c->near->peer_calls[c->to_near[i]] : c->far->peer_calls[i];
    c->handle.peer_calls = c->calls;
    return COMM_OK;
}

/* All members are on one host: use the near wire's channel alone. */
static enum comm_result join_near(struct mixed_wire *w, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                                  void *offer, struct wire_channel **channel)
{
    size_t bytes = (size_t)team->size * sizeof(int32_t);
    int32_t *names = w->env->take(w->env, bytes, 64); /* the near wire copies it: see shmchan_channel.world */

    if (!names)
        return COMM_ERR_MEMORY;
    for (int32_t i = 0; i < team->size; i++)
        names[i] = near_name(w, team->world[i]);
    struct wire_team near = {team->id, team->rank, team->size, names, NULL};
    enum comm_result result = w->near->class->join(w->near, &near, limits, offers, offer, channel);
    w->env->give(w->env, names, bytes);
    return result;
}

enum comm_result mixed_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                            void *offer, struct wire_channel **channel)
{
    struct mixed_wire *w = (struct mixed_wire *)wire;
    enum comm_result result;

    if (near_members(w, team) == team->size)
        return join_near(w, team, limits, offers, offer, channel);
    struct mixed_channel *c = offers ? mixed_of(*channel) : make(w, team, limits->window ? limits->window : WINDOW);
    if (!c)
        return COMM_ERR_MEMORY;
    result = offers ? connect_both(c, team, offers) : offer_both(c, team, limits, offer);
    if (result == COMM_OK) {
        *channel = &c->handle;
        return COMM_OK;
    }
    drop(c);
    *channel = NULL;
    return result;
}

void mixed_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct mixed_channel *c = mixed_of(channel);

    if (how == WIRE_CLOSE) {
        drop(c);
        return;
    }
    c->far->class->leave(c->far, how);
    c->near->class->leave(c->near, how);
    memset(c->half, 0, c->halves * sizeof *c->half);
    c->used = c->unfinished = 0;
}
