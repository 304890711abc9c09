/* The bells of the Linux environment: they ring, wake sleepers, end their waits in time, and watch other descriptors. */
#define _GNU_SOURCE
#include "base/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/child.h"
#include "net/posix/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/select.h>
#include <unistd.h>

static const struct comm_env *const env = &env_posix;
enum { MS = 1000000 };

static int readable(int fd)
{
    fd_set set;
    struct timeval none = {0, 0};

    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, &none);
}

void bell_rings(void **state)
{
    struct env_bell bell;

    (void)state;
    assert_int_equal(env->bell_open(env, &bell), 0);
    assert_true(fcntl(bell.ring_fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(bell.wait_fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(readable(bell.wait_fd), 0);
    assert_false(env->bell_clear(env, &bell)); /* of a silent bell: does not block */
    env->bell_ring(env, &bell);
    env->bell_ring(env, &bell);
    assert_int_equal(readable(bell.wait_fd), 1);
    env->bell_wait(env, &bell, ENV_FOREVER);
    assert_int_equal(readable(bell.wait_fd), 1);
    assert_true(env->bell_clear(env, &bell));
    assert_int_equal(readable(bell.wait_fd), 0);
    env->bell_close(env, &bell);
    assert_int_equal(bell.wait_fd, -1);
    assert_int_equal(bell.ring_fd, -1);
}

void bell_waits_until_its_deadline(void **state)
{
    struct env_bell bell;

    (void)state;
    assert_int_equal(env->bell_open(env, &bell), 0);
    int64_t deadline = env->now(env) + 20 * MS + 300000;
    env->bell_wait(env, &bell, 0);
    assert_true(env->now(env) < deadline);
    while (env->now(env) < deadline)
        env->bell_wait(env, &bell, deadline);
    assert_true(env->now(env) - deadline < 500 * MS);
    env->bell_close(env, &bell);
}

static void ring_later(void *arg)
{
    env->bell_wait(env, &(struct env_bell){-1, ((int *)arg)[0]}, env->now(env) + 10 * MS);
    env->bell_ring(env, &(struct env_bell){((int *)arg)[1], -1});
}

void bell_wakes_a_sleeper(void **state)
{
    struct env_bell bell, timer;
    struct env_thread thread;

    (void)state;
    assert_int_equal(env->bell_open(env, &bell), 0);
    assert_int_equal(env->bell_open(env, &timer), 0);
    int fds[2] = {timer.wait_fd, bell.ring_fd};
    assert_int_equal(env->spawn(env, ring_later, fds, &thread), 0);
    while (!readable(bell.wait_fd))
        env->bell_wait(env, &bell, ENV_FOREVER);
    assert_true(env->join(env, &thread, ENV_FOREVER));
    env->bell_close(env, &bell);
    env->bell_close(env, &timer);
}

void bell_watches_descriptors(void **state)
{
    struct env_bell bell;
    int ends[2];
    char byte = 1;

    (void)state;
    assert_int_equal(env->bell_open(env, &bell), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(env->bell_watch(env, &bell, ends[0]), 0);
    assert_int_equal(env->bell_watch(env, &bell, ends[0]), EEXIST);
    assert_int_equal(env->bell_watch(env, &bell, -1), EBADF);
    assert_int_equal(readable(bell.wait_fd), 0);
    assert_int_equal(write(ends[1], &byte, 1), 1);
    env->bell_wait(env, &bell, ENV_FOREVER);
    assert_int_equal(readable(bell.wait_fd), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(readable(bell.wait_fd), 0);
    close(ends[0]);
    close(ends[1]);
    env->bell_close(env, &bell);
}

void bell_says_why_it_cannot_open(void **state)
{
    struct env_bell bell;

    (void)state;
    pid_t child = fork();
    if (child == 0) {
        while (open("/dev/null", O_RDONLY) >= 0)
            ;
        int first = env->bell_open(env, &bell);
        close(3); /* one descriptor is free: the second of the bell fails, the first is given back */
        int second = env->bell_open(env, &bell), again = open("/dev/null", O_RDONLY);
        _exit(first == EMFILE && second == EMFILE && again == 3 && bell.ring_fd == -1 && bell.wait_fd == -1 ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
}
