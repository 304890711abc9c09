/*
 * tcp: how ranks of several hosts meet. Rank 0 listens at the address that all ranks were given. The others dial it until the deadline,
 * since rank 0 may start later and its name may not resolve yet. Instead of an address there may be a medium in which rank 0 publishes it:
 * a file, or the launcher's store. Without an address, ranks meet by the program's exchange, or by boot/unix.c if they are on one host.
 *
 * If the job has a secret, ranks prove it before they send anything else. Without a secret, an address beyond loopback needs the user's
 * permission. Without a secret at loopback, ranks meet at an abstract socket as in boot/unix.c, where the kernel identifies the peer's
 * user.
 */
#define _GNU_SOURCE
#include "net/boot/star.h"

#include "base/format.h"
#include "base/option.h"
#include "net/boot/exchange.h"
#include "net/posix/interface.h"
#include "net/boot/place.h"
#include "net/boot/published.h"
#include "net/boot/secret_find.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct boot_class boot_tcp;
extern const struct boot_class boot_unix;

enum { RETRY_MOST_MS = 200, DIAL_MOST_MS = 3000 };
/* ------------------------------------------------------------------------------------------------------------ rank 0 */
static enum comm_result bind_at(struct boot_star *b, const struct addrinfo *at)
{
    const struct boot_place *p = b->place;
    int one = 1;

    b->listener = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->listener < 0)
        return star_fail_errno(b, "socket");
    star_own(b, b->listener);
    if (setsockopt(b->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) <
        0) /* connections of an earlier job in TIME_WAIT may still hold the port */
        return star_fail_errno(b, "SO_REUSEADDR");
    if (bind(b->listener, at->ai_addr, at->ai_addrlen) < 0 ||
        (!place_is_of_user(b, at->ai_addr) && listen(b->listener, b->config.ranks + BOOT_UNAUTHENTICATED_MAX) < 0)) {
        if (errno == EADDRINUSE)
            return boot_fail(&b->config, COMM_ERR_CONFIG,
                             "port %s of %s is taken: another job or program listens there; give COMM_ADDRESS another", p->port, p->host);
        if (errno == EADDRNOTAVAIL)
            return boot_fail(&b->config, COMM_ERR_CONFIG,
                             "%s is no address of this host, where rank 0 runs: COMM_ADDRESS must be rank 0's own", p->host);
        return star_fail_errno(b, "listening at COMM_ADDRESS");
    }
    place_note_own(b, b->listener);
    return COMM_OK;
}

/* If the job has a secret, this socket only tells ranks without one why they are refused. A failure to make it is then no error. */
static enum comm_result listen_by_name(struct boot_star *b)
{
    struct boot_place *p = b->place;
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    struct star_name name;

    if (getsockname(b->listener, (struct sockaddr *)&own, &length) < 0)
        return star_fail_errno(b, "getsockname");
    place_name((const struct sockaddr *)&own, &name, p);
    enum comm_result result = star_listen_at(b, &name, p->what);
    if (b->boot.key && result != COMM_OK) {
        base_log(b->config.log, LOG_INFO, "open: %s", b->config.error_text);
        boot_fail(&b->config, COMM_OK, "%s", "");
        return COMM_OK;
    }
    p->held = b->boot.key ? -1 : b->listener; /* keeps the port reserved */
    b->listener = b->boot.key ? b->listener : -1;
    return result;
}

static enum comm_result listen_at(struct boot_star *b, const struct addrinfo *at)
{
    enum comm_result result = bind_at(b, at);

    return result == COMM_OK && interface_is_loopback(at->ai_addr) ? listen_by_name(b) : result;
}

static const char *name_error(int error)
{
    return error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
}

static enum comm_result tcp_listen(struct boot_star *b)
{
    struct boot_place *p = b->place;
    bool any = base_equal(p->host, "0.0.0.0") || base_equal(p->host, "::");
    enum comm_result result = p->medium || any ? published_prepare(b) : COMM_OK;

    if (result != COMM_OK)
        return result;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int error;

