/*
 * The machine's env with counted memory: the number of allocations, the blocks held, and an allocation that fails on request. Handles live
 * as long as the process, so their memory is not counted as held.
 */
#ifndef TESTS_ENGINE_MEMORY_ENV_H
#define TESTS_ENGINE_MEMORY_ENV_H

#include <stdatomic.h>
#include <stdint.h>

extern _Atomic uint64_t memory_takes;     /* since the start, including those of handles */
extern _Atomic uint64_t memory_gives;     /* since the start */
extern _Atomic int64_t memory_held;       /* blocks allocated and not freed, without those of handles */
extern _Atomic int64_t memory_held_bytes; /* their bytes; detects a free with another size than the allocation */
extern _Atomic uint64_t memory_fail_at;   /* number of the allocation that fails; 0: none */
extern _Atomic uint64_t memory_fail_more; /* this many allocations after it fail too */
extern _Atomic uint64_t memory_failed;    /* how many have failed */

void memory_tell(void); /* prints the blocks held now to standard error */

#endif
