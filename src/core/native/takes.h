/* Which calls a library takes (takes.c). Private to this room. */
#ifndef NATIVE_TAKES_H
#define NATIVE_TAKES_H

#include "comm/state.h"

/* COMM_OK: the library does the call. UNSUPPORTED: a program does it. Any other result refuses the call, and last_refused says why. */
enum comm_result native_takes(struct comm_state *b, const struct engine_call *call);
/* For NATIVE_FOLDS: the host's kernel of a reduction, and whether the result must be this kernel's. */
data_reduce_fn *native_reducer(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op);
bool native_is_exact(const struct comm_state *b, uint32_t collective, enum comm_type type, comm_op op);
/* What the request of a call that the library starts says that it ran (comm_request_info.algorithm). It is the library's name since the
 * call was issued, and stays so if the library has only one way. */
void native_name_algorithm(const struct comm_state *b, const struct native_call *call, struct entry *e);
/* NULL: the class's name, or the call is refused. Otherwise *how says it in words. */
const char *native_algorithm(struct comm_state *b, const struct engine_call *call, const char **how);
bool native_is_device_memory(struct comm_state *b, const void *memory);
/* Must the call wait until the library has got an earlier one, whose input is still being copied from a device? All ranks give a library
 * their calls in the same order. Copies end in order, so one that is staged too need not wait. */
bool native_would_overtake(const struct comm_state *b, const struct entry *e);
/* Whether option check=buffers can look at the buffers of the library's calls. */
bool native_checks_buffers(const struct comm_state *b);
/* Whether a communicator whose joining had this result does without the library. Not if it works in a stream of the program's, which
 * nothing but a library orders; a library that can fall back on staging (nccl_fallback) may all the same. */
bool native_may_do_without(const struct comm_state *b, enum comm_result r);

#endif
