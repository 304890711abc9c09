/*
 * Another user of this machine, when ranks meet at a loopback address without a secret. The other user must not take a rank's place, must
 * not be mistaken for rank 0 or for a rank's listener, and must not receive what ranks send each other while they meet. Both sides are told
 * whose process it was. Needs root, which can become another user; otherwise the test is skipped.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/guest.h"

#include "base/hash.h"
#include "net/boot/star.h"
#include "net/posix/user.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER = 54321, BELATED = 10000 };

/* Shared by both processes. */
static struct scene {
    struct guest guest[2];
    char address[80];
    _Atomic bool ready, over;
    _Atomic int heard; /* bytes that reached the other user */
    struct frame answer;
    char text[BOOT_TEXT];
} * scene;

static int prepare(void **state)
{
    (void)state;
    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return scene == MAP_FAILED;
}

static void set_scene(const char *address)
{
    memset(scene, 0, sizeof *scene);
    snprintf(scene->address, sizeof scene->address, "%s", address);
    guest_pair(scene->guest, scene->address);
}

static void await(const _Atomic bool *what)
{
    for (int i = 0; !*what && i < BELATED; i++)
        guest_nap(SECOND / 1000);
    assert_true(*what);
}

/* Runs `deed` as another user, in a process of its own. */
static pid_t as_another(void (*deed)(void), uid_t uid)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid)
        return pid;
    if (setgid(uid) || setuid(uid))
        _exit(2);
    deed();
    _exit(0);
}

