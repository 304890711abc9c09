/* The slow path of the lock: spinning, parking, and keeping the lock for a thread that has waited too long. */
#include "base/lock.h"

/* Sections under a lock are short: a few turns of spinning are cheaper than a system call. */
enum { LOCK_TURNS = 64, LOCK_YIELD_NS = 100000, LOCK_PARK_NS = 1000000, LOCK_STARVED_NS = 1000000 };

/* Takes a lock that is kept (LOCK_KEPT) for this thread; no other thread may take it in that state. */
static bool take_kept(struct base_lock *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == LOCK_KEPT &&
           atomic_exchange_explicit(&lock->word, LOCK_HELD, memory_order_acquire) != LOCK_HELD;
}

/* True: from here on the lock is kept for this thread. One claim at a time. */
static bool claim(struct base_lock *lock)
{
    return !(atomic_fetch_or_explicit(&lock->waiters, LOCK_CLAIMED, memory_order_relaxed) & LOCK_CLAIMED);
}

/* A thread that leaves a lock and returns at once finds it free long before a woken waiter gets a CPU. Where CPUs are
 * few, that could go on for seconds. So a thread that has waited for LOCK_STARVED_NS claims the lock, which is then
 * kept for it. */
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
        if (now - since > LOCK_YIELD_NS) /* another thread probably computes on this CPU: sleep instead */
            break;
    }
    base_lock_park(lock, env, since);
}

/* If the lock is kept for one of several waiters, all of them are woken, because it is not known which one would wake
 * first. */
void base_unlock_slow(struct base_lock *lock, const struct comm_env *env)
{
    bool keep = atomic_load_explicit(&lock->waiters, memory_order_relaxed) & LOCK_CLAIMED;

    atomic_store_explicit(&lock->word, keep ? LOCK_KEPT : LOCK_FREE, memory_order_release);
    env->wake(env, &lock->word, keep ? UINT32_MAX : 1);
}
