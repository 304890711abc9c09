/* tcp: the wire between processes that share no memory (they may be on one host): its life, its channels, and its monitor. Private to this
 * folder. */
#ifndef NET_TCP_TCP_H
#define NET_TCP_TCP_H

#include "net/lane/lane.h"
#include "net/mesh/connect.h"

extern const struct wire_class wire_tcp;   /* tcp.c */
extern const struct wire_class tcp_of_two; /* for channels with two members */

void tcp_destroy(struct tcp_wire *w);

/* The beginning of the next part of an allocation; the previous part ends at `end`. */
static inline void *tcp_behind(void *end)
{
    edge_close(end, EDGE_BYTES);
    return (char *)end + EDGE_BYTES;
}

/* channel.c */
enum comm_result tcp_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                          void *offer, struct wire_channel **channel);
void tcp_leave(struct wire_channel *channel, enum wire_leave how);

/* close.c: last words */
void tcp_say_given_up(struct tcp_link *link); /* to a rank that is down, if it may continue and hear it */
void tcp_close(struct wire *wire);
void tcp_farewell(struct env_farewell *farewell); /* the process exits while the wire is open */

/* heed.c: called under the wire's lock, except tcp_heed and tcp_urge */
int tcp_heed_open(struct tcp_wire *w); /* returns 0, or an errno */
bool tcp_heed(struct wire *wire, bool on);
void tcp_urge(struct wire_channel *channel, bool on);

/* watch.c: run by the monitor */
uint32_t tcp_poll(struct wire *wire, struct wire_event *events, uint32_t max);

#endif
