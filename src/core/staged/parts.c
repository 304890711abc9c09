/*
 * Long operations on device buffers are issued in parts, each an entry of the queue, so that the copy from the device, the exchange and the
 * copy to the device overlap. A part has the same elements of every block. All ranks must decide alike how a call is cut, so only what is
 * equal on all ranks with a device buffer decides.
 */
#include "staged/staged.h"

/* STAGED_PART_BYTES: of the last part, which is the shortest, at least. STAGED_PARTS_MOST: an empty queue has room for this many parts,
 * whatever its length. STAGED_ROW_BYTES: of a block's share of a part. The copy of a shorter one costs more for its call than for its
 * bytes. */
enum { STAGED_PART_BYTES = 1 << 20, STAGED_PARTS_MOST = 16, STAGED_ROW_BYTES = 32 << 10 };

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
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_ALLTOALL:
    case COLLECTIVE_REDUCE_SCATTER:
        return (size_t)b->team.size;
    default:
        return 0;
    }
}

/* A call in blocks goes whole to a library that would use the blocks where they are. A reduce_scatter goes whole to any library, whose
 * order of operands may depend on the length. A recorder does not know what the library will take, so there all go whole. */
static bool library_wants_it_whole(struct comm_state *b, const struct engine_call *call)
{
    bool reduces = call->collective == COLLECTIVE_REDUCE_SCATTER;

    if (b->recording.plan)
        return b->recording.for_library;
    return b->library && (reduces || b->library_work.flags & NATIVE_DEVICE) && b->library->takes(b, call) != COMM_ERR_UNSUPPORTED;
}

/* How many elements of a block each of several parts has, the last one a few less; 0: it stays one call. A user-defined operator is never
 * split, because it may use several elements together; a pre-multiplied sum is. */
static size_t part_of(struct comm_state *b, const struct engine_call *call)
{
    size_t blocks = blocks_of(b, call->collective), element = data_type_bytes(call->type), block = call->n * element;
    size_t least = STAGED_PART_BYTES + STAGED_PARTS_MOST * blocks * element, parts = blocks * block / least;

    if (!call->on_device || (call->op & OPERATOR_USER && !operator_is_premul(call->op)))
        return 0;
    parts = parts < block / STAGED_ROW_BYTES ? parts : block / STAGED_ROW_BYTES;
    parts = parts < STAGED_PARTS_MOST ? parts : STAGED_PARTS_MOST;
    if (parts < 2 || (blocks > 1 && library_wants_it_whole(b, call)))
        return 0;
    return (call->n + parts - 1) / parts;
}

/* From its bytes of the first block to its bytes of the last one. */
static struct timeline_range part_range(const struct timeline_range *whole, size_t block, size_t from, size_t bytes)
{
    if (whole->from == whole->to)
        return *whole;
    return (struct timeline_range){whole->from + from, whole->to - (block - from - bytes)};
}

static struct engine_call part_call(const struct engine_call *call, uint8_t nth, size_t first, size_t n)
{
    size_t element = data_type_bytes(call->type), from = first * element, block = call->n * element;
    struct engine_call part = *call;

    part.in = call->in ? (const char *)call->in + from : NULL;
    part.out = call->out ? (char *)call->out + from : NULL;
    part.n = n;
    part.nth = nth;
    part.pitch = block;
    part.read = part_range(&call->read, block, from, n * element);
    part.write = part_range(&call->write, block, from, n * element);
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

enum comm_result staged_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    size_t part = part_of(b, call), parts = part ? (call->n + part - 1) / part : 1;
    enum comm_result r = COMM_OK;

    if (!part)
        return issue_one(b, call, req);
    if (!b->recording.plan && !timeline_reserve(&b->line, parts))
        return COMM_ERR_FULL;
    for (size_t i = 0; i < parts && r == COMM_OK && !b->failed; i++) {
        size_t first = i * part, n = call->n - first < part ? call->n - first : part;
        struct engine_call one = part_call(call, (uint8_t)i, first, n);
        r = issue_one(b, &one, req);
        if (r != COMM_OK && i > 0 && !b->recording.plan)
            lacks_rest(b, call, r);
    }
    if (r == COMM_OK && !b->failed && !b->recording.plan)
        state_entry(b, b->line.next - 1)->record.bytes = call->n * data_type_bytes(call->type);
    return b->failed && !b->recording.plan ? (enum comm_result)b->failure.cause.result : r;
}
