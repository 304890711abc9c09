/* The memory of the tcp wire: blocks, and small records (slots, messages, holds, events). Callers hold the wire's lock. NULL: no memory. */
#ifndef NET_STATE_MEMORY_H
#define NET_STATE_MEMORY_H

#include "base/edge.h"
#include "net/state/state.h"

/* Numbers wrap, so the sign of the difference decides. There is no number 0. */
static inline bool tcp_reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}

/* blocks */
struct tcp_block *tcp_block_take(struct tcp_wire *w, size_t bytes);
void tcp_block_give(struct tcp_wire *w, struct tcp_block *block);
static inline size_t tcp_block_room(const struct tcp_block *block)
{
    return (size_t)1 << block->order;
}
/* Only the first `bytes` bytes may be accessed (checked by sanitizers). */
static inline void tcp_block_bound(const struct tcp_block *block, size_t bytes)
{
    edge_set(block->data, bytes, tcp_block_room(block));
}

/* what has arrived or is being sent */
struct tcp_slot *tcp_slot_find(struct tcp_channel *c, uint32_t peer, wire_key key);
struct tcp_slot *tcp_slot_make(struct tcp_channel *c, uint32_t peer, wire_key key);
void tcp_slot_drop(struct tcp_channel *c, struct tcp_slot *slot);
void tcp_slots_retire(struct tcp_channel *c, uint32_t seq);
struct tcp_message *tcp_message_make(struct tcp_channel *c, bool sent);
void tcp_message_drop(struct tcp_channel *c, bool sent, struct tcp_message *m);
struct tcp_hold *tcp_hold_make(struct tcp_channel *c);
void tcp_hold_drop(struct tcp_channel *c, struct tcp_hold *hold);

/* for the engine */
void tcp_tell(struct tcp_channel *c, const struct wire_event *event);
void tcp_memory_end(struct tcp_channel *c);

#endif
