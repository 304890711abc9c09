/* Sockets of the tcp wire: their options, their addresses, listening, and pairs of sockets inside a process. */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "base/format.h"
#include "net/posix/interface.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef TCP_RTO_MAX_MS
#    define TCP_RTO_MAX_MS 44 /* Linux 6.15 */
#endif

enum { KEEP_IDLE_S = 10, KEEP_BETWEEN_S = 3, KEEP_COUNT = 3, HERE_MS = 10000 };

static bool set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* Each call says for itself whether it may wait. io_uring would return EAGAIN for a nonblocking descriptor instead of waiting. */
static void make_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* Missing options are not an error: they only detect a dead link earlier, or make a near one faster. */
void mesh_set_options(const struct tcp_wire *w, int fd, bool near)
{
    make_blocking(fd);
    bool done = set(fd, IPPROTO_TCP, TCP_NODELAY, 1) && set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);

    done = done && set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S) && set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_BETWEEN_S);
    done = done && set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    /* No TCP_USER_TIMEOUT: the kernel would also end a connection whose peer is stopped and acknowledges, with a full window, after that
     * time (tcp(7)), and neither side would know why. The monitor decides, and tells a stopped peer. */
    /* TCP doubles the pause before it sends again. With a limit, it notices within a third of link_timeout that a link is back; without,
     * only after as long as the link was down. The kernel takes 1 s or more. */
    const int pause_ms = (int)(w->times.link_timeout_ns / 3000000);

    set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, pause_ms > 1000 ? pause_ms : 1000);
    if (near) /* congestion control that models a path with queues (such as BBR) halves the rate on a path without them */
        done = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0 && done;
    if (!done)
        base_log(w->log, LOG_DEBUG, "tcp: not every option of a connection could be set: %s", strerror(errno));
}

void mesh_name_address(const struct sockaddr_storage *address, char *text, size_t bytes)
{
    char host[INTERFACE_ADDRESS];
    bool six = address->ss_family == AF_INET6;
    unsigned port = ntohs(six ? ((const struct sockaddr_in6 *)address)->sin6_port : ((const struct sockaddr_in *)address)->sin_port);

    if (getnameinfo((const struct sockaddr *)address, mesh_length_of(address), host, sizeof host, NULL, 0, NI_NUMERICHOST))
        base_copy_text(host, sizeof host, "?");
    base_format(text, bytes, six ? "[%s]:%u" : "%s:%u", host, port);
}

socklen_t mesh_length_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* A numeric address, perhaps with its interface (fe80::1%eth0); sets port 0. */
bool mesh_read_address(const char *text, struct sockaddr_storage *address)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *at = NULL;

    memset(address, 0, sizeof *address);
    if (getaddrinfo(text, NULL, &hints, &at))
        return false;
    memcpy(address, at->ai_addr, at->ai_addrlen);
    freeaddrinfo(at);
    return true;
}

/* The number of another host's interface means nothing here. Addresses that are valid on one link only can reach each other only on that
 * link, so it is the link of this rank's own address. */
void mesh_use_own_link(struct sockaddr_storage *address, const struct sockaddr_storage *own)
{
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

    if (address->ss_family == AF_INET6 && own->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
        six->sin6_scope_id = ((const struct sockaddr_in6 *)own)->sin6_scope_id;
}

/* Returns 0, or an errno. */
int mesh_listen_on(struct sockaddr_storage *address, int backlog, int *listener)
{
    socklen_t length = mesh_length_of(address);
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

/* A silent connection then stays in the kernel, and one that speaks at once is accepted and read in one look. Kernels without the option
 * behave as usual. */
void mesh_await_words(int listener, int seconds)
{
    (void)set(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, seconds);
}

/* ------------------------------------------------------------------------------------------------------------ all ranks in this process */
/* Whether the other end is `fd`: another process of this host may have connected in the meantime. */
static bool is_pair(int fd, int other)
{
    struct sockaddr_in own, far;
    socklen_t own_bytes = sizeof own, far_bytes = sizeof far;

    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 && getpeername(other, (struct sockaddr *)&far, &far_bytes) == 0 &&
           own.sin_port == far.sin_port && own.sin_addr.s_addr == far.sin_addr.s_addr;
}

/* The dialing end may be connected a moment before the connection can be accepted. */
static int accept_here(int listener)
{
    struct pollfd comes = {.fd = listener, .events = POLLIN};
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            break;
        if (poll(&comes, 1, HERE_MS) == 0) {
            errno = ETIMEDOUT;
            break;
        }
    }
    return fd;
}

static int pair_here(int listener, const struct sockaddr_storage *address, int fd[2])
{
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd[0] < 0)
        return errno;
    if (connect(fd[0], (const struct sockaddr *)address, mesh_length_of(address)) < 0 && errno != EINTR) /* a signal does not end it */
        return errno;
    while ((fd[1] = accept_here(listener)) >= 0 && !is_pair(fd[0], fd[1]))
        close(fd[1]);
    return fd[1] < 0 ? errno : 0;
}

enum comm_result tcp_mesh_here(struct tcp_wire *w, const struct wire_config *config)
{
    struct sockaddr_storage address;
    int listener = -1, error = mesh_read_address("127.0.0.1", &address) ? 0 : EINVAL;

    if (!error)
        error = mesh_listen_on(&address, 4, &listener);
    for (int32_t a = 0; a < w->ranks && !error; a++)
        for (int32_t b = a + 1; b < w->ranks && !error; b++)
            for (int k = 0; k < TCP_LANES && !error && wire_joins(config, a, b);
                 k++) { /* ranks of one process live and die together, so no heartbeats */
                struct tcp_lane *ends[2] = {&w->port[a].link[b].lane[k], &w->port[b].link[a].lane[k]};
                int fd[2] = {-1, -1};
                error = pair_here(listener, &address, fd);
                for (int i = 0; i < 2; i++) {
                    ends[i]->fd = fd[i];
                    w->env->own(w->env, fd[i], true);
                    if (fd[i] >= 0)
                        mesh_set_options(w, fd[i], true);
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
