/*
 * What the driver is asked about the buffers of a call. It is asked in each call: when memory is freed, the host or another device may get
 * its address. One question tells all, and needs no context in most drivers. Where it does, the device is entered and asked again.
 */
#include "cuda/buffers.h"

#include "base/format.h"

/* ------------------------------------------------------------------------------------------------------------ one address */
/* False: the driver returned an error. Of an address that it does not know it says that all is 0: that is the host's. */
static bool look(const struct cuda_device *d, const void *at, struct cuda_memory *is)
{
    static unsigned attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_ORDINAL, CUDA_POINTER_MANAGED, CUDA_POINTER_RANGE_START,
                                    CUDA_POINTER_RANGE_SIZE}; /* the driver only reads it */
    unsigned type = 0, managed = 0;
    int ordinal = 0;
    cuda_address start = 0;
    size_t length = 0;
    void *data[] = {&type, &ordinal, &managed, &start, &length};

    *is = (struct cuda_memory){.owner = CUDA_OWNER_HOST};
    if (!at)
        return true;
    if (d->calls->cuPointerGetAttributes(sizeof attributes / sizeof *attributes, attributes, data, (uintptr_t)at) != CUDA_OK) {
        is->owner = CUDA_OWNER_UNKNOWN;
        return false;
    }
    if (type == CUDA_MEMORY_DEVICE)
        *is = (struct cuda_memory){.owner = ordinal, .managed = managed != 0, .past = start + length};
    return true;
}

struct cuda_memory cuda_ask(struct cuda_device *d, const void *at)
{
    struct cuda_memory is;
    struct cuda_inside inside;

    if (!look(d, at, &is) && cuda_enter(d, &inside)) {
        (void)look(d, at, &is);
        cuda_leave(d, &inside);
    }
    return is;
}

/* One reserved range of addresses may be mapped in pieces, so there may be more to ask about. */
size_t cuda_bytes_of(struct cuda_device *d, const struct cuda_memory *is, const void *at, size_t bytes, int32_t owner)
{
    cuda_address from = (uintptr_t)at, end = from;

    if (BASE_LIKELY(is->owner >= 0 && (owner == CUDA_OWNER_ANY || is->owner == owner) && is->past >= from + bytes && bytes))
        return bytes;
    struct cuda_memory piece = *is;
    while (piece.owner >= 0 && (owner == CUDA_OWNER_ANY || piece.owner == owner) && piece.past > end) {
        end = piece.past;
        if (end - from >= bytes)
            return bytes;
        piece = cuda_ask(d, (const void *)(uintptr_t)end);
    }
    return (size_t)(end - from);
}

/* ------------------------------------------------------------------------------------------------------------ the buffers of a call */
/* Elements from the start of a buffer to the end of its last block. */
static size_t end_of(const size_t *counts, const size_t *displs, int32_t ranks)
{
    size_t end = 0;

    for (int32_t r = 0; r < ranks; r++)
        if (counts[r] && displs[r] + counts[r] > end)
            end = displs[r] + counts[r];
    return end;
}

static void measure(const struct native_call *call, int32_t rank, int32_t ranks, size_t *in, size_t *out)
{
    size_t own = call->counts ? call->counts[rank] : call->n;
    size_t all = call->counts ? end_of(call->counts, call->displs, ranks) : call->n * (size_t)ranks;

    switch (call->collective) {
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_GATHER_V:
        *in = own;
        *out = all;
        break;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_REDUCE_SCATTER_V:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_SCATTER_V:
        *in = all;
        *out = own;
        break;
    case COLLECTIVE_ALLTOALL:
    case COLLECTIVE_ALLTOALL_V:
        *in = call->in_counts ? end_of(call->in_counts, call->in_displs, ranks) : all;
        *out = all;
        break;
    case COLLECTIVE_EXSCAN:
        *in = call->n;
        *out = rank ? call->n : 0;
        break;
    default:
        *in = *out = call->n;
    }
}

static bool lies_in(const struct cuda_buffer *inner, const struct cuda_buffer *outer)
{
    uintptr_t at = (uintptr_t)inner->at, from = (uintptr_t)outer->at;

    return inner->bytes && at >= from && at - from <= outer->bytes && inner->bytes <= outer->bytes - (at - from);
}

static bool look_at_both(const struct cuda_device *d, struct cuda_buffers *b)
{
    bool knows_in = look(d, b->in.bytes ? b->in.at : NULL, &b->in.is), knows_out = look(d, b->out.bytes ? b->out.at : NULL, &b->out.is);

    return knows_in && knows_out;
}

/* A call in place is named by the argument that is a buffer. */
static void name_in_place(const struct native_call *call, struct cuda_buffer *outer, struct cuda_buffer *inner)
{
    bool scatters = call->collective == COLLECTIVE_SCATTER || call->collective == COLLECTIVE_SCATTER_V;

    inner->bytes = 0;
    outer->name = call->collective == COLLECTIVE_BROADCAST ? "buf" : scatters ? "in" : "out";
}

struct cuda_buffers cuda_ask_buffers(struct cuda_device *d, const struct native_call *call, int32_t rank, int32_t ranks)
{
    struct cuda_buffers b = {{.name = "in", .at = call->in}, {.name = "out", .at = call->out}};
    struct cuda_inside inside;

    if (call->collective != COLLECTIVE_BARRIER)
        measure(call, rank, ranks, &b.in.bytes, &b.out.bytes);
    b.in.bytes = call->in ? b.in.bytes * call->element_bytes : 0;
    b.out.bytes = call->out ? b.out.bytes * call->element_bytes : 0;
    if (lies_in(&b.in, &b.out))
        name_in_place(call, &b.out, &b.in);
    else if (lies_in(&b.out, &b.in))
        name_in_place(call, &b.in, &b.out);
    if (!look_at_both(d, &b) && cuda_enter(d, &inside)) {
        (void)look_at_both(d, &b);
        cuda_leave(d, &inside);
    }
    return b;
}

enum comm_result cuda_check_end(struct cuda_device *d, const struct cuda_buffer *b, char *why, size_t why_bytes)
{
    size_t has = cuda_bytes_of(d, &b->is, b->at, b->bytes, d->ordinal);

    if (has >= b->bytes)
        return COMM_OK;
    base_format(why, why_bytes, "%s=0x%llx; expected %zu bytes of memory of cuda:%d: it ends after %zu", b->name,
                (unsigned long long)(uintptr_t)b->at, b->bytes, d->ordinal, has);
    return COMM_ERR_ARGUMENT;
}
