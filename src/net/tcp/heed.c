/*
 * Wakes the monitor when something arrives, for peers that request something from a rank outside the library. While the monitor heeds, it
 * also sleeps on the poller's descriptor, until that has woken it once. A thread that reads another thread's data from the sockets wakes
 * it too, and sets WIRE_ASKED, so that a call which ends before the monitor gets a CPU serves it. The monitor heeds only while it rests, so
 * that a peer which sends all the time wakes it only a few hundred times a second.
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
    w->wire.asks = &w->monitor.asks;
    w->monitor.heed = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->monitor.heed < 0)
        return errno;
    w->env->own(w->env, w->monitor.heed, true);
    int error = listen_to(w, EPOLL_CTL_ADD, w->monitor.heed, EPOLLIN | EPOLLET);
    return error ? error : listen_to(w, EPOLL_CTL_ADD, w->poller->fd, EPOLLONESHOT);
}

void tcp_urge(struct wire_channel *channel, bool on)
{
    struct tcp_channel *c = tcp_of(channel);

    base_lock(&c->wire->lock, c->wire->env);
    c->urges = on;
    base_unlock(&c->wire->lock, c->wire->env);
}

/* The poller is armed before the pump: earlier arrivals are read here, later ones wake the monitor. A sleeping thread of the engine shares
 * the poller. The pump takes its marks, so it also reads what they stood for. */
bool tcp_heed(struct wire *wire, bool on)
{
    struct tcp_wire *w = tcp_wire_of(wire);

    if (w->rank < 0)
        return false; /* the requester itself moves all ranks of this process */
    base_lock(&w->lock, w->env);
    w->monitor.heeds = false;
    w->poller->class->arm(w->poller, on || w->armed);
    (void)listen_to(w, EPOLL_CTL_MOD, w->poller->fd, on ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT);
    if (!on)
        (void)w->env->bell_clear(w->env, &(struct env_bell){.ring_fd = w->monitor.heed, .wait_fd = -1});
    tcp_pump(w, NULL, 0);
    bool came = w->monitor.came | (atomic_fetch_and_explicit(wire->asks, ~(uint32_t)WIRE_ASKED, memory_order_acq_rel) & WIRE_ASKED);
    w->monitor.came = false;
    w->monitor.heeds = on;
    base_unlock(&w->lock, w->env);
    return came;
}
