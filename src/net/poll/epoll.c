/*
 * Both kinds of poller. From add on, an edge-triggered epoll watches each socket, so starting and ending a wait needs no call. An edge only
 * sets a mark (`ready`), and the mark stays until the socket has returned EAGAIN. A receive is tried when its mark is set, or when its
 * owner waits for it. A send is tried at once.
 *
 * The io_uring poller makes these attempts in batches (batch.h): sends are collected until submit, and each look tries one batch. With
 * fewer sockets than a batch is worth, both kinds do the same.
 *
 * A watched socket costs its sender a tenth of a small exchange: each segment that arrives notifies the epoll, and the epoll notifies every
 * thread that waits for the poller's descriptor. So a socket is no longer watched after many attempts in a row have found bytes. From then
 * on every look tries it. It is watched again if the attempts find nothing too often, if its send must wait for room, or if a thread is
 * about to sleep on the descriptor.
 */
#define _GNU_SOURCE
#include "net/poll/epoll.h"
#include "net/posix/posix.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* ------------------------------------------------------------------------------------------------------------ watched or tried */
static void unwatch(struct epoll_poller *p, uint32_t socket)
{
    struct epoll_socket *s = &p->socket[socket];

    s->found = 0;
    if (!s->way[POLLER_SEND].ready || epoll_ctl(p->poller.fd, EPOLL_CTL_DEL, s->fd, NULL) < 0)
        return;
    s->watched = false;
    s->missed = 0;
    p->unwatched[p->unwatcheds++] = socket;
}

/* The epoll reports data or room that came in the meantime as an edge at once. If the kernel has no memory, the socket is still tried at
 * each look. */
static void watch_again(struct epoll_poller *p, uint32_t socket)
{
    struct epoll_socket *s = &p->socket[socket];

    s->missed = 0;
    if (epoll_watch(p, socket, s->fd) < 0)
        return;
    s->watched = true;
    if (s->found >= EPOLL_PAID)
        s->enough = EPOLL_FOUND;
    else if (s->enough < EPOLL_FOUND_MOST)
        s->enough *= 2;
    s->found = 0;
    epoll_forget_unwatched(p, socket);
}

static void found(struct epoll_poller *p, uint32_t socket)
{
    struct epoll_socket *s = &p->socket[socket];

    s->missed = 0;
    s->found = s->found < UINT16_MAX ? (uint16_t)(s->found + 1) : s->found;
    if (s->watched && s->found >= s->enough && !p->armed &&
        p->unwatcheds < (p->poller.batch_least ? EPOLL_UNWATCHED_BATCH : EPOLL_UNWATCHED))
        unwatch(p, socket);
}

/* ------------------------------------------------------------------------------------------------------------ transfers */
static void enlist(struct epoll_poller *p, uint32_t socket, enum poller_way way)
{
    struct epoll_way *w = &p->socket[socket].way[way];

    if (!w->listed && w->ready && w->vector)
        p->list[p->listed++] = socket * POLLER_WAYS + (uint32_t)way;
    w->listed |= w->ready && w->vector;
}

/* Handles the result of an attempt. False: the transfer must wait. */
static bool tried(struct epoll_poller *p, uint32_t socket, enum poller_way way, int64_t n)
{
    struct epoll_way *w = &p->socket[socket].way[way];

    if (n == -EAGAIN || n == -EWOULDBLOCK) {
        p->blocked += w->ready && way == POLLER_SEND;
        w->ready = false;
        if (!p->socket[socket].watched && way == POLLER_SEND)
            watch_again(p, socket);
        return false;
    }
    w->vector = NULL;
    return true;
}

/* One attempt of the current receive, by a call of its own. */
static int64_t receive_now(const struct epoll_poller *p, uint32_t socket)
{
    const struct epoll_way *w = &p->socket[socket].way[POLLER_RECEIVE];
    int64_t n = w->count == 1 ? poller_transfer_piece(p->socket[socket].fd, POLLER_RECEIVE, w->vector->iov_base, w->vector->iov_len)
                              : poller_transfer(p->socket[socket].fd, POLLER_RECEIVE, w->vector, w->count);

    return n == -EINTR ? -EAGAIN : n;
}

static void attempt_later(const struct epoll_poller *p, struct attempts *a, uint32_t item)
{
    const struct epoll_socket *s = &p->socket[item / POLLER_WAYS];
    const struct epoll_way *w = &s->way[item % POLLER_WAYS];

    a->one[a->count] = (struct batch_transfer){s->fd, (enum poller_way)(item % POLLER_WAYS), w->vector, w->count, 0};
    a->item[a->count++] = item;
}

