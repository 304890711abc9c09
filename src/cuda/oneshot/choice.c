/*
 * Where the slots of a communicator lie: in the host's pages, or in memory of the devices (docs/internals/kernels.md). Chosen in the polls
 * of `joined`, before the first operation, by the votes that all members write into their mailboxes. A vote against it is the last one of
 * its rank, and so is one with measured times: so either some rank has voted against it, or all have measured, and all see the same.
 *
 * A poll of one channel moves all of this process that are choosing, since where all ranks are in this process they are polled one after
 * the other. The lock protects all of that.
 */
#include "cuda/kernels.h"
#include "cuda/oneshot/oneshot.h"

enum vote { VOTE_NONE, VOTE_REACHED, VOTE_MEASURED, VOTE_AGAINST, VOTE_RESTS = 4 /* beside the last vote: its trials are over */ };
enum { TRIALS = 2 /* through the host's pages, and through the devices' memory */, ROUNDS = 8, TRIAL_BYTES = 2048 };
_Static_assert(2 * (int)TRIAL_BYTES <= (int)ONESHOT_SLOTS_AT, "the buffers of a trial lie before the slots");

/* ------------------------------------------------------------------------------------------------------------ votes */
static void vote(struct oneshot_channel *c, uint64_t mine)
{
    atomic_store_explicit(&oneshot_head_of(c->box->at)->vote, mine, memory_order_release);
}

/* Peers of a rank that fails would wait for its vote. */
void oneshot_vote_against(struct oneshot_channel *c)
{
    vote(c, VOTE_AGAINST | VOTE_RESTS);
}

static uint64_t word_of(const struct oneshot_channel *c, int32_t peer)
{
    return atomic_load_explicit(&c->box->peer[peer].head->vote, memory_order_acquire);
}

static uint64_t vote_of(const struct oneshot_channel *c, int32_t peer)
{
    return word_of(c, peer) & ~(uint64_t)VOTE_RESTS;
}

static bool any_against(const struct oneshot_channel *c)
{
    for (int32_t i = 0; i < c->box->peers; i++)
        if (vote_of(c, i) == VOTE_AGAINST)
            return true;
    return false;
}

static bool all_say(const struct oneshot_channel *c, enum vote least)
{
    for (int32_t i = 0; i < c->box->peers; i++)
        if (vote_of(c, i) < least)
            return false;
    return true;
}

