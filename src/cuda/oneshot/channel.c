/*
 * The life of a channel. A communicator has one if all of its ranks are on one host, and the kernel for short sums or the pipeline for long
 * ones works on all of their devices. All members decide that alike, from their offers.
 */
#include "cuda/kernels.h"
#include "cuda/oneshot/oneshot.h"

#include "base/format.h"

#include <string.h>

/* Says once why device buffers of a communicator are staged. Of a reason that all members know, one of them does. */
static enum comm_result stage(struct oneshot *n, const struct wire_team *team, bool all_know, const char *why)
{
    if (n->log && (!all_know || team->rank == 0) && !atomic_exchange_explicit(&n->said, true, memory_order_relaxed))
        base_log(n->log, LOG_WARNING, "cuda rank=%d of %d: short allreduces are staged: %s", team->rank, team->size, why);
    return COMM_ERR_UNSUPPORTED;
}

/* ------------------------------------------------------------------------------------------------------------ making and freeing */
static unsigned make_stream(struct oneshot_channel *c)
{
    struct cuda_device *d = c->d;
    unsigned result = cuda_make_stream(d, 2, &c->stream); /* the copies' is 1, so the two share no hardware queue (copy.c) */

    c->done = cuda_take_word(d);
    c->wrong = cuda_take_word(d);
    c->abort = cuda_take_word(d);
    if (result == CUDA_OK && (!c->done || !c->wrong || !c->abort))
        return CUDA_OUT_OF_MEMORY;
    return result == CUDA_OK ? d->calls->cuMemsetD8Async(cuda_counters(d, c->done), 0, CUDA_COUNTERS_BYTES, c->stream) : result;
}

