/* Addresses at which ranks of several hosts meet: parsing, naming, and which ones are allowed. */
#define _GNU_SOURCE
#include "net/boot/place.h"

#include "base/format.h"
#include "net/posix/interface.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* Parses "host:port" or "[v6]:port". */
bool place_read(const char *address, struct boot_place *p)
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

/* An IPv6 address that is valid on one link only is followed by the interface (fe80::1%eth0), without which it cannot be used. */
void place_host(const struct sockaddr *address, char *text, size_t bytes)
{
    socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (getnameinfo(address, length, text, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST))
        base_copy_text(text, bytes, "?");
}

/* Sets the address at which other ranks reach this one: the local address of the connection to rank 0, unless the user named interfaces. */
void place_note_own(struct boot_star *b, int fd)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;

    memset(&own, 0, sizeof own);
    if (getsockname(fd, (struct sockaddr *)&own, &length) < 0)
        return;
    place_host((const struct sockaddr *)&own, b->boot.address, sizeof b->boot.address);
    char why[200], address[INTERFACE_ADDRESS];
    bool named = interface_named(b->config.env) && !interface_is_loopback((const struct sockaddr *)&own);
    if (named && interface_address(b->config.env, address, why, sizeof why))
        base_copy_text(b->boot.address, sizeof b->boot.address, address);
    base_log(b->config.log, LOG_INFO, "tcp: reached at %s (%s)", b->boot.address,
             named            ? why
             : b->config.rank ? "by which it reaches rank 0"
                              : "where rank 0 listens");
}

/* Without a secret, only the kernel can identify the process at the other end, and it does not do so for loopback TCP. Therefore ranks with
 * a loopback address and no secret meet at an abstract socket that is named after the address. There both sides check the peer's user. */
bool place_is_of_user(const struct boot_star *b, const struct sockaddr *address)
{
    return !b->boot.key && interface_is_loopback(address);
}

uint16_t place_port(const struct sockaddr *address)
{
    return ntohs(address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
                                                : ((const struct sockaddr_in *)(const void *)address)->sin_port);
}

void place_name(const struct sockaddr *address, struct star_name *name, struct boot_place *p)
{
    char host[INTERFACE_ADDRESS], text[sizeof name->address.sun_path];

    place_host(address, host, sizeof host);
    base_format(text, sizeof text, "commstream/tcp/%s/%u", host, place_port(address));
    base_format(p->what, sizeof p->what, "%s port %u", host, place_port(address));
    star_name(name, text);
}

enum comm_result place_not_allowed(struct boot_star *b, const struct sockaddr *address)
{
    char text[INTERFACE_ADDRESS];

    place_host(address, text, sizeof text);
    if (crypto_missing())
        return boot_fail(&b->config, COMM_ERR_CONFIG,
                         "%s can be reached from other machines, and %s. Use a loopback address or a library with it, or set "
                         "COMM_TCP_INSECURE=1 on every rank if all machines that can reach it are trusted",
                         text, crypto_missing());
    return boot_fail(&b->config, COMM_ERR_CONFIG,
                     "%s can be reached from other machines, and this job has no secret by which its ranks know each other. Make one with "
                     "`comm-info --new-secret` and give it to every rank as COMM_SECRET, or in a file of mode 600 that COMM_SECRET_FILE "
                     "names; or set COMM_TCP_INSECURE=1 on every rank if all machines that can reach it are trusted",
                     text);
}
