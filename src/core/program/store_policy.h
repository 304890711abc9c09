/* store_policy: how results are stored in a peer's memory. Private to this room. */
#ifndef PROGRAM_STORE_POLICY_H
#define PROGRAM_STORE_POLICY_H

#include "program/program.h"

enum { WAYS_SCALE = 20, WAYS_SLICE_BYTES = 5 << 16 /* longer results go past the cache */ };

/* Chooses for one operation. *timed: the caller shall time one piece and report it with store_policy_tell. */
enum store_way store_policy_choose(struct store_policy *policy, bool *timed);
void store_policy_tell(struct store_policy *policy, enum store_way way, int64_t ns, size_t bytes);

#endif
