/* What sending (pair_send.c) and receiving (pair.c) messages of the memory wires share: the places of a pair, and telling its other side.
 */
#ifndef CHANNEL_PAIR_H
#define CHANNEL_PAIR_H

#include "channel/shmchan.h"

enum { PAIR_SENT = 1, PAIR_ARRIVED = 2 };

/* For memory that its writer can change at any time: read it once into a local variable, then check and use only that. */
#define PAIR_READ_ONCE(field) (*(const volatile __typeof__(field) *)&(field))

static inline uint64_t pair_name(uint32_t side, uint32_t peer, uint32_t seq)
{
    return (uint64_t)seq << 32 | side << 16 | peer;
}

/* ------------------------------------------------------------------------------------------------------------ places of a pair */
static inline struct shmchan_inlet *pair_inlet(const struct shmchan_channel *c, char *block, uint32_t sender)
{
    return (struct shmchan_inlet *)(void *)(block + c->shape.inlets) + sender;
}
static inline char *pair_eager(const struct shmchan_channel *c, struct shmchan_pair *pair, uint32_t at)
{
    return (char *)((struct shmchan_line *)(void *)(pair + 1) + c->shape.window) + at;
}
static inline struct shmchan_line *pair_chunk(const struct shmchan_channel *c, char *chunks, uint64_t number)
{
    return (struct shmchan_line *)(void *)(chunks + (size_t)(number & (SHMCHAN_CHUNKS - 1)) * c->shape.chunk_stride);
}
static inline _Atomic uint64_t *pair_published(char *block, size_t table, uint32_t index)
{
    return (_Atomic uint64_t *)(void *)(block + table) + index;
}

/* This rank's numbers in the peer's inbox. */
static inline struct shmchan_inbox *pair_inbox(const struct shmchan_channel *c, uint32_t peer)
{
    return (struct shmchan_inbox *)(void *)(c->peer[peer].block + c->shape.inbox) + c->rank;
}

/* Stores this number of this rank in the peer's inbox: the peer looks when it is ahead of what it has heard. */
void pair_publish(struct shmchan_channel *c, uint32_t peer, _Atomic uint32_t *number, uint32_t value);
void pair_knock(struct shmchan_channel *c, uint32_t peer); /* a grant, a chunk, or a chunk taken is there */
/* Serves the grants of one receiver as far as chunks are free and bytes are there. Returns whether it must be called again without a signal
 * from the peer. */
bool pair_pump(struct shmchan_channel *c, uint32_t peer, struct wire_event *events, uint32_t max, uint32_t *n);

#endif