    while ((error = getaddrinfo(p->host, p->port, &hints, &list)) == EAI_AGAIN ||
           error == EAI_NONAME) { /* the host may get its name later */
        if (!boot_remaining_ms(&b->config))
            break;
        poll(NULL, 0, RETRY_MOST_MS);
    }
    if (error)
        return boot_fail(&b->config, COMM_ERR_CONFIG, "COMM_ADDRESS: %s: %s", p->host, name_error(error));
    result = p->open || interface_is_loopback(list->ai_addr) ? listen_at(b, list) : place_not_allowed(b, list->ai_addr);
    freeaddrinfo(list);
    return result == COMM_OK && p->medium ? published_write(b) : result;
}

/* ------------------------------------------------------------------------------------------------------------ the others */
/* If rank 0 does not listen yet on this host, the kernel may choose the dialed port as the socket's own (ip_local_port_range in ip(7)). TCP
 * then connects the socket to itself (RFC 9293, section 3.5). */
static bool is_joined_to_itself(int fd)
{
    struct sockaddr_storage own, other;
    socklen_t own_bytes = sizeof own, other_bytes = sizeof other;

    memset(&own, 0, sizeof own);
    memset(&other, 0, sizeof other);
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 && getpeername(fd, (struct sockaddr *)&other, &other_bytes) == 0 &&
           own_bytes == other_bytes && !memcmp(&own, &other, own_bytes);
}

/* Closes it without the state TIME_WAIT, in which it would hold the port that rank 0 is about to take. */
static int part_from_itself(int fd)
{
    const struct linger at_once = {.l_onoff = 1};

    (void)!setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return ECONNREFUSED;
}

static enum dialed dial_one(struct boot_star *b, const struct addrinfo *at)
{
    struct boot_place *p = b->place;
    int error = 0, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    socklen_t length = sizeof error;

    if (fd < 0)
        return DIAL_NEVER;
    star_own(b, fd);
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd there = {.fd = fd,
                               .events = POLLOUT}; /* bounded, since the address may be out of date, or the next address may be better */
        int ms = boot_remaining_ms(&b->config) < DIAL_MOST_MS ? boot_remaining_ms(&b->config) : DIAL_MOST_MS;
        error = poll(&there, 1, ms) > 0 ? 0 : ETIMEDOUT;
        if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            error = errno;
    }
    if (!error && is_joined_to_itself(fd))
        error = part_from_itself(fd);
    if (!error && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0) {
        place_note_own(b, fd);
        b->root = fd;
        return DIAL_THERE;
    }
    star_drop(b, &fd);
    base_format(p->why, sizeof p->why, "%s", strerror(error));
    b->nobody = error == ECONNREFUSED;
    return DIAL_LATER;
}

static enum dialed dial_by_name(struct boot_star *b, const struct sockaddr *address, enum comm_result *result)
{
    struct boot_place *p = b->place;
    struct star_name name;

    place_name(address, &name, p);
    enum comm_result failed = COMM_OK;
    enum star_dialed dialed = star_dial_at(b, &name, p->what, &failed);
    if (dialed == STAR_DIALED) {
        place_host(address, b->boot.address, sizeof b->boot.address);
        base_log(b->config.log, LOG_INFO, "tcp: reached at %s (by which it reaches rank 0)", b->boot.address);
        return DIAL_THERE;
    }
    if (b->boot.key) /* rank 0 may still come, and prove the secret */
        return DIAL_LATER;
    *result = failed;
    base_copy_text(p->why, sizeof p->why, "no process listens there for ranks of this host");
    return dialed == STAR_FAILED ? DIAL_NEVER : DIAL_LATER;
}

/* This rank cannot meet a rank 0 that has or lacks a secret as this one says. But a file may be of an earlier run, so that counts only if
 * somebody listens there. */
static enum dialed dial_contrary(struct boot_star *b, const struct addrinfo *at, enum comm_result *result)
{
    const struct boot_place *p = b->place;
    enum dialed dialed = place_may_be_old(p) ? dial_one(b, at) : DIAL_THERE;

    if (dialed == DIAL_NEVER)
        *result = star_fail_errno(b, "socket");
    if (dialed != DIAL_THERE)
        return dialed;
    star_drop(b, &b->root);
    *result = p->contrary ? published_contrary(b) : place_not_allowed(b, at->ai_addr);
    return DIAL_NEVER;
}

/* Tries every address of the name in turn. */
static enum dialed dial_all(struct boot_star *b, enum comm_result *result)
{
    struct boot_place *p = b->place;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    enum dialed dialed = DIAL_LATER;
    int error = getaddrinfo(p->host, p->port, &hints, &list);

