/*
 * One lock for the whole core, from C11 atomics and env's park: 0 free, 1 held, 2 held and somebody may sleep. (Drepper, "Futexes Are
 * Tricky", the third mutex.) Every lock, relax and park is a scheduling point of the simulator.
 *
 * Order of locks: communicator, device or MPI issue lock, engine. Nothing that blocks is called with one held.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/env.h"

struct base_lock {
    _Atomic uint32_t word;
};

void base_lock_slow(struct base_lock *lock, const struct comm_env *env);

static inline bool base_trylock(struct base_lock *lock)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void base_lock(struct base_lock *lock, const struct comm_env *env)
{
    if (!base_trylock(lock))
        base_lock_slow(lock, env);
}

static inline void base_unlock(struct base_lock *lock, const struct comm_env *env)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        env->wake(env, &lock->word, 1);
}

#endif
