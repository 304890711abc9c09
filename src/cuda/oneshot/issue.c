/* The operations of a channel: which calls the kernel serves, launching it, and seeing it end. */
#include "cuda/kernels.h"
#include "cuda/oneshot/oneshot.h"
#include "cuda/ring.h"

#include "base/hash.h"
#include "data/data.h"

enum { CHECK_NS = 100000000 };
/* A call is not less than so long where the kernel does short ones, and where nothing else but staging does. */
enum { PIPELINE_LEAST = 256 << 10, PIPELINE_LEAST_ALONE = 1 << 20 };

static struct oneshot_channel *channel_of(struct native_channel *channel)
{
    return (struct oneshot_channel *)(void *)channel;
}

/* ------------------------------------------------------------------------------------------------------------ which calls */
/* What the kernel does of each collective. Without a reduction, elements are bytes. */
struct kind {
    uint32_t collective, kind;
    bool reduces, has_blocks; /* has_blocks: each rank has one of its own in the longer buffer */
};

static const struct kind *kind_of(uint32_t collective)
{
    static const struct kind kinds[] = {
        {COLLECTIVE_ALLREDUCE, ONESHOT_SUM, true, false},    {COLLECTIVE_REDUCE_SCATTER, ONESHOT_SCATTER, true, true},
        {COLLECTIVE_ALLGATHER, ONESHOT_GATHER, false, true}, {COLLECTIVE_BROADCAST, ONESHOT_BROADCAST, false, false},
        {COLLECTIVE_BARRIER, ONESHOT_BARRIER, false, false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].collective == collective)
            return &kinds[i];
    return NULL;
}

static bool is_long(const struct oneshot_channel *c, const struct native_call *call)
{
    return c->pipeline && !c->given && pipeline_serves(call, c->args.ranks, c->has_kernel ? PIPELINE_LEAST : PIPELINE_LEAST_ALONE);
}

/* In a stream nothing is staged, so there the kernel serves more: other collectives, and any length. */
static bool serves(const struct oneshot_channel *c, const struct native_call *call)
{
    const struct kind *kind = kind_of(call->collective);

    if (!c->has_kernel || !kind || (!call->n && kind->kind != ONESHOT_BARRIER))
        return false;
    if (!c->given && (kind->kind != ONESHOT_SUM || call->n > ONESHOT_BYTES / call->element_bytes))
        return false;
    return !kind->reduces || fold_has(call->type, call->scale ? COMM_SUM : call->op);
}

enum comm_result oneshot_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    struct oneshot_channel *c = channel_of(channel);
    bool served = serves(c, call);

    if (c->given)
        return oneshot_accept_in_stream(c, call, served, why, why_bytes);
    c->ways = NATIVE_ON_DEVICE;
    c->took_long = is_long(c, call);
    return (served || c->took_long) && call->on_device ? COMM_OK : COMM_ERR_UNSUPPORTED;
}

uint32_t oneshot_ways(struct native_channel *channel)
{
    return channel_of(channel)->ways;
}

bool oneshot_reaches(struct native_channel *channel, const void *at, size_t align)
{
    struct cuda_device *d = channel_of(channel)->d;

    return (uintptr_t)at % align == 0 && cuda_ask(d, at).owner == d->ordinal;
}

/* ------------------------------------------------------------------------------------------------------------ launching */
bool oneshot_has_room(struct oneshot_channel *c)
{
    if (c->issued - c->told < c->room)
        return true;
    struct oneshot_call *more = cuda_ring_grow(c->owner->env, c->calls, &c->room, sizeof *more, c->told, c->issued);
    if (more)
        c->calls = more;
    return more != NULL;
}

struct oneshot_args oneshot_args_of(const struct oneshot_channel *c, const struct oneshot_call *call, uint64_t first)
{
    struct oneshot_args args = c->args;
    uint64_t element = fold_bytes(call->type), left = call->elements - first;
    uint64_t most = (call->kind == ONESHOT_SCATTER ? oneshot_share(&args) : ONESHOT_BYTES) / element;
    size_t bytes = (size_t)(element * (left < most ? left : most)), part = oneshot_part_bytes(args.ranks);

    args.in = (const char *)call->in + first * element;
    args.out = (char *)call->out + first * element;
    args.elements = bytes / element;
    args.stride = call->stride;
    args.kind = call->kind;
    args.root = call->root;
    args.type = call->type;
    args.op = call->op;
    args.scaled = call->scaled;
    args.factor = call->factor;
    args.fingerprint = (uint32_t)base_hash(base_hash(call->elements, call->type),
                                           (uint64_t)call->kind << 40 | (uint64_t)call->root << 8 | (uint64_t)call->scaled << 7 | call->op);
    args.parts = bytes ? (uint32_t)((bytes + part - 1) / part) : 1;
    return args;
}

