/* tcp: the wire between processes that share no memory, also on one host: its life, its channels, and its monitor. Between its own files.
 */
#ifndef NET_TCP_TCP_H
#define NET_TCP_TCP_H

#include "net/lane/lane.h"
#include "net/mesh/connect.h"

extern const struct wire_class wire_tcp;   /* tcp.c */
extern const struct wire_class tcp_of_two; /* of channels with two members */

void tcp_destroy(struct tcp_wire *w);

/* Where the next part of one allocation begins, whose last part ends at `end`. */
static inline void *tcp_behind(void *end)
{
    edge_close(end, EDGE_BYTES);
    return (char *)end + EDGE_BYTES;
}

/* channel.c */
enum comm_result tcp_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                          void *offer, struct wire_channel **channel);
void tcp_leave(struct wire_channel *channel, enum wire_leave how);

/* close.c: goodbyes */
void tcp_close(struct wire *wire);
void tcp_farewell(struct env_farewell *farewell); /* the process ends, and the wire is open */

/* heed.c: under the wire's lock, but for tcp_heed */
int tcp_heed_open(struct tcp_wire *w); /* 0, or an errno */
bool tcp_heed(struct wire *wire, bool on);

/* watch.c: the monitor's part */
uint32_t tcp_poll(struct wire *wire, struct wire_event *events, uint32_t max);

#endif
