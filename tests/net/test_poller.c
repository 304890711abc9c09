/* The same tests for each kind of poller: transfers, their ends, and who is woken; and a ring that fails later. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/poller_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void scattered(const struct poller_class *class)
{
    struct rig r;
    char a[10], b[10], out[20];
    struct iovec in[2] = {{a, 4}, {b, 10}}, from[2] = {{out, 3}, {out + 3, 5}};

    rig_up(&r, class);
    memcpy(out, "abcdefgh", 8);
    int64_t waiting = start(&r, 1, POLLER_RECEIVE, in, 2);
    assert_int_equal(waiting, -EINPROGRESS);
    int64_t gone = start(&r, 0, POLLER_SEND, from, 2);
    assert_true(gone == 8 || gone == -EINPROGRESS);
    struct poller_event event[4];
    int seen = 0, received = 0;
    for (int turn = 0; turn < 1000000 && !received; turn++) {
        uint32_t n = class->reap(r.p, event, 4, NULL, 0);
        for (uint32_t i = 0; i < n; i++) {
            seen++;
            assert_int_equal(event[i].result, 8);
            received |= event[i].way == POLLER_RECEIVE && event[i].socket == 1;
        }
    }
    assert_true(received && seen <= 2);
    assert_memory_equal(a, "abcd", 4);
    assert_memory_equal(b, "efgh", 4);
    rig_down(&r);
}

/* A cancelled receive writes nothing. */
static void cancelled(const struct poller_class *class)
{
    struct rig r;
    char in[8] = "........", again[8];
    struct iovec vector = {in, 8}, second = {again, 8};

    rig_up(&r, class);
    assert_int_equal(start(&r, 1, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
    assert_int_equal(class->cancel(r.p, 1, POLLER_RECEIVE), -ECANCELED);
    assert_int_equal(write(r.fd[0], "12345678", 8), 8);
    struct poller_event event[4];
    for (int i = 0; i < 1000; i++)
        assert_int_equal(class->reap(r.p, event, 4, NULL, 0), 0);
    assert_memory_equal(in, "........", 8);
    assert_int_equal(await(&r, 1, POLLER_RECEIVE, start(&r, 1, POLLER_RECEIVE, &second, 1)), 8);
    assert_memory_equal(again, "12345678", 8);
    rig_down(&r);
}

/* A send larger than the socket's buffer continues in pieces as the other end reads. */
static void large(const struct poller_class *class)
{
    struct rig r;
    char *out = malloc(BIG), *in = malloc(BIG);
    struct iovec to, from;
    size_t sent = 0, got = 0;
    bool sending = false, receiving = false;

    rig_up(&r, class);
    for (size_t i = 0; i < BIG; i++)
        out[i] = (char)(i * 31 + (i >> 12));
    for (int turn = 0; got < BIG && turn < 50000000; turn++) {
        struct poller_event event[4];
        int64_t n;
        if (!sending && sent < BIG) {
            from = (struct iovec){out + sent, BIG - sent};
            n = start(&r, 2, POLLER_SEND, &from, 1);
            sending = n == -EINPROGRESS;
            assert_true(sending || n > 0);
            sent += sending ? 0 : (size_t)n;
        }
        if (!receiving) {
            to = (struct iovec){in + got, BIG - got};
            receiving = start(&r, 3, POLLER_RECEIVE, &to, 1) == -EINPROGRESS;
            assert_true(receiving);
        }
        uint32_t events = class->reap(r.p, event, 4, NULL, 0);
        for (uint32_t i = 0; i < events; i++) {
            assert_true(event[i].result > 0);
            *(event[i].way == POLLER_SEND ? &sent : &got) += (size_t)event[i].result;
            *(event[i].way == POLLER_SEND ? &sending : &receiving) = false;
        }
    }
    assert_int_equal(got, BIG);
    assert_memory_equal(in, out, BIG);
    rig_down(&r);
    free(out);
    free(in);
}

/* The end of a stream, and of a peer that is gone with our bytes unread. */
static void ends(const struct poller_class *class)
{
    struct rig r;
    char in[8];
    struct iovec vector = {in, 8};

    rig_up(&r, class);
    int64_t waiting = start(&r, 1, POLLER_RECEIVE, &vector, 1);
    shutdown(r.fd[0], SHUT_WR);
    assert_int_equal(await(&r, 1, POLLER_RECEIVE, waiting), 0);
    waiting = start(&r, 2, POLLER_SEND, &vector, 1);
    if (waiting == -EINPROGRESS)
        waiting = await(&r, 2, POLLER_SEND, waiting);
    assert_int_equal(waiting, 8);
    class->remove(r.p, 3);
    close(r.fd[3]);
    r.fd[3] = dup(0);
    int64_t broken = await(&r, 2, POLLER_RECEIVE, start(&r, 2, POLLER_RECEIVE, &vector, 1));
    assert_true(broken == 0 || broken == -ECONNRESET);
    rig_down(&r);
}

static void *write_later(void *arg)
{
    usleep(50000);
    assert_int_equal(write(*(int *)arg, "x", 1), 1);
    return NULL;
}

/* While armed, the descriptor reports arrivals; once all are reaped, it is not readable. */
static void wakes(const struct poller_class *class)
{
    struct rig r;
    char in[8];
    struct iovec vector = {in, 8};
    struct poller_event event[4];

    rig_up(&r, class);
    for (int turn = 0; turn < 3; turn++) {
        pthread_t thread;
        assert_int_equal(start(&r, 5, POLLER_RECEIVE, &vector, 1), -EINPROGRESS);
        class->arm(r.p, true);
        while (class->reap(r.p, event, 4, NULL, 0))
            continue;
        struct pollfd wait = {.fd = r.p->fd, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 20), 0);
        assert_int_equal(pthread_create(&thread, NULL, write_later, &r.fd[4]), 0);
        int woken = 0;
        for (int i = 0; i < 100 && !woken; i++) /* a ring's first completions may interrupt poll */
            woken = poll(&wait, 1, 1000) == 1;
        assert_true(woken);
        class->arm(r.p, false);
        assert_int_equal(await(&r, 5, POLLER_RECEIVE, -EINPROGRESS), 1);
        pthread_join(thread, NULL);
    }
    rig_down(&r);
}

struct submitter {
    struct rig *r;
    struct iovec *vector;
};
static void *submit_and_end(void *arg)
{
    struct submitter *s = arg;
    assert_int_equal(start(s->r, 7, POLLER_RECEIVE, s->vector, 1), -EINPROGRESS);
    return NULL;
}

/* The end of a thread does not end what it started. */
static void outlives_its_thread(const struct poller_class *class)
{
    struct rig r;
    char in[8];
    struct iovec vector = {in, 8};
    pthread_t thread;

    rig_up(&r, class);
    assert_int_equal(pthread_create(&thread, NULL, submit_and_end, &(struct submitter){&r, &vector}), 0);
    pthread_join(thread, NULL);
    struct poller_event event[4];
    for (int i = 0; i < 1000; i++)
        assert_int_equal(class->reap(r.p, event, 4, NULL, 0), 0);
    assert_int_equal(write(r.fd[6], "late", 4), 4);
    assert_int_equal(await(&r, 7, POLLER_RECEIVE, -EINPROGRESS), 4);
    assert_memory_equal(in, "late", 4);
    rig_down(&r);
}

ON_EACH(scattered)
ON_EACH(cancelled)
ON_EACH(large)
ON_EACH(ends)
ON_EACH(wakes)
ON_EACH(outlives_its_thread)

/* ------------------------------------------------------------------------------------------------------------ a ring that fails */
/* Puts another file in the place of the poller's ring, so that the kernel refuses every entry into it. */
static void break_ring(void)
{
    int broken = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char path[32], link[64];

    assert_true(null >= 0);
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = 0;
        if (strstr(link, "[io_uring]")) {
            assert_int_equal(dup2(null, fd), fd);
            broken++;
        }
    }
    close(null);
    assert_int_equal(broken, 1);
}

