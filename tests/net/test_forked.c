/* A child that is forked while ranks meet keeps none of their sockets: it would hide the end of its parent from the others, and its copy of
 * the listener would hold the port. Nor does it keep what the parent's monitor sleeps on: its copies would wake the monitor even when the
 * parent has closed its own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/guest.h"
#include "net/pair.h"

#include "net/auth/crypto.h"
#include "wire/table.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HERE = 2, OF_A_WORLD = 3, DESCRIPTORS = 200, LATER = 40, PATIENCE_MS = 10000 };

/* By names, since a sanitizer takes fstat for an access to what another thread is about to open. Takes no lock, for a forked child. */
static int sockets(void)
{
    struct stat about;
    char name[32];
    int count = 0;

    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        count += stat(name, &about) == 0 && S_ISSOCK(about.st_mode);
    }
    return count;
}

static int sockets_of_child(void)
{
    int status;
    pid_t child = fork();

    if (!child)
        _exit(sockets());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void *meet(void *arg)
{
    guest_meet(arg, HERE);
    return NULL;
}

/* Descriptors that have the numbers of sockets that are closed by now are kept. */
static void keeps_others(void)
{
    int before = sockets(), fd[LATER];

    for (int i = 0; i < LATER; i++)
        fd[i] = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(sockets_of_child(), before + LATER);
    for (int i = 0; i < LATER; i++)
        close(fd[i]);
}

/* Two ranks of three wait for the last one: rank 0's listeners, and both ends of a connection. */
static void meeting(const char *secret)
{
    char address[64];
    struct guest g[HERE];
    pthread_t thread;
    int before = sockets();

    guest_pair(g, guest_free_address(AF_INET, address));
    for (int i = 0; i < HERE; i++) {
        g[i].ranks = OF_A_WORLD;
        g[i].patience = 2 * SECOND;
        g[i].secret = secret;
    }
    assert_int_equal(wire_default_env()->start(wire_default_env()), 0);
    assert_int_equal(pthread_create(&thread, NULL, meet, g), 0);
    for (int ms = 0; ms < PATIENCE_MS && sockets() < before + 4; ms++)
        guest_nap(SECOND / 1000);
    assert_true(sockets() >= before + 4);
    guest_nap(SECOND / 50); /* for the last of them to be known as the library's own */
    assert_int_equal(sockets_of_child(), before);
    pthread_join(thread, NULL);
    guest_expect(&g[0], COMM_ERR_TIMEOUT, "missing: 2");
    assert_int_equal(sockets(), before);
    keeps_others();
}

static void without_a_secret(void **state)
{
    (void)state;
    meeting(NULL);
}

static void with_a_secret(void **state)
{
    (void)state;
    if (crypto_missing())
        group_skip("%s", crypto_missing());
    meeting("0123456789abcdef");
}

static void of_an_open_wire(void **state)
{
    int status, kept = 0;
    struct pair p;

    (void)state;
    assert_int_equal(wire_default_env()->start(wire_default_env()), 0);
    pair_open(&p, 16, NULL);
    const int fd[] = {p.wire->poller->fd, p.wire->monitor.deaths, p.wire->burst.timer};
    pid_t child = fork();
    if (!child) {
        for (size_t i = 0; i < sizeof fd / sizeof *fd; i++)
            kept += fcntl(fd[i], F_GETFD) >= 0;
        _exit(kept);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pair_close(&p);
    keeps_others();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_secret),
        cmocka_unit_test(with_a_secret),
        cmocka_unit_test(of_an_open_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
