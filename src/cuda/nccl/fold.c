/*
 * Reductions that NCCL lacks, on device buffers: other types and operators, min and max in which a NaN wins, a fixed order, and operators
 * of the program's own; and pre-multiplied sums of other types or in a fixed order, for which it moves the factors first. NCCL moves the
 * ranks' inputs to each rank that needs them. Then a kernel on the device reduces them, with the bits that host buffers have. Where the
 * kernel lacks the pair, or the device has no kernels, the stream copies the inputs to pinned memory, CUDA calls the host's kernel on a
 * thread of its own, and the stream copies the result back. The stream orders all of it. A long operation is done in rounds, one after the
 * other, so the memory does not depend on its length.
 *
 * Of a long allreduce each rank reduces one block. Then NCCL gives the blocks to all ranks. So a rank sends about two vectors in all, and
 * not one to each peer. All that decides how a call is done is equal on all ranks.
 */
#include "cuda/kernels.h"
#include "cuda/nccl/fold_tree.h"
#include "cuda/nccl/nccl.h"

#include <string.h>

/* A round has ROUND_BYTES of each rank, or less if that were more than ALL_BYTES of all ranks. */
enum { ROUND_BYTES = 512 * 1024, ALL_BYTES = 64 * ROUND_BYTES, ROUND_LEAST = DATA_USER_BYTES_MAX, FACTOR_BYTES = 16 };
/* Blocks begin at multiples of LINE_BYTES, since NCCL moves what is aligned faster. HOP_BYTES: what could be sent to a peer in the time
 * that a gather takes for each rank; 64 KiB at 20 GB/s are 3 us. An estimate. */
enum { LINE_BYTES = 16, HOP_BYTES = 64 * 1024 };
_Static_assert(FACTOR_BYTES == sizeof((struct data_scale){.type = COMM_F32}.factor), "a whole factor");

/* One call of the kernel. It is made once and used again. */
struct nccl_step {
    struct nccl_step *next;
    struct nccl_channel *c;
    _Atomic bool is_busy; /* it is on the stream */
    struct fold_tree tree;
    data_scale_fn *scale; /* NULL: not a pre-multiplied sum */
    struct data_scale by;
    const char *factors; /* FACTOR_BYTES of each rank */
};

/* A round: the elements [at, at + most) of each share. */
struct round {
    struct nccl_channel *c;
    const struct native_call *call;
    size_t at, most;
    size_t block; /* elements of a rank's block of an allreduce; 0: each rank reduces the whole vector */
};

/* What a rank needs: so many elements from `at` on, of the inputs of the ranks below `inputs`. */
struct share {
    size_t at, count;
    int32_t inputs;
};

/* The last rank's block has what is left behind the others'. */
static struct share share_of(const struct round *o, int32_t rank)
{
    const struct native_call *call = o->call;
    int32_t size = o->c->size;

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
        break;
    }
    size_t at = (size_t)rank * o->block;
    return (struct share){at, rank < size - 1 && o->block ? o->block : call->n - at, size};
}

/* The elements of the longest share. */
static size_t longest(const struct round *o)
{
    return o->block ? share_of(o, o->c->size - 1).count : o->call->n;
}

static size_t room_of(const struct nccl_channel *c)
{
    size_t bytes = ALL_BYTES / (size_t)c->size / ROUND_LEAST * ROUND_LEAST;

    return bytes > ROUND_BYTES ? ROUND_BYTES : bytes > ROUND_LEAST ? bytes : ROUND_LEAST;
}

/* Of the inputs of a round, the factors of all ranks, and the own one. In pinned memory the tree's room is behind them. */
static size_t bytes_of_inputs(const struct nccl_channel *c)
{
    size_t bytes = (size_t)c->size * (room_of(c) + FACTOR_BYTES) + FACTOR_BYTES;

    return (bytes + SPARE_LINE - 1) / SPARE_LINE * SPARE_LINE;
}

/*
 * The whole vector goes to each peer in one operation. Blocks take two, of which each moves 1 / size of the vector to each peer. So for
 * each peer they spare (size - 2) / size of the vector, which must be as long as what the other operation costs. A vector of several rounds
 * is several operations anyway.
 */
