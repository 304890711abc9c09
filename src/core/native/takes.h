/* Which calls a library takes (takes.c). Private to this room. */
#ifndef NATIVE_TAKES_H
#define NATIVE_TAKES_H

#include "comm/state.h"

/* COMM_OK: the library does the call. UNSUPPORTED: a program does it. Any other result refuses the call, and last_refused says why. */
enum comm_result native_takes(struct comm_state *b, const struct engine_call *call);
/* For NATIVE_FOLDS: the host's kernel of a reduction, and whether the result must be this kernel's. */
data_reduce_fn *native_reducer(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op);
bool native_is_exact(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op);
bool native_is_device_memory(struct comm_state *b, const void *memory);
/* Must the call wait until the library has got an earlier one, whose input is still being copied from a device? All ranks give a library
 * their calls in the same order. Copies end in order, so one that is staged too need not wait. */
bool native_would_overtake(const struct comm_state *b, const struct entry *e);

#endif