/* Launches the next operation, if the one before has ended. Returns CUDA's result. */
static unsigned launch_next(struct oneshot_channel *c)
{
    struct cuda_inside inside;

    if (c->launched != c->told || c->launched == c->issued)
        return CUDA_OK;
    struct oneshot_args args = oneshot_args_of(c, &c->calls[c->launched & (c->room - 1)], 0);
    if (!cuda_begin(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = cuda_run_oneshot(c->d, &args, c->stream);
    cuda_end(c->d, &inside);
    c->launched += result == CUDA_OK;
    return result;
}

static struct oneshot_call call_of(const struct native_call *call)
{
    const struct kind *kind = kind_of(call->collective);
    uint64_t bytes = (uint64_t)call->n * call->element_bytes, factor = 0;

    if (call->scale)
        memcpy(&factor, ((const struct data_user *)call->context)->scale.factor, call->element_bytes);
    return (struct oneshot_call){.in = call->in ? call->in : call->out,
                                 .out = call->out ? call->out : (void *)(uintptr_t)call->in,
                                 .elements = kind->reduces ? call->n : bytes,
                                 .cookie = call->cookie,
                                 .stride = kind->has_blocks ? bytes : 0,
                                 .kind = kind->kind,
                                 .root = kind->kind == ONESHOT_BROADCAST ? (uint32_t)call->root : 0,
                                 .type = kind->reduces ? (uint32_t)call->type : COMM_BYTE,
                                 .op = kind->reduces ? (call->scale ? COMM_SUM : call->op) : 0,
                                 .scaled = call->scale != NULL,
                                 .factor = factor};
}

enum comm_result oneshot_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct oneshot_channel *c = channel_of(channel);

    *code = 0;
    if (is_long(c, call))
        return pipeline_start(c->pipeline, call);
    if (!oneshot_has_room(c))
        return COMM_ERR_MEMORY;
    c->calls[c->issued++ & (c->room - 1)] = call_of(call);
    unsigned result = c->given ? oneshot_launch_in_stream(c, &c->calls[(c->issued - 1) & (c->room - 1)]) : launch_next(c);
    if (result == CUDA_OK)
        return COMM_OK;
    c->issued--;
    *code = -(int32_t)result;
    return cuda_result(result) == COMM_ERR_MEMORY ? COMM_ERR_MEMORY : COMM_ERR_BACKEND;
}

/* ------------------------------------------------------------------------------------------------------------ ending */
/* How many operations have ended on the device. */
static uint64_t ended(const struct oneshot_channel *c)
{
    return atomic_load_explicit(&c->d->words[c->done], memory_order_acquire) - c->args.base - c->choice.before;
}

/* A kernel that fails stops the context, and its word is never written. Every later call reports that too. An error that comes once was one
 * of the call alone: the kernels run on. */
static void ask_cuda(struct oneshot_channel *c)
{
    struct cuda_inside inside;
    unsigned result = CUDA_OK;

    if (c->broken || !cuda_enter(c->d, &inside))
        return;
    for (int times = 0; times < 2; times++) {
        result = c->d->calls->cuStreamQuery(c->has_kernel ? c->stream : c->pipeline->stream);
        if (result == CUDA_OK || result == CUDA_NOT_READY)
            break;
    }
    cuda_leave(c->d, &inside);
    if (result != CUDA_OK && result != CUDA_NOT_READY)
        c->broken = result;
}

/* Until the choice is made, the stream has trials, and the first values of counters, which belong to the next channel that takes the word.
 * */
static bool kernel_runs(struct oneshot_channel *c)
{
    if (!c->has_kernel)
        return false;
    if (c->choice.stage != ONESHOT_CHOSEN)
        return oneshot_rests(c) != CUDA_OK;
    return c->given ? !oneshot_given_rests(c) : ended(c) != c->launched;
}

bool oneshot_runs(struct oneshot_channel *c)
{
    if (c->broken || !(kernel_runs(c) || (c->pipeline && pipeline_runs(c->pipeline))))
        return false;
    ask_cuda(c);
    return !c->broken;
}

static bool is_broken(struct oneshot_channel *c)
{
    int64_t now = c->owner->env->now(c->owner->env);

    if (now - c->looked_ns >= CHECK_NS) {
        c->looked_ns = now;
        ask_cuda(c);
    }
    return c->broken != 0;
}

static uint64_t cookie_of(const struct oneshot_channel *c, uint64_t number)
{
    return c->calls[number & (c->room - 1)].cookie;
}

static uint64_t oldest_mark(const struct oneshot_channel *c)
{
    return c->calls[c->told & (c->room - 1)].mark;
}

/* The oldest operation has ended, so the next one may begin. After an error nothing begins any more. */
static struct native_event end_one(struct oneshot_channel *c)
{
    int32_t wrong = (int32_t)atomic_load_explicit(&c->d->words[c->wrong], memory_order_relaxed);
    struct native_event event = {.cookie = cookie_of(c, c->told), .result = wrong ? COMM_ERR_BACKEND : COMM_OK, .code = wrong};

    c->told++;
    if (!wrong && !c->given)
        c->refused = launch_next(c);
    return event;
}

static uint32_t advance_kernel(struct oneshot_channel *c, struct native_event *events, uint32_t max)
{
    if (c->told == c->issued || !max)
        return 0;
    bool has_ended = c->given ? oldest_mark(c) <= oneshot_marked(c) : c->told < c->launched && ended(c) > c->told;
    if (has_ended) {
        *events = end_one(c);
        return 1;
    }
    if (!c->refused && !is_broken(c))
        return 0;
    *events = (struct native_event){
        .cookie = cookie_of(c, c->told), .result = COMM_ERR_BACKEND, .code = -(int32_t)(c->refused ? c->refused : c->broken)};
    return 1;
}

uint32_t oneshot_advance(struct native_channel *channel, struct native_event *events, uint32_t max)
{
    struct oneshot_channel *c = channel_of(channel);
    uint32_t count = advance_kernel(c, events, max);

    if (!c->pipeline || !pipeline_is_pending(c->pipeline))
        return count;
    if (is_broken(c))
        pipeline_break(c->pipeline, -(int32_t)c->broken);
    return count + pipeline_advance(c->pipeline, events + count, max - count);
}
