/*
 * A communicator that works in a stream of the program's (options.stream). Its kernels are put there inside the calls, in their order, and
 * may be captured in a CUDA graph. The stream writes a word behind each operation that is not captured: the kernel's own word also counts
 * those that graphs launch.
 *
 * Only what the kernel serves goes there. Other calls on device buffers are refused, since nothing orders a stage with the stream.
 */
#include "cuda/kernels.h"
#include "cuda/oneshot/oneshot.h"

#include "base/format.h"

static struct oneshot_channel *channel_of(struct native_channel *channel)
{
    return (struct oneshot_channel *)(void *)channel;
}

struct device *oneshot_stream(struct native_channel *channel, struct CUstream_st *given, struct CUstream_st **stream)
{
    struct oneshot_channel *c = channel_of(channel);
    struct cuda_device *d = c->d;

    if (given && (!d->memops || !cuda_has_stream(d, c->owner->log, "cuda", given)))
        return NULL;
    if (given) {
        base_lock(&d->lock, d->env);
        c->mark = c->mark ? c->mark : cuda_take_word(d);
        base_unlock(&d->lock, d->env);
        if (!c->mark)
            return NULL;
        c->mark_base = atomic_load_explicit(&d->words[c->mark], memory_order_relaxed);
        c->given = given;
    }
    *stream = c->given ? c->given : c->stream;
    return &d->head;
}

/* ------------------------------------------------------------------------------------------------------------ which calls */
static enum comm_result refuse(const struct oneshot_channel *c, bool served, const struct cuda_buffer *b, char *why, size_t why_bytes)
{
    if (served)
        base_format(why, why_bytes, "%s: expected memory of cuda:%d, the communicator's device, aligned for its type", b->name,
                    c->d->ordinal);
    else
        base_format(why, why_bytes,
                    "%s is device memory; expected the host's: with options.stream, backend cuda takes device buffers in broadcast, "
                    "allgather, and an allreduce or reduce_scatter of its kernel's types and operators",
                    b->name);
    return COMM_ERR_ARGUMENT;
}

static enum comm_result check(struct oneshot_channel *c, const struct cuda_buffer *b, size_t align, char *why, size_t why_bytes)
{
    if (!b->bytes)
        return COMM_OK;
    if (b->is.owner != c->d->ordinal || (uintptr_t)b->at % align)
        return refuse(c, true, b, why, why_bytes);
    return cuda_check_end(c->d, b, why, why_bytes);
}

/* Managed memory is the device's too: the kernel uses it in the order of the stream, as the host could not. */
enum comm_result oneshot_accept_in_stream(struct oneshot_channel *c, const struct native_call *call, bool served, char *why,
                                          size_t why_bytes)
{
    bool captured = false;
    enum comm_result r = cuda_ask_capture(c->d, c->given, &c->held, &captured, why, why_bytes);

    c->ways = NATIVE_ON_DEVICE | (captured ? NATIVE_RECORDED : 0);
    if (r != COMM_OK)
        return r;
    if (!call->in && !call->out && served)
        return COMM_OK;
    struct cuda_buffers b = cuda_ask_buffers(c->d, call, (int32_t)c->args.rank, (int32_t)c->args.ranks);
    bool in = b.in.is.owner != CUDA_OWNER_HOST, out = b.out.is.owner != CUDA_OWNER_HOST;
    if ((in || out) && !served)
        return refuse(c, false, in ? &b.in : &b.out, why, why_bytes);
    if (in || out) {
        r = check(c, &b.in, call->element_bytes, why, why_bytes);
        return r == COMM_OK ? check(c, &b.out, call->element_bytes, why, why_bytes) : r;
    }
    if (!captured)
        return COMM_ERR_UNSUPPORTED;
    base_format(why, why_bytes,
                "the communicator's stream is being captured; expected a barrier, or device memory in broadcast, allgather, allreduce or "
                "reduce_scatter");
    return COMM_ERR_STATE;
}

/* ------------------------------------------------------------------------------------------------------------ operations */
/* The caller has begun on the device. */
static unsigned mark(struct oneshot_channel *c, struct oneshot_call *call)
{
    call->mark = c->marks + 1;
    unsigned result = c->d->calls->cuStreamWriteValue64(c->given, cuda_word_there(c->d, c->mark), c->mark_base + c->marks + 1, 0);
    c->marks += result == CUDA_OK;
    return result;
}

