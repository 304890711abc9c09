/*
 * Puts operations on the stream and observes their completion. The calling thread puts them, in the order of the calls.
 *
 * NCCL is called without the device's lock: a call may block until a peer makes the same call, and other communicators must go on
 * meanwhile. The lock protects what this room shares: places, parks and words.
 */
#include "cuda/nccl.h"

#include "base/format.h"

#include <string.h>

enum { CHECK_LOOKS = 64, CHECK_NS = 100000000, ROOM_FIRST = 64 };

/* ------------------------------------------------------------------------------------------------------------ what NCCL knows */
static int type_of(enum comm_type type)
{
    switch ((int)type) {
    case COMM_I8:
        return NCCL_I8;
    case COMM_U8:
        return NCCL_U8;
    case COMM_I32:
        return NCCL_I32;
    case COMM_U32:
        return NCCL_U32;
    case COMM_I64:
        return NCCL_I64;
    case COMM_U64:
        return NCCL_U64;
    case COMM_F16:
        return NCCL_F16;
    case COMM_BF16:
        return NCCL_BF16;
    case COMM_F32:
        return NCCL_F32;
    case COMM_F64:
        return NCCL_F64;
    case COMM_F8E4M3:
        return cuda_process.nccl_version >= NCCL_WITH_F8 ? NCCL_F8E4M3 : -1;
    case COMM_F8E5M2:
        return cuda_process.nccl_version >= NCCL_WITH_F8 ? NCCL_F8E5M2 : -1;
    default:
        return -1;
    }
}

/* NCCL's minimum and maximum are fminf and fmaxf: a number wins over a NaN. Here the NaN wins. */
static bool nan_differs(enum comm_type type, comm_op op)
{
    return (op == COMM_MIN || op == COMM_MAX) && type >= COMM_F8E4M3 && type <= COMM_F64;
}

static int op_of(comm_op op)
{
    switch ((int)op) {
    case COMM_SUM:
        return NCCL_SUM;
    case COMM_PROD:
        return NCCL_PROD;
    case COMM_MIN:
        return NCCL_MIN;
    case COMM_MAX:
        return NCCL_MAX;
    case COMM_AVG:
        return NCCL_AVG;
    default:
        return -1;
    }
}

unsigned nccl_type(enum comm_type type)
{
    return (unsigned)type_of(type);
}

unsigned nccl_op(comm_op op)
{
    return (unsigned)op_of(op);
}

static bool reduces(uint32_t collective)
{
    return collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_REDUCE_SCATTER ||
           collective == COLLECTIVE_REDUCE_SCATTER_V || collective == COLLECTIVE_SCAN || collective == COLLECTIVE_EXSCAN;
}

/* The owners of the two buffers. False: CUDA returned an error. */
struct owners {
    int32_t in, out;
};
static bool ask_owners(struct nccl_channel *c, const struct native_call *call, struct owners *owners)
{
    struct cuda_inside inside;

    base_lock(&c->d->lock, c->d->env);
    bool entered = cuda_enter(c->d, &inside);
    if (entered) {
        owners->in = cuda_owner(c->d, call->in);
        owners->out = cuda_owner(c->d, call->out);
        cuda_leave(c->d, &inside);
    }
    base_unlock(&c->d->lock, c->d->env);
    return entered;
}

static enum comm_result refuse_memory(const struct nccl_channel *c, const char *which, int32_t owner, char *why, size_t why_bytes)
{
    if (owner == CUDA_OWNER_HOST)
        base_format(why, why_bytes,
                    "%s is host memory; expected the device's: collectives of backend nccl take no other (a world of another "
                    "backend on the same engine does, config.engine_of)",
                    which);
    else if (owner == CUDA_OWNER_UNKNOWN)
        base_format(why, why_bytes, "%s: CUDA reports an error instead of whose memory it is; expected memory of cuda:%d", which,
                    c->d->ordinal);
    else
        base_format(why, why_bytes, "%s is memory of cuda:%d; expected memory of cuda:%d, the communicator's device", which, owner,
                    c->d->ordinal);
    return owner == CUDA_OWNER_UNKNOWN ? COMM_ERR_BACKEND : COMM_ERR_ARGUMENT;
}

