/*
 * Connecting, while a world opens: every rank listens on one address of its own, at a port that the kernel chooses; ports and a random word
 * of each listener are exchanged over the boot; the lower rank of each pair dials. Who dials without that word is a stranger: he is heard
 * for two seconds, for exactly as many bytes as a greeting has, and nothing is allocated for him. Where the job has a secret, it is proved
 * on each connection before the greeting, which is then sealed. When every peer is there, the listener is closed for good.
 */
#define _GNU_SOURCE
#include "net/tcp.h"

#include "base/format.h"
#include "data/data.h"
#include "net/stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESH_MAGIC = 0x6d736574, TURN_MS = 100, WORD = 16, TEXT = 160, REFUSALS_LOGGED_NS = 1000000000, TELL_NS = 1000000000 };
enum { KEEP_IDLE_S = 10, KEEP_BETWEEN_S = 3, KEEP_COUNT = 3 };

/* What each rank says of itself over the boot. result: not COMM_OK, and why. */
struct card {
    uint32_t magic, version;
    int32_t result;
    int16_t proves;        /* has the job's secret */
    uint8_t seals, checks; /* encrypts all that follows; has a checksum over it */
    struct sockaddr_storage address;
    unsigned char word[WORD];
    uint64_t host;
    uint32_t float_mode, endian;
    char text[TEXT];
};

/* The first bytes of a connection. */
struct greeting {
    uint32_t magic, version;
    uint32_t from, to, lane, reserved;
    unsigned char word[WORD];
};

/* A socket (a lane's number) that is being connected. */
struct dialing {
    uint32_t number;
    bool asked; /* the hello has left */
    struct handshake shake;
};

struct mesh {
    struct tcp_wire *w;
    const struct wire_config *config;
    int listener;
    struct card mine, *cards;
    const unsigned char *key; /* NULL: the job has no secret */
    struct strangers strangers;
    struct pollfd *wait;
    struct dialing *dials;
    uint32_t dialing, missing; /* missing: greetings of lower ranks that have not come */
    uint32_t refused;
    int64_t refused_ns, until; /* until: some time before the world's, in which all can still hear whose fault it is */
    char refusal[STRANGER_WHY];
};

static enum comm_result fail(const struct mesh *m, enum comm_result result, const char *format, ...) __attribute__((format(printf, 3, 4)));
static enum comm_result fail(const struct mesh *m, enum comm_result result, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    base_format_list(m->config->error_text, m->config->error_text_bytes, format, list);
    va_end(list);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ sockets */
static bool set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* Every call on it says for itself whether it may wait; a ring would take a nonblocking descriptor at its word. */
static void make_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* Options that this kernel lacks are done without: they tell a dead link earlier, or make a near one faster. */
static void set_options(const struct tcp_wire *w, int fd, bool near)
{
    make_blocking(fd);
    bool done = set(fd, IPPROTO_TCP, TCP_NODELAY, 1) && set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);

    done = done && set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S) && set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_BETWEEN_S);
    done = done && set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    done = done && set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(w->timeout_ns / 1000000));
    if (near) /* a model of a path with queues costs half the rate where there is none */
        done = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0 && done;
    if (!done)
        base_log(w->log, LOG_DEBUG, "tcp: not every option of a connection could be set: %s", strerror(errno));
}

static void name_address(const struct sockaddr_storage *address, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof host);
        base_format(text, bytes, "[%s]:%u", host, ntohs(a->sin6_port));
    } else {
        const struct sockaddr_in *a = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &a->sin_addr, host, sizeof host);
        base_format(text, bytes, "%s:%u", host, ntohs(a->sin_port));
    }
}

static socklen_t length_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* A numeric address, port 0. */
static bool read_address(const char *text, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        return true;
    }
    six->sin6_family = AF_INET6;
    return inet_pton(AF_INET6, text, &six->sin6_addr) == 1;
}

/* 0, or an errno. */
static int listen_on(struct sockaddr_storage *address, int backlog, int *listener)
{
    socklen_t length = length_of(address);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return errno;
    if (bind(fd, (struct sockaddr *)address, length) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, (struct sockaddr *)address, &length) < 0) {
        int error = errno;
        close(fd);
        return error;
    }
    *listener = fd;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ greeting */
static struct tcp_lane *lane_at(const struct mesh *m, uint32_t socket)
{
    return &m->w->links[socket / TCP_SOCKETS].lane[socket % TCP_SOCKETS];
}

