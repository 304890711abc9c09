/* What explore.c, which runs the threads, does for the environment of these threads (env.c). Private to the explorer. */
#ifndef MODEL_THREADS_H
#define MODEL_THREADS_H

#include "model/hooks.h"

enum thread_state { THREAD_READY, THREAD_PARKED, THREAD_RINGING, THREAD_ENDED }; /* THREAD_RINGING: waits for a bell */

/* The running thread's next step is this call of its environment: others may come first. Returns when it has been chosen. */
void explore_step(enum model_kind kind, uintptr_t address);
/* The running thread waits at the address of its last step; returns when another has woken it, or its deadline. */
void explore_sleep(enum thread_state state);
/* Wakes up to `most` threads that wait in this state at this address. */
void explore_wake(enum thread_state state, uintptr_t address, uint32_t most);
/* Whether the fault that is explored removes this operation. */
bool explore_is_removed(const struct op *op);

/* In env.c: each run begins with silent bells. */
void env_reset(void);

#endif
