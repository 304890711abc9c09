/*
 * The poller on io_uring. One ring per engine. Whoever progresses submits, from whatever thread, so the ring is neither SINGLE_ISSUER nor
 * DEFER_TASKRUN, and not COOP_TASKRUN either: work that completes a receive runs in the thread that submitted it, which may be far from the
 * library by then and must be interrupted for it. A thread that ends takes its requests with it: they come back as ECANCELED and are
 * submitted again by who reaps them.
 *
 * For each receive that ends in the ring the kernel interrupts the thread that submitted it, which under a hypervisor costs ten
 * microseconds. So a receive is put into the ring only when somebody is about to sleep, or looks at many sockets: those that are waited for
 * by somebody who spins are tried by a call of their own, as on epoll. A send is tried so too, and left to the ring when it cannot go on.
 *
 * The ring's own descriptor is not given out but an eventfd registered with it, silent unless armed: that one tells in every tier.
 */
#define _GNU_SOURCE
#include "net/poll/poller.h"
#include "net/posix/posix.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { URING_ENTRIES = 256, URING_ENTRIES_LEAST = 64, URING_CANCEL = 2 /* beside the ways, in user data */ };
enum { URING_HOT_MOST = 8, URING_LOOK_AT_ALL = 16 };

struct uring_way {
    struct msghdr message;
    uint32_t turn; /* how often this way was started: a completion that was overtaken by a cancel names an older one */
    bool under_way;
    bool queued; /* in the ring */
};
struct uring_socket {
    int fd;
    bool listed, hot;
    struct uring_way way[POLLER_WAYS];
};

struct uring_poller {
    struct poller poller;
    const struct comm_env *env;
    struct io_uring ring;
    uint32_t sockets, turn;
    bool made, unsent; /* the ring is there; it has entries not submitted */
    bool armed;
    uint32_t listed; /* sockets whose receive is perhaps not in the ring */
    uint32_t *list;
    struct uring_socket socket[];
};

static size_t bytes_of(uint32_t sockets)
{
    return sizeof(struct uring_poller) + sockets * (sizeof(struct uring_socket) + sizeof(uint32_t));
}

static void uring_close_poller(struct poller *poller)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (p->made) {
        p->env->own(p->env, p->ring.ring_fd, false);
        io_uring_queue_exit(&p->ring);
    }
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
    p->env->own(p->env, p->ring.ring_fd, true); /* while anybody has it, it has its sockets */
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
    p->list = (uint32_t *)(void *)(p->socket + config->sockets);
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
    struct uring_socket *s = &((struct uring_poller *)poller)->socket[socket];

    *s = (struct uring_socket){.fd = fd, .listed = s->listed};
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
    w->queued = true;
}

/* False: not yet. */
static bool try_now(struct uring_poller *p, uint32_t socket, enum poller_way way, int64_t *result)
{
    struct uring_socket *s = &p->socket[socket];
    int64_t n = poller_transfer(s->fd, way, s->way[way].message.msg_iov, (uint32_t)s->way[way].message.msg_iovlen);

    if (n == -EAGAIN || n == -EWOULDBLOCK)
        return false;
    *result = n;
    s->way[way].under_way = false;
    return true;
}

static int64_t uring_start(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    struct uring_socket *s = &p->socket[socket];
    int64_t result;

    s->way[way].message = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count};
    s->way[way].under_way = true;
    if (way == POLLER_SEND) {
        if (try_now(p, socket, way, &result))
            return result;
        queue(p, socket, way);
    } else if (!s->listed) {
        s->listed = true;
        p->list[p->listed++] = socket;
    }
    return -EINPROGRESS;
}

/* Receives go into the ring, but for those that are tried all the time. */
static void queue_listed(struct uring_poller *p)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < p->listed; i++) {
        struct uring_socket *s = &p->socket[p->list[i]];
        struct uring_way *w = &s->way[POLLER_RECEIVE];
        if (s->hot) {
            p->list[kept++] = p->list[i];
            continue;
        }
        s->listed = false;
        if (s->fd >= 0 && w->under_way && !w->queued)
            queue(p, p->list[i], POLLER_RECEIVE);
    }
    p->listed = kept;
}

