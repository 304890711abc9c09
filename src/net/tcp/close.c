/*
 * An orderly close, so that no peer takes this rank's end for a death. A goodbye is the last frame on each connection, and all connections
 * stay open until the peers' kernels have acknowledged it. So no end of a connection can be seen before its goodbye, even if TCP had to
 * retransmit for seconds. If a peer cannot be waited for so long, it still finds the goodbye on whichever connection ends first.
 */
#include "net/tcp/tcp.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define GOODBYE_NS INT64_C(1000000000) /* for a stopped peer, which reads nothing */
#define LINKS_NS INT64_C(5000000000)

/* Whether some of its data has not reached the other end's kernel. */
static bool is_unsent(const struct tcp_lane *lane)
{
    int bytes = 0;

    if (!lane->link->here || lane->ended || lane->deaf || lane->lane == TCP_BEAT) /* heartbeats add nothing to the other goodbyes */
        return false;
    return lane->out || record_pending(lane->records) || (ioctl(lane->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

/* Whether the peer's kernel has not acknowledged repeated segments: the link loses packets or is down. A kernel that acknowledges but has
 * no room belongs to a stopped process (tcp(7), TCP_INFO). */
static bool is_repeated(const struct tcp_lane *lane)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    return !lane->link->down && getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_unacked &&
           info.tcpi_retransmits;
}

/* patient: only count what is being retransmitted. */
static bool has_unsent(struct tcp_wire *w, bool patient)
{
    for (size_t i = 0; i < (size_t)w->ports * (size_t)w->ranks * TCP_SOCKETS; i++) {
        const struct tcp_lane *lane = &w->links[i / TCP_SOCKETS].lane[i % TCP_SOCKETS];
        if (is_unsent(lane) && (!patient || is_repeated(lane)))
            return true;
    }
    return tcp_acceptor_busy(w) && !patient;
}

static bool waits_at_all(struct tcp_wire *w)
{
    return has_unsent(w, false);
}

static bool waits_for_repeats(struct tcp_wire *w)
{
    return has_unsent(w, true);
}

static void wait_while(struct tcp_wire *w, bool (*waits)(struct tcp_wire *w), int64_t until)
{
    while (w->rank >= 0 && waits(w) && w->env->now(w->env) < until) {
        base_unlock(&w->lock, w->env);
        poll(NULL, 0, 1);
        if (!w->leaves)
            tcp_acceptor_hear(w); /* otherwise the monitor does */
        base_lock(&w->lock, w->env);
        if (w->graph)
            tcp_acceptor_turn(w, true);
        tcp_pump(w, NULL, 0);
    }
}

/* A rank that hears a forwarded goodbye and has no connection to this rank expects nothing more from it. So first, every link with queued
 * frames must be connected, or its peer known to be gone. */
static void pass_goodbye(struct tcp_wire *w)
{
    tcp_send_dirty(w);
    wait_while(w, tcp_acceptor_busy, w->env->now(w->env) + LINKS_NS);
    tcp_relay_goodbye(w);
}

/* Whether this rank gave the peer up because it was silent: if it was stopped and continues, it must not take that for a goodbye. */
static bool is_given_up(const struct tcp_link *link)
{
    return link->down && link->gone.result == COMM_ERR_PEER && link->gone.tag == WIRE_SILENT && link->gone.bytes;
}

/* On the heartbeat connection, because the others may be full of what the peer has not read. */
void tcp_say_given_up(struct tcp_link *link)
{
    const struct tcp_lane *beats = &link->lane[TCP_BEAT];

    if (is_given_up(link) && beats->fd >= 0 && !beats->ended)
        (void)record_beat(beats->records, beats->fd, RECORD_GAVE_UP); /* if there is no room, it is said again when this rank closes */
}

static void say_on(struct tcp_link *link)
{
    for (uint32_t k = 0; k < TCP_LANES; k++)
        if (link->lane[k].fd >= 0)
            tcp_post_goodbye(&link->lane[k]);
    if (link->lane[TCP_BEAT].fd >= 0 && !link->lane[TCP_BEAT].ended)
        (void)record_beat(link->lane[TCP_BEAT].records, link->lane[TCP_BEAT].fd,
                          is_given_up(link) ? RECORD_GAVE_UP
                                            : RECORD_GOODBYE); /* if the buffer is full, the peer finds the goodbyes on the lanes */
}

/* Sends everything that is queued, then the goodbye. A stopped peer delays the close by a second at most. A peer behind a broken link
 * delays it for as long as a link may be down; by then the peer's monitor has reported the link. */
static void say_goodbye(struct tcp_wire *w)
{
    int64_t now;

    if (w->graph && !tcp_relay_said_goodbye(w))
        pass_goodbye(w);
    now = w->env->now(w->env);
    for (size_t i = 0; i < (size_t)w->ports * (size_t)w->ranks; i++)
        say_on(&w->links[i]);
    tcp_send_dirty(w);
    tcp_pump(w, NULL, 0);
    wait_while(w, waits_at_all, now + GOODBYE_NS);
    wait_while(w, waits_for_repeats, now + w->times.link_timeout_ns + 2 * GOODBYE_NS);
}

void tcp_close(struct wire *wire)
{
    struct tcp_wire *w = tcp_wire_of(wire);

    if (w->farewell.say && w->rank >= 0 && w->env->farewell.drop)
        w->env->farewell.drop(w->env, &w->farewell);
    base_lock(&w->lock, w->env);
    w->armed = false;
    say_goodbye(w);
    base_unlock(&w->lock, w->env);
    tcp_destroy(w);
}

void tcp_farewell(struct env_farewell *farewell)
{
    struct tcp_wire *w = (struct tcp_wire *)(void *)((char *)farewell - offsetof(struct tcp_wire, farewell));

    base_lock(&w->lock, w->env);
    w->leaves = true;
    say_goodbye(w);
    w->leaves = false;
    base_unlock(&w->lock, w->env);
}
