/* Opens the requested kind of poller, or returns an error that says why it cannot; and the transfers that both kinds use. */
#define _GNU_SOURCE
#include "net/poll/poller.h"

#include "base/format.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && (!defined(__x86_64__) || defined(__ILP32__))
int64_t poller_transfer_piece(int fd, enum poller_way way, void *at, size_t bytes)
{
#    if defined(SYS_sendto) && defined(SYS_recvfrom)
    ssize_t n = way == POLLER_RECEIVE ? syscall(SYS_recvfrom, fd, at, bytes, MSG_DONTWAIT, NULL, NULL)
                                      : syscall(SYS_sendto, fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
#    else
    ssize_t n = way == POLLER_RECEIVE ? recv(fd, at, bytes, MSG_DONTWAIT) : send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
#    endif

    return n < 0 ? -errno : n;
}
#endif

static int64_t transfer_pieces(int fd, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count};
#if defined(SYS_sendmsg) && defined(SYS_recvmsg) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    ssize_t n = way == POLLER_RECEIVE ? syscall(SYS_recvmsg, fd, &message, MSG_DONTWAIT)
                                      : syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
#else
    ssize_t n = way == POLLER_RECEIVE ? recvmsg(fd, &message, MSG_DONTWAIT) : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
#endif

    return n < 0 ? -errno : n;
}

int64_t poller_transfer(int fd, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    int64_t n;

    do {
        n = count == 1 ? poller_transfer_piece(fd, way, vector->iov_base, vector->iov_len) : transfer_pieces(fd, way, vector, count);
    } while (n == -EINTR);
    return n;
}

#ifdef COMM_HAVE_URING
static const char *why_refused(int error)
{
    switch (error) {
    case -EPERM:
    case -EACCES:
        return "refused by a seccomp filter, as containers have one by default, or by kernel.io_uring_disabled";
    case -ENOSYS:
        return "not in this kernel, or hidden by a seccomp filter";
    case -ENOMEM:
        return "no memory, or too little of it may be locked: ulimit -l";
    case -EOPNOTSUPP:
        return "this kernel's is too old";
    default:
        return "no ring could be made";
    }
}

/* Since Linux 6.6: 0 permits rings to all, 1 to a group and privileged processes, 2 to nobody
 * (Documentation/admin-guide/sysctl/kernel.rst). */
static void tell_refused(int error, char *text, size_t bytes)
{
    char disabled[] = "absent";
    int file = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);

    if (file >= 0 && read(file, disabled, 1) == 1)
        disabled[1] = 0;
    if (file >= 0)
        close(file);
    base_format(text, bytes, "COMM_TCP_POLLER=io_uring: %s (%s; kernel.io_uring_disabled is %s); epoll, the default, needs no ring",
                why_refused(error), strerror(-error), disabled);
}

static int open_ring(const struct poller_config *config, char *text, size_t bytes, struct poller **poller)
{
    int error = poller_uring.open(config, poller);

    if (error)
        tell_refused(error, text, bytes);
    return error;
}
#else
static int open_ring(const struct poller_config *config, char *text, size_t bytes, struct poller **poller)
{
    (void)config;
    (void)poller;
    base_format(text, bytes, "COMM_TCP_POLLER=io_uring: this library was built without liburing; epoll, the default, needs no ring");
    return -EOPNOTSUPP;
}
#endif

enum comm_result poller_open(enum poller_kind kind, const struct poller_config *config, char *text, size_t bytes, struct poller **poller)
{
    bool ring = kind == POLLER_URING;
    int error = ring ? open_ring(config, text, bytes, poller) : poller_epoll.open(config, poller);

    if (error && !ring)
        base_format(text, bytes, "no epoll for the network: %s", strerror(-error));
    switch (error) {
    case 0:
        return COMM_OK;
    case -ENOMEM:
        return COMM_ERR_MEMORY;
    case -EMFILE:
    case -ENFILE:
        return COMM_ERR_SYSTEM;
    default:
        return ring ? COMM_ERR_UNSUPPORTED : COMM_ERR_SYSTEM;
    }
}
