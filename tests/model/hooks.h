/* The entry points of the instrumented code. Private to the explorer. */
#ifndef MODEL_HOOKS_H
#define MODEL_HOOKS_H

#include "model/memory.h"

bool explore_running(uint32_t *thread); /* whether a thread of the case runs; otherwise operations are plain */
uint64_t explore_atomic(struct op *op);
void explore_fence(struct op *op);
void explore_plain(uintptr_t address, size_t bytes, bool write);

#endif