static enum comm_result accept_served(struct nccl_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    struct owners owners;

    if (call->collective == COLLECTIVE_BARRIER || call->n == 0 ||
        (!call->in && !call->out)) /* a call without buffers only asks whether NCCL has the operation */
        return COMM_OK;
    if (!ask_owners(c, call, &owners)) {
        base_format(why, why_bytes, "the device cannot be used: CUDA reports an error");
        return COMM_ERR_BACKEND;
    }
    if (call->in && owners.in != c->d->ordinal)
        return refuse_memory(c, "in", owners.in, why, why_bytes);
    if (call->out && owners.out != c->d->ordinal)
        return refuse_memory(c, "out", owners.out, why, why_bytes);
    enum comm_result r = nccl_reserve(c, call);
    if (r != COMM_OK)
        base_format(why, why_bytes, "no memory of the device for it: CUDA reports an error");
    return r;
}

/* NCCL does not have this operation. The core runs it, on host memory only. */
static enum comm_result accept_other(struct nccl_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    struct owners owners;

    if (call->n == 0)
        return COMM_ERR_UNSUPPORTED;
    if (!ask_owners(c, call, &owners)) {
        base_format(why, why_bytes, "the device cannot be used: CUDA reports an error");
        return COMM_ERR_BACKEND;
    }
    if (owners.in == CUDA_OWNER_HOST && owners.out == CUDA_OWNER_HOST)
        return COMM_ERR_UNSUPPORTED;
    base_format(why, why_bytes, "%s is device memory; expected the host's: %s", owners.in == CUDA_OWNER_HOST ? "out" : "in",
                reduces(call->collective) && nan_differs(call->type, call->op) ? "in min and max a NaN wins, and NCCL lets the number win"
                                                                               : "NCCL has no such collective, type or operator");
    return COMM_ERR_ARGUMENT;
}

/* Only a stream of the caller can be captured. */
static bool is_captured(struct nccl_channel *c)
{
    struct cuda_inside inside;
    unsigned capture = CUDA_CAPTURE_NONE, result = CUDA_UNKNOWN;

    if (c->stream == c->own || !cuda_enter(c->d, &inside))
        return false;
    result = c->d->calls->cuStreamIsCapturing(c->stream, &capture);
    cuda_leave(c->d, &inside);
    return result != CUDA_OK || capture != CUDA_CAPTURE_NONE;
}

static bool serves(const struct native_call *call)
{
    return !reduces(call->collective) || (type_of(call->type) >= 0 && op_of(call->op) >= 0 && !nan_differs(call->type, call->op));
}

enum comm_result nccl_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;

    if (is_captured(c)) {
        base_format(why, why_bytes,
                    "the communicator's stream is being captured; expected calls outside of a capture: that is not built yet");
        return COMM_ERR_STATE;
    }
    return serves(call) ? accept_served(c, call, why, why_bytes) : accept_other(c, call, why, why_bytes);
}

/* ------------------------------------------------------------------------------------------------------------ issuing */
/* With NCCL_COMM_BLOCKING=0 in the environment no communicator blocks. Then a call is on the stream only when this returns. */
unsigned nccl_settle(struct nccl_channel *c, unsigned result)
{
    const struct comm_env *env = c->owner->env;
    int64_t until = result == NCCL_IN_PROGRESS ? env->now(env) + c->owner->join_ns : 0;
    unsigned state = result;

    if (result != NCCL_IN_PROGRESS)
        return result;
    for (result = NCCL_OK; result == NCCL_OK && state == NCCL_IN_PROGRESS && env->now(env) < until;) {
        env->relax(env, true);
        result = c->nccl->ncclCommGetAsyncError(c->comm, &state);
    }
    return result != NCCL_OK ? result : state;
}

