/*
 * Reductions that NCCL lacks, on device buffers: other types and operators, min and max in which a NaN wins, a fixed order, and operators
 * of the program's own; and pre-multiplied sums of other types or in a fixed order, for which it moves the factors first. NCCL moves the
 * ranks' inputs to each rank that needs them. Then a kernel on the device reduces them, with the bits that host buffers have. Where the
 * kernel lacks the pair, or the device has no kernels, the stream copies the inputs to pinned memory, CUDA calls the host's kernel on a
 * thread of its own, and the stream copies the result back. The stream orders all of it. A long operation is done in rounds, one after the
 * other, so the memory does not depend on its length.
 */
#include "cuda/kernels.h"
#include "cuda/nccl/nccl.h"

#include <string.h>

enum { ROUND_BYTES = 512 * 1024 /* of each rank */, FACTOR_BYTES = 16 };
_Static_assert(FACTOR_BYTES == sizeof((struct data_scale){.type = COMM_F32}.factor), "a whole factor");

/* One call of the kernel. It is made once and used again. */
struct nccl_step {
    struct nccl_step *next;
    struct nccl_channel *c;
    _Atomic bool is_busy; /* it is on the stream */
    struct data_reduce reduce;
    data_reduce_fn *kernel;
    data_scale_fn *scale; /* NULL: not a pre-multiplied sum */
    struct data_scale by;
    const char *factors; /* FACTOR_BYTES of each rank */
    const void *from[NCCL_FOLDS];
};

/* What a rank needs: so many elements from `at` on, of the inputs of the ranks below `inputs`. */
struct share {
    size_t at, count;
    int32_t inputs;
};

static struct share share_of(const struct native_call *call, int32_t size, int32_t rank)
{
    switch (call->collective) {
    case COLLECTIVE_REDUCE:
        return (struct share){0, call->n, rank == call->root ? size : 0};
    case COLLECTIVE_REDUCE_SCATTER:
        return (struct share){(size_t)rank * call->n, call->n, size};
    case COLLECTIVE_REDUCE_SCATTER_V:
        return (struct share){call->displs[rank], call->counts[rank], size};
    case COLLECTIVE_SCAN:
        return (struct share){0, call->n, rank + 1};
    case COLLECTIVE_EXSCAN:
        return (struct share){0, call->n, rank};
    default:
        return (struct share){0, call->n, size};
    }
}

/* A round: the elements [at, at + most) of each share. */
struct round {
    struct nccl_channel *c;
    const struct native_call *call;
    size_t at, most;
};

static size_t bytes_of(const struct round *o, const struct share *s)
{
    size_t left = s->count > o->at ? s->count - o->at : 0;

    return (left < o->most ? left : o->most) * o->call->element_bytes;
}

static unsigned exchange(const struct round *o)
{
    struct nccl_channel *c = o->c;
    struct share mine = share_of(o->call, c->size, c->rank);
    char *inputs = (char *)(uintptr_t)c->folds.inputs;
    size_t bytes = bytes_of(o, &mine);
    unsigned result = c->nccl->ncclGroupStart();

    if (result != NCCL_OK)
        return result;
    for (int32_t r = 0; r < c->size && result == NCCL_OK; r++) {
        struct share theirs = share_of(o->call, c->size, r);
        const char *from = (const char *)o->call->in + (theirs.at + o->at) * o->call->element_bytes;
        if (c->rank < theirs.inputs && bytes_of(o, &theirs))
            result = c->nccl->ncclSend(from, bytes_of(o, &theirs), NCCL_U8, r, c->comm, c->stream);
        if (result == NCCL_OK && r < mine.inputs && bytes)
            result = c->nccl->ncclRecv(inputs + (size_t)r * bytes, bytes, NCCL_U8, r, c->comm, c->stream);
    }
    unsigned ended = nccl_settle(c, c->nccl->ncclGroupEnd());
    return result != NCCL_OK ? result : ended;
}

