/*
 * Observes the completion of operations: by the word that the stream writes behind each of them, or, where streams cannot write, by events.
 * Any thread that moves the communicator comes here often, so nothing here waits, and most looks only load words.
 */
#include "cuda/nccl/nccl.h"

enum { CHECK_LOOKS = 64, CHECK_NS = 100000000 };

static bool has_passed(const struct nccl_pending *p)
{
    return !p->place.word || atomic_load_explicit(p->place.word, memory_order_acquire) >= p->place.value;
}

/* The number behind the operations that are done, by the places after them. An operation without a place is done when a later one is.
 * *open: none of the others has a place. */
static uint64_t done_by_places(const struct nccl_channel *c, bool *open)
{
    uint64_t done = c->told;
    bool any = false;

    *open = false;
    for (uint64_t i = c->told; i < c->issued; i++) {
        const struct nccl_pending *p = &c->pending[i & (c->room - 1)];
        if (!has_passed(p)) {
            *open = false;
            break;
        }
        any |= p->place.word != NULL;
        *open = (*open || !p->captured) && !p->place.word;
        done = *open ? done : i + 1;
    }
    *open = *open && !any;
    return done;
}

/* Queries the events, or with `place` gives the last operation a place, unless that would go into a graph. */
static void look_at_device(struct nccl_channel *c, bool place)
{
    struct nccl_pending *last = &c->pending[(c->issued - 1) & (c->room - 1)];
    struct cuda_inside inside;

    if (!cuda_begin(c->d, &inside))
        return;
    if (!place)
        cuda_poll(c->d);
    else if (!nccl_is_capturing(c) && cuda_place(c->d, c->stream, &last->place) != COMM_OK)
        last->place = (struct device_place){0};
    cuda_end(c->d, &inside);
}

/* The engine takes a look that lasts for data that moves, and then tests no waiter's timeout. So most looks only load words. */
static uint64_t done_by_events(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    bool open;

    if (env->now(env) >= atomic_load_explicit(&c->d->rest_until, memory_order_relaxed))
        look_at_device(c, false);
    uint64_t done = done_by_places(c, &open);
    if (open)
        look_at_device(c, true);
    return done;
}

static uint64_t done_by_word(const struct nccl_channel *c)
{
    uint64_t marks = atomic_load_explicit(&c->d->words[c->word], memory_order_acquire) - c->base, done = c->told;

    while (done < c->issued && c->pending[done & (c->room - 1)].mark <= marks)
        done++;
    return done;
}

/* A failed kernel stops the streams of its context, and NCCL does not query CUDA for that. The channel's own stream is never captured, so
 * it can be queried. */
static int32_t ask_cuda(struct nccl_channel *c)
{
    struct cuda_inside inside;
    unsigned result = CUDA_INVALID_CONTEXT;

    if (cuda_enter(c->d, &inside)) {
        result = c->d->calls->cuStreamQuery(c->own);
        cuda_leave(c->d, &inside);
    }
    return result == CUDA_OK || result == CUDA_NOT_READY ? 0 : -(int32_t)result;
}

/* Queries NCCL, since it may be the only one to detect a lost network or process. Returns 0 if there is no error. */
static int32_t ask_health(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    unsigned state = NCCL_OK, result;

    if (++c->health.looks % CHECK_LOOKS || env->now(env) - c->health.asked_ns < CHECK_NS)
        return 0;
    c->health.asked_ns = env->now(env);
    result = c->nccl->ncclCommGetAsyncError(c->comm, &state);
    result = result != NCCL_OK ? result : state;
    return result == NCCL_OK || result == NCCL_IN_PROGRESS ? ask_cuda(c) : (int32_t)result;
}

uint32_t nccl_advance(struct native_channel *channel, struct native_event *events, uint32_t max)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    uint32_t count = 0;

    if (c->told == c->issued || atomic_load_explicit(&c->aborting, memory_order_relaxed))
        return 0;
    uint64_t done = c->d->memops ? done_by_word(c) : done_by_events(c);
    for (; c->told < done && count < max; c->told++)
        events[count++] = (struct native_event){.cookie = c->pending[c->told & (c->room - 1)].cookie, .result = COMM_OK};
    int32_t wrong = c->told < c->issued && count < max ? ask_health(c) : 0;
    if (wrong)
        events[count++] =
            (struct native_event){.cookie = c->pending[c->told & (c->room - 1)].cookie, .result = COMM_ERR_BACKEND, .code = wrong};
    return count;
}
