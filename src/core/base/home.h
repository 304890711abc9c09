/*
 * A lock with a home: the one thread that usually takes it pays no atomic read-modify-write, which would drain its stores each time; any
 * other thread pays a process-wide barrier instead. (Biased locking; the asymmetric Dekker handshake of Dice, Huang and Yang, "Asymmetric
 * Dekker Synchronization", 2001, with membarrier(2) for the heavy side.)
 *
 * The home thread says that it is inside, then looks for guests: a store and a load that the CPU may reorder. A guest says that it is
 * there, makes every CPU that runs this process order its stores (env->barrier), then looks whether the home thread is inside. Whoever
 * comes second sees the other. Where guests come about as often as the home thread, or there is no such barrier, it is an ordinary lock.
 */
#ifndef BASE_HOME_H
#define BASE_HOME_H

#include "base/check.h"
#include "base/lock.h"

#define BASE_HOME_NONE UINT64_C(0)
#define BASE_HOME_NEVER UINT64_MAX

struct base_home_lock {
    _Atomic uint64_t home;   /* the thread; NONE: nobody yet; NEVER: an ordinary lock. Written under `lock` */
    _Atomic uint32_t inside; /* the home thread is inside by its own acceptor; written by it alone */
    _Atomic uint32_t guests; /* threads inside, or about to be, by the other one */
    uint32_t visits;         /* of guests, against the home thread's; under the lock, whichever acceptor */
    uint32_t guest;          /* who is inside came by the other acceptor; written by whoever is inside alone */
    struct base_lock lock;   /* among guests */
};

bool base_home_trylock_guest(struct base_home_lock *lock, const struct comm_env *env, uint64_t self);
void base_home_lock_guest(struct base_home_lock *lock, const struct comm_env *env, uint64_t self, bool claim);
void base_home_unlock_guest(struct base_home_lock *lock, const struct comm_env *env);

static inline bool base_home_enter(struct base_home_lock *lock, uint64_t self)
{
    if (atomic_load_explicit(&lock->home, memory_order_relaxed) != self)
        return false;
    atomic_store_explicit(&lock->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&lock->guests, memory_order_acquire) == 0 &&
        atomic_load_explicit(&lock->home, memory_order_relaxed) == self) { /* again: it may have become an ordinary lock since */
        if (BASE_UNLIKELY(lock->visits))
            lock->visits--;
        return true;
    }
    atomic_store_explicit(&lock->inside, 0, memory_order_release);
    return false;
}

static inline bool base_home_trylock(struct base_home_lock *lock, const struct comm_env *env)
{
    uint64_t self = env->self(env);

    return base_home_enter(lock, self) || base_home_trylock_guest(lock, env, self);
}

/* For callers: the first of them lives here. */
static inline void base_home_lock(struct base_home_lock *lock, const struct comm_env *env)
{
    uint64_t self = env->self(env);

    if (!base_home_enter(lock, self))
        base_home_lock_guest(lock, env, self, true);
}

/* For whoever comes by on the library's own business. So does trylock. */
static inline void base_home_visit(struct base_home_lock *lock, const struct comm_env *env)
{
    uint64_t self = env->self(env);

    if (!base_home_enter(lock, self))
        base_home_lock_guest(lock, env, self, false);
}

static inline void base_home_unlock(struct base_home_lock *lock, const struct comm_env *env)
{
    /* Not by `inside`: the home thread says so for a moment at its acceptor, while a guest who is leaving looks. */
    if (!lock->guest) {
        atomic_store_explicit(&lock->inside, 0, memory_order_release);
    } else {
        lock->guest = 0;
        base_home_unlock_guest(lock, env);
    }
}

#endif
