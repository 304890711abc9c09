/*
 * Watches peers, in the monitor thread: ended connections, heartbeats, published calls. When a process dies, its kernel closes its
 * connections at once. A stopped process keeps them; it is detected because its heartbeats stop, while its kernel still acknowledges data.
 * If even the acknowledgements stop, the link is cut or the host is gone, and a long wait is useless. A peer that has said goodbye is not
 * dead.
 */
#include "net/tcp/tcp.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { BEAT_READS = 1024 };               /* at once: an hour of beats, if this process was stopped */
#define LAST_LANE_NS INT64_C(300000000)   /* how long the other connection of a pair may still have data, after one has ended */
#define LAST_WORDS_NS INT64_C(5000000000) /* the same after a goodbye: as long as a link may be down */
#define SECONDS(ns) (long long)((ns) / 1000000000), (long long)((ns) / 100000000 % 10)

/* Whether the link has ended. When a rank closes, each connection of a pair ends with its own goodbye, so the first end already shows the
 * reason. The others may take as long as TCP retransmits, and frames before their goodbyes must still be read. */
static bool has_ended(const struct tcp_wire *w, const struct tcp_link *link, int64_t now)
{
    const struct tcp_lane *small = &link->lane[TCP_LANE_SMALL], *bulk = &link->lane[TCP_LANE_BULK];
    bool repeats = link->goodbye && small->fd >= 0 && bulk->fd >= 0;

    if (!link->ended_ns || (small->ended && bulk->ended))
        return link->ended_ns;
    return w->dry && now - link->ended_ns > (repeats ? LAST_WORDS_NS : LAST_LANE_NS);
}

/* Reads what has arrived. Returns how the reading ended: 0 at the end of the stream, otherwise -errno. */
static int64_t hear(struct tcp_link *link, const char **why)
{
    struct tcp_lane *lane = &link->lane[TCP_BEAT];
    uint32_t words = 0;
    int64_t n = 0;

    for (int reads = 0; reads < BEAT_READS && (n = record_heard(lane->records, lane->fd, &words, why)) > 0; reads++) {
        link->beat++;
        link->sure = true; /* a beat is sent only when all connections are established */
    }
    link->goodbye |= (words >> RECORD_GOODBYE & 1) != 0;
    if (words >> RECORD_GAVE_UP & 1)
        lane->port->wire->given_up = true;
    return n;
}

/* Reads the peer's beats. Returns whether the connection stands. */
static bool hear_beats(struct tcp_link *link)
{
    struct tcp_lane *lane = &link->lane[TCP_BEAT];
    const char *why = "";

    if (lane->fd < 0 || lane->ended)
        return false;
    int64_t heard = hear(link, &why);
    if (heard == -EBADMSG) {
        base_log(lane->port->wire->log, LOG_ERROR, "tcp: peer=%d lane=%u: %s; the connection is given up", link->peer, lane->lane, why);
        tcp_lane_end(lane, NULL);
    } else if (heard == 0) {
        tcp_lane_end(lane, "the other end closed");
    }
    return !lane->ended;
}

/* Reads the peer's beats, and sends one, which shows that this process lives. It reads first, because the last words of a peer that has
 * closed can be read, but nothing can be sent to it. A full buffer means the same as silence. */
static void beat(struct tcp_link *link)
{
    struct tcp_lane *lane = &link->lane[TCP_BEAT];

    if (!hear_beats(link))
        return;
    int64_t sent = record_beat(lane->records, lane->fd, 0);
    if (sent < 0 && sent != -EAGAIN && sent != -EINTR)
        tcp_lane_end(lane, "the connection of its heartbeats broke");
}

/* Whether data was retransmitted and none of it has arrived since the last look. (The other direction may work.) A full window is probed at
 * growing intervals, but each probe is acknowledged, so only unacknowledged probes count. */
