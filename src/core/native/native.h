/* Collectives of a library beside the wire (wire/native.h): its part of a communicator. */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "progress/part.h"

/* Of a failed communicator: the library may still use the buffers of its operations. */
bool native_holds(struct comm_state *b);

extern const struct comm_part native_part;

#endif
