/* Sockets of the tcp wire: their options, their addresses, listening, and pairs of sockets inside a process. */
#define _GNU_SOURCE
#include "net/mesh/mesh.h"

#include "base/format.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef TCP_RTO_MAX_MS
#    define TCP_RTO_MAX_MS 44 /* Linux 6.15 */
#endif

enum { KEEP_IDLE_S = 10, KEEP_BETWEEN_S = 3, KEEP_COUNT = 3 };

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

socklen_t mesh_length_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* A numeric address; sets port 0. */
bool mesh_read_address(const char *text, struct sockaddr_storage *address)
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

static int pair_here(int listener, const struct sockaddr_storage *address, int fd[2])
{
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd[0] < 0)
        return errno;
    if (connect(fd[0], (const struct sockaddr *)address, mesh_length_of(address)) < 0)
        return errno;
    while ((fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0 && !is_pair(fd[0], fd[1]))
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
