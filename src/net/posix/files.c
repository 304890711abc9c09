#define _GNU_SOURCE
#include "net/posix/files.h"

#include "base/format.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { SPARE = 16 }; /* descriptors left for other files of the world and the program */

static bool raise_limit(const struct base_log *log, uint32_t more)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max)
        return false;
    rlim_t before = limit.rlim_cur, room = limit.rlim_max - before;
    limit.rlim_cur += room < more + SPARE ? room : more + SPARE;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return false;
    base_log(log, LOG_INFO, "open files: the soft limit of this process was raised from %llu to %llu (the hard one is %llu)",
             (unsigned long long)before, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    return true;
}

/* The kernel assigns the lowest free number, so a high number shows that few are left. */
static void keep_some_spare(int fd, const struct base_log *log, uint32_t more)
{
    struct rlimit limit;

    if (fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd + SPARE >= limit.rlim_cur)
        raise_limit(log, more);
}

int files_accept(int listener, const struct base_log *log, uint32_t more)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0 && errno == EMFILE && raise_limit(log, more))
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    keep_some_spare(fd, log, more);
    return fd;
}

int files_socket(int family, const struct base_log *log, uint32_t more)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 && errno == EMFILE && raise_limit(log, more))
        fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    keep_some_spare(fd, log, more);
    return fd;
}

bool files_are_short(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void files_name_shortage(char *text, size_t bytes, uint32_t needed, int error)
{
    struct rlimit limit = {.rlim_cur = 0};

    getrlimit(RLIMIT_NOFILE, &limit);
    if (error == EMFILE)
        base_format(text, bytes, "it needs about %u open files, and nofile (RLIMIT_NOFILE, `ulimit -Hn`) allows %llu", needed,
                    (unsigned long long)limit.rlim_max);
    else
        base_format(text, bytes, "the system has nothing left for a connection: %s", strerror(error));
}
