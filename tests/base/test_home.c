/* The lock with a home: one thread at home, several guests, exactly one of them inside at any time; too many guests make it ordinary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/home.h"

extern const struct comm_env env_posix;
static const struct comm_env *const env = &env_posix;

enum { ROUNDS = 300000, GUEST_ROUNDS = 4000, GUESTS = 3 };

static struct {
    struct base_home_lock lock;
    long count;                 /* plain: only the lock keeps it whole */
    _Atomic int inside, broken; /* more than one inside at once */
    _Atomic int ready;
} shared;

static void work(void)
{
    if (atomic_fetch_add(&shared.inside, 1) != 0)
        atomic_store(&shared.broken, 1);
    shared.count++;
    atomic_fetch_sub(&shared.inside, 1);
}

static void *guest(void *arg)
{
    long mine = 0;

    while (!atomic_load(&shared.ready))
        env->relax(env, true);
    for (int i = 0; i < GUEST_ROUNDS; i++) {
        if (i % 3 == 0) {
            base_home_visit(&shared.lock, env);
        } else if (!base_home_trylock(&shared.lock, env)) {
            continue;
        }
        work();
        mine++;
        base_home_unlock(&shared.lock, env);
        if (arg) /* seldom: the home thread must stay at home */
            env->relax(env, true);
    }
    return (void *)(intptr_t)mine;
}

static void start(void)
{
    shared.lock = (struct base_home_lock){0};
    shared.count = 0;
    atomic_store(&shared.ready, 0);
    atomic_store(&shared.broken, 0);
}

static long run(int rounds, int guests)
{
    pthread_t thread[GUESTS];
    long expected = 0;

    for (int g = 0; g < guests; g++)
        assert_int_equal(pthread_create(&thread[g], NULL, guest, (void *)(intptr_t)1), 0);
    base_home_lock(&shared.lock, env);
    base_home_unlock(&shared.lock, env);
    atomic_store(&shared.ready, 1);
    for (int i = 0; i < rounds; i++) {
        base_home_lock(&shared.lock, env);
        work();
        base_home_unlock(&shared.lock, env);
    }
    expected = rounds;
    for (int g = 0; g < guests; g++) {
        void *mine;
        assert_int_equal(pthread_join(thread[g], &mine), 0);
        expected += (long)(intptr_t)mine;
    }
    return expected;
}

static void one_is_inside(void **state)
{
    (void)state;
    start();
    long expected = run(ROUNDS, GUESTS);
    assert_int_equal(shared.count, expected);
    assert_false(atomic_load(&shared.broken));
    assert_int_equal(atomic_load(&shared.lock.inside), 0);
    assert_int_equal(atomic_load(&shared.lock.guests), 0);
}

static void nobody_gets_in_beside_the_home_thread(void **state)
{
    pthread_t thread;
    void *mine;

    (void)state;
    start();
    base_home_lock(&shared.lock, env);
    assert_false(base_home_trylock(&shared.lock, env));
    base_home_unlock(&shared.lock, env);
    assert_true(base_home_trylock(&shared.lock, env));
    base_home_unlock(&shared.lock, env);
    assert_int_equal(pthread_create(&thread, NULL, guest, NULL), 0);
    atomic_store(&shared.ready, 1);
    assert_int_equal(pthread_join(thread, &mine), 0);
    assert_int_equal(shared.count, (long)(intptr_t)mine);
    assert_true(atomic_load(&shared.lock.home) == BASE_HOME_NEVER); /* only guests came: it is an ordinary lock now */
    base_home_lock(&shared.lock, env);
    base_home_unlock(&shared.lock, env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_inside),
        cmocka_unit_test(nobody_gets_in_beside_the_home_thread),
    };

    if (env->start(env))
        return 1;
    return cmocka_run_group_tests_name("base_home", tests, NULL, NULL);
}