/* Gives the factors of all ranks to each: behind the rounds' inputs, the own one behind all others. */
static unsigned exchange_factors(struct nccl_channel *c, const struct native_call *call)
{
    const struct cuda_calls *calls = c->d->calls;
    const unsigned char *factor = ((const struct data_user *)call->context)->scale.factor;
    cuda_address all = c->folds.inputs + (size_t)c->size * ROUND_BYTES, own = all + (size_t)c->size * FACTOR_BYTES;
    unsigned result = NCCL_OK;

    for (unsigned at = 0, word; at < FACTOR_BYTES; at += sizeof word) {
        memcpy(&word, factor + at, sizeof word);
        if (calls->cuMemsetD32Async(own + at, word, 1, c->stream) != CUDA_OK)
            return NCCL_CUDA_ERROR;
    }
    result = nccl_settle(
        c, c->nccl->ncclAllGather((const void *)(uintptr_t)own, (void *)(uintptr_t)all, FACTOR_BYTES, NCCL_U8, c->comm, c->stream));
    if (result != NCCL_OK)
        return result;
    cuda_address pinned = (uintptr_t)c->folds.pinned + (size_t)c->size * ROUND_BYTES;
    return calls->cuMemcpyAsync(pinned, all, (size_t)c->size * FACTOR_BYTES, c->stream) == CUDA_OK ? NCCL_OK : NCCL_CUDA_ERROR;
}

/* CUDA calls it behind the copy of the inputs. It may not call CUDA. After a failure the inputs are no data. */
static void run_step(void *arg)
{
    struct nccl_step *s = arg;
    bool aborting = atomic_load_explicit(&s->c->aborting, memory_order_acquire);

    for (uint32_t r = 0; s->scale && r < s->reduce.ways && !aborting; r++) {
        memcpy(s->by.factor, s->factors + (size_t)r * FACTOR_BYTES, FACTOR_BYTES);
        s->scale((void *)(uintptr_t)s->from[r], s->from[r], s->reduce.elements, &s->by);
    }
    if (!aborting)
        s->kernel(&s->reduce);
    atomic_store_explicit(&s->is_busy, false, memory_order_release);
}

static struct nccl_step *take_step(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    struct nccl_step *s = c->folds.steps;

    while (s && atomic_load_explicit(&s->is_busy, memory_order_acquire))
        s = s->next;
    if (s || !(s = env->take(env, sizeof *s, 64)))
        return s;
    *s = (struct nccl_step){.next = c->folds.steps, .c = c};
    c->folds.steps = s;
    return s;
}

static unsigned reduce_here(const struct round *o, const struct share *mine, size_t bytes)
{
    const struct native_call *call = o->call;

    return cuda_fold(o->c->d,
                     &(struct fold_args){.in = (const void *)(uintptr_t)o->c->folds.inputs,
                                         .out = (char *)call->out + o->at * call->element_bytes,
                                         .stride = bytes,
                                         .elements = bytes / call->element_bytes,
                                         .ways = (uint32_t)mine->inputs,
                                         .divisor = (uint32_t)o->c->size,
                                         .type = (uint32_t)call->type,
                                         .op = call->op},
                     o->c->stream);
}

