/* The lock is not fair, and yet nobody starves on it: against a holder who leaves it and has it again before any waiter has found a CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/lock.h"

extern const struct comm_env env_posix;

enum { MS = 1000000, GIVES_UP = 1000, THREADS = 3, ROUNDS = 20000 };

/* ------------------------------------------------------------------------------------------------------------ a greedy holder */
static struct {
    struct base_lock lock;
    int64_t now;
    int parks, relaxes; /* of the waiter */
    int missed;         /* how often the holder found it kept */
    bool yields_long, holds;
} play;

static const struct comm_env *mock_env(void);

static int64_t play_now(const struct comm_env *env)
{
    (void)env;
    return play.now;
}

static void again(void)
{
    base_unlock(&play.lock, mock_env());
    if (play.parks < GIVES_UP && play.holds)
        play.holds = base_trylock(&play.lock);
    play.missed += !play.holds;
}

static void play_relax(const struct comm_env *env, bool yield)
{
    (void)env;
    play.relaxes++;
    if (yield && play.yields_long)
        play.now += MS;
}

/* While the waiter sleeps, a millisecond, the holder leaves and comes back. */
static void play_park(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    (void)env;
    (void)deadline;
    play.parks++;
    if (atomic_load(word) != seen)
        return;
    play.now += MS;
    if (play.holds)
        again();
}

static void play_wake(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count)
{
    (void)env;
    (void)word;
    (void)count;
}

static const struct comm_env *mock_env(void)
{
    static const struct comm_env env = {.now = play_now, .relax = play_relax, .park = play_park, .wake = play_wake};
    return &env;
}

static void waits_in_vain_for_a_moment_only(void **state)
{
    (void)state;
    play.lock = (struct base_lock){0};
    play.now = MS;
    play.parks = play.relaxes = play.missed = 0;
    play.yields_long = false;
    play.holds = true;
    base_lock(&play.lock, mock_env());
    base_lock(&play.lock, mock_env()); /* the waiter's; the holder lives in its sleep */
    assert_int_equal(play.missed, 1);
    assert_in_range(play.parks, 1, 4);
    assert_false(base_trylock(&play.lock));
    base_unlock(&play.lock, mock_env());
    assert_true(base_trylock(&play.lock)); /* free for all again */
    base_unlock(&play.lock, mock_env());
    assert_int_equal(atomic_load(&play.lock.waiters), 0);
}

/* Each yield lasts as long as a stranger computes: a few of them, not dozens. */
static void does_not_yield_to_strangers(void **state)
{
    (void)state;
    play.lock = (struct base_lock){0};
    play.now = MS;
    play.parks = play.relaxes = play.missed = 0;
    play.yields_long = true;
    play.holds = true;
    base_lock(&play.lock, mock_env());
    base_lock(&play.lock, mock_env());
    assert_in_range(play.now, 0, 8 * MS);
    base_unlock(&play.lock, mock_env());
}

/* ------------------------------------------------------------------------------------------------------------ in earnest */
static struct {
    struct base_lock lock;
    long count; /* plain: only the lock keeps it whole */
} shared;

static int64_t ahead(const struct comm_env *env)
{
    static _Thread_local int64_t late;

    late += 2 * MS; /* so everybody who waits has starved at once */
    return env_posix.now(env) + late;
}

static void nap(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    (void)deadline;
    env_posix.park(env, word, seen, env_posix.now(env) + MS);
}

static void *counts(void *arg)
{
    const struct comm_env *env = arg;

    for (int i = 0; i < ROUNDS; i++) {
        base_lock(&shared.lock, env);
        shared.count++;
        base_unlock(&shared.lock, env);
    }
    return NULL;
}

static void is_whole_where_everybody_starves(void **state)
{
    struct comm_env env = env_posix;
    pthread_t thread[THREADS];

    (void)state;
    env.now = ahead;
    env.park = nap;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, counts, &env), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(shared.count, (long)THREADS * ROUNDS);
    assert_int_equal(atomic_load(&shared.lock.waiters), 0);
    assert_int_equal(atomic_load(&shared.lock.word), LOCK_FREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_in_vain_for_a_moment_only),
        cmocka_unit_test(does_not_yield_to_strangers),
        cmocka_unit_test(is_whole_where_everybody_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