static unsigned make_parts(struct oneshot_channel *c)
{
    struct cuda_device *d = c->d;
    struct cuda_inside inside;

    if (!cuda_begin(d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = make_stream(c);
    cuda_end(d, &inside);
    if (result != CUDA_OK)
        return result;
    atomic_store_explicit(&d->words[c->wrong], 0, memory_order_relaxed);
    atomic_store_explicit(&d->words[c->abort], 0, memory_order_relaxed);
    c->args.state = (struct oneshot_state *)(uintptr_t)cuda_counters(d, c->done);
    c->args.done = (uint64_t *)(uintptr_t)cuda_word_there(d, c->done);
    c->args.wrong = (uint64_t *)(uintptr_t)cuda_word_there(d, c->wrong);
    c->args.abort = (const uint64_t *)(uintptr_t)cuda_word_there(d, c->abort);
    c->args.base = atomic_load_explicit(&d->words[c->done], memory_order_relaxed);
    return CUDA_OK;
}

static void give_word(struct cuda_device *d, uint32_t word)
{
    if (word)
        cuda_give_word(d, word);
}

/* Nothing of it is on the device. */
static void free_channel(struct oneshot_channel *c)
{
    struct oneshot *n = c->owner;
    struct cuda_inside inside;

    oneshot_stop_choosing(c);
    if (c->pipeline)
        pipeline_free(c->pipeline);
    if (c->box)
        oneshot_leave_box(n, c->box);
    if (cuda_begin(c->d, &inside)) {
        if (c->stream)
            c->d->calls->cuStreamDestroy(c->stream);
        give_word(c->d, c->done);
        give_word(c->d, c->wrong);
        give_word(c->d, c->abort);
        give_word(c->d, c->mark);
        cuda_end(c->d, &inside);
    }
    env_give_back(n->env, c->calls, c->room * sizeof *c->calls);
    n->env->give(n->env, c, sizeof *c);
}

/* By the device, or by graphs, which may launch its kernel again. */
static bool is_held(struct oneshot_channel *c)
{
    return atomic_load_explicit(&c->held.graphs, memory_order_acquire) || oneshot_runs(c);
}

static void keep(struct oneshot_channel *c)
{
    struct oneshot *n = c->owner;

    base_lock(&n->lock, n->env);
    c->next = n->ending;
    n->ending = c;
    base_unlock(&n->lock, n->env);
}

/* Returns 1 if it is kept until nothing of it is on the device. */
static uint32_t drop(struct oneshot_channel *c)
{
    if (!is_held(c)) {
        free_channel(c);
        return 0;
    }
    oneshot_stop_choosing(c);
    keep(c);
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ joining */
static int32_t world_rank_of(const struct wire_team *team)
{
    return team->world ? team->world[team->rank] : team->rank;
}

static struct oneshot_channel *make(struct oneshot *n, const struct wire_team *team)
{
    struct oneshot_channel *c = n->env->take(n->env, sizeof *c, 64);

    if (!c)
        return NULL;
    c->head.native = &n->head;
    c->owner = n;
    c->d = n->device[oneshot_here(n, world_rank_of(team))];
    c->args.rank = (uint32_t)team->rank;
    c->args.ranks = (uint32_t)team->size;
    return c;
}

/* NULL: this rank's device can run the kernel. */
static const char *lacks_kernel(struct oneshot_channel *c, uint64_t *hardware)
{
    if (cuda_launches_block())
        return "CUDA_LAUNCH_BLOCKING is set, so a launch waits for the kernels of other ranks";
    if (!cuda_can_run_oneshot(c->d))
        return "the module or the driver has no kernel for a rank's device, or the device cannot use registered memory";
    return device_cuda.where(&c->d->head, hardware) == COMM_OK ? NULL : "CUDA does not tell which device a rank has";
}

/* A rank alone needs none. */
static bool has_pages(struct oneshot_channel *c)
{
    if (!cuda_can_combine(c->d) || c->args.ranks == 1)
        return cuda_can_combine(c->d);
    return oneshot_take_pages(c->owner, c->box) && oneshot_pin(c->owner, c->d, c->box->pages, PIPELINE_AREA_BYTES);
}

static enum comm_result offer_of(struct oneshot_channel *c, const struct wire_team *team, struct oneshot_offer *offer)
{
    struct oneshot *n = c->owner;
    const char *why = lacks_kernel(c, &offer->hardware);

    offer->host = n->host;
    offer->serves = why ? 0 : ONESHOT_HAS_KERNEL;
    if (why)
        (void)stage(n, team, false, why);
    if (why && !cuda_can_combine(c->d))
        return COMM_ERR_UNSUPPORTED;
    c->box = oneshot_take_box(n, team->channel, oneshot_here(n, world_rank_of(team)));
    if (!c->box)
        return stage(n, team, false, "there is not enough shared memory for a rank's mailbox");
    if (has_pages(c))
        offer->serves |= ONESHOT_HAS_PIPELINE;
    offer->pages = c->box->pages_where;
    offer->where = c->box->where;
    offer->life = c->box->life;
    offer->slots = cuda_can_try(c->d) ? c->box->slots : 0;
    offer->place = n->place;
    offer->secret = n->secret;
    memcpy(offer->post, n->post.name, sizeof offer->post);
    return COMM_OK;
}

static enum comm_result begin(struct oneshot *n, const struct wire_team *team, void *offer, struct native_channel **channel)
{
    struct oneshot_offer mine = {0};

    (void)oneshot_reap(n);
    if (team->size > ONESHOT_RANKS)
        return stage(n, team, true, "the kernel serves 64 ranks at most");
    if (!team->channel || !team->channel->memory)
        return stage(n, team, true, "the ranks do not share memory");
    struct oneshot_channel *c = make(n, team);
    if (!c)
        return COMM_ERR_MEMORY;
    enum comm_result r = offer_of(c, team, &mine);
    if (r != COMM_OK) {
        free_channel(c);
        return r;
    }
    memcpy(offer, &mine, sizeof mine);
    *channel = &c->head;
    return COMM_OK;
}

/* What all members can do. Kernels of one device may not run at the same time, so ranks that share a device would wait for each other in
 * the kernel for short sums. */
static uint32_t agree(struct oneshot *n, const struct wire_team *team, const unsigned char *offers)
{
    uint32_t serves = ONESHOT_HAS_KERNEL | ONESHOT_HAS_PIPELINE;
    char why[96];

    for (int32_t i = 0; i < team->size; i++) {
        struct oneshot_offer a = oneshot_offer_at(offers, i);
        serves &= a.serves;
        for (int32_t k = 0; k < i; k++) {
            struct oneshot_offer b = oneshot_offer_at(offers, k);
            if (a.host != b.host) {
                (void)stage(n, team, true, "its ranks are on several hosts");
                return 0;
            }
            if (!(serves & ONESHOT_HAS_KERNEL) || a.hardware != b.hardware)
                continue;
            base_format(why, sizeof why, "ranks %d and %d have one device; expected a device for each", k, i);
            (void)stage(n, team, true, why);
            serves &= ~(uint32_t)ONESHOT_HAS_KERNEL;
        }
    }
    return serves;
}

static void know_peers(struct oneshot_channel *c, const struct wire_team *team, const unsigned char *offers)
{
    struct oneshot_box *box = c->box;

    for (int32_t r = 0; r < team->size; r++) {
        struct oneshot_offer offer = oneshot_offer_at(offers, r);
        if (r == team->rank)
            continue;
        box->peer[box->peers].head = team->channel->memory->reach(team->channel, r, offer.where);
        box->peer[box->peers++].then = offer.life;
    }
}

static enum comm_result cannot_pin(const struct oneshot_channel *c, uint32_t rank)
{
    if (c->owner->log)
        base_log(c->owner->log, LOG_ERROR, "cuda rank=%u: the mailbox or the pages of rank %u cannot be pinned; backend shm needs none",
                 c->args.rank, rank);
    return COMM_ERR_BACKEND;
}

static enum comm_result pin_all(struct oneshot_channel *c, const struct wire_team *team)
{
    for (int32_t r = 0, peer = 0; r < team->size; r++) {
        char *at = r == team->rank ? c->box->at : (char *)(uintptr_t)c->box->peer[peer++].head;
        cuda_address there = oneshot_pin(c->owner, c->d, at, ONESHOT_BOX_BYTES);
        if (!there)
            return cannot_pin(c, (uint32_t)r);
        c->args.box[r] = c->args.slots[r] = (char *)(uintptr_t)there;
    }
    return COMM_OK;
}

static enum comm_result make_kernel(struct oneshot_channel *c)
{
    unsigned result = make_parts(c);

    c->has_kernel = result == CUDA_OK;
    if (c->has_kernel)
        return COMM_OK;
    if (c->owner->log)
        base_log(c->owner->log, LOG_ERROR, "cuda rank=%u: making a stream failed (%u)", c->args.rank, result);
    return cuda_result(result) == COMM_ERR_UNSUPPORTED ? COMM_ERR_BACKEND : cuda_result(result);
}

static enum comm_result make_pipeline(struct oneshot_channel *c, const struct wire_team *team, const unsigned char *offers)
{
    struct oneshot_box *box = c->box;
    struct pipeline_config config = {.env = c->owner->env, .d = c->d, .rank = c->args.rank, .ranks = c->args.ranks};

    for (uint32_t r = 0, peer = 0; r < config.ranks; r++) {
        bool own = r == config.rank;
        uintptr_t at = own ? (uintptr_t)box->at : (uintptr_t)box->peer[peer++].head;
        config.words[r] = (struct pipeline_words *)(at + ONESHOT_PIPELINE_AT);
        if (config.ranks == 1)
            break;
        config.pages[r] = own ? box->pages : box->memory->reach(team->channel, (int32_t)r, oneshot_offer_at(offers, (int32_t)r).pages);
        config.there[r] = oneshot_pin(c->owner, c->d, config.pages[r], PIPELINE_AREA_BYTES);
        if (!config.there[r])
            return cannot_pin(c, r);
    }
    c->pipeline = pipeline_make(&config);
    return c->pipeline ? COMM_OK : COMM_ERR_MEMORY;
}

/* In a stream of the program's, only the kernel serves. */
static enum comm_result connect(struct oneshot_channel *c, const struct wire_team *team, const unsigned char *offers)
{
    uint32_t serves = agree(c->owner, team, offers);
    bool has_kernel = serves & ONESHOT_HAS_KERNEL, has_pipeline = serves & ONESHOT_HAS_PIPELINE && !c->given;

    if (!has_kernel && !has_pipeline)
        return COMM_ERR_UNSUPPORTED;
    know_peers(c, team, offers);
    enum comm_result r = pin_all(c, team);
    if (r == COMM_OK && has_pipeline)
        r = make_pipeline(c, team, offers);
    if (r == COMM_OK && has_kernel)
        r = make_kernel(c);
    return r == COMM_OK && c->has_kernel ? oneshot_choose(c, team, offers) : r;
}

enum comm_result oneshot_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                              struct native_channel **channel)
{
    struct oneshot *n = (struct oneshot *)(void *)native;

    _Static_assert(sizeof(struct oneshot_offer) <= NATIVE_OFFER_BYTES, "an offer holds it");
    if (!offers)
        return begin(n, team, offer, channel);
    struct oneshot_channel *c = (struct oneshot_channel *)(void *)*channel;
    enum comm_result r = connect(c, team, offers);
    if (r != COMM_OK) {
        oneshot_vote_against(c);
        (void)drop(c);
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ leaving */
uint32_t oneshot_reap(struct oneshot *n)
{
    uint32_t left = 0;

    base_lock(&n->lock, n->env);
    struct oneshot_channel *c = n->ending, *next;
    n->ending = NULL;
    base_unlock(&n->lock, n->env);
    for (; c; c = next) {
        next = c->next;
        left += drop(c);
    }
    return left;
}

uint32_t oneshot_leave(struct native_channel *channel, enum native_leave how)
{
    struct oneshot_channel *c = (struct oneshot_channel *)(void *)channel;

    bool runs = is_held(c);

    if (c->abort && (runs || how != NATIVE_LEAVE_CLOSE)) /* first, since what follows may wait for another rank of this process */
        atomic_store_explicit(&c->d->words[c->abort], 1, memory_order_release);
    oneshot_stop_choosing(c);
    if (c->pipeline)
        pipeline_stop(c->pipeline);
    c->issued = c->launched; /* what has not begun never will */
    return how == NATIVE_LEAVE_CLOSE ? drop(c) : runs;
}
