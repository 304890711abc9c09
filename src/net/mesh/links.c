/*
 * Links that are made when needed (COMM_TCP_LINKS). When a world opens, each rank connects to its neighbours in a base graph: the ranks 1,
 * 2, 4, 16, 64 ... ahead and behind, about log2 p of them. Neighbours watch each other, and forward notes to all ranks (relay.c).
 *
 * Any other link is made when the first frame is to be sent over it; the frame waits in its lane until then. The lower rank of the pair
 * dials. The higher one asks the lower one to dial, by a connection that carries nothing else. So if both need the link at once, there is
 * still only one. The monitor does this by the same steps as while a world opens (mesh.c). The listener stays open and authenticates peers
 * in the same way. Pending peers wake the monitor only as often as the accept limiter allows (net/auth/accept_limiter.h).
 *
 * When a rank is gone, its neighbours connect to the next living rank, so the graph of living ranks stays connected.
 */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "base/format.h"
#include "base/option.h"
#include "net/auth/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAKE_NS INT64_C(10000000000) /* a link that is not connected by then has failed */
#define AGAIN_NS INT64_C(300000000)
#define GOODBYE_LATE_NS INT64_C(5000000000)
#define DEATH_LATE_NS INT64_C(300000000)

struct tcp_acceptor {
    struct tcp_graph graph; /* first, because the wire points to it */
    struct mesh *mesh;      /* NULL until the world is open */
    struct wire_config config;
    unsigned char *key; /* from secret_take; NULL: the job has no secret */
    char text[256];     /* why the last dial failed */
    bool repair;
    int64_t turned_ns; /* time of the last turn */
    int rest;          /* a timer: when to look at the acceptor again */
    size_t bytes;
};

static struct tcp_acceptor *acceptor_of(const struct tcp_wire *w)
{
    return (struct tcp_acceptor *)(void *)w->graph;
}

/* ------------------------------------------------------------------------------------------------------------ the base graph */
/* Wants a link to the next living rank for each step. */
static void repair(struct tcp_wire *w)
{
    struct tcp_acceptor *d = acceptor_of(w);

    d->repair = false;
    for (uint32_t i = 0; i < d->graph.steps; i++) {
        int32_t peer = (w->rank + d->graph.step[i]) % w->ranks;
        while (peer != w->rank && (w->links[peer].down || w->links[peer].told.kind))
            peer = (peer + 1) % w->ranks;
        if (peer != w->rank && !tcp_is_neighbour(&w->links[peer]))
            tcp_want(&w->links[peer], true);
    }
}

/* ------------------------------------------------------------------------------------------------------------ opening */
enum comm_result tcp_acceptor_make(struct tcp_wire *w, const struct wire_config *config)
{
    int64_t links = TCP_LINKS_AUTO;
    size_t ranks = (size_t)w->ranks, bytes = sizeof(struct tcp_acceptor) + ranks * (sizeof(struct tcp_link *) + sizeof(int32_t));

    if (!base_option_lookup(w->env, "tcp_links", &links)) {
        base_format(config->error_text, config->error_text_bytes, "COMM_TCP_LINKS is not one of auto, all, needed");
        return COMM_ERR_CONFIG;
    }
    if (links == TCP_LINKS_AUTO)
        links = w->ranks > TCP_LINKS_MANY ? TCP_LINKS_NEEDED : TCP_LINKS_ALL;
    if (links == TCP_LINKS_ALL || w->rank < 0) /* all ranks are in this process */
        return COMM_OK;
    struct tcp_acceptor *d = w->env->take(w->env, bytes, 64);
    if (d) {
        w->graph = &d->graph;
        d->bytes = bytes;
        d->rest = -1;
        d->graph.base = (struct tcp_link **)(void *)(d + 1);
        d->graph.want = (int32_t *)(void *)(d->graph.base + ranks);
        for (int64_t step = 1; step < w->ranks && d->graph.steps < TCP_BASE_MOST; step *= step < 4 ? 2 : 4)
            d->graph.step[d->graph.steps++] = (int32_t)step;
        d->graph.relay = tcp_relay_make(w);
    }
    if (d && d->graph.relay)
        return COMM_OK;
    base_format(config->error_text, config->error_text_bytes, "no memory for the links of %d ranks", w->ranks);
    return COMM_ERR_MEMORY;
}

/* on: the acceptor wakes the monitor once more. */
static void watch_acceptor(struct tcp_wire *w, int how, bool on)
{
    struct epoll_event event = {.events = on ? EPOLLIN | EPOLLONESHOT : 0, .data.u32 = UINT32_MAX};

    epoll_ctl(w->monitor.deaths, how, acceptor_of(w)->mesh->outside, &event);
}

static bool open_outside(struct tcp_wire *w, struct mesh *m)
{
    m->outside = epoll_create1(EPOLL_CLOEXEC);
    acceptor_of(w)->rest = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    w->env->own(w->env, m->outside, true);
    w->env->own(w->env, acceptor_of(w)->rest, true);
    return m->outside >= 0 && acceptor_of(w)->rest >= 0;
}

