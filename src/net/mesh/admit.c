/*
 * The listener's side of connecting. Every new connection is a pending peer until it has sent the listener's random word or proved the
 * job's secret. It has two seconds, may send exactly the bytes of a greeting, and nothing is allocated for it. While a world opens this is
 * part of mesh_turn. In an open world with links that are made when needed, it is mesh_hear, whose rate is limited.
 */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "base/format.h"
#include "net/posix/files.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REFUSALS_LOGGED_NS = 1000000000, ACCEPTS_A_TURN = 16 };

/* Whether the greeting has our word and is from a lower rank, or from a higher one that asks to be dialed. */
static bool is_ours(const struct mesh *m, const struct greeting *g)
{
    if (!mesh_same_word(g->word, m->mine.word) || g->magic != MESH_MAGIC || g->version != FRAME_VERSION || g->to != (uint32_t)m->w->rank ||
        g->from >= (uint32_t)m->w->ranks)
        return false;
    return g->lane < TCP_SOCKETS ? g->from < g->to : m->w->graph && g->from > g->to && g->lane < MESH_LANES;
}

/* Whether this connection is still missing and its link is not down: a rank that closes may still have been dialing. */
static bool is_awaited(const struct mesh *m, const struct greeting *g)
{
    const struct tcp_link *link = &m->w->links[g->from];

    return !link->down && (g->lane >= TCP_SOCKETS || link->lane[g->lane].fd < 0);
}

static bool is_whole(int fd)
{
    struct greeting g;

    return recv(fd, &g, sizeof g, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof g;
}

/* Reads exactly one greeting. */
static enum pending_heard hear_plain(int fd, struct greeting *g, short seen, bool last)
{
    char byte;

    if (!last && !is_whole(fd) && (!seen || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0))
        return PENDING_LATER;
    return recv(fd, g, sizeof *g, MSG_DONTWAIT) == (ssize_t)sizeof *g ? PENDING_DONE : PENDING_OUT;
}

static enum pending_heard hear_proof(struct mesh *m, struct pending_peer *s, struct greeting *g, bool last, char why[PENDING_WHY])
{
    const struct pending_acceptor acceptor = {m->w->env,  m->key, HANDSHAKE_CONNECTION, (uint32_t)m->w->rank, MESH_MAGIC,
                                              &m->hellos, m->how, (uint32_t)m->w->ranks};
    enum pending_heard heard;

    if (s->answered) {
        heard = pending_greeting(s, g, sizeof *g, last);
        return heard == PENDING_DONE && (g->from != s->names.from || g->lane != s->names.lane) ? PENDING_OUT : heard;
    }
    heard = pending_hello(&acceptor, s, last, why);
    if (s->answered)
        accept_limiter_charge(&m->accept_limiter, m->now, RATE_ANSWER_NS);
    return heard == PENDING_DONE ? PENDING_LATER : heard == PENDING_PLAIN ? PENDING_OUT : heard;
}

static void turn_away(struct mesh *m, int fd, const char *why)
{
    char address[INET6_ADDRSTRLEN];
    bool tells = !m->refused++ || m->now - m->refused_ns >= REFUSALS_LOGGED_NS;

    if (tells || !m->steady) {
        pending_name(fd, address, sizeof address);
        base_format(m->refusal, sizeof m->refusal, "from %s: %s", address, why);
    }
    if (tells) {
        m->refused_ns = m->now;
        base_log(m->w->log, LOG_WARNING, "tcp: a connection was refused %s (%u so far)", m->refusal, m->refused);
    }
    pending_drain(fd);
    pending_close(m->w->env, fd);
}

/* Takes the memory before it tells the dialer that it is admitted. An admitted dialer sends at once. A dialer that hears nothing dials
 * again. */
static bool take_in(struct mesh *m, const struct greeting *g, struct pending_peer *s)
{
    struct welcome w = {.magic = MESH_MAGIC};

    if (g->lane >= TCP_SOCKETS) {
        pending_close(m->w->env, s->fd);
        tcp_want(&m->w->links[g->from], g->lane == MESH_CALL_BASE);
        return true;
    }
    memcpy(w.word, m->cards[g->from].word, MESH_WORD);
    if (!mesh_seal(m, g->from, g->lane, &s->shake.seal)) {
        m->lacks_memory = true;
        return false;
    }
    if (mesh_send_now(s->fd, &w, sizeof w)) {
        mesh_unseal(m, g->from, g->lane);
        return false;
    }
    mesh_keep(m, g->from, g->lane, s->fd);
    return true;
}

/* In an open world, greetings are read without the wire's lock, and the connection is added under it. */
static bool let_in(struct mesh *m, const struct greeting *g, struct pending_peer *s)
{
    if (m->steady) {
        epoll_ctl(m->outside, EPOLL_CTL_DEL, s->fd, NULL); /* the acceptor does not watch it any more */
        base_lock(&m->w->lock, m->w->env);
    }
    bool in = is_awaited(m, g) && take_in(m, g, s);
    if (m->steady)
        base_unlock(&m->w->lock, m->w->env);
    if (in)
        accept_limiter_give_back(&m->accept_limiter, RATE_ACCEPT_NS + (s->answered ? RATE_ANSWER_NS : 0) + 2 * RATE_LOOK_NS);
    return in;
}

void mesh_hear_one(struct mesh *m, uint32_t at, short seen)
{
    struct pending_peer *s = &m->pending_peers.one[at];
    bool last = m->now >= s->until || (seen & (POLLERR | POLLHUP | POLLRDHUP));
    char why[PENDING_WHY] = "it does not know the word of this job's ranks";
    struct greeting g = {.magic = 0};
    enum pending_heard heard = m->key ? hear_proof(m, s, &g, last, why) : hear_plain(s->fd, &g, seen, last);

    if (heard == PENDING_LATER)
        return;
    bool ours = heard == PENDING_DONE && is_ours(m, &g);
    if (ours && let_in(m, &g, s)) {
        m->missing -= m->missing != 0;
    } else if (ours && m->steady) {
        base_log(m->w->log, LOG_DEBUG, "tcp: rank %u came for socket %u too late, or twice, or there is no memory for it", g.from, g.lane);
        pending_close(m->w->env, s->fd);
    } else {
        turn_away(m, s->fd, ours ? "it is connected already, or there is no memory for its connection" : why);
    }
    pending_forget(&m->pending_peers, at);
}

/* Called when nothing is left for a connection. Closes a pending peer first, and returns true; an honest one connects again. In an open
 * world the acceptor rests, and then tries again: the connection is still in the listener's queue, of which epoll tells only once. */
static bool make_room(struct mesh *m, int error, enum comm_result *result)
{
    if (m->pending_peers.count) {
        pending_drop_eldest(&m->pending_peers, m->w->env);
        return true;
    }
    enum comm_result failed = mesh_fail_files(m, error);
    if (!m->steady) {
        *result = failed;
        return false;
    }
    if (m->now - m->refused_ns >= REFUSALS_LOGGED_NS) {
        m->refused_ns = m->now;
        base_log(m->w->log, LOG_WARNING, "tcp: a connection cannot be accepted yet: %s", m->config->error_text);
    }
    accept_limiter_pause(&m->accept_limiter, m->now, RATE_SHORT_NS);
    return false;
}

/* Adds a descriptor to the watched ones; if it is there already, it is checked again. */
void mesh_watch_outside(struct mesh *m, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};

    if (epoll_ctl(m->outside, EPOLL_CTL_ADD, fd, &event) < 0 && errno == EEXIST)
        epoll_ctl(m->outside, EPOLL_CTL_MOD, fd, &event);
}

