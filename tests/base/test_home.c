/* The lock with a home: one thread at home, several guests, exactly one of them inside at any time; too many guests make it ordinary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/home.h"
#include "group.h"
#include "selection.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct comm_env env_posix;
static const struct comm_env *const env = &env_posix;

enum { ROUNDS = 300000, GUESTS = 3 };

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
    for (uint32_t i = 0, rounds = selected(4000, 4000, 1000); i < rounds; i++) {
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

/* ------------------------------------------------------------------------------------------------------------ a barrier that fails */
/* From now on membarrier(2) answers EPERM here. */
static bool refuse_barriers(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

enum { NO_FILTER = 3, WENT_ON = 4, ANSWERED_FALSE = 5 };

static void *visit(void *arg)
{
    (void)arg;
    base_home_visit(&shared.lock, env); /* needs the barrier: somebody else is at home */
    base_home_unlock(&shared.lock, env);
    return NULL;
}

static void visit_beside_home(void)
{
    pthread_t thread;

    start();
    base_home_lock(&shared.lock, env);
    base_home_unlock(&shared.lock, env);
    if (!refuse_barriers())
        _exit(NO_FILTER);
    if (pthread_create(&thread, NULL, visit, NULL) == 0)
        pthread_join(thread, NULL);
    _exit(WENT_ON);
}

static void ask_for_a_barrier(void)
{
    if (!refuse_barriers())
        _exit(NO_FILTER);
    _exit(env->barrier(env) ? WENT_ON : ANSWERED_FALSE);
}

/* How a process ended that did that, and the first bytes of its standard error. */
static int ending(void (*deed)(void), char *text, size_t room)
{
    int ends[2], status = 0;
    size_t at = 0;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        deed();
    }
    close(ends[1]);
    for (ssize_t got; at + 1 < room && (got = read(ends[0], text + at, room - 1 - at)) > 0;)
        at += (size_t)got;
    text[at] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTER)
        group_skip("this kernel takes no seccomp filter");
    return status;
}

/* A seccomp filter that is installed after the start takes the barrier away, on which the home thread's fence-free acceptor relies. */
static void barrier_that_fails_ends_the_process(void **state)
{
    static void (*const deeds[])(void) = {visit_beside_home, ask_for_a_barrier};
    char text[1024];

    (void)state;
    if (!env->barrier(env))
        group_skip("there is no membarrier here, so nothing relies on one");
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        int status = ending(deeds[i], text, sizeof text);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("deed %zu: exit status %d, signal %d: %s", i, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                     WIFSIGNALED(status) ? WTERMSIG(status) : 0, text);
        assert_non_null(strstr(text, "membarrier(2) fails with errno 1"));
        assert_non_null(strstr(text, "seccomp"));
    }
}

/* One that was refused from the beginning is not there: the lock is an ordinary one. */
static void use_without_barrier(void)
{
    pthread_t thread;

    if (!refuse_barriers())
        _exit(NO_FILTER);
    if (env->start(env) || env->barrier(env))
        _exit(WENT_ON);
    start();
    base_home_lock(&shared.lock, env);
    base_home_unlock(&shared.lock, env);
    bool ordinary = atomic_load(&shared.lock.home) == BASE_HOME_NEVER && pthread_create(&thread, NULL, visit, NULL) == 0 &&
                    pthread_join(thread, NULL) == 0;
    _exit(ordinary ? 0 : ANSWERED_FALSE);
}

static void barrier_refused_from_the_start_is_none(void **state)
{
    char text[1024];

    (void)state;
    int status = ending(use_without_barrier, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest before[] = {cmocka_unit_test(barrier_refused_from_the_start_is_none)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_inside),
        cmocka_unit_test(nobody_gets_in_beside_the_home_thread),
        cmocka_unit_test(barrier_that_fails_ends_the_process),
    };
    int failed = cmocka_run_group_tests_name("base_home_before_the_start", before, NULL, NULL);

    if (env->start(env))
        return 1;
    return failed + cmocka_run_group_tests_name("base_home", tests, NULL, NULL);
}
