/* mesh: makes the connections of the tcp wire. This is its interface for the wire. All functions except tcp_acceptor_hear are called under
 * the wire's lock. */
#ifndef NET_MESH_CONNECT_H
#define NET_MESH_CONNECT_H

#include "net/state/state.h"

/* While a world opens. Return COMM_OK, or an error with its text in config->error_text. tcp_mesh_here: all ranks are in this process. */
enum comm_result tcp_mesh(struct tcp_wire *w, const struct wire_config *config);
enum comm_result tcp_mesh_here(struct tcp_wire *w, const struct wire_config *config);

/* For links that are made when needed (links.c). tcp_acceptor_make is called before tcp_mesh, and does nothing if all links are made at
 * opening. */
enum comm_result tcp_acceptor_make(struct tcp_wire *w, const struct wire_config *config);
void tcp_acceptor_close(struct tcp_wire *w);
void tcp_acceptor_turn(struct tcp_wire *w, bool tick); /* called by the monitor */
void tcp_acceptor_hear(struct tcp_wire *w);            /* called by the monitor, without the lock */
bool tcp_acceptor_busy(struct tcp_wire *w);            /* whether queued frames wait for their link */
/* Whether others have reported the end of this peer, and no connection of our own contradicts it. */
bool tcp_ends_as_told(struct tcp_wire *w, struct tcp_link *link, int64_t now);
bool tcp_has_said_all(const struct tcp_wire *w, const struct tcp_link *link, int64_t now); /* for a link with a connection that has ended */
void tcp_link_lost(struct tcp_wire *w, struct tcp_link *link);                             /* the link has just gone down */

#endif
