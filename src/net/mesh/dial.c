/* Dialing: from a socket to a connection to a peer that has proved its identity and confirmed the greeting. */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "net/posix/files.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum comm_result fail_peer(const struct mesh *m, uint32_t peer, enum comm_result result, const char *why)
{
    char text[80];

    mesh_name_address(&m->cards[peer].address, text, sizeof text);
    return mesh_fail(m, result, "connecting to rank %u at %s: %s", peer, text, why);
}

static enum comm_result begin_dial(struct mesh *m, struct dialing *d)
{
    const struct card *card = &m->cards[d->peer];

    d->stage = DIAL_CONNECTING;
    d->fd = files_socket(card->address.ss_family, m->w->log, mesh_files_for(m));
    if (d->fd < 0 && files_are_short(errno))
        return mesh_fail_files(m, errno);
    if (d->fd < 0)
        return mesh_fail(m, COMM_ERR_SYSTEM, "socket: %s", strerror(errno));
    m->w->env->own(m->w->env, d->fd, true); /* a child that is forked meanwhile must not keep it */
    if (m->steady)
        tcp_watch_for(m->w, d->fd);
    if (connect(d->fd, (const struct sockaddr *)&card->address, mesh_length_of(&card->address)) == 0 || errno == EINPROGRESS)
        return COMM_OK;
    return fail_peer(m, d->peer, COMM_ERR_SYSTEM, strerror(errno));
}

enum comm_result mesh_dial(struct mesh *m, uint32_t peer, uint32_t lane)
{
    struct dialing *d = &m->dials[m->dialing];

    *d = (struct dialing){.peer = peer, .lane = lane, .fd = -1};
    enum comm_result result = begin_dial(m, d);
    if (result == COMM_OK)
        m->dialing++;
    else if (d->fd >= 0)
        pending_close(m->w->env, d->fd);
    return result;
}

bool mesh_is_dialing(const struct mesh *m, uint32_t peer, uint32_t lane)
{
    uint32_t i = 0;

    while (i < m->dialing && (m->dials[i].peer != peer || m->dials[i].lane != lane))
        i++;
    return i < m->dialing;
}

static struct greeting greeting_for(const struct mesh *m, const struct dialing *d)
{
    struct greeting g = {MESH_MAGIC, FRAME_VERSION, (uint32_t)m->w->rank, d->peer, d->lane, 0, {0}};

    memcpy(g.word, m->cards[d->peer].word, MESH_WORD);
    return g;
}

/* The greeting has been sent. If it only asks to be dialed, that is all; otherwise the peer confirms that it has a place. */
static void greeted(const struct mesh *m, struct dialing *d, bool *done)
{
    d->stage = DIAL_GREETED;
    pending_wait_for(d->fd, sizeof(struct welcome));
    *done = d->lane >= TCP_SOCKETS;
    if (*done)
        pending_close(m->w->env, d->fd);
}

/* Called when connecting has succeeded or failed. */
static enum comm_result greet(struct mesh *m, struct dialing *d, bool *done)
{
    const struct handshake_names names = {HANDSHAKE_CONNECTION, (uint32_t)m->w->rank, d->peer, d->lane, m->how[d->peer]};
    struct greeting g = greeting_for(m, d);
    unsigned char hello[HANDSHAKE_HELLO];
    int error = 0;
    socklen_t length = sizeof error;

    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    if (!error && m->key && !handshake_hello(&d->shake, m->w->env, m->key, &names, hello))
        error = ENOMEM;
    if (!error)
        error = m->key ? mesh_send_now(d->fd, hello, sizeof hello) : mesh_send_now(d->fd, &g, sizeof g);
    if (error)
        return fail_peer(m, d->peer, COMM_ERR_PEER, strerror(error));
    d->stage = DIAL_ASKED;
    if (!m->key)
        greeted(m, d, done);
    return COMM_OK;
}

/* The peer had no place. Tries again at once while the world opens. In an open world the next attempt is later, so that a peer which never
 * has a place costs little. */
static enum comm_result had_no_place(struct mesh *m, struct dialing *d)
{
    if (m->steady)
        return fail_peer(m, d->peer, COMM_ERR_PEER, "it accepted the connection and closed it");
    pending_close(m->w->env, d->fd);
    return begin_dial(m, d);
}

