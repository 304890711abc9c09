/*
 * Long operations on device buffers are issued in parts, each an entry of the queue, so that the copy from the device, the exchange and the
 * copy to the device overlap. A part has the same elements of every block, or, if the blocks differ in length, the same share of each. All
 * ranks must decide alike how a call is cut, so only what is equal on all ranks with a device buffer decides.
 */
#include "staged/staged.h"

/* STAGED_PART_BYTES: of the last part, which is the shortest, at least. STAGED_PARTS_MOST: an empty queue has room for this many parts,
 * whatever its length. STAGED_ROW_BYTES: of a block's share of a part, on average. The copy of a shorter one costs more for its call than
 * for its bytes. */
enum { STAGED_PART_BYTES = 1 << 20, STAGED_PARTS_MOST = 16, STAGED_ROW_BYTES = 32 << 10 };

/* ------------------------------------------------------------------------------------------------------------ how a call is cut */
/* Of the longer buffer; 0: the collective is not issued in parts. */
static size_t blocks_of(const struct comm_state *b, uint32_t collective)
{
    switch (collective) {
    case COLLECTIVE_ALLREDUCE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_SCAN:
    case COLLECTIVE_EXSCAN:
        return 1;
    case COLLECTIVE_ALLGATHER:
    case COLLECTIVE_ALLGATHER_V:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_ALLTOALL:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_REDUCE_SCATTER_V:
        return (size_t)b->team.size;
    default:
        return 0;
    }
}

/* The longer buffer: blocks that are not empty, and the elements of all. */
struct extent {
    size_t blocks, elements;
};

static struct extent extent_of(const struct comm_state *b, const struct engine_call *call)
{
    size_t blocks = blocks_of(b, call->collective);
    struct extent all = {blocks, blocks * call->n};

    if (!call->counts || !blocks)
        return all;
    all = (struct extent){0, 0};
    for (int32_t r = 0; r < b->team.size; r++) {
        all.blocks += call->counts[r] != 0;
        all.elements += call->counts[r];
    }
    return all;
}

/* A rank whose block is empty has only the buffer of all blocks. Then that one decides alone, because all ranks have it. */
static bool has_device_buffer(const struct comm_state *b, const struct engine_call *call, const struct extent *all)
{
    uint8_t longer = call->collective == COLLECTIVE_ALLGATHER_V ? CALL_OUT_ON_DEVICE : CALL_IN_ON_DEVICE;

    return call->on_device & (call->counts && all->blocks < (size_t)b->team.size ? longer : CALL_ON_DEVICE);
}

/* A call in blocks goes whole to a library that would use the blocks where they are. A reduce_scatter goes whole to any library, whose
 * order of operands may depend on the length. A recorder does not know what the library will take, so there all go whole. */
