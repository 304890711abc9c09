/*
 * Memory of a world on backend nccl, and memory of the program's that it registers with a communicator. NCCL's own memory can be read by
 * the peers' devices and by the network without a copy; NCCL before 2.19 has none, and then it is ordinary memory of the device. To
 * register is an attempt: if NCCL cannot, the memory is used as any other.
 */
#include "cuda/nccl/nccl.h"

#include "base/format.h"

struct nccl_enlisted {
    struct nccl_enlisted *next;
    void *at, *handle;
    bool late; /* to be delisted, when the thread that registers memory with all ranks has left NCCL */
};

static void *allocate(const struct cuda_device *d, size_t bytes)
{
    const struct nccl_calls *nccl = &cuda_process.nccl;
    cuda_address plain = 0;
    void *at = NULL;

    if (nccl->ncclMemAlloc)
        return nccl->ncclMemAlloc(&at, bytes) == NCCL_OK ? at : NULL;
    return d->calls->cuMemAlloc(&plain, bytes) == CUDA_OK ? (void *)(uintptr_t)plain : NULL;
}

/* If the context cannot be entered any more, its memory is lost with it. */
static void release(const struct nccl *n, struct nccl_memory *m)
{
    const struct nccl_calls *nccl = &cuda_process.nccl;
    struct cuda_inside inside;

    if (cuda_enter(m->d, &inside)) {
        if (nccl->ncclMemFree)
            nccl->ncclMemFree(m->at);
        else
            m->d->calls->cuMemFree((uintptr_t)m->at);
        cuda_leave(m->d, &inside);
    }
    n->env->give(n->env, m, sizeof *m);
}

void *nccl_take(struct native_channel *channel, size_t bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct nccl *n = c->owner;
    struct nccl_memory *m = n->env->take(n->env, sizeof *m, 64);
    struct cuda_inside inside;

    if (!m)
        return NULL;
    *m = (struct nccl_memory){.d = c->d};
    if (cuda_enter(c->d, &inside)) {
        m->at = allocate(c->d, bytes);
        cuda_leave(c->d, &inside);
    }
    if (!m->at) {
        n->env->give(n->env, m, sizeof *m);
        return NULL;
    }
    base_lock(&n->lock, n->env);
    m->next = n->memory;
    n->memory = m;
    base_unlock(&n->lock, n->env);
    return m->at;
}

void nccl_give(struct native *native, void *memory)
{
    struct nccl *n = (struct nccl *)(void *)native;

    base_lock(&n->lock, n->env);
    struct nccl_memory **link = &n->memory;
    while (*link && (*link)->at != memory)
        link = &(*link)->next;
    struct nccl_memory *m = *link;
    bool kept = m && m->of; /* NCCL may still use it */
    if (kept)
        m->given = true;
    else if (m)
        *link = m->next;
    base_unlock(&n->lock, n->env);
    if (m && !kept)
        release(n, m);
}

void nccl_forget_memory(struct nccl *n)
{
    while (n->memory) {
        struct nccl_memory *m = n->memory;
        n->memory = m->next;
        release(n, m);
    }
}

/* ------------------------------------------------------------------------------------------------------------ registered memory */
bool nccl_can_enlist(const struct nccl_channel *c)
{
    return c->nccl->ncclCommRegister && atomic_load_explicit(&c->state, memory_order_acquire) == NCCL_JOINED && !c->threads.ends &&
           !c->windows.runs;
}

static unsigned enlist(struct nccl_channel *c, struct nccl_enlisted *one, size_t bytes)
{
    struct cuda_memory is = cuda_ask(c->d, one->at);
    struct cuda_inside inside;
    unsigned result = NCCL_CUDA_ERROR;

    if (cuda_bytes_of(c->d, &is, one->at, bytes, c->d->ordinal) < bytes)
        return NCCL_INVALID_ARGUMENT;
    if (!cuda_enter(c->d, &inside))
        return result;
    result = c->nccl->ncclCommRegister(c->comm, one->at, bytes, &one->handle);
    cuda_leave(c->d, &inside);
    return result;
}

void nccl_enlist(struct native_channel *channel, void *memory, size_t bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    const struct comm_env *env = c->owner->env;
    struct nccl_enlisted *one = nccl_can_enlist(c) ? env->take(env, sizeof *one, 64) : NULL;

    if (!one)
        return;
    *one = (struct nccl_enlisted){.next = c->enlisted, .at = memory};
    unsigned result = enlist(c, one, bytes);
    if (result == NCCL_OK) {
        c->enlisted = one;
        return;
    }
    env->give(env, one, sizeof *one);
    if (c->owner->log)
        base_log(c->owner->log, LOG_INFO, "nccl rank=%d of %d: memory at %p is not registered: %s (%u)", c->rank, c->size, memory,
                 c->nccl->ncclGetErrorString(result), result);
}

static void delist(struct nccl_channel *c, struct nccl_enlisted **link)
{
    struct nccl_enlisted *one = *link;
    struct cuda_inside inside;

    *link = one->next;
    if (nccl_can_enlist(c) && cuda_enter(c->d, &inside)) {
        c->nccl->ncclCommDeregister(c->comm, one->handle);
        cuda_leave(c->d, &inside);
    }
    c->owner->env->give(c->owner->env, one, sizeof *one);
}

void nccl_delist(struct native_channel *channel, void *memory)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct nccl_enlisted **link = &c->enlisted;

    if (nccl_delist_window(c, memory))
        return;
    while (*link && ((*link)->at != memory || (*link)->late))
        link = &(*link)->next;
    if (*link && !c->threads.ends && c->windows.runs)
        (*link)->late = true;
    else if (*link)
        delist(c, link);
}

/* Frees the memory that was given back, and that only this channel still had. */
static void release_given(struct nccl_channel *c, bool all)
{
    struct nccl *n = c->owner;
    struct nccl_memory *given = NULL;

    base_lock(&n->lock, n->env);
    for (struct nccl_memory **link = &n->memory, *m; (m = *link) != NULL;) {
        if (all && m->of == c)
            m->of = NULL;
        if (m->of || !m->given) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        m->next = given;
        given = m;
    }
    base_unlock(&n->lock, n->env);
    for (struct nccl_memory *next; given; given = next) {
        next = given->next;
        release(n, given);
    }
}

static void *given_window(struct nccl_channel *c)
{
    void *at = NULL;

    base_lock(&c->owner->lock, c->owner->env);
    for (const struct nccl_memory *m = c->owner->memory; m && !at; m = m->next)
        at = m->of == c && m->given ? m->at : NULL;
    base_unlock(&c->owner->lock, c->owner->env);
    return at;
}

void nccl_delist_late(struct nccl_channel *c)
{
    for (struct nccl_enlisted **link = &c->enlisted; *link;) {
        if ((*link)->late)
            delist(c, link);
        else
            link = &(*link)->next;
    }
    for (void *at = given_window(c); at && nccl_can_enlist(c); at = given_window(c))
        nccl_delist_window(c, at);
    release_given(c, false);
}

/* NCCL forgets them with the communicator. */
void nccl_forget_enlisted(struct nccl_channel *c)
{
    release_given(c, true);
    while (c->enlisted) {
        struct nccl_enlisted *one = c->enlisted;
        c->enlisted = one->next;
        c->owner->env->give(c->owner->env, one, sizeof *one);
    }
}
