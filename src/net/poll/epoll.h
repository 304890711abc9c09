/* The state of both kinds of poller, private to this room: epoll_open.c has their life, epoll.c has their transfers. */
#ifndef NET_POLL_EPOLL_H
#define NET_POLL_EPOLL_H

#include "net/poll/batch.h"

enum {
    EPOLL_EVENTS = 64,
    EPOLL_HOT_MOST = 3,
    EPOLL_HOT_BATCH = 32,
    EPOLL_SOCKETS_OF_FOUR = 15, /* for five ranks in different processes: each has four peers, which send on one or two sockets each */
    EPOLL_LOOK_AT_ALL = 64,
    EPOLL_UNWATCHED = 4,
    EPOLL_UNWATCHED_BATCH = 32,
    EPOLL_FOUND = 32,         /* successful receives in a row after which a socket is no longer watched. The number doubles ... */
    EPOLL_FOUND_MOST = 32768, /* ... each time up to this, unless not watching paid: ... */
    EPOLL_PAID = 256,         /* ... this many receives succeeded while it was not watched */
    EPOLL_MISSED = 64,        /* unsuccessful looks in a row after which it is watched again */
};

struct epoll_way {
    const struct iovec *vector; /* the current transfer; NULL: none */
    uint32_t count;
    bool ready; /* no EAGAIN since the last edge */
    bool listed;
    bool ended; /* finished with `result`, but not reported yet */
    int64_t result;
};
struct epoll_socket {
    int fd; /* -1: not added */
    bool watched;
    uint16_t found, enough, missed;
    struct epoll_way way[POLLER_WAYS];
};

/* The attempts of one look. An item is socket * POLLER_WAYS + way. */
struct attempts {
    struct batch_transfer one[BATCH_MOST];
    uint32_t item[BATCH_MOST], count;
};

struct epoll_poller {
    struct poller poller;
    const struct comm_env *env;
    uint32_t sockets, turn;
    uint32_t blocked; /* number of sends that wait for room */
    uint32_t started; /* sends since the last submit */
    uint32_t listed;  /* number of items whose mark is set and whose transfer is current */
    uint32_t *list, *end;
    bool armed;
    struct batch *batch;      /* NULL: each attempt is a system call */
    struct attempts attempts; /* of the current look */
    uint32_t ended;           /* number of finished sends that were not reported yet */
    uint32_t unwatched[EPOLL_UNWATCHED_BATCH], unwatcheds;
    struct epoll_socket socket[];
};

/* epoll_open.c */
int epoll_open_poller(const struct poller_config *config, struct poller **poller);
void epoll_close_poller(struct poller *poller);
int epoll_add(struct poller *poller, uint32_t socket, int fd);
void epoll_remove(struct poller *poller, uint32_t socket);
#ifdef COMM_HAVE_URING
int uring_open_poller(const struct poller_config *config, struct poller **poller);
#endif
int epoll_watch(const struct epoll_poller *p, uint32_t socket, int fd); /* returns 0, or -errno */
void epoll_forget_unwatched(struct epoll_poller *p, uint32_t socket);
void epoll_forget_end(struct epoll_poller *p, uint32_t socket);

#endif
