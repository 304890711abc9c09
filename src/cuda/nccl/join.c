/*
 * Joining and ending. NCCL's calls for both may block, and may hang if a peer is gone. So each runs on a thread of its own, with a bound. A
 * thread that does not return by then is left behind on purpose, with everything that it may touch, and the log says so.
 */
#include "cuda/kernels.h"
#include "cuda/nccl/nccl.h"

#include "base/format.h"

enum { LOOK_NS = 500000, BACK_NS = 300000000, HEARD_AT = 64 /* in the scratch memory */ };

static void say(const struct nccl_channel *c, int level, const char *what, unsigned result)
{
    const char *last = c->nccl->ncclGetLastError(NULL);

    base_lock(&c->owner->lock, c->owner->env);
    if (c->owner->log)
        base_log(c->owner->log, level, "nccl rank=%d of %d: %s: %s (%u)%s%s", c->rank, c->size, what, c->nccl->ncclGetErrorString(result),
                 result, last && *last ? "; NCCL says: " : "", last ? last : "");
    base_unlock(&c->owner->lock, c->owner->env);
}

/* ------------------------------------------------------------------------------------------------------------ joining */
/* Waits until NCCL has made the communicator. Returns IN_PROGRESS at the deadline, and when the communicator is aborted. */
static unsigned await(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    for (;;) {
        unsigned state = NCCL_IN_PROGRESS, result = c->nccl->ncclCommGetAsyncError(c->root, &state);
        if (result != NCCL_OK || state != NCCL_IN_PROGRESS)
            return result != NCCL_OK ? result : state;
        int64_t now = env->now(env);
        if (now >= c->deadline || atomic_load_explicit(&c->aborting, memory_order_acquire))
            return NCCL_IN_PROGRESS;
        env->park(env, &c->aborting, 0, now + LOOK_NS);
    }
}

static struct nccl_config config_of(const struct nccl *n, int blocking)
{
    return (struct nccl_config){.size = sizeof(struct nccl_config),
                                .magic = NCCL_MAGIC,
                                .version = NCCL_OLDEST,
                                .blocking = blocking,
                                .cga_cluster_size = n->cga_cluster_size,
                                .min_ctas = n->min_ctas,
                                .max_ctas = n->max_ctas,
                                .split_share = n->split_share,
                                .end_of_2_18 = NCCL_UNSET};
}

static unsigned make_both(struct nccl_channel *c)
{
    struct nccl_config patient = config_of(c->owner, 0), direct = config_of(c->owner, 1);
    unsigned result = c->nccl->ncclCommInitRankConfig(&c->root, c->size, c->id, c->rank, &patient);

    if ((result == NCCL_OK || result == NCCL_IN_PROGRESS) && c->root)
        result = await(c);
    if (result != NCCL_OK)
        return result;
    result = c->nccl->ncclCommSplit(c->root, 0, c->rank, &c->comm, &direct);
    if (result == NCCL_OK || result == NCCL_IN_PROGRESS)
        result = await(c);
    return result == NCCL_OK && !c->comm ? NCCL_INTERNAL_ERROR : result;
}

/*
 * The first operation of a kind makes connections, which blocks its caller until all ranks make the call. So the join makes them, since it
 * may block. NCCL connects collectives while it joins (load.c). It connects a pair of ranks at their first message, so each rank sends a
 * byte to every other rank here. A rank that is alone sends it to itself, which runs a kernel of NCCL's; a sum of one rank runs none.
 */
static unsigned meet_all(struct nccl_channel *c)
{
    const struct nccl_calls *nccl = c->nccl;
    char *scratch = (char *)(uintptr_t)c->d->scratch;
    unsigned result = nccl->ncclGroupStart(), ended;

    for (int32_t r = 0; r < c->size && result == NCCL_OK; r++) {
        if (r == c->rank && c->size > 1)
            continue;
        result = nccl->ncclSend(scratch, 1, NCCL_U8, r, c->comm, c->own);
        if (result == NCCL_OK)
            result = nccl->ncclRecv(scratch + HEARD_AT, 1, NCCL_U8, r, c->comm, c->own);
    }
    ended = nccl->ncclGroupEnd();
    return result != NCCL_OK ? result : nccl_settle(c, ended);
}

