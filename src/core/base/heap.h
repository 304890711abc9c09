/*
 * Memory from a communicator's engine, for modules that know a communicator only by the public calls and cannot reach
 * its env (the gradient buckets). take returns zeroed, 64-byte aligned memory, or NULL; bytes 0 gives NULL. The memory
 * keeps its engine alive, so it stays valid after c is closed. give takes the same c and bytes as take did; c may name
 * a closed communicator by then. Therefore the owner is stored next to the memory and never looked up through c. Any
 * thread; neither call waits for a peer. Not for use between issue and completion of an operation.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct comm_communicator;

void *base_heap_take(struct comm_communicator *c, size_t bytes);
void base_heap_give(struct comm_communicator *c, void *memory, size_t bytes); /* memory NULL: does nothing */
bool base_heap_is_own(const void *memory);                                    /* false in a forked child: it is the parent's */

#endif
