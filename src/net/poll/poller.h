/*
 * poller: sockets whose bytes are waited for, many at once. One receive and one send may be under way on each; they end at once, or with an
 * event. The bytes of a receive go where its iovecs say and nowhere else. Two kinds with one interface: epoll makes a system call for each
 * transfer, io_uring one for all that are due. Which one it is, is decided when a world opens.
 *
 * A poller has no lock of its own: calls are serialised by its owner. `fd` is a descriptor that is readable when something may have come,
 * from arm(true) on; before, that may be missed. Nothing here knows frames or ranks.
 */
#ifndef NET_POLL_POLLER_H
#define NET_POLL_POLLER_H

#include "base/env.h"

#include <commstream/result.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum poller_way { POLLER_RECEIVE = 0, POLLER_SEND = 1, POLLER_WAYS = 2 };
enum { POLLER_IOVECS = 64 };

struct poller_event {
    uint32_t socket;
    uint32_t way;
    int64_t result; /* bytes; of a receive 0: the other end sends nothing any more; or -errno */
};

struct poller_config {
    const struct comm_env *env;
    uint32_t sockets; /* indices 0 .. sockets-1 */
};

struct poller;
struct poller_class {
    const char *name;
    /* 0, or -errno and nothing left behind. */
    int (*open)(const struct poller_config *config, struct poller **poller);
    void (*close)(struct poller *poller);
    /* The socket stays its owner's. 0, or -errno. */
    int (*add)(struct poller *poller, uint32_t socket, int fd);
    /* After it no event names this socket, and nothing touches the iovecs that were under way. */
    void (*remove)(struct poller *poller, uint32_t socket);
    /* Bytes, 0 or -errno as in the event; -EINPROGRESS: an event will say, and until then the iovecs' array and memory stay in place. */
    int64_t (*start)(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count);
    /* Ends what is under way: its bytes, 0 or -errno if it had just ended, -ECANCELED if nothing had come or gone. No event comes of it. */
    int64_t (*cancel)(struct poller *poller, uint32_t socket, enum poller_way way);
    /* The receive that is under way, tried once by who waits for it, and then under way as before: what came is its caller's. Bytes, 0 or
       -errno as in the event; -EAGAIN: nothing yet; -EBUSY: reap is to be asked, as it must be now and then. */
    int64_t (*attempt)(struct poller *poller, uint32_t socket);
    /* What ended since. `hot`: different sockets whose receives are waited for most; where that is cheaper only these are looked at, and
       now and then all. hot NULL: all, always. */
    uint32_t (*reap)(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots);
    /* What was started is under way when it returns: sends may be collected until then, or until reap (poller.collects). */
    void (*submit)(struct poller *poller);
    /* on: fd tells from now on, and the caller reaps until nothing comes before it sleeps. */
    void (*arm)(struct poller *poller, bool on);
};
struct poller {
    const struct poller_class *class;
    int fd;
    bool collects; /* sends wait for submit, where they leave together */
};

extern const struct poller_class poller_epoll;
extern const struct poller_class poller_uring; /* where the library was built with liburing */

/*
 * One attempt that does not wait, here where it is made: each return behind a system call is guessed wrongly, since the kernel leaves no
 * trace of who called whom. Where send() and recv() are called a thread may be cancelled, which it must not be under the wire's lock; and
 * to begin and end that costs a hundredth of a small exchange. Sanitizers must see what is written, though. Bytes, or -errno.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static inline int64_t poller_transfer_piece(int fd, enum poller_way way, void *at, size_t bytes)
{
    ssize_t n = way == POLLER_RECEIVE ? recv(fd, at, bytes, MSG_DONTWAIT) : send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

    return n < 0 ? -errno : n;
}
#elif defined(__x86_64__) && !defined(__ILP32__)
static inline int64_t poller_transfer_piece(int fd, enum poller_way way, void *at, size_t bytes)
{
    register long flags __asm__("r10") = way == POLLER_RECEIVE ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_NOSIGNAL;
    register long no_address __asm__("r8") = 0;
    register long no_length __asm__("r9") = 0;
    long call = way == POLLER_RECEIVE ? SYS_recvfrom : SYS_sendto;
    int64_t result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(call), "D"((long)fd), "S"(at), "d"(bytes), "r"(flags), "r"(no_address), "r"(no_length)
                     : "rcx", "r11", "memory");
    return result;
}
#else
int64_t poller_transfer_piece(int fd, enum poller_way way, void *at, size_t bytes);
#endif

/* The same again after a signal, and of several pieces. */
int64_t poller_transfer(int fd, enum poller_way way, const struct iovec *vector, uint32_t count);

enum poller_kind { POLLER_AUTO = 0, POLLER_EPOLL = 1, POLLER_URING = 2 };
/*
 * Opens the wanted kind, never another: AUTO is epoll, which nothing refuses. Otherwise text says why, and which setting may be behind it:
 * UNSUPPORTED, where no ring is to be had; MEMORY; SYSTEM, where descriptors are used up.
 */
enum comm_result poller_open(enum poller_kind kind, const struct poller_config *config, char *text, size_t bytes, struct poller **poller);

#endif