bool tcp_acceptor_open(struct tcp_wire *w, struct mesh *m)
{
    struct tcp_acceptor *d = acceptor_of(w);

    d->mesh = m;
    d->config = *m->config;
    d->config.error_text = d->text;
    d->config.error_text_bytes = sizeof d->text;
    m->config = &d->config;
    if (m->key) {
        d->key = secret_take(CRYPTO_KEY);
        if (!d->key)
            return false;
        memcpy(d->key, m->key, CRYPTO_KEY);
        m->key = d->key;
    }
    m->steady = true;
    m->accept_limiter = (struct accept_limiter){0};
    for (int32_t i = 0; i < w->ranks; i++)
        mesh_name_address(&m->cards[i].address, w->links[i].address, sizeof w->links[i].address);
    if (!open_outside(w, m))
        return false;
    mesh_watch_outside(m, m->listener);
    watch_acceptor(w, EPOLL_CTL_ADD, true);
    tcp_watch_for(w, d->rest);
    return true;
}

void tcp_acceptor_close(struct tcp_wire *w)
{
    struct tcp_acceptor *d = acceptor_of(w);

    if (!d)
        return;
    if (d->mesh)
        mesh_close(d->mesh);
    w->env->own(w->env, d->rest, false);
    if (d->rest >= 0)
        close(d->rest);
    if (d->graph.relay)
        tcp_relay_give(w, d->graph.relay);
    secret_give(d->key, CRYPTO_KEY);
    w->env->give(w->env, d, d->bytes);
    w->graph = NULL;
}

/* Adds a descriptor to those that wake the monitor; if it is there already, it is checked again. */
void tcp_watch_for(struct tcp_wire *w, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = UINT32_MAX};

    if (epoll_ctl(w->monitor.deaths, EPOLL_CTL_ADD, fd, &event) < 0 && errno == EEXIST)
        epoll_ctl(w->monitor.deaths, EPOLL_CTL_MOD, fd, &event);
}

/* ------------------------------------------------------------------------------------------------------------ making one */
/* Both ends of a connection call this, each for itself. */
void tcp_lane_up(struct tcp_lane *lane)
{
    struct tcp_link *link = lane->link;
    struct tcp_wire *w = lane->port->wire;
    int error = tcp_lane_start(lane);

    if (error) {
        base_log(w->log, LOG_WARNING, "tcp: peer=%d lane=%u: %s", link->peer, lane->lane, strerror(error));
        tcp_lane_down(lane);
        return;
    }
    if (lane->lane != TCP_BEAT)
        tcp_receive_start(lane);
    if (lane->lane != TCP_BEAT && tcp_relay_said_goodbye(w)) /* this rank is closing: without a goodbye, its end would look like a death */
        tcp_post_goodbye(lane);
    if (link->lane[TCP_LANE_SMALL].fd >= 0 && link->lane[TCP_LANE_BULK].fd >= 0 && !link->here) {
        link->here = true;
        base_log(w->log, LOG_DEBUG, "tcp: rank=%d peer=%d: linked, %lld us after it was needed", w->rank, link->peer,
                 (long long)(link->wanted ? (w->env->now(w->env) - link->wanted_ns) / 1000 : 0));
        for (uint32_t i = 0; i < w->channels; i++)
            if (w->channel[i] && !w->channel[i]->aborted)
                tcp_tell_new(w->channel[i], link);
    }
    tcp_lane_opened(lane);
    if (w->armed && !w->rung) {
        w->rung = true;
        w->env->bell_ring(w->env, w->bell);
    }
}

static void give_up(struct tcp_wire *w, struct tcp_link *link, int64_t waited)
{
    base_log(w->log, LOG_WARNING, "tcp: no connection with rank %d for %lld s; %s", link->peer, (long long)(waited / 1000000000),
             acceptor_of(w)->text[0] ? acceptor_of(w)->text : "is a firewall between them?");
    link->told = (struct wire_event){
        .kind = WIRE_EVENT_DOWN, .result = COMM_ERR_PEER, .peer = link->peer, .tag = WIRE_CUT, .bytes = (uint64_t)waited};
}

static void dial_link(struct mesh *m, struct tcp_link *link)
{
    uint32_t peer = (uint32_t)link->peer, first = TCP_LANE_SMALL, last = link->wants_base ? TCP_BEAT : TCP_LANE_BULK;
    bool asks = m->w->rank > link->peer;

    if (asks)
        first = last = link->wants_base ? MESH_CALL_BASE : MESH_CALL;
    for (uint32_t lane = first; lane <= last; lane++)
        if ((asks || link->lane[lane].fd < 0) && !mesh_is_dialing(m, peer, lane) && mesh_dial(m, peer, lane) != COMM_OK)
            base_log(m->w->log, LOG_DEBUG, "tcp: %s", m->config->error_text);
}

