#define _GNU_SOURCE
#include "net/posix/interface.h"

#include "base/format.h"
#include "net/posix/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const variables[] = {"COMM_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};

static const char *wanted_by(const struct comm_env *env, const char **variable)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = env->lookup(env, variables[i]);
        if (value && *value) {
            *variable = variables[i];
            return value;
        }
    }
    return NULL;
}

bool interface_named(const struct comm_env *env)
{
    const char *variable;

    return wanted_by(env, &variable) != NULL;
}

/* ------------------------------------------------------------------------------------------------------------ matching */
static bool in_network(const char *item, size_t length, const char *slash, const char *address)
{
    unsigned char network[16], own[16];
    char text[INET6_ADDRSTRLEN], digits[8];
    uint64_t bits;
    size_t before = (size_t)(slash - item);

    if (before >= sizeof text || length - before - 1 >= sizeof digits)
        return false;
    base_format(text, sizeof text, "%.*s", (int)before, item);
    base_format(digits, sizeof digits, "%.*s", (int)(length - before - 1), slash + 1);
    int family = strchr(text, ':') ? AF_INET6 : AF_INET;
    if (!base_parse_u64(digits, &bits) || bits > (family == AF_INET6 ? 128 : 32))
        return false;
    if (inet_pton(family, text, network) != 1 || inet_pton(family, address, own) != 1)
        return false;
    size_t whole = (size_t)bits / 8;
    unsigned char mask = (unsigned char)(0xff00u >> bits % 8);
    return !memcmp(network, own, whole) && (bits % 8 == 0 || !((network[whole] ^ own[whole]) & mask));
}

bool interface_matches(const char *wanted, const char *name, const char *address)
{
    bool none = wanted[0] == '^', exact;

    wanted += none;
    exact = wanted[0] == '=';
    wanted += exact;
    for (;;) {
        size_t length = strcspn(wanted, ",");
        const char *slash = memchr(wanted, '/', length);
        bool meant = slash ? in_network(wanted, length, slash, address)
                           : length && !strncmp(wanted, name, length) && (!exact || strlen(name) == length);
        if (meant)
            return !none;
        if (!wanted[length])
            return none;
        wanted += length + 1;
    }
}

/* ------------------------------------------------------------------------------------------------------------ choosing */
static bool numeric(const struct sockaddr *at, char address[INTERFACE_ADDRESS])
{
    if (at->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)at)->sin_addr, address, INTERFACE_ADDRESS) != NULL;
    if (at->sa_family != AF_INET6)
        return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    return !IN6_IS_ADDR_LINKLOCAL(six) && inet_ntop(AF_INET6, six, address, INTERFACE_ADDRESS);
}

/* The source address of packets to the outside. The destinations are networks reserved for documentation; connect on UDP sends nothing. */
static bool by_route(char address[INTERFACE_ADDRESS])
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    struct sockaddr_storage own;
    const struct sockaddr *to[] = {(const struct sockaddr *)&four, (const struct sockaddr *)&six};
    const socklen_t bytes[] = {sizeof four, sizeof six};
    bool found = false;

    inet_pton(AF_INET, "192.0.2.1", &four.sin_addr);
    inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    for (int i = 0; i < 2 && !found; i++) {
        socklen_t length = sizeof own;
        int fd = socket(to[i]->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        found = connect(fd, to[i], bytes[i]) == 0 && getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
                numeric((const struct sockaddr *)&own, address);
        close(fd);
    }
    return found;
}

/* The first interface that is up and wanted. IPv4 first, since all ranks of a job must find the same family. */
static bool by_list(const struct ifaddrs *list, const char *wanted, char address[INTERFACE_ADDRESS], const char **name)
{
    char text[INTERFACE_ADDRESS];

    for (int family = 0; family < 2; family++)
        for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
            if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_addr->sa_family != (family ? AF_INET6 : AF_INET) ||
                !numeric(i->ifa_addr, text))
                continue;
            if (wanted ? !interface_matches(wanted, i->ifa_name, text) : (i->ifa_flags & IFF_LOOPBACK) != 0)
                continue;
            base_copy_text(address, INTERFACE_ADDRESS, text);
            *name = i->ifa_name;
            return true;
        }
    return false;
}

static void list_all(const struct ifaddrs *list, char *why, size_t bytes)
{
    char text[INTERFACE_ADDRESS];
    size_t at = strlen(why);

    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && (i->ifa_flags & IFF_UP) && numeric(i->ifa_addr, text))
            base_append(why, bytes, &at, " %s(%s)", i->ifa_name, text);
}

bool interface_address(const struct comm_env *env, char address[INTERFACE_ADDRESS], char *why, size_t why_bytes)
{
    const char *variable = NULL, *wanted = wanted_by(env, &variable), *name = "";
    struct ifaddrs *list = NULL;
    bool found = true;
    int lack = getifaddrs(&list) < 0 && files_are_short(errno) ? errno : 0; /* other failures mean that the kernel has no such list */

    if (lack) {
        found = false;
        base_format(why, why_bytes, "the interfaces of this host cannot be listed: %s", strerror(lack));
    } else if (wanted) {
        found = by_list(list, wanted, address, &name);
        if (found) {
            base_format(why, why_bytes, "%s, by %s", name, variable);
        } else {
            base_format(why, why_bytes, "%s=%s names no interface that is up and has an address here; there are:", variable, wanted);
            list_all(list, why, why_bytes);
        }
    } else if (by_route(address)) {
        base_copy_text(why, why_bytes, "by the default route");
    } else if (by_list(list, NULL, address, &name)) {
        base_format(why, why_bytes, "%s, the first that is up", name);
    } else {
        base_copy_text(address, INTERFACE_ADDRESS, "127.0.0.1");
        base_copy_text(why, why_bytes, "loopback: there is nothing else");
    }
    if (list)
        freeifaddrs(list);
    return found;
}

bool interface_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    }
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}
