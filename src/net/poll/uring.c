/* Batches on an io_uring (io_uring(7)). Each poller has its own ring, and its owner serializes the calls. */
#define _GNU_SOURCE
#include "net/poll/batch.h"

#include "base/check.h"

#include <errno.h>
#include <liburing.h>
#include <sys/socket.h>

enum { BATCH_REFUSED_MOST = 16, OPERATIONS = IORING_OP_RECV + 1 };
#define NOT_EXECUTED INT64_MIN

struct batch {
    const struct comm_env *env;
    bool failed; /* each transfer is a call of its own from now on */
    struct io_uring ring;
    struct msghdr message[BATCH_MOST];
};

/* Rings are older than sends and receives on them, which came with Linux 5.6, as did the question for them: before, each would end with
 * EINVAL, like a broken connection. Returns 0, or -errno. */
static int check_operations(struct io_uring *ring)
{
    static const unsigned needed[] = {IORING_OP_RECVMSG, IORING_OP_SENDMSG, IORING_OP_RECV, IORING_OP_SEND};
    _Alignas(struct io_uring_probe) char room[sizeof(struct io_uring_probe) + OPERATIONS * sizeof(struct io_uring_probe_op)] = {0};
    struct io_uring_probe *known = (struct io_uring_probe *)(void *)room;
    int error = io_uring_register_probe(ring, known, OPERATIONS);
    bool all = true;

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        all &= needed[i] <= known->last_op && (known->ops[needed[i]].flags & IO_URING_OP_SUPPORTED);
    return error == -EINVAL || (!error && !all) ? -EOPNOTSUPP : error;
}

int batch_open(const struct comm_env *env, struct batch **batch)
{
    struct batch *b = env->take(env, sizeof *b, 64);

    if (!b)
        return -ENOMEM;
    int error = io_uring_queue_init(BATCH_MOST, &b->ring, 0);
    bool made = !error;
    if (made)
        error = check_operations(&b->ring);
    if (error) {
        if (made)
            io_uring_queue_exit(&b->ring);
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

/* Lets the kernel execute what was prepared. Returns how many transfers have ended: all of them, unless the ring has failed. The call is
 * repeated after a signal, and a few times if the kernel lacked memory and took only a part. */
static uint32_t enter(struct batch *b, struct batch_transfer *all, uint32_t count)
{
    uint32_t ended = 0, refused = 0;

    while (ended < count && refused < BATCH_REFUSED_MOST) {
        int error = io_uring_submit_and_wait(&b->ring, io_uring_cq_ready(&b->ring) ? 0 : 1);
        uint32_t taken = take_results(b, all);
        ended += taken;
        if (error == -EAGAIN || error == -EBUSY || error == -ENOMEM)
            refused = taken ? 0 : refused + 1;
        else if (error < 0 && error != -EINTR)
            refused = BATCH_REFUSED_MOST;
    }
    return ended;
}

/* A ring may fail after it was opened, for example by a seccomp filter that the program installs. Then it is never entered again, because
 * its queue still has what the kernel did not take. No transfer that the kernel took is without a result: none of them waits. */
void batch_run(struct batch *b, struct batch_transfer *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        all[i].result = NOT_EXECUTED;
    if (BASE_LIKELY(!b->failed)) {
        for (uint32_t i = 0; i < count; i++)
            prepare(b, &all[i], i);
        if (BASE_LIKELY(enter(b, all, count) == count))
            return;
        b->failed = true;
    }
    for (uint32_t i = 0; i < count; i++)
        if (all[i].result == NOT_EXECUTED)
            all[i].result = poller_transfer(all[i].fd, all[i].way, all[i].vector, all[i].count);
}
