/* The copies of one operation between the caller's buffers and its stage. Private to this room. */
#ifndef STAGED_COPIES_H
#define STAGED_COPIES_H

#include "staged/staged.h"

/* Starts the copies of one direction. PENDING: they are in progress, or the device has no room now. All copies of one direction use one
 * stream, so the end of the last one is the end of all. */
enum comm_result copies_begin(struct comm_state *b, struct entry *e, enum device_way way);

#endif