static unsigned warm_up(struct nccl_channel *c)
{
    struct cuda_device *d = c->d;
    void *scratch = (void *)(uintptr_t)d->scratch;
    unsigned result = meet_all(c);

    if (result == NCCL_OK)
        result = nccl_settle(c, c->nccl->ncclAllReduce(scratch, scratch, 1, NCCL_U8, NCCL_SUM, c->comm, c->own));
    if (result != NCCL_OK)
        return result;
    base_lock(&d->lock, d->env);
    enum comm_result r = cuda_place(d, c->own, &c->warm);
    base_unlock(&d->lock, d->env);
    return r == COMM_OK ? NCCL_OK : NCCL_CUDA_ERROR;
}

/* Runs on a thread of its own: only ncclCommRevoke or ncclCommAbort, called from another thread, ends a call that hangs. */
static void warm_thread(void *arg)
{
    struct nccl_channel *c = arg;
    struct cuda_inside inside;

    c->warm_code = NCCL_CUDA_ERROR;
    if (cuda_enter(c->d, &inside)) {
        c->warm_code = warm_up(c);
        cuda_leave(c->d, &inside);
    }
    atomic_store_explicit(&c->warmed, 1, memory_order_release);
}

static bool is_warm(struct nccl_channel *c)
{
    struct cuda_device *d = c->d;

    if (!atomic_load_explicit(&c->warmed, memory_order_acquire))
        return false;
    if (c->warm_code != NCCL_OK || atomic_load_explicit(c->warm.word, memory_order_acquire) >= c->warm.value)
        return true;
    if (!d->memops) {
        base_lock(&d->lock, d->env);
        cuda_poll(d);
        base_unlock(&d->lock, d->env);
    }
    return false;
}

/* Returns IN_PROGRESS at the deadline, and when the communicator is aborted. */
static unsigned await_warm(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    c->threads.warms = env->spawn(env, warm_thread, c, &c->threads.warmer) == 0;
    if (!c->threads.warms)
        return NCCL_SYSTEM_ERROR;
    while (!is_warm(c)) {
        int64_t now = env->now(env);
        if (now >= c->deadline || atomic_load_explicit(&c->aborting, memory_order_acquire))
            return NCCL_IN_PROGRESS;
        env->park(env, &c->aborting, 0, now + LOOK_NS);
    }
    return c->warm_code;
}

/* Makes the warming thread return from NCCL, which it must before the communicator is freed. False: it does not return. */
static bool call_back(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    if (!c->threads.warms)
        return true;
    if (!atomic_load_explicit(&c->warmed, memory_order_acquire) && c->nccl->ncclCommRevoke)
        c->nccl->ncclCommRevoke(c->comm, 0);
    c->threads.warms = !env->join(env, &c->threads.warmer, env->now(env) + BACK_NS);
    return !c->threads.warms;
}

/* Ends what a failed join has made. Before NCCL 2.28 only the abort ends a call of another thread. */
static void undo(struct nccl_channel *c)
{
    if (!call_back(c) && c->nccl->ncclCommRevoke) {
        say(c, LOG_ERROR, "a call does not end; its NCCL communicator is left behind", NCCL_INTERNAL_ERROR);
        return;
    }
    if (c->root) /* first: it ends a split that is under way, which may give `comm` until then */
        c->nccl->ncclCommAbort(c->root);
    if (c->comm)
        c->nccl->ncclCommAbort(c->comm);
    c->comm = c->root = NULL;
}

