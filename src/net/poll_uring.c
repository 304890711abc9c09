/*
 * The poller on io_uring. One ring per engine. Whoever progresses submits, from whatever thread, so the ring is neither SINGLE_ISSUER nor
 * DEFER_TASKRUN, and not COOP_TASKRUN either: work that completes a receive runs in the thread that submitted it, which may be far from the
 * library by then and must be interrupted for it. A thread that ends takes its requests with it: they come back as ECANCELED and are
 * submitted again by who reaps them.
 *
 * The ring's own descriptor is not given out but an eventfd registered with it, silent unless armed: that one tells in every tier.
 */
#define _GNU_SOURCE
#include "net/poller.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { URING_ENTRIES = 256, URING_ENTRIES_LEAST = 64, URING_CANCEL = 2 /* beside the ways, in user data */ };

struct uring_way {
    struct msghdr message;
    uint32_t turn; /* how often this way was started: a completion that was overtaken by a cancel names an older one */
    bool under_way;
};
struct uring_socket {
    int fd;
    struct uring_way way[POLLER_WAYS];
};

struct uring_poller {
    struct poller poller;
    const struct comm_env *env;
    struct io_uring ring;
    uint32_t sockets;
    bool made, unsent; /* the ring is there; it has entries not submitted */
    struct uring_socket socket[];
};

static size_t bytes_of(uint32_t sockets)
{
    return sizeof(struct uring_poller) + sockets * sizeof(struct uring_socket);
}

static void uring_close_poller(struct poller *poller)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (p->made)
        io_uring_queue_exit(&p->ring);
    if (p->poller.fd >= 0)
        close(p->poller.fd);
    p->env->give(p->env, p, bytes_of(p->sockets));
}

/* Little memory may be locked: a small ring before none. */
static int make_ring(struct uring_poller *p)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE, .cq_entries = 16 * URING_ENTRIES};
    int error = io_uring_queue_init_params(URING_ENTRIES, &p->ring, &params);

    if (error == -ENOMEM) {
        params = (struct io_uring_params){.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE, .cq_entries = 8 * URING_ENTRIES_LEAST};
        error = io_uring_queue_init_params(URING_ENTRIES_LEAST, &p->ring, &params);
    }
    if (error)
        return error;
    p->made = true;
    io_uring_ring_dontfork(&p->ring);
    if (!(params.features & IORING_FEAT_FAST_POLL) || !(params.features & IORING_FEAT_NODROP))
        return -EOPNOTSUPP; /* a receive that is not ready would hold a thread of the kernel's */
    return 0;
}

static int uring_open_poller(const struct poller_config *config, struct poller **poller)
{
    struct uring_poller *p = config->env->take(config->env, bytes_of(config->sockets), 64);

    if (!p)
        return -ENOMEM;
    p->poller.class = &poller_uring;
    p->poller.fd = -1;
    p->env = config->env;
    p->sockets = config->sockets;
    for (uint32_t i = 0; i < config->sockets; i++)
        p->socket[i].fd = -1;
    int error = make_ring(p);
    if (!error) {
        p->poller.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        error = p->poller.fd < 0 ? -errno : io_uring_register_eventfd(&p->ring, p->poller.fd);
    }
    if (!error)
        error = io_uring_cq_eventfd_toggle(&p->ring, false);
    if (error) {
        uring_close_poller(&p->poller);
        return error;
    }
    *poller = &p->poller;
    return 0;
}

static int uring_add(struct poller *poller, uint32_t socket, int fd)
{
    ((struct uring_poller *)poller)->socket[socket] = (struct uring_socket){.fd = fd};
    return 0;
}

static struct io_uring_sqe *entry(struct uring_poller *p)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&p->ring);

    while (!sqe) { /* the queue is full: the kernel takes it all before it returns */
        io_uring_submit(&p->ring);
        sqe = io_uring_get_sqe(&p->ring);
    }
    p->unsent = true;
    return sqe;
}

static uint64_t name_of(const struct uring_poller *p, uint32_t socket, uint32_t way)
{
    return (uint64_t)p->socket[socket].way[way % POLLER_WAYS].turn << 32 | (uint64_t)socket << 2 | way;
}

