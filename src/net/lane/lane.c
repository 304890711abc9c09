/* The life of a connection: its start and its end. */
#include "net/lane/lane.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int tcp_lane_start(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;
    /* If notes are forwarded, a byte beside the heartbeats announces one, so the monitor must wake for input. */
    uint32_t wakes = lane->lane == TCP_BEAT && w->graph ? EPOLLIN : 0;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET | wakes, .data.u32 = lane->socket};
    int error = lane->lane == TCP_BEAT ? 0 : -w->poller->class->add(w->poller, lane->socket, lane->fd);
    /* Each watch of a socket costs time for every segment that arrives. If all links have heartbeats, a death ends the heartbeat's
     * connection too, and then the others are looked at (tcp_poll). */
    bool watched = lane->lane == TCP_BEAT || w->graph;

    if (!error && watched && epoll_ctl(w->monitor.deaths, EPOLL_CTL_ADD, lane->fd, &event) < 0)
        error = errno == EEXIST && epoll_ctl(w->monitor.deaths, EPOLL_CTL_MOD, lane->fd, &event) == 0 ? 0 : errno;
    if (lane->lane == TCP_LANE_SMALL && w->fews++ < TCP_FEW_BATCH)
        w->few[w->fews - 1] = lane->socket;
    if (lane->lane != TCP_LANE_BULK)
        tcp_add_neighbour(lane->link);
    return error;
}

/* Continues what waited for the connection: frames to send, and threads that wait for frames. */
void tcp_lane_opened(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->looks && !lane->hot) {
        w->hot[w->hots++] = lane->socket;
        lane->hot = w->hots;
    }
    tcp_send_waiting(lane);
    tcp_send_dirty(w);
    tcp_submit(w);
}

/* ------------------------------------------------------------------------------------------------------------ ends */
void tcp_lane_down(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->ended)
        return;
    lane->ended = true;
    if (!lane->link->ended_ns)
        lane->link->ended_ns = w->env->now(w->env);
    w->poller->class->remove(w->poller, lane->socket);
    lane->sending = false;
    shutdown(lane->fd, SHUT_RDWR);
    tcp_drop_out(lane); /* no thread reads it; the monitor reports the cause */
    w->env->bell_ring(w->env, w->watch);
}

void tcp_lane_end(struct tcp_lane *lane, const char *why)
{
    struct tcp_link *link = lane->link;

    if (lane->ended)
        return;
    if (why && !link->goodbye)
        base_log(lane->port->wire->log, LOG_INFO, "tcp: peer=%d lane=%u address=%s: %s", link->peer, lane->lane, link->address, why);
    tcp_lane_down(lane);
}
