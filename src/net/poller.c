/* Which poller: the ring where it is wanted and to be had, else epoll, with one line that says why; and what both do by hand. */
#define _GNU_SOURCE
#include "net/poller.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Where send() and recv() are called a thread may be cancelled, which it must not be under the wire's lock; and to begin and end that costs
 * a hundredth of a small exchange. Sanitizers must see what is written, though.
 */
#if defined(SYS_sendto) && defined(SYS_recvfrom) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#    define POLLER_SEND_NOW(fd, at, bytes, flags) syscall(SYS_sendto, fd, at, bytes, flags, NULL, 0)
#    define POLLER_RECEIVE_NOW(fd, at, bytes, flags) syscall(SYS_recvfrom, fd, at, bytes, flags, NULL, NULL)
#else
#    define POLLER_SEND_NOW(fd, at, bytes, flags) send(fd, at, bytes, flags)
#    define POLLER_RECEIVE_NOW(fd, at, bytes, flags) recv(fd, at, bytes, flags)
#endif

int64_t poller_transfer(int fd, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    int64_t n;

    do {
        if (count == 1) {
            n = way == POLLER_RECEIVE ? POLLER_RECEIVE_NOW(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT)
                                      : POLLER_SEND_NOW(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else {
            struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count};
            n = way == POLLER_RECEIVE ? recvmsg(fd, &message, MSG_DONTWAIT) : sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
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