static void attempt_all(const struct epoll_poller *p, struct attempts *a)
{
    bool batch = p->batch && a->count >= BATCH_LEAST;

    if (batch)
        batch_run(p->batch, a->one, a->count);
    for (uint32_t i = 0; i < a->count && !batch; i++)
        a->one[i].result = poller_transfer(a->one[i].fd, a->one[i].way, a->one[i].vector, a->one[i].count);
}

/* A receive is not tried here: its owner has just read everything, so an attempt would only return EAGAIN. A send is tried, unless so many
 * were started before the last submit that a batch is worth while: a send that ends here needs no event. */
static int64_t epoll_start(struct poller *poller, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    struct epoll_way *w = &p->socket[socket].way[way];
    bool now = way == POLLER_SEND && w->ready && !p->poller.collects;
    int64_t result = now ? poller_transfer(p->socket[socket].fd, way, vector, count) : -EINPROGRESS;

    p->started += way == POLLER_SEND;
    w->vector = vector;
    w->count = count;
    if (now && tried(p, socket, way, result))
        return result;
    enlist(p, socket, way);
    return -EINPROGRESS;
}

/* Executes the collected sends. ends and reap report those that finish here. */
static void epoll_submit(struct poller *poller)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    struct attempts *a = &p->attempts;
    uint32_t kept = 0;

    if (!p->poller.batch_least)
        return;
    p->poller.collects = p->started ? p->started >= p->poller.batch_least : p->poller.collects;
    p->started = 0;
    a->count = 0;
    for (uint32_t i = 0; i < p->listed; i++) {
        uint32_t item = p->list[i];
        struct epoll_way *w = &p->socket[item / POLLER_WAYS].way[item % POLLER_WAYS];
        if (item % POLLER_WAYS == POLLER_RECEIVE || a->count == BATCH_MOST) {
            p->list[kept++] = item;
            continue;
        }
        w->listed = false;
        if (w->vector && w->ready)
            attempt_later(p, a, item);
    }
    p->listed = kept;
    attempt_all(p, a);
    for (uint32_t i = 0; i < a->count; i++) {
        struct epoll_way *w = &p->socket[a->item[i] / POLLER_WAYS].way[POLLER_SEND];
        if (!tried(p, a->item[i] / POLLER_WAYS, POLLER_SEND, a->one[i].result))
            continue;
        w->ended = true;
        w->result = a->one[i].result;
        p->end[p->ended++] = a->item[i] / POLLER_WAYS;
    }
}

static int64_t epoll_cancel(struct poller *poller, uint32_t socket, enum poller_way way)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    struct epoll_way *w = &p->socket[socket].way[way];

    w->vector = NULL;
    if (!w->ended)
        return -ECANCELED;
    epoll_forget_end(p, socket);
    return w->result;
}

static void mark(struct epoll_poller *p, uint32_t socket, bool receive, bool send)
{
    struct epoll_socket *s = &p->socket[socket];

    if (s->fd < 0)
        return;
    s->way[POLLER_RECEIVE].ready |= receive;
    p->blocked -= send && !s->way[POLLER_SEND].ready;
    s->way[POLLER_SEND].ready |= send;
    enlist(p, socket, POLLER_RECEIVE);
    enlist(p, socket, POLLER_SEND);
}

/* The events of one call may all be edges of data that was read already. Then it calls again for the edges after them. */
static void look(struct epoll_poller *p)
{
    struct epoll_event ready[EPOLL_EVENTS];
    uint32_t asked = 0;
    int n;

    do {
        n = posix_epoll_wait(p->poller.fd, ready, EPOLL_EVENTS, 0);
        for (int i = 0; i < n; i++)
            mark(p, ready[i].data.u32, ready[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR),
                 ready[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR));
        asked += EPOLL_EVENTS;
    } while (n == EPOLL_EVENTS && !p->listed && asked < p->sockets);
    for (uint32_t i = 0; i < p->unwatcheds; i++) /* a send waits here only if the kernel had no memory to watch its socket again */
        mark(p, p->unwatched[i], true, true);
}

/* An attempt on a socket that is not watched found nothing. After enough of these, the socket is watched again. */
static void missed(struct epoll_poller *p, uint32_t socket)
{
    struct epoll_socket *s = &p->socket[socket];

    if (!s->watched && ++s->missed >= EPOLL_MISSED)
        watch_again(p, socket);
}

