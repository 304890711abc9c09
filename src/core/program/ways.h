/* ways: which way results go into a peer's memory. Private to this room. */
#ifndef PROGRAM_WAYS_H
#define PROGRAM_WAYS_H

#include "program/program.h"

enum { WAYS_SCALE = 20, WAYS_SLICE_BYTES = 5 << 16 /* longer ones go past the cache */ };

/* For one operation. *timed: what a piece of it took shall be told. */
enum run_way ways_choose(struct run_ways *ways, bool *timed);
void ways_tell(struct run_ways *ways, enum run_way way, int64_t ns, size_t bytes);

#endif