    if (error) { /* pods and hosts get their names only when they start */
        base_format(p->why, sizeof p->why, "its name: %s", name_error(error));
        return DIAL_LATER;
    }
    for (const struct addrinfo *at = list; at && dialed == DIAL_LATER; at = at->ai_next) {
        if (p->contrary || (!p->open && !interface_is_loopback(at->ai_addr))) {
            dialed = dial_contrary(b, at, result);
        } else if (place_is_of_user(b, at->ai_addr)) {
            dialed = dial_by_name(b, at->ai_addr, result);
        } else {
            dialed = dial_one(b, at);
            if (dialed == DIAL_NEVER && errno == EAFNOSUPPORT && list->ai_next) /* this kernel has one family, and the name both */
                dialed = DIAL_LATER;
            if (dialed == DIAL_NEVER)
                *result = star_fail_errno(b, "socket");
            if (dialed == DIAL_LATER &&
                interface_is_loopback(at->ai_addr)) /* a rank 0 without a secret listens there to say that it has none */
                dialed = dial_by_name(b, at->ai_addr, result);
        }
    }
    freeaddrinfo(list);
    return dialed;
}

static enum dialed dial(struct boot_star *b, enum comm_result *result)
{
    struct boot_place *p = b->place;
    enum dialed known = p->medium && !p->known ? published_read(b, result) : DIAL_THERE;

    b->nobody = false;
    return known == DIAL_THERE ? dial_all(b, result) : known;
}

static enum comm_result tcp_dial(struct boot_star *b)
{
    const struct boot_place *p = b->place;
    enum comm_result result = COMM_OK;
    int nap = BOOT_RETRY_MS;
    enum dialed dialed;

    while ((dialed = dial(b, &result)) == DIAL_LATER) {
        if (b->again && b->nobody)
            return star_root_lost(b, IO_GONE);
        if (!boot_remaining_ms(&b->config) && p->medium)
            return boot_fail(&b->config, COMM_ERR_TIMEOUT, "rank 0 did not come in time by %s%s: %s", p->medium->noun, p->name, p->why);
        if (!boot_remaining_ms(&b->config))
            return boot_fail(&b->config, COMM_ERR_TIMEOUT, "rank 0 did not come in time at %s port %s: %s", p->host, p->port, p->why);
        poll(NULL, 0, nap);
        nap =
            nap * 2 < RETRY_MOST_MS ? nap * 2 : RETRY_MOST_MS - b->config.rank % 64; /* so that ranks do not all retry at the same moment */
    }
    return result;
}

static const struct star_kind kind = {.listen = tcp_listen, .dial = tcp_dial, .moved = published_moved};

/* ------------------------------------------------------------------------------------------------------------ the class */
/* On one host the kernel identifies the user, so the key is only for the wires. */
static enum comm_result open_here(const struct boot_config *config, const unsigned char *key, struct wire_boot **boot)
{
    enum comm_result result = boot_unix.open(config, boot);

    if (result == COMM_OK && key)
        star_use_key((struct boot_star *)*boot, key, false);
    return result;
}

static enum comm_result refuse(const struct boot_config *config, const char *format, const char *text)
{
    base_format(config->error_text, config->error_text_bytes, format, text);
    return COMM_ERR_CONFIG;
}

/* The number of worlds that this process opened or tried to open; the same on every rank. */
static atomic_uint worlds_by_store;

static enum comm_result read_settings(const struct boot_config *config, struct boot_place *p)
{
    char why[200], address[INTERFACE_ADDRESS];
    int64_t insecure = 0;

    p->medium = meeting_find(config->address, &p->name);
    if (p->medium && p->medium->of_one_job) {
        base_format(p->world, sizeof p->world, "%u", atomic_fetch_add(&worlds_by_store, 1) + 1);
        p->name = p->world;
    }
    if (p->medium ? !p->name[0] : !place_read(config->address, p))
        return refuse(config,
                      "COMM_ADDRESS=%s: expected HOST:PORT, a port from 1 to 65535, an IPv6 address in brackets; or file:PATH, a file in a "
                      "folder that all hosts see; or store:pmi, store:pmi2 or store:pmix, the store of the launcher",
                      config->address);
    if (!base_option_lookup(config->env, "tcp_insecure", &insecure))
        return refuse(config, "COMM_TCP_INSECURE is not %s", "yes or no");
    if (interface_named(config->env) && !interface_address(config->env, address, why, sizeof why))
        return refuse(config, "%s", why);
    p->permitted = insecure != 0;
    return COMM_OK;
}