/* One kernel behind another: the stream orders them, as it orders those of different calls. */
static unsigned launch_all(struct oneshot_channel *c, const struct oneshot_call *call)
{
    uint64_t first = 0;
    unsigned result;

    do {
        struct oneshot_args args = oneshot_args_of(c, call, first);
        result = cuda_run_oneshot(c->d, &args, c->given);
        first += args.elements;
        c->is_unmarked = c->is_unmarked || result == CUDA_OK;
    } while (first < call->elements && result == CUDA_OK);
    return result;
}

unsigned oneshot_launch_in_stream(struct oneshot_channel *c, struct oneshot_call *call)
{
    struct cuda_inside inside;
    bool captured = false;
    char why[256];

    if (!cuda_begin(c->d, &inside))
        return CUDA_INVALID_CONTEXT;
    unsigned result = CUDA_NOT_SUPPORTED; /* asked again, since the caller may have begun a capture just now */
    bool was_unmarked = c->is_unmarked;
    if (cuda_capture(c->d, c->given, &c->held, &captured, why, sizeof why) == COMM_OK)
        result = launch_all(c, call);
    call->mark = c->marks; /* of a captured call: complete when those before it are */
    if (result == CUDA_OK && !captured)
        result = mark(c, call);
    if (result == CUDA_OK || captured) /* a graph holds the channel by itself */
        c->is_unmarked = was_unmarked;
    cuda_end(c->d, &inside);
    return result;
}

uint64_t oneshot_marked(const struct oneshot_channel *c)
{
    return atomic_load_explicit(&c->d->words[c->mark], memory_order_acquire) - c->mark_base;
}

/* A stream that is being captured cannot be asked. */
bool oneshot_given_rests(struct oneshot_channel *c)
{
    struct cuda_inside inside;

    if (!c->is_unmarked)
        return oneshot_marked(c) >= c->marks;
    if (!cuda_enter(c->d, &inside))
        return false;
    bool rests = !cuda_is_capturing(c->d, c->given) && c->d->calls->cuStreamQuery(c->given) == CUDA_OK;
    cuda_leave(c->d, &inside);
    return rests;
}

/* What is put on the stream from now on runs after the place. A point that only the host can see is refused. */
enum comm_result oneshot_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie)
{
    struct oneshot_channel *c = channel_of(channel);
    struct device_place place = {(_Atomic uint64_t *)(uintptr_t)point->word, point->value};
    struct oneshot_call call = {.cookie = cookie};
    struct cuda_inside inside;

    if (!point->word)
        return COMM_ERR_UNSUPPORTED;
    if (!oneshot_has_room(c))
        return COMM_ERR_MEMORY;
    if (!cuda_begin(c->d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = cuda_is_capturing(c->d, c->given) ? COMM_ERR_UNSUPPORTED : cuda_wait(c->d, c->given, &place);
    if (r == COMM_OK)
        r = cuda_result(mark(c, &call));
    if (r == COMM_OK)
        c->calls[c->issued++ & (c->room - 1)] = call;
    cuda_end(c->d, &inside);
    return r;
}

enum comm_result oneshot_keep_waits(struct native_channel *channel, uint32_t count)
{
    (void)channel;
    return count ? COMM_ERR_UNSUPPORTED : COMM_OK;
}

/* No wait parks. */
void oneshot_reach(struct native_channel *channel, uint64_t cookie)
{
    (void)channel, (void)cookie;
}

enum comm_result oneshot_await(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream)
{
    struct oneshot_channel *c = channel_of(channel);
    struct device_place place;
    struct cuda_inside inside;
    uint64_t number = c->told;

    while (number < c->issued && c->calls[number & (c->room - 1)].cookie != cookie)
        number++;
    if (number == c->issued)
        return COMM_OK;
    if (!cuda_begin(c->d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = cuda_is_capturing(c->d, c->given) ? COMM_ERR_UNSUPPORTED : cuda_place(c->d, c->given, &place);
    if (r == COMM_OK)
        r = cuda_wait(c->d, stream, &place);
    cuda_end(c->d, &inside);
    return r;
}

enum comm_result oneshot_may_close(struct native_channel *channel, char *why, size_t why_bytes)
{
    struct oneshot_channel *c = channel_of(channel);

    return cuda_may_close(c->owner->env, &c->held, why, why_bytes);
}
