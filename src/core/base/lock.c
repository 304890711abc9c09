#include "base/lock.h"

/* Short sections: a few turns are cheaper than a system call. */
enum { LOCK_TURNS = 64, LOCK_PARK_NS = 1000000 };

void base_lock_slow(struct base_lock *lock, const struct comm_env *env)
{
    for (int turn = 0; turn < LOCK_TURNS; turn++) {
        if (base_trylock(lock))
            return;
        env->relax(env, turn >= LOCK_TURNS / 2);
    }
    atomic_fetch_add_explicit(&lock->waiters, 1, memory_order_seq_cst);
    while (!base_trylock(lock))
        env->park(env, &lock->word, 1, env->now(env) + LOCK_PARK_NS);
    atomic_fetch_sub_explicit(&lock->waiters, 1, memory_order_relaxed);
}

void base_unlock_slow(struct base_lock *lock, const struct comm_env *env)
{
    env->wake(env, &lock->word, 1);
}
