/*
 * NCCL's symmetric windows: memory of ncclMemAlloc that all ranks of a communicator register together. That call waits for all of them, so
 * it runs on a thread of its own; meanwhile nothing else enters the communicator, and what is deregistered meanwhile waits until it is
 * over. To deregister is a call of one rank alone. Memory that a window still has is kept until the communicator has ended.
 */
#include "cuda/nccl/nccl.h"

#include "base/format.h"

enum { WAKE_NS = 500000, BACK_NS = 300000000 };

static void say(const struct nccl_channel *c, int level, const char *what, unsigned result)
{
    base_lock(&c->owner->lock, c->owner->env);
    if (c->owner->log)
        base_log(c->owner->log, level, "nccl rank=%d of %d: %s: %s (%u)", c->rank, c->size, what, c->nccl->ncclGetErrorString(result),
                 result);
    base_unlock(&c->owner->lock, c->owner->env);
}

/* ------------------------------------------------------------------------------------------------------------ registering */
/* Only with NCCL_COMM_BLOCKING=0 in the environment: NCCL registers on a thread of its own. */
static unsigned await(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    unsigned state = NCCL_IN_PROGRESS, result = NCCL_OK;

    while (result == NCCL_OK && state == NCCL_IN_PROGRESS && !atomic_load_explicit(&c->aborting, memory_order_acquire)) {
        env->park(env, &c->aborting, 0, env->now(env) + WAKE_NS);
        result = c->nccl->ncclCommGetAsyncError(c->comm, &state);
    }
    return result != NCCL_OK ? result : state;
}

static void window_thread(void *arg)
{
    struct nccl_channel *c = arg;
    struct nccl_memory *m = c->windows.memory;
    struct cuda_inside inside;
    unsigned result = NCCL_CUDA_ERROR;

    if (cuda_enter(c->d, &inside)) {
        result = c->nccl->ncclCommWindowRegister(c->comm, m->at, c->windows.bytes, &m->window, NCCL_WINDOW_SYMMETRIC);
        if (result == NCCL_IN_PROGRESS)
            result = await(c);
        cuda_leave(c->d, &inside);
    }
    c->windows.result = result;
    atomic_store_explicit(&c->windows.over, 1, memory_order_release);
}

/* Once for each world. */
static void say_none(struct nccl_channel *c)
{
    int v = cuda_process.nccl_version;

    if (c->rank != 0 || !c->owner->log || atomic_exchange_explicit(&c->owner->said_windows, true, memory_order_relaxed))
        return;
    base_log(
        c->owner->log, LOG_WARNING,
        "nccl: NCCL %d.%d.%d has no symmetric windows; expected 2.27 or newer: memory of comm_mem_alloc_symmetric is registered by each "
        "rank alone",
        v / 10000, v / 100 % 100, v % 100);
}

static struct nccl_memory *find(struct nccl *n, const void *at)
{
    struct nccl_memory *m = n->memory;

    while (m && m->at != at)
        m = m->next;
    return m;
}

enum comm_result nccl_enlist_all(struct native_channel *channel, void *memory, size_t bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    const struct comm_env *env = c->owner->env;

    if (!c->nccl->ncclCommWindowRegister || !c->nccl->ncclMemAlloc)
        say_none(c);
    if (!c->nccl->ncclCommWindowRegister || !c->nccl->ncclMemAlloc || !nccl_can_enlist(c))
        return COMM_ERR_UNSUPPORTED;
    if (!memory)
        return COMM_OK;
    base_lock(&c->owner->lock, env);
    struct nccl_memory *m = find(c->owner, memory);
    m->of = c;
    base_unlock(&c->owner->lock, env);
    c->windows.memory = m;
    c->windows.bytes = (bytes + NCCL_WINDOW_ALIGN - 1) / NCCL_WINDOW_ALIGN * NCCL_WINDOW_ALIGN; /* ncclMemAlloc gives at least that */
    atomic_store_explicit(&c->windows.over, 0, memory_order_relaxed);
    c->windows.runs = env->spawn(env, window_thread, c, &c->windows.thread) == 0;
    if (c->windows.runs)
        return COMM_OK;
    base_lock(&c->owner->lock, env);
    m->of = NULL;
    base_unlock(&c->owner->lock, env);
    return COMM_ERR_SYSTEM;
}

enum comm_result nccl_enlisted_all(struct native_channel *channel)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    const struct comm_env *env = c->owner->env;
    struct nccl_memory *m = c->windows.memory;

    if (!atomic_load_explicit(&c->windows.over, memory_order_acquire) || !env->join(env, &c->windows.thread, env->now(env) + BACK_NS))
        return COMM_PENDING;
    c->windows.runs = false;
    c->windows.memory = NULL;
    if (c->windows.result != NCCL_OK)
        say(c, LOG_ERROR, "ncclCommWindowRegister", c->windows.result);
    if (c->windows.result != NCCL_OK || !m->window) { /* no window and no error: the devices have no such thing */
        base_lock(&c->owner->lock, env);
        m->window = NULL;
        m->of = NULL;
        base_unlock(&c->owner->lock, env);
    }
    nccl_delist_late(c);
    return c->windows.result == NCCL_OK ? COMM_OK : COMM_ERR_BACKEND;
}

bool nccl_call_windows_back(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;

    if (!c->windows.runs)
        return true;
    if (!atomic_load_explicit(&c->windows.over, memory_order_acquire) && c->nccl->ncclCommRevoke)
        c->nccl->ncclCommRevoke(c->comm, 0);
    c->windows.runs = !env->join(env, &c->windows.thread, env->now(env) + BACK_NS);
    return !c->windows.runs;
}

/* ------------------------------------------------------------------------------------------------------------ deregistering */
static void deregister(struct nccl_channel *c, struct ncclWindow_vidmem *window)
{
    unsigned result = c->nccl->ncclCommWindowDeregister(c->comm, window);

    if (result != NCCL_OK)
        say(c, LOG_WARNING, "ncclCommWindowDeregister", result);
}

bool nccl_delist_window(struct nccl_channel *c, void *memory)
{
    const struct comm_env *env = c->owner->env;
    struct cuda_inside inside;
    struct ncclWindow_vidmem *window = NULL;

    base_lock(&c->owner->lock, env);
    struct nccl_memory *m = find(c->owner, memory);
    bool ours = m && m->of == c;
    if (ours && nccl_can_enlist(c)) {
        window = m->window;
        m->window = NULL;
        m->of = NULL;
    }
    base_unlock(&c->owner->lock, env);
    if (window && cuda_enter(c->d, &inside)) {
        deregister(c, window);
        cuda_leave(c->d, &inside);
    }
    return ours;
}

static struct ncclWindow_vidmem *next_window(struct nccl_channel *c)
{
    struct ncclWindow_vidmem *window = NULL;

    base_lock(&c->owner->lock, c->owner->env);
    for (struct nccl_memory *m = c->owner->memory; m && !window; m = m->next) {
        if (m->of != c)
            continue;
        window = m->window;
        m->window = NULL;
    }
    base_unlock(&c->owner->lock, c->owner->env);
    return window;
}

void nccl_end_windows(struct nccl_channel *c)
{
    for (struct ncclWindow_vidmem *window = next_window(c); window; window = next_window(c))
        deregister(c, window);
}
