/*
 * The poller on io_uring where a completion comes between its look at the ring and its wait: its source is compiled here once more, and
 * takes its time at that place. What is cancelled was submitted by another thread, which is also who completes it, a moment later.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "wire/table.h"

#include <liburing.h>
#include <pthread.h>
#include <time.h>

static void stand(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

__attribute__((unused)) static unsigned ready_late(const struct io_uring *ring)
{
    stand();
    return io_uring_cq_ready(ring);
}

static int wait_late(struct io_uring *ring, unsigned count)
{
    stand();
    return io_uring_submit_and_wait(ring, count);
}

#define io_uring_cq_ready ready_late
#define io_uring_submit_and_wait wait_late
#include "net/poll/uring.c"

enum { TURNS = 5, PATIENCE_S = 60 };

struct starter {
    struct poller *p;
    pthread_barrier_t started, done;
    char bytes[8];
    struct iovec vector;
};

/* It sleeps outside the library while its receive is cancelled. */
static void *start_receive(void *arg)
{
    struct starter *s = arg;

    s->vector = (struct iovec){s->bytes, sizeof s->bytes};
    s->p->class->arm(s->p, true);
    assert_int_equal(s->p->class->start(s->p, 0, POLLER_RECEIVE, &s->vector, 1), -EINPROGRESS);
    s->p->class->submit(s->p);
    pthread_barrier_wait(&s->started);
    pthread_barrier_wait(&s->done);
    return NULL;
}

static void a_cancel_ends_though_all_has_come_meanwhile(void **state)
{
    struct poller_config config = {.env = wire_default_env(), .sockets = 1};

    (void)state;
    if (group_ring_missing())
        group_skip("%s", group_ring_missing());
    alarm(PATIENCE_S); /* a wait for what has come already never ends */
    for (int i = 0; i < TURNS; i++) {
        struct starter s;
        pthread_t thread;
        int fd[2];
        assert_int_equal(poller_uring.open(&config, &s.p), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        assert_int_equal(s.p->class->add(s.p, 0, fd[0]), 0);
        pthread_barrier_init(&s.started, NULL, 2);
        pthread_barrier_init(&s.done, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, start_receive, &s), 0);
        pthread_barrier_wait(&s.started);
        assert_int_equal(s.p->class->cancel(s.p, 0, POLLER_RECEIVE), -ECANCELED);
        pthread_barrier_wait(&s.done);
        pthread_join(thread, NULL);
        s.p->class->remove(s.p, 0);
        s.p->class->close(s.p);
        close(fd[0]);
        close(fd[1]);
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cancel_ends_though_all_has_come_meanwhile)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
