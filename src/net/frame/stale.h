/*
 * stale: frames that arrive after the channel or operation they refer to has ended. Frames may still be in flight when a communicator is
 * left and its place in the table is used again. Acknowledgements arrive over two connections, so an older one may arrive later. Each
 * function is one pure decision without effects. The simulator's network uses the same functions.
 */
#ifndef NET_FRAME_STALE_H
#define NET_FRAME_STALE_H

#include "wire/wire.h"

/* A rank gives each of its channels a name, which peers put in every frame: the place in the rank's table, and a count of all its channels.
 * Two channels have the same name only if 65,536 others came between them. */
uint32_t stale_name(uint32_t count, uint32_t place);
uint32_t stale_place(uint32_t name);
/* Whether a frame for channel `said`, from this peer as member `from`, is meant for the channel that has the place now. */
bool stale_is_for(uint32_t said, uint32_t name);
bool stale_is_member(uint32_t from, uint32_t size, const int32_t *world, int32_t peer);

/* Whether this rank has retired or refused the operation of an exposure, so that nobody needs the exposure. */
bool stale_is_done(uint32_t retired, wire_key key);
/* Merge a new report with what is known: the last operation that a peer has retired, and the last exposure that it has acknowledged at one
 * place. Nobody waits for an acknowledgement of a retired operation. Of the operations that are not retired only one uses a place. */
uint32_t stale_retired(uint32_t known, uint32_t told);
wire_key stale_ack(wire_key known, uint32_t retired, wire_key told);

#endif