static void ended_well(pid_t pid)
{
    int status = -1;

    scene->over = true;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static socklen_t name_of(const char *address, struct sockaddr_un *name)
{
    const char *colon = strrchr(address, ':'), *host = address + (*address == '[');

    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "commstream/tcp/%.*s/%s", (int)(colon - host) - (*address == '['), host,
                     colon + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* ------------------------------------------------------------------------------------------------------------ a rank's place */
static void open_as_rank_1(void)
{
    guest_meet(&scene->guest[1], 1);
}

/* Like the library, but without checking the listener's user. */
static void greet_as_rank_1(void)
{
    struct greeting g = {.magic = BOOT_MAGIC, .version = BOOT_VERSION, .rank = 1, .ranks = 2};
    struct sockaddr_un name;
    socklen_t length = name_of(scene->address, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), i = 0;

    while (connect(fd, (struct sockaddr *)&name, length) && i++ < BELATED)
        guest_nap(SECOND / 1000);
    for (const char *at = "j"; *at; at++)
        g.job = base_hash(g.job, (unsigned char)*at);
    (void)!send(fd, &g, sizeof g, MSG_NOSIGNAL); /* it may have been refused already */
    if (recv(fd, &scene->answer, sizeof scene->answer, MSG_WAITALL) == (ssize_t)sizeof scene->answer &&
        scene->answer.bytes < sizeof scene->text)
        (void)!recv(fd, scene->text, scene->answer.bytes, MSG_WAITALL);
    close(fd);
}

/* Over TCP, at the address itself. */
static void dial_as_rank_1(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_port = htons((uint16_t)strtoul(strrchr(scene->address, ':') + 1, NULL, 10));
    for (int i = 0; !scene->heard && !scene->over && i < BELATED; i++, guest_nap(SECOND / 1000))
        scene->heard += connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
}

static void seat_at(const char *address)
{
    set_scene(address);
    scene->guest[0].patience = SECOND;
    pid_t pid = as_another(open_as_rank_1, OTHER);
    guest_meet(scene->guest, 1);
    ended_well(pid);
    guest_expect(&scene->guest[1], COMM_ERR_AUTH, "it is uid 0's; expected uid 54321");
    guest_expect(&scene->guest[0], COMM_ERR_TIMEOUT, "missing: 1");

    set_scene(address);
    scene->guest[0].patience = SECOND;
    pid = as_another(greet_as_rank_1, OTHER);
    guest_meet(scene->guest, 1);
    ended_well(pid);
    guest_expect(&scene->guest[0], COMM_ERR_TIMEOUT, "it is uid 54321's; expected uid 0");
    assert_int_equal(scene->answer.kind, FRAME_REFUSED);
    assert_int_equal(scene->answer.result, COMM_ERR_AUTH);
    assert_non_null(strstr(scene->text, "it is uid 54321's; expected uid 0"));
}

static void takes_no_seat(void **state)
{
    char address[64], named[80];

    (void)state;
    seat_at(guest_free_address(AF_INET, address));
    if (guest_free_address(AF_INET6, address))
        seat_at(address);
    else
        group_skip_part("no IPv6 loopback here");
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = SECOND;
    pid_t pid = as_another(dial_as_rank_1, OTHER);
    guest_meet(scene->guest, 1);
    ended_well(pid);
    assert_int_equal(scene->heard, 0); /* nobody listens there */
    snprintf(named, sizeof named, "localhost%s", strchr(guest_free_address(AF_INET, address), ':'));
    set_scene(named);
    scene->guest[0].patience = SECOND;
    pid = as_another(open_as_rank_1, OTHER);
    guest_meet(scene->guest, 1);
    ended_well(pid);
    guest_expect(&scene->guest[1], COMM_ERR_AUTH, "it is uid 0's; expected uid 54321");
}

/* Ranks of one user meet in spite of the other user. */
static void keeps_nobody_out(void **state)
{
    char address[64];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = scene->guest[1].patience = 10 * SECOND;
    scene->guest[1].late = SECOND / 2;
    pid_t pid = as_another(greet_as_rank_1, OTHER);
    guest_meet(scene->guest, 2);
    ended_well(pid);
    for (int i = 0; i < 2; i++)
        assert_true(scene->guest[i].result == COMM_OK && scene->guest[i].exchanged);
    assert_int_equal(scene->answer.kind, FRAME_REFUSED);
}

/* ------------------------------------------------------------------------------------------------------------ rank 0 */
static void open_as_rank_0(void)
{
    guest_meet(scene->guest, 1);
}

/* Listens at the name and at the port, and counts what arrives. */
static void listen_in_its_place(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un name;
    socklen_t length = name_of(scene->address, &name);
    int fd[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_STREAM, 0)};
    char byte;

    at.sin_port = htons((uint16_t)strtoul(strrchr(scene->address, ':') + 1, NULL, 10));
    if (bind(fd[0], (struct sockaddr *)&at, sizeof at) || listen(fd[0], 8) || bind(fd[1], (struct sockaddr *)&name, length) ||
        listen(fd[1], 8))
        _exit(3);
    for (int i = 0; i < 2; i++)
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
    scene->ready = true;
    while (!scene->over)
        for (int i = 0; i < 2; i++) {
            int come = accept(fd[i], NULL, NULL);
            if (come >= 0 && recv(come, &byte, 1, 0) == 1)
                scene->heard++;
            guest_nap(SECOND / 1000);
        }
}

/* Takes only the name; rank 0 has its port. */
static void squat(void)
{
    struct sockaddr_un name;
    socklen_t length = name_of(scene->address, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&name, length) || listen(fd, 8))
        _exit(3);
    scene->ready = true;
    while (!scene->over)
        guest_nap(SECOND / 1000);
}

static void is_not_rank_0(void **state)
{
    char address[64];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = 2 * SECOND;
    pid_t pid = as_another(open_as_rank_0, OTHER);
    guest_meet(&scene->guest[1], 1);
    ended_well(pid);
    guest_expect(&scene->guest[1], COMM_ERR_AUTH, "it is uid 54321's; expected uid 0");

    set_scene(guest_free_address(AF_INET, address));
    pid = as_another(listen_in_its_place, OTHER);
    await(&scene->ready);
    guest_meet(&scene->guest[1], 1);
    ended_well(pid);
    guest_expect(&scene->guest[1], COMM_ERR_AUTH, "what listens for 127.0.0.1 port");
    assert_int_equal(scene->heard, 0); /* not a byte was sent to the other user */
}

static void squats_and_is_named(void **state)
{
    char address[64];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    pid_t pid = as_another(squat, OTHER);
    await(&scene->ready);
    guest_meet(scene->guest, 1);
    ended_well(pid);
    guest_expect(&scene->guest[0], COMM_ERR_AUTH, "it is uid 54321's; expected uid 0");
}

