/* What is remembered of operations, written to a file when a communicator fails or a program asks. */
#ifndef INSPECT_TRACE_H
#define INSPECT_TRACE_H

#include "progress/part.h"

void trace_start(struct engine *e); /* before anything can fail: the thread that will write */

extern const struct comm_part trace_part;

#endif
