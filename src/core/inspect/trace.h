/* Writes the recorded operations to a file when a communicator fails or a program requests it. */
#ifndef INSPECT_TRACE_H
#define INSPECT_TRACE_H

#include "progress/part.h"

void trace_start(struct engine *e); /* starts the writing thread; before anything can fail */

extern const struct comm_part trace_part;

#endif