/* Has the peer ended the connection? Asked before its bytes are looked at: what is not there then does not come. */
static bool has_ended(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Some bytes of an answer are there. */
static enum comm_result await_rest(struct mesh *m, const struct dialing *d, bool ended)
{
    return ended ? fail_peer(m, d->peer, COMM_ERR_PEER, "it ended amid its answer") : COMM_OK;
}

/* Reads the answer to the hello; the end of the connection means that the peer had no place. */
static enum comm_result finish(struct mesh *m, struct dialing *d, bool *done)
{
    unsigned char answer[HANDSHAKE_ANSWER], sealed[sizeof(struct greeting) + CRYPTO_TAG];
    struct greeting g = greeting_for(m, d);
    bool ended = has_ended(d->fd);
    ssize_t n = recv(d->fd, answer, sizeof answer, MSG_PEEK | MSG_DONTWAIT);
    enum handshake_fault fault = n >= HANDSHAKE_HEAD ? handshake_read_head(answer) : HANDSHAKE_OK;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return COMM_OK;
    if (n <= 0)
        return had_no_place(m, d);
    if (!fault && n < HANDSHAKE_ANSWER) {
        pending_wait_for(d->fd, HANDSHAKE_ANSWER);
        return await_rest(m, d, ended);
    }
    if (!fault && recv(d->fd, answer, sizeof answer, MSG_DONTWAIT) == (ssize_t)sizeof answer)
        fault = handshake_finish(&d->shake, answer);
    if (fault)
        return fail_peer(m, d->peer, COMM_ERR_AUTH, handshake_fault_text(fault));
    if (!seal_write(&d->shake.seal, &g, sizeof g, sealed))
        return fail_peer(m, d->peer, COMM_ERR_MEMORY, "no memory for the handshake");
    int error = mesh_send_now(d->fd, sealed, sizeof sealed);
    if (error)
        return fail_peer(m, d->peer, COMM_ERR_PEER, strerror(error));
    greeted(m, d, done);
    return COMM_OK;
}

/* Reads the peer's confirmation; the end of the connection means that the peer had no place. */
static enum comm_result confirm(struct mesh *m, struct dialing *d, bool *done)
{
    struct welcome w = {.magic = 0};
    bool ended = has_ended(d->fd);
    ssize_t n = recv(d->fd, &w, sizeof w, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return COMM_OK;
    if (n <= 0)
        return had_no_place(m, d);
    if (n < (ssize_t)sizeof w.magic || (n < (ssize_t)sizeof w && w.magic == MESH_MAGIC))
        return await_rest(m, d, ended);
    if (recv(d->fd, &w, sizeof w, MSG_DONTWAIT) != (ssize_t)sizeof w || w.magic != MESH_MAGIC)
        return fail_peer(m, d->peer, COMM_ERR_AUTH, "it speaks another language");
    if (!mesh_same_word(w.word, m->mine.word))
        return fail_peer(m, d->peer, COMM_ERR_AUTH, "what listens there is not that rank: it does not know this rank's word");
    pending_wait_for(d->fd, 1);
    if (!mesh_seal(m, d->peer, d->lane, m->key ? &d->shake.seal : NULL))
        return fail_peer(m, d->peer, COMM_ERR_MEMORY, "no memory for the connection");
    mesh_keep(m, d->peer, d->lane, d->fd);
    *done = true;
    return COMM_OK;
}

static enum comm_result go_on(struct mesh *m, struct dialing *d, bool *done)
{
    return d->stage == DIAL_CONNECTING ? greet(m, d, done) : d->stage == DIAL_ASKED ? finish(m, d, done) : confirm(m, d, done);
}

static void forget_dial(struct mesh *m, uint32_t at)
{
    m->dials[at] = m->dials[--m->dialing];
    crypto_wipe(&m->dials[m->dialing], sizeof m->dials[m->dialing]);
}

/* A peer that is stopped, or a host that is gone, may never answer. */
void mesh_drop_dials(struct mesh *m, uint32_t peer)
{
    for (uint32_t i = m->dialing; i-- > 0;)
        if (m->dials[i].peer == peer) {
            pending_close(m->w->env, m->dials[i].fd);
            forget_dial(m, i);
        }
}

/* In an open world a failure is not an error: links.c dials again while there is time. */
static enum comm_result end_dial(struct mesh *m, uint32_t at, enum comm_result result)
{
    struct dialing *d = &m->dials[at];

    if (result != COMM_OK && m->steady)
        base_log(m->w->log, LOG_DEBUG, "tcp: %s", m->config->error_text);
    if (result != COMM_OK && d->fd >= 0)
        pending_close(m->w->env, d->fd);
    forget_dial(m, at);
    return m->steady ? COMM_OK : result;
}

enum comm_result mesh_dial_on(struct mesh *m, uint32_t at)
{
    bool done = false;
    enum comm_result result = go_on(m, &m->dials[at], &done);

    return done || result != COMM_OK ? end_dial(m, at, result) : COMM_OK;
}