/* keys: of its handshake, or NULL. False: no memory. */
static bool keep(struct mesh *m, uint32_t socket, int fd, const struct seal *keys)
{
    struct tcp_lane *lane = lane_at(m, socket);
    struct sockaddr_storage other;
    socklen_t length = sizeof other;
    int32_t peer = lane->link->peer;

    memset(&other, 0, sizeof other);
    if (getpeername(fd, (struct sockaddr *)&other, &length) == 0)
        name_address(&other, lane->link->address, sizeof lane->link->address);
    set_options(m->w, fd, m->cards[peer].host == m->mine.host);
    if ((m->w->sealed || m->w->checked) && lane->lane != TCP_BEAT &&
        !tcp_seal_start(lane, m->w->sealed ? keys : NULL)) /* beats say nothing */
        return false;
    lane->fd = fd;
    return true;
}

/* Of a lower rank that has not come, with our word. */
static bool is_ours(const struct mesh *m, const struct greeting *g)
{
    unsigned char differs = 0;

    for (int i = 0; i < WORD; i++)
        differs |= (unsigned char)(g->word[i] ^ m->mine.word[i]);
    return !differs && g->magic == MESH_MAGIC && g->version == FRAME_VERSION && g->to == (uint32_t)m->w->rank && g->from < g->to &&
           g->lane < TCP_SOCKETS && lane_at(m, g->from * TCP_SOCKETS + g->lane)->fd < 0;
}

static bool is_whole(int fd)
{
    struct greeting g;

    return recv(fd, &g, sizeof g, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof g;
}

/* Exactly one greeting. */
static enum stranger_heard hear_plain(int fd, struct greeting *g, short seen, bool last)
{
    char byte;

    if (!last && !is_whole(fd) && (!seen || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0))
        return STRANGER_LATER;
    return recv(fd, g, sizeof *g, MSG_DONTWAIT) == (ssize_t)sizeof *g ? STRANGER_DONE : STRANGER_OUT;
}

static enum stranger_heard hear_proof(const struct mesh *m, struct stranger *s, struct greeting *g, bool last, char why[STRANGER_WHY])
{
    const struct stranger_door door = {m->w->env, m->key, HANDSHAKE_CONNECTION, (uint32_t)m->w->rank, MESH_MAGIC};
    enum stranger_heard heard;

    if (s->answered) {
        heard = stranger_greeting(s, g, sizeof *g, last);
        return heard == STRANGER_DONE && (g->from != s->names.from || g->lane != s->names.lane) ? STRANGER_OUT : heard;
    }
    heard = stranger_hello(&door, s, last, why);
    return heard == STRANGER_DONE ? STRANGER_LATER : heard == STRANGER_PLAIN ? STRANGER_OUT : heard;
}

static void turn_away(struct mesh *m, int fd, const char *why, int64_t now)
{
    char address[INET6_ADDRSTRLEN];

    stranger_name(fd, address, sizeof address);
    base_format(m->refusal, sizeof m->refusal, "from %s: %s", address, why);
    if (!m->refused++ || now - m->refused_ns >= REFUSALS_LOGGED_NS) {
        m->refused_ns = now;
        base_log(m->w->log, LOG_WARNING, "tcp: somebody was turned away %s (%u so far)", m->refusal, m->refused);
    }
    stranger_drain(fd);
    close(fd);
}

static void hear(struct mesh *m, uint32_t at, short seen, int64_t now)
{
    struct stranger *s = &m->strangers.one[at];
    bool last = now >= s->until || (seen & (POLLERR | POLLHUP | POLLRDHUP));
    char why[STRANGER_WHY] = "he does not know what a rank of this job says";
    struct greeting g = {.magic = 0};
    enum stranger_heard heard = m->key ? hear_proof(m, s, &g, last, why) : hear_plain(s->fd, &g, seen, last);

    if (heard == STRANGER_LATER)
        return;
    if (heard == STRANGER_DONE && is_ours(m, &g) && keep(m, g.from * TCP_SOCKETS + g.lane, s->fd, &s->shake.seal)) {
        m->missing--;
    } else {
        turn_away(m, s->fd, why, now);
    }
    stranger_forget(&m->strangers, at);
}

static void let_in(struct mesh *m, int64_t now)
{
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0)
        stranger_add(&m->strangers, fd, now);
}

/* ------------------------------------------------------------------------------------------------------------ dialing */
static enum comm_result dial(struct mesh *m, uint32_t socket_number)
{
    struct card *card = &m->cards[socket_number / TCP_SOCKETS];
    char text[80];
    int fd = socket(card->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return fail(m, COMM_ERR_SYSTEM, "socket: %s (open files are limited: ulimit -n)", strerror(errno));
    lane_at(m, socket_number)->fd = fd;
    if (connect(fd, (struct sockaddr *)&card->address, length_of(&card->address)) == 0 || errno == EINPROGRESS)
        return COMM_OK;
    name_address(&card->address, text, sizeof text);
    return fail(m, COMM_ERR_SYSTEM, "connecting to rank %u at %s: %s", socket_number / TCP_SOCKETS, text, strerror(errno));
}

static enum comm_result fail_peer(const struct mesh *m, uint32_t number, enum comm_result result, const char *why)
{
    char text[80];

