/* Waits for frames: which lane of a peer, and how many looks wait for it. */
#ifndef NET_STATE_AWAIT_H
#define NET_STATE_AWAIT_H

#include "net/state/state.h"

/* Callers hold the wire's lock. */
static inline uint32_t tcp_lane_for(uint64_t bytes)
{
    return bytes > TCP_SMALL_BYTES ? TCP_LANE_BULK : TCP_LANE_SMALL;
}
/* One more look waits for a frame of this peer, or one less. */
void tcp_await(struct tcp_channel *c, uint32_t peer, uint32_t lane, bool on);

#endif
