/*
 * boot_tcp: how ranks of several hosts meet: rank 0 listens at the address that all were given, the others dial it until their time is up,
 * since it may start later than they, and its name may not resolve yet. Without an address they can only be on one host, and meet there
 * as boot_unix does. What is exchanged here is not secret to who can read the network: so addresses beyond loopback need to be allowed.
 * The place for a handshake with a secret is behind the accept and the connect, before boot_star's greeting.
 */
#define _GNU_SOURCE
#include "net/boot_star.h"

#include "base/format.h"
#include "base/option.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct boot_class boot_tcp;
extern const struct boot_class boot_unix;

enum { HOST_BYTES = 256, RETRY_MOST_MS = 200 };

struct place {
    char host[HOST_BYTES], port[8];
    char why[160]; /* why the last attempt came to nothing */
    bool insecure;
};

/* "host:port", "[v6]:port". */
static bool read_place(const char *address, struct place *p)
{
    const char *colon = strrchr(address, ':');
    uint64_t port;

    if (!colon || colon == address || !base_parse_u64(colon + 1, &port) || port < 1 || port > 65535)
        return false;
    bool bracketed = address[0] == '[';
    const char *from = address + bracketed, *to = bracketed ? colon - 1 : colon;
    if ((bracketed && (*to != ']' || to <= from)) || (!bracketed && memchr(from, ':', (size_t)(to - from))) ||
        (size_t)(to - from) >= sizeof p->host)
        return false;
    base_format(p->host, sizeof p->host, "%.*s", (int)(to - from), from);
    base_format(p->port, sizeof p->port, "%u", (unsigned)port);
    return true;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    }
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

static void name_numeric(const struct sockaddr *address, char *text, size_t bytes)
{
    const void *at = address->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
                                                    : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;

    if (!inet_ntop(address->sa_family, at, text, (socklen_t)bytes))
        base_copy_text(text, bytes, "?");
}

/* By which address of its own this rank is reached: the one that leads to rank 0. */
static void note_own_address(struct boot_star *b, int fd)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;

    memset(&own, 0, sizeof own);
    if (getsockname(fd, (struct sockaddr *)&own, &length) == 0)
        name_numeric((const struct sockaddr *)&own, b->boot.address, sizeof b->boot.address);
}

static enum comm_result not_allowed(struct boot_star *b, const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN];

    name_numeric(address, text, sizeof text);
    return star_fail(
        b, COMM_ERR_CONFIG,
        "%s can be reached from other machines, and ranks do not prove to each other yet who they are: whoever reaches it could "
        "join or disturb the job. Use a loopback address, or set COMM_TCP_INSECURE=1 on every rank if all machines that can "
        "reach it are trusted",
        text);
}

/* ------------------------------------------------------------------------------------------------------------ rank 0 */
static enum comm_result listen_at(struct boot_star *b, const struct addrinfo *at)
{
    const struct place *p = b->place;
    int one = 1;

    b->listener = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->listener < 0)
        return star_fail_errno(b, "socket");
    if (setsockopt(b->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0) /* an earlier job's last packets may still hold it */
        return star_fail_errno(b, "SO_REUSEADDR");
    if (bind(b->listener, at->ai_addr, at->ai_addrlen) < 0 || listen(b->listener, b->config.ranks + BOOT_STRANGERS_MAX) < 0) {
        if (errno == EADDRINUSE)
            return star_fail(b, COMM_ERR_CONFIG, "port %s of %s is taken: another job or program listens there; give COMM_ADDRESS another",
                             p->port, p->host);
        if (errno == EADDRNOTAVAIL)
            return star_fail(b, COMM_ERR_CONFIG, "%s is no address of this host, where rank 0 runs: COMM_ADDRESS must be rank 0's own",
                             p->host);
        return star_fail_errno(b, "listening at COMM_ADDRESS");
    }
    note_own_address(b, b->listener);
    return COMM_OK;
}

static enum comm_result tcp_listen(struct boot_star *b)
{
    const struct place *p = b->place;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int error;