static enum comm_result open_with(const struct boot_config *config, const unsigned char *key, struct boot_place *place,
                                  struct wire_boot **boot)
{
    enum comm_result result = read_settings(config, place);

    if (result != COMM_OK)
        return result;
    struct boot_star *b = star_make(config, &boot_tcp, &kind);
    if (!b)
        return COMM_ERR_MEMORY;
    place->given = key != NULL;
    place->open = place->permitted |= place->given;
    if (key)
        star_use_key(b, key, true);
    b->place = place;
    result = star_meet(b);
    published_doubt(b, result);
    b->place = NULL;
    star_drop(b, &place->held);
    if (place->medium && place->medium->remove && config->rank == 0 && place->meeting.run)
        place->medium->remove(place->name, place->meeting.run);
    if (result != COMM_OK) {
        star_close(&b->boot);
        return result;
    }
    *boot = &b->boot;
    return COMM_OK;
}

/* Data with keys in it, needed while ranks meet. */
struct meeting_secrets {
    unsigned char key[CRYPTO_KEY];
    struct boot_place place; /* a medium may contain a key */
};

static enum comm_result tcp_boot_open(const struct boot_config *config, struct wire_boot **boot)
{
    struct meeting_secrets *s = secret_take(sizeof *s);
    bool there = false, far = config->address && config->address[0];
    unsigned char *key = s ? s->key : NULL;
    enum comm_result result = config->failed;

    if (result == COMM_OK && !s)
        result = boot_fail(config, COMM_ERR_MEMORY, "no memory to meet %d ranks", config->ranks);
    if (result == COMM_OK) {
        result = secret_find(config, key, &there);
        s->place.held = -1;
    }
    if (!far && config->exchange)
        result = boot_exchange_open(config, there ? key : NULL, result, boot);
    else if (result == COMM_OK && far)
        result = open_with(config, there ? key : NULL, &s->place, boot);
    else if (result == COMM_OK)
        result = open_here(config, there ? key : NULL, boot);
    secret_give(s, sizeof *s);
    return result;
}

/* Finds an address of this host with a free port, for a world whose ranks do not listen yet. Another process may take the port in the
 * meantime. */
static bool tcp_offer(const struct comm_env *env, char *address, size_t bytes)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *at = NULL;
    char host[INTERFACE_ADDRESS], port[NI_MAXSERV] = "", why[200];
    struct sockaddr_storage own;
    socklen_t length = sizeof own;

    if (!interface_address(env, host, why, sizeof why) || getaddrinfo(host, "0", &hints, &at))
        return false;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool done = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
                getnameinfo((struct sockaddr *)&own, length, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0;
    const char *format = at->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s";
    if (fd >= 0)
        close(fd);
    freeaddrinfo(at);
    return done && base_format(address, bytes, format, host, port) < bytes;
}

/* A store that fails is an error, so it is used unasked only where the ranks could not open without it. */
static bool tcp_has_store(const struct comm_env *env, const char *store)
{
    const char *place;
    const struct meeting_medium *medium = meeting_find(store, &place);
    int64_t insecure = 0;

    return medium && !medium->absent && !crypto_missing() && !secret_is_set(env) && base_option_lookup(env, "tcp_insecure", &insecure) &&
           !insecure;
}

static enum comm_result tcp_relay(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    (void)given;
    (void)count;
    (void)all;
    return boot_fail(&((struct boot_star *)boot)->config, COMM_ERR_UNSUPPORTED, "ranks that meet over a network pass no descriptors");
}

const struct boot_class boot_tcp = {.name = "tcp",
                                    .open = tcp_boot_open,
                                    .allgather = star_allgather,
                                    .pass = tcp_relay,
                                    .close = star_close,
                                    .is_over = star_is_over,
                                    .proof = crypto_name,
                                    .offer = tcp_offer,
                                    .has_store = tcp_has_store};
