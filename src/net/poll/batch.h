/*
 * batch: many transfers in one system call. Each is one attempt that does not wait, as poller_transfer makes it; together they are entries
 * of an io_uring, which the kernel carries out before its one call returns. Nothing stays in the ring between two calls: so any thread may
 * make them, a thread that ends takes nothing with it, and nothing has to be cancelled.
 */
#ifndef NET_POLL_BATCH_H
#define NET_POLL_BATCH_H

#include "net/poll/poller.h"

enum { BATCH_MOST = 64, BATCH_LEAST = 3 /* fewer cost no more by calls of their own */ };

struct batch_transfer {
    int fd;
    enum poller_way way;
    const struct iovec *vector;
    uint32_t count;
    int64_t result; /* bytes, 0 or -errno; -EAGAIN: not now */
};

struct batch;
#ifdef COMM_HAVE_URING
int batch_open(const struct comm_env *env, struct batch **batch); /* 0, or -errno and nothing left behind */
void batch_close(struct batch *b);
void batch_run(struct batch *b, struct batch_transfer *all, uint32_t count); /* at most BATCH_MOST of different sockets and ways */
#else                                                                        /* none is ever opened */
static inline void batch_close(struct batch *b)
{
    (void)b;
}
static inline void batch_run(struct batch *b, struct batch_transfer *all, uint32_t count)
{
    (void)b;
    (void)all;
    (void)count;
}
#endif

#endif