/* Sends to all pairs at once and receives from all, as many as a batch is used for. */
static void exchange_on_all(struct rig *r, const char *text)
{
    char in[PAIRS][8];
    struct iovec to[PAIRS], from = {(char *)(uintptr_t)text, 8};
    struct poller_event event[2 * PAIRS];
    int sent = 0, got = 0;

    for (uint32_t i = 0; i < PAIRS; i++) {
        to[i] = (struct iovec){in[i], 8};
        assert_int_equal(r->p->class->start(r->p, 2 * i + 1, POLLER_RECEIVE, &to[i], 1), -EINPROGRESS);
        int64_t result = r->p->class->start(r->p, 2 * i, POLLER_SEND, &from, 1);
        assert_true(result == 8 || result == -EINPROGRESS);
        sent += result == 8;
    }
    for (int turn = 0; turn < 100000 && sent + got < 2 * PAIRS; turn++) {
        uint32_t n = r->p->class->reap(r->p, event, 2 * PAIRS, NULL, 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(event[i].result, 8);
            *(event[i].way == POLLER_SEND ? &sent : &got) += 1;
        }
    }
    assert_true(sent == PAIRS && got == PAIRS);
    for (uint32_t i = 0; i < PAIRS; i++)
        assert_memory_equal(in[i], text, 8);
}

/* If the kernel refuses an open ring later (a seccomp filter that the program installs), nothing is lost, and nothing waits for it. */
static void ring_fails(void **state)
{
    struct rig r;

    (void)state;
    if (group_ring_missing())
        group_skip("%s", group_ring_missing());
#ifdef COMM_HAVE_URING
    rig_up(&r, &poller_uring);
    exchange_on_all(&r, "by calls"); /* so many at once that the next ones are collected */
    assert_true(r.p->collects);
    exchange_on_all(&r, "by ring.");
    break_ring();
    alarm(20); /* a poller that repeats the call for ever must not hold up the tests */
    exchange_on_all(&r, "by calls");
    exchange_on_all(&r, "and more");
    alarm(0);
    rig_down(&r);
#else
    (void)r;
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scattered), cmocka_unit_test(test_cancelled), cmocka_unit_test(test_large),
        cmocka_unit_test(test_ends),      cmocka_unit_test(test_wakes),     cmocka_unit_test(test_outlives_its_thread),
        cmocka_unit_test(ring_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
