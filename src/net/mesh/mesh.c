/*
 * Connecting while a world opens. Every rank listens on one of its addresses, at a port that the kernel chooses. Ranks exchange the ports
 * and a random word of each listener over the boot. The lower rank of each pair dials, and greets with the listener's word. If the job has
 * a secret, each connection proves it before the greeting, which is then sealed. When all peers are connected, the listener is closed,
 * unless links are made later. admit.c decides about incoming connections.
 */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "base/format.h"
#include "base/result.h"
#include "data/data.h"
#include "net/posix/files.h"
#include "net/posix/interface.h"
#include "net/auth/secret.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN_MS = 100, TELL_NS = 1000000000, LOOK_NS = 50000000 };

enum comm_result mesh_fail(const struct mesh *m, enum comm_result result, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    base_format_list(m->config->error_text, m->config->error_text_bytes, format, list);
    va_end(list);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ greeting */
/* Sends without waiting. A new connection has room for this. */
int mesh_send_now(int fd, const void *bytes, size_t count)
{
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);

    return n == (ssize_t)count ? 0 : n < 0 ? errno : EIO;
}

/* Takes the same time wherever the words differ. */
bool mesh_same_word(const unsigned char a[MESH_WORD], const unsigned char b[MESH_WORD])
{
    unsigned char differs = 0;

    for (int i = 0; i < MESH_WORD; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return !differs;
}

bool mesh_seal(const struct mesh *m, uint32_t rank, uint32_t which, const struct seal *keys)
{
    struct tcp_lane *lane = &m->w->links[rank].lane[which];
    bool checked = m->w->checked && which != TCP_BEAT; /* a changed heartbeat has the same meaning */

    if (!m->w->sealed && !checked)
        return true;
    return tcp_lane_seal(lane, keys, m->w->sealed ? (enum crypto_kind)m->how[lane->link->peer] : CRYPTO_NONE);
}

void mesh_unseal(const struct mesh *m, uint32_t rank, uint32_t which)
{
    struct tcp_lane *lane = &m->w->links[rank].lane[which];

    record_end(lane->records);
    lane->records = NULL;
}

void mesh_keep(struct mesh *m, uint32_t rank, uint32_t which, int fd)
{
    struct tcp_lane *lane = &m->w->links[rank].lane[which];
    struct sockaddr_storage other;
    socklen_t length = sizeof other;
    int32_t peer = lane->link->peer;

    memset(&other, 0, sizeof other);
    if (!m->steady && getpeername(fd, (struct sockaddr *)&other, &length) == 0) /* once steady, other threads may be reading it */
        mesh_name_address(&other, lane->link->address, sizeof lane->link->address);
    mesh_set_options(m->w, fd, m->cards[peer].host == m->mine.host);
    lane->fd = fd;
    m->w->env->own(m->w->env, fd, true);
    lane->link->sure |= which == TCP_LANE_SMALL && (!m->steady || m->w->rank < peer); /* a dialer is told that it was admitted */
    if (m->steady)
        tcp_lane_up(lane);
}

/* How many descriptors a rank needs while it connects: for all its connections, or for those to neighbours. */
uint32_t mesh_files_for(const struct mesh *m)
{
    uint32_t others = m->w->graph ? 2 * TCP_BASE_MOST : (uint32_t)m->w->ranks - 1;

    return others * TCP_SOCKETS + FILES_OF_A_WORLD;
}

enum comm_result mesh_fail_files(const struct mesh *m, int error)
{
    char lack[160];

    files_name_shortage(lack, sizeof lack, mesh_files_for(m), error);
    return mesh_fail(m, COMM_ERR_SYSTEM, "rank %d of %d ranks: %s", m->w->rank, m->w->ranks, lack);
}

/* ------------------------------------------------------------------------------------------------------------ the loop */
/* Whether the link to this peer is made while the world opens. */
static bool is_wanted(const struct mesh *m, int32_t peer)
{
    return m->w->graph ? tcp_is_base(m->w, peer) : wire_joins(m->config, m->w->rank, peer);
}

static enum comm_result late(const struct mesh *m)
{
    char text[512];
    size_t at = 0, named = 0;

    text[0] = 0;
    for (int32_t i = 0; i < m->w->ranks && named < 16; i++) {
        bool there = true;
        for (int k = 0; k < TCP_SOCKETS; k++)
            there &= !is_wanted(m, i) || m->w->links[i].lane[k].fd >= 0;
        if (!there && ++named)
            base_append(text, sizeof text, &at, " %d", i);
    }
    if (m->refused)
        base_append(text, sizeof text, &at, " (connections refused: %u, the last one %s)", m->refused, m->refusal);
    return mesh_fail(m, COMM_ERR_TIMEOUT, "rank %d could not be connected in time with ranks:%s; is a firewall between them?", m->w->rank,
                     text);
}

enum comm_result mesh_turn(struct mesh *m, int wait_ms)
{
    enum comm_result result = COMM_OK;
    uint32_t pending_peers = m->steady ? 0 : m->pending_peers.count;
    nfds_t n = 0;

    m->wait[n++] = (struct pollfd){.fd = m->missing && !m->steady ? m->listener : -1, .events = POLLIN};
    for (uint32_t i = 0; i < pending_peers; i++)
        m->wait[n++] = (struct pollfd){.fd = m->pending_peers.one[i].fd, .events = POLLIN | POLLRDHUP};
    for (uint32_t i = 0; i < m->dialing; i++)
        m->wait[n++] = (struct pollfd){.fd = m->dials[i].fd, .events = m->dials[i].stage == DIAL_CONNECTING ? POLLOUT : POLLIN};
    poll(m->wait, n, wait_ms);
    if (!m->steady) /* then it is mesh_hear's, which holds no lock */
        m->now = m->w->env->now(m->w->env);
    for (uint32_t i = m->dialing; i-- > 0 && result == COMM_OK;) {
        if (m->wait[1 + pending_peers + i].revents)
            result = mesh_dial_on(m, i);
    }
    for (uint32_t i = pending_peers; i-- > 0;)
        mesh_hear_one(m, i, m->wait[1 + i].revents);
    if (!m->steady && m->lacks_memory && result == COMM_OK)
        result = mesh_fail(m, COMM_ERR_MEMORY, "rank %d has no memory for a connection", m->w->rank);
    if (m->wait[0].revents && result == COMM_OK)
        mesh_accept_pending(m, 1, &result);
    return result;
}

/* Ranks that are gone are not waited for. A rank that notices it goes on to the exchange, which reports it to all ranks. */
static bool somebody_is_gone(struct mesh *m, int64_t now)
{
    struct wire_boot *boot = m->config->boot;

    if (!boot->class->is_over || now - m->looked_ns < LOOK_NS)
        return false;
    m->looked_ns = now;
    return boot->class->is_over(boot);
}

static enum comm_result connect_more(struct mesh *m)
{
    int64_t now = m->w->env->now(m->w->env);

    if (now >= m->until)
        return late(m);
    if (somebody_is_gone(m, now))
        return mesh_fail(m, COMM_ERR_PEER, "a rank was gone before rank %d was connected to all", m->w->rank);
    return mesh_turn(m, TURN_MS);
}

static enum comm_result connect_all(struct mesh *m)
{
    enum comm_result result = COMM_OK;
    int32_t mine = m->w->rank;
    int64_t left = m->config->deadline - m->w->env->now(m->w->env);

    m->until = m->config->deadline - (left / 8 < TELL_NS ? left / 8 : TELL_NS);
    for (int32_t peer = 0; peer < mine; peer++)
        m->missing += is_wanted(m, peer) ? TCP_SOCKETS : 0;
    for (int32_t peer = mine + 1; peer < m->w->ranks; peer++)
        for (uint32_t lane = 0; lane < TCP_SOCKETS && result == COMM_OK && is_wanted(m, peer); lane++)
            result = mesh_dial(m, (uint32_t)peer, lane);
    while (result == COMM_OK && (m->missing || m->dialing))
        result = connect_more(m);
    pending_close_all(&m->pending_peers, m->w->env);
    for (; m->dialing; crypto_wipe(&m->dials[m->dialing], sizeof m->dials[m->dialing]))
        pending_close(m->w->env, m->dials[--m->dialing].fd);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ meeting */
static void prepare(struct mesh *m)
{
    const struct comm_env *env = m->w->env;
    const char *address = m->config->boot->address[0] ? m->config->boot->address : "127.0.0.1";
    struct env_identity who;
    int error = 0;

    env->identity(env, &who);
    m->mine.magic = MESH_MAGIC;
    m->mine.version = FRAME_VERSION;
    m->mine.host = who.host_id;
    m->mine.float_mode = data_float_mode();
    m->mine.endian = 0x01020304;
    m->mine.proves = m->key != NULL;
    m->mine.seal = m->w->seal_choice;
    m->mine.aes = m->w->aes;
    m->mine.checks = m->w->checked;
    m->mine.links = m->w->graph != NULL;
    if (!mesh_read_address(address, &m->mine.address))
        error = EAFNOSUPPORT;
    if (!error)
        error = mesh_listen_on(&m->mine.address, m->w->ranks * TCP_SOCKETS + UNAUTHENTICATED_MAX, &m->listener);
    if (!error)
        mesh_await_words(m->listener, (int)(PENDING_NS / 1000000000));
    env->own(env, m->listener, true);
    if (!error)
        error = env->random(env, m->mine.word, MESH_WORD);
    if (!error)
        return;
    m->mine.result = COMM_ERR_SYSTEM;
    base_format(m->mine.text, MESH_TEXT, "listening on %s: %s", address, strerror(error));
}

/*
 * The lowest rank that failed is reported. But a connection may have broken because another rank gave up, and that rank knows the reason.
 */
static enum comm_result tell_failed(struct mesh *m)
{
    int32_t ranks = m->w->ranks, who = ranks;

    for (int32_t i = ranks - 1; i >= 0; i--)
        if (m->cards[i].result != COMM_OK && (who == ranks || m->cards[i].result != COMM_ERR_PEER || m->cards[who].result == COMM_ERR_PEER))
            who = i;
    return who == ranks ? COMM_OK
                        : mesh_fail(m, base_result_told(m->cards[who].result), "rank %d: %.*s", who, MESH_TEXT, m->cards[who].text);
}

/* ------------------------------------------------------------------------------------------------------------ sealing */
/* Whether machines other than this one could see the traffic. */
static bool is_far(const struct mesh *m)
{
    bool far = false;

    for (int32_t i = 0; i < m->w->ranks; i++)
        far |= !interface_is_loopback((const struct sockaddr *)&m->cards[i].address);
    return far;
}

static bool seals(const struct card *card, bool far)
{
    return card->seal == TCP_SEAL_YES || (card->seal == TCP_SEAL_AUTO && card->proves && far);
}

static const char *seal_text(const struct card *card, bool far)
{
    return card->seal == TCP_SEAL_YES  ? "yes"
           : card->seal == TCP_SEAL_NO ? "no"
           : seals(card, far)          ? "auto, which is yes here,"
                                       : "auto, which is no here,";
}

/* Every rank computes the same from the exchanged cards. If there is a secret, no attacker in between could change them, and the handshake
 * of each connection proves that both ends agree. */
static enum comm_result agree_on_seal(struct mesh *m)
{
    struct tcp_wire *w = m->w;
    bool far = is_far(m), sealed = seals(&m->cards[0], far);

    for (int32_t i = 0; i < w->ranks; i++) {
        const struct card *card = &m->cards[i];
        if (card->seal == TCP_SEAL_YES && !card->proves)
            return mesh_fail(m, COMM_ERR_CONFIG,
                             "rank %d has COMM_TCP_SEAL=yes, and this job has no secret to make keys of: give every rank the same "
                             "COMM_SECRET_FILE or COMM_SECRET; `comm-info --new-secret` makes one",
                             i);
        if (seals(card, far) != sealed)
            return mesh_fail(m, COMM_ERR_CONFIG, "rank %d has COMM_TCP_SEAL=%s and rank 0 has %s: give every rank the same", i,
                             seal_text(card, far), seal_text(&m->cards[0], far));
        m->how[i] = !sealed ? CRYPTO_NONE : card->aes && w->aes ? CRYPTO_AES : CRYPTO_CHACHA;
    }
    w->sealed = sealed;
    w->checked = w->checked && !sealed; /* a seal detects more than a checksum */
    return COMM_OK;
}

/* Every rank learns of version and option conflicts, and of failures. */
static enum comm_result exchange(struct mesh *m)
{
    enum comm_result result = m->config->boot->class->allgather(m->config->boot, &m->mine, sizeof m->mine, m->cards);

    for (int32_t i = 0; i < m->w->ranks && result == COMM_OK; i++) {
        const struct card *card = &m->cards[i];
        mesh_use_own_link(&m->cards[i].address, &m->mine.address);
        if (card->magic != MESH_MAGIC || card->version != FRAME_VERSION)
            result = mesh_fail(m, COMM_ERR_CONFIG, "rank %d speaks another version of the network protocol than %d", i, FRAME_VERSION);
        else if (card->float_mode != m->cards[0].float_mode || card->endian != m->cards[0].endian)
            result = mesh_fail(m, COMM_ERR_CONFIG,
                               "rank %d has another byte order or floating-point mode (rounding, flush to zero) than rank 0", i);
        else if (card->proves != m->cards[0].proves)
            result = mesh_fail(m, COMM_ERR_CONFIG, "rank %d has %s job secret and rank 0 has %s: give every rank the same", i,
                               card->proves ? "a" : "no", card->proves ? "none" : "one");
        else if (card->links != m->cards[0].links)
            result = mesh_fail(m, COMM_ERR_CONFIG, "rank %d has COMM_TCP_LINKS=%s and rank 0 has %s: give every rank the same", i,
                               card->links ? "needed" : "all", card->links ? "all" : "needed");
        else if (card->checks != m->cards[0].checks)
            result = mesh_fail(m, COMM_ERR_CONFIG, "rank %d has COMM_TCP_CRC=%s and rank 0 has %s: give every rank the same", i,
                               card->checks ? "yes" : "no", card->checks ? "no" : "yes");
    }
    if (result == COMM_OK)
        result = tell_failed(m);
    return result == COMM_OK ? agree_on_seal(m) : result;
}

/* Logged once, by rank 0, if the user chose less than the default. */
static void tell_of_seal(const struct mesh *m)
{
    if (m->w->rank == 0 && m->key && !m->w->sealed && is_far(m))
        base_log(m->w->log, LOG_WARNING, "COMM_TCP_SEAL=no: a machine on the path between the ranks can read and change what they send");
    for (int32_t i = 0; i < m->w->ranks; i++)
        if (i != m->w->rank && m->how[i])
            base_log(m->w->log, LOG_DEBUG, "tcp: rank=%d peer=%d: sealed by %s", m->w->rank, i,
                     crypto_kind_name((enum crypto_kind)m->how[i]));
}

static void close_listener(struct mesh *m)
{
    m->w->env->own(m->w->env, m->listener, false);
    if (m->listener >= 0)
        close(m->listener);
    m->listener = -1;
}

static enum comm_result meet(struct mesh *m)
{
    prepare(m);
    enum comm_result result = exchange(m);

    if (result != COMM_OK)
        return result;
    tell_of_seal(m);
    result = connect_all(m);
    if (!m->w->graph)
        close_listener(m);
    m->mine.result = (int32_t)result;
    if (result != COMM_OK)
        base_copy_text(m->mine.text, MESH_TEXT, m->config->error_text);
    return exchange(m); /* no rank continues before all are connected */
}

void mesh_close(struct mesh *m)
{
    pending_close_all(&m->pending_peers, m->w->env);
    while (m->dialing)
        pending_close(m->w->env, m->dials[--m->dialing].fd);
    close_listener(m);
    m->w->env->own(m->w->env, m->outside, false);
    if (m->outside >= 0)
        close(m->outside);
    secret_give(m, m->bytes);
}

static enum comm_result fail_to_watch(const struct wire_config *config)
{
    base_format(config->error_text, config->error_text_bytes, "the listener cannot be watched: %s", strerror(errno));
    return COMM_ERR_SYSTEM;
}

enum comm_result tcp_mesh(struct tcp_wire *w, const struct wire_config *config)
{
    size_t ranks = (size_t)config->ranks, dials = w->graph ? TCP_DIALS : ranks * TCP_SOCKETS;
    size_t bytes = sizeof(struct mesh) + ranks * sizeof(struct card) + (dials + UNAUTHENTICATED_MAX + 1) * sizeof(struct pollfd) +
                   dials * sizeof(struct dialing) + ranks;
    struct mesh *m = secret_take(bytes); /* the handshakes contain keys */

    if (!m) {
        base_format(config->error_text, config->error_text_bytes, "no memory to connect %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    m->w = w;
    m->bytes = bytes;
    m->config = config;
    m->listener = m->outside = -1;
    m->key = config->boot->key;
    m->cards = (struct card *)(void *)(m + 1);
    m->dials_room = (uint32_t)dials;
    m->dials = (struct dialing *)(void *)(m->cards + ranks);
    m->wait = (struct pollfd *)(void *)(m->dials + dials);
    m->how = (unsigned char *)(m->wait + dials + UNAUTHENTICATED_MAX + 1);
    enum comm_result result = meet(m);
    if (result != COMM_OK || !w->graph)
        mesh_close(m);
    else if (!tcp_acceptor_open(w, m))
        result = fail_to_watch(config);
    return result;
}
