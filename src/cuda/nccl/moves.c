/*
 * Collectives that NCCL lacks. Each is a group of NCCL's sends, receives, broadcasts and reductions, which NCCL runs as one operation. They
 * move bytes. A block that stays on its rank is sent to that rank itself, in the same group.
 *
 * NCCL works on all parts of a group at once. If input and output are the same memory, the stream first copies the input into memory of
 * the channel (`spare`). The stream runs one operation after another, so all operations share that memory.
 */
#include "cuda/nccl/nccl.h"

#include "base/format.h"

struct moves {
    struct nccl_channel *c;
    const struct native_call *call;
    const char *in;
    char *out;
    size_t element, block; /* bytes: of an element, of n elements */
};

/* Where a rank's block is, and its bytes. */
struct block {
    size_t at, bytes;
};

static struct block block_of(const struct moves *m, const size_t *counts, const size_t *displs, int32_t rank)
{
    if (!counts)
        return (struct block){(size_t)rank * m->block, m->block};
    return (struct block){displs[rank] * m->element, counts[rank] * m->element};
}

static struct block out_block(const struct moves *m, int32_t rank)
{
    return block_of(m, m->call->counts, m->call->displs, rank);
}

static struct block in_block(const struct moves *m, int32_t rank)
{
    const struct native_call *call = m->call;

    return call->in_counts ? block_of(m, call->in_counts, call->in_displs, rank) : out_block(m, rank);
}

static unsigned send(const struct moves *m, const char *from, size_t bytes, int32_t to)
{
    return bytes ? m->c->nccl->ncclSend(from, bytes, NCCL_U8, to, m->c->comm, m->c->stream) : NCCL_OK;
}

static unsigned receive(const struct moves *m, char *to, size_t bytes, int32_t from)
{
    return bytes ? m->c->nccl->ncclRecv(to, bytes, NCCL_U8, from, m->c->comm, m->c->stream) : NCCL_OK;
}

/* ------------------------------------------------------------------------------------------------------------ each collective */
static unsigned alltoall(const struct moves *m)
{
    unsigned result = NCCL_OK;

    for (int32_t r = 0; r < m->c->size && result == NCCL_OK; r++) {
        struct block from = in_block(m, r), to = out_block(m, r);
        result = send(m, m->in + from.at, from.bytes, r);
        if (result == NCCL_OK)
            result = receive(m, m->out + to.at, to.bytes, r);
    }
    return result;
}

/* Moves the root's own block, unless it is in place already. */
static unsigned keep_own(const struct moves *m, const char *from, char *to, size_t bytes)
{
    unsigned result = from == to ? NCCL_OK : send(m, from, bytes, m->c->rank);

    return result == NCCL_OK && from != to ? receive(m, to, bytes, m->c->rank) : result;
}

static unsigned gather(const struct moves *m)
{
    unsigned result = NCCL_OK;

    if (m->c->rank != m->call->root)
        return send(m, m->in, m->block, m->call->root);
    for (int32_t r = 0; r < m->c->size && result == NCCL_OK; r++) {
        struct block to = out_block(m, r);
        result = r == m->c->rank ? keep_own(m, m->in, m->out + to.at, to.bytes) : receive(m, m->out + to.at, to.bytes, r);
    }
    return result;
}

static unsigned scatter(const struct moves *m)
{
    unsigned result = NCCL_OK;

    if (m->c->rank != m->call->root)
        return receive(m, m->out, m->block, m->call->root);
    for (int32_t r = 0; r < m->c->size && result == NCCL_OK; r++) {
        struct block from = out_block(m, r);
        result = r == m->c->rank ? keep_own(m, m->in + from.at, m->out, from.bytes) : send(m, m->in + from.at, from.bytes, r);
    }
    return result;
}

