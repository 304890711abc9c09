/*
 * accept_limiter: how much of a rank's time those who come to its acceptor may take once the world is open. Whatever is done for them is
 * charged with a stretch of time, at least fifty times what it takes of a CPU (a look of the monitor 60 us, a connection 20 us, an answer
 * to a hello 150 us); while more is charged than has passed, nobody looks. What was not used is saved up, to a bound: so honest ranks, who
 * come in bursts, are not slowed, and what was charged for one who was let in is given back. Pure.
 */
#ifndef NET_AUTH_ACCEPT_LIMITER_H
#define NET_AUTH_ACCEPT_LIMITER_H

#include <stdint.h>

#define PACE_LOOK_NS INT64_C(8000000)
#define PACE_ACCEPT_NS INT64_C(1000000)
#define PACE_ANSWER_NS INT64_C(12000000)
#define PACE_SAVED_NS INT64_C(1000000000)

struct accept_limiter {
    int64_t charged_until;
};

static inline void accept_limiter_charge(struct accept_limiter *p, int64_t now, int64_t ns)
{
    if (p->charged_until < now - PACE_SAVED_NS)
        p->charged_until = now - PACE_SAVED_NS;
    p->charged_until += ns;
}

static inline void accept_limiter_give_back(struct accept_limiter *p, int64_t ns)
{
    p->charged_until -= ns;
}

/* How long nobody is to look; 0: not at all. */
static inline int64_t accept_limiter_rest(const struct accept_limiter *p, int64_t now)
{
    return p->charged_until > now ? p->charged_until - now : 0;
}

#endif
