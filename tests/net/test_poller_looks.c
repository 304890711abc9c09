/* What a poller finds by looking, again and again, at the sockets that somebody waits for: the same tests for each kind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/poller_rig.h"
#include "wire/table.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Receives one byte by looks at this socket alone. */
static void found_by_trying(struct rig *r, uint32_t socket, struct iovec *vector)
{
    struct poller_event event[4];
    uint32_t n = 0;

    assert_int_equal(write(r->fd[socket - 1], "x", 1), 1);
    int64_t got = start(r, socket, POLLER_RECEIVE, vector, 1);
    for (int look = 0; got == -EINPROGRESS && look < 100000; look++) {
        n = r->p->class->reap(r->p, event, 4, &socket, 1);
        got = n ? event[0].result : got;
    }
    assert_int_equal(got, 1);
}

/* A socket that was found by attempts hundreds of times in a row must still wake a sleeper, and still report room for sends. When nobody
 * tries it any more, a look at all sockets must find it. */
static void tried_for_long(const struct poller_class *class)
{
    static char much[BIG];
    struct rig r;
    char in[8];
    struct iovec vector = {in, 8}, big = {much, BIG};
    struct poller_event event[4];

    rig_up(&r, class);
    for (int i = 0; i < 300; i++)
        found_by_trying(&r, 5, &vector);
    assert_int_equal(start(&r, 5, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
    class->arm(r.p, true);
    while (class->reap(r.p, event, 4, NULL, 0))
        continue;
    struct pollfd wait = {.fd = r.p->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20), 0);
    assert_int_equal(write(r.fd[4], "x", 1), 1);
    int woken = 0;
    for (int i = 0; i < 100 && !woken; i++)
        woken = poll(&wait, 1, 1000) == 1;
    assert_true(woken);
    class->arm(r.p, false);
    assert_int_equal(await(&r, 5, POLLER_RECEIVE, -EINPROGRESS), 1);

    for (int i = 0; i < 300; i++)
        found_by_trying(&r, 5, &vector);
    assert_int_equal(start(&r, 5, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
    assert_int_equal(write(r.fd[4], "x", 1), 1);
    assert_int_equal(await(&r, 5, POLLER_RECEIVE, -EINPROGRESS), 1);

    int64_t sent = await(&r, 5, POLLER_SEND, start(&r, 5, POLLER_SEND, &big, 1));
    assert_true(sent > 0 && sent < BIG);
    sent = start(&r, 5, POLLER_SEND, &big, 1);
    assert_int_equal(sent, -EINPROGRESS);
    while (recv(r.fd[4], much, BIG, MSG_DONTWAIT) > 0)
        continue;
    assert_true(await(&r, 5, POLLER_SEND, sent) > 0);
    for (int i = 0; i < 70; i++) /* looks at a silent socket, until it is watched again */
        class->reap(r.p, event, 4, NULL, 0);
    rig_down(&r);
}

static void hot_ones(const struct poller_class *class)
{
    struct rig r;
    char in[2][8];
    struct iovec vector[2] = {{in[0], 8}, {in[1], 8}};
    struct poller_event event[4];
    uint32_t hot = 9, seen[2 * PAIRS] = {0};

    rig_up(&r, class);
    assert_int_equal(start(&r, 9, POLLER_RECEIVE, &vector[0], 1), -EINPROGRESS);
    assert_int_equal(start(&r, 11, POLLER_RECEIVE, &vector[1], 1), -EINPROGRESS);
    assert_int_equal(write(r.fd[10], "cold", 4), 4);
    assert_int_equal(write(r.fd[8], "hot", 3), 3);
    for (int turn = 0; turn < 100000 && !(seen[9] && seen[11]); turn++) { /* the other sockets are not forgotten */
        uint32_t n = class->reap(r.p, event, 4, &hot, 1);
        for (uint32_t i = 0; i < n; i++)
            seen[event[i].socket]++;
    }
    assert_true(seen[9] == 1 && seen[11] == 1);
    rig_down(&r);
}

/* One attempt on socket 9; if it is busy, reap with that socket hot. Returns the attempt's result. */
static int64_t attempt(struct rig *r, uint32_t seen[])
{
    struct poller_event event[4];
    uint32_t hot = 9;
    int64_t got = r->p->class->attempt(r->p, 9);
    uint32_t n = got == -EBUSY ? r->p->class->reap(r->p, event, 4, &hot, 1) : 0;

    for (uint32_t i = 0; i < n; i++)
        seen[event[i].socket]++;
    return got;
}

/* A waiter takes what arrives again and again without starting anew. reap is required now and then, so that others are not forgotten. A
 * sleeper is woken. */
static void attempted(const struct poller_class *class)
{
    struct rig r;
    char in[2][8];
    struct iovec vector[2] = {{in[0], 8}, {in[1], 8}};
    uint32_t seen[2 * PAIRS] = {0}, came = 0;

    rig_up(&r, class);
    assert_int_equal(start(&r, 9, POLLER_RECEIVE, &vector[0], 1), -EINPROGRESS);
    assert_int_equal(start(&r, 11, POLLER_RECEIVE, &vector[1], 1), -EINPROGRESS);
    for (int round = 0; round < 200; round++) {
        assert_int_equal(write(r.fd[8], "again", 5), 5);
        for (int turn = 0; turn < 1000 && !(came + seen[9] > (uint32_t)round); turn++)
            if (attempt(&r, seen) == 5)
                came++;
        assert_int_equal(came + seen[9], round + 1);
        if (seen[9]) { /* reap found it, so it is not in progress any more */
            came += seen[9];
            seen[9] = 0;
            assert_int_equal(start(&r, 9, POLLER_RECEIVE, &vector[0], 1), -EINPROGRESS);
        }
        assert_memory_equal(in[0], "again", 5);
    }
    assert_true(came == 200 && attempt(&r, seen) != 5);
    assert_int_equal(write(r.fd[10], "cold", 4), 4);
    for (int turn = 0; turn < 1000 && !seen[11]; turn++)
        attempt(&r, seen);
    assert_int_equal(seen[11], 1);

    class->arm(r.p, true);
    struct poller_event event[4];
    while (class->reap(r.p, event, 4, NULL, 0))
        continue;
    assert_int_equal(write(r.fd[8], "x", 1), 1);
    struct pollfd wait = {.fd = r.p->fd, .events = POLLIN};
    int woken = 0;
    for (int i = 0; i < 100 && !woken; i++)
        woken = poll(&wait, 1, 1000) == 1;
    assert_true(woken);
    class->arm(r.p, false);
    assert_int_equal(await(&r, 9, POLLER_RECEIVE, -EINPROGRESS), 1);
    rig_down(&r);
}

/* The kernel lists which descriptors an epoll instance watches. */
static bool is_watched(const struct rig *r, int fd)
{
    char path[64], line[256];
    bool found = false;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", r->p->fd);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    for (int watched = -1; fgets(line, sizeof line, file);)
        found |= sscanf(line, "tfd: %d", &watched) == 1 && watched == fd;
    fclose(file);
    return found;
}

/* Receives on socket 9 at most `most` times, or until it is not watched. Returns how often. */
static int find(struct rig *r, const struct iovec *vector, int most, bool until_unwatched)
{
    uint32_t seen[2 * PAIRS] = {0};
    int times = 0;

    for (; times < most && !(until_unwatched && !is_watched(r, r->fd[9])); times++) {
        bool came = false;
        assert_int_equal(write(r->fd[8], "again", 5), 5);
        for (int turn = 0; turn < 1000 && !came && !seen[9]; turn++)
            came = attempt(r, seen) == 5;
        assert_true(came || seen[9] == 1);
        if (seen[9])
            assert_int_equal(start(r, 9, POLLER_RECEIVE, vector, 1), -EINPROGRESS);
        seen[9] = 0;
    }
    return times;
}

static void sleep_and_wake(struct rig *r)
{
    r->p->class->arm(r->p, true);
    assert_true(is_watched(r, r->fd[9]));
    r->p->class->arm(r->p, false);
}

/* A socket that is found again and again is no longer watched. After a sleep this takes longer, unless it paid. */
static void unwatched_where_it_pays(void **state)
{
    enum { FIRST = 32, PAID = 256, SLACK = 8 /* found while all sockets were looked at */ };
    struct rig r;
    char in[8];
    struct iovec vector = {in, 8};

    (void)state;
    rig_up(&r, &poller_epoll);
    assert_int_equal(start(&r, 9, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
    assert_in_range(find(&r, &vector, PAID, true), FIRST, FIRST + SLACK);
    sleep_and_wake(&r);
    assert_in_range(find(&r, &vector, PAID, true), 2 * FIRST, 2 * FIRST + SLACK);
    find(&r, &vector, PAID + PAID / FIRST, false);
    sleep_and_wake(&r);
    assert_in_range(find(&r, &vector, PAID, true), FIRST, FIRST + SLACK);
    rig_down(&r);
}

/* What has arrived is found by the next reap, however many sockets without anything are tried before it: the caller may sleep then. */
static void found_behind_others(const struct poller_class *class)
{
    struct rig r;
    char in[PAIRS][8];
    struct iovec vector[PAIRS];
    struct poller_event event[2];

    rig_up(&r, class);
    for (uint32_t i = 0; i < PAIRS; i++) { /* each may have something, as far as the poller knows */
        vector[i] = (struct iovec){in[i], sizeof in[i]};
        assert_int_equal(start(&r, 2 * i + 1, POLLER_RECEIVE, &vector[i], 1), -EINPROGRESS);
    }
    assert_int_equal(write(r.fd[2 * PAIRS - 2], "last", 4), 4);
    assert_int_equal(class->reap(r.p, event, 2, NULL, 0), 1);
    assert_true(event[0].socket == 2 * PAIRS - 1 && event[0].result == 4);
    rig_down(&r);
}

/* The same behind more edges than one call reports, of sockets from which nothing is received. */
static void found_behind_edges(const struct poller_class *class)
{
    enum { MANY = 160, LAST = MANY - 1 };
    struct poller_config config = {.env = wire_default_env(), .sockets = MANY};
    struct poller *p = NULL;
    struct poller_event event[2];
    char in[8];
    struct iovec vector = {in, sizeof in};
    int fd[MANY];

    assert_int_equal(class->open(&config, &p), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        if (i % 2 == 0)
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd + i), 0);
        assert_int_equal(class->add(p, i, fd[i]), 0); /* that it has room for a send is an edge */
    }
    assert_int_equal(class->start(p, LAST, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
    assert_int_equal(class->reap(p, event, 2, NULL, 0), 0);
    assert_int_equal(write(fd[LAST - 1], "last", 4), 4);
    assert_int_equal(class->reap(p, event, 2, NULL, 0), 1);
    assert_true(event[0].socket == LAST && event[0].result == 4);
    for (uint32_t i = 0; i < MANY; i++) {
        class->remove(p, i);
        close(fd[i]);
    }
    class->close(p);
}

static int lacks; /* the error of each epoll_ctl that adds; 0: none */
int __real_epoll_ctl(int set, int how, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int set, int how, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int set, int how, int fd, struct epoll_event *event)
{
    if (how != EPOLL_CTL_ADD || !lacks)
        return __real_epoll_ctl(set, how, fd, event);
    errno = lacks;
    return -1;
}

/* Nothing tells when it has room again, so each look tries. */
static void a_send_ends_though_its_socket_cannot_be_watched_again(void **state)
{
    static const int errors[] = {ENOMEM, ENOSPC};
    static char much[BIG];
    struct iovec vector = {(char[8]){0}, 8}, big = {much, BIG};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_up(&r, &poller_epoll);
        assert_int_equal(start(&r, 9, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
        find(&r, &vector, 1000, true);
        assert_false(is_watched(&r, r.fd[9]));
        lacks = errors[i];
        int64_t sent = await(&r, 9, POLLER_SEND, start(&r, 9, POLLER_SEND, &big, 1));
        assert_true(sent > 0 && sent < BIG);
        sent = start(&r, 9, POLLER_SEND, &big, 1);
        assert_int_equal(sent, -EINPROGRESS);
        while (recv(r.fd[8], much, BIG, MSG_DONTWAIT) > 0)
            continue;
        assert_true(await(&r, 9, POLLER_SEND, sent) > 0);
        lacks = 0;
        rig_down(&r);
    }
}

ON_EACH(tried_for_long)
ON_EACH(found_behind_others)
ON_EACH(found_behind_edges)
ON_EACH(hot_ones)
ON_EACH(attempted)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tried_for_long),
        cmocka_unit_test(test_hot_ones),
        cmocka_unit_test(test_attempted),
        cmocka_unit_test(unwatched_where_it_pays),
        cmocka_unit_test(test_found_behind_others),
        cmocka_unit_test(test_found_behind_edges),
        cmocka_unit_test(a_send_ends_though_its_socket_cannot_be_watched_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
