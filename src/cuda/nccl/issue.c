/*
 * Puts operations on the stream. The calling thread puts them, in the order of the calls. complete.c observes their completion. waits.c has
 * the waits.
 *
 * NCCL is called without the device's lock: a call may block until a peer makes the same call, and other communicators must go on
 * meanwhile. The lock protects what this room shares: places, parks and words.
 */
#include "cuda/kernels.h"
#include "cuda/nccl/nccl.h"
#include "cuda/ring.h"

#include "base/format.h"

#include <string.h>

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

unsigned nccl_op(const struct nccl_channel *c, const struct native_call *call, bool neutral)
{
    return call->scale ? c->made[neutral] : (unsigned)op_of(call->op);
}

static bool reduces(uint32_t collective)
{
    return collective == COLLECTIVE_REDUCE || collective == COLLECTIVE_ALLREDUCE || collective == COLLECTIVE_REDUCE_SCATTER ||
           collective == COLLECTIVE_REDUCE_SCATTER_V || collective == COLLECTIVE_SCAN || collective == COLLECTIVE_EXSCAN;
}

static enum comm_result refuse_memory(const struct nccl_channel *c, const struct cuda_buffer *b, char *why, size_t why_bytes)
{
    unsigned long long at = (uintptr_t)b->at;

    if (b->is.owner == CUDA_OWNER_HOST)
        base_format(why, why_bytes,
                    "%s is host memory; expected the device's: collectives of backend nccl take no other (a world of another "
                    "backend on the same engine does, config.engine_of)",
                    b->name);
    else if (b->is.owner == CUDA_OWNER_UNKNOWN)
        base_format(why, why_bytes, "%s=0x%llx: CUDA reports an error instead of whose memory it is; expected memory of cuda:%d", b->name,
                    at, c->d->ordinal);
    else
        base_format(why, why_bytes, "%s is memory of cuda:%d; expected memory of cuda:%d, the communicator's device", b->name, b->is.owner,
                    c->d->ordinal);
    return b->is.owner == CUDA_OWNER_UNKNOWN ? COMM_ERR_BACKEND : COMM_ERR_ARGUMENT;
}

enum comm_result nccl_check_buffer(struct nccl_channel *c, const struct cuda_buffer *b, char *why, size_t why_bytes)
{
    if (!b->bytes)
        return COMM_OK;
    return b->is.owner == c->d->ordinal ? cuda_check_end(c->d, b, why, why_bytes) : refuse_memory(c, b, why, why_bytes);
}

static enum comm_result check_buffers(struct nccl_channel *c, const struct cuda_buffers *b, char *why, size_t why_bytes)
{
    enum comm_result r = nccl_check_buffer(c, &b->in, why, why_bytes);

    return r == COMM_OK ? nccl_check_buffer(c, &b->out, why, why_bytes) : r;
}

/* A call without buffers only asks whether NCCL has the operation. */
static enum comm_result accept_served(struct nccl_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    if (call->collective == COLLECTIVE_BARRIER || (!call->in && !call->out))
        return COMM_OK;
    struct cuda_buffers buffers = cuda_ask_buffers(c->d, call, c->rank, c->size);
    enum comm_result r = check_buffers(c, &buffers, why, why_bytes);
    if (r != COMM_OK)
        return r;
    r = nccl_reserve(c, call);
    if (r != COMM_OK)
        base_format(why, why_bytes, "no memory of the device for it: CUDA reports an error");
    return r;
}

/* Inputs and results on the device, which the host's kernel reduces (fold.c). */
static enum comm_result accept_fold(struct nccl_channel *c, const struct native_call *call, const struct cuda_buffers *buffers, char *why,
                                    size_t why_bytes)
{
    enum comm_result r = check_buffers(c, buffers, why, why_bytes);

    if (r != COMM_OK)
        return r;
    r = nccl_reserve_fold(c, call);
    if (r != COMM_OK)
        base_format(why, why_bytes, "no memory for it, of the device or pinned: CUDA reports an error");
    else
        c->ways |= NATIVE_FOLDED;
    return r;
}

/* NCCL does not have this operation. The core runs it on host memory. On the device's, the host's kernel can reduce. */
static enum comm_result accept_other(struct nccl_channel *c, const struct native_call *call, char *why, size_t why_bytes)
{
    if (call->n == 0)
        return COMM_ERR_UNSUPPORTED;
    struct cuda_buffers buffers = cuda_ask_buffers(c->d, call, c->rank, c->size);
    if (buffers.in.is.owner == CUDA_OWNER_HOST && buffers.out.is.owner == CUDA_OWNER_HOST)
        return COMM_ERR_UNSUPPORTED;
    if (call->reduce)
        return accept_fold(c, call, &buffers, why, why_bytes);
    base_format(why, why_bytes, "%s is device memory; expected the host's: NCCL has no such collective",
                buffers.in.is.owner == CUDA_OWNER_HOST ? buffers.out.name : buffers.in.name);
    return COMM_ERR_ARGUMENT;
}

bool nccl_serves(const struct native_call *call)
{
    return !reduces(call->collective) ||
           (!call->exact && type_of(call->type) >= 0 && (call->scale || op_of(call->op) >= 0) && !nan_differs(call->type, call->op));
}

enum comm_result nccl_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    bool captured = false;
    enum comm_result r = c->stream == c->own ? COMM_OK : cuda_ask_capture(c->d, c->stream, &c->held, &captured, why, why_bytes);

    c->ways = (captured ? NATIVE_RECORDED : 0) | (c->group.count && nccl_joins_group(c, call) ? NATIVE_TOGETHER : 0);
    if (r != COMM_OK)
        return r;
    if (nccl_serves(call))
        return accept_served(c, call, why, why_bytes);
    if (!captured)
        return accept_other(c, call, why, why_bytes);
    if (call->reduce && cuda_can_fold(c->d, call->type, call->op) && (r = accept_other(c, call, why, why_bytes)) != COMM_ERR_UNSUPPORTED)
        return r;
    base_format(why, why_bytes, "the communicator's stream is being captured; expected a collective, type and operator that NCCL has");
    return COMM_ERR_STATE;
}

