/*
 * A biased lock: the one thread that usually takes it (its home thread) pays no atomic read-modify-write, which would
 * drain its store buffer each time. Any other thread (a guest) pays a process-wide barrier instead. Source: the
 * asymmetric Dekker handshake of Dice, Huang and Yang, "Asymmetric Dekker Synchronization", 2001, with membarrier(2) on
 * the slow side.
 *
 * The home thread sets `inside`, then loads `guests`: a store and a load that the CPU may reorder. A guest increments
 * `guests`, makes every CPU that runs this process order its memory accesses (env->barrier), then loads `inside`. The
 * second of the two sees the first. If guests come about as often as the home thread, or there is no such barrier, this
 * becomes an ordinary lock.
 */
#ifndef BASE_HOME_H
#define BASE_HOME_H

#include "base/check.h"
#include "base/lock.h"

#define BASE_HOME_NONE UINT64_C(0)
#define BASE_HOME_NEVER UINT64_MAX

struct base_home_lock {
    _Atomic uint64_t home;   /* the home thread; NONE: not chosen yet; NEVER: an ordinary lock. Written under `lock` */
    _Atomic uint32_t inside; /* the home thread is inside by the fast path; only that thread writes it */
    _Atomic uint32_t guests; /* threads that are inside by the slow path, or about to be */
    uint32_t visits;         /* visits of guests, less those of the home thread; written by whichever thread is inside */
    uint32_t guest;          /* the thread inside came by the slow path; only that thread writes it */
    struct base_lock lock;   /* excludes guests from each other */
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
        atomic_load_explicit(&lock->home, memory_order_relaxed) == self) { /* checked again: it may have become an ordinary lock */
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

/* For calls of the program: the first thread that calls becomes the home thread. */
static inline void base_home_lock(struct base_home_lock *lock, const struct comm_env *env)
{
    uint64_t self = env->self(env);

    if (!base_home_enter(lock, self))
        base_home_lock_guest(lock, env, self, true);
}

/* For threads of the library itself. They never become the home thread; the same holds for trylock. */
static inline void base_home_visit(struct base_home_lock *lock, const struct comm_env *env)
{
    uint64_t self = env->self(env);

    if (!base_home_enter(lock, self))
        base_home_lock_guest(lock, env, self, false);
}

static inline void base_home_unlock(struct base_home_lock *lock, const struct comm_env *env)
{
    /* Do not decide by `inside`: the home thread sets it for a moment when it tries to enter, possibly while a guest
     * leaves. */
    if (!lock->guest) {
        atomic_store_explicit(&lock->inside, 0, memory_order_release);
    } else {
        lock->guest = 0;
        base_home_unlock_guest(lock, env);
    }
}

#endif
