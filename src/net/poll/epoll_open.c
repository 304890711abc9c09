/* The life of a poller, and of its sockets. */
#define _GNU_SOURCE
#include "net/poll/epoll.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

static size_t bytes_of(uint32_t sockets)
{
    return sizeof(struct epoll_poller) + sockets * (sizeof(struct epoll_socket) + (POLLER_WAYS + 1) * sizeof(uint32_t));
}

void epoll_close_poller(struct poller *poller)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;

    if (p->batch)
        batch_close(p->batch);
    if (p->poller.fd >= 0) {
        p->env->own(p->env, p->poller.fd, false);
        close(p->poller.fd);
    }
    p->env->give(p->env, p, bytes_of(p->sockets));
}

int epoll_open_poller(const struct poller_config *config, struct poller **poller)
{
    struct epoll_poller *p = config->env->take(config->env, bytes_of(config->sockets), 64);

    if (!p)
        return -ENOMEM;
    p->poller.class = &poller_epoll;
    p->env = config->env;
    p->sockets = config->sockets;
    p->list = (uint32_t *)(void *)(p->socket + config->sockets);
    p->end = p->list + POLLER_WAYS * config->sockets;
    for (uint32_t i = 0; i < config->sockets; i++)
        p->socket[i].fd = -1;
    p->poller.fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->poller.fd < 0) {
        int error = errno;
        epoll_close_poller(&p->poller);
        return -error;
    }
    p->env->own(p->env, p->poller.fd, true);
    *poller = &p->poller;
    return 0;
}

#ifdef COMM_HAVE_URING
int uring_open_poller(const struct poller_config *config, struct poller **poller)
{
    struct poller *made = NULL;
    int error = epoll_open_poller(config, &made);

    if (error)
        return error;
    struct epoll_poller *p = (struct epoll_poller *)made;
    made->class = &poller_uring;
    made->batch_least = config->sockets > EPOLL_SOCKETS_OF_FOUR ? BATCH_LEAST : 0;
    error = batch_open(config->env, &p->batch);
    if (error)
        epoll_close_poller(made);
    else
        *poller = made;
    return error;
}
#endif

/* ------------------------------------------------------------------------------------------------------------ sockets */
int epoll_watch(const struct epoll_poller *p, uint32_t socket, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = socket};

    return epoll_ctl(p->poller.fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int epoll_add(struct poller *poller, uint32_t socket, int fd)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    int error = epoll_watch(p, socket, fd);

    if (error)
        return error;
    p->socket[socket] = (struct epoll_socket){.fd = fd, .watched = true, .enough = EPOLL_FOUND};
    p->socket[socket].way[POLLER_RECEIVE].ready = p->socket[socket].way[POLLER_SEND].ready = true;
    return 0;
}

void epoll_forget_unwatched(struct epoll_poller *p, uint32_t socket)
{
    for (uint32_t i = 0; i < p->unwatcheds; i++)
        if (p->unwatched[i] == socket)
            p->unwatched[i--] = p->unwatched[--p->unwatcheds];
}

void epoll_forget_end(struct epoll_poller *p, uint32_t socket)
{
    p->socket[socket].way[POLLER_SEND].ended = false;
    for (uint32_t i = 0; i < p->ended; i++)
        if (p->end[i] == socket)
            p->end[i--] = p->end[--p->ended];
}

void epoll_remove(struct poller *poller, uint32_t socket)
{
    struct epoll_poller *p = (struct epoll_poller *)poller;
    struct epoll_socket *s = &p->socket[socket];

    if (s->fd < 0)
        return;
    if (s->watched)
        epoll_ctl(p->poller.fd, EPOLL_CTL_DEL, s->fd, NULL);
    else
        epoll_forget_unwatched(p, socket);
    s->fd = -1;
    p->blocked -= !s->way[POLLER_SEND].ready;
    if (s->way[POLLER_SEND].ended)
        epoll_forget_end(p, socket);
    for (int way = 0; way < POLLER_WAYS; way++) {
        s->way[way].vector = NULL;
        s->way[way].ready = false;
    }
}
