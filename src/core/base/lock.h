/*
 * The only lock of the core, made of C11 atomics and env's park. Taking it is one atomic exchange. Leaving it is a
 * plain store, so a call that locks and unlocks pays for one atomic operation. The price: a waiter that parks between
 * the load of `waiters` and that store is not woken. It parks for at most LOCK_PARK_NS and looks again. The lock is not
 * fair: an arriving thread may take a free lock before the waiters. But a thread that has waited for LOCK_STARVED_NS
 * claims the lock, which is then kept for that thread. Every lock, relax and park is a scheduling point of the
 * simulator.
 *
 * Lock order: communicator, device or MPI issue lock, engine. No blocking call is made with a lock held.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/check.h"
#include "base/env.h"

enum { LOCK_FREE, LOCK_HELD, LOCK_KEPT }; /* KEPT: nobody is inside, and only the thread that claimed the lock may take it */
#define LOCK_CLAIMED UINT32_C(0x80000000)

struct base_lock {
    _Atomic uint32_t word;
    _Atomic uint32_t waiters; /* number of waiters; the bit LOCK_CLAIMED is set if one has waited too long */
};

void base_lock_slow(struct base_lock *lock, const struct comm_env *env);
void base_lock_park(struct base_lock *lock, const struct comm_env *env, int64_t since); /* the last part of base_lock_slow; since: when the
                                                                                         * wait began */
void base_unlock_slow(struct base_lock *lock, const struct comm_env *env);

/* A lock that becomes KEPT between the load and the exchange is taken all the same: nobody is inside. */
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
