/* Links that are made when needed, and the base graph. A link can be used at any time: frames wait until it is connected. */
#ifndef NET_STATE_GRAPH_H
#define NET_STATE_GRAPH_H

#include "net/state/state.h"

void tcp_want(struct tcp_link *link, bool base);          /* the link is needed; the monitor makes it */
bool tcp_stands(const struct tcp_link *link);             /* whether all needed connections of the link exist */
bool tcp_is_base(const struct tcp_wire *w, int32_t peer); /* in the base graph, if no rank is down */
bool tcp_is_neighbour(const struct tcp_link *link);
void tcp_add_neighbour(struct tcp_link *link); /* one of its connections is new */
struct tcp_link *const *tcp_base_links(struct tcp_wire *w, uint32_t *count);
struct tcp_relay *tcp_relay_of(const struct tcp_wire *w);

#endif
