/*
 * One lock for the whole core, from C11 atomics and env's park. Taking it is one atomic exchange; leaving it is a plain store, so that a
 * call that locks and unlocks pays once. Price: a waiter that parks in the instant between that store and the look at `waiters` is not
 * woken; it parks for LOCK_PARK_NS at most and looks again. Every lock, relax and park is a scheduling point of the simulator.
 *
 * Order of locks: communicator, device or MPI issue lock, engine. Nothing that blocks is called with one held.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/env.h"

struct base_lock {
    _Atomic uint32_t word; /* 1: held */
    _Atomic uint32_t waiters;
};

void base_lock_slow(struct base_lock *lock, const struct comm_env *env);
void base_unlock_slow(struct base_lock *lock, const struct comm_env *env);

static inline bool base_trylock(struct base_lock *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&lock->word, 1, memory_order_acquire) == 0;
}

static inline void base_lock(struct base_lock *lock, const struct comm_env *env)
{
    if (!base_trylock(lock))
        base_lock_slow(lock, env);
}

static inline void base_unlock(struct base_lock *lock, const struct comm_env *env)
{
    atomic_store_explicit(&lock->word, 0, memory_order_release);
    if (atomic_load_explicit(&lock->waiters, memory_order_relaxed))
        base_unlock_slow(lock, env);
}

#endif