static void queue(struct uring_poller *p, uint32_t socket, enum poller_way way)
{
    struct uring_way *w = &p->socket[socket].way[way];
    struct io_uring_sqe *sqe = entry(p);

    w->turn++;
    if (way == POLLER_RECEIVE)
        io_uring_prep_recvmsg(sqe, p->socket[socket].fd, &w->message, 0);
    else
        io_uring_prep_sendmsg(sqe, p->socket[socket].fd, &w->message, MSG_NOSIGNAL);
    io_uring_sqe_set_data64(sqe, name_of(p, socket, (uint32_t)way));
    w->under_way = true;
}

static int64_t uring_start(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    p->socket[socket].way[way].message = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count};
    queue(p, socket, way);
    return -EINPROGRESS;
}

/* The event of one completion. False: it is nobody's, or it was submitted again. */
static bool told_of(struct uring_poller *p, uint64_t name, int32_t result, struct poller_event *event)
{
    uint32_t socket = (uint32_t)name >> 2, way = (uint32_t)name & 3;

    if (way >= POLLER_WAYS || !p->socket[socket].way[way].under_way || p->socket[socket].way[way].turn != (uint32_t)(name >> 32))
        return false;
    p->socket[socket].way[way].under_way = false;
    if (result == -ECANCELED || result == -EINTR || result == -EAGAIN) { /* its thread ended */
        queue(p, socket, (enum poller_way)way);
        return false;
    }
    *event = (struct poller_event){socket, way, result};
    return true;
}

static void uring_submit(struct poller *poller)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (p->unsent) {
        p->unsent = false;
        io_uring_submit(&p->ring);
    }
}

static uint32_t uring_reap(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    struct uring_poller *p = (struct uring_poller *)poller;
    struct io_uring_cqe *cqe;
    uint32_t told = 0, head, seen = 0;

    (void)hot;
    (void)hots;
    if (p->unsent)
        uring_submit(poller);
    else if (io_uring_cq_has_overflow(&p->ring))
        io_uring_get_events(&p->ring);
    io_uring_for_each_cqe(&p->ring, head, cqe)
    {
        if (told == max)
            break;
        seen++;
        told += told_of(p, cqe->user_data, cqe->res, &events[told]);
    }
    io_uring_cq_advance(&p->ring, seen);
    return told;
}

/* Waits for the end of one transfer, leaving all other completions where they are. */
static int64_t await(struct uring_poller *p, uint32_t socket, enum poller_way way)
{
    for (;;) {
        struct io_uring_cqe *cqe;
        uint32_t head;
        io_uring_for_each_cqe(&p->ring, head, cqe)
        {
            if (cqe->user_data != name_of(p, socket, (uint32_t)way) || !p->socket[socket].way[way].under_way)
                continue;
            p->socket[socket].way[way].under_way = false; /* when it is met again it is nobody's */
            return cqe->res;
        }
        io_uring_submit_and_wait(&p->ring, io_uring_cq_ready(&p->ring) + 1);
    }
}

static int64_t uring_cancel(struct poller *poller, uint32_t socket, enum poller_way way)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (!p->socket[socket].way[way].under_way)
        return -ECANCELED;
    struct io_uring_sqe *sqe = entry(p);
    io_uring_prep_cancel64(sqe, name_of(p, socket, (uint32_t)way), 0);
    io_uring_sqe_set_data64(sqe, URING_CANCEL);
    io_uring_submit(&p->ring);
    int64_t result = await(p, socket, way);
    return result == -EINTR || result == -EAGAIN ? -ECANCELED : result;
}

static void uring_remove(struct poller *poller, uint32_t socket)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (p->socket[socket].fd < 0)
        return;
    for (int way = 0; way < POLLER_WAYS; way++)
        uring_cancel(poller, socket, (enum poller_way)way);
    p->socket[socket].fd = -1;
}

static void uring_arm(struct poller *poller, bool on)
{
    struct uring_poller *p = (struct uring_poller *)poller;
    uint64_t rung;

    io_uring_cq_eventfd_toggle(&p->ring, on);
    while (read(p->poller.fd, &rung, sizeof rung) < 0 && errno == EINTR)
        ;
}

const struct poller_class poller_uring = {
    .name = "io_uring",
    .open = uring_open_poller,
    .close = uring_close_poller,
    .add = uring_add,
    .remove = uring_remove,
    .start = uring_start,
    .cancel = uring_cancel,
    .reap = uring_reap,
    .submit = uring_submit,
    .arm = uring_arm,
};
