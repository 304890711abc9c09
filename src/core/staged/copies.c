/* Which bytes of an operation are copied between the caller's buffers and its stage, and the copies. It knows no steps of the operation. */
#include "staged/copies.h"

#include <string.h>

enum { PIECES = 32 };

/* ------------------------------------------------------------------------------------------------------------ which bytes are copied */
/* Where the blocks of a buffer are. counts NULL: the whole address range is one block. */
struct blocks {
    const size_t *counts, *displs;
};

static struct blocks blocks_read(const struct entry *e)
{
    bool in_blocks = e->record.collective == COLLECTIVE_SCATTER_V || e->record.collective == COLLECTIVE_ALLTOALL_V;

    if (!in_blocks || !e->call.counts)
        return (struct blocks){NULL, NULL};
    return e->call.in_counts ? (struct blocks){e->call.in_counts, e->call.in_displs} : (struct blocks){e->call.counts, e->call.displs};
}

static struct blocks blocks_written(const struct entry *e)
{
    bool in_blocks = e->record.collective == COLLECTIVE_ALLGATHER_V || e->record.collective == COLLECTIVE_GATHER_V ||
                     e->record.collective == COLLECTIVE_ALLTOALL_V;

    return in_blocks ? (struct blocks){e->call.counts, e->call.displs} : (struct blocks){NULL, NULL};
}

/* The range that was written: of a broadcast_bytes only the root's length; of one that did not fit, nothing. */
static struct timeline_range range_written(const struct entry *e)
{
    struct timeline_range range = e->head.write;

    if (e->spill)
        return (struct timeline_range){0, 0};
    if (BASE_LIKELY(e->record.collective != COLLECTIVE_BROADCAST_BYTES))
        return range;
    size_t bytes = e->call.n * data_type_bytes(e->call.type);
    if (range.to - range.from > bytes)
        range.to = range.from + bytes;
    return range;
}

/* ------------------------------------------------------------------------------------------------------------ copies */
struct copies {
    struct comm_state *b;
    struct entry *entry;
    enum device_way way;
    bool by_cpu;
    uint32_t count;
    enum comm_result result;
    uintptr_t end; /* end of the last piece, in the caller's buffer */
    struct device_piece piece[PIECES];
};

static void begin_pieces(struct copies *c)
{
    if (c->count && c->result == COMM_OK)
        c->result = staging_copy(c->b->staged.pool, c->entry->stage, c->way, c->piece, c->count);
    c->count = 0;
}

/* Neighbours in the caller's buffer are neighbours in the stage. */
static void add_piece(struct copies *c, uintptr_t from, void *ours, size_t bytes)
{
    void *theirs = (void *)from;
    struct device_piece piece =
        c->way == DEVICE_IN ? (struct device_piece){ours, theirs, bytes} : (struct device_piece){theirs, ours, bytes};

    if (!bytes)
        return;
    if (c->by_cpu) {
        memcpy(piece.to, piece.from, bytes);
        return;
    }
    if (c->count && c->end == from) {
        c->piece[c->count - 1].bytes += bytes;
        c->end += bytes;
        return;
    }
    if (c->count == PIECES)
        begin_pieces(c);
    c->piece[c->count++] = piece;
    c->end = from + bytes;
}

static void add_vectors(struct copies *c, const struct stage_side *side, uintptr_t from, const struct blocks *blocks)
{
    size_t element = data_type_bytes(c->entry->call.type);

    for (int32_t r = 0; r < c->b->team.size; r++) {
        uintptr_t block = from + blocks->displs[r] * element;
        add_piece(c, block, staging_at(side, (void *)block), blocks->counts[r] * element);
    }
}

/* Of a part. Its blocks are dense in the stage. */
static void add_blocks(struct copies *c, const struct timeline_range *range)
{
    const struct entry *e = c->entry;
    char *ours = c->way == DEVICE_IN ? (char *)(uintptr_t)e->call.in : e->call.out;
    size_t block = e->call.n * data_type_bytes(e->call.type);

    for (uintptr_t from = range->from; from < range->to; from += e->pitch, ours += block)
        add_piece(c, from, ours, block);
}

/* Of a part of a call with counts: the same, but each block has a place of its own. */
static void add_places(struct copies *c, const struct timeline_range *range)
{
    const struct entry *e = c->entry;
    bool reads = c->way == DEVICE_IN, has_all = (entry_blocks(e) == &e->head.read) == reads;
    char *ours = reads ? (char *)(uintptr_t)e->call.in : e->call.out;
    size_t element = data_type_bytes(e->call.type);

    if (!has_all)
        add_piece(c, range->from, ours, range->to - range->from);
    for (int32_t r = 0; has_all && r < c->b->team.size; r++)
        add_piece(c, range->from + e->places[r] * element, ours + e->call.displs[r] * element, e->call.counts[r] * element);
}

enum comm_result copies_begin(struct comm_state *b, struct entry *e, enum device_way way)
{
    struct copies c; /* the pieces are not initialised, because that would take as long as the rest */
    const struct stage_side *side = way == DEVICE_IN ? &e->stage->in : &e->stage->out;
    struct timeline_range range = way == DEVICE_IN ? e->head.read : range_written(e);
    struct blocks blocks = way == DEVICE_IN ? blocks_read(e) : blocks_written(e);

    c.b = b;
    c.entry = e;
    c.way = way;
    c.by_cpu = e->on_device & (way == DEVICE_IN ? CALL_IN_BY_CPU : CALL_OUT_BY_CPU);
    c.count = 0;
    c.result = COMM_OK;
    c.end = 0;
    e->stage->copy = STAGE_NONE;
    if (side->at && e->places)
        add_places(&c, &range);
    else if (side->at && blocks.counts)
        add_vectors(&c, side, range.from, &blocks);
    else if (side->at && e->pitch)
        add_blocks(&c, &range);
    else if (side->at)
        add_piece(&c, range.from, staging_at(side, (void *)range.from), range.to - range.from);
    begin_pieces(&c);
    if (c.result == COMM_ERR_FULL)
        return COMM_PENDING;
    if (c.result == COMM_OK && !staging_reached(e->stage))
        return COMM_PENDING;
    return c.result;
}