static uint32_t try_hot(struct uring_poller *p, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < hots && told < max; i++) {
        struct uring_socket *s = &p->socket[hot[i]];
        struct uring_way *w = &s->way[POLLER_RECEIVE];
        int64_t result;
        if (s->fd >= 0 && w->under_way && !w->queued && try_now(p, hot[i], POLLER_RECEIVE, &result))
            events[told++] = (struct poller_event){hot[i], POLLER_RECEIVE, result};
    }
    return told;
}

/* The event of one completion. False: it is nobody's, or it was submitted again. */
static bool told_of(struct uring_poller *p, uint64_t name, int32_t result, struct poller_event *event)
{
    uint32_t socket = (uint32_t)name >> 2, way = (uint32_t)name & 3;

    if (way >= POLLER_WAYS || !p->socket[socket].way[way].queued || p->socket[socket].way[way].turn != (uint32_t)(name >> 32))
        return false;
    p->socket[socket].way[way].queued = false;
    if (result == -ECANCELED || result == -EINTR || result == -EAGAIN) { /* its thread ended */
        queue(p, socket, (enum poller_way)way);
        return false;
    }
    p->socket[socket].way[way].under_way = false;
    *event = (struct poller_event){socket, way, result};
    return true;
}

static void uring_submit(struct poller *poller)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    if (p->armed)
        queue_listed(p);
    if (p->unsent) {
        p->unsent = false;
        io_uring_submit(&p->ring);
    }
}

static void mark_hot(struct uring_poller *p, const uint32_t *hot, uint32_t hots, bool on)
{
    for (uint32_t i = 0; i < hots; i++)
        p->socket[hot[i]].hot = on;
}

static uint32_t uring_reap(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    struct uring_poller *p = (struct uring_poller *)poller;
    struct io_uring_cqe *cqe;
    uint32_t told = 0, head, seen = 0;
    bool few = hot && hots && hots <= URING_HOT_MOST && !p->armed;

    if (!few || p->turn++ % URING_LOOK_AT_ALL == 0) {
        mark_hot(p, hot, few ? hots : 0, true);
        queue_listed(p);
        mark_hot(p, hot, few ? hots : 0, false);
    }
    if (few)
        told = try_hot(p, events, max, hot, hots);
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

static int64_t uring_attempt(struct poller *poller, uint32_t socket)
{
    struct uring_poller *p = (struct uring_poller *)poller;
    const struct uring_socket *s = &p->socket[socket];
    const struct uring_way *w = &s->way[POLLER_RECEIVE];

    if (p->armed || !w->under_way || w->queued || p->turn % URING_LOOK_AT_ALL == 0) /* reap counts that turn, and looks at all */
        return -EBUSY;
    p->turn++;
    return poller_transfer(s->fd, POLLER_RECEIVE, w->message.msg_iov, (uint32_t)w->message.msg_iovlen);
}

/* Waits for the end of one transfer, leaving all other completions where they are: for one more than it has looked at, not than there are
 * by then, since what has come meanwhile may be the last. */
static int64_t await(struct uring_poller *p, uint32_t socket, enum poller_way way)
{
    for (;;) {
        struct io_uring_cqe *cqe;
        uint32_t head, seen = 0;
        io_uring_for_each_cqe(&p->ring, head, cqe)
        {
            seen++;
            if (cqe->user_data != name_of(p, socket, (uint32_t)way) || !p->socket[socket].way[way].queued)
                continue;
            p->socket[socket].way[way].under_way = p->socket[socket].way[way].queued = false; /* met again it is nobody's */
            return cqe->res;
        }
        io_uring_submit_and_wait(&p->ring, seen + 1);
    }
}

static int64_t uring_cancel(struct poller *poller, uint32_t socket, enum poller_way way)
{
    struct uring_poller *p = (struct uring_poller *)poller;

    bool queued = p->socket[socket].way[way].under_way && p->socket[socket].way[way].queued;

    p->socket[socket].way[way].under_way = queued;
    if (!queued)
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

    p->armed = on;
    io_uring_cq_eventfd_toggle(&p->ring, on);
    while (posix_read_bytes(p->poller.fd, &rung, sizeof rung) < 0 && errno == EINTR)
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
    .attempt = uring_attempt,
    .reap = uring_reap,
    .submit = uring_submit,
    .arm = uring_arm,
};
