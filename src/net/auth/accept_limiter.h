/*
 * accept_limiter: limits the CPU time that unauthenticated connections can take from a rank after its world has opened. Each step of the
 * acceptor is charged a stretch of time, at least fifty times its CPU cost (one check by the monitor costs 60 us, an accept 20 us, an
 * answer to a hello 150 us). While the charge exceeds the time that has passed, the acceptor does nothing. Unused time is saved up to a
 * bound, so that bursts of honest ranks are not delayed. The charge for a peer that is admitted is returned. Pure.
 */
#ifndef NET_AUTH_ACCEPT_LIMITER_H
#define NET_AUTH_ACCEPT_LIMITER_H

#include <stdint.h>

#define RATE_LOOK_NS INT64_C(8000000)
#define RATE_ACCEPT_NS INT64_C(1000000)
#define RATE_ANSWER_NS INT64_C(12000000)
#define RATE_SAVED_NS INT64_C(1000000000)
#define RATE_SHORT_NS INT64_C(100000000) /* the rest when no descriptor or memory was left for a connection */

struct accept_limiter {
    int64_t charged_until;
};

static inline void accept_limiter_charge(struct accept_limiter *p, int64_t now, int64_t ns)
{
    if (p->charged_until < now - RATE_SAVED_NS)
        p->charged_until = now - RATE_SAVED_NS;
    p->charged_until += ns;
}

static inline void accept_limiter_give_back(struct accept_limiter *p, int64_t ns)
{
    p->charged_until -= ns;
}

/* The acceptor rests at least this long, whatever it has saved. */
static inline void accept_limiter_pause(struct accept_limiter *p, int64_t now, int64_t ns)
{
    if (p->charged_until < now + ns)
        p->charged_until = now + ns;
}

/* How long the acceptor must rest; 0: not at all. */
static inline int64_t accept_limiter_rest(const struct accept_limiter *p, int64_t now)
{
    return p->charged_until > now ? p->charged_until - now : 0;
}

#endif
