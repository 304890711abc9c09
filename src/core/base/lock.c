#include "base/lock.h"

/* Short sections: a few turns are cheaper than a system call. */
enum { LOCK_TURNS = 64, LOCK_YIELD_NS = 100000, LOCK_PARK_NS = 1000000, LOCK_STARVED_NS = 1000000 };

/* What is kept for this one is free for nobody else. */
static bool take_kept(struct base_lock *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == LOCK_KEPT &&
           atomic_exchange_explicit(&lock->word, LOCK_HELD, memory_order_acquire) != LOCK_HELD;
}

/* True: from here on it is kept for this one. One at a time. */
static bool claim(struct base_lock *lock)
{
    return !(atomic_fetch_or_explicit(&lock->waiters, LOCK_CLAIMED, memory_order_relaxed) & LOCK_CLAIMED);
}

/* Who leaves a lock and comes back at once finds it free long before a waiter who was woken has found a CPU, so where CPUs are few that may
 * go on for seconds. The lock is kept for a thread that has waited for long. */
void base_lock_park(struct base_lock *lock, const struct comm_env *env, int64_t since)
{
    int64_t now = env->now(env);
    bool mine = false;

    atomic_fetch_add_explicit(&lock->waiters, 1, memory_order_seq_cst);
    while (!base_trylock(lock) && !(mine && take_kept(lock))) {
        uint32_t seen = mine || atomic_load_explicit(&lock->word, memory_order_relaxed) != LOCK_KEPT ? LOCK_HELD : LOCK_KEPT;
        if (!mine && now - since >= LOCK_STARVED_NS)
            mine = claim(lock);
        env->park(env, &lock->word, seen, now + LOCK_PARK_NS);
        now = env->now(env);
    }
    atomic_fetch_sub_explicit(&lock->waiters, mine ? LOCK_CLAIMED + 1 : 1, memory_order_relaxed);
}

void base_lock_slow(struct base_lock *lock, const struct comm_env *env)
{
    int64_t since = 0;

    for (int turn = 0; turn < LOCK_TURNS; turn++) {
        if (base_trylock(lock))
            return;
        env->relax(env, turn >= LOCK_TURNS / 2);
        if (turn < LOCK_TURNS / 2)
            continue;
        int64_t now = env->now(env);
        since = since ? since : now;
        if (now - since > LOCK_YIELD_NS) /* among pending peers who compute */
            break;
    }
    base_lock_park(lock, env, since);
}

/* Of several who wait each is woken where one of them is to have it: nobody knows which one sleeps first. */
void base_unlock_slow(struct base_lock *lock, const struct comm_env *env)
{
    bool keep = atomic_load_explicit(&lock->waiters, memory_order_relaxed) & LOCK_CLAIMED;

    atomic_store_explicit(&lock->word, keep ? LOCK_KEPT : LOCK_FREE, memory_order_release);
    env->wake(env, &lock->word, keep ? UINT32_MAX : 1);
}
