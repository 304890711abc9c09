/* Finds an exposure by its key: lines, places, acknowledgements and landings within a block or region. Used by the
 * exposing side (shmchan.c) and the reading side (shmchan_view.c). Nothing here divides or branches much. */
#ifndef CHANNEL_SHMCHAN_AT_H
#define CHANNEL_SHMCHAN_AT_H

#include "channel/shmchan.h"

#include "data/data.h"

static inline const struct shmchan_edge *edge_of(const struct shmchan_shape *shape, wire_key key)
{
    BASE_DEBUG_ASSERT(wire_key_edge(key) < shape->once_edges);
    return &shape->edge[wire_key_edge(key)];
}

static inline struct shmchan_line *line_of(char *block, const struct shmchan_edge *edge, uint32_t seq)
{
    return (struct shmchan_line *)(void *)(block + edge->line + (seq & edge->line_mask) * edge->line_step);
}

static inline struct shmchan_line *once_line(char *block, const struct shmchan_shape *shape, wire_key key)
{
    return line_of(block, edge_of(shape, key), wire_key_seq(key));
}

/* Index of a reader among an exposer's lines for single readers. */
static inline size_t index_of(uint32_t reader, uint32_t owner)
{
    return reader - (reader > owner);
}

static inline struct shmchan_line *each_line(char *each, const struct shmchan_shape *shape, wire_key key, uint32_t reader, uint32_t owner)
{
    size_t row = (wire_key_seq(key) & shape->each.line_mask) * shape->each.line_step;
    return (struct shmchan_line *)(void *)(each + row) + index_of(reader, owner);
}

static inline const struct shmchan_credits *credits_of(const struct shmchan_shape *shape, uint32_t edge)
{
    return edge & WIRE_TO_ALL ? &shape->all : &shape->private;
}

static inline size_t stream_offset(const struct shmchan_shape *shape, wire_key key, uint32_t edge, uint32_t reader, uint32_t owner)
{
    BASE_ASSERT(wire_key_edge(key) < WIRE_STREAM_EDGES);
    size_t area = (size_t)(wire_key_seq(key) & shape->area_mask) * WIRE_STREAM_EDGES + wire_key_edge(key);
    const struct shmchan_credits *credits = credits_of(shape, edge);
    size_t at = area * shape->edge_stride, credit = wire_key_round(key) & credits->mask;
    if (edge & WIRE_TO_ALL)
        return at + credit * shape->all_stride;
    return at + ((index_of(reader, owner) << credits->shift) + credit) * shape->private_stride;
}

/* Uses the largest number of credits of a stream, whatever its edge has. */
static inline _Atomic uint64_t *ack_of(char *block, const struct shmchan_shape *shape, wire_key key, uint32_t source)
{
    struct shmchan_acks *acks = (struct shmchan_acks *)(void *)(block + shape->acks);
    size_t area = wire_key_seq(key) & shape->area_mask;
    return &acks[area * shape->size + source].key[wire_key_edge(key)][wire_key_round(key) & shape->all.mask];
}

/* The exposure of the other member that an exposure with this key may answer: of the same round, on the edge before. */
static inline wire_key shmchan_asked(wire_key key)
{
    return key - 1;
}

/* Where an operation's place of this kind is, among a rank's once places. */
static inline size_t once_offset(const struct shmchan_shape *shape, wire_key key, enum shmchan_places_kind kind)
{
    const struct shmchan_row *places = &shape->edge[wire_key_edge(key)].places[kind];
    return places->at + (wire_key_seq(key) & places->mask) * places->step;
}

/* The slot of one edge and credit; operations that share an area share it. */
static inline uint32_t landing_slot(const struct shmchan_shape *shape, wire_key key)
{
    uint32_t area = wire_key_seq(key) & shape->area_mask, credit = wire_key_round(key) & shape->all.mask;
    return ((area * WIRE_STREAM_EDGES + wire_key_edge(key)) << shape->all.shift) + credit;
}

static inline struct shmchan_landing *landing_of(char *block, const struct shmchan_shape *shape, wire_key key)
{
    return (struct shmchan_landing *)(void *)(block + shape->landings) + landing_slot(shape, key);
}

/* Copies bytes that only this rank reads, and dirties their lines if their owner writes there again sooner then. */
static inline void take_bytes(const struct shmchan_channel *c, void *to, const void *from, size_t bytes, bool nontemporal)
{
    if (c->shape.only_reads)
        data_copy(to, from, bytes, nontemporal);
    else
        data_take(to, (void *)(uintptr_t)from, bytes, nontemporal);
}

#endif