    while ((error = getaddrinfo(p->host, p->port, &hints, &list)) == EAI_AGAIN || error == EAI_NONAME) { /* it may get its name later */
        if (!boot_remaining_ms(&b->config))
            break;
        poll(NULL, 0, RETRY_MOST_MS);
    }
    if (error)
        return star_fail(b, COMM_ERR_CONFIG, "COMM_ADDRESS: %s: %s", p->host, gai_strerror(error));
    enum comm_result result = p->insecure || is_loopback(list->ai_addr) ? listen_at(b, list) : not_allowed(b, list->ai_addr);
    freeaddrinfo(list);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ the others */
enum dialed { DIAL_THERE, DIAL_LATER, DIAL_NEVER };

static enum dialed dial_one(struct boot_star *b, const struct addrinfo *at)
{
    struct place *p = (struct place *)(uintptr_t)b->place;
    int error = 0, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    socklen_t length = sizeof error;

    if (fd < 0)
        return DIAL_NEVER;
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0)
        error = errno;
    if (error == EINPROGRESS) {
        error = boot_wait_for(&b->config, fd, POLLOUT) == IO_OK ? 0 : ETIMEDOUT;
        if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            error = errno;
    }
    if (!error && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0) {
        note_own_address(b, fd);
        b->root = fd;
        return DIAL_THERE;
    }
    close(fd);
    base_format(p->why, sizeof p->why, "%s", strerror(error));
    return DIAL_LATER;
}

/* Every address that the name has, in turn. */
static enum dialed dial_all(struct boot_star *b, enum comm_result *result)
{
    struct place *p = (struct place *)(uintptr_t)b->place;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    enum dialed dialed = DIAL_LATER;
    int error = getaddrinfo(p->host, p->port, &hints, &list);

    if (error) { /* pods and hosts get their names when they start */
        base_format(p->why, sizeof p->why, "its name: %s", gai_strerror(error));
        return DIAL_LATER;
    }
    for (const struct addrinfo *at = list; at && dialed == DIAL_LATER; at = at->ai_next) {
        if (!p->insecure && !is_loopback(at->ai_addr)) {
            *result = not_allowed(b, at->ai_addr);
            dialed = DIAL_NEVER;
        } else {
            dialed = dial_one(b, at);
            if (dialed == DIAL_NEVER)
                *result = star_fail_errno(b, "socket");
        }
    }
    freeaddrinfo(list);
    return dialed;
}

static enum comm_result tcp_dial(struct boot_star *b)
{
    const struct place *p = b->place;
    enum comm_result result = COMM_OK;
    int nap = BOOT_RETRY_MS;
    enum dialed dialed;

    while ((dialed = dial_all(b, &result)) == DIAL_LATER) {
        if (!boot_remaining_ms(&b->config))
            return star_fail(b, COMM_ERR_TIMEOUT, "rank 0 did not come in time at %s port %s: %s", p->host, p->port, p->why);
        poll(NULL, 0, nap);
        nap = nap * 2 < RETRY_MOST_MS ? nap * 2 : RETRY_MOST_MS - b->config.rank % 64; /* not all at one moment */
    }
    return result;
}

static const struct star_kind kind = {.listen = tcp_listen, .dial = tcp_dial};

/* ------------------------------------------------------------------------------------------------------------ the class */
static enum comm_result tcp_boot_open(const struct boot_config *config, struct wire_boot **boot)
{
    struct place place = {.insecure = false};
    int64_t insecure = 0;

    if (!config->address || !config->address[0])
        return boot_unix.open(config, boot);
    if (!read_place(config->address, &place)) {
        base_format(config->error_text, config->error_text_bytes,
                    "COMM_ADDRESS=%s: expected HOST:PORT, a port from 1 to 65535, an IPv6 address in brackets", config->address);
        return COMM_ERR_CONFIG;
    }
    if (!base_option_lookup(config->env, "tcp_insecure", &insecure)) {
        base_format(config->error_text, config->error_text_bytes, "COMM_TCP_INSECURE is not yes or no");
        return COMM_ERR_CONFIG;
    }
    place.insecure = insecure != 0;
    struct boot_star *b = star_make(config, &boot_tcp, &kind);
    if (!b)
        return COMM_ERR_MEMORY;
    b->place = &place;
    enum comm_result result = star_meet(b);
    b->place = NULL;
    if (result != COMM_OK) {
        star_close(&b->boot);
        return result;
    }
    *boot = &b->boot;
    return COMM_OK;
}

static enum comm_result tcp_pass(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    (void)given;
    (void)count;
    (void)all;
    return star_fail((struct boot_star *)boot, COMM_ERR_UNSUPPORTED, "ranks that meet over a network pass no descriptors");
}

const struct boot_class boot_tcp = {
    .name = "tcp", .open = tcp_boot_open, .allgather = star_allgather, .pass = tcp_pass, .close = star_close};
