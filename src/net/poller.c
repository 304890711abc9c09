/* Which poller: the ring where it is wanted and to be had, else epoll, with one line that says why; and what both do by hand. */
#define _GNU_SOURCE
#include "net/poller.h"

#include <errno.h>
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
    ssize_t n = way == POLLER_RECEIVE ? recvmsg(fd, &message, MSG_DONTWAIT) : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

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
        return "refused: a seccomp filter (containers have one by default) or kernel.io_uring_disabled";
    case -ENOSYS:
        return "not in this kernel, or hidden by a seccomp filter";
    case -ENOMEM:
        return "too little memory may be locked: ulimit -l";
    case -EOPNOTSUPP:
        return "this kernel's is too old";
    default:
        return "no ring could be made";
    }
}
#endif

int poller_open(enum poller_kind kind, const struct poller_config *config, const struct base_log *log, struct poller **poller)
{
#ifdef COMM_HAVE_URING
    if (kind == POLLER_URING) {
        int error = poller_uring.open(config, poller);
        if (error == 0 || error == -EMFILE || error == -ENFILE)
            return error;
        base_log(log, LOG_INFO, "io_uring: %s (%s); epoll serves instead", why_refused(error), strerror(-error));
    }
#else
    if (kind == POLLER_URING)
        base_log(log, LOG_INFO, "io_uring: this library was built without liburing; epoll serves instead");
#endif
    return poller_epoll.open(config, poller);
}
