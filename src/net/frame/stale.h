/*
 * stale: what comes after that which it speaks of has gone. Frames are on their way while communicators are left, and their places serve
 * the next; what is told of room comes by two connections, so that the older word may be the later one. Each of these is one pure
 * decision, and has no effect: nobody is told, nothing is kept. The simulator's network asks the same functions.
 */
#ifndef NET_TCP_LATE_H
#define NET_TCP_LATE_H

#include "wire/wire.h"

/* A rank names each of its channels itself, and peers say that name with every frame: its place in the rank's table, and which of all its
 * channels it was. So no two have one name, unless 65,536 others came between. */
uint32_t stale_name(uint32_t count, uint32_t place);
uint32_t stale_place(uint32_t name);
/* Whether what was said of `said`, by this peer as member `from`, is meant for the channel that has the place now. */
bool stale_is_for(uint32_t said, uint32_t name);
bool stale_is_member(uint32_t from, uint32_t size, const int32_t *world, int32_t peer);

/* An exposure of an operation that this rank has retired, or refused: nobody asks for it. */
bool stale_is_done(uint32_t retired, wire_key key);
/* What is known afterwards of what a peer has retired; and of what it has given back at one place. Of what it has retired nobody waits
 * for an acknowledgement any more, and of what it has not only one operation is at a place. */
uint32_t stale_retired(uint32_t known, uint32_t told);
wire_key stale_ack(wire_key known, uint32_t retired, wire_key told);

#endif
