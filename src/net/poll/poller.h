/*
 * poller: receives and sends on many sockets. One receive and one send may be in progress on each socket; each ends at once or with an
 * event. A receive writes only where its iovecs say. There are two kinds with one interface: epoll makes a system call for each transfer,
 * io_uring one for all that are due. The kind is chosen when a world opens.
 *
 * A poller has no lock; its owner serializes the calls. `fd` is readable when something may have arrived, but only after arm(true). The
 * poller knows nothing of frames or ranks.
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
    int64_t result; /* bytes, or -errno; 0 for a receive: the other end sends nothing more */
};

struct poller_config {
    const struct comm_env *env;
    uint32_t sockets; /* their indices are 0 .. sockets-1 */
};

struct poller;
struct poller_class {
    const char *name;
    /* Returns 0, or -errno and frees everything. */
    int (*open)(const struct poller_config *config, struct poller **poller);
    void (*close)(struct poller *poller);
    /* The caller keeps the socket. Returns 0, or -errno. */
    int (*add)(struct poller *poller, uint32_t socket, int fd);
    /* Afterwards no event names this socket, and nothing accesses the iovecs of its transfers. */
    void (*remove)(struct poller *poller, uint32_t socket);
    /* Returns bytes, 0 or -errno as in the event. -EINPROGRESS: an event will follow, and until then the array of iovecs and their memory
     * must stay in place. */
    int64_t (*start)(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count);
    /*
     * Ends a transfer without an event. Returns its bytes, 0 or -errno if it has just finished, or -ECANCELED if nothing was transferred.
     */
    int64_t (*cancel)(struct poller *poller, uint32_t socket, enum poller_way way);
    /* Tries the current receive once for its waiter, and keeps it in progress. The caller owns what was received. Returns bytes, 0 or
     * -errno as in the event; -EAGAIN: nothing yet; -EBUSY: reap must be called, as it must now and then. */
    int64_t (*attempt)(struct poller *poller, uint32_t socket);
    /* Reports what has finished. `hot`: different sockets with the receives that are waited for most. If it is cheaper, only these are
     * tried, and all sockets now and then. hot NULL: always all. */
    uint32_t (*reap)(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots);
    /* Executes the sends that were collected; reap does so too (poller.collects). ends reports those that have finished, as reap does. */
    void (*submit)(struct poller *poller);
    uint32_t (*ends)(struct poller *poller, struct poller_event *events, uint32_t max);
    /* on: fd reports arrivals from now on. Before it sleeps, the caller must reap until there is nothing. */
    void (*arm)(struct poller *poller, bool on);
};
struct poller {
    const struct poller_class *class;
    int fd;
    uint32_t batch_least; /* so many sends at once are worth a batch; 0: there are no batches, and submit has nothing to do */
    bool collects;        /* sends wait for submit and leave together: for as long as there are enough of them at once */
};

extern const struct poller_class poller_epoll;
extern const struct poller_class poller_uring; /* only if the library was built with liburing */

/*
 * Makes one attempt that does not wait. Returns bytes, or -errno. It is inline and makes the system call directly for two reasons. After a
 * system call the CPU mispredicts every return, so a wrapper function costs time. And send() and recv() are cancellation points; a thread
 * must not be cancelled under the wire's lock, and to disable and enable cancellation costs a hundredth of a small exchange. With
 * sanitizers it calls the C library, since they must see what is written.
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

/* The same, but repeats after a signal and accepts several pieces. */
int64_t poller_transfer(int fd, enum poller_way way, const struct iovec *vector, uint32_t count);

enum poller_kind { POLLER_AUTO = 0, POLLER_EPOLL = 1, POLLER_URING = 2 };
/* Opens the requested kind, never another. AUTO is epoll, which is always permitted. On an error, text has the reason and the setting that
 * may cause it. UNSUPPORTED: rings are not available; MEMORY; SYSTEM: no descriptors are left. */
enum comm_result poller_open(enum poller_kind kind, const struct poller_config *config, char *text, size_t bytes, struct poller **poller);

#endif