    name_address(&m->cards[number / TCP_SOCKETS].address, text, sizeof text);
    return fail(m, result, "connecting to rank %u at %s: %s", number / TCP_SOCKETS, text, why);
}

static struct greeting greeting_for(const struct mesh *m, uint32_t number)
{
    struct greeting g = {MESH_MAGIC, FRAME_VERSION, (uint32_t)m->w->rank, number / TCP_SOCKETS, number % TCP_SOCKETS, 0, {0}};

    memcpy(g.word, m->cards[number / TCP_SOCKETS].word, WORD);
    return g;
}

/* What a new connection takes without waiting. */
static int send_now(int fd, const void *bytes, size_t count)
{
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);

    return n == (ssize_t)count ? 0 : n < 0 ? errno : EIO;
}

/* It is connected, or it never will be. */
static enum comm_result greet(struct mesh *m, struct dialing *d, bool *done)
{
    const struct handshake_names names = {HANDSHAKE_CONNECTION, (uint32_t)m->w->rank, d->number / TCP_SOCKETS, d->number % TCP_SOCKETS};
    struct greeting g = greeting_for(m, d->number);
    unsigned char hello[HANDSHAKE_HELLO];
    int error = 0, fd = lane_at(m, d->number)->fd;
    socklen_t length = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    if (!error && m->key && !handshake_hello(&d->shake, m->w->env, m->key, &names, hello))
        error = ENOMEM;
    if (!error)
        error = m->key ? send_now(fd, hello, sizeof hello) : send_now(fd, &g, sizeof g);
    if (error)
        return fail_peer(m, d->number, COMM_ERR_PEER, strerror(error));
    d->asked = true;
    *done = !m->key;
    if (*done && !keep(m, d->number, fd, NULL))
        return fail_peer(m, d->number, COMM_ERR_MEMORY, "no memory for the connection");
    return COMM_OK;
}

/* The answer to the hello; or the other end had no place for us, and is asked again while there is time. */
static enum comm_result finish(struct mesh *m, struct dialing *d, bool *done)
{
    unsigned char answer[HANDSHAKE_ANSWER], sealed[sizeof(struct greeting) + CRYPTO_TAG];
    struct greeting g = greeting_for(m, d->number);
    int fd = lane_at(m, d->number)->fd;
    ssize_t n = recv(fd, answer, sizeof answer, MSG_PEEK | MSG_DONTWAIT);
    enum handshake_fault fault = n >= HANDSHAKE_HEAD ? handshake_read_head(answer) : HANDSHAKE_OK;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return COMM_OK;
    if (n <= 0) {
        close(fd);
        d->asked = false;
        return dial(m, d->number);
    }
    if (!fault && n < HANDSHAKE_ANSWER) {
        stranger_wait_for(fd, HANDSHAKE_ANSWER);
        return COMM_OK;
    }
    if (!fault && recv(fd, answer, sizeof answer, MSG_DONTWAIT) == (ssize_t)sizeof answer)
        fault = handshake_finish(&d->shake, answer);
    if (fault)
        return fail_peer(m, d->number, COMM_ERR_AUTH, handshake_fault_text(fault));
    if (!seal_write(&d->shake.seal, &g, sizeof g, sealed))
        return fail_peer(m, d->number, COMM_ERR_MEMORY, "no memory for the handshake");
    int error = send_now(fd, sealed, sizeof sealed);
    if (error)
        return fail_peer(m, d->number, COMM_ERR_PEER, strerror(error));
    stranger_wait_for(fd, 1);
    if (!keep(m, d->number, fd, &d->shake.seal))
        return fail_peer(m, d->number, COMM_ERR_MEMORY, "no memory for the connection");
    crypto_wipe(&d->shake, sizeof d->shake);
    *done = true;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ the loop */
static enum comm_result late(const struct mesh *m)
{
    char text[512];
    size_t at = 0, named = 0;

