/*
 * The machine's env with memory that counts: how often it was asked for, what is held, and a take that fails when its number comes. Faces
 * are the process's and kept for ever; what they hold is counted apart.
 */
#ifndef TESTS_ENGINE_MEMORY_ENV_H
#define TESTS_ENGINE_MEMORY_ENV_H

#include <stdatomic.h>
#include <stdint.h>

extern _Atomic uint64_t memory_takes;     /* since the start, handles' too */
extern _Atomic uint64_t memory_gives;     /* since the start */
extern _Atomic int64_t memory_held;       /* blocks taken and not given, without the handles' */
extern _Atomic int64_t memory_held_bytes; /* of them: who gives another size than he took is found here */
extern _Atomic uint64_t memory_fail_at;   /* the take with this number has none; 0: all have */
extern _Atomic uint64_t memory_fail_more; /* and so many after it */
extern _Atomic uint64_t memory_failed;    /* how many had none */

void memory_tell(void); /* what is held now, on standard error */

#endif