static bool is_unheard(struct tcp_lane *lane)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    if (lane->fd < 0 || lane->ended || getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return false;
    bool before = info.tcpi_delivered == lane->delivered;
    lane->delivered = info.tcpi_delivered;
    return before && (info.tcpi_probes || (info.tcpi_unacked && info.tcpi_retransmits));
}

/* Whether the peer's host has acknowledged nothing for too long. */
static bool is_cut(const struct tcp_wire *w, struct tcp_link *link, int64_t looked)
{
    if (!looked)
        return false;
    bool unheard = false;
    for (int k = 0; k < TCP_SOCKETS; k++)
        unheard |= is_unheard(&link->lane[k]);
    link->unheard_ns = unheard ? link->unheard_ns + looked : 0;
    return link->unheard_ns >= w->times.link_timeout_ns;
}

/* Whether the peer has been silent for too long. */
static bool listen_to(struct tcp_wire *w, struct tcp_link *link, int64_t looked)
{
    if (link->beat != link->beat_seen) {
        if (link->warned)
            base_log(w->log, LOG_WARNING, "rank %d is back after %lld.%lld s without a heartbeat", link->peer, SECONDS(link->silent_ns));
        link->beat_seen = link->beat;
        link->silent_ns = 0;
        link->warned = false;
        return false;
    }
    if (link->lane[TCP_BEAT].fd < 0) /* only its neighbours watch it */
        return false;
    link->silent_ns += looked;
    if (link->silent_ns < w->times.warn_ns || link->goodbye)
        return false;
    if (!link->warned)
        base_log(w->log, LOG_WARNING,
                 "rank %d is stopped or starved: no heartbeat for %lld.%lld s; its host acknowledges what is sent: its process is alive",
                 link->peer, SECONDS(link->silent_ns));
    link->warned = true;
    return link->silent_ns >= w->times.timeout_ns;
}

/* Reads all beats, to know whether peers have given this rank up. Then every rank learns it and may close. One that did not find this rank
 * silent itself says an ordinary goodbye, but the peer that did has said so before: that word is here if the goodbye is. */
static void hear_all(struct tcp_wire *w)
{
    for (int32_t i = 0; i < w->ranks && !w->given_up; i++)
        if (w->links[i].here)
            (void)hear_beats(&w->links[i]);
}

/* What a look finds of a link. ENDED: its connections are over. CUT: the peer's host acknowledges nothing. SILENT: the peer sends no
 * heartbeats. */
enum link_end { LINK_STANDS, LINK_ENDED, LINK_CUT, LINK_SILENT };

/* The event of a peer's end. If this rank was given up, its peers have not died, even if they have closed. */
static struct wire_event end_of(const struct tcp_wire *w, const struct tcp_link *link, enum link_end end_by, bool as_told)
{
    bool closed = link->goodbye || (link->told.kind && link->told.result == COMM_ERR_CLOSED);
    struct wire_event end = {.kind = WIRE_EVENT_DOWN, .result = closed ? COMM_ERR_CLOSED : COMM_ERR_PEER, .peer = link->peer};

    if (w->given_up) {
        end.result = COMM_ERR_PEER;
        end.tag = WIRE_GAVE_UP;
        end.bytes = (uint64_t)w->times.timeout_ns;
        return end;
    }
    if (as_told)
        return link->told;
    end.tag = end_by == LINK_CUT ? WIRE_CUT : WIRE_SILENT;
    end.bytes = (uint64_t)(end_by == LINK_CUT ? link->unheard_ns : end_by == LINK_SILENT ? link->silent_ns : 0);
    return end;
}

/* as_told: others have said that it ends. */
static enum link_end classify(struct tcp_wire *w, struct tcp_link *link, int64_t now, int64_t looked, bool as_told)
{
    if ((has_ended(w, link, now) && tcp_has_said_all(w, link, now)) || (as_told && !(link->told.bytes && link->here)))
        return LINK_ENDED;
    if (link->ended_ns)
        return LINK_STANDS;
    if (is_cut(w, link, looked))
        return LINK_CUT;
    return listen_to(w, link, looked) ? LINK_SILENT : LINK_STANDS;
}

