#include "cuda/ring.h"

#include "base/env.h"

#include <string.h>

enum { ROOM_FIRST = 64 };

void *cuda_ring_grow(const struct comm_env *env, void *ring, uint32_t *room, size_t each, uint64_t first, uint64_t end)
{
    uint32_t before = *room, after = before ? before * 2 : ROOM_FIRST;
    char *more = env->take(env, after * each, 64), *old = ring;

    if (!more)
        return NULL;
    for (uint64_t i = first; i < end; i++)
        memcpy(more + (i & (after - 1)) * each, old + (i & (before - 1)) * each, each);
    env_give_back(env, old, before * each);
    *room = after;
    return more;
}