static void join_thread(void *arg)
{
    struct nccl_channel *c = arg;
    struct cuda_inside inside;
    unsigned result = NCCL_CUDA_ERROR;
    enum comm_result r = COMM_ERR_BACKEND;

    if (cuda_enter(c->d, &inside)) {
        cuda_load_kernels(c->d);
        result = make_both(c);
        if (result == NCCL_OK)
            result = await_warm(c);
        r = result == NCCL_OK ? COMM_OK : result == NCCL_IN_PROGRESS ? COMM_ERR_TIMEOUT : COMM_ERR_BACKEND;
        if (r != COMM_OK) {
            say(c, c->owner->falls_back ? LOG_WARNING : LOG_ERROR, r == COMM_ERR_TIMEOUT ? "joining took too long" : "cannot join", result);
            undo(c);
        }
        cuda_leave(c->d, &inside);
    }
    c->code = (int32_t)result;
    c->result = r;
    atomic_store_explicit(&c->state, r == COMM_OK ? NCCL_JOINED : NCCL_FAILED, memory_order_release);
}

enum comm_result nccl_begin_join(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    c->deadline = env->now(env) + c->owner->join_ns;
    c->threads.joins = env->spawn(env, join_thread, c, &c->threads.joiner) == 0;
    return c->threads.joins ? COMM_OK : COMM_ERR_SYSTEM;
}

/* ------------------------------------------------------------------------------------------------------------ ending */
/* Whether the stream has passed all that is on it. A stream that is being captured cannot be asked yet; one whose context has failed runs
 * nothing any more. */
static bool has_passed(struct nccl_channel *c, struct device_place *place)
{
    struct cuda_device *d = c->d;

    if (!place->word) {
        enum comm_result r = nccl_is_capturing(c) ? COMM_ERR_FULL : cuda_place(d, c->stream, place);
        return r != COMM_OK && r != COMM_ERR_FULL;
    }
    if (!d->memops)
        (void)cuda_poll(d);
    unsigned result = d->calls->cuStreamQuery(c->own);
    return atomic_load_explicit(place->word, memory_order_acquire) >= place->value || (result != CUDA_OK && result != CUDA_NOT_READY);
}

/* Of several ranks in one process only the last one's abort waits in NCCL. When it has returned on the others, their kernels may still run.
 */
static void await_stream(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    struct device_place place = {0};
    _Atomic uint32_t never = 0;
    bool passed = false;

    while (!passed) {
        base_lock(&c->d->lock, env);
        passed = has_passed(c, &place);
        base_unlock(&c->d->lock, env);
        if (!passed)
            env->park(env, &never, 0, env->now(env) + LOOK_NS);
    }
}

/* Holds no lock during the abort or the destruction, because an abort may hang and other communicators must go on. No other call uses this
 * communicator meanwhile, because its calls are serialised. */
static void end_thread(void *arg)
{
    struct nccl_channel *c = arg;
    struct cuda_inside inside;
    bool abort = atomic_load_explicit(&c->aborting, memory_order_acquire) != 0;
    unsigned (*how)(struct ncclComm *) = abort ? c->nccl->ncclCommAbort : c->nccl->ncclCommDestroy;

    if (!nccl_call_windows_back(c) && c->nccl->ncclCommRevoke) {
        say(c, LOG_ERROR, "a registration does not end; its NCCL communicator is left behind", NCCL_INTERNAL_ERROR);
        return;
    }
    if (cuda_enter(c->d, &inside)) {
        if (!abort)
            nccl_end_windows(c);
        unsigned result = c->comm ? how(c->comm) : NCCL_OK, more = c->root ? how(c->root) : NCCL_OK;
        if (result != NCCL_OK || more != NCCL_OK)
            say(c, LOG_WARNING, abort ? "ncclCommAbort" : "ncclCommDestroy", result != NCCL_OK ? result : more);
        if (abort)
            await_stream(c);
        nccl_free_spares(c);
        nccl_free_folds(c);
        cuda_leave(c->d, &inside);
    }
    atomic_store_explicit(&c->state, NCCL_LEFT, memory_order_release);
}

void nccl_begin_end(struct nccl_channel *c, bool abort)
{
    const struct comm_env *env = c->owner->env;

    if (c->threads.ends || (!abort && atomic_load_explicit(&c->held.graphs, memory_order_acquire)))
        return; /* NCCL would wait until the graphs are destroyed */
    if (abort) {
        atomic_store_explicit(&c->aborting, 1, memory_order_release);
        env->wake(env, &c->aborting, 1);
    }
    if (atomic_load_explicit(&c->state, memory_order_acquire) != NCCL_JOINED)
        return; /* the joining thread ends the communicator, or has ended it */
    c->threads.ends = env->spawn(env, end_thread, c, &c->threads.ender) == 0;
    if (!c->threads.ends)
        say(c, LOG_ERROR, "no thread to end it with; its NCCL communicator is left behind", NCCL_SYSTEM_ERROR);
}

