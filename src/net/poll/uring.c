/* Batches on an io_uring (io_uring(7)). Each poller has its own ring, and its owner serializes the calls. */
#define _GNU_SOURCE
#include "net/poll/batch.h"

#include <errno.h>
#include <liburing.h>
#include <sys/socket.h>

struct batch {
    const struct comm_env *env;
    struct io_uring ring;
    struct msghdr message[BATCH_MOST];
};

int batch_open(const struct comm_env *env, struct batch **batch)
{
    struct batch *b = env->take(env, sizeof *b, 64);

    if (!b)
        return -ENOMEM;
    int error = io_uring_queue_init(BATCH_MOST, &b->ring, 0);
    if (error) {
        env->give(env, b, sizeof *b);
        return error;
    }
    b->env = env;
    io_uring_ring_dontfork(&b->ring);
    env->own(env, b->ring.ring_fd, true);
    *batch = b;
    return 0;
}

void batch_close(struct batch *b)
{
    const struct comm_env *env = b->env;

    env->own(env, b->ring.ring_fd, false);
    io_uring_queue_exit(&b->ring);
    env->give(env, b, sizeof *b);
}

static void prepare(struct batch *b, const struct batch_transfer *t, uint32_t at)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring); /* never NULL: the queue is empty and has BATCH_MOST entries */
    bool receives = t->way == POLLER_RECEIVE;
    int flags = receives ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_NOSIGNAL;

    b->message[at] = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)t->vector, .msg_iovlen = t->count};
    if (receives && t->count == 1)
        io_uring_prep_recv(sqe, t->fd, t->vector->iov_base, t->vector->iov_len, flags);
    else if (receives)
        io_uring_prep_recvmsg(sqe, t->fd, &b->message[at], (unsigned)flags);
    else if (t->count == 1)
        io_uring_prep_send(sqe, t->fd, t->vector->iov_base, t->vector->iov_len, flags);
    else
        io_uring_prep_sendmsg(sqe, t->fd, &b->message[at], (unsigned)flags);
    io_uring_sqe_set_data64(sqe, at);
}

/* Takes the results that are ready. Returns how many. */
static uint32_t take_results(struct batch *b, struct batch_transfer *all)
{
    struct io_uring_cqe *cqe;
    uint32_t head, taken = 0;

    io_uring_for_each_cqe(&b->ring, head, cqe)
    {
        all[cqe->user_data].result = cqe->res == -EINTR ? -EAGAIN : cqe->res;
        taken++;
    }
    io_uring_cq_advance(&b->ring, taken);
    return taken;
}

/* Usually all transfers have ended when the kernel returns. The call is repeated after a signal, or if the kernel took only a part for lack
 * of memory. */
void batch_run(struct batch *b, struct batch_transfer *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        prepare(b, &all[i], i);
    for (uint32_t ended = 0; ended < count;) {
        (void)io_uring_submit_and_wait(&b->ring, io_uring_cq_ready(&b->ring) ? 0 : 1);
        ended += take_results(b, all);
    }
}
