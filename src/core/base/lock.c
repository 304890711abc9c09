#include "base/lock.h"

enum { LOCK_TURNS = 64 }; /* short sections: a few turns are cheaper than a system call */

void base_lock_slow(struct base_lock *lock, const struct comm_env *env)
{
    for (int turn = 0; turn < LOCK_TURNS; turn++) {
        if (base_trylock(lock))
            return;
        env->relax(env, turn >= LOCK_TURNS / 2);
    }
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        env->park(env, &lock->word, 2, ENV_FOREVER);
}
