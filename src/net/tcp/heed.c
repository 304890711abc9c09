/*
 * Waking the monitor by what comes, for peers who ask something of a rank that is not in the library. While it heeds, the poller's
 * descriptor is among those that it sleeps on, until that has told it once; and a thread that takes from the sockets what is for somebody
 * else tells it too. It heeds only while it rests: who talks all the time wakes it a few hundred times a second.
 */
#include "net/tcp/tcp.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int listen_to(const struct tcp_wire *w, int how, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = UINT32_MAX};

    return epoll_ctl(w->monitor.deaths, how, fd, &event) < 0 ? errno : 0;
}

int tcp_heed_open(struct tcp_wire *w)
{
    if (w->rank < 0)
        return 0;
    w->monitor.heed = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->monitor.heed < 0)
        return errno;
    int error = listen_to(w, EPOLL_CTL_ADD, w->monitor.heed, EPOLLIN | EPOLLET);
    return error ? error : listen_to(w, EPOLL_CTL_ADD, w->poller->fd, EPOLLONESHOT);
}

/* What came before is read here, and what comes after is told: the poller is armed in between. A sleeper of the engine's shares it, and its
 * marks are read away here, so what they stood for is read too. */
bool tcp_heed(struct wire *wire, bool on)
{
    struct tcp_wire *w = tcp_wire_of(wire);

    if (w->rank < 0)
        return false; /* who asks moves everybody here */
    base_lock(&w->lock, w->env);
    w->monitor.heeds = false;
    w->poller->class->arm(w->poller, on || w->armed);
    (void)listen_to(w, EPOLL_CTL_MOD, w->poller->fd, on ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT);
    if (!on)
        (void)w->env->bell_clear(w->env, &(struct env_bell){.ring_fd = w->monitor.heed, .wait_fd = -1});
    tcp_pump(w, NULL, 0);
    bool came = w->monitor.came;
    w->monitor.came = false;
    w->monitor.heeds = on;
    base_unlock(&w->lock, w->env);
    return came;
}