    text[0] = 0;
    for (int32_t i = 0; i < m->w->ranks && named < 16; i++) {
        bool there = true;
        for (int k = 0; k < TCP_SOCKETS; k++)
            there &= !wire_joins(m->config, i, m->w->rank) || m->w->links[i].lane[k].fd >= 0;
        for (uint32_t d = 0; d < m->dialing; d++)
            there &= m->dials[d].number / TCP_SOCKETS != (uint32_t)i;
        if (!there && ++named)
            base_append(text, sizeof text, &at, " %d", i);
    }
    if (m->refused)
        base_append(text, sizeof text, &at, " (%u were turned away, the last one %s)", m->refused, m->refusal);
    return fail(m, COMM_ERR_TIMEOUT, "rank %d could not be connected in time with ranks:%s; is a firewall between them?", m->w->rank, text);
}

static enum comm_result turn(struct mesh *m)
{
    int64_t now = m->w->env->now(m->w->env);
    enum comm_result result = COMM_OK;
    nfds_t n = 0;

    m->wait[n++] = (struct pollfd){.fd = m->missing ? m->listener : -1, .events = POLLIN};
    for (uint32_t i = 0; i < m->strangers.count; i++)
        m->wait[n++] = (struct pollfd){.fd = m->strangers.one[i].fd, .events = POLLIN | POLLRDHUP};
    nfds_t strangers = n;
    for (uint32_t i = 0; i < m->dialing; i++)
        m->wait[n++] = (struct pollfd){.fd = lane_at(m, m->dials[i].number)->fd, .events = m->dials[i].asked ? POLLIN : POLLOUT};
    if (now >= m->until)
        return late(m);
    poll(m->wait, n, TURN_MS);
    now = m->w->env->now(m->w->env);
    for (uint32_t i = m->dialing; i-- > 0 && result == COMM_OK;) {
        bool done = false;
        if (!m->wait[strangers + i].revents)
            continue;
        result = m->dials[i].asked ? finish(m, &m->dials[i], &done) : greet(m, &m->dials[i], &done);
        if (done)
            m->dials[i] = m->dials[--m->dialing];
    }
    for (uint32_t i = m->strangers.count; i-- > 0;)
        hear(m, i, m->wait[1 + i].revents, now);
    if (m->wait[0].revents)
        let_in(m, now);
    return result;
}

static enum comm_result connect_all(struct mesh *m)
{
    enum comm_result result = COMM_OK;
    uint32_t mine = (uint32_t)m->w->rank, all = (uint32_t)m->w->ranks * TCP_SOCKETS;
    int64_t left = m->config->deadline - m->w->env->now(m->w->env);

    m->until = m->config->deadline - (left / 8 < TELL_NS ? left / 8 : TELL_NS);
    for (uint32_t number = 0; number < mine * TCP_SOCKETS; number++)
        m->missing += wire_joins(m->config, (int32_t)mine, (int32_t)(number / TCP_SOCKETS));
    for (uint32_t number = (mine + 1) * TCP_SOCKETS; number < all && result == COMM_OK; number++) {
        if (!wire_joins(m->config, (int32_t)mine, (int32_t)(number / TCP_SOCKETS)))
            continue;
        result = dial(m, number);
        m->dials[m->dialing++].number = number;
    }
    while (result == COMM_OK && (m->missing || m->dialing))
        result = turn(m);
    stranger_close_all(&m->strangers);
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
    m->mine.seals = m->w->sealed;
    m->mine.checks = m->w->checked;
    if (!read_address(address, &m->mine.address))
        error = EAFNOSUPPORT;
    if (!error)
        error = listen_on(&m->mine.address, m->w->ranks * TCP_SOCKETS + STRANGERS_MAX, &m->listener);
    if (!error)
        error = env->random(env, m->mine.word, WORD);
    if (!error)
        return;
    m->mine.result = COMM_ERR_SYSTEM;
    base_format(m->mine.text, TEXT, "listening on %s: %s", address, strerror(error));
}

/* Who could not connect is told by the lowest rank; but a connection that broke may have been given up by another, who then knows why. */
static enum comm_result tell_failed(struct mesh *m)
{
    int32_t ranks = m->w->ranks, who = ranks;

    for (int32_t i = ranks - 1; i >= 0; i--)
        if (m->cards[i].result != COMM_OK && (who == ranks || m->cards[i].result != COMM_ERR_PEER || m->cards[who].result == COMM_ERR_PEER))
            who = i;
    return who == ranks ? COMM_OK : fail(m, (enum comm_result)m->cards[who].result, "rank %d: %.*s", who, TEXT, m->cards[who].text);
}

/* Everybody hears who is of another version or is set otherwise, and who could not. */
static enum comm_result exchange(struct mesh *m)
{
    enum comm_result result = m->config->boot->class->allgather(m->config->boot, &m->mine, sizeof m->mine, m->cards);

