/*
 * One lock for the whole core, from C11 atomics and env's park. Taking it is one atomic exchange; leaving it is a plain store, so that a
 * call that locks and unlocks pays once. Price: a waiter that parks in the instant between the look at `waiters` and that store is not
 * woken; it parks for LOCK_PARK_NS at most and looks again. Whoever comes takes a lock that is free, also before those who wait; but who
 * has waited for LOCK_STARVED_NS claims it, and then it is kept for that thread. Every lock, relax and park is a scheduling point of the
 * simulator.
 *
 * Order of locks: communicator, device or MPI issue lock, engine. Nothing that blocks is called with one held.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/check.h"
#include "base/env.h"

enum { LOCK_FREE, LOCK_HELD, LOCK_KEPT }; /* KEPT: nobody is inside, and who has claimed it is to have it */
#define LOCK_CLAIMED UINT32_C(0x80000000)

struct base_lock {
    _Atomic uint32_t word;
    _Atomic uint32_t waiters; /* how many; with LOCK_CLAIMED where one has waited too long */
};

void base_lock_slow(struct base_lock *lock, const struct comm_env *env);
void base_lock_park(struct base_lock *lock, const struct comm_env *env, int64_t since); /* the end of that: who waits since then */
void base_unlock_slow(struct base_lock *lock, const struct comm_env *env);

/* What became kept between the two is taken all the same: it is free. */
static inline bool base_trylock(struct base_lock *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == LOCK_FREE &&
           atomic_exchange_explicit(&lock->word, LOCK_HELD, memory_order_acquire) != LOCK_HELD;
}

static inline void base_lock(struct base_lock *lock, const struct comm_env *env)
{
    if (!base_trylock(lock))
        base_lock_slow(lock, env);
}

static inline void base_unlock(struct base_lock *lock, const struct comm_env *env)
{
    if (BASE_UNLIKELY(atomic_load_explicit(&lock->waiters, memory_order_relaxed) != 0))
        base_unlock_slow(lock, env);
    else
        atomic_store_explicit(&lock->word, LOCK_FREE, memory_order_release);
}

#endif
