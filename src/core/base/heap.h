/*
 * Memory of a communicator's engine, for rooms that know a communicator only through the public calls and so cannot reach its env: the
 * gradient buckets. take: zeroed and 64-byte aligned, or NULL; bytes 0 is NULL. The memory holds the engine: it stays good after c was
 * closed, and is given back with the c and the bytes that it was taken with, which by then may name a closed communicator; so its owner
 * is remembered beside the memory and never looked up through c. Any thread; neither call waits for a peer. Nothing here is for the path
 * between issue and completion.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stddef.h>

struct comm_communicator;

void *base_heap_take(struct comm_communicator *c, size_t bytes);
void base_heap_give(struct comm_communicator *c, void *memory, size_t bytes); /* memory NULL: nothing */

#endif