bool nccl_room(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    uint32_t room = c->room ? c->room * 2 : ROOM_FIRST;

    if (c->issued - c->told < c->room)
        return true;
    struct nccl_pending *more = env->take(env, room * sizeof *more, 64);
    if (!more)
        return false;
    for (uint64_t i = c->told; i < c->issued; i++)
        more[i & (room - 1)] = c->pending[i & (c->room - 1)];
    if (c->pending)
        env->give(env, c->pending, c->room * sizeof *c->pending);
    c->pending = more;
    c->room = room;
    return true;
}

enum comm_result nccl_mark(struct nccl_channel *c, uint64_t cookie)
{
    struct cuda_device *d = c->d;
    struct nccl_pending *p = &c->pending[c->issued & (c->room - 1)];
    enum comm_result r = COMM_OK;

    *p = (struct nccl_pending){.cookie = cookie};
    if (d->memops)
        r = cuda_result(d->calls->cuStreamWriteValue64(c->stream, cuda_word_there(d, c->word), c->base + c->issued + 1, 0));
    else if (cuda_place(d, c->stream, &p->place) != COMM_OK)
        p->place = (struct device_place){0}; /* the place of a later operation counts for this one too */
    if (r == COMM_OK)
        c->issued++;
    return r;
}

static unsigned call_nccl(struct nccl_channel *c, const struct native_call *call)
{
    const struct nccl_calls *nccl = c->nccl;
    size_t bytes = call->n * call->element_bytes;
    unsigned type = nccl_type(call->type), op = nccl_op(call->op);
    void *scratch = (void *)(uintptr_t)c->d->scratch;

    if (call->collective == COLLECTIVE_BARRIER)
        return nccl->ncclAllReduce(scratch, scratch, 1, NCCL_U8, NCCL_SUM, c->comm, c->stream);
    if (call->n == 0 && !call->counts)
        return NCCL_OK;
    switch (call->collective) {
    case COLLECTIVE_BROADCAST:
        return nccl->ncclBroadcast(call->in, call->out, bytes, NCCL_U8, call->root, c->comm, c->stream);
    case COLLECTIVE_ALLGATHER:
        return nccl->ncclAllGather(call->in, call->out, bytes, NCCL_U8, c->comm, c->stream);
    case COLLECTIVE_REDUCE:
        return nccl->ncclReduce(call->in, call->out, call->n, type, op, call->root, c->comm, c->stream);
    case COLLECTIVE_REDUCE_SCATTER:
        return nccl->ncclReduceScatter(call->in, call->out, call->n, type, op, c->comm, c->stream);
    case COLLECTIVE_ALLREDUCE:
        return nccl->ncclAllReduce(call->in, call->out, call->n, type, op, c->comm, c->stream);
    default:
        return nccl_move(c, call);
    }
}

/* If the stream writes words, no lock is needed. */
enum comm_result nccl_mark_alone(struct nccl_channel *c, uint64_t cookie)
{
    if (c->d->memops)
        return nccl_mark(c, cookie);
    base_lock(&c->d->lock, c->d->env);
    enum comm_result r = nccl_mark(c, cookie);
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

enum comm_result nccl_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;
    enum comm_result r = COMM_ERR_BACKEND;

    *code = NCCL_CUDA_ERROR;
    if (!nccl_room(c))
        return COMM_ERR_MEMORY;
    if (!cuda_enter(c->d, &inside))
        return r;
    unsigned result = nccl_settle(c, call_nccl(c, call));
    *code = result == NCCL_OK ? NCCL_CUDA_ERROR : (int32_t)result;
    if (result == NCCL_OK)
        r = nccl_mark_alone(c, call->cookie);
    cuda_leave(c->d, &inside);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ waits */
static struct nccl_parked *free_park(struct nccl_channel *c)
{
    for (uint32_t i = 0; i < CUDA_PARKS; i++)
        if (!c->parked[i].taken)
            return &c->parked[i];
    return NULL;
}

static enum comm_result put_wait(struct nccl_channel *c, const struct native_point *point, uint64_t cookie)
{
    struct nccl_parked *park = point ? NULL : free_park(c);
    enum comm_result r;

