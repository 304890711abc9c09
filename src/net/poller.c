/* Which poller: the ring where it is wanted and to be had, else epoll, with one line that says why. */
#include "net/poller.h"

#include <errno.h>
#include <string.h>

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