static unsigned reduce_on_host(const struct round *o, const struct share *mine, size_t bytes)
{
    struct nccl_channel *c = o->c;
    const struct cuda_calls *calls = c->d->calls;
    struct nccl_step *s = take_step(c);
    cuda_address pinned = (uintptr_t)c->folds.pinned, out = (uintptr_t)o->call->out + o->at * o->call->element_bytes;

    if (!s)
        return CUDA_OUT_OF_MEMORY;
    s->kernel = o->call->reduce;
    s->scale = o->call->scale;
    if (s->scale)
        s->by = ((const struct data_user *)o->call->context)->scale;
    s->factors = (const char *)c->folds.pinned + (size_t)c->size * ROUND_BYTES;
    for (int32_t r = 0; r < mine->inputs; r++)
        s->from[r] = (char *)c->folds.pinned + (size_t)r * bytes;
    s->reduce = (struct data_reduce){.from = s->from,
                                     .ways = (uint32_t)mine->inputs,
                                     .divisor = (uint32_t)c->size,
                                     .context = o->call->context,
                                     .to = c->folds.pinned,
                                     .elements = bytes / o->call->element_bytes,
                                     .final = true};
    unsigned result = calls->cuMemcpyAsync(pinned, c->folds.inputs, (size_t)mine->inputs * bytes, c->stream);
    if (result != CUDA_OK)
        return result;
    atomic_store_explicit(&s->is_busy, true, memory_order_relaxed);
    result = calls->cuLaunchHostFunc(c->stream, run_step, s);
    if (result != CUDA_OK) {
        atomic_store_explicit(&s->is_busy, false, memory_order_relaxed);
        return result;
    }
    return calls->cuMemcpyAsync(out, pinned, bytes, c->stream);
}

unsigned nccl_fold(struct nccl_channel *c, const struct native_call *call)
{
    struct share mine = share_of(call, c->size, c->rank);
    struct round o = {.c = c, .call = call, .most = ROUND_BYTES / call->element_bytes / call->grain * call->grain};

    bool here = cuda_can_fold(c->d, call->type, call->op);
    unsigned begun = call->scale ? exchange_factors(c, call) : NCCL_OK;

    if (begun != NCCL_OK)
        return begun;
    for (; o.at < call->n; o.at += o.most) {
        unsigned result = exchange(&o);
        size_t bytes = mine.inputs ? bytes_of(&o, &mine) : 0;
        if (result != NCCL_OK)
            return result;
        if (bytes && (here ? reduce_here : reduce_on_host)(&o, &mine, bytes) != CUDA_OK)
            return NCCL_CUDA_ERROR;
    }
    return NCCL_OK;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
enum comm_result nccl_reserve_fold(struct nccl_channel *c, const struct native_call *call)
{
    const struct cuda_calls *calls = c->d->calls;
    struct nccl_folds *f = &c->folds;
    size_t bytes = (size_t)c->size * (ROUND_BYTES + FACTOR_BYTES) + FACTOR_BYTES;
    struct cuda_inside inside;
    bool on_host = !cuda_can_fold(c->d, call->type, call->op);
    unsigned result = CUDA_OK;

    if (f->inputs && (f->pinned || !on_host))
        return COMM_OK;
    if (!cuda_enter(c->d, &inside))
        return COMM_ERR_BACKEND;
    if (!f->inputs)
        result = calls->cuMemAlloc(&f->inputs, bytes);
    if (result != CUDA_OK)
        f->inputs = 0;
    else if (on_host)
        result = calls->cuMemHostAlloc(&f->pinned, bytes, CUDA_HOST_PORTABLE);
    if (result != CUDA_OK && on_host)
        f->pinned = NULL;
    cuda_leave(c->d, &inside);
    return cuda_result(result);
}

/* A step that is on the stream runs even after an abort, unless the context is broken. */
static bool is_at_rest(const struct nccl_channel *c)
{
    const struct nccl_step *s = c->folds.steps;

    while (s && !atomic_load_explicit(&s->is_busy, memory_order_acquire))
        s = s->next;
    if (!s)
        return true;
    unsigned result = c->d->calls->cuStreamQuery(c->own);
    return result != CUDA_OK && result != CUDA_NOT_READY;
}

bool nccl_free_folds(struct nccl_channel *c)
{
    const struct comm_env *env = c->owner->env;
    struct nccl_folds *f = &c->folds;

    if (!is_at_rest(c))
        return false;
    if (f->pinned)
        c->d->calls->cuMemFreeHost(f->pinned);
    if (f->inputs)
        c->d->calls->cuMemFree(f->inputs);
    while (f->steps) {
        struct nccl_step *s = f->steps;
        f->steps = s->next;
        env->give(env, s, sizeof *s);
    }
    *f = (struct nccl_folds){.pinned = NULL};
    return true;
}
