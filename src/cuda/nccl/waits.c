/*
 * Waits: the stream waits for a point of another queue, and another stream for an operation of this one. Where only the host sees the
 * point, the stream waits at the gate of its channel, a word in which the host counts the waits that are reached, in their order.
 */
#include "cuda/nccl/nccl.h"
#include "cuda/ring.h"

/* Waits for the host that may be open on a channel. Each is three operations on a stream that stands, and two on the channel's. The driver
 * blocks a caller whose stream is full (at about a thousand operations), and this caller holds locks that the release of the stream needs.
 */
enum { NCCL_WAITS_MOST = 128 };

/* Lets the stream go on up to the first wait that is not reached. One store, and no call of CUDA. */
static void open_gate(struct nccl_channel *c)
{
    struct nccl_waits *w = &c->waits;
    uint64_t before = w->passed;

    while (w->passed < w->put && w->waited[w->passed & (w->room - 1)].reached)
        w->passed++;
    if (w->passed != before)
        atomic_store_explicit(&c->d->words[w->gate], w->base + w->passed, memory_order_release);
}

static void reach_wait(struct nccl_channel *c, uint64_t number)
{
    c->waits.waited[number & (c->waits.room - 1)].reached = true;
    open_gate(c);
}

static bool has_gate(struct nccl_channel *c)
{
    struct nccl_waits *w = &c->waits;

    if (!w->gate && (w->gate = cuda_take_word(c->d)) != 0)
        w->base = atomic_load_explicit(&c->d->words[w->gate], memory_order_relaxed);
    return w->gate != 0;
}

static bool room_for_wait(struct nccl_channel *c)
{
    struct nccl_waits *w = &c->waits;

    if (w->put - w->passed < w->room)
        return true;
    struct nccl_waited *more = cuda_ring_grow(c->owner->env, w->waited, &w->room, sizeof *more, w->passed, w->put);
    if (more)
        w->waited = more;
    return more != NULL;
}

static bool has_room_for(const struct nccl_channel *c, uint32_t count)
{
    return c->waits.put - c->waits.passed + count <= NCCL_WAITS_MOST;
}

/* Of waits for the host all but the first are behind another one of this channel, so one park is enough for all. */
static enum comm_result keep_gate(struct nccl_channel *c, uint32_t count)
{
    struct cuda_inside inside;
    enum comm_result r = COMM_OK;

    if (!c->d->memops || count > NCCL_WAITS_MOST)
        return COMM_ERR_UNSUPPORTED;
    if (!has_room_for(c, count))
        return COMM_ERR_FULL;
    if (!cuda_enter(c->d, &inside))
        return COMM_ERR_BACKEND;
    if (nccl_is_capturing(c))
        r = COMM_ERR_UNSUPPORTED;
    else if (!has_gate(c))
        r = COMM_ERR_MEMORY;
    else if (!cuda_keep_park(c->d, c->waits.gate))
        r = COMM_ERR_FULL;
    cuda_leave(c->d, &inside);
    return r;
}

enum comm_result nccl_keep_waits(struct native_channel *channel, uint32_t count)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    enum comm_result r = COMM_OK;

    base_lock(&c->d->lock, c->d->env);
    if (c->waits.gate)
        cuda_leave_park(c->d, c->waits.gate);
    if (count)
        r = keep_gate(c, count);
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

/* A wait that CUDA refused half-way, which nobody will reach, counts as reached: the stream would stand for ever. */
static enum comm_result put_gate(struct nccl_channel *c, uint64_t cookie)
{
    struct nccl_waits *w = &c->waits;
    bool counts = false;

    if (!c->d->memops)
        return COMM_ERR_UNSUPPORTED;
    if (!room_for_wait(c))
        return COMM_ERR_MEMORY;
    if (!has_room_for(c, 1))
        return COMM_ERR_FULL;
    if (!has_gate(c))
        return COMM_ERR_MEMORY;
    enum comm_result r = cuda_wait_gate(c->d, c->stream, w->gate, w->base + w->put + 1, &counts);
    if (counts)
        w->waited[w->put++ & (w->room - 1)] = (struct nccl_waited){.cookie = cookie};
    if (r == COMM_OK)
        r = nccl_mark(c, cookie);
    if (r != COMM_OK && counts)
        reach_wait(c, w->put - 1);
    return r;
}

static enum comm_result put_wait(struct nccl_channel *c, const struct native_point *point, uint64_t cookie)
{
    if (!point)
        return put_gate(c, cookie);
    struct device_place place = {(_Atomic uint64_t *)(uintptr_t)point->word, point->value};
    enum comm_result r = cuda_wait(c->d, c->stream, &place);

    return r == COMM_OK ? nccl_mark(c, cookie) : r;
}

enum comm_result nccl_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;
    enum comm_result r = COMM_ERR_BACKEND;

    if (point && !point->word)
        point = NULL;
    if (!nccl_room(c))
        return COMM_ERR_MEMORY;
    base_lock(&c->d->lock, c->d->env);
    if (cuda_enter(c->d, &inside)) { /* the wait would break a capture, since what it waits for is outside */
        r = nccl_is_capturing(c) ? COMM_ERR_UNSUPPORTED : put_wait(c, point, cookie);
        cuda_leave(c->d, &inside);
    }
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

/* A wait that was refused may have had the cookie before. */
void nccl_reach(struct native_channel *channel, uint64_t cookie)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    const struct nccl_waits *w = &c->waits;
    uint64_t number = w->passed;

    for (; number < w->put; number++) {
        const struct nccl_waited *one = &w->waited[number & (w->room - 1)];
        if (one->cookie == cookie && !one->reached) {
            reach_wait(c, number);
            return;
        }
    }
}

/* Makes the caller's stream wait for the operation. For the newest operation it waits for an event. For an older one, if the channel's
 * stream counts in a word, a park stream waits for the word's value, and the caller's stream waits for the park stream. */
static enum comm_result put_await(struct nccl_channel *c, uint64_t number, struct CUstream_st *stream)
{
    struct device_place place;
    const struct nccl_pending *p = &c->pending[number & (c->room - 1)];

    bool capturing = nccl_is_capturing(c);
    if (!c->d->memops && p->place.word)
        return cuda_wait(c->d, stream, &p->place);
    if (c->d->memops && (p->mark < c->marks || capturing))
        return cuda_wait_word(c->d, stream, c->word, c->base + p->mark);
    if (capturing)
        return COMM_ERR_UNSUPPORTED;
    enum comm_result r = cuda_place(c->d, c->stream, &place);
    return r == COMM_OK ? cuda_wait(c->d, stream, &place) : r;
}

enum comm_result nccl_await(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;
    uint64_t number = c->told;
    enum comm_result r = COMM_ERR_BACKEND;

    while (number < c->issued && c->pending[number & (c->room - 1)].cookie != cookie)
        number++;
    if (number == c->issued)
        return COMM_OK; /* it was reported as done */
    base_lock(&c->d->lock, c->d->env);
    if (cuda_enter(c->d, &inside)) {
        r = put_await(c, number, stream);
        cuda_leave(c->d, &inside);
    }
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

/* Releases everything that waits for a word of this channel. A stream that waits for ever would keep the context from being released. */
void nccl_release_all(struct nccl_channel *c)
{
    for (uint64_t i = c->waits.passed; i < c->waits.put; i++)
        c->waits.waited[i & (c->waits.room - 1)].reached = true;
    open_gate(c);
    if (c->d->memops && c->issued > c->told)
        atomic_store_explicit(&c->d->words[c->word], c->base + c->marks, memory_order_release);
}
