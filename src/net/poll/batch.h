/*
 * batch: many transfers in one system call. Each is one attempt that does not wait, like poller_transfer. Together they are entries of an
 * io_uring, and the kernel executes all of them before the call returns. Nothing stays in the ring between two calls. So any thread may
 * call, an ending thread takes nothing with it, and nothing must be cancelled. If the ring fails, calls of their own take its place.
 */
#ifndef NET_POLL_BATCH_H
#define NET_POLL_BATCH_H

#include "net/poll/poller.h"

enum { BATCH_MOST = 64, BATCH_LEAST = 5 /* fewer are as cheap by separate calls */ };

struct batch_transfer {
    int fd;
    enum poller_way way;
    const struct iovec *vector;
    uint32_t count;
    int64_t result; /* bytes, 0 or -errno; -EAGAIN: not possible now */
};

struct batch;
#ifdef COMM_HAVE_URING
int batch_open(const struct comm_env *env, struct batch **batch); /* returns 0, or -errno and frees everything */
void batch_close(struct batch *b);
void batch_run(struct batch *b, struct batch_transfer *all,
               uint32_t count); /* at most BATCH_MOST, all of different sockets and directions */
#else                           /* without liburing no batch is ever opened */
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