static bool library_wants_it_whole(struct comm_state *b, const struct engine_call *call)
{
    bool reduces = call->collective == COLLECTIVE_REDUCE_SCATTER || call->collective == COLLECTIVE_REDUCE_SCATTER_V;

    if (b->recording.plan)
        return b->recording.for_library;
    return b->library && (reduces || b->library_work.flags & NATIVE_DEVICE) && b->library->takes(b, call) != COMM_ERR_UNSUPPORTED;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* In how many parts a call goes. A user-defined operator is never split, because it may use several elements together; a pre-multiplied sum
 * is. */
static size_t parts_of(struct comm_state *b, const struct engine_call *call)
{
    struct extent all = extent_of(b, call);
    size_t element = data_type_bytes(call->type), bytes = all.elements * element;

    if (BASE_LIKELY(bytes < 2 * STAGED_PART_BYTES) || !has_device_buffer(b, call, &all) ||
        (call->op & OPERATOR_USER && !operator_is_premul(call->op)))
        return 1;
    size_t parts = smaller(bytes / (STAGED_PART_BYTES + STAGED_PARTS_MOST * all.blocks * element), STAGED_PARTS_MOST);
    parts = smaller(parts, bytes / (all.blocks * STAGED_ROW_BYTES));
    return parts < 2 || (blocks_of(b, call->collective) > 1 && library_wants_it_whole(b, call)) ? 1 : parts;
}

/* ------------------------------------------------------------------------------------------------------------ one part */
struct share {
    size_t first, n; /* elements */
};

/* Of a block. The last shares may be a few elements shorter, or empty. */
static struct share share_of(size_t elements, size_t parts, size_t nth)
{
    size_t each = (elements + parts - 1) / parts, first = smaller(nth * each, elements);

    return (struct share){first, smaller(each, elements - first)};
}

/* From its bytes of the first block to its bytes of the last one. */
static struct timeline_range part_range(const struct timeline_range *whole, size_t block, size_t from, size_t bytes)
{
    if (whole->from == whole->to)
        return *whole;
    return (struct timeline_range){whole->from + from, whole->to - (block - from - bytes)};
}

static const void *behind(const void *at, size_t bytes)
{
    return at ? (const char *)at + bytes : NULL;
}

static struct engine_call part_call(const struct engine_call *call, uint8_t nth, const struct share *share)
{
    size_t element = data_type_bytes(call->type), from = share->first * element, block = call->n * element;
    struct engine_call part = *call;

    part.in = behind(call->in, from);
    part.out = (void *)(uintptr_t)behind(call->out, from);
    part.n = share->n;
    part.nth = nth;
    part.pitch = block;
    part.read = part_range(&call->read, block, from, share->n * element);
    part.write = part_range(&call->write, block, from, share->n * element);
    return part;
}

/* Fills a part's vectors, for which the caller has memory. The places count from the one that comes first in the caller's buffer. Returns
 * where that one is, in elements, and where the last one ends. */
static struct timeline_range part_vectors(const struct comm_state *b, const struct engine_call *call, size_t parts, size_t *vectors,
                                          struct engine_call *part)
{
    size_t size = (size_t)b->team.size, *counts = vectors, *displs = counts + size, *places = displs + size, at = 0;
    struct timeline_range range = {UINTPTR_MAX, 0};

    part->n = 0;
    for (size_t r = 0; r < size; r++) {
        struct share share = share_of(call->counts[r], parts, part->nth);
        counts[r] = share.n;
        displs[r] = at;
        places[r] = call->displs[r] + share.first;
        at += share.n;
        part->n = larger(part->n, share.n);
        range.from = share.n ? smaller(range.from, places[r]) : range.from;
        range.to = share.n ? larger(range.to, places[r] + share.n) : range.to;
    }
    for (size_t r = 0; r < size; r++)
        places[r] = counts[r] ? places[r] - range.from : 0;
    part->counts = counts;
    part->displs = displs;
    part->places = places;
    return range;
}

/* Of a call with counts. */
static struct engine_call uneven_part_call(const struct comm_state *b, const struct engine_call *call, size_t parts, uint8_t nth,
                                           size_t *vectors)
{
    size_t element = data_type_bytes(call->type), count = call->counts[b->team.rank];
    struct share own = share_of(count, parts, nth);
    bool gathers = call->collective == COLLECTIVE_ALLGATHER_V;
    struct engine_call part = *call;
    struct timeline_range *one = gathers ? &part.read : &part.write, *all = gathers ? &part.write : &part.read;

    part.nth = nth;
    struct timeline_range within = part_vectors(b, call, parts, vectors, &part);
    size_t one_from = own.first * element, all_from = within.from * element, all_to = within.to * element;
    part.in = behind(call->in, gathers ? one_from : all_from);
    part.out = (void *)(uintptr_t)behind(call->out, gathers ? all_from : one_from);
    *one = own.n ? part_range(one, count * element, one_from, own.n * element) : (struct timeline_range){0, 0};
    *all = (struct timeline_range){all->from + all_from, all->from + all_to};
    return part;
}

static enum comm_result issue_one(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    return b->recording.plan ? b->recording.calls->call(b, call) : state_issue(b, call, NULL, NULL, req);
}

/* The other ranks cannot go on without the remaining parts, so the communicator fails. */
static void lacks_rest(struct comm_state *b, const struct engine_call *call, enum comm_result r)
{
    state_propose(
        b, &(struct cause){.number = b->sequence, .rank = b->team.rank, .peer = b->team.rank, .result = r, .collective = call->collective});
}

/* As of a call that has no room for its own vectors. */
static enum comm_result refuse_memory(struct comm_state *b, const struct engine_call *call)
{
    state_keep_refusal(b, call->collective, COMM_ERR_MEMORY);
    if (!b->recording.plan)
        return state_refuse(b, call, COMM_ERR_MEMORY);
    b->recording.calls->refused(b, COMM_ERR_MEMORY);
    return COMM_ERR_MEMORY;
}

static enum comm_result issue_parts(struct comm_state *b, const struct engine_call *call, size_t parts, size_t *vectors,
                                    struct comm_request *req)
{
    enum comm_result r = COMM_OK;

    for (size_t i = 0; i < parts && r == COMM_OK && !b->failed; i++) {
        struct share share = share_of(call->n, parts, i);
        struct engine_call one = vectors ? uneven_part_call(b, call, parts, (uint8_t)i, vectors + 1) : part_call(call, (uint8_t)i, &share);
        r = issue_one(b, &one, req);
        if (r != COMM_OK && i > 0 && !b->recording.plan)
            lacks_rest(b, call, r);
    }
    return r;
}

enum comm_result staged_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    size_t parts = parts_of(b, call), *vectors = NULL;

    if (parts == 1)
        return issue_one(b, call, req);
    if (!b->recording.plan && !timeline_reserve(&b->line, parts))
        return COMM_ERR_FULL;
    if (call->counts && !(vectors = state_take_vectors(b)))
        return refuse_memory(b, call);
    enum comm_result r = issue_parts(b, call, parts, vectors, req);
    if (vectors)
        state_give_vectors(b, vectors);
    if (r == COMM_OK && !b->failed && !b->recording.plan)
        state_entry(b, b->line.next - 1)->record.bytes = call->n * data_type_bytes(call->type);
    return b->failed && !b->recording.plan ? (enum comm_result)b->failure.cause.result : r;
}