    for (int32_t i = 0; i < m->w->ranks && result == COMM_OK; i++) {
        const struct card *card = &m->cards[i];
        if (card->magic != MESH_MAGIC || card->version != FRAME_VERSION)
            result = fail(m, COMM_ERR_CONFIG, "rank %d speaks another version of the network protocol than %d", i, FRAME_VERSION);
        else if (card->float_mode != m->cards[0].float_mode || card->endian != m->cards[0].endian)
            result =
                fail(m, COMM_ERR_CONFIG, "rank %d has another byte order or floating-point mode (rounding, flush to zero) than rank 0", i);
        else if (card->proves != m->cards[0].proves)
            result = fail(m, COMM_ERR_CONFIG, "rank %d has %s job secret and rank 0 has %s: give every rank the same", i,
                          card->proves ? "a" : "no", card->proves ? "none" : "one");
        else if (card->seals != m->cards[0].seals)
            result = fail(m, COMM_ERR_CONFIG, "rank %d has COMM_TCP_SEAL=%s and rank 0 has %s: give every rank the same", i,
                          card->seals ? "yes" : "no", card->seals ? "no" : "yes");
        else if (card->checks != m->cards[0].checks)
            result = fail(m, COMM_ERR_CONFIG, "rank %d has COMM_TCP_CRC=%s and rank 0 has %s: give every rank the same", i,
                          card->checks ? "yes" : "no", card->checks ? "no" : "yes");
    }
    return result == COMM_OK ? tell_failed(m) : result;
}

static enum comm_result meet(struct mesh *m)
{
    prepare(m);
    enum comm_result result = exchange(m);

    if (result != COMM_OK)
        return result;
    result = connect_all(m);
    close(m->listener);
    m->listener = -1;
    m->mine.result = (int32_t)result;
    if (result != COMM_OK)
        base_copy_text(m->mine.text, TEXT, m->config->error_text);
    return exchange(m); /* nobody goes on before everybody is connected */
}

enum comm_result tcp_mesh(struct tcp_wire *w, const struct wire_config *config)
{
    size_t ranks = (size_t)config->ranks;
    size_t bytes = sizeof(struct mesh) + ranks * sizeof(struct card) + (ranks * TCP_SOCKETS + STRANGERS_MAX + 1) * sizeof(struct pollfd) +
                   ranks * TCP_SOCKETS * sizeof(struct dialing);
    struct mesh *m = w->env->take(w->env, bytes, 64);

    if (!m) {
        base_format(config->error_text, config->error_text_bytes, "no memory to connect %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    m->w = w;
    m->config = config;
    m->listener = -1;
    m->key = config->boot->key;
    m->cards = (struct card *)(void *)(m + 1);
    m->dials = (struct dialing *)(void *)(m->cards + ranks);
    m->wait = (struct pollfd *)(void *)(m->dials + ranks * TCP_SOCKETS);
    enum comm_result result = meet(m);
    if (m->listener >= 0)
        close(m->listener);
    crypto_wipe(m, bytes);
    w->env->give(w->env, m, bytes);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ all ranks in this process */
static int pair_here(int listener, const struct sockaddr_storage *address, int fd[2])
{
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd[0] < 0)
        return errno;
    if (connect(fd[0], (const struct sockaddr *)address, length_of(address)) < 0)
        return errno;
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd[1] < 0 ? errno : 0;
}

enum comm_result tcp_mesh_here(struct tcp_wire *w, const struct wire_config *config)
{
    struct sockaddr_storage address;
    int listener = -1, error = read_address("127.0.0.1", &address) ? 0 : EINVAL;

    if (!error)
        error = listen_on(&address, 4, &listener);
    for (int32_t a = 0; a < w->ranks && !error; a++)
        for (int32_t b = a + 1; b < w->ranks && !error; b++)
            for (int k = 0; k < TCP_LANES && !error && wire_joins(config, a, b); k++) { /* they live and die together: no beats */
                struct tcp_lane *ends[2] = {&w->port[a].link[b].lane[k], &w->port[b].link[a].lane[k]};
                int fd[2] = {-1, -1};
                error = pair_here(listener, &address, fd);
                for (int i = 0; i < 2; i++) {
                    ends[i]->fd = fd[i];
                    if (fd[i] >= 0)
                        set_options(w, fd[i], true);
                    base_copy_text(ends[i]->link->address, sizeof ends[i]->link->address, "this process");
                }
            }
    if (listener >= 0)
        close(listener);
    if (!error)
        return COMM_OK;
    base_format(config->error_text, config->error_text_bytes, "connecting the ranks of this process: %s", strerror(error));
    return COMM_ERR_SYSTEM;
}
