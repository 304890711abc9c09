/* Records of operations, by number: number n is at n modulo the room, which is a power of two. */
#ifndef CUDA_RING_H
#define CUDA_RING_H

#include <stddef.h>
#include <stdint.h>

struct comm_env;

/* Returns a ring with twice the room, which has the records from `first` to before `end`, and frees the old one, which may be NULL with
 * room 0. Returns NULL without memory; then the old one stays. A record has `each` bytes. */
void *cuda_ring_grow(const struct comm_env *env, void *ring, uint32_t *room, size_t each, uint64_t first, uint64_t end);

#endif