static uint32_t try_listed(struct epoll_poller *p, struct poller_event *events, uint32_t max)
{
    uint32_t told = 0, kept = 0, most = max < BATCH_MOST ? max : BATCH_MOST;
    struct attempts *a = &p->attempts;

    a->count = 0;
    for (uint32_t i = 0; i < p->listed; i++) {
        struct epoll_way *w = &p->socket[p->list[i] / POLLER_WAYS].way[p->list[i] % POLLER_WAYS];
        if (a->count == most) {
            p->list[kept++] = p->list[i];
            continue;
        }
        w->listed = false;
        if (w->vector && w->ready)
            attempt_later(p, a, p->list[i]);
    }
    p->listed = kept;
    attempt_all(p, a);
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t socket = a->item[i] / POLLER_WAYS;
        if (tried(p, socket, a->one[i].way, a->one[i].result)) {
            p->socket[socket].missed = 0;
            events[told++] = (struct poller_event){socket, a->one[i].way, a->one[i].result};
        } else {
            missed(p, socket);
        }
    }
    return told;
}

static uint32_t tell_hot(struct epoll_poller *p, uint32_t socket, int64_t n, struct poller_event *event)
{
    if (!tried(p, socket, POLLER_RECEIVE, n))
        return 0;
    p->socket[socket].way[POLLER_RECEIVE].ready = true;
    found(p, socket);
    *event = (struct poller_event){socket, POLLER_RECEIVE, n};
    return 1;
}

/* Tries the sockets that are waited for at once: if they are few, it costs no more than asking epoll. */
static uint32_t try_hot(struct epoll_poller *p, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    struct attempts *a = &p->attempts;
    bool batch = p->batch && hots >= BATCH_LEAST;
    uint32_t told = 0;

    a->count = 0;
    for (uint32_t i = 0; i < hots && a->count + told < max; i++) {
        if (p->socket[hot[i]].fd < 0 || !p->socket[hot[i]].way[POLLER_RECEIVE].vector)
            continue;
        if (batch)
            attempt_later(p, a, hot[i] * POLLER_WAYS + POLLER_RECEIVE);
        else
            told += tell_hot(p, hot[i], receive_now(p, hot[i]), events + told);
    }
    attempt_all(p, a);
    for (uint32_t i = 0; i < a->count; i++)
        told += tell_hot(p, a->item[i] / POLLER_WAYS, a->one[i].result, events + told);
    return told;
}

static uint32_t epoll_ends(struct poller *poller, struct poller_event *events, uint32_t max)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    uint32_t told = 0;

    while (p->ended && told < max) {
        uint32_t socket = p->end[--p->ended];
        p->socket[socket].way[POLLER_SEND].ended = false;
        events[told++] = (struct poller_event){socket, POLLER_SEND, p->socket[socket].way[POLLER_SEND].result};
    }
    return told;
}

static uint32_t epoll_reap(struct poller *poller, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    uint32_t few = EPOLL_HOT_MOST, told = 0;

    if (p->poller.batch_least) {
        epoll_submit(poller);
        told = epoll_ends(poller, events, max);
        few = p->poller.collects ? EPOLL_HOT_BATCH : EPOLL_HOT_MOST;
    }
    if (!hot || !hots || hots > few || p->blocked || p->turn++ % EPOLL_LOOK_AT_ALL == 0)
        look(p);
    else
        told += try_hot(p, events + told, max - told, hot, hots);
    if (p->listed)
        told += try_listed(p, events + told, max - told);
    while (!told && p->listed) /* the caller may sleep now, and the edges of those that were not tried are over */
        told = try_listed(p, events, max);
    return told;
}

static int64_t epoll_attempt(struct poller *poller, uint32_t socket)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    struct epoll_way *w = &p->socket[socket].way[POLLER_RECEIVE];

    if (!w->vector || p->blocked || p->ended || p->turn % EPOLL_LOOK_AT_ALL == 0) /* reap counts this turn and looks at all sockets */
        return -EBUSY;
    p->turn++;
    int64_t n = receive_now(p, socket);
    w->ready = n != -EAGAIN;
    if (w->ready) {
        found(p, socket);
        enlist(p, socket, POLLER_RECEIVE);
    }
    return n;
}

static void epoll_arm(struct poller *poller, bool on)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;

    p->armed = on;
    for (uint32_t i = p->unwatcheds; on && i-- > 0;)
        watch_again(p, p->unwatched[i]);
}

#define CLASS                                                                                                                              \
    .close = epoll_close_poller, .add = epoll_add, .remove = epoll_remove, .start = epoll_start, .cancel = epoll_cancel,                   \
    .attempt = epoll_attempt, .reap = epoll_reap, .submit = epoll_submit, .ends = epoll_ends, .arm = epoll_arm

const struct poller_class poller_epoll = {.name = "epoll", .open = epoll_open_poller, CLASS};
#ifdef COMM_HAVE_URING
const struct poller_class poller_uring = {.name = "io_uring", .open = uring_open_poller, CLASS};
#endif