static bool is_long(const struct nccl_channel *c, const struct native_call *call)
{
    size_t bytes = call->n * call->element_bytes, size = (size_t)c->size;

    return size > 1 && (bytes > room_of(c) || (size > 2 && bytes * (size - 2) >= HOP_BYTES * size));
}

/* 0: the call has no blocks. */
static size_t block_of(const struct nccl_channel *c, const struct native_call *call)
{
    size_t unit = call->grain;

    if (call->collective != COLLECTIVE_ALLREDUCE || !is_long(c, call))
        return 0;
    while (unit * call->element_bytes % LINE_BYTES)
        unit *= 2;
    return call->n / (size_t)c->size / unit * unit;
}

static size_t bytes_of(const struct round *o, const struct share *s)
{
    size_t left = s->count > o->at ? s->count - o->at : 0;

    return (left < o->most ? left : o->most) * o->call->element_bytes;
}

static unsigned exchange(const struct round *o)
{
    struct nccl_channel *c = o->c;
    struct share mine = share_of(o, c->rank);
    char *inputs = (char *)(uintptr_t)c->folds.inputs;
    size_t bytes = bytes_of(o, &mine);
    unsigned result = c->nccl->ncclGroupStart();

    if (result != NCCL_OK)
        return result;
    for (int32_t r = 0; r < c->size && result == NCCL_OK; r++) {
        struct share theirs = share_of(o, r);
        const char *from = (const char *)o->call->in + (theirs.at + o->at) * o->call->element_bytes;
        if (c->rank < theirs.inputs && bytes_of(o, &theirs))
            result = c->nccl->ncclSend(from, bytes_of(o, &theirs), NCCL_U8, r, c->comm, c->stream);
        if (result == NCCL_OK && r < mine.inputs && bytes)
            result = c->nccl->ncclRecv(inputs + (size_t)r * bytes, bytes, NCCL_U8, r, c->comm, c->stream);
    }
    unsigned ended = nccl_settle(c, c->nccl->ncclGroupEnd());
    return result != NCCL_OK ? result : ended;
}

/* Gives the reduced blocks to all ranks, in place. */
static unsigned gather(const struct round *o)
{
    struct nccl_channel *c = o->c;
    size_t bytes = o->block * o->call->element_bytes, all = (size_t)c->size * bytes;
    size_t left = o->call->n * o->call->element_bytes - all; /* of the last rank's block */
    char *out = o->call->out;
    unsigned result = c->nccl->ncclGroupStart();

    if (result != NCCL_OK)
        return result;
    result = c->nccl->ncclAllGather(out + (size_t)c->rank * bytes, out, bytes, NCCL_U8, c->comm, c->stream);
    if (result == NCCL_OK && left)
        result = c->nccl->ncclBroadcast(out + all, out + all, left, NCCL_U8, c->size - 1, c->comm, c->stream);
    unsigned ended = nccl_settle(c, c->nccl->ncclGroupEnd());
    return result != NCCL_OK ? result : ended;
}

/* Gives the factors of all ranks to each: behind the rounds' inputs, the own one behind all others. */
static unsigned exchange_factors(struct nccl_channel *c, const struct native_call *call)
{
    const struct cuda_calls *calls = c->d->calls;
    const unsigned char *factor = ((const struct data_user *)call->context)->scale.factor;
    cuda_address all = c->folds.inputs + (size_t)c->size * room_of(c), own = all + (size_t)c->size * FACTOR_BYTES;
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
    cuda_address pinned = (uintptr_t)c->folds.pinned + (size_t)c->size * room_of(c);
    return calls->cuMemcpyAsync(pinned, all, (size_t)c->size * FACTOR_BYTES, c->stream) == CUDA_OK ? NCCL_OK : NCCL_CUDA_ERROR;
}