static bool all_rest(const struct oneshot_channel *c)
{
    for (int32_t i = 0; i < c->box->peers; i++)
        if (!(word_of(c, i) & VOTE_RESTS))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ the device */
unsigned oneshot_rests(const struct oneshot_channel *c)
{
    struct cuda_inside inside;

    if (!cuda_enter(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = c->d->calls->cuStreamQuery(c->stream);
    cuda_leave(c->d, &inside);
    return result;
}

static size_t trial_bytes(const struct oneshot_channel *c)
{
    uint32_t part = oneshot_part_bytes(c->args.ranks);

    return part < TRIAL_BYTES ? part : TRIAL_BYTES;
}

/* The buffers lie in memory of the device, before the slots. Each byte is 1 + the rank that it is from. */
static struct oneshot_trial trial_of(const struct oneshot_channel *c)
{
    struct oneshot_trial trial = {.args = c->args, .rounds = ROUNDS};
    struct oneshot_args *a = &trial.args;
    char *mine = (char *)(uintptr_t)c->choice.there[a->rank];

    trial.took = &oneshot_head_of(a->box[a->rank])->took[c->choice.trial];
    a->in = mine;
    a->out = mine + TRIAL_BYTES;
    a->elements = trial_bytes(c);
    a->kind = ONESHOT_SUM;
    a->type = COMM_U8;
    a->op = COMM_SUM;
    a->fingerprint = a->parts = 1;
    for (uint32_t r = 0; r < a->ranks && c->choice.trial; r++)
        a->slots[r] = (char *)(uintptr_t)c->choice.there[r];
    return trial;
}

static unsigned launch(struct oneshot_channel *c)
{
    struct oneshot_trial trial = trial_of(c);
    struct cuda_inside inside;

    if (!cuda_begin(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = c->d->calls->cuMemsetD8Async((uintptr_t)trial.args.in, (unsigned char)(1 + c->args.rank), trial_bytes(c), c->stream);
    if (result == CUDA_OK)
        result = cuda_run_trial(c->d, &trial, c->stream);
    cuda_end(c->d, &inside);
    c->choice.trial += result == CUDA_OK;
    return result;
}

static uint64_t done(const struct oneshot_channel *c)
{
    return atomic_load_explicit(&c->d->words[c->done], memory_order_acquire) - c->args.base;
}

static bool is_trying(const struct oneshot_channel *c)
{
    return done(c) < (uint64_t)c->choice.trial * ROUNDS;
}

/* Into a slot in the host's pages, which nobody reads any more: all ranks have gone on to the trial behind. */
static unsigned fetch_sum(struct oneshot_channel *c)
{
    struct cuda_inside inside;

    if (!cuda_begin(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = c->d->calls->cuMemcpyAsync((uintptr_t)c->args.box[c->args.rank] + ONESHOT_SLOTS_AT,
                                                 c->choice.there[c->args.rank] + TRIAL_BYTES, trial_bytes(c), c->stream);
    cuda_end(c->d, &inside);
    return result;
}

static bool sum_is_right(const struct oneshot_channel *c)
{
    const volatile unsigned char *sum = (const volatile unsigned char *)c->box->at + ONESHOT_SLOTS_AT;
    unsigned char want = (unsigned char)(c->args.ranks * (c->args.ranks + 1) / 2);

    for (size_t i = 0; i < trial_bytes(c); i++)
        if (sum[i] != want)
            return false;
    return true;
}

/* As after both trials, on all ranks: flags that a trial has left have smaller numbers than any operation that follows. */
static unsigned count_anew(struct oneshot_channel *c)
{
    cuda_address counters = cuda_counters(c->d, c->done);
    struct cuda_inside inside;

    if (!cuda_begin(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = c->d->calls->cuMemsetD8Async(counters, 0, CUDA_COUNTERS_BYTES, c->stream);
    if (result == CUDA_OK)
        result = c->d->calls->cuMemsetD32Async(counters + offsetof(struct oneshot_state, number), TRIALS * ROUNDS, 1, c->stream);
    cuda_end(c->d, &inside);
    if (result != CUDA_OK)
        return result;
    c->choice.trial = 0;
    atomic_store_explicit(&c->d->words[c->wrong], 0, memory_order_relaxed);
    atomic_store_explicit(&c->d->words[c->abort], 0, memory_order_relaxed);
    atomic_store_explicit(&c->d->words[c->done], c->args.base + TRIALS * ROUNDS, memory_order_release);
    return CUDA_OK;
}

/* ------------------------------------------------------------------------------------------------------------ stages */
static void go(struct oneshot_channel *c, enum oneshot_stage stage)
{
    c->choice.stage = stage;
}

/* why NULL: a peer has voted against it, and says why. */
static void give_up_and_say(struct oneshot_channel *c, int level, const char *why)
{
    const struct oneshot *n = c->owner;

    if (why && n->log && !atomic_exchange_explicit(&c->owner->said_why, true, memory_order_relaxed))
        base_log(n->log, level, "cuda rank=%u of %u: kernels exchange through the host's pages: %s", c->args.rank, c->args.ranks, why);
    vote(c, VOTE_AGAINST);
    atomic_store_explicit(&c->d->words[c->abort], 1, memory_order_release);
    go(c, ONESHOT_UNDOING);
}

static void give_up(struct oneshot_channel *c, const char *why)
{
    give_up_and_say(c, LOG_WARNING, why);
}

static void reach(struct oneshot_channel *c)
{
    const char *why = NULL;
    bool all = true;

    for (uint32_t r = 0; r < c->args.ranks && !why; r++) {
        if (!oneshot_may_reach(c, r)) {
            give_up_and_say(c, LOG_INFO, "CUDA says that a device cannot access another one");
            return;
        }
        if (!c->choice.there[r])
            c->choice.there[r] = oneshot_reach_slots(c, r, &why);
        all = all && c->choice.there[r];
    }
    if (why) {
        give_up(c, why);
    } else if (all) {
        vote(c, VOTE_REACHED);
        go(c, ONESHOT_VOTING);
    }
}

static void begin_trial(struct oneshot_channel *c)
{
    if (launch(c) == CUDA_OK)
        go(c, ONESHOT_TRYING);
    else
        give_up(c, "CUDA does not start the trial");
}

static void look_at_trial(struct oneshot_channel *c)
{
    if (is_trying(c)) {
        unsigned result = oneshot_rests(c);
        if (result != CUDA_OK && result != CUDA_NOT_READY)
            give_up(c, "CUDA reports an error of the trial");
    } else if (atomic_load_explicit(&c->d->words[c->wrong], memory_order_relaxed)) {
        give_up(c, "the trial did not end well");
    } else if (c->choice.trial < TRIALS) {
        begin_trial(c);
    } else if (fetch_sum(c) != CUDA_OK) {
        give_up(c, "CUDA does not copy the sum of the trial");
    } else {
        go(c, ONESHOT_CHECKING);
    }
}

static void check(struct oneshot_channel *c)
{
    unsigned result = oneshot_rests(c);

    if (result == CUDA_NOT_READY)
        return;
    if (result != CUDA_OK) {
        give_up(c, "CUDA reports an error of the trial");
    } else if (!sum_is_right(c)) {
        give_up(c, "a device read wrong data from the memory of another one");
    } else {
        vote(c, VOTE_MEASURED);
        go(c, ONESHOT_COMPARING);
    }
}

static const char *chosen(const struct oneshot_channel *c)
{
    return c->choice.by_devices ? "the devices' memory" : "the host's pages";
}

const char *oneshot_how(struct native_channel *channel)
{
    struct oneshot_channel *c = (struct oneshot_channel *)(void *)channel;

    if (c->took_long)
        return "copies and kernels of the device of each rank, through the host's pages";
    return c->choice.by_devices ? "one kernel on the device of each rank, through the devices' memory"
                                : "one kernel on the device of each rank, through the host's pages";
}

static void compare(struct oneshot_channel *c)
{
    struct oneshot *n = c->owner;
    const uint64_t *mine = oneshot_head_of(c->box->at)->took;
    uint64_t host = mine[0], devices = mine[1];

    for (int32_t i = 0; i < c->box->peers; i++) {
        host += c->box->peer[i].head->took[0];
        devices += c->box->peer[i].head->took[1];
    }
    c->choice.by_devices = devices < host;
    for (uint32_t r = 0; r < c->args.ranks && c->choice.by_devices; r++)
        c->args.slots[r] = (char *)(uintptr_t)c->choice.there[r];
    if (c->args.rank == 0 && n->log)
        base_log(n->log, atomic_exchange_explicit(&n->told, true, memory_order_relaxed) ? LOG_DEBUG : LOG_INFO,
                 "cuda ranks=%u: kernels exchange through %s: an exchange took %llu ns through the devices' memory, %llu ns through the "
                 "host's pages",
                 c->args.ranks, chosen(c), (unsigned long long)(devices / c->args.ranks / (ROUNDS - 1)),
                 (unsigned long long)(host / c->args.ranks / (ROUNDS - 1)));
    go(c, ONESHOT_RESTING);
}

/* What waits for nobody but the device. Returns CUDA's result. */
static unsigned settle(struct oneshot_channel *c)
{
    unsigned result = oneshot_rests(c);

    if (result != CUDA_OK)
        return result;
    if (c->choice.stage == ONESHOT_UNDOING) {
        result = count_anew(c);
        if (result != CUDA_OK)
            return result;
        go(c, ONESHOT_RESTING);
        return CUDA_NOT_READY;
    }
    if (c->choice.stage == ONESHOT_COUNTING && c->choice.offers) {
        c->choice.before = TRIALS * ROUNDS;
        go(c, ONESHOT_REACHING);
        return CUDA_NOT_READY;
    }
    if (c->choice.offers)
        atomic_fetch_or_explicit(&oneshot_head_of(c->box->at)->vote, VOTE_RESTS, memory_order_release);
    if (c->choice.offers && !all_rest(c)) /* if a rank dies before it says so, no rank has the communicator; if later, all have */
        return CUDA_NOT_READY;
    go(c, ONESHOT_CHOSEN);
    return CUDA_OK;
}

static unsigned step_once(struct oneshot_channel *c)
{
    enum oneshot_stage stage = c->choice.stage;
    bool waits = stage >= ONESHOT_REACHING && stage <= ONESHOT_COMPARING;

    if (stage == ONESHOT_CHOSEN)
        return CUDA_OK;
    if (!waits)
        return settle(c);
    if (any_against(c))
        give_up(c, NULL);
    else if (stage == ONESHOT_REACHING)
        reach(c);
    else if (stage == ONESHOT_VOTING && all_say(c, VOTE_REACHED))
        begin_trial(c);
    else if (stage == ONESHOT_TRYING)
        look_at_trial(c);
    else if (stage == ONESHOT_CHECKING)
        check(c);
    else if (stage == ONESHOT_COMPARING && all_say(c, VOTE_MEASURED))
        compare(c);
    return CUDA_NOT_READY;
}

/* The counters must have their values before a kernel begins, which may be in another stream. */
static unsigned step(struct oneshot_channel *c)
{
    uint32_t before;
    unsigned result;

    do {
        before = c->choice.stage;
        result = step_once(c);
    } while (result == CUDA_NOT_READY && c->choice.stage != before);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ the list */
enum comm_result oneshot_choose(struct oneshot_channel *c, const struct wire_team *team, const unsigned char *offers)
{
    struct oneshot *n = c->owner;
    bool all = team->size > 1;

    for (int32_t r = 0; r < team->size; r++)
        all = all && oneshot_offer_at(offers, r).slots;
    if (all) {
        c->choice.offers = n->env->take(n->env, (size_t)team->size * sizeof *c->choice.offers, 64);
        c->choice.world = n->env->take(n->env, (size_t)team->size * sizeof *c->choice.world, 64);
        if (!c->choice.offers || !c->choice.world)
            return COMM_ERR_MEMORY;
    }
    for (int32_t r = 0; r < team->size && all; r++) {
        c->choice.offers[r] = oneshot_offer_at(offers, r);
        c->choice.world[r] = team->world ? team->world[r] : r;
    }
    base_lock(&n->lock, n->env);
    c->choice.next = n->choosing;
    n->choosing = c;
    base_unlock(&n->lock, n->env);
    return COMM_OK;
}

static void forget(struct oneshot_channel *c)
{
    struct oneshot *n = c->owner;
    struct oneshot_channel **at = &n->choosing;

    while (*at && *at != c)
        at = &(*at)->choice.next;
    if (*at)
        *at = c->choice.next;
    env_give_back(n->env, c->choice.offers, c->args.ranks * sizeof *c->choice.offers);
    env_give_back(n->env, c->choice.world, c->args.ranks * sizeof *c->choice.world);
    c->choice.offers = NULL;
    c->choice.world = NULL;
}

void oneshot_stop_choosing(struct oneshot_channel *c)
{
    base_lock(&c->owner->lock, c->owner->env);
    forget(c);
    base_unlock(&c->owner->lock, c->owner->env);
}

enum comm_result oneshot_joined(struct native_channel *channel)
{
    struct oneshot_channel *c = (struct oneshot_channel *)(void *)channel;
    struct oneshot *n = c->owner;

    if (!c->has_kernel)
        return COMM_OK;
    base_lock(&n->lock, n->env);
    for (struct oneshot_channel *other = n->choosing; other; other = other->choice.next)
        if (other != c)
            (void)step(other);
    unsigned result = step(c);
    if (result != CUDA_OK && result != CUDA_NOT_READY)
        oneshot_vote_against(c);
    if (result != CUDA_NOT_READY)
        forget(c);
    base_unlock(&n->lock, n->env);
    return result == CUDA_NOT_READY ? COMM_PENDING : cuda_result(result);
}