static void end_lanes(struct tcp_link *link)
{
    for (int k = 0; k < TCP_SOCKETS; k++)
        tcp_lane_end(&link->lane[k], "given up");
}

static uint32_t look(struct tcp_wire *w, int64_t now, int64_t looked, struct wire_event *events, uint32_t max)
{
    uint32_t told = 0;
    bool heard = false;

    for (int32_t i = 0; i < w->ranks && told < max; i++) {
        struct tcp_link *link = &w->links[i];
        bool as_told = w->graph && !link->down && tcp_ends_as_told(w, link, now);
        if (link->down || (!link->here && !link->ended_ns && !as_told))
            continue;
        enum link_end end = classify(w, link, now, looked, as_told);
        if (end == LINK_STANDS && !as_told)
            continue;
        if (!heard)
            hear_all(w);
        heard = link->down = true;
        link->gone = end_of(w, link, end, as_told);
        tcp_say_given_up(link);
        if (link->ours)
            events[told++] = link->gone;
        if (end == LINK_ENDED) /* a stopped peer keeps its connections: if it resumes, it can read why it was given up */
            end_lanes(link);
        for (uint32_t k = 0; k < w->channels; k++)
            if (w->channel[k])
                tcp_missed(w->channel[k], link);
        if (w->graph)
            tcp_link_lost(w, link);
    }
    return told;
}

/* The heartbeat connection has ended, so the process has. The ends of its other connections may still be in flight; watch them, so that
 * each wakes the monitor. */
static void watch_ends(struct tcp_wire *w, const struct epoll_event *end)
{
    uint32_t size = (uint32_t)w->ranks * TCP_SOCKETS, socket = end->data.u32;

    if (w->graph || !(end->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) || socket % TCP_SOCKETS != TCP_BEAT)
        return;
    struct tcp_link *link = &w->port[socket / size].link[socket % size / TCP_SOCKETS];
    for (uint32_t k = 0; k < TCP_LANES; k++) {
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u32 = link->lane[k].socket};
        if (!link->lane[k].ended)
            epoll_ctl(w->monitor.deaths, EPOLL_CTL_ADD, link->lane[k].fd, &event);
    }
}

uint32_t tcp_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    struct tcp_wire *w = tcp_wire_of(wire);
    struct epoll_event ends[16];
    uint32_t told = 0;

    base_lock(&w->lock, w->env);
    for (int n; (n = epoll_wait(w->monitor.deaths, ends, 16, 0)) > 0;)
        for (int i = 0; i < n; i++)
            watch_ends(w, &ends[i]); /* reading the sockets to the end is the reliable check */
    int64_t now = w->env->now(w->env), looked = w->monitor.polled_ns ? now - w->monitor.polled_ns : 0;
    bool tick = !w->monitor.polled_ns || looked >= w->times.tick_ns / 2;
    for (size_t i = 0; tick && w->rank >= 0 && i < (size_t)w->ranks; i++)
        if (w->links[i].here)
            beat(&w->links[i]);
    for (uint32_t i = 0; tick && i < w->channels; i++)
        if (w->channel[i])
            tcp_calls_tell(w->channel[i]);
    if (w->graph)
        tcp_acceptor_turn(w, tick);
    if (w->burst.held) /* the caller did not return in time */
        w->burst.rows_ended = w->burst.rows_long = 0;
    if (w->dirty)
        tcp_send_dirty(w);
    tcp_pump(w, NULL, 0);
    if (w->rank >= 0) /* ranks of one process die together */
        told = look(w, now, tick ? (looked < w->times.tick_ns ? looked : w->times.tick_ns) : 0, events, max);
    if (tick)
        w->monitor.polled_ns = now;
    base_unlock(&w->lock, w->env);
    tcp_acceptor_hear(w); /* after the look at what woke the monitor: later arrivals wake it again */
    return told;
}