/* CUDA calls it behind the copy of the inputs. It may not call CUDA. After a failure the inputs are no data. */
static void run_step(void *arg)
{
    struct nccl_step *s = arg;
    bool aborting = atomic_load_explicit(&s->c->aborting, memory_order_acquire);

    for (uint32_t r = 0; s->scale && r < s->tree.ways && !aborting; r++) {
        char *input = s->tree.out + r * s->tree.stride;
        memcpy(s->by.factor, s->factors + (size_t)r * FACTOR_BYTES, FACTOR_BYTES);
        s->scale(input, input, s->tree.elements, &s->by);
    }
    if (!aborting)
        fold_tree(&s->tree);
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

/* Where the round's result goes. Of blocks, `out` has all; of a reduce_scatter, only the own one. */
static char *result_of(const struct round *o, const struct share *mine)
{
    return (char *)o->call->out + ((o->block ? mine->at : 0) + o->at) * o->call->element_bytes;
}

static unsigned reduce_here(const struct round *o, const struct share *mine, size_t bytes)
{
    const struct native_call *call = o->call;

    return cuda_fold(o->c->d,
                     &(struct fold_args){.in = (const void *)(uintptr_t)o->c->folds.inputs,
                                         .out = result_of(o, mine),
                                         .stride = bytes,
                                         .elements = bytes / call->element_bytes,
                                         .ways = (uint32_t)mine->inputs,
                                         .divisor = (uint32_t)o->c->size,
                                         .type = (uint32_t)call->type,
                                         .op = call->op},
                     o->c->stream);
}

/* The accumulator of the small floats is f32, of the other types the type. */
static size_t partial_bytes(const struct native_call *call)
{
    return call->type >= COMM_F8E4M3 && call->type <= COMM_BF16 ? sizeof(float) : call->element_bytes;
}

static unsigned reduce_on_host(const struct round *o, const struct share *mine, size_t bytes)
{
    struct nccl_channel *c = o->c;
    const struct cuda_calls *calls = c->d->calls;
    struct nccl_step *s = take_step(c);
    cuda_address pinned = (uintptr_t)c->folds.pinned, out = (uintptr_t)result_of(o, mine);

    if (!s)
        return CUDA_OUT_OF_MEMORY;
    s->scale = o->call->scale;
    if (s->scale)
        s->by = ((const struct data_user *)o->call->context)->scale;
    s->factors = (const char *)c->folds.pinned + (size_t)c->size * room_of(c);
    s->tree = (struct fold_tree){.kernel = o->call->reduce,
                                 .context = o->call->context,
                                 .in = c->folds.pinned,
                                 .out = c->folds.pinned,
                                 .room = (char *)c->folds.pinned + bytes_of_inputs(c),
                                 .stride = bytes,
                                 .elements = bytes / o->call->element_bytes,
                                 .element_bytes = o->call->element_bytes,
                                 .partial_bytes = partial_bytes(o->call),
                                 .grain = o->call->grain,
                                 .ways = (uint32_t)mine->inputs,
                                 .divisor = (uint32_t)c->size};
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
    struct round o = {
        .c = c, .call = call, .most = room_of(c) / call->element_bytes / call->grain * call->grain, .block = block_of(c, call)};
    struct share mine = share_of(&o, c->rank);

    bool here = cuda_can_fold(c->d, call->type, call->op);
    unsigned begun = call->scale ? exchange_factors(c, call) : NCCL_OK;

    if (begun != NCCL_OK)
        return begun;
    for (size_t all = longest(&o); o.at < all; o.at += o.most) {
        unsigned result = exchange(&o);
        size_t bytes = mine.inputs ? bytes_of(&o, &mine) : 0;
        if (result != NCCL_OK)
            return result;
        if (bytes && (here ? reduce_here : reduce_on_host)(&o, &mine, bytes) != CUDA_OK)
            return NCCL_CUDA_ERROR;
    }
    return o.block ? gather(&o) : NCCL_OK;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
enum comm_result nccl_reserve_fold(struct nccl_channel *c, const struct native_call *call)
{
    const struct cuda_calls *calls = c->d->calls;
    struct nccl_folds *f = &c->folds;
    size_t bytes = bytes_of_inputs(c);
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
        result = calls->cuMemHostAlloc(&f->pinned, bytes + fold_tree_room((uint32_t)c->size), CUDA_HOST_PORTABLE);
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
