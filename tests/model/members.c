/* Two members of a channel over the explorer's memory, and their exposures and views. */
#include "model/members.h"

#include "base/log.h"

#include <string.h>

struct members *members;
static const int32_t world[2] = {0, 1};

static bool take(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    char *at = host->env->take(host->env, bytes, 128);
    *block = (struct shmchan_block){at, (uint64_t)(uintptr_t)at, bytes};
    return at != NULL;
}

static void give(struct shmchan_host *host, const struct shmchan_block *block)
{
    host->env->give(host->env, block->at, block->bytes);
}

static void ring(struct shmchan_host *host, struct shmchan_channel *channel)
{
    (void)host;
    (void)channel;
}

static bool lend(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block)
{
    char *at = host->env->take(host->env, bytes, SHMCHAN_LANDING_PAGE);
    (void)placement;
    *block = (struct shmchan_block){at, (uint64_t)(uintptr_t)at, bytes};
    return at != NULL;
}

static bool replace(struct shmchan_host *host, char *at, size_t bytes)
{
    (void)host;
    (void)at;
    (void)bytes;
    return true;
}

static void name_all(struct shmchan_channel *c)
{
    const struct shmchan_shape *s = &c->shape;
    char *block = c->block.at;
    for (uint32_t sort = 0; sort < WIRE_NOTE_SORTS; sort++) {
        struct shmchan_note *note = &c->head->note[sort];
        model_name(&note->version, sizeof note->version, "note version");
        model_name(&note->tag, sizeof *note - offsetof(struct shmchan_note, tag), "note word");
    }
    model_name(c->head->long_word, sizeof c->head->long_word, "note word");
    model_name(&c->head->retired, sizeof c->head->retired, "retired");
    model_name(&c->head->left, sizeof c->head->left, "left");
    model_name(&c->head->id, sizeof c->head->id, "id");
    model_name(&c->head->epoch, sizeof c->head->epoch, "note epoch");
    model_name(&c->head->once, sizeof c->head->once + sizeof c->head->stream + sizeof c->head->each, "where places are");
    model_name(block + s->inbox, s->calls - s->inbox, "inbox");
    model_name(block + s->acks, s->pairs - s->acks, "ack");
    model_name(block + s->pairs, s->inlets - s->pairs, "where pairs are");
    model_name(block + s->inlets, s->landings - s->inlets, "inlet");
    model_name(block + s->edge[0].line, s->acks - s->edge[0].line, "line key"); /* its only atomic */
    model_name(block + s->landings, shmchan_landing_slots(s) * sizeof(struct shmchan_landing), "landing key");
}

void members_join(struct shmchan_host *first, struct shmchan_host *second, struct wire_limits limits)
{
    char offers[2][WIRE_OFFER_BYTES];
    struct shmchan_host *const host[2] = {first, second};
    for (int32_t r = 0; r < 2; r++) {
        struct wire_team team = {.id = 77, .rank = r, .size = 2, .world = world};
        members->host[r] = host[r];
        MODEL_CHECK(shmchan_join(&host[r]->wire, &team, &limits, NULL, offers[r], &members->channel[r]) == COMM_OK);
    }
    for (int32_t r = 0; r < 2; r++) {
        struct wire_team team = {.id = 77, .rank = r, .size = 2, .world = world};
        MODEL_CHECK(shmchan_join(&host[r]->wire, &team, NULL, offers, NULL, &members->channel[r]) == COMM_OK);
        name_all(shmchan_of(members->channel[r]));
    }
}

static struct shmchan_host *make_host(void)
{
    static const struct base_log silent = {.env = &model_env, .level = 0, .rank = -1};
    static _Atomic uint32_t nobody;
    struct shmchan_host *host = model_env.take(&model_env, sizeof *host, 64);
    shmchan_host_start(host, &(struct wire_config){.env = &model_env, .log = &silent});
    host->take = take;
    host->give = give;
    host->ring = ring;
    host->lend = lend;
    host->take_back = give;
    host->replace = replace;
    host->sleepers = &nobody;
    return host;
}

void members_make(struct wire_limits limits)
{
    members = model_env.take(&model_env, sizeof *members, 64);
    members_join(make_host(), make_host(), limits);
}

enum wire_result member_expose(uint32_t rank, wire_key key, uint16_t edge, size_t bytes)
{
    unsigned char data[256];
    const uint16_t other = (uint16_t)(1 - rank);
    struct wire_span span = {data, bytes};
    struct wire_expose e = {
        .key = key, .fingerprint = 5, .edge = edge, .flags = WIRE_WORK, .peers = &other, .npeers = 1, .nspans = 1, .spans = &span};
    memset(data, (int)(wire_key_seq(key) + wire_key_round(key)), sizeof data);
    return shmchan_expose(members->channel[rank], &e);
}

/* Stores seq + round + edge into both ends of where the wire wants the bytes. */
static enum wire_result build(uint32_t rank, wire_key key, size_t bytes, struct wire_view *answers)
{
    const uint16_t other = (uint16_t)(1 - rank);
    struct wire_span span = {NULL, bytes};
    struct wire_expose e = {
        .key = key, .fingerprint = 5, .flags = WIRE_WORK, .peers = &other, .npeers = 1, .nspans = 1, .spans = &span, .answers = answers};
    uint64_t word = (wire_key_seq(key) + wire_key_round(key) + wire_key_edge(key)) * UINT64_C(0x0101010101010101);
    void *pad = NULL;
    enum wire_result result = shmchan_reserve(members->channel[rank], &e, bytes, &pad);
    if (result != WIRE_DONE && result != WIRE_LANDING && result != WIRE_ANSWERS)
        return result;
    MODEL_CHECK((answers != NULL) == (result == WIRE_ANSWERS));
    memcpy(pad, &word, sizeof word);
    memcpy((char *)pad + bytes - sizeof word, &word, sizeof word);
    span.at = pad;
    e.flags |= WIRE_BUILT | (result == WIRE_LANDING ? WIRE_DEPOSIT : result == WIRE_ANSWERS ? WIRE_ANSWER : 0);
    return shmchan_expose(members->channel[rank], &e);
}

enum wire_result member_store(uint32_t rank, wire_key key, size_t bytes)
{
    return build(rank, key, bytes, NULL);
}

enum wire_result member_answer(uint32_t rank, wire_key key, size_t bytes, struct wire_view *view)
{
    return build(rank, key, bytes, view);
}

static enum wire_result look(uint32_t rank, wire_key key, uint16_t edge, uint16_t flags, size_t bytes, struct wire_view *view, void *land)
{
    struct wire_look l = {
        .key = key, .fingerprint = 5, .edge = edge, .flags = flags, .peer = 1 - rank, .land = land, .bytes = bytes, .view = view};
    return shmchan_view(members->channel[rank], &l);
}

enum wire_result member_view(uint32_t rank, wire_key key, uint16_t edge, uint16_t flags, size_t bytes, struct wire_view *view)
{
    return look(rank, key, edge, flags, bytes, view, NULL);
}

enum wire_result member_land(uint32_t rank, wire_key key, uint16_t edge, size_t bytes, void *land)
{
    return look(rank, key, edge, WIRE_WORK, bytes, NULL, land);
}