/* Frees the channel's word and stream on the device. Returns false if CUDA returned an error; the caller tries again later. */
static bool free_parts(struct nccl_channel *c)
{
    struct cuda_device *d = c->d;
    struct cuda_inside inside;
    enum comm_result r = COMM_ERR_BACKEND;

    base_lock(&d->lock, d->env);
    if (cuda_enter(d, &inside)) {
        r = COMM_OK;
        if (c->word && c->issued != c->told) /* aborted: the stream must still run what follows the operations */
            r = nccl_is_capturing(c) ? COMM_ERR_BACKEND : cuda_give_word_behind(d, c->word, c->stream);
        else if (c->word)
            cuda_give_word(d, c->word);
        if (r == COMM_OK)
            c->word = 0;
        if (r == COMM_OK && c->waits.gate) /* no stream writes it, and those that wait for it go on */
            cuda_give_word(d, c->waits.gate);
        if (r == COMM_OK && c->own)
            d->calls->cuStreamDestroy(c->own);
        cuda_leave(d, &inside);
    }
    base_unlock(&d->lock, d->env);
    return r == COMM_OK;
}

static bool free_folds(struct nccl_channel *c)
{
    struct cuda_inside inside;

    if (!c->folds.steps && !c->folds.inputs)
        return true;
    if (!cuda_enter(c->d, &inside))
        return false;
    bool freed = nccl_free_folds(c);
    cuda_leave(c->d, &inside);
    return freed;
}

static bool free_channel(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    if (atomic_load_explicit(&c->held.graphs, memory_order_acquire) || !free_folds(c) || !free_parts(c))
        return false;
    nccl_forget_enlisted(c);
    env_give_back(env, c->pending, c->room * sizeof *c->pending);
    env_give_back(env, c->waits.waited, c->waits.room * sizeof *c->waits.waited);
    env->give(env, c, sizeof *c);
    return true;
}

/* The joining thread may still be running: the channel may have failed while it joined, or the thread may have started late. */
static bool ended(struct nccl_channel *c, int64_t deadline)
{
    const struct comm_env *env = c->owner->env;

    if (c->threads.joins && !env->join(env, &c->threads.joiner, deadline))
        return false;
    c->threads.joins = false;
    if (c->threads.warms && !env->join(env, &c->threads.warmer, deadline))
        return false;
    c->threads.warms = false;
    if (!c->threads.ends && atomic_load_explicit(&c->state, memory_order_acquire) == NCCL_JOINED)
        nccl_begin_end(c, atomic_load_explicit(&c->aborting, memory_order_relaxed) != 0);
    if (c->threads.ends && !env->join(env, &c->threads.ender, deadline))
        return false;
    c->threads.ends = false;
    if (c->windows.runs && !env->join(env, &c->windows.thread, deadline))
        return false;
    c->windows.runs = false;
    return atomic_load_explicit(&c->state, memory_order_acquire) != NCCL_JOINED;
}

uint32_t nccl_reap(struct nccl *n, int64_t deadline)
{
    uint32_t left = 0;

    base_lock(&n->lock, n->env);
    struct nccl_channel *all = n->ending, *keep = NULL;
    n->ending = NULL;
    base_unlock(&n->lock, n->env);
    for (struct nccl_channel *c = all, *next; c; c = next) {
        next = c->next;
        if (ended(c, deadline) && free_channel(c))
            continue;
        c->next = keep;
        keep = c;
        left++;
    }
    base_lock(&n->lock, n->env);
    while (keep) {
        struct nccl_channel *c = keep;
        keep = c->next;
        c->next = n->ending;
        n->ending = c;
    }
    base_unlock(&n->lock, n->env);
    return left;
}