/* Accepts at most `most` connections. Returns how many came. */
uint32_t mesh_accept_pending(struct mesh *m, uint32_t most, enum comm_result *result)
{
    uint32_t came = 0;

    while (came < most) {
        int fd = files_accept(m->listener, m->w->log, mesh_files_for(m));
        if (fd < 0 && files_are_short(errno) && make_room(m, errno, result))
            continue;
        if (fd < 0)
            break;
        pending_add(&m->pending_peers, m->w->env, fd, m->now);
        accept_limiter_charge(&m->accept_limiter, m->now, RATE_ACCEPT_NS);
        came++;
    }
    return came;
}

/* Reads what the newest `many` pending peers have sent. m->wait is the dials': when the process exits, another thread dials meanwhile. */
static void hear_newest(struct mesh *m, uint32_t many)
{
    struct pollfd wait[UNAUTHENTICATED_MAX];
    uint32_t first = m->pending_peers.count - many;

    for (uint32_t i = 0; i < many; i++)
        wait[i] = (struct pollfd){.fd = m->pending_peers.one[first + i].fd, .events = POLLIN | POLLRDHUP};
    poll(wait, many, 0);
    for (uint32_t i = many; i-- > 0;)
        mesh_hear_one(m, first + i, wait[i].revents);
}

/* Accepts connections. Most are identified at once; the others are watched. */
static uint32_t hear_newcomers(struct mesh *m)
{
    enum comm_result ignored = COMM_OK;
    uint32_t came = mesh_accept_pending(m, ACCEPTS_A_TURN, &ignored);
    uint32_t here = came < m->pending_peers.count
                        ? came
                        : m->pending_peers.count; /* without descriptors, a new peer may have pushed out another new one */
    uint32_t first = m->pending_peers.count - here;

    hear_newest(m, here);
    for (uint32_t i = first; i < m->pending_peers.count; i++)
        mesh_watch_outside(m, m->pending_peers.one[i].fd);
    return came;
}

int64_t mesh_hear(struct mesh *m)
{
    struct epoll_event seen[UNAUTHENTICATED_MAX + 1];
    uint32_t came = 0;

    do {
        m->now = m->w->env->now(m->w->env);
        int told = epoll_wait(m->outside, seen, UNAUTHENTICATED_MAX + 1, 0);
        hear_newest(m, m->pending_peers.count);
        came = hear_newcomers(m);
        if (told > 0 || came)
            accept_limiter_charge(&m->accept_limiter, m->now, RATE_LOOK_NS);
    } while (came == ACCEPTS_A_TURN && !accept_limiter_rest(&m->accept_limiter, m->now));
    if (came == ACCEPTS_A_TURN) /* there may be more */
        mesh_watch_outside(m, m->listener);
    return accept_limiter_rest(&m->accept_limiter, m->now);
}