    if (point) {
        struct device_place place = {(_Atomic uint64_t *)(uintptr_t)point->word, point->value};
        r = cuda_wait(c->d, c->stream, &place);
    } else {
        r = park ? cuda_park(c->d, c->stream, &park->place) : COMM_ERR_FULL;
    }
    if (r == COMM_OK && park) {
        park->cookie = cookie;
        park->taken = true;
    }
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
    if (cuda_enter(c->d, &inside)) {
        r = put_wait(c, point, cookie);
        cuda_leave(c->d, &inside);
    }
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

static void release(struct nccl_parked *park)
{
    park->taken = false;
    atomic_store_explicit(park->place.word, park->place.value, memory_order_release);
}

void nccl_reach(struct native_channel *channel, uint64_t cookie)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;

    for (uint32_t i = 0; i < CUDA_PARKS; i++)
        if (c->parked[i].taken && c->parked[i].cookie == cookie)
            release(&c->parked[i]);
}

/* Makes the caller's stream wait for the operation. For the newest operation it waits for an event. For an older one, if the channel's
 * stream counts in a word, a park stream waits for the word's value, and the caller's stream waits for the park stream. */
static enum comm_result put_await(struct nccl_channel *c, uint64_t number, struct CUstream_st *stream)
{
    struct device_place place;
    const struct nccl_pending *p = &c->pending[number & (c->room - 1)];

    if (!c->d->memops && p->place.word)
        return cuda_wait(c->d, stream, &p->place);
    if (c->d->memops && number + 1 < c->issued)
        return cuda_wait_word(c->d, stream, c->word, c->base + number + 1);
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

/* ------------------------------------------------------------------------------------------------------------ completion */
/* Counts the operations that are done, by their events. An operation without a place is done when a later one is; the last one gets a
 * place now. */
static uint64_t done_by_events(struct nccl_channel *c)
{
    struct cuda_inside inside;
    uint64_t done = c->told;
    bool any = false;

    base_lock(&c->d->lock, c->d->env);
    if (cuda_enter(c->d, &inside)) {
        cuda_poll(c->d);
        for (uint64_t i = c->told; i < c->issued; i++) {
            struct nccl_pending *p = &c->pending[i & (c->room - 1)];
            if (!p->place.word)
                continue;
            any = true;
            if (atomic_load_explicit(p->place.word, memory_order_acquire) < p->place.value)
                break;
            done = i + 1;
        }
        if (!any && c->issued > c->told) {
            struct nccl_pending *last = &c->pending[(c->issued - 1) & (c->room - 1)];
            if (cuda_place(c->d, c->stream, &last->place) != COMM_OK)
                last->place = (struct device_place){0};
        }
        cuda_leave(c->d, &inside);
    }
    base_unlock(&c->d->lock, c->d->env);
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

    if (++c->looks % CHECK_LOOKS || env->now(env) - c->looked_ns < CHECK_NS)
        return 0;
    c->looked_ns = env->now(env);
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
    uint64_t done = c->d->memops ? atomic_load_explicit(&c->d->words[c->word], memory_order_acquire) - c->base : done_by_events(c);
    for (; c->told < done && count < max; c->told++)
        events[count++] = (struct native_event){.cookie = c->pending[c->told & (c->room - 1)].cookie, .result = COMM_OK};
    int32_t wrong = c->told < c->issued && count < max ? ask_health(c) : 0;
    if (wrong)
        events[count++] =
            (struct native_event){.cookie = c->pending[c->told & (c->room - 1)].cookie, .result = COMM_ERR_BACKEND, .code = wrong};
    return count;
}

/* Releases everything that waits for a word of this channel. A stream that waits for ever would keep the context from being released. */
void nccl_release_all(struct nccl_channel *c)
{
    for (uint32_t i = 0; i < CUDA_PARKS; i++)
        if (c->parked[i].taken)
            release(&c->parked[i]);
    if (c->d->memops && c->issued > c->told)
        atomic_store_explicit(&c->d->words[c->word], c->base + c->issued, memory_order_release);
}
