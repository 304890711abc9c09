/* A poller over pairs of sockets, for the tests of pollers. */
#ifndef TESTS_POLLER_RIG_H
#define TESTS_POLLER_RIG_H

#include "net/poll/poller.h"

enum { PAIRS = 8, BIG = 8 << 20 /* more than a socket takes at once */ };

/* A poller of the given kind over PAIRS socket pairs: sockets 2i and 2i + 1 are the ends of pair i. */
struct rig {
    struct poller *p;
    int fd[2 * PAIRS];
};

void rig_up(struct rig *r, const struct poller_class *class);
void rig_down(struct rig *r);
/* The result of one transfer, immediate or by event. */
int64_t await(struct rig *r, uint32_t socket, enum poller_way way, int64_t started);
int64_t start(struct rig *r, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count);
/* Runs it with epoll, and with io_uring unless no ring can be made here, which is said. */
void on_each(void (*fn)(const struct poller_class *));
#define ON_EACH(name)                                                                                                                      \
    static void test_##name(void **state)                                                                                                  \
    {                                                                                                                                      \
        (void)state;                                                                                                                       \
        on_each(name);                                                                                                                     \
    }

#endif