uint32_t nccl_ways(struct native_channel *channel)
{
    return ((const struct nccl_channel *)(const void *)channel)->ways;
}

const char *nccl_algorithm(struct native_channel *channel, const struct native_call *call, const char **how)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;

    *how = "by NCCL itself";
    if (nccl_serves(call) || call->n == 0 || !call->reduce)
        return native_nccl.name;
    if (!cuda_can_fold(c->d, call->type, call->op)) {
        *how = "moved by NCCL, reduced by the host's kernels";
        return "nccl+host";
    }
    *how = "moved by NCCL, reduced on the device by the kernel comm_fold";
    return "nccl+kernel";
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
    uint64_t next = c->issued + c->group.count;

    if (next - c->told < c->room)
        return true;
    struct nccl_pending *more = cuda_ring_grow(c->owner->env, c->pending, &c->room, sizeof *more, c->told, next);
    if (more)
        c->pending = more;
    return more != NULL;
}

enum comm_result nccl_mark(struct nccl_channel *c, uint64_t cookie)
{
    struct cuda_device *d = c->d;
    struct nccl_pending *p = &c->pending[c->issued & (c->room - 1)];
    enum comm_result r = COMM_OK;

    *p = (struct nccl_pending){.cookie = cookie, .mark = c->marks + 1};
    if (d->memops)
        r = cuda_result(d->calls->cuStreamWriteValue64(c->stream, cuda_word_there(d, c->word), c->base + c->marks + 1, 0));
    else if (cuda_place(d, c->stream, &p->place) != COMM_OK)
        p->place = (struct device_place){0}; /* the place of a later operation counts for this one too */
    if (r != COMM_OK)
        return r;
    c->issued++;
    c->marks++;
    return COMM_OK;
}

static unsigned call_nccl(struct nccl_channel *c, const struct native_call *call)
{
    const struct nccl_calls *nccl = c->nccl;
    size_t bytes = call->n * call->element_bytes;
    unsigned type = nccl_type(call->type), op = nccl_op(c, call, false);
    void *scratch = (void *)(uintptr_t)c->d->scratch;

    if (call->collective == COLLECTIVE_BARRIER)
        return nccl->ncclAllReduce(scratch, scratch, 1, NCCL_U8, NCCL_SUM, c->comm, c->stream);
    if (call->n == 0 && !call->counts)
        return NCCL_OK;
    if (!nccl_serves(call))
        return nccl_fold(c, call);
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

/* Makes NCCL's operators of a pre-multiplied sum for this call, which they need not outlive. So no state of NCCL's hangs on the program's
 * operator. */
static unsigned call_scaled(struct nccl_channel *c, const struct native_call *call)
{
    const struct data_scale *scale = &((const struct data_user *)call->context)->scale;
    uint64_t one = nccl_neutral_of(call->type, COMM_PROD);
    const void *by[2] = {scale->factor, &one};
    unsigned result = NCCL_OK, made = 0;

    for (; made < 2 && result == NCCL_OK; made += result == NCCL_OK)
        result = c->nccl->ncclRedOpCreatePreMulSum(&c->made[made], (void *)(uintptr_t)by[made], nccl_type(call->type), NCCL_SCALAR_OF_HOST,
                                                   c->comm);
    if (result == NCCL_OK)
        result = nccl_settle(c, call_nccl(c, call));
    while (made > 0) {
        unsigned ended = c->nccl->ncclRedOpDestroy(c->made[--made], c->comm);
        result = result == NCCL_OK ? ended : result;
    }
    return result;
}

/* If the stream writes words, no lock is needed. */
enum comm_result nccl_mark_alone(struct nccl_channel *c, uint64_t cookie, bool captured)
{
    if (captured) {
        nccl_record_captured(c, cookie);
        return COMM_OK;
    }
    if (c->d->memops)
        return nccl_mark(c, cookie);
    base_lock(&c->d->lock, c->d->env);
    enum comm_result r = nccl_mark(c, cookie);
    base_unlock(&c->d->lock, c->d->env);
    return r;
}

static enum comm_result start_inside(struct nccl_channel *c, const struct native_call *call, int32_t *code)
{
    bool captured = false, joins = nccl_joins_group(c, call), scaled = call->scale && nccl_serves(call);
    char why[256];
    enum comm_result r = joins ? COMM_OK : nccl_end_group(c, code);

    if (r == COMM_OK)
        r = nccl_capture(c, &captured, why, sizeof why); /* again, since the caller may have begun it just now */
    if (r != COMM_OK)
        return COMM_ERR_BACKEND;
    unsigned result = joins ? nccl_join_group(c, call->cookie, captured) : NCCL_OK;
    if (result == NCCL_OK)
        result = scaled ? call_scaled(c, call) : nccl_settle(c, call_nccl(c, call));
    *code = result == NCCL_OK ? NCCL_CUDA_ERROR : (int32_t)result;
    if (result != NCCL_OK)
        return COMM_ERR_BACKEND;
    return joins ? COMM_OK : nccl_mark_alone(c, call->cookie, captured);
}

enum comm_result nccl_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;

    *code = NCCL_CUDA_ERROR;
    if (!nccl_room(c))
        return COMM_ERR_MEMORY;
    if (!cuda_enter(c->d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = start_inside(c, call, code);
    cuda_leave(c->d, &inside);
    return r;
}