void tcp_acceptor_hear(struct tcp_wire *w)
{
    struct tcp_acceptor *d = acceptor_of(w);

    if (!d || accept_limiter_rest(&d->mesh->accept_limiter, w->env->now(w->env)))
        return;
    int64_t rest = mesh_hear(d->mesh);
    struct itimerspec timer = {.it_value = {.tv_sec = (time_t)(rest / 1000000000), .tv_nsec = (long)(rest % 1000000000)}};

    if (rest)
        timerfd_settime(d->rest, 0, &timer, NULL);
    watch_acceptor(w, EPOLL_CTL_MOD, !rest);
}

/* How long this process was stopped since the last turn, beyond a tick or two. No link could be made in that time. */
static int64_t stood_still(const struct tcp_wire *w, int64_t now)
{
    int64_t since = acceptor_of(w)->turned_ns ? now - acceptor_of(w)->turned_ns : 0;

    return since > 2 * w->times.tick_ns ? since - w->times.tick_ns : 0;
}

void tcp_acceptor_turn(struct tcp_wire *w, bool tick)
{
    struct tcp_acceptor *d = acceptor_of(w);
    int64_t now = w->env->now(w->env), still = stood_still(w, now);

    d->turned_ns = now;
    if (tick && d->repair)
        repair(w);
    for (uint32_t i = d->graph.wanting; i-- > 0;) {
        struct tcp_link *link = &w->links[d->graph.want[i]];
        link->wanted_ns = link->wanted_ns + still < now ? link->wanted_ns + still : now;
        int64_t waited = now - link->wanted_ns;
        bool over = !link->down && !tcp_stands(link) && waited >= MAKE_NS;
        if (over)
            give_up(w, link, waited);
        if (over || link->down) /* otherwise its dials might hold their places for ever, and then no other link could be made */
            mesh_drop_dials(d->mesh, (uint32_t)link->peer);
        if (over || link->down || tcp_stands(link)) {
            link->wanted = false;
            d->graph.want[i] = d->graph.want[--d->graph.wanting];
        } else if (now >= link->again_ns && !link->told.kind && d->mesh->dialing + TCP_SOCKETS <= d->mesh->dials_room) {
            link->again_ns = now + AGAIN_NS;
            dial_link(d->mesh, link);
        }
    }
    mesh_turn(d->mesh, 0);
}

bool tcp_acceptor_busy(struct tcp_wire *w)
{
    const struct tcp_acceptor *d = acceptor_of(w);
    bool busy = false;

    for (uint32_t i = 0; d && i < d->graph.wanting; i++) {
        const struct tcp_link *link = &w->links[d->graph.want[i]];
        busy |= !link->down && (link->lane[TCP_LANE_SMALL].out || link->lane[TCP_LANE_BULK].out);
    }
    return busy;
}

/* ------------------------------------------------------------------------------------------------------------ ends */
/* Whether all that the rank said before its goodbye has arrived, or never will. */
static bool is_heard(const struct tcp_wire *w, const struct tcp_link *link, int64_t now)
{
    return link->told.kind &&
           (link->told.result != COMM_ERR_CLOSED || tcp_relay_is_whole(w, link->peer) || now - link->told_ns > GOODBYE_LATE_NS);
}

/* A connection of our own shows by itself when the peer's process has ended. Only neighbours can tell whether it is stopped. */
bool tcp_ends_as_told(struct tcp_wire *w, struct tcp_link *link, int64_t now)
{
    bool connected = false;

    if (!is_heard(w, link, now))
        return false;
    if (link->told.bytes)
        return !tcp_is_neighbour(link);
    for (uint32_t k = 0; k < TCP_SOCKETS; k++)
        connected |= link->lane[k].fd >= 0 || mesh_is_dialing(acceptor_of(w)->mesh, (uint32_t)link->peer, k);
    return !connected;
}

/* A rank that closes says goodbye on the small connection if that is established for it. It may dial, be admitted, and close before it
 * learns so; then its goodbye comes through other ranks. */
static bool stood_for_both(const struct tcp_link *link)
{
    return link->sure || link->lane[TCP_LANE_SMALL].in_number;
}

/* A rank's words to all come through its neighbours, and so do their reports of its end, after those words. They are waited for, but not
 * for ever. */
bool tcp_has_said_all(const struct tcp_wire *w, const struct tcp_link *link, int64_t now)
{
    bool stood = stood_for_both(link);
    int64_t late = link->goodbye || !stood ? GOODBYE_LATE_NS : DEATH_LATE_NS;

    return !w->graph || (stood && tcp_is_neighbour(link)) || is_heard(w, link, now) || now - link->ended_ns > late;
}

void tcp_link_lost(struct tcp_wire *w, struct tcp_link *link)
{
    bool dead = link->gone.result != COMM_ERR_CLOSED && link->gone.tag != WIRE_GAVE_UP;

    if (tcp_is_neighbour(link) && dead && !link->told.kind)
        tcp_relay_down(w, &link->gone);
    acceptor_of(w)->repair = true; /* many ranks close at once, so the repair waits for the next tick */
    if (dead)
        repair(w);
}