/* A broadcast from each rank. */
static unsigned allgather_v(const struct moves *m)
{
    unsigned result = NCCL_OK;

    for (int32_t r = 0; r < m->c->size && result == NCCL_OK; r++) {
        struct block to = out_block(m, r);
        const char *from = r == m->c->rank ? m->in : m->out + to.at;
        if (to.bytes)
            result = m->c->nccl->ncclBroadcast(from, m->out + to.at, to.bytes, NCCL_U8, r, m->c->comm, m->c->stream);
    }
    return result;
}

static unsigned reduce_to(const struct moves *m, const void *from, size_t n, int32_t root, bool neutral)
{
    unsigned op = nccl_op(m->c, m->call, neutral);

    return m->c->nccl->ncclReduce(from, m->out, n, nccl_type(m->call->type), op, root, m->c->comm, m->c->stream);
}

/* A reduction to each rank. */
static unsigned reduce_scatter_v(const struct moves *m)
{
    unsigned result = NCCL_OK;

    for (int32_t r = 0; r < m->c->size && result == NCCL_OK; r++) {
        struct block from = out_block(m, r);
        if (from.bytes)
            result = reduce_to(m, m->in + from.at, from.bytes / m->element, r, false);
    }
    return result;
}

/* Reduces to each rank. The ranks above it contribute neutral elements. */
static unsigned scan(const struct moves *m, const void *neutral, bool with_own)
{
    unsigned result = NCCL_OK;

    for (int32_t r = with_own ? 0 : 1; r < m->c->size && result == NCCL_OK; r++)
        result = m->c->rank < r + with_own ? reduce_to(m, m->in, m->call->n, r, false) : reduce_to(m, neutral, m->call->n, r, true);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ neutral elements */
/* For sums it is -0, because -0 + 0 is 0. */
uint64_t nccl_neutral_of(enum comm_type type, comm_op op)
{
    static const struct {
        enum comm_type type;
        uint64_t sum, prod, least, most; /* least: no element is less */
    } rows[] = {
        {COMM_I8, 0, 1, 0x80, 0x7f},
        {COMM_I32, 0, 1, 0x80000000, 0x7fffffff},
        {COMM_I64, 0, 1, UINT64_C(1) << 63, INT64_MAX},
        {COMM_U8, 0, 1, 0, UINT8_MAX},
        {COMM_U32, 0, 1, 0, UINT32_MAX},
        {COMM_U64, 0, 1, 0, UINT64_MAX},
        {COMM_F8E4M3, 0x80, 0x38, 0, 0},
        {COMM_F8E5M2, 0x80, 0x3c, 0, 0},
        {COMM_F16, 0x8000, 0x3c00, 0, 0},
        {COMM_BF16, 0x8000, 0x3f80, 0, 0},
        {COMM_F32, 0x80000000, 0x3f800000, 0, 0},
        {COMM_F64, UINT64_C(1) << 63, UINT64_C(0x3ff0000000000000), 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == type)
            return op == COMM_PROD ? rows[i].prod : op == COMM_MAX ? rows[i].least : op == COMM_MIN ? rows[i].most : rows[i].sum;
    return 0;
}

/* CUDA fills with 32 bits at most: longer elements are two columns. */
static unsigned fill(const struct moves *m, cuda_address to, uint64_t bits)
{
    const struct cuda_calls *calls = m->c->d->calls;
    struct CUstream_st *stream = m->c->stream;
    size_t n = m->call->n;

    if (m->element == 1)
        return calls->cuMemsetD8Async(to, (unsigned char)bits, n, stream);
    if (m->element == 2)
        return calls->cuMemsetD16Async(to, (unsigned short)bits, n, stream);
    if (m->element == 4)
        return calls->cuMemsetD32Async(to, (unsigned)bits, n, stream);
    unsigned result = calls->cuMemsetD2D32Async(to, 8, (unsigned)bits, 1, n, stream);
    return result == CUDA_OK ? calls->cuMemsetD2D32Async(to + 4, 8, (unsigned)(bits >> 32), 1, n, stream) : result;
}

/* ------------------------------------------------------------------------------------------------------------ spare memory */
static bool is_scan(const struct native_call *call)
{
    return call->collective == COLLECTIVE_SCAN || call->collective == COLLECTIVE_EXSCAN;
}

/* The range from the first byte of all blocks to the last. */
static struct block extent(const struct moves *m)
{
    struct block all = {SIZE_MAX, 0};
    size_t end = 0;

    for (int32_t r = 0; r < m->c->size; r++) {
        struct block b = out_block(m, r);
        if (!b.bytes)
            continue;
        all.at = b.at < all.at ? b.at : all.at;
        end = b.at + b.bytes > end ? b.at + b.bytes : end;
    }
    if (all.at > end)
        return (struct block){0, 0};
    all.bytes = end - all.at;
    return all;
}

static bool copies_input(const struct native_call *call)
{
    return call->in == call->out && (is_scan(call) || call->collective == COLLECTIVE_ALLTOALL || call->collective == COLLECTIVE_ALLTOALL_V);
}

static size_t spare_bytes(const struct moves *m)
{
    if (is_scan(m->call))
        return (copies_input(m->call) ? 2 : 1) * ((m->block + SPARE_LINE - 1) / SPARE_LINE * SPARE_LINE);
    return copies_input(m->call) ? extent(m).bytes : 0;
}

static struct moves moves_of(struct nccl_channel *c, const struct native_call *call)
{
    return (struct moves){
        .c = c, .call = call, .in = call->in, .out = call->out, .element = call->element_bytes, .block = call->n * call->element_bytes};
}

/* Smaller memory from before is freed only when the channel ends, because freeing waits for everything on the device. */
static enum comm_result grow(struct nccl_channel *c, size_t bytes)
{
    size_t room = SPARE_LEAST;
    cuda_address more = 0;

    while (room < bytes)
        room *= 2;
    if (c->spares.count == NCCL_SPARES)
        return COMM_ERR_MEMORY;
    unsigned result = c->d->calls->cuMemAlloc(&more, room);
    if (result != CUDA_OK)
        return cuda_result(result);
    c->spares.at[c->spares.count++] = more;
    c->spares.bytes = room;
    return COMM_OK;
}

enum comm_result nccl_reserve(struct nccl_channel *c, const struct native_call *call)
{
    struct cuda_inside inside;
    struct moves m = moves_of(c, call);
    size_t bytes = spare_bytes(&m);

    if (bytes <= c->spares.bytes)
        return COMM_OK;
    if (!cuda_enter(c->d, &inside))
        return COMM_ERR_BACKEND;
    enum comm_result r = grow(c, bytes);
    cuda_leave(c->d, &inside);
    return r;
}

void nccl_free_spares(struct nccl_channel *c)
{
    while (c->spares.count)
        c->d->calls->cuMemFree(c->spares.at[--c->spares.count]);
    c->spares.bytes = 0;
}

/* ------------------------------------------------------------------------------------------------------------ all of them */
/* Puts the copy of the input and the neutral elements on the stream, before the group. */
static unsigned prepare(struct moves *m, const void **neutral)
{
    const struct cuda_calls *calls = m->c->d->calls;
    cuda_address at = m->c->spares.count ? m->c->spares.at[m->c->spares.count - 1] : 0;
    unsigned result = CUDA_OK;

    if (is_scan(m->call)) {
        result = fill(m, at, nccl_neutral_of(m->call->type, m->call->op));
        *neutral = (const void *)(uintptr_t)at;
        at += (m->block + SPARE_LINE - 1) / SPARE_LINE * SPARE_LINE;
    }
    if (result != CUDA_OK || !copies_input(m->call))
        return result;
    struct block all = is_scan(m->call) ? (struct block){0, m->block} : extent(m);
    if (all.bytes)
        result = calls->cuMemcpyAsync(at, (uintptr_t)m->in + all.at, all.bytes, m->c->stream);
    m->in = (const char *)(uintptr_t)(at - all.at);
    return result;
}

static unsigned one(const struct moves *m, const void *neutral)
{
    switch (m->call->collective) {
    case COLLECTIVE_ALLTOALL:
    case COLLECTIVE_ALLTOALL_V:
        return alltoall(m);
    case COLLECTIVE_GATHER:
    case COLLECTIVE_GATHER_V:
        return gather(m);
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_SCATTER_V:
        return scatter(m);
    case COLLECTIVE_ALLGATHER_V:
        return allgather_v(m);
    case COLLECTIVE_REDUCE_SCATTER_V:
        return reduce_scatter_v(m);
    default:
        return scan(m, neutral, m->call->collective == COLLECTIVE_SCAN);
    }
}

unsigned nccl_move(struct nccl_channel *c, const struct native_call *call)
{
    struct moves m = moves_of(c, call);
    const void *neutral = NULL;

    if (prepare(&m, &neutral) != CUDA_OK)
        return NCCL_CUDA_ERROR;
    unsigned result = c->nccl->ncclGroupStart();
    if (result != NCCL_OK)
        return result;
    result = one(&m, neutral);
    unsigned ended = c->nccl->ncclGroupEnd();
    return result != NCCL_OK ? result : ended;
}

/* ------------------------------------------------------------------------------------------------------------ messages */
/* Any other result than COMM_OK would fail the communicator. */
static bool check_messages(struct nccl_channel *c, const struct native_message *messages, uint32_t count, char *why, size_t why_bytes)
{
    enum comm_result r = COMM_OK;

    if (!count && nccl_is_capturing(c)) {
        base_format(why, why_bytes, "the communicator's stream is being captured; expected a message of tag 0, which NCCL does");
        return false;
    }
    for (uint32_t i = 0; i < count && r == COMM_OK; i++) {
        struct cuda_buffer b = {.name = "buf", .at = messages[i].at, .bytes = messages[i].bytes, .is = cuda_ask(c->d, messages[i].at)};
        r = nccl_check_buffer(c, &b, why, why_bytes);
    }
    return r == COMM_OK;
}

static unsigned put_messages(struct nccl_channel *c, const struct native_message *messages, uint32_t count)
{
    struct moves m = {.c = c};
    unsigned result = count ? c->nccl->ncclGroupStart() : NCCL_OK;

    if (result != NCCL_OK || !count)
        return result;
    for (uint32_t i = 0; i < count && result == NCCL_OK; i++) {
        const struct native_message *one = &messages[i];
        result = one->is_send ? send(&m, one->at, one->bytes, one->peer) : receive(&m, one->at, one->bytes, one->peer);
    }
    unsigned ended = c->nccl->ncclGroupEnd();
    return result != NCCL_OK ? result : nccl_settle(c, ended);
}

enum comm_result nccl_messages(struct native_channel *channel, const struct native_message *messages, uint32_t count, uint64_t cookie,
                               int32_t *code, char *why, size_t why_bytes)
{
    struct nccl_channel *c = (struct nccl_channel *)(void *)channel;
    struct cuda_inside inside;
    enum comm_result r = COMM_ERR_BACKEND;
    bool captured = false;

    *code = NCCL_CUDA_ERROR;
    if (!nccl_room(c))
        return COMM_ERR_MEMORY;
    if (!cuda_enter(c->d, &inside))
        return r;
    if (!check_messages(c, messages, count, why, why_bytes) || nccl_capture(c, &captured, why, why_bytes) != COMM_OK) {
        r = COMM_ERR_ARGUMENT;
    } else {
        unsigned result = put_messages(c, messages, count);
        *code = result == NCCL_OK ? NCCL_CUDA_ERROR : (int32_t)result;
        if (result == NCCL_OK)
            r = nccl_mark_alone(c, cookie, captured);
    }
    cuda_leave(c->d, &inside);
    return r;
}