/* With a secret, a squatter on the name cannot keep ranks from meeting. */
static void a_secret_needs_no_name(void **state)
{
    char address[64];

    (void)state;
    if (crypto_missing())
        group_skip("%s", crypto_missing());
    set_scene(guest_free_address(AF_INET, address));
    for (int i = 0; i < 2; i++) {
        scene->guest[i].secret = "0123456789abcdef0123456789abcdef";
        scene->guest[i].patience = 10 * SECOND;
    }
    scene->guest[0].late = SECOND / 5;
    pid_t pid = as_another(squat, OTHER);
    await(&scene->ready);
    guest_meet(scene->guest, 2);
    ended_well(pid);
    for (int i = 0; i < 2; i++)
        assert_true(scene->guest[i].result == COMM_OK && scene->guest[i].exchanged);
}

/* ------------------------------------------------------------------------------------------------------------ namespaces */
static void open_elsewhere(void)
{
    if (unshare(CLONE_NEWNET))
        _exit(4);
    guest_meet(&scene->guest[1], 1);
}

/* Loopback and abstract names belong to a network namespace. */
static void another_network(void **state)
{
    char address[64];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = scene->guest[1].patience = SECOND / 2;
    pid_t pid = as_another(open_elsewhere, 0);
    guest_meet(scene->guest, 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        group_skip("no network namespaces here");
    guest_expect(&scene->guest[1], COMM_ERR_TIMEOUT, "rank 0 did not come in time");
    guest_expect(&scene->guest[0], COMM_ERR_TIMEOUT, "missing: 1");
}

/* Both processes are shown as 65534, like every user without a number in their user namespace. */
static void open_unmapped(void)
{
    if (unshare(CLONE_NEWUSER))
        _exit(errno == ENOSYS || errno == EPERM || errno == ENOSPC || errno == EINVAL ? 4 : 5);
    if (geteuid() != 65534)
        _exit(6);
    guest_meet(scene->guest, 2);
}

static void users_without_numbers(void **state)
{
    char address[64];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = scene->guest[1].patience = SECOND;
    pid_t pid = as_another(open_unmapped, OTHER);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 4)
        group_skip("no user namespace can be made here by an ordinary user");
    assert_int_equal(status, 0);
    guest_expect(&scene->guest[1], COMM_ERR_AUTH, "it is shown as uid 65534");
    guest_expect(&scene->guest[0], COMM_ERR_TIMEOUT, "missing: 1");
}

/* In the initial user namespace 65534 is one user, so ranks of nobody meet like those of any user. */
static void open_as_nobody(void)
{
    guest_meet(scene->guest, 2);
}

static void nobody_is_a_user(void **state)
{
    char address[64], why[USER_WHY];

    (void)state;
    set_scene(guest_free_address(AF_INET, address));
    scene->guest[0].patience = scene->guest[1].patience = 10 * SECOND;
    ended_well(as_another(open_as_nobody, 65534));
    for (int i = 0; i < 2; i++)
        if (scene->guest[i].result != COMM_OK)
            fail_msg("rank %d: %s", i, scene->guest[i].text);
    assert_true(user_is_same(0, 0, 65534, false, why) && user_is_same(1000, 1000, 65534, false, why));
    assert_true(user_is_same(65534, 65534, 65534, true, why));
    assert_false(user_is_same(65534, 65534, 65534, false, why));
    assert_false(user_is_same(65534, 1000, 65534, false, why));
    assert_string_equal(why, "it is uid 65534's; expected uid 1000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_no_seat),         cmocka_unit_test(keeps_nobody_out),       cmocka_unit_test(is_not_rank_0),
        cmocka_unit_test(squats_and_is_named),   cmocka_unit_test(a_secret_needs_no_name), cmocka_unit_test(another_network),
        cmocka_unit_test(users_without_numbers), cmocka_unit_test(nobody_is_a_user),
    };
    if (geteuid()) {
        printf("skipped: only root can become another user\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, prepare, NULL);
}
