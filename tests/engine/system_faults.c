/* Functions that the linker puts in front of system calls (system_faults.h). */
#define _GNU_SOURCE
#include "engine/system_faults.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static struct system_fault chosen;
static _Atomic uint32_t fail_at, calls, failed; /* fail_at 0: nothing fails */
static _Atomic bool ever_after;

void system_fail(const struct system_fault *fault, uint32_t at, bool after)
{
    chosen = *fault;
    atomic_store(&ever_after, after);
    atomic_store(&calls, 0);
    atomic_store(&failed, 0);
    atomic_store(&fail_at, at);
}

uint32_t system_failed(void)
{
    return atomic_load(&failed);
}

void system_heal(void)
{
    atomic_store(&fail_at, 0);
}

/* The errno with which this call must fail, or 0. */
static int fault_of(const char *call)
{
    uint32_t at = atomic_load(&fail_at);
    if (!at || strcmp(call, chosen.call) != 0)
        return 0;
    uint32_t number = atomic_fetch_add(&calls, 1) + 1;
    if (number != at && !(atomic_load(&ever_after) && number > at))
        return 0;
    atomic_fetch_add(&failed, 1);
    return chosen.error;
}

#define WRAP(type, name, error_value, parameters, arguments)                                                                               \
    type __real_##name parameters;                                                                                                         \
    type __wrap_##name parameters;                                                                                                         \
    type __wrap_##name parameters                                                                                                          \
    {                                                                                                                                      \
        int fault = fault_of(#name);                                                                                                       \
        if (!fault)                                                                                                                        \
            return __real_##name arguments;                                                                                                \
        errno = fault;                                                                                                                     \
        return error_value;                                                                                                                \
    }

WRAP(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, socketpair, -1, (int domain, int type, int protocol, int *pair), (domain, type, protocol, pair))
WRAP(int, bind, -1, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length))
WRAP(int, listen, -1, (int fd, int backlog), (fd, backlog))
WRAP(int, accept4, -1, (int fd, struct sockaddr *address, socklen_t *length, int flags), (fd, address, length, flags))
WRAP(int, connect, -1, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length))
WRAP(ssize_t, send, -1, (int fd, const void *bytes, size_t count, int flags), (fd, bytes, count, flags))
WRAP(ssize_t, recv, -1, (int fd, void *bytes, size_t count, int flags), (fd, bytes, count, flags))
WRAP(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(int, poll, -1, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms))
WRAP(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
WRAP(int, fallocate, -1, (int fd, int mode, off_t from, off_t bytes), (fd, mode, from, bytes))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t bytes, int protection, int flags, int fd, off_t from),
     (at, bytes, protection, flags, fd, from))
WRAP(int, madvise, -1, (void *at, size_t bytes, int advice), (at, bytes, advice))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, epoll_create1, -1, (int flags), (flags))
WRAP(int, epoll_ctl, -1, (int set, int what, int fd, struct epoll_event *event), (set, what, fd, event))
WRAP(int, epoll_wait, -1, (int set, struct epoll_event *events, int most, int ms), (set, events, most, ms))
WRAP(ssize_t, getrandom, -1, (void *bytes, size_t count, unsigned flags), (bytes, count, flags))
WRAP(ssize_t, read, -1, (int fd, void *bytes, size_t count), (fd, bytes, count))
WRAP(int, setrlimit, -1, (__rlimit_resource_t what, const struct rlimit *limit), (what, limit))
WRAP(ssize_t, write, -1, (int fd, const void *bytes, size_t count), (fd, bytes, count))

/* pthread_create returns its error. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *arg)
{
    int fault = fault_of("pthread_create");
    return fault ? fault : __real_pthread_create(thread, how, fn, arg);
}

int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
    va_list list;
    va_start(list, what);
    long value = va_arg(list, long);
    va_end(list);
    int fault = fault_of("fcntl");
    if (!fault)
        return __real_fcntl(fd, what, value);
    errno = fault;
    return -1;
}

static const char *name_of(long number, long what)
{
    switch (number) {
    case SYS_pidfd_open:
        return "pidfd_open";
    case SYS_membarrier:
        return "membarrier";
    case SYS_futex:
        return (what & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET ? "futex_wait" : "another"; /* waking is never interrupted */
    case SYS_epoll_pwait2:
        return "epoll_pwait2";
    default:
        return "another";
    }
}

/* The sixth argument is on the stack, where calls with fewer have something else. */
static int arguments_of(long number)
{
    return number == SYS_futex || number == SYS_epoll_pwait2 || number == SYS_sendto || number == SYS_recvfrom || number == SYS_mbind ? 6
                                                                                                                                      : 5;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list list;
    long a[6] = {0};
    va_start(list, number);
    for (int i = 0; i < arguments_of(number); i++)
        a[i] = va_arg(list, long);
    va_end(list);
    int fault = fault_of(name_of(number, a[1]));
    if (!fault)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = fault;
    return -1;
}
