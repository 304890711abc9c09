/* The slow path of the biased lock: how a guest takes it, and when it becomes an ordinary lock. home.h explains the
 * handshake. */
#include "base/home.h"

enum { VISIT_WEIGHT = 8, VISITS_MOST = 1024, INSIDE_TURNS = 64 };

/* Called under `lock` with `guests` incremented. After it, either the caller sees the home thread inside, or the home
 * thread sees the guest. If there is no barrier, the lock becomes an ordinary one. */
static void settle(struct base_home_lock *lock, const struct comm_env *env, uint64_t self, bool claim)
{
    uint64_t home = atomic_load_explicit(&lock->home, memory_order_relaxed);

    if (home == BASE_HOME_NONE && claim)
        atomic_store_explicit(&lock->home, env->barrier(env) ? self : BASE_HOME_NEVER, memory_order_relaxed);
    else if (home != BASE_HOME_NONE && home != BASE_HOME_NEVER && home != self)
        (void)env->barrier(env);
}

/* Called by a guest inside: too many visits by guests turn this into an ordinary lock. The home thread cannot be inside
 * now, and it sees this guest until the guest leaves. */
static void count_visit(struct base_home_lock *lock, const struct comm_env *env, uint64_t self)
{
    uint64_t home = atomic_load_explicit(&lock->home, memory_order_relaxed);

    if (home == self || home == BASE_HOME_NONE || home == BASE_HOME_NEVER)
        return;
    lock->visits += VISIT_WEIGHT;
    if (lock->visits > VISITS_MOST) {
        atomic_store_explicit(&lock->home, BASE_HOME_NEVER, memory_order_relaxed);
        (void)env->barrier(env); /* a former home thread that is just entering sees either the guest or the new value of `home` */
    }
}

bool base_home_trylock_guest(struct base_home_lock *lock, const struct comm_env *env, uint64_t self)
{
    if (!base_trylock(&lock->lock))
        return false;
    atomic_fetch_add_explicit(&lock->guests, 1, memory_order_seq_cst);
    settle(lock, env, self, false);
    if (atomic_load_explicit(&lock->inside, memory_order_acquire)) {
        base_home_unlock_guest(lock, env);
        return false;
    }
    lock->guest = 1;
    count_visit(lock, env, self);
    return true;
}

void base_home_lock_guest(struct base_home_lock *lock, const struct comm_env *env, uint64_t self, bool claim)
{
    base_lock(&lock->lock, env);
    atomic_fetch_add_explicit(&lock->guests, 1, memory_order_seq_cst);
    settle(lock, env, self, claim);
    for (int turn = 0; atomic_load_explicit(&lock->inside, memory_order_acquire); turn++)
        env->relax(env, turn >= INSIDE_TURNS);
    lock->guest = 1;
    count_visit(lock, env, self);
}

void base_home_unlock_guest(struct base_home_lock *lock, const struct comm_env *env)
{
    atomic_fetch_sub_explicit(&lock->guests, 1, memory_order_release);
    base_unlock(&lock->lock, env);
}
