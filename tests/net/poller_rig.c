/* What poller_rig.h promises. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/poller_rig.h"
#include "wire/table.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void rig_up(struct rig *r, const struct poller_class *class)
{
    struct poller_config config = {.env = wire_default_env(), .sockets = 2 * PAIRS};

    assert_int_equal(class->open(&config, &r->p), 0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, &r->fd[2 * i]), 0);
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        assert_int_equal(class->add(r->p, i, r->fd[i]), 0);
}

void rig_down(struct rig *r)
{
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        r->p->class->remove(r->p, i);
        close(r->fd[i]);
    }
    r->p->class->close(r->p);
}

int64_t await(struct rig *r, uint32_t socket, enum poller_way way, int64_t started)
{
    struct poller_event event[4];

    if (started != -EINPROGRESS)
        return started;
    const struct comm_env *env = wire_default_env();
    for (int64_t end = env->now(env) + 5000000000; env->now(env) < end;) {
        uint32_t n = r->p->class->reap(r->p, event, 1, NULL, 0);
        if (n) {
            assert_int_equal(event[0].socket, socket);
            assert_int_equal(event[0].way, way);
            return event[0].result;
        }
    }
    fail_msg("nothing came");
    return 0;
}

int64_t start(struct rig *r, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    int64_t result = r->p->class->start(r->p, socket, way, vector, count);

    r->p->class->submit(r->p);
    return result;
}

void on_each(void (*fn)(const struct poller_class *))
{
    fn(&poller_epoll);
    if (group_ring_missing()) {
        group_skip_part("%s", group_ring_missing());
        return;
    }
#ifdef COMM_HAVE_URING
    fn(&poller_uring);
#endif
}
