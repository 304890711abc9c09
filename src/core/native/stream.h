/*
 * What a native puts into a stream of the device besides single collectives.
 */
#ifndef COMMSTREAM_NATIVE_STREAM_H
#define COMMSTREAM_NATIVE_STREAM_H

#include "comm/state.h"

/* Called before the entry is issued under the next ticket. UNSUPPORTED: the stream cannot wait for such a point. */
enum comm_result native_stream_wait(struct comm_state *b, struct entry *e, const struct timeline_point *point);
enum comm_result native_stream_messages(struct comm_state *b, struct entry *e, const struct native_message *messages, uint32_t count);
/* The calls of a group are issued between open and not open, without giving up the lock. Does nothing if the library has no groups. */
void native_stream_group(struct comm_state *b, bool open);

/* From when on the deadline of a started entry counts. A device does its calls one after the other, so none begins before the calls before
 * it have ended. INT64_MAX: one of them has not. Entries must be asked about in the order of the queue. */
int64_t native_since(struct comm_state *b, uint64_t ticket, const struct entry *e);

/* Lets the stream go on past the points that have been reached, and fails the communicator if one has failed. True if anything moved. */
bool native_release_parked(struct comm_state *b);

#endif
