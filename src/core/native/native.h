/* Collectives of a library next to the wire (wire/native.h): the native part of a communicator. */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "progress/part.h"

/* For a failed communicator: may the library still use the buffers of its operations? */
bool native_holds(struct comm_state *b);
/* STATE, with the reason in why: something of the program's still needs the library's part of the communicator. */
enum comm_result native_may_close(struct comm_state *b, char *why, size_t why_bytes);

extern const struct comm_part native_part;

#endif
